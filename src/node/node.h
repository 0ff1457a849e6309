/* SPDX-License-Identifier: Apache-2.0 */
/* The daemons: a coordinator, lock servers and the switch in software, each a loop around a socket. */
#ifndef PAWL_NODE_NODE_H
#define PAWL_NODE_NODE_H

#include "cluster/service.h"
#include "node/figures.h"
#include "node/mailbox.h"
#include "node/member.h"
#include "node/peers.h"
#include "node/watch.h"

/* ---- the coordinator ---- */

/* The coordinator's state, for other threads of the process. */
struct coordinating_status {
    bool leads;         /* else it stands by, and the rest is old */
    bool yield;         /* another switch wants the place of this process's own */
    bool vacant;        /* the switch has said that it stopped, and there is no other */
    unsigned hosts;     /* live ones */
    uint64_t keys_used; /* keys that have an index */
    struct rack_config config;
    struct net_addr granter; /* the switch, or the first lock server; none: unknown */
};

struct coordinating {
    struct udp udp;
    struct seal_ring ring; /* the cluster's keys, set by the caller; none: packets are not tagged */
    uint64_t listen_ns;    /* before a new state begins, members of a former space are listened for this long; 0: as usual */
    struct mailbox *box;   /* packets come by it, and `udp`, which is the caller's, is for sending; null: it reads its own socket */
    struct service service;
    const volatile sig_atomic_t *stop;
    /* With etcd, where several stand by: */
    const struct coordinating_etcd *etcd; /* null: the state is in a file, or nowhere */
    struct store_etcd store;
    struct log_limit refusals, begun; /* of operators' commands */
    struct coord_params params;       /* of the service, which is opened whenever this coordinator takes over */
    struct state_params state;
    bool leads; /* the service is open */
    int ended;  /* why it ended by itself; 0: it did not */
    pthread_mutex_t looking;
    struct coordinating_status status;
    struct net_addr own_switch;   /* in this process, and yields its place; port 0: there is none */
    struct watch watch;           /* of the thread that runs */
    struct limits packets;        /* that one address may send; likewise */
    uint64_t refused_commands[2]; /* about the space, by the service: from elsewhere; without the admin key. Atomic */
    struct figures_board board;
};

struct coordinating_etcd {
    struct etcd *etcd;
    const char *prefix, *place; /* place: for messages */
    uint64_t lease_ns;          /* of a leader */
    void (*report)(const char *space, const char *what);
    int (*open)(const char *place, struct etcd **out, const char **prefix); /* another connection, for another thread */
    void (*close)(struct etcd *e);
};

/* Opens the state and, unless the caller has set `box` and `udp`, the socket; `at` has then its port. `state` null: it is in memory
 * alone, and ends with the process. 0, or a negative code, explained. With c->etcd set by the caller the state is there, and the
 * coordinator leads or stands by. The space's name and the design's settings, to which `p` points, must live as long as the
 * coordinator then. */
int coordinating_open(struct coordinating *c, const struct coord_params *p, const struct state_params *state, struct net_addr at);
void coordinating_run(struct coordinating *c); /* until *stop */

/* The settings of a space whose state is in etcd. 0, or a negative code, explained. */
int coordinating_settings(const struct coordinating_etcd *e, const char *space, struct state_config *settings);
void coordinating_close(struct coordinating *c);

/* As it was in the latest round of coordinating_run. */
struct coordinating_status coordinating_status(struct coordinating *c);

/* The process has a switch of its own there, which yields its place to others (coordinating_status.yield). */
void coordinating_own_switch(struct coordinating *c, struct net_addr at);

/* Makes the space larger, while coordinating_run does not run and the coordinator leads. The log has it when this returns 0; else
 * all is as it was, but with etcd it may stand by then. */
int coordinating_grow(struct coordinating *c, uint64_t locks);

/* Opens a socket for a coordinator. 0, or a negative code, explained. */
int coordinating_listen(struct udp *udp, struct net_addr at);

/* ---- lock servers and switches ---- */

/* Settings of a NetLock switch at its start; `pawl policy` changes it later. */
struct switch_policy {
    bool alloc_given, alloc_random;
    bool levels_given;
    uint32_t levels; /* of priorities; 0: one queue for all */
};

/* A filter of a station's socket, which refuses packets with wrong tags before the process is woken for them. */
struct station_gate {
    int (*put_before)(const struct roster *r, int fd, void **out); /* 0, or a negative code, explained */
    void (*tell)(void *gate, const struct roster *r);              /* which hosts there are, with their keys */
    uint64_t (*refused)(const void *gate);                         /* packets so far */
    void (*take_away)(void *gate, int fd);
};

/* Counts of the packets that a station refuses, and the filter against them. */
struct station_flood {
    const struct station_gate *gate; /* null: there is none in this build, or the kernel refused it */
    void *filter;                    /* null: it is not before the socket */
    uint64_t filtered;               /* packets that the filter has refused, as far as they were counted */
    uint64_t refused;                /* by anyone, at the last look */
    uint64_t looked_ns, busy_ns;     /* when; and when there were last so many that the filter is wanted */
};

struct station {
    struct member member;
    struct station_flood flood;
    bool is_switch;
    struct knobs knobs; /* of a switch whose policy was given */
    bool tuned;
    void *memory;
    uint64_t memory_bytes;
    struct peers *peers;
    uint64_t spin_ns;          /* looks for packets for so long before it sleeps */
    struct rack_config config; /* the space's, with what is its own */
    uint8_t grant_type;        /* of its lock packets */
    pawl_apply apply;          /* of a data server; null: it keeps no data */
    void *apply_ctx;
    const volatile sig_atomic_t *stop;
    struct figures_board board;
    uint64_t challenge; /* that the next command repeats; 0: none was told */
    const struct station_desk *desk;
    struct log_limit commands; /* of operators */
    uint64_t came_ns;          /* when the packets came that it looks at; 0: hosts have no limit */
    bool parts;                /* the latest datagram had several packets: the answers to it leave together */
    struct log_limit limited;  /* of hosts that send too much */
    /* Where a program in the kernel does most of the work, and this is its control process: null otherwise. */
    struct {
        void *ctx;
        bool (*find)(void *ctx, struct place to, struct net_addr *out); /* what it has learnt */
        void (*changing)(void *ctx, bool begins);                       /* memory is about to change, or has */
        void (*told)(void *ctx);                                        /* the roster has changed; may be null */
        void (*moved)(void *ctx);                                       /* a lock server's place has another address; may be null */
    } kernel;
    struct {
        uint64_t in[FIGURES_TYPES], out[FIGURES_TYPES], grants[GRANT_DECIDERS]; /* lock packets; joined: anew */
        uint64_t joined;
        uint64_t packets, answers, lost, echoes; /* lost: no address is known for them */
        uint64_t bad, alien, unreadable;         /* dropped: too short or long; of another space; of another version or features */
        uint64_t forged;                         /* dropped: in the name of a machine of the rack, from elsewhere */
        uint64_t not_admin;                      /* dropped: commands without the admin key */
    } counts;
};

struct station_params {
    struct member_params member;
    struct switch_policy policy;
    uint64_t switch_locks; /* a switch that spills has room for so many; 0: for all */
    bool fresh;            /* nothing was granted before by a server in this place */
    uint64_t spin_ns;
    const struct station_gate *gate; /* null: floods are refused in the process */
    const struct station_desk *desk; /* null: it obeys no operator, and hosts have no limit */
    uint64_t host_packets;           /* that one host may send a second; 0: any number */
};

/* For the station's operator. `command`: whether an operator's packet counts. `limited`: a host sends more than it may. */
struct station_desk {
    bool (*command)(struct station *s, const void *data, uint32_t len, struct net_addr from, const struct seal_key *used);
    void (*limited)(struct station *s, uint16_t machine, struct net_addr from);
};
extern const struct station_desk station_desk; /* of daemons */

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
