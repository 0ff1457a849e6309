/* SPDX-License-Identifier: Apache-2.0 */
/* The switch is killed and comes back without its state, all processes of a host are killed, both at once, and the coordinator:
 * again and again, over real UDP, while hosts lock and unlock. Nothing is granted twice (workers.h), and live processes keep their
 * holds: on each host a process holds some locks throughout, and checks. */
#define HOSTS 4
#define PER_HOST 2
#define WORKERS (HOSTS * PER_HOST)
#define LOCKS 100000
#define HOT 8
#define LEASE_NS (5 * NS_PER_S) /* the machine may stop any process for seconds, and no keeper shall be lost by that */

#include "tests/udp/keepers.h"

#define SECONDS_MAX 600
#define STRIKE_NS (2 * NS_PER_S)
#define DOWN_NS (400 * NS_PER_MS) /* at most, of switch and coordinator: much less than a lease */

static struct coord_params coordinator_params(void)
{
    return keepers_rack("fisslock");
}

static void switch_main(void *arg)
{
    struct station s;
    const struct net_addr coordinator = net_v4(RACK_LOCALHOST, (uint16_t)rack_board->coordinator_port);
    const struct station_params p = {.member.at = net_v4(RACK_LOCALHOST, (uint16_t)(coordinator.port + 1)),
                                     .member.coordinators = coord_list_one(coordinator),
                                     .member.space = rack_space,
                                     .member.is_switch = true,
                                     .member.deadline = pawl_in(LIMIT_NS),
                                     .member.stop = &rack_stop};
    CHECK_EQ(station_open(&s, &p), 0);
    station_run(&s);
}

/* ---- the one that kills ---- */

static pid_t coordinator, switcher;
static uint64_t switches, hosts, both, coordinations;

static void strike(void)
{
    unsigned what = (unsigned)rng_below(&rng, 8), host = (unsigned)rng_below(&rng, HOSTS);
    bool the_switch = what < 6, a_host = what == 4 || what == 5 || what == 6, the_coordinator = what == 7 || what == 5;
    if (the_switch)
        child_kill(switcher);
    if (a_host)
        kill_host(host);
    if (the_coordinator)
        child_kill(coordinator);
    pause_ns(rng_below(&rng, DOWN_NS));
    if (the_coordinator)
        coordinator = start_coordinator();
    if (the_switch)
        switcher = child_start(switch_main, NULL);
    if (a_host)
        revive_host(host);
    switches += the_switch;
    hosts += a_host;
    both += the_switch && a_host;
    coordinations += the_coordinator;
}

int main(void)
{
    const char *text = getenv("PAWL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)getpid();
    printf("seed %" PRIu64 "\n", seed);
    rng_seed(&rng, seed);
    keepers_begin();
    coordinator = start_coordinator();
    switcher = child_start(switch_main, NULL);
    for (unsigned i = 0; i < HOSTS; i++)
        revive_host(i);
    for (uint64_t end = pawl_in(min_u64(test_seconds(), SECONDS_MAX) * NS_PER_S); pawl_now() < end;) {
        pause_ns(STRIKE_NS / 4 + rng_below(&rng, 3 * STRIKE_NS / 2)); /* some come before the one before has been recovered from */
        strike();
        for (unsigned i = 0; i < WORKERS; i++)
            look_after(i);
    }
    uint64_t kept = keepers_end();
    child_kill(switcher);
    child_kill(coordinator);
    printf("%" PRIu64 " exclusive, %" PRIu64 " shared, %" PRIu64 " converted, %" PRIu64 " of the others, %" PRIu64
           " sessions lost; killed: the switch %" PRIu64 " times, hosts %" PRIu64 ", both at once %" PRIu64
           ", the coordinator %" PRIu64 "; keepers looked %" PRIu64 " times, and %" PRIu64 " lost their session\n",
           oracle->exclusive, oracle->shared, oracle->converted, oracle->others, oracle->lost, switches, hosts, both, coordinations,
           kept, keeping->lost);
    return 0;
}
