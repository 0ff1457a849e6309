/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric over network cards, or over what libfabric has in place of one. rdma.c is a client's endpoint, rdma_target.c is the
 * memory that clients reach; below them is a library (rdma_port.h), which is loaded when it is first asked for: libfabric (1.17 or
 * later) or libibverbs.
 *
 * A library may not notice that its target is gone, and libfabric connects anew without a word when a connection broke. So
 * deadlines are those of this endpoint, and it gives the library a verb behind others only if it takes it at once: a connection
 * that is made anew refuses it first. After an error or a deadline the outcome of verbs in flight is unknown. The endpoint then
 * goes on under a new key. The node closes the old key before it tells the new one, so none of them takes effect later.
 *
 * libfabric: all verbs are issued as 64-bit atomics. READs and WRITEs of a provider may pass its atomics, and atomics keep their
 * order among themselves where the provider says so. And a target takes an atomic as a whole: after a key was closed no rest of a
 * WRITE arrives. libibverbs: a client's key is a queue pair of the node's, which the node destroys to close it. */
#ifndef PAWL_FABRIC_RDMA_H
#define PAWL_FABRIC_RDMA_H

#include "fabric/fabric.h"
#include "wire/udp.h"
#include "wire/verbs.h"

/* On purpose, as dataplane/mistake.h explains; that file is further out. */
#ifndef PAWL_WORKBENCH
#define PAWL_WORKBENCH 0
#endif
#define RDMA_MISTAKE(set, bit) (PAWL_WORKBENCH && ((set) & (bit)) != 0)

enum rdma_mistakes {
    RDMA_MISTAKE_MIXED = 1 << 0, /* READs are READs of the provider: they pass atomics */
    RDMA_MISTAKE_KEY = 1 << 1,   /* the old key stays open when a client goes on under a new one */
    RDMA_MISTAKE_FENCE = 1 << 2, /* the key of a client that is shut out stays open */
};

/* libfabric: capabilities of every provider that is accepted; those of a provider add FAB_MASKED_SWAP where it has one. */
#define OFI_CAPS FAB_ORDERED

/* In place of a provider: not libfabric, but libibverbs. */
#define RDMA_VERBS "libibverbs"

/* ---- the libraries ---- */

struct ofi_provider {
    char name[VERBS_PROVIDER_LEN], device[VERBS_PROVIDER_LEN];
    uint32_t caps;       /* FAB_*; only if `missing` is null */
    bool ordered;        /* atomics keep their order in flight: a batch is one round trip */
    const char *missing; /* what the fabric needs and the provider lacks; null: nothing */
};

/* Every provider and device with reliable datagrams; the callback's result other than 0 ends it. Explained. */
int ofi_providers(int (*see)(void *ctx, const struct ofi_provider *p), void *ctx);

/* "1.17"; null: not loaded, explained. */
const char *ofi_version(void);

/* A port of a device of libibverbs. */
struct ibv_port_found {
    char device[VERBS_PROVIDER_LEN];
    unsigned port;
    bool active;         /* the link is up */
    bool ethernet;       /* RoCE; else InfiniBand */
    bool cpu_atomic;     /* the device says that its atomics are atomic with the CPU's */
    struct net_addr at;  /* RoCE: the first address of its interface; unknown: none */
    const char *missing; /* what the fabric needs and the device lacks; null: nothing */
};

/* Every port of every device; the callback's result other than 0 ends it. Explained. */
int ibv_ports(int (*see)(void *ctx, const struct ibv_port_found *p), void *ctx);

/* Whether libibverbs was loaded; if not, explained. */
bool ibv_loads(void);

/* The capabilities of libibverbs' fabric: atomics of 64 bits, no masked ones, and none that is atomic with the CPU's. Order among
 * different verbs costs a fence. */
#define IBV_CAPS 0u

/* The explanation of a registration that failed; `why` in words. */
int rdma_explain_registration(int rc, const char *provider, uint64_t bytes, uint64_t limit, const char *why);

/* ---- a client's endpoint ---- */

struct fab_rdma;

/* Questions of the endpoint to the node's process. */
struct fab_rdma_io {
    void *ctx;
    /* Closes this client's key, and tells the next, whose number is that. `way`: what the node must know of the client's end, then
     * how the memory is reached. 0, -FAB_EFENCED, or another error: ask again later. */
    int (*renew)(void *ctx, uint32_t number, uint64_t deadline, struct verbs_way *way);
    int (*fence)(void *ctx, uint32_t peer, uint64_t proof);
    void (*pending)(void *ctx); /* stores are gathered: call fab_rdma_flush soon; null: they are issued at once */
    void *pending_ctx;
    const uint64_t *changes; /* fab_node.changes of the session, for operations on fibers; null: there are none */
    uint64_t lease_ns;       /* after which a store that could not be issued ends the endpoint */
    uint64_t mistakes;
};

/* Connects to memory of `size` bytes. 0 or a negative code, explained. */
int fab_rdma_open(const struct verbs_way *way, uint64_t size, const struct fab_rdma_io *io, uint64_t deadline,
                  struct fab_rdma **out);
struct fab_ep *fab_rdma_ep(struct fab_rdma *o);
void fab_rdma_close(struct fab_rdma *o);              /* may be null */
uint32_t fab_rdma_renewals(const struct fab_rdma *o); /* how often it went on under a new key */
const int *fab_rdma_dead(const struct fab_rdma *o);   /* 0 until the node has shut this client out; changes atomically */

/* Sets what is called when stores are gathered. Before other threads use the endpoint. */
void fab_rdma_on_pending(struct fab_rdma *o, void (*pending)(void *ctx), void *ctx);

/* Issues the stores that are gathered. Whether there were any. */
bool fab_rdma_flush(struct fab_rdma *o);
bool fab_rdma_gathers(struct fab_rdma *o); /* whether there are any */

/* As fab_node_set_own. */
int fab_rdma_set_own(struct fab_rdma *o, fab_addr base, uint64_t bytes);

/* The functions above, for a client whose program may lack them. */
struct fab_rdma_driver {
    int (*open)(const struct verbs_way *way, uint64_t size, const struct fab_rdma_io *io, uint64_t deadline, struct fab_rdma **out);
    struct fab_ep *(*ep)(struct fab_rdma *o);
    void (*close)(struct fab_rdma *o);
    uint32_t (*renewals)(const struct fab_rdma *o);
    const int *(*dead)(const struct fab_rdma *o);
    void (*on_pending)(struct fab_rdma *o, void (*pending)(void *ctx), void *ctx);
    bool (*flush)(struct fab_rdma *o);
    bool (*gathers)(struct fab_rdma *o);
    int (*set_own)(struct fab_rdma *o, fab_addr base, uint64_t bytes);
};
extern const struct fab_rdma_driver driver_rdma;

/* Made by meson with the list of designs. Null in a static program that does not name driver_rdma to the linker. */
extern const struct fab_rdma_driver *const fab_rdma;

/* ---- the node's memory ---- */

struct rdma_target;

struct rdma_target_params {
    const char *provider; /* of libfabric, or RDMA_VERBS */
    const char *device;   /* of libibverbs; null: the one of the address */
    struct net_addr at;   /* of the interface; its port does not matter */
    uint32_t clients;
    uint64_t spin_ns; /* how long the thread looks for requests before it sleeps */
    uint64_t mistakes;
};

/* Begins to serve; no client has a key yet. 0 or a negative code, explained. */
int rdma_target_open(const struct rdma_target_params *p, struct rdma_target **out);

/* The memory that clients reach, before the first of them is admitted. */
int rdma_target_memory(struct rdma_target *t, void *memory, uint64_t bytes); /* explained */
void rdma_target_close(struct rdma_target *t);                               /* may be null */
uint32_t rdma_target_caps(const struct rdma_target *t);

/* The key of a client's life: key `number` of it. `way`: the client's end, then how it reaches the memory. The same again if that
 * one is open; the next closes the one before it. -EINVAL: an earlier one, which is closed, or one that is not next. Else
 * explained. */
int rdma_target_admit(struct rdma_target *t, uint32_t client, uint32_t life, uint32_t number, struct verbs_way *way);

/* Closes the key of a client. When it returns no verb under it takes effect any more. */
void rdma_target_shut(struct rdma_target *t, uint32_t client);

#endif
