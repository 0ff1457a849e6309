/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock (OSDI'24): a decider in the switch and agents on the hosts. docs/designs/fisslock.md describes it. */
#ifndef PAWL_DESIGNS_FISSLOCK_FISSLOCK_H
#define PAWL_DESIGNS_FISSLOCK_FISSLOCK_H

#include "designs/packet/packet.h"

extern const struct packet_design fisslock_packets;

/* ---- a host ---- */

uint64_t fisslock_host_bytes(const struct rack_config *config);
void fisslock_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now);
int fisslock_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out);
int fisslock_release(void *host, uint32_t request, uint64_t now, struct outbox *out);
int fisslock_local_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct packet_answer *out);
int fisslock_local_release(void *host, uint32_t request, uint64_t now);
void fisslock_local_recover(void *host);
int fisslock_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out);
int fisslock_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out);
void fisslock_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out);
int fisslock_outcome(const void *host, uint32_t request, struct packet_answer *out);
bool fisslock_idle(const void *host, uint32_t request);
bool fisslock_holds(const void *host, uint32_t request);
bool fisslock_claim(const void *host, uint32_t request, struct packet_claim *out);
bool fisslock_wanted(void *host, uint32_t request, uint64_t now, struct outbox *out);
bool fisslock_uses(void *host, uint64_t index, uint64_t now, struct outbox *out);
void fisslock_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t fisslock_tick(void *host, uint64_t now, struct outbox *out);
void fisslock_leave(void *host, uint64_t now, struct outbox *out);
struct packet_grants fisslock_host_grants(const void *host);
void fisslock_rouse(void *host, uint64_t now, struct outbox *out);
void fisslock_host_grow(void *host, uint64_t locks, struct outbox *out);
void fisslock_switch_gone(void *host, unsigned rack, uint64_t now, struct outbox *out);
uint64_t fisslock_expiry(const void *host, uint32_t session);
struct packet_drops fisslock_host_drops(const void *host);
void fisslock_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out);

/* ---- the decider as a program on words in memory: the simulated switch and the process over UDP ---- */
uint64_t fisslock_switch_bytes(const struct rack_config *config);
void fisslock_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now);
void fisslock_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);
void fisslock_switch_expect(void *state, const uint64_t *machines, unsigned words);
uint64_t fisslock_switch_scan(void *state, uint16_t machine, uint64_t now, struct outbox *out);
const struct packet_drops *fisslock_switch_drops(const void *state);
uint64_t fisslock_switch_tick(void *state, uint64_t now, struct outbox *out);
uint64_t fisslock_switch_moves(const void *state);
bool fisslock_switch_stale(const void *state);

/* ---- a server: the decider of locks for which the switch has no room ---- */
uint64_t fisslock_server_bytes(const struct rack_config *config);
void fisslock_server_init(void *server, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh,
                          uint64_t now);
void fisslock_server_packet(void *server, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t fisslock_server_tick(void *server, uint64_t now, struct outbox *out);
const struct packet_drops *fisslock_server_drops(const void *server);
bool fisslock_relayed(const void *data, uint32_t len);

#define FISSLOCK_DRAWS (FISSION_WRITE_PREFERRING | FISSLOCK_PRIORITY)

#define FISSLOCK_PACKETS                                                                                                           \
    .family = PACKET_FISSION, .host_bytes = fisslock_host_bytes, .host_init = fisslock_host_init, .acquire = fisslock_acquire,     \
    .convert = fisslock_convert, .give_up = fisslock_give_up, .release = fisslock_release, .outcome = fisslock_outcome,            \
    .local_acquire = fisslock_local_acquire, .local_release = fisslock_local_release, .local_recover = fisslock_local_recover,     \
    .idle = fisslock_idle, .holds = fisslock_holds, .claim = fisslock_claim, .uses = fisslock_uses, .wanted = fisslock_wanted,     \
    .packet = fisslock_packet, .tick = fisslock_tick, .expiry = fisslock_expiry, .rouse = fisslock_rouse, .renew = fisslock_rouse, \
    .switch_gone = fisslock_switch_gone, .leave = fisslock_leave, .host_grants = fisslock_host_grants,                             \
    .session_dead = fisslock_session_dead, .host_drops = fisslock_host_drops, .switch_bytes = fisslock_switch_bytes,               \
    .switch_init = fisslock_switch_init, .switch_packet = fisslock_switch_packet, .thread = fisslock_thread,                       \
    .switch_expect = fisslock_switch_expect, .switch_scan = fisslock_switch_scan, .switch_tick = fisslock_switch_tick,             \
    .switch_moves = fisslock_switch_moves, .switch_stale = fisslock_switch_stale, .server_bytes = fisslock_server_bytes,           \
    .server_init = fisslock_server_init, .server_packet = fisslock_server_packet, .server_tick = fisslock_server_tick,             \
    .server_drops = fisslock_server_drops, .relayed = fisslock_relayed, .on_hosts = true, .spills = true

/* For tests and figures. */
struct fisslock_counts;
const struct fisslock_counts *fisslock_counts(const void *host);
uint64_t fisslock_switch_word(const void *state, uint64_t index);
struct rebuild;
const struct rebuild *fisslock_switch_rebuild(const void *state);
bool fisslock_switch_has(const void *state, uint64_t index);       /* it is decided there */
uint64_t fisslock_server_word(const void *server, uint64_t index); /* 0: it is not here */

#define FISSLOCK_FEATURES                                                                                                          \
    (DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT | DESIGN_ASYNC |         \
     DESIGN_DEADLOCK | DESIGN_BAST | DESIGN_SEMAPHORE | DESIGN_VALUES)

extern const struct design design_fisslock, design_fisslock_racks;

#endif
