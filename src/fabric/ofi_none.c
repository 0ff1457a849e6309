/* SPDX-License-Identifier: Apache-2.0 */
/* In place of ofi_*.c where the headers of libfabric were missing when pawl was built. */
#include "fabric/rdma_port.h"
#include "lib/explain.h"

#include <errno.h>

static int not_built(void)
{
    return explain(-ENOTSUP, "this build has no libfabric: its headers were missing when it was made (Debian: libfabric-dev)");
}

int ofi_providers(int (*see)(void *ctx, const struct ofi_provider *p), void *ctx)
{
    (void)see, (void)ctx;
    return not_built();
}

const char *ofi_version(void)
{
    not_built();
    return NULL;
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

const struct rdma_kind rdma_ofi = {.open = open_end, .serve = serve}; /* nothing is ever open */
