/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated cluster with a space in it: one or several nodes that hold the lock memory, clients on hosts around them, each with a
 * session at every node that it uses, which is opened, renewed, lost and opened again. What the clients do with it is the caller's:
 * a fault campaign or a benchmark.
 *
 * Each node has a part of the locks, in a space with a life of its own. A client opens its session at the first node when it
 * starts, and at others when it first wants a lock there. If one of its sessions is lost, the client is: all its later calls say so
 * (I8), and it starts again. */
#ifndef PAWL_WORKBENCH_TRIAL_CLUSTER_H
#define PAWL_WORKBENCH_TRIAL_CLUSTER_H

#include "client/locker.h"
#include "cluster/keeper.h"
#include "fabric/sim.h"
#include "workbench/trial/actor.h"
#include "workbench/trial/node_box.h"

#define CLUSTER_TASKS_MAX 8 /* of one client that use its session at once; campaigns have no more than ACTORS_MAX */

/* Mistakes of a busted variant that are its fabric's (enum sim_fabric_mistakes) are its bits from here on. */
#define CLUSTER_FABRIC_MISTAKE(mistake) ((uint64_t)(mistake) << CLUSTER_FABRIC_MISTAKES)
#define CLUSTER_FABRIC_MISTAKES 24
#define CLUSTER_NODE_MISTAKE(mistake) ((uint64_t)(mistake) << CLUSTER_NODE_MISTAKES) /* likewise its nodes' */
#define CLUSTER_NODE_MISTAKES 28

#define CLUSTER_NODES_MAX 4
#define CLUSTER_HASTY_NODE 1u /* a node that lost its memory does not wait for the leases of its former life */

struct cluster;
struct cluster_client;

/* A host with lock memory, and its care for the space in it. */
struct cluster_node {
    struct cluster *cluster;
    struct sim_host *host;
    struct sim_process *process;
    struct care care;
    uint64_t space_bytes;  /* of the host's memory; the rest is its own clients' */
    struct sighting *seen; /* of the sessions here */
    struct node_box box;   /* a memory node's executor */
    void *server_memory;   /* of the design's lock server; null: it has none */
    uint32_t serving;      /* its cores that serve */
    struct space server_space;
};

/* A client's session at a node. */
struct cluster_session {
    struct cluster_client *client;
    struct cluster_node *node;
    struct session session;
    struct space space;
    struct layout_header header; /* as it was read */
    fab_addr home;               /* its descriptors, on the client's own host */
    bool kept;                   /* a keeper opens or renews it */
    bool open;
    struct fab_ep *ep;    /* the keeper's */
    struct node_sim *far; /* on a memory node: the endpoint, which all tasks share; else null */
    struct seat seat;
};

/* A task of a client: its own way into the space, through an endpoint of its own. */
struct cluster_task {
    struct actor actor;
    struct cluster_client *client;
    unsigned number;
    struct fab_ep *ep;
    struct locker lockers[CLUSTER_NODES_MAX]; /* those of open sessions */
    struct together_shelf together;
    bool ready[CLUSTER_NODES_MAX];
};

/* The work of a client's task once its session is open. Returning true ends the task for good; false: the session was lost, start
 * again with another. */
typedef bool (*cluster_work_fn)(struct cluster_task *task);

struct cluster_client {
    struct cluster *cluster;
    unsigned id;
    struct sim_process *process;
    struct cluster_session at[CLUSTER_NODES_MAX];
    bool lost;        /* a call has said so */
    bool finished;    /* all its work is done and the sessions closed */
    unsigned keepers; /* that have not ended */
    unsigned working; /* tasks that have not ended */
    bool done[CLUSTER_TASKS_MAX];
    struct cluster_task tasks[CLUSTER_TASKS_MAX];
};

struct cluster_params {
    const struct design *design;
    const struct knobs *knobs; /* of the design; null: the usual ones */
    const struct model *model;
    enum pawl_keys keys;
    uint64_t capacity;
    uint64_t range_units, range_max; /* designs with ranges; 0: the layout's own */
    uint64_t data_bytes;             /* of each node, behind everything else, for the work of clients */
    unsigned nodes;                  /* 0: one */
    unsigned clients;
    unsigned spare_slots; /* for sessions that are lost and not yet recovered from; 0: a few */
    unsigned mortals;     /* of them may be killed and stopped: the first ones */
    unsigned hosts;       /* of clients */
    bool home;            /* half of the clients run on the node of the lock memory */
    unsigned residents;   /* of the clients run there: the last ones */
    unsigned tasks;       /* per client */
    uint32_t faults;
    bool swarm; /* uneven faults: sim_config */
    uint32_t fabric_caps, fabric_mistakes;
    uint32_t node_mistakes;     /* CLUSTER_HASTY_NODE */
    bool on_node;               /* the nodes are memory nodes, and verbs are datagrams; else a fabric with NICs */
    uint32_t node_can;          /* enum verbs_can */
    uint64_t verbs_mistakes;    /* of their executors */
    struct sim_strike *strikes; /* of clients' processes: `process` is the client's number, and becomes its process's */
    unsigned strike_count;
    bool assigned; /* the node assigns slots; else clients claim them, which takes 128-bit atomics */
    uint64_t seed;
    uint64_t safety_ns;
    uint64_t time_max_ns;
    uint64_t lease_ns;
    uint64_t events_max;         /* 0: any number, as of sim_config, */
    struct sim_chooser *chooser; /* which this is of, too; null: the seed decides */
    FILE *trace;
    cluster_work_fn work;
    void *user;
    void (*on_gone)(struct cluster_client *); /* the client died or its session was lost */
};

struct cluster {
    struct cluster_params params;
    struct sim sim;
    struct sim_fabric *fabric;
    struct sim_wire *wire; /* to memory nodes; else null */
    struct cluster_node nodes[CLUSTER_NODES_MAX];
    struct cluster_client *clients;
    unsigned clients_done;
    uint64_t sessions, lost; /* opened; lost by lease or crash */
};

int cluster_init(struct cluster *c, const struct cluster_params *p);
void cluster_free(struct cluster *c);

/* Runs until all clients are done, or a bound. */
enum sim_end cluster_run(struct cluster *c);

/* The actor's task, if it is one of a cluster. */
static inline struct cluster_task *cluster_task_of(struct actor *a)
{
    return container_of(a, struct cluster_task, actor);
}

/* The node that has a key's lock. */
unsigned cluster_node_of(const struct cluster *c, pawl_key key);

/* Whether a client is alive and the lease of its session at that node runs by its own clock; and of all sessions that it has. */
bool cluster_session_valid(const struct cluster_client *client, unsigned node);
bool cluster_client_valid(const struct cluster_client *client);

/* Sleeps on a client's own clock. */
void cluster_sleep(struct cluster_task *task, uint64_t ns);

/* ---- the parts, for each other ---- */

#define CLUSTER_RETRY_NS (1 * NS_PER_MS) /* between attempts to open a session */
#define CLUSTER_ROUND_NS (3 * NS_PER_MS) /* how often a session's keeper looks up, if its lease is longer than three of these */
#define CLUSTER_RECORDS 64               /* holds per session: more than any workload here has at once */

struct layout_params cluster_layout(const struct cluster_params *p);
uint32_t cluster_slots(const struct cluster_params *p);

/* cluster_node.c: what a node (the argument) runs; and how a client is given a slot where the node assigns them. */
void cluster_node_task(void *arg);
int cluster_connect(const struct cluster_node *node, struct fab_ep *ep, const struct session_params *p, struct session_place *out);

/* cluster_client.c: what a client runs for a session (the argument), at first that at the first node; and for one that is wanted at
 * another node: 0 once the task can use it. */
void cluster_keeper_task(void *arg);
int cluster_want_session(struct cluster_task *task, unsigned node);

/* cluster_far.c: memory nodes. A life of the node begins; once the memory is formatted it serves, without end. A session's
 * endpoint, not connected; and connecting it: 0 or an error. */
void cluster_far_start(struct cluster_node *n);
void cluster_far_serve(struct cluster_node *n);
struct fab_ep *cluster_far_ep(struct cluster_session *s);
int cluster_far_connect(const struct cluster_session *s);

/* cluster_actor.c */
extern const struct actor_ops cluster_actor_ops;

#endif
