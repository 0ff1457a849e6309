/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node as a process: hosts the lock memory of one space, and executes verbs on it that come as datagrams. */
#ifndef PAWL_NODE_MEMORY_H
#define PAWL_NODE_MEMORY_H

#include "cluster/coordinator.h"
#include "cluster/keeper.h"
#include "dataplane/memnode.h"
#include "lib/log.h"
#include "node/figures.h"
#include "node/memory_tend.h"
#include "wire/udp.h"

#include <signal.h>

/* Lock memory that is not this process's own, since a program in the kernel executes the verbs (node/memory_kernel.h). */
struct memory_need {
    uint64_t bytes;
    uint32_t clients;
    uint32_t space; /* its short id */
    uint32_t life;  /* of new memory */
    struct net_addr at;
    uint64_t lease_ns;
    uint32_t caps; /* of the space */
    bool fresh;
    void *memory; /* that clients on this machine map, too, and that is the home's from now on; null: the home has its own */
    const struct seal_ring *ring; /* null: packets are not tagged */
};

/* With whose key a client has connected: no other speaks for it. */
struct memory_owner {
    struct seal_asker by;
    uint32_t life; /* of the client */
};

struct memory_place {
    void *memory;                /* zero, */
    struct verbs_client *table;  /* and so is this, */
    bool found;                  /* unless an earlier process left them: */
    uint32_t life;               /* then in that life */
    struct memory_owner *owners; /* by client's number; null: packets are not tagged */
};

/* Datagrams that the home's program refused by itself. */
struct memory_drops {
    uint64_t untagged, forged, foreign, malformed, late, refused; /* as in memnode_counts; late: dropped there */
};

struct memory_home {
    void *ctx;
    uint32_t caps; /* FAB_* */
    int (*open)(void *ctx, const struct memory_need *need, struct memory_place *out);
    int (*begin)(void *ctx, struct care *care);                 /* the memory is formatted: execute */
    uint32_t (*execute)(void *ctx, void *packet, uint32_t len); /* a BATCH, WAIT or ATTACH that came to this process; its answer */
    void (*shut)(void *ctx, uint32_t client);                   /* of memnode_params; null: none */
    void (*tend)(void *ctx, uint64_t now);                      /* every look; null: clients look after each other */
    uint32_t can;                                               /* enum verbs_can, beside those of the capabilities */
    void (*close)(void *ctx);
    void (*drops)(void *ctx, struct memory_drops *out); /* null: it checks no tags */
    const char *pinned; /* a map of the kernel that is the memory, and that clients on this machine map, too; null: none */
    bool takes_memory;  /* memory_need.memory; with neither, clients on this machine cannot map it */
};

struct memory_node_params {
    struct layout_params layout;    /* caps and birth are filled in */
    const struct memory_home *home; /* null: the memory is this process's, and ends with it */
    const char *space;
    struct net_addr at;
    const struct seal_ring *ring; /* the cluster's keys; null or none: packets are not tagged */
    bool local; /* clients on this machine may use the memory directly; all clients poll then. With a `home` that is pinned or
                   takes memory, and then for designs with node_tends */
    bool fresh; /* no client holds anything from before: serve at once, without waiting for a lease */
    uint64_t spin_ns;
    uint64_t mistakes; /* of the executor, on purpose (dataplane/mistake.h); not with `home` */
};

struct memory_node {
    struct memory_node_params p;
    struct rack_identity identity; /* of the space, by its name */
    struct udp udp;
    struct care care;
    struct memory_place place;
    int file; /* that clients on this machine map, too; -1: there is none */
    struct memory_tend tend;
    struct memnode *node;
    struct memory_owner *owners; /* by client's number; null: packets are not tagged */
    uint32_t clients;
    uint64_t untagged; /* packets that were dropped, since their tag is missing or wrong, or another client's */
    uint64_t strays;   /* and that are of no kind that a memory node knows */
    uint64_t silent_until_ns;
    bool ready;
    uint64_t tick_ns;
    struct memory_figures said; /* as the log has them */
    struct log_limit changing, refusing;
    struct figures_board board;
};

/* 0 or a negative errno, explained. */
int memory_node_open(struct memory_node *m, const struct memory_node_params *p);

/* Until *stop. */
void memory_node_run(struct memory_node *m, const volatile sig_atomic_t *stop);
void memory_node_close(struct memory_node *m);

/* Capabilities of a memory node in a process: those of its spaces. */
#define MEMORY_NODE_CAPS (FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED | FAB_WAIT)

/* And of one whose memory clients use directly: its atomics are the CPU's. A change by a CPU wakes no waiter. */
#define MEMORY_NODE_LOCAL_CAPS (FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED | FAB_CPU_ATOMIC64 | FAB_CPU_ATOMIC128)

#endif
