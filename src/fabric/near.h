/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint of a client on the memory node's own machine, which has the node's memory mapped. Where the node's atomics are the
 * CPU's, too (FAB_CPU_ATOMIC64), verbs are executed by this process's CPU. Elsewhere they are sent, and only fab_local_* are
 * instructions of the CPU: that is for designs with a cohort of local clients, whose `ep.node` is that of the locks.
 *
 * Verbs on the sessions' slots go through the node all the same. So a lease is renewed only as long as the node lives and has not
 * fenced the client, and the node hears of the client. A change does not wake a waiter: all clients of such a space poll. */
#ifndef PAWL_FABRIC_NEAR_H
#define PAWL_FABRIC_NEAR_H

#include "fabric/fabric.h"

struct fab_near {
    struct fab_ep ep;        /* what the client uses */
    struct fab_ep memory;    /* the mapped memory */
    struct fab_ep *far;      /* verbs that are sent */
    const int *dead;         /* what the node has told this client, to whichever of its threads: no verb of it counts; 0: nothing */
    const uint64_t *changes; /* fab_node.changes of the session; null: it has no operations on fibers */
    fab_addr slots, slots_end;
};

/* `far` is connected, and stays where it is. The rest as above. */
struct fab_near_way {
    struct fab_ep *far;
    const int *dead;
    const uint64_t *changes;
    void *base;
};
void fab_near_init(struct fab_near *n, const struct fab_near_way *way, fab_addr slots, fab_addr slots_end);

#endif
