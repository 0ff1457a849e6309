/* SPDX-License-Identifier: Apache-2.0 */
/* In place of ibv_*.c where the headers of libibverbs were missing when pawl was built. */
#include "fabric/rdma_port.h"
#include "lib/explain.h"

#include <errno.h>

static int not_built(void)
{
    return explain(-ENOTSUP, "this build has no libibverbs: its headers were missing when it was made (Debian: libibverbs-dev)");
}

int ibv_ports(int (*see)(void *ctx, const struct ibv_port_found *p), void *ctx)
{
    (void)see, (void)ctx;
    return not_built();
}

bool ibv_loads(void)
{
    not_built();
    return false;
}

static int open_end(const struct verbs_way *way, const struct rdma_port *like, struct flight_buffers *buffers,
                    struct rdma_port **out, struct verbs_way *mine)
{
    (void)way, (void)like, (void)buffers, (void)out, (void)mine;
    return not_built();
}

static int serve(const struct rdma_target_params *p, pthread_mutex_t *calls, void **out, struct verbs_way *way, uint32_t *caps)
{
    (void)p, (void)calls, (void)out, (void)way, (void)caps;
    return not_built();
}

const struct rdma_kind rdma_verbs = {.open = open_end, .serve = serve}; /* nothing is ever open */
