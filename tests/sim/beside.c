/* SPDX-License-Identifier: Apache-2.0 */
/* Campaign 3, with and without faults: holders that are told of waiters, semaphores, and values beside locks. */
#include "tests/sim/runs.h"

#define SEEDS_CALM 20
#define SEEDS_MIN 40
#define NODE_SEEDS 140

/* Seeds in which a mistake was found. */
static const struct {
    const char *design;
    uint64_t seed;
    const char *what;
} kept[] = {
    {"word", 1034, "a census that saw readers of two moments was taken for a semaphore with too many"},
};

/* Values are with the coordinator in racks. */
static void values(const char *name, const struct run_sum *sum)
{
    printf("%s: %" PRIu64 " values set, %" PRIu64 " seen\n", name, sum->total.values_set, sum->total.values_seen);
    CHECK(sum->total.values_set && sum->total.values_seen);
}

static void coordinated(const char *name)
{
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 8;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates | FAULTS_COORDINATOR, seed);
    values(name, &sum);
}

/* On memory nodes a request of which a holder is told may have ended: the store that says so leaves with a later verb (seed 145).
 */
static void on_nodes(void)
{
    struct run_sum sum = {0};
    run_on_nodes = true;
    for (uint64_t seed = NODE_SEEDS; seed < NODE_SEEDS + SEEDS_MIN / 2; seed++)
        run_clean(&sum, design_named("word"), FAULTS_ALL, seed);
    run_on_nodes = false;
    print_sum("word on memory nodes", &sum);
    CHECK(sum.total.told && sum.total.places);
}

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
    printf("  told %" PRIu64 ", places %" PRIu64 ", other limits %" PRIu64 "\n", sum.total.told, sum.total.places,
           sum.total.limits);
    if (d->features & DESIGN_SEMAPHORE)
        CHECK(sum.total.places && sum.total.limits);
    if (!d->packet)
        values(name, &sum);
    CHECK(sum.total.told && sum.total.exclusive && sum.total.shared && sum.total.upgrades && sum.total.lost);
}

int main(void)
{
    static const char *const designs[] = {"word",          "srvlock",        "parlock",       "fisslock",
                                          "fisslock-stay", "fisslock-racks", "fisslock-local"};
    run_campaign = CAMPAIGN_BESIDE;
    for (size_t i = 0; i < countof(kept); i++) {
        struct run_sum sum = {0};
        run_clean(&sum, design_named(kept[i].design), FAULTS_ALL, kept[i].seed);
        printf("%s %" PRIu64 ": %s\n", kept[i].design, kept[i].seed, kept[i].what);
    }
    on_nodes();
    for (size_t i = 0; i < countof(designs); i++)
        campaign(designs[i]);
    coordinated("srvlock");
    coordinated("fisslock");
    coordinated("fisslock-racks");
    return 0;
}
