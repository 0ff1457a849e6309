/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node in the simulated network: a process that executes verbs on its host's memory. */
#ifndef PAWL_WORKBENCH_TRIAL_NODE_BOX_H
#define PAWL_WORKBENCH_TRIAL_NODE_BOX_H

#include "dataplane/memnode.h"
#include "fabric/node_sim.h"

#define NODE_BOX_PORT 1
#define NODE_BOX_SPACE "simulated"

struct node_box {
    struct sim_wire *wire;
    struct sim_process *process;
    struct memnode *node;
    uint64_t randoms;
};

struct node_box_params {
    uint64_t lease_ns;
    uint32_t clients, can;
    uint64_t mistakes;
};

/* A life of the node begins: its memory is the host's, zero. Clients are told to come again until memnode_ready. 0 or -ENOMEM. */
int node_box_start(struct node_box *b, struct sim_wire *wire, struct sim_process *process, const struct node_box_params *p);
void node_box_tick(struct node_box *b);
void node_box_free(struct node_box *b);

/* Where its clients find it. */
static inline struct sim_addr node_box_addr(const struct node_box *b)
{
    return (struct sim_addr){.host = b->process->host->id, .port = NODE_BOX_PORT};
}

#endif
