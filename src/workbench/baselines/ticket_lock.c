/* SPDX-License-Identifier: Apache-2.0 */
/* DSLR's tickets without its leases: one word by address, for designs that have many words in a lock (segments.c).
 *
 * Counters end at half their range, and then the word starts anew. A client that draws a ticket out of range leaves the counter as
 * it is and waits. The client that draws the last ticket in range writes the number of tickets in range beside the word (`last`).
 * When that many clients have left, one of the waiting clients sets all counters to zero. The holder of the last ticket must not
 * wait for the others to leave: they may wait for another lock that it holds. Until the counters are zero, each client draws at
 * most one ticket out of range, and the other half of the range has room for these.
 *
 * A ticket that no client owns stops the queue, so there is no recovery, and unknown outcomes are not tolerated. A client that has
 * a ticket cannot leave. */
#include "workbench/baselines/ticket_lock.h"
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/tickets.h"

#define LAST (UINT64_C(1) << 63)

/* After the caller drew a ticket in range: if it was the last one, notes how many there are. */
static int note_last(const struct seat *seat, fab_addr addr, enum pawl_mode mode, uint64_t drawn)
{
    struct tickets t = tickets_unpack(drawn);
    unsigned writers = t.max_x + (mode != PAWL_SHARED), readers = t.max_s + (mode == PAWL_SHARED);
    if (writers < DSLR_COUNT_MAX && readers < DSLR_COUNT_MAX)
        return 0;
    return fab_write64(seat->ep, addr + offsetof(struct ticket_lock, last), LAST | (uint64_t)writers << 16 | readers);
}

/* The counters have ended: when all clients with a ticket in range have left, one of the waiting clients starts the word anew. */
static int start_anew(const struct seat *seat, fab_addr addr, uint64_t w)
{
    uint64_t last, old;
    struct tickets now = tickets_unpack(w);
    int rc = fab_read64(seat->ep, addr + offsetof(struct ticket_lock, last), &last);
    if (rc || last != (LAST | (uint64_t)now.n_x << 16 | now.n_s))
        return rc;
    rc = fab_cas64(seat->ep, addr + offsetof(struct ticket_lock, last), last, 0, &old);
    if (rc || old != last)
        return rc; /* another client does it */
    do {           /* only tickets out of range are drawn meanwhile */
        rc = fab_read64(seat->ep, addr, &w);
        if (!rc)
            rc = fab_cas64(seat->ep, addr, w, 0, &old);
    } while (!rc && old != w);
    return rc;
}

static int try_once(const struct seat *seat, fab_addr addr, enum pawl_mode mode, uint64_t *drawn)
{
    uint64_t w, old;
    int rc = fab_read64(seat->ep, addr, &w);
    if (!rc && !tickets_in_range(tickets_unpack(w), DSLR_COUNT_MAX)) {
        rc = start_anew(seat, addr, w);
        if (!rc)
            rc = fab_read64(seat->ep, addr, &w);
    }
    if (!rc &&
        (!tickets_in_range(tickets_unpack(w), DSLR_COUNT_MAX) || !ticket_is_turn(tickets_unpack(w), tickets_unpack(w), mode)))
        return -PAWL_EHELD;
    if (!rc)
        rc = fab_cas64(seat->ep, addr, w, w + ticket_of(mode), &old);
    if (!rc && old != w)
        return -PAWL_EHELD;
    *drawn = w;
    return rc ? rc : note_last(seat, addr, mode, w);
}

/* Draws a ticket that is in range. Tickets out of range are wiped when the word starts anew. */
static int draw(const struct seat *seat, fab_addr addr, enum pawl_mode mode, uint64_t *drawn)
{
    for (;;) {
        int rc = fab_faa64(seat->ep, addr, ticket_of(mode), drawn);
        if (!rc && tickets_in_range(tickets_unpack(*drawn), DSLR_COUNT_MAX))
            return note_last(seat, addr, mode, *drawn);
        uint64_t w = 0;
        while (!rc) {
            rc = fab_read64(seat->ep, addr, &w);
            if (!rc && tickets_in_range(tickets_unpack(w), DSLR_COUNT_MAX))
                break;
            if (!rc)
                rc = start_anew(seat, addr, w);
            if (!rc)
                rc = ticket_pause(seat, TICKET_WAIT_NS);
        }
        if (rc)
            return rc;
    }
}

int ticket_lock_at(const struct seat *seat, fab_addr addr, enum pawl_mode mode, bool once)
{
    uint64_t drawn = 0, w;
    int rc = once ? try_once(seat, addr, mode, &drawn) : draw(seat, addr, mode, &drawn);
    struct tickets mine = tickets_unpack(drawn), now = mine;
    while (!rc && !ticket_is_turn(mine, now, mode)) {
        rc = ticket_pause(seat, ticket_wait_ns(mine, now, mode, TICKET_WAIT_NS, TICKET_WAIT_MAX_NS));
        if (!rc)
            rc = fab_read64(seat->ep, addr, &w);
        if (!rc)
            now = tickets_unpack(w);
    }
    return rc;
}

void ticket_unlock_op(fab_addr addr, enum pawl_mode mode, struct fab_op *out)
{
    *out =
        (struct fab_op){.verb = FAB_FAA, .width = sizeof(uint64_t), .addr = addr, .swap = mode == PAWL_SHARED ? ADD_N_S : ADD_N_X};
}

int ticket_peek_at(const struct seat *seat, fab_addr addr, struct lock_view *out)
{
    uint64_t w;
    int rc = fab_read64(seat->ep, addr, &w);
    if (rc)
        return rc;
    struct tickets t = tickets_unpack(w);
    bool writers = t.max_x != t.n_x, readers = t.max_s != t.n_s;
    *out = (struct lock_view){.mode = writers   ? PAWL_EXCLUSIVE
                                      : readers ? PAWL_SHARED
                                                : 0,
                              .owner = LOCK_OWNER_UNKNOWN,
                              .readers = writers ? 0 : t.max_s - t.n_s};
    return 0;
}
