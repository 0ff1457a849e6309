/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous operations: one ring for every kind of session. The ring numbers operations and keeps their completions in the order
 * in which they finished. The session begins an operation and finishes it when its answer is there (handle.h). */
#ifndef PAWL_CLIENT_ASYNC_H
#define PAWL_CLIENT_ASYNC_H

#include "lib/base.h"
#include "pawl.h"

#include <pthread.h>

enum async_state {
    ASYNC_IDLE,
    ASYNC_RUNNING, /* a thread works on it at this moment, under the ring's lock */
    ASYNC_WAITING,
    ASYNC_DONE, /* not yet reaped */
};

struct async_op {
    enum async_state state;
    pawl_request request; /* with a name of its own */
    char name[PAWL_NAME_MAX + 1];
    pawl_completion completion;
};

/* A hold whose holder wants to know that others wait for its lock. */
struct async_watch {
    enum { WATCH_NONE, WATCH_ON, WATCH_TOLD } state; /* TOLD: not yet reaped */
    pawl_grant grant;
};

struct async {
    pthread_mutex_t lock; /* of everything here, and of what the session keeps for operations in flight */
    struct async_op ops[PAWL_INFLIGHT_MAX];
    unsigned in_flight;               /* begun and not finished */
    unsigned done[PAWL_INFLIGHT_MAX]; /* finished operations in the order in which they finished: a ring */
    unsigned done_first, done_count;
    uint64_t next_id;
    uint64_t used;  /* a bit for each operation that is not idle */
    int event_fd;   /* readable while done_count > 0, or an event of the session is not yet reaped */
    bool announced; /* the event was written, and not read since */
    bool silent;    /* the thread that has the lock reaps now: completions are not announced to it */

    struct async_watch watches[PAWL_WATCH_MAX];
    unsigned watching; /* that are ON; written with the lock, read without */
    unsigned told;     /* that are TOLD */

    enum pawl_why why; /* the session was lost; 0: not that the library's thread has noticed */
    bool loss_unreaped;
    pthread_mutex_t calling; /* held while the callback runs; recursive: the callback may take itself off */
    void (*lost)(void *ctx, int why);
    void *lost_ctx;
    void (*wanted)(void *ctx, const pawl_grant *grant);
    void *wanted_ctx;
};

int async_init(struct async *a);
void async_free(struct async *a);

/* With the lock: the operation has ended with this result; its completion has the grant already. */
void async_finish(struct async *a, struct async_op *op, int result);

/* The library's thread has noticed that the session is lost. The first time it tells the application. */
void async_lost(struct async *a, enum pawl_why why);

#define ASYNC_WATCH_NS (10 * NS_PER_MS) /* how often the library's thread looks after watches */

static inline bool async_watches(const struct async *a)
{
    return __atomic_load_n(&a->watching, __ATOMIC_ACQUIRE);
}

/* By the library's thread, every ASYNC_WATCH_NS while there are watches: looks whether others wait, and tells the application. */
void async_look_at_watches(struct pawl *p);

/* Whether the request names a lock by its key, and not by a grant. */
static inline bool async_names_lock(const pawl_request *r)
{
    return r->op == PAWL_OP_LOCK || r->op == PAWL_OP_CALL;
}

static inline unsigned async_number(const struct async *a, const struct async_op *op)
{
    return (unsigned)(op - a->ops);
}

#endif
