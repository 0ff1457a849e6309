/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/member.h"
#include "cluster/mistakes.h"
#include "cluster/rules.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>

#define JOINS_OF_BEAT 5u   /* JOINs in the time of a heartbeat */
#define SILENT_HALVES 7u   /* of a heartbeat's time. No answer to three heartbeats: another coordinator may lead */
#define ANSWERED_HALVES 3u /* the latest heartbeat was answered, or the one before */
#define ALONE_BEATS 30u    /* ten to each of three coordinators */
#define JOINING_SHARE 4    /* of a lease */

static struct net_addr coordinator_of(const struct member *m)
{
    return coord_list_at(&m->join.coordinators);
}

static void tell(const struct member *m, const void *packet, uint32_t len, uint32_t answer_len)
{
    m->send(m, coordinator_of(m), packet, len, answer_len);
}

/* A packet with what all packets of this life have. */
static struct coord_packet packet_of(const struct member *m, enum coord_type type)
{
    struct coord_packet p;
    coord_make(&p, type, m->join.space, &m->welcome.said.config.identity, m->join.nonce);
    p.head.from = m->welcome.said.packet.head.to;
    p.head.epoch = m->welcome.said.packet.head.generation;
    p.role = m->join.role;
    return p;
}

bool member_is_alone(const struct member *m, uint64_t now)
{
    return m->answered_ns && now > m->answered_ns && now - m->answered_ns > ALONE_BEATS * m->every_ns;
}

/* ---- joining ---- */

static void join_anew(struct member *m, uint64_t now)
{
    if (m->nonce_next)
        return;
    m->nonce_next = world_random(m->world) | 1;
    m->joining_until_ns = now + m->welcome.said.config.lease_ns / JOINING_SHARE;
    m->due_ns = now;
}

void member_supersede(struct member *m, uint64_t now)
{
    m->superseded = true;
    join_anew(m, now);
}

void member_begin(struct member *m, uint64_t now)
{
    m->heard_ns = now;
    member_supersede(m, now);
}

/* Only a switch that learns from the hosts what they hold can begin anew while they hold something. */
void member_rejoin(struct member *m, uint64_t now)
{
    if (m->join.role == COORD_SWITCH && m->design->switch_expect && !m->stays)
        join_anew(m, now);
}

bool member_is_joining(struct member *m, uint64_t now)
{
    if (m->nonce_next && !m->superseded && now >= m->joining_until_ns)
        m->nonce_next = 0; /* a welcome that comes now is void: much may have been granted since */
    return m->nonce_next;
}

static void send_join(struct member *m)
{
    struct join_params j = m->join;
    j.nonce = m->nonce_next;
    if (m->roster)
        j.rack = m->welcome.said.packet.head.to.port + 1u; /* its own place */
    struct coord_packet p = join_packet(&j);
    p.stamp = ++m->said;
    tell(m, &p, sizeof p, sizeof(struct coord_welcome));
}

void member_ask_again(struct member *m, unsigned server)
{
    struct coord_packet p = join_packet(&m->join);
    p.stamp = ++m->said;
    p.head.index = server;
    tell(m, &p, sizeof p, sizeof(struct coord_welcome));
}

/* Whether the member can go on with that configuration: an operator may have restarted the coordinator with other settings. */
static bool can_take(struct member *m, const struct coord_welcome *w)
{
    const struct coord_welcome *old = &m->welcome.said;
    m->outdated = m->roster && (strncmp(w->design, old->design, sizeof w->design - 1) != 0 ||
                                (!m->adapts && memcmp(&w->config, &old->config, sizeof old->config) != 0));
    return !m->outdated;
}

/* The answer to member_ask_again: addresses that were not known. All else may be older than what was heard. */
static void take_addresses(struct member *m, const struct coord_welcome *w)
{
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (!net_addr_known(m->welcome.said.switches[i]))
            m->welcome.said.switches[i] = w->switches[i];
    for (unsigned i = 0; i < COORD_WELCOME_SERVERS && w->first_server + i < m->welcome.said.config.servers; i++)
        if (!net_addr_known(m->welcome.servers[w->first_server + i]))
            m->welcome.servers[w->first_server + i] = w->servers[i];
}

/* Takes the welcome, and a roster for as many hosts as there can be now. False: it is of another space, or out of memory. */
static bool take_anew(struct member *m, const struct coord_welcome *w)
{
    struct roster *old = m->roster, *r = old;
    if (!old || w->config.machines != old->machines)
        r = roster_make(&w->config, m->ring, m->lives_only);
    if (!r || !join_take(&m->welcome, w)) {
        if (r != old)
            free(r);
        return false;
    }
    if (old && r != old) {
        r->answers = old->answers;
        r->forged = old->forged;
        r->unknown = old->unknown;
        r->untagged = old->untagged;
        r->limited = old->limited;
        r->gap_ns = old->gap_ns;
        r->burst_ns = old->burst_ns;
        free(old);
    }
    r->parks = 0; /* of hosts in a configuration that may be another one now */
    m->roster = r;
    return true;
}

static enum member_news on_welcome(struct member *m, const struct coord_welcome *w, uint64_t now)
{
    bool other_place = m->roster && w->packet.head.to.port != m->welcome.said.packet.head.to.port;
    if (m->roster && w->packet.head.nonce == m->join.nonce && w->first_server < RACK_SERVERS_MAX)
        take_addresses(m, w);
    if (!member_is_joining(m, now) || w->packet.head.nonce != m->nonce_next || w->packet.role != m->join.role || other_place ||
        !rack_rules_fine(&w->rules, (unsigned)max_u64(w->config.racks, 1)) || !can_take(m, w) || !take_anew(m, w))
        return MEMBER_NOTHING;
    if (!m->design) {
        const struct design *d = design_find(m->welcome.said.design);
        m->design = d ? d->packet : NULL;
    }
    m->rules = w->rules;
    m->join.identity = w->config.identity;
    m->join.nonce = m->nonce_next;
    m->join.force = false; /* the operator's word is for this start, and for no JOIN after it */
    m->nonce_next = 0;
    m->superseded = false;
    m->look_for = 0;
    m->places = 0; /* the welcome may be older than what was heard: all places are told again */
    m->due_ns = now;
    return MEMBER_JOINED;
}

/* ---- what the member sends ---- */

void member_beat(struct member *m, uint16_t machine, uint64_t found)
{
    struct coord_beat b;
    memset(&b, 0, sizeof b);
    b.packet = packet_of(m, COORD_BEAT);
    b.packet.head.index = machine;
    b.packet.head.generation = (uint32_t)min_u64(found, UINT32_MAX);
    b.packet.at = m->join.at;
    b.packet.stamp = ++m->said;
    b.packet.code = coord_config_sum(&m->welcome.said.config);
    b.rules = m->rules;
    b.places = m->places;
    tell(m, &b, sizeof b, sizeof b);
}

void member_leave(struct member *m)
{
    struct coord_packet p = packet_of(m, COORD_LEAVE);
    tell(m, &p, sizeof p, sizeof p);
}

/* With no answer for a while another coordinator may lead, and is asked for as long. */
static void look_for_leader(struct member *m, uint64_t now)
{
    if (now - m->heard_ns <= SILENT_HALVES * m->every_ns / 2)
        return;
    coord_list_next(&m->join.coordinators);
    m->heard_ns = now;
}

void member_ask_hosts(struct member *m, uint64_t now)
{
    struct coord_packet p = packet_of(m, COORD_WHO);
    uint16_t from = roster_question(m->roster, now);
    if (!from)
        return;
    look_for_leader(m, now);
    p.head.epoch = 0;
    p.head.index = from;
    tell(m, &p, sizeof p, sizeof(struct coord_hosts));
}

uint64_t member_tick(struct member *m, uint64_t now)
{
    bool joins = member_is_joining(m, now);
    if (now < m->due_ns)
        return m->due_ns;
    m->due_ns = now + (joins ? m->every_ns / JOINS_OF_BEAT : m->every_ns);
    look_for_leader(m, now);
    if (joins)
        send_join(m);
    else
        member_beat(m, 0, 0);
    return m->due_ns;
}

/* ---- what the coordinator says ---- */

static enum member_news on_beat_ack(struct member *m, const struct coord_beat *b, uint64_t now)
{
    const struct rack_config *c = &m->welcome.said.config;
    bool grown = m->join.role == COORD_SERVER && m->design->server_grow && b->packet.head.index > c->locks &&
                 b->packet.head.index <= PACKET_LOCKS_MAX;
    if (m->join.role == COORD_SWITCH)
        m->look_for = b->packet.head.index <= c->machines ? (uint16_t)b->packet.head.index : 0;
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_known(b->switches[i]))
            m->welcome.said.switches[i] = b->switches[i]; /* it may have joined later than all others, or moved */
    uint32_t server = b->packet.role;
    if (b->places > m->places && server && server <= c->servers) { /* another lock server has the place, or none has */
        m->places = b->places;
        m->welcome.servers[server - 1] = b->packet.at;
    }
    m->locks = b->packet.head.index;
    if (grown)
        return MEMBER_GROWN;
    if (m->join.role != COORD_SWITCH || !m->design->switch_rules || b->rules.version <= m->rules.version ||
        !rack_rules_fine(&b->rules, c->racks))
        return MEMBER_NOTHING;
    if (!rules_concern(&m->rules, &b->rules, m->welcome.said.packet.head.to.port)) {
        m->rules = b->rules;
        return MEMBER_RULES;
    }
    bool joins = m->nonce_next;
    member_rejoin(m, now);
    return m->nonce_next && !joins ? MEMBER_STALE : MEMBER_NOTHING;
}

static bool is_answer(const struct coord_packet *p)
{
    return p->head.type == COORD_WELCOME || p->head.type == COORD_BEAT_ACK || p->head.type == COORD_REFUSED ||
           p->head.type == COORD_HOSTS;
}

/* Whether it answers a packet of this member: another program does not know the nonce. */
static bool is_for(struct member *m, const struct coord_packet *p)
{
    bool knows = p->head.nonce && (p->head.nonce == m->join.nonce || p->head.nonce == m->nonce_next);
    m->forged += !knows;
    return knows;
}

/* A coordinator that stands by says where the leader is. While a leader answers, that is an old packet. */
static void follow(struct member *m, struct net_addr leader, uint64_t now)
{
    if ((m->answered_ns && now - m->answered_ns < ANSWERED_HALVES * m->every_ns / 2) || !net_addr_known(leader) ||
        net_addr_is(leader, coordinator_of(m)))
        return;
    coord_list_follow(&m->join.coordinators, leader);
    m->heard_ns = now;
    m->due_ns = 0;
}

/* The JOIN under way is refused. */
static void on_refused(struct member *m, const struct coord_packet *p, uint64_t now)
{
    bool anew = p->code == COORD_ANEW && p->head.generation > m->join.generation;
    if (!m->refused || !join_is_hint(&m->join.coordinators.asker, p->code)) { /* anybody may have sent a hint */
        m->refused = p->code == COORD_ANEW ? -EAGAIN : p->code;
        m->refused_ns = now;
    }
    if (!anew)
        return;
    m->join.generation = p->head.generation;
    send_join(m);
}

static enum member_news on_answer(struct member *m, const struct coord_packet *p, uint64_t now)
{
    m->heard_ns = m->answered_ns = now;
    if (p->head.type == COORD_WELCOME)
        return on_welcome(m, (const struct coord_welcome *)p, now);
    if (p->head.type == COORD_REFUSED && p->head.nonce == m->nonce_next)
        on_refused(m, p, now);
    if (p->head.nonce != m->join.nonce)
        return MEMBER_NOTHING;
    if (p->head.type == COORD_BEAT_ACK)
        return on_beat_ack(m, (const struct coord_beat *)p, now);
    if (p->head.type == COORD_HOSTS)
        roster_take(m->roster, (const struct coord_hosts *)p);
    bool deaf = m->join.role == COORD_SERVER && MISTAKE(m->welcome.said.config.mistakes, COORD_MISTAKE_PLACES) &&
                m->welcome.said.config.identity.version == p->identity.version;
    if (p->head.type != COORD_REFUSED || p->code != -ESTALE || m->superseded || deaf)
        return MEMBER_NOTHING;
    if (!m->stays)
        member_supersede(m, now);
    return MEMBER_SUPERSEDED;
}

enum member_news member_packet(struct member *m, const void *data, uint32_t len, uint64_t now)
{
    const struct coord_packet *p = coord_check(data, len, 0);
    const struct rack_identity *known = &m->join.identity;
    if (!p || !is_answer(p) || !is_for(m, p))
        return MEMBER_NOTHING;
    if (p->head.type == COORD_REFUSED && p->code == COORD_NOT_LEADER && (!m->roster || coord_stands_by(known, p))) {
        m->refused = p->code;
        m->refused_ns = now;
        follow(m, p->at, now);
        return MEMBER_NOTHING;
    }
    if (m->roster && !coord_knows(known, p)) {
        m->foreign++;
        return MEMBER_NOTHING;
    }
    if (!coord_is_current(&m->term, p) && !MISTAKE(m->welcome.said.config.mistakes, COORD_MISTAKE_DEPOSED)) {
        m->foreign++; /* of a deposed leader: I22 */
        return MEMBER_NOTHING;
    }
    return on_answer(m, p, now);
}

/* ---- packets of others ---- */

bool member_knows_granter(const struct member *m, struct net_addr from)
{
    const struct rack_welcome *w = &m->welcome;
    bool found = false;
    for (unsigned i = 0; i < RACKS_MAX && !found; i++)
        found = net_addr_is(from, w->said.switches[i]);
    for (unsigned i = 0; i < w->said.config.servers && !found; i++)
        found = net_addr_is(from, w->servers[i]);
    return found;
}

/* Whether a machine of the rack has this address, that of the member itself included. */
static bool is_of_rack(const struct member *m, struct net_addr from)
{
    const struct rack_welcome *w = &m->welcome;
    const struct coord_list *l = &m->join.coordinators;
    bool found = net_addr_same_ip(from, m->at) || net_addr_same_ip(from, m->join.at);
    for (unsigned i = 0; i < l->count && i < COORD_LIST_MAX && !found; i++)
        found = net_addr_same_ip(from, l->at[i]);
    for (unsigned i = 0; i < RACKS_MAX && !found; i++)
        found = net_addr_same_ip(from, w->said.switches[i]);
    for (unsigned i = 0; i < w->said.config.servers && !found; i++)
        found = net_addr_same_ip(from, w->servers[i]);
    return found;
}

bool member_admits_other(struct member *m, const struct packet_head *h, struct net_addr from)
{
    uint16_t machine = h->from.machine;
    struct roster *r = m->roster;
    if (machine && machine <= r->machines)
        return member_knows_granter(m, from) || roster_admits(r, machine, roster_life_of(h), from);
    bool may = r->ring || (!machine && h->family == PACKET_COORDINATOR) || is_of_rack(m, from) ||
               (machine == MACHINE_OPERATOR && (net_addr_is_localhost(&from) || roster_has(r, from)));
    r->forged += !may;
    return may;
}

bool member_opens(struct member *m, void *data, uint32_t len, struct net_addr from, struct seal_key *used)
{
    const struct packet_head *h = data;
    struct roster *r = m->roster;
    if (roster_opens(r, data, len, used))
        return true;
    bool host = h->from.machine && h->from.machine <= r->machines;
    if (host && seal_is_tagged(data, len) && !member_admits(m, h, from))
        roster_park(r, h, len, from, false);
    else
        r->untagged++;
    return false;
}
