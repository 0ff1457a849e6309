/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of an endpoint: their verbs are sent, and their caller waits until the last one is complete. sim_verb.c has the way of a
 * verb from its arrival on. */
#include "fabric/sim_internal.h"

/* Draws what becomes of a verb whose outcome its caller will not know: never, in time, or late. */
static bool unknown_arrives(struct sim *sim, uint64_t *arrival_ns)
{
    unsigned fate = sim_fault_fate(sim, sim->config.chooser ? 2 : 3); /* how late is a matter of order, with a chooser */
    if (fate == 2)
        *arrival_ns += sim_fault_span(sim, model_get(sim->model, MODEL_retransmit_ns) * model_get(sim->model, MODEL_retries));
    return fate != 0;
}

/* Sends one verb. 0 if it is on its way; else the time at which its caller learns that its outcome is unknown. */
static uint64_t verb_send(struct sim_ep *ep, struct sim_node *node, struct fab_op *op, bool last, bool posted)
{
    struct sim *sim = ep->fabric->sim;
    struct sim_conn *conn = &ep->conns[node->host->id];
    uint64_t out_ns = model_get(sim->model, MODEL_outbound_ns) + sim_nic_context_ns(ep->host);
    uint64_t sent_ns = sim_nic_serve(&ep->host->nic.out_free_ns, sim->now_ns, out_ns);
    sent_ns = sim_send_again_ns(sim, ep->host->id, node->host->id, sent_ns);
    if (unlikely(sent_ns == UINT64_MAX))
        return sim_give_up_ns(sim);
    uint64_t turn_ns = node->host->server ? 0 : model_get(sim->model, MODEL_message_ns);
    uint64_t arrival_ns = sent_ns + turn_ns + sim_way_ns(ep, node), error_ns = 0;
    if (sim_fault_draw(sim, FAULT_DELAY))
        arrival_ns += sim_fault_span(sim, model_get(sim->model, MODEL_retransmit_ns));
    if (sim_fault_draw(sim, FAULT_UNKNOWN)) {
        uint64_t least_ns = model_get(sim->model, MODEL_propagation_ns);
        error_ns = sim->now_ns + least_ns + sim_fault_span(sim, model_get(sim->model, MODEL_retransmit_ns) - least_ns + 1);
        if (!unknown_arrives(sim, &arrival_ns))
            return error_ns;
    }
    conn->arrival_ns = arrival_ns = max_u64(arrival_ns, conn->arrival_ns);
    struct sim_verb *verb = sim_verb_new(ep, node, op);
    verb->posted = posted && !error_ns;
    verb->result = error_ns || posted ? NULL : op;
    verb->last = last && !error_ns;
    sim_at_once(sim, arrival_ns, sim_verb_arrive, verb, 0); /* its effect is what others see */
    return error_ns;
}

/* After an unknown outcome the connection is made anew, which it is only when nothing of the old one is left. */
static void ep_await_reset(struct sim_ep *ep)
{
    struct sim_task *task = sim_current(ep->fabric->sim);
    while (ep->in_flight) {
        ep->ticket = sim_ticket_take(task);
        sim_task_block(task);
    }
    ep->resetting = false;
}

static void count_op(struct fab_counts *counts, const struct fab_op *op)
{
    if (op->verb > FAB_WRITE)
        counts->atomics++;
    else if (op->verb == FAB_READ)
        counts->reads++;
    else
        counts->writes++;
}

/* Several verbs to one node, one round trip. */
static int ep_request(struct sim_ep *ep, struct fab_op *ops, unsigned n)
{
    struct sim *sim = ep->fabric->sim;
    struct sim_task *task = sim_current(sim);
    struct sim_node *node = sim_node_of(ep->fabric, FAB_NODE(ops[0].addr));
    sim_ep_connect(ep, node);
    ep->request_done = ep->request_answered = false;
    ep->request_left = n;
    ep->request_error = 0;
    ep->ticket = sim_ticket_take(task);
    ep->fab.counts.round_trips++;
    for (unsigned i = 0; i < n; i++) {
        count_op(&ep->fab.counts, &ops[i]);
        uint64_t error_ns = verb_send(ep, node, &ops[i], i + 1 == n, false);
        if (unlikely(error_ns)) {
            ep->request_done = true;
            ep->request_error = -FAB_EUNKNOWN;
            sim_ticket_wake_at(ep->ticket, error_ns);
            break;
        }
    }
    do
        sim_task_block(task);
    while (!ep->request_done);
    ep->request++;
    if (unlikely(ep->request_error == -FAB_EUNKNOWN))
        ep->resetting = true;
    return ep->request_error;
}

/* A posted write has failed: the connection is in error, this verb finds out and is not sent. */
static int ep_take_post_error(struct sim_ep *ep)
{
    struct sim *sim = ep->fabric->sim;
    int error = ep->post_error;
    sim_task_wake_at(sim_current(sim), sim->now_ns + model_get(sim->model, MODEL_propagation_ns));
    sim_task_block(sim_current(sim));
    ep->post_error = 0;
    ep->resetting = error == -FAB_EUNKNOWN;
    return error;
}

static int ep_batch(struct sim_ep *ep, struct fab_op *ops, unsigned n)
{
    for (unsigned from = 0, to; from < n; from = to) {
        if (unlikely(ep->resetting))
            ep_await_reset(ep);
        if (unlikely(ep->post_error))
            return ep_take_post_error(ep);
        for (to = from + 1; to < n && FAB_NODE(ops[to].addr) == FAB_NODE(ops[from].addr); to++)
            ;
        int rc = ep_request(ep, ops + from, to - from);
        if (rc)
            return rc;
    }
    return 0;
}

static void sleep_until(struct sim_ep *ep, uint64_t at_ns)
{
    sim_task_wake_at(sim_current(ep->fabric->sim), at_ns);
    sim_task_block(sim_current(ep->fabric->sim));
}

/* The strike that is for the endpoint's next request; null: none. */
static const struct sim_strike *strike_now(struct sim_ep *ep)
{
    struct sim_strike *found = NULL;
    for (unsigned i = 0; i < ep->fabric->strike_count; i++) {
        struct sim_strike *s = &ep->fabric->strikes[i];
        if (s->choose ? !ep->fabric->sim->faults.healed && s->choose(s, ep->process->id)
                      : s->process == ep->process->id && ++s->seen == s->request)
            found = s;
    }
    return found;
}

/* The request that a test has chosen. */
static int ep_struck(struct sim_ep *ep, struct fab_op *ops, unsigned n, enum sim_strike_how how)
{
    struct sim *sim = ep->fabric->sim;
    sim_note(sim, "strike", ep->host->id, (uint64_t)how, ep->process->id);
    if (how == SIM_STRIKE_STALL) {
        sim_process_pause(ep->process, sim->now_ns + 3 * model_get(sim->model, MODEL_lease_ns));
        sleep_until(ep, sim->now_ns);
        return ep_batch(ep, ops, n);
    }
    int rc = how == SIM_STRIKE_UNSURE ? ep_batch(ep, ops, n) : 0;
    sleep_until(ep, sim_give_up_ns(sim));
    return rc ? rc : -FAB_EUNKNOWN;
}

int sim_fab_batch(struct fab_ep *fab, struct fab_op *ops, unsigned n)
{
    struct sim_ep *ep = sim_ep_of(fab);
    assert(n && n <= FAB_BATCH_MAX && sim_ep_alive(ep)); /* a process makes its own endpoints */
    if (ep->store_count)
        sim_ep_drain(ep); /* the doorbell is a store, too, and comes after them */
    const struct sim_strike *strike = unlikely(ep->fabric->strike_count) ? strike_now(ep) : NULL;
    return unlikely(strike != NULL) ? ep_struck(ep, ops, n, strike->how) : ep_batch(ep, ops, n);
}

void sim_fab_post(struct fab_ep *fab, const struct fab_op *op)
{
    struct sim_ep *ep = sim_ep_of(fab);
    assert(op->verb == FAB_WRITE);
    if (ep->store_count)
        sim_ep_drain(ep);
    if (unlikely(ep->resetting))
        ep_await_reset(ep);
    fab->counts.writes++;
    if (ep->post_error)
        return; /* the connection is in error until it is used again */
    struct fab_op copy = *op;
    struct sim_node *node = sim_node_of(ep->fabric, FAB_NODE(op->addr));
    sim_ep_connect(ep, node);
    if (verb_send(ep, node, &copy, false, true))
        ep->post_error = -FAB_EUNKNOWN;
}
