/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock over real UDP while everything dies: the switch, its backup and lock servers are killed again and again, for less or for
 * more than a lease, and clients with them. Nothing is granted twice, tokens rise, live processes make progress (workers.h).
 * Sessions may be lost: a switch or server that takes over does not know the holders. */
#define HOSTS 3
#define WORKERS 6
#define LOCKS 2000
#define HOT 6
#define LEASE_NS (700 * NS_PER_MS)

#include "tests/udp/workers.h"

#define SERVERS 2
#define SHARE 3 /* of the time that tests have */
#define SECONDS_MAX 600

enum { SWITCH, BACKUP, SERVER, ANOTHER, STATIONS };

static uint16_t ports[STATIONS];
static struct {
    pid_t pid;
    bool started;
    uint64_t back_at; /* down until then; 0: it runs */
    uint64_t killed;
} station[STATIONS];
static pid_t coordinator;

static void coordinator_main(void *arg)
{
    struct coordinating c = {.stop = &rack_stop};
    const struct coord_params p = {.design = design_find("netlock"),
                                   .space = rack_space,
                                   .locks = LOCKS,
                                   .lease_ns = LEASE_NS,
                                   .retry_ns = 5 * NS_PER_MS,
                                   .machines = 4 * HOSTS,
                                   .sessions = 16,
                                   .requests = 128,
                                   .servers = SERVERS,
                                   .backup = true,
                                   .life = 1,
                                   .fresh = true};
    const struct net_addr at = net_v4(RACK_LOCALHOST, (uint16_t)rack_board->coordinator_port);
    CHECK_EQ(coordinating_open(&c, &p, NULL, at), 0);
    coordinating_run(&c);
}

static void station_main(void *arg)
{
    const unsigned which = *(const unsigned *)arg;
    static struct station s;
    const struct station_params p = {.member.at = net_v4(RACK_LOCALHOST, ports[which]),
                                     .member.coordinators =
                                         coord_list_one(net_v4(RACK_LOCALHOST, (uint16_t)rack_board->coordinator_port)),
                                     .member.space = rack_space,
                                     .member.is_switch = which < SERVER,
                                     .fresh = !station[which].started,
                                     .member.deadline = pawl_in(LIMIT_NS),
                                     .member.stop = &rack_stop};
    CHECK_EQ(station_open(&s, &p), 0);
    station_run(&s);
}

static void start_station(unsigned which)
{
    static unsigned number;
    number = which;
    station[which].pid = child_start(station_main, &number);
    station[which].started = true;
    station[which].back_at = 0;
}

/* Never both switches at once, nor both servers: that there is another is the point. */
static bool may_die(unsigned which)
{
    unsigned other = which ^ 1;
    return !station[which].back_at && !station[other].back_at;
}

static void strike(void)
{
    unsigned what = (unsigned)rng_below(&rng, STATIONS + 1);
    if (what < STATIONS && may_die(what)) {
        child_kill(station[what].pid);
        station[what].killed++;
        station[what].back_at = pawl_now() + rng_below(&rng, 3 * LEASE_NS);
    } else if (what == STATIONS) {
        unsigned i = (unsigned)rng_below(&rng, WORKERS);
        child_kill(crew[i].pid);
        kills++;
        hire(i);
    }
}

static void run(uint64_t ns)
{
    for (uint64_t end = pawl_in(ns); pawl_now() < end;) {
        pause_ns(LEASE_NS / 8 + rng_below(&rng, LEASE_NS));
        for (unsigned i = 0; i < STATIONS; i++)
            if (station[i].back_at && pawl_now() >= station[i].back_at)
                start_station(i);
        strike();
        for (unsigned i = 0; i < WORKERS; i++)
            look_after(i);
    }
    for (unsigned i = 0; i < STATIONS; i++)
        if (station[i].back_at)
            start_station(i);
}

int main(void)
{
    const char *text = getenv("PAWL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)getpid();
    printf("seed %" PRIu64 "\n", seed);
    rng_seed(&rng, seed);
    oracle = shared_memory(sizeof *oracle);
    rack_board = shared_memory(sizeof *rack_board);
    rack_owner = getpid();
    snprintf(rack_space, sizeof rack_space, "test%d", (int)rack_owner);
    atexit(rack_cleanup);
    rack_board->coordinator_port = rack_port_pair();
    ports[SERVER] = (uint16_t)(rack_board->coordinator_port + 1);
    ports[SWITCH] = rack_port_pair();
    ports[BACKUP] = (uint16_t)(ports[SWITCH] + 1);
    ports[ANOTHER] = rack_port_pair();
    coordinator = child_start(coordinator_main, NULL);
    for (unsigned i = 0; i < STATIONS; i++)
        start_station(i);
    for (unsigned i = 0; i < WORKERS; i++)
        hire(i);
    run(min_u64(test_seconds(), SECONDS_MAX) * NS_PER_S / SHARE);
    __atomic_store_n(&oracle->stop, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < WORKERS; i++)
        see_off(i);
    child_join(child_start(judge, NULL));
    for (unsigned i = 0; i < STATIONS; i++)
        child_kill(station[i].pid);
    child_kill(coordinator);
    printf("%" PRIu64 " exclusive, %" PRIu64 " shared, %" PRIu64 " of the others, %" PRIu64
           " sessions lost; killed: the switch %" PRIu64 " times, its backup %" PRIu64 ", servers %" PRIu64 ", clients %" PRIu64
           "\n",
           oracle->exclusive, oracle->shared, oracle->others, oracle->lost, station[SWITCH].killed, station[BACKUP].killed,
           station[SERVER].killed + station[ANOTHER].killed, kills);
    CHECK(oracle->exclusive && oracle->shared && oracle->others);
    return 0;
}
