/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching a memory node: shared by sessions (memory_far.c) and observers (inspect.c). Functions return 0 or a negative code,
 * explained. */
#ifndef PAWL_CLIENT_FAR_H
#define PAWL_CLIENT_FAR_H

#include "client/net_where.h"
#include "cluster/layout.h"
#include "cluster/session.h"
#include "fabric/near.h"
#include "fabric/node_udp.h"
#include "fabric/rdma.h"

/* "pawl://ADDRESS:PORT/SPACE", for messages; the caller frees it. Null: out of memory. */
char *far_name(const struct net_where *w);

/* A connected endpoint; the deadline is on CLOCK_MONOTONIC. */
/* process: not 0 if the caller would use the node's memory directly (far_map). */
int far_open(const struct net_where *w, const char *name, uint64_t process, uint64_t deadline, struct node_udp **out);
void far_close(struct node_udp *u); /* may be null; tells the node */

/* Reads where everything is, checks it, and has the endpoint do what the space was made for. */
int far_attach(struct fab_ep *ep, const char *name, struct layout_header *out);

/* Whether the node is the one of the space's nodes that its place says. */
int far_check_place(const struct net_where *w, const char *name, const struct layout_header *h);

/* The node's memory, if the node and this process are on one machine, and the node agrees; else null. */
void *far_map(const struct node_udp *u, const char *space);

/* An endpoint of a process that has it mapped. To designs with a cohort of clients on the locks' node (node_tends) it is on it. */
void far_near(struct fab_near *n, const struct fab_near_way *way, const struct space *s);

/* An endpoint on the memory of a node whose verbs are not packets (VERBS_CAN_FABRIC), for the client that is connected. */
int far_fabric_open(struct node_udp *u, const char *name, uint64_t deadline, struct fab_rdma **out);

/* A slot for a session with that lease, assigned by such a node. */
int far_fabric_assign(struct node_udp *u, const struct fab_rdma *o, const char *name, uint64_t lease_ns, struct session_place *out);

/* Whether there is a memory node at the place (that after "pawl://"), and not a coordinator. */
int far_is_node(const char *place, bool *is_node);

#endif
