/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a rack as a lock server or switch knows them: their lives and addresses, as the coordinator gave and saw them. A
 * packet in the name of a host is taken from its address only, and only if the coordinator has given its life. Free of I/O: the
 * caller asks the coordinator when the roster says so. */
#ifndef PAWL_CLUSTER_ROSTER_H
#define PAWL_CLUSTER_ROSTER_H

#include "cluster/coordinator.h"
#include "dataplane/fission.h"

#define ROSTER_ASK_NS (5 * NS_PER_MS) /* between two questions about hosts that are not known */
#define ROSTER_PARKED 8u /* packets: a host that has just joined sends two or three before the coordinator has answered */

struct roster_parked {
    struct net_addr from;
    uint32_t len;
    bool opened; /* its tag was right */
    _Alignas(8) uint8_t bytes[PACKET_MAX];
};

struct roster_host {
    uint32_t life;  /* the latest that was given; 0: none is known */
    uint32_t which; /* of its keys: the one with which it tags */
    struct net_addr at;
    struct seal_key key[SEAL_KEYS]; /* of that life, by each of the cluster's keys; none: packets are not tagged */
    uint64_t due_ns;                /* when its packets so far would have come at the rate that it may have */
    uint64_t limited;               /* packets that were refused since they came too fast */
};

struct roster {
    uint16_t machines;
    uint32_t space;
    const struct seal_ring *ring; /* the cluster's keys; null: packets are not tagged */
    bool lives_only;              /* something lies between hosts and this member: it does not see their addresses */
    uint16_t wanted;              /* the first number about which the coordinator is to be asked; 0: none */
    uint64_t asked_ns, ask_ns;    /* ask_ns: between two questions */
    uint64_t answers;             /* of the coordinator */
    uint64_t forged;              /* packets in the name of a host that came from another address, */
    uint64_t unknown;             /* or with a life that the coordinator has not given, as far as it is known here; */
    uint64_t late;                /* or with a former life of it; */
    uint64_t untagged;            /* and packets without the tag of their sender's key; */
    uint64_t limited;             /* and those beyond what a host may send: */
    uint64_t gap_ns, burst_ns;    /* one packet in gap_ns (0: any number), and as many at once as come in burst_ns at that rate */
    unsigned parks;
    struct roster_parked parked[ROSTER_PARKED]; /* packets of hosts that the coordinator has not told of yet */
    struct roster_host host[];                  /* by number, from 0 on */
};

/* Null: out of memory. The caller frees it. */
struct roster *roster_make(const struct rack_config *c, const struct seal_ring *ring, bool lives_only);

/* Whether a packet may be in the name of that host. `life` is the host's as the packet has it; 0: the packet has none. */
static inline bool roster_knows(const struct roster *r, uint16_t machine, uint32_t life, struct net_addr from)
{
    const struct roster_host *h = &r->host[machine];
    return h->life && (!life || life == h->life) && (r->lives_only || net_addr_same_ip(h->at, from));
}

/* The same. Counts the packet if not, and notes that the coordinator is to be asked, unless the life is an old one. */
bool roster_admits(struct roster *r, uint16_t machine, uint32_t life, struct net_addr from);

/* Sets how many packets one host may send a second; 0: any number. A tenth of a second's may come at once, and at least a thousand.
 */
void roster_limit(struct roster *r, uint64_t packets_per_s);
#define ROSTER_PACKETS_LEAST 100u /* a second: the fewest that a limit leaves, for leases and one client */

/* Whether the host may send one more; if not, the packet is counted. For rosters with a limit. */
static inline bool roster_takes(struct roster *r, uint16_t machine, uint64_t now)
{
    struct roster_host *h = &r->host[machine];
    uint64_t due = h->due_ns > now ? h->due_ns : now;
    bool takes = due - now <= r->burst_ns;
    h->due_ns = takes ? due + r->gap_ns : due;
    h->limited += !takes;
    r->limited += !takes;
    return takes;
}

/* Opens a packet that a lock server or switch got, with the key of the member in whose name it is. The packet is as it was before
 * it was tagged then. Without keys every packet is open. */
bool roster_opens(struct roster *r, void *data, uint32_t len, struct seal_key *used);

/* By which packets to that host are tagged; null: they are not. */
static inline const struct seal_key *roster_key(const struct roster *r, uint16_t machine)
{
    const struct roster_host *h = &r->host[machine];
    return r->ring ? &h->key[h->which] : NULL;
}

/* A packet that was not admitted: it may be of a host that the coordinator has not told of yet. `opened`: its tag was right. */
void roster_park(struct roster *r, const struct packet_head *h, uint32_t len, struct net_addr from, bool opened);

/* After an answer of the coordinator: the next packet that was parked and is admitted now, from *i = 0 on. Null: all others are
 * gone. */
struct roster_parked *roster_unpark(struct roster *r, unsigned *i);

/* The coordinator's answer. */
void roster_take(struct roster *r, const struct coord_hosts *h);

/* Whether to ask the coordinator now: from which number on; 0: not now. */
uint16_t roster_question(struct roster *r, uint64_t now);

/* Whether a host of the rack has this address. */
bool roster_has(const struct roster *r, struct net_addr from);

/* The life of the host that sends a lock packet, as the packet has it; 0: it has none. */
static inline uint32_t roster_life_of(const struct packet_head *h)
{
    if (h->family == PACKET_FISSION) /* whose packets have the switch's life */
        return h->type == FISSION_LEASE ? (uint32_t)h->nonce : 0;
    return h->epoch;
}

#endif
