/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/bench/partition.h"
#include "cluster/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_SPARE 8
#define RECORDS 4 /* holds per session; clients here have one at a time */

const struct locker *partition_locker(const struct partition *p, const struct cluster_task *task, unsigned host)
{
    assert(host < p->cluster->params.hosts);
    return &p->clients[task->client->id].lockers[host];
}

/* ---- clients ---- */

static struct partition *partition_of(const struct cluster_client *client)
{
    return client->process->user;
}

/* Descriptors lie on the client's own host behind its space: those of its sessions one after another. */
static fab_addr home_of(const struct partition *p, unsigned client, unsigned host)
{
    const struct cluster_params *params = &p->cluster->params;
    unsigned own = partition_home(p, client);
    uint64_t session = (uint64_t)(client / params->hosts) * params->hosts + host;
    return FAB_ADDR(p->hosts[own]->id, p->headers[own].total_bytes + session * RECORDS * params->design->desc_size);
}

static int open_session(struct partition *p, struct cluster_task *task, unsigned host)
{
    struct cluster_client *client = task->client;
    struct partition_client *c = &p->clients[client->id];
    struct locker *locker = &c->lockers[host];
    fab_addr base = FAB_ADDR(p->hosts[host]->id, 0);
    layout_space(&p->headers[host], base, &c->spaces[host]);
    table_init(&locker->table, &p->headers[host], base);
    locker->seat =
        (struct seat){.space = &c->spaces[host], .me = &c->sessions[host], .ep = task->ep, .world = &client->process->host->world};
    struct session_params params = {
        .lease_ns = p->cluster->params.lease_ns,
        .proof = (uint64_t)client->process->id << 32 | (uint32_t)client->process->generation,
        .label = "simulated",
        .home = p->cluster->params.design->desc_size ? home_of(p, client->id, host) : 0,
    };
    return session_open(&locker->seat, &params);
}

static void client_task(void *arg)
{
    struct cluster_task *task = arg;
    struct partition *p = partition_of(task->client);
    struct cluster *c = p->cluster;
    task->ep = sim_ep_new(c->fabric, task->client->process);
    assert(task->ep);
    for (unsigned i = 0; i < c->params.hosts; i++) {
        int rc = open_session(p, task, (task->client->id + i) % c->params.hosts);
        assert(!rc); /* there are slots for all, and nothing fails */
        (void)rc;
        c->sessions++;
    }
    sim_ep_forget_contexts(task->ep); /* only connections that the work uses take places in the caches */
    bool done = c->params.work(task);
    assert(done); /* a session cannot be lost: its lease outlasts the run */
    (void)done;
    task->client->finished = true;
    c->clients_done++;
}

static int add_client(struct partition *p, unsigned id)
{
    struct cluster *c = p->cluster;
    struct cluster_client *client = &c->clients[id];
    struct partition_client *parts = &p->clients[id];
    unsigned hosts = c->params.hosts;
    *client = (struct cluster_client){.cluster = c, .id = id, .process = sim_process_new(p->hosts[partition_home(p, id)])};
    client->tasks[0] = (struct cluster_task){.client = client};
    parts->sessions = calloc(hosts, sizeof *parts->sessions);
    parts->spaces = calloc(hosts, sizeof *parts->spaces);
    parts->lockers = calloc(hosts, sizeof *parts->lockers);
    if (!client->process || !parts->sessions || !parts->spaces || !parts->lockers)
        return -ENOMEM;
    client->process->user = p;
    for (unsigned i = 0; i < hosts; i++) {
        parts->sessions[i].shadow = calloc(RECORDS, sizeof *parts->sessions[i].shadow);
        parts->sessions[i].seen = calloc(c->params.clients + SLOTS_SPARE, sizeof *parts->sessions[i].seen);
        if (!parts->sessions[i].shadow || !parts->sessions[i].seen)
            return -ENOMEM;
    }
    return sim_spawn(client->process, "client", client_task, &client->tasks[0]) ? 0 : -ENOMEM;
}

/* ---- hosts ---- */

static int add_host(struct partition *p, unsigned i)
{
    struct cluster *c = p->cluster;
    const struct cluster_params *params = &c->params;
    uint64_t residents = (params->clients + params->hosts - 1) / params->hosts;
    struct layout_header *header = &p->headers[i];
    if (!(p->hosts[i] = sim_host_new(&c->sim)))
        return -ENOMEM;
    struct layout_params layout = {
        .design = params->design,
        .knobs = params->knobs,
        .keys = PAWL_KEYS_DENSE,
        .capacity = (params->capacity + params->hosts - 1) / params->hosts,
        .sessions = params->clients + SLOTS_SPARE,
        .holds = RECORDS,
        .lease_ns = params->lease_ns,
        .check_ns = params->lease_ns / 4,
        .caps = params->fabric_caps | FAB_MESSAGES,
        .birth = world_birth(&p->hosts[i]->world),
    };
    int rc = layout_make(&layout, header);
    if (!rc)
        rc = sim_host_memory(p->hosts[i], header->total_bytes + residents * params->hosts * RECORDS * params->design->desc_size);
    if (!rc)
        memcpy(sim_fabric_peek(c->fabric, FAB_ADDR(p->hosts[i]->id, 0), sizeof *header), header, sizeof *header);
    return rc;
}

int partition_init(struct partition *p, struct cluster *c, const struct cluster_params *params)
{
    if (!params->clients || !params->hosts || params->hosts > SIM_HOSTS_MAX || params->capacity < params->hosts ||
        params->tasks != 1 || params->faults || params->design->features & DESIGN_RANGES)
        return -EINVAL;
    memset(c, 0, sizeof *c);
    memset(p, 0, sizeof *p);
    p->cluster = c;
    c->params = *params;
    struct sim_config config = {.model = params->model, .seed = params->seed, .tasks_max = params->clients + 8};
    int rc = sim_init(&c->sim, &config);
    if (rc)
        return rc;
    c->fabric = sim_fabric_new(&c->sim, params->fabric_caps);
    c->clients = calloc(params->clients, sizeof *c->clients);
    p->clients = calloc(params->clients, sizeof *p->clients);
    rc = c->fabric && c->clients && p->clients ? 0 : -ENOMEM;
    for (unsigned i = 0; i < params->hosts && !rc; i++)
        rc = add_host(p, i);
    for (unsigned i = 0; i < params->clients && !rc; i++)
        rc = add_client(p, i);
    if (rc)
        partition_free(p);
    return rc;
}

void partition_free(struct partition *p)
{
    for (unsigned i = 0; p->clients && i < p->cluster->params.clients; i++) {
        struct partition_client *c = &p->clients[i];
        for (unsigned j = 0; c->sessions && j < p->cluster->params.hosts; j++) {
            free(c->sessions[j].shadow);
            free(c->sessions[j].design_state);
            free(c->sessions[j].seen);
        }
        free(c->sessions);
        free(c->spaces);
        free(c->lockers);
    }
    free(p->clients);
    cluster_free(p->cluster);
}
