/* SPDX-License-Identifier: Apache-2.0 */
/* A trial in a lab: processes on its hosts lock and unlock through their rack's switch, with faults if asked for. */
#ifndef PAWL_WORKBENCH_LAB_RUN_H
#define PAWL_WORKBENCH_LAB_RUN_H

#include "workbench/lab/lab.h"

struct lab_run {
    const char *design;
    uint64_t ns;                                                        /* of faults; then all faults end */
    uint64_t workers;                                                   /* processes of each host */
    uint64_t loss_thousandths, duplicate_thousandths, late_thousandths; /* of the packets that come to a host */
    uint64_t seed; /* 0: any. Determines the faults, and nothing else that the machine does */
    bool faults;
    bool moves;     /* locks are divided anew all the time */
    bool afxdp;     /* one process of each host goes past the network stack */
    bool forgetful; /* wrong on purpose: the switch loses its locks, and no host is told */
    bool careless;  /* wrong on purpose: the first process takes another lock than it uses */
};

struct lab_outcome {
    uint64_t seed;
    unsigned processes;
    bool divided; /* one space of all racks; else one of each */
    unsigned cables_pulled, processes_killed, controls_killed, restarts, losses, moves;
    uint64_t packets_lost, packets_doubled, packets_late;
    uint64_t holds;      /* that were valid at their end */
    uint64_t violations; /* of them: two that exclude each other at once, or a token that did not rise */
    unsigned stuck;      /* processes that made no progress after all faults had ended */
};

/* Runs on all racks, each of which has a space of its own unless the design divides its locks among them. -EINVAL: these parameters
 * cannot be run; -EEXIST: a run is in progress in the lab; explained() says more. */
int lab_run(const struct lab *lab, const struct lab_run *run, struct lab_outcome *out);

#endif
