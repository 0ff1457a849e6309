/* SPDX-License-Identifier: Apache-2.0 */
/* Two racks over real UDP, each with a switch of its own behind a network that loses, doubles and delays; hosts have locks in both.
 * Locks are divided anew again and again by command while one switch or both are killed and come back, at times at another address,
 * all processes of a host are killed, and the coordinator. Nothing is granted twice (workers.h), and live processes keep their
 * holds (keepers.h). */
#define HOSTS 4
#define PER_HOST 2
#define WORKERS (HOSTS * PER_HOST)
#define LOCKS 10000
#define HOT 8
#define LEASE_NS (5 * NS_PER_S) /* the machine may stop any process for seconds, and no keeper shall be lost by that */

#include "tests/udp/keepers.h"

#define RACKS 2
#define SECONDS_MAX 600
#define STRIKE_NS (3 * NS_PER_S)
#define DOWN_NS (400 * NS_PER_MS) /* at most, of switches and coordinator: much less than a lease */

static struct coord_params coordinator_params(void)
{
    struct coord_params p = keepers_rack("fisslock-racks");
    p.racks = RACKS;
    return p;
}

/* ---- switches ---- */

static const struct rack_test network = {.faults = {.loss = 10, .duplicate = 20, .late = 20, .late_ns = 5 * NS_PER_MS}, .seed = 1};
static pid_t coordinator, switches[RACKS], relays[RACKS];

static struct net_addr coordinator_at(void)
{
    return net_v4(RACK_LOCALHOST, (uint16_t)rack_board->coordinator_port);
}

static void switch_main(void *arg)
{
    unsigned rack = *(unsigned *)arg;
    struct net_addr front = net_v4(RACK_LOCALHOST, (uint16_t)rack_board->server_ports[rack]), at = front;
    struct station s;
    at.port++;
    const struct station_params p = {.member.at = at,
                                     .member.known_as = front,
                                     .member.coordinators = coord_list_one(coordinator_at()),
                                     .member.space = rack_space,
                                     .member.is_switch = true,
                                     .member.rack = rack + 1,
                                     .member.deadline = pawl_in(LIMIT_NS),
                                     .member.stop = &rack_stop};
    CHECK_EQ(station_open(&s, &p), 0);
    station_run(&s);
}

static void start_switch(unsigned rack)
{
    switches[rack] = child_start(switch_main, &rack);
}

static void start_relay(unsigned rack)
{
    struct rack_relay_arg arg = {.t = &network, .number = rack};
    rack_board->server_ports[rack] = rack_port_pair();
    relays[rack] = child_start(rack_relay_main, &arg);
}

/* ---- rules ---- */

static struct coord_ruled ruled;

/* 0, -EINPROGRESS, or why not. */
static int ask_rules(unsigned first, unsigned end, unsigned rack, bool change)
{
    struct coord_packet p;
    coord_make(&p, COORD_RULES, rack_space, NULL, rng_next(&rng) | 1);
    p.code = change;
    p.head.index = first;
    p.head.generation = end;
    p.role = rack;
    const struct seal_asker asker = seal_asker(&rack_ring);
    int rc = exchange(coordinator_at(), &asker, net_v4(RACK_LOCALHOST, 0), &p, sizeof p, COORD_RULED, pawl_in(LIMIT_NS), &ruled,
                      sizeof ruled);
    CHECK_EQ(rc, 0);
    return ruled.packet.code;
}

static uint64_t refused;

static void move_some(void)
{
    unsigned first = (unsigned)rng_below(&rng, RACK_SHARDS), end = first + 1 + (unsigned)rng_below(&rng, RACK_SHARDS - first);
    int rc = ask_rules(first, end, (unsigned)rng_below(&rng, RACKS), true);
    CHECK(rc == 0 || rc == -EINPROGRESS || rc == -EBUSY || rc == -EAGAIN);
    refused += rc == -EBUSY || rc == -EAGAIN;
}

/* ---- the one that kills ---- */

static uint64_t killed_switches, killed_hosts, killed_coordinators, moved_switches;

/* A switch that is gone for good, with all that lies before it; another comes, elsewhere. Hosts report their holds to it, if it
 * comes within a lease; but the loss of the old one is only known after a lease. So no client must hold anything there: rules give
 * it no locks first. */
static void replace(unsigned rack)
{
    WAIT_FOR(ask_rules(0, RACK_SHARDS, !rack, true) == 0);
    child_kill(switches[rack]);
    child_kill(relays[rack]);
    pause_ns(LEASE_NS + LEASE_NS / 4);
    start_relay(rack);
    start_switch(rack);
    moved_switches++;
}

static void strike(void)
{
    unsigned what = (unsigned)rng_below(&rng, 8), host = (unsigned)rng_below(&rng, HOSTS), rack = (unsigned)rng_below(&rng, RACKS);
    bool one = what < 4, both = what == 4, a_host = what == 3 || what == 5, the_coordinator = what == 2 || what == 6;
    for (unsigned i = 0; i < RACKS; i++)
        if (both || (one && i == rack))
            child_kill(switches[i]);
    if (a_host)
        kill_host(host);
    if (the_coordinator)
        child_kill(coordinator);
    pause_ns(rng_below(&rng, DOWN_NS));
    if (the_coordinator)
        coordinator = start_coordinator();
    for (unsigned i = 0; i < RACKS; i++)
        if (both || (one && i == rack))
            start_switch(i);
    if (a_host)
        revive_host(host);
    killed_switches += both ? RACKS : one;
    killed_hosts += a_host;
    killed_coordinators += the_coordinator;
}

int main(void)
{
    const char *text = getenv("PAWL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)getpid();
    uint64_t seconds = min_u64(test_seconds(), SECONDS_MAX);
    printf("seed %" PRIu64 "\n", seed);
    rng_seed(&rng, seed);
    keepers_begin();
    coordinator = start_coordinator();
    for (unsigned i = 0; i < RACKS; i++) {
        start_relay(i);
        start_switch(i);
    }
    for (unsigned i = 0; i < HOSTS; i++)
        revive_host(i);
    uint64_t begin = pawl_now(), end = begin + seconds * NS_PER_S, next_strike = begin + STRIKE_NS / 2;
    for (bool replaced = false; pawl_now() < end;) {
        pause_ns(rng_below(&rng, STRIKE_NS / 4));
        move_some();
        if (pawl_now() >= next_strike) {
            strike();
            next_strike = pawl_now() + STRIKE_NS / 4 +
                          rng_below(&rng, STRIKE_NS); /* some come before the one before has been recovered from */
        }
        if (!replaced && pawl_now() > begin + (end - begin) / 2) {
            replace((unsigned)rng_below(&rng, RACKS));
            replaced = true;
        }
        for (unsigned i = 0; i < WORKERS; i++)
            look_after(i);
    }
    uint64_t kept = keepers_end();
    ask_rules(0, 1, 0, false);
    printf("%" PRIu64 " exclusive, %" PRIu64 " shared, %" PRIu64 " converted, %" PRIu64 " of the others, %" PRIu64
           " sessions lost; locks were divided anew %" PRIu32 " times, and %" PRIu64 " times not yet; killed: switches %" PRIu64
           ", hosts %" PRIu64 ", the coordinator %" PRIu64 "; switches at another address %" PRIu64 "; keepers looked %" PRIu64
           " times\n",
           oracle->exclusive, oracle->shared, oracle->converted, oracle->others, oracle->lost, ruled.rules.version, refused,
           killed_switches, killed_hosts, killed_coordinators, moved_switches, kept);
    CHECK(ruled.rules.version && moved_switches);
    for (unsigned i = 0; i < RACKS; i++) {
        child_kill(switches[i]);
        child_kill(relays[i]);
    }
    child_kill(coordinator);
    return 0;
}
