/* SPDX-License-Identifier: Apache-2.0 */
/* Citron (FAST'23): ranges locked on a segment tree by one-sided verbs. docs/designs/citron.md has the argument, the walk of an
 * acquire, and the departures from the paper.
 *
 *     tree.h     node arithmetic (3.3)
 *     words.h    the words of nodes, leaves, claims and configurations (3.4)
 *     job.h      one operation under way: its parts, and which file writes which; batches
 *     steps.h    what the files below offer each other
 *
 *     an acquire walks through these six:
 *     acquire.c  Algorithms 1 and 2, in the paper's order
 *     plan.c     step 1: the configuration, splitting a range (3.5.1), the claims of a plan
 *     look.c     phases (a) and (b): turns, looking up (3.5.2, 3.5.3)
 *     claim.c    phases (c) and (d): claiming, notifying, looking down (3.5.4, 3.5.5)
 *     token.c    fencing tokens (not in the paper)
 *     batch.c    batches of verbs, near and far; no counter overflows
 *
 *     a client that meets others needs these, too:
 *     wait.c     waiting: for a word, an ancestor, a leaf, room
 *     leaf.c     waiting in a leaf, readers' places, the second fast path of 3.8
 *     release.c  Algorithm 3, and the ways back out of an acquisition
 *     yield.c    waiters give way to a holder that waits for more
 *     recover.c  the census: counts are set to what live sessions claim (3.10)
 *     cleanup.c  everything that a dead session had
 *
 *     change.c   grow, shrink, upgrade and downgrade (not in the paper)
 *     split.c    cutting a hold in two, and nodes that two holds have together
 *     scale.c    the lock's configuration: m, T_wait, and trees that grow (3.5.5, 3.9)
 *     design.c   the design's tables */
#ifndef PAWL_DESIGNS_CITRON_CITRON_H
#define PAWL_DESIGNS_CITRON_CITRON_H

#include "designs/citron/words.h"

/* ---- knobs (design.c has their limits) ---- */

enum citron_knob {
    CITRON_K,
    CITRON_M,
    CITRON_WAIT_NS,
    CITRON_FAST,
    CITRON_CONFIRM,
    CITRON_SCALE_US,
    CITRON_TOKENS,
    CITRON_BLOCKED,
    CITRON_CROWD
};

/* CITRON_FAST: T_wait is waited out at all internal nodes; not if all bits of the leaves below were had (3.8); not right above
 * leaves, for a client that claims a leaf sees in the word that it notifies that the parent is taken. */
enum { FAST_NOT, FAST_PRINTED, FAST_LOW };

struct citron_stats {
    uint64_t acquires, late, aborts, blocked, escalated, repaired, grown, censuses, yielded, rivals, joint, crowded;
};
extern struct citron_stats citron_stats; /* of this process; the simulation is one */

/* How many claims a session may have in flight per word (batch.c). */
uint16_t citron_in_flight_max(uint32_t slot_count);

/* ---- the operations of the design (designs/core/design.h) ---- */

int citron_acquire(const struct seat *seat, struct hold *h, uint64_t deadline);                               /* acquire.c */
int citron_release(const struct seat *seat, const struct hold *h);                                            /* release.c */
bool citron_holds(const struct seat *seat, const struct hold *h);                                             /* release.c */
int citron_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline);          /* change.c */
int citron_reshape(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline); /* change.c */
int citron_split(const struct seat *seat, struct hold *h, uint64_t at, struct hold *right);                   /* split.c */
int citron_layout(const struct seat *seat, uint64_t index, struct lock_layout *out);                          /* scale.c */
int citron_retune(const struct seat *seat, uint64_t index, unsigned m, uint64_t wait_ns, uint64_t deadline);  /* scale.c */
int citron_rescale(const struct seat *seat, struct hold *h, uint64_t units, uint64_t deadline);               /* scale.c */
int citron_peek(const struct seat *seat, uint64_t index, struct lock_view *out);                              /* recover.c */
int citron_recover(const struct seat *seat, uint32_t dead, uint32_t epoch);                                   /* cleanup.c */
int citron_raise(const struct seat *seat, struct hold *h, uint64_t floor);                                    /* token.c */

#endif
