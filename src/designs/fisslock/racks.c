/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock with its locks divided among several switches (5.4).
 *
 * A host has a part in every rack, with requests, agents, a lease and a report of its own. The parts do not know each other; their
 * packets differ in the number of the space. A table says which switch decides a lock: the lock's shard and the shard's owner. The
 * failure of one switch does not touch the locks of the others.
 *
 * The table changes at run time, as if the switches that lose or get shards had lost their state: they begin another life with the
 * new table, closed, first those that lose shards, and every host reports its holds to them (rebuild.h). The acknowledgement of a
 * heartbeat by which a host hears of the new life carries the table. Before the host reports, it carries its holds over to the part
 * of the rack that has the lock now, and asks there for its waiting requests. So when the new owner opens, every live host has
 * reported to it, and no other switch decides the lock. All lives have one source, so that tokens rise from one rack to the next
 * (I2). */
#include "designs/fisslock/racks.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "designs/packet/parts.h"

#include <errno.h>

/* ---- the host ---- */

uint64_t racks_host_bytes(const struct rack_config *config)
{
    return parts_host_bytes(PARTS_FISSLOCK, config);
}

void racks_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    parts_host_init(PARTS_FISSLOCK, host, config, machine, life, now);
    for (unsigned d = 0; d < config->racks; d++)
        ((struct fisslock_host *)parts_part(host, d))->part_bytes = ((const struct parts_host *)host)->part_bytes;
}

uint32_t racks_leases(const void *host, uint64_t now)
{
    const struct parts_host *h = host;
    uint32_t mask = 0;
    for (unsigned d = 0; d < h->config.racks; d++)
        mask |= (uint32_t)lease_runs(parts_part(host, d), now) << d;
    return mask;
}

/* ---- another table ---- */

/* A hold, from one part of this host to another. */
static void carry_hold(void *from, void *to, uint32_t request, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(from, now, out);
    struct fiss_request *r = host_request(e.h, request);
    if (!request_is_held(r))
        return; /* its lease ended just now */
    struct fiss_request was = *r;
    uint32_t thread = *host_thread(e.h, request);
    request_count_held(&e, r, -1);
    request_stop_timer(&e, r);
    pool_request_unlink(&e, r);
    r->state = FISS_IDLE;

    e = event_begin(to, now, out);
    r = host_request(e.h, request);
    edit(&e, r);
    *r = was;
    r->nonce = pool_nonce(e.h, request);
    r->term = TERM_NONE;
    r->ordinal = 0;
    pool_request_link(&e, r);
    request_count_held(&e, r, 1);
    request_thread(&e, request, thread);
    if (r->state == FISS_UPGRADING) {
        deadlock_upgrade(&e, r);
        request_retransmit_later(&e, r);
    }
    if (!lease_runs(e.h, now))
        lease_lapse(&e); /* I1: the switch there does not know the hold, and does not wait for this host */
}

/* A request, from one part of this host to another. */
static void carry(struct parts_host *h, uint32_t request, uint8_t to, uint64_t now, struct outbox *out)
{
    void *from_part = parts_of_request(h, request), *to_part = parts_part(h, to);
    const struct fiss_request was = *host_request(from_part, request);
    if (was.state == FISS_RELEASING)
        return; /* it does not hold, and ends where it is */
    uint8_t *rack = parts_rack(h, request);
    outbox_touch(out, rack, 1);
    *rack = to;
    if (was.state == FISS_WAITING) {
        const struct packet_ask ask = {.request = request,
                                       .thread = *host_thread(from_part, request),
                                       .port = was.port,
                                       .priority = was.priority,
                                       .limit = was.limit,
                                       .try = was.try,
                                       .mode = (enum pawl_mode)was.mode,
                                       .index = was.index,
                                       .generation = was.generation};
        fisslock_give_up(from_part, request, -EAGAIN, now, out);
        if (fisslock_acquire(to_part, &ask, now, out) < 0)
            *rack = (uint8_t)(((char *)from_part - (char *)parts_part(h, 0)) / (ptrdiff_t)h->part_bytes); /* where it has ended */
        return;
    }
    carry_hold(from_part, to_part, request, now, out);
}

static void apply(struct parts_host *h, const struct rack_rules *rules, uint64_t now, struct outbox *out)
{
    outbox_touch(out, &h->rules, sizeof h->rules);
    h->rules = *rules;
    for (uint32_t r = 0; r < rack_requests(&h->config); r++) {
        const struct fiss_request *request = host_request(parts_of_request(h, r), r);
        uint8_t owner = h->rules.owner[parts_shard(request->index)];
        if (request->state != FISS_IDLE && request->state != FISS_ENDED && owner != *parts_rack(h, r))
            carry(h, r, owner, now, out);
    }
}

void racks_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct parts_host *h = host;
    const struct fission_packet *p = data;
    bool tells = len == sizeof *p + RACK_SHARDS && p->head.type == FISSION_LEASE &&
                 p->head.space - rack_space_id(&h->config, 0) < h->config.racks && p->head.from.machine == MACHINE_SWITCH &&
                 p->count == RULES_ENTRIES;
    if (tells) {
        struct rack_rules rules = {.version = p->stamp};
        memcpy(rules.owner, p + 1, RACK_SHARDS);
        if (rules.version > h->rules.version && rack_rules_fine(&rules, h->config.racks))
            apply(h, &rules, now, out);
    }
    parts_packet(host, data, len, now, out);
}

/* ---- the switch ---- */

struct racks_switch {
    struct rack_config config;
    struct rack_rules rules;
    struct packet_drops drops;
    _Alignas(CACHE_LINE) char decider[];
};

uint64_t racks_switch_bytes(const struct rack_config *config)
{
    struct rack_config part = parts_config(config, config->rack);
    return sizeof(struct racks_switch) + fisslock_switch_bytes(&part);
}

ONCE void racks_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    struct racks_switch *s = state;
    struct rack_config part = parts_config(config, config->rack);
    s->config = *config;
    s->rules = rack_rules_first(config->racks);
    s->drops = (struct packet_drops){0};
    fisslock_switch_init(s->decider, &part, life, now);
}

void racks_switch_rules(void *state, const struct rack_rules *rules)
{
    struct racks_switch *s = state;
    if (rules->version > s->rules.version && rack_rules_fine(rules, s->config.racks))
        s->rules = *rules;
}

void racks_switch_expect(void *state, const uint64_t *machines, unsigned words)
{
    fisslock_switch_expect(((struct racks_switch *)state)->decider, machines, words);
}

uint64_t racks_switch_scan(void *state, uint16_t machine, uint64_t now, struct outbox *out)
{
    return fisslock_switch_scan(((struct racks_switch *)state)->decider, machine, now, out);
}

/* The table goes with every answer to a LEASE, which is the last packet in the outbox. A host that has a lease knows the table, and
 * a lock moves when all hosts with a lease do: an answer for whose table there is no room is not sent (I1). */
static void add_rules(const struct racks_switch *s, struct outbox *out)
{
    uint32_t at = out->packet[out->packets - 1].at;
    struct fission_packet *p = (struct fission_packet *)(void *)(out->bytes + at);
    if (p->head.type != FISSION_LEASE)
        return;
    if (OUTBOX_BYTES - out->used < RACK_SHARDS) {
        out->packets--;
        out->used = at;
        return;
    }
    p->stamp = s->rules.version;
    p->count = RULES_ENTRIES;
    memcpy(p + 1, s->rules.owner, RACK_SHARDS);
    out->packet[out->packets - 1].len += RACK_SHARDS;
    out->used += RACK_SHARDS;
}

uint32_t racks_keep_own(const struct rack_rules *rules, uint16_t rack, struct fission_packet *p, uint32_t len)
{
    struct fission_entry *entries = (struct fission_entry *)(p + 1);
    uint16_t kept = 0;
    if (len < sizeof *p || p->head.type != FISSION_REPORT || len != sizeof *p + p->count * sizeof *entries)
        return len;
    for (uint16_t i = 0; i < p->count; i++)
        if (rules->owner[parts_shard(entries[i].nonce)] == rack)
            entries[kept++] = entries[i];
    p->count = kept;
    return (uint32_t)(sizeof *p + kept * sizeof *entries);
}

void racks_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct racks_switch *s = state;
    const struct fission_packet *p = data;
    if (len >= sizeof *p && p->head.type == FISSION_ACQUIRE && s->rules.owner[parts_shard(p->head.index)] != s->config.rack) {
        s->drops.stale++; /* of another switch's lock: its host hears of the new table with its next heartbeat */
        return;
    }
    _Alignas(8) uint8_t report[PACKET_MAX];
    if (len >= sizeof *p && len <= sizeof report && p->head.type == FISSION_REPORT) {
        memcpy(report, data, len);
        p = data = report;
        len = racks_keep_own(&s->rules, s->config.rack, (struct fission_packet *)report, len);
    }
    unsigned before = out->packets;
    fisslock_switch_packet(s->decider, data, len, now, out);
    if (len >= sizeof *p && p->head.type == FISSION_LEASE && out->packets == before + 1)
        add_rules(s, out);
}

const struct packet_design fisslock_racks_packets = {FISSLOCK_RACKS_PACKETS, .draws = FISSION_WRITE_PREFERRING | FISSLOCK_PRIORITY};
