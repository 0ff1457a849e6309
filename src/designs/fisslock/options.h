/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's policies. In rack_config.options they are bits, which travel in packets; a host keeps them as a struct. */
#ifndef PAWL_DESIGNS_FISSLOCK_OPTIONS_H
#define PAWL_DESIGNS_FISSLOCK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* The low half is the decider's (enum fission_options). */
enum fisslock_options {
    FISSLOCK_PRIORITY = 1 << 16, /* waiters by priority, then first come, first served */
    FISSLOCK_KEEP = 1 << 17,     /* agents of free locks may stay: keep.c */
    FISSLOCK_PLACED = 1 << 18,   /* with KEEP: only at the host that the lock is placed with (7.4) */
};

#define FISSLOCK_RESTLESS (UINT64_C(1) << 40) /* locks move between switch and servers whatever their usage: for tests */

struct fisslock_policy {
    bool write_preferring, priority, keep, placed;
};

#endif
