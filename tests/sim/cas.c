/* SPDX-License-Identifier: Apache-2.0 */
/* The spinlocks that the papers compare with, under the faults that they claim to tolerate. */
#include "tests/sim/runs.h"

#define SEEDS_MIN 40

static void campaign(const char *name, uint64_t ns)
{
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    uint64_t end = world_now(&world_real) + ns;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum(name, &sum);
    check_struck(&sum, d->tolerates);
    CHECK_EQ(sum.total.faults[FAULT_CRASH_CLIENT] + sum.total.faults[FAULT_CRASH_SERVER], 0);
    CHECK(sum.total.exclusive && sum.total.timeouts);
    CHECK_EQ(sum.total.shared + sum.total.upgrades, 0);
}

int main(void)
{
    uint64_t each_ns = test_seconds() * NS_PER_S / 6;
    campaign("cas", each_ns);
    campaign("cas-backoff", each_ns);
    return 0;
}
