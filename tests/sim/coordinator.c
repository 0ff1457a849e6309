/* SPDX-License-Identifier: Apache-2.0 */
/* Racks with their coordinator: its host crashes and its process is killed, its disk is slow, full and flips bits, operators
 * restart it with another lease, another state and another clock, and start lock servers where there is no place for them; beside
 * all other faults. No lock is held twice, no token falls, and all get on afterwards. If nothing but coordinators fails, no session
 * is lost, either. */
#include "tests/sim/runs.h"

#define SEEDS 120
#define SEEDS_CALM 20

static void campaigns(const char *name, uint64_t seeds)
{
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    for (uint64_t seed = 0; seed < seeds; seed++)
        run_clean(&sum, d, FAULTS_ALL | FAULTS_COORDINATOR, seed);
    print_sum(name, &sum);
    CHECK(sum.total.grants > seeds);
    check_struck(&sum, FAULTS_COORDINATOR);
}

/* I27: coordinators crash, leaders change, and their outages are shorter than the membership lease. */
static void outages(const char *name)
{
    const uint32_t faults = FAULT_BIT(FAULT_CRASH_COORDINATOR) | FAULT_BIT(FAULT_DISK) | FAULT_BIT(FAULT_ETCD);
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    for (uint64_t seed = 0; seed < SEEDS_CALM; seed++)
        run_clean(&sum, d, faults, seed);
    print_sum(name, &sum);
    CHECK(sum.total.grants > SEEDS_CALM && !sum.total.lost);
    check_struck(&sum, faults);
}

/* Without those faults a rack has no coordinator, and its runs are what they were. */
static void apart(void)
{
    const struct design *d = design_named("srvlock"), *word = design_named("word");
    CHECK_EQ(campaign_faults(d, FAULTS_ALL), FAULTS_ALL);
    CHECK(campaign_faults(d, FAULTS_COORDINATOR) == FAULTS_COORDINATOR && !campaign_faults(word, FAULTS_COORDINATOR));
}

int main(void)
{
    apart();
    campaigns("srvlock", SEEDS);
    campaigns("fisslock", SEEDS);
    campaigns("fisslock-stay", SEEDS / 2);
    campaigns("fisslock-racks", SEEDS / 2);
    campaigns("netlock", SEEDS);
    campaigns("netlock-switches", SEEDS / 2);
    outages("srvlock");
    outages("fisslock");
    outages("fisslock-racks");
    outages("netlock");
    outages("netlock-switches");
    return 0;
}
