/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that wait without a thread of their own: each in a fiber, resumed when what it waits for may have changed, by whoever
 * reaps or by the library's thread. */
#ifndef PAWL_CLIENT_ASYNC_H
#define PAWL_CLIENT_ASYNC_H

#include "client/locker.h"
#include "world/fiber.h"

#include <pthread.h>

enum async_state { ASYNC_IDLE, ASYNC_PARKED, ASYNC_RUNNING, ASYNC_DONE };

struct async_task {
    struct fab_ep ep;     /* the session's, but its wait parks the fiber */
    struct locker locker; /* the session's, through that endpoint */
    struct fiber *fiber;
    enum async_state state;
    pawl_request request;
    char name[PAWL_NAME_MAX + 1];
    pawl_completion completion;
    /* While parked: what for, and what it is told when it goes on. */
    const struct fab_cond *conds;
    unsigned cond_count;
    uint64_t deadline;
    bool cancelled;
    int outcome;
};

struct async {
    pthread_mutex_t lock; /* of everything here; fibers run under it */
    struct fiber_pool pool;
    bool pool_ready; /* the stacks are made when first needed */
    struct async_task tasks[PAWL_INFLIGHT_MAX];
    unsigned done[PAWL_INFLIGHT_MAX]; /* finished tasks in the order in which they finished */
    unsigned done_head, done_count;
    uint64_t next_id;
    int event_fd;      /* readable while done_count > 0 */
    uint32_t doorbell; /* rises when the parked set changed or the library's thread should look up */
};

int async_init(struct async *a);
void async_free(struct async *a);

int async_submit(struct async *a, const struct locker *l, const pawl_request *request, uint64_t *id);
int async_reap(struct async *a, pawl_completion *out, unsigned max, uint64_t deadline);
int async_cancel(struct async *a, uint64_t id);

/* Cancels everything and waits until it has ended. */
void async_drain(struct async *a);

/* The library's thread: resumes what can go on, then sleeps until something may have changed, the doorbell rings, or the deadline.
 */
void async_serve(struct async *a, uint64_t deadline);
void async_ring(struct async *a);

#endif
