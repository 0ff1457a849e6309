/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided designs on memory nodes: verbs are datagrams that are lost, doubled, late and overtaken; nodes lose their memory,
 * clients are killed and stopped. An executor that breaks one of its promises is caught. */
#include "dataplane/verbs_client.h"
#include "tests/sim/runs.h"
#include "workbench/trial/cluster.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const designs[] = {"word", "shiftlock", "shiftlock64", "alock", "citron"};

static struct campaign_result run_on_node(const struct design *d, uint32_t faults, uint64_t seed, unsigned campaign, unsigned nodes,
                                          uint64_t mistakes)
{
    const struct campaign_params p = {.design = d,
                                      .faults = faults,
                                      .seed = seed,
                                      .campaign = campaign,
                                      .nodes = nodes,
                                      .on_node = true,
                                      .verbs_mistakes = mistakes};
    struct campaign_result r;
    CHECK_EQ(campaign_run(&p, &r), 0);
    return r;
}

static void test_designs(uint64_t budget_ns)
{
    uint64_t until = world_now(&world_real) + budget_ns, seed = 0, grants = 0, lost = 0;
    uint64_t counts[FAULT_KINDS] = {0};
    for (; seed < 6 || world_now(&world_real) < until; seed++)
        for (unsigned i = 0; i < countof(designs); i++) {
            const struct design *d = design_named(designs[i]);
            uint32_t faults = seed % 5 ? d->tolerates : 0;
            unsigned campaign = seed % 3 ? CAMPAIGN_FIXED : CAMPAIGN_SWARM;
            struct campaign_result r = run_on_node(d, faults, seed, campaign, 0, 0);
            if (run_failed(&r))
                CHECK_FAIL("%s: seed %" PRIu64 ": %s\n  pawl sim --on node --design %s --seeds %" PRIu64 ":%" PRIu64 "%s%s --trace",
                           d->name, seed, r.why, d->name, seed, seed + 1, faults ? "" : " --faults none",
                           campaign == CAMPAIGN_SWARM ? " --campaign 2" : "");
            grants += r.grants;
            lost += r.lost;
            for (unsigned k = 0; k < FAULT_KINDS; k++)
                counts[k] += r.faults[k];
        }
    CHECK(grants && lost && counts[FAULT_LOSS] && counts[FAULT_DUPLICATE] && counts[FAULT_REORDER] && counts[FAULT_CRASH_SERVER]);
    printf("%" PRIu64 " seeds, %" PRIu64 " grants, %" PRIu64 " sessions lost\n", seed, grants, lost);
}

/* In a process of its own: what a design asserts counts as caught, too. */
static bool catches(const struct design *d, uint64_t seed, uint64_t mistakes)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        const struct rlimit none = {0};
        setrlimit(RLIMIT_CORE, &none);
        struct campaign_result r = run_on_node(d, d->tolerates, seed, CAMPAIGN_FIXED, 1, mistakes);
        _exit(run_failed(&r));
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) || (WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

/* Each is caught in some run of some design; and without a mistake nothing is. */
static void test_mistakes(void)
{
    static const struct {
        uint64_t mistake, from; /* from: the first seed that catches it, as long as the harness draws the same numbers */
        const char *what, *design;
    } mistakes[] = {{VERBS_MISTAKE_CACHE, 1, "no reply cache", "shiftlock64"},
                    {VERBS_MISTAKE_FENCE, 21, "no fence", "alock"},
                    {VERBS_MISTAKE_ORDER, 261, "no order", "word"}};
    for (unsigned m = 0; m < countof(mistakes); m++) {
        const struct design *d = design_named(mistakes[m].design);
        uint64_t seed = mistakes[m].from;
        while (!catches(d, seed, mistakes[m].mistake))
            if (++seed == mistakes[m].from + 300)
                CHECK_FAIL("%s: was not caught", mistakes[m].what);
        printf("%s: caught by %s, seed %" PRIu64 "\n", mistakes[m].what, d->name, seed);
        CHECK(!catches(d, seed, 0));
    }
}

/* ---- the cost of a lock without contention ---- */

struct traffic {
    uint64_t packets, verbs, bytes;
};

struct cost {
    const char *design;
    enum pawl_mode mode;
    struct traffic in, out; /* of a lock, of its release; 0: not bounded here */
    unsigned locks;         /* taken and given back by one call each; 0: one lock, by the calls for one */
};

/* In: a record and an atomic; the token of shiftlock64 is a third verb, and word looks at the lock first. A writer that leaves also
 * looks for the note of a successor. */
static const struct cost costs[] = {
    {"shiftlock", PAWL_EXCLUSIVE, {1, 2, 160}, {1, 3, 216}, 0},
    {"shiftlock", PAWL_SHARED, {1, 2, 120}, {1, 2, 120}, 0},
    {"shiftlock64", PAWL_EXCLUSIVE, {1, 3, 152}, {1, 3, 184}, 0},
    {"shiftlock64", PAWL_SHARED, {1, 3, 128}, {1, 2, 104}, 0},
    {"word", PAWL_EXCLUSIVE, {2, 0, 0}, {1, 0, 0}, 0},
    {"alock", PAWL_EXCLUSIVE, {3, 0, 0}, {1, 0, 0}, 0},
    /* Several: as many packets as one, and each lock has one WRITE for its record, however often that has changed meanwhile. */
    {"shiftlock", PAWL_EXCLUSIVE, {1, 16, 944}, {1, 24, 1392}, 8},
    {"shiftlock", PAWL_EXCLUSIVE, {1, 20, 1168}, {1, 20, 1168}, 10},
    {"shiftlock64", PAWL_EXCLUSIVE, {1, 30, 1088}, {1, 20, 848}, 10},
    {"word", PAWL_EXCLUSIVE, {2, 0, 0}, {1, 0, 0}, 10},
    {"alock", PAWL_EXCLUSIVE, {3, 0, 0}, {1, 0, 0}, 10},
};

static const struct cost *cost;
static struct cluster cluster;

static void check_cost(const char *what, struct fab_node_counts from, struct fab_node_counts to, struct traffic bound)
{
    printf("%s, %s, %u locks, %s: %" PRIu64 " packets, %" PRIu64 " verbs, %" PRIu64 " bytes\n", cost->design,
           cost->mode == PAWL_SHARED ? "shared" : "exclusive", cost->locks ? cost->locks : 1, what, to.requests - from.requests,
           to.verbs - from.verbs, to.bytes - from.bytes);
    CHECK_EQ(to.requests - from.requests, bound.packets);
    CHECK(!bound.verbs || to.verbs - from.verbs <= bound.verbs);
    CHECK(!bound.bytes || to.bytes - from.bytes <= bound.bytes);
}

#define COST_LOCKS 10u

static void take(const struct locker *l, struct hold *holds)
{
    pawl_want wants[COST_LOCKS];
    for (unsigned i = 0; i < cost->locks; i++)
        wants[i] = (pawl_want){.key = pawl_id(i), .mode = cost->mode};
    if (cost->locks)
        CHECK_EQ(locker_lock_all(l, wants, cost->locks, DEADLINE_NEVER, holds), 0);
    else
        CHECK_EQ(locker_lock(l, pawl_id(1), cost->mode, DEADLINE_NEVER, holds), 0);
}

static void give_back(const struct locker *l, const struct hold *holds)
{
    int rc[COST_LOCKS];
    if (!cost->locks) {
        CHECK_EQ(locker_unlock(l, holds), 0);
        return;
    }
    locker_unlock_all(l, holds, cost->locks, rc);
    for (unsigned i = 0; i < cost->locks; i++)
        CHECK_EQ(rc[i], 0);
}

static bool cost_work(struct cluster_task *t)
{
    const struct fab_node_counts *counts = &t->client->at[0].far->node.counts;
    for (unsigned i = 0; i < 3; i++) { /* the first also ends what opening the session has left */
        struct hold holds[COST_LOCKS];
        struct fab_node_counts before = *counts;
        take(&t->lockers[0], holds);
        struct fab_node_counts held = *counts;
        give_back(&t->lockers[0], holds);
        if (i < 2)
            continue;
        check_cost("lock", before, held, cost->in);
        check_cost("unlock", held, *counts, cost->out);
    }
    return true;
}

static void test_costs(void)
{
    for (cost = costs; cost < costs + countof(costs); cost++) {
        const struct cluster_params p = {
            .design = design_named(cost->design),
            .model = model_find("default"),
            .keys = PAWL_KEYS_DENSE,
            .capacity = COST_LOCKS,
            .clients = 1,
            .hosts = 1,
            .tasks = 1,
            .fabric_caps = FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED | FAB_WAIT,
            .node_can = VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED | VERBS_CAN_WAIT,
            .on_node = true,
            .seed = 1,
            .time_max_ns = 10 * NS_PER_S,
            .lease_ns = 100 * NS_PER_MS,
            .work = cost_work,
        };
        CHECK_EQ(cluster_init(&cluster, &p), 0);
        cluster_run(&cluster);
        CHECK_EQ(cluster.clients_done, 1);
        cluster_free(&cluster);
    }
}

int main(void)
{
    test_costs();
    test_mistakes();
    test_designs(test_seconds() * NS_PER_S / 2);
    return 0;
}
