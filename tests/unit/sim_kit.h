/* SPDX-License-Identifier: Apache-2.0 */
/* A small simulated cluster for the unit tests: one server (node 0) and some client hosts. */
#ifndef PAWL_TESTS_UNIT_SIM_KIT_H
#define PAWL_TESTS_UNIT_SIM_KIT_H

#include "fabric/sim.h"
#include "tests/check.h"
#include <errno.h>
#include <string.h>

#define KIT_MEMORY_BYTES (UINT64_C(1) << 20)

struct kit {
    struct sim sim;
    struct sim_fabric *fabric;
    struct model model; /* a copy that the test may have changed */
};

/* Every host has memory; host 0 is the server. Set the rest of the config before. */
static inline void kit_open(struct kit *kit, const struct sim_config *config, uint32_t caps, unsigned hosts)
{
    CHECK_EQ(sim_init(&kit->sim, config), 0);
    kit->fabric = sim_fabric_new(&kit->sim, caps);
    CHECK(kit->fabric);
    for (unsigned i = 0; i < hosts; i++)
        CHECK_EQ(sim_host_memory(sim_host_new(&kit->sim), KIT_MEMORY_BYTES), 0);
    kit->sim.hosts[0]->server = true;
}

/* A process on that host with one endpoint. */
static inline struct fab_ep *kit_ep(struct kit *kit, unsigned host, struct sim_process **process)
{
    struct sim_process *made = sim_process_new(kit->sim.hosts[host]);
    if (process)
        *process = made;
    struct fab_ep *ep = sim_ep_new(kit->fabric, made);
    CHECK(ep);
    return ep;
}

static inline uint64_t kit_word(struct kit *kit, fab_addr addr)
{
    return *(uint64_t *)sim_fabric_peek(kit->fabric, addr, 8);
}

static inline void kit_close(struct kit *kit)
{
    sim_fabric_free(kit->fabric);
    sim_free(&kit->sim);
}

/* A word of the server. */
#define WORD(i) FAB_ADDR(0, (uint64_t)(i)*8)

/* A process with an endpoint, and what its task wants to remember. */
struct actor {
    struct kit *kit;
    struct fab_ep *ep;
    struct sim_process *process;
    uint64_t seen[8];
    unsigned count;
    int rc;
};

/* The default model, no faults or these in every run. */
static inline void open_default(struct kit *kit, uint64_t seed, uint32_t faults, unsigned hosts)
{
    const struct sim_config config = {
        .seed = seed, .faults = faults, .faults_certain = faults, .safety_ns = faults ? 10 * NS_PER_S : 0};
    kit_open(kit, &config, SIM_FABRIC_CAPS, hosts);
}

static inline struct actor actor_on(struct kit *kit, unsigned host)
{
    struct actor a = {.kit = kit};
    a.ep = kit_ep(kit, host, &a.process);
    return a;
}

#endif
