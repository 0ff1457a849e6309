/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in flight: submitted, reaped, cancelled, ended by a deadline or with their session; and the descriptor that tells. For
 * sessions on memory, of this machine or of a memory node. */
#ifndef PAWL_TESTS_ASYNC_CALLS_H
#define PAWL_TESTS_ASYNC_CALLS_H

#include "tests/shm/space.h"

#include <poll.h>

#define ASYNC_LOCKS 200
#define ASYNC_CAPACITY 1000
#define ASYNC_HOLDS 256

/* The place under test: a space of sparse keys with that capacity, and that many holds of a session. */
static struct {
    pawl *(*open)(void);
    int at_once_ms; /* within which an operation that need not wait for a lock has ended */
    /* Within which the end of a hold's record follows its release; 0: it comes before. A memory node's client sends it with its
     * next request, or within a millisecond: until then the client seems to wait for the lock. */
    uint64_t record_ends_ns;
} async_place;

static pawl *one, *other;

static void open_both(void)
{
    one = async_place.open();
    other = async_place.open();
}

static void close_both(void)
{
    uint64_t until = world_now(&world_real) + async_place.record_ends_ns;
    for (unsigned i = 0; i < ASYNC_LOCKS; i++) {
        pawl_state s;
        do {
            CHECK_OK(pawl_query(one, pawl_id(i), &s));
            CHECK_EQ(s.mode, 0);
        } while (s.waiters && world_now(&world_real) < until);
        CHECK_EQ(s.waiters, 0);
    }
    CHECK_OK(pawl_close(one));
    CHECK_OK(pawl_close(other));
}

static bool readable(pawl *p, int patience_ms)
{
    struct pollfd fd = {.fd = pawl_fd(p), .events = POLLIN};
    return poll(&fd, 1, patience_ms) == 1;
}

static uint64_t submit_lock(pawl *p, uint64_t key, enum pawl_mode mode, uint64_t deadline, void *user)
{
    uint64_t id = 0;
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = mode, .key = pawl_id(key), .deadline_ns = deadline, .user = user};
    CHECK_OK(pawl_submit(p, &r, &id));
    CHECK(id > 0);
    return id;
}

static uint64_t submit_grant(pawl *p, enum pawl_op op, const pawl_grant *g, enum pawl_mode mode, uint64_t deadline)
{
    uint64_t id = 0;
    const pawl_request r = {.op = op, .mode = mode, .grant = *g, .deadline_ns = deadline};
    CHECK_OK(pawl_submit(p, &r, &id));
    return id;
}

static pawl_completion reap_one(pawl *p, uint64_t id, int result)
{
    pawl_completion c;
    CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_EQ(c.id, id);
    CHECK_RC(c.result, result);
    return c;
}

static void nothing_more(pawl *p)
{
    pawl_completion c;
    CHECK_EQ(pawl_reap(p, &c, 1, PAWL_TRY), 0);
    CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(NS_PER_MS)), 0);
    CHECK(!readable(p, 0));
}

static uint32_t waiters(uint64_t key)
{
    pawl_state s;
    CHECK_OK(pawl_query(one, pawl_id(key), &s));
    return s.waiters;
}

/* ---- one operation ---- */

static void at_once(void)
{
    nothing_more(one);
    uint64_t id = submit_lock(one, 1, PAWL_EXCLUSIVE, UINT64_MAX, &id);
    CHECK(readable(one, async_place.at_once_ms));
    pawl_completion c = reap_one(one, id, 0);
    CHECK(c.user == &id);
    CHECK_EQ(c.grant.mode, PAWL_EXCLUSIVE);
    CHECK_OK(pawl_check(one, &c.grant));
    CHECK_RC(pawl_cancel(one, id), -ENOENT);
    /* Asked not to wait it does not; a deadline in the past is over. */
    reap_one(other, submit_lock(other, 1, PAWL_SHARED, PAWL_TRY, NULL), -PAWL_EHELD);
    reap_one(other, submit_lock(other, 1, PAWL_SHARED, 2, NULL), -ETIMEDOUT);
    pawl_completion s = reap_one(one, submit_grant(one, PAWL_OP_CONVERT, &c.grant, PAWL_SHARED, UINT64_MAX), 0);
    CHECK_EQ(s.grant.mode, PAWL_SHARED);
    CHECK(s.grant.token > c.grant.token);
    reap_one(one, submit_grant(one, PAWL_OP_UNLOCK, &s.grant, PAWL_SHARED, 0), 0);
    reap_one(one, submit_grant(one, PAWL_OP_UNLOCK, &s.grant, PAWL_SHARED, 0), -PAWL_ENOTOWNER);
    reap_one(one, submit_grant(one, PAWL_OP_CONVERT, &s.grant, PAWL_EXCLUSIVE, PAWL_TRY), -PAWL_ENOTOWNER);
    nothing_more(one);
}

/* Whether it is `a` that has something to reap, of a and b. */
static bool told_first(void)
{
    struct pollfd fds[] = {{.fd = pawl_fd(one), .events = POLLIN}, {.fd = pawl_fd(other), .events = POLLIN}};
    CHECK_EQ(poll(fds, countof(fds), (int)(LIMIT_NS / NS_PER_MS)), 1);
    return fds[0].revents;
}

static void after_unlock(void)
{
    pawl_grant g;
    CHECK_OK(pawl_lock(other, pawl_id(1), PAWL_EXCLUSIVE, &g));
    uint64_t id = submit_lock(one, 1, PAWL_SHARED, UINT64_MAX, NULL);
    CHECK(!readable(one, 5));
    WAIT_FOR(waiters(1) == 1);
    CHECK_OK(pawl_unlock(other, &g));
    CHECK(readable(one, (int)(LIMIT_NS / NS_PER_MS))); /* without a thread in pawl_reap: the library's thread did it */
    pawl_completion c = reap_one(one, id, 0);
    CHECK(c.grant.token > g.token);

    /* An upgrade waits likewise. */
    CHECK_OK(pawl_lock(other, pawl_id(1), PAWL_SHARED, &g));
    id = submit_grant(one, PAWL_OP_CONVERT, &c.grant, PAWL_EXCLUSIVE, UINT64_MAX);
    CHECK(!readable(one, 5));
    uint64_t rival = submit_grant(other, PAWL_OP_CONVERT, &g, PAWL_EXCLUSIVE, UINT64_MAX);
    if (told_first()) { /* which one of the two is the design's choice */
        reap_one(one, id, -EDEADLK);
        CHECK_OK(pawl_unlock(one, &c.grant));
        c = reap_one(other, rival, 0);
        CHECK_EQ(c.grant.mode, PAWL_EXCLUSIVE);
        CHECK_OK(pawl_unlock(other, &c.grant));
    } else {
        reap_one(other, rival, -EDEADLK);
        CHECK_OK(pawl_unlock(other, &g));
        c = reap_one(one, id, 0);
        CHECK_EQ(c.grant.mode, PAWL_EXCLUSIVE);
        CHECK_OK(pawl_unlock(one, &c.grant));
    }
}

static void given_up(void)
{
    pawl_grant g, s;
    CHECK_OK(pawl_lock(other, pawl_id(1), PAWL_EXCLUSIVE, &g));
    uint64_t id = submit_lock(one, 1, PAWL_EXCLUSIVE, UINT64_MAX, NULL);
    CHECK_OK(pawl_cancel(one, id));
    reap_one(one, id, -ECANCELED);
    CHECK_RC(pawl_cancel(one, id), -ENOENT);
    CHECK_RC(pawl_cancel(one, 999999), -ENOENT);
    id = submit_lock(one, 1, PAWL_SHARED, pawl_in(5 * NS_PER_MS), NULL);
    CHECK(readable(one, (int)(LIMIT_NS / NS_PER_MS)));
    reap_one(one, id, -ETIMEDOUT);
    CHECK_EQ(waiters(1), 0);
    /* A cancelled upgrade leaves a reader. */
    CHECK_OK(pawl_convert(other, &g, PAWL_SHARED, UINT64_MAX));
    CHECK_OK(pawl_lock(one, pawl_id(1), PAWL_SHARED, &s));
    id = submit_grant(one, PAWL_OP_CONVERT, &s, PAWL_EXCLUSIVE, UINT64_MAX);
    CHECK_OK(pawl_cancel(one, id));
    reap_one(one, id, -ECANCELED);
    CHECK_OK(pawl_check(one, &s));
    CHECK_OK(pawl_unlock(one, &s));
    CHECK_OK(pawl_convert(other, &g, PAWL_EXCLUSIVE, async_place.at_once_ms ? pawl_in(LIMIT_NS) : PAWL_TRY));
    CHECK_OK(pawl_unlock(other, &g));
    nothing_more(one);
}

/* ---- many ---- */

static void as_many_as_there_may_be(void)
{
    pawl_grant held[PAWL_INFLIGHT_MAX];
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++)
        CHECK_OK(pawl_lock(other, pawl_id(i), PAWL_EXCLUSIVE, &held[i]));
    for (uintptr_t i = 0; i < PAWL_INFLIGHT_MAX; i++)
        submit_lock(one, i, i % 2 ? PAWL_SHARED : PAWL_EXCLUSIVE, UINT64_MAX, (void *)i);
    uint64_t id;
    const pawl_request one_more = {.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_id(150), .deadline_ns = UINT64_MAX};
    CHECK_RC(pawl_submit(one, &one_more, &id), -PAWL_ELIMIT);
    nothing_more(one);
    bool seen[PAWL_INFLIGHT_MAX] = {0};
    for (unsigned i = 0; i < PAWL_INFLIGHT_MAX; i++) /* any order will do */
        CHECK_OK(pawl_unlock(other, &held[(i * 29) % PAWL_INFLIGHT_MAX]));
    for (unsigned got = 0; got < PAWL_INFLIGHT_MAX;) {
        pawl_completion c[7];
        int n = pawl_reap(one, c, countof(c), pawl_in(LIMIT_NS));
        CHECK_BETWEEN(n, 1, countof(c));
        for (int k = 0; k < n; k++, got++) {
            CHECK_RC(c[k].result, 0);
            CHECK(!seen[(uintptr_t)c[k].user]);
            seen[(uintptr_t)c[k].user] = true;
            CHECK_OK(pawl_unlock(one, &c[k].grant));
        }
    }
    CHECK_OK(pawl_submit(one, &one_more, &id)); /* there is room again */
    pawl_completion c = reap_one(one, id, 0);
    CHECK_OK(pawl_unlock(one, &c.grant));
    nothing_more(one);
}

/* All wait for one lock; each that gets it lets the next one have it. */
static void one_after_another(void)
{
    pawl_grant g;
    CHECK_OK(pawl_lock(other, pawl_id(7), PAWL_EXCLUSIVE, &g));
    for (uintptr_t i = 0; i < PAWL_INFLIGHT_MAX; i++)
        submit_lock(one, 7, PAWL_EXCLUSIVE, UINT64_MAX, NULL);
    WAIT_FOR(waiters(7) == PAWL_INFLIGHT_MAX);
    CHECK_OK(pawl_unlock(other, &g));
    uint64_t last = g.token;
    for (uintptr_t i = 0; i < PAWL_INFLIGHT_MAX; i++) {
        pawl_completion c;
        CHECK_EQ(pawl_reap(one, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_RC(c.result, 0);
        CHECK(c.grant.token > last);
        last = c.grant.token;
        CHECK_OK(pawl_unlock(one, &c.grant));
    }
    nothing_more(one);
}

static void closed_in_flight(void)
{
    pawl_grant g;
    CHECK_OK(pawl_lock(other, pawl_id(3), PAWL_EXCLUSIVE, &g));
    for (unsigned i = 0; i < 10; i++)
        submit_lock(one, 3, PAWL_EXCLUSIVE, UINT64_MAX, NULL);
    submit_lock(one, 4, PAWL_EXCLUSIVE, UINT64_MAX, NULL); /* granted and never reaped */
    CHECK_OK(pawl_close(one));
    one = async_place.open();
    CHECK_EQ(waiters(3), 0);
    CHECK_OK(pawl_unlock(other, &g));
    CHECK_OK(pawl_trylock(other, pawl_id(4), PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_unlock(other, &g));
}

/* ---- requests that are none ---- */

static void bad_requests(void)
{
    uint64_t id;
    pawl_completion c;
    pawl_request r = {.op = (enum pawl_op)0, .mode = PAWL_SHARED, .key = pawl_id(1)};
    CHECK_RC(pawl_submit(one, &r, &id), -EINVAL);
    r.op = (enum pawl_op)7;
    CHECK_RC(pawl_submit(one, &r, &id), -EINVAL);
    pawl_call call = {.len = 0};
    r = (pawl_request){.op = PAWL_OP_CALL, .mode = PAWL_SHARED, .key = pawl_id(1), .deadline_ns = PAWL_TRY, .call = &call};
    CHECK_RC(pawl_submit(one, &r, &id), -PAWL_ENOTSUP); /* there is no data server */
    r.op = PAWL_OP_LOCK;
    CHECK_RC(pawl_submit(one, &r, &id), -PAWL_ENOTSUP);
    r = (pawl_request){.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_name("not a number"), .deadline_ns = PAWL_TRY};
    CHECK_RC(pawl_submit(one, &r, &id), -EINVAL);
    r = (pawl_request){.op = PAWL_OP_LOCK, .mode = (enum pawl_mode)5, .key = pawl_id(1), .deadline_ns = PAWL_TRY};
    CHECK_RC(pawl_submit(one, &r, &id), -EINVAL);
    r = (pawl_request){.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_id(1)};
    CHECK_RC(pawl_submit(one, &r, &id), -EINVAL); /* a deadline that was forgotten is not a try */
    r = (pawl_request){.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_id(1), .deadline_ns = PAWL_TRY, .reserved = {1}};
    CHECK_RC(pawl_submit(one, &r, &id), -EINVAL);
    CHECK_RC(pawl_reap(one, &c, 1, 0), -EINVAL);
    CHECK_RC(pawl_reap(one, &c, 0, PAWL_TRY), -EINVAL);
    /* The key of an unlock is not looked at, whatever it is. */
    static const char huge[1 << 20];
    r = (pawl_request){.op = PAWL_OP_UNLOCK, .key = pawl_bytes(huge, sizeof huge)};
    CHECK_OK(pawl_submit(one, &r, &id));
    reap_one(one, id, -PAWL_ENOTOWNER);
    nothing_more(one);
}

static void async_calls(void)
{
    static void (*const parts[])(void) = {at_once,           after_unlock,     given_up,    as_many_as_there_may_be,
                                          one_after_another, closed_in_flight, bad_requests};
    for (unsigned i = 0; i < countof(parts); i++) {
        open_both();
        parts[i]();
        close_both();
    }
}

#endif
