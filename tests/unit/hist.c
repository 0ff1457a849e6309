/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles are within a percent, extremes are exact, and merging loses nothing. */
#include "lib/hist.h"
#include "lib/rng.h"
#include "tests/check.h"

static struct hist h, part[2];

static void check_close(uint64_t got, uint64_t exact)
{
    CHECK(got >= exact);
    CHECK(got - exact <= exact / 100);
}

static void percentiles_of_a_row(void)
{
    enum { N = 1000000 };
    hist_init(&h);
    for (uint64_t v = 1; v <= N; v++)
        hist_add(&h, v);
    CHECK_EQ(h.count, N);
    CHECK_EQ(h.min, 1);
    CHECK_EQ(h.max, N);
    CHECK_EQ(hist_mean(&h), (N + 1) / 2);
    check_close(hist_percentile(&h, HIST_P50), N / 2);
    check_close(hist_percentile(&h, HIST_P90), N / 10 * 9);
    check_close(hist_percentile(&h, HIST_P99), N / 100 * 99);
    check_close(hist_percentile(&h, HIST_P999), N / 1000 * 999);
    CHECK_EQ(hist_percentile(&h, HIST_P100), N);
    CHECK_EQ(hist_percentile(&h, 0), 1);
}

static void edges(void)
{
    hist_init(&h);
    CHECK_EQ(hist_percentile(&h, HIST_P99), 0);
    CHECK_EQ(hist_mean(&h), 0);
    hist_add(&h, UINT64_MAX);
    hist_add(&h, 0);
    CHECK_EQ(hist_percentile(&h, HIST_P50), 0);
    CHECK_EQ(hist_percentile(&h, HIST_P99), UINT64_MAX);

    /* Small values are exact. */
    hist_init(&h);
    for (uint64_t v = 0; v < 256; v++)
        hist_add(&h, v);
    CHECK_EQ(hist_percentile(&h, HIST_P50), 127);

    /* Of ten samples the 99th percentile is the largest. */
    hist_init(&h);
    for (uint64_t v = 1; v <= 10; v++)
        hist_add(&h, v);
    CHECK_EQ(hist_percentile(&h, HIST_P99), 10);
    CHECK_EQ(hist_percentile(&h, HIST_P90), 9);
}

/* Buckets follow each other without gap or overlap, at every power of two. */
static void buckets_are_ordered(void)
{
    unsigned last = 0;
    for (unsigned bit = 2; bit < 64; bit++)
        for (int delta = -1; delta <= 1; delta++) {
            uint64_t v = (UINT64_C(1) << bit) + (uint64_t)(int64_t)delta;
            unsigned index = hist_index(v);
            CHECK(index < HIST_BUCKETS);
            CHECK(index >= last);
            last = index;
        }
    CHECK_EQ(hist_index(UINT64_MAX), HIST_BUCKETS - 1);
}

static void merging_equals_adding(void)
{
    struct rng r;
    rng_seed(&r, 1);
    hist_init(&h);
    hist_init(&part[0]);
    hist_init(&part[1]);
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t v = rng_next(&r) >> rng_below(&r, 64);
        hist_add(&h, v);
        hist_add(&part[i & 1], v);
    }
    hist_merge(&part[0], &part[1]);
    CHECK(!memcmp(&h, &part[0], sizeof h));
}

int main(void)
{
    percentiles_of_a_row();
    edges();
    buckets_are_ordered();
    merging_equals_adding();
    return 0;
}
