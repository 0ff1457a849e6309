/* SPDX-License-Identifier: Apache-2.0 */
/* Two results of pawl bench beside each other. A difference counts if it is larger than the rounds of each run differ among
 * themselves. */
#include "cli/bench_compare.h"
#include "cli/bench_results.h"
#include "cli/common.h"
#include "lib/json.h"
#include "workbench/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CERTAIN 2.0 /* standard errors that a difference must be above */

static const struct bench_run_read *find(const struct bench_run_read *all, int count, const struct bench_run_read *r)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(all[i].design, r->design) && !strcmp(all[i].on, r->on) && all[i].clients == r->clients &&
            all[i].locks == r->locks)
            return &all[i];
    return NULL;
}

static const char *verdict(double ratio, double noise)
{
    return noise < 0 ? "unknown" : fabs(ratio - 1) <= CERTAIN * noise ? "within noise" : ratio > 1 ? "faster" : "slower";
}

static double noise_of(const struct bench_run_read *a, const struct bench_run_read *b)
{
    return a->error < 0 || b->error < 0 ? -1 : bench_root(a->error * a->error + b->error * b->error);
}

static void print(const struct bench_run_read *a, const struct bench_run_read *b)
{
    double ratio = b->goodput / a->goodput, noise = noise_of(a, b);
    printf("%-14s %-8s %8.0f %12.0f %12.0f %7.3f", a->design, a->on, a->clients, a->goodput, b->goodput, ratio);
    if (noise < 0)
        printf(" %8s", "?");
    else
        printf(" %7.1f%%", 100 * noise);
    printf(" %7.3f %7.3f  %s\n", a->p50 > 0 ? b->p50 / a->p50 : 0, a->p99 > 0 ? b->p99 / a->p99 : 0, verdict(ratio, noise));
}

static void print_json(struct json *j, const struct bench_run_read *a, const struct bench_run_read *b)
{
    double ratio = b->goodput / a->goodput, noise = noise_of(a, b);
    json_object(j, NULL);
    json_string(j, "design", a->design);
    json_string(j, "on", a->on);
    json_u64(j, "clients", (uint64_t)a->clients);
    json_u64(j, "goodput_before", (uint64_t)a->goodput);
    json_u64(j, "goodput_after", (uint64_t)b->goodput);
    json_decimal(j, "ratio", (uint64_t)(1000 * ratio + 0.5), 3);
    if (noise < 0)
        json_string(j, "noise", NULL);
    else
        json_decimal(j, "noise", (uint64_t)(1000 * noise + 0.5), 3);
    json_string(j, "verdict", verdict(ratio, noise));
    json_end(j);
}

static void print_legend(void)
{
    printf(
        "\ngoodput   operations per second before and after, medians of the rounds; ratio: after / before\n"
        "noise     standard error of the ratio, from the differences of the rounds; ?: fewer than %d rounds in a run (--rounds)\n"
        "p50, p99  ratios of the latencies; below 1 is better\n"
        "verdict   within noise: the ratio is within two standard errors of 1\n",
        BENCH_RESULTS_ROUNDS_MIN);
}

struct both {
    const struct bench_run_read *before, *after;
    int before_count, after_count;
};

static int compare(const struct both *runs, bool json)
{
    struct json j;
    unsigned pairs = 0;
    if (json) {
        json_init(&j, stdout);
        json_array(&j, NULL);
    } else {
        printf("%-14s %-8s %8s %12s %12s %7s %8s %7s %7s  %s\n", "design", "on", "clients", "before", "after", "ratio", "noise",
               "p50", "p99", "verdict");
    }
    for (int i = 0; i < runs->before_count; i++) {
        const struct bench_run_read *a = &runs->before[i], *b = find(runs->after, runs->after_count, a);
        if (!b)
            continue;
        pairs++;
        if (json)
            print_json(&j, a, b);
        else
            print(a, b);
    }
    if (!json && pairs)
        print_legend();
    if (json && json_finish(&j))
        return EXIT_UNAVAILABLE;
    return pairs ? 0
                 : cli_say("bench", EXIT_UNAVAILABLE,
                           "nothing to compare: no design of the first file was measured in the second with "
                           "as many clients and locks, on the same substrate");
}

int bench_compare(const char *before, const char *after, bool json)
{
    struct bench_run_read *a = NULL, *b = NULL;
    char why[BENCH_RESULTS_WHY_LEN] = "";
    int an = bench_results_read(before, &a, why), bn = an < 0 ? -1 : bench_results_read(after, &b, why);
    const struct both runs = {.before = a, .after = b, .before_count = an, .after_count = bn};
    int status = bn < 0 ? cli_say("bench", EXIT_UNAVAILABLE, "%s", why) : compare(&runs, json);
    free(a);
    free(b);
    return status;
}
