/* SPDX-License-Identifier: Apache-2.0 */
/* A rack on loopback for tests: a process with the coordinator, the lock servers and, if the design has one, the switch, each
 * behind a relay if the network shall be bad. Hosts are addresses 127.0.0.2 and up. */
#ifndef PAWL_TESTS_UDP_RACK_H
#define PAWL_TESTS_UDP_RACK_H

#include "node/node.h"
#include "tests/shm/space.h"
#include "tests/udp/relay.h"
#include "wire/key_file.h"
#include "world/world.h"

#include <glob.h>
#include <pthread.h>

struct rack_test {
    const char *design;
    const struct knobs *knobs; /* null: the usual ones */
    uint16_t servers;          /* if the design has any */
    uint64_t room;             /* of the switch, if the design then has servers for the other locks; 0: for all locks */
    uint16_t machines;         /* hosts; 0: more than any test has */
    uint64_t locks, lease_ns;
    uint64_t member_ns;         /* the membership lease; 0: as lease_ns */
    enum pawl_keys keys;        /* 0: dense */
    struct relay_faults faults; /* all 0: no relay */
    pawl_apply apply;           /* of the lock servers, in a process of their own; null: they keep no data */
    uint64_t seed;
};

/* Written by the children. */
static struct rack_board {
    uint32_t coordinator_port;
    uint32_t server_ports[RACK_SERVERS_MAX + RACKS_MAX]; /* behind relays; the last are the switches' */
    uint32_t ready;
} * rack_board;

static char rack_space[COORD_NAME_LEN];
static pid_t rack_pids[RACK_SERVERS_MAX + RACKS_MAX + 1], rack_owner;
static unsigned rack_pid_count;
static volatile sig_atomic_t rack_stop;

static inline bool rack_relayed(const struct rack_test *t)
{
    return t->faults.loss || t->faults.duplicate || t->faults.late;
}

static inline bool rack_serves(const struct rack_test *t, const struct design *d)
{
    return d->packet->server_packet && (!d->packet->spills || t->room);
}

static inline unsigned rack_switch_count(const struct design *d)
{
    return packet_divides(d->packet) ? RACKS_DEFAULT : d->packet->switch_packet != NULL;
}

/* PAWL_TEST_ROOM: for how many locks the switch has room. */
static inline uint64_t rack_room(void)
{
    const char *room = getenv("PAWL_TEST_ROOM");
    return room ? strtoull(room, NULL, 10) : 0;
}

static inline const char *rack_design(const char *otherwise)
{
    const char *d = getenv("PAWL_TEST_DESIGN");
    return d ? d : otherwise;
}

#define RACK_LOCALHOST 0x0100007fu /* 127.0.0.1 in the order of the network, on this side of it */

/* PAWL_TEST_KEY: "" or unset: packets are not tagged; else with a key, made anew. Clients find it by PAWL_KEY. */
static struct seal_ring rack_ring;
static char rack_key_path[64];

static inline void rack_forget_key(void)
{
    if (getpid() == rack_owner)
        unlink(rack_key_path);
}

static inline void rack_make_key(void)
{
    const char *wanted = getenv("PAWL_TEST_KEY");
    if (!wanted || !*wanted || rack_ring.count)
        return;
    snprintf(rack_key_path, sizeof rack_key_path, "/tmp/pawl-test-%d.key", (int)getpid());
    rack_ring = (struct seal_ring){.count = 1,
                                   .key = {{{world_random(&world_real), world_random(&world_real) | 1}}},
                                   .admins = 1,
                                   .admin = {{{world_random(&world_real), world_random(&world_real) | 1}}}};
    unlink(rack_key_path);
    CHECK_EQ(key_file_write(rack_key_path, &rack_ring), 0);
    atexit(rack_forget_key);
    setenv("PAWL_KEY", rack_key_path, 1);
}

static inline void *rack_station_thread(void *s)
{
    station_run(s);
    return NULL;
}

static inline void *rack_coordinator_thread(void *c)
{
    coordinating_run(c);
    return NULL;
}

struct rack_relay_arg {
    const struct rack_test *t;
    unsigned number;
};

static inline void rack_relay_main(void *arg)
{
    static struct relay relay;
    const struct rack_relay_arg *a = arg;
    struct net_addr front = net_v4(RACK_LOCALHOST, (uint16_t)rack_board->server_ports[a->number]), server = front;
    server.port = (uint16_t)(server.port + 1);
    relay_open(&relay, front, server, &a->t->faults, a->t->seed + a->number);
    relay_run(&relay);
}

/* Two free ports in a row. They are below the kernel's ephemeral ports (32768 and up), so that no other process gets them while
 * their owner is dead; and they are not those of a test that runs beside this one, which has a process id near this one's. */
#define RACK_PORT_FIRST 12000
#define RACK_PORTS 20000
#define RACK_PORTS_EACH 8
static inline uint16_t rack_port_pair(void)
{
    static unsigned tries;
    for (int i = 0; i < 100; i++, tries++) {
        struct udp a, b;
        unsigned offset = ((unsigned)getpid() * RACK_PORTS_EACH + 2 * tries) % RACK_PORTS;
        struct net_addr at = net_v4(RACK_LOCALHOST, (uint16_t)(RACK_PORT_FIRST + offset));
        if (udp_open(&a, at))
            continue;
        at.port++;
        int rc = udp_open(&b, at);
        udp_close(&a);
        if (rc)
            continue;
        udp_close(&b);
        tries++;
        return (uint16_t)(at.port - 1);
    }
    CHECK_FAIL("no two ports in a row are free");
}

static inline void rack_start_station(const struct rack_test *t, struct net_addr coordinator, unsigned number, bool is_switch)
{
    struct station *s = calloc(1, sizeof *s);
    pthread_t thread;
    CHECK(s != NULL);
    struct station_params p = {.member.at = net_v4(RACK_LOCALHOST, 0),
                               .member.coordinators = coord_list_one(coordinator),
                               .member.space = rack_space,
                               .member.ring = &rack_ring,
                               .member.is_switch = is_switch,
                               .switch_locks = t->room,
                               .fresh = true,
                               .member.deadline = pawl_in(LIMIT_NS),
                               .member.stop = &rack_stop};
    if (rack_relayed(t)) {
        p.member.known_as = net_v4(RACK_LOCALHOST, (uint16_t)rack_board->server_ports[number]);
        p.member.at.port = (uint16_t)(p.member.known_as.port + 1);
    }
    CHECK_EQ(station_open(s, &p), 0);
    if (t->apply && !is_switch)
        station_apply(s, t->apply, NULL);
    CHECK_EQ(pthread_create(&thread, NULL, rack_station_thread, s), 0);
}

static inline void rack_node_main(void *arg)
{
    const struct rack_test *t = arg;
    const struct design *d = design_find(t->design);
    struct coordinating c = {.stop = &rack_stop, .ring = rack_ring};
    struct net_addr at = net_v4(RACK_LOCALHOST, 0);
    pthread_t thread;
    bool servers = rack_serves(t, d);
    const struct coord_params p = {.design = d,
                                   .knobs = t->knobs,
                                   .space = rack_space,
                                   .locks = t->locks,
                                   .lease_ns = t->lease_ns,
                                   .member_ns = t->member_ns,
                                   .retry_ns = 5 * NS_PER_MS,
                                   .machines = t->machines ? t->machines : 32,
                                   .sessions = 16,
                                   .requests = 128,
                                   .servers = servers ? t->servers : 0,
                                   .life = 1,
                                   .fresh = true,
                                   .keys = t->keys};
    CHECK_EQ(coordinating_open(&c, &p, NULL, at), 0);
    CHECK_EQ(pthread_create(&thread, NULL, rack_coordinator_thread, &c), 0);
    for (unsigned i = 0; i < p.servers; i++)
        rack_start_station(t, c.udp.at, i, false);
    for (unsigned i = 0; i < rack_switch_count(d); i++)
        rack_start_station(t, c.udp.at, RACK_SERVERS_MAX + i, true);
    rack_board->coordinator_port = c.udp.at.port;
    __atomic_store_n(&rack_board->ready, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
}

static inline void rack_cleanup(void)
{
    char pattern[128];
    glob_t found;
    if (getpid() != rack_owner)
        return;
    snprintf(pattern, sizeof pattern, "/dev/shm/pawl.%u.net.%s.*", (unsigned)geteuid(), rack_space);
    if (!glob(pattern, 0, NULL, &found)) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
        globfree(&found);
    }
}

static inline void rack_begin(const struct rack_test *t)
{
    const struct design *d = design_find(t->design);
    CHECK(d && d->packet);
    rack_owner = getpid();
    snprintf(rack_space, sizeof rack_space, "test%d", (int)rack_owner);
    atexit(rack_cleanup);
    rack_make_key();
    rack_board = shared_memory(sizeof *rack_board);
    for (unsigned i = 0; i < countof(rack_board->server_ports) && rack_relayed(t); i++) {
        bool used = i < RACK_SERVERS_MAX ? rack_serves(t, d) && i < t->servers : i - RACK_SERVERS_MAX < rack_switch_count(d);
        if (!used)
            continue;
        struct rack_relay_arg arg = {.t = t, .number = i};
        rack_board->server_ports[i] = rack_port_pair();
        rack_pids[rack_pid_count++] = child_start(rack_relay_main, &arg);
    }
    rack_pids[rack_pid_count++] = child_start(rack_node_main, (void *)(uintptr_t)t);
    WAIT_FOR(__atomic_load_n(&rack_board->ready, __ATOMIC_ACQUIRE));
}

static inline void rack_end(void)
{
    while (rack_pid_count)
        child_kill(rack_pids[--rack_pid_count]);
    munmap(rack_board, sizeof *rack_board);
}

#define RACK_WHERE_LEN 128

static inline const char *rack_where(unsigned host, char text[RACK_WHERE_LEN])
{
    snprintf(text, RACK_WHERE_LEN, "pawl://127.0.0.1:%u/%s?host=127.0.0.%u", rack_board->coordinator_port, rack_space, host + 2);
    return text;
}

static inline pawl *rack_open(unsigned host, const pawl_options *o)
{
    char where[RACK_WHERE_LEN];
    pawl *p = NULL;
    int rc = pawl_open(rack_where(host, where), o, &p);
    if (rc)
        CHECK_FAIL("pawl_open(%s): %d: %s (%s)", where, rc, pawl_strerror(rc), pawl_explain());
    return p;
}

#endif
