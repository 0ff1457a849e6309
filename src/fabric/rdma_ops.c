/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting, words of the session's own, and the rest of the table of libfabric's endpoint. */
#include "fabric/parking.h"
#include "fabric/rdma_internal.h"

#include <errno.h>
#include <string.h>

/* Between two looks at words that are waited for: each costs the node's processor a request. */
#define POLL_MIN_NS (50 * NS_PER_US)
#define POLL_MAX_NS (2 * NS_PER_MS)

/* ---- waiting ---- */

/* 0 at that time; -ECANCELED if the operation was cancelled. */
static int sleep_until(struct fab_rdma *o, uint64_t until)
{
    struct fab_parking *fiber = o->io.changes ? fab_parking_get() : NULL;
    for (uint64_t now; fiber;) {
        fiber->seen = __atomic_load_n(o->io.changes, __ATOMIC_ACQUIRE);
        int rc = fiber->park(fiber, until, true);
        now = world_now(o->ep.world);
        if (rc || now >= until)
            return rc;
    }
    uint64_t now = world_now(o->ep.world), left = until > now ? until - now : 0;
    const struct timespec nap = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    nanosleep(&nap, NULL);
    return 0;
}

static bool differs(const struct fab_cond *conds, unsigned count, const uint64_t *words)
{
    for (unsigned i = 0; i < count; i++)
        if ((words[i] & conds[i].mask) != conds[i].value)
            return true;
    return false;
}

/* Until one of the conditions no longer holds. `words`: what they were then. */
static int wait_for(struct fab_rdma *o, const struct fab_cond *conds, unsigned count, uint64_t deadline, uint64_t *words)
{
    struct fab_op ops[FAB_CONDS_MAX];
    if (!count)
        fab_rdma_flush(o);
    for (uint64_t pause = POLL_MIN_NS;; pause = min_u64(2 * pause, POLL_MAX_NS)) {
        for (unsigned i = 0; i < count; i++)
            ops[i] = (struct fab_op){.verb = FAB_READ, .addr = conds[i].addr, .buf = &words[i], .len = sizeof *words};
        int rc = count ? rdma_batch(&o->ep, ops, count) : 0;
        if (rc || differs(conds, count, words))
            return rc;
        uint64_t now = world_now(o->ep.world);
        rc = sleep_until(o, min_u64(deadline, count ? now + pause : deadline));
        if (rc)
            return rc;
        if (world_now(o->ep.world) >= deadline)
            return -ETIMEDOUT;
    }
}

static int rdma_wait(struct fab_ep *ep, const struct fab_cond *conds, unsigned count, uint64_t deadline)
{
    uint64_t words[FAB_CONDS_MAX];
    return wait_for(rdma_of(ep), conds, count, deadline, words);
}

static int rdma_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen)
{
    struct fab_cond c[2];
    uint64_t words[2] = {0, 0};
    unsigned count = pair->width / 8u;
    for (unsigned i = 0; i < count; i++)
        c[i] = (struct fab_cond){
            .addr = pair->addr + 8 * i, .mask = (uint64_t)(pair->mask >> 64 * i), .value = (uint64_t)(pair->value >> 64 * i)};
    int rc = wait_for(rdma_of(ep), c, count, deadline, words);
    *seen = (u128)words[1] << 64 | words[0];
    return rc;
}

static int rdma_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned count, uint64_t deadline)
{
    struct fab_cond c[FAB_WATCH_MAX];
    for (unsigned i = 0; i < count; i++)
        c[i] = (struct fab_cond){.addr = addr + 8 * i, .mask = UINT64_MAX, .value = words[i]};
    return wait_for(rdma_of(ep), c, count, deadline, words);
}

/* ---- words of the session's own ---- */

int fab_rdma_set_own(struct fab_rdma *o, fab_addr base, uint64_t bytes)
{
    struct own_words own;
    int rc = own_make(&own, base, bytes);
    if (rc)
        return rc;
    pthread_mutex_lock(&o->mutex);
    own_free(&o->own);
    o->own = own;
    pthread_mutex_unlock(&o->mutex);
    return 0;
}

static void store_later(struct fab_rdma *o, fab_addr addr, uint64_t value)
{
    const struct fab_op op = {.verb = FAB_WRITE, .addr = addr, .buf = &value, .len = sizeof value};
    pthread_mutex_lock(&o->mutex);
    bool first = !o->open;
    rdma_store(o, &op);
    if (!o->io.pending)
        rdma_flush_now(o);
    pthread_mutex_unlock(&o->mutex);
    if (first && o->io.pending)
        o->io.pending(o->io.pending_ctx);
}

void fab_rdma_on_pending(struct fab_rdma *o, void (*pending)(void *ctx), void *ctx)
{
    o->io.pending = pending;
    o->io.pending_ctx = ctx;
}

static void rdma_post(struct fab_ep *ep, const struct fab_op *op)
{
    struct fab_rdma *o = rdma_of(ep);
    assert(op->verb == FAB_WRITE);
    pthread_mutex_lock(&o->mutex);
    rdma_store(o, op);
    rdma_flush_now(o);
    pthread_mutex_unlock(&o->mutex);
}

/* A word of the node's memory. Should the node not answer, it is 0, and the next verb says why. */
static uint64_t load_word(struct fab_ep *ep, fab_addr addr)
{
    uint64_t value = 0;
    return fab_read64(ep, addr, &value) ? 0 : value;
}

static uint64_t rdma_own(struct fab_ep *ep, enum fab_own how, fab_addr addr, uint64_t value)
{
    struct fab_rdma *o = rdma_of(ep);
    if (how == FAB_OWN_LOAD)
        return own_get(&o->own, addr, &value) ? value : load_word(ep, addr);
    if (!own_put(&o->own, addr, value) || how == FAB_OWN_STORE)
        store_later(o, addr, value);
    return 0;
}

static uint64_t rdma_local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    uint64_t old = 0;
    if (verb == FAB_READ)
        return load_word(ep, addr);
    if (verb == FAB_WRITE)
        store_later(rdma_of(ep), addr, value);
    else if (fab_atomic64(ep, verb, addr, compare, value, &old))
        return 0;
    return old;
}

static void rdma_local_fence(struct fab_ep *ep)
{
    (void)ep; /* later verbs are executed after the stores */
}

/* ---- the rest of the table ---- */

static int rdma_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned count)
{
    (void)ep, (void)addr, (void)mask, (void)count;
    return 0; /* waiters poll */
}

static int rdma_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len)
{
    (void)ep, (void)to, (void)data, (void)len;
    return -ENOTCONN;
}

static int rdma_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline)
{
    (void)out;
    return rdma_wait(ep, NULL, 0, deadline);
}

static int rdma_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    const struct fab_rdma *o = rdma_of(ep);
    return o->io.fence(o->io.ctx, peer, proof);
}

const struct fab_ops rdma_ops = {
    .batch = rdma_batch,
    .post = rdma_post,
    .wait = rdma_wait,
    .poll = rdma_poll,
    .watch = rdma_watch,
    .wake = rdma_wake,
    .send = rdma_send,
    .recv = rdma_recv,
    .fence = rdma_fence,
    .local = rdma_local,
    .own = rdma_own,
    .local_fence = rdma_local_fence,
};
