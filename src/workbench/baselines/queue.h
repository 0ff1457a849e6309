/* SPDX-License-Identifier: Apache-2.0 */
/* An MCS queue over a fabric, for the baselines that have one: a tail in the lock, a descriptor in each client's own memory. A
 * client cannot leave it: neither deadline nor cancel ends a wait. */
#ifndef PAWL_WORKBENCH_BASELINES_QUEUE_H
#define PAWL_WORKBENCH_BASELINES_QUEUE_H

#include "designs/core/seat.h"

struct queue_desc {
    fab_addr next; /* descriptor of the successor */
    uint64_t go;   /* 0: wait; else the value from the predecessor */
    uint64_t unused[6];
};
static_assert(sizeof(struct queue_desc) == CACHE_LINE, "descriptors do not share lines");

enum queue_join {
    QUEUE_SWAP,
    QUEUE_LOOP, /* a fabric without a swap: compare-and-swap until it succeeds, which first expects an empty queue (ALock 5) */
    QUEUE_ONCE, /* joins only an empty queue, else returns -PAWL_EHELD */
};

/* Swaps the caller's descriptor into the tail. If there is a predecessor, waits until it writes `go`, and *go is that value;
 * otherwise *go stays as it was. */
int queue_join(const struct seat *seat, fab_addr tail, fab_addr desc, enum queue_join how, uint64_t *go);

/* The caller's successor, as far as it is known; 0: none. */
int queue_next(const struct seat *seat, fab_addr desc, uint64_t *next);

/* Takes the caller out of the queue if it has no successor: *next is then 0, else the successor. */
int queue_end(const struct seat *seat, fab_addr tail, fab_addr desc, uint64_t *next);

int queue_go(const struct seat *seat, fab_addr next, uint64_t go);

#endif
