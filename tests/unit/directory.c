/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a rack's space: one index per key and one key per index; keys that go and come back; a space that grows. */
#include "cluster/directory.h"
#include "lib/hash.h"
#include "lib/rng.h"
#include "tests/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t add(struct directory *d, const char *name, uint32_t generation)
{
    uint64_t cell = UINT64_MAX;
    CHECK_EQ(directory_add(d, name, (uint32_t)strlen(name), generation, &cell), 0);
    return directory_index(d, cell);
}

static int find(const struct directory *d, const char *name, uint64_t *index)
{
    uint64_t cell = UINT64_MAX;
    int rc = directory_find(d, name, (uint32_t)strlen(name), &cell);
    *index = rc ? UINT64_MAX : directory_index(d, cell);
    return rc;
}

static void every_index_once(uint64_t locks)
{
    struct directory d;
    bool *seen = calloc(locks, 1);
    char name[300];
    uint64_t index, again;
    const char *bytes;
    uint32_t len;
    CHECK(seen != NULL);
    directory_init(&d, PAWL_KEYS_NAMED, locks);
    for (uint64_t i = 0; i < locks; i++) {
        snprintf(name, sizeof name, "key-%" PRIu64, i);
        CHECK_EQ(find(&d, name, &index), -ENOENT);
        index = add(&d, name, 7);
        CHECK(index < locks && !seen[index]);
        seen[index] = true;
        CHECK_EQ(find(&d, name, &again), 0);
        CHECK_EQ(again, index);
        CHECK_EQ(directory_key_of(&d, index, &bytes, &len), 0);
        CHECK(len == strlen(name) && !memcmp(bytes, name, len));
    }
    CHECK_EQ(directory_add(&d, "one more", 8, 7, &index), -ENOSPC);
    CHECK_EQ(directory_find(&d, "", 0, &index), -EINVAL);
    CHECK_EQ(directory_find(&d, name, 256, &index), -EINVAL);
    CHECK_EQ(directory_key_of(&d, locks, &bytes, &len), -ENOENT);
    directory_free(&d);
    free(seen);
}

/* Eight servers with a range each have about as many of the first thousand keys. */
static void spread(void)
{
    struct directory d;
    unsigned count[8] = {0};
    directory_init(&d, PAWL_KEYS_SPARSE, 1000000);
    for (uint64_t key = 0; key < 1000; key++) {
        uint64_t cell;
        CHECK_EQ(directory_add(&d, &key, sizeof key, 1, &cell), 0);
        count[directory_index(&d, cell) * 8 / 1000000]++;
    }
    for (unsigned i = 0; i < 8; i++)
        CHECK(count[i] >= 120 && count[i] <= 130);
    uint64_t cell;
    CHECK_EQ(directory_find(&d, "seven77", 7, &cell), -EINVAL);
    directory_free(&d);
}

/* Questions about keys that there cannot be, or that are gone; and a space that has grown as often as it may. */
static void bounds(void)
{
    struct directory d;
    const char *bytes;
    uint32_t len;
    uint64_t cell;
    directory_init(&d, PAWL_KEYS_DENSE, 10);
    CHECK_EQ(directory_find(&d, "eight888", 8, &cell), -EINVAL); /* dense keys have no directory */
    directory_free(&d);
    directory_init(&d, PAWL_KEYS_NAMED, 10);
    uint64_t index = add(&d, "a", 7);
    directory_wrote(&d, 1);
    CHECK_EQ(directory_retire(&d, directory_cell(&d, index)), 0);
    directory_wrote(&d, 1);
    directory_wake(&d);
    CHECK_EQ(directory_key_of(&d, index, &bytes, &len), -ENOENT);
    CHECK_EQ(directory_gone(&d, directory_index(&d, 9), 7), 0); /* a record of a key that was never there */
    directory_loaded(&d);
    for (uint64_t i = 1; i < DIRECTORY_PARTS_MAX; i++)
        CHECK_EQ(directory_grow(&d, 10 + i), 0);
    CHECK_EQ(directory_grow(&d, 1000), -ERANGE);
    directory_free(&d);
}

#define NAMES 300u
#define LOCKS 40u

/* The expected content of the directory, found the slow way. */
static struct {
    bool there;
    uint64_t index;
    uint32_t generation;
} model[NAMES];

static void check_all(const struct directory *d)
{
    unsigned there = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        char name[64];
        uint64_t index, cell;
        snprintf(name, sizeof name, "n%u%.*s", i, (int)(i % 40), "........................................");
        int rc = find(d, name, &index);
        CHECK_EQ(rc, model[i].there ? 0 : -ENOENT);
        there += model[i].there;
        if (rc)
            continue;
        cell = directory_cell(d, index);
        CHECK(index == model[i].index && d->key[cell].generation == model[i].generation);
    }
    CHECK_EQ(d->used, there);
}

/* Keys come and go at random, ten times as many as there are locks. The log, replayed at any time, gives the same directory, and so
 * does a snapshot; memory is bounded by the keys that are there. */
static void churn(uint64_t seed)
{
    struct directory d, copy;
    struct rng r;
    uint32_t generation = 5;
    rng_seed(&r, seed);
    directory_init(&d, PAWL_KEYS_NAMED, LOCKS);
    directory_init(&copy, PAWL_KEYS_NAMED, LOCKS);
    memset(model, 0, sizeof model);
    for (unsigned step = 0; step < 20000; step++) {
        unsigned i = (unsigned)rng_below(&r, NAMES);
        char name[64];
        uint64_t cell;
        snprintf(name, sizeof name, "n%u%.*s", i, (int)(i % 40), "........................................");
        int rc = model[i].there ? 0 : directory_add(&d, name, (uint32_t)strlen(name), generation, &cell);
        if (model[i].there) {
            cell = directory_cell(&d, model[i].index);
            CHECK_EQ(directory_retire(&d, cell), 0);
            CHECK_EQ(directory_gone(&copy, model[i].index, model[i].generation), 0);
            CHECK_EQ(directory_gone(&copy, model[i].index, model[i].generation), 0); /* once more: no change */
            model[i].there = false;
            directory_wrote(&d, d.changed.count);
            generation++;
            directory_wake(&d);
        } else if (!rc) {
            model[i].there = true;
            model[i].index = directory_index(&d, cell);
            model[i].generation = generation;
            directory_wrote(&d, d.changed.count);
            CHECK_EQ(directory_put(&copy, model[i].index, generation, name, (uint32_t)strlen(name)), 0);
            CHECK_EQ(directory_put(&copy, model[i].index, generation, name, (uint32_t)strlen(name)), 0);
        } else {
            CHECK(rc == -ENOSPC && d.used == LOCKS);
        }
        if (step % 500 == 0) {
            check_all(&d);
            check_all(&copy);
        }
    }
    CHECK(d.count <= LOCKS && d.bytes_room < 64 * 1024 && d.bucket_count <= 1024);
    directory_loaded(&copy);
    uint64_t cell, free_cells = 0;
    while (!directory_add(&copy, &free_cells, sizeof free_cells, generation, &cell))
        free_cells++;
    CHECK_EQ(copy.used, LOCKS);
    CHECK_EQ(free_cells, LOCKS - d.used);
    directory_free(&copy);
    directory_free(&d);
}

/* Keys keep their indexes; new ones get the others; every index is given once. */
static void grows(void)
{
    struct directory d;
    bool seen[1000] = {0};
    const uint64_t sizes[] = {3, 4, 50, 51, 1000};
    char name[32];
    uint64_t index, n = 0;
    directory_init(&d, PAWL_KEYS_NAMED, sizes[0]);
    for (unsigned s = 0; s < countof(sizes); s++) {
        CHECK_EQ(s ? directory_grow(&d, sizes[s]) : 0, 0);
        CHECK_EQ(directory_grow(&d, sizes[s]), -ERANGE);
        for (; n < sizes[s]; n++) {
            snprintf(name, sizeof name, "key-%" PRIu64, n);
            index = add(&d, name, 1);
            CHECK(index < sizes[s] && !seen[index]);
            seen[index] = true;
        }
        for (uint64_t i = 0; i < n; i++) {
            const char *bytes;
            uint32_t len;
            snprintf(name, sizeof name, "key-%" PRIu64, i);
            CHECK_EQ(find(&d, name, &index), 0);
            CHECK_EQ(directory_key_of(&d, index, &bytes, &len), 0);
            CHECK(len == strlen(name) && !memcmp(bytes, name, len));
        }
    }
    directory_free(&d);
}

int main(void)
{
    uint64_t sizes[] = {1, 2, 3, 10, 97, 1000, 65536};
    for (unsigned i = 0; i < countof(sizes); i++)
        every_index_once(sizes[i]);
    spread();
    bounds();
    for (uint64_t seed = 0; seed < 10; seed++)
        churn(seed);
    grows();
    return 0;
}
