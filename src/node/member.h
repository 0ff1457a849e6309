/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a rack (cluster/member.h) with a socket and a log: a lock server or a switch, in software or in the kernel. */
#ifndef PAWL_NODE_MEMBER_H
#define PAWL_NODE_MEMBER_H

#include "cluster/member.h"
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

/* The owner of a member. */
struct member_socket {
    struct udp udp;
    struct {
        bool alone, superseded;
        uint64_t term;
    } said; /* to the log: of its coordinators, and that it is superseded */
};

static inline struct udp *member_udp(const struct member *m)
{
    return &((struct member_socket *)m->owner)->udp;
}

/* Opens the socket and joins. 0, or a negative code, explained. */
int member_open(struct member *m, const struct member_params *p);
void member_close(struct member *m);

/* Asks for the addresses of the lock servers from this one on, and waits for the answer for a while. */
void member_meet(struct member *m, unsigned server);

/* member_packet and member_tick by the host's clock, with what the log says of them. */
enum member_news member_hear(struct member *m, const void *data, uint32_t len);
void member_turn(struct member *m);

/* A question of any program that knows the member's address and not its space: answers it, tagged with the key that
 * opened it (none: it was not tagged). False: the packet is something else. */
bool member_asked(const struct member *m, const void *data, uint32_t len, struct net_addr from, const struct seal_key *used);

#endif
