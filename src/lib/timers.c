#include "lib/timers.h"

static void put(struct timers *t, uint32_t place, uint32_t number)
{
    timers_heap(t)[place] = number;
    timers_places(t)[number] = place + 1;
}

static void rise(struct timers *t, uint32_t place, uint32_t number)
{
    uint32_t *heap = timers_heap(t);
    while (place > 0 && t->memory[heap[(place - 1) / 2]] > t->memory[number]) {
        put(t, place, heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(t, place, number);
}

static void sink(struct timers *t, uint32_t place, uint32_t number)
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
        put(t, place, heap[child]);
        place = child;
    }
    put(t, place, number);
}

void timers_set(struct timers *t, uint32_t number, uint64_t due)
{
    assert(number < t->capacity);
    if (!timers_runs(t, number)) {
        t->memory[number] = due;
        rise(t, t->running++, number);
        return;
    }
    uint32_t place = timers_places(t)[number] - 1;
    bool earlier = due < t->memory[number];
    t->memory[number] = due;
    if (earlier)
        rise(t, place, number);
    else
        sink(t, place, number);
}

void timers_stop(struct timers *t, uint32_t number)
{
    assert(number < t->capacity);
    if (!timers_runs(t, number))
        return;
    uint32_t place = timers_places(t)[number] - 1, last = timers_heap(t)[--t->running];
    timers_places(t)[number] = 0;
    if (last == number)
        return;
    if (place > 0 && t->memory[timers_heap(t)[(place - 1) / 2]] > t->memory[last])
        rise(t, place, last);
    else
        sink(t, place, last);
}

bool timers_pop(struct timers *t, uint64_t now, uint32_t *number)
{
    if (timers_next(t) > now || !t->running)
        return false;
    *number = timers_heap(t)[0];
    timers_stop(t, *number);
    return true;
}
