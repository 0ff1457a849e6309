/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that wait without a thread: each is a request in the host's memory. Whoever receives, a thread that waits, one that
 * reaps, or the library's, completes them. What is submitted in a row is sent together. */
#include "client/net.h"
#include "world/world.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define TOGETHER 16 /* packets that wait for others; and so many operations are sent at once while no more are in flight */
#define ROUND_NS NS_PER_MS

static void finish(struct net *n, struct net_async *a, int result)
{
    const uint64_t one = 1;
    a->completion.result = result;
    n->async_waiting -= a->state == NET_WAITING;
    a->state = NET_DONE;
    n->done[(n->done_first + n->done_count) % PAWL_INFLIGHT_MAX] = (unsigned)(a - n->async);
    if (n->done_count++ == 0 && write(n->event_fd, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* it is readable already */
}

static void give_up(struct net *n, struct net_async *a, int why)
{
    host_enter(&n->host, &n->batch);
    n->host.design->give_up(n->host.memory, a->request, why, host_now(), &n->batch);
    host_leave(&n->host, &n->batch);
    a->given_up = true;
    a->bell = UINT32_MAX; /* no bell is odd: look at once */
}

/* Has an answer, or will not get one. */
static void conclude(struct net *n, struct net_async *a, const struct packet_answer *answer, uint64_t expiry)
{
    bool locks = !a->completion.grant.serial;
    int rc = answer->result;
    if (!rc && a->call)
        rc = net_take_reply(n, a->request, a->call, &n->batch);
    pawl_grant g = rc ? a->completion.grant : net_grant(n, a->request, a->completion.grant.index, answer, expiry);
    if (locks && (rc || a->once))
        net_give_locked(n, a->request);
    if (!rc && !a->once && !g.expiry_ns)
        rc = -PAWL_ELOST; /* I1; the session's end releases it */
    if (!rc)
        a->completion.grant = a->once ? (pawl_grant){0} : g;
    finish(n, a, rc);
}

void net_async_look(struct net *n)
{
    uint64_t now = n->async_waiting ? world_now(&world_real) : 0;
    bool lives = !n->async_waiting || host_lives(&n->host, host_now());
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX && n->async_waiting; i++) {
        struct net_async *a = &n->async[i];
        struct packet_answer answer = {.result = -PAWL_ELOST};
        if (a->state != NET_WAITING)
            continue;
        if (now >= a->deadline && !a->given_up)
            give_up(n, a, -ETIMEDOUT);
        uint32_t bell = net_bell(n, a->request);
        if (bell == a->bell && lives)
            continue;
        a->bell = bell;
        host_enter(&n->host, &n->batch);
        int rc = n->host.design->outcome(n->host.memory, a->request, &answer);
        uint64_t expiry = net_expiry_locked(n);
        host_leave(&n->host, &n->batch);
        if (rc != -EINPROGRESS || !lives)
            conclude(n, a, &answer, expiry);
    }
}

/* ---- submitting ---- */

static int begin_lock(struct net *n, struct net_async *a, const pawl_request *r)
{
    for (uint32_t tries = n->host.header->config.requests; tries-- > 0;) {
        int rc = net_take_locked(n, &a->request);
        if (rc)
            return rc;
        a->bell = net_bell(n, a->request);
        struct packet_ask ask = {
            .request = a->request, .index = a->completion.grant.index, .mode = r->mode, .try = r->deadline_ns == DEADLINE_TRY};
        if (a->call) {
            ask.bytes = a->call->bytes ? a->call->bytes : "";
            ask.len = (uint32_t)a->call->len;
            ask.once = a->once;
        }
        rc = net_start(n, &ask, &n->batch);
        if (rc >= 0)
            return rc;
        net_give_locked(n, a->request);
        if (rc != -EBUSY)
            return rc;
    }
    return -PAWL_ELIMIT;
}

static int begin_convert(struct net *n, struct net_async *a, const pawl_request *r)
{
    int rc = net_request_of(n, &r->grant, &a->request);
    if (rc || !n->host.design->convert)
        return rc ? rc : -PAWL_ENOTSUP;
    net_touches(n, a->request);
    a->bell = net_bell(n, a->request);
    host_enter(&n->host, &n->batch);
    if (n->host.design->thread) /* no thread waits for it, or has it from now on */
        n->host.design->thread(n->host.memory, a->request, 0, host_now(), &n->batch);
    rc = n->host.design->convert(n->host.memory, a->request, r->mode, host_now(), &n->batch);
    host_leave(&n->host, &n->batch);
    return rc;
}

static int begin_call(struct net *n, struct net_async *a, const pawl_request *r)
{
    int rc = net_request_of(n, &r->grant, &a->request);
    if (rc)
        return rc;
    a->bell = net_bell(n, a->request);
    host_enter(&n->host, &n->batch);
    uint64_t now = host_now();
    rc = now < net_expiry_locked(n)
             ? n->host.design->call(n->host.memory, a->request, r->call->bytes, (uint32_t)r->call->len, now, &n->batch)
             : -PAWL_ELOST;
    host_leave(&n->host, &n->batch);
    return rc;
}

static int end_lock(struct net *n, const pawl_request *r)
{
    uint32_t request;
    int rc = net_request_of(n, &r->grant, &request);
    if (rc)
        return rc;
    net_touches(n, request);
    host_enter(&n->host, &n->batch);
    rc = n->host.design->release(n->host.memory, request, host_now(), &n->batch);
    if (!rc)
        __atomic_add_fetch(&n->host.uses[request], 1, __ATOMIC_RELAXED);
    host_leave(&n->host, &n->batch);
    if (!rc)
        net_give_locked(n, request);
    return rc;
}

static bool asks_for_lock(const pawl_request *r)
{
    return r->op == PAWL_OP_LOCK || r->op == PAWL_OP_CALL;
}

static void begin(struct net *n, struct net_async *a, const pawl_request *r)
{
    int rc = asks_for_lock(r)             ? begin_lock(n, a, r)
             : r->op == PAWL_OP_CONVERT   ? begin_convert(n, a, r)
             : r->op == PAWL_OP_HOLD_CALL ? begin_call(n, a, r)
                                          : end_lock(n, r);
    if (r->op == PAWL_OP_UNLOCK || rc < 0) {
        finish(n, a, rc);
        return;
    }
    a->deadline = r->deadline_ns == DEADLINE_TRY ? DEADLINE_NEVER : r->deadline_ns;
    a->state = NET_WAITING;
    n->async_waiting++;
    if (rc == PACKET_DONE)
        a->bell = UINT32_MAX;
}

int net_submit(struct net *n, const pawl_request *r, uint64_t *id)
{
    bool only_call = r->op == PAWL_OP_CALL || r->op == PAWL_OP_HOLD_CALL, calls = only_call || (r->op == PAWL_OP_LOCK && r->call);
    if (r->op < PAWL_OP_LOCK || r->op > PAWL_OP_HOLD_CALL || r->op == PAWL_OP_RESHAPE || (only_call && !r->call))
        return -EINVAL;
    uint64_t index = 0;
    int rc = calls ? net_check_call(n, r->call) : 0;
    if (!rc && asks_for_lock(r))
        rc = net_index(n, r->key, r->mode, false, r->deadline_ns, &index);
    if (rc)
        return rc;
    pthread_mutex_lock(&n->lock);
    struct net_async *a = NULL;
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX && !a; i++)
        if (n->async[i].state == NET_IDLE)
            a = &n->async[i];
    if (a) {
        *a = (struct net_async){.state = NET_IDLE, .call = calls ? r->call : NULL, .once = r->op == PAWL_OP_CALL};
        a->completion = (pawl_completion){.id = n->next_id++, .user = r->user};
        if (!asks_for_lock(r))
            a->completion.grant = r->grant;
        else
            a->completion.grant.index = index;
        *id = a->completion.id;
        begin(n, a, r);
        if (n->batch.packets >= TOGETHER || n->async_waiting < TOGETHER || n->batch.wakes)
            net_flush(n, &n->udp, &n->batch);
    }
    pthread_mutex_unlock(&n->lock);
    return a ? 0 : -PAWL_ELIMIT;
}

/* ---- reaping ---- */

static unsigned take_done(struct net *n, pawl_completion *out, unsigned max)
{
    unsigned count = 0;
    uint64_t drained;
    while (count < max && n->done_count) {
        struct net_async *a = &n->async[n->done[n->done_first]];
        out[count++] = a->completion;
        a->state = NET_IDLE;
        n->done_first = (n->done_first + 1) % PAWL_INFLIGHT_MAX;
        n->done_count--;
    }
    if (count && !n->done_count && read(n->event_fd, &drained, sizeof drained) < 0)
        assert(errno == EAGAIN);
    return count;
}

/* Handles what comes, or waits for the one that does. */
static void receive(struct net *n, uint64_t deadline)
{
    static _Thread_local struct udp_batch batch;
    uint64_t now = world_now(&world_real), until = min_u64(deadline, now + n->host.header->config.retry_ns);
    struct pollfd done = {.fd = n->event_fd, .events = POLLIN};
    if (pthread_mutex_trylock(&n->receiving)) {
        const struct timespec patience = {.tv_nsec = (long)min_u64(until - now, ROUND_NS)};
        ppoll(&done, 1, &patience, NULL);
        return;
    }
    unsigned count = udp_wait(&n->udp, &batch, n->spin_ns, until);
    if (count)
        net_dispatch(n, &n->udp, &batch);
    __atomic_store_n(&n->busy_ns, world_now(&world_real), __ATOMIC_RELAXED);
    pthread_mutex_unlock(&n->receiving);
    net_pass_on(n);
    if (!count)
        net_duties(n, &n->udp, true);
}

int net_reap(struct net *n, pawl_completion *out, unsigned max, uint64_t deadline)
{
    if (!max)
        return -EINVAL;
    for (;;) {
        pthread_mutex_lock(&n->lock);
        net_async_look(n);
        if (n->batch.packets || n->batch.wakes)
            net_flush(n, &n->udp, &n->batch);
        unsigned count = take_done(n, out, max);
        pthread_mutex_unlock(&n->lock);
        if (count || world_now(&world_real) >= deadline)
            return (int)count;
        receive(n, deadline);
    }
}

int net_cancel(struct net *n, uint64_t id)
{
    int rc = -ENOENT;
    pthread_mutex_lock(&n->lock);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        if (n->async[i].state == NET_WAITING && n->async[i].completion.id == id) {
            give_up(n, &n->async[i], -ECANCELED);
            net_flush(n, &n->udp, &n->batch);
            rc = 0;
        }
    net_async_look(n);
    pthread_mutex_unlock(&n->lock);
    return rc;
}
