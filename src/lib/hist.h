/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of latencies: any 64-bit value, at most 0.8 % too high, 58 KiB, no allocation, mergeable. */
#ifndef PAWL_LIB_HIST_H
#define PAWL_LIB_HIST_H

#include "lib/base.h"

/* Every power of two is cut into 2^7 equal buckets, so a bucket is at most 1/128 of its values wide. */
#define HIST_SUB_BITS 7
#define HIST_SUB (1u << HIST_SUB_BITS)
#define HIST_BUCKETS ((64 - HIST_SUB_BITS + 1) * HIST_SUB)

struct hist {
    uint64_t count;
    uint64_t min, max; /* exact; of an empty histogram UINT64_MAX and 0 */
    u128 sum;
    uint64_t buckets[HIST_BUCKETS];
};

/* Percentiles are asked for in millionths, so that 99.99 % is an integer. */
#define HIST_P20 200000u
#define HIST_P50 500000u
#define HIST_P90 900000u
#define HIST_P99 990000u
#define HIST_P999 999000u
#define HIST_P100 1000000u

/* Values below 2^8 have a bucket of their own; above, the leading bit chooses the row and the next seven the bucket. */
static inline unsigned hist_index(uint64_t value)
{
    if (value < HIST_SUB)
        return (unsigned)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HIST_SUB_BITS;
    return (shift << HIST_SUB_BITS) + (unsigned)(value >> shift);
}

static inline void hist_add(struct hist *h, uint64_t value)
{
    h->buckets[hist_index(value)]++;
    h->count++;
    h->sum += value;
    if (value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
}

void hist_init(struct hist *h);
void hist_merge(struct hist *into, const struct hist *from);

/* The value that `millionths` of all samples do not exceed; 0 of an empty histogram. */
uint64_t hist_percentile(const struct hist *h, uint32_t millionths);
uint64_t hist_mean(const struct hist *h);

#endif
