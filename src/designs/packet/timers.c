/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/packet/timers.h"

static void put(struct timers *t, uint32_t place, uint32_t number, struct outbox *o)
{
    outbox_touch(o, &timers_heap(t)[place], sizeof(uint32_t));
    outbox_touch(o, &timers_places(t)[number], sizeof(uint32_t));
    timers_heap(t)[place] = number;
    timers_places(t)[number] = place + 1;
}

static void rise(struct timers *t, uint32_t place, uint32_t number, struct outbox *o)
{
    uint32_t *heap = timers_heap(t);
    while (place > 0 && t->memory[heap[(place - 1) / 2]] > t->memory[number]) {
        put(t, place, heap[(place - 1) / 2], o);
        place = (place - 1) / 2;
    }
    put(t, place, number, o);
}

static void sink(struct timers *t, uint32_t place, uint32_t number, struct outbox *o)
{
    uint32_t *heap = timers_heap(t);
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= t->running)
            break;
        if (child + 1 < t->running && t->memory[heap[child + 1]] < t->memory[heap[child]])
            child++;
        if (t->memory[heap[child]] >= t->memory[number])
            break;
        put(t, place, heap[child], o);
        place = child;
    }
    put(t, place, number, o);
}

void timers_set(struct timers *t, uint32_t number, uint64_t due, struct outbox *o)
{
    assert(number < t->capacity);
    outbox_touch(o, t, sizeof *t);
    outbox_touch(o, &t->memory[number], sizeof(uint64_t));
    if (!timers_runs(t, number)) {
        t->memory[number] = due;
        rise(t, t->running++, number, o);
        return;
    }
    uint32_t place = timers_places(t)[number] - 1;
    bool earlier = due < t->memory[number];
    t->memory[number] = due;
    if (earlier)
        rise(t, place, number, o);
    else
        sink(t, place, number, o);
}

void timers_stop(struct timers *t, uint32_t number, struct outbox *o)
{
    assert(number < t->capacity);
    if (!timers_runs(t, number))
        return;
    outbox_touch(o, t, sizeof *t);
    outbox_touch(o, &timers_places(t)[number], sizeof(uint32_t));
    uint32_t place = timers_places(t)[number] - 1, last = timers_heap(t)[--t->running];
    timers_places(t)[number] = 0;
    if (last == number)
        return;
    if (place > 0 && t->memory[timers_heap(t)[(place - 1) / 2]] > t->memory[last])
        rise(t, place, last, o);
    else
        sink(t, place, last, o);
}

bool timers_pop(struct timers *t, uint64_t now, uint32_t *number, struct outbox *o)
{
    if (timers_next(t) > now || !t->running)
        return false;
    *number = timers_heap(t)[0];
    timers_stop(t, *number, o);
    return true;
}
