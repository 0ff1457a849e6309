/* SPDX-License-Identifier: Apache-2.0 */
/* The desk of a lock server: recognises requests that come twice, late or out of order, and queues requests that cannot be granted.
 * Among requests that conflict, the first to come is the first served. All state lies in the node's private memory and is lost with
 * it. A core waits for its service time and then makes all its changes at once. The synchronisation of real cores is part of that
 * time, or, where a store counts the nodes that it visits, of the time for these visits. The answers are sent afterwards. */
#include "workbench/baselines/rpc.h"

#include <string.h>

static uint64_t entry_count(const struct space *space)
{
    return (uint64_t)space->slot_count * space->record_count;
}

static const struct rpc_store *store_of(const struct space *space)
{
    return space->design->variant;
}

uint64_t rpc_server_bytes(const struct space *space)
{
    const struct rpc_store *store = store_of(space);
    return entry_count(space) * sizeof(struct rpc_entry) + space->lock_count * sizeof(struct rpc_lock) + sizeof(uint64_t) +
           (store->bytes ? store->bytes(space, entry_count(space)) : 0);
}

static struct rpc_desk desk_at(const struct seat *seat, void *memory)
{
    struct rpc_desk d = {.space = seat->space, .store = store_of(seat->space), .ep = seat->ep, .entries = memory};
    d.locks = (struct rpc_lock *)(d.entries + entry_count(seat->space));
    d.free_at = (uint64_t *)(d.locks + seat->space->lock_count);
    d.memory = d.free_at + 1;
    return d;
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

static void append(struct rpc_desk *d, struct rpc_lock *q, struct rpc_entry *e)
{
    e->next = 0;
    e->prev = q->tail;
    *(q->tail ? &rpc_entry_at(d, q->tail)->next : &q->head) = rpc_link(d, e);
    q->tail = rpc_link(d, e);
    e->state = RPC_ENTRY_WAITS;
}

static void take_out(struct rpc_desk *d, struct rpc_lock *q, struct rpc_entry *e)
{
    *(e->prev ? &rpc_entry_at(d, e->prev)->next : &q->head) = e->next;
    *(e->next ? &rpc_entry_at(d, e->next)->prev : &q->tail) = e->prev;
}

static bool in_the_way(const struct rpc_entry *a, const struct rpc_entry *b)
{
    return ranges_overlap(a->start, a->end, b->start, b->end) && (a->mode == PAWL_EXCLUSIVE || b->mode == PAWL_EXCLUSIVE);
}

/* No earlier waiter conflicts with it. `until` is its own place in the queue; null: behind all. */
static bool is_first(const struct rpc_desk *d, const struct rpc_entry *e, const struct rpc_entry *until)
{
    for (const struct rpc_entry *w = rpc_entry_at(d, d->locks[e->index].head); w && w != until; w = rpc_entry_at(d, w->next))
        if (in_the_way(w, e))
            return false;
    return true;
}

/* ---- requests ---- */

/* If an answer is lost the client asks again. A core that waits until one was delivered serves no client meanwhile. */
static void send_answers(struct rpc_desk *d, uint64_t reply_ns)
{
    for (unsigned i = 0; i < d->answer_count; i++) {
        fab_send(d->ep, d->answers[i].to, &d->answers[i].reply, sizeof d->answers[i].reply);
        if (reply_ns)
            fab_wait_any(d->ep, NULL, 0, world_now(d->ep->world) + reply_ns);
    }
    d->answer_count = 0;
}

static void answer_with(struct rpc_desk *d, uint32_t to, const struct rpc_reply *reply)
{
    if (d->answer_count == RPC_REPLIES_MAX)
        send_answers(d, 0); /* in the middle of its changes, which are made at once */
    d->answers[d->answer_count++] = (struct rpc_answer){.to = to, .reply = *reply};
}

static void answer(struct rpc_desk *d, const struct rpc_entry *e, enum rpc_result result)
{
    const struct rpc_reply reply = {.id = e->id, .result = result};
    answer_with(d, e->from, &reply);
}

static void enter(struct rpc_desk *d, struct rpc_entry *e)
{
    struct rpc_lock *l = &d->locks[e->index];
    e->state = RPC_ENTRY_HOLDS;
    l->holders++;
    l->readers += e->mode == PAWL_SHARED;
    l->writer = e->mode == PAWL_SHARED ? l->writer : rpc_link(d, e);
    if (d->store->enter)
        d->store->enter(d, e);
}

/* Grants waiters that overlap `gone`, which has left. */
static void let_in(struct rpc_desk *d, const struct rpc_entry *gone)
{
    struct rpc_lock *q = &d->locks[gone->index];
    for (struct rpc_entry *e = rpc_entry_at(d, q->head), *next; e; e = next) {
        next = rpc_entry_at(d, e->next);
        bool may = ranges_overlap(e->start, e->end, gone->start, gone->end) && is_first(d, e, e) && d->store->admits(d, e);
        if (may) {
            take_out(d, q, e);
            enter(d, e);
            answer(d, e, RPC_GRANTED);
        } else if (e->mode == PAWL_EXCLUSIVE && e->start <= gone->start && e->end >= gone->end) {
            return; /* later waiters of this range wait for it */
        }
    }
}

static void end(struct rpc_desk *d, struct rpc_entry *e)
{
    if (e->state == RPC_ENTRY_WAITS)
        take_out(d, &d->locks[e->index], e);
    if (e->state == RPC_ENTRY_HOLDS) {
        d->locks[e->index].holders--;
        d->locks[e->index].readers -= e->mode == PAWL_SHARED;
        if (d->store->leave)
            d->store->leave(d, e);
    }
    e->state = RPC_ENTRY_ENDED;
    let_in(d, e);
}

/* The first message of a request. A client begins another request when the one before was ended or refused; otherwise the session
 * before it is gone. */
static void begin(struct rpc_desk *d, struct rpc_entry *e, const struct rpc_request *r, uint32_t from)
{
    if (e->state != RPC_ENTRY_ENDED)
        end(d, e);
    *e = (struct rpc_entry){.id = r->id, .from = from, .mode = r->mode, .index = r->index, .start = r->start, .end = r->end};
    if (r->op == RPC_END)
        return; /* it has overtaken the request that it ends, which will be too late */
    if (is_first(d, e, NULL) && d->store->admits(d, e))
        enter(d, e);
    else if (r->op == RPC_ACQUIRE)
        append(d, &d->locks[r->index], e);
    else
        e->state = RPC_ENTRY_REFUSED;
}

static void request(struct rpc_desk *d, const struct rpc_request *r, uint32_t from)
{
    struct rpc_entry *e = &d->entries[(uint64_t)r->id.slot * d->space->record_count + r->id.record];
    int by = compare(&r->id, &e->id);
    if (by < 0)
        return; /* late: the client does not wait for an answer any more */
    if (by > 0)
        begin(d, e, r, from);
    else if (r->op == RPC_END && e->state != RPC_ENTRY_ENDED)
        end(d, e);
    if (r->op == RPC_END)
        answer(d, e, RPC_ENDED);
    else if (e->state == RPC_ENTRY_HOLDS)
        answer(d, e, RPC_GRANTED);
    else if (e->state == RPC_ENTRY_REFUSED)
        answer(d, e, RPC_REFUSED);
}

static void look(struct rpc_desk *d, const struct rpc_request *r, uint32_t from)
{
    const struct rpc_lock *l = &d->locks[r->index];
    bool named = l->holders > l->readers && !d->space->range_units; /* ranges may have several writers */
    const struct rpc_reply reply = {.id = r->id,
                                    .result = RPC_VIEW,
                                    .mode = !l->holders  ? 0
                                            : l->readers ? PAWL_SHARED
                                                         : PAWL_EXCLUSIVE,
                                    .owner = named ? rpc_entry_at(d, l->writer)->id.slot : LOCK_OWNER_UNKNOWN,
                                    .readers = l->readers};
    answer_with(d, from, &reply);
}

static bool is_sound(const struct space *space, const struct rpc_request *r, uint32_t len)
{
    return len == sizeof *r && r->id.slot < space->slot_count && r->id.record < space->record_count &&
           r->index < space->lock_count && (r->mode == PAWL_SHARED || r->mode == PAWL_EXCLUSIVE) && r->op <= RPC_LOOK &&
           r->start < r->end && r->end <= RANGE_UNITS_MAX;
}

/* ---- time ---- */

#define CALIBRATION 32 /* accesses, of which the mean is taken */

/* The cost of an access to memory that other cores use, too. */
static uint64_t visit_ns(const struct seat *seat)
{
    uint64_t begin_ns = world_now(seat->world);
    for (unsigned i = 0; i < CALIBRATION; i++)
        fab_local_load64(seat->ep, seat->space->locks);
    return (world_now(seat->world) - begin_ns) / CALIBRATION;
}

/* All changes were made at once; the answers are sent when a core would have been through with it. Where only one core at a time
 * works, it begins when the one before it is done. */
static void spend(struct rpc_desk *d, const struct seat *seat, uint64_t each_ns)
{
    uint64_t now = world_now(seat->world), from = d->store->serialised ? max_u64(now, *d->free_at) : now;
    uint64_t done = from + d->visits * each_ns;
    d->visits = 0;
    if (d->store->serialised)
        *d->free_at = done;
    if (done > now)
        fab_wait_any(seat->ep, NULL, 0, done);
}

void rpc_serve(const struct seat *seat, void *memory, uint64_t service_ns, uint64_t reply_ns)
{
    struct rpc_desk d = desk_at(seat, memory);
    uint64_t each_ns = d.store->visits ? visit_ns(seat) : 0;
    for (;;) {
        struct fab_msg msg;
        struct rpc_request r;
        if (fab_recv(seat->ep, &msg, DEADLINE_NEVER))
            continue;
        fab_wait_any(seat->ep, NULL, 0, world_now(seat->world) + service_ns);
        memcpy(&r, msg.data, sizeof r);
        if (!is_sound(d.space, &r, msg.len))
            continue;
        if (r.op == RPC_LOOK)
            look(&d, &r, msg.from);
        else
            request(&d, &r, msg.from);
        if (d.store->visits)
            spend(&d, seat, each_ns);
        send_answers(&d, reply_ns);
    }
}
