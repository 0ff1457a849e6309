/* SPDX-License-Identifier: Apache-2.0 */
/* In place of bench_results.c where jansson was missing when pawl was built. */
#include "cli/bench_results.h"

#include <stdio.h>

int bench_results_read(const char *path, struct bench_run_read **out, char why[BENCH_RESULTS_WHY_LEN])
{
    (void)out;
    snprintf(why, BENCH_RESULTS_WHY_LEN, "%s: this build cannot read JSON: it was made without jansson (Debian: libjansson-dev)",
             path);
    return -1;
}
