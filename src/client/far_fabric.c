/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching the memory of a node by libfabric or libibverbs: the node's process tells how, by the wire of memory nodes, and fences.
 */
#include "client/far.h"
#include "lib/explain.h"
#include "pawl.h"

#include <errno.h>
#include <string.h>

#define ASSIGN_NS (3 * NS_PER_S) /* for which a node is asked for a slot */

static int renew(void *ctx, uint32_t number, uint64_t deadline, struct verbs_way *way)
{
    struct node_udp *u = ctx;
    struct verbs_attach a = {.number = number, .way = *way};
    int rc = fab_node_attach(&u->node, &a, deadline);
    if (!rc && a.code)
        rc = a.code;
    if (!rc)
        *way = a.way;
    return rc;
}

static int fence(void *ctx, uint32_t peer, uint64_t proof)
{
    struct node_udp *u = ctx;
    return fab_fence(&u->node.fab, peer, proof);
}

static int explain_way(int rc, const char *name)
{
    if (rc == -ETIMEDOUT)
        return explain(rc, "the memory node of %s does not answer", name);
    if (rc == -ENOMEM)
        return explain(rc,
                       "the memory node of %s cannot register its memory for another client: its memory-lock limit may be too low "
                       "('ulimit -l unlimited' in the shell that starts it; its own messages say more)",
                       name);
    return explain(rc, "the memory node of %s does not say how its memory is reached: %s", name,
                   strerror(rc < -1000 ? EPROTO : -rc));
}

int far_fabric_open(struct node_udp *u, const char *name, uint64_t deadline, struct fab_rdma **out)
{
    struct verbs_way way = {0};
    if (!fab_rdma)
        return explain(-ENOTSUP,
                       "the memory of %s is reached by libfabric or libibverbs, which this static program lacks "
                       "('pkg-config --static --libs pawl' names it to the linker)",
                       name);
    const struct fab_rdma_io io = {
        .ctx = u, .renew = renew, .fence = fence, .changes = &u->node.changes, .lease_ns = u->node.lease_ns};
    int rc = renew(u, 0, deadline, &way);
    if (rc)
        return explain_way(rc, name);
    way.provider[sizeof way.provider - 1] = 0;
    if (way.address_len > sizeof way.address)
        return explain_way(-EPROTO, name);
    rc = fab_rdma->open(&way, u->node.fab.size, &io, deadline, out);
    if (!rc)
        fab_rdma->ep(*out)->id = u->node.client;
    return rc;
}

int far_fabric_assign(struct node_udp *u, const struct fab_rdma *o, const char *name, uint64_t lease_ns, struct session_place *out)
{
    struct verbs_attach a = {.number = fab_rdma->renewals(o), .lease_ns = lease_ns};
    int rc = fab_node_attach(&u->node, &a, world_now(&world_real) + ASSIGN_NS);
    if (rc)
        return explain_way(rc, name);
    if (a.code)
        return a.code;
    *out = (struct session_place){.slot = a.slot, .lease = a.lease, .life = a.memory_life};
    return 0;
}
