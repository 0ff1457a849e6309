/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of waits in a trial: every actor is a thread that holds locks, and waits in a call. It has all holds and waits at one
 * time, which no host knows, and so tells whether an actor that was told of a deadlock was in one (I13).
 *
 * An actor waits for the holders that exclude it. A reader also waits for actors that wait to write the same lock, since a design
 * may let those go first; and, if queues have a limited length, for all holders. An actor that died or was lost counts until its
 * process or its call says so: for the judge they are in the way a little longer than they are. */
#ifndef PAWL_WORKBENCH_TRIAL_WAITS_H
#define PAWL_WORKBENCH_TRIAL_WAITS_H

#include "lib/base.h"
#include "pawl.h"

#define WAITS_HOLDS_MAX 16 /* of one actor: a session's requests */

struct waits_hold {
    uint32_t request;
    uint64_t lock;
    enum pawl_mode mode;
};

struct waits_actor {
    bool waiting;
    uint32_t request; /* that it waits with; also that of a hold, if it wants more of that */
    uint64_t lock;
    enum pawl_mode mode;
    uint64_t circle_ns;  /* when this wait was last seen in a circle that ended otherwise; 0: never */
    uint64_t ghost_ns;   /* when it died while it converted what it held of */
    uint64_t ghost_lock; /* this one: the granter does not know yet; 0: never */
    unsigned count;
    struct waits_hold holds[WAITS_HOLDS_MAX];
};

struct waits {
    struct waits_actor *actors;
    unsigned count;
    bool *seen; /* room to search */
    bool full;  /* every holder of a lock is in the way of its waiters: its queue may be full, or move */
    uint64_t window_ns;
    uint64_t lease_ns; /* for which the dead are in the way */
};

/* window_ns: so long after the end of a circle its members may still be told of it. */
int waits_init(struct waits *w, unsigned actors, bool full, uint64_t window_ns);
void waits_free(struct waits *w);

void waits_begin(struct waits *w, unsigned actor, uint32_t request, uint64_t lock, enum pawl_mode mode);
/* The actor holds what it waited for; or it does not wait any more. */
void waits_granted(struct waits *w, unsigned actor, uint64_t now);
void waits_ended(struct waits *w, unsigned actor, uint64_t now);
/* From now on not more than shared; not at all. */
void waits_weakened(struct waits *w, unsigned actor, uint32_t request);
void waits_released(struct waits *w, unsigned actor, uint32_t request, uint64_t now);
void waits_gone(struct waits *w, unsigned actor, uint64_t now);

bool waits_in_circle(struct waits *w, unsigned actor);
/* Whether it can be told of a deadlock now. */
bool waits_deadlocked(struct waits *w, unsigned actor, uint64_t now);

#endif
