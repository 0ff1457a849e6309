/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: taking a slot, keeping the lease, noticing the dead, recovering from them. The same on every fabric. */
#ifndef PAWL_CLUSTER_SESSION_H
#define PAWL_CLUSTER_SESSION_H

#include "designs/core/design.h"

struct session_params {
    uint64_t lease_ns; /* PAWL_LEASE_FOREVER where the kernel reports deaths */
    uint64_t proof;    /* peer in the upper half; see fab_fence */
    const char *label; /* for people */
    fab_addr home;     /* memory of its own for descriptors: record_count of them; 0: none, they lie in the space */
};

/* Takes a slot and fills seat->me, whose arrays the caller has provided (seen: slot_count; shadow and, if the design has ranges,
 * ranges: record_count; but not on shared memory, where the records themselves serve). me->design_state is made if the design has
 * one; the caller frees it. On shared memory the kernel reports the session's death when
 * the calling thread ends, so that thread must outlive the session. -PAWL_ELIMIT if no slot is free. */
int session_open(struct seat *seat, const struct session_params *p);

/* Ends the session: its holds and waits are recovered as if it had died, then the slot is free (I11).
 * Called by the thread that opened it. */
int session_close(const struct seat *seat);

/* Looks after the others: recovers from the dead and frees their slots. Called now and then by every session. */
int session_tend(const struct seat *seat);

/* The same of a few slots, in turn; where sessions are many, each looks after some at a time. */
int session_tend_some(const struct seat *seat, uint32_t *next);

/* Declares another session lost, whether or not its lease runs: an operator's last resort. -ENOENT if the slot is not live. */
int session_break(const struct seat *seat, uint32_t slot, uint32_t epoch);

/* The same without recovery: before a space is removed, when nothing may be granted any more.
 * -EAGAIN: its lease changed meanwhile, try again. */
int session_condemn(const struct seat *seat, uint32_t slot, uint32_t epoch);

#endif
