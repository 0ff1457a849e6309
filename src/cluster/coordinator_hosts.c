/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's hosts: their numbers, lives and membership leases.
 *
 * A host that is silent keeps its number until its membership lease has surely ended: it may live, be cut off from the coordinator
 * alone, and hold locks. The log has the life of every host before the host is welcome. So a coordinator that restarts knows which
 * hosts to wait for: those in its log are live until they leave or the longest membership lease has ended. All other numbers are
 * free at once.
 *
 * A host of another configuration than today's is refused: its locks may belong to other lock servers by now, and its leases have
 * another length. It ends its sessions and says that it leaves. Until all such hosts are gone, no member is let in (I16). */
#include "cluster/coordinator_internal.h"
#include "cluster/mistakes.h"

#include <errno.h>
#include <stdio.h>

/* ---- the beginning ---- */

void coord_hosts_begin(struct coordinator *c, const struct coord_params *p, uint64_t now)
{
    const struct rack_state *s = p->state;
    uint64_t longest = rack_member_ns(&c->config);
    if (s)
        longest = max_u64(longest, max_u64(s->lease_ns, s->hosts.member_ns)); /* I16 */
    uint64_t over = now + lease_surely_over(longest);
    bool beyond = false;
    c->hosts_known = s && s->hosts.settled;
    c->changed = s && !p->fresh && s->hosts.settled != c->config.identity.version;
    for (uint32_t m = 1; m <= STATE_HOSTS_MAX && !p->fresh; m++) {
        uint32_t life = c->hosts_known ? s->host[m] : 0;
        if (m > p->machines)
            beyond = beyond || life; /* of a configuration with more numbers: it can only be waited for */
        else if (life)
            c->members[m] = (struct coord_member){.life = life, .live = true, .unheard = true, .until_ns = over};
        else if (!c->hosts_known)
            c->members[m].until_ns = 1; /* a former coordinator may have given the number, and locks may name it */
    }
    c->open_ns = p->fresh || (c->hosts_known && !beyond) ? now : over;
}

/* ---- joining ---- */

static uint64_t lease_from(const struct coordinator *c, uint64_t now)
{
    return now + lease_surely_over(rack_member_ns(&c->config));
}

/* The host may hold for a membership lease from when it sent the packet: it is waited for as long (I16). A packet that is no later
 * than another one lets it hold no longer than that one does. */
static void renew(const struct coordinator *c, struct coord_member *m, uint64_t stamp, uint64_t now)
{
    if (lease_is_news(stamp, m->asked_ns, c->config.mistakes)) {
        m->asked_ns = stamp;
        m->until_ns = lease_from(c, now);
    }
    assert(m->asked_ns >= stamp); /* I16: the host is waited for as long as the answer to this packet lets it hold */
}

static uint32_t welcome(struct coordinator *c, const struct coord_packet *p, uint16_t number, uint64_t now, void *answer)
{
    struct coord_member *m = &c->members[number];
    if (!MISTAKE(c->config.mistakes, COORD_MISTAKE_JOIN)) /* earlier answers may be lost: the host counts from this JOIN */
        renew(c, m, p->stamp, now);
    assert(m->live);
    c->unwritten = m->unwritten;
    uint32_t len = coord_welcome(c, p, number, m->life, now, answer);
    /* The places that the host knows are those of its heartbeats: an earlier answer to the same JOIN may be the one that it takes.
     */
    ((struct coord_welcome *)answer)->places = coord_places(c);
    return len;
}

/* Whether the address has as many hosts as one may have: others find room. */
static bool has_enough(const struct coordinator *c, struct net_addr from)
{
    uint32_t count = 0;
    for (uint16_t m = 1; m <= c->config.machines; m++)
        count += c->members[m].live && net_addr_same_ip(c->members[m].at, from);
    return count >= max_u64(c->config.machines / COORD_HOSTS_SHARE, COORD_HOSTS_LEAST);
}

uint32_t coord_join_host(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now, void *answer)
{
    uint16_t empty = 0;
    bool later = false;
    if (!coord_is_complete(c) || c->changed || now < c->open_ns)
        return coord_refuse(c, p, -EAGAIN, answer);
    for (uint16_t m = 1; m <= c->config.machines; m++) {
        const struct coord_member *member = &c->members[m];
        if (member->live && !member->unheard && member->nonce == p->head.nonce) {
            if (member->key == p->head.from.port)
                return welcome(c, p, m, now, answer);
            c->drops.forged++; /* another key: the sender has read the nonce, and must not get the host's key */
            return 0;
        }
        if (member->live ? member->unheard : !coord_is_clean(c, member))
            later = true;
        else if (!empty && !member->live)
            empty = m;
    }
    if (c->keyed && p->head.generation < c->gone)
        return coord_ask_anew(c, p, answer); /* the host of a recorded JOIN may be gone */
    if (has_enough(c, from)) {
        c->drops.limited++;
        return coord_refuse(c, p, -EUSERS, answer);
    }
    if (!empty)
        return coord_refuse(c, p, later ? -EAGAIN : -ENOSPC, answer);
    assert(!c->members[empty].live && coord_is_clean(c, &c->members[empty])); /* I6, I11: no lock names the number's former host */
    uint32_t life = coord_next_life(c, now);
    if (!life)
        return coord_refuse(c, p, -EAGAIN, answer);
    c->members[empty] = (struct coord_member){.nonce = p->head.nonce,
                                              .until_ns = lease_from(c, now),
                                              .asked_ns = p->stamp,
                                              .life = life,
                                              .live = true,
                                              .unwritten = c->logged,
                                              .key = p->head.from.port,
                                              .at = from};
    c->hosts_changed = true;
    coord_switches(c, c->members[empty].switches);
    return welcome(c, p, empty, now, answer);
}

/* ---- senders ---- */

bool coord_is_from_host(struct coordinator *c, const struct coord_member *m, const struct coord_packet *p, struct net_addr from)
{
    bool knows = !m->nonce || p->head.nonce == m->nonce, there = !net_addr_known(m->at) || net_addr_same_ip(m->at, from);
    c->drops.forged += !knows || !there;
    return knows && there;
}

bool coord_is_of_rack(const struct coordinator *c, struct net_addr from)
{
    bool found = net_addr_is_localhost(&from) || net_addr_same_ip(c->own, from);
    for (unsigned i = 0; i < c->config.servers && !found; i++)
        found = net_addr_same_ip(c->server[i].at, from);
    for (unsigned i = 0; i < RACKS_MAX && !found; i++)
        found = net_addr_same_ip(c->switch_[i].at, from);
    for (uint16_t m = 1; m <= c->config.machines && !found; m++)
        found = c->members[m].live && net_addr_same_ip(c->members[m].at, from);
    return found;
}

bool coord_may_command(const struct coordinator *c, struct net_addr from)
{
    return c->keyed || coord_is_of_rack(c, from);
}

/* ---- heartbeats ---- */

static void take_beat(struct coordinator *c, struct coord_member *m, const struct coord_beat *beat, struct net_addr from,
                      uint64_t now)
{
    m->unheard = false;
    renew(c, m, beat->packet.stamp, now);
    m->at = from;                           /* most often its pool's; it answers questions there */
    if (beat->packet.stamp >= m->said_ns) { /* else a later heartbeat has overtaken it */
        m->said_ns = beat->packet.stamp;
        m->racks = (uint32_t)beat->packet.head.index;
        m->places = beat->places;
        memcpy(m->switches, beat->switches, sizeof m->switches);
    }
}

uint32_t coord_beat_host(struct coordinator *c, const struct coord_beat *beat, struct net_addr from, uint64_t now, void *answer)
{
    const struct coord_packet *p = &beat->packet;
    uint16_t number = p->head.from.machine;
    if (!number || number > c->config.machines || !p->head.epoch) {
        c->drops.bad++;
        return 0;
    }
    struct coord_member *m = &c->members[number];
    bool today = coord_is_of_today(c, p->code);
    /* A host that joined a former coordinator and is not in the log, because there was none. A life that was never reserved is of a
     * coordinator with a later state than ours. */
    if (!c->hosts_known && !m->life && now < c->open_ns && today && p->head.epoch <= c->lives)
        *m = (struct coord_member){.life = p->head.epoch, .live = true};
    if (!m->live || m->life != p->head.epoch || (m->unheard && !today))
        return coord_refuse(c, p, -ESTALE, answer);
    if (!coord_is_from_host(c, m, p, from))
        return 0;
    c->life = c->life > m->life ? c->life : m->life;
    m->nonce = p->head.nonce;
    take_beat(c, m, beat, from, now);
    uint32_t len = coord_acknowledge(c, p, answer);
    coord_tell_size(c, answer);
    coord_tell_place(c, m, answer);
    return len;
}

static void is_gone(struct coordinator *c, struct coord_member *m)
{
    m->live = false;
    c->gone = m->life > c->gone ? m->life : c->gone;
    c->hosts_changed = true;
}

void coord_host_leaves(struct coordinator *c, const struct coord_packet *p, struct net_addr from)
{
    uint16_t number = p->head.from.machine;
    if (!number || number > c->config.machines || !c->members[number].live || c->members[number].life != p->head.epoch) {
        c->drops.stale++;
        return;
    }
    if (!coord_is_from_host(c, &c->members[number], p, from))
        return;
    is_gone(c, &c->members[number]);
}

/* ---- time ---- */

unsigned coord_look_after_hosts(struct coordinator *c, uint64_t now)
{
    unsigned live = 0, unheard = 0;
    for (uint32_t i = 1; i <= c->config.machines; i++) {
        struct coord_member *m = &c->members[i];
        if (m->live && now >= m->until_ns)
            is_gone(c, m);
        live += m->live;
        unheard += m->live && m->unheard;
    }
    c->settled = c->changed && !unheard && now >= c->open_ns;
    return live;
}

bool coordinator_is_settled(const struct coordinator *c)
{
    return c->settled;
}

void coordinator_set_settled(struct coordinator *c)
{
    c->changed = c->settled = false;
    c->hosts_known = true;
}

uint32_t coordinator_host_life(const struct coordinator *c, uint16_t number)
{
    const struct coord_member *m = &c->members[number];
    if (!m->live && coord_is_clean(c, m))
        return 0;
    return m->life ? m->life : 1; /* of an unknown life, which a lock may name */
}

/* ---- lists of hosts ---- */

uint32_t coord_on_who(const struct coordinator *c, const struct coord_packet *p, void *answer)
{
    struct coord_hosts *a = answer;
    uint64_t m = max_u64(1, p->head.index);
    memset(a, 0, sizeof *a);
    coord_make(&a->packet, COORD_HOSTS, c->space, &c->config.identity, p->head.nonce);
    snprintf(a->design, sizeof a->design, "%s", c->design->name);
    a->locks = c->config.locks;
    a->lease_ns = c->config.lease_ns;
    a->keys = c->config.keys;
    a->sessions = c->config.sessions;
    a->requests = c->config.requests;
    /* A lock server or switch asks which lives were given. Others ask for addresses. */
    bool lives = p->role == COORD_SERVER || p->role == COORD_SWITCH;
    for (; m <= c->config.machines && a->count < COORD_HOSTS_MAX; m++)
        if (c->members[m].live && !c->members[m].unwritten && (lives || net_addr_known(c->members[m].at)))
            a->host[a->count++] = (struct coord_host){.at = c->members[m].at, .machine = (uint32_t)m, .life = c->members[m].life};
    a->packet.head.index = m <= c->config.machines ? m : 0;
    return sizeof *a;
}

uint32_t coordinator_news(const struct coordinator *c, uint16_t machine, unsigned *station, void *packet, struct net_addr *to)
{
    while (*station < (unsigned)c->config.servers + RACKS_MAX) {
        unsigned i = (*station)++;
        const struct coord_station *s = i < c->config.servers ? &c->server[i] : &c->switch_[i - c->config.servers];
        if (!s->nonce || s->away || !net_addr_known(s->at))
            continue;
        struct coord_packet who;
        coord_make(&who, COORD_WHO, c->space, &c->config.identity, s->nonce);
        who.head.index = machine;
        who.role = COORD_SERVER;
        uint32_t len = coord_on_who(c, &who, packet);
        struct coord_hosts *a = packet;
        a->packet.term = c->term; /* I22 */
        a->packet.head.index = 0; /* all that there is to tell */
        *to = s->at;
        return len;
    }
    return 0;
}
