/* SPDX-License-Identifier: Apache-2.0 */
/* An MCS queue over a fabric, for the baselines that have one: a tail in the lock, a descriptor in each client's own memory. There
 * is no way out of it: neither deadline nor cancel ends a wait. */
#ifndef PAWL_WORKBENCH_BASELINES_QUEUE_H
#define PAWL_WORKBENCH_BASELINES_QUEUE_H

#include "designs/core/seat.h"

struct queue_desc {
    fab_addr next; /* descriptor of the successor */
    uint64_t go;   /* 0: wait; else what the one before has to say */
    uint64_t unused[6];
};
static_assert(sizeof(struct queue_desc) == CACHE_LINE, "descriptors do not share lines");

/* Swaps the own descriptor into the tail. With somebody before us it waits until that one says go: *go is what it said, or stays as
 * it was. `once`: only if there is nobody, else -PAWL_EHELD. */
int queue_join(const struct seat *seat, fab_addr tail, fab_addr desc, bool once, uint64_t *go);

/* Our successor, as far as we know; 0: none. */
int queue_next(const struct seat *seat, fab_addr desc, uint64_t *next);

/* Takes ourselves out if there is nobody behind us: *next is then 0, else who is. */
int queue_end(const struct seat *seat, fab_addr tail, fab_addr desc, uint64_t *next);

int queue_go(const struct seat *seat, fab_addr next, uint64_t go);

#endif
