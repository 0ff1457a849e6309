/* SPDX-License-Identifier: Apache-2.0 */
/* The multiply-mix construction of wyhash (Wang Yi): 16 bytes at a time go through one 64x64 -> 128 bit multiplication
 * whose halves are folded together. */
#include "lib/hash.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hash values are part of formats that are little-endian");

/* Odd, half of the bits set in every byte: wyhash's own secrets. */
#define SECRET0 UINT64_C(0xa0761d6478bd642f)
#define SECRET1 UINT64_C(0xe7037ed1a0b428db)
#define SECRET2 UINT64_C(0x8ebc6af09c88c6e3)

static inline uint64_t fold(uint64_t a, uint64_t b)
{
    u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t a = 0, b = 0;
    seed ^= fold(seed ^ SECRET0, SECRET1);

    if (len > 16) {
        size_t left = len;
        for (; left > 16; left -= 16, p += 16)
            seed = fold(load64(p) ^ SECRET1, load64(p + 8) ^ seed);
        /* The last 16 bytes, overlapping what was read before: no loop over single bytes. */
        a = load64(p + left - 16);
        b = load64(p + left - 8);
    } else if (len >= 8) {
        a = load64(p);
        b = load64(p + len - 8);
    } else if (len >= 4) {
        a = load32(p);
        b = load32(p + len - 4);
    } else if (len > 0) {
        a = ((uint64_t)p[0] << 16) | ((uint64_t)p[len >> 1] << 8) | p[len - 1];
    }
    return fold(SECRET2 ^ len, fold(a ^ SECRET1, b ^ seed));
}
