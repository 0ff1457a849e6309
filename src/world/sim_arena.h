/* SPDX-License-Identifier: Apache-2.0 */
/* Where simulated worlds have their memory: usually the C library's heap. A world that is to be put back to an earlier state, again
 * and again, has all of it in one arena, which is copied and copied back (workbench/trial/exhaust_image.h). */
#ifndef PAWL_WORLD_SIM_ARENA_H
#define PAWL_WORLD_SIM_ARENA_H

#include "lib/base.h"

struct sim_arena {
    char *base;
    size_t used, room;
};

/* Of the worlds made from now on; null: the heap. One thread. */
extern struct sim_arena *sim_arena;

/* Zeroed; null if there is no memory. What is given back to an arena is not used again. Lines begin with a cache line. */
void *sim_alloc(size_t bytes);
void *sim_alloc_lines(size_t bytes);
void *sim_realloc(void *memory, size_t old_bytes, size_t bytes);
void sim_give_back(void *memory);

#endif
