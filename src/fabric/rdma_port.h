/* SPDX-License-Identifier: Apache-2.0 */
/* Below the endpoint (rdma.c) and the node's memory (rdma_target.c): a library that reaches memory of other machines. There are
 * two, libfabric (ofi_*.c) and libibverbs (ibv_*.c), each loaded when it is first asked for. */
#ifndef PAWL_FABRIC_RDMA_PORT_H
#define PAWL_FABRIC_RDMA_PORT_H

#include "fabric/rdma.h"

#include <pthread.h>

#define FLIGHTS 64u      /* verbs in flight of one endpoint, those of a whole batch (FAB_BATCH_MAX) */
#define FLIGHT_WORDS 64u /* of one piece of a READ or WRITE */
#define FLIGHT_RANGES 4u /* of stores in one message: as many as ofi_rxm takes */

struct call;

/* Registered with the library, where it wants that. */
struct flight_buffers {
    uint64_t operand[FLIGHT_WORDS], compare[8], result[FLIGHT_WORDS];
};

/* A verb, or a piece of one, on its way. */
struct flight {
    void *context[8]; /* of the library, first */
    /* Held: about to be issued; kept: a store that is not issued, or is issued again under the next key. */
    enum { FLIGHT_FREE, FLIGHT_HELD, FLIGHT_SENT, FLIGHT_KEPT } state;
    uint8_t verb; /* enum fab_verb; operands are in the buffers */
    bool masked;
    bool last;  /* of its batch */
    bool fence; /* takes effect after all before it */
    bool store; /* nothing waits for it */
    uint64_t sequence;
    struct call *call; /* null: no task waits any more */
    struct fab_op *op;
    uint32_t skip, words;
    struct {
        uint64_t offset;
        uint32_t words;
    } range[FLIGHT_RANGES]; /* of stores that were gathered; else one */
    unsigned ranges;
    struct flight_buffers *buffers;
};

/* A client's end. */
struct rdma_port {
    uint32_t caps;   /* FAB_* */
    bool ordered;    /* verbs in flight keep the order that the capabilities promise, and heed `fence`: a batch is one round trip */
    bool swaps;      /* the library has a SWAP */
    unsigned ranges; /* that one WRITE may have, all of them executed at once */
    uint64_t mistakes;
};

struct rdma_done {
    struct flight *flight; /* null: an error that belongs to none */
    int error;             /* positive; 0: it ended well */
};

struct rdma_kind {
    bool exchanges; /* the node grants access to an end that it was told of; else to any that has the key */
    bool
        tells_loss; /* the library reports a connection that broke: a verb that takes long is slow, and need not be given up soon */

    /* ---- a client's end ---- */

    /* An end that will reach the way, whose verbs use these buffers. `like`: one that reached it before, or null. `mine`: what the
     * node must know of it before it grants access. Explained. */
    int (*open)(const struct verbs_way *way, const struct rdma_port *like, struct flight_buffers *buffers, struct rdma_port **out,
                struct verbs_way *mine);
    int (*connect)(struct rdma_port *p, const struct verbs_way *way); /* to what the node granted; explained */
    void (*close)(struct rdma_port *p);
    /* Issues a verb, at the latest with the next push or look. 0, -EAGAIN: not now, or a negative code: never. */
    int (*give)(struct rdma_port *p, const struct verbs_way *way, struct flight *f);
    void (*push)(struct rdma_port *p); /* issues what was given; an error surfaces at the next look */
    /* Verbs that have ended, up to `max`; or a negative code: the connection broke. */
    int (*look)(struct rdma_port *p, struct rdma_done *done, unsigned max);
    /* A descriptor that is readable once a further verb has ended; of those that ended before, the next look tells. Null: the
     * library has none. */
    int (*arm)(struct rdma_port *p);
    const char *(*error)(int code); /* in words */

    /* ---- a node's memory ---- */

    /* `calls`: held in grant and revoke, and by a thread of the library's that executes verbs. `way`: of every client. Explained.
     */
    int (*serve)(const struct rdma_target_params *p, pthread_mutex_t *calls, void **out, struct verbs_way *way, uint32_t *caps);
    int (*memory)(void *target, void *memory, uint64_t bytes, struct verbs_way *way); /* explained */
    /* Access for a client whose end is `peer`: writes the rest of its way. Explained. */
    int (*grant)(void *target, const struct verbs_way *peer, void **grant, struct verbs_way *way);
    void (*revoke)(void *grant); /* when it returns no verb by it takes effect any more */
    void (*stop)(void *target);
};

extern const struct rdma_kind rdma_ofi, rdma_verbs;

/* By the name in a way: libibverbs for RDMA_VERBS, else libfabric. */
const struct rdma_kind *rdma_kind_of(const char *provider);

#endif
