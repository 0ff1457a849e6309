/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node, in a process and in the kernel, against its peers on the same machine, in turns: verbs of libfabric's tcp
 * provider, whose target polls, and a lock pair of Redis (SET NX PX, and a script that deletes the client's own key). Needs root,
 * and redis-server for the last. */
#include "bench/node-kernel.h"

#include <netinet/tcp.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#define REDIS_PORT 6398
#define SCRIPT "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
#define FABRIC_BYTES 4096u

static struct board {
    uint32_t fabric[2];
    char name[2][256];
    size_t len[2];
    uint64_t base, key;
} * board;

/* ---- libfabric ---- */

static struct {
    struct fid_ep *ep;
    struct fid_cq *cq;
    fi_addr_t peer;
    void *desc;
    uint64_t *here; /* registered: three words for each verb in flight */
    struct fi_context contexts[4];
} fabric;

static void sure(ssize_t rc, const char *call)
{
    if (rc)
        kit_die("libfabric: %s: %s", call, fi_strerror((int)-rc));
}

static void fabric_open(unsigned me)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *f;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_mr *remote, *local;
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 256, .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr table = {.type = FI_AV_TABLE, .count = 4};
    uint64_t *memory = aligned_alloc(FABRIC_BYTES, FABRIC_BYTES);
    fabric.here = aligned_alloc(FABRIC_BYTES, FABRIC_BYTES);
    if (!hints || !memory || !fabric.here)
        kit_die("out of memory");
    memset(memory, 0, FABRIC_BYTES);
    memset(fabric.here, 0, FABRIC_BYTES);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
    hints->mode = FI_CONTEXT;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
    sure(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info), "fi_getinfo");
    sure(fi_fabric(info->fabric_attr, &f, NULL), "fi_fabric");
    sure(fi_domain(f, info, &domain, NULL), "fi_domain");
    sure(fi_cq_open(domain, &cq, &fabric.cq, NULL), "fi_cq_open");
    sure(fi_av_open(domain, &table, &av, NULL), "fi_av_open");
    sure(fi_endpoint(domain, info, &fabric.ep, NULL), "fi_endpoint");
    sure(fi_ep_bind(fabric.ep, &fabric.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    sure(fi_ep_bind(fabric.ep, &av->fid, 0), "fi_ep_bind");
    sure(fi_enable(fabric.ep), "fi_enable");
    board->len[me] = sizeof board->name[me];
    sure(fi_getname(&fabric.ep->fid, board->name[me], &board->len[me]), "fi_getname");
    sure(fi_mr_reg(domain, memory, FABRIC_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 77, 0, &remote, NULL), "fi_mr_reg");
    sure(fi_mr_reg(domain, fabric.here, FABRIC_BYTES, FI_READ | FI_WRITE | FI_SEND | FI_RECV, 0, 78, 0, &local, NULL), "fi_mr_reg");
    fabric.desc = fi_mr_desc(local);
    if (me) {
        board->key = fi_mr_key(remote);
        board->base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory : 0;
    }
    kit_post(&board->fabric[me], 1);
    kit_await(&board->fabric[!me], 1);
    if (fi_av_insert(av, board->name[!me], 1, &fabric.peer, 0, NULL) != 1)
        kit_die("libfabric: fi_av_insert");
}

static void fabric_target(const struct kit *k)
{
    struct fi_cq_entry e;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(k->cpus[1]);
    fabric_open(1);
    for (;;)
        fi_cq_read(fabric.cq, &e, 1);
}

/* A READ or WRITE of a word, posted. Each verb in flight has its place. */
static void fabric_post_word(unsigned place, bool write)
{
    uint64_t *w = fabric.here + 8 * place, at = board->base + 8 * place;
    struct iovec iov = {.iov_base = w, .iov_len = sizeof *w};
    struct fi_rma_iov target = {.addr = at, .len = sizeof *w, .key = board->key};
    struct fi_msg_rma msg = {.msg_iov = &iov,
                             .desc = &fabric.desc,
                             .iov_count = 1,
                             .addr = fabric.peer,
                             .rma_iov = &target,
                             .rma_iov_count = 1,
                             .context = &fabric.contexts[place]};
    ssize_t rc;
    do {
        rc =
            write ? fi_writemsg(fabric.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE) : fi_readmsg(fabric.ep, &msg, FI_COMPLETION);
        if (rc == -FI_EAGAIN)
            fi_cq_read(fabric.cq, NULL, 0);
    } while (rc == -FI_EAGAIN);
    sure(rc, "a READ or a WRITE");
}

/* An atomic, posted. */
static void fabric_post(unsigned place, enum fi_op op)
{
    uint64_t *w = fabric.here + 8 * place, at = board->base + 8 * place;
    ssize_t rc;
    do {
        rc = op == FI_CSWAP ? fi_compare_atomic(fabric.ep, &w[1], 1, fabric.desc, &w[0], fabric.desc, &w[2], fabric.desc,
                                                fabric.peer, at, board->key, FI_UINT64, op, &fabric.contexts[place])
                            : fi_fetch_atomic(fabric.ep, &w[1], 1, fabric.desc, &w[2], fabric.desc, fabric.peer, at, board->key,
                                              FI_UINT64, op, &fabric.contexts[place]);
        if (rc == -FI_EAGAIN)
            fi_cq_read(fabric.cq, NULL, 0);
    } while (rc == -FI_EAGAIN);
    sure(rc, "a verb");
}

static void fabric_await(unsigned n)
{
    struct fi_cq_entry e[4];
    for (uint64_t limit = kit_now() + 5 * NS_PER_S; n;) {
        ssize_t rc = fi_cq_read(fabric.cq, e, n);
        if (rc > 0)
            n -= (unsigned)rc;
        else if (rc != -FI_EAGAIN || kit_now() > limit)
            kit_die("libfabric: a completion failed");
    }
}

static void fabric_cas(void)
{
    fabric_post(0, FI_CSWAP);
    fabric_await(1);
}

/* WRITE, FAA, READ, READ. READs and WRITEs overtake atomics of the same endpoint, so the client waits wherever both kinds meet. */
static void fabric_four(void)
{
    fabric_post_word(0, true);
    fabric_await(1);
    fabric_post(1, FI_SUM);
    fabric_await(1);
    fabric_post_word(2, false);
    fabric_post_word(3, false);
    fabric_await(2);
}

/* The same, all as atomics, which the provider executes in order. */
static void fabric_four_atomics(void)
{
    fabric_post(0, FI_ATOMIC_WRITE);
    fabric_post(1, FI_SUM);
    fabric_post(2, FI_ATOMIC_READ);
    fabric_post(3, FI_ATOMIC_READ);
    fabric_await(4);
}

static double time_fabric_cas(void)
{
    return node_timed(fabric_cas);
}
static double time_fabric_four(void)
{
    return node_timed(fabric_four);
}
static double time_fabric_four_atomics(void)
{
    return node_timed(fabric_four_atomics);
}

/* ---- the node, in a process and in the kernel ---- */

static struct node_udp process;

static void process_cas(void)
{
    uint64_t old;
    if (fab_cas64(&process.node.fab, 8, 1, 1, &old))
        kit_die("a CAS failed");
}

/* The same four as libfabric's. The space is in use: the WRITE puts back the first word of its header, which never changes, and the
 * FAA adds 0. */
static void four(struct fab_ep *ep)
{
    static uint64_t first;
    uint64_t word[2];
    if (!first && fab_read64(ep, 0, &first))
        kit_die("a READ failed");
    struct fab_op ops[] = {{.verb = FAB_WRITE, .len = 8, .addr = 0, .buf = &first},
                           {.verb = FAB_FAA, .width = 8, .addr = 8},
                           {.verb = FAB_READ, .len = 8, .addr = 16, .buf = &word[0]},
                           {.verb = FAB_READ, .len = 8, .addr = 24, .buf = &word[1]}};
    if (fab_batch(ep, ops, 4))
        kit_die("a batch failed");
}

static void process_four(void)
{
    four(&process.node.fab);
}
static void kernel_four(void)
{
    four(&node_verbs.node.fab);
}

static double time_process_cas(void)
{
    return node_timed(process_cas);
}
static double time_process_four(void)
{
    return node_timed(process_four);
}
static double time_kernel_four(void)
{
    return node_timed(kernel_four);
}

static double lock_pair(void)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    if (pawl_lock(node_session, pawl_id(++node_count % NODE_LOCKS), PAWL_EXCLUSIVE, &g) || pawl_unlock(node_session, &g))
        kit_die("cannot lock: %s", pawl_explain());
    return (double)(kit_now() - begin);
}

/* ---- Redis ---- */

static int redis = -1;
static char sha[41];

static void redis_ask(const char *line, char answer[256])
{
    size_t len = strlen(line);
    if (send(redis, line, len, 0) != (ssize_t)len)
        kit_die("Redis: send");
    ssize_t n = recv(redis, answer, 255, 0);
    if (n <= 0 || answer[0] == '-')
        kit_die("Redis: %.*s", n > 0 ? (int)n : 0, answer);
    answer[n] = 0;
}

static pid_t redis_start(const struct kit *k)
{
    char port[16], line[256], answer[256];
    int yes = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(REDIS_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        kit_pin(k->cpus[1]);
        snprintf(port, sizeof port, "%d", REDIS_PORT);
        if (!freopen("/dev/null", "w", stdout))
            _exit(1);
        execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
               (char *)NULL);
        _exit(127);
    }
    redis = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (uint64_t limit = kit_now() + 5 * NS_PER_S; connect(redis, (struct sockaddr *)&at, sizeof at); kit_sleep(20 * NS_PER_MS))
        if (kit_now() > limit) {
            close(redis);
            redis = -1;
            return pid;
        }
    setsockopt(redis, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    snprintf(line, sizeof line, "SCRIPT LOAD \"%s\"\r\n", SCRIPT);
    redis_ask(line, answer);
    memcpy(sha, strchr(answer, '\n') + 1, 40);
    return pid;
}

static double redis_pair(void)
{
    char lock[256], unlock[256], answer[256];
    uint64_t key = ++node_count % NODE_LOCKS;
    snprintf(lock, sizeof lock, "SET lock:%" PRIu64 " c1 NX PX 10000\r\n", key);
    snprintf(unlock, sizeof unlock, "EVALSHA %s 1 lock:%" PRIu64 " c1\r\n", sha, key);
    uint64_t begin = kit_now();
    redis_ask(lock, answer);
    redis_ask(unlock, answer);
    return (double)(kit_now() - begin);
}

/* ---- the comparison ---- */

static void least(struct kit *k, const char *name, double (*ours)(void), double (*theirs)(void), double bound)
{
    char what[128];
    double a, b, ratio = node_ratio(k, ours, theirs, &a, &b);
    snprintf(what, sizeof what, "%s: %.1f us against %.1f us, ratio", name, b, a);
    kit_judge_least(k, what, ratio, "x", bound);
}

/* 0: a target in the kernel, which neither polls nor rests. */
static void tell(pid_t target, int signal)
{
    if (target && kill(target, signal))
        kit_die("cannot signal a target");
}

static double half(double (*once)(void), pid_t polls, pid_t rests)
{
    static double took[NODE_TURNS];
    tell(rests, SIGSTOP);
    tell(polls, SIGCONT);
    for (unsigned i = 0; i < NODE_TURNS / 10; i++)
        once(); /* until it polls */
    for (unsigned i = 0; i < NODE_TURNS; i++)
        took[i] = once();
    return kit_percentile(took, NODE_TURNS, 0.5);
}

/* Targets that poll share one core: the one whose turn it is not is stopped meanwhile. A bound of 0: the ratio is printed only. */
static void least_of_two(struct kit *k, const char *name, double (*ours)(void), pid_t our, double (*theirs)(void), pid_t their,
                         double bound)
{
    double a[NODE_ROUNDS], b[NODE_ROUNDS], ratio[NODE_ROUNDS];
    unsigned rounds = (unsigned)max_u64(5, min_u64(NODE_ROUNDS, (uint64_t)(NODE_ROUNDS * k->scale)));
    char what[128];
    for (unsigned i = 0; i < rounds; i++) {
        a[i] = half(ours, our, their);
        b[i] = half(theirs, their, our);
        ratio[i] = b[i] / a[i];
    }
    tell(our, SIGCONT);
    snprintf(what, sizeof what, "%s: %.1f us against %.1f us, ratio", name, kit_percentile(b, rounds, 0.5) / 1000,
             kit_percentile(a, rounds, 0.5) / 1000);
    if (bound > 0)
        kit_judge_least(k, what, kit_percentile(ratio, rounds, 0.5), "x", bound);
    else
        printf("%-58s %10.2fx\n", what, kit_percentile(ratio, rounds, 0.5));
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "a memory node against libfabric over TCP and against Redis");
    board = kit_shared(sizeof *board);
    rack_up("node-peers", 1, true);
    pid_t target = fork();
    if (!target)
        fabric_target(&k);
    kit_pin(k.cpus[0]);
    fabric_open(0);
    fabric_cas(); /* connects */
    struct node_started node = node_start_process(&k, "shiftlock");
    if (node_udp_open(&process, node.at, (struct net_addr){0}) ||
        fab_node_connect(&process.node, NODE_SPACE, 78, kit_now() + 10 * NS_PER_S))
        kit_die("cannot connect to the node");
    struct node_started kernel = node_start_kernel("shiftlock");
    pid_t server = redis_start(&k);
    if (lab_enter(&rack, 1, 1)) /* what is open stays where it is */
        kit_die("%s", explained());
    node_connect(kernel.at);
    least_of_two(&k, "CAS, libfabric against the process", time_process_cas, node.pid, time_fabric_cas, target, 1.7);
    least_of_two(&k, "4 in order, libfabric against the process", time_process_four, node.pid, time_fabric_four, target, 4);
    least_of_two(&k, "4 in order, libfabric (all as atomics) against the process", time_process_four, node.pid,
                 time_fabric_four_atomics, target, 4);
    node_end(node.pid); /* it polls on the core that the others need */
    least_of_two(&k, "CAS, libfabric against the kernel", node_time_cas, 0, time_fabric_cas, target, 2.5);
    least_of_two(&k, "4 in order, libfabric against the kernel", time_kernel_four, 0, time_fabric_four, target, 8);
    least_of_two(&k, "4 in order, libfabric (all as atomics) against the kernel", time_kernel_four, 0, time_fabric_four_atomics,
                 target, 0);
    node_end(target);
    if (redis >= 0)
        least(&k, "lock and unlock, Redis against shiftlock in the kernel", lock_pair, redis_pair, 5);
    else
        printf("no redis-server: no comparison\n");
    node_disconnect();
    node_end(server);
    node_end(kernel.pid);
    return kit_end(&k);
}
