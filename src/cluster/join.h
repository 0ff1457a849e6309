/* SPDX-License-Identifier: Apache-2.0 */
/* Joining a rack: asks the coordinator, and waits for the answer. */
#ifndef PAWL_CLUSTER_JOIN_H
#define PAWL_CLUSTER_JOIN_H

#include "cluster/addresses.h"
#include "cluster/coordinator.h"

struct join_params {
    struct coord_list coordinators; /* `now`: the one that is asked first, and then the one that answered */
    enum coord_role role;
    const char *space;
    struct rack_identity identity; /* of the space that the caller joined before; id 0: it joins for the first time */
    struct net_addr at;            /* where a server or switch listens */
    unsigned rack;                 /* of a switch, from 1 on; 0: whichever is free */
    bool force;                    /* COORD_FORCE */
    uint64_t nonce;                /* 0: a random one */
    uint32_t generation;           /* the latest life that the coordinator has told; 0: none */
    uint64_t deadline;             /* CLOCK_MONOTONIC */
};

/* Takes one WELCOME into what is known, if it is of the same space and makes sense. */
bool join_take(struct rack_welcome *known, const struct coord_welcome *w);

/* Whether an answer to a packet of this asker may count: it is tagged with the asker's key, and is untagged from then on; or the
 * asker has no key; or it says that the key is wrong, which can only be said without. */
bool join_opens(const struct seal_asker *asker, void *data, uint32_t len);

/* Whether the refusal may be a lie: an asker that has a key gets it untagged. It counts if no better answer comes. */
bool join_is_hint(const struct seal_asker *asker, int code);

/* 0 and the welcome, and the clock (host_now) of the first JOIN that it answers. -ETIMEDOUT: no answer; -EAGAIN: not yet;
 * COORD_NOT_LEADER: coordinators answer, and none leads; or the coordinator's refusal. */
int join(struct udp *u, struct join_params *p, struct rack_welcome *out, uint64_t *stamp);

/* The packet, for callers that do something else meanwhile. */
struct coord_packet join_packet(const struct join_params *p);

/* Sends a question in a datagram that is as long as the longest answer, since none is longer than its question (coord_unpadded). */
void join_send(struct udp *u, struct net_addr to, const struct seal_asker *asker, const void *ask, uint32_t len,
               uint32_t answer_len);

/* One question and its answer, through a socket of its own at this address, with that key. The question is retransmitted until the
 * deadline (CLOCK_MONOTONIC). The answer has the question's nonce and space, this type and length. -ETIMEDOUT; COORD_FOREIGN,
 * -ENOENT: the coordinator says that it has another space; -EPROTOTYPE: there is a memory node; -EKEYREJECTED, -ENOKEY: see
 * coordinator.h. */
int exchange(struct net_addr to, const struct seal_asker *asker, struct net_addr self, const struct coord_packet *ask, uint32_t len,
             enum coord_type type, uint64_t deadline, void *answer, uint32_t answer_len);

/* The same for the coordinator that leads. Answers of one with a lower term than this are dropped. */
int ask_leader(struct coord_list *l, uint64_t term, struct net_addr self, const struct coord_packet *ask, uint32_t len,
               enum coord_type type, uint64_t deadline, void *answer, uint32_t answer_len);

#endif
