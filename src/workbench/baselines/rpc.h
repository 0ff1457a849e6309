/* SPDX-License-Identifier: Apache-2.0 */
/* Lock servers behind messages: the messages, the clients' side (rpc.c) and the server's desk (rpc_desk.c), which `rpc` and the
 * range managers of Citron's comparison share. */
#ifndef PAWL_WORKBENCH_BASELINES_RPC_H
#define PAWL_WORKBENCH_BASELINES_RPC_H

#include "workbench/baselines/baselines.h"

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
    uint8_t op, mode;
    uint16_t unused;
    uint64_t index;
    uint64_t start, end; /* units */
};

struct rpc_reply {
    struct rpc_id id;
    uint32_t result;
    uint32_t mode, owner, readers; /* RPC_VIEW */
};
static_assert(sizeof(struct rpc_request) <= FAB_MSG_MAX && sizeof(struct rpc_reply) <= FAB_MSG_MAX, "one message each");

/* ---- clients ---- */

int rpc_acquire(const struct seat *seat, struct hold *h, uint64_t deadline);
int rpc_release(const struct seat *seat, const struct hold *h);
int rpc_peek(const struct seat *seat, uint64_t index, struct lock_view *out);

#define RPC_DESC_SIZE CACHE_LINE

/* Of a design whose server keeps its locks in `store`. */
#define RPC_COMMON(more_features, acquire_fn, store)                                                                               \
    .kind = DESIGN_BASELINE, .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TIMEOUT | (more_features),                      \
    .substrates = DESIGN_ON_SIM, .tolerates = BASELINE_TOLERATES, .lock_size = 16, .desc_size = RPC_DESC_SIZE,                     \
    .acquire = (acquire_fn), .release = rpc_release, .holds = hold_is_named, .peek = rpc_peek, .server_bytes = rpc_server_bytes,   \
    .serve = rpc_serve, .variant = &(store)

/* ---- the server's desk ---- */

enum rpc_entry_state { RPC_ENTRY_ENDED, RPC_ENTRY_REFUSED, RPC_ENTRY_WAITS, RPC_ENTRY_HOLDS };

/* One per hold record of every session: its latest request. */
struct rpc_entry {
    struct rpc_id id;
    uint32_t from; /* endpoint */
    uint8_t state, mode;
    uint32_t next, prev; /* in the lock's queue: number of the entry and 1; 0: none */
    uint64_t index, start, end;
};

struct rpc_desk;

/* The data structure of a server's holders. The desk counts them, and keeps the waiters. */
struct rpc_store {
    uint64_t (*bytes)(const struct space *space, uint64_t entries);   /* null, like enter and leave: the counts are enough */
    bool (*admits)(struct rpc_desk *desk, const struct rpc_entry *e); /* no holder conflicts with it */
    void (*enter)(struct rpc_desk *desk, struct rpc_entry *e);
    void (*leave)(struct rpc_desk *desk, struct rpc_entry *e);
    bool visits;     /* says how many of its nodes it visits, and the cores' time goes by that: an access to memory that other
                      * cores use, each */
    bool serialised; /* one core at a time */
};

/* A lock: its waiters and its holders. */
struct rpc_lock {
    uint32_t head, tail;       /* links of the queue */
    uint32_t holders, readers; /* all, and those of them that share */
    uint32_t writer;           /* the link of the latest exclusive holder */
    uint32_t unused;
};

#define RPC_REPLIES_MAX 64 /* that one request causes at once; more are sent without regard to the time that they took */

struct rpc_desk {
    const struct space *space;
    const struct rpc_store *store;
    struct fab_ep *ep; /* of the core that answers now */
    struct rpc_entry *entries;
    struct rpc_lock *locks;
    uint64_t *free_at; /* when the core that works in the store now is done */
    void *memory;      /* the store's */
    uint64_t visits;   /* of this request */
    struct rpc_answer {
        uint32_t to;
        struct rpc_reply reply;
    } answers[RPC_REPLIES_MAX];
    unsigned answer_count;
};

static inline struct rpc_entry *rpc_entry_at(const struct rpc_desk *desk, uint32_t link)
{
    return link ? &desk->entries[link - 1] : NULL;
}
static inline uint32_t rpc_link(const struct rpc_desk *desk, const struct rpc_entry *e)
{
    return (uint32_t)(e - desk->entries) + 1;
}

uint64_t rpc_server_bytes(const struct space *space);
void rpc_serve(const struct seat *seat, void *memory, uint64_t service_ns, uint64_t reply_ns);

extern const struct rpc_store rpc_counts; /* of `rpc`: rpc_server.c */

#endif
