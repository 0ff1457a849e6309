/* SPDX-License-Identifier: Apache-2.0 */
/* Goodput of a host that has joined while its coordinator is gone for 45 s: two threads lock and unlock known names, with a lock
 * server in a process of its own. The time without a coordinator is compared with the times before and after it, in one run. The
 * holder of one more lock keeps it all the time. */
#include "bench/kit.h"
#include "bench/parts.h"

#include <inttypes.h>
#include <pthread.h>

#define AWAY_S 45u
#define AROUND_S 23u /* before, and after */
#define THREADS 2u
#define NAMES 64u
#define LEAST 0.97

static pawl *rack;
static uint64_t turns[THREADS];
static bool stop;

static void *work(void *arg)
{
    uint64_t *count = arg;
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i = (i + 1) % NAMES) {
        char name[32];
        pawl_grant g;
        snprintf(name, sizeof name, "%" PRIdPTR "/%u", (intptr_t)(count - turns), i);
        if (pawl_timedlock(rack, pawl_name(name), PAWL_EXCLUSIVE, pawl_in(OPEN_NS), &g) || pawl_unlock(rack, &g))
            kit_die("%s", pawl_explain());
        __atomic_fetch_add(count, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Locks per second in so many seconds. */
static double goodput(unsigned seconds)
{
    uint64_t from = kit_now(), before = 0, after = 0;
    for (unsigned i = 0; i < THREADS; i++)
        before += __atomic_load_n(&turns[i], __ATOMIC_ACQUIRE);
    kit_sleep(seconds * NS_PER_S);
    for (unsigned i = 0; i < THREADS; i++)
        after += __atomic_load_n(&turns[i], __ATOMIC_ACQUIRE);
    return (double)(after - before) * (double)NS_PER_S / (double)(kit_now() - from);
}

static void start_rack(const char *space, unsigned base)
{
    snprintf(words[0], WORDS, "--space %s --design srvlock --listen 127.0.0.1:%u --state %s --locks 1000 --lease 5 --own 0", space,
             base, folder);
    snprintf(words[1], WORDS, "--join 127.0.0.1:%u --space %s --listen 127.0.0.1:%u", base, space, base + 1);
    start_part(0, "--fresh");
    await_part(0);
    start_part(1, "");
    await_part(1);
}

int main(int argc, char **argv)
{
    struct kit k;
    char space[32], place[96];
    double load[3] = {0};
    pthread_t threads[THREADS];
    pawl_grant held;
    unsigned base = 9000 + (unsigned)getpid() % 500 * 6;
    kit_begin(&k, argc, argv, "goodput without a coordinator");
    make_folder();
    prepare_parts(argv[0]);
    snprintf(space, sizeof space, "away%d", (int)getpid());
    snprintf(place, sizeof place, "pawl://127.0.0.1:%u/%s", base, space);
    start_rack(space, base);
    if (pawl_open(place, &(pawl_options){.open_ns = OPEN_NS}, &rack) ||
        pawl_timedlock(rack, pawl_name("held"), PAWL_EXCLUSIVE, pawl_in(OPEN_NS), &held))
        kit_die("%s", pawl_explain());
    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, &turns[i]))
            kit_die("cannot start a thread");
    goodput(2); /* names are known from then on */
    double before = goodput(AROUND_S);
    end_part(0, SIGKILL);
    double away = goodput(AWAY_S);
    bool kept = !pawl_check(rack, &held);
    start_part(0, "");
    await_part(0);
    double after = goodput(AROUND_S);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    kept = kept && !pawl_unlock(rack, &held);
    pawl_close(rack);
    if (getloadavg(load, 3) < 1)
        load[0] = -1;
    printf("locks per second before, without a coordinator for %u s, and after: %.0f, %.0f, %.0f; with a load of %.1f\n", AWAY_S,
           before, away, after, load[0]);
    kit_judge_least(&k, "goodput without a coordinator, of that with one", away * 2 / (before + after), "", LEAST);
    kit_judge(&k, "holds lost", kept ? 0 : 1, "", 0);
    return kit_end(&k);
}
