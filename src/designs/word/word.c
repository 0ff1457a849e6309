/* SPDX-License-Identifier: Apache-2.0 */
/* `word`: our own simple design. One 64-bit word per lock, changed by compare-and-swap; waiters watch the word.
 * docs/designs/word.md argues why it is correct; the invariants it cites are numbered in docs/invariants.md. */
#include "designs/word/word.h"
#include "designs/core/design.h"

#include <errno.h>

/* Word first, high part second: if a compare-and-swap on the word then succeeds, the token did not wrap around in between,
 * so the high part belongs to it. */
HANDOVER static int look(const struct seat *seat, fab_addr addr, struct word_lock *out)
{
    if (fab_is_shm(seat->ep)) {
        fab_read64(seat->ep, addr, &out->word);
        fab_read64(seat->ep, addr + offsetof(struct word_lock, high), &out->high);
        return 0;
    }
    struct word_lock seen;
    struct fab_op ops[] = {
        {.verb = FAB_READ, .len = 8, .addr = addr, .buf = &seen.word},
        {.verb = FAB_READ, .len = 8, .addr = addr + offsetof(struct word_lock, high), .buf = &seen.high},
    };
    int rc = fab_batch(seat->ep, ops, countof(ops));
    if (!rc)
        *out = seen;
    return rc;
}

/* Readers that enter and leave at the same time mostly wait for the cache line of the word. So one in `open-every` readers that
 * find others inside opens the lock: from then on readers do not write to the word. The next writer has to read all hold records
 * instead, which takes some tens of microseconds: about as much as the steps of that many readers. */
enum { OPEN_EVERY };

const struct design_knob word_knobs[] = {
    [OPEN_EVERY] = {"open-every", 1, 1u << RECORD_SERIAL_BITS, 1024},
    {0},
};

/* Whether one more reader can be counted. A reader without a limit takes a place of a semaphore, too. */
static bool room_for(const struct seat *seat, const struct hold *h, uint64_t w)
{
    if (!word_limited(w))
        return !h->limit && word_count(w) < WORD_READERS_MAX;
    if (MISTAKE(seat->space->design->mistakes, WORD_MISTAKE_CROWD))
        return word_readers(w) <= word_limit(w);
    return (!h->limit || h->limit == word_limit(w)) && word_readers(w) < word_limit(w);
}

/* The word that grants us the lock, or 0 if it cannot be granted. A reader that has slept may enter although others wait: it was
 * woken for that. */
HANDOVER static uint64_t granted(const struct seat *seat, const struct hold *h, uint64_t w, bool slept)
{
    uint64_t flags = slept ? WORD_WAITERS : w & WORD_WAITERS; /* a waiter that slept cannot know that it was the last */
    switch (word_mode(w)) {
    case WORD_FREE:
        if (word_token(w) == WORD_TOKEN_MAX)
            return 0;
        if (h->mode == PAWL_EXCLUSIVE)
            return flags | word_make(WORD_EXCLUSIVE, word_owner(seat, h), word_token(w) + 1);
        return flags | word_make(WORD_SHARED, word_limit_bits(h->limit) + 1, word_token(w) + 1);
    case WORD_SHARED:
        if (h->mode == PAWL_EXCLUSIVE || w & WORD_UPGRADE || (w & WORD_WAITERS && !slept))
            return 0;
        if (word_open(w) || !room_for(seat, h, w))
            return 0;
        if (unlikely(!flags && !word_limited(w) && h->serial % seat->space->knobs.value[OPEN_EVERY] == 0))
            return word_make(WORD_SHARED, WORD_COUNT_MAX, word_token(w));
        return flags | word_make(WORD_SHARED, word_count(w) + 1, word_token(w));
    default:
        return 0;
    }
}

/* The 36 bits of token in a free word are used up: raises the high part, then starts the word anew. A second session that
 * does the same raises nothing, since the high part is no longer the one that it read. */
ONCE static int wrap_token(const struct seat *seat, fab_addr addr, const struct word_lock *seen)
{
    uint64_t old;
    int rc = fab_cas64(seat->ep, addr + offsetof(struct word_lock, high), seen->high, seen->high + 1, &old);
    if (!rc)
        rc = fab_cas64(seat->ep, addr, seen->word, seen->word & ~WORD_TOKEN_MAX, &old);
    return rc;
}

/* A holder's process is being torn down, which takes microseconds; afterwards its session can be recovered from. */
#define DYING_NS (100 * NS_PER_US)

/* Sleeps until the word changes, a holder dies, or it is time to look after the holders. conds: with room for `room`. */
HANDOVER static int sleep_with(const struct seat *seat, const struct hold *h, uint64_t w, struct fab_cond *conds, unsigned room,
                               uint64_t deadline)
{
    bool dying;
    conds[0] = (struct fab_cond){.addr = space_lock_addr(seat->space, h->index), .mask = WORD_WATCH, .value = w & WORD_WATCH};
    unsigned n = 1 + word_life_conds(seat, h->index, w, conds + 1, room - 1, &dying);
    uint64_t look_after = add_saturating(world_now(seat->world), dying ? DYING_NS : seat->space->check_ns);
    int rc = fab_wait_any(seat->ep, conds, n, min_u64(deadline, look_after));
    __builtin_prefetch(seat->me->lease); /* cold after a sleep, and needed next: fetched together, not one after the other */
    __builtin_prefetch(&seat->me->shadow[h->record], 1);
    if (rc == -ETIMEDOUT && look_after < deadline)
        rc = 0;
    return rc;
}

__attribute__((noinline)) static int sleep_behind_readers(const struct seat *seat, const struct hold *h, uint64_t w,
                                                          uint64_t deadline)
{
    struct fab_cond conds[FAB_CONDS_MAX];
    return sleep_with(seat, h, w, conds, countof(conds), deadline);
}

/* Sets the waiters flag, and sleeps. */
HANDOVER static int sleep_on(const struct seat *seat, const struct hold *h, uint64_t w, uint64_t deadline)
{
    if (!(w & WORD_WAITERS)) {
        uint64_t old;
        int rc = fab_cas64(seat->ep, space_lock_addr(seat->space, h->index), w, w | WORD_WAITERS, &old);
        if (rc || old != w)
            return rc;
        w |= WORD_WAITERS;
    }
    if (word_mode(w) == WORD_SHARED)
        return sleep_behind_readers(seat, h, w, deadline);
    struct fab_cond conds[2]; /* the word, and the life of the one holder */
    return sleep_with(seat, h, w, conds, countof(conds), deadline);
}

/* A waiter that leaves may have been woken for the lock: another must be woken instead. */
static void pass_on(const struct seat *seat, uint64_t index)
{
    fab_wake(seat->ep, space_lock_addr(seat->space, index), WORD_WATCH, 1);
}

/* The last waiter that leaves a shared lock to its readers clears the waiters flag, which would keep new readers out. A session
 * that begins to wait meanwhile has published that before it looked at the flag, or is woken and sets it again. */
ONCE static void stop_waiting(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t w, old;
    pass_on(seat, h->index);
    if (fab_read64(seat->ep, addr, &w) || word_mode(w) != WORD_SHARED || !(w & WORD_WAITERS) || w & WORD_UPGRADE)
        return;
    if (word_others_wait(seat, h) == 0 && !fab_cas64(seat->ep, addr, w, w & ~WORD_WAITERS, &old) && old == w)
        fab_wake(seat->ep, addr, WORD_WATCH, UINT16_MAX);
}

/* A reader enters an open lock: first the record, then another look at the word. A session that closes the lock does it the other
 * way round, so at least one of the two sees the other. 1: granted; 0: look again. */
static int enter_open(const struct seat *seat, struct hold *h, const struct word_lock *seen)
{
    uint64_t w;
    int rc = hold_publish(seat, h, RECORD_TRY_S);
    if (rc)
        return rc;
    if (fab_is_shm(seat->ep))
        fab_local_fence(seat->ep);
    rc = fab_read64(seat->ep, space_lock_addr(seat->space, h->index), &w);
    if (rc || w != seen->word) {
        int undo = hold_publish(seat, h, RECORD_WAIT);
        return undo ? undo : rc;
    }
    h->token = word_full_token(seat, seen->high, w);
    rc = hold_publish(seat, h, RECORD_HELD_S);
    return rc ? rc : 1;
}

/* Before readers can be waited for they must be counted. */
ONCE static int close_open(const struct seat *seat, uint64_t index, uint64_t w)
{
    int rc = word_ask_recount(seat, index, w);
    return rc < 0 ? rc : 0;
}

/* The compare-and-swap to `next` ended with an error. 1: it took effect; 0: look again. */
ONCE static int learn(const struct seat *seat, const struct hold *h, uint64_t next, int rc)
{
    uint64_t now;
    if (rc != -FAB_EUNKNOWN)
        return rc;
    if (h->mode == PAWL_SHARED)
        return word_disown(seat, h, RECORD_WAIT);
    /* An exclusive word names this very hold, so reading it tells. */
    rc = seat_read64(seat, space_lock_addr(seat->space, h->index), &now);
    return rc ? rc : (now & ~WORD_WAITERS) == (next & ~WORD_WAITERS);
}

/* The word is `next` now. 1, or an error. */
INLINED int note_grant(const struct seat *seat, struct hold *h, uint64_t high, uint64_t next)
{
    h->token = word_full_token(seat, high, next);
    int rc = h->mode == PAWL_SHARED ? hold_publish(seat, h, RECORD_HELD_S) : 0;
    return rc ? rc : 1;
}

/* Takes the lock by one compare-and-swap, from the word as seen to `next`. 1: granted; 0: look again. */
HANDOVER static int take(const struct seat *seat, struct hold *h, const struct word_lock *seen, uint64_t next)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    bool shared = h->mode == PAWL_SHARED;
    uint64_t old;
    assert(shared || word_mode(seen->word) == WORD_FREE); /* I1 */
    assert(word_token(next) >= word_token(seen->word));   /* I2 */
    assert(!shared || !word_limited(next) || word_readers(next) <= word_limit(next) ||
           MISTAKES(seat->space->design->mistakes));                      /* I25 */
    int rc = hold_publish(seat, h, shared ? RECORD_TRY_S : RECORD_TRY_X); /* intent before effect (I5) */
    if (unlikely(rc))
        return rc;
    rc = fab_cas64(seat->ep, addr, seen->word, next, &old);
    int got = likely(!rc) ? old == seen->word : learn(seat, h, next, rc);
    return got > 0 ? note_grant(seat, h, seen->high, next) : got;
}

/* One call to acquire. */
struct attempt {
    const struct seat *seat;
    struct hold *h;
    uint64_t deadline;
    struct word_lock seen; /* the lock as it was last read */
    bool slept;
    bool woken;        /* since the lock was last read */
    bool looked_after; /* a try has made sure that the holders live */
};

/* The lock is ours, if the session still lives. A session that was stopped in between finds out here, after the lock was taken
 * (I1), and leaves the lock to recovery. */
HANDOVER static int granted_in_time(const struct attempt *a)
{
    const struct seat *seat = a->seat;
    if (unlikely(!seat_lives(seat)))
        return -PAWL_ELOST;
    if (seat_damaged(seat, a->h->token <= seat->space->token_base || !hold_is_named(seat, a->h))) /* I2, I5 */
        return -PAWL_ESEGMENT;
    if (a->slept && a->h->mode == PAWL_SHARED && !word_open(a->seen.word))
        pass_on(seat, a->h->index); /* other readers may sleep behind this one */
    return 0;
}

/* The lock is held, and the caller does not wait. The first time it makes sure that the holders live. */
ONCE static int refuse_to_wait(struct attempt *a)
{
    if (a->looked_after)
        return -PAWL_EHELD;
    a->looked_after = true;
    return word_check_holders(a->seat, a->h->index, a->seen.word);
}

/* Sleeps until the word changes or it is time to look after the holders. */
HANDOVER static int wait_turn(struct attempt *a)
{
    a->slept = true;
    int rc = hold_publish(a->seat, a->h, RECORD_WAIT);
    if (!rc)
        rc = sleep_on(a->seat, a->h, a->seen.word, a->deadline);
    if (unlikely(rc))
        rc = seat_retry(a->seat, rc);
    if (!rc && !seat_lives(a->seat))
        rc = -PAWL_ELOST; /* a lost session is not granted the lock (I8), so it need not wait */
    a->woken = !rc;
    return rc;
}

/* The lock is held in a way that does not go with a semaphore of this limit. */
static bool other_limit(const struct hold *h, uint64_t w)
{
    return h->limit && word_mode(w) == WORD_SHARED && word_limit(w) != h->limit;
}

/* The first time it makes sure that the holders live. */
ONCE static int refuse_limit(struct attempt *a)
{
    int rc = refuse_to_wait(a);
    return rc == -PAWL_EHELD ? -PAWL_ELIMITS : rc;
}

/* One step from the word as it was seen. 1: granted; 0: look again; or an error. */
HANDOVER static int acquire_step(struct attempt *a)
{
    const struct seat *seat = a->seat;
    const uint64_t w = a->seen.word, next = granted(seat, a->h, w, a->slept);
    if (likely(next))
        return take(seat, a->h, &a->seen, next);
    if (unlikely(word_mode(w) == WORD_FREE)) /* and its tokens are used up */
        return wrap_token(seat, space_lock_addr(seat->space, a->h->index), &a->seen);
    if (word_open(w))
        return a->h->mode == PAWL_SHARED && !a->h->limit ? enter_open(seat, a->h, &a->seen) : close_open(seat, a->h->index, w);
    if (word_mode(w) == WORD_RECOUNT) {
        int rc = hold_publish(seat, a->h, RECORD_WAIT); /* the session that counts must not wait for us */
        return rc ? rc : word_recount(seat, a->h->index, a->deadline);
    }
    if (unlikely(other_limit(a->h, w)))
        return refuse_limit(a);
    return a->deadline == DEADLINE_TRY ? refuse_to_wait(a) : wait_turn(a);
}

HANDOVER static int word_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    struct attempt a = {.seat = seat, .h = h, .deadline = deadline};
    assert(h->index < seat->space->lock_count && h->record < seat->space->record_count);
    for (;;) {
        uint64_t before = a.seen.word;
        int rc = look(seat, space_lock_addr(seat->space, h->index), &a.seen);
        if (!rc && a.woken && !((a.seen.word ^ before) & WORD_WATCH)) /* the same holders: do they live? */
            rc = word_check_holders(seat, h->index, before);
        a.woken = false;
        if (likely(!rc))
            rc = acquire_step(&a);
        if (likely(rc > 0))
            return granted_in_time(&a);
        if (unlikely(rc) && (rc = seat_retry(seat, rc))) {
            if (a.slept && rc != -PAWL_ELOST)
                stop_waiting(seat, h);
            return rc;
        }
    }
}

/* ---- a try in steps: a look, then the compare-and-swap ---- */

/* As `granted` says, where that is simple; else 0. */
static uint64_t granted_simply(const struct seat *seat, const struct hold *h, uint64_t w)
{
    bool shared = h->mode == PAWL_SHARED;
    if (w & WORD_WAITERS || word_token(w) == WORD_TOKEN_MAX)
        return 0;
    if (word_mode(w) == WORD_FREE)
        return word_make(shared ? WORD_SHARED : WORD_EXCLUSIVE, shared ? 1 : word_owner(seat, h), word_token(w) + 1);
    bool joins = shared && word_mode(w) == WORD_SHARED && !(w & WORD_UPGRADE) && !word_open(w) && !word_limited(w) &&
                 word_count(w) < WORD_READERS_MAX && h->serial % seat->space->knobs.value[OPEN_EVERY];
    return joins ? word_make(WORD_SHARED, word_count(w) + 1, word_token(w)) : 0;
}

ONCE static int word_step(const struct seat *seat, struct hold *h, struct design_try *t, struct fab_op *ops)
{
    const fab_addr addr = space_lock_addr(seat->space, h->index);
    static_assert(sizeof(struct word_lock) == 2 * sizeof *t->seen, "the look fits");
    switch (t->step++) {
    case 0:
        for (unsigned i = 0; i < 2; i++) /* as `look` does */
            ops[i] = (struct fab_op){.verb = FAB_READ, .len = 8, .addr = addr + 8 * i, .buf = &t->seen[i]};
        return 2;
    case 1:
        t->seen[2] = granted_simply(seat, h, t->seen[0]);
        if (!t->seen[2] || hold_publish(seat, h, record_try(h->mode))) /* intent before effect (I5) */
            return TRY_OTHERWISE;
        t->step = 2;
        ops[0] = (struct fab_op){.verb = FAB_CAS, .width = 8, .addr = addr, .compare = t->seen[0], .swap = t->seen[2]};
        ops[0].compare_mask = ops[0].swap_mask = UINT64_MAX;
        return 1;
    default:
        return (uint64_t)t->old == t->seen[0] && note_grant(seat, h, t->seen[1], t->seen[2]) > 0 ? 0 : TRY_OTHERWISE;
    }
}

ONCE static int word_rest(const struct seat *seat, struct hold *h, struct design_try *t)
{
    const struct attempt a = {.seat = seat, .h = h};
    int rc = t->step == 2 && t->rc ? learn(seat, h, t->seen[2], t->rc) : 0;
    if (rc > 0)
        rc = note_grant(seat, h, t->seen[1], t->seen[2]);
    if (rc > 0)
        return granted_in_time(&a);
    rc = seat_retry(seat, rc);
    return rc ? rc : word_acquire(seat, h, DEADLINE_TRY);
}

/* Moves an exclusively held word on; the waiters flag may come and go meanwhile. 1: done, *waiters tells whether to wake. */
static int move_exclusive(const struct seat *seat, const struct hold *h, uint64_t next, bool *waiters)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t held = word_make(WORD_EXCLUSIVE, word_owner(seat, h), word_short_token(seat, h->token));
    uint64_t expect = held, old;
    for (;;) {
        int rc = fab_cas64(seat->ep, addr, expect, next, &old);
        if (rc == -FAB_EUNKNOWN) {
            /* Only this hold changes its word while the session lives: if the word is no longer ours, and we live, we changed it.
             */
            rc = seat_read64(seat, addr, &old);
            if (!rc && (old & ~WORD_WAITERS) != held) {
                if (!seat_lives(seat))
                    return -PAWL_ELOST;
                *waiters = true;
                return 1;
            }
            if (!rc)
                expect = old;
        } else if (!rc && old == expect) {
            *waiters = expect & WORD_WAITERS;
            return 1;
        } else if (!rc && (old & ~WORD_WAITERS) == held) {
            expect = old;
        } else if (!rc) {
            return -PAWL_ENOTOWNER;
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

static int release_exclusive(const struct seat *seat, const struct hold *h)
{
    bool waiters = false;
    uint64_t next = word_make(WORD_FREE, 0, word_short_token(seat, h->token));
    int rc = move_exclusive(seat, h, next, &waiters);
    if (unlikely(rc < 0))
        return rc;
    hold_close(seat, h);
    if (unlikely(waiters))
        fab_wake(seat->ep, space_lock_addr(seat->space, h->index), WORD_WATCH, 1);
    return 0;
}

/* A live reader is counted, or being counted (I3). */
static bool counts_readers(uint64_t w)
{
    return word_mode(w) == WORD_RECOUNT || (word_mode(w) == WORD_SHARED && word_count(w) > 0);
}

/* The word after one reader left. */
static uint64_t without_reader(uint64_t w)
{
    if (word_mode(w) == WORD_RECOUNT) /* makes the count in progress out of date */
        return (w & WORD_WAITERS) | word_make(WORD_RECOUNT, word_one_more_left(w), word_token(w));
    if (word_readers(w) == 1)
        return word_make(WORD_FREE, 0, word_token(w));
    return (w & (WORD_WAITERS | WORD_UPGRADE)) | word_make(WORD_SHARED, word_count(w) - 1, word_token(w));
}

static int release_shared(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    int changed = hold_change(seat, h, RECORD_HELD_S, RECORD_LEAVE_S);
    if (changed)
        return changed;
    for (;;) {
        uint64_t w, old = 0;
        int rc = fab_read64(seat->ep, addr, &w);
        if (!rc && word_open(w) && fab_is_shm(seat->ep)) {
            fab_local_fence(
                seat->ep); /* the record before the word: a session that closes the lock after this look sees that we leave */
            fab_read64(seat->ep, addr, &w);
        }
        /* The word first, the lease second: if the word is then unchanged, no recovery has counted us out (I3). */
        if (!rc && !seat_lives(seat))
            return -PAWL_ELOST;
        if (!rc && word_open(w)) {
            hold_close(seat, h);
            return 0;
        }
        if (!rc && seat_damaged(seat, !counts_readers(w)))
            return -PAWL_ESEGMENT;
        uint64_t next = rc ? 0 : without_reader(w);
        if (!rc)
            rc = fab_cas64(seat->ep, addr, w, next, &old);
        if (!rc && old == w) {
            hold_close(seat, h);
            if (w & WORD_WAITERS && (word_mode(next) != WORD_SHARED || w & WORD_UPGRADE || word_limited(w)))
                fab_wake(seat->ep, addr, WORD_WATCH, w & WORD_UPGRADE || word_mode(next) == WORD_RECOUNT ? UINT16_MAX : 1);
            return 0;
        }
        if (rc == -FAB_EUNKNOWN) {
            rc = word_disown(seat, h, RECORD_LEAVE_S);
            if (!rc)
                hold_close(seat, h);
            return rc;
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

int word_release(const struct seat *seat, const struct hold *h)
{
    return h->mode == PAWL_EXCLUSIVE ? release_exclusive(seat, h) : release_shared(seat, h);
}

static int downgrade(const struct seat *seat, struct hold *h)
{
    uint64_t token = word_short_token(seat, h->token);
    if (token == WORD_TOKEN_MAX)
        return -EAGAIN; /* once in 2^36 grants: no room for the shared token, which lies above the exclusive one */
    bool waiters = false;
    /* A copy of the grant from before an earlier conversion has this record too, but not this token. */
    uint64_t held = word_make(WORD_EXCLUSIVE, word_owner(seat, h), token), w;
    int rc = seat_read64(seat, space_lock_addr(seat->space, h->index), &w);
    if (rc)
        return rc;
    if ((w & ~WORD_WAITERS) != held)
        return -PAWL_ENOTOWNER;
    /* The record first: it must say "reader" before the word does (I5). An exclusive word is not counted anew. */
    rc = hold_change(seat, h, RECORD_TRY_X, RECORD_HELD_S);
    if (rc)
        return rc;
    rc = move_exclusive(seat, h, word_make(WORD_SHARED, 1, token + 1), &waiters);
    if (rc < 0)
        return rc;
    h->token++;
    h->mode = PAWL_SHARED;
    if (waiters) /* readers may enter now; the flag is cleared, so all waiters must look again */
        fab_wake(seat->ep, space_lock_addr(seat->space, h->index), WORD_WATCH, UINT16_MAX);
    return 0;
}

/* Clears the upgrade flag that was set while the word had the token `asked`. */
ONCE static int stop_upgrade(const struct seat *seat, const struct hold *h, uint64_t asked)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    for (;;) {
        uint64_t w, old;
        int rc = fab_read64(seat->ep, addr, &w);
        if (!rc && (!(w & WORD_UPGRADE) || word_token(w) != asked))
            return 0;
        if (!rc)
            rc = fab_cas64(seat->ep, addr, w, w & ~(WORD_UPGRADE | WORD_WAITERS), &old);
        if (!rc && old == w) {
            fab_wake(seat->ep, addr, WORD_WATCH, UINT16_MAX);
            return 0;
        }
        if (rc == -FAB_EUNKNOWN)
            rc = word_disown(seat, h, RECORD_HELD_S); /* counting anew clears the flag and keeps us as a reader */
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* The other readers have left: makes us the writer. 1: done. */
static int become_writer(const struct seat *seat, struct hold *h, const struct word_lock *seen)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t w = seen->word, old;
    uint64_t next = (w & WORD_WAITERS) | word_make(WORD_EXCLUSIVE, word_owner(seat, h), word_token(w) + 1);
    int rc = fab_cas64(seat->ep, addr, w, next, &old);
    if (rc == -FAB_EUNKNOWN) {
        rc = seat_read64(seat, addr, &old); /* an exclusive word names this hold */
        if (!rc)
            old = (old & ~WORD_WAITERS) == (next & ~WORD_WAITERS) ? w : ~w;
    }
    if (rc || old != w)
        return rc;
    h->token = word_full_token(seat, seen->high, next);
    h->mode = PAWL_EXCLUSIVE;
    rc = hold_publish(seat, h, RECORD_TRY_X);
    return rc ? rc : 1;
}

/* One step of an upgrade from what was seen. 1: we are the writer. *asked is the token under which the upgrade flag was set by
 * us; counting anew clears the flag and moves the token on. */
ONCE static int upgrade_step(const struct seat *seat, struct hold *h, const struct word_lock *seen, uint64_t *asked,
                             uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t w = seen->word, old;
    if (word_mode(w) == WORD_RECOUNT)
        return word_recount(seat, h->index, deadline);
    if (seat_damaged(seat, !counts_readers(w)))
        return -PAWL_ESEGMENT;
    if (word_open(w))
        return close_open(seat, h->index, w);
    if (word_limited(w))
        return -PAWL_ENOTSUP; /* a place of a semaphore is no share of the lock */
    bool ours = w & WORD_UPGRADE && *asked == word_token(w);
    if (w & WORD_UPGRADE && !ours) {
        /* Another reader waits for us to leave; unless it is dead: then the lock is counted anew, which changes the token. */
        int rc = word_check_holders(seat, h->index, w);
        if (!rc)
            rc = fab_read64(seat->ep, addr, &old);
        return rc ? rc : word_mode(old) == WORD_SHARED && word_token(old) == word_token(w) && old & WORD_UPGRADE ? -EDEADLK : 0;
    }
    if (word_token(w) == WORD_TOKEN_MAX)
        return -EAGAIN; /* once in 2^36 grants; free the lock and it starts anew */
    if (word_count(w) == 1)
        return become_writer(seat, h, seen);
    if (deadline == DEADLINE_TRY)
        return -PAWL_EHELD;
    if (!ours) {
        int rc = fab_cas64(seat->ep, addr, w, w | WORD_UPGRADE, &old);
        if (rc == -FAB_EUNKNOWN)
            return word_disown(seat, h, RECORD_HELD_S); /* the flag may be ours or not: counting anew clears it */
        if (!rc && old == w)
            *asked = word_token(w);
        return rc;
    }
    int rc = sleep_on(seat, h, w, deadline);
    return rc ? rc : word_check_holders(seat, h->index, w);
}

ONCE static int upgrade(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t asked = 0; /* no shared word has token 0: the first reader raises it */
    if (!hold_is(seat, h, RECORD_HELD_S))
        return -PAWL_ENOTOWNER;
    for (;;) {
        struct word_lock seen;
        int rc = look(seat, addr, &seen);
        if (!rc && !seat_lives(seat))
            return -PAWL_ELOST;
        if (!rc)
            rc = upgrade_step(seat, h, &seen, &asked, deadline);
        if (rc > 0)
            return seat_lives(seat) ? 0 : -PAWL_ELOST;
        if (rc && (rc = seat_retry(seat, rc))) {
            int undo = asked && rc != -PAWL_ELOST ? stop_upgrade(seat, h, asked) : 0;
            return undo ? undo : rc;
        }
    }
}

ONCE int word_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    if (mode == h->mode)
        return hold_is_named(seat, h) ? 0 : -PAWL_ENOTOWNER;
    return mode == PAWL_SHARED ? downgrade(seat, h) : upgrade(seat, h, deadline);
}

ONCE int word_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct word_lock seen;
    int rc = look(seat, space_lock_addr(seat->space, index), &seen);
    bool counts =
        !rc && (word_mode(seen.word) == WORD_RECOUNT || (word_open(seen.word) && word_ask_recount(seat, index, seen.word) > 0));
    if (counts && !word_recount(seat, index, DEADLINE_TRY))
        rc = look(seat, space_lock_addr(seat->space, index), &seen);
    if (rc)
        return rc;
    enum word_mode mode = word_mode(seen.word);
    *out = (struct lock_view){
        .mode = mode == WORD_FREE        ? 0
                : mode == WORD_EXCLUSIVE ? PAWL_EXCLUSIVE
                                         : PAWL_SHARED,
        .owner = mode == WORD_EXCLUSIVE ? word_owner_slot(seen.word) : 0,
        .readers = mode == WORD_SHARED && !word_open(seen.word) ? (uint32_t)word_readers(seen.word) : 0,
        .limit = mode == WORD_SHARED && word_limited(seen.word) ? (uint32_t)word_limit(seen.word) : 0,
        .token = word_full_token(seat, seen.high, seen.word),
    };
    return 0;
}

/* The next token after the floor, high part first: a death in between leaves a token that is higher still. */
ONCE int word_raise(const struct seat *seat, struct hold *h, uint64_t floor)
{
    if (h->token > floor)
        return 0;
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t above = floor + 1 - seat->space->token_base;
    bool waiters;
    struct word_lock seen;
    int rc = look(seat, addr, &seen);
    /* By compare-and-swap: if we are lost meanwhile, it must not undo what other sessions have raised it to. */
    while (!rc && seen.high < above >> WORD_TOKEN_BITS) {
        uint64_t old;
        rc = fab_cas64(seat->ep, addr + offsetof(struct word_lock, high), seen.high, above >> WORD_TOKEN_BITS, &old);
        if (!rc && old == seen.high)
            break;
        rc = rc ? rc : look(seat, addr, &seen);
    }
    if (rc)
        return rc;
    rc = move_exclusive(seat, h, word_make(WORD_EXCLUSIVE, word_owner(seat, h), above & WORD_TOKEN_MAX), &waiters);
    if (rc < 0)
        return rc;
    h->token = word_full_token(seat, max_u64(seen.high, above >> WORD_TOKEN_BITS), above & WORD_TOKEN_MAX);
    if (waiters) /* the flag is cleared: all waiters must look again */
        fab_wake(seat->ep, addr, WORD_WATCH, UINT16_MAX);
    return 0;
}

const struct design design_word = {
    .name = "word",
    .summary = "one 64-bit word per lock by compare-and-swap; our own simple design",
    .kind = DESIGN_MAIN,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT |
                DESIGN_ASYNC | DESIGN_BAST | DESIGN_SEMAPHORE | DESIGN_VALUES,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM | DESIGN_ON_NODES | DESIGN_ON_RDMA,
    .tolerates = FAULTS_ALL,
    .lock_size = sizeof(struct word_lock),
    .distrusts = true,
    .knobs = word_knobs,
    .acquire = word_acquire,
    .step = word_step,
    .rest = word_rest,
    .release = word_release,
    .convert = word_convert,
    .holds = hold_is_named,
    .wanted = word_wanted,
    .recover = word_recover,
    .peek = word_peek,
    .raise = word_raise,
};
