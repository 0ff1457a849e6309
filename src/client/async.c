/* SPDX-License-Identifier: Apache-2.0 */
/* The asynchronous calls of pawl.h, and the ring that they share. */
#include "client/handle.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/eventfd.h>
#include <unistd.h>

int async_init(struct async *a)
{
    pthread_mutexattr_t recursive;
    a->next_id = 1;
    a->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->event_fd < 0)
        return -errno;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&a->calling, &recursive);
    pthread_mutexattr_destroy(&recursive);
    return -pthread_mutex_init(&a->lock, NULL);
}

void async_free(struct async *a)
{
    close(a->event_fd);
    pthread_mutex_destroy(&a->calling);
    pthread_mutex_destroy(&a->lock);
}

static void announce(struct async *a)
{
    const uint64_t one = 1;
    if (a->announced || a->silent)
        return;
    a->announced = true;
    if (write(a->event_fd, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* it is readable already */
}

/* Before the lock is given back: the event says whether there is something to reap. */
static void settle(struct async *a)
{
    uint64_t drained;
    a->silent = false;
    if (a->done_count || a->told || a->loss_unreaped) {
        announce(a);
    } else if (a->announced) {
        if (read(a->event_fd, &drained, sizeof drained) < 0)
            assert(errno == EAGAIN); /* the program has read it itself */
        a->announced = false;
    }
}

/* ---- the loss of the session ---- */

ONCE void async_lost(struct async *a, enum pawl_why why)
{
    if (a->why) /* this thread alone writes it */
        return;
    pthread_mutex_lock(&a->lock);
    __atomic_store_n(&a->why, why, __ATOMIC_RELEASE);
    a->loss_unreaped = true;
    announce(a);
    pthread_mutex_unlock(&a->lock);
    pthread_mutex_lock(&a->calling);
    if (a->lost)
        a->lost(a->lost_ctx, (int)why);
    a->lost = NULL;
    pthread_mutex_unlock(&a->calling);
}

ONCE int pawl_on_lost(pawl *p, void (*lost)(void *ctx, int why), void *ctx)
{
    struct async *a = &p->async;
    explain_nothing();
    if (!handle_is_ours(p))
        return handle_forked();
    pthread_mutex_lock(&a->calling);
    bool late = lost && __atomic_load_n(&a->why, __ATOMIC_ACQUIRE);
    if (!late) {
        a->lost = lost;
        a->lost_ctx = ctx;
    }
    pthread_mutex_unlock(&a->calling);
    return late ? explain(-PAWL_ELOST, "%s", pawl_strwhy((int)a->why)) : 0;
}

/* ---- waiters ---- */

ONCE int pawl_watch(pawl *p, const pawl_grant *grant)
{
    struct async *a = &p->async;
    if (handle_is_ours(p) && (!p->ops->wanted || !(p->design->features & DESIGN_BAST))) {
        explain_nothing();
        return handle_not_offered(p);
    }
    int rc = HANDLE_CALL(p, check, grant);
    if (rc)
        return explain(rc, "%s", pawl_strerror(rc));
    struct async_watch *free_one = NULL, *same = NULL;
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < PAWL_WATCH_MAX; i++) {
        struct async_watch *w = &a->watches[i];
        if (w->state == WATCH_NONE)
            free_one = w;
        else if (w->state == WATCH_ON && w->grant.hold == grant->hold && w->grant.serial == grant->serial)
            same = w;
    }
    if (same) {
        same->grant = *grant; /* it may have been converted */
    } else if (free_one) {
        *free_one = (struct async_watch){.state = WATCH_ON, .grant = *grant};
        __atomic_store_n(&a->watching, a->watching + 1, __ATOMIC_RELEASE);
    } else {
        rc = explain(-PAWL_ELIMIT, "%d holds are watched, or their events not reaped yet", PAWL_WATCH_MAX);
    }
    pthread_mutex_unlock(&a->lock);
    if (!rc && p->ops->changed)
        p->ops->changed(p);
    return rc;
}

ONCE int pawl_on_wanted(pawl *p, void (*wanted)(void *ctx, const pawl_grant *grant), void *ctx)
{
    struct async *a = &p->async;
    explain_nothing();
    if (!handle_is_ours(p))
        return handle_forked();
    pthread_mutex_lock(&a->calling);
    a->wanted = wanted;
    a->wanted_ctx = ctx;
    pthread_mutex_unlock(&a->calling);
    return 0;
}

/* One watch has ended: others wait for the lock (`by_event`), or the hold is over. */
static void end_watch(struct async *a, struct async_watch *w, bool by_event)
{
    pthread_mutex_lock(&a->lock);
    w->state = by_event ? WATCH_TOLD : WATCH_NONE;
    a->told += by_event;
    __atomic_store_n(&a->watching, a->watching - 1, __ATOMIC_RELEASE);
    if (by_event)
        announce(a);
    pthread_mutex_unlock(&a->lock);
}

/* This thread alone ends watches, so one that is ON stays where it is. */
ONCE void async_look_at_watches(struct pawl *p)
{
    struct async *a = &p->async;
    for (unsigned i = 0; i < PAWL_WATCH_MAX && async_watches(a); i++) {
        struct async_watch *w = &a->watches[i];
        pthread_mutex_lock(&a->lock);
        bool on = w->state == WATCH_ON;
        const pawl_grant grant = w->grant;
        pthread_mutex_unlock(&a->lock);
        int wanted = on ? p->ops->wanted(p, &grant) : 0;
        if (wanted == -PAWL_ENOTOWNER || wanted == -PAWL_ELOST)
            end_watch(a, w, false);
        if (wanted <= 0)
            continue;
        pthread_mutex_lock(&a->calling);
        end_watch(a, w, !a->wanted); /* first: the callback may watch again */
        if (a->wanted)
            a->wanted(a->wanted_ctx, &grant);
        pthread_mutex_unlock(&a->calling);
    }
}

/* ---- why a grant ended ---- */

/* Until the library's thread has noticed the loss, the session is asked. */
ONCE int pawl_why(pawl *p, const pawl_grant *grant)
{
    int rc = HANDLE_CALL(p, check, grant);
    if (rc == -PAWL_ENOTOWNER)
        return PAWL_WHY_UNLOCKED;
    if (rc != -PAWL_ELOST)
        return rc;
    enum pawl_why why = __atomic_load_n(&p->async.why, __ATOMIC_ACQUIRE);
    return (int)(why ? why : p->ops->why(p));
}

/* ---- the ring ---- */

void async_finish(struct async *a, struct async_op *op, int result)
{
    assert(op->state == ASYNC_RUNNING || op->state == ASYNC_WAITING);
    assert(a->in_flight > 0 && a->done_count < PAWL_INFLIGHT_MAX);
    op->completion.result = result;
    op->state = ASYNC_DONE;
    a->in_flight--;
    a->done[(a->done_first + a->done_count) % PAWL_INFLIGHT_MAX] = async_number(a, op);
    a->done_count++;
    announce(a);
}

static_assert(PAWL_INFLIGHT_MAX == 64, "a bit for each");

/* The request as sessions have it: its deadline is one of designs. */
static int check_request(const struct pawl *p, const pawl_request *given, pawl_request *out)
{
    *out = *given;
    if (given->op < PAWL_OP_LOCK || given->op > PAWL_OP_HOLD_CALL)
        return explain(-EINVAL, "there is no operation %d", (int)given->op);
    for (unsigned i = 0; i < countof(given->reserved); i++)
        if (given->reserved[i])
            return explain(-EINVAL, "a reserved field of the request is not 0");
    bool has_mode = async_names_lock(given) || given->op == PAWL_OP_CONVERT;
    if (has_mode && given->mode != PAWL_SHARED && given->mode != PAWL_EXCLUSIVE)
        return explain(-EINVAL, "the mode must be shared or exclusive");
    if (given->limit && (given->op != PAWL_OP_LOCK || given->mode != PAWL_SHARED || given->start || given->end || given->call))
        return explain(-EINVAL, "a place of a semaphore is locked as a whole, in mode shared and without a call");
    int rc = given->limit ? handle_check_limit(p, given->limit) : 0;
    if (rc)
        return rc;
    return given->op == PAWL_OP_UNLOCK ? 0 : handle_until(p, given->deadline_ns, &out->deadline_ns);
}

/* With the lock. */
static int begin(struct pawl *p, const pawl_request *r, uint64_t index, uint64_t *id)
{
    struct async *a = &p->async;
    if (!~a->used)
        return explain(-PAWL_ELIMIT, "%d operations are in flight or unreaped; reap some first", PAWL_INFLIGHT_MAX);
    struct async_op *op = &a->ops[__builtin_ctzll(~a->used)];
    op->request = *r;
    if (async_names_lock(r) && r->key.name) { /* `admit` has checked its length */
        memcpy(op->name, r->key.name, r->key.id);
        op->request.key.name = op->name;
    }
    op->completion = (pawl_completion){.id = a->next_id, .op = r->op, .user = r->user};
    if (async_names_lock(r))
        op->completion.grant.index = index;
    else
        op->completion.grant = r->grant;
    op->state = ASYNC_RUNNING;
    a->in_flight++;
    a->silent = true;
    int rc = p->ops->begin(p, op);
    a->silent = false;
    if (!r->more) /* else the caller reaps, or submits one more */
        settle(a);
    if (rc) {
        op->state = ASYNC_IDLE;
        a->in_flight--;
        return rc;
    }
    assert(op->state == ASYNC_WAITING || op->state == ASYNC_DONE);
    a->used |= UINT64_C(1) << async_number(a, op);
    *id = a->next_id++;
    return 0;
}

int pawl_submit(pawl *p, const pawl_request *request, uint64_t *id)
{
    uint64_t index = 0;
    pawl_request checked;
    explain_nothing();
    if (!handle_is_ours(p))
        return handle_forked();
    int rc = check_request(p, request, &checked);
    if (!rc)
        rc = p->ops->admit(p, &checked, &index);
    if (rc)
        return rc;
    pthread_mutex_lock(&p->async.lock);
    uint32_t waiting = p->async.in_flight;
    rc = begin(p, &checked, index, id);
    waiting = p->async.in_flight - waiting;
    pthread_mutex_unlock(&p->async.lock);
    if (waiting && p->ops->changed)
        p->ops->changed(p);
    return rc;
}

/* Behind all completions that were there before. */
static ONCE unsigned take_events(struct async *a, pawl_completion *out, unsigned n, unsigned max)
{
    for (unsigned i = 0; i < PAWL_WATCH_MAX && a->told && n < max; i++) {
        if (a->watches[i].state != WATCH_TOLD)
            continue;
        out[n++] = (pawl_completion){.op = PAWL_OP_WANTED, .grant = a->watches[i].grant};
        a->watches[i].state = WATCH_NONE;
        a->told--;
    }
    if (n < max && a->loss_unreaped) {
        out[n++] = (pawl_completion){.result = -PAWL_ELOST, .op = PAWL_OP_LOST, .why = a->why};
        a->loss_unreaped = false;
    }
    return n;
}

static unsigned take_done(struct async *a, pawl_completion *out, unsigned max)
{
    unsigned n = 0;
    while (n < max && a->done_count) {
        struct async_op *op = &a->ops[a->done[a->done_first]];
        assert(op->state == ASYNC_DONE);
        out[n++] = op->completion;
        op->state = ASYNC_IDLE;
        a->used &= ~(UINT64_C(1) << a->done[a->done_first]);
        a->done_first = (a->done_first + 1) % PAWL_INFLIGHT_MAX;
        a->done_count--;
    }
    if (a->told || a->loss_unreaped)
        n = take_events(a, out, n, max);
    settle(a);
    return n;
}

int pawl_reap(pawl *p, pawl_completion *out, unsigned max, uint64_t deadline_ns)
{
    explain_nothing();
    if (!handle_is_ours(p))
        return handle_forked();
    if (!max)
        return explain(-EINVAL, "pawl_reap needs room for at least one completion");
    uint64_t until = 0;
    int checked = handle_until(p, deadline_ns, &until);
    if (checked)
        return checked;
    if (until == DEADLINE_TRY && p->ops->hear)
        p->ops->hear(p);
    for (;;) {
        pthread_mutex_lock(&p->async.lock);
        p->async.silent = true;
        p->ops->pump(p);
        unsigned n = take_done(&p->async, out, max);
        pthread_mutex_unlock(&p->async.lock);
        if (n || pawl_now() >= until)
            return (int)n;
        int rc = p->ops->wait(p, until);
        if (rc)
            return rc;
    }
}

ONCE int pawl_cancel(pawl *p, uint64_t id)
{
    int rc = -ENOENT;
    explain_nothing();
    if (!handle_is_ours(p))
        return handle_forked();
    pthread_mutex_lock(&p->async.lock);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX && rc; i++) {
        struct async_op *op = &p->async.ops[i];
        if (op->state != ASYNC_WAITING || op->completion.id != id)
            continue;
        p->ops->cancel(p, op);
        rc = 0;
    }
    p->ops->pump(p);
    pthread_mutex_unlock(&p->async.lock);
    if (p->ops->changed)
        p->ops->changed(p);
    return rc ? explain(rc, "no operation %" PRIu64 " waits: it is complete, or was never submitted", id) : 0;
}

int pawl_fd(pawl *p)
{
    return !handle_is_ours(p) ? handle_forked() : p->ops->fd ? p->ops->fd(p) : p->async.event_fd;
}
