/* SPDX-License-Identifier: Apache-2.0 */
/* Locks by remote procedure calls: the node's cores decide (rpc_server.c), and clients ask. `rpc` queues up at the server, like the
 * lock servers that NetLock (4.4) has behind its switch; `rpc-retry` is what ShiftLock (4.1) compares with: a request that cannot
 * be granted is refused, and the client tries again after a pause.
 *
 * Messages may be lost, doubled, late or out of order: a client retransmits its request until it is answered, and the server
 * recognises duplicates. A client that gives up sends an end and waits for its answer, because until then the request may be
 * granted. The server's state lies in its private memory, and a silent client keeps its locks: neither may crash. */
#include "workbench/baselines/rpc.h"
#include "workbench/baselines/owned.h"

#include <errno.h>
#include <string.h>

#define AGAIN_MIN_NS (100 * NS_PER_US)  /* until a request is sent again: several round trips to a busy server, */
#define AGAIN_MAX_NS (3200 * NS_PER_US) /* and less often while in the queue, where only a lost grant makes it worth while */
#define PAUSE_MAX_NS (64 * NS_PER_US)

/* rpc-retry: between attempts; at first about a round trip, as ShiftLock does not say. 0: none, as in its artifact (rpc.rs). */
enum { PAUSE_NS };

static const struct design_knob retry_knobs[] = {[PAUSE_NS] = {"pause-ns", 0, PAUSE_MAX_NS, 2 * NS_PER_US}, {0}};

/* All tasks of a session have one mailbox. A task that finds the reply for another task puts it here, in memory of their host, in
 * one word so that it is never seen in part. */
struct rpc_desc {
    uint64_t reply; /* serial 20, attempt 16, result 3, mode 2, owner 12, readers 11 */
    uint64_t unused[7];
};
static_assert(sizeof(struct rpc_desc) == RPC_DESC_SIZE, "descriptors do not share lines");

#define ATTEMPT_SHIFT 20
#define ATTEMPT_BITS 16
#define RESULT_SHIFT 36
#define RESULT_BITS 3
#define MODE_SHIFT 39
#define MODE_BITS 2
#define OWNER_SHIFT 41
#define OWNER_BITS 12
#define READERS_SHIFT 53
#define READERS_BITS 11

struct call {
    struct rpc_request request;
    struct rpc_reply reply;
};

static bool same_id(const struct rpc_id *a, const struct rpc_id *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* ---- replies for others ---- */

static void put_aside(const struct seat *seat, const struct rpc_reply *r)
{
    if (r->id.slot != seat->me->slot || r->id.epoch != seat->me->epoch || r->id.record >= seat->space->record_count)
        return;
    uint64_t word = (uint64_t)r->id.serial | (r->id.attempt & FIELD_MAX(ATTEMPT_BITS)) << ATTEMPT_SHIFT |
                    (uint64_t)r->result << RESULT_SHIFT | (uint64_t)r->mode << MODE_SHIFT | (uint64_t)r->owner << OWNER_SHIFT |
                    min_u64(r->readers, FIELD_MAX(READERS_BITS)) << READERS_SHIFT;
    fab_local_store64(seat->ep, seat_desc_addr(seat, r->id.record), word);
    fab_local_fence(seat->ep);
}

/* The word may belong to an earlier request, or to an earlier message of this one; `fits` tells. If a reply was overwritten, the
 * request is retransmitted. */
static bool was_put_aside(const struct seat *seat, struct call *c)
{
    const struct rpc_id *id = &c->request.id;
    uint64_t word = fab_local_load64(seat->ep, seat_desc_addr(seat, id->record));
    if (field_get(word, 0, RECORD_SERIAL_BITS) != id->serial ||
        field_get(word, ATTEMPT_SHIFT, ATTEMPT_BITS) != (id->attempt & FIELD_MAX(ATTEMPT_BITS)))
        return false;
    c->reply = (struct rpc_reply){.id = *id,
                                  .result = (uint32_t)field_get(word, RESULT_SHIFT, RESULT_BITS),
                                  .mode = (uint32_t)field_get(word, MODE_SHIFT, MODE_BITS),
                                  .owner = (uint32_t)field_get(word, OWNER_SHIFT, OWNER_BITS),
                                  .readers = (uint32_t)field_get(word, READERS_SHIFT, READERS_BITS)};
    return true;
}

/* ---- calls ---- */

static void name(const struct seat *seat, const struct hold *h, struct call *c)
{
    c->request = (struct rpc_request){.id = {.slot = seat->me->slot,
                                             .record = h->record,
                                             .epoch = seat->me->epoch,
                                             .serial = (uint32_t)h->serial,
                                             .attempt = (uint32_t)h->token},
                                      .mode = (uint8_t)h->mode,
                                      .index = h->index,
                                      .start = h->start,
                                      .end = h->end};
}

/* Whether the reply is of a kind that answers this message: the reply to an earlier message of the same request may still be in
 * flight. */
static bool fits(const struct call *c)
{
    switch (c->request.op) {
    case RPC_END:
        return c->reply.result == RPC_ENDED;
    case RPC_LOOK:
        return c->reply.result == RPC_VIEW;
    default:
        return c->reply.result == RPC_GRANTED || c->reply.result == RPC_REFUSED;
    }
}

/* Receives until there is a reply: 0; or until then: -ETIMEDOUT; or -ECANCELED. */
static int await_reply(const struct seat *seat, struct call *c, uint64_t until)
{
    for (;;) {
        struct fab_msg msg;
        if (was_put_aside(seat, c) && fits(c))
            return 0;
        int rc = fab_recv(seat->ep, &msg, until);
        if (rc)
            return rc == -ETIMEDOUT && was_put_aside(seat, c) && fits(c) ? 0 : rc;
        if (msg.len != sizeof c->reply)
            continue;
        memcpy(&c->reply, msg.data, sizeof c->reply);
        if (!same_id(&c->reply.id, &c->request.id))
            put_aside(seat, &c->reply);
        else if (fits(c))
            return 0;
    }
}

/* Retransmits until there is an answer. With a deadline the answer may be missing; the outcome is then unknown. */
static int call(const struct seat *seat, struct call *c, enum rpc_op op, uint64_t deadline)
{
    uint64_t again_ns = AGAIN_MIN_NS;
    c->request.op = (uint8_t)op;
    for (;;) {
        fab_send(seat->ep, RPC_SERVER, &c->request, sizeof c->request);
        uint64_t send_at = add_saturating(world_now(seat->world), again_ns);
        int rc = -ETIMEDOUT;
        while (rc == -ETIMEDOUT && world_now(seat->world) < min_u64(send_at, deadline)) {
            uint64_t look_at = add_saturating(world_now(seat->world), AGAIN_MIN_NS); /* whether something was put aside */
            rc = await_reply(seat, c, min_u64(look_at, min_u64(send_at, deadline)));
        }
        if (rc == -ECANCELED && deadline == DEADLINE_NEVER && op == RPC_END)
            continue; /* must be done nevertheless */
        if (rc != -ETIMEDOUT)
            return rc;
        if (world_now(seat->world) >= deadline)
            return rc;
        if (!seat_lives(seat))
            return -PAWL_ELOST;
        again_ns = min_u64(2 * again_ns, AGAIN_MAX_NS);
    }
}

static int give_up(const struct seat *seat, struct call *c, int why)
{
    int rc = call(seat, c, RPC_END, DEADLINE_NEVER);
    return rc ? rc : why;
}

/* ---- the tables ---- */

static int attempt(const struct seat *seat, struct hold *h, enum rpc_op op, uint64_t deadline)
{
    struct call c;
    name(seat, h, &c);
    int rc = call(seat, &c, op, deadline == DEADLINE_TRY ? DEADLINE_NEVER : deadline);
    if (rc)
        return give_up(seat, &c, rc);
    return c.reply.result == RPC_GRANTED ? 0 : -PAWL_EHELD;
}

static int announce(const struct seat *seat, struct hold *h)
{
    h->token = 0; /* not a fencing token: the number of the attempt */
    if (seat->me->ranges)
        hold_note_range(seat, h);
    return hold_publish(seat, h, record_named(h->mode)); /* so that inspection shows the holder */
}

int rpc_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    int rc = announce(seat, h);
    return rc ? rc : attempt(seat, h, deadline == DEADLINE_TRY ? RPC_TRY : RPC_ACQUIRE, deadline);
}

static int rpc_retry_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    uint64_t pause = seat->space->knobs.value[PAUSE_NS];
    int rc = announce(seat, h);
    while (!rc) {
        rc = attempt(seat, h, RPC_TRY, deadline);
        if (rc != -PAWL_EHELD || deadline == DEADLINE_TRY)
            return rc;
        if (world_now(seat->world) >= deadline)
            return -ETIMEDOUT;
        rc = pause ? owned_back_off(seat, &pause, PAUSE_MAX_NS, deadline) : 0;
        h->token++;
    }
    return rc;
}

int rpc_release(const struct seat *seat, const struct hold *h)
{
    struct call c;
    int rc = hold_change(seat, h, record_named(h->mode), RECORD_WAIT);
    if (rc)
        return rc;
    name(seat, h, &c);
    rc = call(seat, &c, RPC_END, DEADLINE_NEVER);
    if (!rc)
        hold_close(seat, h);
    return rc;
}

int rpc_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct call c;
    struct hold h = {.mode = PAWL_SHARED};
    int rc = hold_open(seat, index, &h); /* for a name to ask under */
    if (rc)
        return rc;
    name(seat, &h, &c);
    rc = call(seat, &c, RPC_LOOK, DEADLINE_NEVER);
    hold_close(seat, &h);
    if (!rc)
        *out = (struct lock_view){.mode = (enum pawl_mode)c.reply.mode, .owner = c.reply.owner, .readers = c.reply.readers};
    return rc;
}

const struct design design_rpc = {
    .name = "rpc",
    .summary = "a lock server's cores, and a queue for each lock",
    RPC_COMMON(0, rpc_acquire, rpc_counts),
};

const struct design design_rpc_retry = {
    .name = "rpc-retry",
    .summary = "a lock server's cores that grant or refuse",
    .knobs = retry_knobs,
    RPC_COMMON(0, rpc_retry_acquire, rpc_counts),
};
