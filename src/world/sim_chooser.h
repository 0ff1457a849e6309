/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation without random numbers: instead of drawing one, it asks.
 *
 * Usually events happen in the order of their times, and generators draw times and faults. With a chooser there is no such order
 * and no generator: before each event the chooser says which of the pending events comes next, and at each opportunity for a fault
 * whether it strikes. An explorer that gives every answer once sees every schedule (workbench/trial/exhaust.h).
 *
 *   thread   an event belongs to the process on whose behalf it happens: the one that runs, or has sent the verb or packet
 *   lane     events of one lane keep their order: the steps of a task, the verbs of a connection, a store buffer, one leg of the
 *            packets' way. Everything else races: a verb or packet takes effect at any time after it was sent
 *   timer    an event that comes at its time and not by a cause: a deadline, a poll, a retransmission. It comes when nothing else
 *            can happen, in the order of times; or as if everything else were slow: then it is early. A deadline that may be any
 *            (sim_task.any_deadline) is never early
 *
 * Time does not go back: an event that comes behind a later one is late, as if its packet had been slow or its task had not run.
 *
 * The thread that ran last goes on without cost. Choosing another event while it can go on is a preemption, and so is an early
 * timer. If the thread waits, or gives way (sim_task_yield), all others may go on without cost (Musuvathi and Qadeer, Iterative
 * Context Bounding, PLDI 2007). */
#ifndef PAWL_WORLD_SIM_CHOOSER_H
#define PAWL_WORLD_SIM_CHOOSER_H

#include "world/faults.h"
#include "world/sim_heap.h"

struct sim;
struct sim_task;

/* The kind of choice, and the number of answers: two or more. Answer 0 is the one without preemption and fault. */
enum sim_question { SIM_ASK_NEXT, SIM_ASK_FAULT, SIM_ASK_FATE };

#define SIM_THREAD_APART (UINT32_C(1) << 31) /* of the thread, and behind all its other events: a store buffer */

struct sim_pending {
    uint64_t at_ns, sequence;
    sim_event_fn fn;
    void *arg;
    uint64_t tag;
    struct sim_task *task; /* that it wakes; null: none. The tag is then the turn for which it is meant */
    const uint64_t *last;  /* if this number is above `stale_above`, the event has become pointless; null: it never does */
    uint64_t stale_above;
    uint64_t lane; /* compared for equality only: addresses of what keeps the order */
    uint32_t thread;
    bool timer;
    bool yields;  /* its task has given way */
    bool at_once; /* nothing comes before it */
    bool front;   /* nothing of its lane comes before it */
};

#define SIM_PENDING_MAX 512u /* events of a small world; more would be another kind of world */
#define SIM_ALONE_MAX 200u   /* events of one thread, one after the other: a thread that spins gives way then */

/* All zero at first, but for what the caller sets. */
struct sim_chooser {
    unsigned (*choose)(struct sim_chooser *c, enum sim_question question, unsigned answers);
    void *ctx;
    bool open;            /* asks; else all happens in the order of time, without faults */
    unsigned preemptions; /* that are left, */
    unsigned early;       /* of them by timers, */
    unsigned strikes;     /* and faults */
    uint64_t spared;      /* threads, by bits, that are not preempted and not struck, and whose timers do not come early */
    uint64_t pause_ns;    /* of FAULT_PAUSE */
    bool no_timers;       /* not open: the run ends when nothing but timers is left */
    bool fresh;           /* no schedule has come here yet */
    uint64_t beyond;      /* answers that were left out because of these bounds, where it was fresh */
    bool crowded;         /* more than SIM_PENDING_MAX events: some were dropped, and the run has no result */
    /* Its own: */
    uint32_t thread; /* that runs or ran last */
    unsigned alone;
    uint64_t sequence, numbers;
    unsigned count;
    struct sim_pending pending[SIM_PENDING_MAX];
};

/* For the simulator's own files. */
void sim_chooser_push(struct sim *sim, const struct sim_pending *p);
bool sim_chooser_pop(struct sim *sim, struct sim_pending *out); /* false: nothing is left */
bool sim_chooser_strikes(struct sim *sim, enum fault kind);
unsigned sim_chooser_fate(struct sim *sim, unsigned fates);

#endif
