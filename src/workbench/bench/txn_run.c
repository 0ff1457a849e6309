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

static void work(struct txn_run *r, const struct txn *t)
{
    struct validation inside[TXN_LOCKS_MAX];
    for (unsigned i = 0; i < t->count; i++)
        r->violations +=
            validator_enter(&r->validators[t->locks[i].lock], t->locks[i].mode, r->calls->token(r->ctx, i), &inside[i]);
    if (r->hold_ns)
        r->calls->pause(r->ctx, r->hold_ns);
    for (unsigned i = 0; i < t->count; i++)
        r->violations += validator_leave(&inside[i]);
}

int txn_run(struct txn_run *r, struct txn *t)
{
    for (unsigned i = 0; i < t->count && r->exclusive; i++)
        t->locks[i].mode = PAWL_EXCLUSIVE;
    uint64_t begin = r->calls->now(r->ctx);
    uint64_t deadline = r->timeout_ns ? begin + r->timeout_ns : r->calls->forever;
    unsigned had = 0;
    r->violations = 0;
    int rc = r->together && t->count ? lock_together(r, t, deadline, &had) : lock_in_turn(r, t, deadline, &had);
    r->locked_ns = r->calls->now(r->ctx) - begin;
    r->aborted = gives_up(rc);
    if (rc && !r->aborted)
        return rc;
    if (!r->aborted)
        work(r, t);
    return unlock(r, had);
}
