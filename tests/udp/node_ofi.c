/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of two sessions on a memory node under libfabric, threads that share a session, and what such a node refuses.
 * PAWL_TEST_DESIGN: word (the default) or another one-sided design; PAWL_TEST_PROVIDER: tcp (the default) or another provider. */
#include "tests/udp/memory.h"
#include "tests/udp/node_calls.h"
#include "tests/udp/team.h"

#define MEMBERS 4
#define TURNS 40

/* Named keys and shiftlock need 128-bit atomics. */
static void refused(const struct node_test *t)
{
    struct memory_home home;
    struct memory_rdma ofi = {.provider = t->provider, .at = net_v4(RACK_LOCALHOST, 0), .clients = 4, .report = node_report};
    struct memory_node m;
    struct memory_node_params p = {
        .layout = {.design = design, .keys = PAWL_KEYS_NAMED, .capacity = 4, .sessions = 4, .holds = 4, .lease_ns = NODE_LEASE_NS},
        .home = &home,
        .space = rack_space,
        .at = net_v4(RACK_LOCALHOST, 0),
        .fresh = true};
    CHECK_OK(memory_rdma_home(&ofi, &home));
    CHECK_RC(memory_node_open(&m, &p), -PAWL_ENOTSUP);
    CHECK(strstr(pawl_explain(), "atomic128") && strstr(pawl_explain(), "choose dense keys"));
    p.layout.design = design_find("shiftlock");
    p.layout.keys = PAWL_KEYS_DENSE;
    CHECK_RC(memory_node_open(&m, &p), -PAWL_ENOTSUP);
    CHECK(strstr(pawl_explain(), "choose the design 'shiftlock64'"));
    home.close(home.ctx);
}

/* Watches and semaphores. */
static void beside(pawl *p, pawl *q)
{
    const pawl_request next = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(1), .deadline_ns = UINT64_MAX};
    pawl_completion c;
    pawl_grant g, place[3];
    uint64_t id;
    if (has(DESIGN_BAST)) {
        CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
        CHECK_OK(pawl_watch(p, &g));
        CHECK_OK(pawl_submit(q, &next, &id));
        CHECK_EQ(pawl_reap(p, &c, 1, UINT64_MAX), 1);
        CHECK_EQ(c.op, PAWL_OP_WANTED);
        CHECK_OK(pawl_unlock(p, &g));
        CHECK_EQ(pawl_reap(q, &c, 1, UINT64_MAX), 1);
        CHECK_OK(c.result);
        CHECK_OK(pawl_unlock(q, &c.grant));
    }
    if (has(DESIGN_SEMAPHORE)) {
        CHECK_OK(pawl_semaphore(p, pawl_id(2), 2, UINT64_MAX, &place[0]));
        CHECK_OK(pawl_semaphore(q, pawl_id(2), 2, UINT64_MAX, &place[1]));
        CHECK_RC(pawl_semaphore(q, pawl_id(2), 2, PAWL_TRY, &place[2]), -PAWL_EHELD);
        CHECK_RC(pawl_semaphore(q, pawl_id(2), 3, PAWL_TRY, &place[2]), -PAWL_ELIMITS);
        CHECK_OK(pawl_unlock(p, &place[0]));
        CHECK_OK(pawl_unlock(q, &place[1]));
    }
}

/* ---- a node that dies ---- */

static void *wait_for_lock(void *arg)
{
    pawl_grant g;
    CHECK_RC(pawl_lock(arg, pawl_id(1), PAWL_EXCLUSIVE, &g), -PAWL_ELOST);
    return NULL;
}

/* A session that waits for a lock, one that asks for a lock, and closing: all learn when the lease ends. */
static void node_dies(pid_t node, pawl *p, pawl *q)
{
    pthread_t waiter;
    pawl_grant g;
    CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
    CHECK_EQ(pthread_create(&waiter, NULL, wait_for_lock, q), 0);
    pause_ns(100 * NS_PER_MS);
    child_kill(node);
    uint64_t begin = pawl_now();
    CHECK_RC(pawl_lock(p, pawl_id(2), PAWL_EXCLUSIVE, &g), -PAWL_ELOST);
    uint64_t asked = pawl_now();
    CHECK_EQ(pthread_join(waiter, NULL), 0);
    uint64_t waited = pawl_now();
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
    uint64_t closed = pawl_now();
    printf(
        "the node was killed: a session that asks knows after %.1f s, one that waits after %.1f s, both are closed after %.1f s\n",
        (double)(asked - begin) / 1e9, (double)(waited - begin) / 1e9, (double)(closed - begin) / 1e9);
    CHECK(closed - begin < NODE_LEASE_NS + NODE_LEASE_NS / 2); /* half a lease for a busy machine */
}

int main(void)
{
    const char *provider = getenv("PAWL_TEST_PROVIDER");
    design = design_find(rack_design("word"));
    CHECK(design && design->substrates & DESIGN_ON_OFI);
    provider = provider ? provider : "tcp";
    node_need_library(provider);
    snprintf(rack_space, sizeof rack_space, "ofi%d", (int)getpid());
    const struct node_test t = {.design = design,
                                .port = rack_port_pair(),
                                .keys = PAWL_KEYS_DENSE,
                                .capacity = LOCKS,
                                .sessions = 32,
                                .holds = 32,
                                .provider = provider,
                                .fresh = true};
    pid_t node = node_start(&t);
    pawl *p = node_open(), *q = node_open();
    node_calls(p, q);
    beside(p, q);
    team_takes_turns(p, MEMBERS, TURNS);
    node_dies(node, p, q);
    refused(&t);
    return 0;
}
