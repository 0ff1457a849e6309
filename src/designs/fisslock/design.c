/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/design.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "designs/fisslock/racks.h"
#include "designs/fisslock/spill.h"

const struct packet_design fisslock_packets = {FISSLOCK_PACKETS, .draws = FISSLOCK_DRAWS | FISSLOCK_RESTLESS};

const struct design design_fisslock = {
    .name = "fisslock",
    .summary = "the switch decides, an agent at the holder's host keeps the queue (OSDI'24)",
    .kind = DESIGN_MAIN,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &fisslock_packets,
};

const struct design design_fisslock_racks = {
    .name = "fisslock-racks",
    .summary = "fisslock with the locks divided among several switches",
    .kind = DESIGN_MAIN,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &fisslock_racks_packets,
};

static const struct packet_design stay = {FISSLOCK_PACKETS, .options = FISSLOCK_KEEP, .draws = FISSLOCK_DRAWS | FISSLOCK_RESTLESS};

const struct design design_fisslock_stay = {
    .name = "fisslock-stay",
    .summary = "fisslock with agents that stay where they are wanted again",
    .kind = DESIGN_MAIN,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &stay,
};
