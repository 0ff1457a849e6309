/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery of `word`: what to do when a session that may hold or wait is dead, or a reader cannot know whether it is counted.
 *
 * An exclusive word names its owner, so it is freed by one compare-and-swap. A shared word only has a count. If a dead session may
 * have been counted, the word is moved to RECOUNT, in which no session enters, and the readers are counted from the hold records of
 * living sessions. Each published its intent before it touched the word (I5), so none is missed (I3). A record that says "may be
 * counted" is settled by its owner within a step, or its owner is dead. Counting anew raises the token, so no compare-and-swap that
 * was prepared before can succeed. */
#include "designs/core/census.h"
#include "designs/word/word.h"

#include <errno.h>

#define RECOUNT_PAUSE_NS (50 * NS_PER_US) /* for a reader in the middle of a step: a few round trips */

#define WAKE_ALL UINT16_MAX

static void wake_all(const struct seat *seat, uint64_t index)
{
    fab_wake(seat->ep, space_lock_addr(seat->space, index), WORD_WATCH, WAKE_ALL);
}

/* ---- counting anew ---- */

struct readers_count {
    const struct seat *seat;
    uint64_t index;
    uint64_t readers;
    bool unsure; /* a reader is in the middle of a step */
};

static int count_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct readers_count *c = ctx;
    if (record_index(word) != c->index)
        return 0;
    enum record_state state = record_state(word);
    if (state != RECORD_HELD_S && state != RECORD_TRY_S && state != RECORD_LEAVE_S)
        return 0;
    uint64_t lease;
    int dead = slot == c->seat->me->slot ? 0 : seat_peer_dead(c->seat, slot, &lease);
    if (dead < 0)
        return dead;
    if (!dead && state == RECORD_HELD_S)
        c->readers++;
    else if (!dead)
        c->unsure = true;
    return 0;
}

static int count_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    struct readers_count *c = ctx;
    return lease_state(lease) == SLOT_LIVE ? seat_records(c->seat, slot, count_record, c) : 0;
}

/* One census for the word as it was. 1: counted and written. */
static int recount_once(const struct seat *seat, uint64_t index, uint64_t w)
{
    struct readers_count c = {.seat = seat, .index = index};
    uint64_t old, token = word_token(w);
    int rc = seat_slots(seat, count_slot, &c);
    if (rc)
        return rc;
    /* At the last token there is no next one to mark the new count with: the readers must leave first. */
    if (c.unsure || (c.readers && token == WORD_TOKEN_MAX))
        return 0;
    if (seat_damaged(seat, c.readers > WORD_READERS_MAX))
        return -PAWL_ESEGMENT;
    uint64_t next = word_make(c.readers ? WORD_SHARED : WORD_FREE, c.readers, token == WORD_TOKEN_MAX ? token : token + 1);
    rc = fab_cas64(seat->ep, space_lock_addr(seat->space, index), w, next, &old);
    if (rc || old != w)
        return rc;
    wake_all(seat, index);
    return 1;
}

int word_recount(const struct seat *seat, uint64_t index, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, index);
    for (;;) {
        uint64_t w;
        int rc = fab_read64(seat->ep, addr, &w);
        if (!rc && word_mode(w) != WORD_RECOUNT)
            return 0;
        if (!rc)
            rc = recount_once(seat, index, w);
        if (rc)
            return rc > 0 ? 0 : rc;
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        uint64_t until = add_saturating(world_now(seat->world), RECOUNT_PAUSE_NS);
        rc = fab_wait(seat->ep, addr, WORD_WATCH, w & WORD_WATCH, min_u64(until, deadline));
        if (rc && (rc != -ETIMEDOUT || deadline <= until))
            return rc;
    }
}

int word_ask_recount(const struct seat *seat, uint64_t index, uint64_t w)
{
    uint64_t old, next = w & WORD_WAITERS;
    if (word_mode(w) == WORD_SHARED)
        next |= word_make(WORD_RECOUNT, 0, word_token(w));
    else
        next |= word_make(WORD_RECOUNT, (word_count(w) + 1) & WORD_COUNT_MAX, word_token(w));
    int rc = fab_cas64(seat->ep, space_lock_addr(seat->space, index), w, next, &old);
    return rc ? rc : old == w;
}

int word_disown(const struct seat *seat, const struct hold *h, enum record_state then)
{
    for (;;) {
        uint64_t w;
        int rc = fab_read64(seat->ep, space_lock_addr(seat->space, h->index), &w);
        bool readers = !rc && (word_mode(w) == WORD_SHARED || word_mode(w) == WORD_RECOUNT); /* else there are no readers */
        if (readers)
            rc = word_ask_recount(seat, h->index, w);
        if (rc > 0 || (!rc && !readers)) {
            wake_all(seat, h->index);
            /* Only now: if we die before, the record still says that we may be counted (I5). */
            return hold_is(seat, h, then) ? 0 : hold_publish(seat, h, then);
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* ---- recovery of a dead session ---- */

struct cleanup {
    const struct seat *seat;
    uint32_t dead;
    uint32_t epoch;
};

/* 0: freed, handed to a recount, or nothing of the dead session is here; *again: the word changed in between. */
static int recover_lock(const struct cleanup *f, uint64_t index, enum record_state state, uint64_t w, bool *again)
{
    uint64_t old;
    int rc;
    *again = false;
    switch (word_mode(w)) {
    case WORD_EXCLUSIVE:
        if (word_owner_slot(w) != f->dead)
            return 0;
        rc = fab_cas64(f->seat->ep, space_lock_addr(f->seat->space, index), w, word_make(WORD_FREE, 0, word_token(w)), &old);
        *again = !rc && old != w;
        return rc;
    case WORD_RECOUNT: /* a count that began before this death may have included the dead session: it must not stand */
    case WORD_SHARED:
        if (word_open(w)) /* readers are not counted, and the records of lost sessions are ignored */
            return 0;
        if (state != RECORD_TRY_S && state != RECORD_HELD_S && state != RECORD_LEAVE_S)
            return 0;
        rc = word_ask_recount(f->seat, index, w);
        *again = rc == 0;
        return rc < 0 ? rc : 0;
    default:
        return 0;
    }
}

static int recover_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    const struct cleanup *f = ctx;
    const struct space *space = f->seat->space;
    uint64_t index = record_index(word);
    if (index >= space->lock_count)
        return -PAWL_ESEGMENT; /* foreign code has overwritten the memory */
    for (bool again = true; again;) {
        uint64_t w;
        int rc = fab_read64(f->seat->ep, space_lock_addr(space, index), &w);
        if (!rc && !(rc = seat_still_lost(f->seat, f->dead, f->epoch)))
            return 1;
        if (rc > 0)
            rc = recover_lock(f, index, record_state(word), w, &again);
        if (rc)
            return rc;
    }
    /* The dead session may have been woken, and died before it could wake the next waiter. */
    wake_all(f->seat, index);
    int rc = word_recount(f->seat, index, DEADLINE_TRY);
    return rc == -PAWL_EHELD ? 0
                             : rc; /* a reader is in the middle of a step: the next session that wants the lock goes on counting */
}

int word_recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    struct cleanup f = {.seat = seat, .dead = dead, .epoch = epoch};
    assert(dead < seat->space->slot_count);
    int rc = seat_records(seat, dead, recover_record, &f);
    return rc > 0 ? 0 : rc;
}

/* ---- what waiters do about holders ---- */

#define READERS (CENSUS_STATE(RECORD_HELD_S) | CENSUS_STATE(RECORD_TRY_S) | CENSUS_STATE(RECORD_LEAVE_S))

int word_check_holders(const struct seat *seat, uint64_t index, uint64_t word)
{
    switch (word_mode(word)) {
    case WORD_EXCLUSIVE:
        return census_look_after(seat, word_owner_slot(word));
    case WORD_SHARED:
        return census_look_after_all(seat, index, READERS);
    default:
        return 0;
    }
}

unsigned word_life_conds(const struct seat *seat, uint64_t index, uint64_t word, struct fab_cond *conds, unsigned max, bool *dying)
{
    *dying = false;
    if (!(seat->ep->caps & FAB_KERNEL_LIFE))
        return 0;
    if (word_mode(word) == WORD_SHARED)
        return census_life_conds(seat, index, READERS, conds, max, dying);
    if (word_mode(word) != WORD_EXCLUSIVE)
        return 0;
    unsigned count = seat_life_cond(seat, word_owner_slot(word), &conds[0]);
    *dying = !count && word_owner_slot(word) != seat->me->slot;
    return count;
}

struct queue {
    const struct seat *seat;
    const struct hold *except;
};

static int waits_too(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    const struct queue *q = ctx;
    bool self = slot == q->seat->me->slot && record == q->except->record;
    return !self && record_state(word) == RECORD_WAIT && record_index(word) == q->except->index;
}

static int queue_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    const struct queue *q = ctx;
    return lease_state(lease) == SLOT_LIVE ? seat_records(q->seat, slot, waits_too, ctx) : 0;
}

int word_others_wait(const struct seat *seat, const struct hold *h)
{
    struct queue q = {.seat = seat, .except = h};
    return seat_slots(seat, queue_slot, &q);
}

/* The waiters flag alone proves nothing: a waiter that was woken sets it when it enters, since it cannot know that it was the last.
 * A reader that converts has no record that says so, but a flag of its own, and so has this hold while it does. */
int word_wanted(const struct seat *seat, const struct hold *h)
{
    uint64_t w;
    int rc = fab_read64(seat->ep, space_lock_addr(seat->space, h->index), &w);
    if (rc || MISTAKE(seat->space->design->mistakes, WORD_MISTAKE_MUTE))
        return rc;
    if (w & WORD_UPGRADE)
        return 1;
    if (!(w & WORD_WAITERS))
        return 0;
    return MISTAKE(seat->space->design->mistakes, WORD_MISTAKE_RUMOUR) ? 1 : word_others_wait(seat, h);
}
