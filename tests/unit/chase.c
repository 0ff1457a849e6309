/* SPDX-License-Identifier: Apache-2.0 */
/* The chase of deadlocks where packets are slow: a cycle of threads on one host, the queues of its locks carried by hand. A probe
 * takes many retransmission times to go round. It must come back before a new one makes it void, and a victim must be found. */
#include "designs/packet/chase.h"
#include "lib/rng.h"
#include "tests/check.h"

#include <stdlib.h>

#define THREADS_MAX 32
#define FLIGHT_MAX 4096
#define MACHINE 1
#define RETRY_NS 1000
#define PAUSE_FACTOR_MAX 64 /* of retransmissions, as the designs have it */
#define TIME_MAX_NS (4000 * RETRY_NS)

/* Thread t holds lock t by request 2t, and waits for lock t + 1 by request 2t + 1. */
struct ring {
    unsigned threads, flying, victims;
    uint64_t now, hop_ns, probes, victim_ns;
    struct suspect suspects[2 * THREADS_MAX];
    struct {
        uint64_t at_ns;
        uint32_t request;
        struct chase_probe probe;
    } flight[FLIGHT_MAX];
    struct outbox out;
    struct packet_drops drops;
};

static struct chase_step wait_of(void *ctx, uint32_t request)
{
    (void)ctx;
    return (struct chase_step){.id = request % 2 ? 100 + request : 0};
}

static bool holds(void *ctx, uint32_t request)
{
    (void)ctx;
    return request % 2 == 0;
}

static uint32_t thread_of(void *ctx, uint32_t request)
{
    (void)ctx;
    return 1 + request / 2;
}

static struct suspect *suspect_of(void *ctx, uint32_t request)
{
    struct ring *r = ctx;
    return &r->suspects[request];
}

/* To the queue of the lock and back to the host of its holder. */
static void look(void *ctx, uint32_t request, const struct chase_probe *probe)
{
    struct ring *r = ctx;
    if (r->flying == FLIGHT_MAX)
        return; /* a packet may be lost */
    r->flight[r->flying].at_ns = r->now + r->hop_ns;
    r->flight[r->flying].request = request;
    r->flight[r->flying++].probe = *probe;
}

static void give_up(void *ctx, uint32_t request)
{
    struct ring *r = ctx;
    CHECK(request % 2);
    r->victim_ns = r->now;
    r->victims++;
}

static struct chase chase_of(struct ring *r)
{
    static const struct chase_ops ops = {wait_of, holds, thread_of, suspect_of, look, give_up};
    return (struct chase){.ops = &ops,
                          .ctx = r,
                          .out = &r->out,
                          .drops = &r->drops,
                          .probes = &r->probes,
                          .now = r->now,
                          .retry_ns = RETRY_NS,
                          .requests = 2 * r->threads,
                          .part = 2 * r->threads,
                          .parts = 1,
                          .machine = MACHINE};
}

static void arrive(struct ring *r, unsigned i)
{
    uint32_t request = r->flight[i].request, holder = (request + 1) % (2 * r->threads);
    struct chase_probe p = r->flight[i].probe;
    const struct chase_step blocker = {.id = 500 + holder, .machine = MACHINE, .kind = CHASE_HOLD};
    bool bad;
    r->flight[i] = r->flight[--r->flying];
    if (!chase_turn(&p, &bad) || !chase_take(&p, &blocker))
        return;
    const struct chase c = chase_of(r);
    CHECK(chase_is_for(&c, &p));
    uint32_t wait = chase_wait_behind(&c, holder);
    CHECK_EQ(wait, holder + 1);
    chase_go_on(&c, wait, &p);
}

/* All packets whose time has come; a hop takes longer than a step of the clock. */
static void deliver(struct ring *r)
{
    for (unsigned i = 0; i < r->flying;)
        if (r->flight[i].at_ns <= r->now)
            arrive(r, i);
        else
            i++;
}

/* Each thread sends its request again after 1, 2, 4 ... 64 retransmission times, and suspects a deadlock from the third time on. */
static void run(unsigned threads, uint64_t hop_ns)
{
    struct ring *r = calloc(1, sizeof *r);
    uint64_t due[THREADS_MAX], pause[THREADS_MAX];
    struct rng random;
    CHECK(r);
    rng_seed(&random, threads * 1000 + hop_ns);
    r->threads = threads;
    r->hop_ns = hop_ns;
    for (unsigned t = 0; t < threads; t++) {
        due[t] = 1 + rng_below(&random, 4 * RETRY_NS);
        pause[t] = RETRY_NS;
    }
    while (!r->victims && r->now < TIME_MAX_NS) {
        r->now += RETRY_NS / 10;
        deliver(r);
        for (unsigned t = 0; t < threads; t++)
            if (r->now >= due[t]) {
                const struct chase c = chase_of(r);
                if (pause[t] >= CHASE_PROBE_FACTOR * RETRY_NS)
                    chase_begin(&c, 2 * t + 1);
                pause[t] = min_u64(2 * pause[t], PAUSE_FACTOR_MAX * RETRY_NS);
                due[t] = r->now + pause[t];
            }
    }
    printf("%u threads, %.1f retransmission times a hop: a victim after %.0f, %lu probes\n", threads, (double)hop_ns / RETRY_NS,
           (double)r->victim_ns / RETRY_NS, (unsigned long)r->probes);
    CHECK(r->victims);
    free(r);
}

int main(void)
{
    for (unsigned threads = 2; threads <= 20; threads += 3)
        for (uint64_t hop_ns = RETRY_NS / 10; hop_ns <= 2 * RETRY_NS; hop_ns *= 2)
            run(threads, hop_ns);
    return 0;
}
