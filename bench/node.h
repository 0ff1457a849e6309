/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks of memory nodes: a client of a node that runs elsewhere, and what it measures, against a bare echo by
 * the same node or against one compare-and-swap, in turns. */
#ifndef PAWL_BENCH_NODE_H
#define PAWL_BENCH_NODE_H

#include "bench/kit.h"
#include "fabric/node_udp.h"
#include "node/memory.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODE_ROUNDS 21
#define NODE_TURNS 200
#define NODE_SPACE "bench"
#define NODE_LOCKS 1024u
#define NODE_LEASE_NS (60 * NS_PER_S)
#define NODE_LOST_NS (10 * NS_PER_MS) /* after which an echo is sent again */

static struct node_udp node_verbs, node_bare;
static pawl *node_session;
static uint64_t node_count;

static inline struct memory_node_params node_params(const char *design, struct net_addr at)
{
    const struct design *d = design_find(design);
    bool ranges = d->features & DESIGN_RANGES;
    return (struct memory_node_params){.layout = {.design = d,
                                                  .keys = PAWL_KEYS_DENSE,
                                                  .capacity = ranges ? 16 : NODE_LOCKS,
                                                  .sessions = 16,
                                                  .holds = 64,
                                                  .range_units = ranges ? 4096 : 0,
                                                  .range_max = ranges ? 4096 : 0,
                                                  .lease_ns = NODE_LEASE_NS,
                                                  .check_ns = NODE_LEASE_NS / 8},
                                       .space = NODE_SPACE,
                                       .at = at,
                                       .fresh = true,
                                       .spin_ns = NS_PER_S};
}

/* ---- a node in a process of its own ---- */

#define NODE_ANY_CPU (-1)

struct node_started {
    pid_t pid;
    struct net_addr at;
};

/* `enter` goes to the node's network namespace, in the new process; null: it stays. */
static inline struct node_started node_start(const struct memory_node_params *p, int cpu, void (*enter)(void))
{
    struct {
        uint32_t ready;
        struct net_addr at;
    } *told = kit_shared(sizeof *told);
    struct node_started s = {.pid = fork()};
    if (!s.pid) {
        static struct memory_node m;
        static volatile sig_atomic_t never;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (cpu != NODE_ANY_CPU)
            kit_pin(cpu);
        if (enter)
            enter();
        if (memory_node_open(&m, p))
            kit_die("cannot start the node: %s", pawl_explain());
        told->at = m.udp.at;
        kit_post(&told->ready, 1);
        memory_node_run(&m, &never);
        _exit(0);
    }
    kit_await(&told->ready, 1);
    s.at = told->at;
    munmap(told, sizeof *told);
    return s;
}

/* On this machine; it polls, on a core of its own if there are two. */
static inline struct node_started node_start_process(const struct kit *k, const char *design)
{
    const struct memory_node_params p = node_params(design, net_v4(htonl(INADDR_LOOPBACK), 0));
    return node_start(&p, k->cpus[1], NULL);
}

static inline void node_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- single operations ---- */

static inline void node_echo(void)
{
    struct {
        struct packet_head head;
        uint64_t rest[3]; /* as long as a request with one CAS */
    } out = {.head = {.version = PACKET_VERSION, .family = PACKET_ECHO, .type = 1, .nonce = ++node_count}}, in;
    send(node_bare.fd, &out, sizeof out, 0);
    for (uint64_t again = kit_now() + NODE_LOST_NS;
         recv(node_bare.fd, &in, sizeof in, MSG_DONTWAIT) <= 0 || in.head.nonce != node_count;)
        if (kit_now() > again) {
            send(node_bare.fd, &out, sizeof out, 0);
            again = kit_now() + NODE_LOST_NS;
        }
}

static inline void node_batch_of(unsigned n)
{
    struct fab_op ops[16];
    uint64_t word[16];
    for (unsigned i = 0; i < n; i++)
        ops[i] = i % 2 ? (struct fab_op){.verb = FAB_READ, .len = 8, .addr = 8 * i, .buf = &word[i]}
                       : (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = 8 * i}; /* adds 0: the space is in use */
    if (fab_batch(&node_verbs.node.fab, ops, n))
        kit_die("a batch failed");
}

static inline void node_read(void)
{
    uint64_t word;
    if (fab_read64(&node_verbs.node.fab, 0, &word))
        kit_die("a READ failed");
}

static inline void node_cas(void)
{
    uint64_t old;
    if (fab_cas64(&node_verbs.node.fab, 8, 1, 1, &old)) /* changes nothing */
        kit_die("a CAS failed");
}

static inline void node_four(void)
{
    node_batch_of(4);
}

static inline void node_sixteen(void)
{
    node_batch_of(16);
}

/* ---- measuring ---- */

static inline double node_timed(void (*once)(void))
{
    uint64_t begin = kit_now();
    once();
    return (double)(kit_now() - begin);
}

static inline double node_acquire(enum pawl_mode mode, bool range)
{
    pawl_grant g;
    uint64_t key = ++node_count % (range ? 16 : NODE_LOCKS), begin = kit_now();
    int rc = range ? pawl_lock_range(node_session, pawl_id(key), 64 * 4096, 65 * 4096, mode, UINT64_MAX, &g)
                   : pawl_lock(node_session, pawl_id(key), mode, &g);
    double took = (double)(kit_now() - begin);
    if (rc || pawl_unlock(node_session, &g))
        kit_die("cannot lock: %s", pawl_explain());
    return took;
}

static inline double node_write_lock(void)
{
    return node_acquire(PAWL_EXCLUSIVE, false);
}
static inline double node_read_lock(void)
{
    return node_acquire(PAWL_SHARED, false);
}
static inline double node_range_lock(void)
{
    return node_acquire(PAWL_EXCLUSIVE, true);
}
static inline double node_time_echo(void)
{
    return node_timed(node_echo);
}
static inline double node_time_read(void)
{
    return node_timed(node_read);
}
static inline double node_time_cas(void)
{
    return node_timed(node_cas);
}
static inline double node_time_four(void)
{
    return node_timed(node_four);
}
static inline double node_time_sixteen(void)
{
    return node_timed(node_sixteen);
}

/* The median ratio of `once` to `measure`, in turns; *once_us and *measure_us: medians. */
static inline double node_ratio(const struct kit *k, double (*measure)(void), double (*once)(void), double *measure_us,
                                double *once_us)
{
    static double a[NODE_TURNS], b[NODE_TURNS], as[NODE_ROUNDS], bs[NODE_ROUNDS], ratio[NODE_ROUNDS];
    unsigned rounds = (unsigned)max_u64(5, min_u64(NODE_ROUNDS, (uint64_t)(NODE_ROUNDS * k->scale)));
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned j = 0; j < NODE_TURNS; j++) {
            if (j % 2)
                b[j] = once();
            a[j] = measure();
            if (j % 2 == 0)
                b[j] = once();
        }
        as[i] = kit_percentile(a, NODE_TURNS, 0.5);
        bs[i] = kit_percentile(b, NODE_TURNS, 0.5);
        ratio[i] = bs[i] / as[i];
    }
    *measure_us = kit_percentile(as, rounds, 0.5) / 1000;
    *once_us = kit_percentile(bs, rounds, 0.5) / 1000;
    return kit_percentile(ratio, rounds, 0.5);
}

static inline void node_compare(struct kit *k, const char *name, double (*measure)(void), double (*once)(void), double bound)
{
    char what[128];
    double a, b, ratio = node_ratio(k, measure, once, &a, &b);
    snprintf(what, sizeof what, "%s: %.1f us against %.1f us, ratio", name, b, a);
    kit_judge(k, what, ratio, "x", bound);
}

/* ---- a node's client ---- */

static inline void node_connect(struct net_addr at)
{
    char where[NET_ADDR_TEXT + 32], address[NET_ADDR_TEXT];
    net_addr_print(at, address);
    snprintf(where, sizeof where, "pawl://%s/" NODE_SPACE, address);
    if (node_udp_open(&node_verbs, at, (struct net_addr){0}) || node_udp_open(&node_bare, at, (struct net_addr){0}))
        kit_die("cannot open a socket");
    if (fab_node_connect(&node_verbs.node, NODE_SPACE, 77, kit_now() + 10 * NS_PER_S) || pawl_open(where, NULL, &node_session))
        kit_die("cannot connect: %s", pawl_explain());
}

static inline void node_disconnect(void)
{
    pawl_close(node_session);
    fab_node_leave(&node_verbs.node, kit_now() + NS_PER_S);
    node_udp_close(&node_verbs);
    node_udp_close(&node_bare);
}

/* The bounds of every executor, on a node with that design. */
static inline void node_measure(struct kit *k, const char *design, double echo_bound, bool verbs)
{
    char name[96];
    bool ranges = design_find(design)->features & DESIGN_RANGES, word = !strcmp(design, "word");
    if (verbs) {
        node_compare(k, "READ against a bare echo", node_time_echo, node_time_read, echo_bound);
        node_compare(k, "CAS against a bare echo", node_time_echo, node_time_cas, echo_bound);
        node_compare(k, "4 verbs against a CAS", node_time_cas, node_time_four, 1.15);
        node_compare(k, "16 verbs against a CAS", node_time_cas, node_time_sixteen, 1.4);
    }
    snprintf(name, sizeof name, "%s, uncontended %s against a CAS", design, ranges ? "range within a leaf" : "writer");
    node_compare(k, name, node_time_cas, ranges ? node_range_lock : node_write_lock, ranges ? 1.4 : word ? 2.2 : 1.15);
    snprintf(name, sizeof name, "%s, uncontended reader against a CAS", design);
    if (!ranges)
        node_compare(k, name, node_time_cas, node_read_lock, word ? 2.2 : 1.15);
}

#endif
