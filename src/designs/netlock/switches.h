/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock with several lock switches in one rack (4.5: where the memory of one is not enough). */
#ifndef PAWL_DESIGNS_NETLOCK_SWITCHES_H
#define PAWL_DESIGNS_NETLOCK_SWITCHES_H

#include "designs/packet/packet.h"

extern const struct packet_design netlock_packets, netlock_switches_packets;

/* As netlock.h has them; hosts are those of parts.h. */
uint64_t switches_host_bytes(const struct rack_config *config);
void switches_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now);
uint64_t switches_switch_bytes(const struct rack_config *config);
void switches_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now);
uint64_t switches_server_bytes(const struct rack_config *config);
void switches_server_init(void *server, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh,
                          uint64_t now);
uint64_t switches_steward_bytes(const struct rack_config *config);
void switches_steward_init(void *state, const struct rack_config *config, uint32_t life, bool fresh, uint64_t now);
void switches_steward_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t switches_steward_tick(void *state, uint64_t now, struct outbox *out);
uint32_t switches_steward_since(void *state, uint32_t life);
void switches_steward_hosts(void *state, const uint64_t *hosts, unsigned words);

#endif
