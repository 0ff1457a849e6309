/* SPDX-License-Identifier: Apache-2.0 */
/* Eight hosts with several processes each lock, convert and unlock at random over real UDP, through a relay that loses, doubles and
 * delays packets; processes are killed at random. workers.h has the oracle. */
#define HOSTS 8
#define PER_HOST 3
#define WORKERS (HOSTS * PER_HOST)
#define LOCKS 1000000 /* in the space, */
#define HOT 8         /* of which these are fought for; one in four goes to the others */
#define LEASE_NS (3 * NS_PER_S)

#include "tests/udp/workers.h"

/* A process that is not killed, as a node would be: a design need not survive the loss of a host. */
static void stay(void *host)
{
    pawl *p = open_session(*(unsigned *)host);
    while (!__atomic_load_n(&oracle->stop, __ATOMIC_RELAXED) || !__atomic_load_n(&oracle->judged, __ATOMIC_RELAXED))
        pause_ns(10 * NS_PER_MS);
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    const char *text = getenv("PAWL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)getpid();
    const struct rack_test t = {.design = rack_design("srvlock"),
                                .servers = 2,
                                .room = rack_room(),
                                .machines = 2 * HOSTS, /* a number whose host died while it was made is free again after a lease */
                                .locks = LOCKS,
                                .lease_ns = LEASE_NS,
                                .faults = {.loss = 10, .duplicate = 20, .late = 20, .late_ns = 5 * NS_PER_MS},
                                .seed = seed};
    printf("seed %" PRIu64 "\n", seed);
    rng_seed(&rng, seed);
    oracle = shared_memory(sizeof *oracle);
    rack_begin(&t);
    pid_t stayers[HOSTS];
    for (unsigned i = 0; i < HOSTS; i++)
        stayers[i] = child_start(stay, &i);
    for (unsigned i = 0; i < WORKERS; i++)
        hire(i);
    for (uint64_t end = pawl_in(test_seconds() * NS_PER_S); pawl_now() < end;) {
        unsigned i = (unsigned)rng_below(&rng, WORKERS);
        pause_ns(rng_below(&rng, 80 * NS_PER_MS));
        child_kill(crew[i].pid);
        kills++;
        hire(i);
        for (unsigned k = 0; k < WORKERS; k++)
            look_after(k);
    }
    for (unsigned i = 1; i < WORKERS; i += 2, kills++)
        child_kill(crew[i].pid);
    __atomic_store_n(&oracle->stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WORKERS; i += 2)
        see_off(i);
    child_join(child_start(judge, NULL));
    __atomic_store_n(&oracle->judged, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < HOSTS; i++)
        child_join(stayers[i]);
    rack_end();
    printf("%s: %" PRIu64 " exclusive, %" PRIu64 " shared, %" PRIu64 " converted, %" PRIu64 " of the others, %" PRIu64
           " sessions lost, %" PRIu64 " kills\n",
           t.design, oracle->exclusive, oracle->shared, oracle->converted, oracle->others, oracle->lost, kills);
    CHECK(oracle->exclusive && oracle->shared && oracle->others);
    return 0;
}
