/* SPDX-License-Identifier: Apache-2.0 */
/* A service: several spaces behind one socket. Each space has its own coordinator with its own log, and its own granters: lock
 * servers, or the switch of a design whose switch can be replaced. One thread reads the socket and hands each packet to the
 * coordinator of its space. The caller's thread answers operators, who create, list, drop and grow spaces while the service runs.
 */
#ifndef PAWL_NODE_HOSTING_H
#define PAWL_NODE_HOSTING_H

#include "cluster/spaces.h"
#include "node/node.h"

#define HOSTING_SPACES 64u /* each has two threads or more, and a log */

struct hosting_params {
    struct net_addr at;
    struct coord_params coord; /* of the first space; its strings live as long as the service */
    struct state_params state;
    struct seal_ring ring;                /* the cluster's keys; none: packets are not tagged */
    const struct coordinating_etcd *etcd; /* null: the state is in files */
    unsigned own;                         /* granters of the first space that run in this process */
    bool stays_away;                      /* its own switch does not begin if the log has another one */
    const char *folder;                   /* of further spaces' states; null: there are none */
    struct coord_params usual;            /* of spaces that are created, unless the operator says otherwise */
    uint64_t spin_ns;
    uint64_t host_packets;           /* as station_params has it */
    const struct station_gate *gate; /* of own granters */
    uint64_t listen_ns;              /* of a new state: for so long members of a former space are listened for; 0: as usual */
    volatile sig_atomic_t *stop;
    void (*ready)(struct net_addr at);                   /* all of the first space's own granters have joined */
    void (*report)(const char *space, const char *what); /* something failed while the service runs */
};

/* Runs until *stop. 0, or a negative code, explained; nothing is left behind if the first space could not be opened. */
int hosting_run(const struct hosting_params *p);

/* Whether the design has a switch that runs in the service's process until another one takes its place. */
bool hosting_has_decider(const struct design *d);

/* ---- between the files of the service ---- */

enum granter_state { GRANTER_NONE, GRANTER_JOINING, GRANTER_JOINED, GRANTER_FAILED, GRANTER_ENDED };

struct granter {
    struct station station;
    struct station_params params;
    pthread_t thread;
    int state;  /* enum granter_state, atomic */
    int failed; /* the code, and its text, once it has failed */
    char why[512];
};

static inline enum granter_state granter_state(const struct granter *g)
{
    return (enum granter_state)__atomic_load_n(&g->state, __ATOMIC_ACQUIRE);
}

struct hosted {
    char name[COORD_NAME_LEN], path[STORE_PATH_LEN];
    struct coordinating c;
    struct coordinating_etcd etcd; /* where its state is, if it is in etcd */
    bool own_etcd;                 /* a connection that ends with the space */
    struct rack_config like;       /* whose options the space has, if its settings come from its log */
    struct mailbox box;
    volatile sig_atomic_t stop, stop_granters;
    pthread_t thread;
    bool running; /* the coordinator's thread */
    unsigned own;
    bool decider;                            /* the own granter is a switch, which yields its place */
    uint64_t vacant_ns;                      /* since when there is no switch; 0: there is one */
    struct net_addr place[RACK_SERVERS_MAX]; /* of the own granters: by the log, then where they are */
    struct granter *granters;
};

struct hosting {
    const struct hosting_params *p;
    struct udp udp;
    struct mailbox desk;   /* operators' questions */
    pthread_mutex_t mutex; /* of the table: the thread that reads the socket looks into it, the caller's changes it */
    struct hosted *space[HOSTING_SPACES];
    unsigned count;
    bool opened; /* all spaces that the service begins with are in the table; atomic */
    volatile sig_atomic_t ending;
    struct etcd *list;                         /* the service's own connection, for the list of spaces; null: states are in files */
    char further[ETCD_KEY_LEN];                /* prefix of further spaces there */
    uint64_t look_ns;                          /* when the list was read last */
    struct spaces_answer done[HOSTING_SPACES]; /* to the latest questions that changed something */
    unsigned done_next;
    uint64_t challenge; /* that the next command repeats; 0: none was told */
    struct log_limit refusals;
};

/* Opens a space, with its name and path filled in, and puts it into the table. 0, or a negative code, explained: it is freed then.
 */
int hosting_add(struct hosting *h, struct hosted *s, const struct coord_params *p, const struct state_params *state);
struct hosted *hosting_make(const char *name, const char *path);
void hosting_remove(struct hosting *h, struct hosted *s); /* ends it, and frees it; its log stays */
void hosting_free(struct hosted *s);                      /* one that was not added */
struct hosted *hosting_find(struct hosting *h, const char *name);
bool hosting_is_name(const char *name);

/* The coordinator's thread, and the own granters. */
int hosting_start(struct hosting *h, struct hosted *s);
int hosting_start_granters(struct hosting *h, struct hosted *s, bool fresh);
int hosting_join_granters(struct hosting *h, struct hosted *s, uint64_t deadline); /* waits for them; -ETIMEDOUT */
void hosting_stop(struct hosted *s);
void hosting_stop_granters(struct hosted *s);

/* An operator's question. */
void hosting_answer(struct hosting *h, const void *data, uint32_t len, struct net_addr from, const struct seal_key *key);

/* Starts the spaces whose states are in the folder, or in etcd. 0, or a negative code, explained. */
int hosting_load(struct hosting *h);

/* Further spaces in etcd (hosting_etcd.c). All return 0, or a negative code, explained. */
int hosting_etcd_open(struct hosting *h);
void hosting_etcd_close(struct hosting *h);
int hosting_etcd_attach(struct hosting *h, struct hosted *s); /* a connection for the space */
int hosting_etcd_enlist(struct hosting *h, const struct hosted *s);
int hosting_etcd_delist(struct hosting *h, struct hosted *s); /* by the leader, whose thread does not run */
int hosting_etcd_look(struct hosting *h, bool start);         /* takes up the spaces that are in the list, and ends the others */

#endif
