/* SPDX-License-Identifier: Apache-2.0 */
/* Every schedule of a small world: few clients, one lock or two, few operations each, and the oracle.
 *
 * The world runs again and again from its beginning, each time along other answers of its chooser (world/sim_chooser.h), until all
 * answers have been given within the bounds: depth first, the last answer that can be another one changes. No random number is
 * drawn. Sessions are opened before the first choice. After the last operation nothing is chosen any more, and an auditor finds the
 * lock free (I11). */
#ifndef PAWL_WORKBENCH_TRIAL_EXHAUST_H
#define PAWL_WORKBENCH_TRIAL_EXHAUST_H

#include "workbench/trial/oracle.h"
#include "world/sim.h"

#include <signal.h>

#define EXHAUST_CLIENTS_MAX 8
#define EXHAUST_OPS_MAX 8
#define EXHAUST_ANSWERS_MAX 4096 /* of one schedule: a longer one is cut */

/* Faults that are a choice here. Delays are part of every schedule; the others have no small form. */
#define EXHAUST_FAULTS                                                                                                             \
    (FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_UNKNOWN) |                    \
     FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_CRASH_CLIENT))

/* Operations of a client: a letter each. X exclusive, S shared; Y and T likewise, of a second lock; A both locks at once,
 * exclusive, and B the same in the opposite order. Small letters: with a deadline. */
#define EXHAUST_LETTERS "XSYTABxsytab"
#define EXHAUST_LOCKS_MAX 2
struct exhaust_plan {
    unsigned clients;
    char ops[EXHAUST_CLIENTS_MAX][EXHAUST_OPS_MAX + 1];
    unsigned residents; /* the last ones run on the node of the lock memory */
    uint32_t parts;     /* clients, by bits, that want a part of the lock; the others want all of it */
    uint32_t spared;    /* clients, by bits, that are not preempted, nor struck by faults */
};

/* "XS,SX,@x": clients with commas between. Before a client's operations may stand, in this order: ! for those that are preempted
 * and struck, if not all are; @ for those on the node of the lock memory; / for those that want a part of the lock. 0, or -EINVAL
 * with the reason. */
int exhaust_plan_parse(const char *text, struct exhaust_plan *out, const char **reason);
void exhaust_plan_text(const struct exhaust_plan *plan, char *out, size_t room);

/* One, or two if an operation wants the second lock. */
unsigned exhaust_plan_locks(const struct exhaust_plan *plan);

/* So many operations each, exclusive and shared by turns if the design has shared locks; of ranges every second client has a part.
 */
void exhaust_plan_make(const struct design *d, unsigned clients, unsigned ops, struct exhaust_plan *out);

/* An answer other than the first one: the question's place in the schedule, and the answer. */
struct exhaust_answer {
    unsigned at, answer;
};

struct exhaust_params {
    const struct design *design;
    const struct knobs *knobs; /* null: the usual ones */
    struct exhaust_plan plan;
    unsigned preemptions, early, strikes; /* bounds of each schedule; early: timers that come before their time */
    uint32_t faults;                      /* of EXHAUST_FAULTS */
    uint64_t ns;                          /* of real time; 0: any */
    uint64_t schedules_max;               /* 0: any number */
    bool anew;                            /* each schedule starts with a new world, not with a copy of its start: slower */
    const volatile sig_atomic_t *stop;
    void (*progress)(void *ctx, uint64_t schedules);
    void *ctx;
};

struct exhaust_result {
    uint64_t schedules; /* that were run to their end */
    uint64_t cut;       /* of them, longer than a bound: their ends are not known */
    uint64_t beyond;    /* answers left out: they would have been one preemption, early timer or fault too many */
    uint64_t events, grants, strikes;
    uint64_t ns, cpu_ns;
    bool complete; /* none is left within the bounds */
    bool failed;
    char why[ORACLE_TEXT_LEN];
    struct exhaust_answer answers[EXHAUST_ANSWERS_MAX]; /* of the schedule that failed */
    unsigned answer_count;
};

/* A world of two or three clients with few operations, as the seed draws it; of these faults those that the design tolerates. */
void exhaust_draw(const struct design *d, uint32_t faults, uint64_t seed, struct exhaust_params *out);

/* Null, or why the design cannot be tried with this plan and these faults. */
const char *exhaust_refuses(const struct exhaust_params *p);

/* In a process of its own, so that a failed assertion is a result, too. 0 or a negative errno. */
int exhaust_run(const struct exhaust_params *p, struct exhaust_result *out);

/* One schedule, here, with a trace if that is not null. */
int exhaust_replay(const struct exhaust_params *p, const struct exhaust_answer *answers, unsigned count, FILE *trace,
                   struct exhaust_result *out);

/* "17:1,45:2" */
int exhaust_answers_parse(const char *text, struct exhaust_answer *out, unsigned *count);

#endif
