/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/ibv_lib.h"
#include "lib/explain.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library: loaded when it is first asked for, since it loads a driver for each kind of card ---- */

struct ibv_functions ibv_lib;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256]; /* why the library is not there; empty: it is */

static void load(void)
{
    void *so = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
        {"ibv_get_device_list", &ibv_lib.get_device_list},
        {"ibv_free_device_list", &ibv_lib.free_device_list},
        {"ibv_get_device_name", &ibv_lib.get_device_name},
        {"ibv_open_device", &ibv_lib.open_device},
        {"ibv_close_device", &ibv_lib.close_device},
        {"ibv_query_device", &ibv_lib.query_device},
        {"ibv_query_port", &ibv_lib.query_port},
        {"_ibv_query_gid_ex", &ibv_lib.query_gid},
        {"ibv_alloc_pd", &ibv_lib.alloc_pd},
        {"ibv_dealloc_pd", &ibv_lib.dealloc_pd},
        {"ibv_reg_mr", &ibv_lib.reg_mr},
        {"ibv_dereg_mr", &ibv_lib.dereg_mr},
        {"ibv_create_comp_channel", &ibv_lib.create_channel},
        {"ibv_destroy_comp_channel", &ibv_lib.destroy_channel},
        {"ibv_get_cq_event", &ibv_lib.get_cq_event},
        {"ibv_ack_cq_events", &ibv_lib.ack_cq_events},
        {"ibv_create_cq", &ibv_lib.create_cq},
        {"ibv_destroy_cq", &ibv_lib.destroy_cq},
        {"ibv_create_qp", &ibv_lib.create_qp},
        {"ibv_modify_qp", &ibv_lib.modify_qp},
        {"ibv_destroy_qp", &ibv_lib.destroy_qp},
        {"ibv_fork_init", &ibv_lib.fork_init},
    };
    if (!so) {
        const char *why = dlerror();
        snprintf(missing, sizeof missing, "libibverbs is not installed (Debian: apt-get install libibverbs1 ibverbs-providers): %s",
                 why ? why : "?");
        return;
    }
    for (size_t i = 0; i < countof(wanted); i++) {
        void *symbol = dlsym(so, wanted[i].name);
        if (!symbol) {
            snprintf(missing, sizeof missing, "libibverbs lacks %s: version 33 or later of rdma-core is needed", wanted[i].name);
            return;
        }
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    ibv_lib.fork_init(); /* for kernels before 5.12, where a child of fork() would take the parent's registered pages away */
}

int ibv_need(void)
{
    pthread_once(&once, load);
    return *missing ? explain(-ENOTSUP, "%s", missing) : 0;
}

bool ibv_loads(void)
{
    return !ibv_need();
}

/* ---- ports ---- */

static const char *lacks(const struct ibv_device_attr *a)
{
    return a->atomic_cap == IBV_ATOMIC_NONE                ? "atomics"
           : !a->max_qp_rd_atom || !a->max_qp_init_rd_atom ? "atomics in flight"
                                                           : NULL;
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr)
{
    *attr = (struct ibv_port_attr){0};
    return ibv_lib.query_port(c, port, (struct _compat_ibv_port_attr *)attr);
}

/* Whether that entry of the port's table is an address for RoCE version 2, the only one that routers forward. */
static bool address_at(struct ibv_context *c, uint8_t port, uint32_t index, union ibv_gid *out)
{
    struct ibv_gid_entry e = {0};
    if (ibv_lib.query_gid(c, port, index, &e, 0, sizeof e) || e.gid_type != IBV_GID_TYPE_ROCE_V2)
        return false;
    *out = e.gid;
    return true;
}

/* A link-local address is one of the card's, not of its interface. */
static bool is_link_local(const union ibv_gid *g)
{
    return g->raw[0] == 0xfe && (g->raw[1] & 0xc0) == 0x80;
}

static void look_at_port(struct ibv_context *c, const struct ibv_port_attr *attr, struct ibv_port_found *p)
{
    union ibv_gid gid;
    p->active = attr->state == IBV_PORT_ACTIVE;
    p->ethernet = attr->link_layer == IBV_LINK_LAYER_ETHERNET;
    for (int i = 0; i < attr->gid_tbl_len && p->ethernet && !net_addr_known(p->at); i++)
        if (address_at(c, (uint8_t)p->port, (uint32_t)i, &gid) && !is_link_local(&gid))
            memcpy(p->at.ip, gid.raw, sizeof p->at.ip);
}

static int see_device(struct ibv_context *c, const char *name, int (*see)(void *ctx, const struct ibv_port_found *p), void *ctx)
{
    struct ibv_device_attr device = {0};
    struct ibv_port_attr attr;
    int rc = 0;
    if (ibv_lib.query_device(c, &device))
        return 0;
    for (unsigned i = 1; i <= device.phys_port_cnt && !rc; i++) {
        struct ibv_port_found p = {.port = i, .cpu_atomic = device.atomic_cap == IBV_ATOMIC_GLOB, .missing = lacks(&device)};
        snprintf(p.device, sizeof p.device, "%s", name);
        if (query_port(c, (uint8_t)i, &attr))
            continue;
        look_at_port(c, &attr, &p);
        rc = see(ctx, &p);
    }
    return rc;
}

int ibv_ports(int (*see)(void *ctx, const struct ibv_port_found *p), void *ctx)
{
    int rc = ibv_need(), count = 0;
    struct ibv_device **list = rc ? NULL : ibv_lib.get_device_list(&count);
    for (int i = 0; i < count && !rc; i++) {
        struct ibv_context *c = ibv_lib.open_device(list[i]);
        if (!c)
            continue;
        rc = see_device(c, ibv_lib.get_device_name(list[i]), see, ctx);
        ibv_lib.close_device(c);
    }
    if (list)
        ibv_lib.free_device_list(list);
    return rc;
}

/* ---- the port that is used ---- */

struct search {
    const char *device; /* null: any */
    struct net_addr at;
    bool known; /* there is a device of that name */
    bool down;  /* it, or the one of the address, has a link that is down */
};

/* The index of the address in the port's table, or -1. */
static int index_of(struct ibv_context *c, uint8_t port, int count, struct net_addr at)
{
    union ibv_gid gid;
    for (int i = 0; i < count; i++)
        if (address_at(c, port, (uint32_t)i, &gid) && !memcmp(gid.raw, at.ip, sizeof at.ip))
            return i;
    return -1;
}

/* Whether the port is the one that is searched for. */
static bool fits(struct ibv_dock *d, struct search *s, uint8_t port)
{
    struct ibv_port_attr attr;
    if (query_port(d->context, port, &attr))
        return false;
    bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    int index = ethernet ? index_of(d->context, port, attr.gid_tbl_len, s->at) : 0;
    if (index < 0)
        return false;
    if (attr.state != IBV_PORT_ACTIVE) {
        s->down = true;
        return false;
    }
    struct ibv_gid_entry e = {0};
    if (ibv_lib.query_gid(d->context, port, (uint32_t)index, &e, 0, sizeof e))
        return false;
    d->port = port;
    d->gid_index = (uint8_t)index;
    d->gid = e.gid;
    d->lid = attr.lid;
    d->mtu = attr.active_mtu;
    return true;
}

/* Opens the device if one of its ports fits. */
static bool dock_at(struct ibv_dock *d, struct search *s, struct ibv_device *device)
{
    struct ibv_device_attr attr = {0};
    const char *name = ibv_lib.get_device_name(device);
    if (s->device && strcmp(name, s->device) != 0)
        return false;
    s->known = true;
    *d = (struct ibv_dock){.context = ibv_lib.open_device(device)};
    if (!d->context)
        return false;
    if (!ibv_lib.query_device(d->context, &attr) && !lacks(&attr)) {
        d->depth = (uint8_t)min_u64(16, min_u64((uint64_t)attr.max_qp_rd_atom, (uint64_t)attr.max_qp_init_rd_atom));
        for (unsigned i = 1; i <= attr.phys_port_cnt; i++)
            if (fits(d, s, (uint8_t)i) && (d->pd = ibv_lib.alloc_pd(d->context)))
                return true;
    }
    ibv_dock_close(d);
    return false;
}

static int explain_search(const struct search *s)
{
    char ip[NET_ADDR_TEXT];
    net_addr_print_ip(s->at, ip);
    if (s->device && !s->known)
        return explain(-ENODEV, "there is no RDMA device '%s'; 'pawl doctor' lists those that there are", s->device);
    if (s->down)
        return explain(-ENETDOWN, "the link of the RDMA device with the address %s is down", ip);
    return explain(
        -ENODEV,
        "no RDMA device%s%s with atomics has the address %s; 'pawl doctor' lists devices and addresses, and 'rdma link add "
        "rxe0 type rxe netdev ethN' makes one of software",
        s->device ? " " : "", s->device ? s->device : "", ip);
}

ONCE int ibv_dock_open(struct ibv_dock *d, const char *device, struct net_addr at)
{
    struct search s = {.device = device, .at = at};
    int rc = ibv_need(), count = 0;
    if (rc)
        return rc;
    bool found = false;
    struct ibv_device **list = ibv_lib.get_device_list(&count);
    for (int i = 0; i < count && !found; i++)
        found = dock_at(d, &s, list[i]);
    if (list)
        ibv_lib.free_device_list(list);
    return found ? 0 : explain_search(&s);
}

void ibv_dock_close(struct ibv_dock *d)
{
    if (d->pd)
        ibv_lib.dealloc_pd(d->pd);
    if (d->context)
        ibv_lib.close_device(d->context);
    *d = (struct ibv_dock){0};
}
