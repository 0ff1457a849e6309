/* SPDX-License-Identifier: Apache-2.0 */
/* RMA-RW (Schmid, Besta, Hoefler, HPDC'16), as ShiftLock (4.1, 4.4) compares with: readers are counted in words beside the lock,
 * writers form an MCS queue whose head moves the counters to and from "writing". Writers hand over among themselves without
 * touching the counters, WRITERS_MAX times in a row at most; then readers get their chance.
 *
 * Flat: one level of queue, for the testbeds here have one level of network. The number of counters is a knob. One is the
 * default: the 2.95 atomics per cycle that ShiftLock (4.6) measured for half writers are two of a reader and four of a writer,
 * which leaves room for one counter. Read-preferring, as ShiftLock (4.4) found it: a writer waits until there is no reader, and new
 * readers do not wait for it. (The original can bound their number; it is then large.)
 *
 * It tolerates the same faults as `mcs`. A time-out would have to leave the queue, and a fetch-and-add whose outcome is unknown
 * leaves a counter that no client can correct. */
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/queue.h"

#include <errno.h>

#define COUNTERS_MAX 7 /* words that count readers */

/* `reads` as in ShiftLock's artifact (rma_rw.rs): a writer READs the counter before and after it moves it to "writing", and before
 * it moves it back. */
enum { COUNTERS, READS };
static const struct design_knob knobs[] = {[COUNTERS] = {"counters", 1, COUNTERS_MAX, 1}, [READS] = {"reads", 0, 1, 0}, {0}};

#define WRITERS_MAX 16 /* in a row, while the counters stay at "writing" */
#define WRITING (UINT64_C(1) << 63)
#define WATCH_WRITING FIELD_MASK(32, 32)
#define LOWER FIELD_MAX(32)

struct rmarw_lock {
    uint64_t tail;                   /* descriptor of the last writer in the queue; 0: none */
    uint64_t counters[COUNTERS_MAX]; /* readers, and WRITING */
};
static_assert(sizeof(struct rmarw_lock) == CACHE_LINE, "locks do not share lines");

#define GO_BEGIN 1 /* first in the queue, but the counters are the readers' */
#define GO_ON 2    /* the counters are at "writing" */

static fab_addr counter_addr(const struct seat *seat, uint64_t index, unsigned i)
{
    return space_lock_addr(seat->space, index) + offsetof(struct rmarw_lock, counters) + i * sizeof(uint64_t);
}

/* There is no way out of a queue: neither deadline nor cancel ends a wait. */
static int wait_while(const struct seat *seat, fab_addr addr, uint64_t mask, uint64_t value)
{
    int rc = fab_wait(seat->ep, addr, mask, value & mask, DEADLINE_NEVER);
    return rc == -ECANCELED ? 0 : rc;
}

static unsigned counters_of(const struct seat *seat)
{
    return seat->space->knobs.value[COUNTERS];
}

/* A READ that only costs time: the atomic beside it decides. */
static int look(const struct seat *seat, fab_addr addr)
{
    uint64_t value;
    return seat->space->knobs.value[READS] ? fab_read64(seat->ep, addr, &value) : 0;
}

/* ---- readers ---- */

static unsigned counter_of(const struct seat *seat)
{
    return seat->me->slot % counters_of(seat);
}

static int reader_enter(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = counter_addr(seat, h->index, counter_of(seat));
    int rc = hold_publish(seat, h, RECORD_HELD_S); /* so that inspection shows the holder */
    while (!rc) {
        uint64_t old, undone;
        rc = fab_faa64(seat->ep, addr, 1, &old);
        if (rc || !(old & WRITING))
            break;
        rc = fab_faa64(seat->ep, addr, (uint64_t)-1, &undone);
        if (!rc && deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        if (!rc && undone & WRITING)
            rc = wait_while(seat, addr, WATCH_WRITING, WRITING);
    }
    return rc;
}

static int reader_leave(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = counter_addr(seat, h->index, counter_of(seat));
    uint64_t old;
    int rc = hold_change(seat, h, RECORD_HELD_S, RECORD_WAIT); /* subtracting twice would let a writer in */
    if (!rc)
        rc = fab_faa64(seat->ep, addr, (uint64_t)-1, &old);
    if (rc)
        return rc;
    debug_assert((old & ~WRITING) > 0);
    fab_wake(seat->ep, addr, LOWER, 1);
    hold_close(seat, h);
    return 0;
}

/* ---- writers ---- */

/* Gives the first n counters back to the readers. */
static int to_readers(const struct seat *seat, uint64_t index, unsigned n)
{
    int rc = 0;
    for (unsigned i = 0; i < n && !rc; i++) {
        uint64_t old;
        rc = look(seat, counter_addr(seat, index, i));
        if (rc)
            break;
        rc = fab_faa64(seat->ep, counter_addr(seat, index, i), WRITING, &old); /* adding 2^63 again clears the bit */
        assert(rc || old & WRITING);
        fab_wake(seat->ep, counter_addr(seat, index, i), WATCH_WRITING, UINT32_MAX);
    }
    return rc;
}

/* Moves one counter after the other to "writing", each when it has no readers. Only the head of the queue does this. */
static int to_writing(const struct seat *seat, uint64_t index, bool once)
{
    for (unsigned i = 0; i < counters_of(seat); i++) {
        fab_addr addr = counter_addr(seat, index, i);
        int rc = look(seat, addr);
        while (!rc) {
            uint64_t old;
            rc = fab_cas64(seat->ep, addr, 0, WRITING, &old);
            if (!rc && !old) {
                rc = look(seat, addr);
                break;
            }
            assert(rc || !(old & WRITING));
            if (!rc && once) {
                rc = to_readers(seat, index, i);
                return rc ? rc : -PAWL_EHELD;
            }
            if (!rc)
                rc = wait_while(seat, addr, LOWER, old);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* Lets the next writer go on with `go`, if there is one; else the queue is empty. If no writer will take over counters at
 * "writing", they first go back to the readers. */
static int leave_queue(const struct seat *seat, const struct hold *h, uint64_t go)
{
    fab_addr tail = space_lock_addr(seat->space, h->index), desc = seat_desc_addr(seat, h->record);
    uint64_t next = 0;
    int rc = queue_next(seat, desc, &next);
    if (!rc && go >= GO_ON && (!next || go >= GO_ON + WRITERS_MAX)) {
        rc = to_readers(seat, h->index, counters_of(seat));
        go = GO_BEGIN;
    }
    if (!rc && !next)
        rc = queue_end(seat, tail, desc, &next);
    if (!rc && next)
        rc = queue_go(seat, next, go);
    return rc;
}

static int writer_enter(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr tail = space_lock_addr(seat->space, h->index), desc = seat_desc_addr(seat, h->record);
    bool once = deadline == DEADLINE_TRY;
    uint64_t go = GO_BEGIN; /* or the value from the predecessor */
    int rc = hold_publish(seat, h, RECORD_TRY_X);
    if (!rc)
        rc = queue_join(seat, tail, desc, once ? QUEUE_ONCE : QUEUE_SWAP, &go);
    if (rc)
        return rc;
    assert(go < GO_ON + WRITERS_MAX); /* from there on it is the readers' turn */
    if (go == GO_BEGIN) {
        rc = to_writing(seat, h->index, once);
        if (rc == -PAWL_EHELD) {
            int left = leave_queue(seat, h, GO_BEGIN); /* a writer may have queued up behind this one */
            return left ? left : rc;
        }
        go = GO_ON;
    }
    h->token = rc ? 0 : go; /* not a fencing token: for the release */
    return rc;
}

static int writer_leave(const struct seat *seat, const struct hold *h)
{
    int rc = hold_change(seat, h, RECORD_TRY_X, RECORD_WAIT); /* of two tasks that release the same hold only one does */
    if (!rc)
        rc = leave_queue(seat, h, h->token + 1);
    if (!rc)
        hold_close(seat, h);
    return rc;
}

/* ---- the table ---- */

static int rmarw_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    h->token = 0;
    return h->mode == PAWL_SHARED ? reader_enter(seat, h, deadline) : writer_enter(seat, h, deadline);
}

static int rmarw_release(const struct seat *seat, const struct hold *h)
{
    return h->mode == PAWL_SHARED ? reader_leave(seat, h) : writer_leave(seat, h);
}

static int rmarw_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct rmarw_lock lock;
    int rc = fab_read(seat->ep, space_lock_addr(seat->space, index), &lock, sizeof lock);
    if (rc)
        return rc;
    uint64_t readers = 0;
    bool writing = lock.tail != 0;
    for (unsigned i = 0; i < counters_of(seat); i++) {
        readers += lock.counters[i] & ~WRITING;
        writing |= (lock.counters[i] & WRITING) != 0;
    }
    *out = (struct lock_view){.mode = writing   ? PAWL_EXCLUSIVE
                                      : readers ? PAWL_SHARED
                                                : 0,
                              .owner = LOCK_OWNER_UNKNOWN,
                              .readers = writing ? 0 : (uint32_t)readers};
    return 0;
}

const struct design design_rmarw = {
    .name = "rmarw",
    .knobs = knobs,
    .summary = "RMA-RW: counted readers, writers in an MCS queue",
    .kind = DESIGN_BASELINE,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED,
    .substrates = DESIGN_ON_SIM,
    .tolerates = BASELINE_TOLERATES_KNOWN,
    .lock_size = sizeof(struct rmarw_lock),
    .desc_size = sizeof(struct queue_desc),
    .acquire = rmarw_acquire,
    .release = rmarw_release,
    .holds = hold_is_named,
    .peek = rmarw_peek,
};
