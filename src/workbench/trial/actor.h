/* SPDX-License-Identifier: Apache-2.0 */
/* An actor of a trial: a task of a client, whatever its design runs on. Campaigns speak to actors; the simulated cluster of
 * one-sided designs and the simulated rack of packet designs make them. */
#ifndef PAWL_WORKBENCH_TRIAL_ACTOR_H
#define PAWL_WORKBENCH_TRIAL_ACTOR_H

#include "designs/core/design.h"
#include "world/sim.h"

struct actor;

struct actor_ops {
    int (*lock)(struct actor *a, pawl_key key, enum pawl_mode mode, uint64_t deadline, struct hold *out);
    int (*lock_all)(struct actor *a, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds);
    int (*unlock)(struct actor *a, const struct hold *h);
    /* Several at once; what became of each is in `rc`. Null: one by one. */
    void (*unlock_all)(struct actor *a, const struct hold *holds, unsigned count, int *rc);
    int (*convert)(struct actor *a, struct hold *h, enum pawl_mode mode, uint64_t deadline);
    /* Null where there are no data servers. Without `out` it is unlocked at once. */
    int (*lock_call)(struct actor *a, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_call *call, struct hold *out);
    int (*hold_call)(struct actor *a, const struct hold *h, uint64_t deadline, pawl_call *call);
    /* Null where the design has no ranges. */
    int (*lock_range)(struct actor *a, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                      struct hold *out);
    int (*reshape)(struct actor *a, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline);
    int (*split)(struct actor *a, struct hold *h, uint64_t at, struct hold *right);
    /* Null where the design's locks are laid out once and for all. */
    int (*layout)(struct actor *a, pawl_key key, struct lock_layout *out);
    int (*retune)(struct actor *a, pawl_key key, unsigned m, uint64_t wait_ns, uint64_t deadline);
    int (*rescale)(struct actor *a, pawl_key key, uint64_t units, uint64_t deadline);
    int (*semaphore)(struct actor *a, pawl_key key, uint32_t limit, uint64_t deadline, struct hold *out);
    int (*wanted)(struct actor *a, const struct hold *h); /* whether others wait: 1, 0 or a negative code */
    /* The value beside the lock of a hold. Null, or -PAWL_ENOTSUP: not offered. */
    int (*set_value)(struct actor *a, const struct hold *h, const void *bytes, uint32_t len);
    int (*get_value)(struct actor *a, const struct hold *h, void *bytes, uint32_t *len);
    int (*query)(struct actor *a, pawl_key key, pawl_state *out); /* -PAWL_ENOTSUP: cannot be answered */
    /* Whether nothing is left of sessions that have ended; waits for it a while. 0: nothing is; -EBUSY: something; -PAWL_ELOST: the
     * actor's own session was lost meanwhile. */
    int (*tidy)(struct actor *a);
    void (*sleep)(struct actor *a, uint64_t ns); /* on its own clock */
    bool (*valid)(const struct actor *a);        /* its process is alive and its session's lease runs */
};

struct actor {
    const struct actor_ops *ops;
    struct sim_process *process;
    struct sim_task *task;
    unsigned client; /* its client's number, */
    unsigned number; /* and its own among the client's */
    enum pawl_keys keys;
    void *user; /* whose trial it is */
};

#define ACTOR_WANTS_MAX 32 /* of one lock_all: as many as a transaction of the benchmarks has */

#define ACTORS_MAX 4 /* of one client at once */

/* Returning true ends the actor for good; false: the session was lost, start again with another. */
typedef bool (*actor_work_fn)(struct actor *a);

#endif
