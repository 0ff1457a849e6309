/* SPDX-License-Identifier: Apache-2.0 */
/* How long a host that was never there takes to join after the death of a leader: three coordinators on an etcd of three, all of
 * them processes on this machine, and a lock server. The leader is killed, a client on another address opens the rack, and the
 * killed coordinator is started again. 100 times, or --scale F times as often. The median of them is judged. */
#include "bench/etcd.h"
#include "bench/kit.h"
#include "bench/parts.h"

#include <inttypes.h>

#define COORDINATORS 3u
#define ROUNDS 100u
#define BOUND_MS 2000

/* The coordinator with the highest term. */
static unsigned leader(void)
{
    uint64_t highest = 0;
    unsigned found = 0;
    for (unsigned i = 0; i < COORDINATORS; i++) {
        char term[64] = "";
        if (!says(i, "err", "leads, with term ", term, sizeof term))
            continue;
        uint64_t number = strtoull(term, NULL, 10);
        found = number > highest ? i : found;
        highest = number > highest ? number : highest;
    }
    return found;
}

static void start_rack(const char *store, const char *space, unsigned base)
{
    for (unsigned i = 0; i < COORDINATORS; i++) {
        snprintf(words[i], WORDS, "--space %s --design srvlock --listen 127.0.0.1:%u --store %s --locks 1000 --lease 5 --own 0",
                 space, base + i, store);
        start_part(i, i ? "" : "--fresh");
        await_part(i);
    }
    snprintf(words[COORDINATORS], WORDS, "--join 127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u --space %s --listen 127.0.0.1:%u", base,
             base + 1, base + 2, space, base + COORDINATORS);
    start_part(COORDINATORS, "");
    await_part(COORDINATORS);
}

/* Milliseconds until a host at this address has joined. */
static double join_as(unsigned host, unsigned base, const char *space)
{
    char place[256];
    pawl *p;
    snprintf(place, sizeof place, "pawl://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u/%s?host=127.0.%u.%u", base, base + 1, base + 2,
             space, 1 + host / 200, 1 + host % 200);
    uint64_t from = kit_now();
    if (pawl_open(place, &(pawl_options){.open_ns = OPEN_NS}, &p))
        kit_die("%s", pawl_explain());
    double ms = (double)(kit_now() - from) / (double)NS_PER_MS;
    pawl_close(p);
    return ms;
}

int main(int argc, char **argv)
{
    struct kit k;
    char store[128], space[32];
    double ms[ROUNDS * 10], load[3] = {0};
    unsigned base = 9000 + (unsigned)getpid() % 500 * 6;
    kit_begin(&k, argc, argv, "joining after a leader's death");
    make_folder();
    prepare_parts(argv[0]);
    snprintf(space, sizeof space, "leader%d", (int)getpid());
    if (!start_etcd(store))
        return kit_end(&k);
    start_rack(store, space, base);
    unsigned rounds = (unsigned)min_u64((uint64_t)max_u64(1, (uint64_t)(ROUNDS * k.scale)), sizeof ms / sizeof *ms);
    join_as(0, base, space);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned old = leader();
        end_part(old, SIGKILL);
        ms[i] = join_as(1 + i, base, space);
        start_part(old, "");
        await_part(old);
    }
    if (getloadavg(load, 3) < 1)
        load[0] = -1;
    double slowest = kit_percentile(ms, rounds, 1);
    printf("a leader was killed %u times, with a load of %.1f: the slowest join took %.0f ms\n", rounds, load[0], slowest);
    kit_judge(&k, "joining after a leader's death, median", kit_percentile(ms, rounds, 0.5), "ms", BOUND_MS);
    return kit_end(&k);
}
