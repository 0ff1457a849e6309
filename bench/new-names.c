/* SPDX-License-Identifier: Apache-2.0 */
/* How long a client waits for the lock of a new name, and how many names a coordinator gives in a second when 64 clients ask at
 * once: with its state in a local file, and with its state in an etcd of three on this machine. */
#include "bench/kit.h"
#include "node/etcd.h"
#include "node/node.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ONES 400u /* names, one after the other */
#define CLIENTS 64u
#define MANY_NS (3 * NS_PER_S)
#define LOCKS 4000000u
#define MEMBERS 3u
#define START_NS (20 * NS_PER_S)

static struct coordinating c;
static volatile sig_atomic_t stop;
static pid_t members[MEMBERS];
static char folder[64]; /* on a disk: what is measured waits for it */

/* ---- etcd ---- */

static void end_members(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        if (members[i] > 0) {
            kill(members[i], SIGKILL);
            waitpid(members[i], NULL, 0);
            members[i] = 0;
        }
}

static void start_member(unsigned base, unsigned i)
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

/* ---- the coordinator ---- */

static void *run(void *arg)
{
    coordinating_run(arg);
    return NULL;
}

static void report(const char *what)
{
    printf("  the coordinator %s\n", what);
}

static struct coord_params params(void)
{
    return (struct coord_params){.design = design_find("srvlock"),
                                 .space = "names",
                                 .locks = LOCKS,
                                 .lease_ns = 10 * NS_PER_S,
                                 .retry_ns = 5 * NS_PER_MS,
                                 .machines = 16,
                                 .sessions = 16,
                                 .requests = 16,
                                 .servers = 1,
                                 .fresh = true,
                                 .keys = PAWL_KEYS_NAMED};
}

/* ---- clients ---- */

struct question {
    uint64_t nonce, begin_ns;
};

static void ask(struct udp *u, struct question *q, uint64_t number)
{
    struct coord_key k;
    memset(&k, 0, sizeof k);
    q->nonce = number + 1;
    q->begin_ns = kit_now();
    coord_make(&k.packet, COORD_FIND, "names", NULL, q->nonce);
    k.len = (uint32_t)snprintf(k.bytes, sizeof k.bytes, "a name of the usual length, %lu", (unsigned long)number);
    const struct udp_out out = {.to = c.udp.at, .len = sizeof k, .data = &k};
    udp_send(u, &out, 1);
}

/* So many clients, each with one question, until that time or that many names; the number of answers. */
static unsigned run_clients(unsigned clients, uint64_t until, unsigned names_max, uint64_t *next, double *took)
{
    static struct udp_batch batch;
    struct question q[CLIENTS];
    struct udp u;
    unsigned done = 0;
    if (udp_open(&u, net_v4(htonl(INADDR_LOOPBACK), 0)))
        kit_die("no socket");
    for (unsigned i = 0; i < clients; i++)
        ask(&u, &q[i], (*next)++);
    while (kit_now() < until && done < names_max) {
        unsigned n = udp_wait(&u, &batch, 0, world_now(&world_real) + NS_PER_S);
        for (unsigned i = 0; i < n && done < names_max; i++) {
            const struct coord_packet *p = coord_check(batch.packet[i].data, batch.packet[i].len, 0);
            for (unsigned j = 0; p && p->head.type == COORD_FOUND && j < clients; j++)
                if (q[j].nonce == p->head.nonce) {
                    if (p->code)
                        kit_die("the coordinator refuses: %s", pawl_strerror(p->code));
                    took[done++] = (double)(kit_now() - q[j].begin_ns) / 1e6;
                    ask(&u, &q[j], (*next)++);
                    break;
                }
        }
        if (!n)
            kit_die("no answer within a second");
    }
    udp_close(&u);
    return done;
}

static void measure(struct kit *k, const char *where, double bound_ms, double bound_rate)
{
    static double took[LOCKS];
    char what[96];
    uint64_t next = 0, begin;
    unsigned n = run_clients(1, UINT64_MAX, ONES, &next, took);
    snprintf(what, sizeof what, "a new name, %s, median", where);
    kit_judge(k, what, kit_percentile(took, n, 0.5), "ms", bound_ms);
    begin = kit_now();
    n = run_clients(CLIENTS, begin + (uint64_t)((double)MANY_NS * k->scale), LOCKS, &next, took);
    snprintf(what, sizeof what, "new names of %u clients, %s", CLIENTS, where);
    kit_judge_least(k, what, n / ((double)(kit_now() - begin) / 1e9), "per second", bound_rate);
    printf("  of %u: median %.2f ms, 99th percentile %.2f ms\n", n, kit_percentile(took, n, 0.5), kit_percentile(took, n, 0.99));
}

static void with(struct kit *k, const struct state_params *state, const char *where, double bound_ms, double bound_rate)
{
    pthread_t thread;
    const struct coord_params p = params();
    stop = 0;
    c.stop = &stop;
    if (coordinating_open(&c, &p, state, net_v4(htonl(INADDR_LOOPBACK), 0)))
        kit_die("%s", explained());
    if (pthread_create(&thread, NULL, run, &c))
        kit_die("no thread");
    measure(k, where, bound_ms, bound_rate);
    stop = SIGTERM;
    pthread_join(thread, NULL);
    coordinating_close(&c);
}

static void with_etcd(struct kit *k, struct state_params *state)
{
    char where[128];
    struct coordinating_etcd e = {.place = where, .lease_ns = NS_PER_S, .report = report};
    uint64_t cluster, until = kit_now() + START_NS;
    unsigned base = 12000 + (unsigned)getpid() % 1000 * 20;
    snprintf(where, sizeof where, ETCD_SCHEME "127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u/bench", base, base + 1, base + 2);
    if (etcd_open(where, &e.etcd, &e.prefix)) {
        printf("SKIP: %s\n", explained());
        return;
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        start_member(base, i);
    kit_sleep(NS_PER_S);
    if (waitpid(members[0], NULL, WNOHANG) == members[0]) {
        printf("SKIP: etcd does not start (Debian: etcd-server)\n");
        members[0] = 0;
    } else {
        while (e.etcd->ops->check(e.etcd, e.etcd->ops->now(e.etcd) + NS_PER_S, &cluster) && kit_now() < until)
            kit_sleep(100 * NS_PER_MS);
        kit_sleep(2 * NS_PER_S); /* they elect */
        c.etcd = &e;
        state->path = NULL;
        with(k, state, "etcd", 3.0, 5000);
    }
    etcd_close(e.etcd);
    end_members();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void remove_folder(void)
{
    end_members();
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv)
{
    struct kit k;
    char path[96];
    const char *disk = getenv("TMPDIR");
    kit_begin(&k, argc, argv, "new names of a coordinator");
    snprintf(folder, sizeof folder, "%.40s/pawl-names.XXXXXX", disk ? disk : "/var/tmp");
    if (!mkdtemp(folder))
        kit_die("%s: %s", folder, strerror(errno));
    atexit(remove_folder);
    snprintf(path, sizeof path, "%s/names.state", folder);
    struct state_params state = {.disk = &disk_real, .path = path, .how = STORE_FRESH, .id = {1, 2}, .life = 1};
    with(&k, &state, "file", 1.0, 20000);
    with_etcd(&k, &state);
    return kit_end(&k);
}
