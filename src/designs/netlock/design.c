#include "dataplane/netlock.h"
#include "designs/all.h"
#include "designs/netlock/netlock.h"
#include "designs/netlock/switches.h"
#include "designs/parts.h"
#include "designs/requests.h"

#define SMALL (UINT64_C(32) << NETLOCK_SLOTS_SHIFT) /* a switch in which nearly nothing fits */

#define NETLOCK_TABLE                                                                                                              \
    .family = PACKET_NETLOCK, .host_bytes = netlock_host_bytes, .host_init = netlock_host_init, .acquire = netlock_acquire,        \
    .thread = netlock_thread, .full_queues = true, .give_up = netlock_give_up, .release = netlock_release,                         \
    .outcome = requests_outcome, .idle = requests_idle, .holds = requests_hold, .claim = requests_claim,                           \
    .packet = netlock_host_packet, .tick = netlock_host_tick, .expiry = netlock_expiry, .host_grants = netlock_host_grants,        \
    .session_dead = netlock_session_dead, .host_drops = requests_drops, .switch_bytes = netlock_switch_bytes,                      \
    .switch_init = netlock_switch_init, .switch_number = netlock_switch_number, .steward_bytes = netlock_steward_bytes,            \
    .steward_init = netlock_steward_init, .steward_packet = netlock_steward_packet, .steward_tick = netlock_steward_tick,          \
    .switch_packet = netlock_switch_packet, .switch_tick = netlock_switch_tick, .server_bytes = netlock_server_bytes,              \
    .server_init = netlock_server_init, .server_packet = netlock_server_packet, .server_tick = netlock_server_tick,                \
    .server_drops = netlock_server_drops

/* Data beside the locks, and conversion of holds. */
#define NETLOCK_MORE .convert = netlock_convert, .call = netlock_call, .reply = netlock_reply, .server_apply = netlock_server_apply

#define NETLOCK_DRAWS (NETLOCK_CHURN | NETLOCK_PRIORITY | NETLOCK_FEW | NETLOCK_TOGGLE | SMALL | UINT64_C(1) << NETLOCK_PIPES_SHIFT)

#define NETLOCK_FEATURES                                                                                                           \
    (DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT | DESIGN_ASYNC |         \
     DESIGN_DEADLOCK | DESIGN_CALLS)

#define FEW 3u /* priorities with queues in the switch, for trials */

static unsigned slots, pipes, alloc_random, priorities, levels, servers_only;

static const struct design_knob knobs[] = {
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

uint32_t netlock_levels(uint64_t options)
{
    if (!(options & NETLOCK_PRIORITY))
        return 0;
    return levels ? levels : options & NETLOCK_FEW ? FEW : NETLOCK_PRIORITIES;
}

const struct packet_design netlock_packets = {NETLOCK_TABLE, NETLOCK_MORE, .draws = NETLOCK_DRAWS,
                                              .ranks = NETLOCK_PRIORITY | NETLOCK_FEW};

/* NetChain as a lock manager, as the paper compares with it (6.1). */
static const struct packet_design netchain = {NETLOCK_TABLE, .options = NETLOCK_CHAIN};

const struct design design_netlock = {
    .name = "netlock",
    .summary = "NetLock: hot locks in queues of the switch, the others in lock servers",
    .kind = DESIGN_MAIN,
    .features = NETLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .knobs = knobs,
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
    .knobs = knobs,
    .packet = &netlock_switches_packets,
};

const struct design design_netchain = {
    .name = "netchain",
    .summary = "exclusive words in the switch; who finds one taken tries again",
    .kind = DESIGN_BASELINE,
    .features = NETLOCK_FEATURES & ~(DESIGN_SHARED | DESIGN_CONVERT | DESIGN_DEADLOCK | DESIGN_CALLS),
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .knobs = knobs,
    .packet = &netchain,
};

#define BUSTED_BY(id, what, option, faults)                                                                                        \
    static const struct packet_design id##_packet = {NETLOCK_TABLE, NETLOCK_MORE, .draws = NETLOCK_DRAWS,                          \
                                                     .ranks = NETLOCK_PRIORITY | NETLOCK_FEW, .options = (option)};                \
    const struct design design_busted_##id = {                                                                                     \
        .name = "busted-" what,                                                                                                    \
        .summary = "wrong on purpose: netlock",                                                                                    \
        .kind = DESIGN_BUSTED,                                                                                                     \
        .features = NETLOCK_FEATURES,                                                                                              \
        .substrates = DESIGN_ON_SIM,                                                                                               \
        .tolerates = (faults),                                                                                                     \
        .packet = &id##_packet,                                                                                                    \
    }

#define BUSTED(id, what, option) BUSTED_BY(id, what, option, FAULTS_ALL)

BUSTED(netlock_blind, "netlock-blind", NETLOCK_BUST_BLIND_RELEASE);  /* whoever releases, the head goes */
BUSTED(netlock_mode, "netlock-mode", NETLOCK_BUST_TRUST_MODE);       /* the releaser says what it held */
BUSTED(netlock_end, "netlock-end", NETLOCK_BUST_NO_END);             /* the end of the queue is not tested for */
BUSTED(netlock_grant, "netlock-grant", NETLOCK_BUST_ANY_GRANT);      /* a late grant is taken for an answer */
BUSTED(netlock_lapse, "netlock-lapse", NETLOCK_BUST_NO_LAPSE);       /* the host believes in leases for ever */
BUSTED(netlock_hasty, "netlock-hasty", NETLOCK_BUST_HASTY_SERVER);   /* a server that lost its memory does not wait */
BUSTED(netlock_revert, "netlock-revert", NETLOCK_BUST_HASTY_REVERT); /* nor for the leases of a switch that died */
BUSTED(netlock_drain, "netlock-drain", NETLOCK_BUST_NO_DRAIN);       /* a lock moves while it is held */
BUSTED(netlock_deaf, "netlock-deaf", NETLOCK_BUST_DEAF_SERVER);      /* it grants what it was asked to buffer only */
BUSTED(netlock_heir, "netlock-heir", NETLOCK_BUST_HASTY_HEIR);       /* a server that takes over does not wait */
BUSTED(netlock_rebel, "netlock-rebel", NETLOCK_BUST_NO_STEWARD);     /* a server grants without a lease of its own */
BUSTED(netlock_usurper, "netlock-usurper", NETLOCK_BUST_USURPER);    /* a switch, too */
BUSTED(netlock_return, "netlock-return", NETLOCK_BUST_HASTY_RETURN); /* the original reigns before the backup has drained */
BUSTED(netlock_loud, "netlock-loud", NETLOCK_BUST_LOUD);             /* a server gives leases for locks that are another's now */
BUSTED(netlock_crowd, "netlock-crowd", NETLOCK_BUST_CROWD);          /* a session waits if any thread of it does */
BUSTED(netlock_stale, "netlock-stale", NETLOCK_BUST_STALE);          /* who held once is part of a deadlock */
BUSTED(netlock_twice, "netlock-twice", NETLOCK_BUST_TWICE);          /* a data server does what it is sent twice */
BUSTED(netlock_upgrade, "netlock-upgrade", NETLOCK_BUST_UPGRADED);   /* a reader writes though others read */
BUSTED(netlock_called, "netlock-called", NETLOCK_BUST_CALLED);       /* who was called from the server is granted unseen */
BUSTED(netlock_eager, "netlock-eager", NETLOCK_BUST_EAGER_DATA);     /* bytes go on though the lock is not free */
static const struct packet_design switches_table_packet = {SWITCHES_TABLE, .options = PARTS_BUSTED_TABLE};
const struct design design_busted_netlock_table = {
    .name = "busted-netlock-table", /* hosts do not agree which lock is which switch's */
    .summary = "wrong on purpose: netlock-switches",
    .kind = DESIGN_BUSTED,
    .features = NETLOCK_FEATURES & ~DESIGN_CALLS,
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .packet = &switches_table_packet,
};
/* The empty queue is not told again: only where nothing else moves the lock on. */
BUSTED_BY(netlock_silent, "netlock-silent", NETLOCK_BUST_SILENT_EMPTY,
          FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER));
