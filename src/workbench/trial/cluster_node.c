/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks of a node of the simulated cluster: formatting, assigning slots, looking after sessions, a lock server. */
#include "workbench/trial/cluster.h"

#include <string.h>

#define CONNECT_NS (2 * CLUSTER_RETRY_NS) /* until a client asks the node again for a slot */

static fab_addr base_of(const struct cluster_node *n)
{
    return FAB_ADDR(n->host->id, 0);
}

/* ---- connecting, where the node assigns slots ---- */

struct connect_request {
    uint64_t proof, lease_ns;
};
struct connect_answer {
    uint64_t proof;
    struct session_place place;
    int32_t rc;
};

/* Answers CONNECTs. Requests and answers may be lost or doubled: a client asks until it hears. */
static void admit_task(void *arg)
{
    struct cluster_node *n = arg;
    struct fab_ep *ep = sim_ep_new(n->cluster->fabric, n->process);
    assert(ep);
    struct session none = n->care.none;
    struct seat seat = n->care.seat; /* by an endpoint of this task's own */
    none.lease = &none.lease_copy;
    seat.me = &none;
    seat.ep = ep;
    for (;;) {
        struct fab_msg m;
        struct connect_request request;
        if (fab_recv(ep, &m, DEADLINE_NEVER) || m.len != sizeof request)
            continue;
        memcpy(&request, m.data, sizeof request);
        struct connect_answer answer = {.proof = request.proof};
        answer.rc = session_assign(&seat, request.proof, request.lease_ns, &answer.place);
        fab_send(ep, m.from, &answer, sizeof answer);
    }
}

int cluster_connect(const struct cluster_node *node, struct fab_ep *ep, const struct session_params *p, struct session_place *out)
{
    const struct connect_request request = {.proof = p->proof, .lease_ns = p->lease_ns};
    struct connect_answer answer = {.proof = ~p->proof};
    uint64_t until = world_now(ep->world) + CONNECT_NS;
    int rc = fab_send(ep, node->process->id, &request, sizeof request);
    while (!rc && answer.proof != p->proof) { /* answers to an earlier process, and of other nodes, may come, too */
        struct fab_msg m;
        rc = fab_recv(ep, &m, until);
        if (!rc && m.len == sizeof answer && m.from == node->process->id)
            memcpy(&answer, m.data, sizeof answer);
    }
    if (rc)
        return rc;
    *out = answer.place;
    return answer.rc;
}

/* ---- lock servers ---- */

/* One core. It needs no session. */
static void serve_task(void *arg)
{
    struct cluster_node *n = arg;
    struct cluster *c = n->cluster;
    struct session none = {.slot = UINT32_MAX};
    struct fab_ep *ep = sim_ep_new(c->fabric, n->process);
    uint32_t core = n->serving++;
    assert(ep);
    if (model_get(c->sim.model, MODEL_server_bound))
        sim_ep_receive_from(ep, core, (uint32_t)model_get(c->sim.model, MODEL_server_cores));
    none.lease = &none.lease_copy;
    const struct seat seat = {.space = &n->server_space, .me = &none, .ep = ep, .world = &n->host->world};
    c->params.design->serve(&seat, n->server_memory, model_get(c->sim.model, MODEL_server_service_ns),
                            model_get(c->sim.model, MODEL_reply_ns));
}

static void start_serving(struct cluster_node *n)
{
    struct cluster *c = n->cluster;
    layout_space(&n->care.header, base_of(n), &n->server_space);
    sim_give_back(n->server_memory); /* of the life before this one */
    n->server_memory = sim_alloc(c->params.design->server_bytes(&n->server_space));
    assert(n->server_memory);
    n->serving = 0;
    for (uint64_t core = 0; core < model_get(c->sim.model, MODEL_server_cores); core++) {
        const struct sim_task *task = sim_spawn(n->process, "serve", serve_task, n);
        assert(task);
    }
}

/* ---- the node ---- */

/* Recovers from its own sessions, and from the others while it is at it. */
static void look_after_sessions(struct cluster_node *n, struct fab_ep *ep)
{
    for (;;) {
        fab_wait_any(ep, NULL, 0, world_now(ep->world) + care_pause_ns(&n->care, CLUSTER_ROUND_NS));
        care_tend(&n->care);
    }
}

/* Formats the lock memory, at the start and after a crash. */
void cluster_node_task(void *arg)
{
    struct cluster_node *n = arg;
    struct cluster *c = n->cluster;
    struct sim_task *self = sim_current(&c->sim);
    if (c->params.on_node)
        cluster_far_start(n);
    if (n->host->births > 1 && !(c->params.node_mistakes & CLUSTER_HASTY_NODE)) {
        uint64_t until = care_silent_until(sim_host_clock(n->host, sim_now(&c->sim)), c->params.lease_ns);
        sim_task_wake_at(self, sim_host_clock_inverse(n->host, until));
        sim_task_block(self);
    }
    struct layout_params p = cluster_layout(&c->params);
    p.birth = world_birth(&n->host->world);
    int rc = care_format(&n->care, &p);
    assert(!rc);
    memcpy(sim_fabric_peek(c->fabric, base_of(n), sizeof n->care.header), &n->care.header, sizeof n->care.header);
    if (c->params.on_node)
        cluster_far_serve(n); /* does not return */
    if (p.design->serve)
        start_serving(n);
    if (!p.design->node_tends && !c->params.assigned)
        return;
    struct fab_ep *ep = sim_ep_new(c->fabric, n->process);
    assert(ep);
    rc = care_begin(&n->care, ep, base_of(n), n->seen);
    assert(!rc);
    if (c->params.assigned) {
        const struct sim_task *task = sim_spawn(n->process, "admit", admit_task, n);
        assert(task);
    }
    if (p.design->node_tends)
        look_after_sessions(n, ep);
}
