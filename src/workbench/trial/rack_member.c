/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the simulated rack. Lock servers and switches are those of the daemon (cluster/member.h). A host joins, sends
 * heartbeats and learns that its life is over as client/net_open.c and client/net_wait.c do on a real machine. */
#include "cluster/mistakes.h"
#include "lib/hash.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <stdlib.h>

#define JOIN_SHARE 16   /* of a lease: between two JOINs of a host, */
#define BEAT_SHARE 4    /* and between two heartbeats */
#define ASKS_OF_BEAT 8u /* questions about hosts */
#define ASKED_MAX 2     /* packets without an answer, until the next coordinator is asked */

/* ---- addresses ---- */

struct net_addr rack_net_addr(struct sim_addr a)
{
    return net_v4(a.host + 1, a.port);
}

struct sim_addr rack_sim_addr(struct net_addr a)
{
    return (struct sim_addr){.host = net_addr_v4(&a) - 1, .port = a.port};
}

static struct sim_addr address(const struct rack_member *m)
{
    return (struct sim_addr){.host = m->host ? m->host->id : SIM_WIRE_SWITCH, .port = m->host ? m->port : (uint16_t)m->place};
}

uint64_t rack_member_clock(const struct rack_member *m)
{
    uint64_t now = sim_now(&m->rack->sim);
    return m->host ? sim_host_clock(m->host, now) : now;
}

/* Whether it is the switch in the middle of the star, and reaches no coordinator. */
static bool is_cut_off(const struct rack_member *m)
{
    return !m->host && !m->place && sim_now(&m->rack->sim) < m->rack->switch_cut_ns;
}

/* ---- sending ---- */

static void send_packet(const struct member *core, struct net_addr to, const void *data, uint32_t len, uint32_t answer_len)
{
    const struct rack_member *m = core->owner;
    (void)answer_len;
    if (is_cut_off(m))
        return;
    struct sim_packet packet = {.from = address(m), .to = rack_sim_addr(to), .len = len};
    if (m->host) {
        sim_wire_send(m->rack->wire, packet.from, packet.to, data, len);
        return;
    }
    memcpy(packet.data, data, len);
    sim_switch_emit(m->rack->wire, &packet);
}

static void say(const struct rack_member *m, const void *data, uint32_t len)
{
    send_packet(&m->core, coord_list_at(&m->core.join.coordinators), data, len, len);
}

static void say_join(const struct rack_member *m)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "sim", NULL, m->core.join.nonce); /* a new life knows the space by its name alone */
    p.role = m->role;
    p.head.generation = m->core.join.generation;
    p.stamp = rack_member_clock(m);
    p.at = rack_net_addr(address(m));
    say(m, &p, sizeof p);
}

static void say_beat(const struct rack_member *m)
{
    const struct coord_welcome *w = &m->core.welcome.said;
    struct coord_beat b;
    if (sim_now(&m->rack->sim) < m->mute_until_ns)
        return;
    memset(&b, 0, sizeof b);
    coord_make(&b.packet, COORD_BEAT, "sim", &w->config.identity, m->core.join.nonce);
    b.packet.head.from = w->packet.head.to;
    b.packet.head.epoch = w->packet.head.generation;
    b.packet.head.index = rack_host_racks(m);
    b.packet.role = m->role;
    b.packet.stamp = rack_member_clock(m);
    b.packet.at = rack_net_addr(address(m));
    b.packet.code = coord_config_sum(&w->config);
    memcpy(b.switches, w->switches, sizeof b.switches);
    b.places = m->core.places;
    say(m, &b, sizeof b);
}

static void *switch_memory(struct rack_member *m)
{
    return m->host ? container_of(m, struct rack_box, member)->memory : m->rack->switches[m->place];
}

/* For the machine that the coordinator asked about. */
static void look(struct rack_member *m)
{
    struct rack *r = m->rack;
    if (m->role != COORD_SWITCH || !m->core.look_for || !r->design->switch_scan)
        return;
    struct rack_box *box = m->host ? container_of(m, struct rack_box, member) : NULL;
    uint64_t found = r->design->switch_scan(switch_memory(m), m->core.look_for, rack_member_clock(m), &r->outbox);
    if (box)
        rack_box_flush(box);
    else
        rack_switch_flush(r);
    if (found == UINT64_MAX)
        return;
    member_beat(&m->core, m->core.look_for, found);
    m->core.look_for = 0;
}

/* ---- time ---- */

static void tick(void *arg, uint64_t tag);

static void tick_at(struct rack_member *m, uint64_t at_ns)
{
    m->tick_ns = at_ns;
    sim_at(&m->rack->sim, at_ns, tick, m, at_ns);
}

bool rack_member_lives(const struct rack_member *m)
{
    bool outlives = MISTAKE(m->rack->config.mistakes, COORD_MISTAKE_OUTLIVES);
    return m->joined && (m->role != COORD_HOST || outlives || rack_member_clock(m) < m->until_ns);
}

bool rack_member_decides(struct rack_member *m)
{
    return m->joined && !member_is_joining(&m->core, rack_member_clock(m));
}

static void host_ends(struct rack_member *m)
{
    m->joined = false;
    m->core.join.nonce = mix64(m->core.join.nonce) | 1;
    rack_host_ended(m);
}

static void host_tick(struct rack_member *m)
{
    uint64_t lease = m->rack->params.lease_ns;
    if (m->joined && !rack_member_lives(m))
        host_ends(m);
    if (m->asked++ >= ASKED_MAX) {
        coord_list_next(&m->core.join.coordinators);
        m->asked = 0;
    }
    if (m->joined) {
        say_beat(m);
        lease = m->core.welcome.said.config.lease_ns;
    } else {
        say_join(m);
    }
    tick_at(m, sim_now(&m->rack->sim) + 1 + lease / (m->joined ? BEAT_SHARE : JOIN_SHARE));
}

/* When the lock server or switch has something to send next. */
static void tick_when_due(struct rack_member *m)
{
    uint64_t now = sim_now(&m->rack->sim), due = m->host ? sim_host_clock_inverse(m->host, m->core.due_ns) : m->core.due_ns;
    tick_at(m, max_u64(due, now + 1));
}

static void tick(void *arg, uint64_t tag)
{
    struct rack_member *m = arg;
    if (tag != m->tick_ns || !m->running)
        return;
    if (m->host && m->host->paused_until_ns > sim_now(&m->rack->sim)) {
        tick_at(m, m->host->paused_until_ns);
        return;
    }
    if (m->role == COORD_HOST) {
        host_tick(m);
        return;
    }
    if (rack_member_decides(m))
        look(m);
    if (m->core.roster)
        member_ask_hosts(&m->core, rack_member_clock(m));
    member_tick(&m->core, rack_member_clock(m));
    tick_when_due(m);
}

/* ---- its life ---- */

static uint64_t draw(struct world *w)
{
    struct rack_member *m = container_of(w, struct rack_member, world);
    return m->drawn = mix64(m->rack->params.seed ^ mix64(m->drawn + address(m).host));
}

static const struct world_ops world_ops = {.random = draw};

void rack_member_start(struct rack_member *m)
{
    const struct rack *r = m->rack;
    bool named = m->role == COORD_SWITCH && (r->config.racks || m->waits);
    rack_member_stop(m);
    m->world.ops = &world_ops;
    m->core = (struct member){.join = {.coordinators = rack_coordinators(r),
                                       .role = m->role,
                                       .space = "sim",
                                       .at = rack_net_addr(address(m)),
                                       .rack = named ? m->place + 1 : 0}, /* this place and no other */
                              .at = rack_net_addr(address(m)),
                              .world = &m->world,
                              .send = send_packet,
                              .owner = m,
                              .adapts = true,
                              .every_ns = r->params.lease_ns / RACK_BEATS_OF_LEASE,
                              .design = r->design};
    m->running = true;
    m->asked = 0;
    if (m->role == COORD_HOST)
        m->core.join.nonce = draw(&m->world) | 1;
    else
        member_begin(&m->core, rack_member_clock(m));
    tick_at(m, sim_now(&r->sim) + 1);
}

void rack_member_stop(struct rack_member *m)
{
    m->running = m->joined = false;
    free(m->core.roster);
    m->core.roster = NULL;
}

void rack_member_leave(struct rack_member *m)
{
    if (m->joined)
        member_leave(&m->core);
    rack_member_stop(m);
}

void rack_member_rejoin(struct rack_member *m)
{
    member_rejoin(&m->core, rack_member_clock(m));
    tick_when_due(m);
}

/* ---- what the coordinator says ---- */

static uint64_t membership_until(const struct rack_member *m, uint64_t stamp)
{
    return lease_valid_until(stamp, rack_member_ns(&m->core.welcome.said.config));
}

static void host_welcome(struct rack_member *m, const struct coord_welcome *w)
{
    if (m->joined || w->packet.head.nonce != m->core.join.nonce || w->packet.role != m->role)
        return;
    m->core.welcome.said = *w;
    memcpy(m->core.welcome.servers, w->servers, sizeof w->servers);
    m->core.places = w->places;
    m->until_ns = membership_until(m, w->packet.stamp);
    if (rack_member_clock(m) >= m->until_ns)
        return;
    m->joined = true;
    m->welcomed(m);
}

/* Whether another lock server has a place, or none has, and the host had not heard of that. */
static bool take_place(struct rack_member *m, const struct coord_beat *b)
{
    if (b->places <= m->core.places || b->packet.role > m->core.welcome.said.config.servers)
        return false;
    m->core.places = b->places;
    if (b->packet.role)
        m->core.welcome.servers[b->packet.role - 1] = b->packet.at;
    return true;
}

static void on_acknowledged(struct rack_member *m, const struct coord_beat *b)
{
    struct net_addr *known = m->core.welcome.said.switches;
    uint64_t until = membership_until(m, b->packet.stamp);
    if (b->packet.stamp > rack_member_clock(m) || until <= m->until_ns || !rack_member_lives(m))
        return;
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_known(b->switches[i]) || b->switches[i].port == COORD_AWAY) {
            if (net_addr_known(known[i]) && !net_addr_is(known[i], b->switches[i]))
                rack_host_switch_gone(m, i);
            known[i] = b->switches[i];
        }
    m->until_ns = until;
    rack_host_grow(m, b->packet.head.index);
    if (!take_place(m, b))
        return;
    if (b->packet.role)
        rack_host_place(m, b->packet.role - 1, (uint32_t)b->packet.code);
    say_beat(m); /* the coordinator hears of it at once, and there may be more */
}

static void host_hears(struct rack_member *m, const struct coord_packet *p)
{
    struct member *k = &m->core;
    if (m->joined && m->asked && coord_stands_by(&k->welcome.said.config.identity, p))
        coord_list_follow(&k->join.coordinators, p->at);
    if ((m->joined && !coord_knows(&k->welcome.said.config.identity, p)) || p->code == COORD_NOT_LEADER)
        return;
    if (!coord_is_current(&k->term, p) && !MISTAKE(m->rack->config.mistakes, COORD_MISTAKE_DEPOSED))
        return;                         /* I22 */
    if (p->head.nonce == k->join.nonce) /* else it answers a replayed packet of a former life */
        m->asked = 0;
    if (p->head.type == COORD_WELCOME) {
        host_welcome(m, (const struct coord_welcome *)p);
        return;
    }
    if (!m->joined && p->head.nonce == k->join.nonce && p->code == COORD_ANEW && p->head.generation > k->join.generation) {
        k->join.generation = p->head.generation;
        say_join(m);
    }
    bool ours = m->joined && p->head.nonce == k->join.nonce && p->head.epoch == k->welcome.said.packet.head.generation;
    if (ours && p->head.type == COORD_BEAT_ACK)
        on_acknowledged(m, (const struct coord_beat *)p);
    if (ours && p->head.type == COORD_REFUSED && p->code == -ESTALE) { /* I17 */
        member_leave(k);
        host_ends(m);
    }
}

/* A lock server or switch of the daemon has one socket, by which it also sends on what others have sent. */
static struct net_addr seen_as(const struct rack_member *m, struct sim_addr from)
{
    const struct rack_welcome *w = &m->core.welcome;
    struct net_addr at = rack_net_addr(from);
    for (unsigned i = 0; i < RACKS_MAX; i++)
        at = net_addr_same_ip(at, w->said.switches[i]) ? w->said.switches[i] : at;
    for (unsigned i = 0; i < w->said.config.servers; i++)
        at = net_addr_same_ip(at, w->servers[i]) ? w->servers[i] : at;
    return at;
}

/* Packets of lock servers and switches count from anywhere, as if they were tagged with the cluster's key: a superseded lock server
 * is heard, too. */
bool rack_member_admits(struct rack_member *m, const void *data, uint32_t len, struct sim_addr from, bool here)
{
    const struct packet_head *h = data;
    bool of_host = len >= sizeof *h && h->from.machine && h->from.machine <= m->core.roster->machines;
    if (!of_host || MISTAKE(m->rack->config.mistakes, RACK_ANY_LIFE) || member_admits(&m->core, h, seen_as(m, from)))
        return true;
    if (here && len <= PACKET_MAX)
        roster_park(m->core.roster, h, len, rack_net_addr(from), true);
    member_ask_hosts(&m->core, rack_member_clock(m));
    return false;
}

/* As node/station.c. */
static void unpark(struct rack_member *m)
{
    const struct roster_parked *p;
    for (unsigned i = 0; (p = roster_unpark(m->core.roster, &i));)
        m->packet(m, p->bytes, p->len, rack_sim_addr(p->from));
}

static void station_hears(struct rack_member *m, const void *data, uint32_t len)
{
    const struct packet_design *d = m->rack->design;
    uint64_t answers = m->core.roster ? m->core.roster->answers : 0;
    switch (member_packet(&m->core, data, len, rack_member_clock(m))) {
    case MEMBER_JOINED:
        m->joined = true;
        m->core.every_ns = m->core.welcome.said.config.lease_ns / RACK_BEATS_OF_LEASE;
        m->core.roster->ask_ns = m->core.every_ns / ASKS_OF_BEAT;
        m->welcomed(m);
        break;
    case MEMBER_RULES:
        d->switch_rules(switch_memory(m), &m->core.rules);
        break;
    case MEMBER_GROWN:
        rack_box_grow(m, m->core.locks);
        break;
    case MEMBER_NOTHING:
    case MEMBER_STALE:
    case MEMBER_SUPERSEDED:
        break;
    }
    if (m->core.roster && m->core.roster->answers != answers)
        unpark(m);
    if (m->core.roster)
        member_ask_hosts(&m->core, rack_member_clock(m));
    tick_when_due(m);
}

void rack_member_packet(struct rack_member *m, const void *data, uint32_t len)
{
    const struct coord_packet *p = coord_check(data, len, 0);
    if (!p || !m->running || is_cut_off(m) || sim_now(&m->rack->sim) < m->deaf_until_ns)
        return;
    if (m->role == COORD_HOST)
        host_hears(m, p);
    else
        station_hears(m, data, len);
}
