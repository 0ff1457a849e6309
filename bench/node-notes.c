/* SPDX-License-Identifier: Apache-2.0 */
/* Where the descriptors of a queue lie: at the memory node, or in the memory of the client that owns them, which then has to
 * execute the verbs of others. Both ways in turns, each with its median and its worst in a hundred:
 *
 *     a waiter   the time from a predecessor's WRITE of its note until the waiter has seen it. At the node the waiter has a WAIT
 *                parked; else it receives, and executes the WRITE itself
 *     a holder   the time of a successor's WRITE of its note to a holder that computes and does not receive. Else than at the node
 * a thread of the holder's process serves it, on a core on which the holder's other threads compute
 *
 * Client, node and holder share two cores: the holder's process has the first, the writer and the node the second. */
#include "bench/node.h"

#include <pthread.h>

#define NOTES 100 /* in a row, of each way */
#define TURNS 8
#define GAP_NS (200 * NS_PER_US) /* between two notes: a waiter is asleep by then */
#define WORD 3072                /* of the header's page, which no header reaches */

enum way { AT_THE_NODE, AT_THE_CLIENT, WAYS };

static struct {
    struct net_addr client; /* the receiver's own memory node */
    uint32_t ready;
    uint32_t way;     /* in which the receiver waits for the next note but one */
    uint64_t seen_ns; /* when it saw the last one */
    uint32_t seen;    /* how many */
} * board;

static struct node_udp at_node, at_client;

/* ---- the receiver ---- */

static struct memory_node own;

static volatile sig_atomic_t *own_word(void)
{
    return (volatile sig_atomic_t *)(void *)((char *)own.place.memory + WORD);
}

static void open_own(void)
{
    struct memory_node_params p = node_params("shiftlock", net_v4(htonl(INADDR_LOOPBACK), 0));
    p.spin_ns = 0;
    if (memory_node_open(&own, &p))
        kit_die("cannot open the client's memory: %s", pawl_explain());
    board->client = own.udp.at;
}

static void connect_to(struct node_udp *u, struct net_addr at, uint64_t nonce)
{
    if (node_udp_open(u, at, (struct net_addr){0}) || fab_node_connect(&u->node, NODE_SPACE, nonce, kit_now() + 10 * NS_PER_S))
        kit_die("cannot connect");
    u->spin[false].most_ns = u->spin[true].most_ns =
        0; /* a client that polled would keep the node, or its own serving thread, from their core */
}

static void await_note(enum way way)
{
    uint64_t word;
    if (way == AT_THE_CLIENT) {
        memory_node_run(&own, own_word());
        *own_word() = 0;
    } else if (fab_wait(&at_node.node.fab, WORD, UINT64_MAX, 0, kit_now() + 60 * NS_PER_S) ||
               fab_read64(&at_node.node.fab, WORD, &word)) {
        kit_die("a WAIT failed");
    }
    board->seen_ns = kit_now();
    if (way == AT_THE_NODE && fab_write64(&at_node.node.fab, WORD, 0))
        kit_die("a WRITE failed");
}

static void receive(struct net_addr node)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_own();
    connect_to(&at_node, node, 2);
    kit_post(&board->ready, 1);
    for (enum way way = AT_THE_CLIENT, next;; way = next) {
        await_note(way);
        next = (enum way)__atomic_load_n(&board->way, __ATOMIC_ACQUIRE); /* before the writer changes it */
        kit_post(&board->seen, board->seen + 1);
    }
}

static void *compute(void *arg)
{
    for (volatile uint64_t n = 0;; n++)
        ;
    return arg;
}

/* A holder that computes in some threads, while another one serves. */
static void hold(unsigned threads)
{
    static volatile sig_atomic_t never;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_own();
    for (unsigned i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, compute, NULL))
            kit_die("cannot start a thread");
    }
    kit_post(&board->ready, 1);
    memory_node_run(&own, &never);
    _exit(0);
}

/* ---- the writer ---- */

static void rest(void)
{
    for (uint64_t until = kit_now() + GAP_NS; kit_now() < until;)
        ;
}

static double write_note(enum way way)
{
    uint64_t begin = kit_now();
    int rc = fab_write64(way == AT_THE_NODE ? &at_node.node.fab : &at_client.node.fab, WORD, 1);
    if (rc)
        kit_die("a note was not written: %d, %s", rc, way == AT_THE_NODE ? "at the node" : "at the client");
    return (double)begin;
}

static double tell_waiter(enum way way)
{
    uint32_t before = __atomic_load_n(&board->seen, __ATOMIC_ACQUIRE);
    rest();
    double begin = write_note(way);
    kit_await(&board->seen, before + 1);
    return (double)board->seen_ns - begin;
}

static double to_waiter(enum way way)
{
    if (board->way != way) { /* it still waits in the other one */
        enum way other = (enum way)board->way;
        __atomic_store_n(&board->way, way, __ATOMIC_RELEASE);
        tell_waiter(other);
    }
    return tell_waiter(way);
}

static double to_holder(enum way way)
{
    rest();
    double begin = write_note(way);
    return (double)kit_now() - begin;
}

static void report(double scale, const char *what, double (*note)(enum way))
{
    static double took[WAYS][TURNS * NOTES];
    const unsigned turns = (unsigned)max_u64(2, min_u64(TURNS, (uint64_t)(TURNS * scale)));
    for (unsigned turn = 0; turn < turns; turn++)
        for (enum way way = AT_THE_NODE; way < WAYS; way++)
            for (unsigned i = 0; i < NOTES; i++)
                took[way][turn * NOTES + i] = note(way);
    const unsigned n = turns * NOTES;
    double node = kit_percentile(took[AT_THE_NODE], n, 0.5), client = kit_percentile(took[AT_THE_CLIENT], n, 0.5);
    double node_late = kit_percentile(took[AT_THE_NODE], n, 0.99), client_late = kit_percentile(took[AT_THE_CLIENT], n, 0.99);
    printf("%s: at the node %.1f us (99 %%: %.1f), at the client %.1f us (99 %%: %.1f)\n", what, node / 1000, node_late / 1000,
           client / 1000, client_late / 1000);
}

/* In a process of its own, which ends with this one. */
static pid_t start(bool holder, unsigned threads, int cpu, struct net_addr node)
{
    board->ready = 0;
    board->way = AT_THE_CLIENT;
    pid_t pid = fork();
    if (!pid) {
        kit_pin(cpu);
        if (holder)
            hold(threads);
        else
            receive(node);
    }
    kit_await(&board->ready, 1);
    connect_to(&at_client, board->client, 1);
    return pid;
}

static void end(pid_t pid)
{
    node_udp_close(&at_client);
    node_end(pid);
}

int main(int argc, char **argv)
{
    static const unsigned threads[] = {0, 1, 4};
    struct kit k;
    kit_begin(&k, argc, argv, "where the descriptors of a queue lie: at the node or at the client");
    board = kit_shared(sizeof *board);
    struct memory_node_params p = node_params("shiftlock", net_v4(htonl(INADDR_LOOPBACK), 0));
    p.spin_ns = 0;
    struct node_started node = node_start(&p, k.cpus[1], NULL);
    pid_t pid = start(false, 0, k.cpus[0], node.at);
    kit_pin(k.cpus[1]);
    connect_to(&at_node, node.at, 1);
    report(k.scale, "a note to a waiter", to_waiter);
    end(pid);
    for (unsigned i = 0; i < countof(threads); i++) {
        char what[64];
        snprintf(what, sizeof what, "a note to a holder, %u threads of whose process compute", threads[i]);
        pid = start(true, threads[i], k.cpus[0], node.at);
        report(k.scale, what, to_holder);
        end(pid);
    }
    node_end(node.pid);
    return kit_end(&k);
}
