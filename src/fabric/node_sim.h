/* SPDX-License-Identifier: Apache-2.0 */
/* The memory node's endpoint in the simulated cluster: its datagrams go over the simulated network, with all its faults. */
#ifndef PAWL_FABRIC_NODE_SIM_H
#define PAWL_FABRIC_NODE_SIM_H

#include "fabric/node.h"
#include "wire/sim.h"

#define NODE_SIM_TASKS_MAX 16 /* of one process that wait at once */

struct node_sim {
    struct fab_node node;
    struct sim_wire *wire;
    struct sim_process *process;
    struct sim_addr self, there;
    struct sim_ticket waiting[NODE_SIM_TASKS_MAX];
    unsigned waiting_count;
};

/* An endpoint of a living process, which then connects to the node at `there`. Null if there is no memory or the port is in use. */
struct node_sim *node_sim_new(struct sim_wire *wire, struct sim_process *process, uint16_t port, struct sim_addr there);

/* No task uses it any more, or its process is gone. */
void node_sim_free(struct node_sim *s);

#endif
