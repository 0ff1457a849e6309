/* SPDX-License-Identifier: Apache-2.0 */
/* A space on several memory nodes: pawl://A,B:PORT/SPACE. Each node has the locks of a part of the keys (cluster/nodes.h), and the
 * client has a session of its own at each node that it uses (memory_far.c), opened when it first wants a lock there. If one of them
 * is lost, the client is: every later call says so (I8), at whichever node. nodes_async.c has the operations in flight. */
#include "client/nodes.h"
#include "client/grant.h"
#include "client/memory.h"
#include "cluster/nodes.h"
#include "lib/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- sessions ---- */

struct pawl *nodes_opened(const struct nodes *s, unsigned node)
{
    return node < s->where.coordinators.count ? __atomic_load_n(&s->at[node].session, __ATOMIC_ACQUIRE) : NULL;
}

int nodes_told(struct nodes *s, int rc)
{
    if (rc == -PAWL_ELOST)
        __atomic_store_n(&s->lost, true, __ATOMIC_RELEASE);
    return rc;
}

static int is_lost(void)
{
    explain(-PAWL_ELOST, "the session at one of the space's memory nodes is lost, and with it this client");
    return -PAWL_ELOST;
}

static int same_space(const struct nodes *s, const struct pawl *first, const struct pawl *p)
{
    if (first->design == p->design && first->keys == p->keys)
        return 0;
    return explain(-EINVAL, "the memory nodes of '%s' differ: one has the design '%s' and %s keys, another '%s' and %s keys",
                   s->where.space, first->design->name, handle_keys_name(first->keys), p->design->name, handle_keys_name(p->keys));
}

ONCE static int open_at(struct nodes *s, unsigned node, uint64_t deadline)
{
    const unsigned count = s->where.coordinators.count;
    struct net_where w = s->where;
    pawl_options o = s->options;
    struct pawl *p = NULL;
    w.coordinators = coord_list_one(s->where.coordinators.at[node]);
    w.coordinators.asker = s->where.coordinators.asker;
    w.node = node;
    w.nodes = count;
    w.deadline = deadline;
    o.capacity = round_up(o.capacity, (uint64_t)count) / count;
    int rc = memory_far_open(&w, &o, &p);
    if (rc)
        return rc;
    if (s->handle.design && (rc = same_space(s, &s->handle, p))) {
        pawl_close(p);
        return rc;
    }
    __atomic_store_n(&s->at[node].session, p, __ATOMIC_RELEASE);
    nodes_changed(&s->handle); /* the library's thread hears of this session's loss, too */
    return 0;
}

int nodes_want(struct nodes *s, unsigned node, uint64_t deadline, struct pawl **out)
{
    if (__atomic_load_n(&s->lost, __ATOMIC_ACQUIRE))
        return is_lost();
    int rc = 0;
    if (!nodes_opened(s, node)) {
        uint64_t now = world_now(&world_real), patience = deadline == DEADLINE_TRY ? NODES_TRY_NS : NODES_OPEN_NS;
        uint64_t until = add_saturating(now, patience);
        pthread_mutex_lock(&s->at[node].opening);
        if (!nodes_opened(s, node))
            rc = open_at(s, node, deadline == DEADLINE_TRY ? until : min_u64(until, deadline));
        pthread_mutex_unlock(&s->at[node].opening);
    }
    *out = nodes_opened(s, node);
    assert(rc || *out);
    return rc;
}

int nodes_place(struct nodes *s, pawl_key *key, unsigned *node)
{
    const unsigned count = s->where.coordinators.count;
    const enum pawl_keys keys = s->handle.keys;
    if (__atomic_load_n(&s->lost, __ATOMIC_ACQUIRE))
        return is_lost();
    if (keys == PAWL_KEYS_DENSE && !key->name && key->id / count >= s->capacity) {
        explain(-ERANGE, "the key %" PRIu64 " is not below the space's capacity, %" PRIu64, key->id, s->capacity * count);
        return -ERANGE;
    }
    *node = nodes_of_key(count, keys, *key);
    *key = nodes_key_there(count, keys, *key);
    return 0;
}

int nodes_find(struct nodes *s, pawl_key *key, uint64_t deadline, unsigned *node, struct pawl **out)
{
    int rc = nodes_place(s, key, node);
    return rc ? rc : nodes_want(s, *node, deadline, out);
}

int nodes_of_grant(const struct nodes *s, const pawl_grant *g, struct pawl **out)
{
    if (__atomic_load_n(&s->lost, __ATOMIC_ACQUIRE))
        return is_lost();
    *out = nodes_opened(s, nodes_of_index(g->index));
    if (*out)
        return 0;
    explain(-PAWL_ENOTOWNER, "%s", pawl_strerror(-PAWL_ENOTOWNER));
    return -PAWL_ENOTOWNER;
}

pawl_grant nodes_grant(unsigned node, const pawl_grant *there)
{
    pawl_grant g = *there;
    g.index = nodes_index(node, g.index & FIELD_MAX(NODES_SHIFT));
    return g;
}

/* ---- calls ---- */

static int lock(struct pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    struct nodes *s = nodes_of(p);
    struct pawl *at = NULL;
    unsigned node;
    int rc = nodes_find(s, &key, deadline, &node, &at);
    if (!rc)
        rc = at->ops->lock(at, key, mode, deadline, out);
    if (!rc)
        *out = nodes_grant(node, out);
    return nodes_told(s, rc);
}

static int semaphore(struct pawl *p, pawl_key key, uint32_t limit, uint64_t deadline, pawl_grant *out)
{
    struct nodes *s = nodes_of(p);
    struct pawl *at = NULL;
    unsigned node;
    int rc = nodes_find(s, &key, deadline, &node, &at);
    if (!rc)
        rc = at->ops->semaphore(at, key, limit, deadline, out);
    if (!rc)
        *out = nodes_grant(node, out);
    return nodes_told(s, rc);
}

static int lock_range(struct pawl *p, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                      pawl_grant *out)
{
    struct nodes *s = nodes_of(p);
    struct pawl *at = NULL;
    unsigned node;
    int rc = nodes_find(s, &key, deadline, &node, &at);
    if (!rc)
        rc = at->ops->lock_range(at, key, start, end, mode, deadline, out);
    if (!rc)
        *out = nodes_grant(node, out);
    return nodes_told(s, rc);
}

static int unlock(struct pawl *p, const pawl_grant *g)
{
    struct pawl *at = NULL;
    int rc = nodes_of_grant(nodes_of(p), g, &at);
    return nodes_told(nodes_of(p), rc ? rc : at->ops->unlock(at, g));
}

static int check(struct pawl *p, const pawl_grant *g)
{
    struct pawl *at = NULL;
    int rc = nodes_of_grant(nodes_of(p), g, &at);
    return nodes_told(nodes_of(p), rc ? rc : at->ops->check(at, g));
}

static int wanted(struct pawl *p, const pawl_grant *g)
{
    struct pawl *at = NULL;
    int rc = nodes_of_grant(nodes_of(p), g, &at);
    return nodes_told(nodes_of(p), rc ? rc : at->ops->wanted(at, g));
}

ONCE static int convert(struct pawl *p, pawl_grant *g, enum pawl_mode mode, uint64_t deadline)
{
    struct pawl *at = NULL;
    pawl_grant there = *g;
    int rc = nodes_of_grant(nodes_of(p), g, &at);
    if (!rc)
        rc = at->ops->convert(at, &there, mode, deadline);
    if (!rc)
        *g = nodes_grant(nodes_of_index(g->index), &there);
    return nodes_told(nodes_of(p), rc);
}

ONCE static int reshape(struct pawl *p, pawl_grant *g, uint64_t start, uint64_t end, uint64_t deadline)
{
    struct pawl *at = NULL;
    pawl_grant there = *g;
    int rc = nodes_of_grant(nodes_of(p), g, &at);
    if (!rc)
        rc = at->ops->reshape(at, &there, start, end, deadline);
    if (!rc)
        *g = nodes_grant(nodes_of_index(g->index), &there);
    return nodes_told(nodes_of(p), rc);
}

ONCE static int split(struct pawl *p, pawl_grant *g, uint64_t middle, pawl_grant *right)
{
    struct pawl *at = NULL;
    pawl_grant there = *g;
    int rc = nodes_of_grant(nodes_of(p), g, &at);
    if (!rc)
        rc = at->ops->split(at, &there, middle, right);
    if (!rc) {
        *g = nodes_grant(nodes_of_index(g->index), &there);
        *right = nodes_grant(nodes_of_index(g->index), right);
    }
    return nodes_told(nodes_of(p), rc);
}

ONCE static int extend(struct pawl *p, pawl_grant *g)
{
    struct pawl *at = NULL;
    int rc = nodes_of_grant(nodes_of(p), g, &at);
    return nodes_told(nodes_of(p), rc ? rc : at->ops->extend(at, g));
}

static int query(struct pawl *p, pawl_key key, pawl_state *out)
{
    struct pawl *at = NULL;
    unsigned node;
    int rc = nodes_find(nodes_of(p), &key, DEADLINE_NEVER, &node, &at);
    return nodes_told(nodes_of(p), rc ? rc : at->ops->query(at, key, out));
}

static enum pawl_why why(struct pawl *p)
{
    struct nodes *s = nodes_of(p);
    enum pawl_why reason = 0;
    for (unsigned i = 0; i < s->where.coordinators.count && !reason; i++)
        if (nodes_opened(s, i))
            reason = nodes_opened(s, i)->ops->why(nodes_opened(s, i));
    return reason;
}

/* ---- several at once ---- */

/* Takes the locks that one of the nodes has. */
static int lock_part(struct nodes *s, unsigned node, const pawl_want *wants, unsigned count, uint64_t deadline, pawl_grant *grants)
{
    const unsigned nodes = s->where.coordinators.count;
    pawl_want part[PAWL_ALL_MAX];
    pawl_grant got[PAWL_ALL_MAX];
    unsigned which[PAWL_ALL_MAX], n = 0, same;
    struct pawl *at = NULL;
    for (unsigned i = 0; i < count; i++)
        if (nodes_of_key(nodes, s->handle.keys, wants[i].key) == node) {
            which[n] = i;
            part[n++] = wants[i];
        }
    int rc = 0;
    for (unsigned i = 0; i < n && !rc; i++)
        rc = nodes_find(s, &part[i].key, deadline, &same, &at);
    if (!rc && n)
        rc = at->ops->lock_all(at, part, n, deadline, got);
    for (unsigned i = 0; i < n && !rc; i++)
        grants[which[i]] = nodes_grant(node, &got[i]);
    return nodes_told(s, rc);
}

/* Locks of the first nodes were granted some time ago: their leases must still run (I1). */
static int all_live(struct nodes *s, const pawl_grant *grants, unsigned count)
{
    const struct seat *seats[PAWL_ALL_MAX];
    for (unsigned i = 0; i < count; i++)
        seats[i] = &memory_of(nodes_opened(s, nodes_of_index(grants[i].index)))->locker.seat;
    if (seats_live(seats, count))
        return 0;
    nodes_told(s, -PAWL_ELOST);
    return is_lost();
}

/* Node by node, in the order of the nodes, so that no clients wait for each other in a circle. All or none. */
ONCE static int lock_all(struct pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline, pawl_grant *grants)
{
    struct nodes *s = nodes_of(p);
    const unsigned nodes = s->where.coordinators.count;
    pawl_grant got[PAWL_ALL_MAX] = {{0}};
    unsigned to = 0;
    int rc = 0;
    assert(count > 0 && count <= PAWL_ALL_MAX);
    for (; to < nodes && !rc; to++)
        rc = lock_part(s, to, wants, count, deadline, got);
    if (!rc)
        rc = all_live(s, got, count);
    for (unsigned i = 0; i < count && rc && rc != -PAWL_ELOST; i++)
        if (nodes_of_key(nodes, s->handle.keys, wants[i].key) + 1 < to && unlock(p, &got[i]) == -PAWL_ELOST)
            rc = is_lost();
    if (!rc)
        memcpy(grants, got, count * sizeof *grants);
    return rc;
}

static int unlock_part(struct nodes *s, unsigned node, const pawl_grant *grants, unsigned count)
{
    struct pawl *at = nodes_opened(s, node);
    pawl_grant part[PAWL_ALL_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        if (nodes_of_index(grants[i].index) == node)
            part[n++] = grants[i];
    return at && n ? at->ops->unlock_all(at, part, n) : 0;
}

ONCE static int unlock_all(struct pawl *p, const pawl_grant *grants, unsigned count)
{
    struct nodes *s = nodes_of(p);
    struct pawl *at;
    int rc = 0;
    assert(count > 0 && count <= PAWL_ALL_MAX);
    for (unsigned i = 0; i < count; i++) {
        int known = nodes_of_grant(s, &grants[i], &at);
        rc = rc ? rc : known;
    }
    for (unsigned node = 0; node < s->where.coordinators.count && rc != -PAWL_ELOST; node++) {
        int ended = unlock_part(s, node, grants, count);
        rc = rc ? rc : ended;
    }
    return nodes_told(s, rc);
}

/* ---- handles ---- */

static int close_all(struct nodes *s)
{
    int rc = 0;
    nodes_async_free(s);
    for (unsigned i = 0; i < s->where.coordinators.count; i++) {
        int ended = s->at[i].session ? pawl_close(s->at[i].session) : 0;
        rc = rc ? rc : ended;
        pthread_mutex_destroy(&s->at[i].opening);
    }
    if (s->bell > 0)
        close(s->bell);
    handle_free(&s->handle);
    free(s);
    return rc;
}

static int close_nodes(struct pawl *p)
{
    if (!handle_is_ours(p)) /* the sessions are the parent's: a child leaves its copies alone */
        return 0;
    handle_stop(p, nodes_changed);
    return close_all(nodes_of(p));
}

static const struct session_ops nodes_ops = {
    .close = close_nodes,
    .lock = lock,
    .semaphore = semaphore,
    .unlock = unlock,
    .lock_all = lock_all,
    .unlock_all = unlock_all,
    .convert = convert,
    .extend = extend,
    .check = check,
    .query = query,
    .wanted = wanted,
    .why = why,
    .lock_range = lock_range,
    .reshape = reshape,
    .split = split,
    .admit = nodes_admit,
    .begin = nodes_begin,
    .pump = nodes_pump,
    .cancel = nodes_cancel,
    .wait = nodes_wait,
    .changed = nodes_changed,
};

/* The first node that answers says what the space is. A node that refuses is no reason to ask the next one. */
static int open_first(struct nodes *s, uint64_t deadline)
{
    int rc = -ETIMEDOUT;
    unsigned i = 0;
    for (; i < s->where.coordinators.count && rc == -ETIMEDOUT; i++) {
        uint64_t left = deadline - min_u64(deadline, world_now(&world_real));
        rc = open_at(s, i, world_now(&world_real) + left / (s->where.coordinators.count - i));
    }
    if (rc)
        return rc;
    const struct pawl *first = s->at[i - 1].session;
    s->handle.design = first->design;
    s->handle.keys = first->keys;
    s->capacity = memory_of(s->at[i - 1].session)->locker.table.capacity;
    return 0;
}

ONCE int nodes_open(const struct net_where *w, const pawl_options *o, struct pawl **out)
{
    struct nodes *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->where = *w;
    s->options = *o;
    s->options.design = NULL; /* its name may be gone when a session is opened later; same_space compares designs */
    for (unsigned i = 0; i < w->coordinators.count; i++) {
        pthread_mutex_init(&s->at[i].opening, NULL);
        s->at[i].nodes = s;
    }
    int rc = handle_init(&s->handle, &nodes_ops);
    if (!rc)
        rc = nodes_async_init(s);
    if (!rc)
        rc = open_first(s, world_now(&world_real) + NODES_OPEN_NS);
    if (!rc && o->design && strcmp(o->design, s->handle.design->name) != 0)
        rc = explain(-EINVAL, "the space '%s' has the design '%s', not '%s'", w->space, s->handle.design->name, o->design);
    if (!rc)
        rc = handle_start(&s->handle, nodes_thread, s);
    if (rc) {
        close_all(s);
        return rc;
    }
    *out = &s->handle;
    return 0;
}
