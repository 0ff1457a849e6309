/* SPDX-License-Identifier: Apache-2.0 */
/* Several memory nodes for one space: which node has the lock of a key, and how a grant says where it is. The simulated cluster and
 * sessions on memory nodes use the same. */
#ifndef PAWL_CLUSTER_NODES_H
#define PAWL_CLUSTER_NODES_H

#include "designs/core/seat.h"
#include "lib/hash.h"

/* In bits of an index that no node needs. */
#define NODES_SHIFT RECORD_INDEX_BITS

static inline unsigned nodes_of_key(unsigned nodes, enum pawl_keys keys, pawl_key key)
{
    if (nodes == 1)
        return 0;
    if (keys == PAWL_KEYS_DENSE)
        return (unsigned)(key.id % nodes);
    uint64_t hash = mix64(key.id); /* of a name: its length */
    for (uint64_t i = 0; key.name && i < key.id && i < PAWL_NAME_MAX; i++)
        hash = mix64(hash ^ (unsigned char)key.name[i]);
    return (unsigned)(hash % nodes);
}

/* The key as its node has it: the indexes of a dense space are the node's own. */
static inline pawl_key nodes_key_there(unsigned nodes, enum pawl_keys keys, pawl_key key)
{
    return keys == PAWL_KEYS_DENSE && !key.name ? pawl_id(key.id / nodes) : key;
}

static inline unsigned nodes_of_index(uint64_t index)
{
    return (unsigned)(index >> NODES_SHIFT);
}

static inline uint64_t nodes_index(unsigned node, uint64_t index)
{
    return (uint64_t)node << NODES_SHIFT | index;
}

#endif
