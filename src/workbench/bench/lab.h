/* SPDX-License-Identifier: Apache-2.0 */
/* A lab of one rack for a benchmark: clients are in the namespaces of its hosts, and a design that has a switch has it in the
 * kernel. Needs root. */
#ifndef PAWL_WORKBENCH_BENCH_LAB_H
#define PAWL_WORKBENCH_BENCH_LAB_H

#include "workbench/bench/bench.h"
#include "workbench/lab/rack.h"

struct bench_lab {
    struct lab lab;
    struct lab_rack rack;
    char options[128]; /* of `pawl serve` */
};

/* Removes the remains of a killed benchmark first. */
int bench_lab_start(struct bench_lab *l, const struct bench_params *p, const struct design *design, char why[BENCH_WHY_LEN]);
void bench_lab_stop(struct bench_lab *l);

/* For a client of the host with that number, from 0 on: enters the host's namespace, and gives the place of the space. */
int bench_lab_enter(const struct bench_lab *l, unsigned host, char place[LAB_PLACE]);

#endif
