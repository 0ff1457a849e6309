/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between processes, and fencing. */
#include "fabric/sim_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A delayed message comes up to this many propagation times late; a reordered one as late as it takes to be overtaken. */
#define REORDER_WAYS 8
#define DELAY_WAYS 1000

static bool receives_from(const struct sim_ep *ep, uint32_t sender)
{
    return !ep->from_divisor || sender % ep->from_divisor == ep->from_remainder;
}

/* The place of the first message that the endpoint may receive, counted from the head; the number of messages if there is none. */
static unsigned mailbox_find(const struct sim_mailbox *box, const struct sim_ep *ep)
{
    unsigned at = 0;
    while (at < box->count && !receives_from(ep, box->messages[(box->head + at) % MAILBOX_MAX].from))
        at++;
    return at;
}

static bool mailbox_take(struct sim_mailbox *box, const struct sim_ep *ep, struct fab_msg *out)
{
    unsigned at = box ? mailbox_find(box, ep) : 0;
    if (!box || at == box->count)
        return false;
    *out = box->messages[(box->head + at) % MAILBOX_MAX];
    for (; at; at--) /* those before it move up */
        box->messages[(box->head + at) % MAILBOX_MAX] = box->messages[(box->head + at - 1) % MAILBOX_MAX];
    box->head = (box->head + 1) % MAILBOX_MAX;
    box->count--;
    return true;
}

static void mailbox_put(struct sim_fabric *fabric, uint32_t to, const struct fab_msg *msg)
{
    struct sim *sim = fabric->sim;
    struct sim_mailbox *box = fabric->mailboxes[to];
    if (!box)
        box = fabric->mailboxes[to] = sim_alloc(sizeof *box);
    if (!box || box->count == MAILBOX_MAX)
        return; /* full: lost */
    box->messages[(box->head + box->count++) % MAILBOX_MAX] = *msg;
    for (struct sim_ep *ep = fabric->eps[to]; ep; ep = ep->next)
        if (ep->receiving && receives_from(ep, msg->from))
            sim_ticket_wake_at(ep->ticket, sim->now_ns);
}

/* First at the NIC, which may be busy; then in the mailbox. */
static void letter_arrive(void *arg, uint64_t tag)
{
    (void)tag;
    struct sim_letter *letter = arg;
    struct sim *sim = letter->fabric->sim;
    struct sim_process *process = sim->processes[letter->to];
    struct sim_host *host = process->host;
    if (host->up && process->alive && !letter->served) {
        letter->served = true;
        uint64_t at_ns = sim_nic_serve(&host->nic.in_free_ns, sim->now_ns, model_get(sim->model, MODEL_inbound_write_ns));
        sim_at_once(sim, at_ns, letter_arrive, letter, 0);
        return;
    }
    if (host->up && process->alive) {
        sim_note(sim, "message", host->id, letter->msg.from, letter->to);
        mailbox_put(letter->fabric, letter->to, &letter->msg);
    }
    letter->next_free = letter->fabric->free_letters;
    letter->fabric->free_letters = letter;
}

static struct sim_letter *letter_new(struct sim_fabric *fabric)
{
    struct sim_letter *letter = fabric->free_letters;
    if (letter) {
        fabric->free_letters = letter->next_free;
        return letter;
    }
    letter = sim_alloc(sizeof *letter);
    if (!letter)
        abort();
    letter->next = fabric->letters;
    fabric->letters = letter;
    return letter;
}

/* `ordered`: behind the letters before it. */
static void letter_send(struct sim_ep *ep, uint32_t to, const void *data, uint32_t len, uint64_t arrival_ns, bool ordered)
{
    struct sim_letter *letter = letter_new(ep->fabric);
    letter->fabric = ep->fabric;
    letter->to = to;
    letter->served = false;
    letter->msg = (struct fab_msg){.from = ep->fab.id, .len = len};
    memcpy(letter->msg.data, data, len);
    const struct sim_host *host = ep->fabric->sim->processes[to]->host;
    const void *lane = ordered ? (const void *)&ep->conns[host->id].message_ns : letter;
    sim_at_lane(ep->fabric->sim, arrival_ns, lane, letter_arrive, letter, 0);
}

int sim_fab_send(struct fab_ep *fab, uint32_t to, const void *data, uint32_t len)
{
    struct sim_ep *ep = sim_ep_of(fab);
    struct sim *sim = ep->fabric->sim;
    assert(len <= FAB_MSG_MAX);
    if (to >= sim->process_count)
        return -ENOTCONN;
    const struct sim_mailbox *box = ep->fabric->mailboxes[to];
    if (box && box->count == MAILBOX_MAX)
        return -EAGAIN;
    sim_ep_drain(ep);
    fab->counts.sends++;
    struct sim_node *node = sim_node_of(ep->fabric, sim->processes[to]->host->id);
    struct sim_conn *conn = &ep->conns[node->host->id];
    uint64_t way_ns = model_get(sim->model, MODEL_propagation_ns);
    uint64_t sent_ns = sim_nic_serve(&ep->host->nic.out_free_ns, sim->now_ns, model_get(sim->model, MODEL_outbound_ns));
    if (node->host != ep->host && sim_path_blocked_until(sim, ep->host->id, node->host->id))
        return 0;
    if (sim_fault_draw(sim, FAULT_LOSS))
        return 0;
    uint64_t arrival_ns = sent_ns + sim_way_ns(ep, node);
    if (sim_fault_draw(sim, FAULT_DELAY))
        arrival_ns += sim_fault_span(sim, way_ns * DELAY_WAYS);
    bool ordered = !sim_fault_draw(sim, FAULT_REORDER);
    if (!ordered)
        arrival_ns += sim_fault_span(sim, way_ns * REORDER_WAYS);
    else
        conn->message_ns = arrival_ns = max_u64(arrival_ns, conn->message_ns); /* in order if nothing goes wrong */
    letter_send(ep, to, data, len, arrival_ns, ordered);
    if (sim_fault_draw(sim, FAULT_DUPLICATE))
        letter_send(ep, to, data, len, arrival_ns + sim_fault_span(sim, way_ns * REORDER_WAYS), false);
    return 0;
}

int sim_fab_recv(struct fab_ep *fab, struct fab_msg *out, uint64_t deadline)
{
    struct sim_ep *ep = sim_ep_of(fab);
    struct sim_task *task = sim_current(ep->fabric->sim);
    uint64_t deadline_ns = sim_host_clock_inverse(ep->host, deadline);
    sim_ep_drain(ep);
    for (;;) {
        if (mailbox_take(ep->fabric->mailboxes[fab->id], ep, out))
            return 0;
        ep->ticket = sim_ticket_take(task);
        ep->receiving = true;
        int rc = sim_task_wait(task, deadline_ns);
        ep->receiving = false;
        const struct sim_mailbox *box = ep->fabric->mailboxes[fab->id];
        if (rc == -ECANCELED || (rc && !(box && mailbox_find(box, ep) < box->count)))
            return rc;
    }
}

/* ---- fencing ---- */

/* Node, peer and proof travel in an event's tag. */
#define FENCE_NODE_BITS 6
#define FENCE_PEER_BITS 12
static_assert(SIM_HOSTS_MAX <= 1 << FENCE_NODE_BITS && SIM_PROCESSES_MAX <= 1 << FENCE_PEER_BITS, "fits the tag");

static void fence_arrive(void *arg, uint64_t tag)
{
    struct sim_fabric *fabric = arg;
    struct sim_node *node = sim_node_of(fabric, (uint32_t)field_get(tag, 0, FENCE_NODE_BITS));
    uint64_t peer = field_get(tag, FENCE_NODE_BITS, FENCE_PEER_BITS), proof = tag >> (FENCE_NODE_BITS + FENCE_PEER_BITS);
    if (!node->fenced)
        node->fenced = sim_alloc(SIM_PROCESSES_MAX * sizeof *node->fenced);
    if (!node->fenced)
        abort(); /* a fence that is not there must not be reported */
    node->fenced[peer] = max_u64(node->fenced[peer], proof);
    sim_note(fabric->sim, "fence", node->host->id, peer, proof);
}

static bool cpu_may_store(const struct sim *sim, const struct sim_host *host, uint32_t peer, uint64_t proof)
{
    const struct sim_process *p = peer < sim->process_count ? sim->processes[peer] : NULL;
    return p && p->host == host && p->alive && p->generation <= proof;
}

/* A call to every memory node at once, and back. What is down needs no call: its connections die with it, and the
 * fence is entered for when it is back. */
int sim_fab_fence(struct fab_ep *fab, uint32_t peer, uint64_t proof)
{
    struct sim_ep *ep = sim_ep_of(fab);
    struct sim *sim = ep->fabric->sim;
    assert(peer < SIM_PROCESSES_MAX && proof < UINT64_C(1) << (64 - FENCE_NODE_BITS - FENCE_PEER_BITS));
    bool all = true;
    uint64_t back_ns = sim->now_ns;
    sim_ep_drain(ep);
    for (uint32_t i = 0; i < sim->host_count; i++) {
        const struct sim_host *host = sim->hosts[i];
        if (!host->memory)
            continue;
        if (host != ep->host && (sim_path_blocked_until(sim, ep->host->id, i) || sim_path_blocked_until(sim, i, ep->host->id) ||
                                 sim_fault_draw(sim, FAULT_LOSS))) {
            all = false;
            continue;
        }
        /* Its NIC can be told, its CPU cannot: a peer on the memory node itself is fenced only when it is gone. */
        if (host->server && cpu_may_store(sim, host, peer, proof))
            all = false;
        uint64_t way_ns = sim_way_ns(ep, sim_node_of(ep->fabric, i));
        uint64_t there_ns = sim->now_ns + way_ns + model_get(sim->model, MODEL_server_service_ns);
        sim_at(sim, there_ns, fence_arrive, ep->fabric, (proof << FENCE_PEER_BITS | peer) << FENCE_NODE_BITS | i);
        back_ns = max_u64(back_ns, there_ns + way_ns);
    }
    fab->counts.sends++;
    if (!all)
        back_ns = max_u64(back_ns, sim->now_ns + model_get(sim->model, MODEL_retransmit_ns));
    sim_task_wake_at(sim_current(sim), back_ns);
    sim_task_block(sim_current(sim));
    return all ? 0 : -EAGAIN;
}
