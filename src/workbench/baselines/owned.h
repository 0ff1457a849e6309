/* SPDX-License-Identifier: Apache-2.0 */
/* A word that is 0 or names the hold that has the lock, changed by compare-and-swap. Shared by the baselines `cas`, `spin` and
 * `drtm`. */
#ifndef PAWL_WORKBENCH_BASELINES_OWNED_H
#define PAWL_WORKBENCH_BASELINES_OWNED_H

#include "designs/core/design.h"

/* Every hold has another name, so that its own word is recognised after a connection broke. The top bit is free. */
static inline uint64_t owned_name(const struct seat *seat, const struct hold *h)
{
    return (uint64_t)(seat->me->slot + 1) << 32 | (uint64_t)h->record << 20 | h->serial;
}
static inline uint32_t owned_slot(uint64_t name)
{
    return (uint32_t)(name >> 32 & FIELD_MAX(31)) - 1;
}

struct owned_lock {
    uint64_t owner; /* 0: free */
    uint64_t unused;
};

/* Truncated exponential backoff: waits, and doubles the pause. */
int owned_back_off(const struct seat *seat, uint64_t *pause_ns, uint64_t most_ns, uint64_t deadline);

/* One compare-and-swap. 1: the caller has the lock; else *old is the name in the word. */
int owned_try(const struct seat *seat, fab_addr addr, uint64_t name, uint64_t *old);

/* Takes the name out of the word and closes the record. */
int owned_release(const struct seat *seat, const struct hold *h, uint64_t name);

/* The state of a lock whose word is 0 or a name. */
int owned_peek(const struct seat *seat, uint64_t index, struct lock_view *out);

#endif
