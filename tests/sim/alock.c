/* SPDX-License-Identifier: Apache-2.0 */
/* alock: under every fault alone and all together, without the fence that it needs, within its budgets, and by CPU alone where it
 * is local. */
#include "designs/alock/alock.h"
#include "cluster/session.h"
#include "tests/sim/runs.h"
#include "workbench/trial/cluster.h"

#include <string.h>

#define SEEDS_MIN 100
#define SEEDS_ALONE 20
#define SEEDS_CALM 48
#define SEEDS_QUICK 200

/* ---- faults ---- */

static void test_faults(uint64_t ns)
{
    const struct design *d = design_named("alock");
    struct run_sum sum = {0};
    uint64_t end = world_now(&world_real) + ns;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum("alock", &sum);
    check_struck(&sum, d->tolerates);
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++)
        for (uint64_t seed = 0; seed < SEEDS_ALONE; seed++)
            run_clean(&sum, d, FAULT_BIT(kind), seed);
    for (uint64_t seed = 0; seed < SEEDS_CALM; seed++) /* one in eight of them asks for I12: the budgets */
        run_clean(&sum, d, 0, seed);
}

/* ---- the fence; that busted-alock-nofence is caught there is in sim/busted ---- */

static void test_fence(void)
{
    for (uint64_t seed = 0; seed < SEEDS_QUICK; seed++) {
        const struct campaign_params p = {.design = design_named("alock"), .model = model_find("quick"), .seed = seed};
        struct campaign_result r;
        CHECK_EQ(campaign_run(&p, &r), 0);
        if (run_failed(&r))
            CHECK_FAIL("quick fabric: seed %" PRIu64 ": %s", seed, r.why);
    }
}

/* ---- budgets, and which means each cohort uses ---- */

#define OPS 300
#define HOLD_NS 500
#define LEASE_NS (10 * NS_PER_MS)

struct contest {
    uint64_t grants[COHORTS];
    uint64_t waiting; /* the leader of the other cohort, which waits at the Peterson lock */
    unsigned streak;  /* grants since then */
    unsigned longest[COHORTS];
    bool alone; /* no other client: measure */
};

static fab_addr lock_of(const struct cluster_task *t)
{
    return space_lock_addr(t->lockers[0].seat.space, 0);
}

/* GlobalFairness of the paper's appendix, as a bound: a leader that waits at the Peterson lock sees no more grants of the other
 * cohort than its budget. */
static void count_grant(struct cluster_task *t)
{
    struct contest *c = t->client->cluster->params.user;
    const struct alock *l = sim_fabric_peek(t->client->cluster->fabric, lock_of(t), sizeof *l);
    enum cohort mine = alock_cohort_of(lock_of(t), t->ep->node);
    CHECK_EQ(alock_slot(alock_holder(l->cohort[mine])), t->client->at[0].session.slot);
    uint64_t other = alock_holder(l->cohort[!mine]);
    bool waits = other && l->victim >> ALOCK_VICTIM_SHIFT == (unsigned)!mine;
    c->streak = waits && c->waiting == other ? c->streak + 1 : 0;
    c->waiting = waits ? other : 0;
    c->grants[mine]++;
    if (c->streak > c->longest[mine])
        c->longest[mine] = c->streak;
    CHECK(c->streak < t->lockers[0].seat.space->knobs.value[mine]);
}

static bool contend(struct cluster_task *t)
{
    for (unsigned i = 0; i < OPS; i++) {
        struct hold h;
        struct fab_counts before = t->ep->counts;
        uint64_t start_ns = world_now(t->lockers[0].seat.world);
        CHECK_EQ(locker_lock(&t->lockers[0], pawl_id(0), PAWL_EXCLUSIVE, DEADLINE_NEVER, &h), 0);
        count_grant(t);
        cluster_sleep(t, HOLD_NS);
        CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
        /* Not one verb; but a client that has waited for long checks whether the others live. */
        if (alock_cohort_of(lock_of(t), t->ep->node) == COHORT_LOCAL &&
            world_now(t->lockers[0].seat.world) - start_ns < t->lockers[0].seat.space->check_ns)
            CHECK_EQ(memcmp(&before, &t->ep->counts, sizeof before), 0);
    }
    return true;
}

static void contest(unsigned clients, bool home, uint64_t seed, const struct knobs *knobs)
{
    struct contest c = {0};
    struct cluster cluster;
    const struct cluster_params p = {.design = design_named("alock"),
                                     .knobs = knobs,
                                     .model = model_find("default"),
                                     .keys = PAWL_KEYS_DENSE,
                                     .capacity = 1,
                                     .clients = clients,
                                     .hosts = 2,
                                     .home = home,
                                     .tasks = 1,
                                     .fabric_caps = SIM_FABRIC_CAPS,
                                     .seed = seed,
                                     .time_max_ns = 10 * NS_PER_S,
                                     .lease_ns = LEASE_NS,
                                     .work = contend,
                                     .user = &c};
    CHECK_EQ(cluster_init(&cluster, &p), 0);
    cluster_run(&cluster);
    CHECK_EQ(cluster.clients_done, clients);
    CHECK_EQ(c.grants[COHORT_LOCAL] + c.grants[COHORT_REMOTE], clients * OPS);
    printf("%u clients: %" PRIu64 " grants to local ones, at most %u while a remote one waited; %" PRIu64
           " to remote ones, at most %u while a local one waited\n",
           clients, c.grants[COHORT_LOCAL], c.longest[COHORT_LOCAL], c.grants[COHORT_REMOTE], c.longest[COHORT_REMOTE]);
    if (home && clients > 8)
        CHECK(c.longest[COHORT_LOCAL] && c.longest[COHORT_REMOTE]); /* there was something to bound */
    cluster_free(&cluster);
}

static void test_budgets(void)
{
    const struct design *d = design_named("alock");
    struct knobs in_turn = design_knobs(d);
    CHECK_EQ(design_tune(d, &in_turn, "budget-local", 1), 0);
    CHECK_EQ(design_tune(d, &in_turn, "budget-remote", 1), 0);
    contest(16, true, 1, NULL);
    contest(24, true, 2, NULL);
    contest(4, false, 3, NULL);
    contest(8, true, 4, &in_turn);
}

int main(void)
{
    test_budgets();
    test_fence();
    test_faults(test_seconds() * NS_PER_S / 3);
    return 0;
}
