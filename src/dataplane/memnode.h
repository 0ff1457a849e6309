/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A memory node: memory, the clients that are connected to it with their reply caches, and WAITs that are parked. Free of I/O: a
 * packet goes in and its answer comes out in its place; answers of parked WAITs are fetched. The simulated cluster and `pawl serve`
 * drive the same functions. */
#ifndef PAWL_DATAPLANE_MEMNODE_H
#define PAWL_DATAPLANE_MEMNODE_H

#include "dataplane/verbs_client.h"

#define MEMNODE_CLIENTS_MAX 8192u /* twice the sessions of a space: numbers of lost clients stay in use until they are fenced */
#define MEMNODE_PARKS 4u          /* WAITs of one client; a further one takes the place of the oldest */

/* Outcomes of packets. */
struct memnode_counts {
    uint64_t packets;
    uint64_t requests, verbs; /* executed */
    uint64_t repeats;         /* answered from the reply cache */
    uint64_t dropped;         /* too old, or one before it was missing */
    uint64_t refused;         /* of clients that were shut out, or of a former life of the node */
    uint64_t forged;          /* with a wrong tag */
    uint64_t malformed;
    uint64_t foreign; /* of another space, version or feature */
    uint64_t full;    /* CONNECTs of senders that have their share of the numbers, or when no number was free */
    uint64_t waits, wakes;
    uint64_t connects, fences, leaves, silent;
};

struct memnode;

/* Where a packet came from, as its driver has it: nothing here looks into it but memnode_params.same_machine. */
struct memnode_from {
    uint64_t opaque[3];
};

struct memnode_params {
    const char *space; /* fewer than VERBS_NAME_LEN bytes */
    uint32_t id;       /* the space's short id */
    uint32_t life;     /* of the memory */
    uint64_t lease_ns;
    uint32_t clients; /* 1 to MEMNODE_CLIENTS_MAX */
    uint32_t can;     /* enum verbs_can */
    uint64_t mistakes;
    void *memory; /* aligned to 16 bytes; the caller's */
    uint64_t bytes;
    struct verbs_client *table; /* `clients` of them, zero; null: the node makes its own */
    /* Whether a process on this machine has ended. Null: no client may use the memory directly. */
    bool (*ended)(uint64_t process);
    /* Whether two packets came from one machine, which has at most half of the clients then. Null: one machine may have all. */
    bool (*same_machine)(const struct memnode_from *a, const struct memnode_from *b);
    /* Shuts a client out where verbs do not come as packets: no verb of it takes effect when this returns. Null: they do. */
    void (*shut)(void *ctx, uint32_t client);
    void *ctx;
};

/* Null if there is no memory. Until memnode_ready, CONNECT is answered with VERBS_AGAIN. */
struct memnode *memnode_new(const struct memnode_params *p);
void memnode_free(struct memnode *n); /* may be null */
void memnode_ready(struct memnode *n);

/* One packet, which has room for VERBS_PACKET_MAX bytes and is aligned to 8. How long the answer is that stands in its place now;
 * 0: there is none. `from` is where an answer goes; `random` is not known to others. */
uint32_t memnode_packet(struct memnode *n, void *packet, uint32_t len, const struct memnode_from *from, uint64_t now_ns,
                        uint64_t random);

/* An answer of a WAIT that need not wait any longer, and where it goes. 0: there is none. After every packet. */
uint32_t memnode_more(struct memnode *n, void *packet, struct memnode_from *to);

/* Forgets WAITs and shuts out clients that were silent for two leases: no session of theirs can be valid. Now and then. */
void memnode_tick(struct memnode *n, uint64_t now_ns);

const struct memnode_counts *memnode_counts(const struct memnode *n);
uint32_t memnode_clients(const struct memnode *n); /* connected */
uint64_t memnode_bytes_per_client(void);

#endif
