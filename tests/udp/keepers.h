/* SPDX-License-Identifier: Apache-2.0 */
/* Racks whose coordinator and switches are processes that are killed and come back, and on each host a process that holds some
 * locks throughout, and checks that it still does: a live process keeps its holds.
 *
 * Before: as workers.h, and LOCKS without those that are kept. After: coordinator_params(), which says what the rack is. */
#ifndef PAWL_TESTS_UDP_KEEPERS_H
#define PAWL_TESTS_UDP_KEEPERS_H

#include "tests/udp/workers.h"

#define KEPT 20         /* locks that a keeper holds */
#define KEPT_FROM LOCKS /* beyond those that workers ask for */
#define KEEPERS_LOCKS (LOCKS + (1 + HOSTS) * KEPT)

static struct keeping {
    uint32_t ready[HOSTS]; /* holds all that it wants */
    uint64_t kept[HOSTS];  /* looks that found everything in its place */
    uint64_t lost;         /* sessions of hosts that were not killed */
} * keeping;

/* ---- the coordinator ---- */

static struct coord_params coordinator_params(void);

static uint32_t coordinators; /* that were started */
static char keepers_state[128];

static void coordinator_main(void *arg)
{
    struct coordinating c = {.stop = &rack_stop};
    struct coord_params p = coordinator_params();
    struct net_addr at = net_v4(RACK_LOCALHOST, (uint16_t)rack_board->coordinator_port);
    const struct state_params state = {.disk = &disk_real,
                                       .path = keepers_state,
                                       .how = coordinators == 1 ? STORE_FRESH : STORE_CONTINUE,
                                       .id = {1, 2},
                                       .life = 1};
    p.fresh = coordinators == 1;
    int rc = coordinating_open(&c, &p, &state, at);
    if (rc)
        CHECK_FAIL("coordinator: %d: %s", rc, explained());
    coordinating_run(&c);
}

static pid_t start_coordinator(void)
{
    coordinators++;
    pid_t pid = child_start(coordinator_main, NULL);
    WAIT_FOR(!access(keepers_state, F_OK)); /* the first one is not killed before there is anything to continue with */
    return pid;
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

/* ---- hosts ---- */

static pid_t keepers[HOSTS];

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

/* The parameters of a rack with keepers; the test sets the others. */
static struct coord_params keepers_rack(const char *design)
{
    return (struct coord_params){.design = design_find(design),
                                 .space = rack_space,
                                 .locks = KEEPERS_LOCKS,
                                 .lease_ns = LEASE_NS,
                                 .retry_ns = 5 * NS_PER_MS,
                                 .machines = 4 * HOSTS,
                                 .sessions = 16,
                                 .requests = 128};
}

static void keepers_begin(void)
{
    oracle = shared_memory(sizeof *oracle);
    keeping = shared_memory(sizeof *keeping);
    rack_board = shared_memory(sizeof *rack_board);
    rack_owner = getpid();
    snprintf(rack_space, sizeof rack_space, "test%d", (int)rack_owner);
    atexit(rack_cleanup); /* removes the state, too */
    snprintf(keepers_state, sizeof keepers_state, "/dev/shm/pawl.%u.net.%s.state", (unsigned)geteuid(), rack_space);
    rack_board->coordinator_port = rack_port_pair();
}

/* All processes stop, and every lock is granted once more. Returns how often keepers have checked. */
static uint64_t keepers_end(void)
{
    uint64_t kept = 0;
    __atomic_store_n(&oracle->stop, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < WORKERS; i++)
        see_off(i);
    for (unsigned i = 0; i < HOSTS; i++) {
        child_join(keepers[i]);
        kept += keeping->kept[i];
    }
    child_join(child_start(judge, NULL));
    CHECK(oracle->exclusive && oracle->shared && oracle->others && kept);
    CHECK_EQ(keeping->lost, 0);
    return kept;
}

#endif
