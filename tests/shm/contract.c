/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of pawl.h on one machine, call by call, for each kind of keys. */
#include "designs/core/design.h"
#include "tests/shm/space.h"

#include <pthread.h>

static enum pawl_keys kind;

static pawl_key key(unsigned i)
{
    static const char *const names[] = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"};
    return kind == PAWL_KEYS_NAMED ? pawl_name(names[i]) : pawl_id(kind == PAWL_KEYS_SPARSE ? i * UINT64_C(0x123456789abcdef) : i);
}

static pawl *open_one(void)
{
    const pawl_options o = {.keys = kind, .capacity = 100, .sessions = 16, .holds = 8};
    pawl *p = space_open(&o);
    CHECK_EQ(strlen(pawl_explain()), 0); /* nothing of the space that was not there before it was made */
    return p;
}

static pawl_state state_of(pawl *p, pawl_key k)
{
    pawl_state s;
    CHECK_OK(pawl_query(p, k, &s));
    return s;
}

static void check_free(pawl *p, pawl_key k)
{
    pawl_state s = state_of(p, k);
    CHECK_EQ(s.mode, 0);
    CHECK_EQ(s.holders, 0);
    CHECK_EQ(s.waiters, 0);
}

/* ---- a thread that waits for a lock ---- */

struct waiter {
    pthread_t thread;
    pawl *p;
    pawl_key key;
    enum pawl_mode mode;
    uint64_t deadline;
    pawl_grant grant;
    int rc;
    bool done;
};

static void *wait_in_thread(void *arg)
{
    struct waiter *w = arg;
    w->rc = pawl_timedlock(w->p, w->key, w->mode, w->deadline, &w->grant);
    __atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void *convert_in_thread(void *arg)
{
    struct waiter *w = arg;
    w->rc = pawl_convert(w->p, &w->grant, w->mode, w->deadline);
    __atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void waiter_start(struct waiter *w, void *(*fn)(void *))
{
    w->done = false;
    CHECK_EQ(pthread_create(&w->thread, NULL, fn, w), 0);
}

static void waiter_join(struct waiter *w, int want)
{
    CHECK_EQ(pthread_join(w->thread, NULL), 0);
    CHECK_RC(w->rc, want);
}

static bool is_done(const struct waiter *w)
{
    return __atomic_load_n(&w->done, __ATOMIC_ACQUIRE);
}

static bool waits(pawl *p, pawl_key k)
{
    return state_of(p, k).waiters > 0;
}

/* ---- locking ---- */

static void compatibility(void)
{
    pawl *a = open_one(), *b = open_one();
    pawl_grant g, h;
    static const struct {
        enum pawl_mode first, second;
        int rc;
    } table[] = {
        {PAWL_SHARED, PAWL_SHARED, 0},
        {PAWL_SHARED, PAWL_EXCLUSIVE, -PAWL_EHELD},
        {PAWL_EXCLUSIVE, PAWL_SHARED, -PAWL_EHELD},
        {PAWL_EXCLUSIVE, PAWL_EXCLUSIVE, -PAWL_EHELD},
    };
    for (unsigned i = 0; i < countof(table); i++) {
        CHECK_OK(pawl_lock(a, key(0), table[i].first, &g));
        CHECK_EQ(g.mode, table[i].first);
        CHECK(g.token > 0 && g.expiry_ns > pawl_now());
        CHECK_OK(pawl_check(a, &g));
        CHECK_RC(pawl_trylock(b, key(0), table[i].second, &h), table[i].rc);
        CHECK_RC(pawl_timedlock(b, key(1), table[i].second, 2, &h), 0); /* a free lock needs no time */
        CHECK_OK(pawl_unlock(b, &h));
        if (table[i].rc) {
            CHECK_RC(pawl_timedlock(b, key(0), table[i].second, pawl_in(2 * NS_PER_MS), &h), -ETIMEDOUT);
            CHECK_RC(pawl_timedlock(b, key(0), table[i].second, 2, &h), -ETIMEDOUT);
            CHECK_EQ(state_of(a, key(0)).holders, 1);
        } else {
            CHECK_RC(pawl_trylock(a, key(0), table[i].second, &h), 0);
            CHECK_OK(pawl_unlock(a, &h));
        }
        CHECK_EQ(state_of(b, key(0)).mode, table[i].first);
        if (space_design()) /* some only know that none was higher */
            CHECK(state_of(b, key(0)).token >= g.token);
        else
            CHECK_EQ(state_of(b, key(0)).token, g.token);
        CHECK_OK(pawl_unlock(a, &g));
        if (!table[i].rc) {
            pawl_grant left[2];
            CHECK_OK(pawl_lock(a, key(2), PAWL_SHARED, &left[0]));
            CHECK_OK(pawl_lock(b, key(2), PAWL_SHARED, &left[1]));
            CHECK_EQ(state_of(a, key(2)).holders, 2);
            CHECK_OK(pawl_unlock(a, &left[0]));
            CHECK_OK(pawl_unlock(b, &left[1]));
            pawl_close(b); /* ends its grants from above */
            b = open_one();
        }
        check_free(a, key(0));
        check_free(b, key(2));
    }
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
}

static void waiting(void)
{
    pawl *a = open_one(), *b = open_one();
    for (int shared_first = 0; shared_first < 2; shared_first++) {
        pawl_grant g;
        CHECK_OK(pawl_lock(a, key(3), shared_first ? PAWL_SHARED : PAWL_EXCLUSIVE, &g));
        struct waiter w = {.p = b, .key = key(3), .mode = PAWL_EXCLUSIVE, .deadline = UINT64_MAX};
        waiter_start(&w, wait_in_thread);
        WAIT_FOR(waits(a, key(3)));
        CHECK(!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
        CHECK_OK(pawl_unlock(a, &g));
        waiter_join(&w, 0);
        CHECK(w.grant.token > g.token);
        CHECK_OK(pawl_unlock(b, &w.grant));
        check_free(a, key(3));
    }
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
}

static void token_order(void)
{
    pawl *a = open_one(), *b = open_one();
    pawl_grant x, s1, s2;
    uint64_t last = 0;
    for (int i = 0; i < 50; i++) {
        CHECK_OK(pawl_lock(i % 2 ? a : b, key(4), PAWL_EXCLUSIVE, &x));
        CHECK(x.token > last);
        CHECK_OK(pawl_unlock(i % 2 ? a : b, &x));
        CHECK_OK(pawl_lock(a, key(4), PAWL_SHARED, &s1));
        CHECK_OK(pawl_lock(b, key(4), PAWL_SHARED, &s2));
        CHECK(s1.token > x.token && s2.token > x.token);
        last = max_u64(s1.token, s2.token);
        CHECK_OK(pawl_unlock(a, &s1));
        CHECK_OK(pawl_unlock(b, &s2));
    }
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
}

/* ---- convert ---- */

static void downgrade(void)
{
    pawl *a = open_one(), *b = open_one();
    pawl_grant g;
    CHECK_OK(pawl_lock(a, key(0), PAWL_EXCLUSIVE, &g));
    uint64_t x = g.token;
    struct waiter readers[3];
    for (unsigned i = 0; i < countof(readers); i++) {
        readers[i] = (struct waiter){.p = b, .key = key(0), .mode = PAWL_SHARED, .deadline = UINT64_MAX};
        waiter_start(&readers[i], wait_in_thread);
    }
    WAIT_FOR(state_of(a, key(0)).waiters == countof(readers));
    CHECK_OK(pawl_convert(a, &g, PAWL_EXCLUSIVE, UINT64_MAX)); /* the mode that it has already */
    CHECK_EQ(g.token, x);
    CHECK_OK(pawl_convert(a, &g, PAWL_SHARED, UINT64_MAX));
    CHECK_EQ(g.mode, PAWL_SHARED);
    CHECK(g.token > x); /* above every earlier exclusive one, its own included */
    for (unsigned i = 0; i < countof(readers); i++) {
        waiter_join(&readers[i], 0);
        CHECK(readers[i].grant.token > x);
    }
    CHECK_EQ(state_of(a, key(0)).holders, 1 + countof(readers));
    CHECK_OK(pawl_convert(a, &g, PAWL_SHARED, UINT64_MAX));
    for (unsigned i = 0; i < countof(readers); i++)
        CHECK_OK(pawl_unlock(b, &readers[i].grant));
    CHECK_OK(pawl_unlock(a, &g));
    check_free(a, key(0));
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
}

static void upgrade(void)
{
    pawl *a = open_one(), *b = open_one();
    pawl_grant g, other;
    CHECK_OK(pawl_lock(a, key(1), PAWL_SHARED, &g));
    uint64_t s = g.token;
    CHECK_OK(pawl_convert(a, &g, PAWL_EXCLUSIVE, PAWL_TRY)); /* alone: at once */
    CHECK_EQ(g.mode, PAWL_EXCLUSIVE);
    CHECK(g.token > s);
    CHECK_OK(pawl_convert(a, &g, PAWL_SHARED, UINT64_MAX));

    CHECK_OK(pawl_lock(b, key(1), PAWL_SHARED, &other));
    CHECK_RC(pawl_convert(a, &g, PAWL_EXCLUSIVE, PAWL_TRY), -PAWL_EHELD);
    CHECK_RC(pawl_convert(a, &g, PAWL_EXCLUSIVE, pawl_in(2 * NS_PER_MS)), -ETIMEDOUT);
    CHECK_EQ(g.mode, PAWL_SHARED); /* on failure it is what it was */
    CHECK_OK(pawl_check(a, &g));
    CHECK_EQ(state_of(a, key(1)).holders, 2);

    struct waiter w = {.p = a, .grant = g, .mode = PAWL_EXCLUSIVE, .deadline = UINT64_MAX};
    waiter_start(&w, convert_in_thread);
    /* While it waits no new reader may enter, and a second upgrade fails. */
    pawl_grant third;
    int rc;
    WAIT_FOR((rc = pawl_trylock(b, key(1), PAWL_SHARED, &third)) == -PAWL_EHELD || (rc == 0 && pawl_unlock(b, &third) < 0));
    struct waiter second = {.p = b, .grant = other, .mode = PAWL_EXCLUSIVE, .deadline = UINT64_MAX};
    waiter_start(&second, convert_in_thread);
    WAIT_FOR(is_done(&w) || is_done(&second));
    bool first_told = is_done(&w); /* which one is the design's choice */
    struct waiter *told = first_told ? &w : &second, *goes_on = first_told ? &second : &w;
    const pawl_grant *before = first_told ? &other : &g;
    waiter_join(told, -EDEADLK);
    CHECK_OK(pawl_check(told->p, &told->grant));
    CHECK(!is_done(goes_on));
    CHECK_OK(pawl_unlock(told->p, &told->grant));
    waiter_join(goes_on, 0);
    CHECK(goes_on->grant.token > g.token);
    CHECK_EQ(state_of(a, key(1)).mode, PAWL_EXCLUSIVE);
    CHECK_RC(pawl_unlock(goes_on->p, before), -PAWL_ENOTOWNER); /* the grant from before the conversion */
    CHECK_OK(pawl_unlock(goes_on->p, &goes_on->grant));
    check_free(b, key(1));
    CHECK_RC(pawl_convert(goes_on->p, &goes_on->grant, PAWL_SHARED, UINT64_MAX), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
}

/* ---- several at once ---- */

struct pair_worker {
    pthread_t thread;
    pawl *p;
    unsigned first, second;
    uint64_t *counter;
};

static void *take_pairs(void *arg)
{
    struct pair_worker *w = arg;
    for (int i = 0; i < 200; i++) {
        const pawl_want wants[] = {{.key = key(w->first), .mode = PAWL_EXCLUSIVE}, {.key = key(w->second), .mode = PAWL_EXCLUSIVE}};
        pawl_grant g[2];
        CHECK_OK(pawl_lock_all(w->p, wants, 2, UINT64_MAX, g));
        ++*w->counter; /* plain: both locks protect it */
        CHECK_OK(pawl_unlock(w->p, &g[1]));
        CHECK_OK(pawl_unlock(w->p, &g[0]));
    }
    return NULL;
}

static void all_at_once(void)
{
    pawl *a = open_one(), *b = open_one();
    const pawl_want wants[] = {
        {.key = key(2), .mode = PAWL_EXCLUSIVE}, {.key = key(0), .mode = PAWL_SHARED}, {.key = key(1), .mode = PAWL_EXCLUSIVE}};
    pawl_grant g[3], other;
    CHECK_OK(pawl_lock_all(a, wants, 3, UINT64_MAX, g));
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(g[i].mode, wants[i].mode);
        CHECK_EQ(state_of(b, wants[i].key).mode, wants[i].mode);
        CHECK_EQ(state_of(b, wants[i].key).token, g[i].token); /* grants[i] is of wants[i] */
    }
    CHECK_RC(pawl_unlock_all(a, g, 0), -EINVAL);
    CHECK_OK(pawl_unlock_all(a, g, 3));
    CHECK_RC(pawl_unlock_all(a, g, 3), -PAWL_ENOTOWNER);

    CHECK_OK(pawl_lock(b, key(1), PAWL_SHARED, &other)); /* one that cannot be had: none is */
    CHECK_RC(pawl_lock_all(a, wants, 3, pawl_in(2 * NS_PER_MS), g), -ETIMEDOUT);
    CHECK_RC(pawl_lock_all(a, wants, 3, PAWL_TRY, g), -PAWL_EHELD);
    check_free(a, key(0));
    check_free(a, key(2));
    CHECK_OK(pawl_unlock(b, &other));

    const pawl_want twice[] = {
        {.key = key(2), .mode = PAWL_EXCLUSIVE}, {.key = key(0), .mode = PAWL_SHARED}, {.key = key(2), .mode = PAWL_SHARED}};
    CHECK_RC(pawl_lock_all(a, twice, 3, UINT64_MAX, g), -EINVAL);
    CHECK_RC(pawl_lock_all(a, twice, 0, UINT64_MAX, g), -EINVAL);
    static pawl_want many[PAWL_ALL_MAX + 1];
    CHECK_RC(pawl_lock_all(a, many, PAWL_ALL_MAX + 1, UINT64_MAX, g), -EINVAL);
    const pawl_want no_mode[] = {{.key = key(0), .mode = PAWL_EXCLUSIVE}, {.key = key(1), .mode = (enum pawl_mode)7}};
    CHECK_RC(pawl_lock_all(a, no_mode, 2, UINT64_MAX, g), -EINVAL);
    check_free(a, key(0));

    uint64_t counter = 0;
    struct pair_worker up = {.p = a, .first = 0, .second = 1, .counter = &counter};
    struct pair_worker down = {.p = b, .first = 1, .second = 0, .counter = &counter};
    CHECK_EQ(pthread_create(&up.thread, NULL, take_pairs, &up), 0);
    CHECK_EQ(pthread_create(&down.thread, NULL, take_pairs, &down), 0);
    pthread_join(up.thread, NULL);
    pthread_join(down.thread, NULL);
    CHECK_EQ(counter, 400);
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
}

/* ---- grants that are none ---- */

static void *unlock_in_thread(void *arg)
{
    struct waiter *w = arg;
    w->rc = pawl_unlock(w->p, &w->grant);
    return NULL;
}

#define FORGERIES 7

/* Not the grant that it was made of, in one way or another. */
static pawl_grant forge(pawl_grant g, unsigned how)
{
    switch (how) {
    case 0:
        g.token++;
        if (g.mode == PAWL_SHARED)
            g.serial++; /* distinguishes shared grants of one lock */
        break;
    case 1:
        g.index++;
        break;
    case 2:
        g.hold++;
        break;
    case 3:
        g.hold = UINT32_MAX;
        break;
    case 4:
        g.mode = 0;
        break;
    case 5:
        g.mode = g.mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED;
        break;
    default:
        g.index = UINT64_MAX;
    }
    return g;
}

static void wrong_grants(enum pawl_mode mode)
{
    pawl *a = open_one(), *b = open_one();
    pawl_grant g, mine;
    CHECK_OK(pawl_lock(a, key(0), mode, &g));
    CHECK_RC(pawl_unlock(b, &g), -PAWL_ENOTOWNER);
    CHECK_RC(pawl_check(b, &g), -PAWL_ENOTOWNER);
    CHECK_RC(pawl_convert(b, &g, PAWL_SHARED, PAWL_TRY), -PAWL_ENOTOWNER);
    if (mode == PAWL_SHARED) { /* both read: each has its own grant all the same */
        CHECK_OK(pawl_lock(b, key(0), mode, &mine));
        CHECK_RC(pawl_unlock(b, &g), -PAWL_ENOTOWNER);
        CHECK_RC(pawl_check(b, &g), -PAWL_ENOTOWNER);
        CHECK_OK(pawl_check(b, &mine));
        CHECK_OK(pawl_unlock(b, &mine));
    }
    for (unsigned i = 0; i < FORGERIES; i++) {
        pawl_grant forged = forge(g, i);
        CHECK_RC(pawl_unlock(a, &forged), -PAWL_ENOTOWNER);
        CHECK_RC(pawl_convert(a, &forged, PAWL_SHARED, PAWL_TRY), -PAWL_ENOTOWNER);
        if (i) /* the token of an exclusive grant is looked at where it matters, not by the cheap check */
            CHECK_RC(pawl_check(a, &forged), -PAWL_ENOTOWNER);
        CHECK_OK(pawl_check(a, &g));
    }
    CHECK_RC(pawl_convert(a, &g, (enum pawl_mode)9, PAWL_TRY), -EINVAL);
    pawl_grant nothing = {0};
    CHECK_RC(pawl_unlock(a, &nothing), -PAWL_ENOTOWNER);
    uint64_t expiry = g.expiry_ns;
    CHECK_OK(pawl_extend(a, &g));
    CHECK(g.expiry_ns >= expiry);

    struct waiter w = {.p = a, .grant = g}; /* handles belong to no thread */
    waiter_start(&w, unlock_in_thread);
    waiter_join(&w, 0);
    CHECK_RC(pawl_unlock(a, &g), -PAWL_ENOTOWNER);
    CHECK_RC(pawl_check(a, &g), -PAWL_ENOTOWNER);
    CHECK_RC(pawl_extend(a, &g), -PAWL_ENOTOWNER);
    check_free(a, key(0));

    /* A grant of the session before is none of this one's, even of the same lock. */
    CHECK_OK(pawl_lock(a, key(0), mode, &g));
    CHECK_OK(pawl_close(a));
    check_free(b, key(0));
    for (int i = 0; i < 20; i++) {
        a = open_one();
        CHECK_OK(pawl_lock(a, key(0), mode, &mine));
        CHECK_RC(pawl_unlock(a, &g), -PAWL_ENOTOWNER);
        CHECK_OK(pawl_unlock(a, &mine));
        CHECK_OK(pawl_close(a));
    }
    CHECK_OK(pawl_close(b));
}

/* ---- limits ---- */

static void limits(void)
{
    pawl *a = open_one();
    pawl_grant g[8], more;
    for (unsigned i = 0; i < 8; i++)
        CHECK_OK(pawl_lock(a, key(i % 4), PAWL_SHARED, &g[i]));
    CHECK_RC(pawl_lock(a, key(0), PAWL_SHARED, &more), -PAWL_ELIMIT);
    CHECK_RC(pawl_trylock(a, key(5), PAWL_EXCLUSIVE, &more), -PAWL_ELIMIT);
    CHECK(strlen(pawl_explain()) > 0);
    CHECK_OK(pawl_unlock(a, &g[3]));
    CHECK_OK(pawl_lock(a, key(5), PAWL_EXCLUSIVE, &g[3]));
    for (unsigned i = 0; i < 8; i++)
        CHECK_OK(pawl_unlock(a, &g[i]));
    for (unsigned i = 0; i < 6; i++)
        check_free(a, key(i));

    pawl *others[15], *one_more;
    for (unsigned i = 0; i < countof(others); i++)
        others[i] = open_one();
    CHECK_RC(pawl_open(space_where(), NULL, &one_more), -PAWL_ELIMIT);
    CHECK_OK(pawl_close(others[7]));
    others[7] = open_one();
    for (unsigned i = 0; i < countof(others); i++)
        CHECK_OK(pawl_close(others[i]));
    CHECK_OK(pawl_close(a));
}

static bool has_ranges(void)
{
    return design_find(space_design() ? space_design() : "word")->features & DESIGN_RANGES;
}

static void refusals(void)
{
    pawl *a = open_one();
    pawl_grant g;
    pawl_state s;
    if (!has_ranges()) {
        CHECK_RC(pawl_lock_range(a, key(0), 0, 10, PAWL_SHARED, UINT64_MAX, &g), -PAWL_ENOTSUP);
        const pawl_want part = {.key = key(0), .mode = PAWL_SHARED, .start = 0, .end = 10};
        CHECK_RC(pawl_lock_all(a, &part, 1, UINT64_MAX, &g), -PAWL_ENOTSUP);
    }
    CHECK_RC(pawl_lock_range(a, key(0), 10, 10, PAWL_SHARED, UINT64_MAX, &g), -EINVAL);
    CHECK_RC(pawl_lock_range(a, key(0), 11, 10, PAWL_SHARED, UINT64_MAX, &g), -EINVAL);
    CHECK_RC(pawl_lock(a, key(0), (enum pawl_mode)0, &g), -EINVAL);
    CHECK_RC(pawl_lock(a, key(0), (enum pawl_mode)3, &g), -EINVAL);
    pawl_key other = kind == PAWL_KEYS_NAMED ? pawl_id(1) : pawl_name("one");
    CHECK_RC(pawl_lock(a, other, PAWL_SHARED, &g), -EINVAL);
    CHECK_RC(pawl_query(a, other, &s), -EINVAL);
    if (kind == PAWL_KEYS_NAMED) {
        char long_name[PAWL_NAME_MAX + 1] = {0};
        CHECK_RC(pawl_lock(a, pawl_name(""), PAWL_SHARED, &g), -EINVAL);
        CHECK_RC(pawl_lock(a, pawl_bytes(long_name, sizeof long_name), PAWL_SHARED, &g), -ENAMETOOLONG);
        CHECK_OK(pawl_lock(a, pawl_bytes(long_name, PAWL_NAME_MAX), PAWL_SHARED, &g));
        CHECK_OK(pawl_unlock(a, &g));
    }
    if (kind == PAWL_KEYS_DENSE) {
        CHECK_RC(pawl_lock(a, pawl_id(100), PAWL_SHARED, &g), -ERANGE);
        CHECK_OK(pawl_lock(a, pawl_id(99), PAWL_SHARED, &g));
        CHECK_OK(pawl_unlock(a, &g));
    }
    CHECK_OK(pawl_close(a));
    CHECK_RC(pawl_close(NULL), -EINVAL);
}

static void words_for_codes(void)
{
    static const int codes[] = {
        0,         PAWL_EHELD, PAWL_ELOST, PAWL_EUNKNOWN, PAWL_ENOTOWNER, PAWL_ENOTSUP, PAWL_EFORKED, PAWL_ESEGMENT, PAWL_ELIMIT,
        ETIMEDOUT, ECANCELED,  EDEADLK,    EINVAL,        ENAMETOOLONG,   ENOSPC,       ENOENT,       EACCES,        ENOMEM};
    for (unsigned i = 0; i < countof(codes); i++) {
        CHECK(strlen(pawl_strerror(-codes[i])) > 3);
        CHECK_STR(pawl_strerror(codes[i]), pawl_strerror(-codes[i]));
        for (unsigned k = 0; k < i; k++)
            CHECK(strcmp(pawl_strerror(-codes[i]), pawl_strerror(-codes[k])));
    }
    CHECK(!strstr(pawl_strerror(-PAWL_EHELD), "Unknown"));
    CHECK(pawl_strerror(-123456));
}

int main(void)
{
    words_for_codes();
    for (kind = PAWL_KEYS_NAMED; kind <= PAWL_KEYS_DENSE; kind++) {
        space_where();
        space_reset();
        compatibility();
        waiting();
        token_order();
        downgrade();
        upgrade();
        all_at_once();
        wrong_grants(PAWL_EXCLUSIVE);
        wrong_grants(PAWL_SHARED);
        limits();
        refusals();
    }
    return 0;
}
