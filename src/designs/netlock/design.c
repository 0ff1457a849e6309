/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/design.h"
#include "designs/netlock/switches.h"
#include "designs/netlock/table.h"
#include "designs/packet/parts.h"
#include "designs/packet/requests.h"

#define SMALL (UINT64_C(32) << NETLOCK_SLOTS_SHIFT) /* a switch in which nearly nothing fits */

/* Data beside the locks, and conversion of holds. */
#define NETLOCK_MORE .convert = netlock_convert, .call = netlock_call, .reply = netlock_reply, .server_apply = netlock_server_apply

#define NETLOCK_DRAWS (NETLOCK_CHURN | NETLOCK_PRIORITY | NETLOCK_FEW | NETLOCK_TOGGLE | SMALL | UINT64_C(1) << NETLOCK_PIPES_SHIFT)

#define FEW 3u /* priorities with queues in the switch, for trials */

enum { SLOTS, PIPES, ALLOC_RANDOM, PRIORITIES, SWITCH_PRIORITIES, SERVERS_ONLY, SLOTS_EACH, PROFILE_MS };

const struct design_knob netlock_knobs[] = {
    [SLOTS] = {"slots", 1, NETLOCK_SLOTS_MAX, 0},                          /* of the shared queue */
    [PIPES] = {"pipes", 1, NETLOCK_PIPES_MAX, 0},                          /* share no state: each has its part of the slots */
    [ALLOC_RANDOM] = {"alloc-random", 0, 1, 0},                            /* instead of the knapsack of Algorithm 3 */
    [PRIORITIES] = {"priorities", 0, 1, 0},                                /* a waiting queue per priority */
    [SWITCH_PRIORITIES] = {"switch-priorities", 1, NETLOCK_PRIORITIES, 0}, /* so many have one in the switch */
    [SERVERS_ONLY] = {"servers-only", 0, 1, 0},                            /* nothing in the switch */
    [SLOTS_EACH] = {"slots-each", 1, NETLOCK_SLOTS_EACH_MAX, 0},           /* of a lock, instead of measured contention */
    [PROFILE_MS] = {"profile-ms", 1, NETLOCK_PROFILE_MAX, 0},              /* locks are chosen once, then, and stay */
    {NULL, 0, 0, 0},
};

uint64_t netlock_tune(uint64_t options, const struct knobs *k)
{
    options |= k->value[ALLOC_RANDOM] ? NETLOCK_ALLOC_RANDOM : 0;
    options |= k->value[PRIORITIES] || k->value[SWITCH_PRIORITIES] ? NETLOCK_PRIORITY : 0;
    options |= k->value[SERVERS_ONLY] ? NETLOCK_SERVERS_ONLY : 0;
    options |= k->value[SLOTS_EACH] | (uint64_t)k->value[PROFILE_MS] << NETLOCK_PROFILE_SHIFT;
    options |= (uint64_t)k->value[SWITCH_PRIORITIES] << NETLOCK_LEVELS_SHIFT;
    if (k->value[SLOTS])
        options = (options & ~((uint64_t)NETLOCK_SLOTS_MAX << NETLOCK_SLOTS_SHIFT)) | (uint64_t)k->value[SLOTS]
                                                                                          << NETLOCK_SLOTS_SHIFT;
    if (k->value[PIPES])
        options |= (uint64_t)(k->value[PIPES] - 1) << NETLOCK_PIPES_SHIFT;
    return options;
}

struct netlock_policy netlock_policy(uint64_t options)
{
    uint32_t size = (uint32_t)(options >> NETLOCK_SLOTS_SHIFT) & NETLOCK_SLOTS_MAX;
    struct netlock_policy p = {.slots = size ? size : NETLOCK_SLOTS_DEFAULT,
                               .pipes = 1 + (uint32_t)(options >> NETLOCK_PIPES_SHIFT) % NETLOCK_PIPES_MAX,
                               .slots_each = options & NETLOCK_SLOTS_EACH_MAX,
                               .profile_ns = (options >> NETLOCK_PROFILE_SHIFT & NETLOCK_PROFILE_MAX) * NS_PER_MS,
                               .alloc_random = options & NETLOCK_ALLOC_RANDOM,
                               .servers_only = options & NETLOCK_SERVERS_ONLY,
                               .chain = options & NETLOCK_CHAIN,
                               .churn = options & NETLOCK_CHURN,
                               .few = options & NETLOCK_FEW,
                               .toggle = options & NETLOCK_TOGGLE};
    if (p.chain)
        p.pipes = 1;
    uint32_t levels = (uint32_t)(options >> NETLOCK_LEVELS_SHIFT) & NETLOCK_LEVELS_MASK;
    if (options & NETLOCK_PRIORITY)
        p.levels = levels ? levels : p.few ? FEW : NETLOCK_PRIORITIES;
    return p;
}

const struct packet_design netlock_packets = {NETLOCK_TABLE,
                                              NETLOCK_MORE,
                                              .draws = NETLOCK_DRAWS,
                                              .ranks = NETLOCK_PRIORITY | NETLOCK_FEW,
                                              .host_grow = requests_grow,
                                              .server_grow = netlock_server_grow};

const struct design design_netlock = {
    .name = "netlock",
    .summary = "NetLock: hot locks in queues of the switch, the others in lock servers",
    .kind = DESIGN_MAIN,
    .features = NETLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .knobs = netlock_knobs,
    .packet = &netlock_packets,
};

#define SWITCHES_TABLE                                                                                                             \
    PARTS_PACKETS,                                                                                                                 \
        .convert = parts_convert, .family = PACKET_NETLOCK, .tune = netlock_tune, .host_bytes = switches_host_bytes,               \
        .host_init = switches_host_init, .packet = parts_packet, .host_grants = parts_host_grants,                                 \
        .switch_bytes = switches_switch_bytes, .switch_init = switches_switch_init, .switch_packet = netlock_switch_packet,        \
        .switch_tick = netlock_switch_tick, .steward_bytes = switches_steward_bytes, .steward_init = switches_steward_init,        \
        .steward_packet = switches_steward_packet, .steward_tick = switches_steward_tick, .steward_since = switches_steward_since, \
        .steward_hosts = switches_steward_hosts, .uses = parts_use, .server_since = parts_server_since,                            \
        .server_bytes = switches_server_bytes, .server_init = switches_server_init, .server_packet = netlock_server_packet,        \
        .server_tick = netlock_server_tick, .server_drops = netlock_server_drops, .switch_figures = netlock_switch_figures,        \
        .divides = true, .full_queues = true

const struct packet_design netlock_switches_packets = {SWITCHES_TABLE, .draws = NETLOCK_DRAWS,
                                                       .ranks = NETLOCK_PRIORITY | NETLOCK_FEW};

const struct design design_netlock_switches = {
    .name = "netlock-switches",
    .summary = "netlock with the locks divided among several switches of the rack",
    .kind = DESIGN_MAIN,
    .features = NETLOCK_FEATURES & ~DESIGN_CALLS,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .knobs = netlock_knobs,
    .packet = &netlock_switches_packets,
};
