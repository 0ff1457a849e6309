/* SPDX-License-Identifier: Apache-2.0 */
/* A lock server or switch as a member of a rack: how it joins, sends heartbeats, finds the coordinator that leads, learns of rules,
 * places and hosts, and joins anew when its life is over. Free of I/O: the daemon (node/member.h) and the simulated rack hand in
 * packets and the time, and send what comes out. */
#ifndef PAWL_CLUSTER_MEMBER_H
#define PAWL_CLUSTER_MEMBER_H

#include "cluster/join.h"
#include "cluster/roster.h"

struct member {
    struct join_params join; /* set by the owner, but for nonce, generation and identity */
    struct net_addr at;      /* its socket's, where join.at is one that others know */
    struct world *world;     /* for nonces */
    /* Sends a packet to the coordinator at `to`, in a datagram that is as long as the answer. */
    void (*send)(const struct member *m, struct net_addr to, const void *packet, uint32_t len, uint32_t answer_len);
    void *owner;                  /* the owner's own */
    const struct seal_ring *ring; /* the cluster's keys; null: packets are not tagged */
    bool lives_only;              /* of its roster */
    bool adapts;                  /* if the space has other settings than before, the member takes them when it joins anew */
    bool stays;                   /* a program in the kernel decides: it goes on whatever happens, and does not join anew */
    uint64_t every_ns;            /* between two heartbeats */

    struct rack_welcome welcome;        /* the latest */
    const struct packet_design *design; /* the owner's, or found by the welcome; null: this build does not know it */
    struct rack_rules rules;            /* by which it goes, if locks are divided */
    struct roster *roster;              /* the hosts that there are; null: it never joined */
    uint64_t nonce_next;                /* of the JOIN by which it joins (anew); 0: it does not: it has joined */
    uint64_t joining_until_ns;          /* until then a welcome counts, unless it is superseded */
    uint64_t due_ns;                    /* when the next heartbeat or JOIN is */
    uint64_t said;                      /* heartbeats and JOINs so far: each has a number, by which a recorded one is known */
    uint64_t term;                      /* of the latest coordinator that was heard */
    uint64_t heard_ns;                  /* and when, or when another coordinator was tried */
    uint64_t answered_ns;               /* when one answered last; 0: none did */
    uint64_t foreign;                   /* packets of a coordinator that does not know the space which this member joined */
    uint64_t forged;                    /* packets in the name of a coordinator that do not know the nonce of this member's JOIN */
    bool superseded;                    /* it has no life: it decides nothing until it has joined (anew) */
    bool outdated;       /* the space has other settings, and the member does not take them: it must be started again */
    int refused;         /* code of the latest refusal of a JOIN, */
    uint64_t refused_ns; /* and when */
    uint64_t locks;      /* of MEMBER_GROWN */
    uint32_t places;     /* version of the lock servers' places that it goes by */
    uint16_t look_for;   /* the coordinator asks whether locks name this machine; 0: it does not ask */
};

/* Begins to join, with what the owner has set. */
void member_begin(struct member *m, uint64_t now);

/* Sends what is due. When it is to be called next. */
uint64_t member_tick(struct member *m, uint64_t now);

/* The meaning of a coordinator's packet for the caller. The member's own fields are up to date then. */
enum member_news {
    MEMBER_NOTHING,    /* nothing that the caller must act on */
    MEMBER_JOINED,     /* it has joined, or joined anew: begin with empty state, then beat */
    MEMBER_RULES,      /* there are new rules, which leave it the locks that it has */
    MEMBER_STALE,      /* new rules give it other locks: it has begun to join anew */
    MEMBER_GROWN,      /* the space has more locks (m->locks) than this lock server, which can take them */
    MEMBER_SUPERSEDED, /* its life is over, and it has begun to join anew; unless it `stays` (I17) */
};
enum member_news member_packet(struct member *m, const void *data, uint32_t len, uint64_t now);

/* Sends a heartbeat, with what a switch found when it looked for `machine` (0: for none). */
void member_beat(struct member *m, uint16_t machine, uint64_t found);

/* Tells the coordinator that this member decides nothing any more: another may have its place at once. */
void member_leave(struct member *m);

/* Asks for the welcome again: for the addresses of the lock servers from this one on. */
void member_ask_again(struct member *m, unsigned server);

/* Asks the coordinator which hosts there are, if the roster wants to know. */
void member_ask_hosts(struct member *m, uint64_t now);

/* Whether a packet comes from the member in whose name it is: a host from its address and in the life that the coordinator gave,
 * all others from a machine of the rack, or tagged with the cluster's key. A packet of a coordinator names no member: the nonce
 * says whether it is one. Packets that are not admitted are counted by the roster, which parks them (roster_park). */
bool member_admits_other(struct member *m, const struct packet_head *h, struct net_addr from);
static inline bool member_admits(struct member *m, const struct packet_head *h, struct net_addr from)
{
    uint16_t machine = h->from.machine;
    bool known = machine && machine <= m->roster->machines && roster_knows(m->roster, machine, roster_life_of(h), from);
    return likely(known) || member_admits_other(m, h, from);
}

/* Opens a packet that is tagged. False: it is dropped, or the roster has parked it until the coordinator has told of its host. */
bool member_opens(struct member *m, void *data, uint32_t len, struct net_addr from, struct seal_key *used);

/* Whether that is a switch or another lock server: then it sends on what others have sent. */
bool member_knows_granter(const struct member *m, struct net_addr from);

/* Joining anew, as if it had lost its state, of members that can. From the beginning on the caller decides nothing: the welcome
 * says which hosts can hold something, and what is granted after that would not count. If no welcome comes in time, it goes on as
 * it was, unless it was superseded: then it goes on asking. */
void member_rejoin(struct member *m, uint64_t now);
bool member_is_joining(struct member *m, uint64_t now); /* false: it has joined, or time is over */

/* Its life is over. */
void member_supersede(struct member *m, uint64_t now);

/* Whether no coordinator has answered for a while: longer than it takes to try several. */
bool member_is_alone(const struct member *m, uint64_t now);

#endif
