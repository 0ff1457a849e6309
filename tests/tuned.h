/* SPDX-License-Identifier: Apache-2.0 */
/* Knobs of a design, for tests. */
#ifndef PAWL_TESTS_TUNED_H
#define PAWL_TESTS_TUNED_H

#include "designs/core/design.h"
#include "tests/check.h"

/* The design's usual values, but for one knob. Valid until the next call. */
static inline const struct knobs *tuned(const struct design *d, const char *name, uint64_t value)
{
    static struct knobs knobs;
    knobs = design_knobs(d);
    CHECK_EQ(design_tune(d, &knobs, name, value), 0);
    return &knobs;
}

#endif
