/* SPDX-License-Identifier: Apache-2.0 */
/* Draws follow the law, for few items and for ten million, and are the same on every machine. */
#include "lib/zipf.h"
#include "lib/hash.h"
#include "tests/check.h"

#include <errno.h>
#include <math.h>

static struct zipf z;

/* Counts per item against the exact probability, five standard deviations wide. */
static void follows_the_law(unsigned items, unsigned thousandths)
{
    enum { DRAWS = 1000000 };
    unsigned *seen = calloc(items, sizeof *seen);
    double sum = 0;
    struct rng r;
    CHECK(seen);
    rng_seed(&r, items + thousandths);
    CHECK_EQ(zipf_init(&z, items, thousandths), 0);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t item = zipf_next(&z, &r);
        CHECK(item < items);
        seen[item]++;
    }
    for (unsigned i = 0; i < items; i++)
        sum += pow(i + 1, -(double)thousandths / 1000);
    /* Item by item where counts are large, then in blocks that grow, down to the rarest. */
    for (unsigned first = 0, width = 1; first<items; first += width, width += first> 64 ? first / 8 : 0) {
        double expected = 0, got = 0;
        for (unsigned i = first; i < first + width && i < items; i++) {
            expected += pow(i + 1, -(double)thousandths / 1000) / sum * DRAWS;
            got += seen[i];
        }
        if (fabs(got - expected) > 5 * sqrt(expected) + 1)
            CHECK_FAIL("items %u, exponent %u: rank %u..%u drawn %.0f times, not %.0f", items, thousandths, first,
                       first + width - 1, got, expected);
    }
    free(seen);
}

/* Ten million items at 0.99: the share of the first hundred is that of the harmonic sums (computed apart: 26.99 %). */
static void ten_million(void)
{
    enum { DRAWS = 1000000 };
    double head = 0, all = 0;
    unsigned got = 0;
    uint64_t hash = 0, highest = 0;
    struct rng r;
    rng_seed(&r, 1);
    CHECK_EQ(zipf_init(&z, 10000000, 990), 0);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t item = zipf_next(&z, &r);
        got += item < 100;
        highest = max_u64(highest, item);
        hash = mix64(hash ^ item);
    }
    for (unsigned i = 1; i <= 10000000; i++) {
        all += pow(i, -0.99);
        head = i == 100 ? all : head;
    }
    CHECK(fabs(got - DRAWS * head / all) < 2500);
    CHECK(highest > 9900000 && highest < 10000000);
    CHECK_EQ(hash, UINT64_C(0x2ab2eb39fd15f911)); /* the same on every machine */
}

static void edges(void)
{
    struct rng r;
    rng_seed(&r, 3);
    CHECK_EQ(zipf_init(&z, 0, 990), -EINVAL);
    CHECK_EQ(zipf_init(&z, ZIPF_ITEMS_MAX + 1, 990), -EINVAL);
    CHECK_EQ(zipf_init(&z, 10, ZIPF_EXPONENT_MAX + 1), -EINVAL);
    CHECK_EQ(zipf_init(&z, 1, 990), 0);
    CHECK_EQ(zipf_next(&z, &r), 0);
    static const uint32_t exponents[] = {0, 1, 500, 1000, 2000, ZIPF_EXPONENT_MAX};
    for (unsigned i = 0; i < countof(exponents); i++) {
        CHECK_EQ(zipf_init(&z, ZIPF_ITEMS_MAX, exponents[i]), 0);
        for (unsigned draw = 0; draw < 10000; draw++)
            CHECK(zipf_next(&z, &r) < ZIPF_ITEMS_MAX);
    }
}

int main(void)
{
    follows_the_law(10, 0);
    follows_the_law(10, 990);
    follows_the_law(1000, 500);
    follows_the_law(1000, 990);
    follows_the_law(1000, 2000);
    follows_the_law(100000, 990);
    follows_the_law(100000, 1200);
    ten_million();
    edges();
    return 0;
}
