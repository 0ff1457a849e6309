/* SPDX-License-Identifier: Apache-2.0 */
/* ParLock: lock servers on the clients' machines, as FissLock compares with it. */
#include "designs/core/design.h"
#include "designs/packet/requests.h"
#include "designs/srvlock/srvlock.h"

static const struct packet_design parlock = {SRV_HOST, SRV_SERVER, .on_hosts = true, .options = SRV_BY_RANGE};

const struct design design_parlock = {
    .name = "parlock",
    .summary = "lock servers on the clients' machines, asked by packets",
    .kind = DESIGN_BASELINE,
    .features = SRV_FEATURES,
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .packet = &parlock,
};
