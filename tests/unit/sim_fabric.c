/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of fabric.h while nothing fails, in the simulation, and the adversities within these promises. */
#include "tests/unit/sim_kit.h"

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
    CHECK_EQ(fab_mcas64(a->ep, WORD(1), UINT64_C(3) << 32, UINT64_MAX << 32, 9, UINT32_MAX, &old), 0); /* compares other bits */
    CHECK_EQ(old, UINT64_C(0x0000000400000000));
    CHECK_EQ(fab_mcas64(a->ep, WORD(1), 0, 0, 7, UINT32_MAX, &old), 0); /* a masked swap by that name */
    struct fab_op swap = {
        .verb = FAB_SWAP, .width = 8, .masked = true, .addr = WORD(1), .swap = UINT64_C(5) << 32, .swap_mask = UINT64_MAX << 32};
    CHECK_EQ(fab_batch(a->ep, &swap, 1), 0);
    CHECK_EQ((uint64_t)swap.old, UINT64_C(0x0000000400000007));
    CHECK_EQ(kit_word(a->kit, WORD(1)), UINT64_C(0x0000000500000007));
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
    for (uint32_t masked = 0; masked <= FAB_MASKED; masked += FAB_MASKED_SWAP) { /* of its own, and lowered: every set */
        const struct sim_config config = {.seed = 1};
        kit_open(&kit, &config, FAB_ATOMIC128 | FAB_ORDERED | masked, 2);
        struct actor a = actor_on(&kit, 1);
        sim_spawn(a.process, "verbs", run_verbs, &a);
        CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(a.count, 1);
        unsigned swap = masked & (FAB_MASKED_SWAP | FAB_MASKED_CAS) ? 1 : 2; /* one stands in for the other */
        CHECK_EQ(a.ep->counts.round_trips, 12 + 2 * swap + !(masked & FAB_MASKED_CAS) + !(masked & FAB_MASKED_FAA));
        kit_close(&kit);
    }
}

/* ---- order: what may pass what in a batch ---- */

struct pass {
    uint8_t first, second;
    uint32_t promised_by;
};

/* Each shows by one word whether the second verb passed the first. */
static const struct pass passes[] = {
    {FAB_READ, FAB_WRITE, FAB_ORDER_WRITE_AFTER_READ},
    {FAB_WRITE, FAB_FAA, FAB_ORDER_MIXED},
    {FAB_FAA, FAB_READ, FAB_ORDER_MIXED},
    {FAB_FAA, FAB_WRITE, FAB_ORDER_MIXED},
    {FAB_READ, FAB_FAA, FAB_ORDER_MIXED},
    {FAB_WRITE, FAB_READ, 0},
};

static struct fab_op litmus_op(uint8_t verb, uint64_t *value)
{
    if (verb == FAB_FAA)
        return (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = WORD(0), .swap = 1};
    return (struct fab_op){.verb = verb, .addr = WORD(0), .len = 8, .buf = value};
}

static bool litmus(struct actor *a, const struct pass *p, bool fence, uint64_t i)
{
    uint64_t was = 1000 * i, values[2] = {was + 500, was + 500};
    CHECK_EQ(fab_write64(a->ep, WORD(0), was), 0);
    struct fab_op ops[2] = {litmus_op(p->first, &values[0]), litmus_op(p->second, &values[1])};
    if (fence)
        fab_keep_order(a->ep, ops, 2);
    CHECK(!ops[0].fence && (fence || !ops[1].fence));
    CHECK_EQ(fab_batch(a->ep, ops, 2), 0);
    if (p->first == FAB_READ || p->first == FAB_FAA)
        return (p->first == FAB_READ ? values[0] : (uint64_t)ops[0].old) != was || (p->second == FAB_READ && values[1] == was);
    return (p->second == FAB_READ ? values[1] : (uint64_t)ops[1].old) != was + 500;
}

static uint32_t litmus_mistakes;

static void run_litmus(void *arg)
{
    struct actor *a = arg;
    for (size_t p = 0; p < countof(passes); p++)
        for (unsigned fence = 0; fence < 2; fence++) {
            unsigned passed = 0;
            for (uint64_t i = 1; i <= 200; i++)
                passed += litmus(a, &passes[p], fence, i);
            bool promised = !passes[p].promised_by || fab_has(a->ep->caps, passes[p].promised_by);
            if (promised && passes[p].promised_by && litmus_mistakes & SIM_FABRIC_UNORDERED)
                promised = false;
            if (fence && !(litmus_mistakes & SIM_FABRIC_UNFENCED) && !fab_has(a->ep->caps, FAB_ORDERED))
                promised = true;
            if (promised != !passed)
                CHECK_FAIL("%u then %u%s: passed %u times of 200", passes[p].first, passes[p].second, fence ? ", fenced" : "",
                           passed);
        }
    a->rc = 1;
}

static void test_passing(void)
{
    static struct kit kit;
    static const uint32_t orders[] = {FAB_ORDERED, FAB_ORDER_MIXED, FAB_ORDER_WRITE_AFTER_READ, 0};
    for (size_t i = 0; i < countof(orders); i++)
        for (litmus_mistakes = 0; litmus_mistakes <= (SIM_FABRIC_UNORDERED | SIM_FABRIC_UNFENCED); litmus_mistakes++) {
            const struct sim_config config = {.seed = i + 1};
            kit_open(&kit, &config, FAB_ATOMIC128 | orders[i], 2);
            sim_fabric_break(kit.fabric, litmus_mistakes);
            struct actor a = actor_on(&kit, 1);
            sim_spawn(a.process, "litmus", run_litmus, &a);
            CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
            CHECK_EQ(a.rc, 1);
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

/* A verb behind an atomic that waits for its turn on a hot address waits, too; and until it has written, where that takes time for
 * all to see: where there are plain writes, too. */
static void add_and_read_hot(void *arg)
{
    struct actor *a = arg;
    if (a->rc)
        CHECK_EQ(fab_write64(a->ep, WORD(8), 1), 0);
    for (int i = 0; i < 500; i++) {
        uint64_t value;
        struct fab_op ops[2] = {{.verb = FAB_FAA, .width = 8, .addr = WORD(0), .swap = 1},
                                {.verb = FAB_READ, .addr = WORD(0), .len = 8, .buf = &value}};
        CHECK_EQ(fab_batch(a->ep, ops, 2), 0);
        CHECK(value > ops[0].old);
    }
}

static void test_order_hot(bool writes)
{
    static struct kit kit;
    open_default(&kit, 1, 0, 3);
    struct actor actors[8];
    for (unsigned i = 0; i < countof(actors); i++) {
        actors[i] = actor_on(&kit, 1 + i % 2);
        actors[i].rc = writes;
        sim_spawn(actors[i].process, "adder", add_and_read_hot, &actors[i]);
    }
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(kit_word(&kit, WORD(0)), 8 * 500);
    kit_close(&kit);
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
#define FEW 40 /* so many fit a mailbox */

static void send_numbers(void *arg)
{
    struct actor *a = arg;
    for (uint64_t i = 0; i < a->seen[2]; i++) {
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
        sender.seen[2] = MESSAGES;
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

/* ---- messages to endpoints that are bound to senders ---- */

enum { BOUND = 3, BOUND_SENDERS = 7 };

static void receive_bound(void *arg)
{
    struct actor *a = arg;
    struct fab_msg msg;
    while (!(a->rc = fab_recv(a->ep, &msg, world_now(a->ep->world) + 10 * NS_PER_MS))) {
        CHECK_EQ(msg.from % BOUND, a->seen[0]);
        a->count++;
        fab_wait_any(a->ep, NULL, 0, world_now(a->ep->world) + 3000); /* so that messages for others lie before its own */
    }
}

/* The cores of a server share a mailbox, and each takes the messages of its senders alone, in their order. */
static void test_bound(void)
{
    static struct kit kit;
    open_default(&kit, 5, 0, 3);
    struct actor cores[BOUND], senders[BOUND_SENDERS];
    cores[0] = actor_on(&kit, 0);
    for (unsigned i = 0; i < BOUND; i++) {
        cores[i] = cores[0];
        cores[i].ep = sim_ep_new(kit.fabric, cores[0].process);
        cores[i].seen[0] = i;
        sim_ep_receive_from(cores[i].ep, i, BOUND);
        sim_spawn(cores[0].process, "core", receive_bound, &cores[i]);
    }
    for (unsigned i = 0; i < BOUND_SENDERS; i++) {
        senders[i] = actor_on(&kit, 1 + i % 2);
        senders[i].seen[0] = cores[0].ep->id;
        senders[i].seen[2] = FEW;
        sim_spawn(senders[i].process, "sender", send_numbers, &senders[i]);
    }
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(cores[0].count + cores[1].count + cores[2].count, BOUND_SENDERS * FEW);
    for (unsigned i = 0; i < BOUND; i++)
        CHECK(cores[i].count >= 2 * FEW && cores[i].rc == -ETIMEDOUT);
    kit_close(&kit);
}

/* ---- connections ---- */

static void touch_host(void *arg)
{
    struct actor *a = arg;
    uint64_t word;
    struct fab_op op = {.verb = FAB_READ, .len = 8, .addr = FAB_ADDR(a->seen[0], 0), .buf = &word};
    CHECK_EQ(fab_batch(a->ep, &op, 1), 0);
}

/* How many contexts the NICs of both hosts of three threads each have to keep, when each thread has used that host. */
static void count_contexts(bool pairs, unsigned used, uint32_t *first, uint32_t *second)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 1, .model = &kit.model};
    kit.model = *model_find("default");
    CHECK_EQ(model_set(&kit.model, "thread_pairs", pairs), 0);
    kit_open(&kit, &config, SIM_FABRIC_CAPS, 2);
    struct actor actors[6];
    for (unsigned i = 0; i < countof(actors); i++) {
        actors[i] = actor_on(&kit, i % 2);
        actors[i].seen[0] = used < 2 ? used : (i + 1) % 2;
        sim_spawn(actors[i].process, "thread", touch_host, &actors[i]);
    }
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    *first = kit.sim.hosts[0]->nic.connections;
    *second = kit.sim.hosts[1]->nic.connections;
    for (unsigned i = 0; i < countof(actors); i++)
        sim_ep_forget_contexts(actors[i].ep);
    CHECK(!kit.sim.hosts[0]->nic.connections && !kit.sim.hosts[1]->nic.connections);
    kit_close(&kit);
}

static void test_contexts(void)
{
    uint32_t first, second;
    count_contexts(false, 0, &first, &second); /* all use host 0: three from there, three from host 1 */
    CHECK(first == 6 && second == 3);
    count_contexts(true, 0, &first, &second); /* nine pairs with both ends at host 0, nine with one end at each */
    CHECK(first == 2 * 9 + 9 && second == 9);
    count_contexts(true, 2, &first, &second); /* each thread uses the other host */
    CHECK(first == 18 && second == 18);
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
    test_passing();
    test_order();
    test_order_hot(false);
    test_order_hot(true);
    test_tearing();
    test_wait();
    test_messages();
    test_bound();
    test_contexts();
    test_rates();
    return 0;
}
