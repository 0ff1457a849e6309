/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock with its locks divided among several switches (5.4). */
#ifndef PAWL_DESIGNS_FISSLOCK_RACKS_H
#define PAWL_DESIGNS_FISSLOCK_RACKS_H

#include "dataplane/fission.h"
#include "designs/packet/parts.h"

extern const struct packet_design fisslock_racks_packets;

/* ---- the operations that differ from those of parts.h ---- */

uint64_t racks_host_bytes(const struct rack_config *config);
void racks_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now);
void racks_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint32_t racks_leases(const void *host, uint64_t now);
uint64_t racks_switch_bytes(const struct rack_config *config);
void racks_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now);
void racks_switch_expect(void *state, const uint64_t *machines, unsigned words);
void racks_switch_rules(void *state, const struct rack_rules *rules);
uint64_t racks_switch_scan(void *state, uint16_t machine, uint64_t now, struct outbox *out);
void racks_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);

/* Leaves those entries of a REPORT that are of this switch's locks, and returns the length. A host may know a later table than the
 * switch, and have carried holds over. The switch hears of them in its next life, which has that table: its present life is lower
 * than that of the switch that had the locks, and so would be its tokens (I2). */
uint32_t racks_keep_own(const struct rack_rules *rules, uint16_t rack, struct fission_packet *p, uint32_t len);

#define FISSLOCK_RACKS_PACKETS                                                                                                     \
    PARTS_PACKETS, .family = PACKET_FISSION, .host_bytes = racks_host_bytes, .host_init = racks_host_init,                         \
                   .convert = parts_convert, .leave = parts_leave, .packet = racks_packet, .rouse = parts_rouse,                   \
                   .switch_gone = parts_switch_gone, .switch_bytes = racks_switch_bytes, .switch_init = racks_switch_init,         \
                   .switch_expect = racks_switch_expect, .switch_rules = racks_switch_rules, .switch_scan = racks_switch_scan,     \
                   .switch_packet = racks_switch_packet, .uses = parts_use, .wanted = parts_wanted, .racks = racks_leases

#endif
