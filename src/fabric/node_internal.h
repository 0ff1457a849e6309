/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the memory node's endpoint. */
#ifndef PAWL_FABRIC_NODE_INTERNAL_H
#define PAWL_FABRIC_NODE_INTERNAL_H

#include "fabric/node.h"

static inline struct fab_node *fab_node_of(struct fab_ep *ep)
{
    return container_of(ep, struct fab_node, fab);
}

/* A question outside of the numbered requests: CONNECT, WAIT or FENCE. On its caller's stack. */
struct node_ask {
    uint8_t type;
    bool done;
    uint64_t id;  /* CONNECT: its nonce */
    void *answer; /* room for `len` bytes; the answer has exactly as many */
    uint32_t len;
    struct node_ask *next;
};

/* node.c */
struct verbs_head node_head(const struct fab_node *n, enum verbs_type type, uint32_t len, uint64_t sequence);
void node_flush(struct fab_node *n);
uint64_t node_retransmit(struct fab_node *n); /* what is due; when the next is */
int node_batch(struct fab_ep *ep, struct fab_op *ops, unsigned count);

/* node_ask.c */
int node_wait(struct fab_ep *ep, const struct fab_cond *conds, unsigned count, uint64_t deadline);
int node_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned count, uint64_t deadline);
int node_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen);
int node_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof);
void node_asked(struct fab_node *n, const struct verbs_head *h);

#endif
