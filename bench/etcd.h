/* SPDX-License-Identifier: Apache-2.0 */
/* An etcd of three on this machine, in a folder that goes with the benchmark. */
#ifndef PAWL_BENCH_ETCD_H
#define PAWL_BENCH_ETCD_H

#include "bench/kit.h"
#include "lib/explain.h"
#include "node/etcd.h"
#include "world/etcd.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMBERS 3u /* of etcd */
#define START_NS (20 * NS_PER_S)

static char folder[64];
static pid_t members[MEMBERS];

static inline void end_members(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        if (members[i] > 0) {
            kill(members[i], SIGKILL);
            waitpid(members[i], NULL, 0);
            members[i] = 0;
        }
}

static inline void start_member(unsigned base, unsigned i)
{
    char name[8], data[96], client[64], peer[64], all[256];
    snprintf(name, sizeof name, "m%u", i);
    snprintf(data, sizeof data, "%s/m%u", folder, i);
    snprintf(client, sizeof client, "http://127.0.0.1:%u", base + i);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%u", base + 10 + i);
    snprintf(all, sizeof all, "m0=http://127.0.0.1:%u,m1=http://127.0.0.1:%u,m2=http://127.0.0.1:%u", base + 10, base + 11,
             base + 12);
    members[i] = fork();
    if (members[i])
        return;
    int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    dup2(null, 2);
    execlp("etcd", "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client,
           "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", all, (char *)NULL);
    _exit(127);
}

/* Whether it runs; else it has been said why it does not. */
static inline bool start_etcd(char store[128])
{
    struct etcd *etcd;
    const char *prefix;
    unsigned base = 12000 + (unsigned)getpid() % 1000 * 20;
    uint64_t cluster, until = kit_now() + START_NS;
    snprintf(store, 128, ETCD_SCHEME "127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u/bench", base, base + 1, base + 2);
    if (etcd_open(store, &etcd, &prefix)) {
        printf("SKIP: %s\n", explained());
        return false;
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        start_member(base, i);
    kit_sleep(NS_PER_S);
    bool runs = waitpid(members[0], NULL, WNOHANG) == 0;
    if (!runs) {
        printf("SKIP: etcd does not start (Debian: etcd-server)\n");
        members[0] = 0;
    }
    while (runs && etcd->ops->check(etcd, etcd->ops->now(etcd) + NS_PER_S, &cluster) && kit_now() < until)
        kit_sleep(100 * NS_PER_MS);
    if (runs)
        kit_sleep(2 * NS_PER_S); /* they elect */
    etcd_close(etcd);
    return runs;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static pid_t owner;

static inline void clean_up(void)
{
    if (getpid() != owner)
        return;
    end_members();
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* On a disk, and not in memory. */
static inline void make_folder(void)
{
    const char *disk = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/pawl-rack.XXXXXX", disk ? disk : "/var/tmp");
    if (!mkdtemp(folder))
        kit_die("%s: %s", folder, strerror(errno));
    owner = getpid();
    atexit(clean_up);
}

#endif
