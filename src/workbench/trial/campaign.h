/* SPDX-License-Identifier: Apache-2.0 */
/* A fault campaign: for each seed a small cluster, a mix of faults, clients that do everything the interface offers, and the
 * oracle. First a phase in which faults strike and only safety is demanded, then everything heals and every client must get on. */
#ifndef PAWL_WORKBENCH_TRIAL_CAMPAIGN_H
#define PAWL_WORKBENCH_TRIAL_CAMPAIGN_H

#include "fabric/sim.h"
#include "workbench/trial/oracle.h"
#include "workbench/trial/swarm.h"
#include "world/sim.h"

struct campaign_params {
    const struct design *design;
    const struct knobs *knobs; /* of the design; null: the usual ones */
    const struct model *model; /* null: "default"; in a swarm as drawn */
    uint32_t faults;           /* those that the design does not tolerate are left out by the caller */
    uint64_t seed;
    unsigned campaign; /* CAMPAIGN_FIXED (0, too), CAMPAIGN_SWARM or CAMPAIGN_BESIDE */
    struct swarm_limits limits;
    const uint32_t *caps;       /* of the fabric; null: as the seed draws */
    unsigned nodes;             /* that one-sided locks lie on; 0: as the seed draws */
    bool on_node;               /* one-sided designs: on memory nodes */
    uint64_t verbs_mistakes;    /* of their executors */
    struct sim_strike *strikes; /* one-sided designs: at requests of these clients, by their numbers */
    unsigned strike_count;
    FILE *trace;
};

struct campaign_result {
    uint64_t violations;
    bool stuck; /* a live client did not get on after everything had healed (I9) */
    char why[ORACLE_TEXT_LEN];
    uint64_t events, virtual_ns, hash;
    uint64_t grants, shared, exclusive; /* all; and of them by mode, conversions not counted */
    uint64_t upgrades, downgrades;      /* conversions that succeeded */
    uint64_t grown, shrunk, splits;     /* of ranges */
    uint64_t retuned, taller, smaller;  /* of locks whose layout can change */
    uint64_t timeouts, cancelled;       /* operations that ended so */
    uint64_t deadlocks;                 /* of which a client was told */
    uint64_t orders, unknown;           /* done by data servers; with an unknown outcome */
    uint64_t told;                      /* holders, that others wait */
    uint64_t places, limits;            /* of semaphores: taken; refused, because the limit was another */
    uint64_t values_set, values_seen;   /* beside locks */
    uint64_t sessions, lost;            /* opened; lost by lease or crash */
    uint64_t moves;                     /* of locks between switch and servers */
    bool forgot;                        /* locks were forgotten to make room for others */
    uint64_t faults[FAULT_KINDS];
};

/* Those of the faults that a campaign of this design can have: it tolerates them; or they strike the coordinator, and the simulated
 * rack of this design has one. */
uint32_t campaign_faults(const struct design *d, uint32_t faults);

/* Whether a campaign of this design can have memory nodes. */
bool campaign_has_nodes(const struct design *d);

/* Whether the design offers what campaign 3 tries. */
bool campaign_has_beside(const struct design *d);

/* 0, -ENOMEM, or -PAWL_ENOTSUP, explained: the design cannot do with `caps`. What the oracle found is in the result. */
int campaign_run(const struct campaign_params *p, struct campaign_result *out);

#endif
