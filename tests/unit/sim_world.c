/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cluster below fabric and wire: heap, clocks, tasks, crashes, pauses, faults, determinism. */
#include "tests/unit/sim_kit.h"

/* ---- the heap ---- */

static void nothing(void *arg, uint64_t tag)
{
    (void)arg, (void)tag;
}

static void test_heap(void)
{
    enum { EVENTS = 5000 };
    struct sim_heap heap;
    struct rng random;
    rng_seed(&random, 7);
    uint64_t pushed = 0, popped = 0, last_ns = 0, last_sequence = 0;
    CHECK_EQ(sim_heap_init(&heap), 0);
    while (popped < EVENTS) {
        if (pushed < EVENTS && (heap.count == 0 || rng_below(&random, 3))) {
            /* Few distinct times, so that order of insertion decides; never before what was popped. */
            const struct sim_event event = {.fn = nothing, .tag = pushed++};
            sim_heap_push(&heap, last_ns + rng_below(&random, 4), &event);
            continue;
        }
        uint64_t at_ns, sequence;
        struct sim_event event = sim_heap_pop(&heap, &at_ns, &sequence);
        CHECK_EQ(event.tag, sequence);
        CHECK(at_ns >= last_ns);
        CHECK(!popped || at_ns > last_ns || sequence > last_sequence);
        last_ns = at_ns;
        last_sequence = sequence;
        popped++;
    }
    CHECK_EQ(heap.count, 0);
    sim_heap_free(&heap);
}

/* ---- clocks ---- */

static void test_clock(void)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 3, .faults = FAULT_BIT(FAULT_DRIFT)};
    kit_open(&kit, &config, 0, 8);
    bool differ = false;
    for (unsigned i = 0; i < 8; i++) {
        struct sim_host *host = kit.sim.hosts[i];
        CHECK(host->drift_ppb >= -50000 && host->drift_ppb <= 50000);
        differ |= host->drift_ppb != kit.sim.hosts[0]->drift_ppb;
        CHECK_EQ(world_now(&host->world), host->offset_ns);
        int64_t gained = (int64_t)(sim_host_clock(host, 10 * NS_PER_S) - host->offset_ns - 10 * NS_PER_S);
        CHECK_EQ(gained, 10 * host->drift_ppb);
        struct rng random;
        rng_seed(&random, i);
        for (int k = 0; k < 1000; k++) {
            uint64_t clock_ns = host->offset_ns + rng_below(&random, 100 * NS_PER_S);
            uint64_t virtual_ns = sim_host_clock_inverse(host, clock_ns);
            CHECK(sim_host_clock(host, virtual_ns) >= clock_ns);
            CHECK(!virtual_ns || sim_host_clock(host, virtual_ns - 1) < clock_ns);
        }
        CHECK_EQ(sim_host_clock_inverse(host, DEADLINE_NEVER), DEADLINE_NEVER);
        CHECK_EQ(world_birth(&host->world), UINT64_C(1) << 32);
    }
    CHECK(differ);
    CHECK_EQ(kit.sim.faults.counts[FAULT_DRIFT], 8);
    kit_close(&kit);
}

/* ---- tasks ---- */

struct sleeper {
    struct fab_ep *ep;
    uint64_t sleep_ns, woke_ns, rounds;
    int rc;
};

static void sleep_once(void *arg)
{
    struct sleeper *s = arg;
    s->rc = fab_wait_any(s->ep, NULL, 0, add_saturating(world_now(s->ep->world), s->sleep_ns));
    s->woke_ns = sim_now(container_of(s->ep->world, struct sim_host, world)->sim);
}

static void sleep_for_ever(void *arg)
{
    struct sleeper *s = arg;
    for (;; s->rounds++)
        fab_wait_any(s->ep, NULL, 0, world_now(s->ep->world) + s->sleep_ns);
}

static void test_cancel_and_pause(void)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 4};
    kit_open(&kit, &config, 0, 2);
    struct sim_process *process;
    struct sleeper a = {.sleep_ns = 1000}, b = {.sleep_ns = UINT64_MAX}, c = {.sleep_ns = 500};
    a.ep = kit_ep(&kit, 1, &process);
    b.ep = kit_ep(&kit, 1, NULL);
    c.ep = kit_ep(&kit, 1, NULL);
    sim_process_pause(process, 5000);
    sim_spawn(process, "paused", sleep_once, &a);
    struct sim_task *task = sim_spawn(kit.sim.processes[1], "cancelled", sleep_once, &b);
    struct sim_task *early = sim_spawn(kit.sim.processes[2], "early", sleep_once, &c);
    sim_task_cancel(early); /* before it waits: the next wait ends at once */
    CHECK_EQ(sim_run(&kit.sim, 3000), SIM_UNTIL);
    CHECK_EQ(c.rc, -ECANCELED);
    CHECK_EQ(c.woke_ns, 0);
    sim_task_cancel(task);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(b.rc, -ECANCELED);
    CHECK_EQ(b.woke_ns, 3000);
    CHECK_EQ(a.rc, -ETIMEDOUT);
    CHECK_EQ(a.woke_ns, 6000); /* started when the pause ended */
    CHECK_EQ(kit.sim.tasks_live, 0);
    kit_close(&kit);
}

struct crash_log {
    unsigned crashed, restarted, server_crashed, server_restarted, healed;
};

static void log_crash(void *ctx, struct sim_process *process)
{
    CHECK(!process->alive && !process->tasks);
    ((struct crash_log *)ctx)->crashed++;
}

static void log_restart(void *ctx, struct sim_process *process)
{
    CHECK(process->alive);
    ((struct crash_log *)ctx)->restarted++;
}

static void log_server_crash(void *ctx, struct sim_host *host)
{
    CHECK(!host->up);
    ((struct crash_log *)ctx)->server_crashed++;
}

static void log_server_restart(void *ctx, struct sim_host *host)
{
    CHECK(host->up);
    ((struct crash_log *)ctx)->server_restarted++;
}

static void log_heal(void *ctx)
{
    ((struct crash_log *)ctx)->healed++;
}

static struct sim_hooks log_hooks(struct crash_log *log)
{
    return (struct sim_hooks){.ctx = log,
                              .process_crashed = log_crash,
                              .process_restarted = log_restart,
                              .server_crashed = log_server_crash,
                              .server_restarted = log_server_restart,
                              .healed = log_heal};
}

static void crash_self(void *arg)
{
    struct sleeper *s = arg;
    fab_wait_any(s->ep, NULL, 0, world_now(s->ep->world) + 100);
    sim_process_crash(container_of(s->ep->world, struct sim_host, world)->sim->processes[s->ep->id]);
    s->rounds = 1; /* not reached */
}

static void test_crash(void)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 5};
    kit_open(&kit, &config, 0, 2);
    struct crash_log log = {0};
    const struct sim_hooks hooks = log_hooks(&log);
    sim_hooks_add(&kit.sim, &hooks);
    struct sim_process *process;
    struct sleeper a = {.sleep_ns = 10};
    struct sleeper b = {.sleep_ns = 10};
    a.ep = b.ep = kit_ep(&kit, 1, &process);
    sim_spawn(process, "other", sleep_for_ever, &a);
    sim_spawn(process, "self", crash_self, &b);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE); /* ends, because both tasks are gone */
    CHECK_EQ(log.crashed, 1);
    CHECK_EQ(b.rounds, 0);
    CHECK_BETWEEN(a.rounds, 8, 10);
    CHECK_EQ(kit.sim.tasks_live, 0);
    sim_process_restart(process);
    CHECK_EQ(process->generation, 2);
    sim_host_crash(kit.sim.hosts[1]);
    sim_host_restart(kit.sim.hosts[1]);
    CHECK_EQ(process->generation, 3);
    CHECK_EQ(kit.sim.hosts[1]->births, 2);
    CHECK_EQ(log.server_crashed, 1);
    CHECK_EQ(log.restarted, 2);
    kit_close(&kit);
}

/* ---- faults and determinism ---- */

struct client {
    struct kit *kit;
    struct fab_ep *ep;
    uint64_t ops;
};

static void client_run(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < 2000; i++) {
        uint64_t old, random = world_random(c->ep->world);
        fab_addr addr = FAB_ADDR(0, random % 64 * 8);
        int rc = fab_faa64(c->ep, addr, 1, &old);
        if (rc == -FAB_EFENCED)
            sim_ep_reconnect(c->ep);
        c->ops += !rc;
        fab_send(c->ep, (uint32_t)(random >> 32) % 4, &old, 8);
        struct fab_msg msg;
        fab_recv(c->ep, &msg, DEADLINE_TRY);
    }
}

static void client_again(void *ctx, struct sim_process *process)
{
    struct client *c = (struct client *)ctx + process->id;
    sim_ep_free(c->ep);
    c->ep = sim_ep_new(c->kit->fabric, process);
    sim_spawn(process, "client", client_run, c);
}

struct outcome {
    uint64_t hash, events, now_ns, counts[FAULT_KINDS];
};

static struct outcome run_faults(uint64_t seed, uint32_t faults)
{
    static struct kit kit;
    const struct sim_config config = {
        .seed = seed, .faults = faults, .faults_certain = faults, .safety_ns = 200 * NS_PER_MS, .events_max = 20000000};
    kit_open(&kit, &config, SIM_FABRIC_CAPS, 4);
    struct client clients[4];
    const struct sim_hooks hooks = {.ctx = clients, .process_restarted = client_again};
    sim_hooks_add(&kit.sim, &hooks);
    for (unsigned i = 0; i < 4; i++) {
        struct sim_process *process;
        clients[i] = (struct client){.kit = &kit, .ep = kit_ep(&kit, 1 + i % 3, &process)};
        process->crashable = true;
        sim_spawn(process, "client", client_run, &clients[i]);
    }
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    struct outcome outcome = {.hash = kit.sim.hash, .events = kit.sim.events, .now_ns = kit.sim.now_ns};
    memcpy(outcome.counts, kit.sim.faults.counts, sizeof outcome.counts);
    kit_close(&kit);
    return outcome;
}

static void test_determinism(void)
{
    uint64_t totals[FAULT_KINDS] = {0};
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct outcome a = run_faults(seed, FAULTS_ALL), b = run_faults(seed, FAULTS_ALL), c = run_faults(seed, 0);
        CHECK(!memcmp(&a, &b, sizeof a));
        CHECK(a.hash != c.hash);
        CHECK(a.hash != run_faults(seed + 100, FAULTS_ALL).hash);
        for (unsigned kind = 0; kind < FAULT_DRAWN; kind++) {
            totals[kind] += a.counts[kind];
            CHECK_EQ(c.counts[kind], 0);
        }
    }
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++) {
        printf("%s: %" PRIu64 "\n", fault_name(kind), totals[kind]);
        CHECK(totals[kind] > 0 || kind == FAULT_CRASH_SWITCH); /* there is no switch here */
    }
    CHECK(run_faults(1, 0).hash == run_faults(1, 0).hash);
}

/* With tracing on the same happens, and can be read. */
static void test_trace(void)
{
    static struct kit kit;
    uint64_t hashes[2];
    char *text = NULL;
    size_t size = 0;
    for (unsigned traced = 0; traced < 2; traced++) {
        FILE *trace = traced ? open_memstream(&text, &size) : NULL;
        const struct sim_config config = {.seed = 8, .trace = trace};
        kit_open(&kit, &config, SIM_FABRIC_CAPS, 2);
        struct sim_process *process;
        struct client client = {.kit = &kit, .ep = kit_ep(&kit, 1, &process)};
        sim_spawn(process, "client", client_run, &client);
        CHECK_EQ(sim_run(&kit.sim, 10 * NS_PER_US), SIM_UNTIL);
        hashes[traced] = kit.sim.hash;
        kit_close(&kit);
        if (trace)
            fclose(trace);
    }
    CHECK(hashes[0] == hashes[1]);
    CHECK(strstr(text, " h0 faa 0x") && strstr(text, "h1/p0.1/client#0 goes on"));
    free(text);
}

static void test_bounds(void)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 6, .events_max = 100, .time_max_ns = NS_PER_S, .tasks_max = 2};
    kit_open(&kit, &config, 0, 1);
    struct sim_process *process;
    struct sleeper a = {.sleep_ns = 10};
    a.ep = kit_ep(&kit, 0, &process);
    CHECK(sim_spawn(process, "a", sleep_for_ever, &a));
    CHECK(sim_spawn(process, "b", sleep_once, &a));
    CHECK(!sim_spawn(process, "c", sleep_once, &a));
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_EVENTS_END);
    kit.sim.config.events_max = UINT64_MAX;
    a.sleep_ns = NS_PER_MS;
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_TIME_END);
    CHECK(sim_now(&kit.sim) <= NS_PER_S);
    kit_close(&kit);
}

int main(void)
{
    test_heap();
    test_clock();
    test_cancel_and_pause();
    test_crash();
    test_determinism();
    test_trace();
    test_bounds();
    return 0;
}
