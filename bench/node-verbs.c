/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and uncontended locks on a memory node against a bare UDP echo between the same two processes, with the same polling, in
 * turns. The node polls, too, on a core of its own if there are two. */
#include "bench/kit.h"
#include "fabric/node_udp.h"
#include "node/memory.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 21
#define TURNS 200
#define SPACE "bench"
#define LEASE_NS (60 * NS_PER_S)

static struct board {
    uint32_t ready;
    uint16_t port;
} * board;
static volatile sig_atomic_t stop;

static void node_main(const struct kit *k, const char *design)
{
    static struct memory_node m;
    const struct memory_node_params p = {.layout = {.design = design_find(design),
                                                    .keys = PAWL_KEYS_DENSE,
                                                    .capacity = 1024,
                                                    .sessions = 16,
                                                    .holds = 64,
                                                    .lease_ns = LEASE_NS,
                                                    .check_ns = LEASE_NS / 8},
                                         .space = SPACE,
                                         .at = net_v4(htonl(INADDR_LOOPBACK), 0),
                                         .fresh = true,
                                         .spin_ns = NS_PER_S};
    kit_pin(k->cpus[1]);
    if (memory_node_open(&m, &p))
        kit_die("cannot start the node: %s", pawl_explain());
    board->port = m.udp.at.port;
    kit_post(&board->ready, 1);
    memory_node_run(&m, &stop);
    _exit(0);
}

static pid_t start_node(const struct kit *k, const char *design)
{
    board->ready = 0;
    pid_t pid = fork();
    if (!pid)
        node_main(k, design);
    kit_await(&board->ready, 1);
    return pid;
}

/* ---- what is measured ---- */

static struct node_udp verbs, bare;
static pawl *locks;
static uint64_t count;

static void echo_once(void)
{
    struct {
        struct packet_head head;
        uint64_t rest[3]; /* as long as a request with one CAS */
    } out = {.head = {.version = PACKET_VERSION, .family = PACKET_ECHO, .type = 1, .nonce = ++count}}, in;
    send(bare.fd, &out, sizeof out, 0);
    for (uint64_t again = kit_now() + 10 * NS_PER_MS; recv(bare.fd, &in, sizeof in, MSG_DONTWAIT) <= 0 || in.head.nonce != count;)
        if (kit_now() > again) { /* lost */
            send(bare.fd, &out, sizeof out, 0);
            again = kit_now() + 10 * NS_PER_MS;
        }
}

static void batch_of(unsigned n)
{
    struct fab_op ops[16];
    uint64_t word[16];
    for (unsigned i = 0; i < n; i++)
        ops[i] = i % 2 ? (struct fab_op){.verb = FAB_READ, .len = 8, .addr = 8 * i, .buf = &word[i]}
                       : (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = 8 * i};
    if (fab_batch(&verbs.node.fab, ops, n))
        kit_die("a batch failed");
}

static void read_once(void)
{
    uint64_t word;
    if (fab_read64(&verbs.node.fab, 0, &word))
        kit_die("a READ failed");
}

static void cas_once(void)
{
    uint64_t old;
    if (fab_cas64(&verbs.node.fab, 8, 1, 1, &old)) /* changes nothing: the space is in use */
        kit_die("a CAS failed");
}

static void four(void)
{
    batch_of(4);
}

static void sixteen(void)
{
    batch_of(16);
}

static double acquire_ns(enum pawl_mode mode)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    if (pawl_lock(locks, pawl_id(++count % 1024), mode, &g))
        kit_die("cannot lock: %s", pawl_explain());
    double took = (double)(kit_now() - begin);
    if (pawl_unlock(locks, &g))
        kit_die("cannot unlock: %s", pawl_explain());
    return took;
}

static double took_ns(void (*once)(void))
{
    if (!once)
        return acquire_ns(PAWL_EXCLUSIVE);
    uint64_t begin = kit_now();
    once();
    return (double)(kit_now() - begin);
}

/* `once` against `measure`, in turns. Null: an acquire. */
static void compare(struct kit *k, const char *name, void (*measure)(void), void (*once)(void), double bound)
{
    static double a[TURNS], b[TURNS], as[ROUNDS], bs[ROUNDS], ratio[ROUNDS];
    unsigned rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    char what[128];
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned j = 0; j < TURNS; j++) {
            if (j % 2)
                b[j] = took_ns(once);
            a[j] = took_ns(measure);
            if (j % 2 == 0)
                b[j] = took_ns(once);
        }
        as[i] = kit_percentile(a, TURNS, 0.5);
        bs[i] = kit_percentile(b, TURNS, 0.5);
        ratio[i] = bs[i] / as[i];
    }
    snprintf(what, sizeof what, "%s: %.1f us against %.1f us, ratio", name, kit_percentile(bs, rounds, 0.5) / 1000,
             kit_percentile(as, rounds, 0.5) / 1000);
    kit_judge(k, what, kit_percentile(ratio, rounds, 0.5), "x", bound);
}

static void with_design(struct kit *k, const char *design, bool verbs_too, double bound)
{
    char where[64], name[64];
    pid_t pid = start_node(k, design);
    struct net_addr at = net_v4(htonl(INADDR_LOOPBACK), board->port);
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u/" SPACE, board->port);
    snprintf(name, sizeof name, "%s, uncontended acquire against a CAS", design);
    if (node_udp_open(&verbs, at, (struct net_addr){0}) || node_udp_open(&bare, at, (struct net_addr){0}))
        kit_die("cannot open a socket");
    if (fab_node_connect(&verbs.node, SPACE, 77, kit_now() + 10 * NS_PER_S) || pawl_open(where, NULL, &locks))
        kit_die("cannot connect: %s", pawl_explain());
    if (verbs_too) {
        compare(k, "READ against a bare echo", echo_once, read_once, 1.10);
        compare(k, "CAS against a bare echo", echo_once, cas_once, 1.10);
        compare(k, "4 verbs against a CAS", cas_once, four, 1.15);
        compare(k, "16 verbs against a CAS", cas_once, sixteen, 1.4);
    }
    compare(k, name, cas_once, NULL, bound);
    pawl_close(locks);
    fab_node_leave(&verbs.node, kit_now() + NS_PER_S);
    node_udp_close(&verbs);
    node_udp_close(&bare);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "verbs and locks on a memory node against a bare UDP echo");
    board = kit_shared(sizeof *board);
    kit_pin(k.cpus[0]);
    with_design(&k, "shiftlock", true, 1.15);
    with_design(&k, "shiftlock64", false, 1.15);
    with_design(&k, "word", false, 2.2);
    return kit_end(&k);
}
