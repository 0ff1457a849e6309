/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes for tables in lock memory. Not for secrets: a user who chooses the names can make them collide, which costs time,
 * never correctness, because the tables compare whole keys. */
#ifndef PAWL_LIB_HASH_H
#define PAWL_LIB_HASH_H

#include "lib/base.h"

#include <string.h>

/* Of u64 keys. A bijection (the finalizer of MurmurHash3 with Stafford's constants, "mix13"): two keys never share a
 * value, and every bit of the key moves every bit of the result. */
static inline uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The multiply-mix construction of wyhash (Wang Yi): 16 bytes at a time go through one 64x64 -> 128 bit multiplication
 * whose halves are folded together. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hash values are part of formats that are little-endian");

/* Odd, half of the bits set in every byte: wyhash's own secrets. */
#define HASH_SECRET0 UINT64_C(0xa0761d6478bd642f)
#define HASH_SECRET1 UINT64_C(0xe7037ed1a0b428db)
#define HASH_SECRET2 UINT64_C(0x8ebc6af09c88c6e3)

static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
    u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t hash_load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Of names. The value is stored in shared segments, so it is part of their layout: the same on every machine, for ever. Inline for
 * the path of an uncontended lock; others call hash_bytes. */
static inline uint64_t hash_bytes_inline(const void *data, size_t len, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t a = 0, b = 0;
    seed ^= hash_fold(seed ^ HASH_SECRET0, HASH_SECRET1);

    if (len > 16) {
        size_t left = len;
        for (; left > 16; left -= 16, p += 16)
            seed = hash_fold(hash_load64(p) ^ HASH_SECRET1, hash_load64(p + 8) ^ seed);
        /* The last 16 bytes, overlapping what was read before: no loop over single bytes. */
        a = hash_load64(p + left - 16);
        b = hash_load64(p + left - 8);
    } else if (len >= 8) {
        a = hash_load64(p);
        b = hash_load64(p + len - 8);
    } else if (len >= 4) {
        a = hash_load32(p);
        b = hash_load32(p + len - 4);
    } else if (len > 0) {
        a = ((uint64_t)p[0] << 16) | ((uint64_t)p[len >> 1] << 8) | p[len - 1];
    }
    return hash_fold(HASH_SECRET2 ^ len, hash_fold(a ^ HASH_SECRET1, b ^ seed));
}

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);

#endif
