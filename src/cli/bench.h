/* SPDX-License-Identifier: Apache-2.0 */
/* How the results of pawl bench are printed. */
#ifndef PAWL_CLI_BENCH_H
#define PAWL_CLI_BENCH_H

#include "cli/common.h"
#include "workbench/bench/bench.h"

/* Results with at least one round; 0 or the exit status. *violations is the sum of all. */
int bench_print(const struct bench_params *p, const struct bench_result *results, bool json, uint64_t *violations);

#endif
