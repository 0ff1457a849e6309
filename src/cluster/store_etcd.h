/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The log in etcd, for several coordinators. The leader alone reads and writes it (leader.h). Keys, under PREFIX/SPACE/:
 *
 *   lead/head          magic, version, the space's name and 128-bit id, etcd's cluster id, the latest snapshot: its generation, pieces,
 *                      and the number of the last append that it contains; a checksum
 *   lead/last          the number of the last append; every append changes it, in the same transaction
 *   snap/GEN/PIECE     records of the snapshot, cut below ETCD_VALUE_MAX; a checksum that includes generation and piece
 *   log/NUMBER         one append: its records, and a checksum that continues the one before it
 *
 * Numbers are hexadecimal, so that keys are in their order.
 *
 * - *An append is one transaction*: it makes log/NUMBER, if that is missing and the term is still the leader's. A repetition of the
 *   same append is refused by the first comparison, an append of a deposed leader by the second (leader_commit).
 * - *A snapshot is whole or does not count.* Its pieces are written first. One transaction then makes `head` name them, and removes
 *   the appends that they contain and the pieces of former ones.
 * - *Changes by others are found.* Each append's checksum continues the one before it, and `last` says how far the log goes. So a key
 *   that is missing, exchanged or changed is an error that names the key. A cluster with another id, one restored from a backup for
 *   instance, is an error: it may lack what was acknowledged. */
/* clang-format on */
#ifndef PAWL_CLUSTER_STORE_ETCD_H
#define PAWL_CLUSTER_STORE_ETCD_H

#include "cluster/leader.h"
#include "cluster/store_file.h"

struct store_etcd {
    struct store store;
    struct leader leader;
    struct store_identity identity;
    uint64_t head_revision;
    uint32_t generation; /* of the latest snapshot */
    uint64_t seq;        /* of the latest append */
    uint64_t chain;      /* its checksum */
    uint8_t *buffer;     /* of one value */
};

/* Opens the log, as store_file_open does; the caller leads. -ENOENT: there is none; -EINVAL: another space's; -EBADMSG: damaged, or
 * of another cluster; -ESTALE: the caller leads no more. All explained. */
int store_etcd_open(struct store_etcd *s, enum store_how how, struct store_identity *identity, store_take take,
                    int (*each)(void *ctx, store_take take, void *to), void *ctx);

/* Reads which coordinator leads (leader_look), and of which space the log is: s->identity. */
int store_etcd_look(struct store_etcd *s, uint64_t deadline);

/* For one that stands by: hands out the records as they are now, and changes nothing. -EAGAIN: the leader changed the log
 * meanwhile. */
int store_etcd_peek(struct store_etcd *s, struct store_identity *identity, store_take take, void *ctx);

#endif
