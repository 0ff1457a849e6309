/* SPDX-License-Identifier: Apache-2.0 */
/* DSLR's word (Yoon et al., SIGMOD'18): Lamport's bakery in one word, four counters of 16 bits moved by fetch-and-add. maxX and
 * maxS are the next tickets of writers and readers, nX and nS count those that have left. Used by dslr.c, which can start a word
 * anew when a client was lost, and by ticket_lock.c, which cannot. */
#ifndef PAWL_WORKBENCH_BASELINES_TICKETS_H
#define PAWL_WORKBENCH_BASELINES_TICKETS_H

#include "workbench/baselines/baselines.h"

#include <errno.h>

#define TICKET_WAIT_NS (2 * NS_PER_US)      /* per client ahead in the queue: about a round trip */
#define TICKET_WAIT_MAX_NS (64 * NS_PER_US) /* so that one long hold does not put all waiters to sleep for long */

struct tickets {
    unsigned max_x, max_s, n_x, n_s;
};

#define ADD_MAX_X (UINT64_C(1) << 48)
#define ADD_MAX_S (UINT64_C(1) << 32)
#define ADD_N_X (UINT64_C(1) << 16)
#define ADD_N_S UINT64_C(1)

static inline struct tickets tickets_unpack(uint64_t w)
{
    return (struct tickets){
        .max_x = (uint16_t)(w >> 48), .max_s = (uint16_t)(w >> 32), .n_x = (uint16_t)(w >> 16), .n_s = (uint16_t)w};
}

static inline uint64_t ticket_of(enum pawl_mode mode)
{
    return mode == PAWL_SHARED ? ADD_MAX_S : ADD_MAX_X;
}

/* Counters that have come to `end` start anew. */
static inline bool tickets_in_range(struct tickets t, unsigned end)
{
    return t.max_x < end && t.max_s < end;
}

/* Neither deadline nor cancel ends the wait: there is no way out of the queue. */
static inline int ticket_pause(const struct seat *seat, uint64_t ns)
{
    int rc = fab_wait_any(seat->ep, NULL, 0, add_saturating(world_now(seat->world), ns));
    return rc == -ETIMEDOUT || rc == -ECANCELED ? 0 : rc;
}

/* Whether the client that drew its ticket from the word `mine` has the lock. */
static inline bool ticket_is_turn(struct tickets mine, struct tickets now, enum pawl_mode mode)
{
    return now.n_x == mine.max_x && (mode == PAWL_SHARED || now.n_s == mine.max_s);
}

/* How long to wait until the next read: `each_ns` for every client ahead. */
static inline uint64_t ticket_wait_ns(struct tickets mine, struct tickets now, enum pawl_mode mode, uint64_t each_ns,
                                      uint64_t most_ns)
{
    unsigned writers = mine.max_x - now.n_x, readers = mine.max_s - now.n_s;
    unsigned before = mode == PAWL_SHARED ? writers : writers + readers;
    return min_u64((before ? before : 1) * each_ns, most_ns);
}

#endif
