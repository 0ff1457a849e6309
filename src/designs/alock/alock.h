/* SPDX-License-Identifier: Apache-2.0 */
/* ALock (SPAA'24): two cohorts, those on the lock's own node and those elsewhere, each a queue with a budget; between the two a
 * Peterson lock. Local clients touch the lock by CPU instructions only, remote ones by verbs only, and no word is changed by
 * atomics of both kinds. docs/designs/alock.md has the protocol, the argument, and where it departs from the paper.
 *
 * A cohort's word: era 16, tail 24, holder 24.
 *
 *     holder  the hold that has the cohort's baton, and competes for the Peterson lock or has it; 0: none. It is the flag of
 *             Peterson's algorithm
 *     tail    the hold that joined last; 0: none since this era began
 *     era     of the queue. Raising it drops the queue: the baton is no longer handed to waiters of the old era, and all queue up
 *             again. The holder stays. This is how a waiter that gives up, or is dead, leaves
 *
 * Every change of the holder is a compare-and-swap on this one word, so a late one changes nothing. The contents of descriptors
 * (link to the successor, hand-over) are hints that save looking at the word. */
#ifndef PAWL_DESIGNS_ALOCK_ALOCK_H
#define PAWL_DESIGNS_ALOCK_ALOCK_H

#include "designs/alock/mistakes.h"
#include "designs/core/design.h"

enum cohort { COHORT_LOCAL, COHORT_REMOTE, COHORTS };

/* How many grants in a row a cohort gets before the other one (6.1). */
#define ALOCK_BUDGET_LOCAL 5
#define ALOCK_BUDGET_REMOTE 20
#define ALOCK_BUDGET_MAX 255

/* A lock in memory: with a key in front of it one cache line, and without one it has a line to itself. How each word is changed:
 * cohort[LOCAL], skip[LOCAL] CPU atomics; cohort[REMOTE], skip[REMOTE] NIC atomics; victim, token CPU atomics and plain WRITEs,
 * which are atomic with each other. */
struct alock {
    uint64_t cohort[COHORTS];
    uint64_t victim;        /* cohort 1, writer 24, its serial 20, times 19: no value is written twice */
    uint64_t token;         /* how many grants have ended by release */
    uint64_t skip[COHORTS]; /* and by recovery: the token is the sum */
};
static_assert(sizeof(struct alock) == 48, "with a key one line");

/* In the memory of the session, on its own node. */
struct alock_desc {
    uint64_t next;       /* the hold that it is meant for 40 (a hash), the successor 24; written last, by the successor */
    fab_addr next_desc;  /* its descriptor: 16 bits of node, 48 of offset */
    uint64_t next_grant; /* and the word that is a grant to it */
    uint64_t grant;  /* valid 1, slot 12, epoch 22, hold's serial 20, budget 8, one bit free; written last, by the predecessor */
    uint64_t count;  /* mark 20, what the predecessor left in the lock's `token` 44 */
    uint64_t skips;  /* mark 20, the sum of its `skip` 44 */
    uint64_t own[2]; /* the holder's notes: era and budget, count */
};
static_assert(sizeof(struct alock_desc) == CACHE_LINE, "descriptors do not share lines");

#define ALOCK_WHO_BITS 24
#define ALOCK_HOLDER_MASK FIELD_MAX(ALOCK_WHO_BITS)
#define ALOCK_TAIL_SHIFT 24
#define ALOCK_ERA_SHIFT 48
#define ALOCK_ERA_BITS 16
#define ALOCK_ERA_MASK FIELD_MASK(ALOCK_ERA_SHIFT, 16)
#define ALOCK_VICTIM_SHIFT 63

static inline uint64_t alock_word(uint64_t era, uint64_t tail, uint64_t holder)
{
    return (era & FIELD_MAX(ALOCK_ERA_BITS)) << ALOCK_ERA_SHIFT | tail << ALOCK_TAIL_SHIFT | holder;
}
static inline uint64_t alock_holder(uint64_t w)
{
    return w & ALOCK_HOLDER_MASK;
}
static inline uint64_t alock_tail(uint64_t w)
{
    return field_get(w, ALOCK_TAIL_SHIFT, ALOCK_WHO_BITS);
}
static inline uint64_t alock_era(uint64_t w)
{
    return w >> ALOCK_ERA_SHIFT;
}

/* A hold's name, never 0: slot and record plus one. The very last of 2^24 names does not fit: see alock_acquire. */
static inline uint64_t alock_who(uint32_t slot, uint32_t record)
{
    return ((uint64_t)slot << 12 | record) + 1;
}
static inline uint32_t alock_slot(uint64_t who)
{
    return (uint32_t)((who - 1) >> 12);
}

/* The cohort of a session on that node. */
static inline enum cohort alock_cohort_of(fab_addr lock, uint32_t node)
{
    return FAB_NODE(lock) == node ? COHORT_LOCAL : COHORT_REMOTE;
}

/* ---- access to words of the lock by the cohort's own means; *value and *old on success only ---- */

int alock_load(const struct seat *seat, enum cohort c, fab_addr addr, uint64_t *value);
int alock_cas(const struct seat *seat, enum cohort c, fab_addr addr, uint64_t expect, uint64_t desired, uint64_t *old);

/* ---- recover.c ---- */

int alock_recover(const struct seat *seat, uint32_t dead, uint32_t epoch);

/* Recovers from the session of that hold if it is dead and may be recovered from here. */
int alock_look_after(const struct seat *seat, uint64_t who);

extern const struct design design_alock;

#endif
