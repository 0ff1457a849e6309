/* SPDX-License-Identifier: Apache-2.0 */
/* Uncontended locks on a memory node under libfabric, provider tcp on loopback, against one bare compare-and-swap of the provider
 * in the same run, in turns; and what a client costs the node in memory. PAWL_BENCH_PROVIDER: another provider, or libibverbs. The
 * node sleeps when it is idle, as it does by default, on a core of its own if there are two. */
#include "bench/kit.h"
#include "client/far.h"
#include "node/memory_rdma.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 15
#define TURNS 100
#define LOCKS 1024u
#define LEASE_NS (60 * NS_PER_S)
#define SPACE "bench"
#define SPARE 3072u /* words of the header's page that no header reaches */
#define FEW 4       /* clients whose memory is compared: with few, */
#define MANY 36     /* and with many */

static pawl *session;
static struct node_udp *bare_node;
static struct fab_rdma *bare;
static uint64_t count;

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    (void)format;
}

/* ---- the node ---- */

struct started {
    uint32_t ready;
    uint16_t port;
};

static void node_main(struct started *told, const char *design, const char *provider, int cpu)
{
    static struct memory_node m;
    static volatile sig_atomic_t never;
    const struct design *d = design_find(design);
    bool ranges = d->features & DESIGN_RANGES;
    struct memory_home home;
    struct memory_rdma ofi = {.provider = provider,
                              .at = net_v4(htonl(INADDR_LOOPBACK), 0),
                              .clients = MEMNODE_CLIENTS_MAX,
                              .spin_ns = 0,
                              .report = report};
    const struct memory_node_params p = {.layout = {.design = d,
                                                    .keys = PAWL_KEYS_DENSE,
                                                    .capacity = ranges ? 16 : LOCKS,
                                                    .sessions = 64,
                                                    .holds = 64,
                                                    .range_units = ranges ? 4096 : 0,
                                                    .range_max = ranges ? 4096 : 0,
                                                    .lease_ns = LEASE_NS,
                                                    .check_ns = LEASE_NS / 8},
                                         .home = &home,
                                         .space = SPACE,
                                         .at = ofi.at,
                                         .fresh = true};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(cpu);
    if (memory_rdma_home(&ofi, &home) || memory_node_open(&m, &p))
        kit_die("cannot start the node: %s", pawl_explain());
    told->port = m.udp.at.port;
    kit_post(&told->ready, 1);
    memory_node_run(&m, &never);
}

static pid_t start(const char *design, const char *provider, int cpu, char where[64])
{
    struct started *told = kit_shared(sizeof *told);
    pid_t pid = fork();
    if (!pid) {
        node_main(told, design, provider, cpu);
        _exit(0);
    }
    kit_await(&told->ready, 1);
    snprintf(where, 64, "127.0.0.1:%u/" SPACE, told->port);
    munmap(told, sizeof *told);
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void connect_bare(const char *place)
{
    struct net_where w;
    if (net_where_parse(place, &w) || far_open(&w, "the node", 0, kit_now() + 10 * NS_PER_S, &bare_node) ||
        far_fabric_open(bare_node, "the node", kit_now() + 10 * NS_PER_S, &bare))
        kit_die("cannot connect: %s", pawl_explain());
}

/* ---- what is measured ---- */

static double bare_cas(void)
{
    uint64_t old, begin = kit_now();
    int rc = fab_cas64(fab_rdma_ep(bare), 8, 1, 1, &old); /* changes nothing */
    if (rc && rc != -FAB_EUNKNOWN)                        /* the machine was busy for long: a median does not mind */
        kit_die("a CAS failed: %d", rc);
    return (double)(kit_now() - begin);
}

/* A lock needs this much of the fabric: its record, the step into it, and its token, in one round trip. */
static double bare_verbs(unsigned verbs)
{
    uint64_t value = 0, begin = kit_now();
    struct fab_op ops[] = {{.verb = FAB_WRITE, .len = 8, .addr = SPARE, .buf = &value},
                           {.verb = FAB_FAA, .width = 8, .addr = SPARE + 8},
                           {.verb = FAB_FAA, .width = 8, .addr = SPARE + 16}};
    if (fab_batch(fab_rdma_ep(bare), ops, verbs))
        kit_die("a batch failed");
    return (double)(kit_now() - begin);
}

static double bare_pair(void)
{
    return bare_verbs(2);
}
static double bare_batch(void)
{
    return bare_verbs(3);
}

static double acquire(enum pawl_mode mode, bool range)
{
    pawl_grant g;
    uint64_t key = ++count % (range ? 16 : LOCKS), begin = kit_now();
    int rc = range ? pawl_lock_range(session, pawl_id(key), 64 * 4096, 65 * 4096, mode, UINT64_MAX, &g)
                   : pawl_lock(session, pawl_id(key), mode, &g);
    double took = (double)(kit_now() - begin);
    if (rc || pawl_unlock(session, &g))
        kit_die("cannot lock: %s", pawl_explain());
    return took;
}

static double writer(void)
{
    return acquire(PAWL_EXCLUSIVE, false);
}
static double reader(void)
{
    return acquire(PAWL_SHARED, false);
}
static double range(void)
{
    return acquire(PAWL_EXCLUSIVE, true);
}

static void compare(struct kit *k, const char *name, double (*once)(void), double bound)
{
    static double a[TURNS], b[TURNS], as[ROUNDS], bs[ROUNDS], ratio[ROUNDS];
    unsigned rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    char what[128];
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned j = 0; j < TURNS; j++) {
            a[j] = bare_cas();
            b[j] = once();
        }
        as[i] = kit_percentile(a, TURNS, 0.5);
        bs[i] = kit_percentile(b, TURNS, 0.5);
        ratio[i] = bs[i] / as[i];
    }
    snprintf(what, sizeof what, "%s against a bare CAS: %.1f us against %.1f us, ratio", name,
             kit_percentile(bs, rounds, 0.5) / 1000, kit_percentile(as, rounds, 0.5) / 1000);
    kit_judge(k, what, kit_percentile(ratio, rounds, 0.5), "x", bound);
}

static void with_design(struct kit *k, const char *design, const char *provider)
{
    char place[64], where[80], name[96];
    bool ranges = design_find(design)->features & DESIGN_RANGES, main = !strcmp(design, "shiftlock64");
    pid_t node = start(design, provider, k->cpus[1], place);
    snprintf(where, sizeof where, "pawl://%s", place);
    connect_bare(place);
    if (pawl_open(where, NULL, &session))
        kit_die("cannot open a session: %s", pawl_explain());
    snprintf(name, sizeof name, "%s, uncontended %s", design, ranges ? "range within a leaf" : "writer");
    bool verbs = !strcmp(provider, RDMA_VERBS);
    if (main)
        compare(k, "a bare WRITE and a FAA in one round trip", bare_pair, 4.0);
    if (main)
        compare(k, "a bare WRITE and two FAAs in one round trip", bare_batch, 4.0);
    compare(k, name, ranges ? range : writer, main ? verbs ? 2.3 : 2.0 : ranges ? 14.0 : !strcmp(design, "word") ? 4.0 : 12.0);
    snprintf(name, sizeof name, "%s, uncontended reader", design);
    if (design_find(design)->features & DESIGN_SHARED && !ranges)
        compare(k, name, reader, main && verbs ? 1.15 : 4.0);
    pawl_close(session);
    fab_rdma_close(bare);
    far_close(bare_node);
    stop(node);
}

/* ---- memory ---- */

static double resident_kib(pid_t pid)
{
    char path[64], line[128];
    unsigned long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6))
            kib = strtoul(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return (double)kib;
}

/* Sessions of one process, which connect one after the other. */
static void memory(struct kit *k, const char *provider)
{
    static pawl *sessions[MANY];
    char place[64], where[80];
    pid_t node = start("shiftlock64", provider, k->cpus[1], place);
    double none = resident_kib(node), few = none;
    uint64_t begin = kit_now();
    snprintf(where, sizeof where, "pawl://%s", place);
    for (unsigned i = 0; i < MANY; i++) {
        if (pawl_open(where, NULL, &sessions[i]))
            kit_die("cannot open session %u: %s", i, pawl_explain());
        if (i + 1 == FEW)
            few = resident_kib(node);
    }
    printf("a client connects and opens a session in %.1f ms\n", (double)(kit_now() - begin) / 1e6 / MANY);
    double many = resident_kib(node);
    printf("the node's process: %.0f KiB without clients, %.0f KiB with %d, %.0f KiB with %d\n", none, few, FEW, many, MANY);
    kit_judge(k, "memory of the node for each further client", (many - few) / (MANY - FEW), "KiB", 100);
    for (unsigned i = 0; i < MANY; i++)
        pawl_close(sessions[i]);
    stop(node);
}

int main(int argc, char **argv)
{
    struct kit k;
    const char *provider = getenv("PAWL_BENCH_PROVIDER");
    kit_begin(&k, argc, argv, "locks on a memory node under libfabric or libibverbs against a bare compare-and-swap");
    provider = provider ? provider : "tcp";
    if (strcmp(provider, RDMA_VERBS) != 0 ? !ofi_version() : !ibv_loads()) {
        printf("left out: %s\n", pawl_explain());
        return kit_end(&k);
    }
    kit_pin(k.cpus[0]);
    with_design(&k, "shiftlock64", provider);
    with_design(&k, "word", provider);
    with_design(&k, "alock", provider);
    with_design(&k, "citron", provider);
    memory(&k, provider);
    return kit_end(&k);
}
