/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous operations on a memory node, those of shm/async; of clients that send verbs, and of clients on the node's machine
 * that use its memory. Several operations of a session are in flight at once, beside calls of its threads. PAWL_TEST_DESIGN: word
 * (the default) or another one-sided design; one without asynchronous operations says so. */
#include "client/memory.h"
#include "tests/async_calls.h"
#include "tests/udp/memory.h"

#define ROUNDS 50
#define AT_ONCE 8

static bool near;

static pawl *open_one(void)
{
    pawl *p = node_open_at(near ? "" : "?memory=verbs");
    CHECK_EQ(memory_of(p)->near.memory.base != NULL, near);
    return p;
}

static void reap_together(pawl_completion c[AT_ONCE])
{
    for (int got = 0; got < AT_ONCE;) {
        int more = pawl_reap(one, c + got, (unsigned)(AT_ONCE - got), pawl_in(LIMIT_NS));
        CHECK(more > 0);
        got += more;
    }
    for (int i = 0; i < AT_ONCE; i++)
        CHECK_OK(c[i].result);
}

/* Operations that need not wait for a lock: their requests are in flight together. */
static void together(void)
{
    unsigned several = 0;
    struct fab_node *n = &memory_of(one)->far->node;
    pawl_completion c[AT_ONCE];
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < AT_ONCE; i++)
            submit_lock(one, i, PAWL_EXCLUSIVE, UINT64_MAX, NULL);
        n->io->lock(n);
        several += n->next - n->base > 1;
        n->io->unlock(n);
        reap_together(c);
        for (int i = 0; i < AT_ONCE; i++)
            submit_grant(one, PAWL_OP_UNLOCK, &c[i].grant, PAWL_EXCLUSIVE, 0);
        reap_together(c);
    }
    if (!near) /* the node may have answered all before this thread looked, but not always */
        CHECK(several > 0);
}

/* Threads of the same session lock and unlock while operations are in flight. */
static void *calls(void *p)
{
    for (int i = 0; i < ROUNDS; i++) {
        pawl_grant g;
        CHECK_OK(pawl_lock(p, pawl_id(100), PAWL_EXCLUSIVE, &g));
        CHECK_OK(pawl_unlock(p, &g));
    }
    return NULL;
}

static void beside_threads(void)
{
    pthread_t threads[2];
    pawl_grant held;
    CHECK_OK(pawl_lock(other, pawl_id(101), PAWL_EXCLUSIVE, &held));
    uint64_t waits = submit_lock(one, 101, PAWL_EXCLUSIVE, UINT64_MAX, NULL);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, calls, one), 0);
    for (int i = 0; i < ROUNDS; i++) {
        pawl_completion c = reap_one(one, submit_lock(one, 100, PAWL_EXCLUSIVE, UINT64_MAX, NULL), 0);
        reap_one(one, submit_grant(one, PAWL_OP_UNLOCK, &c.grant, PAWL_EXCLUSIVE, 0), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(pawl_unlock(other, &held));
    CHECK(readable(one, async_place.at_once_ms)); /* the library's thread is told of the lock */
    pawl_completion c = reap_one(one, waits, 0);
    CHECK_OK(pawl_unlock(one, &c.grant));
}

/* A node that dies with operations in flight: they end when the lease does, and so does closing. */
static void node_dies(pid_t node)
{
    pawl_grant g;
    open_both();
    CHECK_OK(pawl_lock(other, pawl_id(1), PAWL_EXCLUSIVE, &g));
    uint64_t id = submit_lock(one, 1, PAWL_EXCLUSIVE, UINT64_MAX, NULL);
    WAIT_FOR(waiters(1) == 1);
    child_kill(node);
    submit_lock(other, 2, PAWL_EXCLUSIVE, UINT64_MAX, NULL);
    pawl_completion c;
    CHECK_EQ(pawl_reap(one, &c, 1, pawl_in(2 * LIMIT_NS)), 1);
    CHECK_EQ(c.id, id);
    CHECK_RC(c.result, -PAWL_ELOST);
    CHECK_OK(pawl_close(one));
    CHECK_OK(pawl_close(other));
}

static void refused(void)
{
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(1), .deadline_ns = UINT64_MAX};
    uint64_t id;
    pawl *p = open_one();
    CHECK_RC(pawl_submit(p, &r, &id), -PAWL_ENOTSUP);
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    const struct design *design = design_find(rack_design("word"));
    CHECK(design && design->substrates & DESIGN_ON_NODE);
    snprintf(rack_space, sizeof rack_space, "async%d", (int)getpid());
    async_place.open = open_one;
    async_place.at_once_ms = (int)(LIMIT_NS / NS_PER_MS);
    async_place.record_ends_ns = LIMIT_NS;
    for (int i = 0; i < 2; i++) {
        const struct node_test t = {.design = design,
                                    .keys = PAWL_KEYS_SPARSE,
                                    .capacity = ASYNC_CAPACITY,
                                    .sessions = 8,
                                    .holds = ASYNC_HOLDS,
                                    .fresh = true,
                                    .local = i};
        near = i;
        pid_t node = node_start(&t);
        if (!(design->features & DESIGN_ASYNC)) {
            refused();
            child_kill(node);
            node_remove_files();
            continue;
        }
        async_calls();
        open_both();
        together();
        beside_threads();
        close_both();
        if (!near && !getenv("PAWL_TEST_DESIGN"))
            node_dies(node); /* takes more than a lease, and is no matter of the design */
        else
            child_kill(node);
        node_remove_files();
    }
    return 0;
}
