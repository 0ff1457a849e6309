/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks in one round trip.
 *
 * All are asked for at once, without waiting. If all are granted, that is all. Else the first in the order of the locks that is
 * missing is waited for, with only those before it in hand, so the callers of the same order do not deadlock with each other: those
 * behind it are given back first. Then the rest is asked for at once again. Each round ends with at least one lock more, so a call
 * waits in at most as many queues as it would if it took the locks one by one.
 *
 * Free of I/O: the caller asks, waits and gives back. */
#ifndef PAWL_DESIGNS_PACKET_GATHER_H
#define PAWL_DESIGNS_PACKET_GATHER_H

#include <stdbool.h>

#define GATHER_MAX 64u /* locks */

struct gather_ops {
    /* Begins to ask for lock i of the order; `wait`: it may be queued. 0: its answer is to be waited for; else negative, as the
     * answer is. */
    int (*ask)(void *caller, unsigned i, bool wait);
    /* Sends what has been asked for and given back. */
    void (*send)(void *caller);
    /* Waits for the answer: 0: it is held; -PAWL_EHELD, -EAGAIN or -EBUSY: not without waiting; else the call fails. */
    int (*answer)(void *caller, unsigned i, bool wait);
    void (*give_back)(void *caller, unsigned i);
};

/* 0: all are held. Else none is. `wait`: the call may wait; else -PAWL_EHELD, if a lock is held by another. */
int gather(const struct gather_ops *ops, void *caller, unsigned count, bool wait);

#endif
