/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a rack: how long a new one takes, and how many are made a second if 64 clients ask at once, with the coordinator's log
 * in a file and in an etcd of three on this machine; and what it costs to pass many times as many names through a rack as it has
 * locks.
 *
 * The coordinator and a lock server run in a process of their own. The clients that ask at once are 64 questions in flight on the
 * sockets of 16 addresses: each is answered before its successor is sent, as with 64 processes on 16 hosts. One address alone may
 * add fewer names a second (COORD_NAMES_PER_S). The churn locks and unlocks nothing: it shows the
 * coordinator's work, with a host that has joined and answers every round. --scale 50 passes 10 M names through.
 *
 * A new name costs a sync of the disk, which no program makes faster. It is measured in the same run, after each new name, so that
 * both see the same disk. The bounds are on the whole; what is left without the sync is printed beside it. TMPDIR=/dev/shm has
 * no disk. */
#include "bench/etcd.h"
#include "bench/kit.h"
#include "cluster/host.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEW_NAMES 1000u
#define AT_ONCE 64u
#define HOSTS 16u /* 127.0.0.1 and up */
#define BURST_NAMES 40000u
#define CHURN_LOCKS 10000u
#define CHURN_NAMES 200000u
#define AGAIN_NS (20 * NS_PER_MS) /* until a question is repeated */

static struct board {
    uint32_t port;
} * board;
static volatile sig_atomic_t stop;

/* Where the log is. */
struct place_of_log {
    const char *name, *store; /* store: null: a file */
    double bound_ms, bound_rate;
};

/* ---- the rack ---- */

static void *run_station(void *s)
{
    station_run(s);
    return NULL;
}

static void *run_coordinator(void *c)
{
    coordinating_run(c);
    return NULL;
}

static void report(const char *space, const char *what)
{
    (void)space, (void)what; /* it leads, or stands by */
}

/* In a child: the coordinator and a lock server. */
static void serve(const char *space, uint64_t locks, const char *store)
{
    static struct station station;
    static struct coordinating_etcd e = {.lease_ns = NS_PER_S, .report = report};
    static struct coordinating c = {.stop = &stop};
    const struct net_addr at = net_v4(htonl(INADDR_LOOPBACK), 0);
    char path[128];
    pthread_t thread;
    snprintf(path, sizeof path, "%s/%s.state", folder, space);
    const struct state_params where = {
        .disk = &disk_real, .path = store ? NULL : path, .how = STORE_FRESH, .id = {1, 2}, .life = 1};
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
                                   .fresh = true,
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
                                      .fresh = true,
                                      .member.deadline = pawl_in(10 * NS_PER_S),
                                      .member.stop = &stop};
    if (station_open(&station, &sp) || pthread_create(&thread, NULL, run_station, &station))
        kit_die("the lock server: %s", pawl_explain());
    for (;;)
        pause();
}

static pid_t start(const char *space, uint64_t locks, const char *store)
{
    board->port = 0;
    pid_t pid = fork();
    if (!pid)
        serve(space, locks, store);
    while (pid > 0 && !__atomic_load_n(&board->port, __ATOMIC_ACQUIRE))
        kit_sleep(NS_PER_MS);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static pawl *open_rack(const char *space)
{
    char place[128];
    pawl *p = NULL;
    snprintf(place, sizeof place, "pawl://127.0.0.1:%u/%s", board->port, space);
    if (pawl_open(place, NULL, &p))
        kit_die("%s: %s", place, pawl_explain());
    return p;
}

/* ---- the disk alone ---- */

static int sync_fd = -1;

static void prepare_sync(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/sync", folder);
    sync_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (sync_fd < 0 || posix_fallocate(sync_fd, 0, 1 << 20) || fsync(sync_fd))
        kit_die("%s: %s", path, strerror(errno));
}

/* Microseconds of one sync of a few hundred bytes in a file that has its size, as the log has: no name can take less. */
static double one_sync(void)
{
    static unsigned number;
    char bytes[256];
    memset(bytes, 1, sizeof bytes);
    uint64_t begin = kit_now();
    if (pwrite(sync_fd, bytes, sizeof bytes, (off_t)(number++ % 4096 * sizeof bytes)) < 0 || fdatasync(sync_fd))
        kit_die("%s: %s", folder, strerror(errno));
    return (double)(kit_now() - begin) / NS_PER_US;
}

/* ---- one client ---- */

static double lock_and_unlock(pawl *p, const char *name)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    if (pawl_lock(p, pawl_name(name), PAWL_EXCLUSIVE, &g))
        kit_die("%s: %s", name, pawl_explain());
    uint64_t took = kit_now() - begin;
    pawl_unlock(p, &g);
    return (double)took / NS_PER_US;
}

static double sync_us; /* of the latest run */

static void one_client(struct kit *k, const struct place_of_log *where)
{
    static double fresh[NEW_NAMES], known[NEW_NAMES], syncs[NEW_NAMES];
    char what[96];
    pid_t pid = start("benchone", 1000000, where->store);
    pawl *p = open_rack("benchone");
    char name[64];
    for (unsigned i = 0; i < NEW_NAMES; i++) {
        snprintf(name, sizeof name, "customer/%u/account", i);
        fresh[i] = lock_and_unlock(p, name);
        known[i] = lock_and_unlock(p, name);
        syncs[i] = one_sync();
    }
    double a = kit_percentile(fresh, NEW_NAMES, 0.5), b = kit_percentile(known, NEW_NAMES, 0.5);
    printf("locking a new name, %s: %.0f us at the median, %.0f us at the 99th percentile; a known one: %.0f us\n", where->name, a,
           kit_percentile(fresh, NEW_NAMES, 0.99), b);
    snprintf(what, sizeof what, "a new name, %s, beyond the lock itself", where->name);
    kit_judge(k, what, (a - b) / 1000, "ms", where->bound_ms);
    sync_us = kit_percentile(syncs, NEW_NAMES, 0.5);
    printf("one sync of the disk: %.0f us at the median, in the same run; a new name takes %.0f us beyond the lock and one sync\n",
           sync_us, a - b - sync_us);
    pawl_close(p);
    end(pid);
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

static void ask(struct asker *a, unsigned slot)
{
    struct coord_key q;
    memset(&q, 0, sizeof q);
    coord_make(&q.packet, COORD_FIND, a->space, NULL, a->flight[slot].number * AT_ONCE + slot + AT_ONCE);
    q.len = (uint32_t)snprintf(q.bytes, sizeof q.bytes, "customer/%" PRIu64 "/account", a->flight[slot].number);
    const struct udp_out out = {.to = a->to, .len = sizeof q, .data = &q};
    a->flight[slot].at_ns = kit_now();
    udp_send(&a->udp[slot % HOSTS], &out, 1);
}

static void next(struct asker *a, unsigned slot)
{
    a->flight[slot].number = a->sent++;
    ask(a, slot);
}

static void take(struct asker *a, const struct coord_key *f, uint64_t count)
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
static void hear(struct asker *a, uint64_t count)
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
static double ask_all(struct asker *a, uint64_t count, void (*watch)(const struct asker *))
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

static void asker_open(struct asker *a, const char *space)
{
    memset(a, 0, sizeof *a);
    a->to = net_v4(htonl(INADDR_LOOPBACK), (uint16_t)board->port);
    snprintf(a->space, sizeof a->space, "%s", space);
    for (unsigned i = 0; i < HOSTS; i++)
        if (udp_open(&a->udp[i], net_v4(htonl(INADDR_LOOPBACK + i), 0)))
            kit_die("cannot open a socket");
}

static void asker_close(struct asker *a)
{
    for (unsigned i = 0; i < HOSTS; i++)
        udp_close(&a->udp[i]);
}

static void at_once(struct kit *k, const struct place_of_log *where)
{
    static struct asker a;
    char what[96];
    pid_t pid = start("benchmany", 1000000, where->store);
    asker_open(&a, "benchmany");
    double rate = ask_all(&a, BURST_NAMES, NULL);
    if (a.refused)
        kit_die("%" PRIu64 " names were refused", a.refused);
    snprintf(what, sizeof what, "new names, %s, if 64 clients ask at once", where->name);
    kit_judge_least(k, what, rate / 1000, "K/s", where->bound_rate);
    printf("one sync for the %u that wait allows %.1f K/s on this disk\n", AT_ONCE, AT_ONCE * 1000 / sync_us);
    asker_close(&a);
    end(pid);
}

/* ---- many more than there are locks ---- */

static pid_t served;
static uint64_t most_kb, most_bytes, shown;

static uint64_t memory_kb(pid_t pid)
{
    char path[64], line[256];
    uint64_t kb = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6))
            kb = strtoull(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static void watch_churn(const struct asker *a)
{
    char path[128];
    struct stat st;
    if (a->done - shown < 10000)
        return;
    shown = a->done;
    snprintf(path, sizeof path, "%s/benchchurn.state", folder);
    uint64_t kb = memory_kb(served);
    most_kb = max_u64(most_kb, kb);
    most_bytes = max_u64(most_bytes, stat(path, &st) ? 0 : (uint64_t)st.st_size);
    if (shown % 500000 < 10000)
        fprintf(stderr, "%" PRIu64 " names, %" PRIu64 " MB, log of %" PRIu64 " KB\n", shown, kb >> 10, (uint64_t)st.st_size >> 10);
}

static void churn(struct kit *k)
{
    static struct asker a;
    uint64_t names = (uint64_t)(CHURN_NAMES * k->scale);
    served = start("benchchurn", CHURN_LOCKS, NULL);
    pawl *p = open_rack("benchchurn");
    asker_open(&a, "benchchurn");
    double rate = ask_all(&a, max_u64(names, CHURN_LOCKS), watch_churn);
    printf("%" PRIu64 " names through a rack for %u: %.1f K/s, %" PRIu64 " refused, %" PRIu64
           " asked again; the coordinator had at most "
           "%" PRIu64 " MB, its log %" PRIu64 " KB\n",
           a.done, CHURN_LOCKS, rate / 1000, a.refused, a.retried, most_kb >> 10, most_bytes >> 10);
    kit_judge(k, "names refused", (double)a.refused, "", 0);
    pawl_close(p);
    asker_close(&a);
    end(served);
}

int main(int argc, char **argv)
{
    struct kit k;
    char store[128];
    const struct place_of_log file = {.name = "file", .bound_ms = 1, .bound_rate = 20};
    const struct place_of_log etcd = {.name = "etcd", .store = store, .bound_ms = 3, .bound_rate = 5};
    kit_begin(&k, argc, argv, "names of a rack");
    board = kit_shared(sizeof *board);
    make_folder();
    prepare_sync();
    one_client(&k, &file);
    at_once(&k, &file);
    churn(&k);
    if (start_etcd(store)) {
        one_client(&k, &etcd);
        at_once(&k, &etcd);
    }
    return kit_end(&k);
}
