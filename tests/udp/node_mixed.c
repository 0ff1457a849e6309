/* SPDX-License-Identifier: Apache-2.0 */
/* Clients on the memory node's machine that use its memory directly, beside clients that send verbs, on the same locks: they
 * exclude each other, their additions to shared words are exact, and locks of a killed client of either kind are recovered. A
 * process that was stopped cannot be fenced while it lives. PAWL_TEST_DESIGN: word (the default) or another one-sided design.
 * PAWL_TEST_PROVIDER=libibverbs: an RDMA device with the address 127.0.0.1 executes the verbs, for alock, whose local clients
 * change no word by the CPU's atomics that the device changes by its own. */
#include "client/memory.h"
#include "tests/udp/memory.h"
#include "tests/udp/near_order.h"

#define CHILDREN 6 /* every other one is near */
#define TURNS 150
#define ADDS 5000 /* of each client that sends verbs; the others add as long as these do. A tenth on an emulated device */
#define PAIR_EVERY 8
/* Words of the header's page that no header reaches. */
#define WORD 3072
#define PAIR 3088

static const struct design *design;
static uint64_t adds = ADDS;
static struct {
    uint32_t slot, holds, learnt;
    struct turns turns;
    uint64_t words, pairs;
    uint32_t sent; /* clients that have sent their additions */
} * board;

static pawl *open_node(bool near)
{
    pawl *p = node_open_at(near ? "" : "?memory=verbs");
    CHECK_EQ(memory_of(p)->near.memory.base != NULL, near);
    CHECK_EQ(memory_of(p)->locker.seat.ep->node != FAB_NODE_ELSEWHERE, near && design->node_tends); /* alock's local cohort */
    return p;
}

static void add(struct fab_ep *ep, bool near)
{
    uint64_t old, i = 0;
    u128 was;
    for (; near ? __atomic_load_n(&board->sent, __ATOMIC_ACQUIRE) < CHILDREN / 2 : i < adds; i++) {
        CHECK_EQ(fab_faa64(ep, WORD, 1, &old), 0);
        if (i % PAIR_EVERY == 0 && fab_has(ep->caps, FAB_ATOMIC128))
            CHECK_EQ(fab_faa128(ep, PAIR, (u128)1 << 64 | UINT64_MAX, &was), 0); /* a carry into the upper half but for the first */
    }
    __atomic_fetch_add(&board->words, i, __ATOMIC_RELAXED);
    __atomic_fetch_add(&board->pairs, fab_has(ep->caps, FAB_ATOMIC128) ? (i + PAIR_EVERY - 1) / PAIR_EVERY : 0, __ATOMIC_RELAXED);
    if (!near)
        __atomic_fetch_add(&board->sent, 1, __ATOMIC_RELEASE);
}

static void worker(void *arg)
{
    pawl *p = open_node((uintptr_t)arg % 2);
    for (int i = 0; i < TURNS; i++)
        take_turn(&board->turns, p, pawl_id(1), UINT64_MAX);
    add(memory_of(p)->locker.seat.ep, (uintptr_t)arg % 2);
    CHECK_OK(pawl_close(p));
}

static void mix(void)
{
    pid_t pids[CHILDREN];
    uint64_t word;
    u128 pair;
    for (uintptr_t i = 0; i < CHILDREN; i++)
        pids[i] = child_start(worker, (void *)i);
    for (int i = 0; i < CHILDREN; i++)
        child_join(pids[i]);
    CHECK_EQ(board->turns.sum, CHILDREN * TURNS);
    pawl *p = open_node(false);
    struct fab_ep *ep = memory_of(p)->locker.seat.ep;
    CHECK_EQ(fab_read64(ep, WORD, &word), 0);
    CHECK_EQ(word, board->words);
    if (fab_has(ep->caps, FAB_ATOMIC128)) {
        CHECK_EQ(fab_read128(ep, PAIR, &pair), 0);
        CHECK(pair == (u128)board->pairs * ((u128)1 << 64 | UINT64_MAX));
    }
    printf("%u turns of %u clients, every other one on the node's machine: exact\n", (unsigned)board->turns.sum, CHILDREN);
    printf("%" PRIu64 " additions of 64 bits and %" PRIu64 " of 128 bits, %d by verbs: exact\n", board->words, board->pairs,
           (int)(CHILDREN / 2 * adds));
    CHECK_OK(pawl_close(p));
}

static void hold(void *arg)
{
    pawl_grant g;
    pawl *p = open_node(arg != NULL);
    CHECK_OK(pawl_lock(p, pawl_id(4), PAWL_EXCLUSIVE, &g));
    board->slot = memory_of(p)->session.slot;
    __atomic_store_n(&board->holds, 1, __ATOMIC_RELEASE);
    for (uint64_t limit = pawl_in(4 * LIMIT_NS); !pawl_check(p, &g); pause_ns(NS_PER_MS))
        CHECK(pawl_now() < limit);
    CHECK_RC(pawl_trylock(p, pawl_id(5), PAWL_EXCLUSIVE, &g), -PAWL_ELOST);
    CHECK_OK(pawl_close(p));
    __atomic_store_n(&board->learnt, 1, __ATOMIC_RELEASE);
}

/* Of a near one another gets the lock only when it has ended, if the design fences before it recovers. */
static void lose(bool near, bool stop)
{
    pawl_grant g;
    board->holds = board->learnt = 0;
    pid_t pid = child_start(hold, near ? board : NULL);
    WAIT_FOR(__atomic_load_n(&board->holds, __ATOMIC_ACQUIRE));
    pawl *p = open_node(!near);
    CHECK_RC(pawl_trylock(p, pawl_id(4), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    if (stop)
        CHECK_EQ(kill(pid, SIGSTOP), 0);
    else
        child_kill(pid);
    if (stop && near) { /* declared lost, and not fenced */
        const struct seat *seat = &memory_of(p)->locker.seat;
        uint64_t lease = 0;
        fab_addr at = space_slot_addr(seat->space, board->slot) + offsetof(struct slot, lease);
        for (uint64_t limit = pawl_in(4 * LIMIT_NS); lease_state(lease) != SLOT_LOST; pause_ns(10 * NS_PER_MS)) {
            CHECK(pawl_now() < limit);
            CHECK_EQ(fab_read64(seat->ep, at, &lease), 0);
        }
        CHECK_EQ(seat_fence(seat, board->slot, lease_epoch(lease)), -EAGAIN);
        CHECK_EQ(kill(pid, SIGCONT), 0);
    }
    CHECK_OK(pawl_timedlock(p, pawl_id(4), PAWL_EXCLUSIVE, pawl_in(4 * LIMIT_NS), &g));
    if (stop) {
        CHECK_EQ(kill(pid, SIGCONT), 0);
        child_join(pid);
        CHECK(board->learnt);
    }
    CHECK_OK(pawl_check(p, &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

/* The node loses its memory: a near client finds out like the others, and the file of the former life goes. */
static void new_life(const struct node_test *t, pid_t *node)
{
    board->holds = board->learnt = 0;
    pid_t pid = child_start(hold, board);
    WAIT_FOR(__atomic_load_n(&board->holds, __ATOMIC_ACQUIRE));
    child_kill(*node);
    child_join(pid); /* its lease cannot be renewed */
    CHECK(board->learnt);
    pause_ns(NS_PER_S / 2); /* lives are quarters of a second */
    *node = node_start(t);
    CHECK_OK(pawl_close(open_node(true)));
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, SEGMENT_DIR "/pawl.%u.node.%s.*", (unsigned)geteuid(), rack_space);
    CHECK_EQ(glob(pattern, 0, NULL, &found), 0);
    CHECK_EQ(found.gl_pathc, 1);
    unlink(found.gl_pathv[0]);
    globfree(&found);
}

int main(void)
{
    design = design_find(rack_design("word"));
    CHECK(design && design->substrates & DESIGN_ON_NODE);
    snprintf(rack_space, sizeof rack_space, "mixed%d", (int)getpid());
    board = shared_memory(sizeof *board);
    const char *provider = getenv("PAWL_TEST_PROVIDER");
    if (provider) {
        node_need_library(provider);
        adds = ADDS / 10;
    }
    const struct node_test t = {.design = design,
                                .keys = PAWL_KEYS_DENSE,
                                .capacity = 16,
                                .sessions = 32,
                                .holds = 16,
                                .fresh = true,
                                .local = true,
                                .provider = provider};
    pid_t node = node_start(&t);
    mix();
    order_try(open_node);
    lose(true, false);
    lose(false, false);
    lose(true, true);
    new_life(&t, &node);
    child_kill(node);
    munmap(board, sizeof *board);
    return 0;
}
