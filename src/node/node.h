/* SPDX-License-Identifier: Apache-2.0 */
/* The daemons: a coordinator, lock servers and the switch in software, each a loop around a socket. */
#ifndef PAWL_NODE_NODE_H
#define PAWL_NODE_NODE_H

#include "cluster/service.h"
#include "node/member.h"
#include "node/peers.h"

/* ---- the coordinator ---- */

struct coordinating {
    struct udp udp;
    struct service service;
    const struct packet_design *design;
    void *steward;     /* null: the design has none */
    bool steward_runs; /* it begins when lock servers and switches may join */
    bool fresh;
    struct outbox *out;
    const volatile sig_atomic_t *stop;
};

/* Opens the state and the socket; `at` has then its port. `state` null: it is in memory alone, and ends with the process. 0, or a
 * negative code, explained. */
int coordinating_open(struct coordinating *c, const struct coord_params *p, const struct state_params *state, struct net_addr at);
void coordinating_run(struct coordinating *c); /* until *stop */
void coordinating_close(struct coordinating *c);

/* Runs the coordinator and so many lock servers in this process, until *stop; `ready` is called when all have joined. A server
 * listens at `like->at`, with a port that follows from the coordinator's. 0, or a negative code, explained; *stop is set then. */
struct station_params;
int coordinating_serve(struct coordinating *c, unsigned servers, const struct station_params *like, volatile sig_atomic_t *stop,
                       void (*ready)(void));

/* ---- lock servers and switches ---- */

/* Settings of a NetLock switch at its start; `pawl policy` changes it later. */
struct switch_policy {
    bool alloc_given, alloc_random;
    bool levels_given;
    uint32_t levels; /* of priorities; 0: one queue for all */
};

struct station {
    struct member member;
    bool is_switch;
    struct knobs knobs; /* of a switch whose policy was given */
    bool tuned;
    void *memory;
    uint64_t memory_bytes;
    struct peers *peers;
    uint64_t spin_ns;          /* looks for packets for so long before it sleeps */
    struct rack_config config; /* the space's, with what is its own */
    pawl_apply apply;          /* of a data server; null: it keeps no data */
    void *apply_ctx;
    const volatile sig_atomic_t *stop;
    /* Where a program in the kernel does most of the work, and this is its control process: null otherwise. */
    struct {
        void *ctx;
        bool (*find)(void *ctx, struct place to, struct net_addr *out); /* what it has learnt */
        void (*changing)(void *ctx, bool begins);                       /* memory is about to change, or has */
    } kernel;
    struct {
        uint64_t packets, answers, lost, echoes; /* lost: no address is known for them */
        uint64_t bad, alien, unreadable;         /* dropped: too short or long; of another space; of another version or features */
    } counts;
};

struct station_params {
    struct member_params member;
    struct switch_policy policy;
    uint64_t switch_locks; /* a switch that spills has room for so many; 0: for all */
    bool fresh;            /* nothing was granted before by a server in this place */
    uint64_t spin_ns;
};

/* Joins, and begins with empty state. 0, or a negative code, explained. */
int station_open(struct station *s, const struct station_params *p);

/* The same for a member that has joined, and whose state is elsewhere: the caller sets `memory` and `kernel`. */
int station_adopt(struct station *s, const struct member *m, const struct station_params *p);

/* How a data server handles the bytes that it is sent. */
void station_apply(struct station *s, pawl_apply apply, void *ctx);

/* Waits until all others are there whose addresses it needs. */
void station_meet(struct station *s);
void station_run(struct station *s);
void station_close(struct station *s);

#endif
