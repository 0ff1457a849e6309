/* SPDX-License-Identifier: Apache-2.0 */
/* Requests fail wherever the code sends one: a place is a request with the functions that lead to it. Campaigns strike requests at
 * random, and so the frequent ones. Here every place that a run comes to is struck once in each way: the request is lost, has an
 * unknown outcome although it took effect, or comes after a pause in which the client lost its session. A run has few strikes, so
 * that it comes far. Other faults happen, too. The oracle checks each run, and every client must get on. sim/each_request strikes
 * each request of one client in turn, without other faults. */
#include "lib/hash.h"
#include "lib/rng.h"
#include "tests/sim/runs.h"

#include <execinfo.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MAX 65536u /* a power of two */
#define FRAMES 9
#define FRAMES_OF_FABRIC 3 /* of this test, and of the simulated fabric */
#define STRIKES_MAX 8
#define RUNS_MIN 20 /* of each design */

static const char *const designs[] = {"word", "shiftlock", "shiftlock64", "alock", "citron"};
static const char *const names[SIM_STRIKE_KINDS] = {"lost", "unsure", "late"};

static uint64_t places[PLACES_MAX]; /* that were struck in a way: hash of both; 0: empty */
static unsigned place_count;
static unsigned budget;
static struct rng random_;
static struct {
    uint32_t process;
    uint64_t request;
    enum sim_strike_how how;
} struck[STRIKES_MAX];
static unsigned struck_count;

/* Whether it is new; then it is known. */
static bool add_place(uint64_t hash)
{
    uint64_t i = hash % PLACES_MAX;
    for (; places[i]; i = (i + 1) % PLACES_MAX)
        if (places[i] == hash)
            return false;
    if (place_count >= PLACES_MAX / 2)
        return false;
    places[i] = hash;
    place_count++;
    return true;
}

static bool choose(struct sim_strike *s, uint32_t process)
{
    void *frames[FRAMES];
    s->seen++;
    if (struck_count == budget || rng_chance(&random_, 1, 2))
        return false;
    int n = backtrace(frames, FRAMES);
    uint64_t hash = 0;
    for (int i = FRAMES_OF_FABRIC; i < n; i++)
        hash = mix64(hash ^ (uintptr_t)frames[i]);
    unsigned first = (unsigned)rng_below(&random_, SIM_STRIKE_KINDS);
    for (unsigned i = 0; i < SIM_STRIKE_KINDS; i++) {
        s->how = (enum sim_strike_how)((first + i) % SIM_STRIKE_KINDS);
        if (add_place(mix64(hash + s->how) | 1)) {
            struck[struck_count++] = (typeof(*struck)){process, s->seen, s->how};
            return true;
        }
    }
    return false;
}

static struct campaign_result run(const struct design *d, uint64_t seed)
{
    static const uint32_t faults[] = {0, FAULT_BIT(FAULT_CRASH_CLIENT) | FAULT_BIT(FAULT_PAUSE), FAULTS_OF_VERBS};
    struct sim_strike strike = {.choose = choose};
    const struct campaign_params p = {.design = d,
                                      .seed = seed,
                                      .campaign = seed % 8 ? CAMPAIGN_SWARM : CAMPAIGN_BESIDE,
                                      .faults = d->tolerates & faults[seed % countof(faults)],
                                      .limits = {.clients = 5, .locks = 3, .safety_ns = 30 * NS_PER_MS},
                                      .strikes = &strike,
                                      .strike_count = 1};
    struct campaign_result r;
    rng_seed(&random_, seed);
    struck_count = 0;
    budget = 1 + (unsigned)rng_below(&random_, STRIKES_MAX);
    CHECK_EQ(campaign_run(&p, &r), 0);
    if (!run_failed(&r))
        return r;
    for (unsigned i = 0; i < struck_count; i++)
        printf("request %" PRIu64 " of all, of process %u: %s\n", struck[i].request, struck[i].process, names[struck[i].how]);
    CHECK_FAIL("%s: seed %" PRIu64 ": %s", d->name, seed, r.why);
}

/* A variant with a mistake fails. */
static void test_busted(const char *name)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct sim_strike strike = {.choose = choose};
        const struct campaign_params p = {
            .design = design_named(name), .seed = seed, .campaign = CAMPAIGN_SWARM, .strikes = &strike, .strike_count = 1};
        struct campaign_result r;
        rng_seed(&random_, seed);
        struck_count = 0;
        budget = STRIKES_MAX;
        CHECK_EQ(campaign_run(&p, &r), 0);
        if (run_failed(&r)) {
            printf("%s: seed %" PRIu64 ": %s\n", name, seed, r.why);
            return;
        }
    }
    CHECK_FAIL("%s: no run failed", name);
}

int main(void)
{
    const char *one = getenv("PAWL_TEST_DESIGN");
    uint64_t until = world_now(&world_real) + test_seconds() * NS_PER_S, seed = 0, lost = 0;
    for (; seed < RUNS_MIN || world_now(&world_real) < until; seed++)
        for (unsigned i = 0; i < countof(designs); i++)
            if (!one || !strcmp(one, designs[i]))
                lost += run(design_named(designs[i]), seed).lost;
    printf("%" PRIu64 " seeds, %u places and ways struck, %" PRIu64 " sessions lost\n", seed, place_count, lost);
    CHECK(place_count >= RUNS_MIN && lost);
    test_busted("busted-unknown-is-success");
    return 0;
}
