/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that lock and unlock, under pawl or under another system: processes that draw one of a thousand locks, exclusively, and
 * hold it for no time. scripts/peers starts the servers, runs this program in turns, and compares. The result is JSON.
 *
 * A refused client of Redis, memcached and ZooKeeper tries again after a millisecond; the others block. */
#include "bench/crowd.h"
#include "lib/rng.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef HAVE_LIBPQ
#include <libpq-fe.h>
#endif
#ifdef HAVE_ZOOKEEPER
#include <zookeeper/zookeeper.h>
#endif

#define LOCKS 1000u /* below the usual limit of open files */
#define BATCH 64u   /* pairs between two looks at the clock, where one costs no more than the clock does */
#define REPLY_MAX 4096
#define AGAIN_NS NS_PER_MS
#define EXPIRES_S 600 /* of locks that end by themselves: longer than a round */

static struct crowd_place at;
static uint64_t port;
static const char *folder = ".", *system_name = "pawl";
static struct crowd *crowd;
static unsigned self;
static struct crowd_report *report;

static void again(void)
{
    report->conflicts++;
    kit_sleep(AGAIN_NS);
}

/* ---- pawl, on any substrate ---- */

static pawl *session;
static pawl_grant grant;

static void pawl_begin(void)
{
    int rc = crowd_open(&at, self, &session);
    if (rc)
        crowd_fail(crowd, self, "%s: %s (%s)", at.place, pawl_strerror(rc), pawl_explain());
}

static void pawl_acquire(unsigned lock)
{
    int rc = pawl_lock(session, pawl_id(lock), PAWL_EXCLUSIVE, &grant);
    if (rc)
        crowd_fail(crowd, self, "cannot lock: %s (%s)", pawl_strerror(rc), pawl_explain());
}

static void pawl_release(unsigned lock)
{
    (void)lock;
    pawl_unlock(session, &grant);
}

/* ---- this machine's own locks ---- */

static pthread_mutex_t *mutexes; /* shared by all clients */

static void mutex_make(void)
{
    pthread_mutexattr_t attr;
    mutexes = kit_shared(LOCKS * sizeof *mutexes);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (unsigned i = 0; i < LOCKS; i++)
        pthread_mutex_init(&mutexes[i], &attr);
}

static void nothing(void) {}

static void mutex_acquire(unsigned lock)
{
    pthread_mutex_lock(&mutexes[lock]);
}

static void mutex_release(unsigned lock)
{
    pthread_mutex_unlock(&mutexes[lock]);
}

static int files[LOCKS];

static int open_file(const char *name, unsigned i)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s%u", folder, name, i);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        crowd_fail(crowd, self, "%s: %s", path, strerror(errno));
    return fd;
}

static void flock_begin(void)
{
    for (unsigned i = 0; i < LOCKS; i++)
        files[i] = open_file("flock", i);
}

static void flock_acquire(unsigned lock)
{
    if (flock(files[lock], LOCK_EX))
        crowd_fail(crowd, self, "flock: %s", strerror(errno));
}

static void flock_release(unsigned lock)
{
    flock(files[lock], LOCK_UN);
}

static void ofd_begin(void)
{
    files[0] = open_file("ofd", 0);
}

static void ofd_set(unsigned lock, short type)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = lock, .l_len = 1};
    if (fcntl(files[0], F_OFD_SETLKW, &l))
        crowd_fail(crowd, self, "F_OFD_SETLKW: %s", strerror(errno));
}

static void ofd_acquire(unsigned lock)
{
    ofd_set(lock, F_WRLCK);
}

static void ofd_release(unsigned lock)
{
    ofd_set(lock, F_UNLCK);
}

/* ---- servers that speak in lines ---- */

static int server;
static char reply[REPLY_MAX];

static void dial(void)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (const struct sockaddr *)&to, sizeof to))
        crowd_fail(crowd, self, "port %" PRIu64 ": %s", port, strerror(errno));
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* The first byte of the answer, which is one line. */
static char ask(const char *line, int len)
{
    if (send(server, line, (size_t)len, MSG_NOSIGNAL) != len)
        crowd_fail(crowd, self, "send: %s", strerror(errno));
    ssize_t n = recv(server, reply, sizeof reply - 1, 0);
    if (n < 1)
        crowd_fail(crowd, self, "the server closed the connection");
    reply[n] = 0;
    return reply[0];
}

static void redis_acquire(unsigned lock)
{
    char line[96];
    int n = snprintf(line, sizeof line, "SET lock:%u c%u NX PX %u\r\n", lock, self, EXPIRES_S * 1000);
    while (ask(line, n) != '+')
        again();
}

/* As in the documentation of Redis: deletes the key only if it is the client's own. */
static void redis_release(unsigned lock)
{
    char line[256];
    int n = snprintf(line, sizeof line,
                     "EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end\" 1 "
                     "lock:%u c%u\r\n",
                     lock, self);
    if (ask(line, n) != ':')
        crowd_fail(crowd, self, "Redis answers '%s'", reply);
}

static void memcached_acquire(unsigned lock)
{
    char line[96];
    int n = snprintf(line, sizeof line, "add lock:%u 0 %u 1\r\nx\r\n", lock, EXPIRES_S);
    while (ask(line, n) != 'S')
        again();
}

static void memcached_release(unsigned lock)
{
    char line[96];
    if (ask(line, snprintf(line, sizeof line, "delete lock:%u\r\n", lock)) != 'D')
        crowd_fail(crowd, self, "memcached answers '%s'", reply);
}

/* ---- etcd: its lock service, by the HTTP gateway ---- */

static char etcd_lease[32], etcd_key[256];

/* POST, and the JSON string that the reply has under `name`. */
static bool etcd_call(const char *path, const char *body, const char *name, char *out, size_t room)
{
    char request[1024], quoted[64];
    int n = snprintf(request, sizeof request,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", path,
                     strlen(body), body);
    if (send(server, request, (size_t)n, MSG_NOSIGNAL) != n)
        crowd_fail(crowd, self, "send: %s", strerror(errno));
    size_t got = 0, want = 0;
    do {
        ssize_t more = recv(server, reply + got, sizeof reply - 1 - got, 0);
        if (more <= 0)
            crowd_fail(crowd, self, "etcd closed the connection");
        got += (size_t)more;
        reply[got] = 0;
        const char *head = strstr(reply, "\r\n\r\n"), *length = strcasestr(reply, "content-length:");
        if (head && length)
            want = (size_t)(head + 4 - reply) + strtoul(length + strlen("content-length:"), NULL, 10);
    } while (!want || got < want);
    snprintf(quoted, sizeof quoted, "\"%s\":\"", name);
    const char *value = strstr(reply, quoted);
    size_t len = value ? strcspn(value + strlen(quoted), "\"") : room;
    if (len >= room)
        return false;
    memcpy(out, value + strlen(quoted), len);
    out[len] = 0;
    return true;
}

static void etcd_begin(void)
{
    char body[32];
    dial();
    snprintf(body, sizeof body, "{\"TTL\":%u}", EXPIRES_S);
    for (unsigned i = 0; !etcd_call("/v3/lease/grant", body, "ID", etcd_lease, sizeof etcd_lease); i++) {
        if (i == 300)
            crowd_fail(crowd, self, "etcd: %s", reply);
        kit_sleep(100 * NS_PER_MS); /* it listens before it has elected itself */
    }
}

static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void etcd_acquire(unsigned lock)
{
    char body[128];
    const char name[5] = {base64[lock >> 12 & 63], base64[lock >> 6 & 63], base64[lock & 63], 'A', 0};
    snprintf(body, sizeof body, "{\"name\":\"%s\",\"lease\":\"%s\"}", name, etcd_lease);
    if (!etcd_call("/v3/lock/lock", body, "key", etcd_key, sizeof etcd_key))
        crowd_fail(crowd, self, "etcd: %s", reply);
}

static void etcd_release(unsigned lock)
{
    char body[320], revision[32];
    (void)lock;
    snprintf(body, sizeof body, "{\"key\":\"%s\"}", etcd_key);
    if (!etcd_call("/v3/lock/unlock", body, "revision", revision, sizeof revision))
        crowd_fail(crowd, self, "etcd: %s", reply);
}

/* ---- PostgreSQL: advisory locks of the session ---- */

#ifdef HAVE_LIBPQ
static PGconn *postgres;

static void postgres_begin(void)
{
    char words[160];
    snprintf(words, sizeof words, "host=127.0.0.1 port=%" PRIu64 " user=postgres dbname=postgres", port);
    postgres = PQconnectdb(words);
    if (PQstatus(postgres) != CONNECTION_OK)
        crowd_fail(crowd, self, "%s", PQerrorMessage(postgres));
    PQclear(PQprepare(postgres, "lock", "SELECT pg_advisory_lock($1::bigint)", 1, NULL));
    PQclear(PQprepare(postgres, "unlock", "SELECT pg_advisory_unlock($1::bigint)", 1, NULL));
}

static void postgres_call(const char *what, unsigned lock)
{
    char text[16];
    const char *value = text;
    snprintf(text, sizeof text, "%u", lock);
    PGresult *r = PQexecPrepared(postgres, what, 1, &value, NULL, NULL, 0);
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        crowd_fail(crowd, self, "%s", PQerrorMessage(postgres));
    PQclear(r);
}

static void postgres_acquire(unsigned lock)
{
    postgres_call("lock", lock);
}

static void postgres_release(unsigned lock)
{
    postgres_call("unlock", lock);
}
#endif

/* ---- ZooKeeper: an ephemeral node ---- */

#ifdef HAVE_ZOOKEEPER
static zhandle_t *zookeeper;

static void zookeeper_begin(void)
{
    char host[32];
    snprintf(host, sizeof host, "127.0.0.1:%" PRIu64, port);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zookeeper = zookeeper_init(host, NULL, EXPIRES_S * 1000, NULL, NULL, 0);
    for (unsigned i = 0; i < 300 && zoo_state(zookeeper) != ZOO_CONNECTED_STATE; i++)
        kit_sleep(100 * NS_PER_MS);
    if (zoo_state(zookeeper) != ZOO_CONNECTED_STATE)
        crowd_fail(crowd, self, "no connection to ZooKeeper");
}

static void zookeeper_acquire(unsigned lock)
{
    char path[32];
    int rc;
    snprintf(path, sizeof path, "/lock%u", lock);
    while ((rc = zoo_create(zookeeper, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0)) == ZNODEEXISTS)
        again();
    if (rc)
        crowd_fail(crowd, self, "ZooKeeper: %s", zerror(rc));
}

static void zookeeper_release(unsigned lock)
{
    char path[32];
    snprintf(path, sizeof path, "/lock%u", lock);
    int rc = zoo_delete(zookeeper, path, -1);
    if (rc)
        crowd_fail(crowd, self, "ZooKeeper: %s", zerror(rc));
}
#endif

/* ---- measuring ---- */

static const struct system {
    const char *name;
    bool quick; /* costs about as much as reading the clock: timed in batches */
    void (*begin)(void);
    void (*acquire)(unsigned lock);
    void (*release)(unsigned lock);
} systems[] = {
    {"pawl", false, pawl_begin, pawl_acquire, pawl_release},
    {"shm", true, pawl_begin, pawl_acquire, pawl_release},
    {"mutex", true, nothing, mutex_acquire, mutex_release},
    {"flock", false, flock_begin, flock_acquire, flock_release},
    {"ofd", false, ofd_begin, ofd_acquire, ofd_release},
    {"redis", false, dial, redis_acquire, redis_release},
    {"memcached", false, dial, memcached_acquire, memcached_release},
    {"etcd", false, etcd_begin, etcd_acquire, etcd_release},
#ifdef HAVE_LIBPQ
    {"postgres", false, postgres_begin, postgres_acquire, postgres_release},
#endif
#ifdef HAVE_ZOOKEEPER
    {"zookeeper", false, zookeeper_begin, zookeeper_acquire, zookeeper_release},
#endif
};
static const struct system *chosen;

static void work(struct crowd *c, unsigned number)
{
    struct rng rng;
    const unsigned pairs = chosen->quick ? BATCH : 1;
    crowd = c;
    self = number;
    report = &c->reports[number];
    rng_seed(&rng, number);
    chosen->begin();
    crowd_ready(c, number);
    while (!crowd_over(c)) {
        uint64_t begin = kit_now();
        for (unsigned i = 0; i < pairs; i++) {
            unsigned lock = (unsigned)rng_below(&rng, LOCKS);
            chosen->acquire(lock);
            chosen->release(lock);
        }
        hist_add(&report->hist, (kit_now() - begin) / pairs);
        report->ops += pairs;
    }
    if (session)
        pawl_close(session);
}

int main(int argc, char **argv)
{
    struct crowd c = {.clients = 1, .ns = NS_PER_S, .work = work};
    const struct arg table[] = {
        {.name = "system", .kind = ARG_STRING, .metavar = "S", .help = "which one; default pawl, at --place", .to = &system_name},
        {.name = "place", .kind = ARG_STRING, .metavar = "PLACE", .help = "pawl, shm: the space", .to = &at.place},
        {.name = "namespaces",
         .kind = ARG_STRING,
         .metavar = "FILES",
         .help = "network namespaces of the clients",
         .to = &at.namespaces},
        {.name = "hosts", .kind = ARG_U64, .metavar = "N", .help = "rack on loopback: hosts of the clients", .to = &at.hosts},
        {.name = "port", .kind = ARG_U64, .metavar = "N", .help = "of a server on loopback", .to = &port},
        {.name = "folder", .kind = ARG_STRING, .metavar = "DIR", .help = "flock, ofd: of the files", .to = &folder},
        {.name = "clients", .kind = ARG_U64, .metavar = "N", .help = "processes; default 1", .to = &c.clients},
        {.name = "seconds", .kind = ARG_DURATION, .metavar = "S", .help = "how long; default 1", .to = &c.ns},
    };
    const struct args args = {.command = "peers",
                              .usage = "[OPTION]...",
                              .about = "Locks and unlocks one of 1,000 locks, under pawl or another system. The result is JSON.",
                              ARGS_TABLE(table)};
    struct args_rest rest;
    struct json j;
    int rc = args_parse(&args, argc, argv, &rest);
    if (rc != ARGS_RUN)
        return rc;
    for (size_t i = 0; i < countof(systems); i++)
        if (!strcmp(systems[i].name, system_name))
            chosen = &systems[i];
    if (!chosen || (chosen->begin == pawl_begin && !at.place))
        return args_complain(&args, "'%s' is not built in, or has no --place", system_name);
    mutex_make();
    rc = crowd_run(&c);
    json_open(&j, stdout);
    crowd_json(&c, &j);
    crowd_free(&c);
    return json_finish(&j) || rc ? 1 : 0;
}
