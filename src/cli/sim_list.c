/* SPDX-License-Identifier: Apache-2.0 */
/* pawl sim --list and --models: the designs with what they claim, the models with what they rest on. */
#include "cli/sim.h"

#include <inttypes.h>

#define BITS_LEN 256 /* all names of a kind */

static const char *kind_name(enum design_kind kind)
{
    static const char *const names[] = {
        [DESIGN_MAIN] = "main", [DESIGN_BASELINE] = "baseline", [DESIGN_REFERENCE] = "reference", [DESIGN_BUSTED] = "busted"};
    return names[kind];
}

/* ---- designs ---- */

static void print_bits(const char *title, uint32_t bits, bit_name_fn name)
{
    char names[BITS_LEN] = "";
    printf("  %-10s %s\n", title, bits ? bits_text(bits, name, ", ", names, sizeof names) : "none");
}

static void print_design(const struct design *d)
{
    printf("%s (%s): %s\n", d->name, kind_name(d->kind), d->summary);
    print_bits("on", d->substrates, design_substrate_name);
    print_bits("offers", d->features, design_feature_name);
    if (!d->packet)
        print_bits("needs", d->needs, fab_cap_name);
    if (d->tolerates == FAULTS_ALL)
        printf("  %-10s all faults\n", "tolerates");
    else
        print_bits("tolerates", d->tolerates, fault_name);
}

static void json_design(struct json *j, const struct design *d)
{
    json_object(j, NULL);
    json_string(j, "design", d->name);
    json_string(j, "kind", kind_name(d->kind));
    json_string(j, "summary", d->summary);
    json_bits(j, "substrates", d->substrates, design_substrate_name);
    json_bits(j, "features", d->features, design_feature_name);
    json_bits(j, "needs", d->needs, fab_cap_name);
    json_bits(j, "tolerates", d->tolerates, fault_name);
    json_end(j);
}

int sim_list(bool json)
{
    struct json j;
    if (json) {
        json_init(&j, stdout);
        json_array(&j, NULL);
    }
    for (const struct design *d = NULL; (d = design_next(d));)
        if (json)
            json_design(&j, d);
        else
            print_design(d);
    return json && json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}

/* ---- models ---- */

const struct model *sim_model(const struct args *args, const char *name)
{
    char names[512] = "";
    const struct model *m = model_find(name);
    for (unsigned i = 0; model_at(i) && !m; i++)
        text_add(names, sizeof names, "%s%s", i ? ", " : "", model_at(i)->name);
    if (!m)
        args_complain(args, "there is no model '%s'; there are %s", name, names);
    return m;
}

static void print_value(void *ctx, const struct model_field_info *info, const struct model_value *value)
{
    (void)ctx;
    printf("  %-20s %12" PRIu64 " %-12s (%s) %s\n", info->name, value->value, info->unit, model_kind_name(value->kind),
           value->source);
}

static void json_value(void *ctx, const struct model_field_info *info, const struct model_value *value)
{
    struct json *j = ctx;
    json_object(j, NULL);
    json_string(j, "name", info->name);
    json_u64(j, "value", value->value);
    json_string(j, "unit", info->unit);
    json_string(j, "what", info->what);
    json_string(j, "source", value->source);
    json_string(j, "kind", model_kind_name(value->kind));
    json_end(j);
}

static void json_model(struct json *j, const struct model *m)
{
    json_object(j, NULL);
    json_string(j, "model", m->name);
    json_string(j, "about", m->about);
    json_array(j, "values");
    model_each(m, json_value, j);
    json_end(j);
    json_end(j);
}

int sim_models(bool json)
{
    struct json j;
    if (!json) {
        for (unsigned i = 0; model_at(i); i++) {
            printf("%s%s: %s\n", i ? "\n" : "", model_at(i)->name, model_at(i)->about);
            model_each(model_at(i), print_value, NULL);
        }
        return 0;
    }
    json_init(&j, stdout);
    json_array(&j, NULL);
    for (unsigned i = 0; model_at(i); i++)
        json_model(&j, model_at(i));
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}
