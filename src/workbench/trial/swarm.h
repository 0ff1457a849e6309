/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a campaign that its seed decides, beside the faults: sizes, leases, how operations are mixed.
 *
 * Campaign 1 has the same mix for all seeds. In campaign 2 each seed draws its own (swarm testing, Groce et al. 2012): a run that
 * always mixes everything hides what an uneven mix shows. Both draw sizes from the seed. Campaign 3 has the mix and the sizes of
 * campaign 1, and the operations of designs that offer more than locks (campaign_beside.c). */
#ifndef PAWL_WORKBENCH_TRIAL_SWARM_H
#define PAWL_WORKBENCH_TRIAL_SWARM_H

#include "lib/rng.h"
#include "world/sim.h"

#define CAMPAIGN_FIXED 1
#define CAMPAIGN_SWARM 2
#define CAMPAIGN_BESIDE 3

/* One in so many; 0: never. */
struct swarm_mix {
    unsigned cancel, several, nested, order, tune; /* kinds of operations */
    unsigned convert, shared;
    unsigned whole, beyond; /* ranges: all of the lock; more than it is laid out for */
    unsigned long_hold;
    uint8_t deadlines[6]; /* enum swarm_deadline, each as likely */
    uint8_t changes[6];   /* enum swarm_change */
    uint64_t pause_ns, hold_ns, cancel_ns;
    uint64_t lease_ns;
};

enum swarm_deadline { DEADLINE_IS_TRY, DEADLINE_IS_SHORT, DEADLINE_IS_LEASE, DEADLINE_IS_NONE };
enum swarm_change { CHANGE_GROWS, CHANGE_SHRINKS, CHANGE_SPLITS, CHANGE_NONE };

/* Sizes that a campaign may be held to, so that a failure can be made smaller; 0: as drawn. */
struct swarm_limits {
    uint64_t clients, hosts, tasks, locks, safety_ns;
};

/* The mix of campaign 1; and this seed's of campaign 2, from a stream of its own. */
extern const struct swarm_mix swarm_fixed;
struct swarm_mix swarm_draw(struct rng *r);

/* How many events there are to one whose packets find no room to leave; 0: all find room. */
unsigned swarm_crowd(uint64_t seed);

/* Of one in `n`; without a draw if never. */
static inline bool swarm_chance(struct rng *r, unsigned n)
{
    return n && rng_chance(r, 1, n);
}

#endif
