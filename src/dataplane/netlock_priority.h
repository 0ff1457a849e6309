/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program, priorities (4.4): the queue has only requests that can be granted at once, the others wait in a queue
 * of their priority.
 *
 * Only the first `levels` priorities have a waiting queue here. A request of a lower one that would have to wait waits at the
 * server, in its order in q2, and a flag of `waiting` says that there is one (LOW). The rule:
 *   1. A low request is granted as it comes only if no waiter, here or at the server, goes before it: LOW counts as its own
 *      priority.
 *   2. The server may push a low request only when it has been called: when the queue is empty and no request waits here, one pass
 *      sets OVER and sends NOTIFY. From then on only pushes enter, so the first push finds the queue still empty. That pass counts
 *      as an arrival, so no earlier LAST ends this OVER. A call that the server has answered with LAST is void.
 *   3. A call leads to the push of one writer, or of readers one after the other, before all other pushes. A push that finds the
 *      queue otherwise is not let in.
 *   4. The server says LAST when q2 has no request left whose priority has a queue here. Others stay in q2, and LAST says so.
 * So the switch decides all grants, as without low priorities. Lower priorities that wait cost higher ones nothing but a round trip
 * when a low request has its turn. It has its turn when the lock is free and no higher one waits, even if higher ones come then. */
#ifndef PAWL_DATAPLANE_NETLOCK_PRIORITY_H
#define PAWL_DATAPLANE_NETLOCK_PRIORITY_H

#include "dataplane/netlock_overflow.h"

/* The register of the waiting queue of the packet's priority, and one waiter in WAITING. */
static inline uint32_t netlock_queue_of(const struct netlock_pass *p, const struct netlock_registers *r)
{
    return r->lock * NETLOCK_PRIORITIES + p->priority % NETLOCK_PRIORITIES;
}

static inline uint64_t netlock_one_waiter(const struct netlock_pass *p)
{
    return UINT64_C(1) << (8 * (p->priority % NETLOCK_PRIORITIES));
}

/* Another register of waiters. */
static inline void netlock_set_waiters(struct netlock_pass *p, const struct netlock_registers *r, uint64_t before, uint64_t after)
{
    netlock_set(r, NETLOCK_WAITING, r->lock, before, after);
    p->lows = (after & netlock_low_flag(p->levels)) != 0;
}

/* WAIT of a priority that has no queue here: to the server. If the lock has become free meanwhile, this request must call the
 * server. */
static inline void netlock_wait_low(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_forget_nonce(p, r); /* p->count stays: its own number is its place in the order */
    uint64_t waiting = netlock_waiters(p, r), low = netlock_low_flag(p->levels);
    netlock_set_waiters(p, r, waiting, waiting | low);
    struct netlock_ends e = netlock_get_ends(p, r);
    p->out |= NETLOCK_OUT_FORWARD;
    if (!e.over && e.empty && !(waiting & ~low))
        p->next = NETLOCK_OP_CALL;
}

/* WAIT: into the waiting queue of its priority; if that is full, to the server. */
static inline void netlock_op_wait(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_note_round(p, r);
    if (p->low) {
        netlock_wait_low(p, r);
        return;
    }
    netlock_note_arrivals(p, r, 0);
    uint64_t reg = netlock_get(r, NETLOCK_QUEUES, netlock_queue_of(p, r));
    uint32_t head = (uint32_t)(reg >> 32), tail = (uint32_t)reg;
    bool full = netlock_full(head, tail);
    p->ticket = tail;
    netlock_set(r, NETLOCK_QUEUES, netlock_queue_of(p, r), reg, full ? reg : netlock_pair(head, netlock_after(tail, p->wait_size)));
    uint64_t waiting = netlock_waiters(p, r);
    netlock_set_waiters(p, r, waiting, full ? waiting : waiting + netlock_one_waiter(p));
    struct netlock_ends e = netlock_get_ends(p, r);
    if (full && !(p->flags & NETLOCK_FROM_SERVER))
        netlock_pass_on(p, &e);
    netlock_set_ends(p, r, &e);
    if (full)
        return;
    p->queue = (uint8_t)(1 + p->priority);
    netlock_note_ticket(p, r);
    netlock_fill_slot(p, r, 0);
    p->next = NETLOCK_OP_PULL; /* it may be the first */
    netlock_eager_data(p, r);
}

/* PULL: which is the highest priority that has a waiter? If the lock is free and no request waits here, the server is told, if a
 * request may wait there. */
static inline void netlock_op_pull(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_note_round(p, r);
    netlock_note_arrivals(p, r, 0);
    uint64_t here = netlock_waiters_here(p, r);
    struct netlock_ends e = netlock_get_ends(p, r);
    netlock_set_ends(p, r, &e);
    if (netlock_ranked(p))
        p->priority = netlock_first_waiting(here);
    if (here)
        p->next = NETLOCK_OP_PEEK;
    else if (e.empty && (e.over || p->lows) && netlock_ranked(p) && p->levels < NETLOCK_PRIORITIES)
        p->next = NETLOCK_OP_CALL;
    else if (e.empty && (e.over || p->lows))
        netlock_notify(p, p->wait_size, true);
}

/* PEEK: the first waiter of that priority moves into the queue, if it can be granted there. */
static inline void netlock_op_peek(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t reg = netlock_get(r, NETLOCK_QUEUES, netlock_queue_of(p, r));
    uint32_t head = (uint32_t)(reg >> 32), tail = (uint32_t)reg;
    struct netlock_ends e = netlock_look_at_ends(p, r);
    p->ticket = head;
    p->queue = (uint8_t)(1 + p->priority);
    uint32_t slot = head != tail ? netlock_queue_slot(p) : NETLOCK_NO_TICKET;
    if (slot == NETLOCK_NO_TICKET)
        return;
    netlock_is_own(p, r, slot, false);
    uint32_t flags = (uint32_t)netlock_get(r, NETLOCK_FLAGS, slot);
    p->machine = p->out_place.machine;
    p->port = p->out_place.port;
    p->nonce = p->out_nonce;
    p->mode = (uint8_t)(flags & NETLOCK_SLOT_MODE);
    p->tenant = (uint16_t)(flags >> 16);
    bool fits = e.empty || (p->mode == NETLOCK_SHARED && !e.writer) || MISTAKE(p->mistakes, NETLOCK_MISTAKE_FIRST_QUEUE);
    if (flags & NETLOCK_ENDED)
        p->next = NETLOCK_OP_DROP;
    else if (!e.full && fits)
        p->next = NETLOCK_OP_MOVE;
}

/* MOVE from there into the queue; DROP: it gave up there. Nothing, if another packet was faster. */
static inline void netlock_op_move(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t reg = netlock_get(r, NETLOCK_QUEUES, netlock_queue_of(p, r));
    uint32_t head = (uint32_t)(reg >> 32), tail = (uint32_t)reg;
    bool ours = head != tail && head == p->ticket;
    netlock_set(r, NETLOCK_QUEUES, netlock_queue_of(p, r), reg, ours ? netlock_pair(netlock_after(head, p->wait_size), tail) : reg);
    uint64_t waiting = netlock_waiters(p, r);
    netlock_set_waiters(p, r, waiting, ours ? waiting - netlock_one_waiter(p) : waiting);
    struct netlock_ends e = netlock_get_ends(p, r);
    if (ours && p->op == NETLOCK_OP_DROP)
        p->next = NETLOCK_OP_PULL;
    else if (ours && !e.full) /* full: its client will learn that it is gone, and ask anew */
        netlock_enqueue(p, r, &e);
}

/* CALL: no request holds the lock or waits here. The server may push waiters whose priority has no queue here. */
static inline void netlock_op_call(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_note_round(p, r);
    netlock_note_arrivals(p, r, 1);
    uint64_t here = netlock_waiters_here(p, r);
    struct netlock_ends e = netlock_get_ends(p, r);
    bool calls = netlock_ranked(p) && e.empty && !here && (e.over || p->lows);
    if (calls)
        e.over = NETLOCK_OVER;
    netlock_set_ends(p, r, &e);
    if (calls)
        netlock_notify(p, p->wait_size, true);
}

#endif
