/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of `citron` on the model of the paper's testbed, in verbs and round trips; and clients make progress however many are
 * late. */
#include "designs/citron/citron.h"
#include "tests/tuned.h"
#include "workbench/bench/bench.h"

static const struct knobs *knobs; /* null: the usual ones */

/* Half of the clients have ranges of `other` units, if not 0. */
static struct bench_summary measure(unsigned clients, uint64_t length, uint64_t other, uint64_t zipf, uint64_t warmup_ns)
{
    static struct bench_result result; /* large */
    static const volatile sig_atomic_t never;
    const struct design *d = design_find("citron");
    const struct bench_params p = {
        .designs = {d},
        .design_count = 1,
        .knobs = knobs,
        .simulated = true,
        .model = model_find("citron-testbed"),
        .nodes = 3,
        .clients = clients,
        .workload = {.locks = 1,
                     .zipf = zipf,
                     .lengths = {length, other},
                     .length_count = other ? 2 : 1,
                     .units = UINT64_C(1) << 28,
                     .seed = 1},
        .warmup_ns = warmup_ns,
        .seconds_ns = 2 * NS_PER_MS,
        .rounds = 1,
        .interrupted = &never,
    };
    struct bench_summary s;
    char why[BENCH_WHY_LEN] = "";
    citron_stats = (struct citron_stats){0};
    int rc = bench_run(&p, &result, why);
    if (rc)
        CHECK_FAIL("%s (%d)", why, rc);
    bench_summarize(&result, &result, &s);
    CHECK_EQ(s.violations, 0);
    printf("%3u clients, %3" PRIu64 " units, Zipf 0.%03" PRIu64
           ": %9.0f/s, %.2f round trips, %.1f atomics, %.1f READs, %.1f WRITEs\n",
           clients, length, zipf, s.goodput, s.acquire_round_trips, s.per_cycle[0], s.per_cycle[1], s.per_cycle[2]);
    fflush(stdout);
    return s;
}

static void costs(unsigned clients, uint64_t length, uint64_t zipf, double round_trips, double verbs)
{
    struct bench_summary s = measure(clients, length, 0, zipf, NS_PER_MS);
    CHECK(s.acquire_round_trips <= round_trips);
    CHECK(s.per_cycle[0] + s.per_cycle[1] + s.per_cycle[2] <= verbs);
}

/* The budget of docs/designs/citron.md: for a client that is alone, and for many clients that meet. */
static void budget(void)
{
    costs(1, 1, 0, 1.05, 15.2);
    costs(1, 16, 0, 1.05, 15.7);
    costs(1, 256, 0, 2.6, 28);
    costs(96, 16, 900, 2.2, 19);
    costs(96, 256, 900, 5.5, 34);
}

/* T_wait as in the paper, with so many clients at once that none is in time; and a T_wait that is shorter than a round trip. While
 * no tall node is claimed no client is late. While one is, a late client looks once more, and goes on. */
static void late(void)
{
    static const struct {
        unsigned wait_ns, clients;
        uint64_t length, other;
    } cases[] = {{15000, 192, 256, 0}, {15000, 192, 1, 0}, {15000, 192, 1, 2048}, {1000, 16, 16, 2048}};
    const struct design *d = design_find("citron");
    for (size_t i = 0; i < countof(cases); i++) {
        knobs = tuned(d, "wait-ns", cases[i].wait_ns);
        struct bench_summary s = measure(cases[i].clients, cases[i].length, cases[i].other, 900, 5 * NS_PER_MS);
        printf("    %" PRIu64 " of %" PRIu64 " late, %" PRIu64 " stepped back\n", citron_stats.late, citron_stats.acquires,
               citron_stats.aborts);
        CHECK(s.goodput > 100e3);
        CHECK_EQ(!citron_stats.late, !cases[i].other);
        CHECK(citron_stats.aborts <= citron_stats.late);
    }
    knobs = NULL;
}

/* A client that others overtake again and again takes a turn at the parent (3.5.4). */
static void starving(void)
{
    const struct design *d = design_find("citron");
    knobs = tuned(d, "blocked", 4);
    measure(96, 16, 0, 900, NS_PER_MS);
    CHECK(citron_stats.escalated);
    knobs = NULL;
}

/* Without tokens there is nothing to draw. */
static void tokens(void)
{
    struct bench_summary with = measure(1, 16, 0, 0, NS_PER_MS);
    knobs = tuned(design_find("citron"), "tokens", 0);
    struct bench_summary without = measure(1, 16, 0, 0, NS_PER_MS);
    knobs = NULL;
    CHECK(without.per_cycle[0] < with.per_cycle[0]);
}

int main(void)
{
    budget();
    late();
    starving();
    tokens();
    return 0;
}
