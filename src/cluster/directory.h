/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a rack's named or sparse space: which dense index each has. Names are bytes, numbers are 8 of them.
 *
 * A key gets an index when a client first asks for it, and keeps it. No index is ever used for another key (I7), so clients may
 * remember indexes for as long as the space exists. Indexes are given out in an order that spreads over the whole space, since lock
 * servers share it by ranges. */
#ifndef PAWL_CLUSTER_DIRECTORY_H
#define PAWL_CLUSTER_DIRECTORY_H

#include "lib/base.h"
#include "pawl.h"

#define DIRECTORY_KEY_MAX PAWL_NAME_MAX

struct directory_key {
    uint64_t at; /* in the bytes */
    uint32_t len;
};

struct directory {
    enum pawl_keys keys;
    uint64_t locks, step, unstep; /* index = order * step modulo locks, and back */
    uint64_t count, room;
    struct directory_key *key; /* by order */
    char *bytes;
    uint64_t bytes_used, bytes_room;
    uint64_t *buckets; /* order + 1, by hash, with a part of the hash above; 0: none */
    uint64_t bucket_count;
};

void directory_init(struct directory *d, enum pawl_keys keys, uint64_t locks);
void directory_free(struct directory *d);

/* -ENOENT, or 0. */
int directory_find(const struct directory *d, const void *bytes, uint32_t len, uint64_t *index);

/* The same, and adds the key if it is new. -EINVAL: not a key of this space; -ENOSPC: all indexes are taken; -ENOMEM. */
int directory_add(struct directory *d, const void *bytes, uint32_t len, uint64_t *index);

/* How many keys came before the one that has this index; UINT64_MAX: no key can have it. */
uint64_t directory_order(const struct directory *d, uint64_t index);

/* The key that has this index; -ENOENT. */
int directory_key_of(const struct directory *d, uint64_t index, const char **bytes, uint32_t *len);

#endif
