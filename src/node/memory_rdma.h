/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node under libfabric or libibverbs, seen from its process: the library or the card executes the verbs, each client's
 * under a key of its own. The process connects clients and tells them their keys, assigns slots, fences by closing a key, and looks
 * after lost sessions.
 *
 * The provider's atomics need not be atomic with the CPU's, so the process itself reaches the memory by an endpoint, too. */
#ifndef PAWL_NODE_MEMORY_RDMA_H
#define PAWL_NODE_MEMORY_RDMA_H

#include "fabric/near.h"
#include "fabric/rdma.h"
#include "node/memory.h"

struct memory_rdma {
    /* The caller's. */
    const char *provider; /* of libfabric, or RDMA_VERBS */
    const char *device;   /* of libibverbs; null: the one of the address */
    struct net_addr at;
    uint32_t clients; /* numbers of clients at most */
    uint64_t spin_ns;
    uint64_t mistakes; /* enum rdma_mistakes, on purpose */
    void (*report)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    /* The rest is of memory_rdma.c. */
    struct rdma_target *target;
    struct fab_rdma *own; /* the process's endpoint */
    struct memory_need need;
    struct verbs_client *table;
    void *memory;
    struct fab_near near; /* the process's endpoint where clients on this machine have the memory mapped, too */
    struct care *care;
    struct sighting *seen;
    uint64_t tend_ns, failed;
};

/* For memory_node_open; `o` does not move while the node is open. 0 or a negative code, explained: then nothing is left. */
int memory_rdma_home(struct memory_rdma *o, struct memory_home *out);

#endif
