/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cluster: hosts, processes and tasks in virtual time, from one seed, on one thread.
 *
 * The real protocol code runs in tasks, which are fibers. Whatever takes time is an event; between two events nothing
 * else happens. Every event folds into a 64-bit trace hash: the same seed gives the same hash on every machine, because
 * there is no floating point, no pointer value, no clock of the machine and no other thread in it.
 *
 *   host     has a clock that drifts (struct world), memory, a NIC; it can be down, and is paused as a whole
 *   process  runs on a host; it crashes, restarts with a higher generation, is paused
 *   task     a fiber of a process; ends with it
 *
 * This layer knows no verbs and no packets: fabric/sim.h and wire/sim.h build them on events, on the NIC here and on the
 * fault layer (sim_faults.c), which is asked at every opportunity and drives what happens by itself (pauses, crashes …).
 * It is a closed interface for tests too: everything the fault layer does, a test can do by hand. */
#ifndef PAWL_WORLD_SIM_H
#define PAWL_WORLD_SIM_H

#include "lib/base.h"
#include "lib/hash.h"
#include "lib/rng.h"
#include "world/faults.h"
#include "world/fiber.h"
#include "world/model.h"
#include "world/sim_arena.h"
#include "world/sim_chooser.h"
#include "world/sim_heap.h"
#include "world/world.h"
#include <stdio.h>

#define SIM_HOSTS_MAX 64       /* the largest testbed has 20 */
#define SIM_PROCESSES_MAX 4096 /* the largest run has 1,200 clients */
#define SIM_HOOKS_MAX 4        /* the fabric, the wire, the harness, and one more */

struct sim;

/* ---- configuration and results ---- */

struct sim_config {
    const struct model *model; /* null: "default" */
    uint64_t seed;
    uint32_t faults;             /* FAULT_BIT set from which each run draws its mix */
    uint32_t faults_certain;     /* of these, active in every run whatever the seed says */
    bool swarm;                  /* rates of every order, bursts, and clocks at the limits of their drift, by the seed */
    uint64_t safety_ns;          /* faults happen until here, then everything heals */
    uint64_t events_max;         /* 0: SIM_EVENTS_MAX */
    uint64_t time_max_ns;        /* 0: SIM_TIME_MAX_NS */
    unsigned tasks_max;          /* 0: SIM_TASKS_MAX */
    size_t stack_bytes;          /* 0: FIBER_STACK_BYTES */
    FILE *trace;                 /* a line per event; null: none */
    struct sim_chooser *chooser; /* decides what else is drawn; null: the seed does */
};

#define SIM_EVENTS_MAX (UINT64_C(1) << 40)  /* days of wall time: only a bound */
#define SIM_TIME_MAX_NS (UINT64_C(1) << 50) /* thirteen virtual days, and clock arithmetic cannot overflow below */
#define SIM_TASKS_MAX 4096u

enum sim_end {
    SIM_IDLE,       /* nothing is left to happen */
    SIM_UNTIL,      /* the time asked for has come */
    SIM_STOPPED,    /* sim_stop was called */
    SIM_EVENTS_END, /* events_max reached */
    SIM_TIME_END,   /* time_max_ns reached */
};

/* ---- hosts ---- */

/* When the NIC is free again, and how many connections compete for its context cache. */
struct sim_nic {
    uint64_t out_free_ns, in_free_ns, loop_free_ns, packet_out_free_ns, packet_in_free_ns;
    uint32_t connections;
};

struct sim_host {
    struct world world;
    struct sim *sim;
    uint32_t id; /* the node in fabric addresses */
    bool up;
    bool server;       /* FAULT_CRASH_SERVER may strike it */
    uint64_t births;   /* how often it has started */
    struct rng random; /* of world_random */
    uint64_t offset_ns;
    int64_t drift_ppb; /* its clock gains this many ns per s */
    uint64_t paused_until_ns;
    struct sim_nic nic;
    char *memory;
    uint64_t memory_bytes;
};

/* ---- processes and tasks ---- */

struct sim_task;

struct sim_process {
    struct sim *sim;
    struct sim_host *host;
    uint32_t id;         /* its endpoints' id, too */
    uint64_t generation; /* starts at 1, rises with every restart: the proof in fab_fence */
    bool alive, dying;
    bool crashable; /* FAULT_CRASH_CLIENT and FAULT_PAUSE may strike it */
    uint64_t paused_until_ns;
    struct sim_task *tasks;
    void *user; /* the harness's */
};

typedef void (*sim_task_fn)(void *arg);

struct sim_task {
    struct sim *sim;
    struct sim_process *process;
    struct fiber *fiber;
    const char *name;
    uint32_t id;
    uint64_t turn;        /* rises with every resumption: a wake-up meant for an earlier one is stale */
    uint64_t deadline_ns; /* of the current sleep, in virtual time */
    uint64_t timer_ns;    /* when its timer event fires; 0: none queued */
    bool waiting;         /* in a sleep that sim_task_cancel may end */
    bool cancelled, deferred;
    bool any_deadline; /* with a chooser: that of its wait may come at any time */
    struct sim_task *next, *prev;
};

/* ---- hooks: the fabric and the wire react to crashes first, then the harness, in the order of sim_hooks_add ---- */

struct sim_hooks {
    void *ctx;
    void (*process_crashed)(void *ctx, struct sim_process *process);
    void (*process_restarted)(void *ctx, struct sim_process *process);
    void (*server_crashed)(void *ctx, struct sim_host *host);
    void (*server_restarted)(void *ctx, struct sim_host *host); /* memory is zero; its processes restart right after */
    void (*switch_crashed)(void *ctx);
    void (*switch_restarted)(void *ctx);
    void (*healed)(void *ctx);
};

/* ---- faults ---- */

struct sim_faults {
    uint32_t active;                /* this run's mix */
    uint32_t ppm[FAULT_KINDS];      /* per opportunity, for those that are drawn */
    uint64_t every_ns[FAULT_KINDS]; /* mean interval, for those that come by themselves */
    uint64_t burst_ns[FAULT_KINDS]; /* they strike in every second interval of so long; 0: always */
    uint32_t stall_ppm;             /* steps at which a process pauses, beside the pauses that come by time */
    struct rng stalls;              /* draws them */
    bool drift_extreme;             /* clocks run as fast or as slowly as they may, not something between */
    uint64_t counts[FAULT_KINDS];
    struct rng random;
    bool healed;
    uint64_t blocked_until_ns[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* from, to */
};

struct sim {
    const struct model *model;
    struct sim_config config;
    uint64_t now_ns, events, hash;
    struct rng random; /* of the substrate: jitter, store buffers, tearing */
    uint32_t foreground;
    bool stopped;
    struct sim_heap heap;
    struct sim_task *current; /* null between events */
    struct fiber_pool fibers;
    struct sim_task *tasks, *free_tasks;
    unsigned tasks_live;
    struct sim_host *hosts[SIM_HOSTS_MAX];
    unsigned host_count;
    struct sim_process **processes;
    unsigned process_count;
    struct sim_hooks hooks[SIM_HOOKS_MAX];
    unsigned hook_count;
    struct sim_faults faults;
};

/* 0 or -ENOMEM. */
int sim_init(struct sim *sim, const struct sim_config *config);
void sim_free(struct sim *sim);

/* Runs events in order until none is left but the fault layer's own, or until the given virtual time, or a bound. */
enum sim_end sim_run(struct sim *sim, uint64_t until_ns);
void sim_stop(struct sim *sim);

void sim_hooks_add(struct sim *sim, const struct sim_hooks *hooks);

/* ---- events ---- */

/* Calls fn(arg, tag) at that time; now at the earliest. */
void sim_at(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag);
void sim_at_background(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag);

/* The same of an event whose place among others a chooser decides (world/sim_chooser.h); without a chooser they are sim_at.
 * In a lane of its own, named by an address; as a timer, of which one per function and argument counts, the last one; or as what
 * follows at once from an event, so that no other comes between. */
void sim_at_lane(struct sim *sim, uint64_t at_ns, const void *lane, sim_event_fn fn, void *arg, uint64_t tag);

/* In the lane before all that is in it: the second half of what has begun. */
void sim_at_lane_front(struct sim *sim, uint64_t at_ns, const void *lane, sim_event_fn fn, void *arg, uint64_t tag);

/* Of a store buffer, behind all else of its thread. `drained`: the number of the last store that has left it; the tag is the
 * event's. */
void sim_at_drain(struct sim *sim, uint64_t at_ns, const uint64_t *drained, sim_event_fn fn, void *arg, uint64_t tag);
void sim_at_timer(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag);
void sim_at_once(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag);

static inline void sim_fold(struct sim *sim, uint64_t value)
{
    sim->hash = mix64(sim->hash ^ value);
}

/* Folds what happened into the hash and, with tracing on, prints it: "what" on a host, with two numbers that matter. */
void sim_note_print(struct sim *sim, const char *what, uint32_t host, uint64_t a, uint64_t b);

static inline void sim_note(struct sim *sim, const char *what, uint32_t host, uint64_t a, uint64_t b)
{
    sim_fold(sim, a ^ (uint64_t)host << 56);
    sim_fold(sim, b);
    if (unlikely(sim->config.trace))
        sim_note_print(sim, what, host, a, b);
}

/* With tracing on, prints what an observer says. It is no part of what happened, nor of the hash. */
void sim_remark(const struct sim *sim, const char *what, const char *text);

/* ---- hosts ---- */

/* Null if there are SIM_HOSTS_MAX already. Ids count from 0. */
struct sim_host *sim_host_new(struct sim *sim);

/* Its memory as node in the fabric: virtual until touched, zero. Once per host. 0 or -ENOMEM. */
int sim_host_memory(struct sim_host *host, uint64_t bytes);

/* Down: its processes are gone, nothing reaches it. Not from one of its own tasks. Up again: memory zero, births + 1, its processes
 * restarted. */
void sim_host_crash(struct sim_host *host);
void sim_host_restart(struct sim_host *host);

/* Its tasks stop until then; its clock goes on and its NIC serves. */
void sim_host_pause(struct sim_host *host, uint64_t until_ns);

/* The host's clock at a virtual time, and the first virtual time at which its clock shows at least that. */
uint64_t sim_host_clock(const struct sim_host *host, uint64_t virtual_ns);
uint64_t sim_host_clock_inverse(const struct sim_host *host, uint64_t clock_ns);

/* Occupies a NIC's queue from now on, for so long; the end of the service. */
static inline uint64_t sim_nic_serve(uint64_t *free_ns, uint64_t now_ns, uint64_t service_ns)
{
    *free_ns = max_u64(*free_ns, now_ns) + service_ns;
    return *free_ns;
}

/* The cost of a verb's connection context: nothing while all contexts fit, else the miss penalty with the probability that random
 * replacement gives in the long run. */
uint64_t sim_nic_context_ns(struct sim_host *host);

/* ---- processes ---- */

/* Null if there are SIM_PROCESSES_MAX already. */
struct sim_process *sim_process_new(struct sim_host *host);

/* All its tasks are gone, wherever they were. From one of its own tasks this does not return. */
void sim_process_crash(struct sim_process *process);
/* Another process in its place: same id, next generation. The host is up. */
void sim_process_restart(struct sim_process *process);
void sim_process_pause(struct sim_process *process, uint64_t until_ns);

/* ---- tasks ---- */

/* Starts a task, which first runs as an event of its own. Null if tasks_max are running. */
struct sim_task *sim_spawn(struct sim_process *process, const char *name, sim_task_fn fn, void *arg);

/* Makes the task's current or next wait end with -ECANCELED. It lasts until a wait has ended that way: a caller that cancels an
 * operation that then succeeds without waiting clears `cancelled` before the next. */
void sim_task_cancel(struct sim_task *task);

/* Blocks the running task until a wake-up that was made during this turn. For the layers above; protocol code uses
 * fab_wait. */
void sim_task_block(struct sim_task *task);
void sim_task_wake_at(struct sim_task *task, uint64_t at_ns);

/* The right to wake a task from its current block: worthless once the task went on or is gone, so it may be kept anywhere. */
struct sim_ticket {
    struct sim_task *task;
    uint64_t turn;
};

static inline struct sim_ticket sim_ticket_take(struct sim_task *task)
{
    return (struct sim_ticket){.task = task, .turn = task->turn};
}

void sim_ticket_wake_at(struct sim_ticket ticket, uint64_t at_ns);
/* The same as a timer to a chooser: the task has found nothing new, and looks again then. */
void sim_ticket_poll_at(struct sim_ticket ticket, uint64_t at_ns);

/* Blocks until a wake-up or the virtual deadline; cancellable. 0, -ETIMEDOUT or -ECANCELED. */
int sim_task_wait(struct sim_task *task, uint64_t deadline_ns);

/* Other tasks may go on first, at no cost to a chooser. Without a chooser it takes no time and nothing comes between. */
void sim_task_yield(struct sim_task *task);

static inline struct sim_task *sim_current(struct sim *sim)
{
    assert(sim->current);
    return sim->current;
}

static inline uint64_t sim_now(const struct sim *sim)
{
    return sim->now_ns;
}

/* ---- faults ---- */

/* At an opportunity for a fault of that kind: does it happen? Counts it. */
bool sim_fault_draw(struct sim *sim, enum fault kind);

/* A process is about to take a step: does it pause here? It does in some runs of a swarm. */
bool sim_fault_stall(struct sim_process *process);
static inline bool sim_fault_stalls(struct sim_process *process)
{
    return unlikely(process->sim->faults.stall_ppm) && sim_fault_stall(process);
}

/* One of so many fates of what has just been struck; 0 with a chooser that is not asked. */
unsigned sim_fault_fate(struct sim *sim, unsigned fates);

/* 0 … n-1 from the substrate's stream, or from the faults'; with a chooser 0: whatever takes longer is a matter of order then. */
static inline uint64_t sim_draw(struct sim *sim, uint64_t n)
{
    return unlikely(sim->config.chooser) ? 0 : rng_below(&sim->random, n);
}

static inline uint64_t sim_fault_span(struct sim *sim, uint64_t n)
{
    return unlikely(sim->config.chooser) ? 0 : rng_below(&sim->faults.random, n);
}

/* Until when nothing passes from one host to another; 0: it passes now. */
uint64_t sim_path_blocked_until(const struct sim *sim, uint32_t from, uint32_t to);
void sim_partition(struct sim *sim, uint32_t from, uint32_t to, uint64_t until_ns);

/* Faults stop, partitions and pauses end; hosts that are down come back as scheduled. */
void sim_heal(struct sim *sim);

/* For sim_init and sim_run's loop; not for others. */
void sim_faults_init(struct sim *sim);
int64_t sim_faults_drift_ppb(struct sim *sim);
void sim_faults_crash(struct sim_process *process);
void sim_task_release(struct sim_task *task);

#endif
