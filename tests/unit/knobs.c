/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of designs: what can be set, and what a header may say, which any process could have written. */
#include "designs/core/design.h"
#include "tests/check.h"

#include <errno.h>

static void bounds(const struct design *d, const struct design_knob *k)
{
    unsigned i = (unsigned)(k - d->knobs);
    struct knobs knobs = design_knobs(d);
    CHECK_EQ(knobs.value[i], k->usual);
    CHECK(design_knobs_fine(d, &knobs));
    CHECK_EQ(design_tune(d, &knobs, k->name, k->min), 0);
    CHECK(knobs.value[i] == k->min && design_knobs_fine(d, &knobs));
    CHECK_EQ(design_tune(d, &knobs, k->name, k->max), 0);
    CHECK(knobs.value[i] == k->max && design_knobs_fine(d, &knobs));
    CHECK_EQ(design_tune(d, &knobs, k->name, k->max + UINT64_C(1)), -ERANGE);
    CHECK_EQ(design_tune(d, &knobs, k->name, (UINT64_C(1) << 32) + k->min), -ERANGE);
    CHECK_EQ(knobs.value[i], k->max);
    if (k->min && k->usual != k->min - 1) {
        CHECK_EQ(design_tune(d, &knobs, k->name, k->min - UINT64_C(1)), -ERANGE);
        knobs.value[i] = k->min - 1;
        CHECK(!design_knobs_fine(d, &knobs));
    }
    if (k->max < UINT32_MAX) {
        knobs.value[i] = k->max + 1;
        CHECK(!design_knobs_fine(d, &knobs));
    }
}

int main(void)
{
    unsigned all = 0;
    for (const struct design *d = NULL; (d = design_next(d));) {
        struct knobs knobs = design_knobs(d);
        unsigned n = 0;
        for (const struct design_knob *k = d->knobs; k && k->name; k++, n++, all++)
            bounds(d, k);
        CHECK_EQ(design_tune(d, &knobs, "no-such-knob", 1), -ENOENT);
        for (unsigned i = n; i < KNOBS_MAX; i++) { /* behind the end of the list */
            knobs.value[i] = 1;
            CHECK(!design_knobs_fine(d, &knobs));
            knobs.value[i] = 0;
        }
        CHECK(design_knobs_fine(d, &knobs));
    }
    printf("%u knobs\n", all);
    CHECK(all);
    CHECK(!design_find("no-such-design") && design_find("word"));
    for (unsigned bit = 0; bit <= DESIGN_FEATURES; bit++)
        CHECK(!design_feature_name(bit) == (bit == DESIGN_FEATURES));
    for (unsigned bit = 0; bit <= DESIGN_SUBSTRATES; bit++)
        CHECK(!design_substrate_name(bit) == (bit == DESIGN_SUBSTRATES));
    return 0;
}
