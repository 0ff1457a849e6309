/* SPDX-License-Identifier: Apache-2.0 */
/* Calls beside locks, with every design on every substrate that offers them, and refused by name by the others: watches, which tell
 * a holder that others wait, semaphores, and values beside locks. PAWL_TEST_DESIGN: this design alone. */
#include "tests/udp/places.h"

#include <poll.h>

static pawl_grant held(pawl *p, uint64_t key, enum pawl_mode mode)
{
    pawl_grant g;
    CHECK_OK(pawl_timedlock(p, pawl_id(key), mode, pawl_in(LIMIT_NS), &g));
    return g;
}

static uint64_t ask(pawl *p, uint64_t key, enum pawl_mode mode)
{
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = mode, .key = pawl_id(key), .deadline_ns = pawl_in(LIMIT_NS)};
    uint64_t id;
    CHECK_OK(pawl_submit(p, &r, &id));
    return id;
}

static pawl_completion reap(pawl *p)
{
    pawl_completion c;
    CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
    return c;
}

static void release(pawl *p, const pawl_grant *g)
{
    CHECK_OK(pawl_unlock(p, g));
}

/* ---- watches ---- */

#define QUIET_NS (60 * NS_PER_MS) /* several looks of the library's thread */

static void quiet(pawl *p)
{
    pawl_completion c;
    if (pawl_reap(p, &c, 1, pawl_in(QUIET_NS)))
        CHECK_FAIL("a completion comes: operation %u, result %d, why %u", c.op, c.result, c.why);
}

/* `p` holds, and maybe another session, too; `q` asks, and `p` is told, once for each watch. Each time with another key: on a busy
 * machine a copy of a request that has ended may still be in flight to the lock, and p would be told of it. */
static void told(pawl *p, pawl *q, uint64_t key, enum pawl_mode mode, const pawl_grant *beside, pawl *of)
{
    pawl_grant g = held(p, key, mode), h;
    CHECK_OK(pawl_watch(p, &g));
    CHECK_OK(pawl_watch(p, &g)); /* the same watch */
    quiet(p);
    CHECK_RC(pawl_trylock(q, pawl_id(key), PAWL_EXCLUSIVE, &h), -PAWL_EHELD); /* it may be told of, too */
    ask(q, key, PAWL_EXCLUSIVE);
    struct pollfd readable = {.fd = pawl_fd(p), .events = POLLIN};
    CHECK_EQ(poll(&readable, 1, (int)(LIMIT_NS / NS_PER_MS)), 1);
    pawl_completion c = reap(p);
    CHECK_EQ(c.op, PAWL_OP_WANTED);
    CHECK_EQ(c.id, 0);
    CHECK_OK(c.result);
    CHECK_EQ(c.grant.token, g.token);
    CHECK_EQ(c.grant.serial, g.serial);
    quiet(p);
    CHECK_OK(pawl_watch(p, &g)); /* it still waits */
    CHECK_EQ(reap(p).op, PAWL_OP_WANTED);
    CHECK_OK(pawl_check(p, &g));
    release(p, &g);
    if (beside)
        release(of, beside);
    c = reap(q);
    CHECK_OK(c.result);
    release(q, &c.grant);
}

/* A watch ends with its hold, and says nothing of the next one. */
static void ended(pawl *p, pawl *q)
{
    pawl_grant g = held(p, 4, PAWL_EXCLUSIVE);
    CHECK_OK(pawl_watch(p, &g));
    release(p, &g);
    CHECK_RC(pawl_watch(p, &g), -PAWL_ENOTOWNER);
    CHECK(*pawl_explain());
    pawl_grant next = held(p, 4, PAWL_EXCLUSIVE);
    ask(q, 4, PAWL_EXCLUSIVE);
    quiet(p);
    release(p, &next);
    pawl_completion c = reap(q);
    CHECK_OK(c.result);
    release(q, &c.grant);
}

struct caller {
    pawl *p;
    unsigned calls;
    pawl_grant grant;
};

static void give_way(void *ctx, const pawl_grant *grant)
{
    struct caller *c = ctx;
    c->grant = *grant;
    release(c->p, grant);
    __atomic_add_fetch(&c->calls, 1, __ATOMIC_RELEASE);
}

static void by_callback(pawl *p, pawl *q)
{
    struct caller caller = {.p = p};
    pawl_grant g = held(p, 5, PAWL_EXCLUSIVE);
    CHECK_OK(pawl_on_wanted(p, give_way, &caller));
    CHECK_OK(pawl_watch(p, &g));
    ask(q, 5, PAWL_EXCLUSIVE);
    pawl_completion c = reap(q);
    CHECK_OK(c.result);
    WAIT_FOR(__atomic_load_n(&caller.calls, __ATOMIC_ACQUIRE) == 1);
    CHECK_EQ(caller.grant.serial, g.serial);
    quiet(p); /* it went to the callback */
    CHECK_OK(pawl_on_wanted(p, NULL, NULL));
    release(q, &c.grant);
}

static void watches(pawl *p, pawl *q, pawl *r)
{
    pawl_grant g;
    if (!place_has(DESIGN_BAST)) {
        g = held(p, 3, PAWL_EXCLUSIVE);
        CHECK_RC(pawl_watch(p, &g), -PAWL_ENOTSUP);
        CHECK(strstr(pawl_explain(), place.design->name) != NULL);
        release(p, &g);
        return;
    }
    told(p, q, 3, PAWL_EXCLUSIVE, NULL, NULL);
    told(p, q, 13, PAWL_SHARED, NULL, NULL);
    g = held(q, 23, PAWL_SHARED);       /* fisslock: the agent is on the other host, */
    told(p, r, 23, PAWL_SHARED, &g, q); /* and knows of the request that waits for both holders */
    ended(p, q);
    by_callback(p, q);
}

/* ---- semaphores ---- */

static int enter(pawl *p, uint32_t limit, uint64_t deadline, pawl_grant *g)
{
    return pawl_semaphore(p, pawl_id(20), limit, deadline, g);
}

static uint64_t ask_place(pawl *p, uint32_t limit)
{
    const pawl_request r = {
        .op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_id(20), .limit = limit, .deadline_ns = pawl_in(LIMIT_NS)};
    uint64_t id;
    CHECK_OK(pawl_submit(p, &r, &id));
    return id;
}

/* Wrong calls are refused, and change nothing. */
static void bad_limits(pawl *p, pawl *q)
{
    pawl_grant g, h, x;
    uint64_t id;
    CHECK_RC(enter(p, 0, PAWL_TRY, &g), -EINVAL);
    CHECK_RC(enter(p, PAWL_SEMAPHORE_MAX + 1, PAWL_TRY, &g), -EINVAL);
    CHECK(strstr(pawl_explain(), "2047") != NULL);
    CHECK_RC(enter(p, 1, 0, &g), -EINVAL);
    pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(20), .limit = 2, .deadline_ns = PAWL_TRY};
    CHECK_RC(pawl_submit(p, &r, &id), -EINVAL);
    r = (pawl_request){.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_id(20), .limit = 1 << 20, .deadline_ns = PAWL_TRY};
    CHECK_RC(pawl_submit(p, &r, &id), -EINVAL);
    CHECK_OK(enter(p, 2, PAWL_TRY, &g));
    CHECK_RC(enter(q, 3, PAWL_TRY, &h), -PAWL_ELIMITS);
    CHECK_RC(enter(q, 1, pawl_in(LIMIT_NS), &h), -PAWL_ELIMITS); /* it does not wait */
    CHECK(strstr(pawl_explain(), "limit") != NULL);
    x = g;
    CHECK_RC(pawl_convert(p, &x, PAWL_EXCLUSIVE, PAWL_TRY), -PAWL_ENOTSUP);
    CHECK_OK(pawl_check(p, &g));
    CHECK_OK(enter(q, 2, PAWL_TRY, &h));
    CHECK_RC(enter(q, 2, PAWL_TRY, &x), -PAWL_EHELD);
    release(p, &g);
    release(q, &h);
    CHECK_OK(pawl_timedlock(p, pawl_id(20), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g)); /* releases may be in flight */
    release(p, &g);
    CHECK_OK(pawl_timedlock(p, pawl_id(20), PAWL_SHARED, pawl_in(LIMIT_NS), &g)); /* without a limit, and it came first */
    CHECK_RC(enter(q, 2, PAWL_TRY, &h), -PAWL_ELIMITS);
    release(p, &g);
}

/* A thread that has all places does not wait for one of them; of another limit nothing is said but that. In a session of its own:
 * in the others the library's thread has released locks (by_callback), so that nothing is known of threads. */
static void own_places(void)
{
    pawl *p = place_open(0, 0);
    pawl_grant g[2], h;
    for (unsigned i = 0; i < 2; i++) {
        CHECK_OK(pawl_semaphore(p, pawl_id(21), 2, pawl_in(LIMIT_NS), &g[i]));
        CHECK_RC(pawl_semaphore(p, pawl_id(21), 1, pawl_in(LIMIT_NS), &h), -PAWL_ELIMITS);
    }
    CHECK_RC(pawl_semaphore(p, pawl_id(21), 2, PAWL_TRY, &h), -PAWL_EHELD);
    if (handle_only_thread()) { /* the thread sanitizer has a thread of its own */
        CHECK_RC(pawl_semaphore(p, pawl_id(21), 2, UINT64_MAX, &h), -EDEADLK);
        CHECK(strstr(pawl_explain(), "itself") != NULL);
    }
    release(p, &g[0]);
    CHECK_OK(pawl_semaphore(p, pawl_id(21), 2, pawl_in(LIMIT_NS), &g[0]));
    release(p, &g[0]);
    release(p, &g[1]);
    CHECK_OK(pawl_close(p));
}

/* Places are handed on, one by one; an exclusive lock keeps all. */
static void places(pawl *p, pawl *q)
{
    pawl_grant g[3], x;
    for (unsigned i = 0; i < 3; i++)
        CHECK_OK(enter(i % 2 ? q : p, 3, pawl_in(LIMIT_NS), &g[i]));
    CHECK(g[0].token && g[0].mode == PAWL_SHARED);
    CHECK_RC(enter(q, 3, PAWL_TRY, &x), -PAWL_EHELD);
    CHECK_RC(enter(q, 3, pawl_in(20 * NS_PER_MS), &x), -ETIMEDOUT);
    CHECK_RC(pawl_trylock(q, pawl_id(20), PAWL_SHARED, &x), -PAWL_EHELD);
    CHECK_RC(pawl_trylock(q, pawl_id(20), PAWL_EXCLUSIVE, &x), -PAWL_EHELD);
    ask_place(q, 3);
    ask_place(q, 3);
    quiet(q);
    for (unsigned i = 0; i < 2; i++) {
        release(i % 2 ? q : p, &g[i]);
        pawl_completion c = reap(q);
        CHECK_OK(c.result);
        g[i] = c.grant;
        quiet(q);
    }
    release(q, &g[0]);
    release(q, &g[1]);
    release(p, &g[2]);
    CHECK_RC(pawl_unlock(p, &g[2]), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_timedlock(q, pawl_id(20), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &x));
    CHECK(x.token > g[1].token);
    CHECK_RC(enter(p, 5, PAWL_TRY, &g[0]), -PAWL_EHELD);
    release(q, &x);
    CHECK_OK(enter(p, 5, pawl_in(LIMIT_NS), &g[0])); /* a free one takes another limit */
    release(p, &g[0]);
}

static void semaphores(pawl *p, pawl *q)
{
    pawl_grant g;
    if (!place_has(DESIGN_SEMAPHORE)) {
        CHECK_RC(enter(p, 2, PAWL_TRY, &g), -PAWL_ENOTSUP);
        CHECK(strstr(pawl_explain(), place.design->name) != NULL);
        return;
    }
    bad_limits(p, q);
    own_places();
    places(p, q);
}

/* ---- values ---- */

static pawl_grant locked(pawl *p, enum pawl_mode mode)
{
    pawl_grant g;
    CHECK_OK(pawl_timedlock(p, pawl_id(30), mode, pawl_in(LIMIT_NS), &g));
    return g;
}

static void finds(pawl *p, const pawl_grant *g, const char *value)
{
    char bytes[PAWL_VALUE_MAX];
    size_t len = sizeof bytes;
    CHECK_OK(pawl_get_value(p, g, bytes, &len));
    CHECK_EQ(len, strlen(value));
    CHECK(!memcmp(bytes, value, len));
}

static void finds_none(pawl *p, const pawl_grant *g)
{
    char bytes[PAWL_VALUE_MAX];
    size_t len = 17;
    CHECK_RC(pawl_get_value(p, g, bytes, &len), -PAWL_ENOVALUE);
    CHECK_EQ(len, 17);
}

/* Wrong calls are refused, and nothing has changed. */
static void bad_values(pawl *p, pawl *q)
{
    static const char longest[PAWL_VALUE_MAX + 1] = "0123456789012345678901234567890123456789012345678901234567890123";
    char bytes[PAWL_VALUE_MAX];
    size_t len = 3;
    pawl_grant g = locked(p, PAWL_EXCLUSIVE);
    CHECK_OK(pawl_set_value(p, &g, "first", 5));
    CHECK_RC(pawl_set_value(p, &g, longest, PAWL_VALUE_MAX + 1), -EMSGSIZE);
    CHECK(strstr(pawl_explain(), "64") != NULL);
    CHECK_RC(pawl_get_value(p, &g, bytes, &len), -EMSGSIZE);
    CHECK_EQ(len, 3);
    CHECK_RC(pawl_set_value(q, &g, "other", 5), -PAWL_ENOTOWNER); /* another session's grant */
    len = sizeof bytes;
    CHECK_RC(pawl_get_value(q, &g, bytes, &len), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_convert(p, &g, PAWL_SHARED, PAWL_TRY));
    CHECK_RC(pawl_set_value(p, &g, "shared", 6), -EINVAL);
    CHECK(strstr(pawl_explain(), "exclusive") != NULL);
    finds(p, &g, "first");
    release(p, &g);
    CHECK_RC(pawl_set_value(p, &g, "late", 4), -EINVAL);
    g.mode = PAWL_EXCLUSIVE;
    CHECK_RC(pawl_set_value(p, &g, "late", 4), -PAWL_ENOTOWNER);
    len = sizeof bytes;
    CHECK_RC(pawl_get_value(p, &g, bytes, &len), -PAWL_ENOTOWNER);
    g = locked(q, PAWL_EXCLUSIVE);
    finds(q, &g, "first");
    CHECK_OK(pawl_set_value(q, &g, longest, PAWL_VALUE_MAX));
    finds(q, &g, longest);
    release(q, &g);
}

static void values(pawl *p, pawl *q)
{
    pawl_grant g = locked(p, PAWL_EXCLUSIVE), h;
    if (!place_has(DESIGN_VALUES)) {
        size_t len = 0;
        CHECK_RC(pawl_set_value(p, &g, "x", 1), -PAWL_ENOTSUP);
        CHECK(strstr(pawl_explain(), place.design->name) != NULL);
        CHECK_RC(pawl_get_value(p, &g, NULL, &len), -PAWL_ENOTSUP);
        release(p, &g);
        return;
    }
    finds_none(p, &g);
    CHECK_OK(pawl_set_value(p, &g, "one", 3));
    CHECK_OK(pawl_set_value(p, &g, "second", 6));
    finds(p, &g, "second");
    release(p, &g);
    g = locked(p, PAWL_SHARED);
    h = locked(q, PAWL_SHARED);
    finds(p, &g, "second");
    finds(q, &h, "second");
    release(p, &g);
    release(q, &h);
    CHECK_OK(pawl_timedlock(q, pawl_id(31), PAWL_SHARED, pawl_in(LIMIT_NS), &h)); /* another lock has none */
    finds_none(q, &h);
    release(q, &h);
    g = locked(q, PAWL_EXCLUSIVE);
    CHECK_OK(pawl_set_value(q, &g, NULL, 0));
    finds_none(q, &g);
    release(q, &g);
    h = locked(p, PAWL_SHARED);
    finds_none(p, &h);
    release(p, &h);
    bad_values(p, q);
}

/* ---- all of it ---- */

static void one_place(const struct place_test *t)
{
    place_begin(t);
    pawl *p = place_open(0, 0), *q = place_open(1, 0), *r = place_open(1, 0);
    watches(p, q, r);
    semaphores(p, q);
    values(p, q);
    CHECK_OK(pawl_close(r));
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
    place_end();
}

int main(void)
{
    static const struct place_test tests[] = {
        {.design = "word", .on = ON_SHM},           {.design = "shiftlock", .on = ON_SHM},
        {.design = "citron", .on = ON_SHM},         {.design = "word", .on = ON_NODE},
        {.design = "srvlock", .on = ON_RACK},       {.design = "fisslock", .on = ON_RACK},
        {.design = "fisslock-stay", .on = ON_RACK}, {.design = "fisslock-racks", .on = ON_RACK},
        {.design = "netlock", .on = ON_RACK},
    };
    const char *only = getenv("PAWL_TEST_DESIGN");
    for (unsigned i = 0; i < countof(tests); i++) {
        struct place_test t = tests[i];
        t.keys = PAWL_KEYS_SPARSE;
        if (!only || !strcmp(only, t.design))
            one_place(&t);
    }
    return 0;
}
