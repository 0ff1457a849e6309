/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded randomness: the same seed gives the same numbers on every machine. Not for secrets. */
#ifndef PAWL_LIB_RNG_H
#define PAWL_LIB_RNG_H

#include "lib/hash.h"

/* xoshiro256** (Blackman and Vigna, 2018): four words of state, no multiplication on the critical path. */
struct rng {
    uint64_t s[4];
};

/* splitmix64: a counter and a mixer. Neighbouring seeds (campaigns run 0, 1, 2 …) must not give related streams, so the
 * state of every generator is filled from here. */
static inline uint64_t rng_splitmix(uint64_t *state)
{
    return mix64(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static inline void rng_seed(struct rng *r, uint64_t seed)
{
    for (unsigned i = 0; i < countof(r->s); i++)
        r->s[i] = rng_splitmix(&seed); /* never all zero: splitmix64 gives each value once per period */
}

static inline uint64_t rng_rotl(uint64_t x, unsigned k)
{
    return (x << k) | (x >> (64 - k));
}

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t *s = r->s;
    uint64_t result = rng_rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rng_rotl(s[3], 45);
    return result;
}

/* 0..n-1, each exactly as likely as the other (Lemire 2019). Divides only in the rare case that could be biased. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
    assert(n > 0);
    u128 product = (u128)rng_next(r) * n;
    if (unlikely((uint64_t)product < n)) {
        uint64_t biased = -n % n;
        while ((uint64_t)product < biased)
            product = (u128)rng_next(r) * n;
    }
    return (uint64_t)(product >> 64);
}

/* lo..hi, both included. */
static inline uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi)
{
    assert(lo <= hi);
    uint64_t span = hi - lo + 1;
    return span ? lo + rng_below(r, span) : rng_next(r); /* 0: the whole range of 64 bits */
}

/* True in `numerator` of `denominator` cases. */
static inline bool rng_chance(struct rng *r, uint64_t numerator, uint64_t denominator)
{
    return rng_below(r, denominator) < numerator;
}

#endif
