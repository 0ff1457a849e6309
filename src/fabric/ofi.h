/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric over libfabric (1.17 or later), which is loaded when it is first asked for. ofi_port.c knows the library, ofi.c is a
 * client's endpoint, ofi_target.c is the memory that clients reach.
 *
 * All verbs are issued as 64-bit atomics. READs and WRITEs of a provider may pass its atomics, and atomics keep their order among
 * themselves where the provider says so. And a target takes an atomic as a whole: after a key was closed no rest of a WRITE
 * arrives.
 *
 * A provider may not notice that its target is gone, and it connects anew without a word when a connection broke. So deadlines
 * are those of this endpoint, and it gives the provider a verb behind others only if the provider takes it at once: a connection
 * that is made anew refuses it first. After an error or a deadline the outcome of verbs in flight is unknown. The endpoint then
 * goes on under a new key. The node closes the old key before it tells the new one, so none of them takes effect later. */
#ifndef PAWL_FABRIC_OFI_H
#define PAWL_FABRIC_OFI_H

#include "fabric/fabric.h"
#include "wire/udp.h"
#include "wire/verbs.h"

/* On purpose, as dataplane/mistake.h explains; that file is further out. */
#ifndef PAWL_WORKBENCH
#define PAWL_WORKBENCH 0
#endif
#define OFI_MISTAKE(set, bit) (PAWL_WORKBENCH && ((set) & (bit)) != 0)

enum ofi_mistakes {
    OFI_MISTAKE_MIXED = 1 << 0, /* READs are READs of the provider: they pass atomics */
    OFI_MISTAKE_KEY = 1 << 1,   /* the old key stays open when a client goes on under a new one */
    OFI_MISTAKE_FENCE = 1 << 2, /* the key of a client that is shut out stays open */
};

/* Capabilities of every provider that is accepted; those of a provider add FAB_MASKED_SWAP where it has one. */
#define OFI_CAPS FAB_ORDERED

/* ---- the library ---- */

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

/* The explanation of a registration that failed. */
int ofi_explain_registration(int rc, const char *provider, uint64_t bytes, uint64_t limit);

/* ---- a client's endpoint ---- */

struct fab_ofi;

/* Questions of the endpoint to the node's process. */
struct fab_ofi_io {
    void *ctx;
    /* Closes this client's key, and tells the next, whose number is that. 0, -FAB_EFENCED, or another error: ask again later. */
    int (*renew)(void *ctx, uint32_t number, uint64_t deadline, struct verbs_way *out);
    int (*fence)(void *ctx, uint32_t peer, uint64_t proof);
    void (*pending)(void *ctx); /* stores are gathered: call fab_ofi_flush soon; null: they are issued at once */
    void *pending_ctx;
    const uint64_t *changes; /* fab_node.changes of the session, for operations on fibers; null: there are none */
    uint64_t lease_ns;       /* after which a store that could not be issued ends the endpoint */
    uint64_t mistakes;
};

/* Connects to memory of `size` bytes. 0 or a negative code, explained. */
int fab_ofi_open(const struct verbs_way *way, uint64_t size, const struct fab_ofi_io *io, uint64_t deadline, struct fab_ofi **out);
struct fab_ep *fab_ofi_ep(struct fab_ofi *o);
void fab_ofi_close(struct fab_ofi *o);              /* may be null */
uint32_t fab_ofi_renewals(const struct fab_ofi *o); /* how often it went on under a new key */

/* Sets what is called when stores are gathered. Before other threads use the endpoint. */
void fab_ofi_on_pending(struct fab_ofi *o, void (*pending)(void *ctx), void *ctx);

/* Issues the stores that are gathered. Whether there were any. */
bool fab_ofi_flush(struct fab_ofi *o);
bool fab_ofi_gathers(struct fab_ofi *o); /* whether there are any */

/* As fab_node_set_own. */
int fab_ofi_set_own(struct fab_ofi *o, fab_addr base, uint64_t bytes);

/* ---- the node's memory ---- */

struct ofi_target;

struct ofi_target_params {
    const char *provider;
    struct net_addr at; /* of the interface; its port does not matter */
    uint32_t clients;
    uint64_t spin_ns; /* how long the thread looks for requests before it sleeps */
    uint64_t mistakes;
};

/* Begins to serve; no client has a key yet. 0 or a negative code, explained. */
int ofi_target_open(const struct ofi_target_params *p, struct ofi_target **out);

/* The memory that clients reach, before the first of them is admitted. */
void ofi_target_memory(struct ofi_target *t, void *memory, uint64_t bytes);
void ofi_target_close(struct ofi_target *t); /* may be null */
uint32_t ofi_target_caps(const struct ofi_target *t);

/* The key of a client's life: key `number` of it. The same again if that one is open; the next closes the one before it. -EINVAL:
 * an earlier one, which is closed, or one that is not next. Else explained. */
int ofi_target_admit(struct ofi_target *t, uint32_t client, uint32_t life, uint32_t number, struct verbs_way *out);

/* Closes the key of a client. When it returns no verb under it takes effect any more. */
void ofi_target_shut(struct ofi_target *t, uint32_t client);

#endif
