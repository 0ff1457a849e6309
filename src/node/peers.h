/* SPDX-License-Identifier: Apache-2.0 */
/* Where packets for a place go: learnt from where that place's packets come from, as switches learn. */
#ifndef PAWL_NODE_PEERS_H
#define PAWL_NODE_PEERS_H

#include "lib/hash.h"
#include "wire/udp.h"

#define PEERS 16384u    /* places known at once; a power of two */
#define PEERS_PROBES 8u /* that one place may lie at; the first gives way if all are taken */

struct peers {
    struct {
        struct place place;
        uint32_t life;
        struct net_addr at; /* ip 0: nobody */
        bool direct;        /* it was there itself */
    } slot[PEERS];
};

static inline uint32_t peers_first(struct place p)
{
    return (uint32_t)mix64((uint64_t)p.machine << 16 | p.port) % PEERS;
}

static inline bool peers_find(const struct peers *t, struct place p, struct net_addr *out)
{
    for (uint32_t i = peers_first(p), n = 0; n < PEERS_PROBES; n++, i = (i + 1) % PEERS)
        if (t->slot[i].at.ip && t->slot[i].place.machine == p.machine && t->slot[i].place.port == p.port) {
            *out = t->slot[i].at;
            return true;
        }
    return false;
}

/* An older life's packets do not move a newer one's address, nor do those that another sent on in its name. */
static inline void peers_learn(struct peers *t, struct place p, uint32_t life, struct net_addr at, bool direct)
{
    uint32_t first = peers_first(p), to = first;
    for (uint32_t i = first, n = 0; n < PEERS_PROBES; n++, i = (i + 1) % PEERS) {
        bool same = t->slot[i].place.machine == p.machine && t->slot[i].place.port == p.port;
        if (same && t->slot[i].at.ip && (t->slot[i].life > life || (t->slot[i].life == life && t->slot[i].direct && !direct)))
            return;
        if (same || !t->slot[i].at.ip) {
            to = i;
            break;
        }
    }
    t->slot[to].place = p;
    t->slot[to].life = life;
    t->slot[to].at = at;
    t->slot[to].direct = direct;
}

#endif
