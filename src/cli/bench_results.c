/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_results.h"
#include "workbench/bench/bench.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PER_DEVIATION 1.4826 /* standard deviations of a normal distribution in its median distance to the median */
#define MEDIAN_ERROR 1.2533  /* the standard error of a median, in those of a mean */

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name)); /* 0 if it is missing */
}

/* From the median distance to the median, so that single disturbed rounds do not matter. */
static double error_of(const json_t *rounds)
{
    double values[BENCH_ROUNDS_MAX], distances[BENCH_ROUNDS_MAX];
    size_t n = json_array_size(rounds);
    if (n < BENCH_RESULTS_ROUNDS_MIN || n > BENCH_ROUNDS_MAX)
        return -1;
    for (size_t i = 0; i < n; i++)
        values[i] = json_number_value(json_array_get(rounds, i));
    double median = bench_median(values, (unsigned)n);
    for (size_t i = 0; i < n; i++)
        distances[i] = fabs(values[i] - median);
    double deviation = PER_DEVIATION * bench_median(distances, (unsigned)n);
    return median > 0 ? MEDIAN_ERROR * deviation / bench_root((double)n) / median : -1;
}

static bool name_of(const json_t *o, const char *name, char out[BENCH_NAME_LEN])
{
    const char *value = json_string_value(json_object_get(o, name));
    return value && snprintf(out, BENCH_NAME_LEN, "%s", value) < BENCH_NAME_LEN;
}

static bool run_of(const json_t *o, struct bench_run_read *out)
{
    *out = (struct bench_run_read){.clients = number(o, "clients"),
                                   .locks = number(o, "locks"),
                                   .goodput = number(o, "goodput"),
                                   .p50 = number(o, "p50_ns"),
                                   .p99 = number(o, "p99_ns"),
                                   .error = error_of(json_object_get(o, "goodputs"))};
    return name_of(o, "design", out->design) && name_of(o, "on", out->on) && out->goodput > 0;
}

static int runs_of(const json_t *root, const char *path, struct bench_run_read **out, char why[BENCH_RESULTS_WHY_LEN])
{
    size_t count = json_is_array(root) ? json_array_size(root) : 1;
    struct bench_run_read *runs = calloc(count ? count : 1, sizeof *runs);
    bool good = runs && count;
    for (size_t i = 0; i < count && good; i++)
        good = run_of(json_is_array(root) ? json_array_get(root, i) : root, &runs[i]);
    if (good) {
        *out = runs;
        return (int)count;
    }
    free(runs);
    snprintf(why, BENCH_RESULTS_WHY_LEN, "%s is not what 'pawl bench --json' prints", path);
    return -1;
}

int bench_results_read(const char *path, struct bench_run_read **out, char why[BENCH_RESULTS_WHY_LEN])
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root && error.line > 0)
        snprintf(why, BENCH_RESULTS_WHY_LEN, "%s, line %d, column %d: %s", path, error.line, error.column, error.text);
    else if (!root)
        snprintf(why, BENCH_RESULTS_WHY_LEN, "%s", error.text);
    int count = root ? runs_of(root, path, out, why) : -1;
    json_decref(root);
    return count;
}
