/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of libfabric's endpoint: ofi.c has the verbs, ofi_ops.c the rest of its table. */
#ifndef PAWL_FABRIC_OFI_INTERNAL_H
#define PAWL_FABRIC_OFI_INTERNAL_H

#include "fabric/ofi_port.h"
#include "fabric/own.h"

#include <pthread.h>

#define FLIGHTS 64u      /* verbs in flight of one endpoint, those of a whole batch (FAB_BATCH_MAX) */
#define FLIGHT_WORDS 64u /* of one piece of a READ or WRITE */
#define FLIGHT_RANGES 4u /* of stores in one message: as many as ofi_rxm takes */

/* A batch under way. On its caller's stack. */
struct call {
    uint64_t attempt; /* the endpoint's when it began */
    unsigned left;
    int error;
};

/* Registered with the provider, where it wants that. */
struct flight_buffers {
    uint64_t operand[FLIGHT_WORDS], compare[8], result[FLIGHT_WORDS];
};

struct flight {
    struct fi_context2 context;
    /* Held: about to be issued; kept: a store that is not issued, or is issued again under the next key. */
    enum { FLIGHT_FREE, FLIGHT_HELD, FLIGHT_SENT, FLIGHT_KEPT } state;
    bool store; /* nothing waits for it */
    bool is_read;
    uint64_t sequence;
    struct call *call; /* null: no task waits any more */
    struct fab_op *op;
    uint32_t skip, words;
    struct {
        uint64_t offset;
        uint32_t words;
    } range[FLIGHT_RANGES]; /* of stores that were gathered; else one */
    unsigned ranges;
    enum fi_op how;
    struct flight_buffers *buffers;
};

struct fab_ofi {
    struct fab_ep ep;
    struct fab_ofi_io io;
    pthread_mutex_t mutex; /* of everything here, and of the provider */
    struct verbs_way way;
    struct ofi_port port;
    struct fid_mr *local; /* the buffers; null: the provider needs no registration */
    void *desc;
    fi_addr_t peer;
    uint32_t number;  /* of the key */
    uint64_t attempt; /* rises when a thread begins to go on under a new key: verbs that were to be issued before are not */
    bool connected;   /* a verb of this port has ended well */
    bool broken;      /* no verb is issued before the key was renewed */
    bool renewing;    /* a thread does that, */
    bool exchanging;  /* and has the port for itself, without the lock */
    bool stalled;     /* the provider has refused a verb: nothing is issued until none is in flight */
    int dead;         /* what every call returns from now on; 0: nothing is wrong */
    int error;        /* libfabric's code of the latest failure */
    unsigned in_flight;
    uint64_t sequence;
    struct flight flights[FLIGHTS];
    struct flight *open; /* stores that are gathered and leave with the next verb; kept; null: none */
    struct flight_buffers *buffers;
    struct own_words own;
};

static inline struct fab_ofi *ofi_of(struct fab_ep *ep)
{
    return container_of(ep, struct fab_ofi, ep);
}

extern const struct fab_ops ofi_ops;

uint64_t ofi_patience(const struct fab_ofi *o); /* when a verb that is issued now has taken too long */
int ofi_batch(struct fab_ep *ep, struct fab_op *ops, unsigned count);

/* With the lock. */
void ofi_look(struct fab_ofi *o);                           /* takes completions */
int ofi_ready(struct fab_ofi *o, uint64_t until);           /* goes on under a new key, if the connection broke */
void ofi_store(struct fab_ofi *o, const struct fab_op *op); /* a WRITE that nothing waits for, and leaves with the next verb */
void ofi_flush(struct fab_ofi *o);                          /* issues the stores that are gathered */

#endif
