/* SPDX-License-Identifier: Apache-2.0 */
/* Acquire and release through the kernel's switch, against Redis (SET NX PX, and a script that deletes the client's own key) and
 * against our own switch in software. The same loop drives all of them, in turns, and every client has a socket of its own. All
 * have two cores: Redis and the switch in software one for the clients and one for the server; the kernel's switch has no server,
 * and many clients have both. In a lab: costs of processors, not of a network. */
#include "bench/xdp-rack.h"
#include "wire/afxdp.h"
#include "wire/many.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>

#define CLIENTS_MAX 64
#define LOCKS 1000000
#define ROUNDS 7
#define ROUND_NS (300 * NS_PER_MS)
#define LOST_NS (100 * NS_PER_MS) /* without any answer: a packet was lost */
#define REDIS_PORT 6399
#define SCRIPT "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"

enum system { KERNEL, SOFT, REDIS, SYSTEMS };
static const char *const names[] = {"the kernel's switch", "a switch in software", "Redis"};

struct client {
    int fd;
    unsigned number;
    bool holds;
    uint64_t nonce, index, start;
    uint32_t term;
    struct rng rng;
};

static char sha[41];

/* ---- one step ---- */

static void send_all(int fd, const void *data, size_t len)
{
    if (send(fd, data, len, 0) != (ssize_t)len)
        kit_die("send: %s", strerror(errno));
}

static void ask(struct client *c, enum system s)
{
    if (!c->holds)
        c->index = rng_below(&c->rng, LOCKS);
    c->nonce++;
    if (s == REDIS) {
        char line[256];
        int n = c->holds ? snprintf(line, sizeof line, "EVALSHA %s 1 lock:%" PRIu64 " c%u\r\n", sha, c->index, c->number)
                         : snprintf(line, sizeof line, "SET lock:%" PRIu64 " c%u NX PX 10000\r\n", c->index, c->number);
        send_all(c->fd, line, (size_t)n);
        return;
    }
    struct fission_packet f = bench_packet((uint16_t)(CLIENT_PORT + c->number), c->holds ? FISSION_FREE : FISSION_ACQUIRE,
                                           FISSION_EXCLUSIVE, c->index, c->nonce);
    f.term = c->term;
    f.flags = FISSION_NOWAIT; /* as NX: a held lock is refused */
    send_all(c->fd, &f, sizeof f);
}

/* Whether the answer has come. */
static bool answered(struct client *c, enum system s)
{
    union {
        char line[256];
        struct fission_packet f;
    } in;
    ssize_t n = recv(c->fd, &in, sizeof in, MSG_DONTWAIT);
    if (n <= 0)
        return false;
    if (s == REDIS) {
        if (memcmp(in.line, c->holds ? ":1" : "+OK", 2) != 0 && memcmp(in.line, "$-1", 3) != 0)
            kit_die("Redis: %.*s", (int)n, in.line);
        c->holds = in.line[0] == '+';
        return true;
    }
    if (n != sizeof in.f || in.f.head.nonce != c->nonce)
        return false;
    if (!c->holds && in.f.head.type != FISSION_GRANT)
        return true; /* another client has it: the next try is for another lock */
    c->term = in.f.term;
    c->holds = !c->holds;
    return true;
}

/* ---- a round ---- */

#define PAIRS_MAX (1u << 18) /* of one loop whose duration is looked at */

struct loop {
    struct client *all;
    unsigned count;
    enum system system;
    int cpu;
    unsigned pairs;
    double seconds;
    double *latency;
};

/* The clients that may have an answer. Clients of the kernel's switch poll, as the library does before it sleeps: in the lab the
 * answer is there when the packet has left. Clients of a server sleep until it comes. */
static unsigned who_is_ready(const struct loop *l, int epoll, struct client *ready[CLIENTS_MAX])
{
    struct epoll_event events[CLIENTS_MAX];
    if (l->system == KERNEL) {
        for (unsigned i = 0; i < l->count; i++)
            ready[i] = &l->all[i];
        return l->count;
    }
    int n = epoll_wait(epoll, events, CLIENTS_MAX, 100);
    for (int i = 0; i < n; i++)
        ready[i] = events[i].data.ptr;
    return n > 0 ? (unsigned)n : 0;
}

static void *run_loop(void *arg)
{
    struct loop *l = arg;
    struct client *all = l->all;
    unsigned n = l->count;
    enum system s = l->system;
    double *latency = l->latency;
    kit_pin(l->cpu);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint64_t start = kit_now(), now = start;
    unsigned pairs = 0;
    for (unsigned i = 0; i < n; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (s != KERNEL)
            epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &e);
        all[i].start = kit_now();
        ask(&all[i], s);
    }
    for (uint64_t latest = start; now - start < ROUND_NS;) {
        struct client *ready[CLIENTS_MAX];
        unsigned got = who_is_ready(l, epoll, ready);
        for (unsigned i = 0; i < n && s != REDIS && now - latest > LOST_NS; i++)
            ask(&all[i], s);
        for (unsigned i = 0; i < got; i++) {
            struct client *c = ready[i];
            bool held = c->holds;
            if (!answered(c, s))
                continue;
            latest = now = kit_now();
            if (held && !c->holds) {
                latency[pairs++ % PAIRS_MAX] = (double)(now - c->start);
                c->start = now;
            }
            ask(c, s);
        }
        now = kit_now();
    }
    l->seconds = (double)(now - start) / 1e9;
    l->pairs = pairs;
    /* Releases all locks that are still held. */
    for (unsigned i = 0; i < n; i++)
        for (int tries = 0; tries < (s == REDIS ? 100000 : 2000); tries++) { /* a packet may be lost, bytes of Redis are late */
            if (answered(&all[i], s)) {
                if (!all[i].holds)
                    break;
                ask(&all[i], s);
            }
            usleep(50);
        }
    close(epoll);
    return NULL;
}

/* Pairs per second; the median of a pair in *median_ns. */
static double run_round(struct kit *k, struct client *all, unsigned n, enum system s, double *median_ns)
{
    static double latency[2][PAIRS_MAX];
    unsigned loops = s == KERNEL && n > 1 ? 2 : 1;
    struct loop loop[2];
    pthread_t thread[2];
    double rate = 0;
    for (unsigned i = 0; i < loops; i++) {
        loop[i] =
            (struct loop){.all = all + i * (n / loops), .count = n / loops, .system = s, .cpu = k->cpus[i], .latency = latency[i]};
        if (pthread_create(&thread[i], NULL, run_loop, &loop[i]))
            kit_die("no thread");
    }
    for (unsigned i = 0; i < loops; i++) {
        pthread_join(thread[i], NULL);
        rate += loop[i].pairs / loop[i].seconds;
    }
    *median_ns = kit_percentile(latency[0], loop[0].pairs < PAIRS_MAX ? loop[0].pairs : PAIRS_MAX, 0.5);
    return rate;
}

/* ---- many clients of one process ---- */

#define FAST_PORT (CLIENT_PORT + 300)
#define NUMBER_SHIFT 48 /* of a nonce: whose it is */

static struct udp fast;

static void ask_fast(struct client *c, struct fission_packet *f, struct udp_out *out)
{
    if (!c->holds)
        c->index = rng_below(&c->rng, LOCKS);
    c->nonce = (c->nonce + 1) & ((UINT64_C(1) << NUMBER_SHIFT) - 1);
    *f = bench_packet(FAST_PORT, c->holds ? FISSION_FREE : FISSION_ACQUIRE, FISSION_EXCLUSIVE, c->index,
                      (uint64_t)c->number << NUMBER_SHIFT | c->nonce);
    f->term = c->term;
    f->flags = FISSION_NOWAIT;
    *out = (struct udp_out){.to = net_v4(htonl(lab_address(1, LAB_SWITCH)), RACK_PORT), .len = sizeof *f, .data = f};
}

/* The clients of one process, and the requests that are to leave. */
struct crowd {
    struct client *all;
    unsigned n, pairs, due;
    struct fission_packet f[CLIENTS_MAX];
    struct udp_out out[CLIENTS_MAX];
};

/* The answer to a client, whose next request is ready then. */
static void take_answer(struct crowd *w, const struct fission_packet *a, uint32_t len)
{
    struct client *c = &w->all[(a->head.nonce >> NUMBER_SHIFT) % w->n];
    if (len != sizeof *a || a->head.nonce << 16 >> 16 != c->nonce || w->due == w->n)
        return;
    w->pairs += c->holds;
    if (c->holds || a->head.type == FISSION_GRANT)
        c->holds = !c->holds;
    c->term = a->term;
    ask_fast(c, &w->f[w->due], &w->out[w->due]);
    w->due++;
}

/* All clients are one process's, on one core. `together`: requests that are ready at the same moment leave in one datagram, as the
 * library sends them; else each in its own. Pairs per second. */
static double run_fast(struct client *all, unsigned n, bool together)
{
    static struct udp_batch batch;
    static struct crowd w;
    uint64_t start = kit_now(), now = start, latest = start;
    w = (struct crowd){.all = all, .n = n};
    for (; w.due < n; w.due++)
        ask_fast(&all[w.due], &w.f[w.due], &w.out[w.due]);
    while (now - start < ROUND_NS) {
        for (unsigned i = 0; i < w.due; i++)
            w.out[i].to.reads = together ? PACKET_MANY : 0;
        udp_send_together(&fast, w.out, w.due);
        w.due = 0;
        while (udp_receive(&fast, &batch))
            for (unsigned i = 0; i < batch.count; i++) {
                const void *data = batch.packet[i].data;
                const struct packet_head *h;
                uint32_t at = 0, len = batch.packet[i].len;
                if (!many_is(data, len))
                    take_answer(&w, data, len);
                else if (many_sound(data, len))
                    for (unsigned k = 0; (h = many_next(data, &k, &at, &len));)
                        take_answer(&w, (const struct fission_packet *)h, len);
            }
        now = kit_now();
        latest = w.due ? now : latest;
        for (unsigned i = 0; i < n && !w.due && now - latest > LOST_NS; i++)
            udp_send(&fast, &w.out[i], 1);
    }
    return w.pairs / ((double)(now - start) / 1e9);
}

/* ---- set-up ---- */

static pid_t start_redis(int cpu)
{
    char port[8], address[32];
    uint32_t a = lab_address(1, LAB_SWITCH);
    snprintf(port, sizeof port, "%d", REDIS_PORT);
    snprintf(address, sizeof address, "%u.%u.%u.%u", a >> 24, a >> 16 & 0xff, a >> 8 & 0xff, a & 0xff);
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(cpu);
    if (!lab_enter(&rack, 1, LAB_SWITCH) && freopen("/dev/null", "w", stdout))
        execlp("redis-server", "redis-server", "--port", port, "--bind", address, "--save", "", "--appendonly", "no",
               "--protected-mode", "no", "--dir", "/tmp", (char *)NULL);
    _exit(127);
}

static int redis_socket(void)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(REDIS_PORT), .sin_addr.s_addr = htonl(lab_address(1, LAB_SWITCH))};
    int one = 1;
    lab_enter(&rack, 1, 1);
    for (int i = 0; i < 100; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!connect(fd, (struct sockaddr *)&to, sizeof to))
            return fd;
        close(fd);
        usleep(50000);
    }
    return -1;
}

static bool load_script(int fd)
{
    char reply[128] = "";
    static const char line[] = "SCRIPT LOAD \"" SCRIPT "\"\r\n";
    send_all(fd, line, sizeof line - 1);
    usleep(200000);
    ssize_t n = recv(fd, reply, sizeof reply - 1, 0);
    return n > 40 && sscanf(reply, "$40\r\n%40s", sha) == 1;
}

static struct client in_one[CLIENTS_MAX];

/* When a program is attached to an interface or detached, the kernel sets the interface up anew, and frames are lost meanwhile. So
 * the measurement begins when echoes come back. */
static void settle(int fd)
{
    for (uint64_t nonce = 1, good = 0; good < 100 && nonce < 1000; nonce++) {
        struct fission_packet f = bench_packet(CLIENT_PORT, 0, 0, 0, nonce << 32), a;
        f.head.family = PACKET_ECHO;
        good = bench_ask(fd, &f, &a) ? good + 1 : 0;
    }
}

static void compare(struct kit *k, struct client all[SYSTEMS][CLIENTS_MAX], unsigned n, unsigned systems)
{
    char why[AFXDP_WHY] = "";
    double rate[SYSTEMS][ROUNDS], median[SYSTEMS][ROUNDS], ratio[ROUNDS], soft[ROUNDS], past[ROUNDS], past_ratio[ROUNDS];
    double joint[ROUNDS], joint_ratio[ROUNDS];
    for (unsigned r = 0; r < ROUNDS; r++) {
        kit_pin(k->cpus[0]);
        past[r] = 0;
        if (n > 1 && !afxdp_open(fast.at, &fast.fast, why)) {
            settle(all[KERNEL][0].fd);
            past[r] = run_fast(in_one, n, false);
            afxdp_close(fast.fast); /* frames of the others would pass its program */
            fast.fast = NULL;
            settle(all[KERNEL][0].fd);
        }
        joint[r] = n > 1 ? run_fast(in_one, n, true) : 0;
        for (unsigned s = 0; s < systems; s++)
            rate[s][r] = run_round(k, all[s], n, s, &median[s][r]);
        soft[r] = n == 1 ? median[SOFT][r] / median[KERNEL][r] : rate[KERNEL][r] / rate[SOFT][r];
        ratio[r] = systems < SYSTEMS ? 0 : n == 1 ? median[REDIS][r] / median[KERNEL][r] : rate[KERNEL][r] / rate[REDIS][r];
        joint_ratio[r] = systems < SYSTEMS ? 0 : joint[r] / rate[REDIS][r];
        past_ratio[r] = systems < SYSTEMS ? 0 : past[r] / rate[REDIS][r];
    }
    printf(" %u client%s\n", n, n > 1 ? "s" : "");
    for (unsigned s = 0; s < systems; s++)
        printf("  %-24s %9.0f pairs/s, median pair %8.2f us\n", names[s], kit_percentile(rate[s], ROUNDS, 0.5),
               kit_percentile(median[s], ROUNDS, 0.5) / 1e3);
    if (*why)
        printf("  no AF_XDP here: %s\n", why);
    else if (n > 1)
        printf("  %-24s %9.0f pairs/s: all clients are one process's, by AF_XDP, on one core\n", names[KERNEL],
               kit_percentile(past, ROUNDS, 0.5));
    if (n > 1)
        printf("  %-24s %9.0f pairs/s: all clients are one process's, several requests in a datagram, on one core\n", names[KERNEL],
               kit_percentile(joint, ROUNDS, 0.5));
    if (n == 1)
        kit_judge_least(k, "median pair of a switch in software, against the kernel's", kit_percentile(soft, ROUNDS, 0.5), "x", 2);
    if (systems == SYSTEMS && n == 1)
        kit_judge_least(k, "median pair of Redis, against the kernel's switch", kit_percentile(ratio, ROUNDS, 0.5), "x", 5);
    else if (systems == SYSTEMS)
        kit_judge_least(k, "pairs per second of the kernel's switch, against Redis", kit_percentile(ratio, ROUNDS, 0.5), "x", 3);
    if (systems == SYSTEMS && n > 1)
        kit_judge_least(k, "the same with several requests in a datagram", kit_percentile(joint_ratio, ROUNDS, 0.5), "x", 8);
    if (systems == SYSTEMS && n > 1 && !*why)
        kit_judge_least(k, "the same by AF_XDP, on one core", kit_percentile(past_ratio, ROUNDS, 0.5), "x", 3);
}

int main(int argc, char **argv)
{
    static struct client all[SYSTEMS][CLIENTS_MAX];
    struct kit k;
    kit_begin(&k, argc, argv, "acquire and release through the kernel's switch, against Redis, in a lab");
    rack_lease_ns = BENCH_LEASE_NS;
    rack_up("redis", 1, false);
    pid_t soft = bench_soft(LAB_SWITCH, SOFT_PORT, LOCKS, k.cpus[1]), redis = start_redis(k.cpus[1]);
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        all[KERNEL][i] = (struct client){.fd = bench_socket((uint16_t)(CLIENT_PORT + i), LAB_SWITCH, RACK_PORT), .number = i};
        all[SOFT][i] =
            (struct client){.fd = bench_socket((uint16_t)(CLIENT_PORT + 100 + i), LAB_SWITCH, SOFT_PORT), .number = 100 + i};
        all[REDIS][i] = (struct client){.fd = i && all[REDIS][0].fd < 0 ? -1 : redis_socket(), .number = i};
        in_one[i] = (struct client){.number = i};
        rng_seed(&in_one[i].rng, 1 + i);
        for (unsigned s = 0; s < SYSTEMS; s++)
            rng_seed(&all[s][i].rng, 1 + i);
    }
    bool has_redis = all[REDIS][0].fd >= 0 && load_script(all[REDIS][0].fd);
    if (!has_redis)
        printf("  Redis does not answer: the Debian package is redis-server\n");
    struct plane *p = rack_plane("fission", LOCKS, NULL, false);
    rack_attach(p, PLANE_GENERIC);
    bench_lease();
    if (lab_enter(&rack, 1, 1) || udp_open(&fast, net_v4(htonl(lab_address(1, 1)), FAST_PORT)))
        kit_die("no socket");
    compare(&k, all, 1, has_redis ? SYSTEMS : REDIS);
    compare(&k, all, CLIENTS_MAX, has_redis ? SYSTEMS : REDIS);
    udp_close(&fast);
    plane_close(p, PLANE_REMOVE);
    bench_end(soft);
    bench_end(redis);
    lab_down(rack.name);
    return kit_end(&k);
}
