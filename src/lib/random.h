/* Seeded pseudo-random numbers (splitmix64): one word of state, and any seed is a good one. */
#ifndef PAWL_LIB_RANDOM_H
#define PAWL_LIB_RANDOM_H

#include "lib/base.h"

/* The finaliser alone is a good hash of one word. */
static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t random_next(uint64_t *state)
{
    return random_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/* Uniform in [0, n) but for a bias below n / 2^64; by multiplication, which is cheaper than a remainder. */
static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
    return (uint64_t)(((u128)random_next(state) * n) >> 64);
}

static inline uint64_t random_between(uint64_t *state, uint64_t low, uint64_t high)
{
    assert(low <= high);
    return low + random_below(state, high - low + 1);
}

#endif
