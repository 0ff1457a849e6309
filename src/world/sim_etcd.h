/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated etcd: keys with revisions, and clients that reach it over a network that loses.
 *
 * A request travels, is executed as a whole, and its answer travels back. By the seed a request or an answer is lost, or the
 * request arrives long after its client has given up, or after the client's process has ended. A client can be cut off from it for
 * a while. With no `sim` all of it happens at once, for tests, which then choose the fates of requests themselves. */
#ifndef PAWL_WORLD_SIM_ETCD_H
#define PAWL_WORLD_SIM_ETCD_H

#include "lib/rng.h"
#include "world/etcd.h"
#include "world/sim.h"

struct sim_etcd_pair {
    char key[ETCD_KEY_LEN];
    uint8_t *value;
    uint32_t len;
    uint64_t revision;
};

enum sim_etcd_fate { SIM_ETCD_ANSWERED, SIM_ETCD_LOST, SIM_ETCD_ANSWER_LOST, SIM_ETCD_LATE, SIM_ETCD_FATES };

struct sim_etcd {
    struct sim *sim; /* null: no time passes */
    struct rng random;
    uint64_t cluster, revision, compacted;
    unsigned count, room;
    struct sim_etcd_pair *pairs;               /* by key */
    struct sim_etcd_request *requests;         /* on their way, or kept for their client */
    uint64_t travel_ns;                        /* of a request or an answer, at most */
    uint64_t late_ns;                          /* of a request that is late, at most */
    unsigned lossy;                            /* one request in so many is lost, or its answer, or is late; 0: none is */
    uint64_t calm_ns;                          /* virtual: from then on none is lost, late or cut off */
    bool full;                                 /* refuses all transactions for want of room */
    uint64_t commits, repeated, late, refused; /* counts: late: executed when the client had given up; refused: by a comparison */
};

/* A client: one process. */
struct sim_etcd_client {
    struct etcd etcd;
    struct sim_etcd *server;
    const struct sim_host *host;  /* by its clock; null: no time passes but `now_ns` */
    uint64_t now_ns;              /* without a host */
    uint64_t cut_until_ns;        /* virtual: until then no request of its arrives */
    enum sim_etcd_fate fates[16]; /* without a host: of the next requests */
    unsigned fate, fate_count;
};

void sim_etcd_init(struct sim_etcd *s, struct sim *sim, uint64_t seed);
void sim_etcd_free(struct sim_etcd *s);
void sim_etcd_client_init(struct sim_etcd_client *c, struct sim_etcd *s, const struct sim_host *host);

/* Requests that are late arrive now: without a host. */
void sim_etcd_arrive(struct sim_etcd *s);

/* By hand: the pair, or null; it is gone. */
struct sim_etcd_pair *sim_etcd_find(struct sim_etcd *s, const char *key);
void sim_etcd_remove(struct sim_etcd *s, struct sim_etcd_pair *p);

#endif
