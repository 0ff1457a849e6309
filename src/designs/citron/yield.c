/* SPDX-License-Identifier: Apache-2.0 */
/* Waiters give way to a holder that changes.
 *
 * A hold that grows or upgrades waits with claims in hand, and a client in its way may wait for just these claims: the order of
 * locking does not prevent that. So the changing hold publishes in its descriptor that it waits (the mark) and for what (its claims
 * beyond the base). Clients in its way that hold nothing find the mark after they have waited for a while, give back their turns
 * and claims, and come again when the change is over. They are finitely many, and each gives way; so the change ends.
 *
 * Of two changing holds that wait for each other the one with the higher slot and record gives up with -EDEADLK. Each publishes
 * what it wants before it looks for others, and looks again whenever it has waited in vain, so one of the two finds the other. */
#include "designs/citron/steps.h"

#include <errno.h>

#define YIELD_PAUSE_NS JOB_PATIENCE_NS

/* ---- the mark: valid 1, base 4; serial 20, epoch 22 ---- */

#define MARK_BASE 1
#define MARK_BASE_BITS 4
#define MARK_SERIAL 8
#define MARK_EPOCH 40
static_assert(CLAIMS_MAX <= FIELD_MAX(MARK_BASE_BITS), "fits the mark");

static uint64_t mark_word(uint64_t serial, uint32_t epoch, unsigned base)
{
    return 1 | (uint64_t)base << MARK_BASE | serial << MARK_SERIAL | (uint64_t)epoch << MARK_EPOCH;
}

bool citron_is_marked(uint64_t mark, uint64_t serial, uint32_t epoch, unsigned *base)
{
    *base = (unsigned)field_get(mark, MARK_BASE, MARK_BASE_BITS);
    return mark == mark_word(serial, epoch, *base);
}

static fab_addr changers_addr(const struct citron_job *j)
{
    return j->lock + offsetof(struct citron_lock, changers);
}

OWN_FRAME static int write_mark(struct citron_job *j, uint64_t mark)
{
    struct citron_batch b;
    batch_start(&b);
    batch_write64(&b, job_desc(j, DESC_CHANGE), mark);
    return job_run_surely(j, &b);
}

int citron_mark(struct citron_job *j)
{
    uint64_t old;
    int rc = write_mark(j, mark_word(j->h->serial, j->seat->me->epoch, j->claims.base));
    while (!rc) { /* after an unknown outcome it counts again: a count that is too high costs other clients a census */
        rc = fab_faa64(j->seat->ep, changers_addr(j), 1, &old);
        if (!rc)
            break;
        rc = seat_retry(j->seat, rc);
    }
    j->claims.marked = !rc;
    return rc;
}

int citron_unmark(struct citron_job *j)
{
    uint64_t old;
    if (!j->claims.marked)
        return 0;
    j->claims.marked = false;
    int rc = write_mark(j, 0);
    if (!rc && (rc = fab_faa64(j->seat->ep, changers_addr(j), -UINT64_C(1), &old)))
        rc = seat_retry(j->seat, rc);
    return rc;
}

/* ---- conflicts with changing holds ---- */

static bool conflict(const struct citron_claim *a, const struct citron_claim *b)
{
    if ((a->shared && b->shared) || a->spill != b->spill)
        return false;
    if (a->spill)
        return true;
    if (!a->node.height && !b->node.height)
        return tree_same(a->node, b->node) && bounds_mask(a->ticket) & bounds_mask(b->ticket);
    return tree_contains(a->node, b->node) || tree_contains(b->node, a->node);
}

static bool in_hand(const struct citron_claim *c)
{
    return c->state > CLAIM_WAIT;
}

struct rivalry {
    const struct citron_job *j;
    uint32_t slot, record; /* of the other hold */
    bool waits_for_base;   /* this job waits for the other's base, */
    bool waits_for_more;   /* or for claims that the other has got beyond its base; */
    bool base_waited_for;  /* the same the other way round */
    bool more_waited_for;
    bool found;
};

/* Both wait for each other, and at least one of them for the base of the other. */
static bool is_rivalry(const struct rivalry *r)
{
    return (r->waits_for_base && (r->base_waited_for || r->more_waited_for)) || (r->waits_for_more && r->base_waited_for);
}

static void compare_changer(struct rivalry *r, const struct citron_claim *theirs)
{
    const struct citron_job *j = r->j;
    for (unsigned i = 0; i < j->claims.n; i++) {
        const struct citron_claim *own = &j->claims.at[i];
        bool wanted = i >= j->claims.base;
        if (!conflict(own, theirs))
            continue;
        r->waits_for_base |= wanted && !theirs->wanted;
        r->waits_for_more |= wanted && theirs->wanted && in_hand(theirs);
        r->base_waited_for |= !wanted && theirs->wanted;
        r->more_waited_for |= wanted && theirs->wanted && in_hand(own);
    }
}

static int see_claim(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct rivalry *r = ctx;
    const struct citron_job *j = r->j;
    if (!c->changes || (slot == j->seat->me->slot && record == j->h->record))
        return 0;
    if (slot != r->slot || record != r->record)
        *r = (struct rivalry){.j = j, .slot = slot, .record = record, .found = r->found};
    compare_changer(r, c);
    if (!j->claims.base)
        r->found |= r->waits_for_more || r->more_waited_for;
    else if (slot < j->seat->me->slot || (slot == j->seat->me->slot && record < j->h->record))
        r->found |= is_rivalry(r);
    return 0;
}

/* Positive: there is one in the way. */
static int look_for_changers(struct citron_job *j)
{
    struct rivalry r = {.j = j, .slot = UINT32_MAX};
    uint64_t changers;
    int rc = fab_read64(j->seat->ep, changers_addr(j), &changers);
    if (rc || changers <= j->claims.marked) /* the job itself is one of them */
        return rc;
    rc = citron_census(j, see_claim, &r);
    return rc ? rc : r.found;
}

int citron_give_way(struct citron_job *j)
{
    int rc = look_for_changers(j);
    if (rc > 0) {
        job_count(j, j->claims.base ? &citron_stats.rivals : &citron_stats.yielded);
        return j->claims.base ? -EDEADLK : JOB_YIELD;
    }
    return rc == -EAGAIN ? 0 : seat_retry(j->seat, rc);
}

/* ---- giving way ---- */

int citron_yield(struct citron_job *j)
{
    uint64_t pause = YIELD_PAUSE_NS;
    int rc = job_drop_all(j, 0, false);
    if (!rc)
        rc = job_say_range(j, 0, j->claims.n, CLAIM_WAIT); /* tickets that stay in a queue have no owner from now on */
    while (!rc) {
        uint64_t until = add_saturating(world_now(j->seat->world), pause);
        rc = fab_wait_any(j->seat->ep, NULL, 0, min_u64(until, j->deadline));
        rc = rc == -ETIMEDOUT && until < j->deadline ? 0 : seat_retry(j->seat, rc);
        if (!rc && !seat_lives(j->seat))
            rc = -PAWL_ELOST;
        if (!rc)
            rc = citron_give_way(j);
        if (!rc)
            return JOB_AGAIN;
        rc = rc == JOB_YIELD ? 0 : rc;
        pause = min_u64(2 * pause, max_u64(j->seat->space->check_ns, YIELD_PAUSE_NS));
    }
    return rc;
}
