/* What fabric.h promises, in the simulation, and what the simulation does on purpose within these promises. */
#include "tests/unit/sim_kit.h"

#define WORD(i) FAB_ADDR(0, (uint64_t)(i)*8)

struct actor {
    struct kit *kit;
    struct fab_ep *ep;
    struct sim_process *process;
    uint64_t seen[8];
    unsigned count;
    int rc;
};

static void open_default(struct kit *kit, uint64_t seed, uint32_t faults, unsigned hosts)
{
    const struct sim_config config = {
        .seed = seed, .faults = faults, .faults_certain = faults, .safety_ns = faults ? 10 * NS_PER_S : 0};
    kit_open(kit, &config, SIM_FABRIC_CAPS, hosts);
}

static struct actor actor_on(struct kit *kit, unsigned host)
{
    struct actor a = {.kit = kit};
    a.ep = kit_ep(kit, host, &a.process);
    return a;
}

/* ---- verbs ---- */

static void run_verbs(void *arg)
{
    struct actor *a = arg;
    uint64_t old, words[4] = {1, 2, 3, 4}, back[4];
    u128 wide;
    CHECK_EQ(fab_cas64(a->ep, WORD(0), 0, 5, &old), 0);
    CHECK_EQ(old, 0);
    CHECK_EQ(fab_cas64(a->ep, WORD(0), 0, 6, &old), 0);
    CHECK_EQ(old, 5);
    CHECK_EQ(fab_faa64(a->ep, WORD(0), 10, &old), 0);
    CHECK_EQ(fab_swap64(a->ep, WORD(0), 7, &old), 0);
    CHECK_EQ(old, 15);
    CHECK_EQ(fab_write(a->ep, WORD(8), words, sizeof words), 0);
    CHECK_EQ(fab_read(a->ep, WORD(8), back, sizeof back), 0);
    CHECK(!memcmp(words, back, sizeof words));
    /* Masked: the upper half is compared, the lower replaced; two fields add without a carry between them. */
    CHECK_EQ(fab_write64(a->ep, WORD(1), UINT64_C(0x00000003ffffffff)), 0);
    CHECK_EQ(fab_mcas64(a->ep, WORD(1), UINT64_C(3) << 32, UINT64_MAX << 32, 9, UINT32_MAX, &old), 0);
    CHECK_EQ(kit_word(a->kit, WORD(1)), UINT64_C(0x0000000300000009));
    CHECK_EQ(fab_mfaa64(a->ep, WORD(1), UINT64_C(0x00000001fffffff7), UINT64_C(0x8000000080000000), &old), 0);
    CHECK_EQ(kit_word(a->kit, WORD(1)), UINT64_C(0x0000000400000000));
    CHECK_EQ(fab_cas128(a->ep, WORD(2), 0, (u128)1 << 64 | 2, &wide), 0);
    CHECK_EQ(fab_faa128(a->ep, WORD(2), UINT64_MAX, &wide), 0);
    CHECK(wide == ((u128)1 << 64 | 2));
    CHECK_EQ(kit_word(a->kit, WORD(2)), 1);
    CHECK_EQ(kit_word(a->kit, WORD(3)), 2);
    a->count = 1;
}

static void test_verbs(void)
{
    static struct kit kit;
    for (unsigned caps = 0; caps < 2; caps++) { /* masked verbs of its own, and lowered */
        const struct sim_config config = {.seed = 1};
        kit_open(&kit, &config, FAB_ATOMIC128 | (caps ? FAB_MASKED : 0), 2);
        struct actor a = actor_on(&kit, 1);
        sim_spawn(a.process, "verbs", run_verbs, &a);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(a.count, 1);
        CHECK_EQ(a.ep->counts.round_trips, caps ? 11 : 13);
        kit_close(&kit);
    }
}

/* ---- order: a flag posted after its data is never seen before it ---- */

static void post_data_then_flag(void *arg)
{
    struct actor *a = arg;
    for (uint64_t i = 1; i <= 2000; i++) {
        fab_post64(a->ep, WORD(0), i);
        fab_post64(a->ep, WORD(1), i);
        uint64_t old;
        if (i % 8 == 0)
            fab_faa64(a->ep, WORD(2), 1, &old);
    }
}

static void read_flag_then_data(void *arg)
{
    struct actor *a = arg;
    uint64_t flag = 0, data;
    while (flag < 2000) {
        if (fab_read64(a->ep, WORD(1), &flag) || fab_read64(a->ep, WORD(0), &data))
            continue;
        CHECK(data >= flag);
        if (a->count++ > 100000)
            return;
    }
    a->rc = 1;
}

static void test_order(void)
{
    static struct kit kit;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        open_default(&kit, seed, seed == 1 ? 0 : FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY), 3);
        struct actor writer = actor_on(&kit, 1), reader = actor_on(&kit, 2);
        sim_spawn(writer.process, "writer", post_data_then_flag, &writer);
        sim_spawn(reader.process, "reader", read_flag_then_data, &reader);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(reader.rc, 1);
        kit_close(&kit);
    }
}

/* ---- tearing: 16 bytes written at once are seen half old, half new ---- */

static void write_pairs(void *arg)
{
    struct actor *a = arg;
    for (uint64_t i = 1; i <= 3000; i++)
        CHECK_EQ(fab_write(a->ep, WORD(0), (uint64_t[2]){i, i}, 16), 0);
}

static void read_pairs(void *arg)
{
    struct actor *a = arg;
    for (int i = 0; i < 3000; i++) {
        uint64_t pair[2];
        CHECK_EQ(fab_read(a->ep, WORD(0), pair, sizeof pair), 0);
        a->count += pair[0] != pair[1];
    }
}

static void test_tearing(void)
{
    static struct kit kit;
    open_default(&kit, 1, 0, 3);
    struct actor writer = actor_on(&kit, 1), reader = actor_on(&kit, 2);
    sim_spawn(writer.process, "writer", write_pairs, &writer);
    sim_spawn(reader.process, "reader", read_pairs, &reader);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK(reader.count > 0);
    kit_close(&kit);
}

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

static void test_in_flight(void)
{
    static struct kit kit;
    open_default(&kit, 1, 0, 2);
    struct actor a = actor_on(&kit, 1);
    sim_spawn(a.process, "dies", add_once, &a);
    CHECK_EQ(sim_run(&kit.sim, 500), SIM_UNTIL); /* sent, not yet there */
    CHECK_EQ(kit_word(&kit, WORD(0)), 0);
    sim_process_crash(a.process);
    sim_ep_free(a.ep);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(kit_word(&kit, WORD(0)), 1);
    CHECK_EQ(a.count, 0);
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

/* ---- waiting ---- */

static void wait_for_word(void *arg)
{
    struct actor *a = arg;
    fab_addr addr = FAB_ADDR(a->count, 0);
    a->rc = fab_wait(a->ep, addr, UINT32_MAX, 0, world_now(a->ep->world) + NS_PER_MS);
    a->seen[0] = sim_now(&a->kit->sim);
}

static void write_after(void *arg)
{
    struct actor *a = arg;
    fab_wait_any(a->ep, NULL, 0, world_now(a->ep->world) + 100 * NS_PER_US);
    a->rc = fab_write64(a->ep, FAB_ADDR(a->count, 0), 1);
}

static void test_wait(void)
{
    static struct kit kit;
    for (unsigned node = 0; node < 2; node++) { /* another node's word, the own node's word */
        open_default(&kit, 1, 0, 3);
        struct actor waiter = actor_on(&kit, 1), writer = actor_on(&kit, 2), idle = actor_on(&kit, 1);
        waiter.count = writer.count = node;
        idle.count = 2;
        sim_spawn(waiter.process, "waiter", wait_for_word, &waiter);
        sim_spawn(idle.process, "idle", wait_for_word, &idle);
        sim_spawn(writer.process, "writer", write_after, &writer);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(waiter.rc, 0);
        CHECK_BETWEEN(waiter.seen[0], 101 * NS_PER_US, 106 * NS_PER_US);
        CHECK_EQ(idle.rc, -ETIMEDOUT);
        CHECK_BETWEEN(idle.seen[0], NS_PER_MS, NS_PER_MS + 5000);
        CHECK(node ? waiter.ep->counts.reads == 0 : waiter.ep->counts.reads > 20);
        kit_close(&kit);
    }
}

/* ---- messages ---- */

#define MESSAGES 2000

static void send_numbers(void *arg)
{
    struct actor *a = arg;
    for (uint64_t i = 0; i < MESSAGES; i++) {
        CHECK_EQ(fab_send(a->ep, (uint32_t)a->seen[0], &i, sizeof i), 0);
        fab_wait_any(a->ep, NULL, 0, world_now(a->ep->world) + 1000);
    }
}

static void receive_numbers(void *arg)
{
    struct actor *a = arg;
    struct fab_msg msg;
    uint64_t number, next = 0;
    while (!(a->rc = fab_recv(a->ep, &msg, world_now(a->ep->world) + 10 * NS_PER_MS))) {
        CHECK_EQ(msg.len, 8);
        memcpy(&number, msg.data, sizeof number);
        a->count++;
        a->seen[1] += number < next; /* doubled or overtaken */
        next = max_u64(next, number + 1);
    }
}

static void test_messages(void)
{
    static struct kit kit;
    static const uint32_t mixes[] = {0, FAULT_BIT(FAULT_LOSS), FAULT_BIT(FAULT_DUPLICATE), FAULT_BIT(FAULT_REORDER)};
    for (unsigned i = 0; i < countof(mixes); i++) {
        open_default(&kit, 5, mixes[i], 3);
        struct actor sender = actor_on(&kit, 1), receiver = actor_on(&kit, 2);
        sender.seen[0] = receiver.ep->id;
        sim_spawn(receiver.process, "receiver", receive_numbers, &receiver);
        sim_spawn(sender.process, "sender", send_numbers, &sender);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(receiver.rc, -ETIMEDOUT);
        const uint64_t *counts = kit.sim.faults.counts;
        CHECK_EQ(receiver.count, MESSAGES + counts[FAULT_DUPLICATE] - counts[FAULT_LOSS]);
        if (mixes[i])
            CHECK(counts[FAULT_LOSS] + counts[FAULT_DUPLICATE] + counts[FAULT_REORDER] > 0);
        CHECK(mixes[i] & ~FAULT_BIT(FAULT_LOSS) ? receiver.seen[1] > 0 : receiver.seen[1] == 0);
        kit_close(&kit);
    }
}

/* ---- rates ---- */

static void read_much(void *arg)
{
    struct actor *a = arg;
    for (;;) {
        struct fab_op ops[16];
        uint64_t words[16];
        for (unsigned i = 0; i < 16; i++)
            ops[i] = a->count ? (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = WORD(0), .swap = 1}
                              : (struct fab_op){.verb = FAB_READ, .len = 8, .addr = WORD(i), .buf = &words[i]};
        CHECK_EQ(fab_batch(a->ep, ops, 16), 0);
        a->seen[0] += 16;
    }
}

/* Verbs per second that many clients get through one NIC. */
static uint64_t measure_rate(unsigned atomics, unsigned clients)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 1, .model = model_find("shiftlock-testbed")};
    kit_open(&kit, &config, SIM_FABRIC_CAPS, 6);
    struct actor actors[64];
    for (unsigned i = 0; i < clients; i++) {
        actors[i] = actor_on(&kit, 1 + i % 5);
        actors[i].count = atomics;
        sim_spawn(actors[i].process, "client", read_much, &actors[i]);
    }
    sim_run(&kit.sim, NS_PER_MS);
    uint64_t ops = 0;
    for (unsigned i = 0; i < clients; i++)
        ops += actors[i].seen[0];
    kit_close(&kit);
    return ops * 1000;
}

static void test_rates(void)
{
    const struct model *model = model_find("shiftlock-testbed");
    uint64_t read_rate = NS_PER_S / model_get(model, MODEL_inbound_read_ns);
    uint64_t same_rate = NS_PER_S / model_get(model, MODEL_atomic_same_ns);
    CHECK_BETWEEN(measure_rate(0, 64), read_rate * 95 / 100, read_rate);
    CHECK_BETWEEN(measure_rate(1, 64), same_rate * 90 / 100, same_rate);
    CHECK_BETWEEN(measure_rate(0, 1), 16 * NS_PER_S / 2600, 16 * NS_PER_S / 2000); /* alone: bound by the round trip */
}

int main(void)
{
    test_verbs();
    test_order();
    test_tearing();
    test_unknown();
    test_at_most_once();
    test_partition();
    test_in_flight();
    test_fence();
    test_server_restart();
    test_wait();
    test_messages();
    test_rates();
    return 0;
}
