/* SPDX-License-Identifier: Apache-2.0 */
/* The memory node over the simulated network: with lost, doubled, late and overtaken packets every verb takes effect once and in
 * order, waits end, a client that was shut out changes nothing any more; and an executor with a mistake is caught. */
#include "fabric/node_internal.h"
#include "tests/unit/sim_kit.h"
#include "workbench/trial/node_box.h"

#define MEMORY_BYTES (UINT64_C(1) << 20)
#define LEASE_NS (10 * NS_PER_S) /* no client is given up */
#define CLIENTS 4
#define ROUNDS 60
#define TASKS 2

/* Words of the node. */
enum { SUM = 0, PAIR = 2, NOTES = 16, FLAG = 8, TORN = 10 };

struct client {
    struct node_sim *ep;
    struct sim_process *process;
    struct field *field;
    unsigned number, done, finished;
    uint64_t wrong, unknown, added, won;
    int rc;
};

struct field {
    struct sim sim;
    struct sim_wire *wire;
    struct sim_process *server;
    struct node_box box;
    struct client clients[CLIENTS];
};

static void field_open(struct field *f, uint64_t seed, uint32_t faults, uint32_t can, uint64_t mistakes)
{
    memset(f, 0, sizeof *f);
    const struct sim_config config = {
        .seed = seed, .faults = faults, .faults_certain = faults, .safety_ns = 10 * NS_PER_S, .tasks_max = 32};
    CHECK_EQ(sim_init(&f->sim, &config), 0);
    f->wire = sim_wire_new(&f->sim);
    struct sim_host *host = sim_host_new(&f->sim);
    CHECK_EQ(sim_host_memory(host, MEMORY_BYTES), 0);
    f->server = sim_process_new(host);
    const struct node_box_params p = {.lease_ns = LEASE_NS, .clients = CLIENTS, .can = can, .mistakes = mistakes};
    CHECK_EQ(node_box_start(&f->box, f->wire, f->server, &p), 0);
    memnode_ready(f->box.node);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *c = &f->clients[i];
        c->field = f;
        c->number = i;
        c->process = sim_process_new(sim_host_new(&f->sim));
        c->ep = node_sim_new(f->wire, c->process, 10, node_box_addr(&f->box));
        CHECK(c->ep);
        c->ep->node.patience_ns = 10 * NS_PER_S; /* every outcome becomes known */
    }
}

static void field_close(struct field *f)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        node_sim_free(f->clients[i].ep);
    node_box_free(&f->box);
    sim_wire_free(f->wire);
    sim_free(&f->sim);
}

static uint64_t word(const struct field *f, unsigned i)
{
    return ((const uint64_t *)(const void *)f->server->host->memory)[i];
}

#define ALL_CAN (VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED | VERBS_CAN_WAIT)
#define PACKET_FAULTS (FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_DELAY))

static int connect_client(struct client *c)
{
    return fab_node_connect(&c->ep->node, NODE_BOX_SPACE, 100 + c->number, DEADLINE_NEVER);
}

/* ---- exact sums ---- */

/* A batch of verbs of every kind. In order: the READs before and after an addition to a word of the task's own differ by one. */
static void one_round(struct client *c, struct fab_ep *ep, unsigned task, uint64_t round)
{
    fab_addr mine = WORD(NOTES + 2 * (c->number * TASKS + task));
    uint64_t before = 0, after = 0;
    u128 pair;
    struct fab_op ops[] = {
        {.verb = FAB_FAA, .width = 8, .addr = WORD(SUM), .swap = 1},
        {.verb = FAB_READ, .len = 8, .addr = mine, .buf = &before},
        {.verb = FAB_FAA, .width = 8, .addr = mine, .swap = 1},
        {.verb = FAB_READ, .len = 8, .addr = mine, .buf = &after},
        {.verb = FAB_FAA, .width = 16, .masked = true, .addr = WORD(PAIR), .swap = (u128)1 << 64 | 1, .swap_mask = (u128)1 << 63},
    };
    int rc = fab_batch(ep, ops, countof(ops));
    c->unknown += rc == -FAB_EUNKNOWN;
    c->added++;
    if (!rc)
        c->wrong += before != round || after != round + 1 || (uint64_t)ops[2].old != round;
    uint64_t note = round;
    fab_post(ep, mine + 8, &note, sizeof note);
    node_flush(&c->ep->node); /* the READ that follows is in a packet of its own, and may overtake this one */
    if (fab_read64(ep, mine + 8, &note) == 0)
        c->wrong += note != round;
    if (fab_read128(ep, WORD(TORN), &pair) == 0 && fab_cas128(ep, WORD(TORN), pair, pair + ((u128)1 << 64 | 1), &pair) == 0)
        c->won++;
}

static void sum_task(void *arg)
{
    struct client *c = arg;
    struct fab_ep *ep = &c->ep->node.fab;
    unsigned task = c->done++;
    while (!c->ep->node.life)
        sim_task_wake_at(sim_current(&c->field->sim), sim_now(&c->field->sim) + NS_PER_MS),
            sim_task_block(sim_current(&c->field->sim));
    for (uint64_t i = 0; i < ROUNDS && c->rc == 0; i++)
        one_round(c, ep, task, i);
    if (++c->finished == TASKS)
        fab_node_leave(&c->ep->node, DEADLINE_NEVER);
}

static void begin_sums(void *arg)
{
    struct client *c = arg;
    c->rc = connect_client(c);
    CHECK_EQ(c->rc, 0);
    for (unsigned i = 0; i < TASKS; i++)
        CHECK(sim_spawn(c->process, "sums", sum_task, c));
}

struct verdict {
    uint64_t wrong, unknown, sum, pair_low, pair_high, added, retransmits, repeats;
};

static struct verdict run_sums(uint64_t seed, uint32_t faults, uint32_t can, uint64_t mistakes)
{
    struct field f;
    struct verdict v = {0};
    field_open(&f, seed, faults, can, mistakes);
    for (unsigned i = 0; i < CLIENTS; i++)
        CHECK(sim_spawn(f.clients[i].process, "begin", begin_sums, &f.clients[i]));
    sim_run(&f.sim, 8 * NS_PER_S);
    for (unsigned i = 0; i < CLIENTS; i++) {
        v.wrong += f.clients[i].wrong;
        v.unknown += f.clients[i].unknown;
        v.added += f.clients[i].added;
        v.retransmits += f.clients[i].ep->node.counts.retransmits;
    }
    v.sum = word(&f, SUM);
    v.pair_low = word(&f, PAIR);
    v.pair_high = word(&f, PAIR + 1);
    v.repeats = memnode_counts(f.box.node)->repeats;
    v.wrong += word(&f, TORN) != word(&f, TORN + 1);
    field_close(&f);
    return v;
}

static bool exact(struct verdict v)
{
    return !v.wrong && !v.unknown && v.added == CLIENTS * TASKS * ROUNDS && v.sum == v.added && v.pair_low == v.added &&
           v.pair_high == v.added;
}

static void test_exact_sums(void)
{
    uint64_t retransmits = 0, repeats = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct verdict v = run_sums(seed, seed % 4 ? PACKET_FAULTS : 0, seed % 3 ? ALL_CAN : ALL_CAN & ~VERBS_CAN_MASKED, 0);
        if (!exact(v))
            CHECK_FAIL("seed %" PRIu64 ": wrong %" PRIu64 ", sum %" PRIu64 " of %" PRIu64 ", pair %" PRIu64 " %" PRIu64, seed,
                       v.wrong, v.sum, v.added, v.pair_low, v.pair_high);
        retransmits += v.retransmits;
        repeats += v.repeats;
    }
    CHECK(retransmits > 100 && repeats > 100); /* the faults were there */
}

/* Each mistake is caught by some seed. */
static void test_mistakes(void)
{
    static const uint64_t mistakes[] = {VERBS_MISTAKE_CACHE, VERBS_MISTAKE_ORDER, VERBS_MISTAKE_READS};
    for (unsigned m = 0; m < countof(mistakes); m++) {
        unsigned caught = 0;
        for (uint64_t seed = 0; seed < 40; seed++)
            caught += !exact(run_sums(seed, PACKET_FAULTS, ALL_CAN, mistakes[m]));
        if (!caught)
            CHECK_FAIL("mistake %" PRIu64 " was not caught", mistakes[m]);
    }
}

/* ---- long READs and WRITEs, and batches that need several packets ---- */

static void long_task(void *arg)
{
    struct client *c = arg;
    struct fab_ep *ep = &c->ep->node.fab;
    static uint64_t out[512], in[512];
    CHECK_EQ(connect_client(c), 0);
    for (unsigned i = 0; i < countof(out); i++)
        out[i] = mix64(i);
    CHECK_EQ(fab_write(ep, WORD(1024), out, sizeof out), 0);
    CHECK_EQ(fab_read(ep, WORD(1024), in, sizeof in), 0);
    CHECK(!memcmp(in, out, sizeof in));
    /* More verbs than one packet takes, and more results than the cache keeps: READs and changes of the same words in turns. */
    struct fab_op ops[FAB_BATCH_MAX];
    uint64_t seen[FAB_BATCH_MAX / 2][3];
    for (unsigned i = 0; i < FAB_BATCH_MAX; i += 2) {
        ops[i] = (struct fab_op){.verb = FAB_READ, .len = sizeof seen[0], .addr = WORD(4096), .buf = seen[i / 2]};
        ops[i + 1] = (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = WORD(4096 + i / 2 % 3), .swap = 1};
    }
    CHECK_EQ(fab_batch(ep, ops, FAB_BATCH_MAX), 0);
    for (unsigned i = 0; i < FAB_BATCH_MAX / 2; i++) {
        CHECK_EQ(seen[i][0] + seen[i][1] + seen[i][2], i);
        CHECK_EQ((uint64_t)ops[2 * i + 1].old, i / 3);
    }
    c->done++;
}

static void test_long(void)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct field f;
        field_open(&f, seed, seed ? PACKET_FAULTS : 0, ALL_CAN, 0);
        CHECK(sim_spawn(f.clients[0].process, "long", long_task, &f.clients[0]));
        sim_run(&f.sim, 8 * NS_PER_S);
        CHECK_EQ(f.clients[0].done, 1);
        field_close(&f);
    }
}

/* ---- waiting ---- */

static void waiter_task(void *arg)
{
    struct client *c = arg;
    struct fab_ep *ep = &c->ep->node.fab;
    CHECK_EQ(connect_client(c), 0);
    uint64_t now = world_now(ep->world);
    CHECK_EQ(fab_wait(ep, WORD(FLAG), UINT32_MAX, 0, now + 3 * NS_PER_S), 0);
    const struct fab_pair pair = {.addr = WORD(TORN), .width = 16, .mask = UINT64_MAX, .value = 0};
    u128 seen = 0;
    CHECK_EQ(fab_poll(ep, &pair, now + 5 * NS_PER_S, &seen), 0);
    CHECK(seen == ((u128)9 << 64 | 8));
    now = world_now(ep->world);
    CHECK_EQ(fab_wait(ep, WORD(FLAG), UINT32_MAX, 1, now + 50 * NS_PER_MS), -ETIMEDOUT);
    CHECK(world_now(ep->world) >= now + 50 * NS_PER_MS);
    c->done++;
}

static void waker_task(void *arg)
{
    struct client *c = arg;
    struct fab_ep *ep = &c->ep->node.fab;
    uint64_t one = 1, words[2] = {8, 9};
    CHECK_EQ(connect_client(c), 0);
    fab_wait_any(ep, NULL, 0, world_now(ep->world) + 200 * NS_PER_MS);
    CHECK_EQ(fab_write(ep, WORD(FLAG), &one, 8), 0);
    fab_wait_any(ep, NULL, 0, world_now(ep->world) + 200 * NS_PER_MS);
    CHECK_EQ(fab_write(ep, WORD(TORN), words, sizeof words), 0);
    c->done++;
}

static void test_waits(void)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct field f;
        field_open(&f, seed, seed ? PACKET_FAULTS : 0, seed % 2 ? ALL_CAN : ALL_CAN & ~VERBS_CAN_WAIT, 0);
        CHECK(sim_spawn(f.clients[0].process, "waker", waker_task, &f.clients[0]));
        CHECK(sim_spawn(f.clients[1].process, "waiter", waiter_task, &f.clients[1]));
        sim_run(&f.sim, 8 * NS_PER_S);
        CHECK_EQ(f.clients[0].done + f.clients[1].done, 2);
        if (seed == 1) /* parked, and not polled for: it was asked again a few times at most */
            CHECK(f.clients[1].ep->node.counts.waits < 20);
        field_close(&f);
    }
}

/* ---- fencing ---- */

static void victim_task(void *arg)
{
    struct client *c = arg;
    struct fab_ep *ep = &c->ep->node.fab;
    uint64_t old;
    CHECK_EQ(connect_client(c), 0);
    while (!(c->rc = fab_faa64(ep, WORD(SUM), 1, &old)) || c->rc == -FAB_EUNKNOWN)
        c->done++;
}

static void judge_task(void *arg)
{
    struct client *c = arg, *victim = c + 1;
    struct fab_ep *ep = &c->ep->node.fab;
    uint64_t sum = 0, later = 0;
    CHECK_EQ(connect_client(c), 0);
    fab_wait_any(ep, NULL, 0, world_now(ep->world) + 30 * NS_PER_MS);
    while (fab_fence(ep, victim->ep->node.client, victim->ep->node.life) == -EAGAIN)
        ;
    CHECK_EQ(fab_read64(ep, WORD(SUM), &sum), 0);
    fab_wait_any(ep, NULL, 0, world_now(ep->world) + 100 * NS_PER_MS);
    CHECK_EQ(fab_read64(ep, WORD(SUM), &later), 0);
    c->wrong += later != sum;
    c->done++;
}

static uint64_t run_fence(uint64_t seed, uint64_t mistakes)
{
    struct field f;
    field_open(&f, seed, seed ? PACKET_FAULTS : 0, ALL_CAN, mistakes);
    CHECK(sim_spawn(f.clients[0].process, "judge", judge_task, &f.clients[0]));
    CHECK(sim_spawn(f.clients[1].process, "victim", victim_task, &f.clients[1]));
    sim_run(&f.sim, 8 * NS_PER_S);
    CHECK_EQ(f.clients[0].done, 1);
    if (!mistakes)
        CHECK_EQ(f.clients[1].rc, -FAB_EFENCED);
    uint64_t wrong = f.clients[0].wrong;
    field_close(&f);
    return wrong;
}

static void test_fence(void)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        CHECK_EQ(run_fence(seed, 0), 0);
    CHECK(run_fence(1, VERBS_MISTAKE_FENCE));
}

/* The node does not answer, and several sessions are to be fenced: the thread that asks has a lease to renew. */
static void deaf_task(void *arg)
{
    struct client *c = arg;
    struct fab_ep *ep = &c->ep->node.fab;
    CHECK_EQ(connect_client(c), 0);
    fab_wait_any(ep, NULL, 0, world_now(ep->world) + 30 * NS_PER_MS);
    uint64_t begin = world_now(ep->world);
    for (uint32_t peer = 1; peer < CLIENTS; peer++)
        CHECK_EQ(fab_fence(ep, peer, 1), -EAGAIN);
    c->done = world_now(ep->world) - begin;
}

static void test_deaf_node(void)
{
    struct field f;
    field_open(&f, 3, 0, ALL_CAN, 0);
    CHECK(sim_spawn(f.clients[0].process, "deaf", deaf_task, &f.clients[0]));
    sim_run(&f.sim, 20 * NS_PER_MS);
    sim_host_crash(f.server->host);
    sim_run(&f.sim, 8 * NS_PER_S);
    CHECK_BETWEEN(f.clients[0].done, 1, LEASE_NS / 8 + NS_PER_MS);
    field_close(&f);
}

/* ---- a new life of the node ---- */

static void life_task(void *arg)
{
    struct client *c = arg;
    struct fab_ep *ep = &c->ep->node.fab;
    uint64_t old;
    CHECK_EQ(connect_client(c), 0);
    while (!(c->rc = fab_faa64(ep, WORD(SUM), 1, &old)) || c->rc == -FAB_EUNKNOWN)
        c->done++;
}

static void test_new_life(void)
{
    struct field f;
    field_open(&f, 3, 0, ALL_CAN, 0);
    CHECK(sim_spawn(f.clients[0].process, "life", life_task, &f.clients[0]));
    sim_run(&f.sim, 50 * NS_PER_MS);
    CHECK(f.clients[0].done > 100 && word(&f, SUM) > 100);
    sim_host_crash(f.server->host);
    sim_host_restart(f.server->host);
    const struct node_box_params p = {.lease_ns = LEASE_NS, .clients = CLIENTS, .can = ALL_CAN};
    CHECK_EQ(node_box_start(&f.box, f.wire, f.server, &p), 0);
    memnode_ready(f.box.node);
    sim_run(&f.sim, 4 * NS_PER_S);
    CHECK_EQ(f.clients[0].rc, -FAB_EFENCED);
    CHECK_EQ(word(&f, SUM), 0);
    field_close(&f);
}

int main(void)
{
    test_exact_sums();
    test_mistakes();
    test_long();
    test_waits();
    test_fence();
    test_deaf_node();
    test_new_life();
    return 0;
}
