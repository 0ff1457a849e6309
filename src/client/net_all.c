/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks of a rack at once: pawl_lock_all and pawl_unlock_all. The requests leave together (designs/packet/gather.h says how
 * the call waits for those that are held by others), and so do the releases. */
#include "client/net.h"
#include "designs/packet/gather.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>

static_assert(PAWL_ALL_MAX <= GATHER_MAX, "fits");
#define FLUSH_AT (OUTBOX_PACKETS / 2) /* packets: the next request or release has room for all that it sends */

struct wanted {
    const pawl_want *want;
    struct host_name name;
    pawl_grant grant;
    uint32_t request, bell;
    bool at_once; /* granted without a packet */
};

struct gathering {
    struct net *n;
    struct outbox *out; /* this thread's: void after each call that waits */
    uint64_t deadline;
    struct wanted
        wanted[PAWL_ALL_MAX]; /* in the order of the indexes, which is the same for all clients while the keys are in use */
};

static int by_index(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    return (x->name.index > y->name.index) - (x->name.index < y->name.index);
}

static void send_out(void *caller)
{
    struct gathering *g = caller;
    net_flush_together(g->n, &g->n->udp, g->out);
}

static int ask(void *caller, unsigned i, bool wait)
{
    struct gathering *g = caller;
    struct wanted *w = &g->wanted[i];
    if (wait) /* `answer` does all of it */
        return 0;
    w->at_once = net_lock_at_once(g->n, &w->name, w->want->mode, &w->grant);
    if (w->at_once)
        return 0;
    struct packet_ask asked = {.thread = net_owner(g->n), .mode = w->want->mode, .try = true};
    int rc = net_begin_lock(g->n, &asked, &w->name, NULL, false, &w->bell, g->out);
    w->request = asked.request;
    if (g->out->packets >= FLUSH_AT)
        send_out(g);
    return rc < 0 ? rc : 0;
}

static int answer(void *caller, unsigned i, bool wait)
{
    struct gathering *g = caller;
    struct net *n = g->n;
    struct wanted *w = &g->wanted[i];
    struct packet_answer got;
    uint64_t expiry = 0, now = world_now(&world_real);
    if (!wait && w->at_once)
        return 0;
    if (wait)
        return net_lock_name(n, &w->name, w->want->mode, 0, g->deadline, NULL, &w->grant);
    uint64_t until = net_patience(n, DEADLINE_TRY, now);
    if (g->deadline != DEADLINE_TRY)
        until = min_u64(until, max_u64(g->deadline, now)); /* then `answer` that waits says -ETIMEDOUT */
    int rc = net_await(n, w->request, w->bell, until, &got, &expiry);
    g->out = net_outbox();
    if (rc) {
        net_give_request(n, false, w->request);
        return !net_valid(n) ? -PAWL_ELOST : rc == -ETIMEDOUT ? -EAGAIN : rc;
    }
    w->grant = net_grant(n, w->request, w->name.index, &got, expiry);
    if (w->grant.expiry_ns)
        return 0;
    net_end(n, w->request, false, g->out); /* I1: asked afterwards */
    return -PAWL_ELOST;
}

static void give_back(void *caller, unsigned i)
{
    struct gathering *g = caller;
    struct wanted *w = &g->wanted[i];
    if (net_unlock_at_once(g->n, (uint32_t)w->grant.hold))
        return;
    net_end(g->n, (uint32_t)w->grant.hold, false, g->out);
    if (g->out->packets >= FLUSH_AT)
        send_out(g);
}

static const struct gather_ops ops = {.ask = ask, .send = send_out, .answer = answer, .give_back = give_back};

static int find_all(struct gathering *g, const pawl_want *wants, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        g->wanted[i] = (struct wanted){.want = &wants[i]};
        int rc = net_find(g->n, wants[i].key, wants[i].mode, false, g->deadline, &g->wanted[i].name);
        if (rc)
            return rc;
    }
    qsort(g->wanted, count, sizeof g->wanted[0], by_index);
    for (unsigned i = 1; i < count; i++)
        if (g->wanted[i].name.index == g->wanted[i - 1].name.index) /* of another generation: one of them was retired meanwhile */
            return g->wanted[i].name.generation != g->wanted[i - 1].name.generation
                       ? -ESTALE
                       : explain(-EINVAL, "a lock is twice among those to be locked together");
    return 0;
}

/* -ESTALE: a name is outdated, and nothing is held. */
static int try_all(struct net *n, const pawl_want *wants, unsigned count, uint64_t deadline, pawl_grant *grants)
{
    bool late = net_late(deadline, world_now(&world_real));
    struct gathering g = {.n = n, .deadline = deadline};
    int rc = find_all(&g, wants, count);
    if (rc)
        return rc;
    g.out = net_outbox();
    g.deadline = late ? DEADLINE_TRY : deadline;
    rc = gather(&ops, &g, count, g.deadline != DEADLINE_TRY);
    if (rc == -ESTALE)
        return rc;
    if (rc)
        return net_failed(n, late && rc == -PAWL_EHELD ? -ETIMEDOUT : rc);
    for (unsigned i = 0; i < count; i++)
        grants[g.wanted[i].want - wants] = g.wanted[i].grant;
    return 0;
}

int net_lock_all(struct pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline, pawl_grant *grants)
{
    struct net *n = net_of(p);
    uint64_t began = world_now(&world_real);
    for (;;) {
        int rc = try_all(n, wants, count, deadline, grants);
        if (rc != -ESTALE)
            return rc;
        rc = net_find_again(n, deadline, began); /* a key has another index now: the order is made anew */
        if (rc)
            return net_failed(n, rc);
    }
}

int net_unlock_all(struct pawl *p, const pawl_grant *grants, unsigned count)
{
    struct net *n = net_of(p);
    struct outbox *out = net_outbox();
    int first = 0;
    for (unsigned i = 0; i < count; i++) {
        uint32_t request;
        int rc = net_request_of(n, &grants[i], &request);
        if (!rc)
            net_touches(n, request);
        if (!rc && !net_unlock_at_once(n, request))
            rc = net_end(n, request, false, out);
        if (out->packets >= FLUSH_AT)
            net_flush_together(n, &n->udp, out);
        first = first ? first : rc;
    }
    net_flush_together(n, &n->udp, out);
    return net_failed(n, first);
}
