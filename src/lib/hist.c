/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/hist.h"

#include <string.h>

void hist_init(struct hist *h)
{
    memset(h, 0, sizeof *h);
    h->min = UINT64_MAX;
}

void hist_merge(struct hist *into, const struct hist *from)
{
    for (unsigned i = 0; i < HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum += from->sum;
    into->min = min_u64(into->min, from->min);
    into->max = max_u64(into->max, from->max);
}

/* The largest value that falls into the bucket: hist_index turned round. */
static uint64_t bucket_top(unsigned index)
{
    if (index < 2 * HIST_SUB)
        return index;
    unsigned shift = (index >> HIST_SUB_BITS) - 1;
    uint64_t first = (uint64_t)(index - (shift << HIST_SUB_BITS)) << shift;
    return first + ((UINT64_C(1) << shift) - 1);
}

uint64_t hist_percentile(const struct hist *h, uint32_t millionths)
{
    assert(millionths <= HIST_P100);
    if (!h->count)
        return 0;
    /* Rounded up: of 10 samples the 99th percentile is the tenth, not the ninth. */
    uint64_t rank = (uint64_t)(((u128)h->count * millionths + HIST_P100 - 1) / HIST_P100);
    rank = max_u64(rank, 1);

    uint64_t seen = 0;
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= rank)
            return max_u64(min_u64(bucket_top(i), h->max), h->min);
    }
    return h->max;
}

uint64_t hist_mean(const struct hist *h)
{
    return h->count ? (uint64_t)(h->sum / h->count) : 0;
}
