/* SPDX-License-Identifier: Apache-2.0 */
/* The store of `rpc`: the numbers of a lock's holders and readers are all that it needs. */
#include "workbench/baselines/rpc.h"

static bool admits(struct rpc_desk *desk, const struct rpc_entry *e)
{
    const struct rpc_lock *l = &desk->locks[e->index];
    return e->mode == PAWL_SHARED ? l->holders == l->readers : !l->holders;
}

const struct rpc_store rpc_counts = {.admits = admits};
