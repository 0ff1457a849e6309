/* SPDX-License-Identifier: Apache-2.0 */
/* The conditions that hold for the queues of NetLock's switch after any packets. */
#ifndef PAWL_TESTS_FUZZ_QUEUES_H
#define PAWL_TESTS_FUZZ_QUEUES_H

#include "designs/netlock/switch.h"
#include "tests/check.h"

/* No head beyond its tail, no more writers than slots. */
static inline void check_queues(struct nl_switch *w, const struct rack_config *config)
{
    const struct plane *p = switch_plane(w);
    if (!w->term)
        return; /* it never was active */
    for (uint64_t index = 0; index < config->locks; index++) {
        uint32_t lock = plane_match(p, index);
        if (lock == PLANE_NO_LOCK)
            continue;
        const struct plane_region r = plane_region(p, lock);
        uint64_t ends = plane_get(p, NETLOCK_ENDS, lock);
        uint32_t there = netlock_between((uint32_t)(ends >> 32) & NETLOCK_TICKET, (uint32_t)ends & NETLOCK_TICKET, r.size);
        CHECK(there <= r.size);
        CHECK((plane_get(p, NETLOCK_EXCL, lock) & ~NETLOCK_UPGRADING) <= there);
    }
}

#endif
