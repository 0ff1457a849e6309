/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on memory that wait without a thread of their own: each in a fiber. */
#include "client/grant.h"
#include "client/memory.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLEEP_CONDS_MAX 127        /* futex_waitv takes 128, one is the doorbell */
#define CROWDED_NS (1 * NS_PER_MS) /* how often to look when there are more conditions than can be slept on */

/* ---- fibers ---- */

/* Waiting on a fiber: gives the thread back until memory_pump finds that it can go on. */
static int park(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    struct memory_task *t = container_of(ep, struct memory_task, ep);
    if (t->cancelled)
        return -ECANCELED;
    t->conds = conds;
    t->cond_count = n;
    t->deadline = deadline;
    t->op->state = ASYNC_WAITING;
    fiber_yield(t->fiber);
    return t->outcome;
}

static const struct fab_ops parking_ops = FAB_SHM_OPS(park);

static int run_request(struct memory_task *t, struct hold *h)
{
    const pawl_request *r = &t->op->request;
    uint64_t first = 0, last = 0;
    int rc = r->start || r->end || r->op == PAWL_OP_RESHAPE ? units_of(t->locker.seat.space, r->start, r->end, &first, &last) : 0;
    if (rc)
        return rc;
    switch (r->op) {
    case PAWL_OP_LOCK:
        if (r->limit)
            return locker_semaphore(&t->locker, r->key, (uint32_t)r->limit, r->deadline_ns, h);
        return last ? locker_lock_range(&t->locker, r->key, first, last, r->mode, r->deadline_ns, h)
                    : locker_lock(&t->locker, r->key, r->mode, r->deadline_ns, h);
    case PAWL_OP_UNLOCK:
        return locker_unlock(&t->locker, h);
    case PAWL_OP_CONVERT:
        return locker_convert(&t->locker, h, r->mode, r->deadline_ns);
    case PAWL_OP_RESHAPE:
        return locker_reshape(&t->locker, h, first, last, r->deadline_ns);
    default:
        return -EINVAL;
    }
}

static void run_task(void *arg)
{
    struct memory_task *t = arg;
    pawl_completion *c = &t->op->completion;
    struct hold h = hold_of(&t->locker.seat, &t->op->request.grant);
    c->result = run_request(t, &h);
    c->grant = c->result ? t->op->request.grant : grant_of(&t->locker.seat, &h);
}

static void resume(struct memory_session *m, struct memory_task *t)
{
    t->op->state = ASYNC_RUNNING;
    fab_parking_set(m->far ? &t->parking : NULL);
    bool ended = fiber_resume(t->fiber);
    fab_parking_set(NULL);
    if (!ended) {
        assert(t->op->state == ASYNC_WAITING);
        return;
    }
    fiber_pool_give_back(&m->pool, t->fiber);
    async_finish(&m->handle.async, t->op, t->op->completion.result);
}

static bool may_go_on(const struct memory_session *m, const struct memory_task *t, uint64_t now, int *outcome)
{
    if (m->far)
        return memory_far_may_go_on(m, t, now, outcome);
    if (t->cancelled) {
        *outcome = -ECANCELED;
        return true;
    }
    for (unsigned i = 0; i < t->cond_count; i++) {
        uint64_t word = __atomic_load_n((uint64_t *)fab_shm_ptr(&t->ep, t->conds[i].addr), __ATOMIC_ACQUIRE);
        if ((word & t->conds[i].mask) != t->conds[i].value) {
            *outcome = 0;
            return true;
        }
    }
    *outcome = -ETIMEDOUT;
    return now >= t->deadline;
}

struct memory_task *memory_waiting_task(struct memory_session *m, unsigned i)
{
    return m->handle.async.ops[i].state == ASYNC_WAITING ? &m->tasks[i] : NULL;
}

/* Resumes what can go on; each task once. */
void memory_pump(struct pawl *p)
{
    struct memory_session *m = memory_of(p);
    uint64_t now = world_now(&world_real);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        struct memory_task *t = memory_waiting_task(m, i);
        if (t && may_go_on(m, t, now, &t->outcome))
            resume(m, t);
    }
}

/* ---- the session's part of the ring ---- */

int memory_admit(struct pawl *p, const pawl_request *r, uint64_t *index)
{
    struct memory_session *m = memory_of(p);
    int rc = r->op > PAWL_OP_RESHAPE || r->call ? -PAWL_ENOTSUP : 0; /* no data server */
    if (!rc && r->op == PAWL_OP_LOCK)
        rc = table_check_key(&m->locker.table, r->key);
    if (!rc && !(m->space.design->features & DESIGN_ASYNC))
        rc = -PAWL_ENOTSUP;
    return memory_failed(m, rc, r->key);
}

int memory_begin(struct pawl *p, struct async_op *op)
{
    struct memory_session *m = memory_of(p);
    struct memory_task *t = &m->tasks[async_number(&p->async, op)];
    if (!m->pool_ready) {
        int rc = fiber_pool_init(&m->pool, PAWL_INFLIGHT_MAX, FIBER_STACK_BYTES);
        if (rc)
            return memory_failed(m, rc, op->request.key);
        m->pool_ready = true;
    }
    *t = (struct memory_task){.ep = m->ep, .locker = m->locker, .op = op, .fiber = fiber_pool_take(&m->pool)};
    assert(t->fiber); /* as many as tasks */
    if (m->far) {
        t->parking.park = memory_far_park;
    } else {
        t->ep.ops = &parking_ops;
        t->locker.seat.ep = &t->ep;
    }
    t->locker.alone = NULL; /* while it waits, the program goes on */
    fiber_start(t->fiber, run_task, t);
    resume(m, t);
    return 0;
}

void memory_cancel(struct pawl *p, struct async_op *op)
{
    memory_of(p)->tasks[async_number(&p->async, op)].cancelled = true;
}

int memory_wait(struct pawl *p, uint64_t deadline)
{
    memory_changed(p); /* a task that was parked again may wait for something new */
    uint64_t now = world_now(&world_real), left = deadline > now ? deadline - now : 0;
    struct timespec patience = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    struct pollfd done = {.fd = p->async.event_fd, .events = POLLIN};
    return ppoll(&done, 1, deadline == DEADLINE_NEVER ? NULL : &patience, NULL) < 0 && errno != EINTR ? -errno : 0;
}

void memory_changed(struct pawl *p)
{
    struct memory_session *m = memory_of(p);
    __atomic_add_fetch(&m->doorbell, 1, __ATOMIC_ACQ_REL);
    syscall(SYS_futex, &m->doorbell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void memory_drain(struct memory_session *m)
{
    struct async *a = &m->handle.async;
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        m->tasks[i].cancelled = true;
    memory_pump(&m->handle); /* a cancelled task does not park again */
    assert(!a->in_flight);
    pthread_mutex_unlock(&a->lock);
}

/* ---- the library's thread ---- */

/* Words at which the tasks are parked, as futexes; false if one of them can go on already. */
static bool gather(struct memory_session *m, struct futex_waitv *waits, unsigned *count, uint64_t *deadline)
{
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        struct memory_task *t = memory_waiting_task(m, i);
        if (!t)
            continue;
        *deadline = min_u64(*deadline, t->deadline);
        for (unsigned c = 0; c < t->cond_count; c++) {
            if (*count > SLEEP_CONDS_MAX) {
                *deadline = min_u64(*deadline, world_now(&world_real) + CROWDED_NS);
                break;
            }
            if (!fab_shm_arm(&t->ep, &t->conds[c], &waits[*count]))
                return false;
            ++*count;
        }
    }
    return true;
}

void memory_serve(struct memory_session *m, uint64_t deadline)
{
    struct futex_waitv waits[SLEEP_CONDS_MAX + 1];
    unsigned count = 1;
    uint32_t rung = __atomic_load_n(&m->doorbell, __ATOMIC_ACQUIRE);
    waits[0] = (struct futex_waitv){.uaddr = (uintptr_t)&m->doorbell, .val = rung, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
    pthread_mutex_lock(&m->handle.async.lock);
    memory_pump(&m->handle);
    bool sleep = gather(m, waits, &count, &deadline);
    pthread_mutex_unlock(&m->handle.async.lock);
    if (sleep)
        fab_shm_sleep(waits, count, deadline);
}
