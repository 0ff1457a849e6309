/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of pawl.h mean the same with every design on every substrate: deadlines, re-locking, expiries, errors of a lost
 * session, submitted operations. PAWL_TEST_DESIGN: this design alone. */
#include "cluster/session.h"
#include "tests/udp/places.h"

#include <dirent.h>

static bool shared, convert, async, ranges;

static int lock(pawl *p, uint64_t key, enum pawl_mode mode, uint64_t deadline, pawl_grant *g)
{
    return pawl_timedlock(p, pawl_id(key), mode, deadline, g);
}

static pawl_grant held(pawl *p, uint64_t key, enum pawl_mode mode)
{
    pawl_grant g;
    CHECK_OK(lock(p, key, mode, pawl_in(LIMIT_NS), &g));
    return g;
}

static pawl_request locking(uint64_t key, enum pawl_mode mode, uint64_t deadline)
{
    return (pawl_request){.op = PAWL_OP_LOCK, .mode = mode, .key = pawl_id(key), .deadline_ns = deadline};
}

static pawl_completion done(pawl *p, const pawl_request *r)
{
    pawl_completion c;
    uint64_t id;
    CHECK_OK(pawl_submit(p, r, &id));
    CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_EQ(c.id, id);
    CHECK_EQ(c.op, r->op);
    return c;
}

static void unlock(pawl *p, const pawl_grant *g)
{
    CHECK_OK(pawl_unlock(p, g));
}

/* ---- deadlines ---- */

/* A struct or argument that was not filled in is an error, and not a try. */
static void forgotten(pawl *p)
{
    pawl_grant g, h;
    pawl_completion c;
    uint64_t id;
    CHECK_RC(lock(p, 1, PAWL_EXCLUSIVE, 0, &g), -EINVAL);
    CHECK(strstr(pawl_explain(), "PAWL_TRY") != NULL);
    CHECK_RC(pawl_reap(p, &c, 1, 0), -EINVAL);
    pawl_want want = {.key = pawl_id(1), .mode = PAWL_EXCLUSIVE};
    CHECK_RC(pawl_lock_all(p, &want, 1, 0, &g), -EINVAL);
    want.reserved = 1;
    CHECK_RC(pawl_lock_all(p, &want, 1, PAWL_TRY, &g), -EINVAL);
    if (ranges)
        CHECK_RC(pawl_lock_range(p, pawl_id(1), 0, 1, PAWL_EXCLUSIVE, 0, &g), -EINVAL);
    g = held(p, 1, PAWL_EXCLUSIVE);
    h = g;
    CHECK_RC(pawl_convert(p, &h, PAWL_EXCLUSIVE, 0), -EINVAL);
    if (async) {
        pawl_request r = locking(2, PAWL_EXCLUSIVE, 0);
        CHECK_RC(pawl_submit(p, &r, &id), -EINVAL);
        r = locking(2, PAWL_EXCLUSIVE, PAWL_TRY);
        r.reserved[0] = 1;
        CHECK_RC(pawl_submit(p, &r, &id), -EINVAL);
        r = locking(2, (enum pawl_mode)3, PAWL_TRY);
        CHECK_RC(pawl_submit(p, &r, &id), -EINVAL);
        r = (pawl_request){.op = PAWL_OP_CONVERT, .grant = g, .mode = PAWL_EXCLUSIVE};
        CHECK_RC(pawl_submit(p, &r, &id), -EINVAL);
        r = (pawl_request){.op = PAWL_OP_UNLOCK, .grant = g}; /* which never waits */
        CHECK_OK(done(p, &r).result);
    } else {
        unlock(p, &g);
    }
}

/* A try is granted a free lock; on a rack an old request that the network doubled may hold it for a moment. */
static pawl_grant past_free(pawl *p, uint64_t key, uint64_t deadline)
{
    pawl_grant g = {0};
    WAIT_FOR(!lock(p, key, PAWL_EXCLUSIVE, deadline, &g));
    return g;
}

#define PROMPTLY_NS (2 * NS_PER_S) /* less than a lease */
#define PROMPT_TRIES 4             /* a busy machine may stop any process for seconds, but not each time */

/* An operation whose deadline has passed is a try: it ends while the lock is held. Else it would wait in the lock's queue for a
 * lease, which is how long an answer is waited for. */
static void past_submitted(pawl *q, uint64_t deadline)
{
    const pawl_request r = locking(3, PAWL_EXCLUSIVE, deadline);
    bool promptly = false;
    for (unsigned i = 0; i < PROMPT_TRIES && !promptly; i++) {
        pawl_completion c;
        uint64_t id;
        CHECK_OK(pawl_submit(q, &r, &id));
        promptly = pawl_reap(q, &c, 1, pawl_in(PROMPTLY_NS)) == 1;
        if (!promptly)
            CHECK_EQ(pawl_reap(q, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_RC(c.result, -ETIMEDOUT);
    }
    CHECK(promptly);
}

static void past(pawl *p, pawl *q)
{
    const uint64_t deadline = pawl_now() - NS_PER_MS;
    pawl_grant g = past_free(p, 3, deadline), h;
    CHECK_RC(lock(q, 3, PAWL_EXCLUSIVE, deadline, &h), -ETIMEDOUT);
    CHECK_RC(lock(q, 3, PAWL_EXCLUSIVE, PAWL_TRY, &h), -PAWL_EHELD);
    CHECK_RC(pawl_trylock(q, pawl_id(3), PAWL_EXCLUSIVE, &h), -PAWL_EHELD);
    pawl_want want = {.key = pawl_id(3), .mode = PAWL_EXCLUSIVE};
    CHECK_RC(pawl_lock_all(q, &want, 1, deadline, &h), -ETIMEDOUT);
    CHECK_RC(pawl_lock_all(q, &want, 1, PAWL_TRY, &h), -PAWL_EHELD);
    if (async) {
        past_submitted(q, deadline);
        const pawl_request r = locking(3, PAWL_EXCLUSIVE, PAWL_TRY);
        CHECK_RC(done(q, &r).result, -PAWL_EHELD);
    }
    unlock(p, &g);
    if (async) {
        pawl_completion c;
        const pawl_request r = locking(3, PAWL_EXCLUSIVE, deadline);
        WAIT_FOR(!(c = done(q, &r)).result);
        unlock(q, &c.grant);
    }
}

/* A conversion that does not wait says that the lock is held, and changes nothing. */
static void conversions(pawl *p, pawl *q)
{
    if (!convert || !shared)
        return;
    pawl_grant g = held(p, 4, PAWL_SHARED), h = held(q, 4, PAWL_SHARED);
    CHECK_RC(pawl_convert(p, &g, PAWL_EXCLUSIVE, PAWL_TRY), -PAWL_EHELD);
    CHECK_RC(pawl_convert(p, &g, PAWL_EXCLUSIVE, pawl_in(5 * NS_PER_MS)), -ETIMEDOUT);
    CHECK_OK(pawl_check(p, &g));
    unlock(q, &h);
    CHECK_OK(pawl_convert(p, &g, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS)));
    CHECK_OK(pawl_convert(p, &g, PAWL_SHARED, PAWL_TRY));
    unlock(p, &g);
}

/* ---- a thread that waits for itself ---- */

static bool only_thread(void)
{
    return handle_only_thread(); /* the thread sanitizer has a thread of its own */
}

static void *wait_elsewhere(void *arg)
{
    pawl_grant g = held(arg, 5, PAWL_EXCLUSIVE);
    unlock(arg, &g);
    return NULL;
}

static void relock(pawl *p)
{
    pawl_grant g = held(p, 5, PAWL_EXCLUSIVE), h[2];
    const uint64_t soon = pawl_in(LIMIT_NS);
    CHECK_RC(pawl_trylock(p, pawl_id(5), PAWL_EXCLUSIVE, &h[0]), -PAWL_EHELD);
    if (only_thread()) {
        CHECK_RC(lock(p, 5, PAWL_EXCLUSIVE, soon, &h[0]), -EDEADLK);
        CHECK(strstr(pawl_explain(), "itself") != NULL);
        CHECK_RC(pawl_lock(p, pawl_id(5), PAWL_EXCLUSIVE, &h[0]), -EDEADLK);
        if (shared)
            CHECK_RC(lock(p, 5, PAWL_SHARED, soon, &h[0]), -EDEADLK);
        const pawl_want both[] = {{.key = pawl_id(4), .mode = PAWL_EXCLUSIVE}, {.key = pawl_id(5), .mode = PAWL_EXCLUSIVE}};
        CHECK_RC(pawl_lock_all(p, both, 2, soon, h), -EDEADLK);
    }
    CHECK_OK(pawl_check(p, &g));
    pthread_t thread; /* another thread of the session waits, and is granted it */
    pawl_state s;
    CHECK_EQ(pthread_create(&thread, NULL, wait_elsewhere, p), 0);
    do
        CHECK_OK(pawl_query(p, pawl_id(5), &s));
    while (!s.waiters);
    unlock(p, &g);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    g = held(p, 4, PAWL_EXCLUSIVE); /* nothing was left of pawl_lock_all */
    unlock(p, &g);
}

static void relock_shared(pawl *p)
{
    if (!shared)
        return;
    const uint64_t soon = pawl_in(LIMIT_NS);
    pawl_grant g = held(p, 6, PAWL_SHARED), h = held(p, 6, PAWL_SHARED), x;
    if (only_thread()) {
        CHECK_RC(lock(p, 6, PAWL_EXCLUSIVE, soon, &x), -EDEADLK);
        if (convert)
            CHECK_RC(pawl_convert(p, &g, PAWL_EXCLUSIVE, soon), -EDEADLK);
    }
    CHECK_OK(pawl_check(p, &g));
    unlock(p, &g);
    unlock(p, &h);
    x = held(p, 6, PAWL_EXCLUSIVE);
    unlock(p, &x);
}

/* While operations are in flight nothing is known: the one that holds may be released by the program. */
static void relock_async(pawl *p)
{
    pawl_completion c;
    uint64_t id;
    if (!async)
        return;
    pawl_grant g = held(p, 7, PAWL_EXCLUSIVE);
    const pawl_request r = locking(7, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS));
    CHECK_OK(pawl_submit(p, &r, &id));
    CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(5 * NS_PER_MS)), 0);
    unlock(p, &g);
    CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_OK(c.result);
    unlock(p, &c.grant);
}

static void relock_range(pawl *p)
{
    pawl_grant g, h;
    if (!ranges)
        return;
    CHECK_OK(pawl_lock_range(p, pawl_id(8), 0, 2 * 4096, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    if (only_thread())
        CHECK_RC(pawl_lock_range(p, pawl_id(8), 4096, 3 * 4096, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h), -EDEADLK);
    unlock(p, &g);
}

/* The features that the design declares are those that it has. */
static void split(pawl *p)
{
    pawl_grant g, right;
    if (!ranges)
        return;
    CHECK_OK(pawl_lock_range(p, pawl_id(8), 0, 4 * 4096, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_RC(pawl_split(p, &g, 4096, &right), place_has(DESIGN_SPLIT) ? 0 : -PAWL_ENOTSUP);
    if (place_has(DESIGN_SPLIT))
        unlock(p, &right);
    unlock(p, &g);
}

/* ---- expiries ---- */

static void extensions(pawl *p)
{
    pawl_grant g = held(p, 9, PAWL_EXCLUSIVE);
    uint64_t last = g.expiry_ns;
    for (int i = 0; i < 200; i++) {
        CHECK_OK(pawl_extend(p, &g));
        CHECK(g.expiry_ns >= last);
        last = g.expiry_ns;
    }
    unlock(p, &g);
}

/* ---- what a call says of its own ---- */

/* An explanation is one of the latest call, and not of one before it. */
static void explanations(pawl *p)
{
    pawl_grant g[2];
    const pawl_want twice[] = {{.key = pawl_id(14), .mode = PAWL_EXCLUSIVE}, {.key = pawl_id(14), .mode = PAWL_EXCLUSIVE}};
    CHECK_RC(pawl_timedlock(p, pawl_id(14), PAWL_EXCLUSIVE, 0, &g[0]), -EINVAL);
    CHECK(strstr(pawl_explain(), "deadline") != NULL);
    CHECK_RC(pawl_lock_all(p, twice, 2, PAWL_TRY, g), -EINVAL);
    CHECK(strstr(pawl_explain(), ranges ? "overlap" : "twice") != NULL);
    CHECK_RC(pawl_cancel(p, 77), -ENOENT);
    CHECK(async ? strstr(pawl_explain(), "no operation 77") != NULL : !strstr(pawl_explain(), ranges ? "overlap" : "twice"));
    CHECK_RC(pawl_lock_all(p, twice, 0, PAWL_TRY, g), -EINVAL);
    CHECK(strstr(pawl_explain(), "1 to 64") != NULL);
    pawl_grant none = {.hold = UINT32_MAX, .index = UINT64_MAX};
    CHECK_RC(pawl_unlock(p, &none), -PAWL_ENOTOWNER);
    CHECK(!strstr(pawl_explain(), "1 to 64"));
}

/* ---- what a query says ---- */

static uint32_t passing; /* another session still uses new keys */

static void *pass_keys(void *arg)
{
    const uint64_t rounds = place.test->on == ON_SHM ? 30 : 3; /* so that the space makes room; elsewhere that takes long */
    for (uint64_t i = 0; i < rounds * PLACE_LOCKS; i++) {
        pawl_grant g = held(arg, 1000 + i, PAWL_EXCLUSIVE);
        unlock(arg, &g);
    }
    __atomic_store_n(&passing, 0, __ATOMIC_RELEASE);
    return NULL;
}

/* A lock that is held is never called free, while locks beside it are forgotten to make room. */
static void queries(pawl *p, pawl *q)
{
    pawl_grant g = held(p, 15, PAWL_EXCLUSIVE);
    pthread_t thread;
    unsigned asked = 0;
    passing = 1;
    CHECK_EQ(pthread_create(&thread, NULL, pass_keys, q), 0);
    while (__atomic_load_n(&passing, __ATOMIC_ACQUIRE) || !asked) {
        pawl_state s;
        int rc = pawl_query(p, pawl_id(15), &s);
        if (rc == -EAGAIN)
            continue; /* a host or the table was busy, and says so */
        CHECK_OK(rc);
        CHECK_EQ(s.mode, PAWL_EXCLUSIVE);
        CHECK_EQ(s.holders, 1);
        asked++;
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    unlock(p, &g);
}

/* ---- a lost session ---- */

/* Semaphores, values, watches and calls, where the design has them. */
static void lost_beside(pawl *p, const pawl_grant *g)
{
    pawl_grant h;
    char value[PAWL_VALUE_MAX];
    size_t len = sizeof value;
    pawl_call call = {.bytes = "x", .len = 1};
    if (place_has(DESIGN_SEMAPHORE))
        CHECK_RC(pawl_semaphore(p, pawl_id(16), 2, PAWL_TRY, &h), -PAWL_ELOST);
    if (place_has(DESIGN_VALUES)) {
        CHECK_RC(pawl_set_value(p, g, "x", 1), -PAWL_ELOST);
        CHECK_RC(pawl_get_value(p, g, value, &len), -PAWL_ELOST);
    }
    if (place_has(DESIGN_BAST))
        CHECK_RC(pawl_watch(p, g), -PAWL_ELOST);
    if (place_has(DESIGN_CALLS)) {
        CHECK_RC(pawl_lock_call(p, pawl_id(16), PAWL_EXCLUSIVE, PAWL_TRY, &call, NULL), -PAWL_ELOST);
        CHECK_RC(pawl_hold_call(p, g, PAWL_TRY, &call), -PAWL_ELOST);
    }
    CHECK_RC(pawl_unlock_all(p, g, 1), -PAWL_ELOST);
    CHECK_EQ(pawl_why(p, g), PAWL_WHY_BROKEN);
}

static void lost_ranges(pawl *p, pawl_grant g)
{
    pawl_grant h;
    CHECK_RC(pawl_lock_range(p, pawl_id(10), 0, 1, PAWL_EXCLUSIVE, PAWL_TRY, &h), -PAWL_ELOST);
    if (place.design->reshape)
        CHECK_RC(pawl_reshape(p, &g, 0, 4096, PAWL_TRY), -PAWL_ELOST);
    if (place.design->split)
        CHECK_RC(pawl_split(p, &g, 4096, &h), -PAWL_ELOST);
}

static void lost(void)
{
    pawl *p = place_open(0, 0), *q = place_open(0, 0);
    pawl_grant g = held(p, 10, PAWL_EXCLUSIVE), released = held(p, 11, PAWL_EXCLUSIVE), h, forged = g;
    pawl_state s;
    const pawl_want want = {.key = pawl_id(12), .mode = PAWL_EXCLUSIVE};
    unlock(p, &released);
    forged.serial++;
    place_break(p, q);
    WAIT_FOR(pawl_check(p, &g) == -PAWL_ELOST);
    CHECK_RC(pawl_trylock(p, pawl_id(12), PAWL_EXCLUSIVE, &h), -PAWL_ELOST);
    CHECK_RC(pawl_lock(p, pawl_id(12), PAWL_EXCLUSIVE, &h), -PAWL_ELOST);
    CHECK_RC(lock(p, 12, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h), -PAWL_ELOST);
    CHECK_RC(pawl_lock_all(p, &want, 1, PAWL_TRY, &h), -PAWL_ELOST);
    CHECK_RC(pawl_extend(p, &g), -PAWL_ELOST);
    CHECK_RC(pawl_query(p, pawl_id(10), &s), -PAWL_ELOST);
    CHECK_RC(pawl_check(p, &released), -PAWL_ELOST);
    CHECK_RC(pawl_check(p, &forged), -PAWL_ELOST);
    CHECK_RC(pawl_unlock(p, &forged), -PAWL_ELOST);
    if (convert)
        CHECK_RC(pawl_convert(p, &g, PAWL_SHARED, PAWL_TRY), -PAWL_ELOST);
    if (ranges)
        lost_ranges(p, g);
    lost_beside(p, &g);
    if (async) {
        pawl_completion c;
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_EQ(c.op, PAWL_OP_LOST);
        pawl_request r = locking(12, PAWL_EXCLUSIVE, PAWL_TRY);
        CHECK_RC(done(p, &r).result, -PAWL_ELOST);
        r = (pawl_request){.op = PAWL_OP_CONVERT, .grant = g, .mode = PAWL_SHARED, .deadline_ns = PAWL_TRY};
        if (convert)
            CHECK_RC(done(p, &r).result, -PAWL_ELOST);
        r.op = PAWL_OP_UNLOCK;
        CHECK_RC(done(p, &r).result, -PAWL_ELOST);
        r.grant = released;
        CHECK_RC(done(p, &r).result, -PAWL_ELOST);
    }
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ELOST);
    CHECK_RC(pawl_unlock(p, &released), -PAWL_ELOST);
    h = held(q, 10, PAWL_EXCLUSIVE);
    unlock(q, &h);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
}

/* ---- submitting ---- */

/* The coordinator and all else is silent, and the key is new: the request is taken at once, and its end is a completion. */
static void silent(void)
{
    pawl *p = place_open(0, 0);
    pawl_completion c;
    uint64_t id, cancelled;
    if (place.test->on == ON_RACK) {
        for (unsigned i = 0; i < rack_pid_count; i++) {
            int status;
            CHECK_EQ(kill(rack_pids[i], SIGSTOP), 0);
            CHECK_EQ(waitpid(rack_pids[i], &status, WUNTRACED), rack_pids[i]); /* all of its threads have stopped */
        }
        uint64_t begin = pawl_now();
        pawl_request r = locking(30, PAWL_EXCLUSIVE, UINT64_MAX);
        CHECK_OK(pawl_submit(p, &r, &cancelled));
        r = locking(31, PAWL_EXCLUSIVE, pawl_in(200 * NS_PER_MS));
        CHECK_OK(pawl_submit(p, &r, &id));
        CHECK(pawl_now() - begin < NS_PER_S); /* a coordinator is asked for up to 15 s */
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_EQ(c.id, id);
        CHECK_RC(c.result, -ETIMEDOUT);
        CHECK_OK(pawl_cancel(p, cancelled));
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_EQ(c.id, cancelled);
        CHECK_RC(c.result, -ECANCELED);
        r = locking(32, PAWL_EXCLUSIVE, UINT64_MAX);
        CHECK_OK(pawl_submit(p, &r, &id));
        for (unsigned i = 0; i < rack_pid_count; i++)
            CHECK_EQ(kill(rack_pids[i], SIGCONT), 0);
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_EQ(c.id, id);
        CHECK_OK(c.result);
        r.key = pawl_id(33); /* one more, which is in flight when the session ends */
        CHECK_OK(pawl_submit(p, &r, &id));
    }
    CHECK_OK(pawl_close(p));
}

/* ---- all of it ---- */

static void one_place(const struct place_test *t)
{
    place_begin(t);
    shared = place_has(DESIGN_SHARED);
    convert = place_has(DESIGN_CONVERT);
    ranges = place_has(DESIGN_RANGES);
    async = place_has(DESIGN_ASYNC);
    pawl *p = place_open(0, 0), *q = place_open(1, 0);
    forgotten(p);
    past(p, q);
    conversions(p, q);
    relock(p);
    relock_shared(p);
    relock_async(p);
    relock_range(p);
    split(p);
    extensions(p);
    explanations(p);
    queries(p, q);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
    lost();
    silent();
    place_end();
}

int main(void)
{
    static const struct place_test tests[] = {
        {.design = "word", .on = ON_SHM},
        {.design = "shiftlock", .on = ON_SHM},
        {.design = "shiftlock64", .on = ON_SHM},
        {.design = "alock", .on = ON_SHM},
        {.design = "citron", .on = ON_SHM},
        {.design = "mutex", .on = ON_SHM},
        {.design = "word", .on = ON_NODE},
        {.design = "shiftlock", .on = ON_NODE},
        {.design = "shiftlock64", .on = ON_NODE},
        {.design = "alock", .on = ON_NODE},
        {.design = "citron", .on = ON_NODE},
        {.design = "srvlock", .on = ON_RACK},
        {.design = "fisslock", .on = ON_RACK},
        {.design = "fisslock-stay", .on = ON_RACK},
        {.design = "fisslock-racks", .on = ON_RACK},
        {.design = "netlock", .on = ON_RACK},
        {.design = "netlock-switches", .on = ON_RACK},
    };
    const char *only = getenv("PAWL_TEST_DESIGN");
    CHECK_EQ(pawl_version(), PAWL_VERSION_NUMBER);
    for (unsigned i = 0; i < countof(tests); i++) {
        struct place_test t = tests[i];
        t.keys = PAWL_KEYS_SPARSE;
        if (!only || !strcmp(only, t.design))
            one_place(&t);
    }
    return 0;
}
