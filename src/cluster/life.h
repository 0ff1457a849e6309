/* SPDX-License-Identifier: Apache-2.0 */
/* Liveness on one machine: a robust futex per slot, held by a thread of the session. When the process ends, however it ends, the
 * kernel marks the futex and wakes those that wait on its word.
 *
 * The list of what a thread holds, which the kernel reads when the thread ends, lies in memory of the thread's own. The C library's
 * robust mutexes keep that list in the mutexes, and follow its pointers: another user of the segment could then have this process
 * write anywhere. */
#ifndef PAWL_CLUSTER_LIFE_H
#define PAWL_CLUSTER_LIFE_H

#include "designs/core/seat.h"

/* Takes the slot's futex for the calling thread, also from the dead. -EBUSY if a live thread has it. The kernel watches over one
 * futex of a thread; each session of the library has a thread of its own. */
int life_take(struct slot *slot);
void life_drop(struct slot *slot);

#endif
