/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/near.h"
#include "fabric/parking.h"
#include "fabric/shm.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define SPIN_NS (50 * NS_PER_US) /* as the endpoint over UDP looks again and again before it sleeps */
#define NAP_NS (100 * NS_PER_US) /* between two looks */

static struct fab_near *near_of(struct fab_ep *ep)
{
    return container_of(ep, struct fab_near, ep);
}

static bool is_slot(const struct fab_near *n, fab_addr addr)
{
    uint64_t offset = FAB_OFFSET(addr);
    return offset >= n->slots && offset < n->slots_end;
}

static int dead(const struct fab_near *n)
{
    return __atomic_load_n(n->dead, __ATOMIC_RELAXED);
}

static int near_batch(struct fab_ep *ep, struct fab_op *ops, unsigned count)
{
    struct fab_near *n = near_of(ep);
    bool through_node = !(ep->caps & FAB_CPU_ATOMIC64);
    for (unsigned i = 0; i < count; i++)
        through_node |= is_slot(n, ops[i].addr);
    if (through_node)
        return n->far->ops->batch(n->far, ops, count);
    int rc = dead(n);
    for (unsigned i = 0; i < count && !rc; i++) {
        struct fab_op here = ops[i];
        if (FAB_OFFSET(here.addr) >= n->memory.size)
            return -EFAULT;
        here.addr = FAB_OFFSET(here.addr);
        rc = fab_shm_batch(&n->memory, &here, 1);
        ops[i].old = here.old;
    }
    return rc;
}

static void near_post(struct fab_ep *ep, const struct fab_op *op)
{
    struct fab_op write = *op;
    near_batch(ep, &write, 1); /* an error surfaces at the next verb */
}

static uint64_t *word_of(const struct fab_near *n, fab_addr addr)
{
    uint64_t offset = FAB_OFFSET(addr);
    assert(offset < n->memory.size);
    return (uint64_t *)(void *)(n->memory.base + offset);
}

/* A process is not kept from these, whatever the node has told it: it could have been stopped just before. */
static uint64_t near_local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    uint64_t *word = word_of(near_of(ep), addr);
    switch (verb) {
    case FAB_READ:
        return __atomic_load_n(word, __ATOMIC_ACQUIRE);
    case FAB_CAS:
        __atomic_compare_exchange_n(word, &compare, value, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
        return compare;
    case FAB_FAA:
        return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
    case FAB_SWAP:
        return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
    default:
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
        return 0;
    }
}

static uint64_t near_own(struct fab_ep *ep, enum fab_own how, fab_addr addr, uint64_t value)
{
    if (how != FAB_OWN_LOAD && dead(near_of(ep)))
        return 0; /* the next verb says why */
    return near_local(ep, how == FAB_OWN_LOAD ? FAB_READ : FAB_WRITE, addr, 0, value);
}

static void near_local_fence(struct fab_ep *ep)
{
    (void)ep;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- waiting ---- */

static bool holds(const struct fab_near *n, const struct fab_cond *c)
{
    return (__atomic_load_n(word_of(n, c->addr), __ATOMIC_ACQUIRE) & c->mask) == c->value;
}

static int near_wait(struct fab_ep *ep, const struct fab_cond *conds, unsigned count, uint64_t deadline)
{
    const struct fab_near *n = near_of(ep);
    const struct timespec nap = {.tv_nsec = NAP_NS};
    for (uint64_t begin = world_now(ep->world), now = begin;; now = world_now(ep->world)) {
        for (unsigned i = 0; i < count; i++)
            if (!holds(n, &conds[i]))
                return 0;
        if (dead(n))
            return dead(n);
        struct fab_parking *fiber = fab_parking_get();
        if (fiber) { /* it is told that it was cancelled, too, even at the deadline */
            fiber->seen = __atomic_load_n(n->changes, __ATOMIC_ACQUIRE);
            int rc = fiber->park(fiber, min_u64(deadline, now + NAP_NS), true);
            if (rc)
                return rc;
        }
        if (now >= deadline)
            return -ETIMEDOUT;
        if (!fiber && now - begin > SPIN_NS)
            nanosleep(&nap, NULL);
    }
}

static int near_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen)
{
    const struct fab_near *n = near_of(ep);
    unsigned count = pair->width / 8u;
    struct fab_cond c[2] = {{0}};
    uint64_t words[2] = {0, 0};
    for (unsigned i = 0; i < count; i++)
        c[i] = (struct fab_cond){
            .addr = pair->addr + 8 * i, .mask = (uint64_t)(pair->mask >> 64 * i), .value = (uint64_t)(pair->value >> 64 * i)};
    int rc = near_wait(ep, c, count, deadline);
    for (unsigned i = 0; i < count; i++)
        words[i] = __atomic_load_n(word_of(n, c[i].addr), __ATOMIC_ACQUIRE);
    *seen = (u128)words[1] << 64 | words[0];
    return rc;
}

static int near_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned count, uint64_t deadline)
{
    struct fab_cond c[FAB_WATCH_MAX] = {{0}};
    for (unsigned i = 0; i < count; i++)
        c[i] = (struct fab_cond){.addr = addr + 8 * i, .mask = UINT64_MAX, .value = words[i]};
    int rc = near_wait(ep, c, count, deadline);
    for (unsigned i = 0; i < count; i++)
        words[i] = __atomic_load_n(word_of(near_of(ep), c[i].addr), __ATOMIC_ACQUIRE);
    return rc;
}

/* ---- the rest of the table ---- */

static int near_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned count)
{
    (void)ep, (void)addr, (void)mask, (void)count;
    return 0; /* waiters poll */
}

static int near_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len)
{
    (void)ep, (void)to, (void)data, (void)len;
    return -ENOTCONN;
}

static int near_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline)
{
    (void)out;
    return near_wait(ep, NULL, 0, deadline);
}

static int near_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    struct fab_near *n = near_of(ep);
    return n->far->ops->fence(n->far, peer, proof);
}

static const struct fab_ops near_ops = {
    .batch = near_batch,
    .post = near_post,
    .wait = near_wait,
    .poll = near_poll,
    .watch = near_watch,
    .wake = near_wake,
    .send = near_send,
    .recv = near_recv,
    .fence = near_fence,
    .local = near_local,
    .own = near_own,
    .local_fence = near_local_fence,
};

void fab_near_init(struct fab_near *n, const struct fab_near_way *way, fab_addr slots, fab_addr slots_end)
{
    *n = (struct fab_near){
        .ep = *way->far, .far = way->far, .dead = way->dead, .changes = way->changes, .slots = slots, .slots_end = slots_end};
    n->ep.ops = &near_ops;
    fab_shm_init(&n->memory, way->base, way->far->size);
}
