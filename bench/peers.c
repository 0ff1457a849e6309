/* SPDX-License-Identifier: Apache-2.0 */
/* How long one client takes to lock and unlock a free lock of Redis (SET NX PX) and of etcd (its lock service, by the HTTP
 * gateway), beside a robust process-shared mutex and pawl's own locks on shared memory. One client on one core, a server on the
 * other, over loopback. The systems take turns in short rounds; a figure is the median of the rounds' medians. --json prints an
 * array for scripts/latency. */
#include "bench/kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 7
#define ROUND_NS (300 * NS_PER_MS)
#define LOCKS 1000u
#define BATCH 64u /* pairs between two looks at the clock, where one costs no more than the clock does */
#define SAMPLES_MAX (1u << 20)
#define REDIS_PORT 6398
#define ETCD_PORT 23798
#define ETCD_PEER_PORT 23799
#define START_TRIES 300 /* of 100 ms: etcd takes some seconds on a busy machine */
#define REPLY_MAX 4096

static struct kit kit;
static double samples[SAMPLES_MAX];

/* ---- servers ---- */

static pid_t servers[2];

static void stop_servers(void)
{
    for (unsigned i = 0; i < countof(servers); i++)
        if (servers[i] > 0) {
            kill(servers[i], SIGTERM);
            waitpid(servers[i], NULL, 0);
            servers[i] = 0;
        }
}

/* etcd's files, so that the folder can be removed. */
static void remove_data(void)
{
    char line[160];
    snprintf(line, sizeof line, "rm -rf %s/etcd", kit.folder);
    if (system(line))
        fprintf(stderr, "cannot remove %s/etcd\n", kit.folder);
}

/* A command line, on the other core. */
static pid_t start(const char *line)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        kit_die("fork: %s", strerror(errno));
    if (!pid) {
        kit_pin(kit.cpus[1]);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int dial(uint16_t port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (unsigned i = 0; i < START_TRIES; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        if (fd >= 0 && !connect(fd, (const struct sockaddr *)&to, sizeof to)) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return fd;
        }
        close(fd);
        kit_sleep(100 * NS_PER_MS);
    }
    return -1;
}

static void send_text(int fd, const char *text, size_t len)
{
    if (send(fd, text, len, MSG_NOSIGNAL) != (ssize_t)len)
        kit_die("send: %s", strerror(errno));
}

/* ---- systems ---- */

struct system {
    const char *name;
    bool quick; /* costs about as much as reading the clock: timed in batches */
    bool (*begin)(void);
    void (*acquire)(unsigned lock);
    void (*release)(unsigned lock);
    double p50_ns[ROUNDS], p99_ns[ROUNDS];
    bool there;
};

static pawl *handle;
static pawl_grant grant;

static bool word_begin(void)
{
    handle = kit_open(&kit, &(pawl_options){.keys = PAWL_KEYS_SPARSE});
    return true;
}

static void word_acquire(unsigned lock)
{
    int rc = pawl_lock(handle, pawl_id(lock), PAWL_EXCLUSIVE, &grant);
    if (rc)
        kit_die("pawl_lock: %s", pawl_strerror(rc));
}

static void word_release(unsigned lock)
{
    pawl_unlock(handle, &grant);
}

static pthread_mutex_t *mutexes;

static bool mutex_begin(void)
{
    pthread_mutexattr_t attr;
    mutexes = kit_shared(LOCKS * sizeof *mutexes);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (unsigned i = 0; i < LOCKS; i++)
        pthread_mutex_init(&mutexes[i], &attr);
    return true;
}

static void mutex_acquire(unsigned lock)
{
    pthread_mutex_lock(&mutexes[lock]);
}

static void mutex_release(unsigned lock)
{
    pthread_mutex_unlock(&mutexes[lock]);
}

static int redis;
static char reply[REPLY_MAX];

static bool redis_begin(void)
{
    char line[160];
    snprintf(line, sizeof line, "exec redis-server --port %d --bind 127.0.0.1 --save '' --appendonly no >/dev/null 2>&1",
             REDIS_PORT);
    servers[0] = start(line);
    redis = dial(REDIS_PORT);
    return redis >= 0;
}

static void redis_ask(const char *line, size_t len, char expected)
{
    send_text(redis, line, len);
    ssize_t n = recv(redis, reply, sizeof reply, 0);
    if (n < 1 || reply[0] != expected)
        kit_die("Redis answers '%.*s'", n > 0 ? (int)n : 0, reply);
}

static void redis_acquire(unsigned lock)
{
    char line[96];
    redis_ask(line, (size_t)snprintf(line, sizeof line, "SET lock:%u me NX PX 10000\r\n", lock), '+');
}

/* As in the documentation of Redis: deletes the key only if it is the client's own. */
static void redis_release(unsigned lock)
{
    char line[256];
    int n = snprintf(line, sizeof line,
                     "EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end\" 1 "
                     "lock:%u me\r\n",
                     lock);
    redis_ask(line, (size_t)n, ':');
}

static int etcd;
static char etcd_lease[32], etcd_key[256];

/* POST, and the JSON string that the reply has under `name`. */
static bool etcd_call(const char *path, const char *body, const char *name, char *out, size_t room)
{
    char request[1024];
    int n = snprintf(request, sizeof request,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", path,
                     strlen(body), body);
    send_text(etcd, request, (size_t)n);
    size_t got = 0, want = 0;
    do {
        ssize_t more = recv(etcd, reply + got, sizeof reply - 1 - got, 0);
        if (more <= 0)
            kit_die("etcd: the connection ended");
        got += (size_t)more;
        reply[got] = 0;
        const char *head = strstr(reply, "\r\n\r\n"), *length = strcasestr(reply, "content-length:");
        if (head && length)
            want = (size_t)(head + 4 - reply) + strtoul(length + strlen("content-length:"), NULL, 10);
    } while (!want || got < want);
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":\"", name);
    const char *value = strstr(reply, quoted);
    size_t len = value ? strcspn(value + strlen(quoted), "\"") : room;
    if (len >= room)
        return false;
    memcpy(out, value + strlen(quoted), len);
    out[len] = 0;
    return true;
}

static bool etcd_begin(void)
{
    char line[640];
    snprintf(line, sizeof line,
             "url=http://127.0.0.1; exec etcd --data-dir %s/etcd --listen-client-urls $url:%d --advertise-client-urls $url:%d "
             "--listen-peer-urls $url:%d --initial-advertise-peer-urls $url:%d --initial-cluster default=$url:%d >/dev/null 2>&1",
             kit.folder, ETCD_PORT, ETCD_PORT, ETCD_PEER_PORT, ETCD_PEER_PORT, ETCD_PEER_PORT);
    servers[1] = start(line);
    etcd = dial(ETCD_PORT);
    for (unsigned i = 0; etcd >= 0 && i < START_TRIES; i++) { /* it listens before it has elected itself */
        if (etcd_call("/v3/lease/grant", "{\"TTL\":600}", "ID", etcd_lease, sizeof etcd_lease))
            return true;
        kit_sleep(100 * NS_PER_MS);
    }
    return false;
}

static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void etcd_acquire(unsigned lock)
{
    char body[128];
    const char name[5] = {base64[lock >> 12 & 63], base64[lock >> 6 & 63], base64[lock & 63], 'A', 0};
    snprintf(body, sizeof body, "{\"name\":\"%s\",\"lease\":\"%s\"}", name, etcd_lease);
    if (!etcd_call("/v3/lock/lock", body, "key", etcd_key, sizeof etcd_key))
        kit_die("etcd: %s", reply);
}

static void etcd_release(unsigned lock)
{
    char body[320], revision[32];
    snprintf(body, sizeof body, "{\"key\":\"%s\"}", etcd_key);
    if (!etcd_call("/v3/lock/unlock", body, "revision", revision, sizeof revision))
        kit_die("etcd: %s", reply);
}

static struct system systems[] = {
    {.name = "word", .quick = true, .begin = word_begin, .acquire = word_acquire, .release = word_release},
    {.name = "robust mutex", .quick = true, .begin = mutex_begin, .acquire = mutex_acquire, .release = mutex_release},
    {.name = "Redis", .begin = redis_begin, .acquire = redis_acquire, .release = redis_release},
    {.name = "etcd", .begin = etcd_begin, .acquire = etcd_acquire, .release = etcd_release},
};

/* ---- measuring ---- */

/* Nanoseconds for a lock and its unlock. */
static double time_pairs(const struct system *s, unsigned at, unsigned pairs)
{
    uint64_t from = kit_now();
    for (unsigned i = 0; i < pairs; i++) {
        unsigned lock = (at + i) * 7919u % LOCKS;
        s->acquire(lock);
        s->release(lock);
    }
    return (double)(kit_now() - from) / pairs;
}

static void run(struct system *s, unsigned round)
{
    unsigned n = 0;
    for (uint64_t until = kit_now() + (uint64_t)(ROUND_NS * kit.scale); n < SAMPLES_MAX && kit_now() < until; n++)
        samples[n] = time_pairs(s, n * BATCH, s->quick ? BATCH : 1);
    s->p50_ns[round] = kit_percentile(samples, n, 0.5);
    s->p99_ns[round] = kit_percentile(samples, n, 0.99);
}

int main(int argc, char **argv)
{
    kit_begin(&kit, argc, argv, "locking and unlocking a free lock: Redis, etcd, a robust mutex, and pawl on shared memory");
    atexit(stop_servers);
    kit_pin(kit.cpus[0]);
    for (size_t i = 0; i < countof(systems); i++) {
        systems[i].there = systems[i].begin();
        if (!systems[i].there)
            fprintf(stderr, "%s does not answer; 'scripts/deps bench' installs it\n", systems[i].name);
    }
    for (unsigned round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < countof(systems); i++)
            if (systems[i].there)
                run(&systems[i], round);
    for (size_t i = 0; i < countof(systems); i++)
        if (systems[i].there)
            printf("  %-13s %10.0f ns, p99 %10.0f ns, %8.1f times word\n", systems[i].name,
                   kit_percentile(systems[i].p50_ns, ROUNDS, 0.5), kit_percentile(systems[i].p99_ns, ROUNDS, 0.5),
                   kit_percentile(systems[i].p50_ns, ROUNDS, 0.5) / kit_percentile(systems[0].p50_ns, ROUNDS, 0.5));
    pawl_close(handle);
    stop_servers();
    remove_data();
    return kit_end(&kit);
}
