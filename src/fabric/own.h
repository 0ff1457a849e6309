/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of words that only this session writes, kept by its endpoint: loads of them cost nothing. They are used without a lock: a
 * word is used by one task at a time, the one that waits or holds. */
#ifndef PAWL_FABRIC_OWN_H
#define PAWL_FABRIC_OWN_H

#include "fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>

struct own_words {
    fab_addr base;
    uint64_t count, *words;
    uint8_t *known; /* whether the word was stored since */
};

static inline void own_free(struct own_words *o)
{
    free(o->words);
    free(o->known);
    *o = (struct own_words){0};
}

/* Words from `base` on; none of them is known. -ENOMEM. */
static inline int own_make(struct own_words *o, fab_addr base, uint64_t bytes)
{
    *o = (struct own_words){.base = base, .count = bytes / 8};
    o->words = calloc(o->count + 1, sizeof *o->words);
    o->known = calloc(o->count + 1, 1);
    if (o->words && o->known)
        return 0;
    own_free(o);
    return -ENOMEM;
}

static inline uint64_t own_index(const struct own_words *o, fab_addr addr)
{
    return addr >= o->base && (addr - o->base) / 8 < o->count ? (addr - o->base) / 8 : UINT64_MAX;
}

/* Whether there is a copy of that word from now on. */
static inline bool own_put(const struct own_words *o, fab_addr addr, uint64_t value)
{
    uint64_t at = own_index(o, addr);
    if (at == UINT64_MAX)
        return false;
    __atomic_store_n(&o->words[at], value, __ATOMIC_RELAXED);
    __atomic_store_n(&o->known[at], 1, __ATOMIC_RELEASE);
    return true;
}

/* Whether the word is known. */
static inline bool own_get(const struct own_words *o, fab_addr addr, uint64_t *value)
{
    uint64_t at = own_index(o, addr);
    if (at == UINT64_MAX || !__atomic_load_n(&o->known[at], __ATOMIC_ACQUIRE))
        return false;
    *value = __atomic_load_n(&o->words[at], __ATOMIC_RELAXED);
    return true;
}

#endif
