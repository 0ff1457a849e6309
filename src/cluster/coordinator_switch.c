/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's switches: where they are, and which rules they use.
 *
 * Two things are done in an order, so that no lock is ever decided by two switches (I1).
 *
 * Replacing a switch. A silent switch's place is given to one at another address, or its locks to other switches. No heartbeat came
 * for a lease, or for a part of one if another switch waits for the place (seems_gone), but the switch may live and be cut off from
 * the coordinator alone. First all hosts are told that the place is empty, in the packet that renews their leases here. When each
 * host has confirmed that it sends nothing there, or its lease is over, no lease is renewed at that switch any more: *it is away*.
 * Only then its successor begins. The successor waits for a lease for hosts that do not report to it (designs/fisslock/rebuild.h);
 * by then the grants of the old switch are over.
 *
 * Dividing locks anew. A switch that loses locks uses the new rules, in another life, or is away, before the switch that gets them
 * hears of the new rules (rules.h; designs/fisslock/racks.c says why that is enough). */
#include "cluster/coordinator_internal.h"
#include "cluster/mistakes.h"

#include <errno.h>

/* Only designs whose hosts report what they hold can replace a switch: others need more than another address. */
static bool can_move(const struct coordinator *c)
{
    return c->design->packet->switch_expect;
}

/* A switch that runs in the coordinator's process gives its place to another one. It is stopped first, and says so: then no host
 * can get anything from it, and its successor begins at once. */
static bool yields(const struct coordinator *c, const struct coord_station *s)
{
    const struct net_addr own = c->own_switch;
    return own.port && own.port == s->at.port && (!net_addr_known(own) || net_addr_is(own, s->at)) && !s->stopped && !s->away;
}

static struct net_addr none(void)
{
    return (struct net_addr){.port = COORD_AWAY};
}

void coord_switches(const struct coordinator *c, struct net_addr switches[RACKS_MAX])
{
    for (unsigned i = 0; i < RACKS_MAX; i++)
        switches[i] = c->switch_[i].unwritten ? (struct net_addr){0}
                      : c->switch_[i].away    ? none()
                      : c->switch_[i].nonce   ? c->switch_[i].at
                                              : (struct net_addr){0};
}

/* Hosts are to stop sending to the switch in this place, and take nothing from it any more. The log has that before hosts hear of
 * it, as a life that no switch has: the old switch does not get its place again in its old life. */
static bool turn_away(struct coordinator *c, struct coord_station *s, uint64_t now)
{
    uint32_t life = coord_next_life(c, now);
    if (!life)
        return false;
    *s = (struct coord_station){.at = s->at,
                                .life = life,
                                .rules = RULES_NONE,
                                .heard_ns = s->heard_ns,
                                .stopped = s->stopped,
                                .away = true,
                                .unwritten = c->logged};
    return true;
}

static bool is_away(const struct coordinator *c, unsigned i)
{
    if (!c->switch_[i].away)
        return false;
    bool hasty = MISTAKE(c->config.mistakes, COORD_MISTAKE_HASTY);
    for (uint16_t m = 1; m <= c->config.machines && !c->switch_[i].stopped && !hasty; m++)
        if (c->members[m].live && !net_addr_is(c->members[m].switches[i], none()))
            return false;
    return true;
}

/* ---- rules ---- */

/* Whether a switch that loses locks by the latest change has stopped deciding them. */
static bool has_let_go(const struct coordinator *c, unsigned i)
{
    return c->switch_[i].nonce ? c->switch_[i].rules == c->rules.now.version : is_away(c, i);
}

static bool all_have_let_go(const struct coordinator *c)
{
    for (unsigned i = 0; i < c->config.racks; i++)
        if (rules_loses(&c->rules, i) && !has_let_go(c, i))
            return false;
    return true;
}

static const struct rack_rules *rules_for(const struct coordinator *c, unsigned i)
{
    return !rules_gains(&c->rules, i) || all_have_let_go(c) ? &c->rules.now : &c->rules.before;
}

static bool all_have_heard(const struct coordinator *c)
{
    for (unsigned i = 0; i < c->config.racks; i++)
        if (rules_gains(&c->rules, i) && c->switch_[i].rules != c->rules.now.version)
            return false;
    return all_have_let_go(c);
}

const struct rules *coordinator_wants(const struct coordinator *c)
{
    return c->wanted.now.version > c->rules.now.version ? &c->wanted : NULL;
}

void coordinator_set_rules(struct coordinator *c, const struct rules *rules)
{
    assert(rules->now.version >= c->rules.now.version);
    c->rules = c->wanted = *rules;
}

/* A host without a lease at the switch would lose its holds of the locks that move there. */
static bool can_get(const struct coordinator *c, unsigned rack, uint64_t now)
{
    for (uint16_t m = 1; m <= c->config.machines; m++)
        if (c->members[m].live && !(c->members[m].racks >> rack & 1))
            return false;
    return now >= c->open_ns && rack < c->config.racks && c->switch_[rack].nonce && !coord_is_silent(c, &c->switch_[rack], now);
}

static int change_rules(struct coordinator *c, const struct coord_packet *p, uint64_t now)
{
    unsigned first = (unsigned)min_u64(p->head.index, RACK_SHARDS);
    if (!c->design->packet->switch_rules)
        return -EOPNOTSUPP; /* divided for good */
    int rc = rules_move(&c->rules, c->config.racks, first, p->head.generation, p->role, &c->wanted);
    if (!rc && (!all_have_let_go(c) || !can_get(c, p->role, now))) {
        int why = all_have_let_go(c) ? -EAGAIN : -EBUSY;
        c->wanted = c->rules;
        return why;
    }
    return rc == -EALREADY ? (all_have_heard(c) ? 0 : -EINPROGRESS) : rc ? rc : -EINPROGRESS;
}

/* With a key: a command repeats the latest life that was given, and takes the next. So a recorded packet changes nothing. */
static int obey_once(struct coordinator *c, const struct coord_packet *p, uint64_t now)
{
    if (c->keyed && p->stamp != c->life)
        return COORD_ANEW;
    if (c->keyed && !coord_next_life(c, now))
        return -EAGAIN;
    return change_rules(c, p, now);
}

uint32_t coord_on_rules(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now, void *answer)
{
    struct coord_ruled *a = answer;
    bool may = p->code != 1 || coord_may_command(c, from);
    int code = !may ? -EACCES : p->code == 1 ? obey_once(c, p, now) : 0;
    c->drops.forged += !may;
    memset(a, 0, sizeof *a);
    coord_make(&a->packet, COORD_RULED, c->space, &c->config.identity, p->head.nonce);
    a->packet.code = code;
    a->packet.stamp = c->life;
    a->rules = c->rules.now;
    a->racks = c->config.racks;
    for (unsigned i = 0; i < rack_switches(&c->config); i++) {
        const struct coord_station *s = &c->switch_[i];
        a->rack[i].at = s->away ? (struct net_addr){0} : s->at;
        a->rack[i].life = s->away ? 0 : s->life;
        a->rack[i].version = s->rules;
        a->rack[i].heard = s->heard_ns != 0;
        a->rack[i].silent_ms = s->heard_ns ? (uint32_t)min_u64((now - s->heard_ns) / NS_PER_MS, UINT32_MAX) : 0;
    }
    return sizeof *a;
}

/* ---- joining ---- */

static bool has_locks(const struct coordinator *c, unsigned rack)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if (c->rules.now.owner[s] == rack)
            return true;
    return rules_loses(&c->rules, rack) && !has_let_go(c, rack);
}

bool coord_is_complete(const struct coordinator *c)
{
    for (unsigned i = 0; i < c->config.racks; i++)
        if ((!c->switch_[i].nonce || c->switch_[i].unwritten) && has_locks(c, i))
            return false;
    for (unsigned i = 0; i < c->config.servers; i++)
        if (c->server[i].unwritten)
            return false;
    return c->servers == c->config.servers &&
           (c->config.racks || !c->design->packet->switch_packet || (c->switch_[0].nonce && !c->switch_[0].unwritten));
}

/* The place that it names, the one with its address, a free one, or one whose switch is silent. */
static int place_for(const struct coordinator *c, const struct coord_packet *p, struct net_addr at, uint64_t now)
{
    unsigned places = rack_switches(&c->config);
    const struct coord_station *s = c->switch_;
    if (p->head.to.port)
        return p->head.to.port <= places ? p->head.to.port - 1 : -EINVAL;
    for (unsigned i = 0; i < places; i++)
        if (net_addr_is(s[i].at, at))
            return (int)i;
    for (unsigned i = 0; i < places; i++)
        if (!net_addr_known(s[i].at) || (!can_move(c) && !s[i].nonce))
            return (int)i;
    for (unsigned i = 0; i < places && can_move(c); i++)
        if (s[i].stopped || yields(c, &s[i]) || coord_is_silent(c, &s[i], now))
            return (int)i;
    return -EBUSY;
}

#define SEEMS_GONE_SHARE 4u /* of a lease, */
#define SEEMS_GONE_BEATS 3u /* but at least so many heartbeats */

/* Of a pair of switches the second waits for the first one's place. It need not wait for a lease: hosts confirm that they use the
 * first no more before the second begins (is_away). So it has the hosts' reports before their leases have run out, and they keep
 * their holds. A switch that was only cut off from here for so long loses its place. */
static bool seems_gone(const struct coordinator *c, const struct coord_station *s, uint64_t now)
{
    return now - max_u64(s->heard_ns, c->start_ns) > max_u64(c->config.lease_ns / SEEMS_GONE_SHARE, SEEMS_GONE_BEATS * c->beat_ns);
}

/* 0: the place is free for a switch at this address, or its own. */
static int make_room(struct coordinator *c, unsigned i, struct net_addr at, bool waits, bool force, uint64_t now)
{
    struct coord_station *s = &c->switch_[i];
    const bool gone = s->stopped || coord_is_silent(c, s, now) || (waits && seems_gone(c, s, now));
    if (net_addr_is(s->at, at))
        return 0;
    if (can_move(c) && yields(c, s) && !coord_is_silent(c, s, now)) {
        c->yield = true;
        return -EAGAIN;
    }
    if (!s->nonce && !s->away && !can_move(c))
        return coord_unsettled(c, rack_switches(&c->config), now) ? -EAGAIN : 0;
    if (!net_addr_known(s->at) && !s->away) /* a former coordinator may have sent hosts to a switch there: none has named it */
        return now < c->open_ns ? -EAGAIN : 0;
    if (!s->away && (!can_move(c) || !gone))
        return -EBUSY;
    if (!s->away) {
        if (!turn_away(c, s, now))
            return -EAGAIN;
        c->rouse_next = 1; /* hosts ask at once, hear of it, and confirm */
    }
    return is_away(c, i) || force ? 0 : -EAGAIN;
}

uint32_t coord_join_switch(struct coordinator *c, const struct coord_packet *p, struct net_addr at, uint64_t now, void *answer)
{
    if (!c->design->packet->switch_packet)
        return coord_refuse(c, p, -EOPNOTSUPP, answer);
    if (c->servers < c->config.servers || coord_is_held_back(c, now))
        return coord_refuse(c, p, -EAGAIN, answer); /* it needs their addresses */
    if (coord_is_recorded(c, p, c->switch_, rack_switches(&c->config), at))
        return coord_ask_anew(c, p, answer);
    int i = place_for(c, p, at, now);
    bool force = p->code == COORD_FORCE, waits = p->head.to.port;
    int rc = i < 0 ? i : c->switch_[i].nonce == p->head.nonce ? 0 : make_room(c, (unsigned)i, at, waits, force, now);
    if (rc == -EBUSY && waits && can_move(c) && !force)
        rc = -EAGAIN; /* it asked for this place, and waits for it; the operator's word is not for a switch that lives */
    if (rc)
        return coord_refuse(c, p, rc, answer);
    struct coord_station *s = &c->switch_[i];
    if (s->nonce != p->head.nonce) {
        uint32_t life = coord_next_life(c, now);
        if (!life)
            return coord_refuse(c, p, -EAGAIN, answer);
        assert(!s->nonce || net_addr_is(s->at, at)); /* I17: no host uses the former switch, or it was at the same address */
        *s = (struct coord_station){
            .nonce = p->head.nonce, .at = at, .life = life, .rules = RULES_NONE, .heard_ns = now, .unwritten = c->logged};
        c->yield = false;
        c->rouse_next = 1;
    }
    c->unwritten = s->unwritten;
    uint32_t len = coord_welcome(c, p, MACHINE_SWITCH, s->life, now, answer);
    struct coord_welcome *w = answer;
    w->packet.head.to.port = (uint16_t)i;
    w->rules = *rules_for(c, (unsigned)i);
    return len;
}

/* ---- heartbeats ---- */

/* Whether all switches have looked, and none has a lock that names the host. */
bool coord_is_clean(const struct coordinator *c, const struct coord_member *m)
{
    unsigned looking = c->config.racks ? c->config.racks : 1, all = (1u << looking) - 1;
    return !m->until_ns || (m->clean & all) == all || !c->design->packet->switch_scan;
}

/* Takes what a switch found, and says which machine it is to look for next. */
uint32_t coord_beat_switch(struct coordinator *c, const struct coord_beat *beat, uint64_t now, void *answer)
{
    const struct coord_packet *p = &beat->packet;
    unsigned i = p->head.from.port;
    if (i >= rack_switches(&c->config))
        return coord_refuse(c, p, -ESTALE, answer);
    uint32_t len = coord_beat_station(c, beat, now, &c->switch_[i], answer);
    struct coord_beat *a = answer;
    if (!len || a->packet.head.type != COORD_BEAT_ACK)
        return len;
    c->switch_[i].rules = beat->rules.version;
    a->rules = *rules_for(c, i);
    uint64_t found = p->head.index;
    if (found && found <= c->config.machines && !c->members[found].live && c->members[found].until_ns && !p->head.generation)
        c->members[found].clean |= (uint8_t)(1u << i), c->hosts_changed = true;
    for (uint16_t m = 1; m <= c->config.machines && !a->packet.head.index; m++)
        if (!c->members[m].live && !coord_is_clean(c, &c->members[m]) && !(c->members[m].clean >> i & 1))
            a->packet.head.index = m;
    return len;
}

void coord_look_after_switches(struct coordinator *c, uint64_t now)
{
    /* After a restart: the addresses that hosts know. */
    for (unsigned i = 0; i < rack_switches(&c->config) && can_move(c); i++)
        for (uint16_t m = 1; m <= c->config.machines && !net_addr_known(c->switch_[i].at) && !c->switch_[i].away; m++)
            if (c->members[m].live && net_addr_known(c->members[m].switches[i]))
                c->switch_[i].at = c->members[m].switches[i];
    for (unsigned i = 0; i < c->config.racks; i++)
        if (rules_loses(&c->rules, i) && !has_let_go(c, i) && !c->switch_[i].away && coord_is_silent(c, &c->switch_[i], now))
            turn_away(c, &c->switch_[i], now);
}
