/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a hold: growing, shrinking, upgrading and downgrading. None of it is in the paper.
 *
 * A hold that grows or upgrades gets further claims beside those it has, and waits for them with those in hand. So waiters that
 * hold nothing give way to it (yield.c). The further claims may contain the former ones: a hold is not in its own way, and gives
 * the former ones back once it has the others. The other changes do not wait. Claims are added before others are taken back: when
 * the connection breaks, counts may become too high, but never too low. */
#include "designs/citron/steps.h"

/* The outcome of a change: if the session was lost meanwhile, no other reason of a failure matters. */
static int outcome(const struct seat *seat, int rc)
{
    return rc == -FAB_EFENCED || (rc && !seat_lives(seat)) ? -PAWL_ELOST : rc;
}

/* ---- shrinking ---- */

/* A leaf of which fewer units are needed. The books change before the bits: if the connection breaks, the bits have no owner. */
static int trim(struct citron_job *j, unsigned i, uint32_t bounds)
{
    struct citron_claim *c = &j->claims.at[i];
    uint64_t was = citron_place_word(j, c), gone = bounds_mask(c->ticket) & ~bounds_mask(bounds), old;
    if (c->ticket == bounds)
        return 0;
    if (c->shared) {
        struct citron_claim place = *c;
        c->ticket = bounds;
        int rc = leaf_swap_place(j, &place, was, citron_place_word(j, c));
        return rc < 0 ? rc : job_say_all(j, CLAIM_HELD);
    }
    c->ticket = bounds;
    int rc = job_say_all(j, CLAIM_HELD);
    if (!rc)
        rc = fab_mcas64(j->seat->ep, job_node(j, c->node), gone, gone, 0, gone, &old);
    job_wake(j, job_node(j, c->node));
    return rc == -FAB_EUNKNOWN ? seat_retry(j->seat, rc) : rc;
}

static int shrink(struct citron_job *j, uint64_t start, uint64_t end)
{
    int rc = 0;
    for (unsigned i = j->claims.n; i-- > 0 && !rc;)
        if (claim_start(j, &j->claims.at[i]) >= end || claim_end(&j->claims.at[i]) <= start)
            rc = job_drop(j, i, false);
    claims_keep_held(j);
    if (!rc)
        rc = job_say_all(j, CLAIM_HELD);
    for (unsigned i = 0; i < j->claims.n && !rc; i++)
        if (!claim_internal(&j->claims.at[i])) {
            struct tree_node leaf = j->claims.at[i].node;
            uint64_t from = max_u64(start, claim_start(j, &j->claims.at[i])), to = min_u64(end, claim_end(&j->claims.at[i]));
            rc = trim(j, i, bounds_of(leaf, from, to));
        }
    return rc;
}

/* ---- growing ---- */

/* Gets the planned claims beside those held. After a failure the hold is as it was. */
static int acquire_more(struct citron_job *j, void (*plan)(struct citron_job *))
{
    int rc;
    j->claims.base = j->claims.n;
    do {
        plan(j);
        rc = j->claims.n > j->claims.base ? job_say_range(j, j->claims.base, CLAIMS_MAX, CLAIM_WAIT) : 0;
        if (!rc)
            rc = job_acquire(j);
    } while (rc == JOB_AGAIN);
    if (!rc && j->claims.n > j->claims.base)
        rc = token_settle(j);
    int end = rc == -PAWL_ELOST || rc == -FAB_EFENCED ? rc : citron_unmark(j);
    if (!rc || end)
        return end;
    int back = job_drop_all(j, j->claims.base, false);
    j->claims.n = j->claims.base;
    if (!back)
        back = job_say_all(j, CLAIM_HELD);
    if (!back)
        job_keep(j);
    return back ? back : rc;
}

/* Gives back the former claims that are superfluous. */
static int tidy_up(struct citron_job *j, bool (*superfluous)(const struct citron_job *, unsigned))
{
    int rc = 0;
    for (unsigned i = 0; i < j->claims.base && !rc; i++)
        if (superfluous(j, i))
            rc = job_drop(j, i, false);
    claims_keep_held(j);
    return rc ? rc : job_say_all(j, CLAIM_HELD);
}

static bool is_contained(const struct citron_job *j, unsigned i)
{
    for (unsigned k = j->claims.base; k < j->claims.n; k++)
        if (!j->claims.at[i].spill && !j->claims.at[k].spill && j->claims.at[k].node.height &&
            tree_contains(j->claims.at[k].node, j->claims.at[i].node))
            return true;
    return false;
}

static bool is_reader(const struct citron_job *j, unsigned i)
{
    return j->claims.at[i].shared;
}

static int grow(struct citron_job *j)
{
    bool joint = false;
    for (unsigned i = 0; i < j->claims.n; i++)
        joint |= j->claims.at[i].joint;
    int rc = joint ? citron_reserve_joint(j) : 0;
    if (!rc)
        rc = acquire_more(j, plan_growth);
    if (!rc && j->claims.n == j->claims.base) /* its nodes cover the new range already */
        return token_renew(j);
    return rc ? rc : tidy_up(j, is_contained);
}

ONCE int citron_reshape(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    struct citron_job j;
    bool grows = start < h->start || end > h->end;
    int rc = job_resume(&j, seat, h, deadline);
    if (rc)
        return rc;
    plan_reshape(&j, start, end);
    rc = grows ? grow(&j) : shrink(&j, start, end);
    if (rc)
        return outcome(seat, rc);
    assert(j.claims.n); /* I5: the record names what is held */
    if (grows)
        h->token = seat->space->token_base + j.token.value;
    h->start = start;
    h->end = end;
    job_keep(&j);
    return 0;
}

/* ---- upgrading ---- */

/* Reads fewer nodes, so that there is room to claim them once more. */
static int gather(struct citron_job *j)
{
    int rc = acquire_more(j, plan_whole);
    return rc ? rc : tidy_up(j, is_contained);
}

/* Gets exclusive claims, and then gives back the shared ones. */
static int upgrade(struct citron_job *j)
{
    int rc = 2 * j->claims.n > CLAIMS_MAX ? gather(j) : 0;
    if (rc)
        return rc;
    job_keep(j);
    plan_exclusive(j);
    rc = acquire_more(j, plan_upgrade);
    if (rc)
        return rc;
    rc = j->claims.n == j->claims.base ? token_renew(j) : 0;
    return rc ? rc : tidy_up(j, is_reader);
}

/* ---- downgrading ---- */

/* A claim that must stay exclusive: other holds have its turn, too, or its leaf has no place left for a reader. It keeps out
 * readers that could come in, and no other client. */
static int stays(struct citron_job *j, unsigned i, bool *out)
{
    struct citron_claim *c = &j->claims.at[i];
    int rc = 0;
    *out = c->shared || (c->joint && citron_is_joint(j, i));
    if (!claim_internal(c) && !c->shared)
        rc = leaf_take_place(j, c);
    *out |= rc == -PAWL_ELIMIT;
    c->joint = *out && c->joint;
    return rc == -PAWL_ELIMIT ? 0 : rc;
}

/* Counts the claim as a reader, and notifies as one. */
static int add_reader(struct citron_job *j, unsigned i)
{
    struct citron_claim reader = j->claims.at[i];
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, i, i + 1, CLAIM_FLUX);
    reader.shared = true;
    if (claim_internal(&reader))
        batch_mfaa(&b, job_claim_readers(j, &reader), UINT64_C(1) << READERS_MAX, READERS_TOPS);
    else
        batch_mcas(&b, job_node(j, tree_parent(reader.node)), 0, 0, NODE_BELOW, NODE_BELOW);
    batch_notify(j, &b, &reader, true);
    return crowd_count_surely(j, i, &reader, &b);
}

/* The claim no longer counts as a writer. The first batch must not be repeated; the turn may be passed on twice. */
static int remove_writer(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims.at[i], was = *c;
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
            batch_notify(j, &b, &was, false);
        c->shared = true;
        c->all = false;
        job_say(j, &b, i, i + 1, CLAIM_HELD);
        rc = job_run(j, &b);
        if (rc && seat_retry(j->seat, rc))
            return -PAWL_ELOST;
    }
    job_wake_after(j, &was);
    return 0;
}

/* One reader more than can be counted: the claim stays exclusive. If it was counted as a reader, that count has no owner. */
static int stay_writer(struct citron_job *j, unsigned i)
{
    const struct citron_claim *c = &j->claims.at[i];
    int rc = claim_internal(c) ? 0 : leaf_swap_place(j, c, citron_place_word(j, c), 0);
    return rc < 0 ? rc : job_say_range(j, i, i + 1, CLAIM_HELD);
}

static int downgrade(struct citron_job *j)
{
    bool stay[CLAIMS_MAX] = {0};
    int rc = 0;
    for (unsigned i = 0; i < j->claims.n && !rc; i++)
        rc = stays(j, i, &stay[i]);
    for (unsigned i = 0; i < j->claims.n && !rc; i++)
        if (!stay[i] && (rc = add_reader(j, i)) == -PAWL_ELIMIT) {
            stay[i] = true;
            rc = stay_writer(j, i);
        }
    if (!rc)
        rc = token_renew(j);
    for (unsigned i = 0; i < j->claims.n && !rc; i++)
        rc = stay[i] ? 0 : remove_writer(j, i);
    return rc;
}

ONCE int citron_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline)
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
    h->token = seat->space->token_base + j.token.value;
    job_keep(&j);
    return 0;
}
