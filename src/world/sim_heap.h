/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's event queue: a 4-ary heap ordered by (time, order of insertion).
 *
 * Keys are 16 bytes, so that the four children of a node share one cache line; the action of an event lies in a slot beside. */
#ifndef PAWL_WORLD_SIM_HEAP_H
#define PAWL_WORLD_SIM_HEAP_H

#include "lib/base.h"

typedef void (*sim_event_fn)(void *arg, uint64_t tag);

struct sim_event {
    sim_event_fn fn;
    void *arg;
    uint64_t tag;
    bool background; /* does not keep the simulation running */
};

#define SIM_HEAP_SLOT_BITS 20 /* a million events at once: two per client of the largest run, with room for batches */
#define SIM_HEAP_MAX (UINT32_C(1) << SIM_HEAP_SLOT_BITS)

struct sim_heap_key {
    uint64_t at_ns;
    uint64_t order; /* sequence number above, slot below: keys never compare equal */
};

struct sim_heap {
    void *allocation;
    struct sim_heap_key *keys;
    struct sim_event *slots;
    uint32_t *free_slots;
    uint32_t count, capacity;
    uint64_t sequence;
};

int sim_heap_init(struct sim_heap *heap);
void sim_heap_free(struct sim_heap *heap);

/* Aborts if SIM_HEAP_MAX events are queued: a simulation that far out of hand has no result. */
void sim_heap_push(struct sim_heap *heap, uint64_t at_ns, const struct sim_event *event);

/* The heap is not empty. The sequence number is part of the trace. */
struct sim_event sim_heap_pop(struct sim_heap *heap, uint64_t *at_ns, uint64_t *sequence);

static inline uint64_t sim_heap_next_ns(const struct sim_heap *heap)
{
    return heap->count ? heap->keys[0].at_ns : UINT64_MAX;
}

#endif
