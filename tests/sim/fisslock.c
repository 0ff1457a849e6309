/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock in the simulated rack under every fault that it tolerates, read- and write-preferring, and the seeds that once found
 * something. */
#include "tests/sim/runs.h"

#define SEEDS_MIN 60

#define CRASH_SWITCH FAULT_BIT(FAULT_CRASH_SWITCH)
#define CRASH_HOST FAULT_BIT(FAULT_CRASH_SERVER)

/* Seeds that found something, with the faults that were left out then. */
static const struct {
    uint64_t seed;
    uint32_t without;
} kept[] = {
    /* ACKs, GRANTs and agents that were sent to a process which had gone. */
    {21, CRASH_HOST | CRASH_SWITCH},
    {436, CRASH_HOST | CRASH_SWITCH},
    {490, CRASH_HOST | CRASH_SWITCH},
    {644, CRASH_HOST | CRASH_SWITCH},
    {803, CRASH_HOST | CRASH_SWITCH},
    /* The ordinal of an earlier tenure, counted in a later one. */
    {1, CRASH_HOST | CRASH_SWITCH},
    /* A host that lost its memory went on with a tenure that it had used. */
    {111, CRASH_SWITCH},
    {403, CRASH_SWITCH},
    {550, CRASH_SWITCH},
    /* The GRANT of a lost host was passed on as a duplicate after another host had taken over. */
    {35, CRASH_SWITCH},
    {417, CRASH_SWITCH},
    {688, CRASH_SWITCH},
    /* A tenure was adopted while the request that ended it was under way. */
    {1172, CRASH_SWITCH},
};

/* Locks divided among two to eight switches, and divided anew while all is running. */
static void racks(void)
{
    const struct design *d = design_named("fisslock-racks");
    struct run_sum sum = {0};
    for (uint64_t seed = 0; seed < SEEDS_MIN; seed++) {
        run_clean(&sum, d, 0, seed);
        run_clean(&sum, d, d->tolerates, seed);
    }
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 6;
    for (uint64_t seed = SEEDS_MIN; world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum("fisslock-racks", &sum);
    CHECK(sum.total.exclusive && sum.total.shared && sum.total.upgrades && sum.total.faults[FAULT_CRASH_SWITCH]);
}

/* A reader waited for other readers that held by an exclusive tenure, and the deadlock was not found. */
static const uint64_t kept_where_they_stay[] = {81, 85, 144, 132, 148, 149};

/* Where agents stay, and where they are placed: the same clients and faults. */
static void others(const char *name)
{
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    for (unsigned i = 0; i < countof(kept_where_they_stay); i++)
        run_clean(&sum, d, d->tolerates, kept_where_they_stay[i]);
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 6;
    for (uint64_t seed = 0; seed < SEEDS_MIN / 3 || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, seed % 4 ? d->tolerates : 0, seed);
    print_sum(name, &sum);
    CHECK(sum.total.exclusive && sum.total.shared && sum.total.upgrades && sum.total.downgrades && sum.total.lost);
}

int main(void)
{
    racks();
    const struct design *d = design_named("fisslock");
    struct run_sum calm = {0}, sum = {0};
    for (uint64_t seed = 0; seed < SEEDS_MIN; seed++)
        run_clean(&calm, d, 0, seed);
    CHECK_EQ(calm.total.lost, 0);
    for (unsigned i = 0; i < countof(kept); i++)
        run_clean(&sum, d, d->tolerates & ~kept[i].without, kept[i].seed);
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 6;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum("fisslock", &sum);
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++)
        if (d->tolerates & FAULT_BIT(kind) && kind != FAULT_UNKNOWN && !sum.total.faults[kind]) /* there are no verbs */
            CHECK_FAIL("no fault of kind %s was injected", fault_name((enum fault)kind));
    CHECK(sum.total.exclusive && sum.total.shared && sum.total.upgrades && sum.total.downgrades && sum.total.timeouts);
    CHECK(sum.total.cancelled && sum.total.lost && sum.total.deadlocks);
    others("fisslock-stay");
    others("fisslock-local");
    return 0;
}
