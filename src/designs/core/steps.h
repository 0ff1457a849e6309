/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of an operation goes: for benchmarks (ShiftLock 4.6, Table 2). A design says at the end of a step which one it
 * was; time that it does not name counts as REST. */
#ifndef PAWL_DESIGNS_CORE_STEPS_H
#define PAWL_DESIGNS_CORE_STEPS_H

#include "designs/core/seat.h"

#define STEPS_EACH(X)                                                                                                              \
    X(ATOMIC, "atomic", "IA")         /* the first atomic, which acquires, queues up or releases */                                \
    X(TELL, "tell", "NP")             /* the note to the predecessor in the queue */                                               \
    X(TURN, "await_turn", "WP")       /* until the predecessor hands over */                                                       \
    X(READERS, "await_readers", "WR") /* until the readers have left */                                                            \
    X(WRITERS, "await_writers", "WW") /* until writers let the readers in */                                                       \
    X(SUCCESSOR, "successor", "NS")   /* until the next in the queue is known and has been told */                                 \
    X(REST, "rest", "RT")             /* everything else: tries again, pauses */

#define STEP_ENUM(name, text, paper) STEP_##name,
enum step { STEPS_EACH(STEP_ENUM) STEPS };
#undef STEP_ENUM

struct step_clock {
    uint64_t since_ns;
    uint64_t ns[STEPS];
};

/* The time since the last mark belongs to this step. */
static inline void step_done(const struct seat *seat, enum step step)
{
    struct step_clock *c = seat->me->clock;
    if (likely(!c))
        return;
    uint64_t now = world_now(seat->world);
    c->ns[step] += now - c->since_ns;
    c->since_ns = now;
}

#endif
