/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the endpoint: rdma.c has the verbs, rdma_ops.c the rest of its table. */
#ifndef PAWL_FABRIC_RDMA_INTERNAL_H
#define PAWL_FABRIC_RDMA_INTERNAL_H

#include "fabric/own.h"
#include "fabric/rdma_port.h"

/* A batch under way. On its caller's stack. */
struct call {
    uint64_t attempt; /* the endpoint's when it began */
    unsigned left;
    int error;
};

struct fab_rdma {
    struct fab_ep ep;
    struct fab_rdma_io io;
    pthread_mutex_t mutex; /* of everything here, and of the provider */
    struct verbs_way way;
    const struct rdma_kind *kind;
    bool swaps; /* the library has a SWAP */
    struct rdma_port *port;
    struct rdma_port *next; /* the end that the node was asked to grant access to, and has not answered; null: none */
    struct verbs_way mine;  /* what the node must know of that */
    uint32_t number;        /* of the key */
    uint64_t attempt;       /* rises when a thread begins to go on under a new key: verbs that were to be issued before are not */
    bool connected;         /* a verb of this port has ended well */
    bool broken;            /* no verb is issued before the key was renewed */
    bool renewing;          /* a thread does that, */
    bool exchanging;        /* and has the port for itself, without the lock */
    bool sleeps;            /* a thread sleeps until a verb ends, without the lock */
    bool stalled;           /* the provider has refused a verb: nothing is issued until none is in flight */
    uint64_t silent_since;  /* the node was asked for a new key then, and has not answered since; 0: it has */
    int dead;               /* what every call returns from now on; 0: nothing is wrong */
    int error;              /* the library's code of the latest failure */
    unsigned in_flight;
    uint64_t sequence;
    struct flight flights[FLIGHTS];
    struct flight *open; /* stores that are gathered and leave with the next verb; kept; null: none */
    struct flight_buffers *buffers;
    struct own_words own;
};

static inline struct fab_rdma *rdma_of(struct fab_ep *ep)
{
    return container_of(ep, struct fab_rdma, ep);
}

extern const struct fab_ops rdma_ops;

uint64_t rdma_patience(const struct fab_rdma *o); /* when a verb that is issued now has taken too long */
int rdma_batch(struct fab_ep *ep, struct fab_op *ops, unsigned count);

/* With the lock. */
void rdma_look(struct fab_rdma *o);                           /* takes completions */
int rdma_ready(struct fab_rdma *o, uint64_t until);           /* goes on under a new key, if the connection broke */
void rdma_store(struct fab_rdma *o, const struct fab_op *op); /* a WRITE that nothing waits for, and leaves with the next verb */
void rdma_flush(struct fab_rdma *o);     /* issues the stores that are gathered, at the latest with the next look */
void rdma_flush_now(struct fab_rdma *o); /* the same where no look may follow soon */

#endif
