/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithms 1 and 2 of the paper, in its order. Line numbers are those of Algorithm 2.
 *
 * For a range of several nodes this differs from the paper in one point: first all turns at internal nodes are taken (a), in
 * ascending order, and then the nodes are claimed (b, c, d), in ascending order; and no client waits for an ancestor (b) with a
 * claim on anything. As printed, three clients can wait for each other: the first one has a high node and waits for a leaf below
 * it; the leaf's holder waits for a turn at another node below; the client that has that turn waits for the first one to leave. */
#include "designs/citron/steps.h"

/* LOCKNODE (lines 8 to 37), for claims [*from, *to): one internal node, or a few leaves and nodes right above leaves, which go
 * through the phases together. (a) and (b), and (c) and (d), are one batch each if nothing is in the way (3.8). */
static int lock_nodes(struct citron_job *j, unsigned *from, unsigned *to)
{
    struct claimed c;
    claim_init(&c);
    int rc = look_take_turns(j, from); /* (a): lines 9 to 11 */
    *to = claim_group_end(j, *from);
    if (rc)
        return rc;
    rc = look_up(j, *from, *to, &c.leaves); /* (b): lines 12 to 19 */
    if (!rc)
        rc = claim_nodes(j, *from, *to, &c); /* (c): lines 20 to 28, and lines 29 to 31 of (d) */
    flight_end(j);
    if (rc)
        return claim_undo(j, *from, *to, &c, rc);
    rc = claim_check(j, *from, *to, &c);             /* (d): lines 32 and 33 */
    return rc ? rc : claim_settle(j, *from, to, &c); /* (d): lines 34 to 36 */
}

/* ACQUIRELOCKONTREE, lines 6 and 7: all nodes in ascending order. A job that gives claims back and has them again is no further:
 * what it waited in vain still counts. */
int job_acquire(struct citron_job *j)
{
    unsigned reached = j->claims.base;
    look_start(j);
    for (unsigned i = j->claims.base, to; i < j->claims.n;) {
        int rc = lock_nodes(j, &i, &to);
        if (rc == JOB_WAITED) { /* a job that waited for an ancestor has given back its claims before this one, too */
            while (i > j->claims.base && j->claims.at[i - 1].state != CLAIM_HELD)
                i--;
            continue;
        }
        if (rc)
            return rc;
        if (to > reached)
            wait_over(j);
        reached = to > reached ? to : reached;
        i = to;
    }
    return 0;
}

OWN_FRAME static int say_flux(struct citron_job *j)
{
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, 0, 1, CLAIM_FLUX);
    int rc = job_run(j, &b);
    job_know(j, 0, CLAIM_HELD);
    return rc;
}

/* The job did not acquire the range, but the parent of a leaf that has bits without an owner (3.10). */
static int scrub_below(struct citron_job *j)
{
    int rc = say_flux(j);
    if (!rc)
        rc = citron_scrub(j, j->plan.scrub_at);
    plan_scrub(j, false, j->plan.scrub_at);
    rc = seat_retry(j->seat, rc);
    if (!rc)
        rc = job_drop_all(j, 0, false);
    return rc ? rc : JOB_AGAIN;
}

/* ACQUIRERANGELOCK (Algorithm 1): the spillover is the last of the nodes. */
static int acquire_range(struct citron_job *j)
{
    int rc = job_configure(j);
    while (!rc) {
        plan_range(j); /* line 5 */
        rc = job_acquire(j);
        if (!rc && j->plan.scrub)
            rc = scrub_below(j);
        if (rc == JOB_YIELD)
            rc = citron_yield(j);
        if (rc != JOB_AGAIN)
            return rc;
        rc = 0;
    }
    return rc;
}

int citron_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    struct citron_job j;
    job_start(&j, seat, h, deadline);
    int rc = acquire_range(&j);
    if (rc == -FAB_EFENCED)
        rc = -PAWL_ELOST;
    if (!rc)
        rc = token_settle(&j);
    if (!rc && !seat_lives(seat))
        rc = -PAWL_ELOST; /* I8 */
    if (rc) {
        int end = rc == -PAWL_ELOST ? rc : job_drop_all(&j, 0, false);
        return end == -PAWL_ELOST ? end : rc;
    }
    assert(!j.policy.tokens || j.token.value); /* I2r */
    for (unsigned i = 0; i < j.claims.n; i++)
        assert(j.claims.at[i].state == CLAIM_HELD); /* I5: what is granted was published */
    if (j.look.tall_idle >= LOOK_TALL_IDLE_MAX)
        look_doubt_tall(&j);
    h->token = j.policy.tokens ? seat->space->token_base + j.token.value : 0;
    job_keep(&j);
    job_count(&j, &citron_stats.acquires);
    return 0;
}
