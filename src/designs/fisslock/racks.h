/* FissLock with its locks divided among several switches (5.4). */
#ifndef PAWL_DESIGNS_FISSLOCK_RACKS_H
#define PAWL_DESIGNS_FISSLOCK_RACKS_H

#include "designs/packet.h"

extern const struct packet_design fisslock_racks_packets;

/* ---- as fisslock.h has them ---- */

uint64_t racks_host_bytes(const struct rack_config *config);
void racks_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now);
int racks_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out);
int racks_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out);
void racks_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out);
int racks_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out);
int racks_release(void *host, uint32_t request, uint64_t now, struct outbox *out);
int racks_outcome(const void *host, uint32_t request, struct packet_answer *out);
bool racks_idle(const void *host, uint32_t request);
bool racks_holds(const void *host, uint32_t request);
bool racks_claim(const void *host, uint32_t request, struct packet_claim *out);
void racks_leave(void *host, uint64_t now, struct outbox *out);
void racks_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t racks_tick(void *host, uint64_t now, struct outbox *out);
void racks_rouse(void *host, uint64_t now, struct outbox *out);
uint64_t racks_expiry(const void *host, uint32_t session);
uint32_t racks_leases(const void *host, uint64_t now);
void racks_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out);
const struct packet_drops *racks_host_drops(const void *host);
uint64_t racks_switch_bytes(const struct rack_config *config);
void racks_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now);
void racks_switch_expect(void *state, const uint64_t *machines, unsigned words);
void racks_switch_rules(void *state, const struct rack_rules *rules);
uint64_t racks_switch_scan(void *state, uint16_t machine, uint64_t now, struct outbox *out);
void racks_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);

#define FISSLOCK_RACKS_PACKETS                                                                                                     \
    .family = PACKET_FISSION, .host_bytes = racks_host_bytes, .host_init = racks_host_init, .acquire = racks_acquire,              \
    .convert = racks_convert, .give_up = racks_give_up, .release = racks_release, .outcome = racks_outcome, .idle = racks_idle,    \
    .holds = racks_holds, .claim = racks_claim, .leave = racks_leave, .packet = racks_packet, .tick = racks_tick,                  \
    .rouse = racks_rouse, .expiry = racks_expiry, .session_dead = racks_session_dead, .host_drops = racks_host_drops,              \
    .switch_bytes = racks_switch_bytes, .switch_init = racks_switch_init, .switch_expect = racks_switch_expect,                    \
    .switch_rules = racks_switch_rules, .switch_scan = racks_switch_scan, .switch_packet = racks_switch_packet,                    \
    .thread = racks_thread, .racks = racks_leases

/* For tests. */
const struct rack_rules *racks_rules(const void *host);
void *racks_part(void *host, unsigned rack);
const void *racks_decider(const void *state);

#endif
