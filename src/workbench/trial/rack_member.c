/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the simulated rack: how a host, a lock server or the switch joins the coordinator, sends heartbeats, and learns that
 * its life is over. What node/member.c, client/net_open.c and client/net_wait.c do on a real machine, over simulated packets. */
#include "cluster/mistakes.h"
#include "cluster/rules.h"
#include "lib/hash.h"
#include "workbench/trial/rack.h"

#include <errno.h>

#define JOIN_SHARE RACK_BEATS_OF_LEASE /* of a lease: between two JOINs, and between two heartbeats of a lock server or switch */
#define BEAT_SHARE 4                   /* of a lease: between two heartbeats of a host */
#define ASKED_MAX 2                    /* packets without an answer, until the next coordinator is asked */

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

static void send_packet(const struct rack_member *m, const void *data, uint32_t len)
{
    if (is_cut_off(m))
        return;
    struct sim_packet packet = {.from = address(m), .to = rack_sim_addr(coord_list_at(&m->coordinators)), .len = len};
    if (m->host) {
        sim_wire_send(m->rack->wire, packet.from, packet.to, data, len);
        return;
    }
    memcpy(packet.data, data, len);
    sim_switch_emit(m->rack->wire, &packet);
}

static void say_join(const struct rack_member *m)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "sim", NULL, m->nonce); /* a new life knows the space by its name alone */
    p.role = m->role;
    p.head.generation = m->seen;
    p.stamp = rack_member_clock(m);
    p.at = rack_net_addr(address(m));
    p.code = m->force ? COORD_FORCE : 0;
    if (m->role == COORD_SWITCH && (m->rack->config.racks || m->waits))
        p.head.to.port = (uint16_t)(m->place + 1); /* this place and no other */
    send_packet(m, &p, sizeof p);
}

static void say_beat(const struct rack_member *m, uint16_t machine, uint64_t found)
{
    struct coord_beat b;
    if (sim_now(&m->rack->sim) < m->mute_until_ns)
        return;
    memset(&b, 0, sizeof b);
    coord_make(&b.packet, COORD_BEAT, "sim", &m->welcome.config.identity, m->nonce);
    b.packet.head.from = m->welcome.packet.head.to;
    b.packet.head.epoch = m->welcome.packet.head.generation;
    b.packet.head.index = m->role == COORD_HOST ? rack_host_racks(m) : machine;
    b.packet.head.generation = (uint32_t)min_u64(found, UINT32_MAX);
    b.packet.role = m->role;
    b.packet.stamp = rack_member_clock(m);
    b.packet.at = rack_net_addr(address(m));
    b.packet.code = coord_config_sum(&m->welcome.config);
    memcpy(b.switches, m->switches, sizeof b.switches);
    b.places = m->places;
    b.rules = m->welcome.rules;
    send_packet(m, &b, sizeof b);
}

/* The member holds nothing any more. */
static void say_leave(const struct rack_member *m)
{
    struct coord_packet p;
    coord_make(&p, COORD_LEAVE, "sim", &m->welcome.config.identity, m->nonce);
    p.head.from = m->welcome.packet.head.to;
    p.head.epoch = m->welcome.packet.head.generation;
    p.role = m->role;
    send_packet(m, &p, sizeof p);
}

static void *switch_memory(struct rack_member *m)
{
    return m->host ? container_of(m, struct rack_box, member)->memory : m->rack->switches[m->place];
}

/* For the machine that the coordinator asked about. */
static void look(struct rack_member *m)
{
    struct rack *r = m->rack;
    if (m->role != COORD_SWITCH || !m->look_for || !r->design->switch_scan)
        return;
    struct rack_box *box = m->host ? container_of(m, struct rack_box, member) : NULL;
    uint64_t found = r->design->switch_scan(switch_memory(m), m->look_for, rack_member_clock(m), &r->outbox);
    if (box)
        rack_box_flush(box);
    else
        rack_switch_flush(r);
    if (found == UINT64_MAX)
        return;
    uint16_t machine = m->look_for;
    m->look_for = 0;
    say_beat(m, machine, found);
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

static void end(struct rack_member *m)
{
    m->joined = false;
    m->nonce = mix64(m->nonce) | 1;
    m->ended(m);
}

static void tick(void *arg, uint64_t tag)
{
    struct rack_member *m = arg;
    uint64_t now = sim_now(&m->rack->sim), lease = m->rack->params.lease_ns;
    if (tag != m->tick_ns || !m->running)
        return;
    if (m->host && m->host->paused_until_ns > now) {
        tick_at(m, m->host->paused_until_ns);
        return;
    }
    if (m->joined && !rack_member_lives(m))
        end(m);
    if (m->asked++ >= ASKED_MAX) {
        coord_list_next(&m->coordinators);
        m->asked = 0;
    }
    if (m->joined) {
        look(m);
        say_beat(m, 0, 0);
    } else {
        say_join(m);
    }
    if (m->joined)
        lease = m->welcome.config.lease_ns;
    tick_at(m, now + 1 + lease / (m->joined && m->role == COORD_HOST ? BEAT_SHARE : JOIN_SHARE));
}

void rack_member_start(struct rack_member *m)
{
    m->running = true;
    m->joined = m->force = false;
    m->coordinators = rack_coordinators(m->rack);
    m->term = 0;
    m->asked = 0;
    m->nonce = mix64(m->rack->params.seed ^ mix64(m->nonce + address(m).host)) | 1;
    tick_at(m, sim_now(&m->rack->sim) + 1);
}

void rack_member_stop(struct rack_member *m)
{
    m->running = m->joined = false;
}

void rack_member_leave(struct rack_member *m)
{
    if (m->joined)
        say_leave(m);
    rack_member_stop(m);
}

/* ---- what the coordinator says ---- */

static uint64_t membership_until(const struct rack_member *m, uint64_t stamp)
{
    return lease_valid_until(stamp, rack_member_ns(&m->welcome.config));
}

static void on_welcome(struct rack_member *m, const struct coord_welcome *w)
{
    if (m->joined || w->packet.head.nonce != m->nonce || w->packet.role != m->role)
        return;
    m->welcome = *w;
    memcpy(m->switches, w->switches, sizeof m->switches);
    m->places = w->places;
    m->until_ns = membership_until(m, w->packet.stamp);
    m->look_for = 0;
    if (m->role == COORD_HOST && rack_member_clock(m) >= m->until_ns)
        return;
    m->force = false;
    m->joined = true;
    m->welcomed(m);
}

/* Locks are divided anew. A switch that gets or loses some starts anew. */
static void take_rules(struct rack_member *m, const struct rack_rules *rules)
{
    const struct packet_design *d = m->rack->design;
    if (m->role != COORD_SWITCH || !d->switch_rules || rules->version <= m->welcome.rules.version ||
        !rack_rules_fine(rules, m->welcome.config.racks))
        return;
    if (rules_concern(&m->welcome.rules, rules, m->place)) {
        end(m);
        return;
    }
    m->welcome.rules = *rules;
    d->switch_rules(switch_memory(m), rules);
}

/* Whether another lock server has a place, or none has, and the member had not heard of that. */
static bool take_place(struct rack_member *m, const struct coord_beat *b)
{
    if (b->places <= m->places || b->packet.role > m->welcome.config.servers)
        return false;
    m->places = b->places;
    if (b->packet.role)
        m->welcome.servers[b->packet.role - 1] = b->packet.at;
    return true;
}

static void on_acknowledged(struct rack_member *m, const struct coord_beat *b)
{
    uint64_t until = membership_until(m, b->packet.stamp);
    if (m->role != COORD_HOST) {
        for (unsigned i = 0; i < RACKS_MAX; i++)
            if (net_addr_known(b->switches[i]))
                m->switches[i] = b->switches[i];
        m->look_for = b->packet.head.index <= m->welcome.config.machines ? (uint16_t)b->packet.head.index : 0;
        take_rules(m, &b->rules);
        take_place(m, b);
        if (m->role == COORD_SERVER && m->rack->design->server_grow && b->packet.head.index > m->welcome.config.locks)
            rack_box_grow(m, b->packet.head.index);
        return;
    }
    if (b->packet.stamp > rack_member_clock(m) || until <= m->until_ns || !rack_member_lives(m))
        return;
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_known(b->switches[i]) || b->switches[i].port == COORD_AWAY) {
            if (net_addr_known(m->switches[i]) && !net_addr_is(m->switches[i], b->switches[i]))
                rack_host_switch_gone(m, i);
            m->switches[i] = b->switches[i];
        }
    m->until_ns = until;
    rack_host_grow(m, b->packet.head.index);
    if (!take_place(m, b))
        return;
    if (b->packet.role)
        rack_host_place(m, b->packet.role - 1, (uint32_t)b->packet.code);
    say_beat(m, 0, 0); /* the coordinator hears of it at once, and there may be more */
}

void rack_member_packet(struct rack_member *m, const void *data, uint32_t len)
{
    const struct coord_packet *p = coord_check(data, len, 0);
    if (!p || !m->running || is_cut_off(m) || sim_now(&m->rack->sim) < m->deaf_until_ns)
        return;
    if (m->joined && m->asked && coord_stands_by(&m->welcome.config.identity, p))
        coord_list_follow(&m->coordinators, p->at);
    if ((m->joined && !coord_knows(&m->welcome.config.identity, p)) || p->code == COORD_NOT_LEADER)
        return;
    if (!coord_is_current(&m->term, p) && !MISTAKE(m->rack->config.mistakes, COORD_MISTAKE_DEPOSED))
        return; /* I22 */
    m->asked = 0;
    if (p->head.type == COORD_WELCOME) {
        on_welcome(m, data);
        return;
    }
    if (!m->joined && p->head.nonce == m->nonce && p->code == COORD_ANEW && p->head.generation > m->seen) {
        m->seen = p->head.generation;
        say_join(m);
    }
    bool ours = m->joined && p->head.nonce == m->nonce && p->head.epoch == m->welcome.packet.head.generation;
    if (ours && p->head.type == COORD_BEAT_ACK)
        on_acknowledged(m, data);
    bool deaf = m->role == COORD_SERVER && MISTAKE(m->rack->config.mistakes, COORD_MISTAKE_PLACES) &&
                m->welcome.config.identity.version == rack_coordinator_version(m->rack);
    if (ours && p->head.type == COORD_REFUSED && p->code == -ESTALE && !deaf) { /* I17 */
        if (m->role == COORD_HOST)
            say_leave(m);
        end(m);
    }
}
