/* SPDX-License-Identifier: Apache-2.0 */
/* NetChain as a lock manager, as NetLock compares with it (6.1): exclusive words in the switch, without queues. */
#include "designs/netlock/table.h"

static const struct packet_design netchain = {NETLOCK_TABLE, .options = NETLOCK_CHAIN};

const struct design design_netchain = {
    .name = "netchain",
    .summary = "exclusive words in the switch; a client that finds one taken tries again",
    .kind = DESIGN_BASELINE,
    .features = NETLOCK_FEATURES & ~(DESIGN_SHARED | DESIGN_CONVERT | DESIGN_DEADLOCK | DESIGN_CALLS),
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .knobs = netlock_knobs,
    .packet = &netchain,
};
