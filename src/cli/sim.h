/* SPDX-License-Identifier: Apache-2.0 */
/* pawl sim: what its parts share. */
#ifndef PAWL_CLI_SIM_H
#define PAWL_CLI_SIM_H

#include "cli/common.h"
#include "lib/args.h"
#include "workbench/trial/campaign.h"

#define SIM_FAILURES_MAX 100 /* of one design: enough to read, and each can be replayed */

struct sim_failure {
    uint64_t seed;
    char what[ORACLE_TEXT_LEN];
};

/* The results of the runs of one design. */
struct sim_sum {
    const struct design *design;
    uint32_t faults;   /* that were allowed */
    uint32_t left_out; /* asked for, but the design does not tolerate them */
    struct arg_range seeds;
    uint64_t runs; /* of these seeds, from the first on: fewer if interrupted */
    bool interrupted;
    uint64_t events, grants, sessions, lost, moves, deadlocks, orders, unknown, virtual_ns, wall_ns;
    uint64_t counts[FAULT_KINDS];
    uint64_t violations, stuck; /* of all runs; runs that were */
    uint64_t failed;            /* runs with either */
    uint64_t hash;              /* the runs' hashes, folded in their order */
    struct sim_failure failures[SIM_FAILURES_MAX];
};

/* The options that a replay repeats. */
struct sim_replay {
    const char *faults, *model, *tune, *caps, *on; /* as they were given; all but faults may be null */
    uint64_t nodes;                                /* 0: as the seed draws */
    uint64_t campaign;
    struct swarm_limits limits;
};

#define FAULTS_LEN 160 /* the names of all faults */
#define REPLAY_LEN 512 /* a command line of ours */
void sim_replay_text(char out[REPLAY_LEN], const struct design *d, const struct sim_replay *replay, uint64_t seed);

void sim_print(const struct sim_sum *sum, const struct sim_replay *replay);
int sim_print_json(const struct sim_sum *sum, const struct sim_replay *replay);

/* pawl sim --exhaust: as it was asked for. */
struct sim_small {
    const char *plan, *choices, *faults, *tune; /* null: not given */
    uint64_t clients, ops, preemptions, early, strikes, minutes;
    bool crash, trace, json;
};

/* A design by its name, which must run in the simulation; a model by its name. Null after a complaint: EXIT_USAGE. */
const struct design *sim_design(const struct args *args, const char *name);
/* 0, or complains: a list of faults of which none strikes the design. */
int sim_check_faults(const struct args *args, const char *list, uint32_t faults, const struct design *d);
/* 0, or complains: the design has no campaigns on memory nodes; not this campaign. */
int sim_check_nodes(const struct args *args, const struct design *d);
int sim_check_campaign(const struct args *args, uint64_t campaign, const struct design *d);
const struct model *sim_model(const struct args *args, const char *name);

/* The exit status. */
int sim_exhaust(const struct args *usage, const struct sim_small *asked, const struct design *d, const struct knobs *knobs);

/* pawl hunt --small: small worlds by seeds, designs in turns. */
struct sim_small_hunt {
    const struct design *const *designs;
    unsigned count;
    uint64_t seed, seeds; /* the first; of each design, 0: without bound */
    uint64_t ns;          /* UINT64_MAX: without bound */
    uint32_t faults;
    bool json;
};

/* The exit status. */
int sim_hunt_small(const struct sim_small_hunt *h);

/* Every design, every model: the exit status. */
int sim_list(bool json);
int sim_models(bool json);

#endif
