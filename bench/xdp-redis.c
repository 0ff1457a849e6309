/* Acquire and release through the kernel's switch, against Redis (SET NX PX, and a script that deletes what is one's own) and
 * against our own switch in software. The same loop of one process drives all of them, in turns; the servers have a core of their
 * own, which the kernel's switch leaves idle. In a lab: costs of processors, not of a network. */
#include "bench/xdp-rack.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#define CLIENTS_MAX 64
#define LOCKS 1000000
#define ROUNDS 7
#define ROUND_NS (300 * NS_PER_MS)
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
};

static char sha[41];
static struct rng rng;

/* ---- one step ---- */

static void send_all(int fd, const void *data, size_t len)
{
    if (send(fd, data, len, 0) != (ssize_t)len)
        kit_die("send: %s", strerror(errno));
}

static void ask(struct client *c, enum system s)
{
    if (!c->holds)
        c->index = rng_below(&rng, LOCKS);
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

static double latency[1 << 18];

/* Pairs per second; the median of a pair in *median_ns. */
static double run_round(struct client *all, unsigned n, enum system s, double *median_ns)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint64_t start = kit_now(), now = start;
    unsigned pairs = 0;
    for (unsigned i = 0; i < n; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &e);
        all[i].start = kit_now();
        ask(&all[i], s);
    }
    while (now - start < ROUND_NS) {
        struct epoll_event ready[CLIENTS_MAX];
        int got = epoll_wait(epoll, ready, CLIENTS_MAX, 100);
        if (!got)
            for (unsigned i = 0; i < n; i++)
                ask(&all[i], s); /* a packet was lost */
        for (int i = 0; i < got; i++) {
            struct client *c = ready[i].data.ptr;
            bool held = c->holds;
            if (!answered(c, s))
                continue;
            now = kit_now();
            if (held && !c->holds) {
                latency[pairs++ % countof(latency)] = (double)(now - c->start);
                c->start = now;
            }
            ask(c, s);
        }
        now = kit_now();
    }
    double seconds = (double)(now - start) / 1e9;
    *median_ns = kit_percentile(latency, pairs < countof(latency) ? pairs : (unsigned)countof(latency), 0.5);
    /* Out of everything: what is still held is let go of. */
    for (unsigned i = 0; i < n; i++)
        for (int tries = 0; tries < 2000; tries++) {
            if (answered(&all[i], s)) {
                if (!all[i].holds)
                    break;
                ask(&all[i], s);
            }
            usleep(50);
        }
    close(epoll);
    return pairs / seconds;
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

static void compare(struct kit *k, struct client all[SYSTEMS][CLIENTS_MAX], unsigned n, unsigned systems)
{
    double rate[SYSTEMS][ROUNDS], median[SYSTEMS][ROUNDS], ratio[ROUNDS], soft[ROUNDS];
    for (unsigned r = 0; r < ROUNDS; r++) {
        for (unsigned s = 0; s < systems; s++)
            rate[s][r] = run_round(all[s], n, s, &median[s][r]);
        soft[r] = n == 1 ? median[SOFT][r] / median[KERNEL][r] : rate[KERNEL][r] / rate[SOFT][r];
        ratio[r] = systems < SYSTEMS ? 0 : n == 1 ? median[REDIS][r] / median[KERNEL][r] : rate[KERNEL][r] / rate[REDIS][r];
    }
    printf(" %u client%s\n", n, n > 1 ? "s" : "");
    for (unsigned s = 0; s < systems; s++)
        printf("  %-24s %9.0f pairs/s, median pair %8.2f us\n", names[s], kit_percentile(rate[s], ROUNDS, 0.5),
               kit_percentile(median[s], ROUNDS, 0.5) / 1e3);
    if (n == 1)
        kit_judge_least(k, "median pair of a switch in software, against the kernel's", kit_percentile(soft, ROUNDS, 0.5), "x", 2);
    if (systems == SYSTEMS && n == 1)
        kit_judge_least(k, "median pair of Redis, against the kernel's switch", kit_percentile(ratio, ROUNDS, 0.5), "x", 5);
    else if (systems == SYSTEMS)
        kit_judge_least(k, "pairs per second of the kernel's switch, against Redis", kit_percentile(ratio, ROUNDS, 0.5), "x", 3);
}

int main(int argc, char **argv)
{
    static struct client all[SYSTEMS][CLIENTS_MAX];
    struct kit k;
    kit_begin(&k, argc, argv, "acquire and release through the kernel's switch, against Redis, in a lab");
    rack_lease_ns = BENCH_LEASE_NS;
    rng_seed(&rng, 1);
    rack_up("redis", 1, false);
    pid_t soft = bench_soft(LAB_SWITCH, SOFT_PORT, LOCKS, k.cpus[1]), redis = start_redis(k.cpus[1]);
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        all[KERNEL][i] = (struct client){.fd = bench_socket((uint16_t)(CLIENT_PORT + i), LAB_SWITCH, RACK_PORT), .number = i};
        all[SOFT][i] =
            (struct client){.fd = bench_socket((uint16_t)(CLIENT_PORT + 100 + i), LAB_SWITCH, SOFT_PORT), .number = 100 + i};
        all[REDIS][i] = (struct client){.fd = i && all[REDIS][0].fd < 0 ? -1 : redis_socket(), .number = i};
    }
    bool has_redis = all[REDIS][0].fd >= 0 && load_script(all[REDIS][0].fd);
    if (!has_redis)
        printf("  Redis does not answer: the Debian package is redis-server\n");
    struct plane *p = rack_plane("fission", LOCKS, NULL, false);
    rack_attach(p, PLANE_GENERIC);
    bench_lease();
    kit_pin(k.cpus[0]);
    compare(&k, all, 1, has_redis ? SYSTEMS : REDIS);
    compare(&k, all, CLIENTS_MAX, has_redis ? SYSTEMS : REDIS);
    plane_close(p, PLANE_REMOVE);
    bench_end(soft);
    bench_end(redis);
    lab_down(rack.name);
    return kit_end(&k);
}
