/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator and a lock server in a process of their own, and questions for names at once. Shared by the benchmarks that ask for
 * names.
 *
 * The clients that ask at once are 64 questions in flight on the sockets of some addresses: each is answered before its successor
 * is sent, as with 64 processes on so many hosts. One address alone may add fewer names a second (COORD_NAMES_PER_S). */
#ifndef PAWL_BENCH_RACK_ASK_H
#define PAWL_BENCH_RACK_ASK_H

#include "bench/etcd.h"
#include "bench/kit.h"
#include "cluster/host.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT_ONCE 64u
#define HOSTS 16u                 /* 127.0.0.1 and up */
#define AGAIN_NS (20 * NS_PER_MS) /* until a question is repeated */

static struct board {
    uint32_t port;
} * board;
static volatile sig_atomic_t stop;

/* ---- the rack ---- */

static inline void *run_station(void *s)
{
    station_run(s);
    return NULL;
}

static inline void *run_coordinator(void *c)
{
    coordinating_run(c);
    return NULL;
}

static inline void report(const char *space, const char *what)
{
    (void)space, (void)what; /* it leads, or stands by */
}

/* In a child: the coordinator and a lock server. */
static inline void serve(const char *space, uint64_t locks, const char *store, bool fresh)
{
    static struct station station;
    static struct coordinating_etcd e = {.lease_ns = NS_PER_S, .report = report};
    static struct coordinating c = {.stop = &stop};
    const struct net_addr at = net_v4(htonl(INADDR_LOOPBACK), 0);
    char path[128];
    pthread_t thread;
    snprintf(path, sizeof path, "%s/%s.state", folder, space);
    const struct state_params where = {
        .disk = &disk_real, .path = store ? NULL : path, .how = fresh ? STORE_FRESH : STORE_CONTINUE, .id = {1, 2}, .life = 1};
    e.place = store;
    if (store && etcd_open(store, &e.etcd, &e.prefix))
        kit_die("%s", explained());
    c.etcd = store ? &e : NULL;
    const struct coord_params p = {.design = design_find("srvlock"),
                                   .space = space,
                                   .locks = locks,
                                   .lease_ns = 10 * NS_PER_S,
                                   .retry_ns = 5 * NS_PER_MS,
                                   .machines = 8,
                                   .sessions = 4,
                                   .requests = 64,
                                   .servers = 1,
                                   .life = 1,
                                   .fresh = fresh,
                                   .keys = PAWL_KEYS_NAMED};
    if (coordinating_open(&c, &p, &where, at))
        kit_die("the coordinator: %s", pawl_explain());
    board->port = c.udp.at.port;
    pthread_t coordinator;
    if (pthread_create(&coordinator, NULL, run_coordinator, &c))
        kit_die("cannot start a thread");
    const struct station_params sp = {.member.at = at,
                                      .member.coordinators = coord_list_one(c.udp.at),
                                      .member.space = space,
                                      .fresh = fresh,
                                      .member.deadline = pawl_in(10 * NS_PER_S),
                                      .member.stop = &stop};
    if (station_open(&station, &sp) || pthread_create(&thread, NULL, run_station, &station))
        kit_die("the lock server: %s", pawl_explain());
    for (;;)
        pause();
}

static inline pid_t start(const char *space, uint64_t locks, const char *store, bool fresh)
{
    board->port = 0;
    pid_t pid = fork();
    if (!pid)
        serve(space, locks, store, fresh);
    while (pid > 0 && !__atomic_load_n(&board->port, __ATOMIC_ACQUIRE))
        kit_sleep(NS_PER_MS);
    return pid;
}

static inline void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static inline pawl *open_rack(const char *space)
{
    char place[128];
    pawl *p = NULL;
    snprintf(place, sizeof place, "pawl://127.0.0.1:%u/%s", board->port, space);
    if (pawl_open(place, NULL, &p))
        kit_die("%s: %s", place, pawl_explain());
    return p;
}

/* ---- many at once ---- */

struct asker {
    struct udp udp[HOSTS]; /* a question goes by the one of its number, modulo them */
    struct net_addr to;
    char space[COORD_NAME_LEN];
    uint64_t sent, done, refused, retried;
    struct {
        uint64_t number, at_ns; /* the name; when it was asked for */
    } flight[AT_ONCE];
};

static inline void ask(struct asker *a, unsigned slot)
{
    struct coord_key q;
    memset(&q, 0, sizeof q);
    coord_make(&q.packet, COORD_FIND, a->space, NULL, a->flight[slot].number * AT_ONCE + slot + AT_ONCE);
    q.len = (uint32_t)snprintf(q.bytes, sizeof q.bytes, "customer/%" PRIu64 "/account", a->flight[slot].number);
    const struct udp_out out = {.to = a->to, .len = sizeof q, .data = &q};
    a->flight[slot].at_ns = kit_now();
    udp_send(&a->udp[slot % HOSTS], &out, 1);
}

static inline void next(struct asker *a, unsigned slot)
{
    a->flight[slot].number = a->sent++;
    ask(a, slot);
}

static inline void take(struct asker *a, const struct coord_key *f, uint64_t count)
{
    unsigned slot = (unsigned)(f->packet.head.nonce % AT_ONCE);
    if (f->packet.head.type != COORD_FOUND || f->packet.head.nonce != a->flight[slot].number * AT_ONCE + slot + AT_ONCE ||
        !a->flight[slot].at_ns)
        return;
    if (f->packet.code == -EAGAIN) { /* repeated a little later */
        a->retried++;
        a->flight[slot].at_ns = kit_now() - AGAIN_NS + NS_PER_MS;
        return;
    }
    a->refused += f->packet.code != 0;
    a->done++;
    a->flight[slot].at_ns = 0;
    if (a->sent < count)
        next(a, slot);
}

/* All answers that are there; waits for a millisecond if there is none. */
static inline void hear(struct asker *a, uint64_t count)
{
    static struct udp_batch batch;
    struct pollfd fds[HOSTS];
    for (unsigned i = 0; i < HOSTS; i++)
        fds[i] = (struct pollfd){.fd = a->udp[i].fd, .events = POLLIN};
    if (poll(fds, HOSTS, 1) <= 0)
        return;
    for (unsigned i = 0; i < HOSTS; i++) {
        unsigned n = fds[i].revents & POLLIN ? udp_receive(&a->udp[i], &batch) : 0;
        for (unsigned j = 0; j < n; j++)
            if (batch.packet[j].len == sizeof(struct coord_key))
                take(a, (const struct coord_key *)(const void *)batch.packet[j].data, count);
    }
}

/* Names a second. */
static inline double ask_all(struct asker *a, uint64_t count, void (*watch)(const struct asker *))
{
    uint64_t begin = kit_now(), looked = begin;
    for (unsigned i = 0; i < AT_ONCE; i++)
        next(a, i);
    while (a->done < count) {
        hear(a, count);
        uint64_t now = kit_now();
        if (now - looked < NS_PER_MS)
            continue;
        looked = now;
        for (unsigned i = 0; i < AT_ONCE; i++)
            if (a->flight[i].at_ns && now - a->flight[i].at_ns > AGAIN_NS)
                ask(a, i);
        if (watch)
            watch(a);
    }
    return (double)count * NS_PER_S / (double)(kit_now() - begin);
}

static inline void asker_open(struct asker *a, const char *space)
{
    memset(a, 0, sizeof *a);
    a->to = net_v4(htonl(INADDR_LOOPBACK), (uint16_t)board->port);
    snprintf(a->space, sizeof a->space, "%s", space);
    for (unsigned i = 0; i < HOSTS; i++)
        if (udp_open(&a->udp[i], net_v4(htonl(INADDR_LOOPBACK + i), 0)))
            kit_die("cannot open a socket");
}

static inline void asker_close(struct asker *a)
{
    for (unsigned i = 0; i < HOSTS; i++)
        udp_close(&a->udp[i]);
}

#endif
