/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a coordinator: records that outlast it, in the order in which they were appended. What they mean is state.h's.
 *
 * An append is a transaction: all of its records are in the log, or none. When it returns 0, they are in it for good. When it
 * fails, they may be in it or not, and the caller appends them again; records are written so that repeating them changes nothing,
 * or the store is closed. A snapshot replaces the log by records that mean the same.
 *
 * There are two implementations: a local file (store_file.h), and keys in etcd that several coordinators share (store_etcd.h). In
 * etcd an append is a transaction that is guarded by the leader's term, and -ESTALE says that the term is over. */
#ifndef PAWL_CLUSTER_STORE_H
#define PAWL_CLUSTER_STORE_H

#include "lib/base.h"

#define STORE_APPEND_MAX 16384u /* bytes of one append with what the store adds: a batch of packets with the longest names fits */

struct store_record {
    uint8_t type; /* 1 to 254 */
    uint16_t len;
    const void *data;
};

/* Takes the next record. 0, or an error, which ends what called it. */
typedef int (*store_take)(void *ctx, const struct store_record *r);

struct store;

struct store_ops {
    /* Bytes that a record takes of STORE_APPEND_MAX. */
    uint32_t (*cost)(const struct store_record *r);
    int (*append)(struct store *s, const struct store_record *records, unsigned count);
    /* `each` calls `take` with every record of the snapshot. */
    int (*snapshot)(struct store *s, int (*each)(void *ctx, store_take take, void *to), void *ctx);
    void (*close)(struct store *s);
};

struct store {
    const struct store_ops *ops;
    uint64_t since_snapshot; /* bytes that were appended since */
};

#endif
