/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The packets that the passes of one packet have made, until they have left: for NetLock's program and its tests. */
#ifndef PAWL_DATAPLANE_XDP_FAN_H
#define PAWL_DATAPLANE_XDP_FAN_H

#include "dataplane/netlock_memory.h"

#define FAN_MAX 32u   /* packets out of one; the control process makes the rest */
#define FAN_WORKS 64u /* of one CPU */
#define FAN_PASSES 256u
#define FAN_TRIES 8192u /* passes, and waits of nanoseconds for another packet of the same request: half a millisecond */

struct fan_work {
    uint32_t number; /* in the packet, while it has not left */
    uint32_t outs;
    uint32_t seen; /* copies that have left */
    uint32_t lock;
    uint64_t index;
    uint32_t passes;
    uint32_t ended; /* enum of netlock.bpf.c */
    struct netlock_pass pass;
    struct netlock_packet out[FAN_MAX];
};

#endif
