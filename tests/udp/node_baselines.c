/* SPDX-License-Identifier: Apache-2.0 */
/* Baselines on a memory node, which `pawl bench --on node` compares designs with: processes exclude each other, readers share, a
 * waiter gives up, and a killed holder's lock is recovered, as far as each claims that. */
#include "tests/udp/memory.h"

#define CHILDREN 4
#define TURNS 100

static const char *const names[] = {"cas", "cas-backoff", "dslr", "drtm"};
static const struct design *design;
static struct {
    uint32_t holds;
    uint64_t inside, readers, sum;
} * board;

static void worker(void *arg)
{
    pawl *p = node_open();
    (void)arg;
    for (int i = 0; i < TURNS; i++) {
        pawl_grant g;
        bool shared = design->features & DESIGN_SHARED && i % 4 == 3;
        CHECK_OK(pawl_lock(p, pawl_id(1), shared ? PAWL_SHARED : PAWL_EXCLUSIVE, &g));
        if (shared) {
            __atomic_fetch_add(&board->readers, 1, __ATOMIC_SEQ_CST);
            CHECK_EQ(__atomic_load_n(&board->inside, __ATOMIC_SEQ_CST), 0);
            __atomic_fetch_sub(&board->readers, 1, __ATOMIC_SEQ_CST);
        } else {
            CHECK_EQ(__atomic_fetch_add(&board->inside, 1, __ATOMIC_SEQ_CST), 0);
            CHECK_EQ(__atomic_load_n(&board->readers, __ATOMIC_SEQ_CST), 0);
            board->sum++;
            __atomic_fetch_sub(&board->inside, 1, __ATOMIC_SEQ_CST);
        }
        CHECK_OK(pawl_unlock(p, &g));
    }
    CHECK_OK(pawl_close(p));
}

static void exclude(void)
{
    pid_t pids[CHILDREN];
    board->sum = 0;
    for (int i = 0; i < CHILDREN; i++)
        pids[i] = child_start(worker, NULL);
    for (int i = 0; i < CHILDREN; i++)
        child_join(pids[i]);
    CHECK_EQ(board->sum, CHILDREN * (design->features & DESIGN_SHARED ? TURNS - TURNS / 4 : TURNS));
}

/* Shared holds of drtm end by themselves after a time, which a busy machine may exceed. */
static void unlock_shared(pawl *p, const pawl_grant *g)
{
    int rc = pawl_unlock(p, g);
    CHECK(!rc || (rc == -PAWL_ENOTOWNER && design->ends));
}

static void share_and_give_up(void)
{
    pawl *p = node_open(), *q = node_open();
    pawl_grant g, h;
    if (design->features & DESIGN_SHARED) {
        CHECK_OK(pawl_lock(p, pawl_id(2), PAWL_SHARED, &g));
        CHECK_OK(pawl_lock(q, pawl_id(2), PAWL_SHARED, &h));
        unlock_shared(q, &h);
        unlock_shared(p, &g);
    }
    CHECK_OK(pawl_lock(p, pawl_id(3), PAWL_EXCLUSIVE, &g));
    if (design->features & DESIGN_TIMEOUT)
        CHECK_RC(pawl_timedlock(q, pawl_id(3), PAWL_EXCLUSIVE, pawl_in(20 * NS_PER_MS), &h), -ETIMEDOUT);
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_lock(q, pawl_id(3), PAWL_EXCLUSIVE, &h));
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
}

static void hold(void *arg)
{
    pawl_grant g;
    pawl *p = node_open();
    (void)arg;
    CHECK_OK(pawl_lock(p, pawl_id(4), PAWL_EXCLUSIVE, &g));
    __atomic_store_n(&board->holds, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
}

static void recover(void)
{
    pawl_grant g;
    board->holds = 0;
    pid_t pid = child_start(hold, NULL);
    WAIT_FOR(__atomic_load_n(&board->holds, __ATOMIC_ACQUIRE));
    child_kill(pid);
    pawl *p = node_open();
    CHECK_OK(pawl_lock(p, pawl_id(4), PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    board = shared_memory(sizeof *board);
    snprintf(rack_space, sizeof rack_space, "baselines%d", (int)getpid());
    for (size_t i = 0; i < countof(names); i++) {
        design = design_find(names[i]);
        CHECK(design && design->substrates & DESIGN_ON_NODE);
        const struct node_test t = {
            .design = design, .keys = PAWL_KEYS_DENSE, .capacity = 8, .sessions = 16, .holds = 8, .fresh = true};
        pid_t node = node_start(&t);
        exclude();
        share_and_give_up();
        if (design->features & DESIGN_RECOVERY)
            recover();
        child_kill(node);
    }
    munmap(board, sizeof *board);
    return 0;
}
