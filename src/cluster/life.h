/* SPDX-License-Identifier: Apache-2.0 */
/* Liveness on one machine: a robust process-shared mutex per slot, held by a thread of the session. When the process ends, however
 * it ends, the kernel marks the mutex and wakes those that wait on its word. */
#ifndef PAWL_CLUSTER_LIFE_H
#define PAWL_CLUSTER_LIFE_H

#include "designs/core/seat.h"

/* Makes a slot's mutex; once, when the segment is made. */
int life_format(struct slot *slot);

/* Takes it for the calling thread, also from the dead. -EBUSY if a live thread has it. */
int life_take(struct slot *slot);
void life_drop(struct slot *slot);

#endif
