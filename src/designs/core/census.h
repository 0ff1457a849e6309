/* SPDX-License-Identifier: Apache-2.0 */
/* The holders of a lock by the hold records of living sessions: for designs whose locks count their holders without naming them,
 * and are counted anew after a death. */
#ifndef PAWL_DESIGNS_CORE_CENSUS_H
#define PAWL_DESIGNS_CORE_CENSUS_H

#include "designs/core/seat.h"

struct census {
    uint32_t readers, writers;
    uint32_t slot, record; /* of a writer, if there is one */
    uint32_t unsure;       /* in the middle of a step, or out of reach: what they hold is not certain */
};

/* Counts. In order to let others in, the lost are shut out first (`for_good`): a release of theirs that comes late would count for
 * somebody else. `stir`, if not null, is called for whoever is in the middle of a step, for it may be asleep. */
typedef void (*census_stir_fn)(const struct seat *seat, uint32_t slot, uint32_t record);
int census_take(const struct seat *seat, uint64_t index, bool for_good, census_stir_fn stir, struct census *out);

/* ---- sessions in the way ---- */

/* A set of record states. */
#define CENSUS_STATE(state) (1u << (state))

/* Calls fn for every other session that has a record of the lock in one of these states, until it returns non-zero. */
typedef int (*census_slot_fn)(void *ctx, uint32_t slot);
int census_concerned(const struct seat *seat, uint64_t index, unsigned states, census_slot_fn fn, void *ctx);

/* What a waiter adds to its conditions, to be woken by the death of any of these. *dying: one of them is already dead, so nobody
 * will. Nothing where the kernel does not tell. */
unsigned census_life_conds(const struct seat *seat, uint64_t index, unsigned states, struct fab_cond *conds, unsigned max,
                           bool *dying);

#endif
