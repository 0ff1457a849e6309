/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a rack's space: one index per key and one key per index, for ever. */
#include "cluster/directory.h"
#include "tests/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t add(struct directory *d, const char *name)
{
    uint64_t index = UINT64_MAX;
    CHECK_EQ(directory_add(d, name, (uint32_t)strlen(name), &index), 0);
    return index;
}

static void every_index_once(uint64_t locks)
{
    struct directory d;
    bool *seen = calloc(locks, 1);
    char name[32];
    uint64_t index;
    const char *bytes;
    uint32_t len;
    CHECK(seen != NULL);
    directory_init(&d, PAWL_KEYS_NAMED, locks);
    for (uint64_t i = 0; i < locks; i++) {
        snprintf(name, sizeof name, "key-%" PRIu64, i);
        CHECK_EQ(directory_find(&d, name, (uint32_t)strlen(name), &index), -ENOENT);
        index = add(&d, name);
        CHECK(index < locks && !seen[index]);
        seen[index] = true;
        CHECK_EQ(add(&d, name), index);
        CHECK_EQ(directory_key_of(&d, index, &bytes, &len), 0);
        CHECK(len == strlen(name) && !memcmp(bytes, name, len));
    }
    CHECK_EQ(directory_add(&d, "one more", 8, &index), -ENOSPC);
    CHECK_EQ(directory_add(&d, "", 0, &index), -EINVAL);
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
        uint64_t index;
        CHECK_EQ(directory_add(&d, &key, sizeof key, &index), 0);
        count[index * 8 / 1000000]++;
    }
    for (unsigned i = 0; i < 8; i++)
        CHECK(count[i] >= 120 && count[i] <= 130);
    uint64_t index;
    CHECK_EQ(directory_add(&d, "seven77", 7, &index), -EINVAL);
    directory_free(&d);
}

int main(void)
{
    uint64_t sizes[] = {1, 2, 3, 10, 97, 1000, 65536};
    for (unsigned i = 0; i < countof(sizes); i++)
        every_index_once(sizes[i]);
    spread();
    return 0;
}
