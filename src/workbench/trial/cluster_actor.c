/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of an actor of the simulated cluster: each lock at the node that has it. */
#include "cluster/nodes.h"
#include "workbench/trial/cluster.h"

#include <errno.h>

#define TIDY_LOOKS 10 /* leases for which the slots of ended sessions may stay */

/* ---- nodes ---- */

unsigned cluster_node_of(const struct cluster *c, pawl_key key)
{
    return nodes_of_key(c->params.nodes, c->params.keys, key);
}

static pawl_key key_there(const struct cluster *c, pawl_key key)
{
    return nodes_key_there(c->params.nodes, c->params.keys, key);
}

/* A hold of an actor says at which node it is. */
static unsigned node_of_hold(const struct hold *h)
{
    return nodes_of_index(h->index);
}

static struct hold hold_there(const struct hold *h)
{
    struct hold there = *h;
    there.index &= FIELD_MAX(NODES_SHIFT);
    return there;
}

/* After a call to the node's locker. */
static void hold_here(struct actor *a, const struct locker *l, struct hold *h)
{
    h->index = nodes_index((unsigned)(l - cluster_task_of(a)->lockers), h->index);
}

/* After a call that said so, every later call says that the client is lost (I8). */
static int told(struct actor *a, int rc)
{
    struct cluster_client *client = cluster_task_of(a)->client;
    if (client->cluster->params.nodes > 1 && (rc == -PAWL_ELOST || rc == -FAB_EFENCED))
        client->lost = true;
    return rc;
}

static int locker_at(struct actor *a, unsigned node, const struct locker **out)
{
    struct cluster_task *t = cluster_task_of(a);
    *out = &t->lockers[node];
    if (t->client->cluster->params.nodes == 1)
        return 0;
    return t->client->lost ? -PAWL_ELOST : cluster_want_session(t, node);
}

static int locker_for(struct actor *a, pawl_key *key, const struct locker **out)
{
    const struct cluster *c = cluster_task_of(a)->client->cluster;
    unsigned node = cluster_node_of(c, *key);
    *key = key_there(c, *key);
    return locker_at(a, node, out);
}

/* ---- one lock ---- */

static int actor_lock(struct actor *a, pawl_key key, enum pawl_mode mode, uint64_t deadline, struct hold *out)
{
    const struct locker *l;
    int rc = locker_for(a, &key, &l);
    if (!rc)
        rc = locker_lock(l, key, mode, deadline, out);
    if (!rc)
        hold_here(a, l, out);
    return told(a, rc);
}

static int actor_semaphore(struct actor *a, pawl_key key, uint32_t limit, uint64_t deadline, struct hold *out)
{
    const struct locker *l;
    int rc = locker_for(a, &key, &l);
    if (!rc)
        rc = locker_semaphore(l, key, limit, deadline, out);
    if (!rc)
        hold_here(a, l, out);
    return told(a, rc);
}

static int actor_lock_range(struct actor *a, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                            struct hold *out)
{
    const struct locker *l;
    int rc = locker_for(a, &key, &l);
    if (!rc)
        rc = locker_lock_range(l, key, start, end, mode, deadline, out);
    if (!rc)
        hold_here(a, l, out);
    return told(a, rc);
}

static int actor_unlock(struct actor *a, const struct hold *h)
{
    const struct locker *l;
    const struct hold there = hold_there(h);
    int rc = locker_at(a, node_of_hold(h), &l);
    return told(a, rc ? rc : locker_unlock(l, &there));
}

static int actor_convert(struct actor *a, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    const struct locker *l;
    int rc = locker_at(a, node_of_hold(h), &l);
    *h = hold_there(h);
    if (!rc)
        rc = locker_convert(l, h, mode, deadline);
    hold_here(a, l, h);
    return told(a, rc);
}

static int actor_reshape(struct actor *a, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    const struct locker *l;
    int rc = locker_at(a, node_of_hold(h), &l);
    *h = hold_there(h);
    if (!rc)
        rc = locker_reshape(l, h, start, end, deadline);
    hold_here(a, l, h);
    return told(a, rc);
}

static int actor_split(struct actor *a, struct hold *h, uint64_t at, struct hold *right)
{
    const struct locker *l;
    int rc = locker_at(a, node_of_hold(h), &l);
    *h = hold_there(h);
    if (!rc)
        rc = locker_split(l, h, at, right);
    hold_here(a, l, h);
    if (!rc)
        hold_here(a, l, right);
    return told(a, rc);
}

/* ---- several ---- */

/* Takes the locks that one of the nodes has. */
static int lock_part(struct actor *a, unsigned node, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds)
{
    const struct cluster *c = cluster_task_of(a)->client->cluster;
    const struct locker *l = NULL;
    pawl_want part[ACTOR_WANTS_MAX];
    struct hold got[ACTOR_WANTS_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        if (cluster_node_of(c, wants[i].key) == node) {
            part[n] = wants[i];
            part[n++].key = key_there(c, wants[i].key);
        }
    int rc = n ? locker_at(a, node, &l) : 0;
    if (!rc && n)
        rc = locker_lock_all(l, part, n, deadline, got);
    for (unsigned i = 0, k = 0; i < count && !rc; i++)
        if (cluster_node_of(c, wants[i].key) == node) {
            holds[i] = got[k++];
            hold_here(a, l, &holds[i]);
        }
    return told(a, rc);
}

/* Node by node, in the order of the nodes, so that no clients wait for each other in a circle. All or none. */
static int actor_lock_all(struct actor *a, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds)
{
    const struct cluster *c = cluster_task_of(a)->client->cluster;
    assert(count <= ACTOR_WANTS_MAX);
    int rc = 0;
    unsigned to = 0;
    for (; to < c->params.nodes && !rc; to++)
        rc = lock_part(a, to, wants, count, deadline, holds);
    /* Locks of the first nodes were granted some time ago: their leases must still run (I1). */
    if (!rc && c->params.nodes > 1) {
        const struct seat *seats[ACTOR_WANTS_MAX];
        for (unsigned i = 0; i < count; i++)
            seats[i] = &cluster_task_of(a)->lockers[cluster_node_of(c, wants[i].key)].seat;
        rc = seats_live(seats, count) ? 0 : told(a, -PAWL_ELOST);
    }
    if (!rc || rc == -PAWL_ELOST)
        return rc;
    for (unsigned i = 0; i < count; i++) {
        int gone = cluster_node_of(c, wants[i].key) + 1 < to ? actor_unlock(a, &holds[i]) : 0;
        if (gone == -PAWL_ELOST)
            rc = gone;
    }
    return rc;
}

/* Node by node. */
static void actor_unlock_all(struct actor *a, const struct hold *holds, unsigned count, int *rc)
{
    struct hold part[ACTOR_WANTS_MAX];
    int ended[ACTOR_WANTS_MAX];
    assert(count <= ACTOR_WANTS_MAX);
    for (unsigned node = 0; node < cluster_task_of(a)->client->cluster->params.nodes; node++) {
        const struct locker *l = NULL;
        unsigned n = 0;
        for (unsigned i = 0; i < count; i++)
            if (node_of_hold(&holds[i]) == node)
                part[n++] = hold_there(&holds[i]);
        int none = n ? locker_at(a, node, &l) : 0;
        if (n && !none)
            locker_unlock_all(l, part, n, ended);
        for (unsigned i = 0, k = 0; i < count; i++)
            if (node_of_hold(&holds[i]) == node)
                rc[i] = told(a, none ? none : ended[k++]);
    }
}

/* ---- asking and tuning ---- */

static int actor_layout(struct actor *a, pawl_key key, struct lock_layout *out)
{
    const struct locker *l;
    int rc = locker_for(a, &key, &l);
    return told(a, rc ? rc : locker_layout(l, key, out));
}

static int actor_retune(struct actor *a, pawl_key key, unsigned m, uint64_t wait_ns, uint64_t deadline)
{
    const struct locker *l;
    int rc = locker_for(a, &key, &l);
    return told(a, rc ? rc : locker_retune(l, key, m, wait_ns, deadline));
}

static int actor_rescale(struct actor *a, pawl_key key, uint64_t units, uint64_t deadline)
{
    const struct locker *l;
    int rc = locker_for(a, &key, &l);
    return told(a, rc ? rc : locker_rescale(l, key, units, deadline));
}

static int actor_wanted(struct actor *a, const struct hold *h)
{
    const struct locker *l;
    const struct hold there = hold_there(h);
    int rc = locker_at(a, node_of_hold(h), &l);
    return told(a, rc ? rc : locker_wanted(l, &there));
}

static int actor_set_value(struct actor *a, const struct hold *h, const void *bytes, uint32_t len)
{
    const struct locker *l;
    const struct hold there = hold_there(h);
    int rc = locker_at(a, node_of_hold(h), &l);
    return told(a, rc ? rc : locker_set_value(l, &there, bytes, len));
}

static int actor_get_value(struct actor *a, const struct hold *h, void *bytes, uint32_t *len)
{
    const struct locker *l;
    const struct hold there = hold_there(h);
    int rc = locker_at(a, node_of_hold(h), &l);
    return told(a, rc ? rc : locker_get_value(l, &there, bytes, len));
}

static int actor_query(struct actor *a, pawl_key key, pawl_state *out)
{
    const struct locker *l;
    int rc = locker_for(a, &key, &l);
    return told(a, rc ? rc : locker_query(l, key, out));
}

static void actor_sleep(struct actor *a, uint64_t ns)
{
    cluster_sleep(cluster_task_of(a), ns);
}

static bool actor_valid(const struct actor *a)
{
    return cluster_client_valid(container_of(a, struct cluster_task, actor)->client);
}

/* ---- tidying ---- */

static int count_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    ++*(unsigned *)ctx;
    return 0;
}

/* Only the actor's own slot is taken at that node. */
static int tidy_node(struct actor *a, unsigned node)
{
    struct cluster_task *t = cluster_task_of(a);
    const struct locker *l;
    int rc = locker_at(a, node, &l);
    for (unsigned i = 0; i < TIDY_LOOKS && !rc; i++) {
        unsigned slots = 0;
        session_tend(&l->seat);
        if (seat_slots(&l->seat, count_slot, &slots) == 0 && slots == 1)
            return 0;
        cluster_sleep(t, t->client->cluster->params.lease_ns);
    }
    return rc ? rc : seat_lives(&l->seat) ? -EBUSY : -PAWL_ELOST;
}

static int actor_tidy(struct actor *a)
{
    int rc = 0;
    for (unsigned node = 0; node < cluster_task_of(a)->client->cluster->params.nodes && !rc; node++)
        rc = tidy_node(a, node);
    return told(a, rc);
}

const struct actor_ops cluster_actor_ops = {
    .lock = actor_lock,
    .lock_all = actor_lock_all,
    .unlock = actor_unlock,
    .unlock_all = actor_unlock_all,
    .convert = actor_convert,
    .lock_range = actor_lock_range,
    .reshape = actor_reshape,
    .split = actor_split,
    .layout = actor_layout,
    .retune = actor_retune,
    .rescale = actor_rescale,
    .semaphore = actor_semaphore,
    .wanted = actor_wanted,
    .set_value = actor_set_value,
    .get_value = actor_get_value,
    .query = actor_query,
    .tidy = actor_tidy,
    .sleep = actor_sleep,
    .valid = actor_valid,
};
