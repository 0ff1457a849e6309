/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/ofi_port.h"
#include "lib/explain.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE 256u /* verbs in flight, and completions: more than an endpoint has flights */

/* The order that makes a batch of atomics one round trip. READs of a batch are additions of 0, which are writes to the provider. */
#define ORDER_NEEDED (FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAW)

/* ---- the library: loaded when it is first asked for, since it loads a dozen others ---- */

static struct {
    pthread_once_t once;
    char error[256]; /* why it is not there; empty: it is */
    char version[16];
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int code);
    uint32_t (*version_of)(void);
} lib = {.once = PTHREAD_ONCE_INIT};

/* The symbol versions are those of the structs in the headers of libfabric 1.17, which later libraries keep. */
static void load(void)
{
    void *so = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name, *version;
        void *to;
    } wanted[] = {{"fi_getinfo", "FABRIC_1.3", &lib.getinfo},   {"fi_freeinfo", "FABRIC_1.3", &lib.freeinfo},
                  {"fi_dupinfo", "FABRIC_1.3", &lib.dupinfo},   {"fi_fabric", "FABRIC_1.1", &lib.fabric},
                  {"fi_strerror", "FABRIC_1.0", &lib.strerror}, {"fi_version", "FABRIC_1.0", &lib.version_of}};
    if (!so) {
        const char *why = dlerror();
        snprintf(lib.error, sizeof lib.error, "libfabric is not installed (Debian: apt-get install libfabric1): %s",
                 why ? why : "?");
        return;
    }
    for (size_t i = 0; i < countof(wanted); i++) {
        void *symbol = dlvsym(so, wanted[i].name, wanted[i].version);
        if (!symbol) {
            snprintf(lib.error, sizeof lib.error, "libfabric lacks %s (%s): version 1.17 or later is needed", wanted[i].name,
                     wanted[i].version);
            return;
        }
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    uint32_t there = lib.version_of();
    snprintf(lib.version, sizeof lib.version, "%" PRIu32 ".%" PRIu32, (uint32_t)FI_MAJOR(there), (uint32_t)FI_MINOR(there));
    if (there < OFI_VERSION)
        snprintf(lib.error, sizeof lib.error, "libfabric is version %s, and 1.17 or later is needed", lib.version);
}

static int need_library(void)
{
    pthread_once(&lib.once, load);
    return *lib.error ? explain(-ENOTSUP, "%s", lib.error) : 0;
}

const char *ofi_version(void)
{
    return need_library() ? NULL : lib.version;
}

const char *ofi_error(int code)
{
    return lib.strerror(code < 0 ? -code : code);
}

/* ---- providers ---- */

static struct fi_info *make_hints(const char *provider)
{
    struct fi_info *hints = lib.dupinfo(NULL); /* as fi_allocinfo does */
    if (!hints)
        return NULL;
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN; /* callers have a lock */
    hints->tx_attr->size = QUEUE;
    hints->fabric_attr->prov_name = provider ? strdup(provider) : NULL;
    return hints;
}

static bool has_atomic(struct fid_domain *domain, enum fi_op op, uint64_t flags)
{
    struct fi_atomic_attr attr = {0};
    return !fi_query_atomic(domain, FI_UINT64, op, &attr, flags) && attr.count && attr.size == sizeof(uint64_t);
}

/* Providers of libfabric 1.17 whose atomics did not end, or ended without effect, when tried; both are marked as deprecated or for
 * tests there. */
static bool is_unusable(const char *provider)
{
    return !strcmp(provider, "sockets") || strstr(provider, "ofi_rxd");
}

/* The capabilities of a provider, by its open domain. */
static void judge(struct ofi_provider *p, const struct fi_info *info, struct fid_domain *domain)
{
    snprintf(p->name, sizeof p->name, "%s", info->fabric_attr->prov_name ? info->fabric_attr->prov_name : "?");
    snprintf(p->device, sizeof p->device, "%s", info->domain_attr->name ? info->domain_attr->name : "?");
    p->missing = is_unusable(p->name)                                    ? "reliable atomics"
                 : !has_atomic(domain, FI_CSWAP, FI_COMPARE_ATOMIC)      ? "compare-and-swap of 64 bits"
                 : !has_atomic(domain, FI_SUM, FI_FETCH_ATOMIC)          ? "fetch-and-add of 64 bits"
                 : !has_atomic(domain, FI_ATOMIC_WRITE, FI_FETCH_ATOMIC) ? "swap of 64 bits"
                 : !has_atomic(domain, FI_ATOMIC_READ, FI_FETCH_ATOMIC)  ? "atomic read of 64 bits"
                 : info->domain_attr->mr_key_size > sizeof(uint64_t)     ? "keys of up to 64 bits"
                                                                         : NULL;
    p->caps = OFI_CAPS | (has_atomic(domain, FI_MSWAP, FI_COMPARE_ATOMIC) ? FAB_MASKED_SWAP : 0u);
    p->ordered = (info->tx_attr->msg_order & ORDER_NEEDED) == ORDER_NEEDED;
}

int ofi_providers(int (*see)(void *ctx, const struct ofi_provider *p), void *ctx)
{
    struct fi_info *all = NULL;
    int rc = need_library();
    struct fi_info *hints = rc ? NULL : make_hints(NULL);
    if (!rc && !hints)
        rc = -ENOMEM;
    if (!rc)
        rc = lib.getinfo(OFI_VERSION, NULL, NULL, 0, hints, &all);
    if (hints)
        lib.freeinfo(hints);
    if (rc == -FI_ENODATA)
        return 0;
    if (rc)
        return *explained() ? rc : explain(rc, "libfabric does not list its providers: %s", ofi_error(rc));
    for (struct fi_info *at = all; at && !rc; at = at->next) {
        struct ofi_port port = {.info = at};
        if (lib.fabric(at->fabric_attr, &port.fabric, NULL))
            continue;
        if (!fi_domain(port.fabric, at, &port.domain, NULL)) {
            judge(&port.provider, at, port.domain);
            rc = see(ctx, &port.provider);
            fi_close(&port.domain->fid);
        }
        fi_close(&port.fabric->fid);
    }
    lib.freeinfo(all);
    return rc;
}

/* ---- ports ---- */

static int explain_provider(int rc, const char *provider)
{
    if (rc == -FI_ENODATA || rc == -FI_ENOSYS)
        return explain(
            -ENODEV,
            "libfabric has no provider '%s' with reliable datagrams and atomics here; 'pawl doctor' lists those that it has",
            provider);
    return explain(rc, "libfabric cannot open the provider '%s': %s", provider, ofi_error(rc));
}

/* An Internet address as text, so that the provider chooses the interface that leads there. */
static bool to_text(const struct verbs_way *way, char ip[INET6_ADDRSTRLEN], char port[8])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        uint8_t bytes[VERBS_ADDRESS_MAX];
    } name = {0};
    memcpy(name.bytes, way->address, min_u64(way->address_len, sizeof name.bytes));
    if (way->address_format == FI_SOCKADDR_IN && way->address_len >= sizeof name.v4) {
        snprintf(port, 8, "%u", ntohs(name.v4.sin_port));
        return inet_ntop(AF_INET, &name.v4.sin_addr, ip, INET6_ADDRSTRLEN);
    }
    if (way->address_format == FI_SOCKADDR_IN6 && way->address_len >= sizeof name.v6) {
        snprintf(port, 8, "%u", ntohs(name.v6.sin6_port));
        return inet_ntop(AF_INET6, &name.v6.sin6_addr, ip, INET6_ADDRSTRLEN);
    }
    return false;
}

static int choose(struct ofi_port *p, const char *provider, const struct verbs_way *way, const struct net_addr *at)
{
    char ip[NET_ADDR_TEXT], port[8];
    struct fi_info *hints = make_hints(provider);
    if (!hints)
        return explain(-ENOMEM, "out of memory");
    int rc;
    if (way && to_text(way, ip, port)) {
        rc = lib.getinfo(OFI_VERSION, ip, port, 0, hints, &p->info);
    } else if (at) { /* providers without Internet addresses take none */
        net_addr_print_ip(*at, ip);
        rc = lib.getinfo(OFI_VERSION, ip, NULL, FI_SOURCE, hints, &p->info);
        if (rc)
            rc = lib.getinfo(OFI_VERSION, NULL, NULL, 0, hints, &p->info);
    } else {
        rc = lib.getinfo(OFI_VERSION, NULL, NULL, 0, hints, &p->info);
    }
    lib.freeinfo(hints);
    return rc ? explain_provider(rc, provider) : 0;
}

static int open_parts(struct ofi_port *p, bool sleeps)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = QUEUE, .wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE};
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = 1};
    int rc = fi_cq_open(p->domain, &cq, &p->cq, NULL);
    if (!rc)
        rc = fi_av_open(p->domain, &av, &p->av, NULL);
    if (!rc)
        rc = fi_endpoint(p->domain, p->info, &p->ep, NULL);
    if (!rc)
        rc = fi_ep_bind(p->ep, &p->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!rc)
        rc = fi_ep_bind(p->ep, &p->av->fid, 0);
    return rc ? rc : fi_enable(p->ep);
}

/* By its info, which goes with it. */
ONCE static int open_port(struct ofi_port *p, const char *provider, bool sleeps)
{
    /* The target's process executes a message of ofi_rxm as a whole. Of others that is not known. */
    p->ranges = strstr(p->info->fabric_attr->prov_name, "ofi_rxm") ? (unsigned)p->info->tx_attr->rma_iov_limit : 1;
    int rc = lib.fabric(p->info->fabric_attr, &p->fabric, NULL);
    if (!rc)
        rc = fi_domain(p->fabric, p->info, &p->domain, NULL);
    if (!rc) {
        judge(&p->provider, p->info, p->domain);
        rc = p->provider.missing ? 0 : open_parts(p, sleeps);
    }
    if (!rc && p->provider.missing)
        rc = explain(-ENOTSUP, "the provider '%s' lacks %s, which lock memory needs", p->provider.name, p->provider.missing);
    else if (rc)
        explain_provider(rc, provider);
    if (rc)
        ofi_port_close(p);
    return rc;
}

ONCE int ofi_port_open(struct ofi_port *p, const char *provider, const struct verbs_way *way, const struct net_addr *at,
                       bool sleeps)
{
    *p = (struct ofi_port){0};
    int rc = need_library();
    if (!rc)
        rc = choose(p, provider, way, at);
    return rc ? rc : open_port(p, provider, sleeps);
}

int ofi_port_again(struct ofi_port *p, const struct ofi_port *like)
{
    *p = (struct ofi_port){.info = lib.dupinfo(like->info)};
    return p->info ? open_port(p, like->provider.name, false) : explain(-ENOMEM, "out of memory");
}

void ofi_port_close(struct ofi_port *p)
{
    if (p->ep)
        fi_close(&p->ep->fid);
    if (p->av)
        fi_close(&p->av->fid);
    if (p->cq)
        fi_close(&p->cq->fid);
    if (p->domain)
        fi_close(&p->domain->fid);
    if (p->fabric)
        fi_close(&p->fabric->fid);
    if (p->info)
        lib.freeinfo(p->info);
    *p = (struct ofi_port){0};
}
