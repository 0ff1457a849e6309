/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/roster.h"

#include <stdlib.h>

struct roster *roster_make(const struct rack_config *c, const struct seal_ring *ring, bool lives_only)
{
    struct roster *r = calloc(1, sizeof *r + (c->machines + UINT64_C(1)) * sizeof *r->host);
    if (!r)
        return NULL;
    r->machines = c->machines;
    r->lives_only = lives_only;
    r->space = c->space;
    r->ring = ring && ring->count ? ring : NULL;
    r->ask_ns = ROSTER_ASK_NS;
    r->wanted = 1; /* hosts that joined before this member */
    return r;
}

void roster_limit(struct roster *r, uint64_t packets_per_s)
{
    r->gap_ns = packets_per_s ? max_u64(NS_PER_S / packets_per_s, 1) : 0;
    r->burst_ns = max_u64(NS_PER_S / 10, 1000 * r->gap_ns);
}

bool roster_admits(struct roster *r, uint16_t machine, uint32_t life, struct net_addr from)
{
    struct roster_host *h = &r->host[machine];
    assert(machine && machine <= r->machines);
    if (likely(roster_knows(r, machine, life, from)))
        return true;
    if (h->life && life == h->life && !net_addr_known(h->at)) { /* the coordinator has not heard of it since its own restart */
        h->at = net_addr_at_port(from, 0);
        return true;
    }
    if (life && life < h->life) {
        r->late++;
        return false;
    }
    bool unknown = !h->life || (life && life != h->life);
    r->unknown += unknown;
    r->forged += !unknown;
    r->wanted = r->wanted && r->wanted < machine ? r->wanted : machine;
    return false;
}

static void make_keys(const struct roster *r, struct roster_host *h, uint16_t machine, uint32_t life)
{
    h->which = 0;
    for (unsigned i = 0; r->ring && i < r->ring->count; i++)
        h->key[i] = seal_host_key(&r->ring->key[i], r->space, machine, life);
}

static bool opens_host(struct roster_host *h, void *data, uint32_t len, unsigned count)
{
    if (likely(seal_open(&h->key[h->which], data, len)))
        return true;
    if (count < 2 || !seal_open(&h->key[!h->which], data, len))
        return false;
    h->which = !h->which;
    return true;
}

bool roster_opens(struct roster *r, void *data, uint32_t len, struct seal_key *used)
{
    uint16_t m = ((const struct packet_head *)data)->from.machine;
    bool opened;
    if (!r->ring)
        return true;
    if (likely(m && m <= r->machines)) {
        struct roster_host *h = &r->host[m];
        opened = h->life && opens_host(h, data, len, r->ring->count);
        *used = h->key[h->which];
    } else {
        const struct packet_head *p = data;
        bool asks = p->family == PACKET_ECHO || (p->family == PACKET_COORDINATOR && p->type == COORD_WHICH);
        opened = (m || !p->from.port || asks) && seal_open_any(r->ring, data, len, 0, 0, used); /* a host's key only asks */
    }
    return opened;
}

void roster_park(struct roster *r, const struct packet_head *h, uint32_t len, struct net_addr from, bool opened)
{
    if (!r->wanted || r->parks == ROSTER_PARKED || h->from.machine > r->machines)
        return;
    struct roster_parked *p = &r->parked[r->parks++];
    p->from = from;
    p->len = len;
    p->opened = opened;
    memcpy(p->bytes, h, len);
}

struct roster_parked *roster_unpark(struct roster *r, unsigned *i)
{
    uint16_t wanted = r->wanted; /* the answer is there: a packet that it does not admit asks no second time */
    struct roster_parked *found = NULL;
    for (; *i < r->parks && !found; ++*i) {
        struct roster_parked *p = &r->parked[*i];
        const struct packet_head *h = (const struct packet_head *)(const void *)p->bytes;
        if (roster_admits(r, h->from.machine, roster_life_of(h), p->from))
            found = p;
    }
    r->wanted = wanted;
    r->parks = found ? r->parks : 0;
    return found;
}

void roster_take(struct roster *r, const struct coord_hosts *h)
{
    r->answers++;
    for (uint32_t i = 0; i < h->count && i < COORD_HOSTS_MAX; i++) {
        const struct coord_host *from = &h->host[i];
        if (!from->machine || from->machine > r->machines || from->life < r->host[from->machine].life)
            continue;
        struct roster_host *to = &r->host[from->machine];
        if (from->life > to->life || net_addr_known(from->at))
            to->at = from->at;
        if (from->life != to->life)
            make_keys(r, to, (uint16_t)from->machine, from->life);
        to->life = from->life;
    }
    if (h->packet.head.index && h->packet.head.index <= r->machines)
        r->wanted = (uint16_t)h->packet.head.index; /* there are more */
}

uint16_t roster_question(struct roster *r, uint64_t now)
{
    uint16_t wanted = r->wanted;
    if (!wanted || now - r->asked_ns < r->ask_ns)
        return 0;
    r->wanted = 0;
    r->asked_ns = now;
    return wanted;
}

bool roster_has(const struct roster *r, struct net_addr from)
{
    bool found = false;
    for (uint32_t m = 1; m <= r->machines && !found; m++)
        found = r->host[m].life && net_addr_same_ip(r->host[m].at, from);
    return found;
}
