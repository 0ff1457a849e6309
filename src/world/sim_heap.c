/* SPDX-License-Identifier: Apache-2.0 */
#include "world/sim_heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_START 1024u /* doubles as needed */

/* Places the keys so that every group of siblings (4i+1 … 4i+4) starts on a cache line. */
static int heap_grow(struct sim_heap *heap, uint32_t capacity)
{
    size_t bytes = round_up((capacity + 4) * sizeof(struct sim_heap_key), (size_t)CACHE_LINE);
    void *allocation = aligned_alloc(CACHE_LINE, bytes);
    struct sim_event *slots = realloc(heap->slots, capacity * sizeof *slots);
    if (slots)
        heap->slots = slots;
    uint32_t *free_slots = realloc(heap->free_slots, capacity * sizeof *free_slots);
    if (free_slots)
        heap->free_slots = free_slots;
    if (!allocation || !slots || !free_slots) {
        free(allocation);
        return -ENOMEM;
    }
    struct sim_heap_key *keys = (struct sim_heap_key *)allocation + 3;
    if (heap->count)
        memcpy(keys, heap->keys, heap->count * sizeof *keys);
    free(heap->allocation);
    /* Called when every slot is in use, so the free ones are exactly the new ones. */
    for (uint32_t i = heap->capacity; i < capacity; i++)
        free_slots[i] = i;
    heap->allocation = allocation;
    heap->keys = keys;
    heap->capacity = capacity;
    return 0;
}

int sim_heap_init(struct sim_heap *heap)
{
    *heap = (struct sim_heap){0};
    int rc = heap_grow(heap, HEAP_START);
    if (rc)
        sim_heap_free(heap);
    return rc;
}

void sim_heap_free(struct sim_heap *heap)
{
    free(heap->allocation);
    free(heap->slots);
    free(heap->free_slots);
    *heap = (struct sim_heap){0};
}

static inline bool key_before(const struct sim_heap_key *a, const struct sim_heap_key *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

void sim_heap_push(struct sim_heap *heap, uint64_t at_ns, const struct sim_event *event)
{
    if (unlikely(heap->count == heap->capacity) && (heap->capacity == SIM_HEAP_MAX || heap_grow(heap, heap->capacity * 2))) {
        fprintf(stderr, "simulation: more than %u events queued\n", heap->capacity);
        abort();
    }
    /* free_slots[count …] are the unused slots: as many are in use as there are keys. */
    uint32_t slot = heap->free_slots[heap->count];
    heap->slots[slot] = *event;
    const struct sim_heap_key key = {.at_ns = at_ns, .order = heap->sequence++ << SIM_HEAP_SLOT_BITS | slot};
    uint32_t i = heap->count++;
    while (i) {
        uint32_t parent = (i - 1) / 4;
        if (!key_before(&key, &heap->keys[parent]))
            break;
        heap->keys[i] = heap->keys[parent];
        i = parent;
    }
    heap->keys[i] = key;
}

/* Moves `key` down from the root to where it belongs among `count` keys. */
static void heap_sink(struct sim_heap *heap, struct sim_heap_key key)
{
    uint32_t i = 0;
    for (;;) {
        uint32_t first = 4 * i + 1;
        if (first >= heap->count)
            break;
        uint32_t end = first + 4 < heap->count ? first + 4 : heap->count, least = first;
        for (uint32_t k = first + 1; k < end; k++)
            if (key_before(&heap->keys[k], &heap->keys[least]))
                least = k;
        if (!key_before(&heap->keys[least], &key))
            break;
        heap->keys[i] = heap->keys[least];
        i = least;
    }
    heap->keys[i] = key;
}

struct sim_event sim_heap_pop(struct sim_heap *heap, uint64_t *at_ns, uint64_t *sequence)
{
    assert(heap->count);
    const struct sim_heap_key top = heap->keys[0];
    uint32_t slot = (uint32_t)(top.order & (SIM_HEAP_MAX - 1));
    heap->count--;
    heap->free_slots[heap->count] = slot;
    if (heap->count)
        heap_sink(heap, heap->keys[heap->count]);
    *at_ns = top.at_ns;
    *sequence = top.order >> SIM_HEAP_SLOT_BITS;
    return heap->slots[slot];
}
