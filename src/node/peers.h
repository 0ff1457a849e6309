/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of places, learnt from the packets that come from there, as switches learn. */
#ifndef PAWL_NODE_PEERS_H
#define PAWL_NODE_PEERS_H

#include "lib/hash.h"
#include "wire/udp.h"

#define PEERS 16384u    /* places known at once; a power of two */
#define PEERS_PROBES 8u /* entries that one place may have; the first is overwritten if all are taken */

struct peers {
    struct {
        struct place place;
        uint32_t life;
        struct net_addr at; /* none: the entry is free */
        bool direct;        /* the packet came from the place itself */
    } entry[PEERS];
};

static inline uint32_t peers_first(struct place p)
{
    return (uint32_t)mix64((uint64_t)p.machine << 16 | p.port) % PEERS;
}

static inline bool peers_find(const struct peers *t, struct place p, struct net_addr *out)
{
    for (uint32_t i = peers_first(p), n = 0; n < PEERS_PROBES; n++, i = (i + 1) % PEERS)
        if (net_addr_known(t->entry[i].at) && t->entry[i].place.machine == p.machine && t->entry[i].place.port == p.port) {
            *out = t->entry[i].at;
            return true;
        }
    return false;
}

/* Packets of an older life do not change the address of a newer one. Relayed packets do not change a direct address. */
static inline void peers_learn(struct peers *t, struct place p, uint32_t life, struct net_addr at, bool direct)
{
    uint32_t first = peers_first(p), to = first;
    for (uint32_t i = first, n = 0; n < PEERS_PROBES; n++, i = (i + 1) % PEERS) {
        bool same = t->entry[i].place.machine == p.machine && t->entry[i].place.port == p.port;
        if (same && net_addr_known(t->entry[i].at) &&
            (t->entry[i].life > life || (t->entry[i].life == life && t->entry[i].direct && !direct)))
            return;
        if (same || !net_addr_known(t->entry[i].at)) {
            to = i;
            break;
        }
    }
    t->entry[to].place = p;
    t->entry[to].life = life;
    t->entry[to].at = at;
    t->entry[to].direct = direct;
}

#endif
