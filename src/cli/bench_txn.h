/* SPDX-License-Identifier: Apache-2.0 */
/* Options of pawl bench that are about transactions. */
#ifndef PAWL_CLI_BENCH_TXN_H
#define PAWL_CLI_BENCH_TXN_H

#include "lib/args.h"
#include "workbench/bench/bench.h"

struct bench_txn_options {
    const char *workload, *file, *write;
    uint64_t scale;
    bool sorted, together;
    bool scale_seen, timeout_seen, hold_seen, locks_seen, ops_seen;
};

/* Sets the workload of the benchmark. 0, or the exit status after a complaint. The memory is static. */
int bench_choose_txn(const struct args *usage, const struct bench_txn_options *o, struct bench_params *p);

/* --write-trace: writes the transactions instead of running them. The exit status. */
int bench_write_trace(const struct bench_txn_options *o, const struct bench_params *p);

#endif
