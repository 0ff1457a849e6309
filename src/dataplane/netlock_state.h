/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program: its register arrays, what travels with a packet, and the steps that several operations share.
 *
 * The rule of the hardware: a pass visits the arrays in the order of enum netlock_array, each at most once, and writes a register
 * back before it visits the next array. `netlock_get` begins a visit, `netlock_set` ends it. The model (rmt.h) counts violations.
 */
#ifndef PAWL_DATAPLANE_NETLOCK_STATE_H
#define PAWL_DATAPLANE_NETLOCK_STATE_H

#include "dataplane/mistake.h"
#include "dataplane/netlock_wire.h"

#include <stdbool.h>

/* The register arrays, in the order in which a packet passes them. Registers have 64 bits or 32. */
enum netlock_array {
    NETLOCK_BOUNDS,   /* left 32, size 16, waiting queues 8, size of each 8 */
    NETLOCK_ROUNDS,   /* round 32, next push 32 */
    NETLOCK_SEEN,     /* per request of a host: its latest nonce, which tells duplicates apart */
    NETLOCK_METER,    /* per tenant: level 32, stamp 32 */
    NETLOCK_ARRIVALS, /* 32: requests so far; the rate of Algorithm 3 */
    NETLOCK_QUEUES,   /* per priority: head 32, tail 32 of the waiting queue */
    NETLOCK_WAITING,  /* number of waiters in each priority's queue, 8 bits each; the first without a queue: LOW */
    NETLOCK_ENDS,     /* head 32, tail 32 */
    NETLOCK_PEAK,     /* 32: most requests at once; the contention of Algorithm 3 */
    NETLOCK_TICKETS,  /* per request of a host: the ticket it got, and its queue */
    NETLOCK_EXCL,     /* 32: writers in the queue that have not ended; UPGRADING */
    NETLOCK_NONCE,    /* per queue slot: 64 */
    NETLOCK_PLACE,    /* per queue slot: 32: machine and port */
    NETLOCK_FLAGS,    /* per queue slot: 32: flags, tenant */
    NETLOCK_SINCE,    /* per queue slot: 32: when it was granted */
    NETLOCK_TOKEN,    /* 64: of the latest grant */
    NETLOCK_ARRAYS
};
#define NETLOCK_SLOT_BYTES 20u /* 8 + 4 + 4 + 4; the paper's queue slot has 20 bytes, too (section 5) */

#define NETLOCK_PRIORITIES 8u

/* Tickets. */
#define NETLOCK_SIZE_MAX 0x7fffu /* queue slots of one lock */
#define NETLOCK_LAP 0x10000u
#define NETLOCK_TICKET 0x7fffffffu
#define NETLOCK_OVER 0x80000000u   /* in the tail: newcomers go to q2 */
#define NETLOCK_WRITER 0x80000000u /* in the head: the latest to enter the queue wants to write */
#define NETLOCK_NO_TICKET 0xffffffffu

/* Flags of a queue slot. */
#define NETLOCK_SLOT_MODE 3u /* NETLOCK_SHARED, NETLOCK_EXCLUSIVE */
#define NETLOCK_GRANTED 4u
#define NETLOCK_ENDED 8u
#define NETLOCK_UPGRADES 16u /* granted shared, and wants to write, or does */
#define NETLOCK_STEP_SHIFT 6
#define NETLOCK_UPGRADING 0x80000000u /* in EXCL: one of the readers wants to write, or does */

/* The operations (table in netlock.h). */
enum netlock_op {
    NETLOCK_OP_NONE,
    NETLOCK_OP_ACQUIRE,
    NETLOCK_OP_CANCEL,
    NETLOCK_OP_RELEASE,
    NETLOCK_OP_PUSH,
    NETLOCK_OP_LAST,
    /* only as resubmissions */
    NETLOCK_OP_UNSEE,
    NETLOCK_OP_ENDED,
    NETLOCK_OP_POP,
    NETLOCK_OP_WALK,
    NETLOCK_OP_WAIT,
    NETLOCK_OP_PULL,
    NETLOCK_OP_PEEK,
    NETLOCK_OP_MOVE,
    NETLOCK_OP_DROP,
    NETLOCK_OP_CALL,
    /* holds that change their mode (netlock_convert.h) */
    NETLOCK_OP_CONVERT,
    NETLOCK_OP_STAY,
    NETLOCK_OP_WEAKENED,
    NETLOCK_OP_UPGRADE,
    NETLOCK_OP_SOLE,
    NETLOCK_OP_STRENGTHEN,
};

/* Packets that leave the switch after a pass (netlock_packets.h makes the packets). */
#define NETLOCK_OUT_GRANT 1u    /* to out_place */
#define NETLOCK_OUT_RELEASED 2u /* to the sender of the packet, as all without another receiver */
#define NETLOCK_OUT_GONE 4u
#define NETLOCK_OUT_HELD 8u
#define NETLOCK_OUT_QUOTA 16u
#define NETLOCK_OUT_FORWARD 32u /* to the lock's server, as OVERFLOW */
#define NETLOCK_OUT_NOTIFY 64u  /* to the lock's server */
#define NETLOCK_OUT_PUSHED 128u /* to the lock's server */
#define NETLOCK_OUT_MOVING 256u
#define NETLOCK_OUT_DATA 512u       /* to the data server that the packet names, with its bytes, instead of GRANT (4.1) */
#define NETLOCK_OUT_CONVERTED 1024u /* to out_place */
#define NETLOCK_OUT_DEADLOCK 2048u  /* not converted */

#define NETLOCK_OUT_TO_SERVER (NETLOCK_OUT_FORWARD | NETLOCK_OUT_NOTIFY | NETLOCK_OUT_PUSHED)

#define NETLOCK_FROM_SERVER 128u /* flag of a pass, beside those of packets: the server pushed it */

/* Metadata of a packet. */
struct netlock_pass {
    /* from the packet */
    uint8_t op, mode, priority, flags;
    uint16_t machine, port, tenant;
    uint16_t mistakes;
    uint64_t nonce;
    uint32_t ticket, round, count, pushed;
    uint16_t step;        /* of conversions of this hold */
    uint32_t now;         /* about microseconds */
    uint32_t rate, burst; /* the tenant's quota (control plane): requests per 2^20 microseconds; 0: none */
    /* from one pass to the next */
    uint32_t mark; /* SOLE: ticket of the reader that wants to write */
    uint8_t queue; /* of the ticket: 0, or 1 + priority of a waiting queue */
    bool strip;    /* the reader that wanted to write does not any more */
    /* the lock's part of the shared queue */
    uint32_t left, size, wait_size, levels;
    /* out */
    uint8_t next; /* op of the resubmission; NETLOCK_OP_NONE: done */
    uint16_t out; /* NETLOCK_OUT_ */
    uint8_t out_mode;
    bool over;   /* newcomers go to q2 */
    bool low;    /* the packet's priority has no queue here */
    bool lows;   /* a waiter at the server has such a priority */
    bool vacant; /* NOTIFY: the queue is empty, and no request waits here */
    struct place out_place;
    uint64_t out_nonce, out_token;
    uint32_t out_ticket, out_room, out_wait;
};

/* ---- registers ---- */

typedef uint64_t (*netlock_read_fn)(void *ctx, enum netlock_array array, uint32_t index);
typedef void (*netlock_write_fn)(void *ctx, enum netlock_array array, uint32_t index, uint64_t value);

/* The registers that a packet reaches: of its lock, of its host's request, of its tenant. */
struct netlock_registers {
    void *ctx;
    netlock_read_fn read;
    netlock_write_fn write;
    uint32_t lock, request, tenant;
};

static inline uint64_t netlock_get(const struct netlock_registers *r, enum netlock_array array, uint32_t index)
{
    return r->read(r->ctx, array, index);
}

static inline void netlock_set(const struct netlock_registers *r, enum netlock_array array, uint32_t index, uint64_t before,
                               uint64_t after)
{
    if (after != before)
        r->write(r->ctx, array, index, after);
}

/* Whether the registers of an array have 64 bits. */
static inline bool netlock_is_wide(enum netlock_array a)
{
    return a != NETLOCK_ARRIVALS && a != NETLOCK_PEAK && a != NETLOCK_EXCL && a != NETLOCK_FLAGS && a != NETLOCK_PLACE &&
           a != NETLOCK_SINCE;
}

static inline uint64_t netlock_pair(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

/* Serial numbers rise, and may wrap. */
static inline bool netlock_newer(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) > 0;
}

/* ---- tickets: (lap, position) ---- */

static inline uint32_t netlock_after(uint32_t ticket, uint32_t size)
{
    return (ticket & 0xffffu) + 1 >= size ? ((ticket & 0x7fff0000u) + NETLOCK_LAP) & NETLOCK_TICKET : ticket + 1;
}

static inline bool netlock_full(uint32_t head, uint32_t tail)
{
    return ((tail - head) & NETLOCK_TICKET) == NETLOCK_LAP;
}

/* The distance from one ticket to another that is no more than a lap ahead. */
static inline uint32_t netlock_between(uint32_t from, uint32_t to, uint32_t size)
{
    uint32_t laps = ((to >> 16) - (from >> 16)) & 0x7fffu;
    return (to & 0xffffu) + (laps ? size : 0) - (from & 0xffffu);
}

/* Whether a ticket lies in the queue. */
static inline bool netlock_within(uint32_t ticket, uint32_t head, uint32_t tail, uint32_t size)
{
    uint32_t at = ticket & 0xffffu, first = head & 0xffffu, laps = ((ticket >> 16) - (head >> 16)) & 0x7fffu;
    if (at >= size || laps > 1 || (laps ? at >= first : at < first))
        return false;
    return netlock_between(head, ticket, size) < netlock_between(head, tail, size);
}

/* The queue slot of the pass's ticket; NETLOCK_NO_TICKET: there is none. */
static inline uint32_t netlock_queue_slot(const struct netlock_pass *p)
{
    uint32_t at = p->ticket & 0xffffu, size = p->queue ? p->wait_size : p->size;
    if (at >= size || p->queue > p->levels)
        return NETLOCK_NO_TICKET;
    return p->left + (p->queue ? p->size + (p->queue - 1u) * p->wait_size : 0) + at;
}

/* ---- BOUNDS, ROUNDS, ARRIVALS ---- */

static inline void netlock_begin(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t bounds = netlock_get(r, NETLOCK_BOUNDS, r->lock);
    p->left = (uint32_t)(bounds >> 32);
    p->size = (uint32_t)(bounds >> 16) & 0xffffu;
    p->levels = (uint32_t)(bounds >> 8) & 0xffu;
    p->wait_size = (uint32_t)bounds & 0xffu;
    p->low = p->wait_size && p->priority >= p->levels;
    p->vacant = false;
}

/* Whether the lock has waiting queues for priorities (4.4). */
static inline bool netlock_ranked(const struct netlock_pass *p)
{
    return p->wait_size != 0;
}

/* Facts about the round for the server, of operations that may send it a packet. */
static inline void netlock_note_round(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t reg = netlock_get(r, NETLOCK_ROUNDS, r->lock);
    p->round = (uint32_t)(reg >> 32);
    p->pushed = (uint32_t)reg;
}

/* And how many requests have come: so many more by this pass. */
static inline void netlock_note_arrivals(struct netlock_pass *p, const struct netlock_registers *r, uint32_t more)
{
    uint64_t reg = netlock_get(r, NETLOCK_ARRIVALS, r->lock);
    p->count = (uint32_t)reg + more;
    netlock_set(r, NETLOCK_ARRIVALS, r->lock, reg, p->count);
}

/* ---- SEEN ---- */

/* Whether the request of that nonce has ended before it came: it was cancelled, or its host has asked anew. 0: nothing came yet. */
static inline bool netlock_is_past(uint64_t seen, uint64_t nonce)
{
    return seen == nonce + NETLOCK_CANCELLED || (seen && netlock_newer(seen, nonce));
}

/* UNSEE, too. The request is in q2 now: its nonce is forgotten, so that the push of it is not taken for a duplicate. */
static inline void netlock_forget_nonce(const struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t seen = netlock_get(r, NETLOCK_SEEN, r->request);
    netlock_set(r, NETLOCK_SEEN, r->request, seen, seen == p->nonce ? p->nonce - NETLOCK_CANCELLED : seen);
}

/* ---- WAITING ---- */

/* The highest priority that has a waiter; NETLOCK_PRIORITIES: none. */
static inline uint8_t netlock_first_waiting(uint64_t waiting)
{
    uint8_t first = 0;
    while (first < NETLOCK_PRIORITIES && !(waiting >> (8 * first) & 0xff))
        first++;
    return first;
}

/* In the count of the first priority that has no queue: a request of such a priority waits at the server. */
static inline uint64_t netlock_low_flag(uint32_t levels)
{
    return levels && levels < NETLOCK_PRIORITIES ? UINT64_C(1) << (8 * levels) : 0;
}

/* The waiters in the switch, of a lock with those bounds. */
static inline uint64_t netlock_waiting_here(uint64_t bounds, uint64_t waiting)
{
    return waiting & ~netlock_low_flag((uint32_t)(bounds >> 8) & 0xffu);
}

/* The register of waiters, which stays as it is. */
static inline uint64_t netlock_waiters(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t waiting = netlock_ranked(p) ? netlock_get(r, NETLOCK_WAITING, r->lock) : 0;
    p->lows = (waiting & netlock_low_flag(p->levels)) != 0;
    return waiting;
}

/* The same without those at the server. */
static inline uint64_t netlock_waiters_here(struct netlock_pass *p, const struct netlock_registers *r)
{
    return netlock_waiters(p, r) & ~netlock_low_flag(p->levels);
}

/* ---- ENDS: head and tail of the queue ---- */

static inline bool netlock_is_empty(uint64_t ends)
{
    return !((ends >> 32 ^ ends) & NETLOCK_TICKET);
}

struct netlock_ends {
    uint64_t before;
    uint32_t head, tail, over, writer;
    bool empty, full;
};

static inline struct netlock_ends netlock_get_ends(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t reg = netlock_get(r, NETLOCK_ENDS, r->lock);
    uint32_t first = (uint32_t)(reg >> 32), second = (uint32_t)reg;
    struct netlock_ends e = {.before = reg,
                             .head = first & NETLOCK_TICKET,
                             .tail = second & NETLOCK_TICKET,
                             .over = second & NETLOCK_OVER,
                             .writer = first & NETLOCK_WRITER};
    e.empty = e.head == e.tail;
    e.full = netlock_full(e.head, e.tail);
    p->over = e.over != 0;
    return e;
}

/* The same of an operation that does not change the waiters. */
static inline struct netlock_ends netlock_look_at_ends(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_waiters(p, r);
    return netlock_get_ends(p, r);
}

static inline void netlock_set_ends(struct netlock_pass *p, const struct netlock_registers *r, const struct netlock_ends *e)
{
    p->over = e->over != 0;
    p->out_room = p->size - netlock_between(e->head, e->tail, p->size);
    netlock_set(r, NETLOCK_ENDS, r->lock, e->before, netlock_pair(e->head | e->writer, e->tail | e->over));
}

static inline bool netlock_in_queue(const struct netlock_pass *p, const struct netlock_ends *e)
{
    return netlock_within(p->ticket, e->head, e->tail, p->size);
}

/* ---- PEAK, TICKETS ---- */

/* The request has a ticket: most requests at once, and where a duplicate of it will find the ticket. */
static inline void netlock_note_ticket(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t peak = netlock_get(r, NETLOCK_PEAK, r->lock);
    uint32_t there = p->size - p->out_room;
    netlock_set(r, NETLOCK_PEAK, r->lock, peak, there > (uint32_t)peak ? there : peak);
    netlock_set(r, NETLOCK_TICKETS, r->request, netlock_get(r, NETLOCK_TICKETS, r->request), netlock_pair(p->queue, p->ticket));
}

/* The ticket that the request got before. */
static inline void netlock_find_ticket(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t ticket = netlock_get(r, NETLOCK_TICKETS, r->request);
    p->ticket = (uint32_t)ticket & NETLOCK_TICKET;
    p->queue = (uint8_t)(ticket >> 32);
}

/* ---- EXCL ---- */

/* Whether a reader wants to write, or does. */
static inline bool netlock_upgrading(const struct netlock_registers *r)
{
    return netlock_get(r, NETLOCK_EXCL, r->lock) & NETLOCK_UPGRADING;
}

/* So many writers less; the same of what is left. */
static inline bool netlock_uncount_writer(struct netlock_pass *p, const struct netlock_registers *r, uint32_t less)
{
    uint64_t reg = netlock_get(r, NETLOCK_EXCL, r->lock);
    uint32_t writers = ((uint32_t)reg - less) & (p->strip ? ~NETLOCK_UPGRADING : UINT32_MAX);
    bool upgrading = reg & NETLOCK_UPGRADING && !p->strip;
    p->strip = false;
    netlock_set(r, NETLOCK_EXCL, r->lock, reg, writers);
    return upgrading;
}

/* Looks, from the head of the queue on, whether the reader that wants to write is the only one (netlock_convert.h). */
static inline void netlock_begin_sole(struct netlock_pass *p)
{
    p->next = NETLOCK_OP_SOLE;
    p->mark = p->ticket = NETLOCK_NO_TICKET;
}

/* ---- the queue slot: NONCE, PLACE, FLAGS, SINCE ---- */

/* A new request takes its slot. */
static inline void netlock_fill_slot(struct netlock_pass *p, const struct netlock_registers *r, uint32_t flags)
{
    uint32_t slot = netlock_queue_slot(p), place = (uint32_t)p->machine << 16 | p->port;
    if (slot == NETLOCK_NO_TICKET)
        return;
    netlock_set(r, NETLOCK_NONCE, slot, netlock_get(r, NETLOCK_NONCE, slot), p->nonce);
    netlock_set(r, NETLOCK_PLACE, slot, netlock_get(r, NETLOCK_PLACE, slot), place);
    netlock_set(r, NETLOCK_FLAGS, slot, netlock_get(r, NETLOCK_FLAGS, slot), flags | p->mode | (uint32_t)p->tenant << 16);
    netlock_set(r, NETLOCK_SINCE, slot, netlock_get(r, NETLOCK_SINCE, slot), p->now);
    p->out_place = (struct place){p->machine, p->port};
    p->out_nonce = p->nonce;
    p->out_ticket = p->ticket;
    p->out_mode = p->mode;
}

/* Whether the queue slot belongs to the packet's request. A nonce is its host's, and another host's may be the same. With `here`,
 * the request is answered at the place of this packet from now on: any process of the host may have sent the first, and be gone. */
static inline bool netlock_is_own(struct netlock_pass *p, const struct netlock_registers *r, uint32_t slot, bool here)
{
    uint64_t nonce = netlock_get(r, NETLOCK_NONCE, slot);
    uint64_t place = netlock_get(r, NETLOCK_PLACE, slot);
    bool same = nonce == p->nonce, mine = place >> 16 == p->machine;
    if (here && same && mine) {
        netlock_set(r, NETLOCK_PLACE, slot, place, (uint32_t)p->machine << 16 | p->port);
        place = (uint32_t)p->machine << 16 | p->port;
    }
    p->out_nonce = nonce;
    p->out_place = (struct place){(uint16_t)(place >> 16), (uint16_t)place};
    if (MISTAKE(p->mistakes, NETLOCK_MISTAKE_BLIND_RELEASE))
        return same || p->op == NETLOCK_OP_RELEASE;
    return same && mine;
}

/* ---- TOKEN ---- */

/* Tokens rise with every grant, also with one that is sent again: no other request was granted in between. */
static inline void netlock_next_token(struct netlock_pass *p, const struct netlock_registers *r)
{
    uint64_t token = netlock_get(r, NETLOCK_TOKEN, r->lock);
    p->out_token = token + 1;
    netlock_set(r, NETLOCK_TOKEN, r->lock, token, token + 1);
}

/* grant_lock() of Algorithm 2. A request that is granted by its own packet, now or before, has its bytes sent on (4.1); the bytes
 * of all others have been dropped. */
static inline void netlock_grant(struct netlock_pass *p, const struct netlock_registers *r)
{
    p->out |= p->op == NETLOCK_OP_ACQUIRE && p->flags & NETLOCK_PAYLOAD ? NETLOCK_OUT_DATA : NETLOCK_OUT_GRANT;
    netlock_next_token(p, r);
}

static inline void netlock_eager_data(struct netlock_pass *p, const struct netlock_registers *r)
{
    if (!MISTAKE(p->mistakes, NETLOCK_MISTAKE_EAGER_DATA) || !(p->flags & NETLOCK_PAYLOAD))
        return;
    p->out |= NETLOCK_OUT_DATA;
    p->out_token = netlock_get(r, NETLOCK_TOKEN, r->lock);
}

#endif
