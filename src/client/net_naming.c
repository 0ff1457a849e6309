/* SPDX-License-Identifier: Apache-2.0 */
/* Submitted operations whose key this process does not know. pawl_submit must not wait for a coordinator, so a thread of the
 * library asks for their locks, one after the other and in short turns: one that is not answered does not hold up an end. */
#include "client/net.h"
#include "world/world.h"

#include <errno.h>
#include <signal.h>

#define TURN_NS (100 * NS_PER_MS) /* for which the coordinator is asked at a time */

/* With the lock: the next operation whose lock has to be asked for, behind the one at `after`. */
static struct async_op *next_unnamed(struct net *n, unsigned after)
{
    for (unsigned i = 1; i <= PAWL_INFLIGHT_MAX; i++) {
        const unsigned at = (after + i) % PAWL_INFLIGHT_MAX;
        const struct net_task *t = &n->tasks[at];
        if (n->handle.async.ops[at].state == ASYNC_WAITING && t->unnamed && !t->given_up)
            return &n->handle.async.ops[at];
    }
    return NULL;
}

/* The result of asking once, for the operation unless it has ended meanwhile. With the lock. */
static void answered(struct net *n, struct async_op *op, uint64_t id, int rc, const struct host_name *name)
{
    struct net_task *t = &n->tasks[async_number(&n->handle.async, op)];
    uint64_t now = world_now(&world_real);
    if (op->state != ASYNC_WAITING || op->completion.id != id || !t->unnamed || t->given_up)
        return;
    if (rc == -ETIMEDOUT && now < t->naming_until)
        return; /* its next turn */
    if (rc) {
        bool own = op->request.deadline_ns != DEADLINE_TRY && now >= op->request.deadline_ns; /* it is the caller's deadline */
        async_finish(&n->handle.async, op, rc == -ETIMEDOUT && !own ? -EAGAIN : rc);
        return;
    }
    t->unnamed = false;
    t->name = *name;
    op->completion.grant.index = name->index;
    net_pump(&n->handle);
}

static void *run(void *arg)
{
    struct net *n = arg;
    struct async *a = &n->handle.async;
    unsigned last = 0;
    pthread_mutex_lock(&a->lock);
    while (!n->naming_stops) {
        struct async_op *op = next_unnamed(n, last);
        if (!op) {
            pthread_cond_wait(&n->naming_wakes, &a->lock);
            continue;
        }
        last = async_number(a, op);
        const uint64_t id = op->completion.id;
        const enum pawl_mode mode = op->request.mode;
        char bytes[PAWL_NAME_MAX];
        pawl_key key = op->request.key;
        if (key.name) {
            memcpy(bytes, key.name, key.id);
            key.name = bytes;
        }
        struct host_name name = {0};
        pthread_mutex_unlock(&a->lock);
        int rc = net_find(n, key, mode, false, world_now(&world_real) + TURN_NS, &name);
        pthread_mutex_lock(&a->lock);
        answered(n, op, id, rc, &name);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int net_naming_begin(struct net *n)
{
    sigset_t all, before;
    if (n->naming) {
        pthread_cond_signal(&n->naming_wakes);
        return 0;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the application */
    int rc = pthread_create(&n->naming_thread, NULL, run, n);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    n->naming = !rc;
    if (!rc)
        handle_count_threads(1);
    return -rc;
}

void net_naming_end(struct net *n)
{
    pthread_mutex_lock(&n->handle.async.lock);
    n->naming_stops = true;
    pthread_cond_signal(&n->naming_wakes);
    pthread_mutex_unlock(&n->handle.async.lock);
    if (!n->naming)
        return;
    pthread_join(n->naming_thread, NULL);
    handle_count_threads(-1);
}
