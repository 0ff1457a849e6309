/* SPDX-License-Identifier: Apache-2.0 */
/* Converting a hold, which the paper does not have. To shared: like letting the readers in (3.5.2), with the holder among them;
 * this always succeeds. To exclusive: the reader becomes the first writer of the queue, if there is none, and waits until the other
 * readers have left. */
#include "designs/shiftlock/shiftlock.h"

#include <errno.h>

/* The outcome is unknown, but we are a reader: the lock is counted anew with us in it. */
static int be_reader_after_all(const struct seat *seat, const struct hold *h)
{
    return shift_doubt(seat, h, RECORD_HELD_S, RECORD_HELD_S);
}

/* ---- down ---- */

static int downgraded(const struct seat *seat, struct hold *h, struct shift_entry e)
{
    h->mode = PAWL_SHARED;
    int rc = shift_granted(seat, h, e, (struct shift_run){0});
    return rc ? rc : seat_lives(seat) ? 0 : -PAWL_ELOST;
}

/* RelCnt has risen since, and so has the token; unless it lagged, then it is about to. */
static int downgrade_by_recount(const struct seat *seat, struct hold *h, uint64_t mine)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_entry e;
    int rc = be_reader_after_all(seat, h);
    while (!rc && (rc = shift_look_rel_last(seat, h->index, &e)))
        rc = seat_retry(seat, rc);
    if (!rc && !shift_rel_reached(f, e.rel, shift_rel_add(f, mine, 1)))
        e.rel = shift_rel_add(f, mine, 1);
    return rc ? rc : downgraded(seat, h, e);
}

static int downgrade(const struct seat *seat, struct hold *h)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_run run;
    int rc = shift_claim(seat, h, RECORD_HELD_X, RECORD_TRY_X);
    if (rc)
        return rc;
    struct shift_entry e = shift_recall(seat, h, &run);
    const uint64_t mine = e.rel;
    for (;;) {
        bool last = e.tail == shift_name(seat, h);
        struct shift_note succ = {0};
        struct fab_op op;
        if (!last && shift_await_successor(seat, h, e, &succ))
            return downgrade_by_recount(seat, h, mine);
        struct shift_entry next = {.rel = shift_rel_after(f, e.rel, mine),
                                   .readers = e.readers + 1,
                                   .tail = last ? 0 : e.tail,
                                   .era = e.era,
                                   .epoch = !e.epoch};
        if (!seat_lives(seat))
            return -PAWL_ELOST;
        shift_op_cas(seat, h->index, e, SHIFT_ALL, next, SHIFT_ALL, &op);
        rc = shift_publish_and(seat, h, RECORD_TRY_X, &op, 1);
        if (rc)
            return rc == -FAB_EUNKNOWN ? downgrade_by_recount(seat, h, mine) : seat_retry(seat, rc);
        struct shift_entry old = shift_unpack(f, op.old);
        if (shift_matches(old, e, SHIFT_ALL)) {
            if (e.readers)
                shift_wake_readers(seat, h->index);
            uint64_t target = shift_rel_add(f, next.rel, next.readers);
            if (!last && shift_tell(seat, h, &succ, SHIFT_MODE_CHANGED, next, target, (struct shift_run){0}))
                return downgrade_by_recount(seat, h, mine);
            return downgraded(seat, h, next);
        }
        if (shift_recounting(old))
            return downgrade_by_recount(seat, h, mine);
        e = old;
    }
}

/* ---- up ---- */

/* Gives up: a reader as before. */
static int stay_reader(const struct seat *seat, const struct hold *h, int why)
{
    int rc = hold_publish(seat, h, RECORD_HELD_S);
    return rc ? rc : why;
}

/* At the head of the queue instead of among the readers. The others must leave. */
static int upgrade_wait(const struct seat *seat, struct hold *h, struct shift_entry e, uint64_t deadline)
{
    struct shift_try t = {.seen = e, .target = shift_rel_add(shift_form(seat), e.rel, e.readers)};
    shift_begin_watch(seat, &t);
    int rc = shift_await_readers(seat, h, &t, deadline);
    if (rc == SHIFT_AGAIN)
        return stay_reader(seat, h, SHIFT_AGAIN);
    if (rc && rc != -PAWL_ELOST) {
        int undone = be_reader_after_all(seat, h);
        return undone ? undone : rc;
    }
    if (rc)
        return rc;
    h->mode = PAWL_EXCLUSIVE;
    e.rel = t.target;
    rc = shift_granted(seat, h, e, (struct shift_run){0});
    return rc ? rc : seat_lives(seat) ? 0 : -PAWL_ELOST;
}

/* 0: done; SHIFT_AGAIN: the record says that we are a reader, look again; or an error, likewise. */
static int upgrade_step(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_entry e;
    struct fab_op op;
    int rc = shift_look_rel_first(seat, h->index, &e);
    if (rc)
        return rc;
    if (!seat_lives(seat))
        return -PAWL_ELOST;
    if (shift_recounting(e)) {
        rc = shift_recount(seat, h->index, deadline);
        return rc ? rc : SHIFT_AGAIN;
    }
    if (e.tail)
        return -EDEADLK; /* another reader converts, and waits for us to leave */
    if (e.readers > 1 && deadline == DEADLINE_TRY)
        return -PAWL_EHELD;
    rc = shift_claim(seat, h, RECORD_HELD_S, RECORD_TRY_X);
    if (rc)
        return rc;
    struct shift_entry next = e;
    next.tail = shift_name(seat, h);
    next.readers--;
    next.rel = shift_rel_add(f, e.rel, 1);
    shift_op_cas(seat, h->index, e, SHIFT_ALL, next, SHIFT_ALL, &op);
    rc = shift_publish_joining(seat, h, &op, 1);
    if (rc == -FAB_EUNKNOWN) {
        rc = be_reader_after_all(seat, h);
        return rc ? rc : SHIFT_AGAIN;
    }
    if (rc)
        return rc;
    if (!shift_matches(shift_unpack(f, op.old), e, SHIFT_ALL))
        return stay_reader(seat, h, SHIFT_AGAIN);
    shift_join(seat, h, next.rel);
    return upgrade_wait(seat, h, next, deadline);
}

static int upgrade(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    for (;;) {
        if (!hold_is(seat, h, RECORD_HELD_S))
            return -PAWL_ENOTOWNER;
        int rc = upgrade_step(seat, h, deadline);
        if (!rc)
            return 0;
        if (rc != SHIFT_AGAIN && (rc = seat_retry(seat, rc)))
            return rc;
        if (deadline != DEADLINE_NEVER && deadline != DEADLINE_TRY && world_now(seat->world) >= deadline)
            return -ETIMEDOUT;
    }
}

int shift_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    if (mode == h->mode)
        return seat->space->design->holds(seat, h) ? 0 : -PAWL_ENOTOWNER;
    int rc = mode == PAWL_SHARED ? downgrade(seat, h) : upgrade(seat, h, deadline);
    assert(rc || (h->mode == mode && hold_is_held(seat, h))); /* I5 */
    return rc;
}
