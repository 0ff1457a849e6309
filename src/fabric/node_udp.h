/* SPDX-License-Identifier: Apache-2.0 */
/* The memory node's endpoint over UDP. Any number of threads may use it: a thread that waits receives, for itself and for the
 * others, and passes the right to receive on. It looks again and again for a moment, and then sleeps. Code on a fiber
 * (fabric/parking.h) gives its thread back instead, and needs a thread that calls node_udp_await for it. */
#ifndef PAWL_FABRIC_NODE_UDP_H
#define PAWL_FABRIC_NODE_UDP_H

#include "fabric/node.h"
#include "lib/spin.h"
#include "wire/udp.h"

#include <pthread.h>

struct node_udp {
    struct fab_node node;
    int fd;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool receiving;                /* a thread has the right */
    unsigned waiting;              /* threads without it */
    struct spin spin[2];           /* of the thread that receives: of waits for others, and for an answer to a request */
    struct seal_asker asker;       /* whose key tags and opens its datagrams; none: they are not tagged */
    int bell;                      /* readable: the thread that receives should look up */
    void (*on_pending)(void *ctx); /* a store waits in the open request: some thread should tick soon. With the lock; may be null */
    void *ctx;
};

/* A socket for the node at `to`, from the address `from` (0: the one that packets to there leave by). Not connected to a space yet.
 * A negative errno if there is no socket. */
int node_udp_open(struct node_udp *u, struct net_addr to, struct net_addr from);
void node_udp_close(struct node_udp *u);

/* How often tasks were told to look again. */
static inline uint64_t node_udp_changes(const struct node_udp *u)
{
    return __atomic_load_n(&u->node.changes, __ATOMIC_ACQUIRE);
}

/* Until node_udp_changes is no longer `seen`, or that time: receives, or waits for the thread that does, and retransmits what is
 * due. May return for no reason. */
void node_udp_await(struct node_udp *u, uint64_t seen, uint64_t until);

/* Ends every wait of the endpoint's threads for a look around: operations on fibers may have nearer deadlines. With the
 * lock. */
void node_udp_nudge(struct node_udp *u);

#endif
