/* SPDX-License-Identifier: Apache-2.0 */
/* Zipf-distributed choice among up to 2^32 items with integers only, so that a simulated run is the same on every machine.
 *
 * Items are grouped into buckets that are at most 1/64 of their rank wide. A bucket is drawn from an alias table (one
 * multiplication, one comparison), an item within it uniformly, and the item is accepted with the probability by which it is
 * rarer than the bucket's first. Nearly always that is certain without computing a power. The result is exact up to the
 * rounding of fixed-point numbers (2^-40), takes 55 KiB whatever the number of items, and no time to set up. */
#ifndef PAWL_LIB_ZIPF_H
#define PAWL_LIB_ZIPF_H

#include "lib/base.h"
#include "lib/rng.h"

#define ZIPF_ITEMS_MAX (UINT64_C(1) << 32)
#define ZIPF_EXPONENT_MAX 10000u /* thousandths; beyond ten nearly everything is the first item */

#define ZIPF_SUB_BITS 6
#define ZIPF_BUCKETS ((32 - ZIPF_SUB_BITS + 2) << ZIPF_SUB_BITS)

struct zipf_bucket {
    uint64_t keep;  /* a draw below stays in this bucket, others go to the alias; of 2^64 */
    uint64_t sure;  /* a draw below is accepted whichever item it is; of 2^64 */
    uint64_t first; /* rank of the first item, from 1 */
    uint32_t width; /* items */
    uint32_t alias;
};

/* Read-only after zipf_init: any number of clients may share one. */
struct zipf {
    uint64_t items;
    uint32_t exponent;
    uint32_t buckets; /* 0 if all items are equally likely */
    struct zipf_bucket bucket[ZIPF_BUCKETS];
};

/* Item k (from 0) is drawn in proportion to (k + 1)^-exponent; the exponent is in thousandths, 0 is uniform.
 * -EINVAL beyond the limits above. Needs 40 KiB of stack. */
int zipf_init(struct zipf *z, uint64_t items, uint32_t exponent_thousandths);

/* 0..items-1; 0 is the most frequent. */
uint64_t zipf_next(const struct zipf *z, struct rng *r);

#endif
