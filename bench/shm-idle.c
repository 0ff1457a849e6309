/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of processes that wait for a held lock: the processor time of all their threads together. */
#include "bench/kit.h"
#include "world/world.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAITERS 16
#define SETTLE_NS (500 * NS_PER_MS)
#define SECONDS 5
#define BOUND_PERCENT 5

static const pawl_options options = {.keys = PAWL_KEYS_SPARSE, .capacity = 64};

static uint64_t used_ns(const pid_t *pids)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < WAITERS; i++) {
        clockid_t clock;
        if (clock_getcpuclockid(pids[i], &clock))
            kit_die("a waiter is gone");
        sum += world_clock(clock);
    }
    return sum;
}

static void waiter(struct kit *k)
{
    pawl_grant g;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pawl *p = kit_open(k, &options);
    if (pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g) || pawl_unlock(p, &g))
        kit_die("waiter: %s", pawl_explain());
    pawl_close(p);
    exit(0);
}

int main(int argc, char **argv)
{
    struct kit k;
    pid_t pids[WAITERS];
    pawl_grant g;
    kit_begin(&k, argc, argv, "processes that wait for one held lock");
    uint64_t span_ns = max_u64(NS_PER_S, (uint64_t)(SECONDS * k.scale * (double)NS_PER_S));
    printf("%d processes, not pinned, asleep; processor time of all their threads over %.1f s\n", WAITERS,
           (double)span_ns / (double)NS_PER_S);
    fflush(stdout);
    for (unsigned i = 0; i < WAITERS; i++) {
        pids[i] = fork();
        if (!pids[i]) {
            kit_sleep(SETTLE_NS); /* the holder is first */
            waiter(&k);
        }
    }
    pawl *p = kit_open(&k, &options);
    if (pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g))
        kit_die("holder: %s", pawl_explain());
    kit_sleep(2 * SETTLE_NS);
    for (pawl_state s = {0}; s.waiters < WAITERS; kit_sleep(NS_PER_MS))
        pawl_query(p, pawl_id(1), &s);
    kit_sleep(SETTLE_NS);
    uint64_t start = kit_now(), before = used_ns(pids);
    kit_sleep(span_ns);
    double used = (double)(used_ns(pids) - before), wall = (double)(kit_now() - start);
    pawl_unlock(p, &g);
    for (unsigned i = 0; i < WAITERS; i++)
        waitpid(pids[i], NULL, 0);
    pawl_close(p);
    kit_judge(&k, "of one core", 100 * used / wall, " %", BOUND_PERCENT);
    return kit_end(&k);
}
