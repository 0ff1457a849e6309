/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: taking a slot, keeping the lease, noticing the dead, recovering from them. The same on every fabric. */
#ifndef PAWL_CLUSTER_SESSION_H
#define PAWL_CLUSTER_SESSION_H

#include "designs/core/design.h"

/* A slot that was assigned to a client, and its lease word: TAKEN until the session moves in. In another life of the node's memory
 * the slot is another session's, and no fence of the former life protects it: an assignment that comes late must not be used. */
struct session_place {
    uint32_t slot;
    uint64_t lease;
    uint64_t life; /* of the memory: its space's token_base */
};

struct session_params {
    uint64_t lease_ns;                 /* PAWL_LEASE_FOREVER where the kernel reports deaths */
    uint64_t proof;                    /* peer in the upper half; see fab_fence */
    const char *label;                 /* for people */
    const struct session_place *place; /* that the node has assigned; null: the session claims a slot itself, by 128-bit atomics */
    fab_addr home;                     /* memory of its own for descriptors: record_count of them; 0: none, they lie in the space */
};

/* Takes a slot and fills seat->me, whose arrays the caller has provided (seen: slot_count; shadow and, if the design has ranges,
 * ranges: record_count; but not on shared memory, where the records themselves serve). me->design_state is made if the design has
 * one; the caller frees it. On shared memory the kernel reports the session's death when
 * the calling thread ends, so that thread must outlive the session. -PAWL_ELIMIT if no slot is free; -ESTALE if the place is of
 * another life of the memory: nothing was changed, and the client asks for a place again. */
int session_open(struct seat *seat, const struct session_params *p);

/* Assigns a slot to the client of that proof, by the node in whose memory the space is: without 128-bit atomics only the node does.
 * A client has one: asked again, by a packet that was doubled or repeated, it is the same slot, whatever its state. The lease
 * begins now: a client that does not move in loses the slot. -PAWL_ELIMIT: no slot is free; -PAWL_ELOST: the client's session was
 * lost, and it is or will be fenced: it connects anew, with another proof. */
int session_assign(struct seat *node, uint64_t proof, uint64_t lease_ns, struct session_place *out);

/* Ends the session: its holds and waits are recovered as if it had died, then the slot is free (I11).
 * Called by the thread that opened it. */
int session_close(const struct seat *seat);

/* Looks after the others: recovers from the dead and frees their slots. Called now and then by every session. */
int session_tend(const struct seat *seat);

/* Slots: one round trip, and together many sessions see all of them often. */
#define SESSION_TEND_AT_ONCE 32

/* The same of a few slots, in turn; where sessions are many, each looks after some at a time. */
int session_tend_some(const struct seat *seat, uint32_t *next);

/* Declares another session lost, whether or not its lease runs: an operator's last resort. -ENOENT if the slot is not live. */
int session_break(const struct seat *seat, uint32_t slot, uint32_t epoch);

/* The same without recovery: before a space is removed, when nothing may be granted any more.
 * -EAGAIN: its lease changed meanwhile, try again. */
int session_condemn(const struct seat *seat, uint32_t slot, uint32_t epoch);

#endif
