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
#define WATCH_MS (int)(ASYNC_WATCH_NS / NS_PER_MS)

int nodes_async_init(struct nodes *s)
{
    s->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->bell < 0 ? -errno : 0;
}

void nodes_async_free(struct nodes *s)
{
    if (s->bell > 0)
        close(s->bell);
}

/* Which session it is for; a request as that one wants it. */
static int address(struct nodes *s, const pawl_request *r, pawl_request *there, unsigned *node, struct pawl **at)
{
    *there = *r;
    if (async_names_lock(r))
        return nodes_find(s, &there->key, r->deadline_ns, node, at);
    *node = nodes_of_index(r->grant.index);
    return nodes_of_grant(s, &r->grant, at);
}

/* Opens the session at the node, if this is the first operation there. A grant that names no session ends the operation, not the
 * submission, as on one node. */
int nodes_admit(struct pawl *p, const pawl_request *r, uint64_t *index)
{
    struct nodes *s = nodes_of(p);
    pawl_request there;
    struct pawl *at = NULL;
    unsigned node;
    int rc = address(s, r, &there, &node, &at);
    if (rc == -PAWL_ENOTOWNER || rc == -PAWL_ELOST)
        return 0;
    return rc ? rc : at->ops->admit(at, &there, index);
}

int nodes_begin(struct pawl *p, struct async_op *op)
{
    struct nodes *s = nodes_of(p);
    const unsigned number = async_number(&p->async, op);
    pawl_request there;
    struct pawl *at = NULL;
    int rc = address(s, &op->request, &there, &s->tasks[number].node, &at);
    if (rc == -PAWL_ENOTOWNER || rc == -PAWL_ELOST) {
        async_finish(&p->async, op, rc);
        return 0;
    }
    there.user = op;
    if (there.deadline_ns == DEADLINE_TRY)
        there.deadline_ns = PAWL_TRY;
    if (!rc)
        rc = pawl_submit(at, &there, &s->tasks[number].id);
    if (!rc)
        op->state = ASYNC_WAITING;
    return rc;
}

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

void nodes_pump(struct pawl *p)
{
    struct nodes *s = nodes_of(p);
    pawl_completion done[AT_ONCE];
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

void *nodes_thread(void *arg)
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
        if (poll(fds, n, async_watches(&s->handle.async) ? WATCH_MS : -1) > 0 && fds[0].revents &&
            read(s->bell, &rings, sizeof rings) < 0)
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
