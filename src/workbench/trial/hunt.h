/* SPDX-License-Identifier: Apache-2.0 */
/* The hunt: campaigns of random seeds, several at a time, until one fails or time is up; and a failure made small.
 *
 * Campaigns run in processes of their own, so that one that aborts, or never ends, is a failure like another. */
#ifndef PAWL_WORKBENCH_TRIAL_HUNT_H
#define PAWL_WORKBENCH_TRIAL_HUNT_H

#include "workbench/trial/campaign.h"

#include <signal.h>

#define HUNT_JOBS_MAX 64u
#define HUNT_DESIGNS_MAX 128u

/* The sums of all runs. */
struct hunt_sum {
    uint64_t seeds, grants, events, faults;
    uint64_t ns;                /* since the beginning */
    uint64_t cpu_ns;            /* of the complete runs */
    uint64_t reached, branches; /* of the program, by complete runs; and all, 0 if the compiler does not count them */
};

/* Substrates of one-sided designs. */
enum hunt_on {
    HUNT_ON_DRAWN, /* a fabric with NICs, or, in some runs of designs that are offered there, memory nodes */
    HUNT_ON_FABRIC,
    HUNT_ON_NODE,
};

struct hunt_params {
    const struct design *designs[HUNT_DESIGNS_MAX]; /* in turns */
    unsigned count;
    unsigned jobs;
    uint64_t seed;             /* the first one: they go on from there */
    uint64_t seeds;            /* of each design; 0: without bound */
    uint64_t ns;               /* how long; UINT64_MAX: without bound */
    uint64_t seed_ns;          /* CPU time after which a seed counts as hanging */
    uint32_t faults;           /* those that a design does not tolerate are left out */
    const struct model *model; /* of all runs; null: as campaigns draw it */
    enum hunt_on on;
    unsigned campaign;                                       /* 0: mostly swarm, sometimes fixed (some without faults) or beside */
    const volatile sig_atomic_t *stop;                       /* not 0: interrupted */
    void (*progress)(void *ctx, const struct hunt_sum *sum); /* about once a second; null: not wanted */
    void *ctx;
};

struct hunt_failure {
    bool found;
    struct campaign_params params; /* that repeat it */
    char why[ORACLE_TEXT_LEN];
};

/* 0, -ENOMEM, or another negative errno: no process could be made. */
int hunt_run(const struct hunt_params *p, struct hunt_sum *sum, struct hunt_failure *out);

/* Fewer clients, locks, hosts, tasks, faults, a shorter time: as long as it fails, within `ns`. What is left is in *f. Returns how
 * many runs that took. */
unsigned hunt_shrink(struct hunt_failure *f, uint64_t seed_ns, uint64_t ns);

/* Runs the failure again and writes its trace. */
int hunt_trace(const struct hunt_failure *f, FILE *out);

#endif
