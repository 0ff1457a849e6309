/* SPDX-License-Identifier: Apache-2.0 */
/* The locks that the papers compare with, under the faults that they claim to tolerate. */
#include "workbench/baselines/baselines.h"
#include "tests/sim/runs.h"
#include "workbench/baselines/rpc.h"

#define SEEDS_MIN 30

/* Together these make messages so late that the next request of the same record has begun. */
#define LATE (FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_DUPLICATE))

static uint32_t faults_of(const struct design *d, uint64_t seed)
{
    if (seed % 4 == 0)
        return 0;
    return d->serve && seed % 4 == 2 ? LATE : d->tolerates;
}

static void campaign(const struct design *d, uint64_t ns)
{
    struct run_sum sum = {0};
    uint64_t end = world_now(&world_real) + ns;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, faults_of(d, seed), seed);
    print_sum(d->name, &sum);
    check_struck(&sum, d->tolerates);
    if (d->serve) /* messages, not verbs alone */
        CHECK(sum.total.faults[FAULT_DUPLICATE] && sum.total.faults[FAULT_REORDER]);
    if (d->features & DESIGN_SHARED)
        CHECK(sum.total.shared && sum.total.exclusive);
    if (d->features & DESIGN_TIMEOUT)
        CHECK(sum.total.timeouts && sum.total.cancelled);
}

int main(void)
{
    uint64_t each_ns = test_seconds() * NS_PER_S / 15;
    campaign(&design_spin, each_ns);
    campaign(&design_mcs, each_ns);
    run_knobs = tuned(&design_mcs, "early-next", 1);
    campaign(&design_mcs, each_ns);
    run_knobs = tuned(&design_cas_backoff, "moving-max", 1);
    campaign(&design_cas_backoff, each_ns);
    run_knobs = NULL;
    campaign(&design_dslr, each_ns);
    run_knobs = tuned(&design_dslr, "count-max", 8); /* the counters end all the time */
    campaign(&design_dslr, each_ns);
    run_knobs = NULL;
    campaign(&design_drtm, each_ns);
    campaign(&design_rmarw, each_ns);
    run_knobs = tuned(&design_rmarw, "counters", 3);
    campaign(&design_rmarw, each_ns);
    run_knobs = NULL;
    campaign(&design_rpc, each_ns);
    campaign(&design_rpc_retry, each_ns);
    run_knobs = tuned(&design_rpc_retry, "pause-ns", 0);
    campaign(&design_rpc_retry, each_ns);
    return 0;
}
