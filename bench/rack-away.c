/* SPDX-License-Identifier: Apache-2.0 */
/* Goodput of a host that has joined while its coordinator is gone for 45 s. There are two racks, each with a coordinator and a lock
 * server in processes of their own, and a thread that locks and unlocks known names. The coordinator of the second rack is killed;
 * the first rack shows how fast the machine is meanwhile. Medians of the ratios of single seconds are compared. The holder of one
 * more lock in the second rack keeps it all the time. */
#include "bench/kit.h"
#include "bench/parts.h"

#include <inttypes.h>
#include <pthread.h>

#define AWAY_S 45u
#define AROUND_S 23u /* before, and after */
#define NAMES 64u
#define LEAST 0.97

static struct rack {
    unsigned port; /* of the coordinator; the lock server has the next one */
    pawl *p;
    uint64_t turns;
    pthread_t thread;
} racks[2];
static bool stop;

static void *work(void *arg)
{
    struct rack *r = arg;
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i = (i + 1) % NAMES) {
        char name[32];
        pawl_grant g;
        snprintf(name, sizeof name, "name %u", i);
        if (pawl_timedlock(r->p, pawl_name(name), PAWL_EXCLUSIVE, pawl_in(OPEN_NS), &g) || pawl_unlock(r->p, &g))
            kit_die("%s", pawl_explain());
        __atomic_fetch_add(&r->turns, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Locks of the second rack for each one of the first, second by second. */
static void compare(const char *when, unsigned seconds, double *ratios)
{
    uint64_t from[2], sum[2] = {0}, count[2];
    for (unsigned n = 0; n < seconds; n++) {
        for (unsigned i = 0; i < 2; i++)
            from[i] = __atomic_load_n(&racks[i].turns, __ATOMIC_ACQUIRE);
        kit_sleep(NS_PER_S);
        for (unsigned i = 0; i < 2; i++) {
            count[i] = __atomic_load_n(&racks[i].turns, __ATOMIC_ACQUIRE) - from[i];
            sum[i] += count[i];
        }
        ratios[n] = (double)count[1] / (double)max_u64(count[0], 1);
    }
    printf("%s, %u s: %" PRIu64 " and %" PRIu64 " locks a second\n", when, seconds, sum[0] / seconds, sum[1] / seconds);
}

static void start_rack(unsigned i, unsigned port)
{
    struct rack *r = &racks[i];
    char space[32], place[96];
    snprintf(space, sizeof space, "away%u-%d", i, (int)getpid());
    snprintf(place, sizeof place, "pawl://127.0.0.1:%u/%s", port, space);
    snprintf(words[2 * i], WORDS, "--space %s --design srvlock --listen 127.0.0.1:%u --state %s --locks 1000 --lease 5 --own 0",
             space, port, folder);
    snprintf(words[2 * i + 1], WORDS, "--join 127.0.0.1:%u --space %s --listen 127.0.0.1:%u", port, space, port + 1);
    for (unsigned part = 2 * i; part < 2 * i + 2; part++) {
        start_part(part, part % 2 ? "" : "--fresh");
        await_part(part);
    }
    if (pawl_open(place, &(pawl_options){.open_ns = OPEN_NS}, &r->p))
        kit_die("%s", pawl_explain());
}

int main(int argc, char **argv)
{
    struct kit k;
    double load[3] = {0}, with[2 * AROUND_S], without[AWAY_S];
    pawl_grant held;
    unsigned port = 9000 + (unsigned)getpid() % 500 * 6;
    kit_begin(&k, argc, argv, "goodput without a coordinator");
    make_folder();
    prepare_parts(argv[0]);
    for (unsigned i = 0; i < 2; i++)
        start_rack(i, port + 2 * i);
    if (pawl_timedlock(racks[1].p, pawl_name("held"), PAWL_EXCLUSIVE, pawl_in(OPEN_NS), &held))
        kit_die("%s", pawl_explain());
    for (unsigned i = 0; i < 2; i++)
        if (pthread_create(&racks[i].thread, NULL, work, &racks[i]))
            kit_die("cannot start a thread");
    kit_sleep(2 * NS_PER_S); /* names are known from then on */
    compare("with both coordinators", AROUND_S, with);
    end_part(2, SIGKILL);
    compare("without that of the second rack", AWAY_S, without);
    bool kept = !pawl_check(racks[1].p, &held);
    start_part(2, "");
    await_part(2);
    compare("with both again", AROUND_S, with + AROUND_S);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(racks[i].thread, NULL);
    kept = kept && !pawl_unlock(racks[1].p, &held);
    for (unsigned i = 0; i < 2; i++)
        pawl_close(racks[i].p);
    printf("load of the machine: %.1f\n", getloadavg(load, 3) < 1 ? -1 : load[0]);
    kit_judge_least(&k, "goodput without a coordinator, of that with one",
                    kit_percentile(without, AWAY_S, 0.5) / kit_percentile(with, 2 * AROUND_S, 0.5), "", LEAST);
    kit_judge(&k, "holds lost", kept ? 0 : 1, "", 0);
    return kit_end(&k);
}
