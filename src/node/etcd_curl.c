/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/explain.h"
#include "node/etcd.h"
#include "node/etcd_json.h"
#include "world/world.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENDPOINT_TEXT 280u              /* a host name has up to 253 bytes; a port */
#define ANSWER_MAX (UINT32_C(16) << 20) /* a page of the log has a megabyte, and four thirds of that in base64 */
#define ATTEMPT_MS 500u                 /* for one member, of a read: then the next is asked */
#define CONNECT_MS 300                  /* members are near */
#define VERSION_MAJOR 3u                /* */
#define VERSION_MINOR 4u                /* and later: the gateway has its path from then on */
#define PAUSE_NS (20 * NS_PER_MS)       /* when no member could be reached, before all are tried again */

/* Loaded when etcd is asked for: libcurl needs thirty other libraries, and to load them takes the command ten times as long as all
 * else that 'pawl lock' does. */
static struct {
    void *library;
    CURL *(*init)(void);
    CURLcode (*setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*getinfo)(CURL *handle, CURLINFO info, ...);
    CURLcode (*perform)(CURL *handle);
    const char *(*strerror)(CURLcode code);
    void (*cleanup)(CURL *handle);
    struct curl_slist *(*append)(struct curl_slist *list, const char *text);
    void (*free_all)(struct curl_slist *list);
} curl;

struct etcd_curl {
    struct etcd etcd;
    CURL *curl;
    struct curl_slist *headers;
    char *where; /* with the prefix at its end */
    char endpoint[ETCD_ENDPOINTS_MAX][ENDPOINT_TEXT];
    unsigned count, now; /* endpoints; the one that is asked */
    uint64_t cluster;    /* 0: not known yet */
    char *answer;
    size_t len, room;
    char error[CURL_ERROR_SIZE];
};

static struct etcd_curl *curl_of(struct etcd *e)
{
    return container_of(e, struct etcd_curl, etcd);
}

static uint64_t now_ns(struct etcd *e)
{
    (void)e;
    return world_clock(CLOCK_BOOTTIME); /* as host_now */
}

/* ---- one request ---- */

static size_t take_bytes(char *data, size_t size, size_t count, void *ctx)
{
    struct etcd_curl *c = ctx;
    size_t more = size * count;
    if (more > ANSWER_MAX - c->len)
        return 0;
    if (c->len + more > c->room) {
        size_t room = 2 * (c->len + more);
        char *answer = realloc(c->answer, room);
        if (!answer)
            return 0;
        c->answer = answer;
        c->room = room;
    }
    memcpy(c->answer + c->len, data, more);
    c->len += more;
    return more;
}

/* To one member. 0 and the status; -ECONNREFUSED: it was not sent; -ETIMEDOUT: the answer is missing. body null: a question. */
static int send_to(struct etcd_curl *c, unsigned endpoint, const char *path, const char *body, uint64_t ms, long *status)
{
    char url[ENDPOINT_TEXT + 64];
    snprintf(url, sizeof url, "http://%s%s", c->endpoint[endpoint], path);
    c->len = 0;
    c->error[0] = 0;
    curl.setopt(c->curl, CURLOPT_URL, url);
    curl.setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)max_u64(1, ms));
    if (body) {
        curl.setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
        curl.setopt(c->curl, CURLOPT_POSTFIELDS, body);
    } else {
        curl.setopt(c->curl, CURLOPT_HTTPGET, 1L);
    }
    CURLcode rc = curl.perform(c->curl);
    if (!rc)
        return curl.getinfo(c->curl, CURLINFO_RESPONSE_CODE, status) ? -EPROTO : 0;
    bool unsent = rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST;
    explain(0, "no etcd answers at %s: %s", c->endpoint[endpoint], c->error[0] ? c->error : curl.strerror(rc));
    return unsent ? -ECONNREFUSED : -ETIMEDOUT;
}

static void next_endpoint(struct etcd_curl *c)
{
    c->now = (c->now + 1) % c->count;
}

static uint64_t ms_until(struct etcd_curl *c, uint64_t deadline)
{
    uint64_t now = now_ns(&c->etcd);
    return deadline > now ? (deadline - now + NS_PER_MS - 1) / NS_PER_MS : 0;
}

/* To the members in turn, until one has it. */
static int send_once(struct etcd_curl *c, const char *path, const char *body, uint64_t deadline, uint64_t ms_max, long *status)
{
    int rc = explain(-ETIMEDOUT, "no etcd answers at %s", c->endpoint[c->now]);
    for (unsigned tried = 0; tried < c->count; tried++) {
        uint64_t ms = min_u64(ms_until(c, deadline), ms_max);
        if (!ms)
            return rc;
        rc = send_to(c, c->now, path, body, ms, status);
        if (!rc)
            return 0;
        next_endpoint(c);
        if (rc != -ECONNREFUSED)
            return rc;
    }
    return rc;
}

/* 0, or why the answer cannot be used: etcd refuses, or the member is of another cluster. Then another one is asked next. */
static int check_answer(struct etcd_curl *c, long status, const struct etcd_said *said, int parsed)
{
    char message[ETCD_MESSAGE_LEN];
    if (status != 200) {
        etcd_parse_error(c->answer, c->len, message);
        explain(0, "etcd at %s refuses: %s (status %ld)", c->endpoint[c->now], *message ? message : "it does not say why", status);
        bool full = strstr(message, "space exceeded");
        next_endpoint(c);
        return full ? -ENOSPC : -EIO;
    }
    if (parsed == -EPROTO)
        return explain(parsed, "%s does not answer as etcd does", c->endpoint[c->now]);
    if (parsed)
        return parsed;
    if (c->cluster && said->cluster != c->cluster) {
        unsigned other = c->now;
        next_endpoint(c);
        return explain(-EREMCHG, "the addresses in %s are of more than one etcd cluster: %s has %" PRIx64 ", another has %" PRIx64,
                       c->where, c->endpoint[other], said->cluster, c->cluster);
    }
    return 0;
}

/* ---- the interface ---- */

static int etcd_commit(struct etcd *e, const struct etcd_transaction *t, uint64_t deadline, uint64_t *revision)
{
    struct etcd_curl *c = curl_of(e);
    struct etcd_said said = {.cluster = 0};
    long status = 0;
    char *body = etcd_text_commit(t);
    if (!body)
        return explain(-ENOMEM, "out of memory");
    int rc = send_once(c, "/v3/kv/txn", body, deadline, UINT32_MAX, &status); /* once: its outcome may be unknown */
    free(body);
    if (rc)
        return rc;
    rc = check_answer(c, status, &said, status == 200 ? etcd_parse_answer(c->answer, c->len, &said) : 0);
    if (rc)
        return rc;
    *revision = said.revision;
    return said.succeeded ? 0 : -ESTALE;
}

static int etcd_read(struct etcd *e, const char *key, const char *end, unsigned limit, uint64_t deadline, etcd_take take, void *ctx)
{
    struct etcd_curl *c = curl_of(e);
    struct etcd_said said = {.cluster = 0};
    char *body = etcd_text_read(key, end, limit);
    int rc = body ? -ETIMEDOUT : explain(-ENOMEM, "out of memory");
    while (body) {
        long status = 0;
        rc = send_once(c, "/v3/kv/range", body, deadline, ATTEMPT_MS, &status);
        if (!rc && status == 200) {
            /* First the head alone: pairs of another cluster are not to be taken. */
            rc = check_answer(c, status, &said, etcd_parse_answer(c->answer, c->len, &said));
            if (!rc)
                rc = etcd_parse_read(c->answer, c->len, &said, take, ctx);
            break;
        }
        rc = rc ? rc : check_answer(c, status, &said, 0);
        if (now_ns(e) + PAUSE_NS >= deadline)
            break;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    free(body);
    return rc;
}

static int etcd_compact(struct etcd *e, uint64_t revision, uint64_t deadline)
{
    struct etcd_curl *c = curl_of(e);
    long status = 0;
    char *body = etcd_text_compact(revision);
    int rc = body ? send_once(c, "/v3/kv/compaction", body, deadline, UINT32_MAX, &status) : -ENOMEM;
    free(body);
    return rc ? rc : status == 200 ? 0 : -EIO;
}

/* The version and the cluster of one member. -ECONNREFUSED or -ETIMEDOUT: it does not answer. */
static int check_one(struct etcd_curl *c, unsigned endpoint, uint64_t deadline)
{
    unsigned major, minor;
    struct etcd_said said = {.cluster = 0};
    long status = 0;
    int rc = send_to(c, endpoint, "/version", NULL, min_u64(ms_until(c, deadline), ATTEMPT_MS), &status);
    if (rc)
        return rc;
    if (status != 200 || etcd_parse_version(c->answer, c->len, &major, &minor))
        return explain(-EPROTO, "%s does not answer as etcd does", c->endpoint[endpoint]);
    if (major != VERSION_MAJOR || minor < VERSION_MINOR)
        return explain(-EPROTONOSUPPORT, "%s has etcd %u.%u, and pawl needs etcd %u.%u or a later %u", c->endpoint[endpoint], major,
                       minor, VERSION_MAJOR, VERSION_MINOR, VERSION_MAJOR);
    rc = send_to(c, endpoint, "/v3/maintenance/status", "{}", min_u64(ms_until(c, deadline), ATTEMPT_MS), &status);
    if (rc)
        return rc;
    c->now = endpoint;
    rc = check_answer(c, status, &said, status == 200 ? etcd_parse_answer(c->answer, c->len, &said) : 0);
    if (!rc)
        c->cluster = said.cluster;
    return rc;
}

/* Every member that answers is checked. One that does not may be down. */
static int etcd_check(struct etcd *e, uint64_t deadline, uint64_t *cluster)
{
    struct etcd_curl *c = curl_of(e);
    unsigned answers = 0, first = 0;
    for (unsigned i = 0; i < c->count; i++) {
        int rc = check_one(c, i, deadline + i * ATTEMPT_MS * NS_PER_MS);
        if (rc == -ECONNREFUSED || rc == -ETIMEDOUT)
            continue;
        if (rc)
            return rc;
        first = answers++ ? first : i;
    }
    c->now = first;
    *cluster = c->cluster;
    if (answers)
        return 0;
    char why[CURL_ERROR_SIZE];
    snprintf(why, sizeof why, "%s", c->error);
    return explain(-ECONNREFUSED, "no member of etcd answers at %s: %s (is etcd running?)", c->where, why);
}

static void etcd_pause(struct etcd *e, uint64_t ns)
{
    (void)e;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)}, NULL);
}

static const struct etcd_ops ops = {
    .now = now_ns, .check = etcd_check, .commit = etcd_commit, .read = etcd_read, .compact = etcd_compact, .pause = etcd_pause};

/* ---- opening ---- */

static int bad_place(const char *where)
{
    return explain(-EINVAL,
                   "'%s' is not etcd://ADDRESS:PORT[,ADDRESS:PORT]...[/PREFIX], with at most %u addresses and a prefix of letters, "
                   "digits and -_./",
                   where, ETCD_ENDPOINTS_MAX);
}

/* One address: a host and a port, which curl reads. */
static bool take_endpoint(struct etcd_curl *c, const char *text, size_t len)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    char *to = c->endpoint[c->count];
    if (!len || len >= ENDPOINT_TEXT || c->count == ETCD_ENDPOINTS_MAX)
        return false;
    snprintf(to, ENDPOINT_TEXT, "%.*s", (int)len, text);
    const char *port = strrchr(to, ':');
    bool good = strspn(to, allowed) == len && port && port != to && port[1] && strspn(port + 1, "0123456789") == strlen(port + 1) &&
                strtoul(port + 1, NULL, 10) <= UINT16_MAX;
    c->count += good;
    return good;
}

static int parse_place(struct etcd_curl *c, const char **prefix)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
    if (strncmp(c->where, ETCD_SCHEME, strlen(ETCD_SCHEME)) != 0)
        return bad_place(c->where);
    const char *at = c->where + strlen(ETCD_SCHEME), *end = at + strcspn(at, "/");
    *prefix = *end ? end + 1 : "pawl";
    size_t len = strlen(*prefix);
    if (strspn(*prefix, allowed) != len || (len && (*prefix)[len - 1] == '/'))
        return bad_place(c->where);
    for (;; at++) {
        size_t item = min_u64(strcspn(at, ","), (uint64_t)(end - at));
        if (!take_endpoint(c, at, item))
            return bad_place(c->where);
        at += item;
        if (at == end)
            return 0;
    }
}

static bool find(const char *name, void *out)
{
    void *found = dlsym(curl.library, name);
    memcpy(out, &found, sizeof found);
    return found;
}

static int load_library(void)
{
    if (curl.library)
        return 0;
    curl.library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!curl.library)
        return explain(-ENOTSUP, "etcd needs libcurl (Debian: libcurl4): %s", dlerror());
    if (find("curl_easy_init", &curl.init) && find("curl_easy_setopt", &curl.setopt) && find("curl_easy_getinfo", &curl.getinfo) &&
        find("curl_easy_perform", &curl.perform) && find("curl_easy_strerror", &curl.strerror) &&
        find("curl_easy_cleanup", &curl.cleanup) && find("curl_slist_append", &curl.append) &&
        find("curl_slist_free_all", &curl.free_all))
        return 0;
    return explain(-ENOTSUP, "this libcurl cannot be used: %s", dlerror());
}

static bool make_handle(struct etcd_curl *c)
{
    c->curl = curl.init();
    c->headers = curl.append(NULL, "Expect:"); /* a large request need not wait for leave */
    if (!c->curl || !c->headers)
        return false;
    curl.setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
    curl.setopt(c->curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl.setopt(c->curl, CURLOPT_WRITEDATA, c);
    curl.setopt(c->curl, CURLOPT_ERRORBUFFER, c->error);
    curl.setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl.setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl.setopt(c->curl, CURLOPT_PROXY, "");
    curl.setopt(c->curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl.setopt(c->curl, CURLOPT_MAXCONNECTS, (long)ETCD_ENDPOINTS_MAX);
    return true;
}

int etcd_open(const char *where, struct etcd **out, const char **prefix)
{
    struct etcd_curl *c = calloc(1, sizeof *c);
    if (!c || !(c->where = strdup(where))) {
        free(c);
        return explain(-ENOMEM, "out of memory");
    }
    c->etcd.ops = &ops;
    int rc = parse_place(c, prefix);
    if (!rc)
        rc = load_library();
    if (!rc && !make_handle(c))
        rc = explain(-ENOMEM, "out of memory");
    if (rc) {
        etcd_close(&c->etcd);
        return rc;
    }
    *out = &c->etcd;
    return 0;
}

void etcd_close(struct etcd *e)
{
    struct etcd_curl *c = curl_of(e);
    if (c->curl)
        curl.cleanup(c->curl);
    if (c->headers)
        curl.free_all(c->headers);
    free(c->answer);
    free(c->where);
    free(c);
}
