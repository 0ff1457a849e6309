/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a memory node that wait without a thread of their own. Each runs on a fiber and parks wherever its endpoint would
 * put a thread to sleep: for the answer to a verb as well as for a lock. So an operation never blocks the thread that submits it,
 * and the verbs of several operations are in flight at once. The thread that reaps receives for them all, and resumes those that
 * may go on. While no thread reaps, the library's does. */
#include "client/memory.h"

#include <errno.h>

int memory_far_park(struct fab_parking *p, uint64_t until, bool cancellable)
{
    struct memory_task *t = container_of(p, struct memory_task, parking);
    if (t->cancelled && cancellable)
        return -ECANCELED;
    t->deadline = until;
    t->cancellable = cancellable;
    t->op->state = ASYNC_WAITING;
    fiber_yield(t->fiber);
    return t->outcome;
}

bool memory_far_may_go_on(const struct memory_session *m, const struct memory_task *t, uint64_t now, int *outcome)
{
    *outcome = t->cancelled && t->cancellable ? -ECANCELED : 0;
    return *outcome || now >= t->deadline || node_udp_changes(m->far) != t->parking.seen;
}

/* After a look at all operations. */
struct look {
    uint64_t seen;  /* changes of the endpoint that none of the operations waits for any more */
    uint64_t until; /* when the first operation may go on without another change */
    unsigned in_flight, done;
};

/* Resumes what can go on. */
static struct look pump(struct memory_session *m, uint64_t deadline)
{
    struct async *a = &m->handle.async;
    struct look l = {.seen = node_udp_changes(m->far), .until = deadline};
    pthread_mutex_lock(&a->lock);
    memory_pump(&m->handle);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        const struct memory_task *t = memory_waiting_task(m, i);
        if (t)
            l.until = min_u64(l.until, t->deadline);
    }
    l.in_flight = a->in_flight;
    l.done = a->done_count;
    pthread_mutex_unlock(&a->lock);
    return l;
}

/* Whichever thread ends an operation from now on: it was resumed by a change of the endpoint after `seen`, or because its time had
 * come, which is not before `until`. Both end this wait, too. */
int memory_far_wait(struct pawl *p, uint64_t deadline)
{
    struct memory_session *m = memory_of(p);
    __atomic_add_fetch(&m->reapers, 1, __ATOMIC_ACQ_REL);
    struct look l = pump(m, deadline);
    if (!l.done)
        node_udp_await(m->far, l.seen, l.until);
    __atomic_sub_fetch(&m->reapers, 1, __ATOMIC_ACQ_REL);
    return 0;
}

bool memory_far_serve(struct memory_session *m, uint64_t deadline)
{
    if (__atomic_load_n(&m->reapers, __ATOMIC_ACQUIRE))
        return false;
    struct look l = pump(m, deadline);
    if (l.in_flight)
        node_udp_await(m->far, l.seen, l.until);
    return l.in_flight;
}

/* Verbs that clean up are answered, or the session's lease ends: both are bounded. */
void memory_far_drain(struct memory_session *m)
{
    pthread_mutex_lock(&m->handle.async.lock);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        m->tasks[i].cancelled = true;
    pthread_mutex_unlock(&m->handle.async.lock);
    for (struct look l; l = pump(m, DEADLINE_NEVER), l.in_flight;)
        node_udp_await(m->far, l.seen, l.until);
}
