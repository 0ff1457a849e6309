/* SPDX-License-Identifier: Apache-2.0 */
#include "world/sim_arena.h"

#include <stdlib.h>
#include <string.h>

struct sim_arena *sim_arena;

static void *take(struct sim_arena *a, size_t bytes)
{
    bytes = round_up(bytes, (size_t)CACHE_LINE);
    if (bytes > a->room - a->used)
        return NULL;
    char *memory = a->base + a->used;
    a->used += bytes;
    memset(memory, 0, bytes);
    return memory;
}

void *sim_alloc(size_t bytes)
{
    return likely(!sim_arena) ? calloc(1, bytes ? bytes : 1) : take(sim_arena, bytes);
}

void *sim_alloc_lines(size_t bytes)
{
    if (sim_arena)
        return take(sim_arena, bytes);
    bytes = round_up(bytes ? bytes : 1, (size_t)CACHE_LINE);
    void *memory = aligned_alloc(CACHE_LINE, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void *sim_realloc(void *memory, size_t old_bytes, size_t bytes)
{
    if (likely(!sim_arena))
        return realloc(memory, bytes);
    void *made = sim_alloc(bytes);
    if (made && old_bytes)
        memcpy(made, memory, old_bytes < bytes ? old_bytes : bytes);
    return made;
}

void sim_give_back(void *memory)
{
    if (likely(!sim_arena))
        free(memory);
}
