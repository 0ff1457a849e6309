/* SPDX-License-Identifier: Apache-2.0 */
/* Lock servers asked by packets, on machines of their own and on the clients', under every fault: packets lost, doubled, overtaken
 * and late, processes and hosts and servers that die, partitions and pauses longer than a lease. */
#include "tests/sim/runs.h"

#define SEEDS_MIN 60

static void campaign(const char *name, uint64_t ns)
{
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    uint64_t end = world_now(&world_real) + ns;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum(name, &sum);
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++)
        if (kind != FAULT_UNKNOWN && !sum.total.faults[kind]) /* there are no verbs */
            CHECK_FAIL("no fault of kind %s was injected", fault_name((enum fault)kind));
    CHECK(sum.total.exclusive && sum.total.shared && sum.total.upgrades && sum.total.downgrades && sum.total.timeouts);
    CHECK(sum.total.cancelled && sum.total.lost);
}

/* Without faults no session is lost. */
static void calm(const char *name)
{
    struct run_sum sum = {0};
    for (uint64_t seed = 0; seed < SEEDS_MIN; seed++)
        run_clean(&sum, design_named(name), 0, seed);
    CHECK_EQ(sum.total.lost, 0);
}

int main(void)
{
    uint64_t each_ns = test_seconds() * NS_PER_S / 6;
    calm("srvlock");
    calm("parlock");
    campaign("srvlock", each_ns);
    campaign("parlock", each_ns);
    return 0;
}
