/* SPDX-License-Identifier: Apache-2.0 */
/* A host's knowledge of keys, between the coordinator, which retires keys that no host uses (coordinator_names.c), and the
 * processes of the host, which remember the keys that they were told of. It lies in the host's memory, under its mutex.
 *
 * A process that has heard of a key may use it if the host has not forgotten it since. The host has a list of the keys that it
 * forgot last. A key that a process heard of before a round that is no longer in the list has to be asked for again. */
#ifndef PAWL_CLUSTER_HOST_NAMES_H
#define PAWL_CLUSTER_HOST_NAMES_H

#include "cluster/coordinator.h"

#define HOST_NAMES_GONE 512u /* keys that are listed: those of the latest eight rounds at least */

/* A key's lock, as the coordinator said in a round. Dense keys have generation 0. */
struct host_name {
    uint64_t index, round;
    uint32_t generation;
};

struct host_names {
    uint64_t round; /* the latest that was answered */
    uint64_t floor; /* keys that were forgotten in earlier rounds are not all in the list */
    uint32_t next;
    struct host_name gone[HOST_NAMES_GONE];
};

/* Whether an answer that the coordinator gave in this round may be taken. An older one may be of a key that is gone. */
static inline bool host_names_current(const struct host_names *n, uint64_t round)
{
    return round >= n->round;
}

/* Whether the host still knows the key: the caller may begin to use it now, in the same step. */
bool host_names_listed(const struct host_names *n, const struct host_name *name); /* the same, by the list */
static inline bool host_names_know(const struct host_names *n, const struct host_name *name)
{
    return likely(name->round == n->round || !name->generation) || host_names_listed(n, name);
}

/* Whether the host uses the lock, in the design's eyes. */
typedef bool (*host_uses)(void *host, uint64_t index, uint64_t now, struct outbox *out);

/* The coordinator asks in a round. Which keys are in use, a bit each; the others are forgotten. False: the question is outdated. */
bool host_names_retire(struct host_names *n, const struct coord_retire *p, host_uses uses, void *host, uint64_t now,
                       struct outbox *out, uint64_t *used);

#endif
