/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node as a process: hosts the lock memory of one space, and executes verbs on it that come as datagrams. */
#ifndef PAWL_NODE_MEMORY_H
#define PAWL_NODE_MEMORY_H

#include "cluster/coordinator.h"
#include "cluster/keeper.h"
#include "dataplane/memnode.h"
#include "wire/udp.h"

#include <signal.h>

struct memory_node_params {
    struct layout_params layout; /* caps and birth are filled in */
    const char *space;
    struct net_addr at;
    bool fresh; /* no client holds anything from before: serve at once, without waiting for a lease */
    uint64_t spin_ns;
};

struct memory_node {
    struct memory_node_params p;
    struct rack_identity identity; /* of the space, by its name */
    struct udp udp;
    struct care care;
    void *memory;
    struct memnode *node;
    uint64_t silent_until_ns;
    bool ready;
    uint64_t tick_ns;
};

/* 0 or a negative errno, explained. */
int memory_node_open(struct memory_node *m, const struct memory_node_params *p);

/* Until *stop. */
void memory_node_run(struct memory_node *m, const volatile sig_atomic_t *stop);
void memory_node_close(struct memory_node *m);

/* Capabilities of a memory node in a process: those of its spaces. */
#define MEMORY_NODE_CAPS (FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED | FAB_WAIT)

#endif
