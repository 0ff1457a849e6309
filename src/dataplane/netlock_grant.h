/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program, Algorithms 1 and 2 of the paper: ACQUIRE and RELEASE, with what a release resubmits.
 *
 * Algorithm 1 (4.1), for a lock that is in the switch:      Algorithm 2 (4.2):
 *   lines 2 to 8   netlock_op_acquire                            lines 1 to 5    netlock_op_acquire, netlock_enqueue
 *   line 10        netlock_op_release                            lines 7 to 12   netlock_op_release, then netlock_op_ended
 *   (lines 1, 12: on_request of switch.c, of netlock.bpf.c)   lines 13 to 21  netlock_look at the head (flag 1)
 *                                                             lines 22 to 27  netlock_op_walk, netlock_look behind it (flag 2)
 *
 * Algorithm 2 dequeues the head, whichever request is released. Here a slot is known by ticket and nonce, the release marks it, and
 * the head moves over marked slots. That takes as many resubmissions, and also lets a reader in the middle expire, and a waiter
 * that gave up be skipped. */
#ifndef PAWL_DATAPLANE_NETLOCK_GRANT_H
#define PAWL_DATAPLANE_NETLOCK_GRANT_H

#include "dataplane/netlock_state.h"

/* ---- ACQUIRE ---- */

/* Algorithm 2, lines 2 to 5: into the queue, and granted if the queue was empty, or if it is shared and no writer is in it. */
static inline void netlock_enqueue(struct netlock_pass *p, const struct netlock_registers *r, struct netlock_ends *e)
{
    bool writes = p->mode == NETLOCK_EXCLUSIVE;
    p->queue = 0;
    p->ticket = e->tail;
    e->tail = netlock_after(e->tail, p->size);
    e->writer = writes ? NETLOCK_WRITER : 0;
    netlock_set_ends(p, r, e);
    netlock_note_ticket(p, r);
    uint64_t writers = netlock_get(r, NETLOCK_EXCL, r->lock);
    netlock_set(r, NETLOCK_EXCL, r->lock, writers, (uint32_t)writers + writes);
    bool grant = writes ? e->empty : !writers;
    if (p->low && p->op == NETLOCK_OP_PUSH && MISTAKE(p->mistakes, NETLOCK_MISTAKE_LOW))
        grant = true;
    bool gives_up = !grant && p->flags & NETLOCK_TRY && p->op != NETLOCK_OP_MOVE; /* it only tried */
    netlock_fill_slot(p, r, grant ? NETLOCK_GRANTED : gives_up ? NETLOCK_ENDED : 0);
    if (gives_up) {
        p->out |= NETLOCK_OUT_HELD;
        p->next = NETLOCK_OP_ENDED;
    } else if (grant && p->op == NETLOCK_OP_MOVE && !writes) {
        p->next = NETLOCK_OP_PULL; /* other readers may follow a reader */
    }
    if (grant)
        netlock_grant(p, r);
    else
        netlock_eager_data(p, r);
}

/* Algorithm 1, line 8: to the server's queue, where all newcomers go until it is empty. A mere try ends here, unless the queue is
 * empty: then the lock may just be moving, and the server knows. */
static inline void netlock_pass_on(struct netlock_pass *p, struct netlock_ends *e)
{
    if (p->flags & NETLOCK_TRY && !e->empty) {
        p->out |= p->mode == NETLOCK_SHARED && !e->writer ? NETLOCK_OUT_MOVING : NETLOCK_OUT_HELD;
        return;
    }
    e->over = NETLOCK_OVER;
    p->out |= NETLOCK_OUT_FORWARD;
    p->next = NETLOCK_OP_UNSEE;
}

/* With priorities the queue has only requests that can be granted at once; the others wait in the queue of their priority. `first`:
 * no waiter goes before this one. */
static inline bool netlock_must_wait(const struct netlock_pass *p, const struct netlock_ends *e, bool first)
{
    return netlock_ranked(p) && !(first && (e->empty || (p->mode == NETLOCK_SHARED && !e->writer)));
}

enum netlock_seen { NETLOCK_NEW, NETLOCK_DUPLICATE, NETLOCK_PAST };

static inline enum netlock_seen netlock_note_nonce(const struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t seen = netlock_get(r, NETLOCK_SEEN, r->request);
    bool past = netlock_is_past(seen, p->nonce) && !MISTAKE(p->mistakes, NETLOCK_MISTAKE_NO_SEEN);
    netlock_set(r, NETLOCK_SEEN, r->request, seen, past ? seen : p->nonce);
    if (past)
        return NETLOCK_PAST;
    return seen == p->nonce && !MISTAKE(p->mistakes, NETLOCK_MISTAKE_NO_SEEN) ? NETLOCK_DUPLICATE : NETLOCK_NEW;
}

#define NETLOCK_METER_LATE (1u << 20) /* a second: by so much the clock of another CPU, or of the control process, may be late */

/* A tenant's quota (4.4): a bucket that fills with its rate. In 1/1024 of a request. */
static inline bool netlock_within_quota(struct netlock_pass *p, const struct netlock_registers *r)
{
    if (!p->rate)
        return true;
    uint64_t reg = netlock_get(r, NETLOCK_METER, r->tenant);
    uint32_t level = (uint32_t)(reg >> 32), stamp = (uint32_t)reg, passed = p->now - stamp;
    if (-passed <= NETLOCK_METER_LATE) /* a packet whose clock was read later came first: not an age */
        passed = 0;
    uint64_t filled = level + (((uint64_t)passed * p->rate) >> 10);
    uint64_t full = (uint64_t)p->burst << 10;
    if (filled > full)
        filled = full;
    if (filled < 1024) {
        p->out |= NETLOCK_OUT_QUOTA;
        p->out_wait = (uint32_t)((((1024 - filled) << 10) + p->rate - 1) / p->rate);
        return false;
    }
    netlock_set(r, NETLOCK_METER, r->tenant, reg, netlock_pair((uint32_t)(filled - 1024), stamp + passed));
    return true;
}

/* A duplicate gets the first answer again. */
static inline void netlock_answer_again(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_find_ticket(p, r);
    uint32_t slot = netlock_queue_slot(p);
    if (slot == NETLOCK_NO_TICKET) {
        p->out |= NETLOCK_OUT_GONE;
        return;
    }
    bool own = netlock_is_own(p, r, slot, true);
    uint32_t flags = (uint32_t)netlock_get(r, NETLOCK_FLAGS, slot);
    p->out_ticket = p->ticket;
    p->out_mode = (uint8_t)(flags & NETLOCK_SLOT_MODE);
    if (!own || flags & NETLOCK_ENDED) {
        p->out |= NETLOCK_OUT_GONE;
    } else if (flags & NETLOCK_GRANTED) {
        netlock_set(r, NETLOCK_SINCE, slot, netlock_get(r, NETLOCK_SINCE, slot), p->now);
        netlock_grant(p, r);
    }
}

/* Algorithm 1, lines 2 to 8. */
static inline void netlock_op_acquire(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_note_round(p, r);
    enum netlock_seen seen = netlock_note_nonce(p, r);
    bool arrives = seen == NETLOCK_NEW && netlock_within_quota(p, r);
    netlock_note_arrivals(p, r, arrives);
    uint64_t low = MISTAKE(p->mistakes, NETLOCK_MISTAKE_PASSING) ? netlock_low_flag(p->levels) : 0;
    bool first = netlock_first_waiting(netlock_waiters(p, r) & ~low) > p->priority; /* here or at the server */
    struct netlock_ends e = netlock_get_ends(p, r);
    if (!arrives) {
        if (seen == NETLOCK_DUPLICATE)
            netlock_answer_again(p, r);
        return;
    }
    bool must_wait = netlock_must_wait(p, &e, first);
    if (e.over || (e.full && !must_wait)) { /* line 8 */
        netlock_pass_on(p, &e);
        netlock_set_ends(p, r, &e);
    } else if (!must_wait) { /* lines 3 to 6 */
        netlock_enqueue(p, r, &e);
    } else if (p->flags & NETLOCK_TRY) {
        p->out |= NETLOCK_OUT_HELD;
    } else { /* line 6, with priorities */
        p->next = NETLOCK_OP_WAIT;
    }
}

/* ---- RELEASE, CANCEL ---- */

/* Algorithm 2, lines 8 to 12: the slot is marked as ended, once. Its mode is what the slot says. `head`: it is the queue's head. */
static inline void netlock_end_slot(struct netlock_pass *p, const struct netlock_registers *r, bool head)
{
    bool upgrading = netlock_upgrading(r);
    uint32_t slot = netlock_queue_slot(p);
    p->out |= NETLOCK_OUT_RELEASED;
    if (slot == NETLOCK_NO_TICKET)
        return;
    bool own = netlock_is_own(p, r, slot, false);
    uint32_t flags = (uint32_t)netlock_get(r, NETLOCK_FLAGS, slot);
    if (!own || flags & NETLOCK_ENDED)
        return;
    netlock_set(r, NETLOCK_FLAGS, slot, flags, flags | NETLOCK_ENDED);
    if (!MISTAKE(p->mistakes, NETLOCK_MISTAKE_TRUST_MODE))
        p->mode = (uint8_t)(flags & NETLOCK_SLOT_MODE);
    if (flags & NETLOCK_UPGRADES) { /* it was counted as one that wants to write */
        p->mode = NETLOCK_EXCLUSIVE;
        p->strip = true;
    }
    if (p->queue)
        p->next = NETLOCK_OP_PULL;
    else if (p->op == NETLOCK_OP_CANCEL || head || p->mode == NETLOCK_EXCLUSIVE)
        p->next = NETLOCK_OP_ENDED;
    else if (upgrading)
        netlock_begin_sole(p);
}

static inline void netlock_op_release(struct netlock_pass *p, const struct netlock_registers *r)
{
    struct netlock_ends e = netlock_look_at_ends(p, r);
    if (MISTAKE(p->mistakes, NETLOCK_MISTAKE_BLIND_RELEASE))
        p->ticket = e.head;
    if (netlock_in_queue(p, &e))
        netlock_end_slot(p, r, p->ticket == e.head);
    else
        p->out |= NETLOCK_OUT_RELEASED; /* it ended before */
}

/* A waiter that gave up. If it comes before its ACQUIRE, that one is known as ended. */
static inline void netlock_op_cancel(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_note_round(p, r);
    uint64_t seen = netlock_get(r, NETLOCK_SEEN, r->request);
    bool found = seen == p->nonce;
    netlock_set(r, NETLOCK_SEEN, r->request, seen, netlock_is_past(seen, p->nonce) ? seen : p->nonce + NETLOCK_CANCELLED);
    netlock_note_arrivals(p, r, 0);
    struct netlock_ends e = netlock_look_at_ends(p, r);
    if (found) {
        netlock_find_ticket(p, r);
        netlock_end_slot(p, r, false);
    } else {
        p->out |= e.over || p->lows ? NETLOCK_OUT_FORWARD : NETLOCK_OUT_RELEASED;
    }
}

/* ---- what a release resubmits: ENDED, POP, WALK ---- */

/* Algorithm 2, lines 13 to 27: the slot at the pointer is granted, if it is the head or a reader behind readers. `p->mode` is the
 * paper's meta.mode, the mode of the request that was released. */
static inline void netlock_look(struct netlock_pass *p, const struct netlock_registers *r, bool head, bool upgrading)
{
    uint32_t slot = netlock_queue_slot(p), ticket = p->ticket;
    if (slot == NETLOCK_NO_TICKET)
        return;
    netlock_is_own(p, r, slot, false);
    uint32_t flags = (uint32_t)netlock_get(r, NETLOCK_FLAGS, slot), mode = flags & NETLOCK_SLOT_MODE;
    bool shared = mode == NETLOCK_SHARED, ended = flags & NETLOCK_ENDED, granted = flags & NETLOCK_GRANTED;
    bool grant = !ended && !granted && (head || (shared && !upgrading)); /* lines 15, 17, 24 */
    /* Lines 19 to 21 and 26, 27. A reader that was granted is passed over only when a writer has gone. */
    bool walk = ended ? !head : granted ? shared && p->mode == NETLOCK_EXCLUSIVE : grant && shared;
    if (walk) {
        p->next = NETLOCK_OP_WALK;
        p->ticket = netlock_after(ticket, p->size);
    } else if (ended) {
        p->next = NETLOCK_OP_POP;
    } else if (granted && upgrading && p->op != NETLOCK_OP_WALK) {
        netlock_begin_sole(p);
    }
    if (!grant)
        return;
    netlock_set(r, NETLOCK_FLAGS, slot, flags, flags | NETLOCK_GRANTED);
    netlock_set(r, NETLOCK_SINCE, slot, netlock_get(r, NETLOCK_SINCE, slot), p->now);
    p->out_ticket = ticket;
    p->out_mode = (uint8_t)mode;
    netlock_grant(p, r);
}

/* ENDED and POP. Algorithm 2, lines 8 to 12: the head goes, if it is the slot that was marked; the slot behind it is looked at. */
static inline void netlock_op_ended(struct netlock_pass *p, const struct netlock_registers *r)
{
    bool first = p->op == NETLOCK_OP_ENDED, wrote = first && p->mode == NETLOCK_EXCLUSIVE;
    netlock_note_round(p, r);
    netlock_note_arrivals(p, r, 0);
    struct netlock_ends e = netlock_look_at_ends(p, r);
    bool look = wrote && !e.empty; /* a writer in the middle gave up: readers behind it may join those before it */
    if (!e.empty && e.head == p->ticket) {
        e.head = netlock_after(e.head, p->size);
        e.empty = e.head == e.tail;
        look = !e.empty || MISTAKE(p->mistakes, NETLOCK_MISTAKE_NO_END);
        if (e.empty && netlock_ranked(p))
            p->next = NETLOCK_OP_PULL;
        else if (e.empty && e.over)
            p->out |= NETLOCK_OUT_NOTIFY;
    }
    p->ticket = e.head; /* line 11 */
    netlock_set_ends(p, r, &e);
    bool upgrading = netlock_uncount_writer(p, r, wrote);
    if (look)
        netlock_look(p, r, true, upgrading);
}

/* Algorithm 2, lines 22 to 27: readers behind readers. */
static inline void netlock_op_walk(struct netlock_pass *p, const struct netlock_registers *r)
{
    struct netlock_ends e = netlock_look_at_ends(p, r);
    if (!netlock_in_queue(p, &e) && p->ticket != e.tail)
        p->ticket = e.head; /* the head overtook it */
    if (!e.empty && p->ticket != e.tail)
        netlock_look(p, r, p->ticket == e.head, netlock_upgrading(r));
}

#endif
