/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/node_sim.h"

#include <errno.h>
#include <stdlib.h>

#define RETRANSMIT_MAX_SHARE 16 /* of the first pause between transmissions */

static struct node_sim *sim_of(struct fab_node *n)
{
    return container_of(n, struct node_sim, node);
}

/* One task runs at a time, and other tasks run only where this one waits. */
static void no_lock(struct fab_node *n)
{
    (void)n;
}

static void send_packet(struct fab_node *n, const void *packet, uint32_t len)
{
    struct node_sim *s = sim_of(n);
    sim_wire_send(s->wire, s->self, s->there, packet, len);
}

static void forget_ticket(struct node_sim *s, const struct sim_task *task)
{
    for (unsigned i = 0; i < s->waiting_count; i++)
        if (s->waiting[i].task == task)
            s->waiting[i--] = s->waiting[--s->waiting_count];
}

static int wait_until(struct fab_node *n, uint64_t until, bool cancellable)
{
    struct node_sim *s = sim_of(n);
    struct sim_task *task = sim_current(s->process->host->sim);
    uint64_t until_ns = until == UINT64_MAX ? UINT64_MAX : sim_host_clock_inverse(s->process->host, until);
    int rc = 0;
    assert(s->waiting_count < NODE_SIM_TASKS_MAX);
    s->waiting[s->waiting_count++] = sim_ticket_take(task);
    if (cancellable) {
        rc = sim_task_wait(task, until_ns);
    } else {
        if (until_ns != UINT64_MAX)
            sim_task_wake_at(task, until_ns);
        sim_task_block(task);
    }
    forget_ticket(s, task);
    return rc == -ECANCELED ? rc : 0;
}

static void wake_all(struct fab_node *n)
{
    struct node_sim *s = sim_of(n);
    struct sim *sim = s->process->host->sim;
    for (unsigned i = 0; i < s->waiting_count; i++)
        sim_ticket_wake_at(s->waiting[i], sim->now_ns);
}

/* A caller may be told at any time that the outcome is unknown. */
static uint64_t patience(struct fab_node *n)
{
    struct sim *sim = sim_of(n)->process->host->sim;
    if (sim_fault_draw(sim, FAULT_UNKNOWN))
        return rng_below(&sim->faults.random, model_get(sim->model, MODEL_retransmit_ns));
    return n->patience_ns;
}

static const struct fab_node_io sim_io = {
    .lock = no_lock,
    .unlock = no_lock,
    .send = send_packet,
    .wait = wait_until,
    .wake = wake_all,
    .patience = patience,
};

static void on_packet(void *ctx, const void *packet, uint32_t len, struct sim_addr from)
{
    struct node_sim *s = ctx;
    if (from.host == s->there.host && from.port == s->there.port)
        fab_node_packet(&s->node, packet, len);
}

struct node_sim *node_sim_new(struct sim_wire *wire, struct sim_process *process, uint16_t port, struct sim_addr there)
{
    struct node_sim *s = calloc(1, sizeof *s);
    const struct model *model = process->host->sim->model;
    if (!s)
        return NULL;
    fab_node_init(&s->node, &sim_io, &process->host->world);
    s->node.retransmit_ns = model_get(model, MODEL_retransmit_ns);
    s->node.retransmit_max_ns = RETRANSMIT_MAX_SHARE * s->node.retransmit_ns;
    s->node.patience_ns = s->node.retransmit_ns * (model_get(model, MODEL_retries) + 1);
    s->node.poll_ns = model_get(model, MODEL_poll_ns);
    s->wire = wire;
    s->process = process;
    s->self = (struct sim_addr){.host = process->host->id, .port = port};
    s->there = there;
    if (sim_wire_bind(wire, process, port, 0, 0, on_packet, s)) {
        free(s);
        return NULL;
    }
    return s;
}

void node_sim_free(struct node_sim *s)
{
    fab_node_free(&s->node);
    free(s);
}
