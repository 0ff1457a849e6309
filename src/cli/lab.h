/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of pawl lab share. */
#ifndef PAWL_CLI_LAB_H
#define PAWL_CLI_LAB_H

#include "cli/common.h"
#include "workbench/lab/lab.h"

struct lab_run {
    const char *design;
    uint64_t ns;      /* of trouble; then everything is mended */
    uint64_t workers; /* processes of each host */
    uint64_t loss_thousandths;
    uint64_t twice_thousandths, late_thousandths; /* the same */
    uint64_t seed;                                /* 0: any. Draws the faults; what else the machine does is its own */
    bool faults, json;
    bool moves;     /* locks are divided anew all the time */
    bool afxdp;     /* one process of each host goes past the network stack */
    bool forgetful; /* wrong on purpose: the switch loses its locks, and nobody is told */
    bool careless;  /* wrong on purpose: the first process takes another lock than it uses */
};

/* On all racks, each of which has a space of its own, unless the design divides its locks among them. The exit status: EXIT_NO if
 * anything was violated or somebody is stuck. */
int lab_run(const struct lab *lab, const struct lab_run *run);

#endif
