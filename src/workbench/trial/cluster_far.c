/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster whose lock memory is a memory node: verbs are datagrams on the simulated network, with its faults. */
#include "workbench/trial/cluster.h"

#include <errno.h>

#define CONNECT_LEASES 2 /* for which a client asks the node for a connection, before it begins anew */
#define FIRST_PORT 100

static uint32_t numbers(const struct cluster *c)
{
    return 4 * c->params.clients + 8; /* lost clients keep theirs for a while */
}

void cluster_far_start(struct cluster *c)
{
    const struct node_box_params p = {
        .lease_ns = c->params.lease_ns, .clients = numbers(c), .can = c->params.node_can, .mistakes = c->params.node_mistakes};
    int rc = node_box_start(&c->box, c->wire, c->node, &p);
    assert(!rc);
}

void cluster_far_serve(struct cluster *c)
{
    struct sim_task *self = sim_current(&c->sim);
    memnode_ready(c->box.node);
    for (;;) {
        node_box_tick(&c->box);
        sim_task_wake_at(self, sim_now(&c->sim) + c->params.lease_ns / 8);
        sim_task_block(self);
    }
}

struct fab_ep *cluster_far_ep(struct cluster_client *client)
{
    struct cluster *c = client->cluster;
    const struct sim_addr there = {.host = c->server->id, .port = NODE_BOX_PORT};
    client->far = node_sim_new(c->wire, client->process, (uint16_t)(FIRST_PORT + client->id), there);
    assert(client->far);
    return &client->far->node.fab;
}

int cluster_far_connect(struct cluster_client *client)
{
    struct fab_node *n = &client->far->node;
    if (n->life)
        return n->dead;
    uint64_t nonce = mix64((uint64_t)client->id << 32 | (uint32_t)client->process->generation) | 1;
    uint64_t until = world_now(n->fab.world) + CONNECT_LEASES * client->cluster->params.lease_ns;
    return fab_node_connect(n, NODE_BOX_SPACE, nonce, until);
}
