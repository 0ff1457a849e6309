/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of words that only this session writes, kept by its endpoint: loads of them cost nothing. Under the endpoint's lock. */
#ifndef PAWL_FABRIC_OWN_H
#define PAWL_FABRIC_OWN_H

#include "fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>

struct fab_own {
    fab_addr base;
    uint64_t count, *words;
    uint8_t *known; /* whether the word was stored since */
};

static inline void own_free(struct fab_own *o)
{
    free(o->words);
    free(o->known);
    *o = (struct fab_own){0};
}

/* Words from `base` on; none of them is known. -ENOMEM. */
static inline int own_make(struct fab_own *o, fab_addr base, uint64_t bytes)
{
    *o = (struct fab_own){.base = base, .count = bytes / 8};
    o->words = calloc(o->count + 1, sizeof *o->words);
    o->known = calloc(o->count + 1, 1);
    if (o->words && o->known)
        return 0;
    own_free(o);
    return -ENOMEM;
}

static inline uint64_t own_index(const struct fab_own *o, fab_addr addr)
{
    return addr >= o->base && (addr - o->base) / 8 < o->count ? (addr - o->base) / 8 : UINT64_MAX;
}

static inline void own_put(struct fab_own *o, fab_addr addr, uint64_t value)
{
    uint64_t at = own_index(o, addr);
    if (at == UINT64_MAX)
        return;
    o->words[at] = value;
    o->known[at] = 1;
}

/* Whether the word is known. */
static inline bool own_get(const struct fab_own *o, fab_addr addr, uint64_t *value)
{
    uint64_t at = own_index(o, addr);
    if (at == UINT64_MAX || !o->known[at])
        return false;
    *value = o->words[at];
    return true;
}

#endif
