/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves: writers set bits under a mask, readers take places beside them; and the second fast path of 3.8, all bits at once.
 *
 * A writer sets its bits and then reads the places; a reader takes its place and then reads the bits. So one of them sees the
 * other: the reader steps back, the writer stays and waits for the readers that were there before. A writer reads the places only
 * if its parent says that there have been readers, which it learns when it makes itself known there. */
#include "designs/citron/citron.h"

#include <errno.h>
#include <string.h>

static uint64_t mask_of(const struct citron_claim *c)
{
    return bounds_mask(c->ticket);
}

uint64_t citron_place_word(const struct citron_job *j, const struct citron_claim *c)
{
    return reader_word(j->seat->me->slot, j->seat->me->epoch, j->h->record, j->h->serial, c->ticket);
}

fab_addr citron_place_addr(const struct citron_job *j, const struct citron_claim *c)
{
    return job_places(j, c->node) + c->place * sizeof(uint64_t);
}

void citron_leaves_start(struct citron_leaves *l)
{
    l->below = l->looked = false;
    memset(l->flagged, 0, sizeof l->flagged);
}

void citron_leaves_look(const struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct citron_leaves *l)
{
    l->looked = true;
    for (unsigned i = from; i < to; i++) {
        const struct citron_claim *c = &j->claims[i];
        if (claim_internal(c))
            continue;
        batch_read(b, job_node(j, c->node), &l->bits[i], sizeof l->bits[i]);
        if (j->shared)
            batch_read(b, job_places(j, c->node), l->places[i], LEAF_READERS_BYTES);
    }
}

/* A place that was free when somebody looked; without a look, one that is rarely another's. */
static unsigned choose_place(const struct citron_job *j, unsigned i, const struct citron_leaves *l)
{
    unsigned first = (unsigned)((j->seat->me->slot * 5 + j->h->record + j->places_tried) % LEAF_READERS);
    for (unsigned n = 0; n < LEAF_READERS && l->looked; n++)
        if (!l->places[i][(first + n) % LEAF_READERS])
            return (first + n) % LEAF_READERS;
    return first;
}

/* Adds the verb that takes the leaf's units, and returns its number. */
unsigned citron_leaf_add(struct citron_job *j, struct citron_batch *b, unsigned i, const struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims[i];
    if (!j->shared)
        return batch_mcas(b, job_node(j, c->node), 0, mask_of(c), mask_of(c), mask_of(c));
    c->place = (uint8_t)choose_place(j, i, l);
    unsigned op = batch_mcas(b, citron_place_addr(j, c), 0, UINT64_MAX, citron_place_word(j, c), UINT64_MAX);
    if (!l->flagged[i])
        batch_mcas(b, job_node(j, tree_parent(c->node)), 0, 0, NODE_BELOW, NODE_BELOW);
    return op;
}

/* Adds what must be read after that: the other side. */
void citron_leaves_check(const struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct citron_leaves *l)
{
    l->checked = j->shared || l->below;
    for (unsigned i = from; i < to; i++) {
        const struct citron_claim *c = &j->claims[i];
        if (claim_internal(c))
            continue;
        if (j->shared) {
            batch_read(b, job_node(j, c->node), &l->bits[i], sizeof l->bits[i]);
            batch_read(b, job_node(j, tree_parent(c->node)), &l->parents[i], sizeof l->parents[i]);
        } else if (l->below) {
            batch_read(b, job_places(j, c->node), l->places[i], LEAF_READERS_BYTES);
        }
    }
}

void citron_leaf_see(struct citron_job *j, unsigned i, uint64_t old, struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims[i];
    if (claim_internal(c)) {
        /* Nobody takes a turn from the living, and nobody has another's: a writer that had the node is gone with its turn. */
        assert((node_field(old, NODE_TCNT) == c->ticket && !(old & NODE_OCC)) || citron_errs(j, CITRON_ANY));
        return;
    }
    c->took = j->shared ? !old : !(old & mask_of(c));
    if (!j->shared)
        l->bits[i] = old;
}

/* ---- who is there ---- */

/* A reader of any of these units, or -1. Oneself, on the way up, does not count. */
static int find_reader(const struct citron_job *j, const struct citron_claim *c, const uint64_t places[LEAF_READERS])
{
    uint64_t own = reader_word(j->seat->me->slot, j->seat->me->epoch, j->h->record, j->h->serial, 0);
    for (unsigned n = 0; n < LEAF_READERS; n++)
        if (places[n] && mask_of(c) & bounds_mask(reader_bounds(places[n])) &&
            !(j->upgrades && (places[n] & READER_OWNER) == (own & READER_OWNER)))
            return (int)n;
    return -1;
}

/* Reads them, and takes a token after that: above those of readers that have just left. */
OWN_FRAME int citron_read_places(struct citron_job *j, struct tree_node leaf, uint64_t places[LEAF_READERS])
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        batch_read(&b, job_places(j, leaf), places, LEAF_READERS_BYTES);
        job_draw(j, &b);
        int rc = job_run(j, &b);
        if (!rc) {
            job_drew(j, &b);
            return 0;
        }
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

/* A writer that has its bits waits for the readers that came before. */
static int await_readers(struct citron_job *j, unsigned i, uint64_t places[LEAF_READERS])
{
    struct citron_claim *c = &j->claims[i];
    for (int at; (at = find_reader(j, c, places)) >= 0;) {
        fab_addr addr = job_places(j, c->node) + (unsigned)at * sizeof(uint64_t);
        const struct fab_cond cond = {.addr = addr, .mask = UINT32_MAX, .value = places[at] & UINT32_MAX};
        uint64_t seen;
        int rc = job_wait(j, &cond, &seen);
        if (rc > 0)
            rc = citron_repair_place(j, c->node, (unsigned)at, places[at]);
        if (rc < 0 && rc != -EAGAIN && (rc = seat_retry(j->seat, rc)))
            return rc;
        rc = citron_read_places(j, c->node, places);
        if (rc)
            return rc;
    }
    return 0;
}

/* Gives back claims from there on; what lies before stays. */
static int stop_at(struct citron_job *j, unsigned i)
{
    int rc = job_drop_all(j, i, true);
    return rc ? rc : JOB_WAITED;
}

static int settle_reader(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims[i];
    if (c->took)
        return l->bits[i] & mask_of(c) && !citron_errs(j, CITRON_BLIND_READER) ? stop_at(j, i) : 0;
    /* The place was taken meanwhile. When all are, it reads at the parent. */
    int rc = job_drop_all(j, i, true);
    if (!rc && ++j->places_tried > LEAF_READERS)
        return job_escalate(j, tree_parent(c->node));
    return rc ? rc : JOB_WAITED;
}

/* ---- a writer whose bits others have ---- */

/* The bits once more, and with them what follows if they are had: the readers' places, the token. */
OWN_FRAME static int try_bits(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    struct citron_batch b;
    batch_start(&b);
    unsigned op = citron_leaf_add(j, &b, i, l);
    l->below = true; /* readers may have come since the parent said that there were none */
    citron_leaves_check(j, &b, i, i + 1, l);
    job_draw(j, &b);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    citron_leaf_see(j, i, batch_old(&b, op), l);
    job_drew(j, &b);
    return 0;
}

/* It is known to its ancestors, so whoever occupies one from now on waits for it: nothing to look up again, and nothing to make
 * known again. Like one that has bits it keeps nobody waiting but those above, and waits for nobody but those in the same leaf. */
static int take_bits(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims[i];
    while (!c->took) {
        uint64_t busy = l->bits[i] & mask_of(c);
        int rc = busy ? job_wait_bits(j, c->node, busy, &l->bits[i]) : try_bits(j, i, l);
        if (rc == -FAB_EUNKNOWN && !busy)
            return job_doubt_all(j, i, i + 1);
        if (rc < 0)
            return rc;
        if (rc) { /* too long: claims like this one look as if they had bits, and it is time to find out who does */
            j->meek = true;
            return stop_at(j, i);
        }
        if (!busy && !c->took && ++j->blocked > citron_knob(j, CITRON_BLOCKED))
            return job_escalate(j, tree_parent(c->node)); /* lines 23 and 24 */
    }
    return 0;
}

static int settle_writer(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims[i];
    if (!c->took) {
        int rc = job_waits_known(j) ? take_bits(j, i, l) : stop_at(j, i);
        if (rc)
            return rc;
    }
    if (!l->below)
        return 0;
    int rc = l->checked ? 0 : citron_read_places(j, c->node, l->places[i]);
    return rc || find_reader(j, c, l->places[i]) < 0 ? rc : await_readers(j, i, l->places[i]);
}

/* Whether all of the leaf's claim is there already. */
bool citron_leaf_good(const struct citron_job *j, unsigned i, const struct citron_leaves *l)
{
    const struct citron_claim *c = &j->claims[i];
    if (!c->took)
        return false;
    return j->shared ? !(l->bits[i] & mask_of(c)) : !l->below || (l->checked && find_reader(j, c, l->places[i]) < 0);
}

/* Whether the claim of a batch on a leaf is good; waits until it is, having nothing further up. JOB_WAITED: it was given back. */
int citron_leaf_settle(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    return j->shared ? settle_reader(j, i, l) : settle_writer(j, i, l);
}

/* ---- places by themselves ---- */

int citron_swap_place(const struct citron_job *j, const struct citron_claim *c, uint64_t from, uint64_t to)
{
    fab_addr addr = citron_place_addr(j, c);
    uint64_t old;
    int rc = fab_cas64(j->seat->ep, addr, from, to, &old);
    while (rc) {
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
        rc = fab_read64(j->seat->ep, addr, &old); /* the words name their owner: what is there now tells */
        if (!rc && old == to && to)
            old = from;
        else if (!rc && old == from)
            rc = fab_cas64(j->seat->ep, addr, from, to, &old);
    }
    if (old == from)
        job_wake(j, addr);
    return old != from;
}

int citron_take_place(struct citron_job *j, struct citron_claim *c)
{
    uint64_t places[LEAF_READERS];
    for (unsigned tries = 0; tries < LEAF_READERS; tries++) {
        int rc = fab_read(j->seat->ep, job_places(j, c->node), places, sizeof places);
        unsigned n = 0;
        while (!rc && n < LEAF_READERS && places[n])
            n++;
        if (!rc && n == LEAF_READERS)
            return -PAWL_ELIMIT;
        c->place = (uint8_t)n;
        rc = rc ? seat_retry(j->seat, rc) ? -PAWL_ELOST : 1 : citron_swap_place(j, c, 0, citron_place_word(j, c));
        if (rc <= 0)
            return rc;
    }
    return -PAWL_ELIMIT;
}

/* ---- all bits of four leaves at once (3.8) ---- */

static struct tree_node first_leaf(const struct citron_claim *c)
{
    return tree_child(c->node, 0);
}

static bool may_take_whole(const struct citron_job *j, unsigned i)
{
    const struct citron_claim *c = &j->claims[i];
    return citron_knob(j, CITRON_FAST) == FAST_PRINTED && !j->shared && !c->spill && c->node.height == 1 &&
           !config_confirms(j->config) && !j->scrub;
}

/* With all bits set nobody can have come unseen, so T_wait need not be waited out. */
void citron_whole_add(struct citron_job *j, struct citron_batch *b, unsigned i, struct citron_whole *w)
{
    struct citron_claim *c = &j->claims[i];
    w->had = false;
    w->tried = c->all = may_take_whole(j, i);
    if (!w->tried)
        return;
    for (unsigned n = 0; n < 4; n++)
        w->ops[n] = batch_mcas(b, job_node(j, tree_child(c->node, n)), 0, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    batch_read(b, job_places(j, first_leaf(c)), w->places, sizeof w->places);
    w->readers = batch_read64(b, job_readers(j, c->node));
}

void citron_whole_see(struct citron_job *j, const struct citron_batch *b, unsigned i, struct citron_whole *w)
{
    if (!w->tried)
        return;
    w->had = !readers_here(b->values[w->readers]);
    for (unsigned n = 0; n < 4; n++) {
        w->took[n] = batch_old(b, w->ops[n]) == 0;
        w->had &= w->took[n];
    }
    for (unsigned n = 0; n < countof(w->places); n++)
        w->had &= !w->places[n];
}

/* Somebody is there: gives back the bits, and waits as others do. */
OWN_FRAME int citron_whole_leave(struct citron_job *j, unsigned i, struct citron_whole *w)
{
    struct citron_claim *c = &j->claims[i];
    struct citron_batch b;
    if (!w->tried)
        return 0;
    batch_start(&b);
    for (unsigned n = 0; n < 4; n++)
        if (w->took[n])
            batch_mcas(&b, job_node(j, tree_child(c->node, n)), UINT64_MAX, UINT64_MAX, 0, UINT64_MAX);
    c->all = false;
    job_say(j, &b, i, i + 1, CLAIM_HELD);
    int rc = job_run(j, &b);
    for (unsigned n = 0; n < 4; n++)
        if (w->took[n])
            job_wake(j, job_node(j, tree_child(c->node, n)));
    while (rc && !(rc = seat_retry(j->seat, rc))) {
        batch_start(&b);
        job_say(j, &b, i, i + 1, CLAIM_HELD);
        rc = job_run(j, &b);
    }
    return rc;
}
