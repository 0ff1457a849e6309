/* SPDX-License-Identifier: Apache-2.0 */
/* pawl doctor: libfabric's providers and libibverbs' devices on this machine, and what each design could use there. */
#include "cli/doctor.h"
#include "fabric/rdma.h"

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

/* A fabric that designs could run on. `missing`: the reason why none can; null: they can. */
struct ground {
    unsigned substrate;
    uint32_t caps;
    const char *missing;
};

static bool runs_on(const struct design *d, struct ground g)
{
    return d->kind == DESIGN_MAIN && d->substrates & g.substrate && !g.missing && !(d->needs & ~g.caps);
}

static void print_designs(struct ground g)
{
    printf("designs");
    for (const struct design *d = NULL; (d = design_next(d));)
        if (runs_on(d, g))
            printf(" %s", d->name);
    putchar('\n');
}

static void json_designs(struct json *j, struct ground g)
{
    json_bits(j, "caps", g.caps, fab_cap_name);
    json_array(j, "designs");
    for (const struct design *d = NULL; (d = design_next(d));)
        if (runs_on(d, g))
            json_string(j, NULL, d->name);
    json_end(j);
}

/* ---- libfabric ---- */

static struct ground ground_of(const struct ofi_provider *p)
{
    return (struct ground){.substrate = DESIGN_ON_OFI, .caps = p->caps, .missing = p->missing};
}

static void print_provider(const struct ofi_provider *p)
{
    char caps[256] = "";
    printf("  %-16s %-12s ", p->name, p->device);
    if (p->missing) {
        printf("lacks %s\n", p->missing);
        return;
    }
    printf("%s; a batch is %s; ", bits_text(p->caps, fab_cap_name, ", ", caps, sizeof caps),
           p->ordered ? "one round trip" : "a round trip for each verb");
    print_designs(ground_of(p));
}

static void json_provider(struct json *j, const struct ofi_provider *p)
{
    json_object(j, NULL);
    json_string(j, "provider", p->name);
    json_string(j, "device", p->device);
    json_string(j, "lacks", p->missing);
    json_bool(j, "ordered", p->ordered);
    json_designs(j, ground_of(p));
    json_end(j);
}

static void print_providers(struct json *j)
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

/* ---- libibverbs ---- */

struct ports {
    struct json *json;
    unsigned count;
};

static int print_port(void *ctx, const struct ibv_port_found *p)
{
    struct ports *ports = ctx;
    struct json *j = ports->json;
    const struct ground g = {.substrate = DESIGN_ON_VERBS, .caps = IBV_CAPS, .missing = p->missing};
    const char *layer = p->ethernet ? "RoCE" : "InfiniBand", *atomic = p->cpu_atomic ? "are" : "are not";
    char ip[NET_ADDR_TEXT] = "";
    if (net_addr_known(p->at))
        net_addr_print_ip(p->at, ip);
    if (j) {
        json_object(j, NULL);
        json_string(j, "device", p->device);
        json_u64(j, "port", p->port);
        json_string(j, "layer", layer);
        json_string(j, "address", *ip ? ip : NULL);
        json_bool(j, "active", p->active);
        json_bool(j, "cpu_atomic", p->cpu_atomic);
        json_string(j, "lacks", p->missing);
        json_designs(j, g);
        json_end(j);
        return 0;
    }
    if (!ports->count++)
        printf("\nlibibverbs, 'pawl serve --on verbs --listen ADDRESS', dense keys:\n");
    printf("  %-16s port %u, %s%s%s, link %s; ", p->device, p->port, layer, *ip ? ", " : "", ip, p->active ? "up" : "down");
    if (p->missing)
        printf("lacks %s\n", p->missing);
    else {
        printf("atomics %s atomic with the CPU's; ", atomic);
        print_designs(g);
    }
    return 0;
}

static void print_ports(struct json *j)
{
    struct ports ports = {.json = j};
    if (j)
        json_array(j, "devices");
    ibv_ports(print_port, &ports);
    if (j)
        json_end(j);
}

void fabrics_print(struct json *j)
{
    print_providers(j);
    print_ports(j);
}
