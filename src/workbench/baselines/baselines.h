/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the baselines, and the functions and limits that the workbench shares. */
#ifndef PAWL_WORKBENCH_BASELINES_BASELINES_H
#define PAWL_WORKBENCH_BASELINES_BASELINES_H

#include "designs/core/design.h"

extern const struct design design_cas, design_cas_backoff, design_spin, design_mcs, design_dslr, design_drtm, design_rmarw,
    design_rpc, design_rpc_retry, design_segments_exact, design_segments_over, design_segments_under, design_ofd;

/* The faults that a design without recovery tolerates; and if it cannot make up for a verb whose outcome is unknown. */
#define BASELINE_TOLERATES (FAULTS_ALL & ~(FAULT_BIT(FAULT_CRASH_CLIENT) | FAULT_BIT(FAULT_CRASH_SERVER)))
#define BASELINE_TOLERATES_KNOWN (BASELINE_TOLERATES & ~(FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_UNKNOWN)))

/* dslr wrong on purpose: releases of lost sessions count for others. */
#define DSLR_LATE 1u

/* Where the counters of dslr's word end, and it starts anew: half of their 16 bits. */
#define DSLR_COUNT_MAX 0x8000

/* ofd, for benchmarks: single units held by one description, more than there could be records or descriptions; they end when *fd is
 * closed. */
int ofd_hold_apart(const struct seat *seat, uint64_t index, uint64_t start, uint64_t stride, uint64_t count, int *fd);

#endif
