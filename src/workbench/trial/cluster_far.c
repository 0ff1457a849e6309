/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster whose lock memory is a memory node: verbs are datagrams on the simulated network, with its faults. */
#include "workbench/trial/cluster.h"

#define CONNECT_LEASES 2 /* for which a client asks the node for a connection, before it begins anew */
#define FIRST_PORT 100

static uint32_t numbers(const struct cluster *c)
{
    return 4 * c->params.clients + 8; /* lost clients keep theirs for a while */
}

void cluster_far_start(struct cluster_node *n)
{
    struct cluster *c = n->cluster;
    const struct node_box_params p = {
        .lease_ns = c->params.lease_ns, .clients = numbers(c), .can = c->params.node_can, .mistakes = c->params.verbs_mistakes};
    int rc = node_box_start(&n->box, c->wire, n->process, &p);
    assert(!rc);
}

void cluster_far_serve(struct cluster_node *n)
{
    struct sim *sim = &n->cluster->sim;
    memnode_ready(n->box.node);
    for (;;) {
        node_box_tick(&n->box);
        sim_task_wake_at(sim_current(sim), sim_now(sim) + n->cluster->params.lease_ns / 8);
        sim_task_block(sim_current(sim));
    }
}

struct fab_ep *cluster_far_ep(struct cluster_session *s)
{
    struct cluster_client *client = s->client;
    const struct sim_addr there = {.host = s->node->host->id, .port = NODE_BOX_PORT};
    uint16_t port = (uint16_t)(FIRST_PORT + client->id * CLUSTER_NODES_MAX + (unsigned)(s - client->at));
    s->far = node_sim_new(client->cluster->wire, client->process, port, there);
    assert(s->far);
    return &s->far->node.fab;
}

int cluster_far_connect(const struct cluster_session *s)
{
    struct fab_node *n = &s->far->node;
    if (n->life)
        return n->dead;
    uint64_t which = s->client->id * CLUSTER_NODES_MAX + (uint64_t)(s - s->client->at);
    uint64_t nonce = mix64(which << 32 | (uint32_t)s->client->process->generation) | 1;
    uint64_t until = world_now(n->fab.world) + CONNECT_LEASES * s->client->cluster->params.lease_ns;
    return fab_node_connect(n, NODE_BOX_SPACE, nonce, until);
}
