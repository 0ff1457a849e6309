/* SPDX-License-Identifier: Apache-2.0 */
/* A hold that changes: grows, shrinks, goes up or down. None of it is in the paper.
 *
 * Growing and going up get further claims beside those held, and wait for them with those in hand; so whoever waits with empty
 * hands gives way to them (yield.c). The further claims may contain those held: what the hold has itself is not in its way, and it
 * is given back once the others are had. Everything else waits for nobody. What is added is added before anything is taken away:
 * the connection may break at any point, and counts may be too high then, but never too low. */
#include "designs/citron/citron.h"

#include <errno.h>

uint64_t claim_start(const struct citron_job *j, const struct citron_claim *c)
{
    if (c->spill)
        return tree_units(j->config.height);
    return tree_start(c->node) + (c->node.height ? 0 : c->ticket & 63);
}
uint64_t claim_end(const struct citron_claim *c)
{
    if (c->spill)
        return RANGE_UNITS_MAX;
    return c->node.height ? tree_end(c->node) : tree_start(c->node) + (c->ticket >> 6) + 1;
}

int citron_say_all(struct citron_job *j, enum claim_state state)
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        j->published = false;
        job_say(j, &b, 0, j->count, state);
        int rc = job_run(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

int citron_run_surely(struct citron_job *j, struct citron_batch *b)
{
    int rc;
    while ((rc = job_run(j, b)))
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
    return 0;
}

/* What a change has come to: one who was lost meanwhile need not hear why else it failed. */
static int outcome(const struct seat *seat, int rc)
{
    return rc == -FAB_EFENCED || (rc && !seat_lives(seat)) ? -PAWL_ELOST : rc;
}

/* ---- shrinking ---- */

/* A leaf of which less is needed. First the books, then the bits: should the connection break they are nobody's. */
static int trim(struct citron_job *j, unsigned i, uint32_t bounds)
{
    struct citron_claim *c = &j->claims[i];
    uint64_t was = citron_place_word(j, c), gone = bounds_mask(c->ticket) & ~bounds_mask(bounds), old;
    if (c->ticket == bounds)
        return 0;
    if (c->shared) {
        struct citron_claim place = *c;
        c->ticket = bounds;
        int rc = citron_swap_place(j, &place, was, citron_place_word(j, c));
        return rc < 0 ? rc : citron_say_all(j, CLAIM_HELD);
    }
    c->ticket = bounds;
    int rc = citron_say_all(j, CLAIM_HELD);
    if (!rc)
        rc = fab_mcas64(j->seat->ep, job_node(j, c->node), gone, gone, 0, gone, &old);
    job_wake(j, job_node(j, c->node));
    return rc == -FAB_EUNKNOWN ? seat_retry(j->seat, rc) : rc;
}

static int shrink(struct citron_job *j, uint64_t start, uint64_t end)
{
    unsigned kept = 0;
    int rc = 0;
    for (unsigned i = j->count; i-- > 0 && !rc;)
        if (claim_start(j, &j->claims[i]) >= end || claim_end(&j->claims[i]) <= start)
            rc = job_drop(j, i, false);
    for (unsigned i = 0; i < j->count; i++)
        if (j->claims[i].state == CLAIM_HELD)
            j->claims[kept++] = j->claims[i];
    j->count = kept;
    if (!rc)
        rc = citron_say_all(j, CLAIM_HELD);
    for (unsigned i = 0; i < j->count && !rc; i++)
        if (!claim_internal(&j->claims[i])) {
            struct tree_node leaf = j->claims[i].node;
            uint64_t from = max_u64(start, claim_start(j, &j->claims[i])), to = min_u64(end, claim_end(&j->claims[i]));
            rc = trim(j, i, bounds_of(leaf, from, to));
        }
    return rc;
}

/* ---- more than is held ---- */

static bool has_spill(const struct citron_job *j)
{
    for (unsigned i = 0; i < j->count; i++)
        if (j->claims[i].spill && j->claims[i].shared == j->shared)
            return true;
    return false;
}

/* One node for all of the range that lies in the tree. */
static void plan_one(struct citron_job *j)
{
    uint64_t units = tree_units(j->config.height);
    if (j->start < units) {
        struct tree_node n = tree_cover(j->start, min_u64(j->end, units), j->config.height);
        job_add(j, j->escalated ? j->escalate_to : n, j->start, j->end);
    }
    if (j->end > units && !has_spill(j))
        job_add_spill(j);
}

/* Adds claims for what lies of [start, end) in the tree. */
static void plan_part(struct citron_job *j, uint64_t start, uint64_t end, unsigned k)
{
    struct tree_node nodes[TREE_SPLIT_MAX];
    uint64_t last = min_u64(end, tree_units(j->config.height));
    unsigned n = start < last ? tree_split(start, last, j->config.height, k, nodes) : 0;
    for (unsigned i = 0; i < n; i++)
        job_add(j, nodes[i], start, end);
}

/* Nodes of the part before and the part behind may contain each other. */
static void drop_contained(struct citron_job *j)
{
    unsigned kept = j->base;
    for (unsigned i = j->base; i < j->count; i++) {
        bool contained = false;
        for (unsigned k = j->base; k < j->count && !contained; k++)
            contained = k != i && j->claims[k].node.height && tree_contains(j->claims[k].node, j->claims[i].node) &&
                        !(tree_same(j->claims[k].node, j->claims[i].node) && k > i);
        if (!contained)
            j->claims[kept++] = j->claims[i];
    }
    j->count = kept;
}

/* Claims for what is wanted beside those held; few enough that they can grow again. */
static void plan_growth(struct citron_job *j)
{
    uint64_t from = UINT64_MAX, to = 0, units = tree_units(j->config.height);
    j->count = j->base;
    for (unsigned i = 0; i < j->base; i++) {
        from = min_u64(from, claim_start(j, &j->claims[i]));
        to = max_u64(to, claim_end(&j->claims[i]));
    }
    unsigned parts = (j->start < from) + (j->end > to && to < units);
    unsigned room = j->base < TREE_SPLIT_MAX ? TREE_SPLIT_MAX - j->base : 0;
    if (j->escalated || room < parts) {
        plan_one(j);
        return;
    }
    if (j->start < from)
        plan_part(j, j->start, min_u64(from, j->end), room - parts + 1);
    unsigned before = j->count - j->base;
    if (j->end > to)
        plan_part(j, max_u64(to, j->start), j->end, room - before ? room - before : 1);
    drop_contained(j);
    if (j->end > units && j->end > to && !has_spill(j))
        job_add_spill(j);
}

/* The same nodes once more, for oneself. */
static void plan_upgrade(struct citron_job *j)
{
    j->count = j->base;
    if (j->escalated) {
        plan_one(j);
        return;
    }
    for (unsigned i = 0; i < j->base; i++) {
        const struct citron_claim *c = &j->claims[i];
        if (c->spill && c->shared)
            job_add_spill(j);
        else if (c->shared)
            job_add(j, c->node, claim_start(j, c), claim_end(c));
    }
}

OWN_FRAME static int say_wanted(struct citron_job *j)
{
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, j->base, CLAIMS_MAX, CLAIM_WAIT);
    return citron_run_surely(j, &b);
}

/* Gets what is planned beside what is held. On failure all is as it was. */
static int acquire_more(struct citron_job *j, void (*plan)(struct citron_job *))
{
    int rc;
    j->base = j->count;
    do {
        plan(j);
        j->pending = -1;
        rc = j->count > j->base ? say_wanted(j) : 0;
        if (!rc)
            rc = job_acquire(j);
    } while (rc == JOB_AGAIN);
    if (!rc && j->count > j->base)
        rc = job_settle_token(j);
    int end = rc == -PAWL_ELOST || rc == -FAB_EFENCED ? rc : citron_unmark(j);
    if (!rc || end)
        return end;
    int back = job_drop_all(j, j->base, false);
    j->count = j->base;
    if (!back)
        back = citron_say_all(j, CLAIM_HELD);
    if (!back)
        job_keep(j);
    return back ? back : rc;
}

static bool comes_after(const struct citron_claim *a, const struct citron_claim *b)
{
    return a->spill || (!b->spill && (tree_start(a->node) > tree_start(b->node)));
}

/* What is held no longer, or twice, goes from the list; the rest is in ascending order. */
static int tidy_up(struct citron_job *j, bool (*superfluous)(const struct citron_job *, unsigned))
{
    unsigned kept = 0;
    int rc = 0;
    for (unsigned i = 0; i < j->base && !rc; i++)
        if (superfluous(j, i))
            rc = job_drop(j, i, false);
    for (unsigned i = 0; i < j->count; i++)
        if (j->claims[i].state == CLAIM_HELD) {
            struct citron_claim c = j->claims[i];
            unsigned at = kept++;
            for (; at > 0 && comes_after(&j->claims[at - 1], &c); at--)
                j->claims[at] = j->claims[at - 1];
            j->claims[at] = c;
        }
    j->count = kept;
    j->base = 0;
    return rc ? rc : citron_say_all(j, CLAIM_HELD);
}

static bool is_contained(const struct citron_job *j, unsigned i)
{
    for (unsigned k = j->base; k < j->count; k++)
        if (!j->claims[i].spill && !j->claims[k].spill && j->claims[k].node.height &&
            tree_contains(j->claims[k].node, j->claims[i].node))
            return true;
    return false;
}

static bool is_reader(const struct citron_job *j, unsigned i)
{
    return j->claims[i].shared;
}

static int grow(struct citron_job *j)
{
    bool joint = false;
    for (unsigned i = 0; i < j->count; i++)
        joint |= j->claims[i].joint;
    int rc = joint ? citron_reserve_joint(j) : 0;
    if (!rc)
        rc = acquire_more(j, plan_growth);
    if (!rc && j->count == j->base) /* its nodes cover that already */
        return job_new_token(j);
    return rc ? rc : tidy_up(j, is_contained);
}

int citron_reshape(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    struct citron_job j;
    bool grows = start < h->start || end > h->end;
    int rc = job_resume(&j, seat, h, deadline);
    if (rc)
        return rc;
    j.start = start;
    j.end = end;
    rc = grows ? grow(&j) : shrink(&j, start, end);
    if (rc)
        return outcome(seat, rc);
    if (grows)
        h->token = seat->space->token_base + j.token;
    h->start = start;
    h->end = end;
    job_keep(&j);
    return 0;
}

/* ---- up ---- */

static void plan_whole(struct citron_job *j)
{
    j->count = j->base;
    plan_one(j);
}

/* As a reader of fewer nodes, so that there is room to claim them once more. */
static int gather(struct citron_job *j)
{
    int rc = acquire_more(j, plan_whole);
    return rc ? rc : tidy_up(j, is_contained);
}

/* Claims for oneself; then the readers' go. */
static int upgrade(struct citron_job *j)
{
    int rc = 2 * j->count > CLAIMS_MAX ? gather(j) : 0;
    if (rc)
        return rc;
    job_keep(j);
    j->escalated = false;
    j->shared = false;
    j->upgrades = true;
    rc = acquire_more(j, plan_upgrade);
    if (rc)
        return rc;
    rc = j->count == j->base ? job_new_token(j) : 0;
    return rc ? rc : tidy_up(j, is_reader);
}

/* ---- down ---- */

/* A claim that must stay a writer's: others have its turn, too, or no place is left for one more reader of its leaf. It keeps
 * readers out who could come in, and nobody else. */
static int stays(struct citron_job *j, unsigned i, bool *out)
{
    struct citron_claim *c = &j->claims[i];
    int rc = 0;
    *out = c->shared || (c->joint && citron_is_joint(j, i));
    if (!claim_internal(c) && !c->shared)
        rc = citron_take_place(j, c);
    *out |= rc == -PAWL_ELIMIT;
    c->joint = *out && c->joint;
    return rc == -PAWL_ELIMIT ? 0 : rc;
}

/* Counted as a reader, and made known as one. */
static int add_reader(struct citron_job *j, unsigned i)
{
    struct citron_claim reader = j->claims[i];
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, i, i + 1, CLAIM_FLUX);
    reader.shared = true;
    if (claim_internal(&reader))
        batch_mfaa(&b, job_claim_readers(j, &reader), UINT64_C(1) << READERS_MAX, READERS_TOPS);
    else
        batch_mcas(&b, job_node(j, tree_parent(reader.node)), 0, 0, NODE_BELOW, NODE_BELOW);
    citron_add_known(j, &b, &reader);
    return job_count_surely(j, i, &reader, &b);
}

/* No longer counted as a writer. The first batch must not be repeated, the turn may be passed on twice. */
static int remove_writer(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims[i], was = *c;
    uint64_t mask = claim_internal(c) ? 0 : bounds_mask(c->ticket), turn = (uint64_t)c->ticket << NODE_TCNT;
    uint64_t next = (uint64_t)node_ticket_next(c->ticket) << NODE_TCNT | NODE_SHARED;
    int rc = 0;
    for (bool first = true; first || rc; first = false) {
        struct citron_batch b;
        batch_start(&b);
        for (unsigned n = 0; n < 4 && was.all && first; n++)
            batch_mcas(&b, job_node(j, tree_child(c->node, n)), UINT64_MAX, UINT64_MAX, 0, UINT64_MAX);
        if (claim_internal(c))
            batch_mcas(&b, job_claim_node(j, c), turn, NODE_T_MASK, next, NODE_T_MASK | NODE_OCC | NODE_SHARED);
        else if (first)
            batch_mcas(&b, job_node(j, c->node), mask, mask, 0, mask);
        if (first)
            citron_add_unknown(j, &b, &was);
        c->shared = true;
        c->all = false;
        job_say(j, &b, i, i + 1, CLAIM_HELD);
        rc = job_run(j, &b);
        if (rc && seat_retry(j->seat, rc))
            return -PAWL_ELOST;
    }
    citron_wake_after(j, &was);
    return 0;
}

/* More readers than are counted would be: it stays a writer's, and what may have been counted is nobody's. */
OWN_FRAME static int stay_writer(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims[i];
    struct citron_batch b;
    int rc = claim_internal(c) ? 0 : citron_swap_place(j, c, citron_place_word(j, c), 0);
    if (rc < 0)
        return rc;
    batch_start(&b);
    job_say(j, &b, i, i + 1, CLAIM_HELD);
    return citron_run_surely(j, &b);
}

static int downgrade(struct citron_job *j)
{
    bool stay[CLAIMS_MAX] = {0};
    int rc = 0;
    for (unsigned i = 0; i < j->count && !rc; i++)
        rc = stays(j, i, &stay[i]);
    for (unsigned i = 0; i < j->count && !rc; i++)
        if (!stay[i] && (rc = add_reader(j, i)) == -PAWL_ELIMIT) {
            stay[i] = true;
            rc = stay_writer(j, i);
        }
    if (!rc)
        rc = job_new_token(j);
    for (unsigned i = 0; i < j->count && !rc; i++)
        rc = stay[i] ? 0 : remove_writer(j, i);
    return rc;
}

int citron_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    struct citron_job j;
    if (mode == h->mode)
        return 0;
    int rc = job_resume(&j, seat, h, deadline);
    if (!rc)
        rc = mode == PAWL_SHARED ? downgrade(&j) : upgrade(&j);
    if (rc)
        return outcome(seat, rc);
    h->mode = mode;
    h->token = seat->space->token_base + j.token;
    job_keep(&j);
    return 0;
}
