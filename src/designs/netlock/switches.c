/* SPDX-License-Identifier: Apache-2.0 */
/* Several lock switches in one rack, each with its share of the locks and of the lock servers, and with a steward of its own: as
 * many NetLocks side by side, which know nothing of each other. Hosts take part in all of them (designs/packet/parts.h), so
 * deadlocks may go through several; those are found. */
#include "designs/netlock/switches.h"
#include "designs/netlock/host.h"
#include "designs/packet/parts.h"

/* ---- hosts ---- */

uint64_t switches_host_bytes(const struct rack_config *config)
{
    return parts_host_bytes(PARTS_NETLOCK, config);
}

void switches_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    parts_host_init(PARTS_NETLOCK, host, config, machine, life, now);
    for (unsigned d = 0; d < config->racks; d++)
        ((struct requests *)parts_part(host, d))->part_bytes = ((const struct parts_host *)host)->part_bytes;
}

/* ---- switches and servers ---- */

uint64_t switches_switch_bytes(const struct rack_config *config)
{
    const struct rack_config part = parts_config(config, config->rack);
    return netlock_switch_bytes(&part);
}

void switches_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    const struct rack_config part = parts_config(config, config->rack);
    netlock_switch_init(state, &part, life, now);
}

static struct rack_config server_config(const struct rack_config *c, uint16_t machine)
{
    return parts_config(c, parts_of_server(c, rack_server_on(c, machine)));
}

uint64_t switches_server_bytes(const struct rack_config *config)
{
    const struct rack_config part = parts_config(config, 0);
    return netlock_server_bytes(&part); /* has room for all locks, whichever part it is of */
}

void switches_server_init(void *server, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh, uint64_t now)
{
    const struct rack_config part = server_config(config, machine);
    netlock_server_init(server, &part, machine, life, fresh, now);
}

/* ---- stewards ---- */

struct stewards {
    struct rack_config config;
    uint64_t each; /* bytes */
    _Alignas(CACHE_LINE) char memory[];
};

static uint64_t steward_bytes(const struct rack_config *config)
{
    const struct rack_config part = parts_config(config, 0);
    return round_up(netlock_steward_bytes(&part), CACHE_LINE);
}

uint64_t switches_steward_bytes(const struct rack_config *config)
{
    return sizeof(struct stewards) + config->racks * steward_bytes(config);
}

ONCE void switches_steward_init(void *state, const struct rack_config *config, uint32_t life, bool fresh, uint64_t now)
{
    struct stewards *s = state;
    s->config = *config;
    s->each = steward_bytes(config);
    for (unsigned d = 0; d < config->racks; d++) {
        const struct rack_config part = parts_config(config, d);
        netlock_steward_init(s->memory + d * s->each, &part, life, fresh, now);
    }
}

void switches_steward_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct stewards *s = state;
    const struct packet_head *h = data;
    uint32_t part = len >= sizeof *h ? h->space - rack_space_id(&s->config, 0) : UINT32_MAX;
    if (part < s->config.racks)
        netlock_steward_packet(s->memory + part * s->each, data, len, now, out);
}

uint64_t switches_steward_tick(void *state, uint64_t now, struct outbox *out)
{
    struct stewards *s = state;
    uint64_t next = UINT64_MAX;
    for (unsigned d = 0; d < s->config.racks; d++)
        next = min_u64(next, netlock_steward_tick(s->memory + d * s->each, now, out));
    return next;
}

void switches_steward_hosts(void *state, const uint64_t *hosts, unsigned words)
{
    struct stewards *s = state;
    for (unsigned d = 0; d < s->config.racks; d++)
        netlock_steward_hosts(s->memory + d * s->each, hosts, words);
}

uint32_t switches_steward_since(void *state, uint32_t life)
{
    struct stewards *s = state;
    uint32_t latest = 0;
    for (unsigned d = 0; d < s->config.racks; d++)
        latest = (uint32_t)max_u64(latest, netlock_steward_since(s->memory + d * s->each, life));
    return latest;
}
