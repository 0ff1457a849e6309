/* SPDX-License-Identifier: Apache-2.0 */
/* From the release of a lock to a sleeping waiter in another process, against a bare futex wake between the same two. */
#include "bench/kit.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 21
#define TURNS 20 /* of each kind in a round */
#define ASLEEP_NS (2 * NS_PER_MS)

enum job { JOB_NONE, JOB_FUTEX, JOB_PAWL, JOB_END };

struct shared {
    _Alignas(CACHE_LINE) uint32_t job;  /* for the waiter */
    _Alignas(CACHE_LINE) uint32_t done; /* turns that the waiter has ended */
    _Alignas(CACHE_LINE) uint32_t word; /* of the bare futex */
    _Alignas(CACHE_LINE) uint64_t woken_ns;
};

static struct shared *shared;

static const pawl_options options = {.keys = PAWL_KEYS_SPARSE, .capacity = 64};

static void wait_for_futex(void)
{
    while (!__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &shared->word, FUTEX_WAIT, 0, NULL, NULL, 0);
    shared->woken_ns = kit_now();
}

static void wait_for_pawl(pawl *p)
{
    pawl_grant g;
    if (pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g))
        kit_die("waiter: %s", pawl_explain());
    shared->woken_ns = kit_now();
    pawl_unlock(p, &g);
}

static void waiter(struct kit *k, int cpu)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(cpu);
    pawl *p = kit_open(k, &options);
    for (uint32_t turn = 1;; turn++) {
        uint32_t job;
        while (!(job = __atomic_load_n(&shared->job, __ATOMIC_SEQ_CST)))
            syscall(SYS_futex, &shared->job, FUTEX_WAIT, 0, NULL, NULL, 0);
        __atomic_store_n(&shared->job, JOB_NONE, __ATOMIC_SEQ_CST);
        if (job == JOB_END)
            break;
        if (job == JOB_FUTEX)
            wait_for_futex();
        else
            wait_for_pawl(p);
        kit_post(&shared->done, turn);
    }
    pawl_close(p);
    exit(0);
}

/* Asleep for certain: it had time to look around, and the kernel says so. */
static void await_asleep(pid_t pid)
{
    kit_sleep(ASLEEP_NS);
    while (__atomic_load_n(&shared->job, __ATOMIC_SEQ_CST) != JOB_NONE || !kit_is_asleep(pid))
        kit_sleep(NS_PER_MS / 10);
}

static double one_turn(pawl *p, pid_t pid, enum job job, uint32_t turn)
{
    pawl_grant g;
    shared->word = 0;
    if (job == JOB_PAWL && pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g))
        kit_die("holder: %s", pawl_explain());
    kit_post(&shared->job, job);
    await_asleep(pid);
    uint64_t start = kit_now();
    if (job == JOB_PAWL) {
        pawl_unlock(p, &g);
    } else {
        __atomic_store_n(&shared->word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    kit_await(&shared->done, turn);
    return (double)(shared->woken_ns - start);
}

static void compare(struct kit *k, int holder_cpu, int waiter_cpu, const char *placement)
{
    static double bare[TURNS], ours[TURNS], bares[ROUNDS], ourses[ROUNDS], ratio[ROUNDS];
    unsigned rounds = (unsigned)max_u64(11, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    uint32_t turn = 0;
    memset(shared, 0, sizeof *shared);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid)
        waiter(k, waiter_cpu);
    kit_pin(holder_cpu);
    pawl *p = kit_open(k, &options);
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned j = 0; j < TURNS; j++) {
            bare[j] = one_turn(p, pid, JOB_FUTEX, ++turn);
            ours[j] = one_turn(p, pid, JOB_PAWL, ++turn);
        }
        bares[i] = kit_percentile(bare, TURNS, 0.5);
        ourses[i] = kit_percentile(ours, TURNS, 0.5);
        ratio[i] = ourses[i] / bares[i];
    }
    kit_post(&shared->job, JOB_END);
    waitpid(pid, NULL, 0);
    pawl_close(p);
    char what[96];
    snprintf(what, sizeof what, "%s: futex %.2f us, pawl %.2f us, ratio", placement, kit_percentile(bares, rounds, 0.5) / 1000,
             kit_percentile(ourses, rounds, 0.5) / 1000);
    kit_judge(k, what, kit_percentile(ratio, rounds, 0.5), "x", 1.3);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "release to a sleeping waiter in another process against a bare futex wake");
    shared = kit_shared(sizeof *shared);
    printf("two processes; the waiter sleeps for at least 2 ms before; median of rounds of %d turns each\n", TURNS);
    compare(&k, k.cpus[0], k.cpus[0], "same core");
    if (k.cpus[0] != k.cpus[1])
        compare(&k, k.cpus[0], k.cpus[1], "other core");
    return kit_end(&k);
}
