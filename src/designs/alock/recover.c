/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery of `alock`: what a session that is dead or lost leaves in the queues.
 *
 * A remote session is fenced first (fab_fence), so that none of its verbs is in flight any more. A local one cannot be fenced: it
 * may have been stopped, and go on with CPU instructions at any time. Every change that it then makes to the lock is a
 * compare-and-swap on a word that has changed. So only sessions on its own node recover from it: no others can change its cohort's
 * word atomically with it. The node itself looks after that (design.node_tends). */
#include "designs/alock/alock.h"
#include "designs/core/census.h"

#include <errno.h>

struct cleanup {
    const struct seat *seat;
    uint32_t dead;
    uint32_t epoch;
    uint32_t node; /* of the dead session */
};

static int faa(const struct seat *seat, enum cohort c, fab_addr addr)
{
    uint64_t old;
    if (c == COHORT_REMOTE)
        return fab_faa64(seat->ep, addr, 1, &old);
    fab_local_faa64(seat->ep, addr, 1);
    return 0;
}

/* The word without the dead session: puts down the baton if it had it, else drops the queue, in which it may be. */
static uint64_t without(const struct cleanup *f, uint64_t w)
{
    uint64_t holder = alock_holder(w), tail = alock_tail(w);
    if (holder && alock_slot(holder) == f->dead)
        return alock_word(alock_era(w) + 1, 0, 0);
    if (tail && tail != holder)
        return alock_word(alock_era(w) + 1, 0, holder);
    return w;
}

static int recover_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    const struct cleanup *f = ctx;
    const struct seat *seat = f->seat;
    if (record_index(word) >= seat->space->lock_count)
        return -EFAULT; /* foreign code has overwritten the memory */
    fab_addr lock = space_lock_addr(seat->space, record_index(word));
    enum cohort c = alock_cohort_of(lock, f->node);
    fab_addr addr = lock + offsetof(struct alock, cohort) + c * sizeof(uint64_t);
    if (c == COHORT_LOCAL && FAB_NODE(lock) != seat->ep->node)
        return 1;
    for (;;) {
        uint64_t w, lease, old;
        int rc = alock_load(seat, c, addr, &w);
        if (!rc) /* after the word, which then belongs to the dead session and not to its successor in the slot (I6) */
            rc = alock_load(seat, c, space_slot_addr(seat->space, f->dead) + offsetof(struct slot, lease), &lease);
        if (!rc && (lease_state(lease) != SLOT_LOST || lease_epoch(lease) != f->epoch))
            return 1;
        uint64_t next = rc ? 0 : without(f, w);
        if (!rc && next == w)
            return 0;
        if (!rc && !alock_holder(next) && alock_holder(w)) /* the dead session may have been granted the present token (I2) */
            rc = faa(seat, c, lock + offsetof(struct alock, skip) + c * sizeof(uint64_t));
        if (!rc)
            rc = alock_cas(seat, c, addr, w, next, &old);
        if (rc)
            return rc;
        if (old == w) {
            fab_wake(seat->ep, addr, ALOCK_ERA_MASK, UINT16_MAX);
            fab_wake(seat->ep, addr, ALOCK_HOLDER_MASK, UINT16_MAX);
            return 0;
        }
    }
}

/* The session was lost when we were called. If it still is after its proof was read, the proof is not its successor's (I6). */
static int shut_out(const struct cleanup *f)
{
    uint64_t proof;
    int rc = fab_read64(f->seat->ep, space_slot_addr(f->seat->space, f->dead) + offsetof(struct slot, proof), &proof);
    if (!rc && !(rc = seat_still_lost(f->seat, f->dead, f->epoch)))
        return -EAGAIN;
    return rc < 0 ? rc : fab_fence(f->seat->ep, (uint32_t)(proof >> 32), (uint32_t)proof);
}

int alock_recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    struct cleanup f = {.seat = seat, .dead = dead, .epoch = epoch};
    fab_addr home;
    assert(dead < seat->space->slot_count);
    int rc = fab_read64(seat->ep, space_slot_addr(seat->space, dead) + offsetof(struct slot, home), &home);
    if (rc)
        return rc;
    if (!home && seat->ep->node == FAB_NODE_ELSEWHERE)
        return 0; /* it was lost before it said where its descriptors are, and has touched no lock */
    f.node = FAB_NODE(home);
    bool local = f.node == FAB_NODE(seat->space->locks);
    if (local && f.node != seat->ep->node)
        return 1; /* a session of its own node does */
    if (!local && dead != seat->me->slot) {
        rc = shut_out(&f);
        if (rc)
            return rc == -EAGAIN ? 1 : rc;
    }
    return seat_records(seat, dead, recover_record, &f);
}

int alock_look_after(const struct seat *seat, uint64_t who)
{
    return who ? census_look_after(seat, alock_slot(who)) : 0;
}
