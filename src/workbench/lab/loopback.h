/* SPDX-License-Identifier: Apache-2.0 */
/* A rack on this machine for benchmarks: one process with the coordinator, the lock servers and, if the design has one, the switch,
 * over UDP on loopback. Hosts are addresses 127.0.0.2 and up. */
#ifndef PAWL_WORKBENCH_LAB_LOOPBACK_H
#define PAWL_WORKBENCH_LAB_LOOPBACK_H

#include "node/node.h"

#include <sys/types.h>

struct loopback {
    pid_t pid;
    char space[COORD_NAME_LEN];
    struct net_addr coordinator;
    struct net_addr station; /* the switch, or the first lock server: it echoes (PACKET_ECHO) */
};

struct loopback_params {
    const struct design *design;
    const struct knobs *knobs; /* of the design; null: the usual ones */
    uint16_t machines, sessions, requests, servers;
    uint64_t locks;
    uint64_t spin_ns; /* of servers and switch */
    pawl_apply apply; /* of the servers; null: they keep no data */
};

#define LOOPBACK_PLACE_LEN 96

/* From a process without threads. */
int loopback_start(struct loopback *l, const struct loopback_params *p);
void loopback_stop(struct loopback *l); /* and removes the hosts' memory */
void loopback_place(const struct loopback *l, unsigned host, char out[LOOPBACK_PLACE_LEN]);

#endif
