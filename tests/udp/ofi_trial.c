/* SPDX-License-Identifier: Apache-2.0 */
/* The trial of a space on two memory nodes under libfabric: eight clients lock while clients are killed and stopped beyond their
 * leases, connections are cut, and a node loses its memory. PAWL_TEST_PROVIDER: tcp (the default), or libibverbs, on an RDMA device
 * with the address 127.0.0.1, where there are four clients and longer leases, for a machine that is emulated, and no connections to
 * cut: tests/rdma-vm takes the link down instead. No two valid holds of a lock are incompatible, tokens rise, every client goes on,
 * and a killed client's locks are free within two leases. PAWL_TEST_SECONDS: each kind of event once, then at random until so long.
 * PAWL_TEST_DESIGN: shiftlock64 (the default), or another one-sided design. */
#include "lib/rng.h"
#include "tests/judged.h"
#include "tests/udp/cut.h"
#include "tests/udp/memory.h"

#include <stdarg.h>

#define CLIENTS_MAX JUDGED_CLIENTS
#define NODES 2
#define LOCKS JUDGED_LOCKS /* every other one at each node */
#define PATIENCE_NS (180 * NS_PER_S)

static const char *provider;
static const struct design *design;
static struct node_test tests[NODES];
static char where[RACK_WHERE_LEN + 32];
static unsigned client_count = CLIENTS_MAX;
static uint64_t lease_ns = 2 * NS_PER_S;
static bool cuttable = true; /* connections are sockets */
static pid_t clients[CLIENTS_MAX], nodes[NODES];

static struct board {
    struct judged trial;
    uint32_t cut[CLIENTS_MAX]; /* asked for */
    uint64_t cuts;             /* connections */
} * board;

/* ---- clients ---- */

static void *cutter(void *arg)
{
    uint32_t *asked = arg;
    for (;; pause_ns(NS_PER_MS))
        if (__atomic_exchange_n(asked, 0, __ATOMIC_ACQ_REL))
            __atomic_fetch_add(&board->cuts, cut_connections(), __ATOMIC_RELAXED);
    return NULL;
}

static void client(void *arg)
{
    const unsigned number = (unsigned)(uintptr_t)arg;
    struct rng r;
    pawl *p = NULL;
    pthread_t thread;
    rng_seed(&r, (uint64_t)getpid());
    CHECK_EQ(pthread_create(&thread, NULL, cutter, &board->cut[number]), 0);
    while (!__atomic_load_n(&board->trial.stop, __ATOMIC_ACQUIRE)) {
        unsigned lock = (unsigned)rng_below(&r, LOCKS);
        bool opens = !p;
        uint64_t dwell_ns = rng_below(&r, 48) ? 0 : lease_ns / 16 + rng_below(&r, lease_ns / 8); /* so that events find holders */
        int rc = opens ? pawl_open(where, NULL, &p) : judged_turn(&board->trial, p, number, lock, dwell_ns);
        if (opens && rc) {
            p = NULL;
            pause_ns(10 * NS_PER_MS);
        }
        if (!rc && !opens) {
            __atomic_fetch_add(&board->trial.turns[number][lock], 1, __ATOMIC_RELEASE);
        } else if (rc == -PAWL_ELOST && p) {
            __atomic_fetch_add(&board->trial.lost[number], 1, __ATOMIC_RELAXED);
            pawl_close(p);
            p = NULL;
        } else if (rc && rc != -ETIMEDOUT && rc != -EAGAIN && !(opens && (rc == -EHOSTUNREACH || rc == -PAWL_ELOST))) {
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
    judged_go_on(&board->trial, clients, client_count, but, pawl_in(PATIENCE_NS), after);
}

/* ---- events ---- */

/* A client that has just begun to hold a lock for long; if none does so soon: any client. */
static unsigned holder(struct rng *r)
{
    for (uint64_t limit = pawl_in(5 * NS_PER_S); pawl_now() < limit; pause_ns(NS_PER_MS))
        for (unsigned l = 0; l < LOCKS; l++) {
            uint32_t dwells = __atomic_load_n(&board->trial.locks[l].dwells, __ATOMIC_ACQUIRE);
            if (dwells)
                return dwells - 1;
        }
    return (unsigned)rng_below(r, client_count);
}

static void event_kill(struct rng *r)
{
    unsigned i = holder(r);
    child_kill(clients[i]);
    for (unsigned l = 0; l < LOCKS; l++)
        __atomic_store_n(&board->trial.locks[l].dwells, 0, __ATOMIC_RELEASE);
    start_client(i);
}

/* Until the others have had all its locks, which takes a lease if it holds one. */
static void event_stop(struct rng *r)
{
    unsigned i = holder(r);
    CHECK_EQ(kill(clients[i], SIGSTOP), 0);
    pause_ns(lease_ns + lease_ns / 4);
    all_go_on("a client was stopped", i);
    CHECK_EQ(kill(clients[i], SIGCONT), 0);
}

static void event_cut(struct rng *r)
{
    for (unsigned k = 0; k < client_count && cuttable; k++) {
        __atomic_store_n(&board->cut[k % 2 ? holder(r) : rng_below(r, client_count)], 1, __ATOMIC_RELEASE);
        pause_ns(rng_below(r, 50 * NS_PER_MS));
    }
}

static void event_reboot(struct rng *r)
{
    holder(r);
    child_kill(nodes[1]);
    pause_ns(rng_below(r, lease_ns / 16));
    tests[1].fresh = false;
    nodes[1] = node_start(&tests[1]);
}

static const struct {
    const char *name;
    void (*run)(struct rng *r);
} events[] = {{"a client was killed", event_kill},
              {"a client was stopped beyond its lease", event_stop},
              {"connections were cut", event_cut},
              {"a node lost its memory", event_reboot}};

/* A killed holder: how long until another client has its lock. */
static void recovery(void)
{
    pid_t pid = child_start(client, (void *)(uintptr_t)0);
    struct rng r;
    pawl *p;
    pawl_grant g;
    rng_seed(&r, 1);
    WAIT_FOR(holder(&r) == 0 && board->trial.locks[0].dwells + board->trial.locks[1].dwells + board->trial.locks[2].dwells +
                                    board->trial.locks[3].dwells);
    child_kill(pid);
    uint64_t begin = pawl_now();
    CHECK_OK(pawl_open(where, NULL, &p));
    for (unsigned l = 0; l < LOCKS; l++) {
        CHECK_OK(pawl_timedlock(p, pawl_id(l), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
        CHECK_OK(pawl_unlock(p, &g));
    }
    uint64_t took = pawl_now() - begin;
    printf("%s: all locks of a killed client are free after %.2f s, with a lease of %.0f s\n", design->name, (double)took / 1e9,
           (double)lease_ns / 1e9);
    CHECK(took < 2 * lease_ns + lease_ns / 2); /* half a lease for a busy machine */
    CHECK_OK(pawl_close(p));
    memset(board, 0, sizeof *board);
}

static void trial(void)
{
    struct rng r;
    uint64_t end = pawl_in(test_seconds() * NS_PER_S), turns, lost;
    unsigned count = 0;
    rng_seed(&r, 1);
    for (unsigned i = 0; i < client_count; i++)
        start_client(i);
    all_go_on("the start", client_count);
    for (; count < countof(events) || pawl_now() < end; count++) {
        unsigned e = count < countof(events) ? count : (unsigned)rng_below(&r, countof(events));
        events[e].run(&r);
        all_go_on(events[e].name, client_count);
    }
    __atomic_store_n(&board->trial.stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < client_count; i++)
        child_join(clients[i]);
    judged_sum(&board->trial, &turns, &lost);
    CHECK(lost > 0 && (board->cuts > 0 || !cuttable)); /* the reboot alone ends sessions */
    printf("%s: %u events, %" PRIu64 " turns of %u clients, %" PRIu64 " sessions lost, %" PRIu64 " connections cut, %" PRIu64
           " late entries: no violation\n",
           design->name, count, turns, client_count, lost, board->cuts, board->trial.late);
}

int main(void)
{
    design = design_find(rack_design("shiftlock64"));
    CHECK(design && design->substrates & DESIGN_ON_OFI);
    provider = getenv("PAWL_TEST_PROVIDER");
    provider = provider ? provider : "tcp";
    node_need_library(provider);
    if (!strcmp(provider, RDMA_VERBS)) {
        cuttable = false;
        client_count = 4;
        lease_ns = 5 * NS_PER_S;
    }
    snprintf(rack_space, sizeof rack_space, "ofi%d", (int)getpid());
    board = shared_memory(sizeof *board);
    for (unsigned i = 0; i < NODES; i++) {
        tests[i] = (struct node_test){.design = design,
                                      .port = rack_port_pair(),
                                      .keys = PAWL_KEYS_DENSE,
                                      .capacity = 16,
                                      .sessions = 32,
                                      .holds = 16,
                                      .provider = provider,
                                      .lease_ns = lease_ns,
                                      .node = (uint8_t)i,
                                      .nodes = NODES,
                                      .fresh = true};
        nodes[i] = node_start(&tests[i]);
    }
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u,127.0.0.1:%u/%s", tests[0].port, tests[1].port, rack_space);
    recovery();
    trial();
    for (unsigned i = 0; i < NODES; i++)
        child_kill(nodes[i]);
    return 0;
}
