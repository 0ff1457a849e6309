/* SPDX-License-Identifier: Apache-2.0 */
/* pawl doctor: libfabric's providers and devices on this machine, and what each design could use there. */
#include "cli/doctor.h"
#include "fabric/ofi.h"

#include <string.h>

#define PROVIDERS_MAX 64 /* with their devices; more are not shown */

struct list {
    struct ofi_provider at[PROVIDERS_MAX];
    unsigned count;
};

/* A provider lists a device once for each of its addresses. */
static int add(void *ctx, const struct ofi_provider *p)
{
    struct list *l = ctx;
    for (unsigned i = 0; i < l->count; i++)
        if (!strcmp(l->at[i].name, p->name) && !strcmp(l->at[i].device, p->device))
            return 0;
    if (l->count < PROVIDERS_MAX)
        l->at[l->count++] = *p;
    return 0;
}

static bool runs_on(const struct design *d, const struct ofi_provider *p)
{
    return d->kind == DESIGN_MAIN && d->substrates & DESIGN_ON_OFI && !p->missing && !(d->needs & ~p->caps);
}

static void print_provider(const struct ofi_provider *p)
{
    char caps[256] = "";
    printf("  %-16s %-12s ", p->name, p->device);
    if (p->missing) {
        printf("lacks %s\n", p->missing);
        return;
    }
    printf("%s; a batch is %s; designs", bits_text(p->caps, fab_cap_name, ", ", caps, sizeof caps),
           p->ordered ? "one round trip" : "a round trip for each verb");
    for (const struct design *d = NULL; (d = design_next(d));)
        if (runs_on(d, p))
            printf(" %s", d->name);
    putchar('\n');
}

static void json_provider(struct json *j, const struct ofi_provider *p)
{
    json_object(j, NULL);
    json_string(j, "provider", p->name);
    json_string(j, "device", p->device);
    json_string(j, "lacks", p->missing);
    json_bool(j, "ordered", p->ordered);
    json_array(j, "caps");
    for (unsigned i = 0; i < FAB_CAPS; i++)
        if (p->caps >> i & 1)
            json_string(j, NULL, fab_cap_name(i));
    json_end(j);
    json_array(j, "designs");
    for (const struct design *d = NULL; (d = design_next(d));)
        if (runs_on(d, p))
            json_string(j, NULL, d->name);
    json_end(j);
    json_end(j);
}

void fabrics_print(struct json *j)
{
    static struct list list;
    bool listed = ofi_version() && !ofi_providers(add, &list);
    if (j)
        json_array(j, "providers");
    else if (listed)
        printf("\nlibfabric %s, 'pawl serve --on ofi --provider P', dense keys:\n", ofi_version());
    for (unsigned i = 0; i < list.count; i++)
        if (j)
            json_provider(j, &list.at[i]);
        else
            print_provider(&list.at[i]);
    if (j)
        json_end(j);
}
