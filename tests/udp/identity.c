/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator of another space takes the address of the one that a rack has joined, as after a start with another state folder.
 * Hosts and lock servers refuse it and are refused: no lock is granted twice. The right coordinator comes back, and everything goes
 * on. */
#include "tests/udp/rack.h"

#include <errno.h>

#define LEASE_NS (4 * NS_PER_S) /* longer than a busy machine stops a process */

static const struct rack_identity mine = {.id = {1, 2}, .version = 1}, other = {.id = {3, 4}, .version = 1},
                                  older = {.id = {1, 2}, .version = 0};

static struct board {
    uint32_t port, server_ready;
    uint32_t started, servers, live; /* as the present coordinator sees it: lock servers, hosts */
    uint64_t alien;
} * board;

struct role {
    const struct rack_identity *identity;
    uint32_t life;
    bool fresh;
};

/* Publishes what it knows until it is killed. */
static void coordinate(void *arg)
{
    const struct role *r = arg;
    struct coordinating c = {.stop = &rack_stop};
    pthread_t thread;
    struct coord_params p = {.design = design_find("srvlock"),
                             .space = rack_space,
                             .identity = *r->identity,
                             .locks = 100,
                             .lease_ns = LEASE_NS,
                             .retry_ns = 5 * NS_PER_MS,
                             .machines = 8,
                             .sessions = 4,
                             .requests = 4,
                             .servers = 1,
                             .life = r->life,
                             .fresh = r->fresh};
    CHECK_EQ(coordinating_open(&c, &p, NULL, net_v4(RACK_LOCALHOST, (uint16_t)board->port)), 0);
    board->port = c.udp.at.port;
    CHECK_EQ(pthread_create(&thread, NULL, rack_coordinator_thread, &c), 0);
    __atomic_store_n(&board->started, 1, __ATOMIC_RELEASE);
    for (;; pause_ns(NS_PER_MS)) {
        unsigned live = 0;
        for (unsigned m = 1; m <= p.machines; m++)
            live += c.service.members[m].live;
        __atomic_store_n(&board->servers, c.service.coordinator.servers, __ATOMIC_RELEASE);
        __atomic_store_n(&board->live, live, __ATOMIC_RELEASE);
        __atomic_store_n(&board->alien, c.service.coordinator.drops.alien, __ATOMIC_RELEASE);
    }
}

static pid_t start_coordinator(const struct rack_identity *identity, uint32_t life, bool fresh)
{
    static struct role role;
    role = (struct role){identity, life, fresh};
    board->started = board->servers = board->live = 0;
    board->alien = 0;
    pid_t pid = child_start(coordinate, &role);
    WAIT_FOR(__atomic_load_n(&board->started, __ATOMIC_ACQUIRE));
    return pid;
}

static void serve_locks(void *arg)
{
    static struct station s;
    const struct station_params p = {.member.at = net_v4(RACK_LOCALHOST, 0),
                                     .member.coordinators = coord_list_one(net_v4(RACK_LOCALHOST, (uint16_t)board->port)),
                                     .member.space = rack_space,
                                     .member.deadline = pawl_in(LIMIT_NS),
                                     .member.stop = &rack_stop,
                                     .fresh = true};
    CHECK_EQ(station_open(&s, &p), 0);
    __atomic_store_n(&board->server_ready, 1, __ATOMIC_RELEASE);
    station_run(&s);
}

static int open_from(unsigned host, uint64_t open_ns, pawl **out)
{
    char where[RACK_WHERE_LEN];
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u/%s?host=127.0.0.%u", board->port, rack_space, host);
    return pawl_open(where, &(pawl_options){.open_ns = open_ns}, out);
}

/* A coordinator that the members do not know answers at the address: it gets no member and ends no session. */
static void impostor(const struct rack_identity *identity, pawl *holder, const pawl_grant *g)
{
    pawl *p;
    pawl_grant h;
    pid_t pid = start_coordinator(identity, 1000, true);
    WAIT_FOR(__atomic_load_n(&board->alien, __ATOMIC_ACQUIRE) >= 5);
    CHECK(!board->servers && !board->live);
    int rc = open_from(3, NS_PER_S, &p); /* a host that joins now finds a space without lock servers */
    CHECK(rc == -EAGAIN || rc == -ETIMEDOUT);
    /* The holder keeps its lock as long as its lease lasts, and is told afterwards. */
    for (uint64_t limit = pawl_in(LIMIT_NS + LEASE_NS); (rc = pawl_check(holder, g)) == 0; pause_ns(NS_PER_MS))
        CHECK(pawl_now() < limit);
    CHECK_RC(rc, -PAWL_ELOST);
    CHECK_RC(pawl_trylock(holder, pawl_id(1), PAWL_EXCLUSIVE, &h), -PAWL_ELOST);
    CHECK(!board->servers);
    child_kill(pid);
}

/* A lock server that is told to stop while it waits for a coordinator has not failed. */
static void stopped_before_it_joined(void)
{
    static struct station s;
    static const volatile sig_atomic_t stop = SIGTERM;
    const struct station_params p = {.member.at = net_v4(RACK_LOCALHOST, 0),
                                     .member.coordinators = coord_list_one(net_v4(RACK_LOCALHOST, 9)),
                                     .member.space = rack_space,
                                     .member.deadline = pawl_in(LIMIT_NS),
                                     .member.stop = &stop,
                                     .member.patient = true};
    CHECK_EQ(station_open(&s, &p), -EINTR);
}

int main(void)
{
    pawl *p, *q;
    pawl_grant g, h;
    rack_owner = getpid();
    snprintf(rack_space, sizeof rack_space, "test%d", (int)rack_owner);
    atexit(rack_cleanup);
    board = shared_memory(sizeof *board);
    stopped_before_it_joined();
    pid_t pid = start_coordinator(&mine, 1, true), server = child_start(serve_locks, NULL);
    WAIT_FOR(__atomic_load_n(&board->server_ready, __ATOMIC_ACQUIRE));
    uint64_t token = 0;
    const struct rack_identity *foreign[] = {&other, &older};
    for (unsigned i = 0; i < countof(foreign); i++) {
        CHECK_RC(open_from(2, 0, &p), 0);
        CHECK_RC(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g), 0);
        CHECK(g.token > token); /* I2 */
        token = g.token;
        child_kill(pid);
        impostor(foreign[i], p, &g);
        CHECK_RC(pawl_close(p), 0);
        /* The right one again: it adopts the lock server. */
        pid = start_coordinator(&mine, 2000 * (i + 1), false);
        WAIT_FOR(__atomic_load_n(&board->servers, __ATOMIC_ACQUIRE) == 1);
        CHECK_EQ(board->alien, 0);
        CHECK_RC(open_from(4, 0, &q), 0);
        CHECK_RC(pawl_lock(q, pawl_id(1), PAWL_EXCLUSIVE, &h), 0);
        CHECK(h.token > token); /* I2 */
        token = h.token;
        CHECK_RC(pawl_close(q), 0);
    }
    child_kill(server);
    child_kill(pid);
    return 0;
}
