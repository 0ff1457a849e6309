/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Locks that are divided among several switches: each is in a shard, and each shard belongs to one switch. */
#ifndef PAWL_DATAPLANE_SHARDS_H
#define PAWL_DATAPLANE_SHARDS_H

#include <stdint.h>

#define RACK_SHARDS 64

/* Of a lock, by its index: a hash (as lib/hash.h: mix64), so that neighbours are in different ones. */
static inline unsigned shard_of(uint64_t index)
{
    index = (index ^ (index >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    index = (index ^ (index >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((index ^ (index >> 31)) % RACK_SHARDS);
}

#endif
