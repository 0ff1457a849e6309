/* SPDX-License-Identifier: Apache-2.0 */
/* Campaign 3, with and without faults: holders that are told of waiters. */
#include "tests/sim/runs.h"

#define SEEDS_CALM 20
#define SEEDS_MIN 40

static void campaign(const char *name)
{
    const struct design *d = design_named(name);
    struct run_sum calm = {0}, sum = {0};
    for (uint64_t seed = 0; seed < SEEDS_CALM; seed++)
        run_clean(&calm, d, 0, seed);
    CHECK_EQ(calm.total.lost, 0);
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 8;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum(name, &sum);
    printf("  told %" PRIu64 "\n", sum.total.told);
    CHECK(sum.total.told && sum.total.exclusive && sum.total.shared && sum.total.upgrades && sum.total.lost);
}

int main(void)
{
    static const char *const designs[] = {"word",          "srvlock",        "parlock",       "fisslock",
                                          "fisslock-stay", "fisslock-racks", "fisslock-local"};
    run_campaign = CAMPAIGN_BESIDE;
    for (size_t i = 0; i < countof(designs); i++)
        campaign(designs[i]);
    return 0;
}
