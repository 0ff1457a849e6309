/* SPDX-License-Identifier: Apache-2.0 */
/* Numbered timers in a host's memory: a heap without pointers (pool.c). Setting, moving and stopping one costs the logarithm of the
 * number that run. Changes are announced to the outbox, so that they can be undone. */
#ifndef PAWL_DESIGNS_FISSLOCK_TIMERS_H
#define PAWL_DESIGNS_FISSLOCK_TIMERS_H

#include "designs/packet/packet.h"

struct timers {
    uint32_t capacity; /* timers have numbers below this */
    uint32_t running;
    uint64_t memory[]; /* due times; then the heap of numbers, and each number's place in it, 1 and up; 0: does not run */
};

static inline uint64_t timers_bytes(uint32_t capacity)
{
    return sizeof(struct timers) + (uint64_t)capacity * (sizeof(uint64_t) + 2 * sizeof(uint32_t));
}

/* Memory is zero. */
static inline void timers_init(struct timers *t, uint32_t capacity)
{
    t->capacity = capacity;
    t->running = 0;
}

static inline uint32_t *timers_heap(struct timers *t)
{
    return (uint32_t *)(t->memory + t->capacity);
}
static inline uint32_t *timers_places(struct timers *t)
{
    return timers_heap(t) + t->capacity;
}

static inline bool timers_runs(struct timers *t, uint32_t number)
{
    return timers_places(t)[number] != 0;
}

/* UINT64_MAX if none runs. */
static inline uint64_t timers_next(struct timers *t)
{
    return t->running ? t->memory[timers_heap(t)[0]] : UINT64_MAX;
}

void timers_set(struct timers *t, uint32_t number, uint64_t due, struct outbox *o);
void timers_stop(struct timers *t, uint32_t number, struct outbox *o);

/* Stops one that is due; false if none is. */
bool timers_pop(struct timers *t, uint64_t now, uint32_t *number, struct outbox *o);

#endif
