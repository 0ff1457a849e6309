/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a rack that wait without a thread: each is a request in the host's memory. The thread that receives, be it one that
 * waits, one that reaps, or the library's, completes them. Packets of operations that are submitted in a row are sent together. */
#include "client/net.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <poll.h>

#define TOGETHER 16 /* packets that wait for others; and so many operations are sent at once while no more are in flight */
#define ROUND_NS NS_PER_MS
#define LOOK_AT_ONCE UINT32_MAX /* as the bell that was seen: no bell is odd */

static struct net_task *task_of(struct net *n, const struct async_op *op)
{
    return &n->tasks[async_number(&n->handle.async, op)];
}

static bool asks_for_lock(const pawl_request *r)
{
    return r->op == PAWL_OP_LOCK || r->op == PAWL_OP_CALL;
}

/* The call that the lock's data server has been told of, or null. */
static pawl_call *call_of(const pawl_request *r)
{
    return asks_for_lock(r) || r->op == PAWL_OP_HOLD_CALL ? r->call : NULL;
}

static void flush(struct net *n)
{
    if (n->batch.packets || n->batch.wakes)
        net_flush(n, &n->udp, &n->batch);
}

/* ---- finishing ---- */

static void give_up(struct net *n, struct net_task *t, int why)
{
    host_enter(&n->host, &n->batch);
    n->host.design->give_up(n->host.memory, t->request, why, host_now(), &n->batch);
    host_leave(&n->host, &n->batch);
    t->given_up = true;
    t->bell = LOOK_AT_ONCE;
}

void net_cancel(struct pawl *p, struct async_op *op)
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
    int rc = answer->result;
    if (!rc && call_of(r))
        rc = net_take_reply(n, request, r->call, &n->batch);
    pawl_grant g = rc ? op->completion.grant : net_grant(n, request, op->completion.grant.index, answer, expiry);
    if (asks_for_lock(r) && (rc || once))
        net_give_locked(n, request);
    if (!rc && !once && !g.expiry_ns)
        rc = -PAWL_ELOST; /* I1; the session's end releases it */
    if (!rc)
        op->completion.grant = once ? (pawl_grant){0} : g;
    async_finish(&n->handle.async, op, rc);
}

static void look_at(struct net *n, struct async_op *op, uint64_t now, bool lives)
{
    struct net_task *t = task_of(n, op);
    struct packet_answer answer = {.result = -PAWL_ELOST};
    if (now >= t->deadline && !t->given_up)
        give_up(n, t, -ETIMEDOUT);
    uint32_t bell = net_bell(n, t->request);
    if (bell == t->bell && lives)
        return;
    t->bell = bell;
    host_enter(&n->host, &n->batch);
    int rc = n->host.design->outcome(n->host.memory, t->request, &answer);
    uint64_t expiry = net_expiry_locked(n);
    host_leave(&n->host, &n->batch);
    if (rc != -EINPROGRESS || !lives)
        conclude(n, op, &answer, expiry);
}

void net_pump(struct pawl *p)
{
    struct net *n = net_of(p);
    if (p->async.in_flight) {
        uint64_t now = world_now(&world_real);
        bool lives = host_lives(&n->host, host_now());
        for (unsigned i = 0; i < PAWL_INFLIGHT_MAX && p->async.in_flight; i++)
            if (p->async.ops[i].state == ASYNC_WAITING)
                look_at(n, &p->async.ops[i], now, lives);
    }
    flush(n);
}

/* ---- submitting ---- */

static int begin_lock(struct net *n, struct net_task *t, uint64_t index, const pawl_request *r)
{
    for (uint32_t tries = n->host.header->config.requests; tries-- > 0;) {
        int rc = net_take_locked(n, &t->request);
        if (rc)
            return rc;
        t->bell = net_bell(n, t->request);
        struct packet_ask ask = {.request = t->request, .index = index, .mode = r->mode, .try = r->deadline_ns == DEADLINE_TRY};
        if (r->call) {
            ask.bytes = r->call->bytes ? r->call->bytes : "";
            ask.len = (uint32_t)r->call->len;
            ask.once = r->op == PAWL_OP_CALL;
        }
        rc = net_start(n, &ask, &n->batch);
        if (rc >= 0)
            return rc;
        net_give_locked(n, t->request);
        if (rc != -EBUSY)
            return rc;
    }
    return -PAWL_ELIMIT;
}

static int begin_convert(struct net *n, struct net_task *t, const pawl_request *r)
{
    if (!n->host.design->convert)
        return -PAWL_ENOTSUP;
    net_touches(n, t->request);
    host_enter(&n->host, &n->batch);
    if (n->host.design->thread) /* no thread waits for it, or has it from now on */
        n->host.design->thread(n->host.memory, t->request, 0, host_now(), &n->batch);
    int rc = n->host.design->convert(n->host.memory, t->request, r->mode, host_now(), &n->batch);
    host_leave(&n->host, &n->batch);
    return rc;
}

static int begin_call(struct net *n, struct net_task *t, const pawl_request *r)
{
    host_enter(&n->host, &n->batch);
    uint64_t now = host_now();
    int rc = -PAWL_ELOST;
    if (now < net_expiry_locked(n))
        rc = n->host.design->call(n->host.memory, t->request, r->call->bytes, (uint32_t)r->call->len, now, &n->batch);
    host_leave(&n->host, &n->batch);
    return rc;
}

static int end_lock(struct net *n, uint32_t request)
{
    net_touches(n, request);
    host_enter(&n->host, &n->batch);
    int rc = n->host.design->release(n->host.memory, request, host_now(), &n->batch);
    if (!rc)
        __atomic_add_fetch(&n->host.uses[request], 1, __ATOMIC_RELAXED);
    host_leave(&n->host, &n->batch);
    if (!rc)
        net_give_locked(n, request);
    return rc;
}

/* PACKET_DONE or another code from 0 on: it is under way. */
static int start(struct net *n, struct net_task *t, const pawl_request *r, uint64_t index)
{
    if (asks_for_lock(r))
        return begin_lock(n, t, index, r);
    int rc = net_request_of(n, &r->grant, &t->request);
    if (rc)
        return rc;
    t->bell = net_bell(n, t->request);
    return r->op == PAWL_OP_CONVERT     ? begin_convert(n, t, r)
           : r->op == PAWL_OP_HOLD_CALL ? begin_call(n, t, r)
                                        : end_lock(n, t->request);
}

int net_begin(struct pawl *p, struct async_op *op)
{
    struct net *n = net_of(p);
    struct net_task *t = task_of(n, op);
    const pawl_request *r = &op->request;
    *t = (struct net_task){.deadline = r->deadline_ns == DEADLINE_TRY ? DEADLINE_NEVER : r->deadline_ns};
    int rc = start(n, t, r, op->completion.grant.index);
    if (r->op == PAWL_OP_UNLOCK || rc < 0) {
        async_finish(&p->async, op, rc);
    } else {
        op->state = ASYNC_WAITING;
        if (rc == PACKET_DONE)
            t->bell = LOOK_AT_ONCE;
    }
    if (n->batch.packets >= TOGETHER || p->async.in_flight < TOGETHER || n->batch.wakes)
        net_flush(n, &n->udp, &n->batch);
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
    int rc = call_of(r) ? net_check_call(n, r->call) : 0;
    return rc || !asks_for_lock(r) ? rc : net_index(n, r->key, r->mode, false, r->deadline_ns, index);
}

/* ---- reaping ---- */

/* Handles what comes, or waits for the thread that does. */
int net_wait(struct pawl *p, uint64_t deadline)
{
    static _Thread_local struct udp_batch batch;
    struct net *n = net_of(p);
    uint64_t now = world_now(&world_real), until = max_u64(now, min_u64(deadline, now + n->host.header->config.retry_ns));
    struct pollfd done = {.fd = p->async.event_fd, .events = POLLIN};
    if (pthread_mutex_trylock(&n->receiving)) {
        const struct timespec patience = {.tv_nsec = (long)min_u64(until - now, ROUND_NS)};
        ppoll(&done, 1, &patience, NULL);
        return 0;
    }
    unsigned count = udp_wait(&n->udp, &batch, n->spin_ns, until);
    if (count)
        net_dispatch(n, &n->udp, &batch);
    __atomic_store_n(&n->busy_ns, world_now(&world_real), __ATOMIC_RELAXED);
    pthread_mutex_unlock(&n->receiving);
    net_pass_on(n);
    if (!count)
        net_duties(n, &n->udp, true);
    return 0;
}
