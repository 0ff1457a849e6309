/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of fault campaigns: one run, and the sum of many. */
#ifndef PAWL_TESTS_SIM_RUNS_H
#define PAWL_TESTS_SIM_RUNS_H

#include "tests/tuned.h"
#include "workbench/trial/campaign.h"

/* Kinds that can strike a design which only uses verbs: it sends no packets that could be doubled or overtake each other, and no
 * switch holds state of its own for it. */
#define FAULTS_OF_VERBS (FAULTS_ALL & ~(FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_CRASH_SWITCH)))

static inline const struct design *design_named(const char *name)
{
    const struct design *d = design_find(name);
    if (!d)
        CHECK_FAIL("there is no design %s", name);
    return d;
}

static const struct knobs *run_knobs; /* null: the usual ones */
static unsigned run_campaign;         /* 0: the usual one */
static const struct model *run_model; /* null: the usual one, in a swarm as drawn */
static bool run_on_nodes;             /* one-sided designs: on memory nodes */

static inline struct campaign_result run_traced(const struct design *d, uint32_t faults, uint64_t seed, FILE *trace)
{
    const struct campaign_params p = {.design = d,
                                      .knobs = run_knobs,
                                      .model = run_model,
                                      .campaign = run_campaign,
                                      .on_node = run_on_nodes,
                                      .faults = faults,
                                      .seed = seed,
                                      .trace = trace};
    struct campaign_result r;
    CHECK_EQ(campaign_run(&p, &r), 0);
    return r;
}

static inline struct campaign_result run_seed(const struct design *d, uint32_t faults, uint64_t seed)
{
    return run_traced(d, faults, seed, NULL);
}

static inline bool run_failed(const struct campaign_result *r)
{
    return r->violations || r->stuck;
}

struct run_sum {
    uint64_t runs, forgot;
    struct campaign_result total; /* sums, of fields that can be added */
};

/* Faults must be tolerated, so anything the oracle found fails the test; how to see it is said. */
static inline void run_clean(struct run_sum *sum, const struct design *d, uint32_t faults, uint64_t seed)
{
    struct campaign_result r = run_seed(d, faults, seed), *t = &sum->total;
    if (run_failed(&r))
        CHECK_FAIL("%s: seed %" PRIu64 ": %s\n  pawl sim --design %s --seeds %" PRIu64 ":%" PRIu64 "%s%s%s%s%s --trace", d->name,
                   seed, r.why, d->name, seed, seed + 1, faults ? "" : " --faults none",
                   run_campaign == CAMPAIGN_SWARM    ? " --campaign 2"
                   : run_campaign == CAMPAIGN_BESIDE ? " --campaign 3"
                                                     : "",
                   run_on_nodes ? " --on node" : "", run_model ? " --model " : "", run_model ? run_model->name : "");
    sum->runs++;
    sum->forgot += r.forgot;
    t->events += r.events;
    t->grants += r.grants;
    t->shared += r.shared;
    t->exclusive += r.exclusive;
    t->upgrades += r.upgrades;
    t->downgrades += r.downgrades;
    t->grown += r.grown;
    t->shrunk += r.shrunk;
    t->splits += r.splits;
    t->retuned += r.retuned;
    t->taller += r.taller;
    t->smaller += r.smaller;
    t->timeouts += r.timeouts;
    t->cancelled += r.cancelled;
    t->deadlocks += r.deadlocks;
    t->orders += r.orders;
    t->told += r.told;
    t->places += r.places;
    t->limits += r.limits;
    t->values_set += r.values_set;
    t->values_seen += r.values_seen;
    t->unknown += r.unknown;
    t->sessions += r.sessions;
    t->lost += r.lost;
    t->moves += r.moves;
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        t->faults[kind] += r.faults[kind];
}

static inline void print_sum(const char *what, const struct run_sum *sum)
{
    const struct campaign_result *t = &sum->total;
    printf("%s: %" PRIu64 " seeds, %" PRIu64 " events, grants %" PRIu64 " shared and %" PRIu64 " exclusive, %" PRIu64
           " upgrades, %" PRIu64 " downgrades, %" PRIu64 " timed out, %" PRIu64 " cancelled, %" PRIu64 " deadlocks, %" PRIu64
           " sessions, %" PRIu64 " lost, %" PRIu64 " moves, %" PRIu64 " runs forgot locks; ranges: %" PRIu64 " grown, %" PRIu64
           " shrunk, %" PRIu64 " cut in two\n ",
           what, sum->runs, t->events, t->shared, t->exclusive, t->upgrades, t->downgrades, t->timeouts, t->cancelled, t->deadlocks,
           t->sessions, t->lost, t->moves, sum->forgot, t->grown, t->shrunk, t->splits);
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        printf(" %s %" PRIu64, fault_name((enum fault)kind), t->faults[kind]);
    putchar('\n');
    fflush(stdout);
}

/* A test that found nothing shows that there was something to find. */
static inline void check_struck(const struct run_sum *sum, uint32_t faults)
{
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        if (faults & FAULTS_OF_VERBS & FAULT_BIT(kind) && !sum->total.faults[kind])
            CHECK_FAIL("no fault of kind %s was injected", fault_name((enum fault)kind));
}

/* Each kind of fault by itself, and runs without faults, in which no session is lost. */
static inline void run_each_fault(const struct design *d, uint64_t seeds, uint64_t calm_seeds)
{
    struct run_sum calm = {0};
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++) {
        struct run_sum sum = {0};
        for (uint64_t seed = 0; seed < seeds; seed++)
            run_clean(&sum, d, FAULT_BIT(kind), seed);
        check_struck(&sum, FAULT_BIT(kind));
    }
    for (uint64_t seed = 0; seed < calm_seeds; seed++)
        run_clean(&calm, d, 0, seed);
    CHECK_EQ(calm.total.lost, 0);
}

#endif
