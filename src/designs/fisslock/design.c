/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/design.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "designs/fisslock/racks.h"
#include "designs/fisslock/spill.h"

bool fisslock_holds(const void *host, uint32_t request)
{
    return request_is_held(host_request((struct fisslock_host *)(uintptr_t)host, request));
}

bool fisslock_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    const struct fiss_request *r = host_request(h, request);
    bool holds = request_is_held(r);
    *out = (struct packet_claim){.index = r->index,
                                 .token = holds ? r->token : 0,
                                 .mode = (enum pawl_mode)r->mode,
                                 .generation = r->generation,
                                 .limit = r->limit,
                                 .holds = holds};
    return holds || r->state == FISS_WAITING;
}

struct packet_drops fisslock_host_drops(const void *host)
{
    return ((const struct fisslock_host *)host)->drops;
}

const struct fisslock_counts *fisslock_counts(const void *host)
{
    return &((const struct fisslock_host *)host)->counts;
}

struct packet_grants fisslock_host_grants(const void *host)
{
    const struct fisslock_counts *c = fisslock_counts(host);
    return (struct packet_grants){.by_switch = c->by_switch, .by_agent = c->by_agent, .local = c->local};
}

const struct packet_design fisslock_packets = {FISSLOCK_PACKETS, .host_grow = fisslock_host_grow,
                                               .draws = FISSLOCK_DRAWS | FISSLOCK_RESTLESS};

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
