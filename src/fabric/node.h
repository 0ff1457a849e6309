/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint on a memory node: the fabric over datagrams (wire/verbs.h). This part has no sockets: node_udp.c drives it by a
 * socket, node_sim.c by the simulated network.
 *
 * All tasks of a client share one endpoint, and all its verbs take effect in one order. A request is retransmitted until it is
 * answered, even if its caller has given up: later requests take effect after it. So a verb of unknown outcome took effect before
 * any later verb, or the client is shut out and never will know.
 *
 * Stores to words of the session's own (fab_own_*, fab_local_*) wait in an open request and leave with the next verb, at the latest
 * when the client waits or at the next fab_node_tick. */
#ifndef PAWL_FABRIC_NODE_H
#define PAWL_FABRIC_NODE_H

#include "fabric/own.h"
#include "wire/verbs.h"

struct fab_node;

/* Called with the lock of the endpoint, unless it says otherwise. */
struct fab_node_io {
    void (*lock)(struct fab_node *n); /* without it */
    void (*unlock)(struct fab_node *n);
    void (*send)(struct fab_node *n, const void *packet, uint32_t len);
    /* Gives the lock back until a packet was handled, another task called `wake`, or that time has come. -ECANCELED: the operation
     * was cancelled; only if `cancellable`. */
    int (*wait)(struct fab_node *n, uint64_t until, bool cancellable);
    void (*wake)(struct fab_node *n);         /* all that wait */
    uint64_t (*patience)(struct fab_node *n); /* how long this call waits for its answer; null: patience_ns */
    void (*pending)(struct fab_node *n);      /* a store waits in the open request; null: the caller ticks anyway */
};

struct node_call;
struct node_ask;

/* A request of the window. */
struct node_request {
    uint64_t sequence;
    enum { REQUEST_FREE, REQUEST_OPEN, REQUEST_SENT } state;
    bool again; /* retransmitted at once when a later one was answered before it */
    unsigned tries;
    uint64_t due_ns;                  /* when it is retransmitted */
    uint32_t len, count, kept, reads; /* kept: words of the reply cache; reads: words of READs that no change has followed so far */
    uint32_t latest;                  /* where in the packet its latest verb is */
    /* The caller's verbs in it: the first of them is at `from` in the packet, and for a READ begins at byte `skip`. Null: no task
     * waits. */
    struct node_call *call;
    struct fab_op *ops;
    uint32_t from, skip;
    _Alignas(8) uint8_t packet[VERBS_PACKET_MAX];
};

#define NODE_STORE_WORDS 8u /* more than of any descriptor follow each other */

/* A WRITE at the end of the open request, of words of the session's own. It is counted in the request's length, and written into
 * its packet when another verb follows or the request leaves: until then it may grow. */
struct node_store {
    uint64_t offset;
    uint32_t room;
    uint64_t word[NODE_STORE_WORDS];
};

struct fab_node_counts {
    uint64_t requests, verbs, bytes;              /* bytes and verbs of requests, each counted once */
    uint64_t retransmits, unknown, waits, strays; /* strays: packets that answer nothing */
};

struct fab_node {
    struct fab_ep fab;
    const struct fab_node_io *io;
    uint64_t retransmit_ns, retransmit_max_ns; /* between the first two transmissions; and at most */
    uint64_t patience_ns;                      /* after which the outcome of a verb is called unknown */
    uint64_t poll_ns;                          /* between two looks where the node does not park */
    /* Told by CONNECT. */
    uint32_t space, node_life, client, life, can;
    uint64_t tag, lease_ns;
    int dead;            /* what every call returns from now on; 0: nothing is wrong */
    uint64_t next, base; /* sequence of the next request; of the first that is not answered */
    struct node_request *open;
    struct node_store stores[VERBS_COUNT_MAX]; /* of the open request: they are its end, from `stores_at` on */
    unsigned store_count, stores_at;
    uint64_t store_places; /* in which their words are: see node.c */
    struct node_request requests[VERBS_WINDOW];
    struct node_ask *asks; /* questions under way */
    uint64_t changes;      /* rises when tasks that wait should look again (fab_node_io.wake) */
    uint64_t ask_id;
    uint64_t fence_after_ns; /* until then no fence is asked for: the last one was not answered */
    struct own_words own;    /* words that were stored (fab_own_*) */
    struct fab_node_counts counts;
};

/* The caller sets the times afterwards. Of addresses the endpoint uses the offset only: it reaches one node. */
void fab_node_init(struct fab_node *n, const struct fab_node_io *io, struct world *world);
void fab_node_free(struct fab_node *n);

/* Connects to the space of that name. 0, -ETIMEDOUT (no answer), -EAGAIN (the node waits for a lease to end), -ENOENT (no such
 * space), -ENOSPC (all client numbers are in use), -EPROTONOSUPPORT (the node speaks another version). `nonce` is the caller's
 * random number, not 0. */
int fab_node_connect(struct fab_node *n, const char *space, uint64_t nonce, uint64_t deadline);

/* The same for a process that would use the node's memory directly, if the node's `can` then has VERBS_CAN_NEAR. */
int fab_node_connect_near(struct fab_node *n, const char *space, uint64_t nonce, uint64_t process, uint64_t deadline);

/* How the memory is reached where verbs are not packets (VERBS_CAN_FABRIC): key `number` of this client, and a slot if a->lease_ns
 * is not 0. Both are set by the caller, the rest is the answer; a->code is the node's error. 0, -ETIMEDOUT, or what is wrong with
 * the endpoint. */
int fab_node_attach(struct fab_node *n, struct verbs_attach *a, uint64_t deadline);

/* The client's proof of identity (session_params.proof). */
static inline uint64_t fab_node_proof(const struct fab_node *n)
{
    return (uint64_t)n->client << 32 | n->life;
}

/* From now on stores to these words of the session's own are kept here, too, and loads cost nothing. Before the session's first use
 * of them. -ENOMEM. */
int fab_node_set_own(struct fab_node *n, fab_addr base, uint64_t bytes);

/* Whether an answer is yet to come. With the lock. */
static inline bool fab_node_expects(const struct fab_node *n)
{
    return n->next - n->base > (n->open != NULL) || n->asks;
}

/* A packet has come. With the lock. */
void fab_node_packet(struct fab_node *n, const void *packet, uint32_t len);

/* Sends what waits in the open request, and retransmits what is due. When to call it again, and how many requests there were so
 * far. Without the lock. */
uint64_t fab_node_tick(struct fab_node *n, uint64_t *requests);

/* Tells the node that the client has ended, after its requests were answered or the deadline came. */
void fab_node_leave(struct fab_node *n, uint64_t deadline);

#endif
