/* SPDX-License-Identifier: Apache-2.0 */
/* A session on memory: local:NAME or system:NAME, the shared memory of this machine, or pawl://ADDRESS:PORT/SPACE where a memory
 * node listens. On shared memory every process maps the space's segment. In both a session locks through a locker. memory_open.c
 * opens and closes a session on shared memory, memory_far.c one on a memory node, memory.c has the calls, memory_async.c the
 * operations that wait without a thread, memory_far_async.c what is different about them on a memory node. */
#ifndef PAWL_CLIENT_MEMORY_H
#define PAWL_CLIENT_MEMORY_H

#include "client/handle.h"
#include "client/segment.h"
#include "fabric/near.h"
#include "fabric/node_udp.h"
#include "fabric/parking.h"
#include "world/fiber.h"

/* The task of an operation in flight: a fiber, resumed when its condition may have changed, by a thread that reaps or by the
 * library's. */
struct memory_task {
    struct fab_ep ep;           /* on shared memory: the session's, but its wait parks the fiber */
    struct fab_parking parking; /* on a memory node: what its endpoint does instead of putting a thread to sleep */
    struct locker locker;       /* the session's, through that endpoint */
    struct async_op *op;
    struct fiber *fiber;
    /* While the fiber is parked: what it waits for (on a memory node: a change at the endpoint), and what it is told when it goes
     * on. */
    const struct fab_cond *conds;
    unsigned cond_count;
    uint64_t deadline;
    bool cancellable, cancelled;
    int outcome;
};

struct memory_session {
    struct pawl handle;
    struct locker locker;
    struct fab_ep ep;
    struct space space;
    struct session session;
    uint64_t lease_ns;
    struct segment *segment; /* null on a memory node, */
    struct node_udp *far;    /* which is reached by this endpoint; else null */
    struct fab_near near;    /* on the node's own machine: its memory, mapped; base null: not so */
    struct fab_rdma *fabric; /* where the node's verbs are not packets: the endpoint on its memory; else null */
    char *name;              /* of the space on a memory node, for messages */
    int close_result;
    bool removed; /* the segment of the space is gone */

    /* Operations in flight: under the ring's lock, but for the doorbell. */
    struct together_shelf together; /* on a memory node: of calls for several locks */
    struct fiber_pool pool;
    bool pool_ready; /* the stacks are made when first needed */
    struct memory_task tasks[PAWL_INFLIGHT_MAX];
    unsigned reapers;  /* on a memory node: threads that resume operations while they wait for one; atomic */
    bool called;       /* likewise: operations were submitted or cancelled since the library's thread slept; the endpoint's lock */
    uint32_t doorbell; /* rises when the set of parked tasks has changed or the library's thread should look up */
};

extern const struct session_ops memory_ops, memory_system_ops, memory_far_ops;

/* The session of a handle; null if it is of another kind. */
static inline struct memory_session *memory_of(pawl *p)
{
    return p->ops->on_memory ? container_of(p, struct memory_session, handle) : NULL;
}

int memory_open(const char *place, const pawl_options *o, const struct knobs *knobs, struct pawl **out);
int memory_open_system(const char *place, const pawl_options *o, const struct knobs *knobs, struct pawl **out);
int memory_close(struct pawl *p);

/* On a memory node: opened by the session kind of pawl://, when there is one at that place. */
struct net_where;
int memory_far_open(const struct net_where *w, const pawl_options *o, struct pawl **out);
int memory_far_close(struct pawl *p);
void memory_far_changed(struct pawl *p);

/* Whether a space has what the options require; explained. */
int memory_check_requirements(const pawl_options *o, const struct layout_header *h, const char *path);

/* Tells the application if the session was lost. By the library's thread. */
void memory_notice_loss(struct memory_session *m);

/* locker.alone: operations in flight may hold and release, too. */
bool memory_alone(const struct locker *l);

/* Explains an error of a locker; 0 is none. */
int memory_failed(const struct memory_session *m, int rc, pawl_key key);

/* ---- memory_async.c ---- */

int memory_admit(struct pawl *p, const pawl_request *r, uint64_t *index);
int memory_begin(struct pawl *p, struct async_op *op);
void memory_pump(struct pawl *p);
void memory_cancel(struct pawl *p, struct async_op *op);
struct memory_task *memory_waiting_task(struct memory_session *m, unsigned i); /* of an operation that waits, or null */
int memory_wait(struct pawl *p, uint64_t deadline);
void memory_changed(struct pawl *p);

/* Cancels every operation and waits until it has ended. */
void memory_drain(struct memory_session *m);

/* The library's thread: resumes what can go on, then sleeps until something may have changed, the doorbell rings, or the
 * deadline. */
void memory_serve(struct memory_session *m, uint64_t deadline);

/* ---- memory_far_async.c ---- */

int memory_far_park(struct fab_parking *p, uint64_t until, bool cancellable);
bool memory_far_may_go_on(const struct memory_session *m, const struct memory_task *t, uint64_t now, int *outcome);
int memory_far_wait(struct pawl *p, uint64_t deadline);
void memory_far_drain(struct memory_session *m);

/* The library's thread: as memory_serve. False: nothing is in flight, or a thread that reaps sees to it. */
bool memory_far_serve(struct memory_session *m, uint64_t deadline);

#endif
