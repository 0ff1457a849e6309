/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of pawl.h, over packets: modes, tokens, time-outs, conversion, several locks, asynchronous operations, threads that
 * share a handle, processes of one host and of several, one that is killed and one that is stopped. */
#include "client/net.h"
#include "tests/udp/team.h"
#include "wire/many.h"

#include <poll.h>

#define LOCKS 10000
#define KEYS 50
#define MORE 8 /* requests that leave together, */
#define MORE_TRIES 50
#define TOGETHER_AHEAD 10 /* tries that show it, more than those that do not */
#define TOGETHER_TRIES 300
#define LEASE_NS (6 * NS_PER_S) /* of hosts; a busy machine may stop any process for seconds, and no host shall be lost by that */

/* A try is granted a free lock. But the network, or a retransmission on a busy machine, may deliver an old request once more. The
 * lock is then held for a moment by a request that has ended. */
static int try_free(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *g)
{
    int rc;
    for (uint64_t limit = pawl_in(LIMIT_NS); (rc = pawl_trylock(p, key, mode, g)) == -PAWL_EHELD && pawl_now() < limit;)
        pause_ns(NS_PER_MS);
    return rc;
}

static void basics(pawl *p, pawl *q)
{
    pawl_grant g, h;
    CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
    CHECK(g.token && g.mode == PAWL_EXCLUSIVE && g.expiry_ns > pawl_now());
    CHECK_OK(pawl_check(p, &g));
    CHECK_RC(pawl_trylock(q, pawl_id(1), PAWL_SHARED, &h), -PAWL_EHELD);
    CHECK_RC(pawl_timedlock(q, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(20 * NS_PER_MS), &h), -ETIMEDOUT);
    CHECK_RC(pawl_timedlock(q, pawl_id(1), PAWL_EXCLUSIVE, 2, &h), -ETIMEDOUT);
    CHECK_OK(pawl_extend(p, &g));
    CHECK_RC(pawl_unlock(q, &g), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ENOTOWNER);
    CHECK_RC(pawl_check(p, &g), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_lock(q, pawl_id(1), PAWL_SHARED, &h));
    CHECK(h.token > g.token);
    CHECK_OK(try_free(p, pawl_id(1), PAWL_SHARED, &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_RC(pawl_lock(p, pawl_id(LOCKS), PAWL_SHARED, &g), -ERANGE);
    CHECK_RC(pawl_lock(p, pawl_name("name"), PAWL_SHARED, &g), -EINVAL);
    CHECK_RC(pawl_lock(p, pawl_id(1), (enum pawl_mode)3, &g), -EINVAL);
}

static void conversion(pawl *p, pawl *q)
{
    pawl_grant g, h;
    CHECK_OK(pawl_lock(p, pawl_id(2), PAWL_SHARED, &g));
    uint64_t before = g.token;
    int rc = pawl_convert(p, &g, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS));
    if (rc == -PAWL_ENOTSUP) {
        CHECK_OK(pawl_unlock(p, &g));
        return;
    }
    CHECK_OK(rc);
    CHECK(g.token > before && g.mode == PAWL_EXCLUSIVE);
    CHECK_RC(pawl_trylock(q, pawl_id(2), PAWL_SHARED, &h), -PAWL_EHELD);
    CHECK_OK(pawl_convert(p, &g, PAWL_SHARED, PAWL_TRY));
    CHECK_OK(pawl_lock(q, pawl_id(2), PAWL_SHARED, &h));
    CHECK_RC(pawl_convert(p, &g, PAWL_EXCLUSIVE, pawl_in(20 * NS_PER_MS)), -ETIMEDOUT);
    CHECK_OK(pawl_check(p, &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_unlock(q, &h));
}

static void several(pawl *p, pawl *q)
{
    const pawl_want wants[] = {{.key = pawl_id(9), .mode = PAWL_EXCLUSIVE},
                               {.key = pawl_id(5), .mode = PAWL_SHARED},
                               {.key = pawl_id(7), .mode = PAWL_EXCLUSIVE}};
    const pawl_want twice[] = {{.key = pawl_id(5), .mode = PAWL_SHARED}, {.key = pawl_id(5), .mode = PAWL_SHARED}};
    pawl_grant g[3], h;
    CHECK_OK(pawl_lock_all(p, wants, 3, UINT64_MAX, g));
    CHECK(g[0].index == 9 && g[1].index == 5 && g[2].index == 7 && g[1].mode == PAWL_SHARED);
    CHECK_RC(pawl_lock_all(q, wants, 3, pawl_in(10 * NS_PER_MS), &g[0]), -ETIMEDOUT);
    CHECK_RC(pawl_lock_all(q, twice, 2, UINT64_MAX, &g[0]), -EINVAL);
    CHECK_OK(try_free(q, pawl_id(5), PAWL_SHARED, &h)); /* nothing was left behind */
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_RC(pawl_unlock_all(p, g, 0), -EINVAL);
    CHECK_RC(pawl_unlock_all(p, g, PAWL_ALL_MAX + 1), -EINVAL);
    CHECK_OK(pawl_check(p, &g[2]));
    CHECK_OK(pawl_unlock_all(p, g, 3));
    CHECK_RC(pawl_unlock_all(p, g, 3), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_lock_all(q, wants, 3, pawl_in(LIMIT_NS), g));
    CHECK_OK(pawl_unlock(q, &g[0]));
    CHECK_RC(pawl_unlock_all(q, g, 3), -PAWL_ENOTOWNER); /* of the first; the others are released */
    CHECK_OK(pawl_lock_all(p, wants, 3, pawl_in(LIMIT_NS), g));
    CHECK_OK(pawl_unlock_all(p, g, 3));
}

/* One completion. Packets may make the descriptor readable before it is there. */
static void reap_one(pawl *p, pawl_completion *out)
{
    struct pollfd readable = {.fd = pawl_fd(p), .events = POLLIN};
    int n;
    do
        CHECK_EQ(poll(&readable, 1, 20000), 1);
    while (!(n = pawl_reap(p, out, 1, PAWL_TRY)));
    CHECK_EQ(n, 1);
}

static void asynchronous(pawl *p, pawl *q)
{
    pawl_completion done[PAWL_INFLIGHT_MAX];
    pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .deadline_ns = UINT64_MAX};
    pawl_grant held;
    uint64_t id, first = 0;
    unsigned got = 0;
    CHECK_OK(pawl_lock(q, pawl_id(100), PAWL_EXCLUSIVE, &held));
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        r.key = pawl_id(100 + i); /* the first waits */
        CHECK_OK(pawl_submit(p, &r, &id));
        first = i ? first : id;
    }
    CHECK_RC(pawl_submit(p, &r, &id), -PAWL_ELIMIT);
    while (got < PAWL_INFLIGHT_MAX - 1) {
        int n = pawl_reap(p, done + got, PAWL_INFLIGHT_MAX - got, pawl_in(LIMIT_NS));
        CHECK(n > 0);
        got += (unsigned)n;
    }
    for (unsigned i = 0; i < got; i++) {
        CHECK_OK(done[i].result);
        const pawl_request back = {.op = PAWL_OP_UNLOCK, .grant = done[i].grant};
        CHECK_OK(pawl_submit(p, &back, &id));
    }
    for (unsigned n = 0; n < got;) {
        int more = pawl_reap(p, done, PAWL_INFLIGHT_MAX, pawl_in(LIMIT_NS));
        CHECK(more > 0);
        for (int i = 0; i < more; i++)
            CHECK_OK(done[i].result);
        n += (unsigned)more;
    }
    CHECK_EQ(pawl_reap(p, done, 1, pawl_in(NS_PER_MS)), 0);
    /* Its completion is announced although no thread waits in the library. */
    CHECK_OK(pawl_unlock(q, &held));
    reap_one(p, done);
    CHECK_EQ(done[0].id, first);
    CHECK_OK(done[0].result);
    /* One that waits in vain, until it is cancelled or its time is up. */
    r.key = pawl_id(100);
    for (int i = 0; i < 2; i++) {
        r.deadline_ns = i ? pawl_in(30 * NS_PER_MS) : UINT64_MAX;
        CHECK_OK(pawl_submit(q, &r, &id));
        if (!i)
            CHECK_OK(pawl_cancel(q, id));
        pawl_completion c;
        CHECK_EQ(pawl_reap(q, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_EQ(c.result, i ? -ETIMEDOUT : -ECANCELED);
        CHECK_RC(pawl_cancel(q, id), -ENOENT);
    }
    CHECK_OK(pawl_unlock(p, &done[0].grant));
}

/* Requests with `more` wait for the next call of pawl_reap, unless the library's thread, which looks up every 10 ms, sends them
 * first. Returns whether all waited together. */
static bool more_at_once(pawl *p, uint64_t first)
{
    pawl_completion done[PAWL_INFLIGHT_MAX];
    pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .deadline_ns = UINT64_MAX, .more = 1};
    struct net *n = net_of(p);
    uint64_t id;
    for (unsigned i = 0; i < MORE; i++) {
        r.key = pawl_id(first + i);
        CHECK_OK(pawl_submit(p, &r, &id));
    }
    pthread_mutex_lock(&p->async.lock);
    bool together = n->batch.packets == MORE;
    pthread_mutex_unlock(&p->async.lock);
    for (unsigned got = 0; got < MORE;) {
        int now = pawl_reap(p, done + got, MORE - got, pawl_in(LIMIT_NS));
        CHECK(now > 0);
        got += (unsigned)now;
    }
    for (unsigned i = 0; i < MORE; i++) {
        CHECK_OK(done[i].result);
        CHECK_OK(pawl_unlock(p, &done[i].grant));
    }
    return together;
}

static void leave_together(pawl *p)
{
    unsigned tries = 0;
    while (!more_at_once(p, 200 + MORE * tries)) /* other locks: an agent that stays grants without a packet */
        CHECK(++tries < MORE_TRIES);
}

/* Receives until so many packets have come. How many were parts of datagrams. */
static unsigned receive_answers(struct net *n, unsigned wanted)
{
    const uint64_t limit = pawl_in(LIMIT_NS);
    unsigned all = 0, parts = 0;
    while (all < wanted && pawl_now() < limit) {
        unsigned count = udp_receive(&n->udp, &n->received);
        for (unsigned i = 0; i < count; i++) {
            const struct many_front *f = (const void *)n->received.packet[i].data;
            unsigned packets = many_is(f, n->received.packet[i].len) ? f->many.count : 1;
            all += packets;
            parts += packets > 1 ? packets : 0;
        }
        if (count)
            net_dispatch(n, &n->udp, &n->received);
    }
    return parts;
}

static void signal_rack(int number)
{
    for (unsigned i = 0; i < rack_pid_count; i++)
        CHECK_EQ(kill(rack_pids[i], number), 0);
}

/* A release and a request of the same lock, and requests of others, leave as a datagram with all but one packet, and that one
 * behind it. The server takes both at once. Returns whether its answers to the datagram came together. */
static bool answered_together(pawl *p, uint64_t first)
{
    struct net *n = net_of(p);
    pawl_request r = {.op = PAWL_OP_UNLOCK, .mode = PAWL_EXCLUSIVE, .deadline_ns = UINT64_MAX, .more = 1};
    pawl_completion done;
    uint64_t id;
    CHECK_OK(pawl_lock(p, pawl_id(first), PAWL_EXCLUSIVE, &r.grant));
    pthread_mutex_lock(&n->receiving);
    signal_rack(SIGSTOP);
    CHECK_OK(pawl_submit(p, &r, &id));
    r.op = PAWL_OP_LOCK;
    for (unsigned i = 0; i <= MORE; i++) {
        r.key = pawl_id(first + 2 * i); /* of one server */
        CHECK_OK(pawl_submit(p, &r, &id));
    }
    CHECK_EQ(pawl_reap(p, &done, 1, PAWL_TRY), 1);
    signal_rack(SIGCONT);
    unsigned parts = receive_answers(n, MORE + 2);
    pthread_mutex_unlock(&n->receiving);
    for (unsigned i = 0; i <= MORE; i++) {
        CHECK_EQ(pawl_reap(p, &done, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_OK(done.result);
        CHECK_OK(pawl_unlock(p, &done.grant));
    }
    return parts >= MORE;
}

/* On a busy machine the server may take the datagrams apart from each other, which has the same effect as what is tested here. So
 * most tries have to show it. */
static void answers_leave_together(pawl *p)
{
    unsigned tries = 0;
    int ahead = 0;
    if (strcmp(rack_design("srvlock"), "srvlock") != 0)
        return; /* others answer from elsewhere, too */
    while (ahead < TOGETHER_AHEAD) {
        CHECK(++tries < TOGETHER_TRIES);
        ahead += answered_together(p, 2000 + 20 * tries) ? 1 : -1;
    }
}

/* A thread that waits for pawl_fd is woken by the answer itself, and not by the library's thread, which says by the event that it
 * has received something. That one looks every 10 ms, and may be first. */
static void woken_by_packets(pawl *p)
{
    struct pollfd fds[] = {{.fd = pawl_fd(p), .events = POLLIN}, {.fd = p->async.event_fd, .events = POLLIN}};
    pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .deadline_ns = UINT64_MAX};
    unsigned by_packet = 0;
    for (unsigned i = 0; !by_packet; i++) {
        pawl_completion done;
        uint64_t id;
        CHECK(i < MORE_TRIES);
        r.key = pawl_id(1000 + i);
        CHECK_OK(pawl_submit(p, &r, &id));
        CHECK(poll(fds, countof(fds), 20000) > 0);
        by_packet += fds[0].revents && !fds[1].revents;
        reap_one(p, &done);
        CHECK_OK(done.result);
        CHECK_OK(pawl_unlock(p, &done.grant));
    }
}

/* Completions of requests that end at once make pawl_fd readable when the first request without `more` is submitted. A request with
 * `more` does not: the write and the read of the event would be wasted. */
static void told_at_the_end(pawl *p, pawl *q)
{
    struct pollfd event = {.fd = p->async.event_fd, .events = POLLIN};
    pawl_request r = {.op = PAWL_OP_UNLOCK, .more = 1};
    pawl_completion done;
    pawl_grant held;
    uint64_t first, second;
    CHECK_OK(pawl_lock(q, pawl_id(1101), PAWL_EXCLUSIVE, &held));
    CHECK_OK(pawl_lock(p, pawl_id(1100), PAWL_EXCLUSIVE, &r.grant));
    CHECK_OK(pawl_submit(p, &r, &first));
    CHECK_EQ(poll(&event, 1, 0), 0);
    r = (pawl_request){.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_id(1101), .deadline_ns = UINT64_MAX};
    CHECK_OK(pawl_submit(p, &r, &second)); /* waits */
    CHECK_EQ(poll(&event, 1, 0), 1);
    CHECK_EQ(pawl_reap(p, &done, 1, PAWL_TRY), 1);
    CHECK_EQ(done.id, first);
    CHECK_EQ(poll(&event, 1, 0), 0);
    CHECK_OK(pawl_unlock(q, &held));
    reap_one(p, &done);
    CHECK_EQ(done.id, second);
    CHECK_OK(done.result);
    CHECK_OK(pawl_unlock(p, &done.grant));
}

/* ---- threads ---- */

#define THREADS 6
#define ROUNDS 300
#define TRIES 500

/* A lock that no other client wants is free, whatever the host's other threads and the library's own do at that moment. */
static void *try_own(void *arg)
{
    const unsigned *number = arg;
    for (int i = 0; i < TRIES; i++) {
        pawl_grant g;
        CHECK_OK(try_free(team.p, pawl_id(70 + *number), PAWL_EXCLUSIVE, &g));
        CHECK_OK(pawl_unlock(team.p, &g));
    }
    return NULL;
}

static void tries(pawl *p)
{
    pthread_t t[THREADS];
    unsigned numbers[THREADS];
    team.p = p;
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK_EQ(pthread_create(&t[i], NULL, try_own, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(t[i], NULL), 0);
}

/* ---- others that end badly ---- */

struct victim {
    unsigned host;
    uint64_t lease_ns; /* 0: as usual */
    uint32_t *has;
};

/* A session with a short lease may be lost before it has the lock. */
static pawl *open_and_lock(const struct victim *v, pawl_grant *g)
{
    const pawl_options o = {.lease_ns = v->lease_ns};
    for (uint64_t limit = pawl_in(LIMIT_NS);;) {
        pawl *p = rack_open(v->host, &o);
        int rc = pawl_lock(p, pawl_id(60), PAWL_EXCLUSIVE, g);
        if (rc != -PAWL_ELOST || !v->lease_ns || pawl_now() > limit) {
            CHECK_OK(rc);
            return p;
        }
        CHECK_OK(pawl_close(p));
    }
}

static void hold_for_ever(void *arg)
{
    const struct victim *v = arg;
    pawl_grant g;
    pawl *p = open_and_lock(v, &g);
    __atomic_store_n(v->has, 1, __ATOMIC_RELEASE);
    uint64_t limit = pawl_in(3 * LIMIT_NS);
    while (!pawl_check(p, &g)) {
        CHECK(pawl_now() < limit);
        pause_ns(NS_PER_MS);
    }
    __atomic_store_n(v->has, 2, __ATOMIC_RELEASE); /* it was stopped, and has found out */
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ELOST);
    CHECK_RC(pawl_trylock(p, pawl_id(61), PAWL_SHARED, &g), -PAWL_ELOST);
    CHECK_OK(pawl_close(p));
}

static void killed(pawl *p, unsigned host)
{
    uint32_t *has = shared_memory(sizeof *has);
    struct victim v = {.host = host, .has = has};
    pid_t pid = child_start(hold_for_ever, &v);
    pawl_grant g;
    WAIT_FOR(__atomic_load_n(has, __ATOMIC_ACQUIRE));
    CHECK_RC(pawl_trylock(p, pawl_id(60), PAWL_SHARED, &g), -PAWL_EHELD);
    child_kill(pid);
    CHECK_OK(pawl_timedlock(p, pawl_id(60), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_OK(pawl_unlock(p, &g));
    munmap(has, sizeof *has);
}

static void stopped(pawl *p, unsigned host)
{
    uint32_t *has = shared_memory(sizeof *has);
    struct victim v = {.host = host, .lease_ns = 500 * NS_PER_MS, .has = has};
    pid_t pid = child_start(hold_for_ever, &v);
    pawl_grant g;
    WAIT_FOR(__atomic_load_n(has, __ATOMIC_ACQUIRE));
    CHECK_EQ(kill(pid, SIGSTOP), 0);
    CHECK_OK(pawl_timedlock(p, pawl_id(60), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_EQ(kill(pid, SIGCONT), 0);
    WAIT_FOR(__atomic_load_n(has, __ATOMIC_ACQUIRE) == 2);
    child_join(pid);
    CHECK_OK(pawl_check(p, &g));
    CHECK_OK(pawl_unlock(p, &g));
    munmap(has, sizeof *has);
}

static void forked(pawl *p)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        pawl_grant g;
        _exit(pawl_lock(p, pawl_id(1), PAWL_SHARED, &g) == -PAWL_EFORKED && pawl_close(p) == 0 ? 0 : 1);
    }
    child_join(pid);
}

/* Two processes' handles find the same lock under a name, and others under others; any number is a key. */
static void keys_of(pawl *p, pawl *q, pawl_key one, pawl_key other, pawl_key wrong)
{
    pawl_grant g, h;
    pawl_state s;
    CHECK_OK(pawl_query(p, one, &s));
    CHECK(!s.mode && !s.holders);
    CHECK_OK(pawl_lock(p, one, PAWL_EXCLUSIVE, &g));
    CHECK_RC(pawl_trylock(q, one, PAWL_SHARED, &h), -PAWL_EHELD);
    CHECK_OK(pawl_query(q, one, &s));
    CHECK(s.mode == PAWL_EXCLUSIVE && s.holders == 1 && s.waiters == 0 && s.token == g.token);
    CHECK_OK(try_free(q, other, PAWL_SHARED, &h));
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(try_free(q, one, PAWL_EXCLUSIVE, &h));
    CHECK(h.token > g.token);
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_RC(pawl_lock(p, wrong, PAWL_SHARED, &g), -EINVAL);
    const pawl_want wants[] = {{.key = other, .mode = PAWL_EXCLUSIVE}, {.key = one, .mode = PAWL_EXCLUSIVE}};
    const pawl_want twice[] = {{.key = one, .mode = PAWL_SHARED}, {.key = one, .mode = PAWL_SHARED}};
    pawl_grant both[2];
    CHECK_OK(pawl_lock_all(p, wants, 2, pawl_in(LIMIT_NS), both));
    CHECK_RC(pawl_trylock(q, one, PAWL_SHARED, &h), -PAWL_EHELD);
    CHECK_OK(pawl_unlock(p, &both[0]));
    CHECK_OK(pawl_unlock(p, &both[1]));
    CHECK_RC(pawl_lock_all(p, twice, 2, pawl_in(LIMIT_NS), both), -EINVAL);
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = one, .deadline_ns = UINT64_MAX};
    pawl_completion done;
    uint64_t id;
    CHECK_OK(pawl_submit(p, &r, &id));
    CHECK_EQ(pawl_reap(p, &done, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_OK(done.result);
    CHECK_OK(pawl_unlock(p, &done.grant));
}

static void keys(void *arg)
{
    const enum pawl_keys *kind = arg;
    const pawl_options o = {.lease_ns = LEASE_NS, .keys = *kind}, dense = {.keys = PAWL_KEYS_DENSE};
    char where[RACK_WHERE_LEN], name[PAWL_NAME_MAX + 2];
    pawl *p = rack_open(0, &o), *q = rack_open(1, &o), *none;
    pawl_grant g;
    CHECK_RC(pawl_open(rack_where(0, where), &dense, &none), -EINVAL);
    if (*kind == PAWL_KEYS_NAMED) {
        keys_of(p, q, pawl_name("one"), pawl_name("other"), pawl_id(1));
        memset(name, 'x', sizeof name);
        CHECK_RC(pawl_lock(p, pawl_bytes(name, PAWL_NAME_MAX + 1), PAWL_SHARED, &g), -ENAMETOOLONG);
        CHECK_RC(pawl_lock(p, pawl_name(""), PAWL_SHARED, &g), -EINVAL);
        CHECK_OK(pawl_lock(p, pawl_bytes(name, PAWL_NAME_MAX), PAWL_SHARED, &g));
    } else {
        keys_of(p, q, pawl_id(UINT64_MAX), pawl_id(0), pawl_name("1"));
        CHECK_OK(pawl_lock(p, pawl_id(12345), PAWL_SHARED, &g));
    }
    CHECK_OK(pawl_unlock(p, &g));
    int rc = 0;
    for (unsigned i = 0; i <= KEYS && !rc; i++) { /* until there is no room: keys that are held keep their locks */
        snprintf(name, sizeof name, "key %u", i);
        rc = pawl_lock(p, *kind == PAWL_KEYS_NAMED ? pawl_name(name) : pawl_id(1000 + i), PAWL_SHARED, &g);
    }
    CHECK_RC(rc, -ENOSPC);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
}

static void bad_places(void)
{
    static const char *const places[] = {"pawl://",
                                         "pawl://127.0.0.1:1",
                                         "pawl://127.0.0.1/x",
                                         "pawl://local host:1/x",
                                         "pawl://::1:1/x",
                                         "pawl://[::1]/x",
                                         "pawl://127.0.0.1:99999/x",
                                         "pawl://127.0.0.1:1/",
                                         "pawl://127.0.0.1:1/a/b",
                                         "pawl://127.0.0.1:1/x?what=1",
                                         "pawl://127.0.0.1:1/x?host=a",
                                         "pawl://127.0.0.1:1/0123456789012345678901234567890123456789"};
    pawl *p;
    for (size_t i = 0; i < countof(places); i++)
        CHECK_RC(pawl_open(places[i], NULL, &p), -EINVAL);
}

static void all(void *arg)
{
    const pawl_options o = {.lease_ns = LEASE_NS};
    bad_places();
    pawl *a = rack_open(0, &o), *b = rack_open(0, &o), *c = rack_open(1, &o);
    basics(a, b);
    basics(a, c);
    conversion(a, b);
    conversion(a, c);
    several(a, c);
    asynchronous(a, b);
    asynchronous(a, c);
    leave_together(a);
    answers_leave_together(a);
    woken_by_packets(a);
    told_at_the_end(a, b);
    team_takes_turns(a, THREADS, ROUNDS);
    tries(a);
    forked(a);
    killed(a, 0);
    killed(a, 1);
    stopped(a, 1);
    CHECK_OK(pawl_close(c));
    if (design_find(rack_design("srvlock"))->tolerates & FAULT_BIT(FAULT_CRASH_SERVER))
        stopped(a, 2); /* alone on its host, so that the host as a whole falls silent */
    CHECK_OK(pawl_close(b));
    CHECK_OK(pawl_close(a));
}

int main(void)
{
    const struct rack_test t = {
        .design = rack_design("srvlock"), .servers = 2, .room = rack_room(), .locks = LOCKS, .lease_ns = LEASE_NS};
    rack_begin(&t);
    child_join(child_start(all, NULL)); /* this process has no threads, so that it can make children */
    rack_end();
    for (enum pawl_keys kind = PAWL_KEYS_NAMED; kind <= PAWL_KEYS_SPARSE; kind++) {
        const struct rack_test k = {
            .design = rack_design("srvlock"), .servers = 2, .locks = KEYS, .lease_ns = LEASE_NS, .keys = kind};
        rack_begin(&k);
        child_join(child_start(keys, &kind));
        rack_end();
    }
    return 0;
}
