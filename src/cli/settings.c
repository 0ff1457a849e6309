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
    return args_complain(usage, "--%s is NAME=NUMBER, several with commas between them, not '%.*s'", option, (int)len, text);
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
};

static int set_knob(void *ctx, const char *knob, uint64_t value)
{
    const struct tuning *t = ctx;
    bool known = false;
    for (unsigned i = 0; i < t->count; i++) {
        int rc = design_tune(t->designs[i], knob, value);
        if (rc == -ERANGE)
            return args_complain(t->usage, "'%s' takes other values of '%s' than %" PRIu64, t->designs[i]->name, knob, value);
        known = known || !rc;
    }
    return known ? 0 : args_complain(t->usage, "there is no '%s' to be tuned", knob);
}

int settings_tune(const struct args *usage, const char *text, const struct design *const *chosen, unsigned count)
{
    struct tuning t = {.usage = usage, .designs = chosen, .count = count};
    return settings_each(usage, "tune", text, set_knob, &t);
}
