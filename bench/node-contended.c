/* SPDX-License-Identifier: Apache-2.0 */
/* Many clients of a memory node: sixteen at one lock, and sixty-four at many locks of which few are popular (Zipf 0.99), against
 * baselines on the same node, in turns. Every grant is validated. */
#include "bench/kit.h"
#include "workbench/bench/bench.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 9
#define ROUND_NS (300 * NS_PER_MS)

static const volatile sig_atomic_t never;

static double goodput(const struct bench_round *r)
{
    return r->elapsed_ns ? (double)r->ops * (double)NS_PER_S / (double)r->elapsed_ns : 0;
}

/* The first design against each of the others, by the medians of the ratios of adjacent rounds. */
static void compare(struct kit *k, const char *const designs[], const double bounds[], unsigned count, unsigned clients,
                    uint64_t locks, uint64_t zipf)
{
    static struct bench_result results[BENCH_DESIGNS_MAX];
    char why[BENCH_WHY_LEN] = "", what[128];
    struct bench_params p = {.node = true,
                             .nodes = 1,
                             .clients = clients,
                             .design_count = count,
                             .rounds = (unsigned)max_u64(3, (uint64_t)(ROUNDS * k->scale)),
                             .seconds_ns = ROUND_NS,
                             .interrupted = &never,
                             .workload = {.locks = locks, .zipf = zipf, .seed = 1}};
    for (unsigned i = 0; i < count; i++)
        p.designs[i] = design_find(designs[i]);
    if (bench_run(&p, results, why))
        kit_die("%s", why);
    for (unsigned d = 0; d < count; d++)
        for (unsigned i = 0; i < results[d].round_count; i++)
            if (results[d].rounds[i].violations)
                kit_die("%s: two clients held a lock that only one may hold", designs[d]);
    for (unsigned d = 1; d < count; d++) {
        double ratio[BENCH_ROUNDS_MAX], first[BENCH_ROUNDS_MAX], other[BENCH_ROUNDS_MAX];
        unsigned n = results[0].round_count;
        for (unsigned i = 0; i < n; i++) {
            first[i] = goodput(&results[0].rounds[i]);
            other[i] = goodput(&results[d].rounds[i]);
            ratio[i] = first[i] / other[i];
        }
        double low = ratio[0], high = ratio[0];
        for (unsigned i = 0; i < n; i++) {
            low = ratio[i] < low ? ratio[i] : low;
            high = ratio[i] > high ? ratio[i] : high;
        }
        snprintf(what, sizeof what, "%u clients, %s against %s: %.0f/s and %.0f/s, ratios %.2f to %.2f", clients, designs[0],
                 designs[d], kit_percentile(first, n, 0.5), kit_percentile(other, n, 0.5), low, high);
        kit_judge_least(k, what, kit_percentile(ratio, n, 0.5), "x", bounds[d]);
    }
}

int main(int argc, char **argv)
{
    struct kit k;
    static const char *const one[] = {"shiftlock", "cas-backoff", "dslr"};
    static const char *const popular[] = {"shiftlock", "cas-backoff", "dslr", "drtm"};
    kit_begin(&k, argc, argv, "many clients of a memory node");
    compare(&k, one, (const double[]){0, 1.5, 1.2}, countof(one), 16, 1, 0);
    compare(&k, popular, (const double[]){0, 1, 1, 1}, countof(popular), 64, 100000, 990);
    return kit_end(&k);
}
