/* SPDX-License-Identifier: Apache-2.0 */
/* DSLR's word by address, for designs that have many of them in a lock (segments.c). */
#ifndef PAWL_WORKBENCH_BASELINES_TICKET_LOCK_H
#define PAWL_WORKBENCH_BASELINES_TICKET_LOCK_H

#include "designs/core/design.h"

struct ticket_lock {
    uint64_t word; /* maxX 16, maxS 16, nX 16, nS 16 */
    uint64_t last; /* 0, or once the last ticket in range is drawn: LAST and how many writers 16 and readers 16 have one */
};

/* Waits for its turn; or once: -PAWL_EHELD. */
int ticket_lock_at(const struct seat *seat, fab_addr addr, enum pawl_mode mode, bool once);

/* The verb that gives it back. */
void ticket_unlock_op(fab_addr addr, enum pawl_mode mode, struct fab_op *out);

int ticket_peek_at(const struct seat *seat, fab_addr addr, struct lock_view *out);

#endif
