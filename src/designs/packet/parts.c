/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/packet/parts.h"
#include "designs/fisslock/fisslock.h"
#include "designs/netlock/switches.h"

#include <errno.h>

static const struct packet_design *const designs_of_parts[] = {
    [PARTS_FISSLOCK] = &fisslock_packets, [PARTS_NETLOCK] = &netlock_packets};

static const struct packet_design *design_of(const void *host)
{
    uint32_t design = ((const struct parts_host *)host)->design;
    assert(design < countof(designs_of_parts));
    return designs_of_parts[design];
}

struct rack_config parts_config(const struct rack_config *c, unsigned rack)
{
    struct rack_config part = *c;
    part.space = rack_space_id(c, rack);
    part.rack = (uint16_t)rack;
    part.servers = 0;
    memset(part.server, 0, sizeof part.server);
    for (unsigned i = 0; i < c->servers; i++)
        if (parts_of_server(c, i) == rack)
            part.server[part.servers++] = c->server[i];
    return part;
}

static uint64_t part_bytes(enum parts_of design, const struct rack_config *config)
{
    uint64_t bytes = 0;
    for (unsigned d = 0; d < config->racks; d++) {
        const struct rack_config part = parts_config(config, d);
        bytes = max_u64(bytes, designs_of_parts[design]->host_bytes(&part));
    }
    return round_up(bytes, UNDO_LINE);
}

uint64_t parts_host_bytes(enum parts_of design, const struct rack_config *config)
{
    return round_up(sizeof(struct parts_host), UNDO_LINE) + round_up(rack_requests(config), UNDO_LINE) +
           config->racks * part_bytes(design, config);
}

ONCE void parts_host_init(enum parts_of design, void *host, const struct rack_config *config, uint16_t machine, uint32_t life,
                          uint64_t now)
{
    struct parts_host *h = host;
    assert(config->racks && config->racks <= RACKS_MAX);
    memset(h, 0, sizeof *h);
    h->config = *config;
    h->rules = rack_rules_first(config->racks);
    if (MISTAKE(config->mistakes, PARTS_MISTAKE_TABLE))
        for (unsigned s = 0; s < RACK_SHARDS; s++)
            h->rules.owner[s] = (uint8_t)((s + machine) % config->racks);
    h->design = design;
    h->racks_at = round_up(sizeof *h, UNDO_LINE);
    h->parts_at = h->racks_at + round_up(rack_requests(config), UNDO_LINE);
    h->part_bytes = part_bytes(design, config);
    memset((char *)host + h->racks_at, 0, rack_requests(config));
    for (unsigned d = 0; d < config->racks; d++) {
        const struct rack_config part = parts_config(config, d);
        designs_of_parts[design]->host_init(parts_part(host, d), &part, machine, life, now);
    }
}

/* The part that a request of this host is in. */
static void *part_of(const void *host, uint32_t request)
{
    assert(request < rack_requests(&((const struct parts_host *)host)->config));
    return parts_of_request(host, request);
}

static unsigned parts(const void *host)
{
    return ((const struct parts_host *)host)->config.racks;
}

/* ---- calls for the part in which the request is ---- */

int parts_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    const struct parts_host *h = host;
    assert(design_of(h)->idle(part_of(host, ask->request), ask->request));
    if (ask->index >= h->config.locks)
        return -EINVAL;
    uint8_t *rack = parts_rack(host, ask->request);
    outbox_touch(out, rack, 1);
    *rack = h->rules.owner[parts_shard(ask->index)];
    return design_of(h)->acquire(parts_part(host, *rack), ask, now, out);
}

int parts_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    return design_of(host)->release(part_of(host, request), request, now, out);
}

int parts_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    return design_of(host)->give_up(part_of(host, request), request, why, now, out);
}

int parts_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    return design_of(host)->convert(part_of(host, request), request, mode, now, out);
}

void parts_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out)
{
    design_of(host)->thread(part_of(host, request), request, thread, now, out);
}

bool parts_wanted(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    return design_of(host)->wanted(part_of(host, request), request, now, out);
}

int parts_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    return design_of(host)->outcome(part_of(host, request), request, out);
}

bool parts_idle(const void *host, uint32_t request)
{
    return design_of(host)->idle(part_of(host, request), request);
}

bool parts_holds(const void *host, uint32_t request)
{
    return design_of(host)->holds(part_of(host, request), request);
}

bool parts_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    return design_of(host)->claim(part_of(host, request), request, out);
}

/* ---- calls for all parts ---- */

bool parts_use(void *host, uint64_t index, uint64_t now, struct outbox *out)
{
    bool any = false;
    for (unsigned d = 0; d < parts(host); d++)
        any |= design_of(host)->uses(parts_part(host, d), index, now, out);
    return any;
}

void parts_leave(void *host, uint64_t now, struct outbox *out)
{
    for (unsigned d = 0; d < parts(host); d++)
        design_of(host)->leave(parts_part(host, d), now, out);
}

uint64_t parts_expiry(const void *host, uint32_t session)
{
    uint64_t until = UINT64_MAX;
    for (unsigned d = 0; d < parts(host); d++)
        until = min_u64(until, design_of(host)->expiry(parts_part(host, d), session));
    return until;
}

void parts_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    for (unsigned d = 0; d < parts(host); d++)
        design_of(host)->session_dead(parts_part(host, d), session, now, out);
}

uint64_t parts_tick(void *host, uint64_t now, struct outbox *out)
{
    uint64_t next = UINT64_MAX;
    for (unsigned d = 0; d < parts(host); d++)
        next = min_u64(next, design_of(host)->tick(parts_part(host, d), now, out));
    return next;
}

void parts_rouse(void *host, uint64_t now, struct outbox *out)
{
    for (unsigned d = 0; d < parts(host); d++)
        design_of(host)->rouse(parts_part(host, d), now, out);
}

void parts_switch_gone(void *host, unsigned rack, uint64_t now, struct outbox *out)
{
    if (rack < parts(host))
        design_of(host)->switch_gone(parts_part(host, rack), 0, now, out);
}

void parts_server_since(void *host, uint16_t machine, uint32_t life, struct outbox *out)
{
    for (unsigned d = 0; d < parts(host); d++)
        design_of(host)->server_since(parts_part(host, d), machine, life, out);
}

void parts_renew(void *host, uint64_t now, struct outbox *out)
{
    for (unsigned d = 0; d < parts(host); d++)
        design_of(host)->renew(parts_part(host, d), now, out);
}

struct packet_grants parts_host_grants(const void *host)
{
    struct packet_grants sum = {0};
    for (unsigned d = 0; d < parts(host); d++) {
        const struct packet_grants g = design_of(host)->host_grants(parts_part(host, d));
        sum.by_switch += g.by_switch;
        sum.by_agent += g.by_agent;
        sum.by_server += g.by_server;
        sum.local += g.local;
    }
    return sum;
}

struct packet_drops parts_host_drops(const void *host)
{
    struct packet_drops sum = ((const struct parts_host *)host)->drops; /* packets of no part */
    for (unsigned d = 0; d < parts(host); d++) {
        const struct packet_drops part = design_of(host)->host_drops(parts_part(host, d));
        sum.bad += part.bad;
        sum.alien += part.alien;
        sum.stale += part.stale;
        sum.unreadable += part.unreadable;
    }
    return sum;
}

void parts_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct parts_host *h = host;
    const struct packet_head *p = data;
    uint32_t rack = len >= sizeof *p ? p->space - rack_space_id(&h->config, 0) : UINT32_MAX;
    if (rack >= h->config.racks) {
        outbox_touch(out, &h->drops, sizeof h->drops);
        h->drops.alien++;
        return;
    }
    design_of(h)->packet(parts_part(host, rack), data, len, now, out);
}
