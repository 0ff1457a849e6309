/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated cluster with a space in it: a node that holds the lock memory, clients on hosts around it, each with a session that
 * is opened, renewed, lost and opened again. What the clients do with it is the caller's: a fault campaign or a benchmark. */
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

struct cluster;
struct cluster_client;

/* A task of a client: its own way into the space, through an endpoint of its own. */
struct cluster_task {
    struct actor actor;
    struct cluster_client *client;
    unsigned number;
    struct fab_ep *ep;
    struct locker locker;
};

/* What a client's task does once its session is open. Returning true ends the task for good; false: the session was lost, start
 * again with another. */
typedef bool (*cluster_work_fn)(struct cluster_task *task);

struct cluster_client {
    struct cluster *cluster;
    unsigned id;
    struct sim_process *process;
    struct session session;
    struct space space;
    fab_addr home;    /* its descriptors, on its own host */
    bool open;        /* the session is */
    bool finished;    /* all its work is done and the session closed */
    unsigned working; /* tasks that have not ended */
    bool done[CLUSTER_TASKS_MAX];
    struct cluster_task tasks[CLUSTER_TASKS_MAX];
    struct fab_ep *keeper_ep; /* of the task that opens and renews */
    struct node_sim *far;     /* on a memory node: the endpoint that all tasks share; else null */
    struct seat seat;         /* its */
};

struct cluster_params {
    const struct design *design;
    const struct knobs *knobs; /* of the design; null: the usual ones */
    const struct model *model;
    enum pawl_keys keys;
    uint64_t capacity;
    uint64_t range_units, range_max; /* designs with ranges; 0: the layout's own */
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
    bool assigned; /* the node assigns slots; else clients claim them, which takes 128-bit atomics */
    bool on_node;  /* the memory is a memory node's, and verbs are datagrams; else a fabric with NICs */
    uint32_t node_can;
    uint64_t node_mistakes;
    uint64_t seed;
    uint64_t safety_ns;
    uint64_t time_max_ns;
    uint64_t lease_ns;
    FILE *trace;
    cluster_work_fn work;
    void *user;
    void (*on_gone)(struct cluster_client *); /* the client died or its session was lost */
};

struct cluster {
    struct cluster_params params;
    struct sim sim;
    struct sim_fabric *fabric;
    struct sim_wire *wire; /* to the memory node; else null */
    struct node_box box;
    struct sim_host *server;
    struct sim_process *node;
    struct care care;           /* the node's */
    uint64_t space_bytes;       /* of the node's memory; the rest is its own clients' */
    struct sighting *node_seen; /* by the node, of its sessions */
    void *server_memory;        /* of the design's lock server; null: it has none */
    struct space server_space;
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

/* Whether a client is alive and its session's lease runs by its own clock. */
bool cluster_client_valid(const struct cluster_client *client);

/* Sleeps on a client's own clock. */
void cluster_sleep(struct cluster_task *task, uint64_t ns);

/* ---- on a memory node (cluster_far.c) ---- */

/* A life of the node begins; once the memory is formatted it serves, without end. */
void cluster_far_start(struct cluster *c);
void cluster_far_serve(struct cluster *c);

/* The process's endpoint, not connected; and connecting it: 0 or an error. */
struct fab_ep *cluster_far_ep(struct cluster_client *client);
int cluster_far_connect(struct cluster_client *client);

#endif
