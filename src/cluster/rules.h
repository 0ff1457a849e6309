/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a space's switches has which locks, as the coordinator keeps it (designs/packet/packet.h: rack_rules).
 *
 * A change gives slots to one switch and takes them from others. It is made in an order: whoever gets locks hears of it when all
 * have confirmed who lose some, so that no lock is ever decided by two. Until then the one that gets them goes by the table from
 * before. So both are kept, in memory and on disk; a coordinator that starts anew hears from the switches which each of them has.
 *
 * Free of I/O but for the file. */
#ifndef PAWL_CLUSTER_RULES_H
#define PAWL_CLUSTER_RULES_H

#include "designs/packet/packet.h"

struct rules {
    struct rack_rules now, before;
};

void rules_init(struct rules *r, unsigned racks);

/* As it will be when slots from `first` up to, and without, `end` are this rack's. -EINVAL: there are no such; -EALREADY: they are
 * its own. */
int rules_move(const struct rules *r, unsigned racks, unsigned first, unsigned end, unsigned rack, struct rules *out);

/* By the latest change. */
bool rules_loses(const struct rules *r, unsigned rack);
bool rules_gains(const struct rules *r, unsigned rack);

/* Whether a switch that goes by one table has to begin anew to go by the other. */
bool rules_concern(const struct rack_rules *a, const struct rack_rules *b, unsigned rack);

/* The file: replaced as a whole, and on the disk when this returns. Of a file that is not there rules_load makes one with what is
 * in *r. -EINVAL: it is of another space or number of racks, or no such file. */
int rules_load(const char *path, const char *space, unsigned racks, struct rules *r);
int rules_save(const char *path, const char *space, unsigned racks, const struct rules *r);

#endif
