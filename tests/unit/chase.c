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

/* ---- packets that no host sends ---- */

#define MACHINES 3

static const struct chase_step sound_path[] = {{.id = 1, .machine = 1, .kind = CHASE_WAIT},
                                               {.id = 2, .machine = 2, .kind = CHASE_HOLD},
                                               {.id = 3, .machine = 2, .kind = CHASE_WAIT, .second = 1},
                                               {.id = 4, .machine = MACHINES, .kind = CHASE_AHEAD}};

/* Whether a path is read whose step i was changed to this. */
static bool reads(unsigned i, struct chase_step changed)
{
    struct chase_step path[countof(sound_path)];
    struct chase_way way;
    memcpy(path, sound_path, sizeof path);
    path[i] = changed;
    return chase_read(path, countof(path), MACHINES, &way);
}

static void test_paths(void)
{
    struct chase_step many[CHASE_STEPS_MAX + 1];
    struct chase_way way;
    for (unsigned i = 0; i <= CHASE_STEPS_MAX; i++)
        many[i] = sound_path[i % 2];
    CHECK(chase_read(many, CHASE_STEPS_MAX, MACHINES, &way) && way.count == CHASE_STEPS_MAX);
    CHECK(!chase_read(many, CHASE_STEPS_MAX + 1, MACHINES, &way));
    CHECK(!chase_read(many, 0, MACHINES, &way));
    for (unsigned i = 0; i < countof(sound_path); i++) {
        struct chase_step s = sound_path[i];
        CHECK(reads(i, s));
        s.kind = i % 2 ? CHASE_WAIT : CHASE_HOLD; /* waits and what blocks them alternate */
        CHECK(!reads(i, s));
        s.kind = 0;
        CHECK(!reads(i, s));
        s.kind = CHASE_AHEAD + 1;
        CHECK(!reads(i, s));
        s = sound_path[i];
        s.second = 2;
        CHECK(!reads(i, s));
        s = sound_path[i];
        s.machine = MACHINE_NONE;
        CHECK(!reads(i, s));
        s.machine = MACHINES + 1;
        CHECK(!reads(i, s));
    }
}

/* A CHASE is for the host of a step that blocks a wait; of the first round, the last one. */
static void test_for(void)
{
    struct ring *r = calloc(1, sizeof *r);
    CHECK(r);
    struct chase c = chase_of(r);
    struct chase_probe p = {.way = {.count = 4}, .at = 3};
    memcpy(p.way.step, sound_path, sizeof sound_path);
    c.machine = MACHINES;
    CHECK(chase_is_for(&c, &p));
    c.machine = 1;
    CHECK(!chase_is_for(&c, &p));
    c.machine = 2;
    p.at = 1;
    CHECK(!chase_is_for(&c, &p));
    p.sure = true;
    CHECK(chase_is_for(&c, &p));
    p.at = 2;
    CHECK(!chase_is_for(&c, &p));
    p.at = 5;
    CHECK(!chase_is_for(&c, &p));
    free(r);
}

/* At the queue: step `at` is to be one that blocks. */
static bool turns(unsigned count, unsigned at, bool sure, bool *bad)
{
    struct chase_probe p = {.way = {.count = count}, .at = at, .sure = sure};
    bool turned = chase_turn(&p, bad);
    CHECK(!turned || (p.at % 2 == 1 && p.at < p.way.count));
    CHECK(!turned || sure || p.way.count == count + 1);
    return turned;
}

static void test_turn(void)
{
    bool bad;
    CHECK(turns(3, 0, false, &bad) && !bad);
    CHECK(!turns(4, 0, false, &bad) && !bad);
    CHECK(turns(CHASE_STEPS_MAX - 1, 0, false, &bad));
    CHECK(!turns(CHASE_STEPS_MAX + 1, 0, false, &bad) && !bad); /* too long */
    CHECK(turns(4, 3, true, &bad) && !bad);
    CHECK(!turns(4, 2, true, &bad) && bad);
    CHECK(!turns(4, 5, true, &bad) && bad);
}

/* A queue names no more requests than fit. */
static void test_fanout(void)
{
    struct chase_blockers b = {0};
    for (unsigned i = 0; i < 2 * CHASE_FANOUT_MAX; i++)
        chase_block(&b, 10 + i, 1, 0, CHASE_HOLD);
    CHECK(b.count == CHASE_FANOUT_MAX && b.step[CHASE_FANOUT_MAX - 1].id == 9 + CHASE_FANOUT_MAX);
}

int main(void)
{
    test_paths();
    test_for();
    test_turn();
    test_fanout();
    for (unsigned threads = 2; threads <= 20; threads += 3)
        for (uint64_t hop_ns = RETRY_NS / 10; hop_ns <= 2 * RETRY_NS; hop_ns *= 2)
            run(threads, hop_ns);
    return 0;
}
