/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/settings.h"
#include "lib/text.h"

#include <inttypes.h>
#include <string.h>

int settings_each(const struct args *usage, const char *option, const char *text, setting_fn set, void *ctx)
{
    for (char name[TEXT_WORD_LEN]; text_next(&text, name);) {
        uint64_t value;
        char *equals = strchr(name, '=');
        if (!equals || args_u64(equals + 1, &value))
            return args_complain(usage, "--%s: '%s' is not NAME=NUMBER", option, name);
        *equals = 0;
        int status = set(ctx, name, value);
        if (status)
            return status;
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
        for (const struct design_knob *k = t->designs[i]->knobs; k && k->name; k++)
            text_add(names, sizeof names, "%s%s", *names ? ", " : "", k->name);
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
