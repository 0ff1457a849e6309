/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of `pawl doctor`. */
#ifndef PAWL_CLI_DOCTOR_H
#define PAWL_CLI_DOCTOR_H

#include "cli/common.h"
#include "designs/core/design.h"

enum check_state {
    CHECK_OK,
    CHECK_MISSING, /* and pawl needs it */
    CHECK_COULD,   /* pawl does without, but something is slower or not to be had */
};

struct check {
    const char *name;
    enum check_state state;
    char found[256];    /* all capabilities of a fabric fit */
    const char *advice; /* what to do about it; null if nothing */
};

/* The checks, in the order in which they are shown. Each fills `found`, `state` and `advice`. */
struct check_row {
    const char *name;
    void (*run)(struct check *c);
};
extern const struct check_row checks[];
extern const size_t check_count;

/* ---- doctor_fabrics.c ---- */

/* Providers of libfabric; as members of the JSON object if there is one. */
struct json;
void fabrics_print(struct json *j);

/* ---- matrix.c ---- */

/* The test that shows that a design offers a feature on a substrate, both as bit numbers; null if none does. */
const char *matrix_test(const struct design *d, unsigned feature, unsigned substrate);

int matrix_print(bool json, bool markdown);

#endif
