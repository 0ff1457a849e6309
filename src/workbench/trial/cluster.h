/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated cluster with a space in it: a node that holds the lock memory, clients on hosts around it, each with a session that
 * is opened, renewed, lost and opened again. What the clients do with it is the caller's: a fault campaign or a benchmark. */
#ifndef PAWL_WORKBENCH_TRIAL_CLUSTER_H
#define PAWL_WORKBENCH_TRIAL_CLUSTER_H

#include "client/locker.h"
#include "fabric/sim.h"
#include "workbench/trial/actor.h"

#define CLUSTER_TASKS_MAX 8 /* of one client that use its session at once; campaigns have no more than ACTORS_MAX */

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
    struct seat keeper;
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
    uint32_t fabric_caps;
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
    struct sim_host *server;
    struct sim_process *node;
    struct layout_header header;
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

#endif
