/* The switch is killed and comes back without its state, all processes of a host are killed, both at once, and the coordinator:
 * again and again, over real UDP, while hosts lock and unlock. Nothing is granted twice (workers.h), and whoever lives keeps what
 * it holds: on each host a process holds some locks throughout, and looks. */
#define HOSTS 4
#define PER_HOST 2
#define WORKERS (HOSTS * PER_HOST)
#define LOCKS 100000
#define HOT 8
#define LEASE_NS (2 * NS_PER_S)

#include "tests/udp/workers.h"

#define KEPT 20         /* locks that a keeper holds */
#define KEPT_FROM LOCKS /* beyond those that workers ask for */
#define SECONDS_MAX 600
#define DOWN_NS (400 * NS_PER_MS) /* at most, of switch and coordinator: much less than a lease */

static struct keeping {
    uint32_t ready[HOSTS]; /* holds all that it wants */
    uint64_t kept[HOSTS];  /* looks that found everything in its place */
    uint64_t lost;         /* sessions of hosts that nobody killed */
} * keeping;

static const struct coord_params *coordinator_params(void)
{
    static struct coord_params p;
    p = (struct coord_params){.design = design_find("fisslock"),
                              .space = rack_space,
                              .locks = LOCKS + (1 + HOSTS) * KEPT,
                              .lease_ns = LEASE_NS,
                              .retry_ns = 5 * NS_PER_MS,
                              .machines = 4 * HOSTS,
                              .sessions = 16,
                              .requests = 128};
    return &p;
}

static uint32_t coordinators; /* that were started */

static void coordinator_main(void *arg)
{
    struct coordinating c = {.stop = &rack_stop};
    struct coord_params p = *coordinator_params();
    struct net_addr at = {.ip = RACK_LOCALHOST, .port = (uint16_t)rack_board->coordinator_port};
    const char *why;
    p.life = 1 + coordinators * 100000;
    p.fresh = coordinators == 1;
    int rc = coordinating_open(&c, &p, at, &why);
    if (rc)
        CHECK_FAIL("coordinator: %d", rc);
    coordinating_run(&c);
}

static void switch_main(void *arg)
{
    struct station s;
    const struct net_addr coordinator = {.ip = RACK_LOCALHOST, .port = (uint16_t)rack_board->coordinator_port};
    const struct station_params p = {.at = {.ip = RACK_LOCALHOST, .port = (uint16_t)(coordinator.port + 1)},
                                     .coordinator = coordinator,
                                     .space = rack_space,
                                     .is_switch = true,
                                     .deadline = pawl_in(LIMIT_NS),
                                     .stop = &rack_stop};
    CHECK_EQ(station_open(&s, &p), 0);
    station_run(&s);
}

static pid_t start_coordinator(void)
{
    coordinators++;
    return child_start(coordinator_main, NULL);
}

/* ---- keepers ---- */

/* One in four is its own, the others all keepers share. */
static bool writes(unsigned i)
{
    return i % 4 == 0;
}

static uint64_t key_of(unsigned host, unsigned i)
{
    return KEPT_FROM + (writes(i) ? (1 + host) * KEPT : 0) + i;
}

static bool keep(pawl *p, unsigned host)
{
    pawl_grant g[KEPT];
    for (unsigned i = 0; i < KEPT; i++) {
        enum pawl_mode mode = writes(i) ? PAWL_EXCLUSIVE : PAWL_SHARED;
        if (lost(pawl_timedlock(p, pawl_id(key_of(host, i)), mode, pawl_in(STUCK_NS), &g[i])))
            return false;
    }
    __atomic_store_n(&keeping->ready[host], 1, __ATOMIC_SEQ_CST);
    for (uint64_t n = 0; !__atomic_load_n(&oracle->stop, __ATOMIC_SEQ_CST); n++) {
        for (unsigned i = 0; i < KEPT; i++)
            if (pawl_check(p, &g[i]))
                return false;
        __atomic_fetch_add(&keeping->kept[host], 1, __ATOMIC_SEQ_CST);
        if (n % 16 == 15) { /* now and then one is given back, and had again */
            unsigned i = (unsigned)(n / 16 % KEPT);
            enum pawl_mode mode = g[i].mode;
            uint64_t key = g[i].index;
            if (lost(pawl_unlock(p, &g[i])) || lost(pawl_timedlock(p, pawl_id(key), mode, pawl_in(STUCK_NS), &g[i])))
                return false;
        }
        pause_ns(20 * NS_PER_MS);
    }
    for (unsigned i = 0; i < KEPT; i++)
        CHECK_OK(pawl_unlock(p, &g[i]));
    return true;
}

static void keeper_main(void *arg)
{
    unsigned host = *(unsigned *)arg;
    for (bool done = false; !done;) {
        pawl *p = open_session(host);
        done = keep(p, host);
        if (!done) {
            __atomic_fetch_add(&keeping->lost, 1, __ATOMIC_SEQ_CST);
            __atomic_store_n(&keeping->ready[host], 0, __ATOMIC_SEQ_CST);
        }
        CHECK_OK(pawl_close(p));
    }
}

/* ---- the one that kills ---- */

static pid_t coordinator, switcher, keepers[HOSTS];
static uint64_t switches, hosts, both, coordinations;

static void hire_keeper(unsigned host)
{
    static unsigned number;
    number = host;
    __atomic_store_n(&keeping->ready[host], 0, __ATOMIC_SEQ_CST);
    keepers[host] = child_start(keeper_main, &number);
}

static void kill_host(unsigned host)
{
    child_kill(keepers[host]);
    for (unsigned i = host; i < WORKERS; i += HOSTS, kills++)
        child_kill(crew[i].pid);
}

static void revive_host(unsigned host)
{
    hire_keeper(host);
    for (unsigned i = host; i < WORKERS; i += HOSTS)
        hire(i);
}

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
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)getpid(), kept = 0;
    printf("seed %" PRIu64 "\n", seed);
    rng_seed(&rng, seed);
    oracle = shared_memory(sizeof *oracle);
    keeping = shared_memory(sizeof *keeping);
    rack_board = shared_memory(sizeof *rack_board);
    rack_owner = getpid();
    snprintf(rack_space, sizeof rack_space, "test%d", (int)rack_owner);
    atexit(rack_cleanup);
    rack_board->coordinator_port = rack_port_pair();
    coordinator = start_coordinator();
    switcher = child_start(switch_main, NULL);
    for (unsigned i = 0; i < HOSTS; i++)
        revive_host(i);
    for (uint64_t end = pawl_in(min_u64(test_seconds(), SECONDS_MAX) * NS_PER_S); pawl_now() < end;) {
        pause_ns(LEASE_NS / 4 + rng_below(&rng, 3 * LEASE_NS / 2)); /* some come before the one before has been recovered from */
        strike();
        for (unsigned i = 0; i < WORKERS; i++)
            look_after(i);
    }
    __atomic_store_n(&oracle->stop, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < WORKERS; i++)
        see_off(i);
    for (unsigned i = 0; i < HOSTS; i++) {
        child_join(keepers[i]);
        kept += keeping->kept[i];
    }
    child_join(child_start(judge, NULL));
    child_kill(switcher);
    child_kill(coordinator);
    printf("%" PRIu64 " exclusive, %" PRIu64 " shared, %" PRIu64 " converted, %" PRIu64 " of the others, %" PRIu64
           " sessions lost; killed: the switch %" PRIu64 " times, hosts %" PRIu64 ", both at once %" PRIu64
           ", the coordinator %" PRIu64 "; keepers looked %" PRIu64 " times, and %" PRIu64 " lost their session\n",
           oracle->exclusive, oracle->shared, oracle->converted, oracle->others, oracle->lost, switches, hosts, both, coordinations,
           kept, keeping->lost);
    CHECK(oracle->exclusive && oracle->shared && oracle->others && kept);
    CHECK_EQ(keeping->lost, 0);
    return 0;
}
