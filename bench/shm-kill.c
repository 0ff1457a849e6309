/* SPDX-License-Identifier: Apache-2.0 */
/* From SIGKILL of a holder to the next one, a process that sleeps in pawl_lock, awake with the lock. */
#include "bench/kit.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILLS 300
#define ASLEEP_NS (2 * NS_PER_MS)
#define BOUND_US 1000

struct shared {
    uint32_t held;  /* the holder of this turn has the lock */
    uint32_t turn;  /* the waiter may wait; 0: not yet */
    uint32_t waits; /* it is about to */
    uint32_t done;  /* and has ended */
    uint64_t woken_ns, token;
};

static struct shared *shared;

static const pawl_options options = {.keys = PAWL_KEYS_SPARSE, .capacity = 64};

static void take(struct kit *k, pawl *p, pawl_grant *g)
{
    if (pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, g))
        kit_die("could not lock %s: %s", k->place, pawl_explain());
}

static void holder(struct kit *k, uint32_t turn)
{
    pawl_grant g;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(k->cpus[0]);
    take(k, kit_open(k, &options), &g);
    shared->token = g.token;
    kit_post(&shared->held, turn);
    for (;;)
        pause();
}

static void waiter(struct kit *k, uint32_t turns)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(k->cpus[1]);
    pawl *p = kit_open(k, &options);
    for (uint32_t turn = 1; turn <= turns; turn++) {
        pawl_grant g;
        kit_await(&shared->turn, turn);
        __atomic_store_n(&shared->waits, turn, __ATOMIC_SEQ_CST);
        take(k, p, &g);
        shared->woken_ns = kit_now();
        if (g.token <= shared->token)
            kit_die("the token did not rise");
        pawl_unlock(p, &g);
        kit_post(&shared->done, turn);
    }
    pawl_close(p);
    exit(0);
}

static double one_kill(struct kit *k, pid_t waiting, uint32_t turn)
{
    pid_t holding = fork();
    if (!holding)
        holder(k, turn);
    kit_await(&shared->held, turn);
    kit_post(&shared->turn, turn);
    kit_sleep(ASLEEP_NS);
    while (__atomic_load_n(&shared->waits, __ATOMIC_SEQ_CST) != turn || !kit_is_asleep(waiting))
        kit_sleep(NS_PER_MS / 10);
    uint64_t start = kit_now();
    kill(holding, SIGKILL);
    kit_await(&shared->done, turn);
    waitpid(holding, NULL, 0);
    return (double)(shared->woken_ns - start) / 1000;
}

int main(int argc, char **argv)
{
    static double us[KILLS];
    struct kit k;
    kit_begin(&k, argc, argv, "SIGKILL of the holder until the next holder is awake");
    shared = kit_shared(sizeof *shared);
    unsigned kills = (unsigned)max_u64(11, min_u64(KILLS, (uint64_t)(KILLS * k.scale)));
    printf("%u kills; holder on core %d, waiter on core %d, asleep for at least 2 ms before\n", kills, k.cpus[0], k.cpus[1]);
    fflush(stdout);
    pid_t waiting = fork();
    if (!waiting)
        waiter(&k, kills);
    for (unsigned i = 0; i < kills; i++)
        us[i] = one_kill(&k, waiting, i + 1);
    waitpid(waiting, NULL, 0);
    kit_judge(&k, "median", kit_percentile(us, kills, 0.5), " us", BOUND_US);
    kit_judge(&k, "90 %", kit_percentile(us, kills, 0.9), " us", BOUND_US);
    printf("%-58s %9.2f us\n%-58s %9.2f us\n", "99 %", kit_percentile(us, kills, 0.99), "largest", us[kills - 1]);
    return kit_end(&k);
}
