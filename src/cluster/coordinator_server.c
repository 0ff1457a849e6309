/* SPDX-License-Identifier: Apache-2.0 */
/* The places of lock servers.
 *
 * A server that is lost for good is replaced by one at another address. The old one may live and be cut off from the coordinator
 * alone, so its place is given away only when no host can use it any more. First the place is *away*: hosts are told so in the
 * acknowledgements of their heartbeats, one changed place at a time, in the order of the places' versions. A host confirms the
 * version with its next heartbeat. From then on it sends nothing to the old server and takes nothing from it: no hold begins there,
 * and the host's lock lease there ends. When each host has confirmed, or its membership lease has ended, the successor begins. It
 * waits for a lock lease before it grants. If the old server says that it has stopped, no confirmation is needed. Versions are
 * lives, so they rise over restarts of the coordinator.
 *
 * Switches and lock servers that talk to each other hear of places likewise. No confirmation of theirs is needed: hosts decide what
 * they hold. A switch of NetLock that passes a request on to the old server does so in vain, and the successor's first packet ends
 * the old server's life at the switch.
 *
 * Hosts of FissLock send nothing to a server: the switch does, and passes on what the server decides. So the successor begins as
 * soon as the old server is silent or has stopped. The successor's life is higher than the switch's, which therefore begins another
 * life: hosts report their holds, and what the old server decides in a former life of the switch does not count. The old server is
 * not part of the new life: the switch sends its welcome to where the coordinator says that the server is. */
#include "cluster/coordinator_internal.h"
#include "cluster/mistakes.h"

#include <errno.h>

void coord_servers_begin(struct coordinator *c)
{
    for (unsigned i = 0; i < c->config.servers; i++)
        c->server[i].version = ++c->life; /* hosts may know another state of the place than the log */
}

uint32_t coord_places(const struct coordinator *c)
{
    uint32_t latest = 0;
    for (unsigned i = 0; i < c->config.servers; i++)
        latest = c->server[i].version > latest ? c->server[i].version : latest;
    return latest;
}

struct net_addr coord_server_at(const struct coordinator *c, unsigned i)
{
    return c->server[i].away ? (struct net_addr){.port = COORD_AWAY} : c->server[i].at;
}

void coord_tell_place(const struct coordinator *c, const struct coord_member *m, struct coord_beat *ack)
{
    unsigned next = RACK_SERVERS_MAX;
    ack->places = m->places;
    for (unsigned i = 0; i < c->config.servers; i++) {
        const struct coord_station *s = &c->server[i];
        if ((net_addr_known(s->at) || s->away) && s->version > m->places &&
            (next == RACK_SERVERS_MAX || s->version < c->server[next].version))
            next = i;
    }
    if (next == RACK_SERVERS_MAX || c->server[next].unwritten)
        return;
    ack->places = c->server[next].version;
    ack->packet.role = next + 1;
    ack->packet.at = coord_server_at(c, next);
    ack->packet.code = (int32_t)c->server[next].life;
}

/* ---- replacing ---- */

/* The log has it before hosts hear of it, as a life that no server has: they will take nothing from the old server any more, so it
 * must not have its place again in its old life. */
static bool turn_away(struct coordinator *c, struct coord_station *s, uint64_t now)
{
    uint32_t version = coord_next_life(c, now);
    if (!version)
        return false;
    c->servers -= s->nonce != 0;
    *s = (struct coord_station){.at = s->at,
                                .life = version,
                                .version = version,
                                .heard_ns = s->heard_ns,
                                .stopped = s->stopped,
                                .away = true,
                                .unwritten = c->logged};
    return true;
}

/* Whether the host may still send to the server that had the place. */
static bool may_use(const struct coordinator *c, const struct coord_member *m, const struct coord_station *s, uint64_t now)
{
    uint64_t heard_ns = m->until_ns - lease_surely_over(rack_member_ns(&c->config));
    if (MISTAKE(c->config.mistakes, COORD_MISTAKE_HASTY) && now - heard_ns > lease_surely_over(c->config.lease_ns))
        return false;
    return m->live && m->places < s->version;
}

static bool is_away(const struct coordinator *c, const struct coord_station *s, uint64_t now)
{
    if (!s->away || now < c->open_ns)
        return false;
    for (uint16_t m = 1; m <= c->config.machines && !s->stopped; m++)
        if (may_use(c, &c->members[m], s, now))
            return false;
    return true;
}

/* 0: another server may have the place. */
static int make_room(struct coordinator *c, struct coord_station *s, bool force, uint64_t now)
{
    if (!net_addr_known(s->at) && !s->away)
        return 0;
    bool lost = s->stopped || coord_is_silent(c, s, now);
    if (!s->away && !lost)
        return s->nonce ? -ENOSPC : -EAGAIN; /* a former coordinator gave the place, and its server may be heard of yet */
    if (c->design->packet->spills)
        return 0; /* no host uses it */
    if (!s->away && !turn_away(c, s, now))
        return -EAGAIN;
    return is_away(c, s, now) || force ? 0 : -EAGAIN;
}

/* The place that has its address, or one that is free or becomes free. */
static int place_for(struct coordinator *c, struct net_addr at, bool force, uint64_t now)
{
    int rc = -ENOSPC;
    for (unsigned i = 0; i < c->config.servers; i++)
        if (net_addr_is(c->server[i].at, at))
            return (int)i;
    if (coord_unsettled(c, c->config.servers, now))
        return -EAGAIN;
    for (unsigned away = 0; away < 2; away++) /* places that are away already come first */
        for (unsigned i = 0; i < c->config.servers; i++) {
            if (c->server[i].away == away)
                continue;
            int room = make_room(c, &c->server[i], force, now);
            if (!room)
                return (int)i;
            if (c->server[i].away)
                return -EAGAIN; /* one place at a time */
            rc = room == -EAGAIN ? room : rc;
        }
    return rc;
}

uint32_t coord_join_server(struct coordinator *c, const struct coord_packet *p, struct net_addr at, uint64_t now, void *answer)
{
    if (coord_is_recorded(c, p, c->server, c->config.servers, at))
        return coord_ask_anew(c, p, answer);
    int i = coord_is_held_back(c, now) ? -EAGAIN : place_for(c, at, p->code == COORD_FORCE, now);
    if (i < 0)
        return coord_refuse(c, p, i, answer);
    struct coord_station *s = &c->server[i];
    if (s->nonce != p->head.nonce) {
        uint32_t life = coord_next_life(c, now);
        if (!life)
            return coord_refuse(c, p, -EAGAIN, answer);
        assert(!net_addr_known(s->at) || net_addr_is(s->at, at) || s->away ||
               c->design->packet->spills); /* I17: as make_room said */
        if (net_addr_known(s->at))
            c->rouse_next = 1; /* hosts ask at once where the lock server is */
        c->servers += !s->nonce;
        *s = (struct coord_station){.nonce = p->head.nonce, .at = at, .life = life, .version = life, .unwritten = c->logged};
    }
    coord_hear_station(c, s, p, now);
    c->unwritten = s->unwritten;
    return coord_welcome(c, p, c->config.server[i], s->life, now, answer);
}
