/* What clients and the server of `rpc` say to each other. */
#ifndef PAWL_DESIGNS_RPC_H
#define PAWL_DESIGNS_RPC_H

#include "designs/design.h"

#define RPC_SERVER 0 /* endpoint id of the node's process: the first there is */

enum rpc_op {
    RPC_ACQUIRE, /* queue up */
    RPC_TRY,     /* now or not at all */
    RPC_END,     /* release, or stop waiting: whatever this request has become, it is nothing afterwards */
    RPC_LOOK,
};

enum rpc_result {
    RPC_GRANTED = 1,
    RPC_REFUSED,
    RPC_ENDED,
    RPC_VIEW,
};

/* A request is known by its session's slot and epoch, the record and serial of its hold, and the number of the attempt: so a
 * message that comes twice, late or out of order is told from the one that is due. */
struct rpc_id {
    uint32_t slot, record;
    uint32_t epoch, serial, attempt;
};

struct rpc_request {
    struct rpc_id id;
    uint32_t op, mode;
    uint32_t unused;
    uint64_t index;
};

struct rpc_reply {
    struct rpc_id id;
    uint32_t result;
    uint32_t mode, owner, readers; /* RPC_VIEW */
};
static_assert(sizeof(struct rpc_request) <= FAB_MSG_MAX && sizeof(struct rpc_reply) <= FAB_MSG_MAX, "one message each");

uint64_t rpc_server_bytes(const struct space *space);
void rpc_serve(const struct seat *seat, void *memory, uint64_t service_ns);

#endif
