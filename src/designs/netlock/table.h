/* SPDX-License-Identifier: Apache-2.0 */
/* The table of NetLock's functions, for its variants. */
#ifndef PAWL_DESIGNS_NETLOCK_TABLE_H
#define PAWL_DESIGNS_NETLOCK_TABLE_H

#include "dataplane/netlock.h"
#include "designs/core/design.h"
#include "designs/netlock/netlock.h"
#include "designs/packet/requests.h"

#define NETLOCK_TABLE                                                                                                              \
    .family = PACKET_NETLOCK, .tune = netlock_tune, .host_bytes = netlock_host_bytes, .host_init = netlock_host_init,              \
    .acquire = netlock_acquire, .thread = netlock_thread, .full_queues = true, .give_up = netlock_give_up,                         \
    .release = netlock_release, .outcome = requests_outcome, .idle = requests_idle, .holds = requests_hold,                        \
    .claim = requests_claim, .uses = requests_use, .server_since = netlock_server_since, .packet = netlock_host_packet,            \
    .tick = netlock_host_tick, .renew = netlock_host_renew, .expiry = netlock_expiry, .host_grants = netlock_host_grants,          \
    .session_dead = netlock_session_dead, .host_drops = requests_drops, .switch_bytes = netlock_switch_bytes,                      \
    .switch_init = netlock_switch_init, .switch_number = netlock_switch_number, .steward_bytes = netlock_steward_bytes,            \
    .steward_init = netlock_steward_init, .steward_packet = netlock_steward_packet, .steward_tick = netlock_steward_tick,          \
    .steward_since = netlock_steward_since, .steward_hosts = netlock_steward_hosts, .switch_packet = netlock_switch_packet,        \
    .switch_tick = netlock_switch_tick, .server_bytes = netlock_server_bytes, .server_init = netlock_server_init,                  \
    .server_packet = netlock_server_packet, .server_tick = netlock_server_tick, .server_drops = netlock_server_drops,              \
    .switch_figures = netlock_switch_figures

#define NETLOCK_FEATURES                                                                                                           \
    (DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT | DESIGN_ASYNC |         \
     DESIGN_DEADLOCK | DESIGN_CALLS)

extern const struct design_knob netlock_knobs[];

#endif
