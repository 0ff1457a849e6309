/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/together.h"
#include "fabric/lower.h"
#include "fabric/parking.h"
#include "world/fiber.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum call_state { CALL_OVER, CALL_READY, CALL_VERBS, CALL_WAITS, CALL_ACTS };

/* A call that is neither a batch nor a wait is done at once. Where it may take time in another way than by stopping the thread (in
 * the simulation, and in an operation in flight), the task itself does it; else the call does, and spares two changes of stacks. */
enum act { ACT_POST, ACT_POLL, ACT_WATCH, ACT_WAKE, ACT_SEND, ACT_RECV, ACT_FENCE, ACT_LOCAL, ACT_OWN, ACT_LOCAL_FENCE };

struct call {
    struct fab_ep ep; /* the task's, with operations that give way */
    struct together *all;
    struct fiber *fiber;
    unsigned number;
    enum call_state state;
    struct fab_op *ops; /* CALL_VERBS */
    unsigned count;     /* of them, or of conditions */
    unsigned moved;     /* of the verbs: to the batch, or back */
    const struct fab_cond *conds;
    uint64_t until;
    enum act act; /* CALL_ACTS, and its arguments: those that it has */
    fab_addr addr;
    uint64_t a, b;
    unsigned n;
    const void *in;
    void *out;
    uint64_t value; /* what the call is told */
    int rc;
};

struct together {
    struct fab_ep *ep; /* the task's */
    together_fn fn;
    void *ctx;
    unsigned count;
    bool calls_act; /* see enum act */
    bool inside;    /* the endpoint is entered while calls run: they store several words each */
    struct fiber_pool pool;
    struct call calls[TOGETHER_MAX];
    struct fab_op batch[FAB_BATCH_MAX]; /* here, since stacks are small */
    struct fab_op done[FAB_BATCH_MAX];  /* the batch before, while calls without stacks look at its results */
    struct fab_cond conds[FAB_CONDS_MAX];
};

static void act_for(struct fab_ep *ep, struct call *c)
{
    const struct fab_ops *ops = ep->ops;
    c->rc = 0;
    switch (c->act) {
    case ACT_POST:
        ops->post(ep, c->in);
        break;
    case ACT_POLL:
        c->rc = ops->poll(ep, c->in, c->until, c->out);
        break;
    case ACT_WATCH:
        c->rc = ops->watch(ep, c->addr, c->out, c->n, c->until);
        break;
    case ACT_WAKE:
        c->rc = ops->wake(ep, c->addr, c->a, c->n);
        break;
    case ACT_SEND:
        c->rc = ops->send(ep, (uint32_t)c->a, c->in, c->n);
        break;
    case ACT_RECV:
        c->rc = ops->recv(ep, c->out, c->until);
        break;
    case ACT_FENCE:
        c->rc = ops->fence(ep, c->n, c->a);
        break;
    case ACT_LOCAL:
        c->value = ops->local(ep, (enum fab_verb)c->n, c->addr, c->a, c->b);
        break;
    case ACT_OWN:
        c->value = ops->own(ep, (enum fab_own)c->n, c->addr, c->a);
        break;
    case ACT_LOCAL_FENCE:
        ops->local_fence(ep);
        break;
    }
}

/* ---- on a call's fiber ---- */

static struct call *call_of(struct fab_ep *ep)
{
    return container_of(ep, struct call, ep);
}

static int give_way(struct call *c, enum call_state state)
{
    c->state = state;
    fiber_yield(c->fiber);
    return c->rc;
}

static int call_batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    struct call *c = call_of(ep);
    c->ops = ops;
    c->count = n;
    return give_way(c, CALL_VERBS);
}

static int call_wait(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    struct call *c = call_of(ep);
    c->conds = conds;
    c->count = n;
    c->until = deadline;
    return give_way(c, CALL_WAITS);
}

static int call_act(struct call *c, enum act act)
{
    c->act = act;
    struct together *t = c->all;
    if (!t->calls_act)
        return give_way(c, CALL_ACTS);
    if (t->inside)
        t->ep->ops->leave(t->ep);
    act_for(t->ep, c);
    if (t->inside)
        t->ep->ops->enter(t->ep);
    return c->rc;
}

static void call_post(struct fab_ep *ep, const struct fab_op *op)
{
    struct call *c = call_of(ep);
    c->in = op;
    call_act(c, ACT_POST);
}

static int call_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen)
{
    struct call *c = call_of(ep);
    c->in = pair;
    c->until = deadline;
    c->out = seen;
    return call_act(c, ACT_POLL);
}

static int call_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned n, uint64_t deadline)
{
    struct call *c = call_of(ep);
    c->addr = addr;
    c->out = words;
    c->n = n;
    c->until = deadline;
    return call_act(c, ACT_WATCH);
}

static int call_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n)
{
    struct call *c = call_of(ep);
    c->addr = addr;
    c->a = mask;
    c->n = n;
    return call_act(c, ACT_WAKE);
}

static int call_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len)
{
    struct call *c = call_of(ep);
    c->a = to;
    c->in = data;
    c->n = len;
    return call_act(c, ACT_SEND);
}

static int call_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline)
{
    struct call *c = call_of(ep);
    c->out = out;
    c->until = deadline;
    return call_act(c, ACT_RECV);
}

static int call_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    struct call *c = call_of(ep);
    c->n = peer;
    c->a = proof;
    return call_act(c, ACT_FENCE);
}

static uint64_t call_local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    struct call *c = call_of(ep);
    if (c->all->inside && verb == FAB_WRITE)
        return c->all->ep->ops->own_inside(c->all->ep, FAB_OWN_LOCAL, addr, value);
    c->n = verb;
    c->addr = addr;
    c->a = compare;
    c->b = value;
    call_act(c, ACT_LOCAL);
    return c->value;
}

static uint64_t call_own(struct fab_ep *ep, enum fab_own how, fab_addr addr, uint64_t value)
{
    struct call *c = call_of(ep);
    if (c->all->inside)
        return c->all->ep->ops->own_inside(c->all->ep, how, addr, value);
    c->n = how;
    c->addr = addr;
    c->a = value;
    call_act(c, ACT_OWN);
    return c->value;
}

static void call_local_fence(struct fab_ep *ep)
{
    call_act(call_of(ep), ACT_LOCAL_FENCE);
}

static const struct fab_ops call_ops = {
    .batch = call_batch,
    .post = call_post,
    .wait = call_wait,
    .poll = call_poll,
    .watch = call_watch,
    .wake = call_wake,
    .send = call_send,
    .recv = call_recv,
    .fence = call_fence,
    .local = call_local,
    .own = call_own,
    .local_fence = call_local_fence,
};

static void run_call(void *arg)
{
    struct call *c = arg;
    c->all->fn(c->all->ctx, c->number, &c->ep);
}

/* ---- on the task's stack ---- */

/* Until it is over, or waits for a verb or for memory. */
static void go_on(struct together *t, struct call *c)
{
    while (c->state == CALL_READY) {
        if (fiber_resume(c->fiber))
            c->state = CALL_OVER;
        else if (c->state == CALL_ACTS) {
            act_for(t->ep, c);
            c->state = CALL_READY;
        }
    }
}

/* A READ of the words behind those of the READ before it: a memory node takes both for one (fabric/node.c). */
static bool reads_on(const struct call *c, unsigned i)
{
    if (i >= c->count || c->ep.node != FAB_NODE_ELSEWHERE)
        return false;
    const struct fab_op *before = &c->ops[i - 1], *op = &c->ops[i];
    return before->verb == FAB_READ && op->verb == FAB_READ && before->addr + before->len == op->addr;
}

/* The next verb of a call goes into the batch, or its result back, with those that ride on it (lower.c) or go on reading. */
static void move_verb(struct together *t, struct call *c, unsigned *n, bool back)
{
    unsigned end = c->moved + 1 + fab_riders(&c->ops[c->moved], c->count - c->moved);
    while (reads_on(c, end))
        end++;
    for (; c->moved < end; c->moved++, (*n)++) {
        if (back)
            c->ops[c->moved].old = t->batch[*n].old;
        else
            t->batch[*n] = c->ops[c->moved];
    }
}

/* The verbs of the chosen calls: the first ones of all, then the second ones, and so on. So a READ that follows an atomic in each
 * call follows all atomics, and a memory node need not keep what it found (fabric/node.c). */
static void move_verbs(struct together *t, unsigned first, unsigned to, bool back)
{
    unsigned n = 0;
    for (unsigned i = first; i < to; i++)
        t->calls[i].moved = 0;
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = first; i < to; i++) {
            struct call *c = &t->calls[i];
            if (c->state == CALL_VERBS && c->moved < c->count) {
                move_verb(t, c, &n, back);
                more = true;
            }
        }
    }
}

/* The verbs of the calls from *from on, as many as fit: they are ready then. False: there were none. */
static bool send_some(struct together *t, unsigned *from)
{
    unsigned n = 0, first = *from, to = first;
    for (; to < t->count; to++) {
        const struct call *c = &t->calls[to];
        if (c->state != CALL_VERBS)
            continue;
        if (n + c->count > FAB_BATCH_MAX)
            break;
        n += c->count;
    }
    *from = to;
    if (!n)
        return false;
    move_verbs(t, first, to, false);
    int rc = t->ep->ops->batch(t->ep, t->batch, n);
    move_verbs(t, first, to, true);
    for (unsigned i = first; i < to; i++) {
        struct call *c = &t->calls[i];
        if (c->state != CALL_VERBS)
            continue;
        c->rc = rc;
        c->state = CALL_READY;
    }
    return true;
}

/* Waits for what the calls wait for. Afterwards those are ready that may look again, at least one. False: none waits. */
static bool wait_for_all(struct together *t)
{
    unsigned n = 0, waiting = 0;
    uint64_t until = DEADLINE_NEVER;
    for (unsigned i = 0; i < t->count; i++) {
        const struct call *c = &t->calls[i];
        if (c->state != CALL_WAITS)
            continue;
        waiting++;
        until = min_u64(until, c->until);
        for (unsigned k = 0; k < c->count && n < FAB_CONDS_MAX; k++)
            t->conds[n++] = c->conds[k];
    }
    if (!waiting)
        return false;
    int rc = t->ep->ops->wait(t->ep, t->conds, n, until);
    uint64_t now = world_now(t->ep->world);
    for (unsigned i = 0; i < t->count; i++) {
        struct call *c = &t->calls[i];
        if (c->state != CALL_WAITS)
            continue;
        bool late = now >= c->until || (rc == -ETIMEDOUT && c->until == until);
        bool sleeps = !late && (rc ? rc == -ETIMEDOUT : !c->count);
        if (sleeps)
            continue;
        c->rc = rc && rc != -ETIMEDOUT ? rc : late ? -ETIMEDOUT : 0;
        c->state = CALL_READY;
    }
    return true;
}

static void run_all(struct together *t)
{
    for (bool more = true; more;) {
        unsigned from = 0;
        if (t->inside)
            t->ep->ops->enter(t->ep);
        for (unsigned i = 0; i < t->count; i++)
            go_on(t, &t->calls[i]);
        if (t->inside)
            t->ep->ops->leave(t->ep);
        more = false;
        while (from < t->count && send_some(t, &from))
            more = true;
        more = more || wait_for_all(t);
    }
}

/* ---- stacks and endpoints ---- */

static struct together *make(void)
{
    struct together *t = calloc(1, sizeof *t);
    if (t && fiber_pool_init(&t->pool, TOGETHER_MAX, FIBER_STACK_BYTES)) {
        free(t);
        t = NULL;
    }
    return t;
}

static void begin(struct together *t, struct fab_ep *ep, unsigned count, void *ctx)
{
    t->ep = ep;
    t->ctx = ctx;
    t->count = count;
    t->calls_act = ep->world == &world_real && !fab_parking_get();
    t->inside = t->calls_act && ep->ops->enter;
}

__attribute__((noinline)) static void give_endpoint(struct together *t, struct call *c)
{
    c->ep = *t->ep;
    c->ep.ops = &call_ops;
    c->ep.calls = t->count;
    c->all = t;
}

static bool start_all(struct together *t, struct fab_ep *ep, unsigned count, together_fn fn, void *ctx)
{
    begin(t, ep, count, ctx);
    t->fn = fn;
    for (unsigned i = 0; i < count; i++) {
        struct call *c = &t->calls[i];
        if (!c->fiber)
            c->fiber = fiber_pool_take(&t->pool);
        if (!c->fiber)
            return false;
        give_endpoint(t, c);
        c->number = i;
        c->state = CALL_READY;
        fiber_reset(c->fiber); /* in the simulation its last run may have been given up */
        fiber_start(c->fiber, run_call, c);
    }
    return true;
}

int together_prepare(struct together_shelf *shelf)
{
    if (!shelf->at[0])
        shelf->at[0] = make();
    return shelf->at[0] ? 0 : -ENOMEM;
}

/* A place that no other thread uses, with memory; TOGETHER_SHELVES: there is none. */
static unsigned take_place(struct together_shelf *shelf)
{
    unsigned i = 0;
    while (i < TOGETHER_SHELVES && __atomic_exchange_n(&shelf->taken[i], true, __ATOMIC_ACQUIRE))
        i++;
    if (i == TOGETHER_SHELVES)
        return i;
    if (!shelf->at[i])
        shelf->at[i] = make();
    if (shelf->at[i])
        return i;
    __atomic_store_n(&shelf->taken[i], false, __ATOMIC_RELEASE);
    return TOGETHER_SHELVES;
}

bool together_run(struct together_shelf *shelf, struct fab_ep *ep, unsigned count, together_fn fn, void *ctx)
{
    assert(count <= TOGETHER_MAX && !fab_is_shm(ep));
    unsigned i = take_place(shelf);
    if (i == TOGETHER_SHELVES)
        return false;
    bool runs = start_all(shelf->at[i], ep, count, fn, ctx);
    if (runs)
        run_all(shelf->at[i]);
    __atomic_store_n(&shelf->taken[i], false, __ATOMIC_RELEASE);
    return runs;
}

static void step_all(struct together *t, together_step_fn fn)
{
    struct fab_op *done = t->done, *ops = t->batch;
    struct fab_ep *ep = t->inside ? &t->calls[0].ep : t->ep;
    uint8_t verbs[TOGETHER_MAX] = {0}; /* of each call, in its latest step */
    int rc = 0;
    give_endpoint(t, &t->calls[0]);
    for (bool first = true;; first = false) {
        unsigned n = 0, at = 0;
        if (t->inside)
            t->ep->ops->enter(t->ep);
        for (unsigned i = 0; i < t->count; i++) {
            if (!first && !verbs[i])
                continue;
            unsigned had = first ? 0 : verbs[i];
            verbs[i] = (uint8_t)fn(t->ctx, i, ep, done + at, rc, ops + n);
            at += had;
            n += verbs[i];
        }
        if (t->inside)
            t->ep->ops->leave(t->ep);
        if (!n)
            return;
        rc = t->ep->ops->batch(t->ep, ops, n);
        struct fab_op *spare = done;
        done = ops;
        ops = spare;
    }
}

bool together_steps(struct together_shelf *shelf, struct fab_ep *ep, unsigned count, unsigned most, together_step_fn fn, void *ctx)
{
    unsigned i = count * most <= FAB_BATCH_MAX ? take_place(shelf) : TOGETHER_SHELVES;
    if (i == TOGETHER_SHELVES)
        return false;
    begin(shelf->at[i], ep, count, ctx);
    step_all(shelf->at[i], fn);
    __atomic_store_n(&shelf->taken[i], false, __ATOMIC_RELEASE);
    return true;
}

void together_reset(struct together_shelf *shelf)
{
    memset(shelf->taken, 0, sizeof shelf->taken);
}

void together_free(struct together_shelf *shelf)
{
    for (unsigned i = 0; i < TOGETHER_SHELVES; i++) {
        if (shelf->at[i])
            fiber_pool_free(&shelf->at[i]->pool);
        free(shelf->at[i]);
        shelf->at[i] = NULL;
    }
    together_reset(shelf);
}
