/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting on a fiber. An operation of a session on a memory node that waits without a thread of its own runs on a fiber. Where the
 * endpoint would put the thread to sleep, it gives the thread back instead. The thread that resumes a fiber says so before. */
#ifndef PAWL_FABRIC_PARKING_H
#define PAWL_FABRIC_PARKING_H

#include "lib/base.h"

struct fab_parking {
    /* Gives the thread back until something has changed at the endpoint (`seen` is old), or that time has come. -ECANCELED: the
     * operation was cancelled; only if `cancellable`. Without locks: another thread may resume the fiber. */
    int (*park)(struct fab_parking *self, uint64_t until, bool cancellable);
    uint64_t seen; /* changes of the endpoint (fab_node.changes) before the wait */
};

/* Of the calling thread. Null: the code that follows is not on a fiber. */
void fab_parking_set(struct fab_parking *p);
struct fab_parking *fab_parking_get(void);

#endif
