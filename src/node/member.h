/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a rack that stays: a lock server or a switch, in software or in the kernel. How it joins, sends heartbeats to the
 * coordinator, learns of rules and of machines that are gone, and joins anew. */
#ifndef PAWL_NODE_MEMBER_H
#define PAWL_NODE_MEMBER_H

#include "cluster/join.h"
#include "cluster/roster.h"
#include "lib/explain.h"

#include <signal.h>

struct member_params {
    struct net_addr at;
    struct coord_list coordinators;
    const struct seal_ring *ring; /* the cluster's keys; null: packets are not tagged. It lives as long as the member */
    struct net_addr known_as;     /* where hosts send to, if something lies between; none: `at` */
    uint16_t reads;               /* enum packet_features: see struct net_addr */
    const char *space;
    bool is_switch;
    unsigned rack;     /* of a switch, from 1 on; 0: whichever is free */
    uint64_t deadline; /* until then a coordinator must have answered, CLOCK_MONOTONIC */
    bool force;        /* in this start: take the place of a silent one, whether or not hosts may use it still */
    bool patient;      /* wait beyond it for as long as the coordinator answers that it is not time yet */
    const volatile sig_atomic_t *stop;
};

struct member {
    struct udp udp;
    struct join_params join;
    struct rack_welcome welcome; /* the latest */
    const struct packet_design *design;
    struct rack_rules rules;   /* by which it goes, if locks are divided */
    uint64_t nonce_next;       /* of the JOIN by which it joins anew; 0: it does not */
    uint64_t joining_until_ns; /* until then it decides nothing */
    uint64_t beat_ns;          /* when the next heartbeat is due */
    uint64_t term;             /* of the latest coordinator that was heard */
    uint64_t heard_ns;         /* and when, or when another coordinator was tried */
    uint64_t answered_ns;      /* when one answered last; 0: none did since it joined */
    uint64_t foreign;          /* packets of a coordinator that does not know the space which this member joined */
    uint64_t forged;           /* packets in the name of a coordinator that do not know the nonce of this member's JOIN */
    struct roster *roster;     /* the hosts that there are */
    bool superseded;           /* refused: it decides nothing until it has joined anew */
    bool adapts;               /* if the space has other settings than before, the member takes them when it joins anew */
    bool outdated;             /* the space has, and the member does not: it must be started again */
    struct {
        bool alone, superseded;
        uint64_t term;
    } said;            /* to the log: of its coordinators, and that it is superseded */
    uint64_t locks;    /* of MEMBER_GROWN */
    uint32_t places;   /* version of the lock servers' places that it goes by */
    uint16_t look_for; /* the coordinator asks whether locks name this machine; 0: it does not ask */
};

/* Opens the socket and joins. 0, or a negative code, explained. */
int member_open(struct member *m, const struct member_params *p);
void member_close(struct member *m);

/* Asks the coordinator which hosts there are, if the roster wants to know. */
void member_ask_hosts(struct member *m, uint64_t now);

/* Tells the coordinator that this member decides nothing any more: another may have its place at once. */
void member_leave(struct member *m);

/* Asks for the welcome again, which names those that have joined since. */
void member_ask_again(struct member *m);

/* Sends a heartbeat: at once, with what a switch found when it looked for `machine` (0: for none); or if one is due. */
void member_beat(struct member *m, uint16_t machine, uint64_t found);
void member_beat_if_due(struct member *m, uint64_t now);

/* Whether no coordinator has answered for a while: longer than it takes to try several. */
bool member_is_alone(const struct member *m, uint64_t now);

/* The meaning of a coordinator's packet for the caller. The member's own fields are up to date then. */
enum member_news {
    MEMBER_NOTHING,    /* nothing that the caller must act on */
    MEMBER_JOINED,     /* it has joined anew: begin with empty state, then beat */
    MEMBER_RULES,      /* there are new rules, which leave it the locks that it has */
    MEMBER_STALE,      /* new rules give it other locks: it is to join anew */
    MEMBER_GROWN,      /* the space has more locks (m->locks) than this lock server, which can take them */
    MEMBER_SUPERSEDED, /* its life is over: it decides nothing until it has joined anew (I17) */
};
enum member_news member_packet(struct member *m, const void *data, uint32_t len, uint64_t now);

/* A question of any program that knows the member's address and not its space: answers it, tagged with the key that
 * opened it (none: it was not tagged). False: the packet is something else. */
bool member_asked(struct member *m, const void *data, uint32_t len, struct net_addr from, const struct seal_key *used);

/* Joining anew, as if it had lost its state. From the beginning on the caller decides nothing: the welcome says which hosts can
 * hold something, and what is granted after that would not count. If no welcome comes in time, it goes on as it was, unless it was
 * superseded: then it goes on asking. */
void member_rejoin(struct member *m, uint64_t now);
bool member_is_rejoining(struct member *m, uint64_t now); /* false: never began, is done, or time is over */
void member_send_rejoin(struct member *m);

#endif
