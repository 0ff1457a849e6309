/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes for tables in lock memory. Not for secrets: a user who chooses the names can make them collide, which costs time,
 * never correctness, because the tables compare whole keys. */
#ifndef PAWL_LIB_HASH_H
#define PAWL_LIB_HASH_H

#include "lib/base.h"

/* Of u64 keys. A bijection (the finalizer of MurmurHash3 with Stafford's constants, "mix13"): two keys never share a
 * value, and every bit of the key moves every bit of the result. */
static inline uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Of names. The value is stored in shared segments, so it is part of their layout: the same on every machine, for ever. */
uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);

#endif
