/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A memory node's state of a client: its life and its reply cache. Kernel programs include this file. */
#ifndef PAWL_DATAPLANE_VERBS_CLIENT_H
#define PAWL_DATAPLANE_VERBS_CLIENT_H

#include "dataplane/mistake.h"
#include "wire/verbs.h"

#include <stdbool.h>

#define VERBS_INLINE static __attribute__((always_inline)) inline

enum verbs_mistakes {
    VERBS_MISTAKE_CACHE = 1 << 0, /* a request that comes again is executed again */
    VERBS_MISTAKE_FENCE = 1 << 1, /* a client that was shut out is served */
    VERBS_MISTAKE_ORDER = 1 << 2, /* a request is executed when it comes, before those that were issued earlier */
    VERBS_MISTAKE_READS = 1 << 3, /* what a READ found is not kept though a change follows in its request */
};

/* Results of the verbs of one request. */
struct verbs_kept {
    uint64_t sequence;
    uint32_t words;
    uint32_t unused;
    uint64_t word[VERBS_KEPT_WORDS];
};

/* A client, as the node knows it. The number is in use while life > fenced. */
struct verbs_client {
    uint32_t life;   /* how often the number was given */
    uint32_t fenced; /* this life and all before it are shut out */
    uint32_t busy;   /* a CPU is at a packet of this client (the kernel's node) */
    uint32_t unused;
    uint64_t last; /* the latest request that was executed */
    uint64_t tag;
    uint64_t nonce;
    uint64_t heard_ns; /* when a packet of this life came last */
    uint64_t near;     /* the process that changes memory by itself; 0: all verbs of this client are packets */
    struct verbs_kept kept[VERBS_WINDOW];
};
_Static_assert(sizeof(struct verbs_client) <= 3072, "with its parked WAITs a client costs the node less than 4 KiB");

VERBS_INLINE bool verbs_connected(const struct verbs_client *c)
{
    return c->life > c->fenced;
}

#endif
