/* SPDX-License-Identifier: Apache-2.0 */
#include "client/async.h"
#include "client/grant.h"
#include "fabric/shm.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLEEP_CONDS_MAX 127        /* futex_waitv takes 128, one is the doorbell */
#define CROWDED_NS (1 * NS_PER_MS) /* how often to look when there are more conditions than can be slept on */

/* ---- fibers ---- */

/* Waiting on a fiber: gives the thread back until pump() finds that it can go on. */
static int park(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    struct async_task *t = container_of(ep, struct async_task, ep);
    if (t->cancelled)
        return -ECANCELED;
    t->conds = conds;
    t->cond_count = n;
    t->deadline = deadline;
    t->state = ASYNC_PARKED;
    fiber_yield(t->fiber);
    return t->outcome;
}

static const struct fab_ops parking_ops = FAB_SHM_OPS(park);

static int run_request(struct async_task *t, struct hold *h)
{
    const pawl_request *r = &t->request;
    uint64_t first = 0, last = 0;
    int rc = r->start || r->end || r->op == PAWL_OP_RESHAPE ? units_of(t->locker.seat.space, r->start, r->end, &first, &last) : 0;
    if (rc)
        return rc;
    switch (r->op) {
    case PAWL_OP_LOCK:
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
    struct async_task *t = arg;
    struct hold h = hold_of(&t->locker.seat, &t->request.grant);
    int rc = run_request(t, &h);
    t->completion.result = rc;
    t->completion.grant = rc ? t->request.grant : grant_of(&t->locker.seat, &h);
}

static void finish(struct async *a, struct async_task *t)
{
    const uint64_t one = 1;
    fiber_pool_give_back(&a->pool, t->fiber);
    t->state = ASYNC_DONE;
    a->done[(a->done_head + a->done_count) % PAWL_INFLIGHT_MAX] = (unsigned)(t - a->tasks);
    if (a->done_count++ == 0 && write(a->event_fd, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* it is readable already */
}

static void resume(struct async *a, struct async_task *t)
{
    t->state = ASYNC_RUNNING;
    if (fiber_resume(t->fiber))
        finish(a, t);
    else
        assert(t->state == ASYNC_PARKED);
}

static bool may_go_on(const struct async_task *t, uint64_t now, int *outcome)
{
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

/* Resumes what can go on; each task once. */
static void pump(struct async *a)
{
    uint64_t now = world_now(&world_real);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        struct async_task *t = &a->tasks[i];
        if (t->state == ASYNC_PARKED && may_go_on(t, now, &t->outcome))
            resume(a, t);
    }
}

/* ---- from the public interface ---- */

int async_init(struct async *a)
{
    memset(a, 0, sizeof *a);
    a->next_id = 1;
    a->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->event_fd < 0)
        return -errno;
    return -pthread_mutex_init(&a->lock, NULL);
}

void async_free(struct async *a)
{
    if (a->pool_ready)
        fiber_pool_free(&a->pool);
    close(a->event_fd);
    pthread_mutex_destroy(&a->lock);
}

static struct async_task *idle_task(struct async *a)
{
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        if (a->tasks[i].state == ASYNC_IDLE)
            return &a->tasks[i];
    return NULL;
}

/* The task's own copy of the request, name included, and its own way to wait. */
static void prepare(struct async_task *t, const struct locker *l, const pawl_request *request, uint64_t id)
{
    t->request = *request;
    if (request->op == PAWL_OP_LOCK && request->key.name) { /* a lock's key was checked; others' are not even looked at */
        memcpy(t->name, request->key.name, request->key.id);
        t->request.key.name = t->name;
    }
    t->ep = *l->seat.ep;
    t->ep.ops = &parking_ops;
    t->locker = *l;
    t->locker.seat.ep = &t->ep;
    t->completion = (pawl_completion){.id = id, .user = request->user};
    t->cancelled = false;
}

static int start(struct async *a, const struct locker *l, const pawl_request *request, uint64_t *id)
{
    struct async_task *t = idle_task(a);
    if (!t)
        return -PAWL_ELIMIT;
    if (!a->pool_ready) {
        int rc = fiber_pool_init(&a->pool, PAWL_INFLIGHT_MAX, FIBER_STACK_BYTES);
        if (rc)
            return rc;
        a->pool_ready = true;
    }
    t->fiber = fiber_pool_take(&a->pool);
    assert(t->fiber); /* as many as tasks */
    prepare(t, l, request, a->next_id++);
    *id = t->completion.id;
    fiber_start(t->fiber, run_task, t);
    resume(a, t);
    return 0;
}

int async_submit(struct async *a, const struct locker *l, const pawl_request *request, uint64_t *id)
{
    if (request->op < PAWL_OP_LOCK || request->op > PAWL_OP_HOLD_CALL)
        return -EINVAL;
    if (request->op > PAWL_OP_RESHAPE || request->call) /* no data server */
        return -PAWL_ENOTSUP;
    if (request->op == PAWL_OP_LOCK) {
        int rc = table_check_key(&l->table, request->key);
        if (rc)
            return rc;
    }
    if (!(l->seat.space->design->features & DESIGN_ASYNC))
        return -PAWL_ENOTSUP;
    pthread_mutex_lock(&a->lock);
    int rc = start(a, l, request, id);
    pthread_mutex_unlock(&a->lock);
    async_ring(a);
    return rc;
}

static unsigned take_done(struct async *a, pawl_completion *out, unsigned max)
{
    unsigned n = 0;
    uint64_t drained;
    while (n < max && a->done_count) {
        struct async_task *t = &a->tasks[a->done[a->done_head]];
        out[n++] = t->completion;
        t->state = ASYNC_IDLE;
        a->done_head = (a->done_head + 1) % PAWL_INFLIGHT_MAX;
        a->done_count--;
    }
    if (n && !a->done_count && read(a->event_fd, &drained, sizeof drained) < 0)
        assert(errno == EAGAIN);
    return n;
}

int async_reap(struct async *a, pawl_completion *out, unsigned max, uint64_t deadline)
{
    if (!max)
        return -EINVAL;
    for (;;) {
        pthread_mutex_lock(&a->lock);
        pump(a);
        unsigned n = take_done(a, out, max);
        pthread_mutex_unlock(&a->lock);
        uint64_t now = world_now(&world_real);
        if (n || now >= deadline)
            return (int)n;
        async_ring(a); /* what pump parked again may wait for something new */
        uint64_t left = deadline - now;
        struct timespec patience = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
        struct pollfd done = {.fd = a->event_fd, .events = POLLIN};
        if (ppoll(&done, 1, deadline == DEADLINE_NEVER ? NULL : &patience, NULL) < 0 && errno != EINTR)
            return -errno;
    }
}

int async_cancel(struct async *a, uint64_t id)
{
    int rc = -ENOENT;
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        struct async_task *t = &a->tasks[i];
        if (t->state != ASYNC_PARKED || t->completion.id != id)
            continue;
        t->cancelled = true;
        rc = 0;
    }
    pump(a);
    pthread_mutex_unlock(&a->lock);
    async_ring(a);
    return rc;
}

void async_drain(struct async *a)
{
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        a->tasks[i].cancelled = true;
    pump(a); /* whoever is cancelled does not park again */
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        assert(a->tasks[i].state == ASYNC_IDLE || a->tasks[i].state == ASYNC_DONE);
    pthread_mutex_unlock(&a->lock);
}

/* ---- the library's thread ---- */

/* What the parked tasks wait for, as futexes; false if one of them can go on already. */
static bool gather(struct async *a, struct futex_waitv *waits, unsigned *count, uint64_t *deadline)
{
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        struct async_task *t = &a->tasks[i];
        if (t->state != ASYNC_PARKED)
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

void async_serve(struct async *a, uint64_t deadline)
{
    struct futex_waitv waits[SLEEP_CONDS_MAX + 1];
    unsigned count = 1;
    uint32_t rung = __atomic_load_n(&a->doorbell, __ATOMIC_ACQUIRE);
    waits[0] = (struct futex_waitv){.uaddr = (uintptr_t)&a->doorbell, .val = rung, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
    pthread_mutex_lock(&a->lock);
    pump(a);
    bool sleep = gather(a, waits, &count, &deadline);
    pthread_mutex_unlock(&a->lock);
    if (sleep)
        fab_shm_sleep(waits, count, deadline);
}

void async_ring(struct async *a)
{
    __atomic_add_fetch(&a->doorbell, 1, __ATOMIC_ACQ_REL);
    syscall(SYS_futex, &a->doorbell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
