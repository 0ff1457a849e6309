/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between processes of one machine: a ring per receiver in the segment.
 *
 * Any number of senders, one receiver. A sender takes a ticket, fills the ticket's cell and publishes it by moving the cell's
 * state from "empty for this ticket" to "full". A sender that dies in between leaves a hole, which the receiver skips after a
 * while by moving the state on; should the sender only have been slow, its late bytes may end up in a message of the next lap,
 * whose checksum then does not match, and which is dropped. Messages promise nothing (fabric.h), but what arrives is whole. */
#include "fabric/shm.h"

#include <errno.h>
#include <string.h>

#define CELLS 64                /* a power of two; as many messages as can lie unread */
#define HOLE_NS (1 * NS_PER_MS) /* how long a receiver waits for a sender that took a ticket */
#define TRIES_MAX 1000          /* of a sender against other senders, before it gives up as if the ring were full */

struct cell {
    uint64_t state; /* ticket * 2: empty for that ticket; + 1: full */
    uint32_t from_len;
    uint32_t sum;
    uint64_t data[FAB_MSG_MAX / 8];
};
static_assert(sizeof(struct cell) == CACHE_LINE, "one message, one line");

struct ring {
    uint64_t head; /* the next ticket; what the receiver waits on */
    uint64_t pad0[7];
    uint64_t tail; /* the next ticket to receive */
    uint64_t pad1[7];
    struct cell cells[CELLS];
};

#define FROM_BITS 24 /* endpoint ids are session slots: far fewer than that; the length has the other 8 bits */

uint64_t fab_shm_ring_bytes(void)
{
    return sizeof(struct ring);
}

static struct ring *ring_of(struct fab_ep *ep, uint32_t id)
{
    return id < ep->rings ? fab_shm_ptr(ep, ep->ring0 + id * sizeof(struct ring)) : NULL;
}

/* A fresh segment is all zeroes: cell i reads as "empty for ticket 0", which means i on its first lap. */
static uint64_t empty_for(uint64_t ticket)
{
    return ticket < CELLS ? 0 : ticket * 2;
}
static uint64_t full_for(uint64_t ticket)
{
    return ticket * 2 + 1;
}

static uint32_t checksum(uint64_t ticket, uint32_t from_len, const uint64_t *data)
{
    uint64_t sum = ticket * UINT64_C(0x9E3779B97F4A7C15) ^ from_len;
    for (unsigned i = 0; i < FAB_MSG_MAX / 8; i++)
        sum = (sum ^ data[i]) * UINT64_C(0xD6E8FEB86659FD93), sum ^= sum >> 32;
    return (uint32_t)sum;
}

static bool take_ticket(struct ring *r, uint64_t *ticket)
{
    uint64_t head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < TRIES_MAX; i++) {
        if (head - __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) >= CELLS)
            return false;
        if (__atomic_compare_exchange_n(&r->head, &head, head + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            *ticket = head;
            return true;
        }
    }
    return false;
}

ONCE int fab_shm_ring_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len)
{
    struct ring *r = ring_of(ep, to);
    uint64_t ticket;
    if (!r)
        return -ENOTCONN;
    if (!take_ticket(r, &ticket))
        return -EAGAIN;
    struct cell *c = &r->cells[ticket % CELLS];
    uint64_t words[FAB_MSG_MAX / 8] = {0};
    memcpy(words, data, len);
    uint32_t from_len = ep->id | len << FROM_BITS;
    for (unsigned i = 0; i < FAB_MSG_MAX / 8; i++)
        __atomic_store_n(&c->data[i], words[i], __ATOMIC_RELAXED);
    __atomic_store_n(&c->from_len, from_len, __ATOMIC_RELAXED);
    __atomic_store_n(&c->sum, checksum(ticket, from_len, words), __ATOMIC_RELAXED);
    uint64_t expect = empty_for(ticket);
    bool sent = __atomic_compare_exchange_n(&c->state, &expect, full_for(ticket), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    fab_wake(ep, ep->ring0 + to * sizeof *r + offsetof(struct ring, head), UINT32_MAX, 1);
    return sent ? 0 : -EAGAIN; /* skipped as a hole: too slow */
}

/* The cell at the tail, if it is whole. */
static bool take_message(struct ring *r, uint64_t ticket, struct fab_msg *out)
{
    struct cell *c = &r->cells[ticket % CELLS];
    uint64_t words[FAB_MSG_MAX / 8];
    for (unsigned i = 0; i < FAB_MSG_MAX / 8; i++)
        words[i] = __atomic_load_n(&c->data[i], __ATOMIC_RELAXED);
    uint32_t from_len = __atomic_load_n(&c->from_len, __ATOMIC_RELAXED);
    bool whole =
        __atomic_load_n(&c->sum, __ATOMIC_RELAXED) == checksum(ticket, from_len, words) && from_len >> FROM_BITS <= FAB_MSG_MAX;
    if (whole) {
        out->from = from_len & (uint32_t)FIELD_MAX(FROM_BITS);
        out->len = from_len >> FROM_BITS;
        memcpy(out->data, words, sizeof out->data);
    }
    return whole;
}

static void advance(struct ring *r, uint64_t ticket)
{
    __atomic_store_n(&r->cells[ticket % CELLS].state, empty_for(ticket + CELLS), __ATOMIC_RELEASE);
    __atomic_store_n(&r->tail, ticket + 1, __ATOMIC_RELEASE);
}

ONCE int fab_shm_ring_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline)
{
    struct ring *r = ring_of(ep, ep->id);
    if (!r)
        return -ENOTCONN;
    fab_addr head_addr = ep->ring0 + ep->id * sizeof *r + offsetof(struct ring, head);
    for (uint64_t hole_until = 0;;) {
        uint64_t ticket = __atomic_load_n(&r->tail, __ATOMIC_RELAXED); /* only the owner writes it */
        uint64_t head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
        struct cell *c = &r->cells[ticket % CELLS];
        int rc = 0;
        if (head == ticket) {
            rc = deadline == DEADLINE_TRY ? -ETIMEDOUT : fab_wait(ep, head_addr, UINT32_MAX, head & UINT32_MAX, deadline);
        } else if (__atomic_load_n(&c->state, __ATOMIC_ACQUIRE) == full_for(ticket)) {
            bool whole = take_message(r, ticket, out);
            advance(r, ticket);
            hole_until = 0;
            if (whole)
                return 0;
        } else if (!hole_until) {
            hole_until = world_now(ep->world) + HOLE_NS;
        } else if (world_now(ep->world) < hole_until) {
            rc = fab_wait_any(ep, NULL, 0, world_now(ep->world) + HOLE_NS / 10);
            rc = rc == -ETIMEDOUT ? 0 : rc;
        } else {
            uint64_t expect = empty_for(ticket);
            if (__atomic_compare_exchange_n(&c->state, &expect, empty_for(ticket + CELLS), false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE))
                __atomic_store_n(&r->tail, ticket + 1, __ATOMIC_RELEASE);
            hole_until = 0;
        }
        if (rc)
            return rc;
    }
}
