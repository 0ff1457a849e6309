/* SPDX-License-Identifier: Apache-2.0 */
/* The fast path finds what the careful way finds, and stays open when sessions come and go. */
#include "client/memory.h"
#include "tests/shm/space.h"

static uint64_t index_of(pawl *p, pawl_key key)
{
    pawl_grant g;
    CHECK_OK(pawl_lock(p, key, PAWL_EXCLUSIVE, &g));
    uint64_t index = g.index;
    CHECK_OK(pawl_unlock(p, &g));
    return index;
}

/* Where the fast path sees the name, if it does. */
static uint64_t seen_at(const pawl *p, const char *name, size_t len)
{
    struct cell place = fast_find_name(p->fast, pawl_bytes(name, len));
    return place.index;
}

/* Every length, at the very end of memory that may be read; and its neighbours that differ in one byte are other names. */
static void test_names(void)
{
    const pawl_options o = {.keys = PAWL_KEYS_NAMED, .capacity = 4096};
    pawl *p = space_open(&o);
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && !mprotect(page + 4096, 4096, PROT_NONE));
    for (size_t len = 1; len <= PAWL_NAME_MAX; len++) {
        char *name = page + 4096 - len;
        memset(name, 'n', len);
        CHECK_EQ(seen_at(p, name, len), UINT64_MAX);
        uint64_t index = index_of(p, pawl_bytes(name, len));
        CHECK_EQ(seen_at(p, name, len), index);
        CHECK_EQ(index_of(p, pawl_bytes(name, len)), index);
        const uint64_t *there = (const uint64_t *)(p->fast->names + index * LAYOUT_NAME_BYTES);
        for (size_t i = 0; i < len; i++) {
            name[i] = 'm';
            CHECK(!fast_name_is(there, name, len));
            name[i] = 'n';
        }
        CHECK(len == 1 || !fast_name_is(there, name + 1, len - 1));
        CHECK(fast_name_is(there, name, len));
    }
    munmap(page, 8192);
    CHECK_OK(pawl_close(p));
    space_remove();
}

/* Names with the same hash: their first eight bytes cancel the secret by which hash.h multiplies the others. */
static void test_same_hash(void)
{
    enum { NAMES = 4, BYTES = 16 };
    const pawl_options o = {.keys = PAWL_KEYS_NAMED, .capacity = 100};
    pawl *p = space_open(&o), *other = space_open(&o);
    uint64_t words[NAMES][BYTES / 8];
    uint64_t index[NAMES];
    pawl_key names[NAMES];
    pawl_grant g[NAMES], h;
    for (unsigned i = 0; i < NAMES; i++) {
        words[i][0] = HASH_SECRET1;
        words[i][1] = mix64(i);
        names[i] = pawl_bytes(words[i], BYTES);
        CHECK_EQ(hash_bytes(words[i], BYTES, 0), hash_bytes(words[0], BYTES, 0));
        index[i] = index_of(p, names[i]);
        for (unsigned j = 0; j < i; j++)
            CHECK(index[j] != index[i]);
    }
    for (unsigned i = 0; i < 2 * NAMES; i++) /* each is its own lock, whichever is held */
        CHECK_EQ(index_of(p, names[i % NAMES]), index[i % NAMES]);
    for (unsigned i = 0; i < NAMES; i++) {
        unsigned at = NAMES - 1 - i;
        enum pawl_mode mode = i % 2 ? PAWL_SHARED : PAWL_EXCLUSIVE;
        CHECK_OK(pawl_trylock(p, names[at], mode, &g[at]));
        CHECK_EQ(g[at].index, index[at]);
        CHECK_RC(pawl_trylock(other, names[at], PAWL_EXCLUSIVE, &h), -PAWL_EHELD);
        if (at > 0) {
            CHECK_OK(pawl_trylock(other, names[at - 1], PAWL_EXCLUSIVE, &h));
            CHECK_OK(pawl_unlock(other, &h));
        }
    }
    for (unsigned i = 0; i < NAMES; i++)
        CHECK_OK(pawl_unlock(p, &g[i]));
    CHECK_OK(pawl_close(other));
    CHECK_OK(pawl_close(p));
    space_remove();
}

/* In a table as full as it may be many keys lie beside their home. */
static void test_numbers(void)
{
    enum { KEYS = 48 };
    const pawl_options o = {.keys = PAWL_KEYS_SPARSE, .capacity = KEYS};
    pawl *p = space_open(&o);
    unsigned beside = 0;
    for (uint64_t i = 0; i < KEYS; i++)
        index_of(p, pawl_id(mix64(i)));
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t index, meta, place = index_of(p, pawl_id(mix64(i)));
        bool found = fast_find(p->fast, mix64(i), &index, &meta);
        CHECK(!found || index == place);
        beside += found && place != table_home(mix64(i), p->fast->home_shift);
    }
    CHECK(beside > 0);
    CHECK_OK(pawl_close(p));
    space_remove();
}

/* The record of a session that has ended, or is used no more, gives way to one of the session that is used now. */
static void test_sessions(void)
{
    const pawl_options o = {.keys = PAWL_KEYS_SPARSE, .capacity = 100, .holds = 4};
    pawl *first = space_open(&o);
    for (int i = 0; i < 100; i++) /* until now this thread keeps a record of a session of the test before */
        index_of(first, pawl_id(1));
    CHECK_EQ(hold_kept.session, memory_of(first)->session.id);
    pawl *second = space_open(&o);
    for (int i = 0; i < 100; i++)
        index_of(second, pawl_id(2));
    CHECK_EQ(hold_kept.session, memory_of(second)->session.id);
    pawl_grant g[4];
    for (unsigned i = 0; i < 4; i++) /* nothing of the first one's four records was lost on the way */
        CHECK_OK(pawl_trylock(first, pawl_id(10 + i), PAWL_EXCLUSIVE, &g[i]));
    for (unsigned i = 0; i < 4; i++)
        CHECK_OK(pawl_unlock(first, &g[i]));
    CHECK_OK(pawl_close(second));
    for (int i = 0; i < 100; i++)
        index_of(first, pawl_id(1));
    CHECK_EQ(hold_kept.session, memory_of(first)->session.id);
    CHECK_OK(pawl_close(first));
}

static void set_lease(pawl *p, uint64_t lease)
{
    __atomic_store_n((uint64_t *)(uintptr_t)memory_of(p)->session.lease, lease, __ATOMIC_RELEASE);
}

/* A withdrawn lease and a session that was told that it is lost leave the fast path, which reads no clock. */
static void test_withdrawn(void)
{
    const pawl_options o = {.keys = PAWL_KEYS_SPARSE, .capacity = 100, .lease_ns = 3600 * NS_PER_S}; /* not renewed meanwhile */
    pawl *p = space_open(&o);
    pawl_grant g;
    index_of(p, pawl_id(1));
    uint64_t lease = __atomic_load_n(memory_of(p)->session.lease, __ATOMIC_ACQUIRE);
    CHECK(fast_lease(p->fast) == lease && !lease_withdrawn(lease));

    set_lease(p, lease | UINT64_C(1) << LEASE_WITHDRAWN_SHIFT);
    CHECK_EQ(fast_lease(p->fast), 0);
    CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g)); /* the careful path reads the clock: the lease has not run out */
    CHECK(g.expiry_ns > pawl_now());
    CHECK_OK(pawl_unlock(p, &g));

    /* It has run out as well: the careful path renews it. */
    set_lease(p, lease_word(SLOT_LIVE, lease_epoch(lease), 1) | UINT64_C(1) << LEASE_WITHDRAWN_SHIFT);
    CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
    CHECK(g.expiry_ns > pawl_now() && fast_lease(p->fast));
    CHECK_OK(pawl_unlock(p, &g));

    /* A call was told that the session is lost, and no other session has noticed that yet: it stays lost (I8). */
    __atomic_store_n(&memory_of(p)->session.ended, true, __ATOMIC_RELEASE);
    CHECK_EQ(fast_lease(p->fast), 0);
    CHECK_RC(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g), -PAWL_ELOST);
    CHECK_OK(pawl_close(p));
    space_remove();
}

int main(void)
{
    test_withdrawn();
    test_names();
    test_same_hash();
    test_numbers();
    test_sessions();
    return 0;
}
