/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/bench/txn_run.h"

#include <errno.h>

static bool gives_up(int rc)
{
    return rc == -ETIMEDOUT || rc == -EDEADLK || rc == -PAWL_EHELD;
}

/* Gives back the first `count` locks. The first error counts. */
static int unlock(const struct txn_run *r, unsigned count)
{
    int rc = 0;
    if (count && r->together && r->calls->unlock_all)
        return r->calls->unlock_all(r->ctx, count);
    while (count--) {
        int error = r->calls->unlock(r->ctx, count);
        rc = rc ? rc : error;
    }
    return rc;
}

/* One by one, in their order. *had: how many it has then. */
static int lock_in_turn(const struct txn_run *r, const struct txn *t, uint64_t deadline, unsigned *had)
{
    int rc = 0;
    for (*had = 0; *had < t->count && !rc; *had += !rc)
        rc = r->calls->lock(r->ctx, *had, &t->locks[*had], deadline);
    return rc;
}

static int lock_together(const struct txn_run *r, const struct txn *t, uint64_t deadline, unsigned *had)
{
    int rc = r->calls->lock_all(r->ctx, t, deadline);
    *had = rc ? 0 : t->count;
    return rc;
}

/* For every lock its data are fetched, and in the end, for exclusive ones, written. */
static int move(const struct txn_run *r, const struct txn *t, enum pawl_mode mode)
{
    int rc = 0;
    for (unsigned i = 0; i < t->count && r->calls->move && !rc; i++)
        if (mode == PAWL_SHARED || t->locks[i].mode == PAWL_EXCLUSIVE)
            rc = r->calls->move(r->ctx, mode);
    return rc;
}

static int work(struct txn_run *r, const struct txn *t)
{
    struct validation inside[TXN_LOCKS_MAX];
    for (unsigned i = 0; i < t->count; i++)
        r->violations +=
            validator_enter(&r->validators[t->locks[i].lock], t->locks[i].mode, r->calls->token(r->ctx, i), &inside[i]);
    int rc = move(r, t, PAWL_SHARED);
    if (r->hold_ns)
        (r->calls->work ? r->calls->work : r->calls->pause)(r->ctx, r->hold_ns);
    rc = rc ? rc : move(r, t, PAWL_EXCLUSIVE);
    for (unsigned i = 0; i < t->count; i++)
        r->violations += validator_leave(&inside[i]);
    return rc;
}

/* NetLock's clients sleep for nought to nine times 30 us before they try again, at a time-out of 400 us, and longer in proportion
 * (client.c and console.py of its artifact). */
#define AGAIN_STEPS 10
static uint64_t again_after_ns(const struct txn_run *r, struct txn_stream *s)
{
    return rng_below(&s->random, AGAIN_STEPS) * (r->timeout_ns * 30 / 400);
}

void txn_run_init(struct txn_run *r, const struct workload *w)
{
    r->hold_ns = w->hold_ns;
    r->timeout_ns = w->timeout_ns;
    r->together = w->together;
    r->retries = w->retries;
}

int txn_run(struct txn_run *r, struct txn_stream *s, struct txn *t)
{
    txn_next(s, t);
    for (unsigned i = 0; i < t->count && r->exclusive; i++)
        t->locks[i].mode = PAWL_EXCLUSIVE;
    uint64_t begin = r->calls->now(r->ctx);
    uint64_t deadline = r->timeout_ns ? begin + r->timeout_ns : r->calls->forever;
    unsigned had = 0;
    uint64_t again_ns = 0;
    r->violations = 0;
    int rc = r->together && t->count ? lock_together(r, t, deadline, &had) : lock_in_turn(r, t, deadline, &had);
    r->locked_ns = r->calls->now(r->ctx) - begin;
    r->aborted = gives_up(rc);
    if (rc && !r->aborted)
        return rc;
    int failed = r->aborted ? 0 : work(r, t);
    rc = unlock(r, had);
    if (r->aborted && r->retries) {
        s->again = *t;
        s->has_again = true;
        again_ns = again_after_ns(r, s);
    }
    if (again_ns && !rc)
        r->calls->pause(r->ctx, again_ns);
    return failed ? failed : rc;
}
