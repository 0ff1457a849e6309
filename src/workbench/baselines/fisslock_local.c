/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock-Local (7.4): agents stay with the host that the lock is placed with. */
#include "dataplane/fission.h"
#include "designs/core/design.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/options.h"

static const struct packet_design placed = {FISSLOCK_PACKETS, .options = FISSLOCK_KEEP | FISSLOCK_PLACED,
                                            .draws = FISSLOCK_DRAWS | FISSLOCK_RESTLESS};

const struct design design_fisslock_local = {
    .name = "fisslock-local",
    .summary = "fisslock with agents that stay where their locks are placed, by ranges (7.4)",
    .kind = DESIGN_BASELINE,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .packet = &placed,
};
