/* SPDX-License-Identifier: Apache-2.0 */
/* Keys are mapped exactly: thousands of names that look alike, processes that insert the same names at once, and tables that are
 * too small and must forget. */
#include "lib/rng.h"
#include "tests/shm/space.h"

#define NAMES 4000
#define PROCESSES 4

/* Names that share prefixes, differ in one bit or in length only, and contain any byte: from the number alone. */
static pawl_key name_of(unsigned i, char buf[PAWL_NAME_MAX])
{
    size_t len = 1 + (i * 7) % PAWL_NAME_MAX;
    if (len < 4)
        len += 4; /* room for the number */
    memset(buf, i % 3 ? 'a' : 0, len);
    memcpy(buf + len - 4, &i, 4);
    return pawl_bytes(buf, len);
}

static void all_different(void)
{
    const pawl_options o = {.capacity = NAMES, .holds = 4096, .sessions = 4};
    static pawl_grant grants[NAMES];
    char buf[PAWL_NAME_MAX];
    pawl *p = space_open(&o);
    for (unsigned i = 0; i < NAMES; i++)
        CHECK_OK(pawl_trylock(p, name_of(i, buf), PAWL_EXCLUSIVE, &grants[i])); /* were two the same, one would be held */
    for (unsigned i = 0; i < NAMES; i++) {
        pawl_state s;
        pawl_grant g;
        CHECK_OK(pawl_query(p, name_of(i, buf), &s));
        CHECK_EQ(s.mode, PAWL_EXCLUSIVE);
        CHECK_EQ(s.token, grants[i].token);
        for (unsigned k = 0; k < i; k += 97)
            CHECK(grants[k].index != grants[i].index);
        if (i % 16 == 0)
            CHECK_RC(pawl_trylock(p, name_of(i, buf), PAWL_SHARED, &g), -PAWL_EHELD); /* and the same is the same */
    }
    for (unsigned i = 0; i < NAMES; i++)
        CHECK_OK(pawl_unlock(p, &grants[i]));
    /* Every length there is, and names that are prefixes of each other. */
    char as[PAWL_NAME_MAX];
    memset(as, 'a', sizeof as);
    for (size_t len = 1; len <= PAWL_NAME_MAX; len++)
        CHECK_OK(pawl_trylock(p, pawl_bytes(as, len), PAWL_EXCLUSIVE, &grants[len]));
    for (size_t len = 1; len <= PAWL_NAME_MAX; len++)
        CHECK_OK(pawl_unlock(p, &grants[len]));
    CHECK_OK(pawl_close(p));
}

/* ---- the same names from several processes at once ---- */

static struct table_of {
    uint32_t ready;
    uint64_t inside[NAMES]; /* process that has the lock */
    uint64_t counts[NAMES];
    uint64_t last_token[NAMES];
    uint32_t capacity;
} * shared;

static void insert_all(void *arg)
{
    const pawl_options o = {.capacity = shared->capacity, .sessions = 8};
    char buf[PAWL_NAME_MAX];
    pawl *p = space_open(&o);
    __atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
    WAIT_FOR(__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) == PROCESSES);
    for (unsigned i = 0; i < NAMES; i++) {
        pawl_grant g;
        uint64_t other = 0;
        int rc = pawl_lock(p, name_of(i, buf), PAWL_EXCLUSIVE, &g);
        CHECK_RC(rc, 0);
        if (!__atomic_compare_exchange_n(&shared->inside[i], &other, (uint64_t)getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            CHECK_FAIL("name %u has two locks: process %d is inside, too", i, (int)other);
        shared->counts[i]++;
        if (g.token <= shared->last_token[i])
            CHECK_FAIL("name %u: token %" PRIx64 " after %" PRIx64, i, g.token, shared->last_token[i]);
        shared->last_token[i] = g.token;
        __atomic_store_n(&shared->inside[i], 0, __ATOMIC_SEQ_CST);
        CHECK_OK(pawl_unlock(p, &g));
    }
    CHECK_OK(pawl_close(p));
}

static void inserted_together(uint32_t capacity)
{
    pid_t pids[PROCESSES];
    space_reset();
    shared = shared_memory(sizeof *shared);
    shared->capacity = capacity;
    for (unsigned i = 0; i < PROCESSES; i++)
        pids[i] = child_start(insert_all, NULL);
    for (unsigned i = 0; i < PROCESSES; i++)
        child_join(pids[i]);
    for (unsigned i = 0; i < NAMES; i++)
        CHECK_EQ(shared->counts[i], PROCESSES);
    munmap(shared, sizeof *shared);
}

/* ---- tables that are too small ---- */

static void forgotten(void)
{
    const pawl_options o = {.capacity = 48, .sessions = 4, .keys = PAWL_KEYS_SPARSE};
    enum { KEYS = 1000 };
    static uint64_t last[KEYS];
    pawl_grant kept, g;
    space_reset();
    pawl *p = space_open(&o);
    uint64_t highest = 0, first = 0;
    CHECK_OK(pawl_lock(p, pawl_id(UINT64_MAX), PAWL_EXCLUSIVE, &kept));
    memset(last, 0, sizeof last);
    for (unsigned round = 0; round < 5; round++)
        for (unsigned i = 0; i < KEYS; i++) {
            CHECK_OK(pawl_lock(p, pawl_id(i), i % 2 ? PAWL_SHARED : PAWL_EXCLUSIVE, &g));
            if (g.token <= last[i])
                CHECK_FAIL("key %u: token %" PRIx64 " after %" PRIx64 " although the lock was forgotten", i, g.token, last[i]);
            last[i] = g.token;
            first = first ? first : g.token;
            highest = max_u64(highest, g.token);
            CHECK_OK(pawl_unlock(p, &g));
            CHECK_OK(pawl_check(p, &kept)); /* a held name is not forgotten */
        }
    /* Tokens last longer than the world only if forgetting does not waste them: the next space's start 2^32 a second later. */
    CHECK(highest - first < 100 * KEYS);
    CHECK_OK(pawl_unlock(p, &kept));
    CHECK_OK(pawl_close(p));
}

/* A query never calls a held lock free, though other processes condemn its cell again and again to make room. */
static struct churning {
    uint32_t stop;
    uint64_t rounds[2]; /* by process */
} * churning;

static void churn(void *rounds)
{
    const pawl_options o = {.capacity = 48, .sessions = 8, .keys = PAWL_KEYS_SPARSE};
    pawl *p = space_open(&o);
    pawl_grant g;
    for (uint64_t i = 0; !__atomic_load_n(&churning->stop, __ATOMIC_ACQUIRE); i++) {
        CHECK_OK(pawl_lock(p, pawl_id(i % 1000), PAWL_EXCLUSIVE, &g));
        CHECK_OK(pawl_unlock(p, &g));
        __atomic_store_n((uint64_t *)rounds, i, __ATOMIC_RELAXED);
    }
    CHECK_OK(pawl_close(p));
}

static void queried(void)
{
    enum { ROUNDS = 100000 };
    const pawl_options o = {.capacity = 48, .sessions = 8, .keys = PAWL_KEYS_SPARSE};
    pawl_grant held, read;
    pawl_state s;
    space_reset();
    pawl *p = space_open(&o);
    churning = shared_memory(sizeof *churning);
    CHECK_OK(pawl_lock(p, pawl_id(UINT64_MAX), PAWL_EXCLUSIVE, &held));
    CHECK_OK(pawl_lock(p, pawl_id(UINT64_MAX - 1), PAWL_SHARED, &read));
    pid_t pids[2] = {child_start(churn, &churning->rounds[0]), child_start(churn, &churning->rounds[1])};
    while (__atomic_load_n(&churning->rounds[0], __ATOMIC_RELAXED) + __atomic_load_n(&churning->rounds[1], __ATOMIC_RELAXED) <
           ROUNDS) {
        CHECK_OK(pawl_query(p, pawl_id(UINT64_MAX), &s));
        CHECK_EQ(s.mode, PAWL_EXCLUSIVE);
        CHECK_EQ(s.token, held.token);
        CHECK_OK(pawl_query(p, pawl_id(UINT64_MAX - 1), &s));
        CHECK_EQ(s.mode, PAWL_SHARED);
    }
    __atomic_store_n(&churning->stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < countof(pids); i++)
        child_join(pids[i]);
    CHECK_OK(pawl_unlock(p, &held));
    CHECK_OK(pawl_unlock(p, &read));
    munmap(churning, sizeof *churning);
    CHECK_OK(pawl_close(p));
}

static void all_held(void)
{
    const pawl_options o = {.capacity = 48, .sessions = 4, .holds = 128};
    static pawl_grant grants[128];
    char buf[PAWL_NAME_MAX];
    unsigned n = 0;
    int rc = 0;
    space_reset();
    pawl *p = space_open(&o);
    while (n < countof(grants) && !(rc = pawl_lock(p, name_of(n, buf), PAWL_SHARED, &grants[n])))
        n++;
    CHECK_RC(rc, -ENOSPC);
    CHECK_BETWEEN(n, 48, 64); /* at least what was asked for */
    CHECK_RC(pawl_trylock(p, name_of(n, buf), PAWL_SHARED, &grants[n]), -ENOSPC);
    CHECK_OK(pawl_unlock(p, &grants[5]));
    CHECK_OK(pawl_lock(p, name_of(n, buf), PAWL_SHARED, &grants[5])); /* there is room for one again */
    CHECK_RC(pawl_lock(p, name_of(n + 1, buf), PAWL_SHARED, &grants[n]), -ENOSPC);
    for (unsigned i = 0; i < n; i++)
        CHECK_OK(pawl_unlock(p, &grants[i]));
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    space_where();
    inserted_together(NAMES);
    inserted_together(100); /* and forgotten by one while another finds them */
    space_reset();
    all_different();
    forgotten();
    queried();
    all_held();
    return 0;
}
