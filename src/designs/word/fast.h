/* SPDX-License-Identifier: Apache-2.0 */
/* The uncontended path of `word` on shared memory: the steps of word.c in a row, on pointers that were computed once.
 *
 * Same order, same reasons: intent before effect (I5), word before high part, lease after the lock (I1). In every other case it
 * returns false with nothing done but a record that says "may hold", which the caller hands to word.c. */
#ifndef PAWL_DESIGNS_WORD_FAST_H
#define PAWL_DESIGNS_WORD_FAST_H

#include "designs/word/word.h"

/* All that it needs, in one cache line. */
struct word_fast {
    const uint64_t *lease;
    const bool *ended; /* the session's */
    uint64_t live;     /* the lease word's upper part while the session lives and its lease was not withdrawn */
    uint64_t *records;
    uint64_t owner; /* the exclusive word of record 0 with token 0 */
    uint64_t token_base;
};

static inline void word_fast_init(struct word_fast *f, const struct seat *seat)
{
    const struct hold first = {.record = 0};
    *f = (struct word_fast){
        .lease = seat->me->lease,
        .live = lease_word(SLOT_LIVE, seat->me->epoch, 0) >> LEASE_WITHDRAWN_SHIFT,
        .ended = &seat->me->ended,
        .records = seat->me->shadow,
        .owner = word_make(WORD_EXCLUSIVE, word_owner(seat, &first), 0),
        .token_base = seat->space->token_base,
    };
}

INLINED uint64_t word_fast_owner(const struct word_fast *f, uint32_t record)
{
    return f->owner + ((uint64_t)record << WORD_COUNT_SHIFT);
}

/* A reader of an open lock (enter_open in word.c). False: the caller must take the claim out of the record. A function of its own,
 * so that it takes no registers from the usual path. */
static __attribute__((noinline, unused)) bool word_fast_enter(const struct word_fast *f, struct word_lock *lock, uint32_t record,
                                                              uint64_t index_serial, uint64_t w)
{
    __atomic_store_n(&f->records[record], (uint64_t)RECORD_TRY_S << RECORD_STATE_SHIFT | index_serial, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (unlikely(__atomic_load_n(&lock->word, __ATOMIC_ACQUIRE) != w))
        return false;
    __atomic_store_n(&f->records[record], (uint64_t)RECORD_HELD_S << RECORD_STATE_SHIFT | index_serial, __ATOMIC_RELEASE);
    return true;
}

/* `index_serial`: the record's word but for its state. */
INLINED bool word_fast_lock(const struct word_fast *f, struct word_lock *lock, uint32_t record, uint64_t index_serial, bool shared,
                            uint64_t *token)
{
    uint64_t w = __atomic_load_n(&lock->word, __ATOMIC_ACQUIRE);
    uint64_t high = __atomic_load_n(&lock->high, __ATOMIC_ACQUIRE);
    if (unlikely(w >= WORD_TOKEN_MAX)) { /* anything but free, or the last token */
        if (!shared || !word_open(w) || !word_fast_enter(f, lock, record, index_serial, w))
            return false;
        *token = f->token_base + (high << WORD_TOKEN_BITS) + word_token(w);
        return true;
    }
    uint64_t state = (uint64_t)(shared ? RECORD_TRY_S : RECORD_TRY_X) << RECORD_STATE_SHIFT;
    uint64_t next = (shared ? word_make(WORD_SHARED, 1, 0) : word_fast_owner(f, record)) + w + 1;
    __atomic_store_n(&f->records[record], state | index_serial, __ATOMIC_RELEASE);
    if (unlikely(!__atomic_compare_exchange_n(&lock->word, &w, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)))
        return false;
    if (shared)
        __atomic_store_n(&f->records[record], (uint64_t)RECORD_HELD_S << RECORD_STATE_SHIFT | index_serial, __ATOMIC_RELEASE);
    *token = f->token_base + (high << WORD_TOKEN_BITS) + w + 1;
    return true;
}

/* A waiter that has slept takes the lock if it is free (`take` in word.c). It sets the waiters flag: it cannot know that it was the
 * last. False: the record may say "may hold", as above. */
INLINED bool word_fast_take(const struct word_fast *f, struct word_lock *lock, uint32_t record, uint64_t index_serial,
                            uint64_t *token)
{
    uint64_t w = __atomic_load_n(&lock->word, __ATOMIC_ACQUIRE);
    uint64_t high = __atomic_load_n(&lock->high, __ATOMIC_ACQUIRE);
    if (unlikely((w & ~WORD_WAITERS) >= WORD_TOKEN_MAX)) /* anything but free, or the last token */
        return false;
    uint64_t taken = (w & WORD_TOKEN_MAX) + 1;
    uint64_t next = WORD_WAITERS | (word_fast_owner(f, record) + taken);
    __atomic_store_n(&f->records[record], (uint64_t)RECORD_TRY_X << RECORD_STATE_SHIFT | index_serial, __ATOMIC_RELEASE);
    if (unlikely(!__atomic_compare_exchange_n(&lock->word, &w, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)))
        return false;
    *token = f->token_base + (high << WORD_TOKEN_BITS) + taken;
    return true;
}

/* An exclusive hold, without waiters (`flags` 0) or with (WORD_WAITERS). The caller closes the record, and wakes a waiter. */
INLINED bool word_fast_unlock(const struct word_fast *f, struct word_lock *lock, uint32_t record, uint64_t token, uint64_t flags)
{
    uint64_t free_word = (token - f->token_base) & WORD_TOKEN_MAX;
    uint64_t held = (word_fast_owner(f, record) + free_word) | flags;
    return __atomic_compare_exchange_n(&lock->word, &held, free_word, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

#endif
