/* SPDX-License-Identifier: Apache-2.0 */
/* Every request of a client fails once: seeds draw where faults strike, and strike some of the short steps never. Here a small
 * campaign without other faults runs again and again. In each run the next request of one client is lost, or has an unknown outcome
 * although it took effect, or comes after a pause in which the client lost its session. The oracle checks each run, and every
 * client must get on. Then the same with another client that had lost its session before, so that its recovery fails at every
 * request. */
#include "tests/sim/runs.h"

#include <stdlib.h>
#include <string.h>

#define REQUESTS_MIN 50

static const char *const designs[] = {"word", "shiftlock", "shiftlock64", "alock", "citron", "mutex"};
static const char *const names[SIM_STRIKE_KINDS] = {"is lost", "has an unknown outcome", "comes too late"};

static struct campaign_result run_struck(const struct design *d, uint64_t seed, struct sim_strike *strikes, unsigned count)
{
    const struct campaign_params p = {.design = d,
                                      .seed = seed,
                                      .campaign = CAMPAIGN_SWARM,
                                      .limits = {.clients = 3, .hosts = 2, .tasks = 2, .locks = 2, .safety_ns = 2 * NS_PER_MS},
                                      .model = model_find("default"),
                                      .strikes = strikes,
                                      .strike_count = count};
    struct campaign_result r;
    CHECK_EQ(campaign_run(&p, &r), 0);
    return r;
}

static struct campaign_result run(const struct design *d, uint64_t seed, struct sim_strike *strikes, unsigned count)
{
    struct campaign_result r = run_struck(d, seed, strikes, count);
    if (run_failed(&r))
        CHECK_FAIL("%s: seed %" PRIu64 ": request %" PRIu64 " of client 0 %s%s: %s", d->name, seed, strikes[0].request,
                   names[strikes[0].how], count > 1 ? ", when client 1 has lost its session" : "", r.why);
    return r;
}

/* How many requests client 0 has. */
static uint64_t count_requests(const struct design *d, uint64_t seed)
{
    struct sim_strike none = {.request = UINT64_MAX};
    run(d, seed, &none, 1);
    return none.seen;
}

/* A variant with a mistake fails at some request. */
static void test_busted(const char *name)
{
    const struct design *d = design_named(name);
    for (uint64_t seed = 0; seed < 20; seed++)
        for (uint64_t n = 1; n <= 200; n++)
            for (unsigned how = 0; how < SIM_STRIKE_KINDS; how++) {
                struct sim_strike strike = {.request = n, .how = (enum sim_strike_how)how};
                struct campaign_result r = run_struck(d, seed, &strike, 1);
                if (run_failed(&r)) {
                    printf("%s: seed %" PRIu64 ": request %" PRIu64 " %s: %s\n", name, seed, n, names[how], r.why);
                    return;
                }
            }
    CHECK_FAIL("%s: no run failed", name);
}

/* A longer test tries more seeds; the first requests are tried in any case. */
static void test_sound(const char *one, uint64_t until)
{
    uint64_t runs = 0, lost = 0, seed = 0;
    for (; !seed || world_now(&world_real) < until; seed++)
        for (unsigned i = 0; i < countof(designs); i++) {
            const struct design *d = design_named(designs[i]);
            uint64_t all = one && strcmp(one, d->name) ? 0 : count_requests(d, seed);
            for (uint64_t n = 1; n <= all && (n < REQUESTS_MIN || world_now(&world_real) < until); n++)
                for (unsigned how = 0; how < SIM_STRIKE_KINDS; how++) {
                    struct sim_strike strikes[] = {{.request = n, .how = (enum sim_strike_how)how},
                                                   {.process = 1, .request = 20 + n % 40, .how = SIM_STRIKE_STALL}};
                    lost += run(d, seed, strikes, 1 + n % 2).lost;
                    runs++;
                }
        }
    printf("%" PRIu64 " seeds, %" PRIu64 " requests struck, %" PRIu64 " sessions lost\n", seed, runs, lost);
    CHECK(runs >= SIM_STRIKE_KINDS && lost);
}

int main(void)
{
    test_sound(getenv("PAWL_TEST_DESIGN"), world_now(&world_real) + test_seconds() * NS_PER_S);
    test_busted("busted-unknown-is-success");
    test_busted("busted-no-intent");
    test_busted("busted-shiftlock-markless");
    return 0;
}
