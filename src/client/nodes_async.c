/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in flight on several memory nodes. Each is an operation of one node's session. The library's thread takes completions
 * of all sessions into the client's own ring. */
#include "client/nodes.h"
#include "cluster/nodes.h"
#include "lib/explain.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define AT_ONCE 8 /* completions taken together */

int nodes_async_init(struct nodes *s)
{
    s->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->bell < 0 ? -errno : 0;
}

/* ---- sessions that are opened meanwhile ---- */

#define SLICE_NS (3 * NS_PER_S) /* a client that closes waits no longer than this for a node that does not answer */

void nodes_async_free(struct nodes *s)
{
    for (unsigned i = 0; i < s->where.coordinators.count; i++)
        if (s->at[i].opener != OPENER_NONE)
            pthread_join(s->at[i].thread, NULL);
}

static void *open_session(void *arg)
{
    struct nodes_at *at = arg;
    struct nodes *s = at->nodes;
    struct pawl *session;
    uint64_t until = world_now(&world_real) + NODES_OPEN_NS, now;
    int rc;
    do {
        now = world_now(&world_real);
        rc = nodes_want(s, (unsigned)(at - s->at), min_u64(until, now + SLICE_NS), &session);
    } while ((rc == -ETIMEDOUT || rc == -EAGAIN) && now + SLICE_NS < until && !__atomic_load_n(&s->handle.stop, __ATOMIC_ACQUIRE));
    pthread_mutex_lock(&s->handle.async.lock);
    at->opened = rc;
    at->opener = OPENER_DONE;
    pthread_mutex_unlock(&s->handle.async.lock);
    nodes_changed(&s->handle);
    return NULL;
}

/* With the ring's lock. A thread that is done does nothing more that could wait. */
static int start_opener(struct nodes_at *at)
{
    if (at->opener == OPENER_RUNS)
        return 0;
    if (at->opener == OPENER_DONE)
        pthread_join(at->thread, NULL);
    int rc = pthread_create(&at->thread, NULL, open_session, at);
    at->opener = rc ? OPENER_NONE : OPENER_RUNS;
    return -rc;
}

/* The node that it is for, and the session there if there is one; a request as that one wants it. */
static int address(struct nodes *s, const pawl_request *r, pawl_request *there, unsigned *node, struct pawl **at)
{
    *there = *r;
    if (!async_names_lock(r)) {
        *node = nodes_of_index(r->grant.index);
        return nodes_of_grant(s, &r->grant, at);
    }
    int rc = nodes_place(s, &there->key, node);
    *at = rc ? NULL : nodes_opened(s, *node);
    return rc;
}

/* Nodes are alike: where there is no session so far, that of another node knows what can be asked for. A grant that names no
 * session ends the operation, not the submission, as on one node. */
int nodes_admit(struct pawl *p, const pawl_request *r, uint64_t *index)
{
    struct nodes *s = nodes_of(p);
    pawl_request there;
    struct pawl *at = NULL;
    unsigned node;
    int rc = address(s, r, &there, &node, &at);
    if (rc == -PAWL_ENOTOWNER || rc == -PAWL_ELOST)
        return 0;
    for (node = 0; !rc && !at && node < s->where.coordinators.count; node++)
        at = nodes_opened(s, node);
    assert(rc || at); /* the client began with a session */
    return rc ? rc : at->ops->admit(at, &there, index);
}

static int begin_there(struct nodes *s, struct async_op *op, pawl_request *there, struct pawl *at)
{
    there->user = op;
    if (there->deadline_ns == DEADLINE_TRY)
        there->deadline_ns = PAWL_TRY;
    return pawl_submit(at, there, &s->tasks[async_number(&s->handle.async, op)].id);
}

/* The operation begins when the session is open. */
static int begin_later(struct nodes *s, const struct async_op *op, unsigned node)
{
    const unsigned number = async_number(&s->handle.async, op);
    uint64_t now = world_now(&world_real), deadline = op->request.deadline_ns;
    s->tasks[number].early = true;
    s->tasks[number].until = deadline == DEADLINE_TRY ? now + NODES_TRY_NS : min_u64(deadline, now + NODES_OPEN_NS);
    return start_opener(&s->at[node]);
}

ONCE int nodes_begin(struct pawl *p, struct async_op *op)
{
    struct nodes *s = nodes_of(p);
    const unsigned number = async_number(&p->async, op);
    pawl_request there;
    struct pawl *at = NULL;
    s->tasks[number].early = false;
    int rc = address(s, &op->request, &there, &s->tasks[number].node, &at);
    if (!rc && !at) {
        rc = begin_later(s, op, s->tasks[number].node);
        if (rc)
            async_finish(&p->async, op, rc);
        else
            op->state = ASYNC_WAITING;
        return 0;
    }
    if (rc == -PAWL_ENOTOWNER || rc == -PAWL_ELOST) {
        async_finish(&p->async, op, rc);
        return 0;
    }
    if (!rc)
        rc = begin_there(s, op, &there, at);
    if (!rc)
        op->state = ASYNC_WAITING;
    return rc;
}

static bool is_early(const struct nodes *s, unsigned number)
{
    return s->handle.async.ops[number].state == ASYNC_WAITING && s->tasks[number].early;
}

/* The session of an early operation is open, or will not be, or the operation's time is up. */
static void begin_early(struct nodes *s, unsigned number, uint64_t now)
{
    struct async_op *op = &s->handle.async.ops[number];
    const struct nodes_at *there = &s->at[s->tasks[number].node];
    pawl_request request;
    struct pawl *at = NULL;
    unsigned node;
    int rc = address(s, &op->request, &request, &node, &at);
    if (!rc && !at) {
        rc = there->opener == OPENER_DONE ? there->opened : now >= s->tasks[number].until ? -ETIMEDOUT : 0;
        if (!rc)
            return;
    }
    s->tasks[number].early = false;
    if (!rc)
        rc = begin_there(s, op, &request, at);
    if (rc)
        async_finish(&s->handle.async, op, rc);
}

/* When the first early operation's time is up. */
static uint64_t first_deadline(const struct nodes *s)
{
    uint64_t first = UINT64_MAX;
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        if (is_early(s, i))
            first = min_u64(first, s->tasks[i].until);
    return first;
}

static void look_at_early(struct nodes *s)
{
    uint64_t now = world_now(&world_real);
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        if (is_early(s, i))
            begin_early(s, i, now);
}

/* ---- completions ---- */

/* Of an operation, or of the session at the node: its loss is this client's. */
static void finish(struct nodes *s, unsigned node, const pawl_completion *done)
{
    nodes_told(s, done->result);
    if (done->op == PAWL_OP_LOST) {
        s->why = done->why;
        nodes_changed(&s->handle); /* the library's thread tells the application */
        return;
    }
    struct async_op *op = done->user;
    op->completion.grant = nodes_grant(node, &done->grant);
    async_finish(&s->handle.async, op, done->result);
}

ONCE void nodes_pump(struct pawl *p)
{
    struct nodes *s = nodes_of(p);
    pawl_completion done[AT_ONCE];
    if (p->async.in_flight)
        look_at_early(s);
    for (unsigned i = 0; i < s->where.coordinators.count; i++) {
        struct pawl *at = nodes_opened(s, i);
        for (int n = at ? pawl_reap(at, done, AT_ONCE, PAWL_TRY) : 0; n > 0;
             n = n == AT_ONCE ? pawl_reap(at, done, AT_ONCE, PAWL_TRY) : 0)
            for (int k = 0; k < n; k++)
                finish(s, i, &done[k]);
    }
}

void nodes_cancel(struct pawl *p, struct async_op *op)
{
    struct nodes *s = nodes_of(p);
    const unsigned number = async_number(&p->async, op);
    if (s->tasks[number].early) {
        s->tasks[number].early = false;
        async_finish(&p->async, op, -ECANCELED);
        return;
    }
    pawl_cancel(nodes_opened(s, s->tasks[number].node), s->tasks[number].id); /* if it has ended: the next pump finds it */
}

int nodes_wait(struct pawl *p, uint64_t deadline)
{
    uint64_t now = world_now(&world_real), left = deadline > now ? deadline - now : 0;
    struct timespec patience = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    struct pollfd done = {.fd = p->async.event_fd, .events = POLLIN};
    return ppoll(&done, 1, deadline == DEADLINE_NEVER ? NULL : &patience, NULL) < 0 && errno != EINTR ? -errno : 0;
}

void nodes_changed(struct pawl *p)
{
    const uint64_t one = 1;
    if (write(nodes_of(p)->bell, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* it is readable already */
}

/* For how long the library's thread may sleep; null: until it is called. */
static const struct timespec *time_to_look(struct nodes *s, struct timespec *out)
{
    pthread_mutex_lock(&s->handle.async.lock);
    uint64_t until = first_deadline(s), now = world_now(&world_real);
    pthread_mutex_unlock(&s->handle.async.lock);
    if (async_watches(&s->handle.async))
        until = min_u64(until, now + ASYNC_WATCH_NS);
    uint64_t left = until > now ? until - now : 0;
    *out = (struct timespec){.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    return until == UINT64_MAX ? NULL : out;
}

ONCE void *nodes_thread(void *arg)
{
    struct nodes *s = arg;
    handle_started(&s->handle, 0);
    while (!__atomic_load_n(&s->handle.stop, __ATOMIC_ACQUIRE)) {
        struct pollfd fds[COORD_LIST_MAX + 1] = {{.fd = s->bell, .events = POLLIN}};
        unsigned n = 1;
        for (unsigned i = 0; i < s->where.coordinators.count; i++) {
            struct pawl *at = nodes_opened(s, i);
            if (at)
                fds[n++] = (struct pollfd){.fd = at->async.event_fd, .events = POLLIN};
        }
        uint64_t rings;
        async_look_at_watches(&s->handle);
        struct timespec patience;
        if (ppoll(fds, n, time_to_look(s, &patience), NULL) > 0 && fds[0].revents && read(s->bell, &rings, sizeof rings) < 0)
            assert(errno == EAGAIN);
        pthread_mutex_lock(&s->handle.async.lock);
        nodes_pump(&s->handle);
        enum pawl_why why = s->why;
        pthread_mutex_unlock(&s->handle.async.lock);
        if (why)
            async_lost(&s->handle.async, why);
    }
    return NULL;
}
