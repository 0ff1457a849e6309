/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the executor's stores are seen by the CPUs of its machine before its later READs, as Peterson's lock between alock's
 * cohorts needs: a client sends {WRITE x, READ y}, and another, which has the memory mapped, stores y and loads x. If the mapped
 * one has not seen a store of x, the READ after that store sees what the mapped one has stored by then. */
#ifndef PAWL_TESTS_UDP_NEAR_ORDER_H
#define PAWL_TESTS_UDP_NEAR_ORDER_H

#include "client/memory.h"
#include "tests/check.h"

#define ORDER_ROUNDS 10000
/* Words of the header's page that no header reaches, in lines of their own. */
#define ORDER_X 3200
#define ORDER_Y 3328

struct order {
    uint64_t missed[ORDER_ROUNDS + 1]; /* the last store of y after which x was not yet this */
};

/* The mapped one, until all rounds are through. */
static inline void order_near(struct fab_ep *ep, struct order *o)
{
    for (uint64_t y = 1, x = 0; x < ORDER_ROUNDS; y++) {
        fab_local_store64(ep, ORDER_Y, y);
        fab_local_fence(ep);
        uint64_t now = fab_local_load64(ep, ORDER_X);
        while (x < now)
            o->missed[++x] = y - 1;
    }
}

/* The other one. */
static inline void order_far(struct fab_ep *ep, uint64_t seen[ORDER_ROUNDS + 1])
{
    for (uint64_t x = 1; x <= ORDER_ROUNDS; x++) {
        struct fab_op ops[] = {
            {.verb = FAB_WRITE, .len = 8, .addr = ORDER_X, .buf = &x},
            {.verb = FAB_READ, .len = 8, .addr = ORDER_Y, .buf = &seen[x]},
        };
        CHECK_EQ(fab_batch(ep, ops, countof(ops)), 0);
    }
}

static inline void order_check(const struct order *o, const uint64_t seen[ORDER_ROUNDS + 1])
{
    for (unsigned i = 1; i <= ORDER_ROUNDS; i++)
        if (seen[i] < o->missed[i])
            CHECK_FAIL("round %u: neither saw the other's store: %" PRIu64 " was read, and %" PRIu64 " stored before x was seen", i,
                       seen[i], o->missed[i]);
    printf("%d stores were seen before the READs that followed them\n", ORDER_ROUNDS);
}

struct order_side {
    pawl *(*open)(bool near); /* a session on the node's machine, or one that sends verbs */
    struct order *order;
};

static void order_near_side(void *arg)
{
    const struct order_side *side = arg;
    pawl *p = side->open(true);
    order_near(memory_of(p)->locker.seat.ep, side->order);
    CHECK_OK(pawl_close(p));
}

static void order_try(pawl *(*open)(bool near))
{
    static uint64_t seen[ORDER_ROUNDS + 1];
    struct order_side side = {.open = open, .order = shared_memory(sizeof *side.order)};
    pid_t pid = child_start(order_near_side, &side);
    pawl *p = open(false);
    order_far(memory_of(p)->locker.seat.ep, seen);
    child_join(pid);
    order_check(side.order, seen);
    CHECK_OK(pawl_close(p));
    munmap(side.order, sizeof *side.order);
}

#endif
