/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program: locks with queues in register arrays (SIGCOMM'20, 4.2), as stages.
 *
 * Each stage is a pure function: what travels with the packet (struct netlock_pass) and its own register go in, the register's new
 * value comes out. A pass visits each register array once, in the order of enum netlock_array; what a pass could not do, another
 * does: the packet is resubmitted with another `op`. Between two passes of a packet anything else may pass. The simulation, a
 * process over UDP, the kernel and a model of the hardware (rmt.h) drive the same stages.
 *
 * The shared queue is pooled over arrays of slots. A lock owns slots [left, left + size) as a circular queue: `ends` has its head
 * and tail as tickets, (lap, position). A slot is known by ticket and nonce; so whoever releases names what it releases, a second
 * release of it finds nothing, and the mode is the slot's and not what the releaser says. Algorithm 2 dequeues the head whoever
 * releases; here the slot is marked and the head moves over marked slots. That is as many resubmissions, and also lets a reader
 * in the middle expire, and a waiter that gave up be skipped.
 *
 * `excl` counts the writers in the queue that have not ended: without one, a reader is granted as it comes (line 4).
 *
 * A queue that is full sets OVER in its tail: from then on whoever comes is passed to the lock's server (q2), and only the server's
 * pushes enter q1, until the server says LAST and nobody has come since (`arrivals`), so that both are one queue.
 *
 * With priorities, only the first `levels` of them have a waiting queue here (4.4). Who has a lower one, and would have to wait,
 * waits at the server, in its order among q2, and a flag of `waiting` says that somebody does (LOW). The rule:
 *   1. It is granted as it comes only if nobody waits, here or there, whom it may not overtake: LOW counts as its own priority.
 *   2. The server may push one only when it has been called: when nobody is in the queue and nobody waits here, OVER is set and
 *      NOTIFY says so, in one pass. From then on only pushes enter, so the first of them finds the queue as empty as it was. That
 *      pass counts as an arrival: no LAST from before ends this OVER, and a call that the server has answered with LAST is none.
 *   3. Of one call come a writer, or readers one after the other, before all others; what finds the queue otherwise is not let in.
 *   4. The server says LAST when none is left in q2 that has a queue here; the others stay there, and LAST says so.
 * So who is granted is decided here, as without; the higher ones do not notice that lower ones wait, but for a round trip when
 * one of those has its turn; and its turn is when the lock is free and no higher one waits, whoever comes meanwhile. */
#ifndef PAWL_DATAPLANE_NETLOCK_H
#define PAWL_DATAPLANE_NETLOCK_H

#include "dataplane/mistake.h"
#include "dataplane/netlock_wire.h"

#include <stdbool.h>

/* The register arrays, in the order in which a packet comes by. Registers have 64 bits or 32. */
enum netlock_array {
    NETLOCK_BOUNDS,   /* left 32, size 16, waiting queues 8, size of each 8 */
    NETLOCK_ROUNDS,   /* round 32, next push 32 */
    NETLOCK_SEEN,     /* per request of a host: its latest nonce, by which doubled packets are known */
    NETLOCK_METER,    /* per tenant: level 32, stamp 32 */
    NETLOCK_ARRIVALS, /* 32: requests so far; the rate of Algorithm 3 */
    NETLOCK_QUEUES,   /* per priority: head 32, tail 32 of the waiting queue */
    NETLOCK_WAITING,  /* how many wait in each priority's queue, 8 bits each; the first without a queue: LOW */
    NETLOCK_ENDS,     /* head 32, tail 32 */
    NETLOCK_PEAK,     /* 32: most requests at once; the contention of Algorithm 3 */
    NETLOCK_TICKETS,  /* per request of a host: the ticket it got, and its queue */
    NETLOCK_EXCL,     /* 32 */
    NETLOCK_NONCE,    /* per slot: 64 */
    NETLOCK_PLACE,    /* per slot: 32: machine and port */
    NETLOCK_FLAGS,    /* per slot: 32: flags, tenant */
    NETLOCK_SINCE,    /* per slot: 32: when it was granted */
    NETLOCK_TOKEN,    /* 64: of the latest grant */
    NETLOCK_ARRAYS
};
#define NETLOCK_SLOT_BYTES 20u /* 8 + 4 + 4 + 4; the paper's is 20, too (5) */

#define NETLOCK_PRIORITIES 8u

/* Tickets. */
#define NETLOCK_SIZE_MAX 0x7fffu /* slots of one lock */
#define NETLOCK_LAP 0x10000u
#define NETLOCK_TICKET 0x7fffffffu
#define NETLOCK_OVER 0x80000000u   /* in the tail: q2 has the newcomers */
#define NETLOCK_WRITER 0x80000000u /* in the head: the latest to enter the queue wants to write */
#define NETLOCK_NO_TICKET 0xffffffffu

/* Flags of a slot. */
#define NETLOCK_SLOT_MODE 3u /* NETLOCK_SHARED, NETLOCK_EXCLUSIVE */
#define NETLOCK_GRANTED 4u
#define NETLOCK_ENDED 8u

enum netlock_op {
    NETLOCK_OP_NONE,
    NETLOCK_OP_ACQUIRE,
    NETLOCK_OP_CANCEL,
    NETLOCK_OP_RELEASE,
    NETLOCK_OP_PUSH,
    NETLOCK_OP_LAST,
    /* only as resubmissions */
    NETLOCK_OP_UNSEE, /* it is in q2 now: its nonce is forgotten, that a push of it is not taken for a double */
    NETLOCK_OP_ENDED, /* a slot was marked: it counts no more, the head moves, and who is next is granted (flag 1) */
    NETLOCK_OP_POP,   /* the head is a marked slot: it moves on */
    NETLOCK_OP_WALK,  /* readers behind readers (flag 2) */
    NETLOCK_OP_WAIT,  /* into the waiting queue of its priority */
    NETLOCK_OP_PULL,  /* which is the highest priority that somebody waits with? */
    NETLOCK_OP_PEEK,  /* who is first there? */
    NETLOCK_OP_MOVE,  /* from there into the queue */
    NETLOCK_OP_DROP,  /* it gave up there */
    NETLOCK_OP_CALL,  /* nobody is here: whoever waits at the server with a priority that has no queue here */
    /* holds that change their mode (netlock_convert.h) */
    NETLOCK_OP_CONVERT,
    NETLOCK_OP_STAY,
    NETLOCK_OP_WEAKENED,   /* a writer less is in the queue */
    NETLOCK_OP_UPGRADE,    /* a reader wants to write */
    NETLOCK_OP_SOLE,       /* is it the only one? */
    NETLOCK_OP_STRENGTHEN, /* it is */
};

/* What leaves the switch after a pass. */
#define NETLOCK_OUT_GRANT 1u    /* to out_place */
#define NETLOCK_OUT_RELEASED 2u /* to whoever sent the packet */
#define NETLOCK_OUT_GONE 4u
#define NETLOCK_OUT_HELD 8u
#define NETLOCK_OUT_QUOTA 16u
#define NETLOCK_OUT_FORWARD 32u /* to the lock's server, as OVERFLOW */
#define NETLOCK_OUT_NOTIFY 64u  /* to the lock's server */
#define NETLOCK_OUT_PUSHED 128u
#define NETLOCK_OUT_MOVING 256u
#define NETLOCK_OUT_DATA 512u /* to the data server that the packet names, with its bytes, instead of GRANT (4.1) */

#define NETLOCK_OUT_CONVERTED 1024u /* to out_place */
#define NETLOCK_OUT_DEADLOCK 2048u  /* to whoever sent the packet: not converted */

/* What is wrong on purpose, for tests that must notice (pitfalls 1, 2, 5, 7). */

#define NETLOCK_FROM_SERVER 128u /* flag of a pass, beside those of packets: it was pushed */

/* What travels with a packet. */
struct netlock_pass {
    /* from the packet */
    uint8_t op, mode, priority, flags;
    uint16_t machine, port, tenant;
    uint16_t bust;
    uint64_t nonce;
    uint32_t ticket, round, count, pushed;
    uint16_t step;        /* of conversions of this hold */
    uint32_t now;         /* about microseconds */
    uint32_t rate, burst; /* the tenant's quota (control plane): requests per 2^20 microseconds; 0: none */
    /* between stages */
    uint32_t left, size, wait_size, levels;
    uint32_t wait_room; /* so many more find room in the waiting queues, whichever they want */
    uint32_t slot;      /* of the shared queue; NETLOCK_NO_TICKET: none */
    uint8_t queue;      /* 0, or 1 + priority of a waiting queue */
    bool doubled, stale, found, enqueue, empty, grant, look, over, ours, priorities, head, writer, full;
    bool low, lows, vacant;         /* its priority has no queue here; somebody's who waits has none; nobody is here at all */
    bool convert, upgrading, strip; /* its mode has changed; a reader wants to write, or does; and not any more */
    uint32_t mark;                  /* ticket of the reader that does */
    /* out */
    uint8_t next; /* op of the resubmission; NETLOCK_OP_NONE: done */
    uint16_t out; /* NETLOCK_OUT_ */
    uint8_t out_mode;
    struct place out_place;
    uint64_t out_nonce, out_token;
    uint32_t out_ticket, out_room, out_wait;
};

static inline uint64_t netlock_pair(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

/* ---- tickets ---- */

static inline uint32_t netlock_after(uint32_t ticket, uint32_t size)
{
    return (ticket & 0xffffu) + 1 >= size ? ((ticket & 0x7fff0000u) + NETLOCK_LAP) & NETLOCK_TICKET : ticket + 1;
}

static inline bool netlock_full(uint32_t head, uint32_t tail)
{
    return ((tail - head) & NETLOCK_TICKET) == NETLOCK_LAP;
}

/* How many lie from one ticket to another that is no more than a lap ahead. */
static inline uint32_t netlock_between(uint32_t from, uint32_t to, uint32_t size)
{
    uint32_t laps = ((to >> 16) - (from >> 16)) & 0x7fffu;
    return (to & 0xffffu) + (laps ? size : 0) - (from & 0xffffu);
}

/* Whether a ticket lies in the queue. */
static inline bool netlock_within(uint32_t ticket, uint32_t head, uint32_t tail, uint32_t size)
{
    uint32_t laps = ((ticket >> 16) - (head >> 16)) & 0x7fffu;
    if ((ticket & 0xffffu) >= size || laps > 1 || (laps && (ticket & 0xffffu) >= (head & 0xffffu)) ||
        (!laps && (ticket & 0xffffu) < (head & 0xffffu)))
        return false;
    return netlock_between(head, ticket, size) < netlock_between(head, tail, size);
}

#include "dataplane/netlock_convert.h"

/* Serial numbers rise, and may wrap. */
static inline bool netlock_newer(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) > 0;
}

/* ---- the stages ---- */

static inline uint64_t netlock_stage_bounds(struct netlock_pass *p, uint64_t reg)
{
    p->left = (uint32_t)(reg >> 32);
    p->size = (uint32_t)(reg >> 16) & 0xffffu;
    p->levels = (uint32_t)(reg >> 8) & 0xffu;
    p->wait_size = (uint32_t)reg & 0xffu;
    p->priorities = p->wait_size != 0;
    p->low = p->priorities && p->priority >= p->levels;
    p->slot = NETLOCK_NO_TICKET;
    return reg;
}

/* A push is the next of this round, or nothing. */
static inline uint64_t netlock_stage_rounds(struct netlock_pass *p, uint64_t reg)
{
    uint32_t round = (uint32_t)(reg >> 32), next = (uint32_t)reg;
    if (p->op == NETLOCK_OP_PUSH) {
        p->ours = p->round == round && (p->pushed == next || MISTAKE(p->bust, NETLOCK_BUST_NO_PUSH_ORDER));
        if (p->ours)
            next++;
        if (p->round == round)
            p->out |= NETLOCK_OUT_PUSHED;
    } else if (p->op == NETLOCK_OP_LAST) {
        p->found = p->ours = p->round == round;
    }
    p->round = round;
    p->pushed = next;
    return netlock_pair(round, next);
}

/* Is this request new, or was it here before? */
static inline uint64_t netlock_stage_seen(struct netlock_pass *p, uint64_t reg)
{
    /* 0: nobody was here yet. */
    bool cancelled = reg == p->nonce + NETLOCK_CANCELLED, past = cancelled || (reg && netlock_newer(reg, p->nonce));
    switch (p->op) {
    case NETLOCK_OP_ACQUIRE:
        if (MISTAKE(p->bust, NETLOCK_BUST_NO_SEEN))
            return p->nonce;
        p->doubled = reg == p->nonce;
        p->stale = past;
        return p->stale ? reg : p->nonce;
    case NETLOCK_OP_PUSH: /* without a mode: it gave up on its way */
        p->stale = past || !p->mode;
        return p->ours && !p->stale ? p->nonce : reg;
    case NETLOCK_OP_CANCEL:
        p->found = reg == p->nonce;
        return past ? reg : p->nonce + NETLOCK_CANCELLED;
    case NETLOCK_OP_WAIT:
        return p->low && reg == p->nonce ? p->nonce - NETLOCK_CANCELLED : reg; /* it goes to the server: as UNSEE */
    case NETLOCK_OP_UNSEE:
        return reg == p->nonce ? p->nonce - NETLOCK_CANCELLED : reg;
    default:
        return reg;
    }
}

#define NETLOCK_METER_LATE (1u << 20) /* a second: by so much another CPU, or the control process, may be late with its clock */

/* A tenant's quota (4.4): a bucket that fills with its rate. In 1/1024 of a request. */
static inline uint64_t netlock_stage_meter(struct netlock_pass *p, uint64_t reg)
{
    uint32_t level = (uint32_t)(reg >> 32), stamp = (uint32_t)reg, passed = p->now - stamp;
    if (p->op != NETLOCK_OP_ACQUIRE || !p->rate || p->doubled || p->stale)
        return reg;
    if (-passed <= NETLOCK_METER_LATE) /* somebody whose clock was read later came first: not an age */
        passed = 0;
    uint64_t filled = level + (((uint64_t)passed * p->rate) >> 10);
    uint64_t full = (uint64_t)p->burst << 10;
    if (filled > full)
        filled = full;
    if (filled < 1024) {
        p->out |= NETLOCK_OUT_QUOTA;
        p->out_wait = (uint32_t)((((1024 - filled) << 10) + p->rate - 1) / p->rate);
        return reg;
    }
    return netlock_pair((uint32_t)(filled - 1024), stamp + passed);
}

static inline bool netlock_arrives(const struct netlock_pass *p)
{
    return p->op == NETLOCK_OP_ACQUIRE && !p->doubled && !p->stale && !(p->out & NETLOCK_OUT_QUOTA);
}

static inline uint64_t netlock_stage_arrivals(struct netlock_pass *p, uint64_t reg)
{
    if (p->op == NETLOCK_OP_WAIT && p->low)
        return reg; /* its own number is its place in the order */
    if (netlock_arrives(p) || p->op == NETLOCK_OP_CALL) {
        reg = (uint32_t)(reg + 1);
    } else if (p->op == NETLOCK_OP_LAST) {
        p->ours = p->ours && (p->count == (uint32_t)reg || MISTAKE(p->bust, NETLOCK_BUST_EAGER_NORMAL));
    }
    p->count = (uint32_t)reg;
    return reg;
}

/* The highest priority that somebody waits with; NETLOCK_PRIORITIES: nobody. */
static inline uint8_t netlock_first_waiting(uint64_t waiting)
{
    uint8_t first = 0;
    while (first < NETLOCK_PRIORITIES && !(waiting >> (8 * first) & 0xff))
        first++;
    return first;
}

/* In the count of the first priority that has no queue: somebody with one of those waits at the server. */
static inline uint64_t netlock_low_flag(uint32_t levels)
{
    return levels && levels < NETLOCK_PRIORITIES ? UINT64_C(1) << (8 * levels) : 0;
}

/* Who waits in the switch, of a lock with those bounds. */
static inline uint64_t netlock_waiting_here(uint64_t bounds, uint64_t waiting)
{
    return waiting & ~netlock_low_flag((uint32_t)(bounds >> 8) & 0xffu);
}

/* The waiting queue of the packet's priority. */
static inline uint64_t netlock_stage_queues(struct netlock_pass *p, uint64_t reg)
{
    uint32_t head = (uint32_t)(reg >> 32), tail = (uint32_t)reg;
    switch (p->op) {
    case NETLOCK_OP_WAIT:
        p->ours = !p->low && !netlock_full(head, tail);
        p->enqueue = p->ours;
        p->ticket = tail;
        tail = p->ours ? netlock_after(tail, p->wait_size) : tail;
        break;
    case NETLOCK_OP_PEEK:
        p->ours = head != tail;
        p->ticket = head;
        break;
    case NETLOCK_OP_MOVE:
    case NETLOCK_OP_DROP:
        p->ours = head != tail && head == p->ticket; /* else another packet was faster */
        head = p->ours ? netlock_after(head, p->wait_size) : head;
        break;
    default:
        break;
    }
    return netlock_pair(head, tail);
}

/* What the fullest of the waiting queues has room for. */
static inline uint32_t netlock_wait_room(const struct netlock_pass *p, uint64_t waiting)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < NETLOCK_PRIORITIES; i++) {
        uint32_t count = (uint32_t)(waiting >> (8 * i)) & 0xffu;
        most = count > most ? count : most;
    }
    return most < p->wait_size ? p->wait_size - most : 0;
}

static inline uint64_t netlock_stage_waiting(struct netlock_pass *p, uint64_t reg)
{
    uint64_t one = UINT64_C(1) << (8 * (p->priority % NETLOCK_PRIORITIES)), low = netlock_low_flag(p->levels), here = reg & ~low;
    p->wait_room = p->wait_size;
    if (!p->priorities)
        return reg;
    switch (p->op) {
    case NETLOCK_OP_ACQUIRE: /* nobody of its priority or a higher one waits, here or at the server */
        p->head = netlock_first_waiting(MISTAKE(p->bust, NETLOCK_BUST_PASSING) ? here : reg) > p->priority;
        break;
    case NETLOCK_OP_PUSH: /* here: it is the first of those there */
        p->head = netlock_first_waiting(here) > p->priority;
        break;
    case NETLOCK_OP_WAIT:
        p->head = !here;
        reg = p->low ? reg | low : p->ours ? reg + one : reg;
        break;
    case NETLOCK_OP_MOVE:
    case NETLOCK_OP_DROP:
        reg = p->ours ? reg - one : reg;
        break;
    case NETLOCK_OP_LAST:
        p->head = !here;
        p->wait_room = netlock_wait_room(p, here);
        if (p->found && p->flags & NETLOCK_LOW)
            reg |= low;
        else if (p->ours)
            reg = here;
        break;
    case NETLOCK_OP_CALL:
        p->head = !here;
        break;
    case NETLOCK_OP_PULL:
        p->head = !here;
        p->priority = netlock_first_waiting(here);
        p->next = p->priority < NETLOCK_PRIORITIES ? NETLOCK_OP_PEEK : NETLOCK_OP_NONE;
        break;
    default:
        break;
    }
    p->lows = (reg & low) != 0;
    return reg;
}

/* ---- head and tail ---- */

struct netlock_ends {
    uint32_t head, tail, over, writer;
};

static inline void netlock_put_in(struct netlock_pass *p, struct netlock_ends *e)
{
    p->enqueue = true;
    p->queue = 0;
    p->ticket = e->tail;
    e->tail = netlock_after(e->tail, p->size);
    e->writer = p->mode == NETLOCK_EXCLUSIVE ? NETLOCK_WRITER : 0;
}

/* To the server's queue, where all newcomers go until it is empty; a mere try ends here, unless the queue is empty: then the lock
 * may just be on its way, and the server knows. */
static inline void netlock_pass_on(struct netlock_pass *p, struct netlock_ends *e)
{
    if (p->flags & NETLOCK_TRY && !p->empty) {
        p->out |= p->mode == NETLOCK_SHARED && !e->writer ? NETLOCK_OUT_MOVING : NETLOCK_OUT_HELD;
        return;
    }
    e->over = NETLOCK_OVER;
    p->out |= NETLOCK_OUT_FORWARD;
    p->next = NETLOCK_OP_UNSEE;
}

/* Algorithm 1, lines 3 to 8: queue it here, or send it on. With priorities the queue has only those that can be granted at once;
 * the others wait in the queue of their priority. */
static inline void netlock_enter(struct netlock_pass *p, struct netlock_ends *e)
{
    bool pushed = p->op == NETLOCK_OP_PUSH;
    if (pushed ? !p->ours || p->stale : !netlock_arrives(p))
        return;
    bool must_wait = p->priorities && !(p->head && (p->empty || (p->mode == NETLOCK_SHARED && !e->writer)));
    bool called = pushed && p->low; /* there is no other place for it here */
    if (called && MISTAKE(p->bust, NETLOCK_BUST_LOW))
        must_wait = false;
    bool q2 = !pushed && (e->over || (p->full && !must_wait));
    if (q2)
        netlock_pass_on(p, e);
    else if (must_wait && p->flags & NETLOCK_TRY)
        p->out |= NETLOCK_OUT_HELD;
    else if (must_wait && !called)
        p->next = NETLOCK_OP_WAIT;
    else if (!must_wait && !p->full) /* a push that finds no room is dropped: its client asks again, and anew */
        netlock_put_in(p, e);
    if (pushed)
        p->flags |= NETLOCK_FROM_SERVER;
}

/* To the server, which has the queue of its priority. If everybody has gone meanwhile nobody else would call it. */
static inline void netlock_pass_low(struct netlock_pass *p, const struct netlock_ends *e)
{
    p->out |= NETLOCK_OUT_FORWARD;
    if (!e->over && p->empty && p->head)
        p->next = NETLOCK_OP_CALL;
}

/* Nobody is in the queue, and nobody waits here: the server is told, if somebody may wait there. */
static inline void netlock_nobody(struct netlock_pass *p, const struct netlock_ends *e)
{
    if (!e->over && !p->lows)
        return;
    if (p->priorities && p->levels < NETLOCK_PRIORITIES)
        p->next = NETLOCK_OP_CALL;
    else
        p->out |= NETLOCK_OUT_NOTIFY;
}

/* Lines 7 to 12: the head goes, if it is the one meant; who is the next head? */
static inline void netlock_leave(struct netlock_pass *p, struct netlock_ends *e)
{
    if (p->queue)
        return;
    if (!p->empty && e->head == p->ticket) {
        e->head = netlock_after(e->head, p->size);
        p->empty = e->head == e->tail;
        p->look = !p->empty || MISTAKE(p->bust, NETLOCK_BUST_NO_END);
        if (p->empty && p->priorities)
            p->next = NETLOCK_OP_PULL;
        else if (p->empty && e->over)
            p->out |= NETLOCK_OUT_NOTIFY;
    } else {
        /* A writer in the middle gave up: readers behind it may join those before it. */
        p->look = p->op == NETLOCK_OP_ENDED && p->mode == NETLOCK_EXCLUSIVE && !p->empty;
    }
    p->ticket = e->head;
    p->head = true;
}

static inline void netlock_move_ends(struct netlock_pass *p, struct netlock_ends *e)
{
    switch (p->op) {
    case NETLOCK_OP_ACQUIRE:
    case NETLOCK_OP_PUSH:
        netlock_enter(p, e);
        break;
    case NETLOCK_OP_WAIT:
        if (p->low)
            netlock_pass_low(p, e);
        else if (!p->ours && !(p->flags & NETLOCK_FROM_SERVER))
            netlock_pass_on(p, e);
        break;
    case NETLOCK_OP_MOVE:
        if (p->ours && !p->full) /* full: its client will learn that it is gone, and ask anew */
            netlock_put_in(p, e);
        break;
    case NETLOCK_OP_CANCEL:
        if (!p->found)
            p->out |= e->over || p->lows ? NETLOCK_OUT_FORWARD : NETLOCK_OUT_RELEASED;
        break;
    case NETLOCK_OP_RELEASE:
        if (MISTAKE(p->bust, NETLOCK_BUST_BLIND_RELEASE))
            p->ticket = e->head;
        p->found = p->queue == 0 && netlock_within(p->ticket, e->head, e->tail, p->size);
        p->head = p->ticket == e->head;
        break;
    case NETLOCK_OP_CONVERT:
    case NETLOCK_OP_STAY:
    case NETLOCK_OP_UPGRADE:
    case NETLOCK_OP_STRENGTHEN:
        p->found = netlock_within(p->ticket, e->head, e->tail, p->size);
        if (p->op == NETLOCK_OP_UPGRADE && p->priorities)
            e->writer = NETLOCK_WRITER;
        break;
    case NETLOCK_OP_WEAKENED:
        if (p->priorities || netlock_after(p->ticket, p->size) == e->tail)
            e->writer = 0;
        p->ticket = e->head;
        p->mode = NETLOCK_EXCLUSIVE; /* as if a writer had gone */
        p->look = p->head = !p->empty;
        break;
    case NETLOCK_OP_SOLE:
        if (!p->empty && !netlock_within(p->ticket, e->head, e->tail, p->size) && p->ticket != e->tail) {
            p->ticket = e->head;
            p->mark = NETLOCK_NO_TICKET;
        }
        p->look = !p->empty && p->ticket != e->tail;
        if (!p->look)
            netlock_end_sole(p);
        break;
    case NETLOCK_OP_LAST:
        if (p->ours)
            e->over = 0;
        else if (p->found && e->over && (!p->priorities || p->wait_room)) /* else when those who wait have gone */
            p->out |= NETLOCK_OUT_NOTIFY;                                 /* not the last: somebody came meanwhile */
        if (!e->over && p->lows && p->empty && p->head)
            p->next = NETLOCK_OP_CALL;
        break;
    case NETLOCK_OP_CALL:
        if (p->empty && p->head && (e->over || p->lows)) {
            e->over = NETLOCK_OVER;
            p->out |= NETLOCK_OUT_NOTIFY;
        }
        break;
    case NETLOCK_OP_ENDED:
    case NETLOCK_OP_POP:
        netlock_leave(p, e);
        break;
    case NETLOCK_OP_PULL:
        if (p->next == NETLOCK_OP_NONE && p->empty)
            netlock_nobody(p, e);
        break;
    case NETLOCK_OP_WALK:
        if (!p->empty && !netlock_within(p->ticket, e->head, e->tail, p->size) && p->ticket != e->tail)
            p->ticket = e->head; /* the head overtook it */
        p->look = !p->empty && p->ticket != e->tail;
        p->head = p->ticket == e->head;
        break;
    default:
        break;
    }
}

static inline uint64_t netlock_stage_ends(struct netlock_pass *p, uint64_t reg)
{
    struct netlock_ends e = {.head = (uint32_t)(reg >> 32) & NETLOCK_TICKET,
                             .tail = (uint32_t)reg & NETLOCK_TICKET,
                             .over = (uint32_t)reg & NETLOCK_OVER,
                             .writer = (uint32_t)(reg >> 32) & NETLOCK_WRITER};
    p->empty = e.head == e.tail;
    p->full = netlock_full(e.head, e.tail);
    p->writer = e.writer != 0;
    netlock_move_ends(p, &e);
    p->over = e.over != 0;
    p->vacant = p->priorities && p->empty && p->head && p->out & NETLOCK_OUT_NOTIFY;
    p->out_room = p->size - netlock_between(e.head, e.tail, p->size);
    if (p->priorities && p->out & NETLOCK_OUT_NOTIFY && p->out_room > p->wait_room)
        p->out_room = p->wait_room; /* all of one priority must fit, too */
    return netlock_pair(e.head | e.writer, e.tail | e.over);
}

static inline uint64_t netlock_stage_peak(struct netlock_pass *p, uint64_t reg)
{
    uint32_t there = p->size - p->out_room;
    return p->enqueue && there > (uint32_t)reg ? there : reg;
}

/* ---- which slot ---- */

static inline uint64_t netlock_stage_tickets(struct netlock_pass *p, uint64_t reg)
{
    if (p->enqueue) {
        if (p->op == NETLOCK_OP_WAIT)
            p->queue = (uint8_t)(1 + p->priority);
        return netlock_pair(p->queue, p->ticket);
    }
    if ((p->op == NETLOCK_OP_ACQUIRE && p->doubled) || (p->op == NETLOCK_OP_CANCEL && p->found)) {
        p->ticket = (uint32_t)reg & NETLOCK_TICKET;
        p->queue = (uint8_t)(reg >> 32);
    } else if (p->op == NETLOCK_OP_PEEK) {
        p->queue = (uint8_t)(1 + p->priority);
    }
    return reg;
}

/* Where the ticket's slot is; between stages. */
static inline void netlock_find_slot(struct netlock_pass *p)
{
    bool wanted = p->enqueue || p->look || (p->op == NETLOCK_OP_ACQUIRE && p->doubled) || (p->op == NETLOCK_OP_PEEK && p->ours) ||
                  ((p->op == NETLOCK_OP_CANCEL || p->op == NETLOCK_OP_RELEASE || p->op == NETLOCK_OP_CONVERT ||
                    p->op == NETLOCK_OP_STAY || p->op == NETLOCK_OP_UPGRADE || p->op == NETLOCK_OP_STRENGTHEN) &&
                   p->found);
    uint32_t at = p->ticket & 0xffffu, size = p->queue ? p->wait_size : p->size;
    if (wanted && at < size && (!p->queue || p->queue <= p->levels))
        p->slot = p->left + (p->queue ? p->size + (p->queue - 1u) * p->wait_size : 0) + at;
    else if (p->op == NETLOCK_OP_CANCEL && p->found)
        p->out |= NETLOCK_OUT_RELEASED;
    else if (p->op == NETLOCK_OP_ACQUIRE && p->doubled)
        p->out |= NETLOCK_OUT_GONE;
}

/* Writers in the queue: lines 3 and 4. */
static inline uint64_t netlock_stage_excl(struct netlock_pass *p, uint64_t reg)
{
    uint32_t writers = (uint32_t)reg;
    p->upgrading = writers & NETLOCK_UPGRADING;
    if (p->enqueue && p->op != NETLOCK_OP_WAIT) {
        p->grant = p->mode == NETLOCK_EXCLUSIVE ? p->empty : !writers;
        if (p->low && p->op == NETLOCK_OP_PUSH && MISTAKE(p->bust, NETLOCK_BUST_LOW))
            p->grant = true;
        writers += p->mode == NETLOCK_EXCLUSIVE;
    } else if (p->op == NETLOCK_OP_ENDED && !p->queue) {
        writers -= p->mode == NETLOCK_EXCLUSIVE;
    }
    return netlock_count_conversion(p, writers);
}

/* ---- the slot ---- */

static inline uint64_t netlock_stage_nonce(struct netlock_pass *p, uint64_t reg)
{
    if (p->enqueue)
        return p->nonce;
    if (p->op == NETLOCK_OP_ACQUIRE || p->op == NETLOCK_OP_CANCEL || p->op == NETLOCK_OP_RELEASE || p->op == NETLOCK_OP_CONVERT ||
        p->op == NETLOCK_OP_STAY || p->op == NETLOCK_OP_UPGRADE)
        p->found = reg == p->nonce || (p->op == NETLOCK_OP_RELEASE && MISTAKE(p->bust, NETLOCK_BUST_BLIND_RELEASE));
    p->out_nonce = reg;
    return reg;
}

/* A nonce is its host's: another's may be the same. Whoever asks again is answered where it asks from now: any process of the host
 * may have asked for it the first time, and be gone. */
static inline uint64_t netlock_stage_place(struct netlock_pass *p, uint64_t reg)
{
    bool asks = p->op == NETLOCK_OP_ACQUIRE || p->op == NETLOCK_OP_CONVERT || p->op == NETLOCK_OP_STAY;
    if (p->enqueue || (asks && p->found && reg >> 16 == p->machine))
        reg = (uint32_t)p->machine << 16 | p->port;
    p->out_place = (struct place){(uint16_t)(reg >> 16), (uint16_t)reg};
    p->found = p->found && (p->out_place.machine == p->machine || MISTAKE(p->bust, NETLOCK_BUST_BLIND_RELEASE));
    if (p->op == NETLOCK_OP_PEEK) {
        p->machine = p->out_place.machine;
        p->port = p->out_place.port;
    }
    return reg;
}

/* Marks the slot as ended, once. Its mode is what the slot says. */
static inline uint32_t netlock_mark(struct netlock_pass *p, uint32_t flags)
{
    p->out |= NETLOCK_OUT_RELEASED;
    if (!p->found || flags & NETLOCK_ENDED)
        return flags;
    if (!MISTAKE(p->bust, NETLOCK_BUST_TRUST_MODE))
        p->mode = (uint8_t)(flags & NETLOCK_SLOT_MODE);
    if (flags & NETLOCK_UPGRADES) { /* it was counted as one that wants to write */
        p->mode = NETLOCK_EXCLUSIVE;
        p->strip = true;
    }
    if (p->queue)
        p->next = NETLOCK_OP_PULL;
    else if (p->op == NETLOCK_OP_CANCEL || p->head || p->mode == NETLOCK_EXCLUSIVE)
        p->next = NETLOCK_OP_ENDED;
    else if (p->upgrading)
        netlock_begin_sole(p);
    return flags | NETLOCK_ENDED;
}

/* Lines 13 to 27: the slot at the pointer is granted, if it is the head or a reader behind readers. */
static inline uint32_t netlock_look(struct netlock_pass *p, uint32_t flags)
{
    uint32_t mode = flags & NETLOCK_SLOT_MODE;
    if (flags & NETLOCK_ENDED) {
        p->next = p->head ? NETLOCK_OP_POP : NETLOCK_OP_WALK;
        if (!p->head)
            p->ticket = netlock_after(p->ticket, p->size);
        return flags;
    }
    if (flags & NETLOCK_GRANTED) {
        /* shared to shared: it was granted when it came. Only who looks for readers behind a writer that gave up goes on. */
        if (mode == NETLOCK_SHARED && p->mode == NETLOCK_EXCLUSIVE &&
            (p->op == NETLOCK_OP_WALK || p->op == NETLOCK_OP_ENDED || p->op == NETLOCK_OP_POP || p->op == NETLOCK_OP_WEAKENED)) {
            p->next = NETLOCK_OP_WALK;
            p->ticket = netlock_after(p->ticket, p->size);
        } else if (p->upgrading && p->op != NETLOCK_OP_WALK) {
            netlock_begin_sole(p);
        }
        return flags;
    }
    if (!p->head && (mode == NETLOCK_EXCLUSIVE || p->upgrading))
        return flags;
    p->grant = true;
    p->out_ticket = p->ticket;
    p->out_mode = (uint8_t)mode;
    if (mode == NETLOCK_SHARED) {
        p->next = NETLOCK_OP_WALK;
        p->ticket = netlock_after(p->ticket, p->size);
    }
    return flags | NETLOCK_GRANTED;
}

/* Who waits first is in the slot: it moves into the queue, if it can be granted there. */
static inline void netlock_peek(struct netlock_pass *p, uint32_t flags)
{
    p->mode = (uint8_t)(flags & NETLOCK_SLOT_MODE);
    p->tenant = (uint16_t)(flags >> 16);
    p->nonce = p->out_nonce;
    if (flags & NETLOCK_ENDED)
        p->next = NETLOCK_OP_DROP;
    else if (!p->full && (p->empty || (p->mode == NETLOCK_SHARED && !p->writer) || MISTAKE(p->bust, NETLOCK_BUST_FIRST_QUEUE)))
        p->next = NETLOCK_OP_MOVE;
}

static inline uint32_t netlock_first_flags(struct netlock_pass *p)
{
    uint32_t flags = p->mode | (uint32_t)p->tenant << 16;
    p->out_ticket = p->ticket;
    p->out_nonce = p->nonce;
    p->out_mode = p->mode;
    /* Whoever has come to wait may be the first; and behind a reader others may follow. */
    if (p->op == NETLOCK_OP_WAIT || (p->op == NETLOCK_OP_MOVE && p->grant && p->mode == NETLOCK_SHARED))
        p->next = NETLOCK_OP_PULL;
    if (p->grant)
        return flags | NETLOCK_GRANTED;
    if (!(p->flags & NETLOCK_TRY) || (p->op != NETLOCK_OP_ACQUIRE && p->op != NETLOCK_OP_PUSH))
        return flags;
    p->out |= NETLOCK_OUT_HELD; /* it only tried: as if it had given up at once */
    p->next = NETLOCK_OP_ENDED;
    return flags | NETLOCK_ENDED;
}

static inline uint64_t netlock_stage_flags(struct netlock_pass *p, uint64_t reg)
{
    uint32_t flags = (uint32_t)reg;
    if (p->enqueue)
        return netlock_first_flags(p);
    if (p->op == NETLOCK_OP_SOLE) {
        netlock_sole(p, flags);
        return flags;
    }
    if (p->look)
        return netlock_look(p, flags);
    switch (p->op) {
    case NETLOCK_OP_ACQUIRE: /* doubled: its first answer again */
        p->grant = p->found && (flags & (NETLOCK_GRANTED | NETLOCK_ENDED)) == NETLOCK_GRANTED;
        if (!p->found || flags & NETLOCK_ENDED)
            p->out |= NETLOCK_OUT_GONE;
        p->out_ticket = p->ticket;
        p->out_mode = (uint8_t)(flags & NETLOCK_SLOT_MODE);
        return flags;
    case NETLOCK_OP_CANCEL:
    case NETLOCK_OP_RELEASE:
        return netlock_mark(p, flags);
    case NETLOCK_OP_PEEK:
        netlock_peek(p, flags);
        return flags;
    case NETLOCK_OP_CONVERT:
        return netlock_change_mode(p, flags);
    case NETLOCK_OP_STAY:
        return netlock_stay(p, flags);
    case NETLOCK_OP_UPGRADE:
        return netlock_upgrade(p, flags);
    case NETLOCK_OP_STRENGTHEN:
        return netlock_strengthen(p, flags);
    default:
        return flags;
    }
}

static inline uint64_t netlock_stage_since(struct netlock_pass *p, uint64_t reg)
{
    return p->enqueue || p->grant ? p->now : reg;
}

/* Tokens rise with every grant, one that is sent again included: nobody else was granted in between. */
static inline uint64_t netlock_stage_token(struct netlock_pass *p, uint64_t reg)
{
    if (MISTAKE(p->bust, NETLOCK_BUST_EAGER_DATA) && !p->grant && p->enqueue && p->flags & NETLOCK_PAYLOAD) {
        p->out |= NETLOCK_OUT_DATA;
        p->out_token = reg;
    }
    if (p->convert) {
        p->out |= NETLOCK_OUT_CONVERTED;
        p->out_token = reg + 1;
        return reg + 1;
    }
    if (!p->grant)
        return reg;
    /* Who is granted by its own packet, now or, if it is doubled, before; the bytes of all others have been dropped. */
    p->out |= p->op == NETLOCK_OP_ACQUIRE && p->flags & NETLOCK_PAYLOAD ? NETLOCK_OUT_DATA : NETLOCK_OUT_GRANT;
    p->out_token = reg + 1;
    return reg + 1;
}

/* ---- a pass ---- */

/* Where a register is: per lock, per request of a host, per tenant, per waiting queue or per slot. */
struct netlock_where {
    uint32_t lock, request, tenant;
};

typedef uint64_t (*netlock_read_fn)(void *ctx, enum netlock_array array, uint32_t index);
typedef void (*netlock_write_fn)(void *ctx, enum netlock_array array, uint32_t index, uint64_t value);

#define NETLOCK_VISIT(array, index, stage)                                                                                         \
    do {                                                                                                                           \
        uint64_t before_ = read(ctx, array, index), after_ = stage(p, before_);                                                    \
        if (after_ != before_)                                                                                                     \
            write(ctx, array, index, after_);                                                                                      \
    } while (0)

/* From op to next: resubmits while next is not NETLOCK_OP_NONE. */
static inline __attribute__((always_inline)) void netlock_run(struct netlock_pass *p, const struct netlock_where *at, void *ctx,
                                                              netlock_read_fn read, netlock_write_fn write)
{
    NETLOCK_VISIT(NETLOCK_BOUNDS, at->lock, netlock_stage_bounds);
    NETLOCK_VISIT(NETLOCK_ROUNDS, at->lock, netlock_stage_rounds);
    NETLOCK_VISIT(NETLOCK_SEEN, at->request, netlock_stage_seen);
    NETLOCK_VISIT(NETLOCK_METER, at->tenant, netlock_stage_meter);
    NETLOCK_VISIT(NETLOCK_ARRIVALS, at->lock, netlock_stage_arrivals);
    if (p->priorities) {
        NETLOCK_VISIT(NETLOCK_QUEUES, at->lock * NETLOCK_PRIORITIES + p->priority % NETLOCK_PRIORITIES, netlock_stage_queues);
        NETLOCK_VISIT(NETLOCK_WAITING, at->lock, netlock_stage_waiting);
    }
    NETLOCK_VISIT(NETLOCK_ENDS, at->lock, netlock_stage_ends);
    NETLOCK_VISIT(NETLOCK_PEAK, at->lock, netlock_stage_peak);
    NETLOCK_VISIT(NETLOCK_TICKETS, at->request, netlock_stage_tickets);
    netlock_find_slot(p);
    NETLOCK_VISIT(NETLOCK_EXCL, at->lock, netlock_stage_excl);
    if (p->slot != NETLOCK_NO_TICKET) {
        NETLOCK_VISIT(NETLOCK_NONCE, p->slot, netlock_stage_nonce);
        NETLOCK_VISIT(NETLOCK_PLACE, p->slot, netlock_stage_place);
        NETLOCK_VISIT(NETLOCK_FLAGS, p->slot, netlock_stage_flags);
        NETLOCK_VISIT(NETLOCK_SINCE, p->slot, netlock_stage_since);
    } else if (p->op == NETLOCK_OP_RELEASE) {
        p->out |= NETLOCK_OUT_RELEASED; /* it ended before */
    } else if (p->op == NETLOCK_OP_DROP && p->ours) {
        p->next = NETLOCK_OP_PULL;
    } else if (p->op == NETLOCK_OP_UPGRADE && !p->upgrading) { /* the slot has gone: it is not counted */
        p->strip = true;
        p->next = NETLOCK_OP_WEAKENED;
    }
    if (p->op == NETLOCK_OP_WEAKENED && p->priorities)
        p->next = NETLOCK_OP_PULL; /* the queue has only those that can be granted at once */
    NETLOCK_VISIT(NETLOCK_TOKEN, at->lock, netlock_stage_token);
}

/* What the next pass starts with: the packet as it is, and what the passes before found out. */
static inline void netlock_resubmit(struct netlock_pass *p)
{
    p->op = p->next;
    p->next = NETLOCK_OP_NONE;
    p->out = 0;
    p->doubled = p->stale = p->found = p->enqueue = p->empty = p->grant = p->look = p->over = p->ours = p->head = p->convert =
        false;
}

#endif
