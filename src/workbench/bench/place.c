/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/bench/place.h"
#include "client/segment.h"
#include "node/memory_rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUESTS 64 /* of one session over UDP: what it holds, and what is still being released */
#define LEASE_NS (10 * NS_PER_S)
#define NODE_SPACE "bench"

static int fail(char why[BENCH_WHY_LEN], int rc, const char *what)
{
    const char *more = pawl_explain();
    snprintf(why, BENCH_WHY_LEN, "%s: %s", what, *more ? more : pawl_strerror(rc));
    return rc;
}

/* ---- clients ---- */

/* Only one process of a host can bypass the network stack. */
static int open_in_lab(const struct bench_place *b, unsigned number, pawl **out)
{
    char place[LAB_PLACE], fast[LAB_PLACE + 16];
    if (bench_lab_enter(&b->lab, number % b->params->nodes, place))
        return -ENOENT;
    snprintf(fast, sizeof fast, "%s?wire=afxdp", place);
    return pawl_open(b->params->fast && number < b->params->nodes ? fast : place, NULL, out);
}

int bench_place_session(const struct bench_place *b, unsigned number, pawl **out)
{
    const struct bench_params *p = b->params;
    const pawl_options options = {.flags = PAWL_NO_CREATE};
    char place[LOOPBACK_PLACE_LEN];
    if (p->lab)
        return open_in_lab(b, number, out);
    if (p->place)
        return pawl_open(p->fast && !number ? p->fast_place : p->place, NULL, out);
    if (!p->packets)
        return pawl_open(b->at, &options, out);
    loopback_place(&b->rack, number % p->nodes, place);
    return pawl_open(place, NULL, out);
}

/* ---- a memory node ---- */

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    (void)format; /* clients say what is wrong */
}

/* Where clients reach it. A card is reached by the address of its interface. */
struct node_told {
    uint16_t port;
    char ip[NET_ADDR_TEXT];
};

/* Whether that port of a card will do; `at` of `ctx` is then its address. InfiniBand without one has loopback for the control wire.
 */
static int choose_port(void *ctx, const struct ibv_port_found *found)
{
    struct memory_rdma *rdma = ctx;
    if (!found->active || found->missing || (rdma->device && strcmp(rdma->device, found->device) != 0))
        return 0;
    if (found->ethernet)
        rdma->at = found->at;
    return net_addr_known(rdma->at);
}

/* The child: tells its address through the pipe and stays until it is killed. */
static void node_main(const struct bench_place *b, int fd)
{
    static struct memory_node m;
    static const volatile sig_atomic_t never;
    const struct workload *w = &b->params->workload;
    struct memory_home home;
    struct memory_rdma rdma = {.provider = b->params->verbs ? RDMA_VERBS : b->params->provider,
                               .device = b->params->verbs ? b->params->provider : NULL,
                               .at = net_v4(htonl(INADDR_LOOPBACK), 0),
                               .clients = MEMNODE_CLIENTS_MAX,
                               .report = report};
    if (b->params->verbs)
        ibv_ports(choose_port, &rdma); /* without one, the node says so */
    const struct memory_node_params p = {.layout = {.design = b->design,
                                                    .knobs = bench_knobs(b->params, b->design),
                                                    .keys = w->names ? PAWL_KEYS_NAMED : PAWL_KEYS_DENSE,
                                                    .capacity = w->locks,
                                                    .sessions = b->params->clients + BENCH_SESSIONS_SPARE,
                                                    .holds = REQUESTS,
                                                    .lease_ns = LEASE_NS,
                                                    .check_ns = LEASE_NS / 4,
                                                    .range_units = w->length_count ? w->units : 0,
                                                    .range_max = w->length_count ? w->units : 0},
                                         .home = rdma.provider ? &home : NULL,
                                         .space = NODE_SPACE,
                                         .at = rdma.at,
                                         .fresh = true};
    char why[BENCH_WHY_LEN] = "";
    int rc = rdma.provider ? memory_rdma_home(&rdma, &home) : 0;
    if (!rc)
        rc = memory_node_open(&m, &p);
    if (rc)
        fail(why, rc, "a memory node");
    struct node_told told = {.port = m.udp.at.port};
    net_addr_print_ip(rdma.at, told.ip);
    if (write(fd, rc ? (const void *)why : &told, rc ? sizeof why : sizeof told) < 0 || rc)
        _exit(1);
    close(fd);
    memory_node_run(&m, &never);
}

static int start_node(struct bench_place *b, char why[BENCH_WHY_LEN])
{
    int fds[2];
    char told[BENCH_WHY_LEN] = "a memory node does not start";
    struct node_told node;
    if (pipe(fds))
        return fail(why, -errno, "a pipe");
    fflush(NULL);
    pid_t parent = getpid();
    b->node = fork();
    if (!b->node) {
        close(fds[0]);
        signal(SIGINT, SIG_IGN); /* the parent says when to end */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            node_main(b, fds[1]);
        _exit(1);
    }
    close(fds[1]);
    ssize_t len = b->node > 0 ? read(fds[0], told, sizeof told) : -1;
    close(fds[0]);
    if (len != (ssize_t)sizeof node) {
        snprintf(why, BENCH_WHY_LEN, "%s", told);
        return -EIO;
    }
    memcpy(&node, told, sizeof node);
    bool v6 = strchr(node.ip, ':');
    snprintf(b->at, sizeof b->at, "pawl://%s%s%s:%u/" NODE_SPACE, v6 ? "[" : "", node.ip, v6 ? "]" : "", node.port);
    return 0;
}

/* ---- opening ---- */

static int start_loopback(struct bench_place *b, char why[BENCH_WHY_LEN])
{
    const struct bench_params *p = b->params;
    const struct loopback_params l = {.design = b->design,
                                      .knobs = bench_knobs(p, b->design),
                                      .machines = (uint16_t)p->nodes,
                                      .sessions = (uint16_t)(p->clients / p->nodes + BENCH_SESSIONS_SPARE),
                                      .requests = REQUESTS,
                                      .servers = 1,
                                      .locks = p->workload.locks};
    int rc = loopback_start(&b->rack, &l);
    return rc ? fail(why, rc, "a rack on loopback") : 0;
}

static int make_folder(struct bench_place *b, char why[BENCH_WHY_LEN])
{
    snprintf(b->folder, sizeof b->folder, SEGMENT_DIR "/pawl-bench.%d.XXXXXX", (int)getpid());
    if (!mkdtemp(b->folder)) {
        b->folder[0] = 0;
        return fail(why, -errno, "a folder in " SEGMENT_DIR);
    }
    snprintf(b->at, sizeof b->at, "local:%s/%s", b->folder, b->design->name);
    return 0;
}

int bench_place_open(struct bench_place *b, const struct bench_params *p, const struct design *design, char why[BENCH_WHY_LEN])
{
    *b = (struct bench_place){.params = p, .design = design};
    if (p->place)
        return 0;
    return p->lab       ? bench_lab_start(&b->lab, p, design, why)
           : p->node    ? start_node(b, why)
           : p->packets ? start_loopback(b, why)
                        : make_folder(b, why);
}

void bench_place_close(struct bench_place *b)
{
    if (b->rack.pid > 0)
        loopback_stop(&b->rack);
    bench_lab_stop(&b->lab);
    if (b->node > 0) {
        kill(b->node, SIGKILL);
        while (waitpid(b->node, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (b->folder[0]) {
        unlink(b->at + strlen("local:"));
        rmdir(b->folder);
    }
}
