/* SPDX-License-Identifier: Apache-2.0 */
/* A host of a space whose locks are divided among several switches. It has a part for each switch: a host of the design that they
 * run, with its own requests and leases. The parts do not know each other; their packets differ in the number of the space. A table
 * says which part a lock is in: the lock's shard, and the shard's switch. */
#ifndef PAWL_DESIGNS_PACKET_PARTS_H
#define PAWL_DESIGNS_PACKET_PARTS_H

#include "designs/packet/packet.h"

#define PARTS_MISTAKE_TABLE (UINT64_C(1) << 60) /* every host has another table */

/* The design of the parts. A number, since a host's memory has no pointers. */
enum parts_of { PARTS_FISSLOCK, PARTS_NETLOCK };

struct parts_host {
    struct rack_config config;
    struct rack_rules rules;
    struct packet_drops drops;
    uint32_t design;                         /* enum parts_of */
    uint64_t parts_at, part_bytes, racks_at; /* racks_at: a byte per request, the part that it is in, or was in last */
};

static inline unsigned parts_shard(uint64_t index)
{
    return shard_of(index);
}

/* The config of one part. Lock servers are dealt to the parts in turn. */
struct rack_config parts_config(const struct rack_config *c, unsigned rack);
static inline unsigned parts_of_server(const struct rack_config *c, unsigned server)
{
    return c->racks ? server % c->racks : 0;
}

uint64_t parts_host_bytes(enum parts_of design, const struct rack_config *config);
void parts_host_init(enum parts_of design, void *host, const struct rack_config *config, uint16_t machine, uint32_t life,
                     uint64_t now);

static inline void *parts_part(const void *host, unsigned rack)
{
    const struct parts_host *h = host;
    return (char *)(uintptr_t)host + h->parts_at + rack * h->part_bytes;
}
static inline uint8_t *parts_rack(const void *host, uint32_t request)
{
    return (uint8_t *)(uintptr_t)host + ((const struct parts_host *)host)->racks_at + request;
}
/* The part in which a request is. */
static inline void *parts_of_request(const void *host, uint32_t request)
{
    return parts_part(host, *parts_rack(host, request));
}

/* ---- the operations of packet.h ---- */

int parts_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out);
int parts_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out);
void parts_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out);
int parts_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out);
int parts_release(void *host, uint32_t request, uint64_t now, struct outbox *out);
int parts_outcome(const void *host, uint32_t request, struct packet_answer *out);
bool parts_idle(const void *host, uint32_t request);
bool parts_holds(const void *host, uint32_t request);
bool parts_claim(const void *host, uint32_t request, struct packet_claim *out);
bool parts_wanted(void *host, uint32_t request, uint64_t now, struct outbox *out);
bool parts_use(void *host, uint64_t index, uint64_t now, struct outbox *out);
void parts_leave(void *host, uint64_t now, struct outbox *out);
void parts_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t parts_tick(void *host, uint64_t now, struct outbox *out);
void parts_rouse(void *host, uint64_t now, struct outbox *out);
void parts_switch_gone(void *host, unsigned rack, uint64_t now, struct outbox *out);
void parts_server_since(void *host, uint16_t machine, uint32_t life, struct outbox *out);
void parts_renew(void *host, uint64_t now, struct outbox *out);
uint64_t parts_expiry(const void *host, uint32_t session);
void parts_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out);
struct packet_drops parts_host_drops(const void *host);
struct packet_grants parts_host_grants(const void *host);

#define PARTS_PACKETS                                                                                                              \
    .acquire = parts_acquire, .give_up = parts_give_up, .release = parts_release, .outcome = parts_outcome, .idle = parts_idle,    \
    .holds = parts_holds, .claim = parts_claim, .tick = parts_tick, .renew = parts_renew, .expiry = parts_expiry,                  \
    .session_dead = parts_session_dead, .host_drops = parts_host_drops, .thread = parts_thread

#endif
