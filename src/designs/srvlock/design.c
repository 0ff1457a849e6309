/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/design.h"
#include "designs/packet/requests.h"
#include "designs/srvlock/srvlock.h"

static const struct packet_design srvlock = {SRV_HOST, SRV_SERVER, .host_grow = requests_grow};

const struct design design_srvlock = {
    .name = "srvlock",
    .summary = "lock servers on machines of their own, asked by packets",
    .kind = DESIGN_MAIN,
    .features = SRV_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &srvlock,
};
