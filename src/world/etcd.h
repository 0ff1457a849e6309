/* SPDX-License-Identifier: Apache-2.0 */
/* A key-value store that several coordinators share: as much of etcd's interface as they need. Code that decides asks an `etcd`,
 * never a socket, so the same code runs over a real cluster (node/etcd.h) and over a simulated one (sim_etcd.h).
 *
 * Every change has a revision, which rises. A transaction compares revisions of keys and changes others, at once or not at all.
 * Reads see every transaction that was committed before they began.
 *
 * A call ends at its deadline. A change whose answer did not come has an unknown outcome: it was made, was not made, or will be
 * made later, when the caller has long gone on. */
#ifndef PAWL_WORLD_ETCD_H
#define PAWL_WORLD_ETCD_H

#include "lib/base.h"

#define ETCD_KEY_LEN 192u                    /* of a key with its end: a prefix, the name of a space, a number */
#define ETCD_VALUE_MAX (UINT32_C(512) << 10) /* a third of the 1.5 MB that etcd takes as one request by default */
#define ETCD_COMPARES_MAX 2u
#define ETCD_CHANGES_MAX 5u

/* Holds if the latest change of the key has this revision; 0: if there is no such key. */
struct etcd_compare {
    const char *key;
    uint64_t revision;
};

struct etcd_change {
    const char *key;
    const char *end;   /* null: put the value; else: remove all keys from `key` on that are below `end` */
    const void *value; /* up to ETCD_VALUE_MAX bytes */
    uint32_t len;
};

struct etcd_transaction {
    struct etcd_compare compare[ETCD_COMPARES_MAX];
    unsigned compares;
    struct etcd_change change[ETCD_CHANGES_MAX];
    unsigned changes;
};

struct etcd_pair {
    const char *key;
    const void *value;
    uint32_t len;
    uint64_t revision; /* of its latest change */
};

/* Takes the next pair. 0, or an error, which ends what called it. */
typedef int (*etcd_take)(void *ctx, const struct etcd_pair *p);

struct etcd;

/* Deadlines are by `now`. All that can fail return 0 or a negative code, explained (lib/explain.h):
 * -ESTALE: a comparison does not hold, and nothing is changed; -ENOSPC: refused for want of room, and nothing is changed;
 * -ETIMEDOUT: no answer in time; other codes: no answer, and there will be none. After the last two the outcome of a change is
 * unknown. */
struct etcd_ops {
    /* The clock by which the caller's lease counts: goes on while the machine sleeps. */
    uint64_t (*now)(struct etcd *e);
    /* Whether it is a version that can be used; the id of the cluster. */
    int (*check)(struct etcd *e, uint64_t deadline, uint64_t *cluster);
    int (*commit)(struct etcd *e, const struct etcd_transaction *t, uint64_t deadline, uint64_t *revision);
    /* Pairs from `key` on that are below `end`, in order, at most `limit`. */
    int (*read)(struct etcd *e, const char *key, const char *end, unsigned limit, uint64_t deadline, etcd_take take, void *ctx);
    /* Forgets what keys had before this revision. */
    int (*compact)(struct etcd *e, uint64_t revision, uint64_t deadline);
    /* Between two attempts. */
    void (*pause)(struct etcd *e, uint64_t ns);
};

struct etcd {
    const struct etcd_ops *ops;
};

#endif
