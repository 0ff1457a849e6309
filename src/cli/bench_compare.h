/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAWL_CLI_BENCH_COMPARE_H
#define PAWL_CLI_BENCH_COMPARE_H

#include "lib/base.h"

/* pawl bench compare A B: results that 'pawl bench --json' printed. The exit status. */
int bench_compare(const char *before, const char *after, bool json);

#endif
