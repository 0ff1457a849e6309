/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a rack that wait without a thread: each is a request in the host's memory. The thread that receives, be it one that
 * waits, one that reaps, or the library's, completes them. Packets of operations that are submitted in a row are sent together. */
#include "client/net.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#define TOGETHER 16 /* packets that wait for others; and so many operations are sent at once while no more are in flight */

static struct net_task *task_of(struct net *n, const struct async_op *op)
{
    return &n->tasks[async_number(&n->handle.async, op)];
}

/* The call that the lock's data server has been told of, or null. */
static pawl_call *call_of(const pawl_request *r)
{
    return async_names_lock(r) || r->op == PAWL_OP_HOLD_CALL ? r->call : NULL;
}

static void flush(struct net *n)
{
    if (n->batch.packets || n->batch.wakes)
        net_flush_together(n, &n->udp, &n->batch);
}

/* ---- finishing ---- */

static ONCE void give_up(struct net *n, struct net_task *t, int why)
{
    if (t->request != NET_NONE)
        net_give_up(n, t->request, why, &n->batch);
    t->given_up = true;
    t->why = why;
    t->bell = NET_LOOK_AT_ONCE;
}

ONCE void net_cancel(struct pawl *p, struct async_op *op)
{
    struct net *n = net_of(p);
    give_up(n, task_of(n, op), -ECANCELED);
}

/* The operation has an answer, or will not get one. */
static void conclude(struct net *n, struct async_op *op, const struct packet_answer *answer, uint64_t expiry)
{
    const pawl_request *r = &op->request;
    const uint32_t request = task_of(n, op)->request;
    const bool once = r->op == PAWL_OP_CALL;
    int rc = answer->result == -ETIMEDOUT && r->deadline_ns == DEADLINE_TRY ? -EAGAIN : answer->result;
    if (rc == -PAWL_EHELD && task_of(n, op)->late)
        rc = -ETIMEDOUT;
    if (!rc && call_of(r))
        rc = net_take_reply(n, request, r->call, &n->batch);
    pawl_grant g = rc ? op->completion.grant : net_grant(n, request, op->completion.grant.index, answer, expiry);
    if (async_names_lock(r) && (rc || once))
        net_give_request(n, true, request);
    if (!rc && !once && !g.expiry_ns)
        rc = -PAWL_ELOST; /* I1; the session's end releases it */
    if (!rc)
        op->completion.grant = once ? (pawl_grant){0} : g;
    async_finish(&n->handle.async, op, rc);
}

/* Not negative: the request is under way, or the lock is released. No thread waits for it, or has the lock from now on. */
static int start(struct net *n, struct net_task *t, const pawl_request *r)
{
    if (async_names_lock(r)) {
        struct packet_ask ask = {.mode = r->mode,
                                 .limit = (uint16_t)r->limit,
                                 .try = t->late || r->deadline_ns == DEADLINE_TRY,
                                 .once = r->op == PAWL_OP_CALL};
        int rc = net_begin_lock(n, &ask, &t->name, r->call, true, &t->bell, &n->batch);
        t->request = rc < 0 ? NET_NONE : ask.request;
        return rc;
    }
    int rc = net_request_of(n, &r->grant, &t->request);
    return rc                           ? rc
           : r->op == PAWL_OP_CONVERT   ? net_begin_convert(n, t->request, r->mode, 0, &t->bell, &n->batch)
           : r->op == PAWL_OP_HOLD_CALL ? net_begin_call(n, t->request, r->call, &t->bell, &n->batch)
                                        : net_end(n, t->request, true, &n->batch);
}

/* An operation that waits for an idle request. */
static ONCE void begin_late(struct net *n, struct async_op *op, bool lives)
{
    struct net_task *t = task_of(n, op);
    int rc = !lives ? -PAWL_ELOST : t->given_up ? t->why : t->unnamed ? -EBUSY : start(n, t, &op->request);
    if (rc == -ESTALE) { /* its key was retired while it waited */
        t->unnamed = true;
        rc = net_naming_begin(n) ? -EAGAIN : -EBUSY;
    }
    if (rc == -EBUSY)
        return;
    if (t->unnamed) {
        if (rc == -ETIMEDOUT && op->request.deadline_ns == DEADLINE_TRY)
            rc = -EAGAIN;
        async_finish(&n->handle.async, op, rc);
        return;
    }
    if (t->given_up && rc == -ETIMEDOUT)
        rc = -PAWL_ELIMIT; /* not one was acknowledged in all that time */
    if (rc < 0)
        async_finish(&n->handle.async, op, rc);
}

static void look_at(struct net *n, struct async_op *op, uint64_t now, bool lives)
{
    struct net_task *t = task_of(n, op);
    struct packet_answer answer = {.result = -PAWL_ELOST};
    uint64_t expiry;
    if (now >= t->deadline && !t->given_up)
        give_up(n, t, -ETIMEDOUT);
    if (t->request == NET_NONE) {
        begin_late(n, op, lives);
        return;
    }
    uint32_t bell = net_bell(n, t->request);
    if (bell == t->bell && lives)
        return;
    t->bell = bell;
    if (net_outcome(n, t->request, &n->batch, &answer, &expiry) != -EINPROGRESS || !lives)
        conclude(n, op, &answer, expiry);
}

void net_pump(struct pawl *p)
{
    struct net *n = net_of(p);
    if (p->async.in_flight) {
        uint64_t now = world_now(&world_real);
        bool lives = host_lives(&n->host, host_now());
        for (uint64_t used = p->async.used; used; used &= used - 1) {
            struct async_op *op = &p->async.ops[__builtin_ctzll(used)];
            if (op->state == ASYNC_WAITING)
                look_at(n, op, now, lives);
        }
    }
    flush(n);
}

/* ---- submitting ---- */

/* Without blocking: a key that is not known is asked for by another thread. -EBUSY: the operation begins later. */
static int begin_named(struct net *n, struct net_task *t, struct async_op *op)
{
    const pawl_request *r = &op->request;
    int rc = async_names_lock(r) ? net_find_known(n, r->key, r->mode, &t->name) : 0;
    if (!rc && async_names_lock(r))
        op->completion.grant.index = t->name.index;
    if (!rc)
        rc = start(n, t, r);
    if (rc != -EINPROGRESS && rc != -ESTALE) /* stale: the host has forgotten the key just now */
        return rc;
    t->unnamed = true;
    rc = net_naming_begin(n);
    return rc ? rc : -EBUSY;
}

int net_begin(struct pawl *p, struct async_op *op)
{
    struct net *n = net_of(p);
    struct net_task *t = task_of(n, op);
    const pawl_request *r = &op->request;
    uint64_t now = world_now(&world_real);
    bool unlocks = r->op == PAWL_OP_UNLOCK, gives_up;
    *t = (struct net_task){.request = NET_NONE,
                           .late = !unlocks && net_late(r->deadline_ns, now),
                           .naming_until = net_ask_until(n, r->deadline_ns, now, &gives_up)};
    t->deadline = unlocks ? DEADLINE_NEVER : net_patience(n, r->deadline_ns, now);
    int rc = begin_named(n, t, op);
    bool later = rc == -EBUSY && async_names_lock(r);
    if (unlocks || (rc < 0 && !later))
        async_finish(&p->async, op, rc);
    else
        op->state = ASYNC_WAITING;
    if (unlikely(!n->hears) && op->state == ASYNC_WAITING)
        net_set_hears(n, true);
    if (n->batch.packets >= TOGETHER || (p->async.in_flight < TOGETHER && !r->more) || n->batch.wakes)
        net_flush_together(n, &n->udp, &n->batch);
    return 0;
}

int net_admit(struct pawl *p, const pawl_request *r, uint64_t *index)
{
    struct net *n = net_of(p);
    bool only_call = r->op == PAWL_OP_CALL || r->op == PAWL_OP_HOLD_CALL;
    if (r->op == PAWL_OP_RESHAPE)
        return explain(-EINVAL, "a rack has no ranges");
    if (only_call && !r->call)
        return explain(-EINVAL, "the request has no call");
    (void)index; /* net_begin finds it */
    int rc = call_of(r) ? net_check_call(n, r->call) : 0;
    return rc || !async_names_lock(r) ? rc : net_check_key(n, r->key, r->mode);
}

/* ---- reaping ---- */

/* The thread that waits receives, also if it waits for pawl_fd: packets make that readable, and pawl_reap takes them from the
 * socket. Otherwise each would wake the library's thread, which would wake the application's. */
ONCE void net_set_hears(struct net *n, bool hears)
{
    struct pollfd fds[UDP_FDS];
    if (n->poll_fd < 0)
        return;
    __atomic_store_n(&n->hears, hears, __ATOMIC_RELAXED);
    udp_poll_fds(&n->udp, fds);
    for (unsigned i = 0; i < UDP_FDS; i++)
        epoll_ctl(n->poll_fd, hears ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fds[i].fd, &(struct epoll_event){.events = EPOLLIN});
}

ONCE int net_fd(struct pawl *p)
{
    struct net *n = net_of(p);
    struct async *a = &p->async;
    pthread_mutex_lock(&a->lock);
    if (n->poll_fd < 0 && (n->poll_fd = epoll_create1(EPOLL_CLOEXEC)) >= 0) {
        epoll_ctl(n->poll_fd, EPOLL_CTL_ADD, a->event_fd, &(struct epoll_event){.events = EPOLLIN});
        if (a->in_flight)
            net_set_hears(n, true);
    }
    int fd = n->poll_fd < 0 ? a->event_fd : n->poll_fd;
    pthread_mutex_unlock(&a->lock);
    return fd;
}

/* Handles what has come, unless another thread does. */
void net_hear(struct pawl *p)
{
    struct net *n = net_of(p);
    if (pthread_mutex_trylock(&n->receiving))
        return;
    if (udp_receive(&n->udp, &n->received)) {
        net_dispatch(n, &n->udp, &n->received);
        __atomic_store_n(&n->busy_ns, world_now(&world_real), __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&n->receiving);
    if (__atomic_load_n(&n->waiting_count, __ATOMIC_SEQ_CST))
        net_pass_on(n);
}

/* Handles what comes, or waits for the thread that does. */
int net_wait(struct pawl *p, uint64_t deadline)
{
    struct net *n = net_of(p);
    uint64_t now = world_now(&world_real), until = max_u64(now, min_u64(deadline, now + n->host.header->config.retry_ns));
    net_listen(n, until);
    return 0;
}
