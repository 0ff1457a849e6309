/* SPDX-License-Identifier: Apache-2.0 */
#include "world/model.h"

#include "tests/check.h"
#include <errno.h>
#include <string.h>

static void count(void *ctx, const struct model_field_info *info, const struct model_value *value)
{
    CHECK(info->name && info->unit && info->what);
    CHECK(value->source && *value->source);
    ++*(unsigned *)ctx;
}

int main(void)
{
    static const char *const names[] = {"default",          "shiftlock-testbed", "alock-testbed", "citron-testbed",
                                        "fisslock-testbed", "netlock-testbed",   "quick"};
    for (unsigned i = 0; i < countof(names); i++) {
        const struct model *m = model_find(names[i]);
        CHECK(m && m == model_at(i));
        unsigned fields = 0;
        model_each(m, count, &fields);
        CHECK_EQ(fields, MODEL_FIELDS);
        /* The next atomic on an address starts after the last one's write. */
        CHECK(model_get(m, MODEL_rmw_window_ns) < model_get(m, MODEL_atomic_same_ns));
        /* A connection is given up within a lease, or a dead server would look like a slow one for ever. */
        CHECK(model_get(m, MODEL_retransmit_ns) * model_get(m, MODEL_retries) < model_get(m, MODEL_lease_ns));
    }
    CHECK(!model_at(countof(names)));
    CHECK(!model_find("no-such-testbed"));
    struct model m = *model_find("default");
    CHECK_EQ(model_set(&m, "lease_ns", 5), 0);
    CHECK_EQ(model_get(&m, MODEL_lease_ns), 5);
    CHECK_EQ(model_set(&m, "no_such_field", 5), -ENOENT);
    return 0;
}
