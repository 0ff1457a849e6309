/* SPDX-License-Identifier: Apache-2.0 */
/* ALock as it is meant, on a node whose atomics are not the CPU's: the node executes verbs in the kernel, clients on its machine
 * lock by CPU instructions on the same memory, and clients in other network namespaces by verbs, on the same lock. They exclude
 * each other, and locks of a killed or stopped client of either cohort go to the next, of whichever cohort. */
#include "tests/lab/rack.h"
#include "tests/shm/space.h"
#include "tests/udp/near_order.h"

#define HOSTS 2
#define CLIENTS 6 /* every other one is on the node's machine */
#define TURNS 400
#define FREE_TURNS 2000 /* to measure an uncontended lock */
#define PATIENCE_NS (90 * NS_PER_S)
#define SPACE "near"
#define NODE "10.77.1.254:7070"
#define LOCK 7
#define LOST 9

static struct {
    struct turns turns;
    uint32_t holds, learnt;
} * board;

static pid_t start_node(const char *more)
{
    char words[512], bpf[LAB_PATH];
    lab_bpf(&rack, bpf);
    snprintf(words, sizeof words,
             "serve --insecure --design alock --space " SPACE " --listen " NODE " --dev " LAB_UPLINK
             " --pin %s/near --local --keys dense --locks 64 --sessions 32 --holds 16 --lease 6s %s",
             bpf, more);
    return rack_start(words);
}

static pawl *open_session(bool near)
{
    pawl *p;
    CHECK_EQ(lab_enter(&rack, 1, near ? LAB_SWITCH : 1), 0);
    const char *where = near ? "pawl://" NODE "/" SPACE : "pawl://" NODE "/" SPACE "?memory=verbs";
    for (uint64_t limit = pawl_in(PATIENCE_NS); pawl_open(where, NULL, &p); pause_ns(20 * NS_PER_MS))
        if (pawl_now() > limit)
            CHECK_FAIL("pawl_open: %s", pawl_explain());
    CHECK_EQ(memory_of(p)->near.memory.base != NULL, near);
    CHECK_EQ(memory_of(p)->locker.seat.ep->node != FAB_NODE_ELSEWHERE, near);
    return p;
}

static void client(void *arg)
{
    pawl *p = open_session((uintptr_t)arg % 2);
    for (unsigned i = 0; i < TURNS; i++)
        take_turn(&board->turns, p, pawl_id(LOCK), pawl_in(PATIENCE_NS));
    CHECK_OK(pawl_close(p));
}

static void exclude(void)
{
    pid_t pids[CLIENTS];
    for (uintptr_t i = 0; i < CLIENTS; i++)
        pids[i] = child_start(client, (void *)i);
    for (unsigned i = 0; i < CLIENTS; i++)
        child_join(pids[i]);
    CHECK_EQ(board->turns.sum, CLIENTS * TURNS);
}

/* A local client sends nothing to lock. */
static void without_packets(void)
{
    pawl *p = open_session(true);
    const struct fab_counts *c = &memory_of(p)->far->node.fab.counts;
    uint64_t before = c->round_trips, begin = pawl_now();
    for (unsigned i = 0; i < FREE_TURNS; i++) {
        pawl_grant g;
        CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
        CHECK_OK(pawl_unlock(p, &g));
    }
    uint64_t ns = (pawl_now() - begin) / FREE_TURNS;
    CHECK(c->round_trips - before < FREE_TURNS / 10); /* those that renew its lease */
    printf("a local client locks and unlocks in %" PRIu64 " ns, with %" PRIu64 " round trips in %d turns\n", ns,
           c->round_trips - before, FREE_TURNS);
    CHECK_OK(pawl_close(p));
}

static void hold_until_lost(void *arg)
{
    pawl_grant g;
    pawl *p = open_session(arg != NULL);
    CHECK_OK(pawl_lock(p, pawl_id(LOST), PAWL_EXCLUSIVE, &g));
    __atomic_store_n(&board->holds, 1, __ATOMIC_RELEASE);
    for (uint64_t limit = pawl_in(PATIENCE_NS); !pawl_check(p, &g); pause_ns(NS_PER_MS))
        CHECK(pawl_now() < limit);
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ELOST);
    CHECK_OK(pawl_close(p));
    __atomic_store_n(&board->learnt, 1, __ATOMIC_RELEASE);
}

/* A client of the other cohort gets the lock. A local one cannot recover a remote one's without the process, which fences, and no
 * client elsewhere recovers from a local one: the process does. */
static void lose(bool near, bool stop)
{
    pawl_grant g;
    board->holds = board->learnt = 0;
    pid_t pid = child_start(hold_until_lost, near ? board : NULL);
    WAIT_FOR(__atomic_load_n(&board->holds, __ATOMIC_ACQUIRE));
    pawl *p = open_session(!near);
    CHECK_RC(pawl_trylock(p, pawl_id(LOST), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    if (stop)
        CHECK_EQ(kill(pid, SIGSTOP), 0);
    else
        child_kill(pid);
    CHECK_OK(pawl_timedlock(p, pawl_id(LOST), PAWL_EXCLUSIVE, pawl_in(PATIENCE_NS), &g));
    if (stop) {
        CHECK_EQ(kill(pid, SIGCONT), 0);
        child_join(pid);
        CHECK(board->learnt);
    }
    CHECK_OK(pawl_check(p, &g)); /* whatever the stopped one has done since has changed nothing */
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

/* The next process finds the memory, and local clients find it, too. */
static void next_process(pid_t *node)
{
    pawl_grant g;
    int status;
    pawl *p = open_session(true);
    CHECK_OK(pawl_lock(p, pawl_id(LOCK), PAWL_EXCLUSIVE, &g));
    CHECK_EQ(kill(*node, SIGKILL), 0);
    CHECK_EQ(waitpid(*node, &status, 0), *node);
    *node = start_node("");
    CHECK_OK(pawl_close(open_session(true)));
    CHECK_EQ(lab_enter(&rack, 1, LAB_SWITCH), 0);
    CHECK_OK(pawl_check(p, &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    rack_up("near", HOSTS, false);
    board = shared_memory(sizeof *board);
    pid_t node = start_node("--fresh");
    exclude();
    order_try(open_session);
    without_packets();
    lose(true, false);
    lose(false, false);
    lose(true, true);
    lose(false, true);
    next_process(&node);
    rack_end(node);
    return 0;
}
