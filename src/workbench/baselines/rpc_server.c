/* SPDX-License-Identifier: Apache-2.0 */
/* The store of `rpc`: the number of a lock's readers, or its writer. */
#include "workbench/baselines/rpc.h"

struct count {
    uint32_t readers;
    uint32_t writer; /* its entry's number and 1; 0: none */
};

static uint64_t bytes(const struct space *space, uint64_t entries)
{
    return space->lock_count * sizeof(struct count);
}

static struct count *count_of(const struct rpc_desk *desk, uint64_t index)
{
    return (struct count *)desk->memory + index;
}

static bool admits(struct rpc_desk *desk, const struct rpc_entry *e)
{
    const struct count *c = count_of(desk, e->index);
    return !c->writer && (e->mode == PAWL_SHARED || !c->readers);
}

static void enter(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct count *c = count_of(desk, e->index);
    if (e->mode == PAWL_SHARED)
        c->readers++;
    else
        c->writer = rpc_link(desk, e);
}

static void leave(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct count *c = count_of(desk, e->index);
    if (e->mode == PAWL_SHARED)
        c->readers--;
    else
        c->writer = 0;
}

static void look(struct rpc_desk *desk, uint64_t index, struct rpc_reply *out)
{
    const struct count *c = count_of(desk, index);
    const struct rpc_entry *writer = rpc_entry_at(desk, c->writer);
    out->mode = writer ? PAWL_EXCLUSIVE : c->readers ? PAWL_SHARED : 0;
    out->owner = writer ? writer->id.slot : 0;
    out->readers = c->readers;
}

const struct rpc_store rpc_counts = {.bytes = bytes, .admits = admits, .enter = enter, .leave = leave, .look = look};
