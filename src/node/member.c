/* SPDX-License-Identifier: Apache-2.0 */
#include "node/member.h"
#include "lib/log.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY_NS NS_PER_S /* of joining, until the next look whether to stop */
#define AGAIN_NS (100 * NS_PER_MS)
#define LEARN_NS (3 * NS_PER_S)       /* of asking which hosts there are: longer than leaders change */
#define SILENT_NS (350 * NS_PER_MS)   /* no answer to three heartbeats: another coordinator may lead */
#define ANSWERED_NS (150 * NS_PER_MS) /* the latest heartbeat was answered, or the one before */
#define ALONE_NS (3 * NS_PER_S)       /* ten heartbeats to each of three coordinators */
#define JOINING_SHARE 4               /* of a lease */

/* ---- its log ---- */

static void say(const struct member *m, enum log_level level, const char *what, const char *why)
{
    char event[64], at[NET_ADDR_TEXT], coordinator[NET_ADDR_TEXT];
    snprintf(event, sizeof event, "%s %s", m->join.role == COORD_SWITCH ? "switch" : "lock server", what);
    net_addr_print(m->join.at, at);
    net_addr_print(coord_list_at(&m->join.coordinators), coordinator);
    log_event(level, event, LOG_TEXT("space", m->welcome.said.packet.space), LOG_TEXT("at", at),
              LOG_NUMBER("life", m->welcome.said.packet.head.generation), LOG_TEXT("coordinator", coordinator),
              LOG_TEXT("why", why));
}

bool member_is_alone(const struct member *m, uint64_t now)
{
    return m->answered_ns && now > m->answered_ns && now - m->answered_ns > ALONE_NS;
}

/* Once for each change: whether a coordinator answers heartbeats, and which term it has. */
static void watch_coordinator(struct member *m, uint64_t now)
{
    bool alone = member_is_alone(m, now);
    if (alone && !m->said.alone)
        say(m, LOG_LEVEL_WARNING, "hears no coordinator",
            "heartbeats are not answered: hosts go on until their membership leases end");
    if (!alone && m->said.alone)
        say(m, LOG_LEVEL_NOTICE, "hears a coordinator again", "heartbeats are answered");
    if (m->said.term && m->term > m->said.term)
        say(m, LOG_LEVEL_NOTICE, "follows another coordinator", "it has a later term");
    m->said.alone = alone;
    m->said.term = m->term;
}

static void say_news(struct member *m, enum member_news news)
{
    switch (news) {
    case MEMBER_NOTHING:
        break;
    case MEMBER_JOINED:
        say(m, LOG_LEVEL_NOTICE, "joined anew", "its former life is over, and it begins with empty state");
        m->said.superseded = false;
        break;
    case MEMBER_RULES:
        say(m, LOG_LEVEL_INFO, "has new rules", "locks were divided anew, and it keeps those that it has");
        break;
    case MEMBER_STALE:
        if (!m->nonce_next)
            say(m, LOG_LEVEL_INFO, "joins anew", "new rules give it other locks");
        break;
    case MEMBER_GROWN:
        say(m, LOG_LEVEL_NOTICE, "gets more locks", "the space has grown");
        break;
    case MEMBER_SUPERSEDED:
        if (!m->said.superseded) /* not for each heartbeat that is refused */
            say(m, LOG_LEVEL_WARNING, "is superseded", "the coordinator says that its life is over: it decides nothing");
        m->said.superseded = true;
        break;
    }
}

/* ---- joining ---- */

static int explain_join(int rc, const struct member_params *p)
{
    char coordinator[COORD_LIST_TEXT];
    coord_list_print(&p->coordinators, coordinator);
    switch (rc) {
    case -ETIMEDOUT:
        return explain(rc, "no coordinator answers at %s (start one with 'pawl serve')", coordinator);
    case -EAGAIN:
        return explain(rc,
                       "the coordinator at %s waits: for lock servers, for a lease to end, or for hosts to leave another switch",
                       coordinator);
    case COORD_NOT_LEADER:
        return explain(-EAGAIN, "the coordinators at %s stand by, and none leads", coordinator);
    case -ENOSPC:
        return explain(rc, "the space '%s' has all its lock servers (see pawl serve --servers and --own)", p->space);
    case -EBUSY:
        return explain(rc, "another switch has that place, and was heard of less than a lease ago");
    case -EINVAL:
        return explain(rc, "the space '%s' has fewer racks", p->space);
    case -ENOENT:
        return explain(rc, "the coordinator at %s has no space '%s'", coordinator, p->space);
    case COORD_FOREIGN:
        return explain(rc, "the coordinator at %s has another space '%s' than the one that was joined", coordinator, p->space);
    case -EPROTONOSUPPORT:
        return explain(rc, "packets of the space '%s' have features that this build does not know", p->space);
    case COORD_WRONG_KEY:
        return explain(rc,
                       p->ring && p->ring->count ? "the coordinator at %s has another key (--key)"
                                                 : "the coordinator at %s takes members with its key only (--key FILE)",
                       coordinator);
    case COORD_NO_KEY:
        return explain(rc, "the coordinator at %s has no key, and this member has one (--key)", coordinator);
    case -EACCES:
        return explain(rc,
                       "the coordinator at %s lets in lock servers and switches with the cluster's key only, and for addresses of "
                       "their own machine",
                       coordinator);
    case -EPROTOTYPE:
        return explain(rc, "there is a memory node at %s, which has neither lock servers nor switches", coordinator);
    case -EOPNOTSUPP:
        return explain(rc, "the design of the space '%s' has no %s", p->space, p->is_switch ? "switch" : "lock servers");
    default:
        return explain(rc, "cannot join the space '%s': %s", p->space, pawl_strerror(rc));
    }
}

static void take_welcome(struct member *m)
{
    const struct design *d = design_find(m->welcome.said.design);
    m->design = d ? d->packet : NULL;
    m->rules = m->welcome.said.rules;
    m->join.identity = m->welcome.said.config.identity;
    m->term = m->welcome.said.packet.term > m->term ? m->welcome.said.packet.term : m->term;
}

/* All packets of its own are tagged as those of a member of the cluster. */
static void take_ring(struct member *m, const struct seal_ring *ring)
{
    if (!ring || !ring->count)
        return;
    m->join.coordinators.asker = seal_asker(ring);
    m->udp.key = m->join.coordinators.asker.key;
}

static void learn_from(struct member *m, struct udp_batch *batch, uint64_t now)
{
    struct seal_key used;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct packet_head *h = (const struct packet_head *)(const void *)batch->packet[i].data;
        uint32_t len = batch->packet[i].len;
        if (len >= sizeof *h && len <= PACKET_MAX && h->family == PACKET_COORDINATOR &&
            roster_opens(m->roster, batch->packet[i].data, len, &used))
            member_packet(m, h, len, now);
    }
}

/* A member that is ready knows the hosts that there are: their packets are admitted, and their leases renewed, if the coordinator
 * ends right afterwards. */
static void learn_hosts(struct member *m, const volatile sig_atomic_t *stop)
{
    struct udp_batch *batch = calloc(1, sizeof *batch);
    uint64_t now = world_now(&world_real), end = now + LEARN_NS, asked_ns = now;
    for (bool known = false; batch && !known && !*stop && now < end; now = world_now(&world_real)) {
        uint64_t answers = m->roster->answers;
        uint16_t from = m->roster->wanted;
        member_ask_hosts(m, now);
        batch->count = udp_wait(&m->udp, batch, 0, now + ROSTER_ASK_NS);
        learn_from(m, batch, now);
        known = m->roster->answers != answers && !m->roster->wanted;
        if (m->roster->answers != answers) {
            asked_ns = now;
        } else {
            m->roster->wanted = from; /* once more */
            if (now - asked_ns > SILENT_NS) {
                coord_list_next(&m->join.coordinators);
                asked_ns = now;
            }
        }
    }
    m->heard_ns = m->answered_ns = 0;
    free(batch);
}

ONCE int member_open(struct member *m, const struct member_params *p)
{
    uint64_t stamp, now;
    bool later;
    memset(m, 0, sizeof *m);
    int rc = udp_open(&m->udp, p->at);
    if (rc) {
        char at[NET_ADDR_TEXT];
        net_addr_print(p->at, at);
        return explain(rc, "cannot listen at %s: %s (--listen; 'ss -lunp' shows the process that has a port)", at,
                       pawl_strerror(rc));
    }
    m->join = (struct join_params){.coordinators = p->coordinators,
                                   .role = p->is_switch ? COORD_SWITCH : COORD_SERVER,
                                   .space = p->space,
                                   .at = net_addr_known(p->known_as) ? p->known_as : m->udp.at,
                                   .rack = p->rack,
                                   .force = p->force,
                                   .nonce = world_random(&world_real) | 1};
    m->join.at.reads = p->reads;
    take_ring(m, p->ring);
    do {
        m->join.deadline = world_now(&world_real) + TRY_NS;
        if (!p->patient)
            m->join.deadline = min_u64(m->join.deadline, p->deadline);
        rc = join(&m->udp, &m->join, &m->welcome, &stamp);
        now = world_now(&world_real);
        later = rc == -EAGAIN || rc == COORD_NOT_LEADER;
    } while (!*p->stop && ((later && p->patient) || ((later || rc == -ETIMEDOUT) && now < p->deadline)));
    if (rc) {
        udp_close(&m->udp);
        return explain_join(rc, p);
    }
    m->join.force = false; /* the operator's word is for this start, and for no JOIN after it */
    take_welcome(m);
    m->roster = roster_make(&m->welcome.said.config, p->ring, net_addr_known(p->known_as));
    if (!m->roster) {
        udp_close(&m->udp);
        return explain(-ENOMEM, "out of memory");
    }
    learn_hosts(m, p->stop);
    say(m, LOG_LEVEL_INFO, "joined", "it asked to join");
    return 0;
}

void member_close(struct member *m)
{
    say(m, LOG_LEVEL_INFO, "ends", "it was told to stop, or could not begin");
    udp_close(&m->udp);
    free(m->roster);
    m->roster = NULL;
}

void member_ask_hosts(struct member *m, uint64_t now)
{
    uint16_t from = roster_question(m->roster, now);
    struct coord_packet p;
    if (!from)
        return;
    coord_make(&p, COORD_WHO, m->welcome.said.packet.space, &m->welcome.said.config.identity, m->join.nonce);
    p.head.from = m->welcome.said.packet.head.to;
    p.head.index = from;
    p.role = m->join.role;
    join_send(&m->udp, coord_list_at(&m->join.coordinators), &m->join.coordinators.asker, &p, sizeof p, sizeof(struct coord_hosts));
}

void member_ask_again(struct member *m)
{
    uint64_t stamp;
    m->join.deadline = world_now(&world_real) + AGAIN_NS;
    join(&m->udp, &m->join, &m->welcome, &stamp);
}

/* ---- heartbeats ---- */

static void tell(struct member *m, const void *packet, uint32_t len)
{
    const struct udp_out out = {.to = coord_list_at(&m->join.coordinators), .len = len, .data = packet};
    udp_send(&m->udp, &out, 1);
}

void member_beat(struct member *m, uint16_t machine, uint64_t found)
{
    struct coord_beat b;
    struct coord_packet *p = &b.packet;
    memset(&b, 0, sizeof b);
    coord_make(p, COORD_BEAT, m->welcome.said.packet.space, &m->welcome.said.config.identity, m->join.nonce);
    p->head.from = m->welcome.said.packet.head.to;
    p->head.epoch = m->welcome.said.packet.head.generation;
    p->head.index = machine;
    p->head.generation = (uint32_t)min_u64(found, UINT32_MAX);
    p->role = m->join.role;
    p->at = m->join.at;
    p->code = coord_config_sum(&m->welcome.said.config);
    b.rules = m->rules;
    b.places = m->places;
    tell(m, &b, sizeof b);
}

void member_leave(struct member *m)
{
    struct coord_packet p;
    coord_make(&p, COORD_LEAVE, m->welcome.said.packet.space, &m->welcome.said.config.identity, m->join.nonce);
    p.head.from = m->welcome.said.packet.head.to;
    p.head.epoch = m->welcome.said.packet.head.generation;
    p.role = m->join.role;
    tell(m, &p, sizeof p);
}

void member_beat_if_due(struct member *m, uint64_t now)
{
    if (now < m->beat_ns)
        return;
    watch_coordinator(m, now);
    m->beat_ns = now + COORD_BEAT_NS;
    if (now - m->heard_ns > SILENT_NS) { /* of the next one, too, it waits so long for an answer */
        coord_list_next(&m->join.coordinators);
        m->heard_ns = now;
    }
    member_beat(m, 0, 0);
}

/* ---- questions ---- */

bool member_asked(struct member *m, const void *data, uint32_t len, struct net_addr from, const struct seal_key *used)
{
    const struct packet_head *h = data;
    if (h->family != PACKET_COORDINATOR || h->type != COORD_WHICH)
        return false;
    if (len == sizeof(struct coord_packet)) { /* the answer is not longer */
        struct coord_packet answer;
        coord_make(&answer, COORD_THIS, m->welcome.said.packet.space, &m->welcome.said.config.identity, h->nonce);
        answer.head.from = m->welcome.said.packet.head.to;
        answer.role = m->join.role;
        const struct udp_out out = {.to = from, .len = sizeof answer, .data = &answer, .key = seal_known(used) ? used : NULL};
        udp_send(&m->udp, &out, 1);
    }
    return true;
}

/* ---- joining anew ---- */

void member_rejoin(struct member *m, uint64_t now)
{
    if (m->nonce_next)
        return;
    m->nonce_next = world_random(&world_real) | 1;
    m->joining_until_ns = now + m->welcome.said.config.lease_ns / JOINING_SHARE;
}

bool member_is_rejoining(struct member *m, uint64_t now)
{
    if (m->nonce_next && now >= m->joining_until_ns)
        m->nonce_next = 0; /* a welcome that comes now is void: much may have been granted since */
    if (m->superseded)
        member_rejoin(m, now);
    return m->nonce_next;
}

void member_send_rejoin(struct member *m)
{
    struct join_params j = m->join;
    j.nonce = m->nonce_next;
    j.rack = m->welcome.said.packet.head.to.port + 1u; /* its own place */
    struct coord_packet p = join_packet(&j);
    join_send(&m->udp, coord_list_at(&m->join.coordinators), &m->join.coordinators.asker, &p, sizeof p,
              sizeof(struct coord_welcome));
}

/* Whether the member can go on with that configuration: an operator may have restarted the coordinator with other settings. */
static bool can_take(struct member *m, const struct rack_config *c)
{
    m->outdated = !m->adapts && memcmp(c, &m->welcome.said.config, sizeof *c) != 0;
    return !m->outdated;
}

/* Takes the welcome, and a roster for as many hosts as there can be now. False: it is of another space, or out of memory. */
static bool take_anew(struct member *m, const struct coord_welcome *w)
{
    struct roster *old = m->roster, *r = old;
    if (w->config.machines != old->machines)
        r = roster_make(&w->config, old->ring, old->lives_only);
    if (!r || !join_take(&m->welcome, w)) {
        if (r != old)
            free(r);
        return false;
    }
    if (r == old)
        return true;
    r->answers = old->answers;
    r->forged = old->forged;
    r->unknown = old->unknown;
    r->untagged = old->untagged;
    m->roster = r;
    free(old);
    return true;
}

static enum member_news on_welcome(struct member *m, const struct coord_welcome *w, uint64_t now)
{
    if (!m->nonce_next || now >= m->joining_until_ns || w->packet.head.nonce != m->nonce_next || w->packet.role != m->join.role ||
        w->packet.head.to.port != m->welcome.said.packet.head.to.port ||
        !rack_rules_fine(&w->rules, (unsigned)max_u64(w->config.racks, 1)) || !can_take(m, &w->config) || !take_anew(m, w))
        return MEMBER_NOTHING;
    m->join.nonce = m->nonce_next;
    m->nonce_next = 0;
    m->superseded = false;
    m->look_for = 0;
    m->places = 0; /* the welcome may be older than what was heard: all places are told again */
    take_welcome(m);
    return MEMBER_JOINED;
}

/* ---- what the coordinator says ---- */

static enum member_news on_beat_ack(struct member *m, const struct coord_beat *b)
{
    const struct rack_config *c = &m->welcome.said.config;
    bool grown = m->join.role == COORD_SERVER && m->design->server_grow && b->packet.head.index > c->locks &&
                 b->packet.head.index <= PACKET_LOCKS_MAX;
    if (b->packet.head.index <= c->machines)
        m->look_for = (uint16_t)b->packet.head.index;
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
    if (!m->design->switch_rules || b->rules.version <= m->rules.version || !rack_rules_fine(&b->rules, c->racks))
        return MEMBER_NOTHING;
    if (rules_concern(&m->rules, &b->rules, m->welcome.said.packet.head.to.port))
        return MEMBER_STALE;
    m->rules = b->rules;
    return MEMBER_RULES;
}

static bool is_answer(const struct coord_packet *p)
{
    return p->head.type == COORD_WELCOME || p->head.type == COORD_BEAT_ACK || p->head.type == COORD_REFUSED ||
           p->head.type == COORD_HOSTS;
}

/* Whether it answers a packet of this member: another program does not know the nonce. */
static bool is_for(struct member *m, const struct coord_packet *p)
{
    bool knows = p->head.nonce == m->join.nonce || (m->nonce_next && p->head.nonce == m->nonce_next);
    m->forged += !knows;
    return knows;
}

/* A coordinator that stands by says where the leader is. While a leader answers, that is an old packet. */
static void follow(struct member *m, struct net_addr leader, uint64_t now)
{
    if (now - m->heard_ns < ANSWERED_NS || !net_addr_known(leader))
        return;
    coord_list_follow(&m->join.coordinators, leader);
    m->heard_ns = now;
    m->beat_ns = 0;
}

static enum member_news take_packet(struct member *m, const void *data, uint32_t len, uint64_t now)
{
    const struct coord_packet *p = coord_check(data, len, 0);
    if (p && coord_stands_by(&m->welcome.said.config.identity, p)) {
        if (is_for(m, p))
            follow(m, p->at, now);
        return MEMBER_NOTHING;
    }
    if (p && !coord_knows(&m->welcome.said.config.identity, p)) {
        m->foreign++;
        return MEMBER_NOTHING;
    }
    if (p && is_answer(p) && !is_for(m, p))
        return MEMBER_NOTHING;
    if (p && is_answer(p) && !coord_is_current(&m->term, p)) {
        m->foreign++; /* of a deposed leader: I22 */
        return MEMBER_NOTHING;
    }
    if (p && is_answer(p))
        m->heard_ns = m->answered_ns = now;
    if (p && p->head.type == COORD_WELCOME)
        return on_welcome(m, data, now);
    if (p && p->head.type == COORD_REFUSED && p->code == COORD_ANEW && m->nonce_next && p->head.nonce == m->nonce_next &&
        p->head.generation > m->join.generation) {
        m->join.generation = p->head.generation;
        member_send_rejoin(m);
    }
    if (!p || p->head.nonce != m->join.nonce)
        return MEMBER_NOTHING;
    if (p->head.type == COORD_BEAT_ACK)
        return on_beat_ack(m, data);
    if (p->head.type == COORD_HOSTS)
        roster_take(m->roster, data);
    return p->head.type == COORD_REFUSED && p->code == -ESTALE ? MEMBER_SUPERSEDED : MEMBER_NOTHING;
}

enum member_news member_packet(struct member *m, const void *data, uint32_t len, uint64_t now)
{
    enum member_news news = take_packet(m, data, len, now);
    say_news(m, news);
    return news;
}
