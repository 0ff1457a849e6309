/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's policies: rack_config.options. */
#ifndef PAWL_DESIGNS_FISSLOCK_OPTIONS_H
#define PAWL_DESIGNS_FISSLOCK_OPTIONS_H

#include <stdint.h>

/* The low half is the decider's (enum fission_options). */
enum fisslock_options {
    FISSLOCK_PRIORITY = 1 << 16, /* waiters by priority, then first come, first served; else only the latter */
    FISSLOCK_KEEP = 1 << 17,     /* agents of free locks may stay: keep.c */
    FISSLOCK_PLACED = 1 << 18,   /* with it: at the host that the lock is placed with, and nowhere else (7.4) */
};

#define FISSLOCK_RESTLESS (UINT64_C(1) << 40) /* locks move whatever their usage, so that many do */

#endif
