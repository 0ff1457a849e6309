/* SPDX-License-Identifier: Apache-2.0 */
/* Many processes of one host open a rack at once, again and again, while the host's memory is made and removed. Every one of them
 * gets a session: none finds a memory that is not whole, nor is stopped by one that a killed process left behind. */
#include "tests/udp/rack.h"

#define PROCESSES 12u /* below the sessions of a host */
#define ROUNDS 24u
#define LEASE_NS (20 * NS_PER_S)

static struct board {
    uint32_t waiting, go;
} * board;

struct opener {
    bool dies; /* before it closes: if it is the last one, the memory stays */
};

static void open_once(void *arg)
{
    const struct opener *o = arg;
    __atomic_add_fetch(&board->waiting, 1, __ATOMIC_ACQ_REL);
    while (!__atomic_load_n(&board->go, __ATOMIC_ACQUIRE))
        sched_yield();
    pawl *p = rack_open(0, &(pawl_options){.lease_ns = LEASE_NS});
    pawl_grant g;
    if (o->dies)
        raise(SIGKILL);
    CHECK_EQ(pawl_timedlock(p, pawl_id(1), PAWL_SHARED, pawl_in(LIMIT_NS), &g), 0);
    CHECK_EQ(pawl_unlock(p, &g), 0);
    CHECK_EQ(pawl_close(p), 0);
    exit(0);
}

static void one_round(unsigned round)
{
    pid_t pids[PROCESSES];
    unsigned died = 0;
    board->waiting = board->go = 0;
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct opener o = {.dies = round % 4 == 3 && i % 4 == 0};
        pids[i] = child_start(open_once, &o);
    }
    WAIT_FOR(__atomic_load_n(&board->waiting, __ATOMIC_ACQUIRE) == PROCESSES);
    __atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status;
        CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
        died += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        CHECK(!status || WIFSIGNALED(status));
    }
    CHECK_EQ(died, round % 4 == 3 ? PROCESSES / 4 : 0);
}

int main(void)
{
    const struct rack_test t = {.design = "fisslock", .locks = 100, .lease_ns = LEASE_NS}; /* the host's memory is large */
    board = shared_memory(sizeof *board);
    rack_begin(&t);
    for (unsigned round = 0; round < ROUNDS; round++)
        one_round(round);
    printf("%u processes opened the rack at once, %u times\n", PROCESSES, ROUNDS);
    rack_end();
    return 0;
}
