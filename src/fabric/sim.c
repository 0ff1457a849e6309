/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated fabric: endpoints, connections and what a crash does to them. */
#include "fabric/sim_internal.h"

static const struct fab_ops sim_fab_ops = {
    .batch = sim_fab_batch,
    .post = sim_fab_post,
    .wait = sim_fab_wait,
    .poll = sim_fab_poll,
    .wake = sim_fab_wake,
    .send = sim_fab_send,
    .recv = sim_fab_recv,
    .fence = sim_fab_fence,
    .local = sim_fab_local,
    .own = sim_fab_own,
    .local_fence = sim_fab_local_fence,
};

/* ---- connections ---- */

/* A thread has a connection to the host, or one to each thread there. */
static uint32_t contexts_to(const struct sim_ep *ep, const struct sim_node *node)
{
    const struct sim *sim = ep->fabric->sim;
    uint32_t threads = 0;
    if (!model_get(sim->model, MODEL_thread_pairs))
        return 1;
    for (unsigned i = 0; i < sim->process_count; i++)
        threads += sim->processes[i]->host == node->host;
    return threads ? threads : 1;
}

/* A connection between two threads of one host has both its contexts in the same cache; one to its memory has a single one. */
static bool has_two_ends(const struct sim_ep *ep, const struct sim_host *host)
{
    return host != ep->host || model_get(ep->fabric->sim->model, MODEL_thread_pairs);
}

void sim_ep_connect(struct sim_ep *ep, struct sim_node *node)
{
    struct sim_conn *conn = &ep->conns[node->host->id];
    if (!conn->birth)
        conn->birth = node->host->births;
    if (conn->contexts || ep->rare)
        return;
    conn->contexts = contexts_to(ep, node);
    ep->host->nic.connections += conn->contexts;
    if (has_two_ends(ep, node->host))
        node->host->nic.connections += conn->contexts;
}

static void ep_disconnect(struct sim_ep *ep)
{
    for (unsigned i = 0; i < ep->fabric->sim->host_count; i++) {
        struct sim_host *host = ep->fabric->sim->hosts[i];
        ep->host->nic.connections -= ep->conns[i].contexts;
        if (has_two_ends(ep, host))
            host->nic.connections -= ep->conns[i].contexts;
        ep->conns[i].contexts = 0;
    }
}

void sim_ep_forget_contexts(struct fab_ep *fab)
{
    ep_disconnect(sim_ep_of(fab));
}

void sim_ep_reconnect(struct fab_ep *fab)
{
    struct sim_ep *ep = sim_ep_of(fab);
    for (unsigned i = 0; i < ep->fabric->sim->host_count; i++)
        ep->conns[i].birth = ep->fabric->sim->hosts[i]->births;
}

void sim_ep_reconnect_to(struct fab_ep *fab, uint32_t host)
{
    struct sim_ep *ep = sim_ep_of(fab);
    ep->conns[host].birth = ep->fabric->sim->hosts[host]->births;
}

/* ---- endpoints ---- */

void sim_ep_use_rarely(struct fab_ep *fab)
{
    sim_ep_of(fab)->rare = true;
}

void sim_ep_receive_from(struct fab_ep *fab, uint32_t remainder, uint32_t divisor)
{
    assert(remainder < divisor);
    sim_ep_of(fab)->from_remainder = remainder;
    sim_ep_of(fab)->from_divisor = divisor;
}

struct fab_ep *sim_ep_new(struct sim_fabric *fabric, struct sim_process *process)
{
    assert(process->alive);
    struct sim_ep *ep = sim_alloc(sizeof *ep);
    if (!ep)
        return NULL;
    ep->fab = (struct fab_ep){.ops = &sim_fab_ops,
                              .world = &process->host->world,
                              .caps = fabric->caps,
                              .id = process->id,
                              .node = process->host->id,
                              .size = process->host->memory_bytes};
    ep->fabric = fabric;
    ep->process = process;
    ep->host = process->host;
    ep->generation = process->generation;
    struct sim_ep **first = &fabric->eps[process->id];
    ep->next = *first;
    if (*first)
        (*first)->prev = ep;
    *first = ep;
    sim_ep_reconnect(&ep->fab);
    return &ep->fab;
}

void sim_ep_release(struct sim_ep *ep)
{
    if (!ep->freed || ep->in_flight)
        return;
    if (ep->prev)
        ep->prev->next = ep->next;
    else
        ep->fabric->eps[ep->fab.id] = ep->next;
    if (ep->next)
        ep->next->prev = ep->prev;
    sim_give_back(ep);
}

void sim_ep_free(struct fab_ep *fab)
{
    struct sim_ep *ep = sim_ep_of(fab);
    assert(!ep->freed && !ep->watching);
    sim_ep_drain(ep);
    ep_disconnect(ep);
    ep->freed = true;
    sim_ep_release(ep);
}

/* ---- crashes ---- */

/* Stores of the dead process are visible for good; its waits end silently; its connections are gone from the
 * NICs' caches. What it has in flight goes on. */
static void fabric_process_crashed(void *ctx, struct sim_process *process)
{
    struct sim_fabric *fabric = ctx;
    for (struct sim_ep *ep = fabric->eps[process->id]; ep; ep = ep->next) {
        if (ep->freed || ep->generation != process->generation)
            continue;
        if (process->host->up)
            sim_ep_drain(ep);
        ep->store_count = 0;
        ep->receiving = false;
        sim_ep_unwatch(ep);
        ep_disconnect(ep);
    }
    sim_give_back(fabric->mailboxes[process->id]);
    fabric->mailboxes[process->id] = NULL;
}

static void fabric_server_crashed(void *ctx, struct sim_host *host)
{
    struct sim_fabric *fabric = ctx;
    host->nic = (struct sim_nic){.connections = host->nic.connections};
    fabric->nodes[host->id].mixed = false;
}

/* ---- the fabric ---- */

struct sim_fabric *sim_fabric_new(struct sim *sim, uint32_t caps)
{
    struct sim_fabric *fabric = sim_alloc(sizeof *fabric);
    if (!fabric)
        return NULL;
    fabric->sim = sim;
    fabric->caps = caps | FAB_MESSAGES;
    const struct sim_hooks hooks = {
        .ctx = fabric, .process_crashed = fabric_process_crashed, .server_crashed = fabric_server_crashed};
    sim_hooks_add(sim, &hooks);
    return fabric;
}

void sim_fabric_break(struct sim_fabric *fabric, uint32_t mistakes)
{
    fabric->mistakes = mistakes;
}

void sim_fabric_strike(struct sim_fabric *fabric, struct sim_strike *strikes, unsigned count)
{
    fabric->strikes = strikes;
    fabric->strike_count = count;
}

void sim_fabric_free(struct sim_fabric *fabric)
{
    for (unsigned i = 0; i < SIM_PROCESSES_MAX; i++) {
        for (struct sim_ep *ep = fabric->eps[i], *next; ep; ep = next) {
            next = ep->next;
            sim_give_back(ep);
        }
        sim_give_back(fabric->mailboxes[i]);
    }
    for (struct sim_letter *letter = fabric->letters, *next; letter; letter = next) {
        next = letter->next;
        sim_give_back(letter);
    }
    for (unsigned i = 0; i < SIM_HOSTS_MAX; i++) {
        sim_give_back(fabric->nodes[i].atomic_free_ns);
        sim_give_back(fabric->nodes[i].lines);
        sim_give_back(fabric->nodes[i].fenced);
    }
    while (fabric->chunks) {
        struct verb_chunk *next = fabric->chunks->next;
        for (unsigned i = 0; i < VERBS_PER_CHUNK; i++)
            if (fabric->chunks->verbs[i].data != fabric->chunks->verbs[i].inline_data)
                sim_give_back(fabric->chunks->verbs[i].data);
        sim_give_back(fabric->chunks);
        fabric->chunks = next;
    }
    sim_give_back(fabric);
}

void *sim_fabric_peek(struct sim_fabric *fabric, fab_addr addr, uint64_t len)
{
    return sim_node_ptr(sim_node_of(fabric, FAB_NODE(addr)), addr, len);
}
