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

static unsigned slots, pipes, alloc_random, priorities, levels, servers_only;

const struct design_knob netlock_knobs[] = {
    {"slots", &slots, 1, 0xffffff},                        /* of the shared queue */
    {"pipes", &pipes, 1, NETLOCK_PIPES_MAX},               /* that share no state: each has its part of the slots */
    {"alloc-random", &alloc_random, 0, 1},                 /* instead of the knapsack of Algorithm 3 */
    {"priorities", &priorities, 0, 1},                     /* a waiting queue per priority */
    {"switch-priorities", &levels, 1, NETLOCK_PRIORITIES}, /* only so many of them have one in the switch, others at servers */
    {"servers-only", &servers_only, 0, 1},                 /* nothing in the switch */
    {NULL, NULL, 0, 0},
};

uint64_t netlock_tuned(uint64_t options)
{
    options |= alloc_random ? NETLOCK_ALLOC_RANDOM : 0;
    options |= priorities || levels ? NETLOCK_PRIORITY : 0;
    options |= servers_only ? NETLOCK_SERVERS_ONLY : 0;
    if (slots)
        options = (options & ~(UINT64_C(0xffffff) << NETLOCK_SLOTS_SHIFT)) | (uint64_t)slots << NETLOCK_SLOTS_SHIFT;
    if (pipes > 1)
        options |= (uint64_t)(pipes - 1) << NETLOCK_PIPES_SHIFT;
    return options;
}

struct netlock_policy netlock_policy(uint64_t packed)
{
    const uint64_t options = netlock_tuned(packed);
    uint32_t size = (uint32_t)(options >> NETLOCK_SLOTS_SHIFT) & 0xffffffu;
    struct netlock_policy p = {.slots = size ? size : NETLOCK_SLOTS_DEFAULT,
                               .pipes = 1 + (uint32_t)(options >> NETLOCK_PIPES_SHIFT) % NETLOCK_PIPES_MAX,
                               .alloc_random = options & NETLOCK_ALLOC_RANDOM,
                               .servers_only = options & NETLOCK_SERVERS_ONLY,
                               .chain = options & NETLOCK_CHAIN,
                               .churn = options & NETLOCK_CHURN,
                               .few = options & NETLOCK_FEW,
                               .toggle = options & NETLOCK_TOGGLE};
    if (p.chain)
        p.pipes = 1;
    if (options & NETLOCK_PRIORITY)
        p.levels = levels ? levels : p.few ? FEW : NETLOCK_PRIORITIES;
    return p;
}

const struct packet_design netlock_packets = {NETLOCK_TABLE, NETLOCK_MORE, .draws = NETLOCK_DRAWS,
                                              .ranks = NETLOCK_PRIORITY | NETLOCK_FEW};

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
        .convert = parts_convert, .family = PACKET_NETLOCK, .host_bytes = switches_host_bytes, .host_init = switches_host_init,    \
        .packet = parts_packet, .host_grants = parts_host_grants, .switch_bytes = switches_switch_bytes,                           \
        .switch_init = switches_switch_init, .switch_packet = netlock_switch_packet, .switch_tick = netlock_switch_tick,           \
        .steward_bytes = switches_steward_bytes, .steward_init = switches_steward_init, .steward_packet = switches_steward_packet, \
        .steward_tick = switches_steward_tick, .server_bytes = switches_server_bytes, .server_init = switches_server_init,         \
        .server_packet = netlock_server_packet, .server_tick = netlock_server_tick, .server_drops = netlock_server_drops,          \
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
