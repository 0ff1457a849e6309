/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of fabric.h when verbs, hosts and processes fail, in the simulation. */
#include "tests/unit/sim_kit.h"

/* ---- unknown outcomes: once or not at all, and settled before the next verb ---- */

static void add_with_unknowns(void *arg)
{
    struct actor *a = arg;
    uint64_t expect = 0;
    for (int i = 0; i < 20000; i++) {
        uint64_t old;
        int rc = fab_faa64(a->ep, WORD(0), 1, &old);
        if (!rc) {
            CHECK_EQ(old, expect);
            expect++;
            continue;
        }
        CHECK_EQ(rc, -FAB_EUNKNOWN);
        bool visible = kit_word(a->kit, WORD(0)) != expect;
        while (fab_read64(a->ep, WORD(0), &old))
            ;
        CHECK(old == expect || old == expect + 1);
        a->seen[old - expect]++;
        a->seen[2] += old != expect && !visible; /* took effect after the error was returned */
        expect = old;
    }
}

static void test_unknown(void)
{
    static struct kit kit;
    uint64_t never = 0, once = 0, late = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        open_default(&kit, seed, FAULT_BIT(FAULT_UNKNOWN) | FAULT_BIT(FAULT_LOSS), 2);
        struct actor a = actor_on(&kit, 1);
        sim_spawn(a.process, "adder", add_with_unknowns, &a);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        never += a.seen[0];
        once += a.seen[1];
        late += a.seen[2];
        kit_close(&kit);
    }
    CHECK(never > 10 && once > 10 && late > 10);
}

/* Settled before any later verb, to whichever node. */
static void add_here_and_there(void *arg)
{
    struct actor *a = arg;
    for (int i = 0; i < 3000; i++) {
        uint64_t old;
        if (fab_faa64(a->ep, WORD(0), 1, &old) != -FAB_EUNKNOWN || fab_faa64(a->ep, FAB_ADDR(2, 0), 1, &old))
            continue;
        uint64_t settled = kit_word(a->kit, WORD(0));
        fab_wait_any(a->ep, NULL, 0, world_now(a->ep->world) + 20 * NS_PER_MS);
        CHECK_EQ(kit_word(a->kit, WORD(0)), settled);
        a->count++;
    }
}

static void test_unknown_elsewhere(void)
{
    static struct kit kit;
    unsigned unknown = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        open_default(&kit, seed, FAULT_BIT(FAULT_UNKNOWN), 3);
        struct actor a = actor_on(&kit, 1);
        sim_spawn(a.process, "adder", add_here_and_there, &a);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        unknown += a.count;
        kit_close(&kit);
    }
    CHECK(unknown > 10);
}

/* ---- whatever happens: each verb takes effect at most once, and one that was reported done exactly once ---- */

struct tally {
    struct actor actors[6];
    uint64_t issued, done;
};

static void add_and_tally(void *arg)
{
    struct actor *a = arg;
    struct tally *tally = container_of(a, struct tally, actors[a->count]);
    for (int i = 0; i < 500; i++) {
        struct fab_op ops[3];
        for (unsigned k = 0; k < 3; k++)
            ops[k] = (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = WORD(8 * k), .swap = 1};
        tally->issued++;
        int rc = fab_batch(a->ep, ops, 3);
        CHECK(!rc || rc == -FAB_EUNKNOWN);
        tally->done += !rc;
    }
}

static void tally_again(void *ctx, struct sim_process *process)
{
    struct tally *tally = ctx;
    struct actor *a = &tally->actors[process->id];
    sim_ep_free(a->ep);
    a->ep = sim_ep_new(a->kit->fabric, process);
    sim_spawn(process, "adder", add_and_tally, a);
}

static void test_at_most_once(void)
{
    static struct kit kit;
    static struct tally tally;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint32_t faults = FAULTS_ALL & ~FAULT_BIT(FAULT_CRASH_SERVER);
        const struct sim_config config = {.seed = seed, .faults = faults, .safety_ns = 100 * NS_PER_MS};
        kit_open(&kit, &config, SIM_FABRIC_CAPS, 4);
        tally = (struct tally){0};
        const struct sim_hooks hooks = {.ctx = &tally, .process_restarted = tally_again};
        sim_hooks_add(&kit.sim, &hooks);
        for (unsigned i = 0; i < countof(tally.actors); i++) {
            tally.actors[i] = actor_on(&kit, 1 + i % 3);
            tally.actors[i].count = i;
            tally.actors[i].process->crashable = true;
            sim_spawn(tally.actors[i].process, "adder", add_and_tally, &tally.actors[i]);
        }
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        for (unsigned k = 0; k < 3; k++) {
            CHECK_BETWEEN(kit_word(&kit, WORD(8 * k)), tally.done, tally.issued);
            CHECK(!k || kit_word(&kit, WORD(8 * k)) <= kit_word(&kit, WORD(8 * (k - 1)))); /* a batch breaks off, in order */
        }
        kit_close(&kit);
    }
}

/* ---- partitions: both ends of the path ---- */

static void cut_off(void *arg)
{
    struct actor *a = arg;
    struct sim *sim = &a->kit->sim;
    uint64_t old, give_up_ns = model_get(sim->model, MODEL_retransmit_ns) * (model_get(sim->model, MODEL_retries) + 1);
    sim_partition(sim, 1, 0, sim_now(sim) + 2 * give_up_ns);
    CHECK_EQ(fab_faa64(a->ep, WORD(0), 1, &old), -FAB_EUNKNOWN);
    CHECK_EQ(kit_word(a->kit, WORD(0)), 0);
    CHECK(sim_now(sim) >= give_up_ns);
    sim_partition(sim, 1, 0, 0);
    sim_partition(sim, 0, 1, sim_now(sim) + 2 * give_up_ns); /* the answer is lost */
    CHECK_EQ(fab_faa64(a->ep, WORD(0), 1, &old), -FAB_EUNKNOWN);
    CHECK_EQ(kit_word(a->kit, WORD(0)), 1);
    sim_partition(sim, 0, 1, 0);
    uint64_t start_ns = sim_now(sim);
    sim_partition(sim, 1, 0, start_ns + 2 * NS_PER_MS); /* short: hidden by retransmission */
    CHECK_EQ(fab_faa64(a->ep, WORD(0), 1, &old), 0);
    CHECK_BETWEEN(sim_now(sim) - start_ns, 2 * NS_PER_MS, 4 * NS_PER_MS);
    a->count = 1;
}

static void test_partition(void)
{
    static struct kit kit;
    open_default(&kit, 1, 0, 2);
    struct actor a = actor_on(&kit, 1);
    sim_spawn(a.process, "cut-off", cut_off, &a);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(a.count, 1);
    kit_close(&kit);
}

/* ---- crashes and fences ---- */

static void add_once(void *arg)
{
    struct actor *a = arg;
    uint64_t old;
    a->rc = fab_faa64(a->ep, WORD(0), 1, &old);
    a->count = 1;
}

static void read_once(void *arg)
{
    struct actor *a = arg;
    a->rc = fab_read64(a->ep, WORD(1), &a->seen[0]);
    a->count = 1;
}

/* Verbs that a dead process has in flight take effect on the node, but not on the former memory of the process. */
static void test_in_flight(void)
{
    static struct kit kit;
    open_default(&kit, 1, 0, 2);
    struct actor a = actor_on(&kit, 1), reader = actor_on(&kit, 1);
    *(uint64_t *)sim_fabric_peek(kit.fabric, WORD(1), 8) = 77;
    sim_spawn(a.process, "dies", add_once, &a);
    sim_spawn(reader.process, "dies too", read_once, &reader);
    CHECK_EQ(sim_run(&kit.sim, 500), SIM_UNTIL); /* sent, not yet there */
    CHECK_EQ(kit_word(&kit, WORD(0)), 0);
    sim_process_crash(a.process);
    sim_ep_free(a.ep);
    sim_process_crash(reader.process);
    sim_ep_free(reader.ep);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(kit_word(&kit, WORD(0)), 1);
    CHECK_EQ(a.count, 0);
    CHECK_EQ(reader.count, 0);
    CHECK_EQ(reader.seen[0], 0);
    kit_close(&kit);
}

struct fence_job {
    struct actor *by;
    uint32_t peer;
    uint64_t proof, word_then;
};

static void fence_peer(void *arg)
{
    struct fence_job *job = arg;
    while ((job->by->rc = fab_fence(job->by->ep, job->peer, job->proof)) == -EAGAIN)
        ;
    job->word_then = kit_word(job->by->kit, WORD(0));
}

static void add_until_error(void *arg)
{
    struct actor *a = arg;
    uint64_t old;
    while (!(a->rc = fab_faa64(a->ep, WORD(0), 1, &old)))
        ;
}

static void test_fence(void)
{
    static struct kit kit;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        open_default(&kit, seed, seed % 2 ? FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_UNKNOWN) : 0, 3);
        struct actor victim = actor_on(&kit, 1), by = actor_on(&kit, 2);
        sim_spawn(victim.process, "victim", add_until_error, &victim);
        struct fence_job job = {.by = &by, .peer = victim.ep->id, .proof = victim.process->generation};
        sim_run(&kit.sim, 20 * NS_PER_US);
        sim_spawn(by.process, "fencer", fence_peer, &job);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(by.rc, 0);
        CHECK_EQ(kit_word(&kit, WORD(0)), job.word_then); /* nothing came after */
        CHECK(victim.rc == -FAB_EFENCED || victim.rc == -FAB_EUNKNOWN);
        /* The next generation is not shut out. */
        sim_process_crash(victim.process);
        sim_process_restart(victim.process);
        sim_heal(&kit.sim);
        sim_ep_free(victim.ep);
        victim.ep = sim_ep_new(kit.fabric, victim.process);
        sim_spawn(victim.process, "reborn", add_once, &victim);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(victim.rc, 0);
        kit_close(&kit);
    }
}

static void use_across_restart(void *arg)
{
    struct actor *a = arg;
    uint64_t old;
    CHECK_EQ(fab_faa64(a->ep, WORD(0), 1, &old), 0);
    sim_host_crash(a->kit->sim.hosts[0]);
    CHECK_EQ(fab_faa64(a->ep, WORD(0), 1, &old), -FAB_EUNKNOWN);
    sim_host_restart(a->kit->sim.hosts[0]);
    CHECK_EQ(fab_faa64(a->ep, WORD(0), 1, &old), -FAB_EFENCED);
    CHECK_EQ(kit_word(a->kit, WORD(0)), 0);
    fab_post64(a->ep, WORD(0), 7); /* its error surfaces at the next verb */
    CHECK_EQ(fab_wait_any(a->ep, NULL, 0, world_now(a->ep->world) + 10000), -ETIMEDOUT);
    CHECK_EQ(fab_read64(a->ep, WORD(0), &old), -FAB_EFENCED);
    sim_ep_reconnect(a->ep);
    CHECK_EQ(fab_read64(a->ep, WORD(0), &old), 0);
    CHECK_EQ(old, 0);
    a->count = 1;
}

static void test_server_restart(void)
{
    static struct kit kit;
    open_default(&kit, 1, 0, 2);
    struct actor a = actor_on(&kit, 1);
    sim_spawn(a.process, "client", use_across_restart, &a);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(a.count, 1);
    kit_close(&kit);
}

int main(void)
{
    test_unknown();
    test_unknown_elsewhere();
    test_at_most_once();
    test_partition();
    test_in_flight();
    test_fence();
    test_server_restart();
    return 0;
}
