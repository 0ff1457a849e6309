/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The lock word of `word`: waiters 1, upgrade 1, mode 2, owner or readers 24, token 36; and beside it the token's high part.
 *
 *     FREE       not held; the token of the latest grant
 *     SHARED     the number of readers, all with the same token; or, with the highest number, OPEN: any number of readers, which are
 *                not counted and enter and leave by their hold records alone
 *     EXCLUSIVE  the owner: session slot and hold record, so that no two holds look alike
 *     RECOUNT    a reader died, or lost its connection, between publishing that it would enter or leave and doing so, so the number
 *                may include it or not. No session enters until the readers are counted anew from the hold records. The field
 *                counts the readers that left meanwhile. */
/* clang-format on */
#ifndef PAWL_DESIGNS_WORD_WORD_H
#define PAWL_DESIGNS_WORD_WORD_H

#include "designs/core/design.h"
#include "designs/word/mistakes.h"

/* A free word without flags is its token alone: one comparison tells. */
enum word_mode { WORD_FREE, WORD_SHARED, WORD_EXCLUSIVE, WORD_RECOUNT };

#define WORD_TOKEN_BITS 36
#define WORD_TOKEN_MAX FIELD_MAX(WORD_TOKEN_BITS)
#define WORD_COUNT_SHIFT 36
#define WORD_COUNT_BITS 24 /* owner: 12 bits of slot, 12 of record */
#define WORD_COUNT_MAX FIELD_MAX(WORD_COUNT_BITS)
#define WORD_MODE_SHIFT 60
#define WORD_UPGRADE (UINT64_C(1) << 62) /* a reader waits to become the writer; no new readers */
#define WORD_WAITERS (UINT64_C(1) << 63) /* a waiter may be asleep: a session that changes the word wakes it */

/* The part that a sleeping waiter watches: everything but the token, in the upper half, as futexes need it. */
#define WORD_WATCH FIELD_MASK(WORD_COUNT_SHIFT, 28)

#define WORD_READERS_MAX (WORD_COUNT_MAX - 1)

/* A lock in memory. */
struct word_lock {
    uint64_t word;
    uint64_t high; /* rises by one each time the word's 36 token bits are used up */
};

static inline enum word_mode word_mode(uint64_t w)
{
    return (enum word_mode)field_get(w, WORD_MODE_SHIFT, 2);
}
static inline uint64_t word_count(uint64_t w)
{
    return field_get(w, WORD_COUNT_SHIFT, WORD_COUNT_BITS);
}
static inline uint64_t word_token(uint64_t w)
{
    return field_get(w, 0, WORD_TOKEN_BITS);
}
static inline uint32_t word_owner_slot(uint64_t w)
{
    return (uint32_t)(word_count(w) >> 12);
}

static inline uint64_t word_make(enum word_mode mode, uint64_t count, uint64_t token)
{
    debug_assert(count <= WORD_COUNT_MAX && token <= WORD_TOKEN_MAX);
    return (uint64_t)mode << WORD_MODE_SHIFT | count << WORD_COUNT_SHIFT | token;
}

/* An open word has no flags: no waiter sleeps on it. */
static inline bool word_open(uint64_t w)
{
    return w >> WORD_COUNT_SHIFT == word_make(WORD_SHARED, WORD_COUNT_MAX, 0) >> WORD_COUNT_SHIFT;
}

static inline uint64_t word_owner(const struct seat *seat, const struct hold *h)
{
    return (uint64_t)seat->me->slot << 12 | h->record;
}

/* The public token, and the part of it that is in the word. */
static inline uint64_t word_full_token(const struct seat *seat, uint64_t high, uint64_t w)
{
    return seat->space->token_base + (high << WORD_TOKEN_BITS) + word_token(w);
}
static inline uint64_t word_short_token(const struct seat *seat, uint64_t full)
{
    return (full - seat->space->token_base) & WORD_TOKEN_MAX;
}

/* ---- recover.c ---- */

/* The word is in RECOUNT: counts the readers from the hold records. Returns 0 when it is no longer, or the error of a time-out,
 * cancel or loss. */
int word_recount(const struct seat *seat, uint64_t index, uint64_t deadline);

/* Moves a shared word to RECOUNT, or makes a count in progress out of date. 1: done; 0: the word had changed. */
int word_ask_recount(const struct seat *seat, uint64_t index, uint64_t w);

/* This task does not know whether it is counted among the readers: has the lock counted anew, and then publishes `then`. */
int word_disown(const struct seat *seat, const struct hold *h, enum record_state then);

/* Looks whether the holders of the word live, and recovers from those that do not. */
int word_check_holders(const struct seat *seat, uint64_t index, uint64_t word);

/* Conditions that wake a waiter when a holder dies. *dying: one of them is already dead, so it cannot be waited for. */
unsigned word_life_conds(const struct seat *seat, uint64_t index, uint64_t word, struct fab_cond *conds, unsigned max, bool *dying);

/* Whether another hold waits for the same lock: 1, 0 or an error. */
int word_others_wait(const struct seat *seat, const struct hold *h);

/* Whether a request waits for the lock of this hold: 1, 0 or an error. */
int word_wanted(const struct seat *seat, const struct hold *h);

int word_recover(const struct seat *seat, uint32_t dead, uint32_t epoch);

/* ---- word.c: the design, and its parts for designs that are made of it ---- */

int word_release(const struct seat *seat, const struct hold *h);
int word_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline);
int word_peek(const struct seat *seat, uint64_t index, struct lock_view *out);
int word_raise(const struct seat *seat, struct hold *h, uint64_t floor);

extern const struct design design_word;
extern const struct design_knob word_knobs[];

#endif
