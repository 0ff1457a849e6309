/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/zipf.h"

#include <errno.h>

/* Logarithms have 40 fractional bits: the probabilities they lead to are off by less than any run can notice. */
#define LOG_BITS 40
#define WEIGHT_SHIFT 4 /* weights have 60 bits, which leaves room to multiply them by a bucket's width and sum them up */

/* 2^(-2^-k) * 2^64 for k = 1..40, rounded down. */
static const uint64_t half_power[LOG_BITS] = {
    UINT64_C(0xb504f333f9de6484), UINT64_C(0xd744fccad69d6af4), UINT64_C(0xeac0c6e7dd24392e), UINT64_C(0xf5257d152486cc2c),
    UINT64_C(0xfa83b2db722a033a), UINT64_C(0xfd3e0c0cf486c174), UINT64_C(0xfe9e115c7b8f884b), UINT64_C(0xff4ecb59511ec8a5),
    UINT64_C(0xffa756521c8daed1), UINT64_C(0xffd3a751c0f7e10b), UINT64_C(0xffe9d2b2f7db2755), UINT64_C(0xfff4e91bff1b8c3d),
    UINT64_C(0xfffa747ea0040664), UINT64_C(0xfffd3a3b7814eb53), UINT64_C(0xfffe9d1cc60ddab1), UINT64_C(0xffff4e8e25879bfa),
    UINT64_C(0xffffa7470363f451), UINT64_C(0xffffd3a37dda0313), UINT64_C(0xffffe9d1bdf703ae), UINT64_C(0xfffff4e8debe025e),
    UINT64_C(0xfffffa746f4fa150), UINT64_C(0xfffffd3a37a3f8b0), UINT64_C(0xfffffe9d1bd1065a), UINT64_C(0xffffff4e8de845ad),
    UINT64_C(0xffffffa746f41376), UINT64_C(0xffffffd3a37a05e3), UINT64_C(0xffffffe9d1bd01fb), UINT64_C(0xfffffff4e8de80c0),
    UINT64_C(0xfffffffa746f4050), UINT64_C(0xfffffffd3a37a024), UINT64_C(0xfffffffe9d1bd011), UINT64_C(0xffffffff4e8de808),
    UINT64_C(0xffffffffa746f404), UINT64_C(0xffffffffd3a37a02), UINT64_C(0xffffffffe9d1bd01), UINT64_C(0xfffffffff4e8de80),
    UINT64_C(0xfffffffffa746f40), UINT64_C(0xfffffffffd3a37a0), UINT64_C(0xfffffffffe9d1bd0), UINT64_C(0xffffffffff4e8de8),
};

/* log2 by squaring: whenever the square of the mantissa reaches two, the next bit of the logarithm is one. */
static uint64_t log2_fixed(uint64_t x)
{
    assert(x > 0);
    unsigned whole = 63 - (unsigned)__builtin_clzll(x);
    uint64_t mantissa = x << (63 - whole); /* in [1, 2), 63 fractional bits */
    uint64_t log = whole;
    for (unsigned i = 0; i < LOG_BITS; i++) {
        u128 square = ((u128)mantissa * mantissa) >> 63;
        bool bit = square >> 64;
        mantissa = (uint64_t)(square >> bit);
        log = (log << 1) | bit;
    }
    return log;
}

/* 2^-x * 2^64, one multiplication per set bit of the fraction; x = 0 gives 2^64 - 1. */
static uint64_t exp2_negative(u128 x)
{
    if (x >> LOG_BITS >= 64)
        return 0;
    uint64_t result = UINT64_MAX;
    for (unsigned i = 0; i < LOG_BITS; i++)
        if (x >> (LOG_BITS - 1 - i) & 1)
            result = (uint64_t)(((u128)result * half_power[i]) >> 64);
    return result >> (unsigned)(x >> LOG_BITS);
}

/* (rank / base)^-exponent * 2^64. */
static uint64_t power(uint64_t rank, uint64_t base, uint32_t exponent)
{
    assert(rank >= base);
    return exp2_negative((u128)(log2_fixed(rank) - log2_fixed(base)) * exponent / 1000);
}

/* Buckets of one item up to rank 2^7, then 2^6 buckets for every power of two. */
static uint32_t cut_into_buckets(struct zipf *z)
{
    uint32_t n = 0;
    for (uint64_t first = 1; first <= z->items; n++) {
        unsigned magnitude = 63 - (unsigned)__builtin_clzll(first);
        uint64_t width = magnitude > ZIPF_SUB_BITS ? UINT64_C(1) << (magnitude - ZIPF_SUB_BITS) : 1;
        width = min_u64(width, z->items - first + 1);
        assert(n < ZIPF_BUCKETS);
        z->bucket[n] = (struct zipf_bucket){
            .first = first,
            .width = (uint32_t)width,
            .sure = power(first + width - 1, first, z->exponent),
        };
        first += width;
    }
    return n;
}

/* part / whole * 2^64. The whole may exceed 64 bits; the bits that are dropped then are beyond what counts. */
static uint64_t fraction(u128 part, u128 whole)
{
    assert(part < whole);
    unsigned drop = 0;
    while (whole >> drop >> 64)
        drop++;
    u128 result = ((part >> drop) << 64) / (whole >> drop);
    return result >> 64 ? UINT64_MAX : (uint64_t)result;
}

/* Walker's alias table by Vose's method: every column gets the average weight, partly its own, partly one other's. */
static void make_alias_table(struct zipf *z)
{
    u128 weight[ZIPF_BUCKETS];
    uint16_t small[ZIPF_BUCKETS], large[ZIPF_BUCKETS];
    uint32_t n = z->buckets, smalls = 0, larges = 0;
    u128 average = 0; /* of weights times n: their sum */

    for (uint32_t i = 0; i < n; i++) {
        u128 own = (u128)(power(z->bucket[i].first, 1, z->exponent) >> WEIGHT_SHIFT) * z->bucket[i].width;
        weight[i] = own * n;
        average += own;
        z->bucket[i].keep = UINT64_MAX;
        z->bucket[i].alias = i;
    }
    for (uint32_t i = 0; i < n; i++)
        if (weight[i] < average)
            small[smalls++] = (uint16_t)i;
        else
            large[larges++] = (uint16_t)i;

    while (smalls && larges) {
        uint16_t from = large[larges - 1], to = small[--smalls];
        z->bucket[to].keep = fraction(weight[to], average);
        z->bucket[to].alias = from;
        weight[from] -= average - weight[to];
        if (weight[from] < average) {
            larges--;
            small[smalls++] = from;
        }
    }
}

int zipf_init(struct zipf *z, uint64_t items, uint32_t exponent_thousandths)
{
    if (!items || items > ZIPF_ITEMS_MAX || exponent_thousandths > ZIPF_EXPONENT_MAX)
        return -EINVAL;
    z->items = items;
    z->exponent = exponent_thousandths;
    z->buckets = 0;
    if (exponent_thousandths) {
        z->buckets = cut_into_buckets(z);
        make_alias_table(z);
    }
    return 0;
}

uint64_t zipf_next(const struct zipf *z, struct rng *r)
{
    if (!z->buckets)
        return rng_below(r, z->items);
    for (;;) { /* a round is accepted with a probability above 63/64 for every usual exponent */
        u128 column = (u128)rng_next(r) * z->buckets;
        const struct zipf_bucket *b = &z->bucket[(uint32_t)(column >> 64)];
        if ((uint64_t)column >= b->keep)
            b = &z->bucket[b->alias];

        /* One draw gives the item and, by what is left of it, the luck to be accepted. */
        u128 place = (u128)rng_next(r) * b->width;
        uint64_t rank = b->first + (uint64_t)(place >> 64);
        uint64_t luck = (uint64_t)place;
        if (likely(luck < b->sure) || rank == b->first || luck < power(rank, b->first, z->exponent))
            return rank - 1;
    }
}
