/* SPDX-License-Identifier: Apache-2.0 */
/* Joining a rack: asks the coordinator, and waits for the answer. */
#ifndef PAWL_CLUSTER_JOIN_H
#define PAWL_CLUSTER_JOIN_H

#include "cluster/coordinator.h"

struct join_params {
    struct net_addr coordinator;
    enum coord_role role;
    const char *space;
    struct rack_identity identity; /* of the space that the caller joined before; id 0: it joins for the first time */
    struct net_addr at;            /* where a server or switch listens */
    unsigned rack;                 /* of a switch, from 1 on; 0: whichever is free */
    bool force;                    /* COORD_FORCE */
    uint64_t nonce;                /* 0: a random one */
    uint64_t deadline;             /* CLOCK_MONOTONIC */
};

/* Takes one WELCOME into what is known, if it is of the same space and makes sense. */
bool join_take(struct rack_welcome *known, const struct coord_welcome *w);

/* 0 and the welcome, and the clock (host_now) of the first JOIN that it answers. -ETIMEDOUT: no answer; -EAGAIN: not yet; or the
 * coordinator's refusal. */
int join(struct udp *u, const struct join_params *p, struct rack_welcome *out, uint64_t *stamp);

/* The packet, for callers that do something else meanwhile. */
struct coord_packet join_packet(const struct join_params *p);

/* One question and its answer, through a socket of its own at this address. The question is retransmitted until the deadline
 * (CLOCK_MONOTONIC). The answer has the question's nonce and space, this type and length. -ETIMEDOUT; COORD_FOREIGN, -ENOENT: the
 * coordinator says that it has another space; -EPROTOTYPE: there is a memory node. */
int exchange(struct net_addr to, struct net_addr self, const struct coord_packet *ask, uint32_t len, enum coord_type type,
             uint64_t deadline, void *answer, uint32_t answer_len);

#endif
