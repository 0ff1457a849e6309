/* Who holds a lock by the records of the living: for designs whose locks count their holders and do not name them, and are counted
 * anew when somebody has died. */
#ifndef PAWL_DESIGNS_CENSUS_H
#define PAWL_DESIGNS_CENSUS_H

#include "designs/seat.h"

struct census {
    uint32_t readers, writers;
    uint32_t slot, record; /* of a writer, if there is one */
    uint32_t unsure;       /* in the middle of a step, or out of reach: what they hold is not certain */
};

/* Counts. In order to let others in, the lost are shut out first (`for_good`): a release of theirs that comes late would count for
 * somebody else. `stir`, if not null, is called for whoever is in the middle of a step, for it may be asleep. */
typedef void (*census_stir_fn)(const struct seat *seat, uint32_t slot, uint32_t record);
int census_take(const struct seat *seat, uint64_t index, bool for_good, census_stir_fn stir, struct census *out);

#endif
