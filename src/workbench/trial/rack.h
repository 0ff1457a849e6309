/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated rack for packet designs: hosts with several client processes each and memory that they share, lock servers with
 * cores, and a switch with its program in the middle. The counterpart of workbench/trial/cluster.h for one-sided designs.
 *
 * A host's memory survives the death of a process and is lost with the host. An agent process of the host, which only
 * the host's own crash kills, takes the packets for the pool and the ticks; on a real machine the process with the serving right
 * does.
 *
 * With faults of the coordinator (FAULTS_COORDINATOR) there is one: hosts, lock servers and the switch join it, send heartbeats and
 * have their lives, numbers and leases from it; clients ask it which lock a name has (rack_coordinator.c, rack_member.c,
 * rack_names.c). It is the coordinator of the daemon, over a simulated disk. Without those faults hosts and servers begin by
 * themselves, with lives that rise. */
#ifndef PAWL_WORKBENCH_TRIAL_RACK_H
#define PAWL_WORKBENCH_TRIAL_RACK_H

#include "cluster/addresses.h"
#include "cluster/host_names.h"
#include "cluster/member.h"
#include "cluster/service.h"
#include "designs/core/design.h"
#include "designs/packet/packet.h"
#include "wire/sim.h"
#include "workbench/trial/actor.h"
#include "workbench/trial/waits.h"

#define RACK_BUSTED_ORDER (UINT64_C(1) << 40) /* an option: the switch that gets shards hears of it before the loser */
#define RACK_BATCH_TWICE                                                                                                           \
    (UINT64_C(1) << 41) /* FissLock: of several packets in a datagram, the answer to one is that to the next, too */
#define RACK_BATCH_FORGET (UINT64_C(1) << 42) /* a request among several packets in a datagram is answered, and forgotten */
#define RACK_ANY_LIFE (UINT64_C(1) << 47)     /* lock servers and switches take packets of lives that no coordinator has given */
#define RACK_BATCH_ORDER (UINT64_C(1) << 43)  /* some callers ask for several locks in the opposite order */
#define RACK_CLIENTS_MAX 4000                 /* processes of the simulation, and ports of a host */

struct rack;
struct rack_client;
struct rack_coordinator;

/* A host, lock server or switch as a member of the rack (rack_member.c). */
#define RACK_BEATS_OF_LEASE 16u /* of lock servers and switches */

struct rack_member {
    struct rack *rack;
    const struct sim_host *host; /* null: the switch */
    uint16_t port;               /* where its answers come */
    unsigned place;              /* of a switch: its rack */
    bool waits;                  /* of a switch: it wants that place and no other, as the second one of a pair */
    enum coord_role role;
    bool running, joined;
    struct member core; /* a lock server's or switch's; of a host: what it knows of the rack */
    struct world world; /* for nonces: */
    uint64_t drawn;
    uint64_t tick_ns;                      /* virtual: the next */
    uint64_t until_ns;                     /* a host's membership lease, by its own clock */
    uint64_t deaf_until_ns, mute_until_ns; /* virtual: answers are lost, its heartbeats are lost */
    unsigned asked;                        /* so many times a host has since it heard a coordinator */
    void (*welcomed)(struct rack_member *m);
    /* A packet that was parked. */
    void (*packet)(struct rack_member *m, const void *data, uint32_t len, struct sim_addr from);
};

struct rack_task {
    struct actor actor;
    struct rack_client *client;
    bool done;
    struct {            /* to the coordinator: which lock has this name, or which value is beside it? */
        uint64_t nonce; /* 0: none */
        uint64_t serial;
        struct sim_ticket waiter;
        bool answered;
        int32_t code;
        struct host_name name;
        struct coord_value value;
    } question;
};

#define RACK_LATE_MAX 8u

struct rack_client {
    struct rack *rack;
    unsigned id;
    struct rack_host *host;
    uint32_t session; /* its number on the host */
    uint16_t tenant;  /* of its requests, and */
    uint8_t priority; /* 0 is the highest */
    struct sim_process *process;
    bool open, lost;   /* its session is; was declared lost */
    uint64_t until_ns; /* its lease, by the host's clock */
    bool finished;
    unsigned working;
    struct rack_task tasks[ACTORS_MAX];
};

struct rack_host {
    struct rack *rack;
    struct sim_host *host;
    struct sim_process *agent;
    uint16_t machine;
    uint32_t life;
    char *memory; /* lines, see outbox_touch */
    char *before; /* the check (rack_undo.c): the memory as it was after the last change that is complete; null: no check; */
    struct undo *undo;
    unsigned changes;             /* since the whole memory was compared; */
    bool alone;                   /* the memory has changed without the undo log */
    struct sim_ticket *waiters;   /* by request; task null: none */
    uint64_t tick_ns;             /* virtual: the next that is queued; UINT64_MAX: none */
    struct rack_client **clients; /* by session */
    struct rack_member member;
    struct host_names names; /* what it has told the coordinator about keys; */
    struct host_name *known; /* and what it was told, by key; generation 0: nothing */
    uint64_t *keys;          /* by request: for which key it asked last */
    uint64_t value_steps;    /* of values that its clients have set: of the latest */
    uint64_t value_questions;
    struct coord_value late_value; /* a copy of one, which is on its way; `sets` 0: none */
};

/* A machine with one part of the design and no clients (rack_box.c). */
enum rack_box_kind { RACK_SERVER, RACK_STEWARD, RACK_BACKUP, RACK_SWITCH };

struct rack_box {
    struct rack *rack;
    struct sim_process *process;
    enum rack_box_kind kind;
    uint16_t machine; /* of a server */
    struct rack_member member;
    bool spare;           /* an operator starts it where there is no place for it */
    bool started;         /* it was welcome before */
    struct sim_addr from; /* of the packet that it looks at */
    void *memory;
    uint32_t *newest;              /* by index: the highest generation that it has seen; null: not watched */
    uint64_t tick_ns, tick_min_ns; /* the next; and the shortest time between two */
    uint64_t (*tick)(void *state, uint64_t now, struct outbox *out);
    void (*packet)(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);
};

struct rack_params {
    const struct design *design;
    const struct knobs *knobs; /* of the design; null: the usual ones */
    const struct model *model;
    uint64_t locks;
    uint64_t capacity; /* of the coordinator's space, if there is one: names come and go if it is less than `locks` */
    unsigned clients;
    unsigned mortals;      /* of them may be killed and stopped: the first ones */
    unsigned hosts;        /* of clients */
    unsigned servers;      /* lock servers, if the design has any; with on_hosts, at most as many as hosts */
    uint64_t switch_locks; /* for how many the switch has room, of a design that then needs servers; 0: for all */
    unsigned cores;        /* of each server */
    unsigned pool_cores;   /* of each host, for what comes to its pool; 0: it costs no time */
    unsigned tasks;        /* per client */
    bool backup;           /* of the switch, if the design can have one: then the network goes around a switch that is down */
    uint16_t requests;     /* of one session; 0: as many as the usual workloads need */
    unsigned racks;        /* for designs that know several; each has a switch in the middle of the same star */
    bool moves;            /* locks are divided anew now and then */
    bool check_undo;       /* every change of a host's memory must be in the undo log (rack_undo.c) */
    bool together;         /* packets that go the same way leave as parts of one datagram */
    bool watch_waits;      /* waits are recorded, and every report of a deadlock is checked */
    bool mortal_hosts;     /* FAULT_CRASH_SERVER strikes client hosts, too */
    bool late_welcome;     /* FAULT_PARTITION: answers to a host's JOINs are lost for long, and then its heartbeats */
    uint32_t faults;
    uint64_t seed, safety_ns, time_max_ns, lease_ns, retry_ns, options, mistakes;
    uint64_t member_ns;          /* the membership lease, if there is a coordinator; 0: as long as the lock lease */
    bool swarm;                  /* uneven faults: sim_config */
    unsigned crowd;              /* one event in so many finds an outbox without room, or with little; 0: none does */
    uint64_t events_max;         /* 0: any number, as of sim_config, */
    struct sim_chooser *chooser; /* which this is of, too; null: the seed decides */
    FILE *trace;
    actor_work_fn work;
    void *user;
    void (*on_gone)(void *user, unsigned client); /* the client died or its session was lost */
    /* A client's task was told of a deadlock; whether that is true. With watch_waits. */
    void (*on_deadlock)(void *user, unsigned client, unsigned task, bool true_one);
    pawl_apply apply;                                /* what servers do with their data; null: they keep none */
    void (*on_refused)(void *user, const char *why); /* the coordinator does not start, though nothing is wrong with its state */
    /* A granter has acted on a packet of an earlier generation of its lock. */
    void (*on_outdated)(void *user, uint64_t index, uint32_t generation, uint32_t newest);
    /* A hold of one key begins while another key's lock with the same index is held. */
    void (*on_shared_index)(void *user, uint64_t index, uint64_t key, uint64_t other);
};

struct rack {
    struct rack_params params;
    const struct packet_design *design;
    struct rack_config config;
    struct sim sim;
    struct sim_wire *wire;
    void *switches[RACKS_MAX]; /* memory of the programs */
    void *switch_memory;       /* of the first; null: none */
    uint32_t *newest;          /* by rack and index: the highest generation that the switch has seen; null: not watched */
    uint32_t life;             /* the latest of switches and servers */
    uint64_t longest_ns;       /* lock lease that was in force */
    struct rack_rules rules;
    const struct packet_head *next_part; /* RACK_BATCH_TWICE */
    struct rack_back *back;              /* the answer to the datagram that the switch is deciding; null: to a packet */
    unsigned loser, winner;              /* of shards, in the change under way */
    struct {                             /* a host that does not reach one of the switches */
        uint32_t host;
        unsigned rack;
        uint64_t until_ns;
    } cut;
    uint64_t switch_tick_ns;
    struct rack_host *hosts;
    struct rack_box *servers;
    struct rack_box steward, backup;              /* process null: there is none */
    struct rack_coordinator *coordinator;         /* the first of them; null: there is none */
    struct rack_etcd *etcd;                       /* that they share; null: there is one, with a disk */
    struct rack_member switch_members[RACKS_MAX]; /* by rack */
    struct rack_box spare;                        /* a lock server that an operator starts beside the others; process null: none */
    struct rack_box spare_switch;                 /* likewise a switch, at an address of its own; */
    uint64_t switch_cut_ns;                       /* and until then the other one reaches no coordinator */
    unsigned server_count;
    uint32_t *host_of; /* sim host by machine number */
    struct rack_client *clients;
    unsigned clients_done;
    uint64_t sessions, lost;
    uint64_t packets; /* that hosts and servers sent */
    struct waits waits;
    struct rack_late { /* a packet to a granter that comes once more, when its generation is over (rack_names.c) */
        _Alignas(8) uint8_t data[SIM_PACKET_MAX];
        uint32_t len; /* 0: none */
        uint32_t *newest;
    } late[RACK_LATE_MAX];
    uint64_t late_serial;
    struct outbox outbox;
    struct rng room;             /* of the outbox: a stream of its own */
    struct rack_replay *replays; /* what was recorded; null: nothing is (rack_replay.c) */
};

/* Simulated hosts that such a rack takes, of SIM_HOSTS_MAX. */
unsigned rack_sim_hosts(const struct rack_params *p);

int rack_init(struct rack *r, const struct rack_params *p);
void rack_free(struct rack *r);

/* Runs until all clients are done, or a bound. */
enum sim_end rack_run(struct rack *r);

static inline struct rack_task *rack_task_of(const struct actor *a)
{
    return container_of(a, struct rack_task, actor);
}

extern const struct actor_ops rack_actor_ops;

/* ---- between rack.c, rack_client.c and rack_box.c ---- */

/* An attacker records packets and sends them again, or with another life (rack_replay.c). */
int rack_replay_begin(struct rack *r);
void rack_replay_free(struct rack *r);

/* Sends what is in the outbox. */
void rack_send_all(struct rack *r, const struct sim_host *from);
/* Empties it for the next event. */
void rack_clear_outbox(struct rack *r);
int rack_box_add(struct rack *r, struct rack_box *b, enum rack_box_kind kind, struct sim_host *host); /* null: -ENOMEM */
int rack_box_start(struct rack_box *b);
void rack_box_flush(struct rack_box *b); /* sends what it has in the outbox */
void rack_box_free(struct rack_box *b);

uint64_t rack_clock(const struct rack_host *h);
/* Before every call that may change the host's memory: the outbox to hand it. */
struct outbox *rack_host_outbox(struct rack_host *h);
/* Sends what the outbox holds and wakes the requests that it names; afterwards the host ticks soon. */
void rack_host_flush(struct rack_host *h);
/* The parts of a datagram that has several (wire/many.h). */
void rack_each_part(const void *data, uint32_t len, void (*packet)(void *ctx, const void *data, uint32_t len), void *ctx);
/* The parts that the switch did not decide leave again, each alone. */
void rack_send_singly(struct rack *r, const struct sim_host *from, const void *data, uint32_t len);
void rack_host_commit(struct rack_host *h); /* the change is complete; its packets leave with those of the next ones */
/* Before a change without the undo log: of a design's short way, or of a host that begins anew. */
void rack_host_changes_alone(struct rack_host *h);
/* Whether every change of the host's memory was in the undo log; aborts if one was not. */
void rack_host_compare(struct rack_host *h);
uint64_t rack_memory_bytes(const struct rack *r); /* of a host, in whole lines */
void rack_session_dead(struct rack_client *c);
static inline uint16_t rack_client_port(const struct rack_client *c)
{
    return (uint16_t)(PORT_SERVER + 1 + c->id);
}

bool rack_client_valid(const struct rack_client *c);
void rack_client_start(struct rack_client *c);

/* Whether the host is a member, so that its memory counts. */
static inline bool rack_host_joined(const struct rack_host *h)
{
    return !h->rack->coordinator || h->member.joined;
}

/* ---- rack_coordinator.c ---- */

/* Whether a design's rack can have a coordinator in the simulation. */
bool rack_coordinates(const struct design *d);
int rack_coordinator_new(struct rack *r); /* before the hosts; sets the configuration */
void rack_coordinator_free(struct rack *r);
void rack_coordinator_begin(struct rack *r); /* after all others: faults may strike */
struct coord_list rack_coordinators(const struct rack *r);
uint32_t rack_coordinator_version(const struct rack *r);          /* of the configuration; 0: none leads */
uint32_t rack_coordinator_life(const struct rack *r, unsigned i); /* the latest that this one has given; 0: it does not lead */
void rack_coordinator_crashed(struct rack *r, const struct sim_process *process);
void rack_coordinator_restarted(struct rack *r, const struct sim_process *process);

/* ---- rack_member.c ---- */

void rack_member_start(struct rack_member *m); /* joins, as a new one */
void rack_member_stop(struct rack_member *m);
void rack_member_leave(struct rack_member *m); /* and says so: a lock server or switch decides nothing any more */
void rack_member_packet(struct rack_member *m, const void *data, uint32_t len);
bool rack_member_lives(const struct rack_member *m);
bool rack_member_decides(struct rack_member *m); /* of a lock server or switch */
void rack_member_rejoin(struct rack_member *m);

/* Whether the lock server or switch takes a lock packet that has come from there. One of a host that it does not know is parked
 * until the coordinator has told of the host, if it was sent to this member. */
bool rack_member_admits(struct rack_member *m, const void *data, uint32_t len, struct sim_addr from, bool here);
uint64_t rack_member_clock(const struct rack_member *m);
struct net_addr rack_net_addr(struct sim_addr a);
struct sim_addr rack_sim_addr(struct net_addr a);

/* ---- rack_names.c ---- */

/* The lock that the key's name has. 0, -ETIMEDOUT, -ECANCELED or -PAWL_ELOST. */
int rack_find(struct actor *a, uint64_t key, uint64_t deadline, struct packet_ask *out);
/* Whether the key still has the lock that was found: the request may begin now, in the same step. */
bool rack_knows(const struct rack_host *h, uint64_t key, const struct packet_ask *ask);
/* The task that asked the question with this answer's nonce goes on when the caller has returned. Null: none waits for it. */
struct rack_task *rack_answered(struct rack_host *h, const struct coord_packet *answer);
void rack_found(struct rack_host *h, const struct coord_key *answer);

/* rack_values.c: the value beside a lock that an actor holds. -PAWL_ENOTSUP: the rack has no coordinator. */
int rack_set_value(struct actor *a, const struct hold *h, const void *bytes, uint32_t len);
int rack_get_value(struct actor *a, const struct hold *h, void *bytes, uint32_t *len);
void rack_valued(struct rack_host *h, const struct coord_value *answer);

/* The coordinator asks which keys the host uses. */
void rack_retire(struct rack_host *h, const struct coord_retire *p, struct sim_addr from);

/* A key's lock with this index is held from now on. */
void rack_watch_index(const struct rack *r, uint64_t index, uint64_t key);

/* A granter has handled a packet. Packets of earlier generations that passed before come again, now and then. */
void rack_come_late(struct rack *r, uint32_t *newest, const void *data, uint32_t len,
                    void (*deliver)(void *granter, const void *data, uint32_t len), void *granter);

/* After a granter has handled a packet: whether it acted on one of an earlier generation. */
void rack_watch_generation(struct rack *r, uint32_t *newest, const struct packet_head *h);

/* ---- rack_switch.c ---- */

#define RACK_SPACE 0x7061776c /* without a coordinator */

int rack_switch_start(struct rack *r);
/* The program's memory, which is zero, begins in the life that the coordinator gave. */
void rack_switch_begin(const struct rack_member *m, void *memory, uint64_t now);
void rack_switch_flush(struct rack *r); /* sends what the switch has in the outbox */

/* ---- rack.c, for rack_member.c and rack_switch.c ---- */

#define RACK_NOWHERE (SIM_WIRE_SWITCH + 2)

/* The simulated host that a packet goes to; RACK_NOWHERE: none. The steward is with the coordinator that the sender takes for the
 * leader. */
uint32_t rack_sim_host(const struct rack *r, const struct rack_member *from, struct place to);

void rack_host_welcome(struct rack_member *m);
void rack_host_ended(struct rack_member *m);
void rack_host_grow(struct rack_member *m, uint64_t locks);                  /* the space has at least so many */
void rack_host_switch_gone(struct rack_member *m, unsigned rack);            /* another switch has, or will have, the place */
uint32_t rack_host_racks(const struct rack_member *m);                       /* in which the host has a lease, a bit each */
void rack_host_place(struct rack_member *m, unsigned server, uint32_t life); /* another lock server has, or will have, the place */
void rack_box_welcome(struct rack_member *m);
void rack_box_grow(struct rack_member *m, uint64_t locks);

#endif
