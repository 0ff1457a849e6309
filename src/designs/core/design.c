/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/design.h"

#include <errno.h>
#include <string.h>

static const struct design *design_at(unsigned i)
{
    unsigned seen = 0;
    for (unsigned t = 0; t < design_tables_count; t++)
        if (design_tables[t] && seen++ == i)
            return design_tables[t];
    return design_variants ? design_variants(i - seen) : NULL;
}

const struct design *design_next(const struct design *before)
{
    unsigned i = 0;
    while (before && design_at(i) != before)
        i++;
    return design_at(before ? i + 1 : 0);
}

const struct design *design_find(const char *name)
{
    const struct design *d = NULL;
    while ((d = design_next(d)) && strcmp(d->name, name))
        ;
    return d;
}

const struct design_knob *design_knob(const struct design *d, const char *name)
{
    for (const struct design_knob *k = d->knobs; k && k->name; k++)
        if (!strcmp(k->name, name))
            return k;
    return NULL;
}

struct knobs design_knobs(const struct design *d)
{
    struct knobs knobs = {0};
    for (const struct design_knob *k = d->knobs; k && k->name; k++) {
        assert(k - d->knobs < KNOBS_MAX);
        knobs.value[k - d->knobs] = k->usual;
    }
    return knobs;
}

int design_tune(const struct design *d, struct knobs *knobs, const char *name, uint64_t value)
{
    const struct design_knob *k = design_knob(d, name);
    if (!k)
        return -ENOENT;
    if (value < k->min || value > k->max)
        return -ERANGE;
    knobs->value[k - d->knobs] = (uint32_t)value;
    return 0;
}

bool design_knobs_fine(const struct design *d, const struct knobs *knobs)
{
    const struct design_knob *k = d->knobs;
    for (unsigned i = 0; i < KNOBS_MAX; i++) {
        bool any = k && k->name;
        uint32_t value = knobs->value[i];
        if (any ? value != k->usual && (value < k->min || value > k->max) : value != 0)
            return false;
        k += any;
    }
    return true;
}

const char *design_feature_name(unsigned bit)
{
    static const char *const names[DESIGN_FEATURES] = {"exclusive", "shared", "tokens",    "recovery", "timeout",
                                                       "convert",   "ranges", "async",     "deadlock", "calls",
                                                       "split",     "bast",   "semaphore", "values"};
    return bit < DESIGN_FEATURES ? names[bit] : NULL;
}

const char *design_substrate_name(unsigned bit)
{
    static const char *const names[DESIGN_SUBSTRATES] = {"shm", "sim", "udp", "node", "node-xdp", "ofi", "verbs"};
    return bit < DESIGN_SUBSTRATES ? names[bit] : NULL;
}
