/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/seat.h"

#include <errno.h>
#include <linux/futex.h>

/* ---- the session itself ---- */

#define UNKNOWN_TRIES_MAX 8 /* a connection that breaks that often in a row is down */
#define RENEW_TRIES_MAX 64  /* each means that another task of the session has renewed meanwhile: more than have any business to */

uint64_t lease_stamp_for(const struct seat *seat, uint64_t lease_ns)
{
    if (lease_ns == PAWL_LEASE_FOREVER)
        return LEASE_STAMP_FOREVER;
    return min_u64(add_saturating(world_now(seat->world), lease_ns) >> LEASE_STAMP_SHIFT, LEASE_STAMP_FOREVER - 1);
}

int seat_sure_cas(const struct seat *seat, fab_addr addr, uint64_t expect, uint64_t desired, uint64_t *old)
{
    int rc = fab_cas64(seat->ep, addr, expect, desired, old);
    for (int i = 0; rc == -FAB_EUNKNOWN && i < UNKNOWN_TRIES_MAX; i++) {
        uint64_t now;
        rc = fab_read64(seat->ep, addr, &now);
        if (!rc && now == expect)
            rc = fab_cas64(seat->ep, addr, expect, desired, old); /* it did not take effect */
        else if (!rc)
            *old = now == desired ? expect : now;
    }
    return rc == -FAB_EFENCED ? -PAWL_ELOST : rc;
}

int seat_read64(const struct seat *seat, fab_addr addr, uint64_t *value)
{
    int rc;
    do
        rc = fab_read64(seat->ep, addr, value);
    while (rc == -FAB_EUNKNOWN && !(rc = seat_retry(seat, rc)));
    return rc;
}

int seat_write64(const struct seat *seat, fab_addr addr, uint64_t value)
{
    int rc;
    do
        rc = fab_write64(seat->ep, addr, value);
    while (rc == -FAB_EUNKNOWN && !(rc = seat_retry(seat, rc)));
    return rc;
}

/* One step of a renewal. 1: the lease word was not what we believed, another step will tell. */
static int renew_once(const struct seat *seat, uint64_t stamp)
{
    struct session *me = seat->me;
    uint64_t was = __atomic_load_n(me->lease, __ATOMIC_ACQUIRE), old;
    if (lease_state(was) != SLOT_LIVE || lease_epoch(was) != me->epoch || __atomic_load_n(&me->ended, __ATOMIC_ACQUIRE))
        return -PAWL_ELOST;
    if (stamp <= lease_stamp(was))
        return 0;
    assert(lease_epoch(was) == me->epoch && stamp > lease_stamp(was)); /* I6: a renewal of this session, forward */
    uint64_t next = lease_word(SLOT_LIVE, me->epoch, stamp);
    int rc = seat_sure_cas(seat, space_slot_addr(seat->space, me->slot) + offsetof(struct slot, lease), was, next, &old);
    if (rc)
        return rc;
    /* Otherwise it is what another task of this session made of it, maybe long ago and without having been told, or what others
     * did. */
    __atomic_store_n(&me->lease_copy, old == was ? next : old, __ATOMIC_RELEASE);
    return old != was;
}

int seat_renew(const struct seat *seat)
{
    uint64_t stamp = lease_stamp_for(seat, seat->me->lease_ns); /* before the verb is posted: others count from later */
    int rc = 1;
    for (int i = 0; rc > 0 && i < RENEW_TRIES_MAX; i++)
        rc = renew_once(seat, stamp);
    return rc > 0 ? -EAGAIN : rc;
}

HANDOVER bool seat_lives(const struct seat *seat)
{
    if (likely(seat_alive(seat, world_now_coarse(seat->world)) && !__atomic_load_n(&seat->me->ended, __ATOMIC_ACQUIRE)))
        return true;
    if (!seat_renew(seat) && seat_alive(seat, world_now(seat->world)))
        return true;
    __atomic_store_n(&seat->me->ended, true, __ATOMIC_RELEASE);
    return false;
}

#define LOOKS_MAX 16 /* a client whose leases end as fast as they are renewed has none */

bool seats_live(const struct seat *const seats[], unsigned count)
{
    for (unsigned look = 0; look < LOOKS_MAX; look++) {
        for (unsigned i = 0; i < count; i++)
            if (!seat_lives(seats[i]))
                return false;
        bool all = true;
        uint64_t now = world_now_coarse(seats[0]->world);
        for (unsigned i = 0; i < count; i++)
            all &= seat_alive(seats[i], now) && !__atomic_load_n(&seats[i]->me->ended, __ATOMIC_ACQUIRE);
        if (all)
            return true;
    }
    return false;
}

/* ---- other sessions ---- */

static uint32_t life_word(const struct seat *seat, uint32_t slot)
{
    uint64_t life;
    fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, life), &life);
    return (uint32_t)life;
}

/* The thread that held the slot's mutex is gone. Usually the word says that its owner died. It says nothing if another has since
 * taken the mutex from the dead and put it back, having found that the slot is not free after all (session.c, try_slot). */
static bool kernel_says_gone(const struct seat *seat, uint32_t slot)
{
    uint32_t life = life_word(seat, slot);
    return life & FUTEX_OWNER_DIED || !(life & FUTEX_TID_MASK);
}

/* For how long we have seen this lease word; 0 the first time. Several threads may be here. The time only rises, and is there
 * before the word: a word never has a time before it was seen. */
static uint64_t seen_for(const struct seat *seat, uint32_t slot, uint64_t lease, uint64_t now)
{
    struct sighting *seen = &seat->me->seen[slot];
    if (__atomic_load_n(&seen->lease, __ATOMIC_ACQUIRE) != lease) {
        uint64_t first = __atomic_load_n(&seen->first_seen_ns, __ATOMIC_RELAXED);
        while (first < now &&
               !__atomic_compare_exchange_n(&seen->first_seen_ns, &first, now, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            ;
        __atomic_store_n(&seen->lease, lease, __ATOMIC_RELEASE);
        return 0;
    }
    uint64_t since = __atomic_load_n(&seen->first_seen_ns, __ATOMIC_ACQUIRE);
    return now > since ? now - since : 0;
}

/* Has this lease run out by our clock? */
static bool lease_over(const struct seat *seat, uint32_t slot, uint64_t lease)
{
    if (lease_stamp(lease) == LEASE_STAMP_FOREVER)
        return false;
    uint64_t now = world_now(seat->world);
    if (seat->ep->caps & FAB_SHARED_CLOCK)
        return now > add_saturating(lease_expiry_ns(lease), seat->space->margin_ns);

    /* The stamp is of another clock: all that it tells is whether the session was renewed. It counts from when we first saw this
     * one, which is later than when its owner posted it, for its length by the slowest of clocks. */
    uint64_t lease_ns = seat->space->lease_ns;
    uint64_t wait = add_saturating(lease_ns, 2 * (lease_ns / SEAT_DRIFT_DIVISOR) + seat->space->margin_ns);
    return seen_for(seat, slot, lease, now) > wait;
}

/* A lease that has run out on shared memory is withdrawn before its session is lost (SEAT_GRACE_NS). Each withdrawal has a word of
 * its own, because stamps rise, so the time since an earlier one is not counted. 1: the session may be declared lost; 0: not yet.
 */
static int withdrawn_long_enough(const struct seat *seat, uint32_t slot, uint64_t lease)
{
    uint64_t withdrawn = lease | UINT64_C(1) << LEASE_WITHDRAWN_SHIFT, old;
    if (!(seat->ep->caps & FAB_SHARED_CLOCK) || lease_state(lease) != SLOT_LIVE)
        return 1;
    if (lease_withdrawn(lease))
        return seen_for(seat, slot, lease, world_now(seat->world)) > SEAT_GRACE_NS;
    return fab_cas64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, lease), lease, withdrawn, &old);
}

/* Whether the process of the session in that slot is gone, where the kernel tells. */
static bool process_gone(const struct seat *seat, uint32_t slot)
{
    uint64_t proof;
    if (!(seat->ep->caps & FAB_KERNEL_LIFE) || !kernel_says_gone(seat, slot))
        return false;
    fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, proof), &proof);
    return !fab_fence(seat->ep, (uint32_t)(proof >> 32), (uint32_t)proof);
}

int seat_fence(const struct seat *seat, uint32_t slot, uint32_t epoch)
{
    uint64_t proof;
    /* A process of another pid namespace cannot be asked after, so the kernel must have said that the session's thread is gone. */
    if ((seat->ep->caps & FAB_KERNEL_LIFE) && !kernel_says_gone(seat, slot))
        return -EAGAIN;
    /* Proof first, lease second: the proof is then that session's, and not its successor's in the slot (I6). */
    int rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, proof), &proof);
    if (!rc)
        rc = seat_still_lost(seat, slot, epoch);
    return rc <= 0 ? rc : fab_fence(seat->ep, (uint32_t)(proof >> 32), (uint32_t)proof);
}

ONCE int seat_peer_dead(const struct seat *seat, uint32_t slot, uint64_t *lease)
{
    fab_addr addr = space_slot_addr(seat->space, slot) + offsetof(struct slot, lease);
    uint64_t word, old;
    assert(slot < seat->space->slot_count && slot != seat->me->slot); /* I6: no session declares itself lost */
    int rc = fab_read64(seat->ep, addr, &word);
    if (rc)
        return rc;
    if (lease_state(word) == SLOT_LIVE || lease_state(word) == SLOT_TAKEN) {
        /* A dead process's other threads may run a moment longer than the one whose death the kernel reports; and a process that
         * executes another program lives on without any of them, for which there is the lease. */
        if (!process_gone(seat, slot)) {
            rc = lease_over(seat, slot, word) ? withdrawn_long_enough(seat, slot, word) : 0;
            if (rc <= 0)
                return rc;
        }
        uint64_t lost = lease_word(SLOT_LOST, lease_epoch(word), lease_stamp(word));
        rc = fab_cas64(seat->ep, addr, word, lost, &old);
        if (rc)
            return rc;
        if (old != word)
            return 0; /* renewed, closed or declared lost by another just now: the next look tells */
        word = lost;
    }
    *lease = word;
    return 1;
}

int seat_still_lost(const struct seat *seat, uint32_t slot, uint32_t epoch)
{
    uint64_t lease;
    int rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, lease), &lease);
    return rc ? rc : lease_state(lease) == SLOT_LOST && lease_epoch(lease) == epoch;
}

#define PIECE 64 /* words read at once: half a kilobyte, which fits any stack */

/* Records in their session's memory, each in its descriptor. Slot first and home second: if the slot is this session's, so is the
 * home, and if it is not any more, the session is gone. */
static int records_home(const struct seat *seat, uint32_t slot, record_fn fn, void *ctx)
{
    const struct space *s = seat->space;
    fab_addr home;
    int rc = fab_read64(seat->ep, space_slot_addr(s, slot) + offsetof(struct slot, home), &home);
    const uint32_t piece = FAB_LEN_MAX / s->desc_size;
    for (uint32_t at = 0; at < s->record_count && !rc && home; at += piece) {
        uint64_t descs[FAB_LEN_MAX / sizeof(uint64_t)];
        uint32_t n = s->record_count - at < piece ? s->record_count - at : piece;
        rc = fab_read(seat->ep, home + (uint64_t)at * s->desc_size, descs, (uint16_t)(n * s->desc_size));
        for (uint32_t i = 0; i < n && !rc; i++) {
            uint64_t word = descs[(i * s->desc_size + s->desc_record) / sizeof(uint64_t)];
            if (record_state(word) != RECORD_FREE && record_state(word) != RECORD_SPARE)
                rc = fn(ctx, slot, at + i, word);
        }
    }
    return rc;
}

ONCE int seat_records(const struct seat *seat, uint32_t slot, record_fn fn, void *ctx)
{
    uint64_t words[PIECE];
    if (seat_records_home(seat))
        return records_home(seat, slot, fn, ctx);
    for (uint32_t at = 0; at < seat->space->record_count; at += PIECE) {
        uint32_t n = seat->space->record_count - at < PIECE ? seat->space->record_count - at : PIECE;
        int rc = fab_read(seat->ep, space_record_addr(seat->space, slot, at), words, (uint16_t)(n * sizeof *words));
        for (uint32_t i = 0; i < n && !rc; i++)
            if (record_state(words[i]) != RECORD_FREE && record_state(words[i]) != RECORD_SPARE)
                rc = fn(ctx, slot, at + i, words[i]);
        if (rc)
            return rc;
    }
    return 0;
}

int seat_own_records(const struct seat *seat, record_fn fn, void *ctx)
{
    int rc = 0;
    for (uint32_t i = 0; i < seat->space->record_count && !rc; i++) {
        uint64_t word = __atomic_load_n(&seat->me->shadow[i], __ATOMIC_ACQUIRE);
        if (record_state(word) != RECORD_FREE && record_state(word) != RECORD_SPARE)
            rc = fn(ctx, seat->me->slot, i, word);
    }
    return rc;
}

#define SLOTS_AT_ONCE 32

int seat_slots(const struct seat *seat, slot_fn fn, void *ctx)
{
    return seat_slots_of(seat, 0, seat->space->slot_count, fn, ctx);
}

ONCE int seat_slots_of(const struct seat *seat, uint32_t from, uint32_t to, slot_fn fn, void *ctx)
{
    for (uint32_t at = from; at < to; at += SLOTS_AT_ONCE) {
        struct fab_op ops[SLOTS_AT_ONCE];
        uint64_t leases[SLOTS_AT_ONCE];
        uint32_t n = to - at < SLOTS_AT_ONCE ? to - at : SLOTS_AT_ONCE;
        for (uint32_t i = 0; i < n; i++)
            ops[i] = (struct fab_op){.verb = FAB_READ,
                                     .len = 8,
                                     .buf = &leases[i],
                                     .addr = space_slot_addr(seat->space, at + i) + offsetof(struct slot, lease)};
        int rc = fab_batch(seat->ep, ops, n);
        for (uint32_t i = 0; i < n && !rc; i++)
            if (lease_state(leases[i]) != SLOT_FREE)
                rc = fn(ctx, at + i, leases[i]);
        if (rc)
            return rc;
    }
    return 0;
}

bool seat_life_cond(const struct seat *seat, uint32_t slot, struct fab_cond *out)
{
    if (!(seat->ep->caps & FAB_KERNEL_LIFE) || slot == seat->me->slot || slot >= seat->space->slot_count)
        return false;
    fab_addr addr = space_slot_addr(seat->space, slot) + offsetof(struct slot, life);
    uint32_t *life = fab_shm_ptr(seat->ep, addr);
    uint32_t word = __atomic_load_n(life, __ATOMIC_ACQUIRE);
    /* The kernel wakes on death only if this bit is set; life_drop wakes for nothing. */
    while (!(word & FUTEX_WAITERS) && word & FUTEX_TID_MASK)
        if (__atomic_compare_exchange_n(life, &word, word | FUTEX_WAITERS, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            word |= FUTEX_WAITERS;
    if (!(word & FUTEX_TID_MASK) || word & FUTEX_OWNER_DIED)
        return false;
    *out = (struct fab_cond){.addr = addr, .mask = UINT32_MAX, .value = word};
    return true;
}

HANDOVER int seat_retry(const struct seat *seat, int rc)
{
    if (rc == -FAB_EFENCED)
        return -PAWL_ELOST;
    if (rc != -FAB_EUNKNOWN)
        return rc;
    /* The connection broke. While the lease runs it is worth another try, and it bounds the tries. */
    return seat_lives(seat) ? 0 : -PAWL_ELOST;
}
