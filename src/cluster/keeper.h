/* SPDX-License-Identifier: Apache-2.0 */
/* The care for sessions, on both sides of a fabric: what a node owes those that lock in its memory, and what a client does to keep
 * its session. Free of I/O and of loops: the simulator's tasks, the clients and the daemons call each step when it is time. */
#ifndef PAWL_CLUSTER_KEEPER_H
#define PAWL_CLUSTER_KEEPER_H

#include "cluster/layout.h"
#include "cluster/session.h"

/* ---- the node's side ---- */

/* When a node whose memory was lost at `now` may format it and grant again, by its own clock: once every lease that may still run
 * has ended by the slowest of clocks. The holders of locks in the lost memory believe in them until then (I1). */
uint64_t care_silent_until(uint64_t now, uint64_t lease_ns);

/* A node's seat in a space of its own memory. It needs no session: it holds nothing. */
struct care {
    struct layout_header header;
    struct space space;
    struct session none;
    struct seat seat;
};

/* Makes the space: computes its header, which the caller then puts at the beginning of zeroed memory. */
int care_format(struct care *c, const struct layout_params *p);

/* Takes the seat, by an endpoint of the node; the space begins at `base`. `seen` has an entry for every slot, and is zeroed here.
 * Formats the locks of a design whose free lock is not all zeroes. */
int care_begin(struct care *c, struct fab_ep *ep, fab_addr base, struct sighting *seen);

/* A client connects, and is given a slot: see session_assign. */
static inline int care_connect(struct care *c, uint64_t proof, uint64_t lease_ns, struct session_place *out)
{
    return session_assign(&c->seat, proof, lease_ns, out);
}

/* Recovers from sessions that are lost, of the node's own clients and of others. To be called every care_pause_ns. */
static inline int care_tend(struct care *c)
{
    return session_tend(&c->seat);
}
static inline uint64_t care_pause_ns(const struct care *c, uint64_t round_ns)
{
    return min_u64(c->space.lease_ns / 2, round_ns);
}

/* ---- the client's side ---- */

struct keeper {
    const struct seat *seat;
    uint64_t pause_ns;   /* between two steps */
    uint64_t rounds;     /* so far */
    unsigned tend_every; /* rounds: how often it looks after the dead */
    uint32_t tend_slots; /* so many at a time; 0: all */
    uint32_t tend_next;  /* the first of them */
};

/* For an open session: renews three times per lease and every round_ns at least. */
void keeper_init(struct keeper *k, const struct seat *seat, uint64_t round_ns);

/* Renews, and now and then looks after the dead. 0; -PAWL_ELOST or -FAB_EFENCED: the session has ended; another error: the next
 * step may go better. */
int keeper_step(struct keeper *k);

#endif
