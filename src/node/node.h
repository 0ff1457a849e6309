/* SPDX-License-Identifier: Apache-2.0 */
/* The daemons: a coordinator, lock servers and the switch in software, each a loop around a socket. */
#ifndef PAWL_NODE_NODE_H
#define PAWL_NODE_NODE_H

#include "cluster/join.h"
#include "cluster/journal.h"
#include "node/peers.h"

#include <signal.h>

/* ---- the coordinator ---- */

struct coordinating {
    struct udp udp;
    struct coordinator coordinator;
    struct coord_member *members;
    const struct packet_design *design;
    void *steward; /* null: the design has none */
    struct outbox *out;
    struct directory directory; /* if keys are not dense */
    struct journal journal;     /* fd -1: the directory is in memory alone */
    const char *rules;          /* path of the file with the rules; null: they are in memory alone */
    const volatile sig_atomic_t *stop;
};

/* Opens the socket; `at` has then its port. Errors with a reason. */
int coordinating_open(struct coordinating *c, const struct coord_params *p, struct net_addr at, const char **why);
void coordinating_run(struct coordinating *c); /* until *stop */
void coordinating_close(struct coordinating *c);

/* ---- lock servers and switches ---- */

struct station {
    struct udp udp;
    struct join_params join;
    bool is_switch;
    const struct packet_design *design;
    const struct knobs *knobs; /* a switch's own; null: the space's */
    struct coord_welcome welcome;
    void *memory;
    uint64_t memory_bytes;
    struct peers *peers;
    uint64_t spin_ns;          /* looks for packets for so long before it sleeps */
    uint64_t beat_ns;          /* when the coordinator is to hear of it */
    uint16_t look_for;         /* this machine, in the locks; 0: none */
    struct rack_config config; /* the space's, with what is its own */
    struct rack_rules rules;   /* by which it goes, if locks are divided */
    uint64_t nonce_next;       /* it is joining anew by this JOIN; 0: it is not */
    uint64_t joining_until_ns; /* for so long it decides nothing */
    const volatile sig_atomic_t *stop;
    /* Where a program in the kernel does most of the work, and this is its control process: null otherwise. */
    struct {
        void *ctx;
        bool (*find)(void *ctx, struct place to, struct net_addr *out); /* what it has learnt */
        void (*changing)(void *ctx, bool begins);                       /* memory is about to change, or has */
    } kernel;
    struct {
        uint64_t packets, answers, lost, echoes; /* lost: nobody knows where they should go */
    } counts;
};

struct station_params {
    struct net_addr at, coordinator;
    struct net_addr known_as; /* where hosts send to, if something lies between; ip 0: `at` */
    const char *space;
    bool is_switch;
    const struct knobs *knobs; /* as above; stays where it is while the station runs */
    unsigned rack;             /* whose switch it is, from 1 on; 0: whichever is free */
    uint64_t switch_locks;     /* a switch that spills has room for so many; 0: for all */
    bool fresh;                /* nothing was granted before by a server in this place */
    uint64_t spin_ns;
    uint64_t deadline; /* of joining, CLOCK_MONOTONIC */
    uint64_t nonce;    /* of who joins; 0: somebody new */
    const volatile sig_atomic_t *stop;
};

int station_open(struct station *s, const struct station_params *p);
/* Waits until all others are there whose addresses it needs. */
void station_meet(struct station *s);
void station_run(struct station *s);
void station_close(struct station *s);

#endif
