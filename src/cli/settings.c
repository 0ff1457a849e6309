/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LEN 64 /* longer than any that there is */

static int set_one(const struct args *usage, const char *option, const char *text, size_t len, setting_fn set, void *ctx)
{
    char name[NAME_LEN], *end = NULL;
    size_t name_len = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)min_u64(name_len, len), text);
    if (name_len < len && text[name_len + 1] >= '0' && text[name_len + 1] <= '9') {
        errno = 0;
        uint64_t value = strtoull(text + name_len + 1, &end, 10);
        if (end == text + len && !errno)
            return set(ctx, name, value);
    }
    return args_complain(usage, "--%s: '%.*s' is not NAME=NUMBER", option, (int)len, text);
}

int settings_each(const struct args *usage, const char *option, const char *text, setting_fn set, void *ctx)
{
    for (const char *at = text; at;) {
        size_t len = strcspn(at, ",");
        int status = set_one(usage, option, at, len, set, ctx);
        if (status)
            return status;
        at = at[len] ? at + len + 1 : NULL;
    }
    return 0;
}

struct tuning {
    const struct args *usage;
    const struct design *const *designs;
    unsigned count;
    struct knobs *knobs; /* of each design */
};

static int no_such_knob(const struct tuning *t, const char *name)
{
    char names[512] = "";
    for (unsigned i = 0; i < t->count; i++)
        for (const struct design_knob *k = t->designs[i]->knobs; k && k->name; k++) {
            size_t len = strlen(names);
            snprintf(names + len, sizeof names - len, "%s%s", len ? ", " : "", k->name);
        }
    return args_complain(t->usage, "--tune: there is no parameter '%s'; there are %s", name, *names ? names : "none");
}

static int set_knob(void *ctx, const char *name, uint64_t value)
{
    const struct tuning *t = ctx;
    bool known = false;
    for (unsigned i = 0; i < t->count; i++) {
        const struct design_knob *k = design_knob(t->designs[i], name);
        if (k && design_tune(t->designs[i], &t->knobs[i], name, value))
            return args_complain(t->usage, "--tune: %s must be between %" PRIu32 " and %" PRIu32, name, k->min, k->max);
        known = known || k;
    }
    return known ? 0 : no_such_knob(t, name);
}

int settings_tune(const struct args *usage, const char *text, const struct design *const *designs, unsigned count,
                  struct knobs *out)
{
    struct tuning t = {.usage = usage, .designs = designs, .count = count, .knobs = out};
    for (unsigned i = 0; i < count; i++)
        out[i] = design_knobs(designs[i]);
    return settings_each(usage, "tune", text, set_knob, &t);
}
