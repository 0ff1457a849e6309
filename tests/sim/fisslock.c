/* FissLock in the simulated rack under every fault that it tolerates, read- and write-preferring, and the seeds that once found
 * something. */
#include "tests/sim/runs.h"

#define SEEDS_MIN 60

/* ACKs, GRANTs and agents that were sent to a process which had gone (12 of the first 3,000 seeds). */
static const uint64_t kept[] = {21, 436, 490, 644, 803, 899, 1318, 1328, 1485, 2154};

int main(void)
{
    const struct design *d = design_named("fisslock");
    struct run_sum calm = {0}, sum = {0};
    for (uint64_t seed = 0; seed < SEEDS_MIN; seed++)
        run_clean(&calm, d, 0, seed);
    CHECK_EQ(calm.total.lost, 0);
    for (unsigned i = 0; i < countof(kept); i++)
        run_clean(&sum, d, d->tolerates, kept[i]);
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 3;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum("fisslock", &sum);
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        if (d->tolerates & FAULT_BIT(kind) && kind != FAULT_UNKNOWN && !sum.total.faults[kind]) /* there are no verbs */
            CHECK_FAIL("no fault of kind %s was injected", fault_name((enum fault)kind));
    CHECK(sum.total.exclusive && sum.total.shared && sum.total.upgrades && sum.total.downgrades && sum.total.timeouts);
    CHECK(sum.total.cancelled && sum.total.lost);
    return 0;
}
