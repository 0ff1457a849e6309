/* SPDX-License-Identifier: Apache-2.0 */
/* The trial of a space on two memory nodes, one in the kernel and one a process: eight clients on two hosts lock while clients are
 * killed and stopped beyond their leases, cables are pulled, `pawl serve` is killed and started again, and the node that is a
 * process loses its memory. No two valid holds of a lock are incompatible, tokens rise, and every client goes on. Before that,
 * executors with a mistake (no reply cache, no order, no fence) are told from a sound one. PAWL_TEST_SECONDS: each kind of event
 * once, then at random until so long. PAWL_TEST_DESIGN: shiftlock (the default), or another one-sided design. */
#include "fabric/node_internal.h"
#include "fabric/node_udp.h"
#include "lib/rng.h"
#include "node/memory.h"
#include "tests/judged.h"
#include "tests/lab/noise.h"
#include "tests/shm/space.h"

#define CLIENTS JUDGED_CLIENTS
#define HOSTS 2  /* of clients; */
#define KERNEL 3 /* the hosts of the nodes */
#define PROCESS 4
#define LOCKS JUDGED_LOCKS /* every other one at each node */
#define LEASE_NS (1500 * NS_PER_MS)
#define PATIENCE_NS (90 * NS_PER_S)
#define SPACE "trial"
#define PORT 7070
#define WHERE "pawl://10.77.1.3,10.77.1.4:7070/" SPACE

static const struct design *design;

static struct board {
    struct judged trial;
    uint64_t adds, wrong;
} * board;

static pid_t clients[CLIENTS], nodes[2];

/* ---- the nodes ---- */

static void start_node(unsigned which, const char *more)
{
    char words[512], bpf[LAB_PATH], kernel[LAB_PATH + 64];
    lab_bpf(&rack, bpf);
    snprintf(kernel, sizeof kernel, "--dev " LAB_DEVICE " --pin %s/node", bpf);
    snprintf(words, sizeof words,
             "serve --insecure --design %s --space " SPACE
             " --node %u/2 --listen 10.77.1.%u:%u --keys dense --locks 64 --sessions 32 --holds 16 "
             "--lease 1500ms %s %s",
             design->name, which + 1, KERNEL + which, PORT, which ? "" : kernel, more);
    nodes[which] = rack_start_at(KERNEL + which, words);
}

static void kill_node(unsigned which)
{
    child_kill(nodes[which]);
}

/* ---- clients ---- */

static void client(void *arg)
{
    const unsigned number = (unsigned)(uintptr_t)arg;
    struct rng r;
    pawl *p = NULL;
    rng_seed(&r, (uint64_t)getpid());
    CHECK_EQ(lab_enter(&rack, 1, 1 + number % HOSTS), 0);
    while (!__atomic_load_n(&board->trial.stop, __ATOMIC_ACQUIRE)) {
        unsigned lock = (unsigned)rng_below(&r, LOCKS);
        bool opens = !p;
        uint64_t dwell_ns = rng_below(&r, 64) ? 0 : LEASE_NS / 2 + rng_below(&r, LEASE_NS / 2); /* so that events find holders */
        int rc = opens ? pawl_open(WHERE, NULL, &p) : judged_turn(&board->trial, p, number, lock, dwell_ns);
        if (opens)
            pause_ns(rc ? 10 * NS_PER_MS : 0);
        if (!rc && !opens) {
            __atomic_fetch_add(&board->trial.turns[number][lock], 1, __ATOMIC_RELEASE);
        } else if (rc == -PAWL_ELOST) {
            __atomic_fetch_add(&board->trial.lost[number], 1, __ATOMIC_RELAXED);
            pawl_close(p);
            p = NULL;
        } else if (rc && rc != -ETIMEDOUT && rc != -EAGAIN) {
            CHECK_FAIL("client %u: %d: %s (%s)", number, rc, pawl_strerror(rc), pawl_explain());
        }
    }
    if (p)
        pawl_close(p);
}

static void start_client(unsigned i)
{
    clients[i] = child_start(client, (void *)(uintptr_t)i);
}

/* `but`: a client that is stopped; the number of clients: none. */
static void all_go_on(const char *after, unsigned but)
{
    judged_go_on(&board->trial, clients, CLIENTS, but, pawl_in(PATIENCE_NS), after);
}

/* ---- events ---- */

#define ANY_NODE 2u

/* A client that has just begun to hold a lock of that node for long; if none does so soon: any client. */
static unsigned holder_at(unsigned node, struct rng *r)
{
    for (uint64_t limit = pawl_in(5 * NS_PER_S); pawl_now() < limit; pause_ns(NS_PER_MS))
        for (unsigned l = 0; l < LOCKS; l++) {
            uint32_t dwells = __atomic_load_n(&board->trial.locks[l].dwells, __ATOMIC_ACQUIRE);
            if (dwells && (node == ANY_NODE || l % 2 == node))
                return dwells - 1;
        }
    return (unsigned)rng_below(r, CLIENTS);
}

static void event_kill(struct rng *r)
{
    unsigned i = holder_at(ANY_NODE, r);
    child_kill(clients[i]);
    start_client(i);
}

/* Until the others have had all its locks, which takes a lease if it holds one. */
static void event_stop(struct rng *r)
{
    unsigned i = holder_at(ANY_NODE, r);
    CHECK_EQ(kill(clients[i], SIGSTOP), 0);
    pause_ns(LEASE_NS + LEASE_NS / 4);
    all_go_on("a client was stopped", i);
    CHECK_EQ(kill(clients[i], SIGCONT), 0);
}

static void event_cut(struct rng *r)
{
    unsigned host = 1 + (unsigned)rng_below(r, PROCESS);
    CHECK_EQ(lab_plug(&rack, 1, host, false), 0);
    pause_ns(rng_below(r, 2) ? LEASE_NS / 4 : LEASE_NS + LEASE_NS / 4);
    CHECK_EQ(lab_plug(&rack, 1, host, true), 0);
}

/* The kernel goes on: clients that have sessions lock and unlock without the process. */
static void event_serve(struct rng *r)
{
    holder_at(0, r);
    kill_node(0);
    pause_ns(rng_below(r, LEASE_NS / 2));
    start_node(0, "");
}

static void event_reboot(struct rng *r)
{
    holder_at(1, r);
    kill_node(1);
    pause_ns(rng_below(r, LEASE_NS / 16));
    start_node(1, "");
}

static const struct {
    const char *name;
    void (*run)(struct rng *r);
} events[] = {{"a client was killed", event_kill},
              {"a client was stopped beyond its lease", event_stop},
              {"a cable was pulled", event_cut},
              {"'pawl serve' of the node in the kernel was killed", event_serve},
              {"the node that is a process lost its memory", event_reboot}};

static void trial(void)
{
    struct rng r;
    uint64_t end = pawl_in(test_seconds() * NS_PER_S), turns, lost;
    unsigned count = 0;
    rng_seed(&r, 1);
    for (unsigned i = 0; i < 2; i++)
        start_node(i, "--fresh");
    for (unsigned i = 0; i < CLIENTS; i++)
        start_client(i);
    all_go_on("the start", CLIENTS);
    for (; count < countof(events) || pawl_now() < end; count++) {
        unsigned e = count < countof(events) ? count : (unsigned)rng_below(&r, countof(events));
        events[e].run(&r);
        all_go_on(events[e].name, CLIENTS);
    }
    __atomic_store_n(&board->trial.stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < CLIENTS; i++)
        child_join(clients[i]);
    judged_sum(&board->trial, &turns, &lost);
    CHECK(lost > 0); /* the reboot alone ends sessions */
    printf("%s: %u events, %" PRIu64 " turns of %d clients, %" PRIu64 " sessions lost, %" PRIu64 " late entries: no violation\n",
           design->name, count, turns, CLIENTS, lost, board->trial.late);
    for (unsigned i = 0; i < 2; i++)
        rack_end(nodes[i]);
}

/* ---- executors with a mistake ---- */

#define WORD 3072 /* words of the header's page that no header reaches */
#define POSTED 3136
#define ADDERS 4
#define ADDS 150

static void faulty_node(void *arg)
{
    static struct memory_node m;
    volatile sig_atomic_t never = 0;
    const struct memory_node_params p = {
        .layout = {.design = design,
                   .keys = PAWL_KEYS_DENSE,
                   .capacity = 8,
                   .sessions = 8,
                   .holds = 8,
                   .range_units = design->features & DESIGN_RANGES ? 1024 : 0,
                   .range_max = design->features & DESIGN_RANGES ? 4096 : 0,
                   .lease_ns = 60 * NS_PER_S,
                   .check_ns = NS_PER_S},
        .space = SPACE,
        .at = net_v4(htonl(lab_address(1, PROCESS)), PORT),
        .fresh = true,
        .mistakes = (uint64_t)(uintptr_t)arg,
    };
    CHECK_EQ(lab_enter(&rack, 1, PROCESS), 0);
    CHECK_EQ(memory_node_open(&m, &p), 0);
    memory_node_run(&m, &never);
}

static void connect_verbs(struct node_udp *u, uint64_t nonce)
{
    CHECK_EQ(node_udp_open(u, net_v4(htonl(lab_address(1, PROCESS)), PORT), (struct net_addr){0}), 0);
    CHECK_EQ(fab_node_connect(&u->node, SPACE, nonce, pawl_in(PATIENCE_NS)), 0);
    u->node.patience_ns = PATIENCE_NS; /* an unknown outcome would spoil the sums */
}

/* Additions, each behind a store that no task waits for: both in flight together. */
static void adder(void *arg)
{
    static struct node_udp u;
    const uint64_t number = (uint64_t)(uintptr_t)arg;
    CHECK_EQ(lab_enter(&rack, 1, 1 + (unsigned)number % HOSTS), 0);
    connect_verbs(&u, 100 + number);
    for (uint64_t i = 1, old, seen; i <= ADDS; i++) {
        fab_post64(&u.node.fab, POSTED + 8 * number, i);
        u.node.io->lock(&u.node);
        node_flush(&u.node); /* else the addition takes it along */
        u.node.io->unlock(&u.node);
        CHECK_EQ(fab_faa64(&u.node.fab, WORD, 1, &old), 0);
        CHECK_EQ(fab_read64(&u.node.fab, POSTED + 8 * number, &seen), 0);
        if (seen != i)
            __atomic_fetch_add(&board->wrong, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&board->adds, 1, __ATOMIC_RELAXED);
    }
    fab_node_leave(&u.node, pawl_in(LIMIT_NS));
    node_udp_close(&u);
}

/* Whether a client that was fenced is shut out. */
static bool fences(void)
{
    static struct node_udp shut, other;
    uint64_t old, before, after;
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    connect_verbs(&shut, 200);
    connect_verbs(&other, 201);
    int rc;
    while ((rc = fab_fence(&other.node.fab, shut.node.client, fab_node_proof(&shut.node))) == -EAGAIN)
        pause_ns(NS_PER_MS);
    CHECK_EQ(rc, 0);
    CHECK_EQ(fab_read64(&other.node.fab, WORD, &before), 0);
    rc = fab_faa64(&shut.node.fab, WORD, 1, &old); /* a late verb */
    CHECK_EQ(fab_read64(&other.node.fab, WORD, &after), 0);
    bool sound = rc == -FAB_EFENCED && before == after;
    node_udp_close(&shut);
    fab_node_leave(&other.node, pawl_in(LIMIT_NS));
    node_udp_close(&other);
    return sound;
}

static bool is_sound(uint64_t mistakes)
{
    static struct node_udp u;
    pid_t node = child_start(faulty_node, (void *)(uintptr_t)mistakes), adders[ADDERS];
    uint64_t sum;
    board->adds = board->wrong = 0;
    for (uintptr_t i = 0; i < ADDERS; i++)
        adders[i] = child_start(adder, (void *)i);
    for (unsigned i = 0; i < ADDERS; i++)
        child_join(adders[i]);
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    connect_verbs(&u, 99);
    CHECK_EQ(fab_read64(&u.node.fab, WORD, &sum), 0);
    bool sound = sum == board->adds && !board->wrong && fences();
    fab_node_leave(&u.node, pawl_in(LIMIT_NS));
    node_udp_close(&u);
    child_kill(node);
    return sound;
}

static void mistakes(void)
{
    static const struct {
        const char *name;
        uint64_t bits;
    } busted[] = {{"no reply cache", VERBS_MISTAKE_CACHE}, {"no order", VERBS_MISTAKE_ORDER}, {"no fence", VERBS_MISTAKE_FENCE}};
    noise_begin(HOSTS);
    CHECK(is_sound(0));
    for (size_t i = 0; i < countof(busted); i++)
        if (is_sound(busted[i].bits))
            CHECK_FAIL("an executor with %s passes for sound", busted[i].name);
    noise_end(HOSTS);
}

int main(void)
{
    const char *name = getenv("PAWL_TEST_DESIGN");
    design = design_find(name ? name : "shiftlock");
    CHECK(design && design->substrates & DESIGN_ON_NODE_XDP);
    rack_up("nodes", PROCESS, false);
    board = shared_memory(sizeof *board);
    if (!name)
        mistakes(); /* no matter of the design */
    trial();
    return 0;
}
