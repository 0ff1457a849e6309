/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program, the queue that goes on at the lock's server (4.3): q1 here, q2 there, as one queue.
 *
 * A queue that is full sets OVER in its tail: from then on every new request is passed to the server (q2), and only the server's
 * pushes enter q1, until the server says LAST and no request has come since (`arrivals`). */
#ifndef PAWL_DATAPLANE_NETLOCK_OVERFLOW_H
#define PAWL_DATAPLANE_NETLOCK_OVERFLOW_H

#include "dataplane/netlock_grant.h"

/* The server is told that there is room. With priorities all requests of one priority must fit, too: `wait_room`. */
static inline void netlock_notify(struct netlock_pass *p, uint32_t wait_room, bool vacant)
{
    p->out |= NETLOCK_OUT_NOTIFY;
    if (!netlock_ranked(p))
        return;
    p->vacant = vacant;
    if (p->out_room > wait_room)
        p->out_room = wait_room;
}

/* Whether a push is the next of this round. */
static inline bool netlock_is_next_push(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t reg = netlock_get(r, NETLOCK_ROUNDS, r->lock);
    uint32_t round = (uint32_t)(reg >> 32), next = (uint32_t)reg;
    bool current = p->round == round;
    bool ours = current && (p->pushed == next || MISTAKE(p->mistakes, NETLOCK_MISTAKE_NO_PUSH_ORDER));
    p->out |= current ? NETLOCK_OUT_PUSHED : 0;
    p->round = round;
    p->pushed = next + ours;
    netlock_set(r, NETLOCK_ROUNDS, r->lock, reg, netlock_pair(round, p->pushed));
    return ours;
}

/* PUSH: one request of q2 comes. Without a mode, it was given up on its way. */
static inline void netlock_op_push(struct netlock_pass *p, const struct netlock_registers *r)
{
    bool ours = netlock_is_next_push(p, r);
    uint64_t seen = netlock_get(r, NETLOCK_SEEN, r->request);
    bool enters = ours && p->mode && !netlock_is_past(seen, p->nonce);
    netlock_set(r, NETLOCK_SEEN, r->request, seen, enters ? p->nonce : seen);
    netlock_note_arrivals(p, r, 0);
    bool first = netlock_first_waiting(netlock_waiters_here(p, r)) > p->priority; /* it is the first of those at the server */
    struct netlock_ends e = netlock_get_ends(p, r);
    bool must_wait = netlock_must_wait(p, &e, first) && !(p->low && MISTAKE(p->mistakes, NETLOCK_MISTAKE_LOW));
    if (enters)
        p->flags |= NETLOCK_FROM_SERVER;
    if (enters && !must_wait && !e.full) { /* a push that finds no room is dropped: its client asks again, and anew */
        netlock_enqueue(p, r, &e);
        return;
    }
    netlock_set_ends(p, r, &e);
    if (enters && must_wait && p->flags & NETLOCK_TRY)
        p->out |= NETLOCK_OUT_HELD;
    else if (enters && must_wait && !p->low) /* a low priority has no other place here */
        p->next = NETLOCK_OP_WAIT;
}

/* The room of the fullest waiting queue. */
static inline uint32_t netlock_wait_room(const struct netlock_pass *p, uint64_t waiting)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < NETLOCK_PRIORITIES; i++) {
        uint32_t count = (uint32_t)(waiting >> (8 * i)) & 0xffu;
        most = count > most ? count : most;
    }
    return most < p->wait_size ? p->wait_size - most : 0;
}

/* LAST: q2 is empty. OVER ends, unless a request was passed on since. */
static inline void netlock_op_last(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint32_t round = p->round, count = p->count;
    netlock_note_round(p, r);
    netlock_note_arrivals(p, r, 0);
    bool current = round == p->round, last = current && (count == p->count || MISTAKE(p->mistakes, NETLOCK_MISTAKE_EAGER_NORMAL));
    uint64_t low = netlock_low_flag(p->levels), waiting = netlock_waiters(p, r), here = waiting & ~low;
    if (netlock_ranked(p)) {
        uint64_t after = current && p->flags & NETLOCK_LOW ? waiting | low : last ? here : waiting;
        netlock_set(r, NETLOCK_WAITING, r->lock, waiting, after);
        p->lows = (after & low) != 0;
    }
    struct netlock_ends e = netlock_get_ends(p, r);
    uint32_t room = netlock_wait_room(p, here);
    e.over = last ? 0 : e.over;
    netlock_set_ends(p, r, &e);
    if (current && e.over && (!netlock_ranked(p) || room)) /* else when the waiters here have gone */
        netlock_notify(p, room, e.empty && !here);         /* not the last: another request came meanwhile */
    if (!e.over && p->lows && e.empty && !here)
        p->next = NETLOCK_OP_CALL;
}

#endif
