/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/rack.h"
#include "designs/packet/chase.h"
#include "lib/hash.h"
#include "wire/many.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_NS (3 * NS_PER_MS) /* how often the end of the run is looked for */
#define TICK_MIN_NS NS_PER_US    /* between two ticks of a host: no machine is woken more often */
#define REQUESTS 16              /* of one session: more than any workload here has at once, and what is still being released */
#define ROOM_SALT UINT64_C(0x726f6f6d)
#define CROWDED_BYTES 128u    /* room for one packet of most kinds */
#define WAITS_WINDOW_FACTOR 9 /* patiences of a wait: of the eight that a design may take to be sure, on a slower clock */

uint64_t rack_clock(const struct rack_host *h)
{
    return sim_host_clock(h->host, sim_now(&h->rack->sim));
}

/* ---- what comes out of the design ---- */

/* The lock server at this host, as a member. */
static const struct rack_member *server_at(const struct rack *r, const struct sim_host *host)
{
    for (unsigned i = 0; i < r->server_count; i++)
        if (r->servers[i].process->host == host)
            return &r->servers[i].member;
    const struct rack_box *other = &r->spare_switch;
    return other->process && other->process->host == host ? &other->member : &r->spare.member;
}

uint32_t rack_sim_host(const struct rack *r, const struct rack_member *from, struct place to)
{
    if (to.machine == MACHINE_SWITCH)
        return to.port == 1 && r->backup.process ? r->backup.process->host->id : SIM_WIRE_SWITCH;
    if (to.machine == MACHINE_STEWARD && r->coordinator)
        return rack_sim_addr(coord_list_at(&from->core.join.coordinators)).host;
    if (to.machine == MACHINE_STEWARD && r->steward.process)
        return r->steward.process->host->id;
    for (unsigned n = 0; r->coordinator && n < r->config.servers; n++) { /* what the coordinator has told the sender */
        struct net_addr at = from->core.welcome.servers[n];
        if (r->config.server[n] == to.machine && (net_addr_known(at) || at.port == COORD_AWAY))
            return net_addr_known(at) ? rack_sim_addr(at).host : RACK_NOWHERE;
    }
    return to.machine < r->config.machines + r->server_count + 1u ? r->host_of[to.machine] : SIM_HOSTS_MAX + 1;
}

/* In the middle of the star the switch sees all packets. One elsewhere sees what is sent to it. */
static uint32_t through_switch(struct net_addr at, uint32_t host)
{
    return net_addr_known(at) && rack_sim_addr(at).host != SIM_WIRE_SWITCH ? rack_sim_addr(at).host : host;
}

/* Where a host sends to for a lock server or a switch: what the coordinator said last, as long as the host is a member. */
static uint32_t seen_by(const struct rack *r, const struct rack_member *m, const struct packet_head *h, uint32_t host)
{
    for (unsigned n = 0; n < r->config.servers; n++) {
        struct net_addr at = m->core.welcome.servers[n];
        if (r->config.server[n] == h->to.machine && (net_addr_known(at) || at.port == COORD_AWAY))
            return net_addr_known(at) ? rack_sim_addr(at).host : RACK_NOWHERE;
    }
    struct net_addr at = m->core.welcome.said.switches[rack_switch_of(&m->core.welcome.said.config, h)];
    if (!net_addr_known(at) && (h->to.machine == MACHINE_SWITCH || r->design->switch_expect))
        return RACK_NOWHERE;
    return through_switch(at, host);
}

static uint32_t seen_from(const struct rack *r, const struct sim_host *from, const struct packet_head *h, uint32_t host)
{
    for (unsigned i = 0; r->coordinator && i < r->params.hosts; i++)
        if (r->hosts[i].host == from)
            return seen_by(r, &r->hosts[i].member, h, host);
    const struct rack_box *other = &r->spare_switch;
    bool by_switch =
        other->process && other->process->host != from && r->design->spills; /* a lock server sends all to the switch */
    return by_switch ? through_switch(server_at(r, from)->core.welcome.said.switches[0], host) : host;
}

void rack_each_part(const void *data, uint32_t len, void (*packet)(void *ctx, const void *data, uint32_t len), void *ctx)
{
    const struct packet_head *h;
    uint32_t at = 0, part = 0;
    for (unsigned i = 0; many_sound(data, len) && (h = many_next(data, &i, &at, &part));)
        packet(ctx, h, part);
}

struct route {
    struct sim_addr from, to;
};

static struct route route_of(const struct rack *r, const struct sim_host *from, const struct packet_head *h)
{
    const struct sim_process *other = r->spare_switch.process;
    uint32_t to = seen_from(r, from, h, rack_sim_host(r, server_at(r, from), h->to));
    return (struct route){.from = {.host = from->id, .port = h->from.port},
                          .to = {.host = to, .port = other && to == other->host->id ? PORT_SERVER : h->to.port}};
}

static bool same_route(struct route a, struct route b)
{
    return a.from.host == b.from.host && a.from.port == b.from.port && a.to.host == b.to.host && a.to.port == b.to.port;
}

/* The packets from `first` on that go the same way, as parts of one datagram (wire/many.h). Marks those; one alone is sent as it
 * is. */
static void send_parts(struct rack *r, const struct sim_host *from, unsigned first, struct route way, bool *sent)
{
    const struct outbox *o = &r->outbox;
    _Alignas(8) uint8_t data[PACKET_MAX];
    struct many_front *front = (struct many_front *)(void *)data;
    uint64_t locks[PACKET_MANY_MAX] = {0};
    uint32_t used = sizeof *front, before = used;
    many_begin(front, outbox_packet(o, first));
    for (unsigned i = first; i < o->packets; i++, before = used) {
        const struct packet_head *h = outbox_packet(o, i);
        if (sent[i] || !many_takes(h, o->packet[i].len) || !same_route(route_of(r, from, h), way) ||
            many_has(locks, front->many.count, h->index) || !many_add(front, o->packet[i].len, &used))
            continue;
        locks[front->many.count - 1] = h->index;
        memcpy(data + before, h, o->packet[i].len);
        sent[i] = true;
    }
    r->packets++;
    if (front->many.count > 1)
        sim_wire_send(r->wire, way.from, way.to, data, used);
    else
        sim_wire_send(r->wire, way.from, way.to, outbox_packet(o, first), o->packet[first].len);
}

void rack_send_singly(struct rack *r, const struct sim_host *from, const void *data, uint32_t len)
{
    const struct packet_head *h;
    uint32_t at = 0, part = 0;
    for (unsigned i = 0; many_sound(data, len) && (h = many_next_singly(data, &i, &at, &part));) {
        const struct route way = route_of(r, from, h);
        r->packets++;
        if (way.to.host != RACK_NOWHERE)
            sim_wire_send(r->wire, way.from, way.to, h, part);
    }
}

void rack_send_all(struct rack *r, const struct sim_host *from)
{
    const struct outbox *o = &r->outbox;
    bool sent[OUTBOX_PACKETS] = {false};
    for (unsigned i = 0; i < o->packets; i++) {
        const struct packet_head *h = outbox_packet(o, i);
        const struct route way = route_of(r, from, h);
        if (way.to.host == RACK_NOWHERE || sent[i])
            continue;
        assert(way.to.host <= SIM_WIRE_SWITCH);
        if (r->params.together && many_takes(h, o->packet[i].len)) {
            send_parts(r, from, i, way, sent);
            continue;
        }
        r->packets++;
        sim_wire_send(r->wire, way.from, way.to, h, o->packet[i].len);
    }
}

/* While faults strike, some events find room for two packets at most: as if a burst had come before them. What does not fit must be
 * sent later. */
void rack_clear_outbox(struct rack *r)
{
    outbox_clear(&r->outbox);
    if (r->params.crowd && sim_now(&r->sim) < r->params.safety_ns && rng_chance(&r->room, 1, r->params.crowd))
        r->outbox.used = OUTBOX_BYTES - (uint32_t)rng_below(&r->room, 3) * CROWDED_BYTES;
}

static void tick_soon(struct rack_host *h, uint64_t at_ns);

/* Deadlocks are what the design says they are, in the moment that it does. */
static void look_at_verdict(struct rack_host *h, uint32_t request)
{
    struct rack *r = h->rack;
    const struct rack_client *c = h->clients[request / r->config.requests];
    struct packet_answer answer;
    if (!r->params.watch_waits || !c || r->design->outcome(h->memory, request, &answer) || answer.result != -EDEADLK)
        return;
    for (unsigned i = 0; i < r->params.tasks; i++) {
        unsigned actor = c->id * ACTORS_MAX + i;
        if (r->waits.actors[actor].waiting && r->waits.actors[actor].request == request)
            r->params.on_deadlock(r->params.user, c->id, i, waits_deadlocked(&r->waits, actor, sim_now(&r->sim)));
    }
}

void rack_host_flush(struct rack_host *h)
{
    struct rack *r = h->rack;
    struct outbox *o = &r->outbox;
    rack_host_commit(h);
    rack_send_all(r, h->host);
    for (unsigned i = 0; i < o->wakes; i++) {
        struct sim_ticket *t = &h->waiters[o->wake[i]];
        look_at_verdict(h, o->wake[i]);
        if (t->task)
            sim_ticket_wake_at(*t, sim_now(&r->sim));
    }
    assert(!o->crowded); /* there are fewer requests than room */
    rack_clear_outbox(r);
    tick_soon(h, sim_now(&r->sim) + r->config.retry_ns);
}

/* ---- hosts ---- */

/* Sessions whose lease has run out are lost, by the clock that they, too, have. */
static void look_after_sessions(struct rack_host *h)
{
    for (uint32_t s = 0; s < h->rack->config.sessions; s++) {
        struct rack_client *c = h->clients[s];
        if (c && c->open && !c->lost && rack_clock(h) >= c->until_ns) {
            c->lost = true;
            h->rack->design->session_dead(h->memory, s, rack_clock(h), rack_host_outbox(h));
            rack_host_flush(h);
        }
    }
}

void rack_session_dead(struct rack_client *c)
{
    struct rack_host *h = c->host;
    h->rack->design->session_dead(h->memory, c->session, rack_clock(h), rack_host_outbox(h));
    rack_host_flush(h);
}

/* A tick is any process's of the host, or the pool's: its packets leave through that socket and are answered there, and by then the
 * process may be gone. */
static void leave_through_any(struct rack_host *h)
{
    struct outbox *o = &h->rack->outbox;
    uint64_t session = mix64(sim_now(&h->rack->sim) ^ h->machine) % (h->rack->config.sessions + UINT64_C(1));
    const struct rack_client *c = session < h->rack->config.sessions ? h->clients[session] : NULL;
    for (unsigned i = 0; i < o->packets; i++) {
        struct packet_head *head = (struct packet_head *)(void *)(o->bytes + o->packet[i].at);
        head->from.port = c && c->open ? rack_client_port(c) : PORT_POOL;
    }
}

static void host_tick(void *arg, uint64_t tag)
{
    struct rack_host *h = arg;
    struct rack *r = h->rack;
    if (tag != h->tick_ns)
        return; /* an earlier one was needed meanwhile */
    h->tick_ns = UINT64_MAX;
    if (!h->host->up || !rack_host_joined(h))
        return; /* it starts with the host */
    if (h->host->paused_until_ns > sim_now(&r->sim)) {
        tick_soon(h, h->host->paused_until_ns);
        return;
    }
    look_after_sessions(h);
    uint64_t next = r->design->tick(h->memory, rack_clock(h), rack_host_outbox(h));
    h->tick_ns = 0; /* none from the flush: */
    leave_through_any(h);
    rack_host_flush(h);
    h->tick_ns = UINT64_MAX;
    next = min_u64(next, rack_clock(h) + r->params.lease_ns / 4); /* the sessions' leases are looked at, too */
    tick_soon(h, max_u64(sim_host_clock_inverse(h->host, next), sim_now(&r->sim) + TICK_MIN_NS));
}

static void tick_soon(struct rack_host *h, uint64_t at_ns)
{
    if (at_ns >= h->tick_ns)
        return;
    h->tick_ns = at_ns;
    sim_at_timer(&h->rack->sim, at_ns, host_tick, h, at_ns);
}

static void coordinator_packet_for_host(struct rack_host *h, const void *data, uint32_t len, struct sim_addr from)
{
    const struct coord_packet *p = coord_check(data, len, 0);
    if (p && p->head.type == COORD_FOUND)
        rack_found(h, data);
    else if (p && p->head.type == COORD_VALUED)
        rack_valued(h, data);
    else if (p && p->head.type == COORD_RETIRE)
        rack_retire(h, data, from);
    else if (p && p->head.type == COORD_ROUSE && rack_host_joined(h) && h->rack->design->rouse &&
             p->head.epoch == h->member.core.welcome.said.packet.head.generation) {
        h->rack->design->rouse(h->memory, rack_clock(h), rack_host_outbox(h));
        rack_host_flush(h);
    } else
        rack_member_packet(&h->member, data, len);
}

static void host_part(void *ctx, const void *data, uint32_t len)
{
    struct rack_host *h = ctx;
    h->rack->design->packet(h->memory, data, len, rack_clock(h), rack_host_outbox(h));
    rack_host_commit(h);
}

static void host_packet(void *ctx, const void *data, uint32_t len, struct sim_addr from)
{
    struct rack_host *h = ctx;
    const struct packet_head *head = data;
    if (h->rack->coordinator && len >= sizeof *head && head->family == PACKET_COORDINATOR) {
        coordinator_packet_for_host(h, data, len, from);
        return;
    }
    if (!rack_host_joined(h))
        return;
    if (many_is(data, len)) {
        rack_send_singly(h->rack, h->host, data, len);
        rack_each_part(data, len, host_part, h);
    } else {
        h->rack->design->packet(h->memory, data, len, rack_clock(h), rack_host_outbox(h));
    }
    rack_host_flush(h);
}

static void client_packet(void *ctx, const void *data, uint32_t len, struct sim_addr from)
{
    const struct rack_client *c = ctx;
    host_packet(c->host, data, len, from);
}

/* With that number and life the memory is new. */
static void host_begin(struct rack_host *h, const struct rack_config *config, uint32_t life)
{
    struct rack *r = h->rack;
    rack_host_changes_alone(h);
    h->life = life;
    memset(h->memory, 0, rack_memory_bytes(r));
    memset(h->waiters, 0, rack_requests(&r->config) * sizeof *h->waiters);
    r->design->host_init(h->memory, config, h->machine, life, rack_clock(h));
    h->tick_ns = UINT64_MAX;
    tick_soon(h, sim_now(&r->sim) + 1);
}

/* At first, and after a crash. */
static void host_start(struct rack_host *h)
{
    if (h->rack->coordinator)
        rack_member_start(&h->member);
    else
        host_begin(h, &h->rack->config, (uint32_t)h->host->births);
}

void rack_host_welcome(struct rack_member *m)
{
    struct rack_host *h = container_of(m, struct rack_host, member);
    struct rack *r = h->rack;
    h->machine = m->core.welcome.said.packet.head.to.machine;
    r->host_of[h->machine] = h->host->id;
    memset(h->known, 0, r->params.locks * sizeof *h->known);
    memset(&h->names, 0, sizeof h->names);
    host_begin(h, &m->core.welcome.said.config, m->core.welcome.said.packet.head.generation);
    for (uint32_t s = 0; s < r->config.sessions; s++)
        if (h->clients[s] && !h->clients[s]->process->alive && !h->clients[s]->finished)
            sim_process_restart(h->clients[s]->process);
}

void rack_host_place(struct rack_member *m, unsigned server, uint32_t life)
{
    struct rack_host *h = container_of(m, struct rack_host, member);
    if (!h->rack->design->server_since)
        return;
    h->rack->design->server_since(h->memory, h->rack->config.server[server], life, rack_host_outbox(h));
    rack_host_flush(h);
}

void rack_host_grow(struct rack_member *m, uint64_t locks)
{
    struct rack_host *h = container_of(m, struct rack_host, member);
    if (!h->rack->design->host_grow || locks > h->rack->config.locks)
        return;
    h->rack->design->host_grow(h->memory, locks, rack_host_outbox(h));
    rack_host_flush(h);
}

void rack_host_switch_gone(struct rack_member *m, unsigned rack)
{
    struct rack_host *h = container_of(m, struct rack_host, member);
    if (!h->rack->design->switch_gone)
        return;
    h->rack->design->switch_gone(h->memory, rack, rack_clock(h), rack_host_outbox(h));
    rack_host_flush(h);
}

uint32_t rack_host_racks(const struct rack_member *m)
{
    const struct rack_host *h = container_of(m, struct rack_host, member);
    return h->rack->design->racks ? h->rack->design->racks(h->memory, rack_clock(h)) : 0;
}

/* All its sessions are lost: other processes take the place of theirs when the host has joined again. */
void rack_host_ended(struct rack_member *m)
{
    struct rack_host *h = container_of(m, struct rack_host, member);
    for (uint32_t s = 0; s < h->rack->config.sessions; s++)
        if (h->clients[s] && h->clients[s]->process->alive && !h->clients[s]->finished)
            sim_process_crash(h->clients[s]->process);
}

static int pool_bind(struct rack_host *h)
{
    struct rack *r = h->rack;
    return sim_wire_bind(r->wire, h->agent, PORT_POOL, r->params.pool_cores, model_get(r->sim.model, MODEL_agent_service_ns),
                         host_packet, h);
}

static int client_bind(struct rack_client *c)
{
    return sim_wire_bind(c->rack->wire, c->process, rack_client_port(c), 0, 0, client_packet, c);
}

/* ---- crashes and restarts ---- */

static void on_crashed(void *ctx, struct sim_process *process)
{
    struct rack *r = ctx;
    struct rack_client *c = process->user;
    rack_coordinator_crashed(r, process);
    for (unsigned i = 0; i < r->server_count && r->coordinator; i++)
        if (r->servers[i].process == process)
            rack_member_stop(&r->servers[i].member);
    if (process == r->spare.process)
        rack_member_stop(&r->spare.member);
    if (process == r->spare_switch.process)
        rack_member_stop(&r->spare_switch.member);
    for (unsigned i = 0; i < r->params.hosts && r->coordinator; i++)
        if (r->hosts[i].agent == process)
            rack_member_stop(&r->hosts[i].member);
    if (!c)
        return;
    if (c->open)
        r->lost++;
    c->open = false;
    for (unsigned i = 0; i < ACTORS_MAX && r->params.watch_waits; i++)
        waits_gone(&r->waits, c->id * ACTORS_MAX + i, sim_now(&r->sim));
    if (r->params.on_gone)
        r->params.on_gone(r->params.user, c->id);
    for (uint32_t i = 0; i < r->config.requests; i++)
        c->host->waiters[c->session * r->config.requests + i].task = NULL;
    if (process->host->up && !c->finished && rack_host_joined(c->host))
        rack_session_dead(c); /* the kernel tells the process that serves the pool */
}

static void on_restarted(void *ctx, struct sim_process *process)
{
    struct rack *r = ctx;
    struct rack_client *c = process->user;
    int rc = 0;
    if (c && !c->finished) {
        rc = client_bind(c);
        rack_client_start(c);
    }
    for (unsigned i = 0; i < r->params.hosts; i++)
        if (r->hosts[i].agent == process)
            rc = pool_bind(&r->hosts[i]);
    for (unsigned i = 0; i < r->server_count; i++)
        if (r->servers[i].process == process)
            rc = rack_box_start(&r->servers[i]);
    rack_coordinator_restarted(r, process);
    if (process == r->spare.process || process == r->spare_switch.process)
        rc = rack_box_start(process == r->spare.process ? &r->spare : &r->spare_switch);
    if (process == r->steward.process || process == r->backup.process)
        rc = rack_box_start(process == r->steward.process ? &r->steward : &r->backup);
    assert(!rc);
}

static void on_host_restarted(void *ctx, struct sim_host *host)
{
    struct rack *r = ctx;
    for (unsigned i = 0; i < r->params.hosts; i++)
        if (r->hosts[i].host == host)
            host_start(&r->hosts[i]);
}

/* ---- the rack ---- */

static int add_host(struct rack *r, unsigned i)
{
    struct rack_host *h = &r->hosts[i];
    h->rack = r;
    h->machine = (uint16_t)(i + 1);
    h->host = sim_host_new(&r->sim);
    h->memory = sim_alloc_lines(rack_memory_bytes(r));
    h->waiters = sim_alloc(rack_requests(&r->config) * sizeof *h->waiters);
    h->clients = sim_alloc(r->config.sessions * sizeof(struct rack_client *));
    if (!h->host || !h->memory || !h->waiters || !h->clients || !(h->agent = sim_process_new(h->host)))
        return -ENOMEM;
    if (r->params.check_undo) {
        h->before = sim_alloc(rack_memory_bytes(r));
        h->undo = sim_alloc(undo_bytes(rack_memory_bytes(r)));
        if (!h->before || !h->undo)
            return -ENOMEM;
        undo_init(h->undo, rack_memory_bytes(r));
    }
    h->host->server = r->params.mortal_hosts;
    r->host_of[h->machine] = h->host->id;
    h->member =
        (struct rack_member){.rack = r, .host = h->host, .port = PORT_POOL, .role = COORD_HOST, .welcomed = rack_host_welcome};
    if (r->coordinator && (!(h->known = sim_alloc(r->params.locks * sizeof *h->known)) ||
                           !(h->keys = sim_alloc(rack_requests(&r->config) * sizeof *h->keys))))
        return -ENOMEM;
    h->tick_ns = UINT64_MAX;
    host_start(h);
    return pool_bind(h);
}

static int add_server(struct rack *r, unsigned i)
{
    struct sim_host *host = r->design->on_hosts && !r->coordinator ? r->hosts[i].host : sim_host_new(&r->sim);
    r->servers[i].machine = r->config.server[i];
    if (host)
        r->host_of[r->config.server[i]] = host->id;
    return rack_box_add(r, &r->servers[i], RACK_SERVER, host);
}

static int add_client(struct rack *r, unsigned id)
{
    assert(r->params.hosts);
    struct rack_client *c = &r->clients[id];
    struct rack_host *h = &r->hosts[id % r->params.hosts];
    *c = (struct rack_client){.rack = r, .id = id, .host = h, .session = id / r->params.hosts, .process = sim_process_new(h->host)};
    if (!c->process)
        return -ENOMEM;
    h->clients[c->session] = c;
    c->process->user = c;
    c->process->crashable = id < r->params.mortals;
    for (unsigned i = 0; i < ACTORS_MAX; i++)
        c->tasks[i] = (struct rack_task){.client = c,
                                         .actor = {.ops = &rack_actor_ops,
                                                   .process = c->process,
                                                   .client = id,
                                                   .number = i,
                                                   .keys = PAWL_KEYS_DENSE,
                                                   .user = r->params.user}};
    int rc = client_bind(c);
    if (!rc)
        rack_client_start(c);
    return rc;
}

static void configure(struct rack *r)
{
    const struct rack_params *p = &r->params;
    assert(p->hosts);
    r->server_count = r->design->server_packet && (!r->design->spills || p->switch_locks) ? p->servers : 0;
    r->life = 1;
    r->longest_ns = p->lease_ns;
    r->config = (struct rack_config){
        .space = RACK_SPACE,
        .machines = (uint16_t)p->hosts,
        .sessions = (uint16_t)((p->clients + p->hosts - 1) / p->hosts),
        .requests = p->requests ? p->requests : REQUESTS,
        .servers = (uint16_t)r->server_count,
        .switches = p->backup && r->design->steward_packet && !r->design->divides ? 2 : 1,
        .locks = p->locks,
        .switch_locks = p->switch_locks,
        .lease_ns = p->lease_ns,
        .retry_ns = p->retry_ns,
        .options = packet_tuned(r->design, r->design->options | p->options, p->knobs),
        .mistakes = p->design->mistakes | p->mistakes,
        .racks = (uint16_t)(packet_divides(r->design) ? (p->racks ? p->racks : RACKS_DEFAULT) : 0),
    };
    if (r->design->divides && r->config.racks > r->server_count)
        r->config.racks = (uint16_t)r->server_count; /* each has its own */
    for (unsigned i = 0; i < r->server_count; i++)
        r->config.server[i] = (uint16_t)(r->design->on_hosts ? i + 1 : p->hosts + 1 + i);
}

static int add_all(struct rack *r)
{
    int rc = r->params.faults & FAULTS_COORDINATOR ? rack_coordinator_new(r) : 0;
    if (!rc && !(r->host_of = sim_alloc((r->config.machines + r->server_count + 1u) * sizeof *r->host_of)))
        rc = -ENOMEM;
    for (unsigned i = 0; i < r->params.hosts && !rc; i++)
        rc = add_host(r, i);
    for (unsigned i = 0; i < r->server_count && !rc; i++)
        rc = add_server(r, i);
    if (!rc && r->design->switch_packet)
        rc = rack_switch_start(r);
    if (!rc && r->design->steward_packet && !r->coordinator)
        rc = rack_box_add(r, &r->steward, RACK_STEWARD, sim_host_new(&r->sim));
    if (!rc && r->config.switches > 1) {
        sim_wire_redundant(r->wire);
        rc = rack_box_add(r, &r->backup, RACK_BACKUP, sim_host_new(&r->sim));
    }
    for (unsigned i = 0; i < r->params.clients && !rc; i++)
        rc = add_client(r, i);
    if (!rc && r->coordinator)
        rack_coordinator_begin(r);
    if (!rc && r->params.faults & (FAULT_BIT(FAULT_REPLAY) | FAULT_BIT(FAULT_FORGE)))
        rc = rack_replay_begin(r);
    return rc;
}

/* Beside the lock servers: the coordinator, steward, backup and spares, of which a rack may have some. */
#define RACK_OTHERS 5u

unsigned rack_sim_hosts(const struct rack_params *p)
{
    bool apart = !p->design->packet->on_hosts || p->faults & FAULTS_COORDINATOR; /* add_server */
    return p->hosts + (apart ? p->servers : 0) + RACK_OTHERS;
}

int rack_init(struct rack *r, const struct rack_params *p)
{
    const struct packet_design *d = p->design->packet;
    if (!d || !p->clients || p->clients > RACK_CLIENTS_MAX || !p->hosts || !p->tasks || p->tasks > ACTORS_MAX ||
        p->servers > RACK_SERVERS_MAX || (d->server_packet && !d->spills && !p->servers) ||
        (d->on_hosts && p->servers > p->hosts) || rack_sim_hosts(p) > SIM_HOSTS_MAX ||
        ((p->faults & FAULTS_COORDINATOR) && !rack_coordinates(p->design)))
        return -EINVAL;
    memset(r, 0, sizeof *r);
    r->params = *p;
    r->design = d;
    rng_seed(&r->room, p->seed ^ ROOM_SALT);
    configure(r);
    const struct sim_config config = {
        .model = p->model,
        .seed = p->seed,
        .faults = p->faults & FAULTS_ALL,
        .swarm = p->swarm,
        .safety_ns = p->safety_ns,
        .time_max_ns = p->time_max_ns,
        .tasks_max = p->clients * (p->tasks + 1) + 8, /* one of them for the coordinator */
        .trace = p->trace,
        .events_max = p->events_max,
        .chooser = p->chooser,
    };
    int rc = sim_init(&r->sim, &config);
    if (rc)
        return rc;
    r->wire = sim_wire_new(&r->sim);
    r->hosts = sim_alloc(p->hosts * sizeof *r->hosts);
    r->servers = sim_alloc((r->server_count + 1) * sizeof *r->servers);
    r->clients = sim_alloc(p->clients * sizeof *r->clients);
    const struct sim_hooks hooks = {
        .ctx = r, .process_crashed = on_crashed, .process_restarted = on_restarted, .server_restarted = on_host_restarted};
    sim_hooks_add(&r->sim, &hooks);
    if (r->wire)
        sim_wire_own(r->wire, PORT_SERVER);
    if (p->watch_waits && waits_init(&r->waits, p->clients * ACTORS_MAX, r->design->full_queues,
                                     WAITS_WINDOW_FACTOR * p->retry_ns << CHASE_DOUBLINGS_MAX)) {
        rack_free(r);
        return -ENOMEM;
    }
    r->waits.lease_ns = 2 * p->lease_ns;
    rc = r->wire && r->hosts && r->servers && r->clients ? add_all(r) : -ENOMEM;
    if (rc)
        rack_free(r);
    return rc;
}

void rack_free(struct rack *r)
{
    for (unsigned i = 0; r->hosts && i < r->params.hosts; i++) {
        rack_host_compare(&r->hosts[i]);
        sim_give_back(r->hosts[i].memory);
        sim_give_back(r->hosts[i].before);
        sim_give_back(r->hosts[i].undo);
        sim_give_back(r->hosts[i].waiters);
        sim_give_back(r->hosts[i].clients);
        sim_give_back(r->hosts[i].known);
        sim_give_back(r->hosts[i].keys);
    }
    rack_coordinator_free(r);
    rack_replay_free(r);
    for (unsigned i = 0; r->servers && i < r->server_count; i++)
        rack_box_free(&r->servers[i]);
    for (unsigned i = 0; i < RACKS_MAX; i++)
        rack_member_stop(&r->switch_members[i]);
    sim_give_back(r->newest);
    sim_give_back(r->hosts);
    sim_give_back(r->servers);
    sim_give_back(r->clients);
    sim_give_back(r->host_of);
    for (unsigned i = 0; i < RACKS_MAX; i++)
        sim_give_back(r->switches[i]);
    waits_free(&r->waits);
    sim_give_back(r->steward.memory);
    rack_box_free(&r->spare);
    rack_box_free(&r->spare_switch);
    sim_give_back(r->backup.memory);
    if (r->wire)
        sim_wire_free(r->wire);
    sim_free(&r->sim);
}

enum sim_end rack_run(struct rack *r)
{
    enum sim_end end = SIM_UNTIL;
    while (r->clients_done < r->params.clients && end == SIM_UNTIL)
        end = sim_run(&r->sim, sim_now(&r->sim) + ROUND_NS);
    return end;
}
