/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node under libfabric, seen from its process: the provider executes the verbs, each client's under a key of its own. The
 * process connects clients and tells them their keys, assigns slots, fences by closing a key, and looks after lost sessions.
 *
 * The provider's atomics need not be atomic with the CPU's, so the process itself reaches the memory by an endpoint, too. */
#ifndef PAWL_NODE_MEMORY_OFI_H
#define PAWL_NODE_MEMORY_OFI_H

#include "fabric/ofi.h"
#include "node/memory.h"

struct memory_ofi {
    /* The caller's. */
    const char *provider;
    struct net_addr at;
    uint32_t clients; /* numbers of clients at most */
    uint64_t spin_ns;
    uint64_t mistakes; /* enum ofi_mistakes, on purpose */
    void (*report)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    /* The rest is of memory_ofi.c. */
    struct ofi_target *target;
    struct fab_ofi *own; /* the process's endpoint */
    struct memory_need need;
    struct verbs_client *table;
    void *memory;
    struct care *care;
    struct sighting *seen;
    uint64_t tend_ns, failed;
};

/* For memory_node_open; `o` does not move while the node is open. 0 or a negative code, explained: then nothing is left. */
int memory_ofi_home(struct memory_ofi *o, struct memory_home *out);

#endif
