/* FissLock beside the lock's own agent: what acquiring and releasing a shared lock costs that another of the host holds, without a
 * packet. The protocol alone, and with the log that lets a killed process's change be undone; without the host's mutex. */
#include "designs/fisslock/fisslock.h"
#include "world/world.h"

#include <stdio.h>
#include <stdlib.h>

#define CYCLES 100000
#define ROUNDS 20

static struct outbox out;

static void carry(void *host, void *decider)
{
    static struct outbox back;
    for (unsigned i = 0; i < out.packets; i++)
        fisslock_switch_packet(decider, outbox_packet(&out, i), out.packet[i].len, 1, &back);
    outbox_clear(&out);
    for (unsigned i = 0; i < back.packets; i++)
        fisslock_packet(host, outbox_packet(&back, i), back.packet[i].len, 1, &out);
    outbox_clear(&back);
    outbox_clear(&out);
}

static uint64_t cycle_ns(void *host, struct undo *undo)
{
    const struct packet_ask ask = {.request = 1, .port = 3, .mode = PAWL_SHARED, .index = 5};
    uint64_t best = UINT64_MAX;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t begin = world_clock(CLOCK_MONOTONIC);
        for (unsigned i = 0; i < CYCLES; i++) {
            bool done = fisslock_acquire(host, &ask, 1, &out) == PACKET_DONE;
            if (undo)
                undo_commit(undo);
            done = done && fisslock_release(host, ask.request, 1, &out) == 0;
            if (undo)
                undo_commit(undo);
            if (!done || out.packets)
                exit(1);
            outbox_clear(&out);
        }
        best = min_u64(best, (world_clock(CLOCK_MONOTONIC) - begin) / CYCLES);
    }
    return best;
}

int main(void)
{
    const struct rack_config c = {.machines = 8, .sessions = 2, .requests = 8, .locks = 16, .retry_ns = NS_PER_MS};
    const struct packet_ask first = {.request = 0, .port = 3, .mode = PAWL_SHARED, .index = 5};
    uint64_t bytes = round_up(fisslock_host_bytes(&c), UNDO_LINE);
    void *host = aligned_alloc(UNDO_LINE, bytes), *decider = calloc(1, fisslock_switch_bytes(&c));
    struct undo *undo = calloc(1, undo_bytes(bytes));
    if (!host || !decider || !undo)
        return 1;
    fisslock_switch_init(decider, &c, 1, 0);
    fisslock_host_init(host, &c, 1, 1, 0);
    fisslock_acquire(host, &first, 1, &out);
    carry(host, decider);
    uint64_t bare = cycle_ns(host, NULL);
    undo_init(undo, bytes);
    out.undo = undo;
    out.memory = host;
    uint64_t logged = cycle_ns(host, undo);
    printf("acquire and release beside the own agent: %llu ns; with the undo log %llu ns (best of %d rounds)\n",
           (unsigned long long)bare, (unsigned long long)logged, ROUNDS);
    free(undo);
    free(decider);
    free(host);
    return 0;
}
