/* SPDX-License-Identifier: Apache-2.0 */
/* Hash values are part of a segment's layout, so they never change; and every bit of a name matters. */
#include "lib/hash.h"
#include "tests/check.h"

static void never_changes(void)
{
    CHECK_EQ(hash_bytes("", 0, 0), UINT64_C(0xc96f21ebf6290549));
    CHECK_EQ(hash_bytes("a", 1, 0), UINT64_C(0x57418385339d49b7));
    CHECK_EQ(hash_bytes("orders/4711", 11, 0), UINT64_C(0xae284262c81721e7));
    CHECK_EQ(hash_bytes("a name that is longer than sixteen bytes", 40, 9), UINT64_C(0x42b6fc9cb22615c0));
    uint8_t name[255];
    uint64_t all = 0; /* of names of every length */
    for (unsigned i = 0; i < sizeof name; i++)
        name[i] = (uint8_t)mix64(i + 1);
    for (size_t len = 0; len <= sizeof name; len++)
        all = mix64(all ^ hash_bytes(name, len, 0));
    CHECK_EQ(all, UINT64_C(0xa82cfadb9ddb0f96));
    CHECK_EQ(mix64(0), 0);
    CHECK_EQ(mix64(1), UINT64_C(0x5692161d100b05e5));
}

/* Flips every bit of names of every length: the hash changes, and on average half of its bits do. */
static void every_bit_counts(void)
{
    uint8_t name[255];
    uint64_t flipped = 0, pairs = 0;
    for (unsigned i = 0; i < sizeof name; i++)
        name[i] = (uint8_t)mix64(i + 1);
    for (size_t len = 1; len <= sizeof name; len++) {
        uint64_t before = hash_bytes(name, len, 0);
        CHECK(before != hash_bytes(name, len - 1, 0));
        CHECK(before != hash_bytes(name, len, 1));
        for (size_t bit = 0; bit < len * 8; bit++) {
            name[bit / 8] ^= (uint8_t)(1u << bit % 8);
            uint64_t after = hash_bytes(name, len, 0);
            name[bit / 8] ^= (uint8_t)(1u << bit % 8);
            CHECK(after != before);
            flipped += (uint64_t)__builtin_popcountll(after ^ before);
            pairs++;
        }
    }
    CHECK(flipped > pairs * 319 / 10 && flipped < pairs * 321 / 10);
}

/* Names as people number them land evenly in a small table, by low bits and by high bits. */
static void spreads_numbered_names(void)
{
    enum { SLOTS = 1024, NAMES = 64 * SLOTS };
    static unsigned low[SLOTS], high[SLOTS], keys[SLOTS];
    for (unsigned i = 0; i < NAMES; i++) {
        char name[32];
        int len = snprintf(name, sizeof name, "row-%u", i);
        uint64_t h = hash_bytes(name, (size_t)len, 0);
        low[h % SLOTS]++;
        high[h >> 54]++;
        keys[mix64(i) % SLOTS]++;
    }
    for (unsigned i = 0; i < SLOTS; i++) { /* 64 each, give or take six standard deviations */
        CHECK_BETWEEN(low[i], 16, 112);
        CHECK_BETWEEN(high[i], 16, 112);
        CHECK_BETWEEN(keys[i], 16, 112);
    }
}

/* Reads stay within the name, wherever it lies: the address sanitizer watches the ends. */
static void reads_nothing_else(void)
{
    for (size_t len = 0; len <= 255; len++) {
        uint8_t *name = malloc(len ? len : 1);
        CHECK(name);
        memset(name, 'x', len);
        hash_bytes(name, len, 0);
        free(name);
    }
}

int main(void)
{
    never_changes();
    every_bit_counts();
    spreads_numbered_names();
    reads_nothing_else();
    return 0;
}
