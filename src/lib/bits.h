/* SPDX-License-Identifier: Apache-2.0 */
/* Fields inside words, and the arithmetic of masked atomics. */
#ifndef PAWL_LIB_BITS_H
#define PAWL_LIB_BITS_H

#include "lib/base.h"

/* A field of `width` bits at `shift`; widths below 64. */
#define FIELD_MASK(shift, width) (((UINT64_C(1) << (width)) - 1) << (shift))
#define FIELD_MAX(width) ((UINT64_C(1) << (width)) - 1)

static inline uint64_t field_get(uint64_t word, unsigned shift, unsigned width)
{
    return (word >> shift) & FIELD_MAX(width);
}

static inline uint64_t field_set(uint64_t word, unsigned shift, unsigned width, uint64_t value)
{
    debug_assert(value <= FIELD_MAX(width));
    return (word & ~FIELD_MASK(shift, width)) | (value << shift);
}

/* Adds field by field: `top` has a bit at the most significant bit of every field, and no carry crosses it.
 * The sum of everything below the top bits cannot overflow a field; the top bits themselves add without carry. */
static inline uint64_t masked_add64(uint64_t a, uint64_t b, uint64_t top)
{
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

static inline u128 masked_add128(u128 a, u128 b, u128 top)
{
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

#endif
