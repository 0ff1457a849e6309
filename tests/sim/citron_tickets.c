/* SPDX-License-Identifier: Apache-2.0 */
/* A ticket of `citron` has one owner at most, also if a connection breaks just when its owner takes it back: the number that was
 * taken back is drawn by the next client, and must not be given back a second time (seed 7725432). Here the very verb that takes
 * a ticket back is lost, or its answer, and others come before its owner learns of that. */
#include "designs/citron/citron.h"
#include "tests/sim/stage.h"

#include <errno.h>

enum { HOLDER, QUITTER, NEXT, ANOTHER, CLIENTS };

#define UNITS 256 /* of a node right above leaves: a client that wants all of them takes a turn */
#define UNITS_MAX 4096
#define STEP_NS (2 * NS_PER_US)
#define SPAN_NS (100 * NS_PER_US) /* more than it takes to draw a ticket, or to claim a node that is free */

static const struct scene {
    const char *name;
    bool answer; /* it is the answer that is lost */
    bool served; /* the next client has the node when the first one learns of it; else it waits for its turn */
} scenes[] = {
    {"the answer is lost, and the number belongs to another client, which waits", true, false},
    {"the answer is lost, and the number belongs to another client, which has the node", true, true},
    {"the verb is lost, and the ticket stays in the row", false, false},
};

static struct cluster c;
static const struct scene *scene;
static unsigned inside, granted; /* how many have the node; how often it was had */
static unsigned played;          /* how many have done their part */
static bool held, lost, next_comes, gave_up, another_comes;

static fab_addr node_addr(void)
{
    const struct space *s = &c.clients[QUITTER].at[0].space;
    const struct tree_node n = {.height = 1};
    return space_lock_addr(s, 0) + sizeof(struct citron_lock) + (tree_index(n, citron_height_last(s)) - 1) * sizeof(uint64_t);
}

static uint64_t node_word(void)
{
    return *(const uint64_t *)sim_fabric_peek(c.fabric, node_addr(), sizeof(uint64_t));
}

/* ---- the quitter's connection ---- */

static struct fab_ops losing;
static const struct fab_ops *usual;

static bool takes_back(const struct fab_op *op)
{
    return op->verb == FAB_CAS && op->addr == node_addr() && !op->masked &&
           node_field((uint64_t)op->compare, NODE_TMAX) == node_ticket_next(node_field((uint64_t)op->swap, NODE_TMAX));
}

/* The path is blocked, one way, until the connection is given up. */
static int lose_once(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    if (!lost && n == 1 && takes_back(ops)) {
        const uint32_t server = c.nodes[0].host->id, own = c.clients[QUITTER].process->host->id;
        const uint64_t tries = model_get(c.sim.model, MODEL_retries) + 1;
        sim_partition(&c.sim, scene->answer ? server : own, scene->answer ? own : server,
                      c.sim.now_ns + tries * model_get(c.sim.model, MODEL_retransmit_ns));
        lost = true;
    }
    return usual->batch(ep, ops, n);
}

/* ---- the clients' parts ---- */

static void await(struct cluster_task *t, const bool *flag)
{
    while (!*flag)
        cluster_sleep(t, STEP_NS);
}

static int lock(struct cluster_task *t, uint64_t deadline, struct hold *h)
{
    int rc = locker_lock_range(&t->lockers[0], pawl_id(0), 0, UNITS, PAWL_EXCLUSIVE, deadline, h);
    if (!rc) {
        CHECK_EQ(inside++, 0);
        granted++;
    }
    return rc;
}

static void unlock(struct cluster_task *t, const struct hold *h)
{
    inside--;
    CHECK_EQ(locker_unlock(&t->lockers[0], h), 0);
}

/* In the scene with a client that is served the holder leaves as soon as that client waits. */
static void hold_first(struct cluster_task *t)
{
    struct hold h;
    CHECK_EQ(lock(t, DEADLINE_NEVER, &h), 0);
    held = true;
    await(t, scene->served ? &next_comes : &another_comes);
    cluster_sleep(t, SPAN_NS);
    unlock(t, &h);
}

static void give_up(struct cluster_task *t)
{
    struct hold h;
    await(t, &held);
    usual = t->ep->ops;
    losing = *usual;
    losing.batch = lose_once;
    t->ep->ops = &losing;
    CHECK_EQ(lock(t, world_now(t->lockers[0].seat.world) + SPAN_NS, &h), -ETIMEDOUT);
    t->ep->ops = usual;
    CHECK(lost);
    gave_up = true;
}

static void come_next(struct cluster_task *t)
{
    struct hold h;
    await(t, &lost);
    cluster_sleep(t, SPAN_NS); /* the verb has taken effect, or never will */
    CHECK_EQ(node_queue(node_word()), scene->answer ? 1 : 2);
    next_comes = true;
    CHECK_EQ(lock(t, DEADLINE_NEVER, &h), 0);
    CHECK(gave_up != scene->served);
    if (scene->served)
        await(t, &gave_up);
    cluster_sleep(t, SPAN_NS);
    unlock(t, &h);
}

static void come_then(struct cluster_task *t)
{
    struct hold h;
    await(t, &gave_up);
    CHECK_EQ(node_queue(node_word()), scene->answer ? 2 - scene->served : 3); /* the tickets that were there are still there */
    another_comes = true;
    CHECK_EQ(lock(t, DEADLINE_NEVER, &h), 0);
    cluster_sleep(t, SPAN_NS);
    unlock(t, &h);
}

static bool play(struct cluster_task *t)
{
    static void (*const parts[CLIENTS])(struct cluster_task *) = {
        [HOLDER] = hold_first, [QUITTER] = give_up, [NEXT] = come_next, [ANOTHER] = come_then};
    struct hold h;
    parts[t->client->id](t);
    played++;
    while (played < CLIENTS)
        cluster_sleep(t, STEP_NS);
    CHECK_EQ(lock(t, DEADLINE_NEVER, &h), 0); /* and all clients make progress */
    unlock(t, &h);
    return true;
}

static void run(const struct scene *s)
{
    const struct cluster_params p = stage_of(design_find("citron"), "citron-testbed", CLIENTS, UNITS_MAX, play);
    scene = s;
    held = lost = next_comes = gave_up = another_comes = false;
    granted = played = 0;
    stage_run(&c, &p);
    CHECK_EQ(c.lost, 0);
    CHECK_EQ(granted, CLIENTS - 1 + CLIENTS); /* each in its part but for the one that gave up; and then all */
    CHECK_EQ(node_queue(node_word()), 0);
    cluster_free(&c);
    printf("%s: had %u times, one after the other\n", s->name, granted);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < countof(scenes); i++)
        if (argc < 2 || (size_t)atoi(argv[1]) == i)
            run(&scenes[i]);
    return 0;
}
