/* SPDX-License-Identifier: Apache-2.0 */
/* The holders of a lock by the hold records of living sessions: for designs whose locks count their holders without naming them,
 * and are counted anew after a death. */
#ifndef PAWL_DESIGNS_CORE_CENSUS_H
#define PAWL_DESIGNS_CORE_CENSUS_H

#include "designs/core/seat.h"

struct census {
    uint32_t readers, writers;
    uint32_t slot, record; /* of a writer, if there is one */
    uint32_t unsure;       /* sessions in the middle of a step, or out of reach: what they hold is not certain */
};

/* Counts the holders. `for_good`: others will be granted the lock afterwards, so lost sessions are fenced first: a late release of
 * theirs would count for another session. `stir`, if not null, is called for a session in the middle of a step, which may be
 * asleep. */
typedef void (*census_stir_fn)(const struct seat *seat, uint32_t slot, uint32_t record);
int census_take(const struct seat *seat, uint64_t index, bool for_good, census_stir_fn stir, struct census *out);

/* ---- sessions in the way ---- */

/* A set of record states. */
#define CENSUS_STATE(state) (1u << (state))

/* Recovers from the session in that slot, by its design's means, if it is dead. */
int census_look_after(const struct seat *seat, uint32_t slot);

/* The same for every other session that has a record of the lock in one of these states. */
int census_look_after_all(const struct seat *seat, uint64_t index, unsigned states);

/* Conditions that wake a waiter when any of these sessions dies. *dying: one of them is already dead, so it cannot be waited for.
 * None where the kernel does not report deaths. */
unsigned census_life_conds(const struct seat *seat, uint64_t index, unsigned states, struct fab_cond *conds, unsigned max,
                           bool *dying);

#endif
