/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cluster: its hosts, and what happens to them. */
#include "workbench/trial/cluster.h"

#include <errno.h>
#include <string.h>

#define SLOTS_SPARE 8 /* sessions that are lost and not yet recovered from keep their slots; unless more are asked for */

uint32_t cluster_slots(const struct cluster_params *p)
{
    return p->clients + (p->spare_slots ? p->spare_slots : SLOTS_SPARE);
}

struct layout_params cluster_layout(const struct cluster_params *p)
{
    return (struct layout_params){
        .design = p->design,
        .knobs = p->knobs,
        .keys = p->keys,
        .capacity = p->keys == PAWL_KEYS_DENSE ? (p->capacity + p->nodes - 1) / p->nodes : p->capacity,
        .range_units = p->range_units,
        .range_max = p->range_max,
        .sessions = cluster_slots(p),
        .holds = CLUSTER_RECORDS,
        .caps = p->fabric_caps | (p->on_node ? 0 : FAB_MESSAGES),
        .lease_ns = p->lease_ns,
        .check_ns = p->lease_ns / 4,
    };
}

/* ---- the cluster ---- */

static struct cluster_client *client_of(const struct sim_process *process)
{
    return process->user;
}

static void forget_endpoints(struct cluster_client *client)
{
    for (unsigned i = 0; i < CLUSTER_TASKS_MAX; i++) {
        if (client->tasks[i].ep && !client->cluster->params.on_node)
            sim_ep_free(client->tasks[i].ep);
        client->tasks[i].ep = NULL;
    }
    for (unsigned i = 0; i < client->cluster->params.nodes; i++) {
        if (client->at[i].far)
            node_sim_free(client->at[i].far);
        else if (client->at[i].ep)
            sim_ep_free(client->at[i].ep);
        client->at[i].far = NULL;
        client->at[i].ep = NULL;
    }
}

static void on_crashed(void *ctx, struct sim_process *process)
{
    struct cluster *c = ctx;
    struct cluster_client *client = client_of(process);
    if (!client)
        return;
    for (unsigned i = 0; i < c->params.nodes; i++) {
        c->lost += client->at[i].open;
        client->at[i].open = client->at[i].kept = false;
    }
    if (c->params.on_gone)
        c->params.on_gone(client);
    forget_endpoints(client);
}

static void on_restarted(void *ctx, struct sim_process *process)
{
    struct cluster *c = ctx;
    struct cluster_client *client = client_of(process);
    for (unsigned i = 0; i < c->params.nodes; i++)
        if (process == c->nodes[i].process)
            sim_spawn(process, "node", cluster_node_task, &c->nodes[i]);
    if (client && !client->finished)
        sim_spawn(process, "keeper", cluster_keeper_task, &client->at[0]);
}

/* The session's own memory at that node; its descriptors lie on the client's host, behind those of the clients before it
 * there. 0 is no address. */
static int add_session(struct cluster_client *client, unsigned node)
{
    struct cluster *c = client->cluster;
    const struct design *d = c->params.design;
    struct cluster_session *s = &client->at[node];
    const struct sim_host *host = client->process->host;
    bool ranges = d->features & DESIGN_RANGES;
    size_t claims = ranges ? d->desc_size : 0;
    uint64_t behind = CACHE_LINE;
    for (unsigned i = 0; i < c->params.nodes; i++)
        if (host == c->nodes[i].host)
            behind = c->nodes[i].space_bytes;
    *s = (struct cluster_session){.client = client, .node = &c->nodes[node]};
    s->home = FAB_ADDR(host->id, behind + ((uint64_t)client->id * c->params.nodes + node) * CLUSTER_RECORDS * d->desc_size);
    s->session.shadow = sim_alloc(CLUSTER_RECORDS * sizeof *s->session.shadow);
    s->session.seen = sim_alloc(cluster_slots(&c->params) * sizeof *s->session.seen);
    s->session.ranges = ranges ? sim_alloc(CLUSTER_RECORDS * sizeof *s->session.ranges) : NULL;
    s->session.descs = claims ? sim_alloc(CLUSTER_RECORDS * claims) : NULL;
    s->session.design_state = d->session_bytes ? sim_alloc(d->session_bytes) : NULL;
    bool all = (!d->session_bytes || s->session.design_state) && s->session.shadow && s->session.seen &&
               (!ranges || s->session.ranges) && (!claims || s->session.descs);
    return all ? 0 : -ENOMEM;
}

static int add_client(struct cluster *c, unsigned id, struct sim_host *host)
{
    struct cluster_client *client = &c->clients[id];
    assert(host);
    *client = (struct cluster_client){.cluster = c, .id = id, .process = sim_process_new(host)};
    int rc = client->process ? 0 : -ENOMEM;
    for (unsigned i = 0; i < c->params.nodes && !rc; i++)
        rc = add_session(client, i);
    if (rc)
        return rc;
    client->process->user = client;
    client->process->crashable = id < c->params.mortals;
    for (unsigned i = 0; i < CLUSTER_TASKS_MAX; i++)
        client->tasks[i] = (struct cluster_task){.client = client,
                                                 .number = i,
                                                 .actor = {.ops = &cluster_actor_ops,
                                                           .process = client->process,
                                                           .client = id,
                                                           .number = i,
                                                           .keys = c->params.keys,
                                                           .user = c->params.user}};
    /* From an image of its start a world runs again and again: what lies outside of it is made before. */
    for (unsigned i = 0; c->params.chooser && i < c->params.tasks; i++)
        if (together_prepare(&client->tasks[i].together))
            return -ENOMEM;
    return sim_spawn(client->process, "keeper", cluster_keeper_task, &client->at[0]) ? 0 : -ENOMEM;
}

/* As PTP would: no two clocks differ by more than the design can do with, and some differ by that. */
static void synchronise(struct cluster *c, struct sim_host *const hosts[], unsigned host_count)
{
    uint64_t spread_ns = c->params.design->clocks_ns;
    for (unsigned i = 0; i < host_count && spread_ns; i++)
        hosts[i]->offset_ns = c->nodes[0].host->offset_ns + mix64(c->params.seed + i) % (spread_ns + 1);
    for (unsigned i = 1; i < c->params.nodes && spread_ns; i++)
        c->nodes[i].host->offset_ns = c->nodes[0].host->offset_ns + mix64(c->params.seed - i) % (spread_ns + 1);
}

static int add_node(struct cluster *c, struct cluster_node *n, uint64_t space_bytes, uint64_t homes)
{
    *n = (struct cluster_node){.cluster = c, .host = sim_host_new(&c->sim), .space_bytes = space_bytes};
    n->seen = sim_alloc(cluster_slots(&c->params) * sizeof *n->seen);
    if (!n->host || !n->seen)
        return -ENOMEM;
    int rc = sim_host_memory(n->host, space_bytes + homes + c->params.data_bytes);
    n->host->server = true;
    n->process = sim_process_new(n->host);
    return rc ? rc : n->process ? 0 : -ENOMEM;
}

static int add_hosts(struct cluster *c)
{
    const struct cluster_params *p = &c->params;
    const unsigned nodes = p->nodes, host_count = p->hosts;
    struct sim_host *hosts[SIM_HOSTS_MAX] = {NULL};
    assert(nodes && host_count);
    struct layout_params layout = cluster_layout(p);
    struct layout_header header;
    int rc = layout_make(&layout, &header);
    uint64_t homes = CACHE_LINE + (uint64_t)p->clients * p->nodes * CLUSTER_RECORDS * p->design->desc_size;
    for (unsigned i = 0; i < p->nodes && !rc; i++)
        rc = add_node(c, &c->nodes[i], header.total_bytes, homes);
    if (rc)
        return rc;
    for (unsigned i = 0; i < host_count; i++)
        if (!(hosts[i] = sim_host_new(&c->sim)) || (p->design->desc_size && sim_host_memory(hosts[i], homes)))
            return -ENOMEM;
    synchronise(c, hosts, host_count);
    for (unsigned i = 0; i < p->nodes; i++)
        if (!sim_spawn(c->nodes[i].process, "node", cluster_node_task, &c->nodes[i]))
            return -ENOMEM;
    for (unsigned i = 0; i < p->clients && !rc; i++) {
        bool home = p->design->local || (p->home && i % 2) || i >= p->clients - p->residents;
        rc = add_client(c, i, home ? c->nodes[i / 2 % nodes].host : hosts[i % host_count]);
    }
    return rc;
}

int cluster_init(struct cluster *c, const struct cluster_params *p)
{
    if (!p->clients || !p->hosts || p->hosts + CLUSTER_NODES_MAX > SIM_HOSTS_MAX || p->nodes > CLUSTER_NODES_MAX || !p->tasks ||
        p->tasks > CLUSTER_TASKS_MAX || p->residents > p->clients)
        return -EINVAL;
    memset(c, 0, sizeof *c);
    c->params = *p;
    c->params.nodes = p->nodes ? p->nodes : 1;
    const struct model *model = p->model ? p->model : model_find("default");
    struct sim_config config = {
        .model = p->model,
        .seed = p->seed,
        .faults = p->faults,
        .swarm = p->swarm,
        .safety_ns = p->safety_ns,
        .time_max_ns = p->time_max_ns,
        .tasks_max = p->clients * (p->tasks + c->params.nodes) + 8 +
                     (p->design->serve ? c->params.nodes * (unsigned)model_get(model, MODEL_server_cores) : 0),
        .trace = p->trace,
        .events_max = p->events_max,
        .chooser = p->chooser,
    };
    int rc = sim_init(&c->sim, &config);
    if (rc)
        return rc;
    c->fabric = sim_fabric_new(&c->sim, p->fabric_caps);
    if (c->fabric)
        sim_fabric_break(c->fabric, p->fabric_mistakes);
    c->wire = p->on_node ? sim_wire_new(&c->sim) : NULL;
    c->clients = sim_alloc(p->clients * sizeof *c->clients);
    const struct sim_hooks hooks = {.ctx = c, .process_crashed = on_crashed, .process_restarted = on_restarted};
    sim_hooks_add(&c->sim, &hooks);
    rc = c->fabric && c->clients && (c->wire || !p->on_node) ? add_hosts(c) : -ENOMEM;
    if (rc) {
        cluster_free(c);
        return rc;
    }
    for (unsigned i = 0; i < p->strike_count; i++)
        p->strikes[i].process = c->clients[p->strikes[i].process].process->id;
    sim_fabric_strike(c->fabric, p->strikes, p->strike_count);
    return 0;
}

static void free_session(struct session *s)
{
    sim_give_back(s->shadow);
    sim_give_back(s->seen);
    sim_give_back(s->ranges);
    sim_give_back(s->descs);
    sim_give_back(s->design_state);
}

void cluster_free(struct cluster *c)
{
    for (unsigned i = 0; c->clients && i < c->params.clients; i++) {
        for (unsigned k = 0; k < CLUSTER_TASKS_MAX; k++)
            together_free(&c->clients[i].tasks[k].together);
        for (unsigned k = 0; k < CLUSTER_NODES_MAX; k++) {
            free_session(&c->clients[i].at[k].session);
            if (c->clients[i].at[k].far)
                node_sim_free(c->clients[i].at[k].far);
        }
    }
    sim_give_back(c->clients);
    for (unsigned i = 0; i < CLUSTER_NODES_MAX; i++) {
        sim_give_back(c->nodes[i].seen);
        sim_give_back(c->nodes[i].server_memory);
        node_box_free(&c->nodes[i].box);
    }
    if (c->wire)
        sim_wire_free(c->wire);
    if (c->fabric)
        sim_fabric_free(c->fabric);
    sim_free(&c->sim);
}

enum sim_end cluster_run(struct cluster *c)
{
    enum sim_end end = SIM_UNTIL;
    while (c->clients_done < c->params.clients && end == SIM_UNTIL)
        end = sim_run(&c->sim, sim_now(&c->sim) + CLUSTER_ROUND_NS);
    return end;
}
