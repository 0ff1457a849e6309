/* SPDX-License-Identifier: Apache-2.0 */
/* The small world whose schedules are explored: one run of it. */
#ifndef PAWL_WORKBENCH_TRIAL_EXHAUST_WORLD_H
#define PAWL_WORKBENCH_TRIAL_EXHAUST_WORLD_H

#include "workbench/trial/campaign_ops.h"
#include "workbench/trial/exhaust.h"

struct exhaust_world {
    struct campaign campaign; /* for the operations' sake */
    struct sim_chooser chooser;
    struct model model;
    const struct exhaust_params *params;
    unsigned arrived;                   /* at the start */
    unsigned next[EXHAUST_CLIENTS_MAX]; /* operation */
    bool ended[EXHAUST_CLIENTS_MAX];    /* has done all its work, or is dead */
    uint64_t deaths;
    bool started, audited;
    struct sim_ticket waiting[EXHAUST_CLIENTS_MAX + 1]; /* at the start; the auditor for the end */
    struct rng untouched[2];                            /* the generators, from which nothing is drawn */
};

/* A world with its clients at the start, before the first choice. With a trace it is of the whole run. 0 or -errno. */
int exhaust_world_make(const struct exhaust_params *p, FILE *trace, struct exhaust_world **out);
void exhaust_world_free(struct exhaust_world *w);

static inline struct fiber_pool *exhaust_world_fibers(struct exhaust_world *w)
{
    return &w->campaign.sim->fibers;
}

enum exhaust_end { EXHAUST_GOOD, EXHAUST_CUT, EXHAUST_BAD };

/* From there to its end, along the chooser's answers. What was wrong is then in w->campaign.oracle.first. */
enum exhaust_end exhaust_world_run(struct exhaust_world *w);

#endif
