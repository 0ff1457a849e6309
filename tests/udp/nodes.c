/* SPDX-License-Identifier: Apache-2.0 */
/* A space on two memory nodes: keys are divided among them, a session is opened where a lock is first wanted, several locks are
 * taken together, operations in flight are of both, a node that loses its memory ends the client and no other node, and a client
 * that names the nodes wrongly is refused. PAWL_TEST_DESIGN: word (the default) or another one-sided design. PAWL_TEST_PROVIDER:
 * the memory is reached by libfabric. */
#include "client/nodes.h"
#include "cluster/nodes.h"
#include "tests/udp/in_flight.h"
#include "tests/udp/memory.h"

#include <signal.h>

#define NODES 2
#define LOCKS 32 /* of each node */
#define CHILDREN 4
#define TURNS 40

static const struct design *design;
static struct node_test tests[NODES];
static pid_t pids[NODES];
static struct {
    uint64_t inside[NODES], sum;
} * board;

static void start(unsigned i, bool fresh)
{
    tests[i].fresh = fresh;
    pids[i] = node_start(&tests[i]);
}

static void place(unsigned first, unsigned second, char out[RACK_WHERE_LEN + 32])
{
    snprintf(out, RACK_WHERE_LEN + 32, "pawl://127.0.0.1:%u,127.0.0.1:%u/%s", tests[first].port, tests[second].port, rack_space);
}

static pawl *open_nodes(void)
{
    char where[RACK_WHERE_LEN + 32];
    pawl *p;
    place(0, 1, where);
    int rc = pawl_open(where, NULL, &p);
    if (rc)
        CHECK_FAIL("pawl_open(%s): %d: %s (%s)", where, rc, pawl_strerror(rc), pawl_explain());
    return p;
}

/* ---- calls ---- */

static void first_use(void)
{
    pawl *p = open_nodes(), *q = open_nodes();
    pawl_grant g[NODES], h;
    CHECK(nodes_opened(nodes_of(p), 0) && !nodes_opened(nodes_of(p), 1));
    for (uint64_t k = 0; k < NODES; k++) {
        CHECK_OK(pawl_lock(p, pawl_id(k), PAWL_EXCLUSIVE, &g[k]));
        CHECK_EQ(nodes_of_index(g[k].index), k);
        CHECK_OK(pawl_check(p, &g[k]));
        CHECK_OK(pawl_extend(p, &g[k]));
        CHECK_RC(pawl_trylock(q, pawl_id(k), PAWL_EXCLUSIVE, &h), -PAWL_EHELD);
        CHECK_RC(pawl_unlock(q, &g[k]), -PAWL_ENOTOWNER);
    }
    CHECK(nodes_opened(nodes_of(p), 1) != NULL);
    pawl_grant wrong = g[0];
    wrong.index = nodes_index(5, 0); /* there is no such node */
    CHECK_RC(pawl_unlock(p, &wrong), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_close(q));
    CHECK_OK(pawl_close(p)); /* with what it holds */
    q = open_nodes();
    for (uint64_t k = 0; k < NODES; k++) {
        CHECK_OK(pawl_timedlock(q, pawl_id(k), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h));
        CHECK(h.token > g[k].token);
        CHECK_OK(pawl_unlock(q, &h));
    }
    CHECK_OK(pawl_timedlock(q, pawl_id(NODES * LOCKS - 1), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h));
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_RC(pawl_lock(q, pawl_id(NODES * LOCKS), PAWL_EXCLUSIVE, &h), -ERANGE);
    CHECK(strstr(pawl_explain(), "64"));
    if (design->features & DESIGN_CONVERT) {
        CHECK_OK(pawl_lock(q, pawl_id(3), PAWL_SHARED, &h));
        CHECK_OK(pawl_convert(q, &h, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS)));
        CHECK_EQ(nodes_of_index(h.index), 1);
        CHECK_OK(pawl_unlock(q, &h));
    }
    CHECK_OK(pawl_close(q));
}

/* All or none, whatever node a lock is at. */
static void together(void)
{
    pawl *p = open_nodes(), *q = open_nodes();
    const pawl_want wants[] = {{.key = pawl_id(9), .mode = PAWL_EXCLUSIVE},
                               {.key = pawl_id(4), .mode = PAWL_EXCLUSIVE},
                               {.key = pawl_id(7), .mode = PAWL_EXCLUSIVE}};
    pawl_grant g[countof(wants)], h;
    CHECK_OK(pawl_lock_all(p, wants, countof(wants), UINT64_MAX, g));
    for (size_t i = 0; i < countof(wants); i++) {
        CHECK_EQ(nodes_of_index(g[i].index), wants[i].key.id % NODES);
        CHECK_OK(pawl_check(p, &g[i]));
    }
    CHECK_RC(pawl_lock_all(q, wants, countof(wants), PAWL_TRY, g), -PAWL_EHELD);
    for (size_t i = 0; i < countof(wants); i++)
        CHECK_OK(pawl_unlock(p, &g[i]));
    CHECK_OK(pawl_lock(p, pawl_id(9), PAWL_EXCLUSIVE, &h));
    CHECK_RC(pawl_lock_all(q, wants, countof(wants), pawl_in(50 * NS_PER_MS), g), -ETIMEDOUT);
    CHECK_OK(pawl_unlock(p, &h));
    CHECK_OK(pawl_timedlock(p, pawl_id(4), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h)); /* it was given back */
    CHECK_OK(pawl_unlock(p, &h));
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
}

static void asynchronous(void)
{
    pawl *p = open_nodes(), *q = open_nodes();
    pawl_completion done;
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(11), .deadline_ns = UINT64_MAX};
    uint64_t id;
    pawl_grant g = in_flight_together(p, q, 11);
    CHECK_OK(pawl_submit(q, &r, &id));
    CHECK_OK(pawl_cancel(q, id));
    CHECK_EQ(pawl_reap(q, &done, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_RC(done.result, -ECANCELED);
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
}

/* The first operations at a node that does not answer: submitting them does not wait. They end as their deadlines say, are
 * cancelled, or begin when the node is there. */
static void early(void)
{
    pawl *p = open_nodes();
    pawl_completion done[4];
    pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(13), .deadline_ns = UINT64_MAX};
    uint64_t id[countof(done)];
    CHECK(!nodes_opened(nodes_of(p), 1));
    CHECK_EQ(kill(pids[1], SIGSTOP), 0);
    CHECK_OK(pawl_submit(p, &r, &id[0]));
    CHECK_OK(pawl_submit(p, &r, &id[1]));
    r.deadline_ns = pawl_in(50 * NS_PER_MS);
    CHECK_OK(pawl_submit(p, &r, &id[2]));
    r.deadline_ns = PAWL_TRY;
    CHECK_OK(pawl_submit(p, &r, &id[3]));
    r.key = pawl_id(NODES * LOCKS);
    CHECK_RC(pawl_submit(p, &r, id), -ERANGE);
    CHECK_OK(pawl_cancel(p, id[1]));
    for (unsigned i = 1; i < countof(id); i++) {
        CHECK_EQ(pawl_reap(p, &done[i], 1, pawl_in(LIMIT_NS)), 1);
        CHECK_EQ(done[i].id, id[i]);
        CHECK_RC(done[i].result, i == 1 ? -ECANCELED : -ETIMEDOUT);
    }
    CHECK(!nodes_opened(nodes_of(p), 1));
    CHECK_EQ(kill(pids[1], SIGCONT), 0);
    CHECK_EQ(pawl_reap(p, done, 1, pawl_in(LIMIT_NS)), 1);
    CHECK(done[0].id == id[0] && nodes_of_index(done[0].grant.index) == 1);
    CHECK_OK(done[0].result);
    CHECK_OK(pawl_unlock(p, &done[0].grant));
    CHECK_OK(pawl_close(p));
    p = open_nodes();
    CHECK_EQ(kill(pids[1], SIGSTOP), 0);
    r = (pawl_request){.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(13), .deadline_ns = UINT64_MAX};
    CHECK_OK(pawl_submit(p, &r, &id[0]));
    CHECK_OK(pawl_close(p)); /* while the session is opened */
    CHECK_EQ(kill(pids[1], SIGCONT), 0);
}

/* ---- processes ---- */

static void worker(void *arg)
{
    (void)arg;
    pawl *p = open_nodes();
    for (int i = 0; i < TURNS; i++) {
        pawl_grant g;
        unsigned node = (unsigned)i % NODES;
        CHECK_OK(pawl_lock(p, pawl_id(20 + node), PAWL_EXCLUSIVE, &g));
        CHECK_EQ(__atomic_fetch_add(&board->inside[node], 1, __ATOMIC_RELAXED), 0);
        __atomic_fetch_add(&board->sum, 1, __ATOMIC_RELAXED);
        CHECK_EQ(__atomic_fetch_sub(&board->inside[node], 1, __ATOMIC_RELAXED), 1);
        CHECK_OK(pawl_unlock(p, &g));
    }
    CHECK_OK(pawl_close(p));
}

static void crowd(void)
{
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        children[i] = child_start(worker, NULL);
    for (int i = 0; i < CHILDREN; i++)
        child_join(children[i]);
    CHECK_EQ(board->sum, CHILDREN * TURNS);
}

/* ---- lives ---- */

/* The second node loses its memory. A client that uses the first alone goes on; one that had a session at the second is lost, at
 * both; and what it held at the first is free. */
static void new_life(void)
{
    pawl *p = open_nodes(), *first = open_nodes();
    pawl_grant g[NODES], h;
    for (uint64_t k = 0; k < NODES; k++)
        CHECK_OK(pawl_lock(p, pawl_id(k), PAWL_EXCLUSIVE, &g[k]));
    child_kill(pids[1]);
    CHECK_OK(pawl_timedlock(first, pawl_id(2), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h)); /* the first node has its life */
    CHECK_OK(pawl_unlock(first, &h));
    start(1, false);
    int rc;
    for (uint64_t limit = pawl_in(3 * LIMIT_NS); !(rc = pawl_check(p, &g[1])); pause_ns(10 * NS_PER_MS))
        CHECK(pawl_now() < limit);
    CHECK_RC(rc, -PAWL_ELOST);
    CHECK_RC(pawl_check(p, &g[0]), -PAWL_ELOST);
    pawl_completion event; /* the loss at one node is that of the client */
    CHECK_EQ(pawl_reap(p, &event, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_EQ(event.op, PAWL_OP_LOST);
    CHECK(event.why == PAWL_WHY_BROKEN ||
          event.why == PAWL_WHY_LEASE); /* its memory is new; on a busy machine the lease is first */
    CHECK_EQ(pawl_why(p, &g[0]), event.why);
    CHECK_RC(pawl_trylock(p, pawl_id(4), PAWL_EXCLUSIVE, &h), -PAWL_ELOST);
    CHECK_RC(pawl_unlock(p, &g[0]), -PAWL_ELOST);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_timedlock(first, pawl_id(0), PAWL_EXCLUSIVE, pawl_in(3 * LIMIT_NS), &h));
    CHECK_OK(pawl_unlock(first, &h));
    CHECK_OK(pawl_timedlock(first, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(3 * LIMIT_NS), &h)); /* opened here, in the new life */
    CHECK(h.token > g[1].token);
    CHECK_OK(pawl_unlock(first, &h));
    CHECK_OK(pawl_close(first));
}

/* ---- errors ---- */

static void refused(void)
{
    char where[RACK_WHERE_LEN + 32];
    pawl *p;
    place(1, 0, where);
    CHECK_RC(pawl_open(where, NULL, &p), -EINVAL);
    CHECK(strstr(pawl_explain(), "node 2 of 2"));
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u/%s", tests[0].port, rack_space);
    CHECK_RC(pawl_open(where, NULL, &p), -EINVAL);
    CHECK(strstr(pawl_explain(), "node 1 of 2"));
    place(0, 1, where);
    const pawl_options other = {.design = strcmp(design->name, "word") ? "word" : "alock"}, sparse = {.keys = PAWL_KEYS_SPARSE},
                       many = {.capacity = NODES * LOCKS + 1}, fine = {.capacity = NODES * LOCKS};
    CHECK_RC(pawl_open(where, &other, &p), -EINVAL);
    CHECK_RC(pawl_open(where, &sparse, &p), -EINVAL);
    CHECK_RC(pawl_open(where, &many, &p), -EINVAL);
    CHECK_OK(pawl_open(where, &fine, &p));
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    design = design_find(rack_design("word"));
    CHECK(design && design->substrates & DESIGN_ON_NODE);
    snprintf(rack_space, sizeof rack_space, "nodes%d", (int)getpid());
    board = shared_memory(sizeof *board);
    for (unsigned i = 0; i < NODES; i++) {
        tests[i] = (struct node_test){.design = design,
                                      .port = rack_port_pair(),
                                      .keys = PAWL_KEYS_DENSE,
                                      .capacity = LOCKS,
                                      .sessions = 16,
                                      .holds = 16,
                                      .provider = getenv("PAWL_TEST_PROVIDER"),
                                      .node = (uint8_t)i,
                                      .nodes = NODES};
        start(i, true);
    }
    first_use();
    together();
    if (design->features & DESIGN_ASYNC) {
        asynchronous();
        if (strcmp(design->name, "word") == 0) /* the same for all, and it takes seconds */
            early();
    }
    crowd();
    refused();
    new_life();
    for (unsigned i = 0; i < NODES; i++)
        child_kill(pids[i]);
    return 0;
}
