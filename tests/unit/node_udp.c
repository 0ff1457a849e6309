/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node's endpoint over UDP that several threads share: every verb once, stores in order, waits that end. */
#include "fabric/node_udp.h"
#include "dataplane/memnode.h"
#include "tests/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>

#define THREADS 4
#define ROUNDS 200
#define BYTES 4096u
#define LEASE_NS (20 * NS_PER_S) /* a busy machine may stop any thread for seconds */

static _Alignas(16) uint64_t memory[BYTES / 8];
static struct udp here;
static bool stop;
static bool other; /* the node speaks a later version */

enum { SUM = 0, TURN = 1, OWN = 16 };

static void *serve(void *arg)
{
    static struct udp_batch batch;
    const struct memnode_params p = {.space = "space",
                                     .id = 16,
                                     .life = 1,
                                     .lease_ns = LEASE_NS,
                                     .clients = 4,
                                     .can = VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED | VERBS_CAN_WAIT,
                                     .memory = memory,
                                     .bytes = BYTES};
    struct memnode *node = memnode_new(&p);
    (void)arg;
    CHECK(node);
    memnode_ready(node);
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        unsigned n = udp_wait(&here, &batch, 0, world_now(&world_real) + 10 * NS_PER_MS);
        for (unsigned i = 0; i < n; i++) {
            struct memnode_from from;
            struct verbs_wait wake;
            struct udp_out out = {.to = batch.packet[i].from, .data = batch.packet[i].data};
            memcpy(&from, &batch.packet[i].from, sizeof from);
            uint8_t *version = &((struct verbs_head *)(void *)batch.packet[i].data)->version;
            bool later = __atomic_load_n(&other, __ATOMIC_ACQUIRE);
            *version = (uint8_t)(*version - later); /* as such a node sees it: older than its own */
            out.len = memnode_packet(node, batch.packet[i].data, batch.packet[i].len, &from, world_now(&world_real), i);
            *version = (uint8_t)(*version + later);
            if (out.len)
                udp_send(&here, &out, 1);
            out.data = &wake;
            while ((out.len = memnode_more(node, &wake, &from))) {
                memcpy(&out.to, &from, sizeof from);
                udp_send(&here, &out, 1);
            }
        }
    }
    CHECK_EQ(memnode_counts(node)->forged + memnode_counts(node)->malformed, 0);
    memnode_free(node);
    return NULL;
}

static struct node_udp ep;

/* Threads take turns by a word that each waits for, and count in another without atomics. */
static void *work(void *arg)
{
    uint64_t me = *(const unsigned *)arg, word = 0, old;
    struct fab_ep *fab = &ep.node.fab;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        CHECK_EQ(fab_faa64(fab, SUM * 8, 1, &old), 0);
        fab_own_store64(fab, (OWN + me) * 8, i + 1);
        CHECK_EQ(fab_own_load64(fab, (OWN + me) * 8), i + 1);
        CHECK_EQ(fab_read64(fab, (OWN + me) * 8, &word), 0); /* the store has left with it */
        CHECK_EQ(word, i + 1);
        if (i % 10)
            continue;
        while (!fab_read64(fab, TURN * 8, &word) && word % THREADS != me)
            fab_wait(fab, TURN * 8, UINT32_MAX, word, world_now(&world_real) + NS_PER_S);
        CHECK_EQ(fab_write64(fab, TURN * 8, word + 1), 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t server, threads[THREADS];
    unsigned numbers[THREADS];
    CHECK_EQ(udp_open(&here, net_v4(htonl(INADDR_LOOPBACK), 0)), 0);
    CHECK_EQ(pthread_create(&server, NULL, serve, NULL), 0);
    CHECK_EQ(node_udp_open(&ep, here.at, (struct net_addr){0}), 0);
    ep.node.patience_ns = 60 * NS_PER_S; /* every outcome becomes known */
    __atomic_store_n(&other, true, __ATOMIC_RELEASE);
    CHECK_EQ(fab_node_connect(&ep.node, "space", 6, world_now(&world_real) + 20 * NS_PER_S), -EPROTONOSUPPORT);
    __atomic_store_n(&other, false, __ATOMIC_RELEASE);
    CHECK_EQ(fab_node_connect(&ep.node, "elsewhere", 7, world_now(&world_real) + 20 * NS_PER_S), -ENOENT);
    CHECK_EQ(fab_node_connect(&ep.node, "space", 8, world_now(&world_real) + 20 * NS_PER_S), 0);
    CHECK_EQ(fab_node_set_own(&ep.node, OWN * 8, THREADS * 8), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    uint64_t sum = 0, turn = 0;
    CHECK_EQ(fab_read64(&ep.node.fab, SUM * 8, &sum), 0);
    CHECK_EQ(fab_read64(&ep.node.fab, TURN * 8, &turn), 0);
    CHECK_EQ(sum, THREADS * ROUNDS);
    CHECK_EQ(turn, THREADS * (ROUNDS / 10));
    fab_node_leave(&ep.node, world_now(&world_real) + NS_PER_S);
    CHECK_EQ(fab_read64(&ep.node.fab, SUM * 8, &sum), -FAB_EFENCED);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(server, NULL), 0);
    node_udp_close(&ep);
    udp_close(&here);
    return 0;
}
