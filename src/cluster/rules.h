/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a space's switches has which locks, as the coordinator keeps it (designs/packet/packet.h: rack_rules).
 *
 * A change gives shards to one switch and takes them from others, in an order: the switch that gets locks hears of it when all
 * switches that lose some have confirmed. So no lock is ever decided by two (I1). Until then the switch that gets locks uses the
 * table from before. Both tables are kept, in memory and in the log; a coordinator that restarts hears from the switches which of
 * them each uses. */
#ifndef PAWL_CLUSTER_RULES_H
#define PAWL_CLUSTER_RULES_H

#include "designs/packet/packet.h"

struct rules {
    struct rack_rules now, before;
};

void rules_init(struct rules *r, unsigned racks);

/* The rules in which shards `first` to `end` - 1 are this rack's. -EINVAL: there are no such shards; -EALREADY: the rack has them.
 */
int rules_move(const struct rules *r, unsigned racks, unsigned first, unsigned end, unsigned rack, struct rules *out);

/* By the latest change. */
bool rules_loses(const struct rules *r, unsigned rack);
bool rules_gains(const struct rules *r, unsigned rack);

/* Whether a switch that uses one table must begin anew to use the other. */
bool rules_concern(const struct rack_rules *a, const struct rack_rules *b, unsigned rack);

#endif
