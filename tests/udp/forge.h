/* SPDX-License-Identifier: Apache-2.0 */
/* A rack whose refused packets are counted, with a holder on one host and a rival on another, and a forger that knows everything
 * about them that a program outside of the rack can find out: the space's identity, machine numbers, lives, ports. It does not know
 * the nonces of JOINs, which travel between a member and its coordinator. */
#ifndef PAWL_TESTS_UDP_FORGE_H
#define PAWL_TESTS_UDP_FORGE_H

#include "cluster/host.h"
#include "dataplane/fission.h"
#include "dataplane/netlock_wire.h"
#include "designs/srvlock/srvlock.h"
#include "tests/udp/rack.h"

#define FORGE_LEASE_NS (10 * NS_PER_S) /* longer than a busy machine stops a process */
#define FORGE_HOLDER 0                 /* hosts of the rack: 127.0.0.2 and 127.0.0.3 */
#define FORGE_RIVAL 1

static struct forge_board {
    uint32_t coordinator_port, granter_ports[3], granters; /* granters: lock servers first, then the switch */
    uint32_t ready, hosts;
    uint64_t refused[2];                     /* packets: by the coordinator, by all granters */
    uint64_t limited[9];                     /* of each host, by the last granter */
    uint32_t astray;                         /* granters that follow another term than the coordinator's */
    uint32_t server_life, switch_life, mark; /* mark: rises with each look of the publisher */
} * forge_board;

static struct station *forge_stations[3];
static uint64_t forge_host_packets; /* that a host may send a second; 0: any number */

static inline uint64_t forge_refused_by(const struct station *s)
{
    return s->counts.forged + s->counts.not_admin + s->counts.alien + s->counts.bad + s->counts.unreadable + s->member.forged +
           s->member.foreign + s->member.roster->forged + s->member.roster->unknown + s->member.roster->late +
           s->member.roster->untagged;
}

static inline uint64_t forge_refused_by_coordinator(const struct coordinating *c)
{
    const struct packet_drops *d = &c->service.coordinator.drops;
    uint64_t sum = d->bad + d->alien + d->stale + d->unreadable + d->forged + d->untagged + d->limited + d->not_admin;
    for (unsigned i = 0; i < WATCH_REFUSALS; i++)
        sum += c->watch.counts.refused[i];
    return sum;
}

/* Looks at the tables of other threads: figures that are a moment old are good enough. */
__attribute__((no_sanitize("thread"))) static inline void forge_publish(const struct coordinating *c)
{
    uint64_t refused = 0;
    uint32_t hosts = 0, astray = 0;
    for (unsigned i = 0; i < forge_board->granters; i++) {
        refused += forge_refused_by(forge_stations[i]);
        astray += forge_stations[i]->member.term != c->service.coordinator.term;
    }
    for (unsigned m = 1; m <= c->service.coordinator.config.machines; m++) {
        hosts += c->service.members[m].live;
        __atomic_store_n(&forge_board->limited[m], forge_stations[forge_board->granters - 1]->member.roster->host[m].limited,
                         __ATOMIC_RELEASE);
    }
    __atomic_store_n(&forge_board->refused[0], forge_refused_by_coordinator(c), __ATOMIC_RELEASE);
    __atomic_store_n(&forge_board->refused[1], refused, __ATOMIC_RELEASE);
    __atomic_store_n(&forge_board->astray, astray, __ATOMIC_RELEASE);
    __atomic_store_n(&forge_board->hosts, hosts, __ATOMIC_RELEASE);
    __atomic_store_n(&forge_board->server_life, c->service.coordinator.server[0].life, __ATOMIC_RELEASE);
    __atomic_store_n(&forge_board->switch_life, c->service.coordinator.switch_[0].life, __ATOMIC_RELEASE);
    __atomic_add_fetch(&forge_board->mark, 1, __ATOMIC_RELEASE);
}

static inline void forge_start_station(struct net_addr coordinator, bool is_switch)
{
    struct station *s = calloc(1, sizeof *s);
    pthread_t thread;
    CHECK(s != NULL);
    const struct station_params p = {.member.at = net_v4(RACK_LOCALHOST, 0),
                                     .member.coordinators = coord_list_one(coordinator),
                                     .member.space = rack_space,
                                     .member.ring = &rack_ring,
                                     .member.is_switch = is_switch,
                                     .fresh = true,
                                     .desk = &station_desk,
                                     .host_packets = forge_host_packets,
                                     .member.deadline = pawl_in(LIMIT_NS),
                                     .member.stop = &rack_stop};
    CHECK_EQ(station_open(s, &p), 0);
    forge_stations[forge_board->granters] = s;
    forge_board->granter_ports[forge_board->granters++] = member_udp(&s->member)->at.port;
    CHECK_EQ(pthread_create(&thread, NULL, rack_station_thread, s), 0);
}

static inline void forge_rack_main(void *arg)
{
    const struct design *d = design_find(arg);
    static struct coordinating c;
    pthread_t thread;
    c.stop = &rack_stop;
    c.ring = rack_ring;
    const struct coord_params p = {.design = d,
                                   .space = rack_space,
                                   .locks = 64,
                                   .lease_ns = FORGE_LEASE_NS,
                                   .retry_ns = 5 * NS_PER_MS,
                                   .machines = 8,
                                   .sessions = 4,
                                   .requests = 8,
                                   .servers = d->packet->server_packet && !d->packet->spills ? 1 : 0,
                                   .life = 1,
                                   .fresh = true};
    CHECK_EQ(coordinating_open(&c, &p, NULL, net_v4(RACK_LOCALHOST, 0)), 0);
    CHECK_EQ(pthread_create(&thread, NULL, rack_coordinator_thread, &c), 0);
    for (unsigned i = 0; i < p.servers; i++)
        forge_start_station(c.udp.at, false);
    if (d->packet->switch_packet)
        forge_start_station(c.udp.at, true);
    forge_board->coordinator_port = c.udp.at.port;
    __atomic_store_n(&forge_board->ready, 1, __ATOMIC_RELEASE);
    for (;; pause_ns(NS_PER_MS / 2))
        forge_publish(&c);
}

static inline pawl *forge_open(unsigned host)
{
    char where[RACK_WHERE_LEN];
    pawl *p = NULL;
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u/%s?host=127.0.0.%u", forge_board->coordinator_port, rack_space, host + 2);
    CHECK_OK(pawl_open(where, NULL, &p));
    return p;
}

/* The memory of the holder's host: its number, life and ports, and how many packets it has refused. */
static inline void forge_map_host(unsigned host, struct host *out)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "/dev/shm/pawl.%u.net.%s.*", (unsigned)geteuid(), rack_space);
    CHECK(!glob(pattern, 0, NULL, &found));
    bool right = false;
    for (size_t i = 0; i < found.gl_pathc && !right; i++) {
        CHECK_EQ(host_open(found.gl_pathv[i], out), 0);
        char ip[NET_ADDR_TEXT], want[NET_ADDR_TEXT];
        net_addr_print_ip(out->header->pool, ip);
        snprintf(want, sizeof want, "127.0.0.%u", host + 2);
        right = !strcmp(ip, want);
        if (!right)
            host_close(out);
    }
    CHECK(right);
    globfree(&found);
}

#endif
