/* SPDX-License-Identifier: Apache-2.0 */
/* Results that 'pawl bench --json' printed, read again. Apart from bench_compare.c: the library that reads JSON and the one that
 * writes it (lib/json.h) have functions of the same names. */
#ifndef PAWL_CLI_BENCH_RESULTS_H
#define PAWL_CLI_BENCH_RESULTS_H

#include "lib/base.h"

#define BENCH_NAME_LEN 32
#define BENCH_RESULTS_ROUNDS_MIN 3 /* fewer tell nothing about noise */

struct bench_run_read {
    char design[BENCH_NAME_LEN], on[BENCH_NAME_LEN];
    double clients, locks, goodput, p50, p99;
    double error; /* standard error of the goodput, relative; negative: unknown */
};

/* The results in a file: their number, and *out, which the caller frees; negative: cannot be read, and why. */
#define BENCH_RESULTS_WHY_LEN 512
int bench_results_read(const char *path, struct bench_run_read **out, char why[BENCH_RESULTS_WHY_LEN]);

#endif
