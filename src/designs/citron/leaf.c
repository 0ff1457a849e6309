/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves that other clients use: waiting for their bits and readers; readers' places; and the second fast path of 3.8, all bits at
 * once. */
#include "designs/citron/steps.h"

#include <errno.h>

/* ---- readers ---- */

struct places {
    fab_addr addr;
    uint64_t *words;
};

static void add_places(struct citron_job *j, struct citron_batch *b, void *ctx)
{
    const struct places *p = ctx;
    batch_read(b, p->addr, p->words, LEAF_READERS_BYTES);
}

/* Takes a token after the READ: above those of readers that have just left. */
static int read_places(struct citron_job *j, struct tree_node leaf, uint64_t places[LEAF_READERS])
{
    struct places p = {job_places(j, leaf), places};
    return token_after(j, add_places, &p);
}

/* A writer that has its bits waits for the readers that came before. */
static int await_readers(struct citron_job *j, unsigned i, uint64_t places[LEAF_READERS])
{
    const struct citron_claim *c = &j->claims.at[i];
    for (int at; (at = claim_find_reader(j, c, places)) >= 0;) {
        fab_addr addr = job_places(j, c->node) + (unsigned)at * sizeof(uint64_t);
        const struct fab_cond cond = {.addr = addr, .mask = UINT32_MAX, .value = places[at] & UINT32_MAX};
        uint64_t seen;
        int rc = job_wait(j, &cond, &seen);
        if (rc > 0)
            rc = citron_repair_place(j, c->node, (unsigned)at, places[at]);
        if (rc < 0 && rc != -EAGAIN && (rc = seat_retry(j->seat, rc)))
            return rc;
        if ((rc = read_places(j, c->node, places)))
            return rc;
    }
    return 0;
}

/* Gives back the claims from that one on; those before it stay. */
static int stop_at(struct citron_job *j, unsigned i)
{
    int rc = job_drop_all(j, i, true);
    return rc ? rc : JOB_WAITED;
}

static int settle_reader(struct citron_job *j, unsigned i, const struct citron_leaves *l)
{
    const struct citron_claim *c = &j->claims.at[i];
    if (c->took)
        return l->bits[i] & bounds_mask(c->ticket) && !citron_errs(j, CITRON_BLIND_READER) ? stop_at(j, i) : 0;
    int rc = stop_at(j, i); /* the place was taken meanwhile; when all are, the client reads at the parent */
    return rc == JOB_WAITED && wait_place_taken(j) ? job_escalate(j, tree_parent(c->node)) : rc;
}

/* ---- writers ---- */

/* The bits once more, with the READs that follow if they are had: the readers' places, the token. */
OWN_FRAME static int try_bits(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    struct citron_batch b;
    batch_start(&b);
    unsigned op = claim_leaf(j, &b, i, l);
    l->below = true; /* readers may have come since the parent said that there were none */
    claim_leaf_check(j, &b, i, i + 1, l);
    token_draw(j, &b);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    claim_leaf_see(j, i, batch_old(&b, op), l);
    token_drew(j, &b);
    return 0;
}

/* The claim has notified its ancestors, so a client that occupies one from now on waits for it: there is nothing to look up and
 * nothing to notify again. Like a claim that has bits it keeps only clients above waiting, and waits only for clients in its leaf.
 */
static int take_bits(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims.at[i];
    while (!c->took) {
        uint64_t busy = l->bits[i] & bounds_mask(c->ticket);
        int rc = busy ? job_wait_bits(j, c->node, busy, &l->bits[i]) : try_bits(j, i, l);
        if (rc == -FAB_EUNKNOWN && !busy)
            return job_doubt_all(j, i, i + 1);
        if (rc < 0)
            return rc;
        if (rc) { /* too long: to a census a claim like this one looks as if it had the bits, so step back before asking for owners
                   */
            wait_unannounced(j);
            return stop_at(j, i);
        }
        if (!busy && !c->took && wait_blocked(j))
            return job_escalate(j, tree_parent(c->node)); /* lines 23 and 24 */
    }
    return 0;
}

static int settle_writer(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    const struct citron_claim *c = &j->claims.at[i];
    if (!c->took) {
        int rc = job_waits_announced(j) ? take_bits(j, i, l) : stop_at(j, i);
        if (rc)
            return rc;
    }
    if (!l->below)
        return 0;
    int rc = l->checked ? 0 : read_places(j, c->node, l->places[i]);
    return rc ? rc : await_readers(j, i, l->places[i]);
}

int leaf_settle(struct citron_job *j, unsigned i, struct citron_leaves *l)
{
    return j->plan.shared ? settle_reader(j, i, l) : settle_writer(j, i, l);
}

/* ---- places by themselves ---- */

int leaf_swap_place(const struct citron_job *j, const struct citron_claim *c, uint64_t from, uint64_t to)
{
    fab_addr addr = citron_place_addr(j, c);
    uint64_t old;
    int rc = fab_cas64(j->seat->ep, addr, from, to, &old);
    while (rc) {
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
        rc = fab_read64(j->seat->ep, addr, &old); /* the word names its owner, so it tells the outcome */
        if (!rc && old == to && to)
            old = from;
        else if (!rc && old == from)
            rc = fab_cas64(j->seat->ep, addr, from, to, &old);
    }
    if (old == from)
        job_wake(j, addr);
    return old != from;
}

int leaf_take_place(struct citron_job *j, struct citron_claim *c)
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
        rc = rc ? seat_retry(j->seat, rc) ? -PAWL_ELOST : 1 : leaf_swap_place(j, c, 0, citron_place_word(j, c));
        if (rc <= 0)
            return rc;
    }
    return -PAWL_ELIMIT;
}

/* ---- all bits of four leaves at once (3.8) ---- */

static bool may_take_whole(const struct citron_job *j, unsigned i)
{
    const struct citron_claim *c = &j->claims.at[i];
    return !j->plan.shared && !c->spill && c->node.height == 1 && !config_confirms(j->plan.config) && !j->plan.scrub;
}

/* If all bits were clear no client can have come unseen, so T_wait need not be waited out. */
void leaf_whole_add(struct citron_job *j, struct citron_batch *b, unsigned i, struct citron_whole *w)
{
    struct citron_claim *c = &j->claims.at[i];
    w->had = false;
    w->tried = c->all = may_take_whole(j, i);
    if (!w->tried)
        return;
    for (unsigned n = 0; n < 4; n++)
        w->ops[n] = batch_mcas(b, job_node(j, tree_child(c->node, n)), 0, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    batch_read(b, job_places(j, tree_child(c->node, 0)), w->places, sizeof w->places);
    w->readers = batch_read64(b, job_readers(j, c->node));
}

void leaf_whole_see(const struct citron_batch *b, struct citron_whole *w)
{
    w->had = !readers_here(b->values[w->readers]);
    for (unsigned n = 0; n < 4; n++) {
        w->took[n] = batch_old(b, w->ops[n]) == 0;
        w->had &= w->took[n];
    }
    for (unsigned n = 0; n < countof(w->places); n++)
        w->had &= !w->places[n];
}

/* Another client is there: gives back the bits, and waits as at other nodes. */
OWN_FRAME int leaf_whole_leave(struct citron_job *j, unsigned i, const struct citron_whole *w)
{
    struct citron_claim *c = &j->claims.at[i];
    struct citron_batch b;
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
    return rc && !(rc = seat_retry(j->seat, rc)) ? job_say_surely(j, i, i + 1, CLAIM_HELD) : rc;
}
