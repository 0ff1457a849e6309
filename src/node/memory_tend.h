/* SPDX-License-Identifier: Apache-2.0 */
/* The seat of a memory node's process in its own space, for designs whose clients on the node's machine use CPU instructions
 * (design.node_tends): only sessions of that machine can recover from a lost one there, and there may be none. The process connects
 * to itself like a client, because verbs and fences are the executor's, and has the memory mapped. */
#ifndef PAWL_NODE_MEMORY_TEND_H
#define PAWL_NODE_MEMORY_TEND_H

#include "client/far.h"
#include "cluster/keeper.h"

#include <pthread.h>

struct memory_tend {
    struct net_where at;
    void *memory;
    struct care *care;
    struct node_udp *far; /* null: not connected */
    struct fab_near near;
    struct sighting *seen;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t told;
    bool stop;
};

/* `care` has the header of the memory, and is this one's until memory_tend_stop. 0 or a negative errno, explained. */
int memory_tend_start(struct memory_tend *t, const char *space, struct net_addr node, void *memory, struct care *care);
void memory_tend_stop(struct memory_tend *t); /* of no use if it was not started */

#endif
