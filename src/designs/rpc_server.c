/* The server of `rpc`: a queue for every lock, first come, first served; readers that stand together enter together. All of it lies
 * in the node's private memory and goes with it. A core waits for its service time and then answers at one stroke: what real cores
 * would need among themselves is part of that time. */
#include "designs/rpc.h"

#include <string.h>

enum entry_state { ENTRY_ENDED, ENTRY_REFUSED, ENTRY_WAITS, ENTRY_HOLDS };

/* One per hold record of every session: its latest request. */
struct entry {
    struct rpc_id id;
    uint32_t from; /* endpoint */
    uint8_t state, mode;
    uint32_t next, prev; /* in the lock's queue: number of the entry and 1; 0: none */
    uint64_t index;
};

struct queue {
    uint32_t readers;
    uint32_t writer; /* its entry's number and 1; 0: none */
    uint32_t head, tail;
};

struct rpc_server {
    const struct space *space;
    struct fab_ep *ep; /* of the core that answers now */
    struct entry *entries;
    struct queue *queues;
};

static uint64_t entry_count(const struct space *space)
{
    return (uint64_t)space->slot_count * space->record_count;
}

uint64_t rpc_server_bytes(const struct space *space)
{
    return entry_count(space) * sizeof(struct entry) + space->lock_count * sizeof(struct queue);
}

static struct rpc_server server_at(const struct seat *seat, void *memory)
{
    return (struct rpc_server){.space = seat->space,
                               .ep = seat->ep,
                               .entries = memory,
                               .queues = (struct queue *)((struct entry *)memory + entry_count(seat->space))};
}

/* ---- which request is the later one ---- */

/* Counters of so many bits that wrap around: positive if a is after b. */
static int after(uint32_t a, uint32_t b, unsigned bits)
{
    uint32_t ahead = (a - b) & (uint32_t)FIELD_MAX(bits);
    return ahead == 0 ? 0 : ahead < UINT32_C(1) << (bits - 1) ? 1 : -1;
}

static int compare(const struct rpc_id *a, const struct rpc_id *b)
{
    int by = after(a->epoch, b->epoch, LEASE_EPOCH_BITS);
    if (!by)
        by = after(a->serial, b->serial, RECORD_SERIAL_BITS);
    return by ? by : after(a->attempt, b->attempt, 32);
}

/* ---- queues ---- */

static struct entry *entry_at(const struct rpc_server *s, uint32_t link)
{
    return link ? &s->entries[link - 1] : NULL;
}

static uint32_t link_of(const struct rpc_server *s, const struct entry *e)
{
    return (uint32_t)(e - s->entries) + 1;
}

static void append(struct rpc_server *s, struct queue *q, struct entry *e)
{
    e->next = 0;
    e->prev = q->tail;
    *(q->tail ? &entry_at(s, q->tail)->next : &q->head) = link_of(s, e);
    q->tail = link_of(s, e);
    e->state = ENTRY_WAITS;
}

static void take_out(struct rpc_server *s, struct queue *q, struct entry *e)
{
    *(e->prev ? &entry_at(s, e->prev)->next : &q->head) = e->next;
    *(e->next ? &entry_at(s, e->next)->prev : &q->tail) = e->prev;
}

static bool may_enter(const struct queue *q, const struct entry *e)
{
    return !q->writer && (e->mode == PAWL_SHARED || !q->readers);
}

static void enter(struct rpc_server *s, struct queue *q, struct entry *e)
{
    e->state = ENTRY_HOLDS;
    if (e->mode == PAWL_SHARED)
        q->readers++;
    else
        q->writer = link_of(s, e);
}

/* ---- requests ---- */

/* If it is lost the client asks again. */
static void answer(const struct rpc_server *s, const struct entry *e, enum rpc_result result)
{
    const struct rpc_reply reply = {.id = e->id, .result = result};
    fab_send(s->ep, e->from, &reply, sizeof reply);
}

static void let_in(struct rpc_server *s, struct queue *q)
{
    for (struct entry *e = entry_at(s, q->head); e && may_enter(q, e); e = entry_at(s, q->head)) {
        take_out(s, q, e);
        enter(s, q, e);
        answer(s, e, RPC_GRANTED);
    }
}

static void end(struct rpc_server *s, struct entry *e)
{
    struct queue *q = &s->queues[e->index];
    if (e->state == ENTRY_WAITS)
        take_out(s, q, e);
    if (e->state == ENTRY_HOLDS && e->mode == PAWL_SHARED)
        q->readers--;
    else if (e->state == ENTRY_HOLDS)
        q->writer = 0;
    e->state = ENTRY_ENDED;
    let_in(s, q);
}

/* The first message of a request. Whoever goes on to another has ended the one before it, or was refused; else its session is gone.
 */
static void begin(struct rpc_server *s, struct entry *e, const struct rpc_request *r, uint32_t from)
{
    if (e->state != ENTRY_ENDED)
        end(s, e);
    *e = (struct entry){.id = r->id, .from = from, .mode = (uint8_t)r->mode, .index = r->index};
    struct queue *q = &s->queues[r->index];
    if (r->op == RPC_END)
        return; /* it has overtaken the request that it ends, which will be too late */
    if (!q->head && may_enter(q, e))
        enter(s, q, e);
    else if (r->op == RPC_ACQUIRE)
        append(s, q, e);
    else
        e->state = ENTRY_REFUSED;
}

static void request(struct rpc_server *s, const struct rpc_request *r, uint32_t from)
{
    struct entry *e = &s->entries[(uint64_t)r->id.slot * s->space->record_count + r->id.record];
    int by = compare(&r->id, &e->id);
    if (by < 0)
        return; /* late: nobody waits for an answer */
    if (by > 0)
        begin(s, e, r, from);
    else if (r->op == RPC_END && e->state != ENTRY_ENDED)
        end(s, e);
    if (r->op == RPC_END)
        answer(s, e, RPC_ENDED);
    else if (e->state == ENTRY_HOLDS)
        answer(s, e, RPC_GRANTED);
    else if (e->state == ENTRY_REFUSED)
        answer(s, e, RPC_REFUSED);
}

static void look(const struct rpc_server *s, const struct rpc_request *r, uint32_t from)
{
    const struct queue *q = &s->queues[r->index];
    const struct entry *writer = entry_at(s, q->writer);
    const struct rpc_reply reply = {
        .id = r->id,
        .result = RPC_VIEW,
        .mode = writer       ? PAWL_EXCLUSIVE
                : q->readers ? PAWL_SHARED
                             : 0,
        .owner = writer ? writer->id.slot : 0,
        .readers = q->readers,
    };
    fab_send(s->ep, from, &reply, sizeof reply);
}

static bool is_sound(const struct space *space, const struct rpc_request *r, uint32_t len)
{
    return len == sizeof *r && r->id.slot < space->slot_count && r->id.record < space->record_count &&
           r->index < space->lock_count && (r->mode == PAWL_SHARED || r->mode == PAWL_EXCLUSIVE) && r->op <= RPC_LOOK;
}

void rpc_serve(const struct seat *seat, void *memory, uint64_t service_ns)
{
    struct rpc_server s = server_at(seat, memory);
    for (;;) {
        struct fab_msg msg;
        struct rpc_request r;
        if (fab_recv(seat->ep, &msg, DEADLINE_NEVER))
            continue;
        fab_wait_any(seat->ep, NULL, 0, world_now(seat->world) + service_ns);
        memcpy(&r, msg.data, sizeof r);
        if (!is_sound(s.space, &r, msg.len))
            continue;
        if (r.op == RPC_LOOK)
            look(&s, &r, msg.from);
        else
            request(&s, &r, msg.from);
    }
}
