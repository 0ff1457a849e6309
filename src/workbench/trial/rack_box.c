/* SPDX-License-Identifier: Apache-2.0 */
/* Machines of the simulated rack with one part of the design each and no clients: lock servers, the steward, a backup of the
 * switch, and a switch that takes the place of a lost one. */
#include "wire/many.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <stdlib.h>

#define LIVES_APART 1000u /* terms of the steward: fewer are given in one of its lives */

static uint64_t box_clock(const struct rack_box *b)
{
    return sim_host_clock(b->process->host, sim_now(&b->rack->sim));
}

static void box_tick(void *arg, uint64_t tag);

static bool is_member(const struct rack_box *b)
{
    return b->kind == RACK_SERVER || b->kind == RACK_SWITCH;
}

/* Whether it is a member, if there is a coordinator. */
static bool box_decides(struct rack_box *b)
{
    return !b->rack->coordinator || !is_member(b) || rack_member_decides(&b->member);
}

static void tick_at(struct rack_box *b, uint64_t at_ns)
{
    if (at_ns >= b->tick_ns)
        return;
    b->tick_ns = at_ns;
    sim_at_timer(&b->rack->sim, at_ns, box_tick, b, at_ns);
}

void rack_box_flush(struct rack_box *b)
{
    rack_send_all(b->rack, b->process->host);
    rack_clear_outbox(b->rack);
    tick_at(b, sim_now(&b->rack->sim) + b->rack->config.retry_ns);
}

static void box_tick(void *arg, uint64_t tag)
{
    struct rack_box *b = arg;
    struct rack *r = b->rack;
    const struct sim_host *host = b->process->host;
    if (tag != b->tick_ns)
        return;
    b->tick_ns = UINT64_MAX;
    if (!host->up || !b->tick)
        return;
    if (!box_decides(b)) {
        if (b->member.joined) /* it may go on as it was */
            tick_at(b, sim_now(&r->sim) + r->config.retry_ns);
        return;
    }
    if (host->paused_until_ns > sim_now(&r->sim)) {
        tick_at(b, host->paused_until_ns);
        return;
    }
    uint64_t next = b->tick(b->memory, box_clock(b), &r->outbox);
    rack_send_all(r, host);
    rack_clear_outbox(r);
    if (next != UINT64_MAX)
        tick_at(b, max_u64(sim_host_clock_inverse(host, next), sim_now(&r->sim) + b->tick_min_ns));
}

static void box_part(void *box, const void *data, uint32_t len)
{
    struct rack_box *b = box;
    if (b->rack->coordinator && is_member(b) && !rack_member_admits(&b->member, data, len, b->from, true))
        return;
    b->packet(b->memory, data, len, box_clock(b), &b->rack->outbox);
    rack_watch_generation(b->rack, b->newest, data);
}

static void handle(void *box, const void *data, uint32_t len)
{
    struct rack_box *b = box;
    box_part(b, data, len);
    rack_box_flush(b);
}

static void handle_late(void *box, const void *data, uint32_t len)
{
    struct rack_box *b = box;
    const struct packet_head *h = data;
    if (h->from.machine && h->from.machine <= b->rack->config.machines)
        b->from.host = b->rack->host_of[h->from.machine];
    handle(b, data, len);
}

static void box_packet(void *ctx, const void *data, uint32_t len, struct sim_addr from)
{
    struct rack_box *b = ctx;
    const struct packet_head *h = data;
    if (b->rack->coordinator && len >= sizeof *h && h->family == PACKET_COORDINATOR) {
        rack_member_packet(&b->member, data, len);
        return;
    }
    if (!box_decides(b))
        return;
    b->from = from;
    if (many_is(data, len)) {
        rack_send_singly(b->rack, b->process->host, data, len);
        rack_each_part(data, len, box_part, b);
        rack_box_flush(b);
        return;
    }
    handle(b, data, len);
    if (b->kind == RACK_SWITCH && b->rack->design->switch_stale && b->rack->design->switch_stale(b->memory))
        rack_member_rejoin(&b->member);
    rack_come_late(b->rack, b->newest, data, len, handle_late, b);
}

static void box_unparked(struct rack_member *m, const void *data, uint32_t len, struct sim_addr from)
{
    box_packet(container_of(m, struct rack_box, member), data, len, from);
}

static void server_begin(struct rack_box *b, const struct rack_config *config, uint32_t life, bool first)
{
    struct rack *r = b->rack;
    const struct packet_design *d = r->design;
    d->server_init(b->memory, config, b->machine, life, first, box_clock(b));
    if (r->params.apply)
        d->server_apply(b->memory, r->params.apply, r->params.user);
    if (d->spills || d->steward_packet)
        tick_at(b, sim_now(&r->sim) + 1); /* it speaks first */
}

static uint64_t bytes_of(const struct rack_box *b, const struct rack_config *c)
{
    const struct packet_design *d = b->rack->design;
    return b->kind == RACK_SERVER ? d->server_bytes(c) : b->kind == RACK_STEWARD ? d->steward_bytes(c) : d->switch_bytes(c);
}

void rack_box_welcome(struct rack_member *m)
{
    struct rack_box *b = container_of(m, struct rack_box, member);
    struct rack *r = b->rack;
    struct rack_config config = m->core.welcome.said.config;
    config.switch_locks = r->config.switch_locks;
    memset(b->memory, 0, bytes_of(b, &config));
    if (b->newest)
        memset(b->newest, 0, r->config.locks * sizeof *b->newest);
    if (b->kind == RACK_SWITCH) {
        rack_switch_begin(m, b->memory, box_clock(b));
        sim_note(&r->sim, "SWITCH", b->process->host->id, m->core.welcome.said.packet.head.generation, 0);
    } else {
        b->machine = m->core.welcome.said.packet.head.to.machine;
        r->host_of[b->machine] = b->process->host->id;
        server_begin(b, &config, m->core.welcome.said.packet.head.generation, !b->started && !b->spare);
    }
    b->started = true;
    b->tick_ns = UINT64_MAX;
    tick_at(b, sim_now(&r->sim) + 1);
}

/* Its memory has room for all locks that there may be. */
void rack_box_grow(struct rack_member *m, uint64_t locks)
{
    struct rack_box *b = container_of(m, struct rack_box, member);
    b->rack->design->server_grow(b->memory, locks);
    m->core.welcome.said.config.locks = locks;
    sim_note(&b->rack->sim, "GROWN", b->process->host->id, locks, 0);
}

static int server_start(struct rack_box *b)
{
    struct rack *r = b->rack;
    bool first = b->process->host->births == 1;
    uint32_t life = r->design->spills && !first ? ++r->life : (uint32_t)b->process->host->births; /* one order with the switch's */
    if (r->coordinator)
        rack_member_start(&b->member);
    else
        server_begin(b, &r->config, life, first);
    return sim_wire_bind(r->wire, b->process, PORT_SERVER, r->params.cores, model_get(r->sim.model, MODEL_server_service_ns),
                         box_packet, b);
}

int rack_box_start(struct rack_box *b)
{
    const struct packet_design *d = b->rack->design;
    const struct rack_config *c = &b->rack->config;
    uint32_t life = (uint32_t)b->process->host->births;
    sim_give_back(b->memory);
    b->memory = sim_alloc(bytes_of(b, c));
    if (!b->memory)
        return -ENOMEM;
    b->tick_ns = UINT64_MAX;
    if (b->kind == RACK_SERVER)
        return server_start(b);
    if (b->kind == RACK_SWITCH) {
        rack_member_start(&b->member);
        return sim_wire_bind(b->rack->wire, b->process, PORT_SERVER, 0, 0, box_packet, b);
    }
    if (b->kind == RACK_BACKUP) {
        d->switch_init(b->memory, c, life, box_clock(b));
        d->switch_number(b->memory, 1);
    } else {
        d->steward_init(b->memory, c, life * LIVES_APART, life == 1, box_clock(b));
    }
    tick_at(b, sim_now(&b->rack->sim) + 1);
    return sim_wire_bind(b->rack->wire, b->process, b->kind == RACK_BACKUP ? 1 : PORT_POOL, 0, 0, box_packet, b);
}

int rack_box_add(struct rack *r, struct rack_box *b, enum rack_box_kind kind, struct sim_host *host)
{
    const struct packet_design *d = r->design;
    b->rack = r;
    b->kind = kind;
    b->tick_min_ns = kind == RACK_SERVER ? 1 : NS_PER_US;
    b->tick = kind == RACK_SERVER ? d->server_tick : kind == RACK_STEWARD ? d->steward_tick : d->switch_tick;
    b->packet = kind == RACK_SERVER ? d->server_packet : kind == RACK_STEWARD ? d->steward_packet : d->switch_packet;
    if (!host || !(b->process = sim_process_new(host)))
        return -ENOMEM;
    b->member = (struct rack_member){.rack = r,
                                     .host = host,
                                     .port = PORT_SERVER,
                                     .role = kind == RACK_SWITCH ? COORD_SWITCH : COORD_SERVER,
                                     .welcomed = rack_box_welcome,
                                     .packet = box_unparked};
    host->server = true;
    bool alone = kind == RACK_SWITCH && !r->config.switch_locks; /* else it passes packets on to servers */
    bool watched = alone || (kind == RACK_SERVER && (d->family == PACKET_SERVER || d->family == PACKET_NETLOCK));
    if (r->coordinator && watched && !(b->newest = sim_alloc(r->config.locks * sizeof *b->newest)))
        return -ENOMEM;
    return rack_box_start(b);
}

void rack_box_free(struct rack_box *b)
{
    sim_give_back(b->memory);
    sim_give_back(b->newest);
    rack_member_stop(&b->member);
}
