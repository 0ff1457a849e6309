/* SPDX-License-Identifier: Apache-2.0 */
/* In place of a library whose headers were missing when pawl was built: every call says so, by NOT_BUILT of the file that includes
 * this. */
#ifndef PAWL_FABRIC_RDMA_NONE_H
#define PAWL_FABRIC_RDMA_NONE_H

#include "fabric/rdma_port.h"
#include "lib/explain.h"

#include <errno.h>

static int not_built(void)
{
    return explain(-ENOTSUP, NOT_BUILT);
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

#define RDMA_NONE                                                                                                                  \
    {                                                                                                                              \
        .open = open_end, .serve = serve                                                                                           \
    } /* nothing is ever open */

#endif
