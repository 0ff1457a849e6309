/* SPDX-License-Identifier: Apache-2.0 */
/* The switch's memory as software has it: NetLock's register arrays in one block, and the table that says which locks are in the
 * switch. Runs the stages of dataplane/netlock.h. */
#ifndef PAWL_DESIGNS_NETLOCK_PLANE_H
#define PAWL_DESIGNS_NETLOCK_PLANE_H

#include "designs/netlock/kernel.h"
#include "lib/base.h"

#define PLANE_NO_LOCK UINT32_MAX
#define PLANE_PASSES_MAX 256u /* of one packet at once; what is left is done later */

struct plane_config {
    uint32_t slots;    /* of the shared queue */
    uint32_t locks;    /* that can be in the switch at once */
    uint32_t requests; /* cells in which doubled packets are known, */
    uint32_t stride;   /* and how many of them one host has */
    uint32_t tenants;
    uint32_t pipes; /* that share no state (5): a lock's slots are in the pipe of its home. 0: one */
    uint32_t homes; /* lock i's is i modulo this */
};

/* A region of the shared queue. */
struct plane_region {
    uint32_t left;
    uint16_t size;
    uint16_t wait_size; /* of each priority's waiting queue; 0: no priorities */
    uint16_t levels;    /* how many priorities have one; 0: all of them */
};

struct plane_counts {
    uint64_t packets, passes, resubmissions, unfinished;
    uint64_t passes_max;
};

struct plane {
    struct plane_config config;
    struct plane_counts counts;
    uint32_t used;      /* locks */
    uint32_t cells;     /* of the table; a power of two */
    uint32_t free_slot; /* none below it is free */
    uint32_t free_lock; /* the first of the free numbers */
    uint16_t mistakes;
    bool in_kernel;
    uint8_t visited;                    /* in checked builds: the first array that the pass may visit */
    uint64_t arrays_at[NETLOCK_ARRAYS]; /* offsets */
    uint64_t table_at, index_at, quota_at, charged_at, free_at, taken_at;
    uint64_t open_at, active_at, notify_at, claims_at; /* for the kernel */
};

/* Bytes of a plane, and one in zeroed memory of that size. */
uint64_t plane_bytes(const struct plane_config *config);
void plane_init(struct plane *plane, const struct plane_config *config);

/* From now on a program in the kernel has the registers, too. One plane of a process at a time; null: no more. */
void plane_in_kernel(struct plane *plane, const struct plane_kernel *kernel);
/* Where everything lies, for the kernel's side; offsets count from `from` bytes before the plane. */
void plane_describe(const struct plane_config *c, uint64_t from, struct netlock_memory *m);

/* Called before and after registers of a lock are changed from here: in between, the kernel drops its packets, and none is in a
 * pass. Without a kernel they do nothing. A lock that was just installed is shut. */
void plane_shut(struct plane *plane, uint32_t lock);
bool plane_shut_if_empty(struct plane *plane, uint32_t lock); /* only if its queues are empty */
void plane_reopen(struct plane *plane, uint32_t lock);
/* Returns when all passes that had begun have ended. */
void plane_grace(const struct plane *plane);
/* Whether the lock's server is told that the queue is empty. */
void plane_set_notify(struct plane *plane, uint32_t lock, bool notify);

/* The number of a lock that is in the switch; PLANE_NO_LOCK: it is not. */
uint32_t plane_match(const struct plane *plane, uint64_t index);
uint64_t plane_index(const struct plane *plane, uint32_t lock);

/* A lock with an empty queue there. 0, -EEXIST, -ENOSPC (too many), -EINVAL (the region is empty or too large, lies outside of the
 * slots, or overlaps another lock's). */
int plane_install(struct plane *plane, uint64_t index, const struct plane_region *region, uint32_t *out);
void plane_remove(struct plane *plane, uint32_t lock);

struct plane_region plane_region(const struct plane *plane, uint32_t lock);
uint32_t plane_region_slots(const struct plane_region *region);
/* The waiters in the switch; and whether a request waits at the server whose priority has no queue here. */
uint64_t plane_waiting(const struct plane *plane, uint32_t lock);
bool plane_lows(const struct plane *plane, uint32_t lock);

/* The pipe in which a lock can be, and where its slots begin; the last one ends with the slots. */
static inline uint32_t plane_pipe(const struct plane_config *c, uint64_t index)
{
    return c->pipes > 1 && c->homes ? (uint32_t)(index % c->homes) % c->pipes : 0;
}
static inline uint32_t plane_pipe_start(const struct plane_config *c, uint32_t pipe)
{
    return c->pipes > 1 ? (uint32_t)((uint64_t)c->slots * pipe / c->pipes) : pipe ? c->slots : 0;
}

/* The first free region of so many slots for that lock; -ENOSPC: none. */
int plane_room(const struct plane *plane, uint64_t index, uint32_t slots, uint32_t *left);
/* How many slots are taken in a pipe. */
uint32_t plane_pipe_used(const struct plane *plane, uint32_t pipe);

/* If the lock's queues are empty, moves its region to the first place where it fits, if that is further left. Returns whether it
 * moved. */
bool plane_slide(struct plane *plane, uint32_t lock);

/* Another size for its queue, under the same condition. -EBUSY: its queues are not empty; -ENOSPC. */
int plane_resize(struct plane *plane, uint32_t lock, uint16_t size);

/* One register, for the control plane. */
uint64_t plane_get(const struct plane *plane, enum netlock_array array, uint32_t index);
void plane_set(struct plane *plane, enum netlock_array array, uint32_t index, uint64_t value);

/* 0 or -EINVAL: no such tenant. */
int plane_quota(struct plane *plane, uint16_t tenant, const struct netlock_quota *quota);

struct netlock_quota plane_quota_of(const struct plane *plane, uint16_t tenant);

/* A request of a tenant for a lock that is not here: 0, or how many microseconds it must wait. Sent again, it costs nothing. */
uint32_t plane_charge(struct plane *plane, uint16_t tenant, uint16_t machine, uint64_t nonce, uint32_t now);

/* One pass of a packet for that lock; p->next says whether it wants another. */
void plane_pass(struct plane *plane, uint32_t lock, struct netlock_pass *p);

static inline uint32_t plane_now(uint64_t now_ns)
{
    return (uint32_t)(now_ns >> 10);
}

#endif
