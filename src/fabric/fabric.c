/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/fabric.h"
#include "fabric/lower.h"
#include "lib/text.h"

#include <errno.h>
#include <string.h>

const char *fab_cap_name(unsigned bit)
{
    static const char *const names[FAB_CAPS] = {"atomic128",    "masked-swap",   "masked-cas",  "masked-faa",
                                                "cpu-atomic64", "cpu-atomic128", "order-mixed", "order-write-after-read",
                                                "wait",         "shared-clock",  "kernel-life", "messages"};
    return bit < FAB_CAPS ? names[bit] : NULL;
}

bool fab_caps_parse(const char *list, uint32_t *caps)
{
    if (strcmp(list, "all") && strcmp(list, "none"))
        return bits_parse(list, fab_cap_name, caps);
    *caps = *list == 'a' ? (1u << FAB_CAPS) - 1 : 0;
    return true;
}

/* One verb through the table. */
static int one(struct fab_ep *ep, struct fab_op *op)
{
    if (fab_must_lower(ep->caps, op))
        return fab_lower_masked(ep, op, 0);
    return ep->ops->batch(ep, op, 1);
}

static int atomic64(struct fab_ep *ep, struct fab_op *op, uint64_t *old)
{
    op->width = 8;
    int rc = one(ep, op);
    if (!rc)
        *old = (uint64_t)op->old;
    return rc;
}

int fab_atomic64(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value, uint64_t *old)
{
    struct fab_op op = {.verb = (uint8_t)verb,
                        .addr = addr,
                        .compare = compare,
                        .compare_mask = UINT64_MAX,
                        .swap = value,
                        .swap_mask = verb == FAB_FAA ? 0 : UINT64_MAX};
    return atomic64(ep, &op, old);
}

static int atomic128(struct fab_ep *ep, struct fab_op *op, u128 *old)
{
    if (!(ep->caps & FAB_ATOMIC128))
        return -EOPNOTSUPP;
    op->width = 16;
    int rc = one(ep, op);
    if (!rc)
        *old = op->old;
    return rc;
}

int fab_read(struct fab_ep *ep, fab_addr addr, void *buf, uint16_t len)
{
    assert(len <= FAB_LEN_MAX && len % 8 == 0 && addr % 8 == 0);
    struct fab_op op = {.verb = FAB_READ, .addr = addr, .buf = buf, .len = len};
    return ep->ops->batch(ep, &op, 1);
}

int fab_write(struct fab_ep *ep, fab_addr addr, const void *buf, uint16_t len)
{
    assert(len <= FAB_LEN_MAX && len % 8 == 0 && addr % 8 == 0);
    struct fab_op op = {.verb = FAB_WRITE, .addr = addr, .buf = (void *)buf, .len = len};
    return ep->ops->batch(ep, &op, 1);
}

void fab_post(struct fab_ep *ep, fab_addr addr, const void *buf, uint16_t len)
{
    const struct fab_op op = {.verb = FAB_WRITE, .addr = addr, .buf = (void *)buf, .len = len};
    assert(len <= FAB_LEN_MAX && len % 8 == 0 && addr % 8 == 0);
    ep->ops->post(ep, &op);
}

int fab_mcas64(struct fab_ep *ep, fab_addr addr, uint64_t compare, uint64_t compare_mask, uint64_t swap, uint64_t swap_mask,
               uint64_t *old)
{
    struct fab_op op = {.verb = FAB_CAS,
                        .masked = true,
                        .addr = addr,
                        .compare = compare,
                        .compare_mask = compare_mask,
                        .swap = swap,
                        .swap_mask = swap_mask};
    return atomic64(ep, &op, old);
}

int fab_mfaa64(struct fab_ep *ep, fab_addr addr, uint64_t add, uint64_t top, uint64_t *old)
{
    struct fab_op op = {.verb = FAB_FAA, .masked = true, .addr = addr, .swap = add, .swap_mask = top};
    return atomic64(ep, &op, old);
}

int fab_read128(struct fab_ep *ep, fab_addr addr, u128 *value)
{
    uint64_t half[2];
    int rc = fab_read(ep, addr, half, sizeof half);
    if (!rc)
        *value = (u128)half[1] << 64 | half[0];
    return rc;
}

#define ALL128 (~(u128)0)

int fab_cas128(struct fab_ep *ep, fab_addr addr, u128 expect, u128 desired, u128 *old)
{
    struct fab_op op = {
        .verb = FAB_CAS, .addr = addr, .compare = expect, .compare_mask = ALL128, .swap = desired, .swap_mask = ALL128};
    return atomic128(ep, &op, old);
}

int fab_faa128(struct fab_ep *ep, fab_addr addr, u128 add, u128 *old)
{
    struct fab_op op = {.verb = FAB_FAA, .addr = addr, .swap = add};
    return atomic128(ep, &op, old);
}

int fab_swap128(struct fab_ep *ep, fab_addr addr, u128 value, u128 *old)
{
    struct fab_op op = {.verb = FAB_SWAP, .addr = addr, .swap = value, .swap_mask = ALL128};
    return atomic128(ep, &op, old);
}

int fab_mcas128(struct fab_ep *ep, fab_addr addr, u128 compare, u128 compare_mask, u128 swap, u128 swap_mask, u128 *old)
{
    struct fab_op op = {.verb = FAB_CAS,
                        .masked = true,
                        .addr = addr,
                        .compare = compare,
                        .compare_mask = compare_mask,
                        .swap = swap,
                        .swap_mask = swap_mask};
    return atomic128(ep, &op, old);
}

int fab_mfaa128(struct fab_ep *ep, fab_addr addr, u128 add, u128 top, u128 *old)
{
    struct fab_op op = {.verb = FAB_FAA, .masked = true, .addr = addr, .swap = add, .swap_mask = top};
    return atomic128(ep, &op, old);
}

int fab_batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    assert(n <= FAB_BATCH_MAX);
    unsigned from = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!fab_must_lower(ep->caps, &ops[i]) || fab_stand_in(ep->caps, &ops[i]))
            continue;
        int rc = from < i ? ep->ops->batch(ep, ops + from, i - from) : 0;
        unsigned riders = fab_riders(&ops[i], n - i);
        if (!rc)
            rc = fab_lower_masked(ep, &ops[i], riders);
        if (rc)
            return rc;
        i += riders;
        from = i + 1;
    }
    return from < n ? ep->ops->batch(ep, ops + from, n - from) : 0;
}

/* Whether `later` may pass `earlier` on some fabric. */
static bool may_pass(const struct fab_op *earlier, const struct fab_op *later)
{
    bool atomics = earlier->verb > FAB_WRITE && later->verb > FAB_WRITE;
    return earlier->verb != later->verb && !atomics && !(earlier->verb == FAB_WRITE && later->verb == FAB_READ);
}

void fab_keep_order(const struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    if (fab_has(ep->caps, FAB_ORDERED))
        return;
    /* A fenced verb is behind all before it, so later ones need only not pass that one, or those after it. */
    for (unsigned i = 1, from = 0; i < n; i++) {
        bool passes = false;
        for (unsigned k = from; k < i; k++)
            passes |= may_pass(&ops[k], &ops[i]);
        ops[i].fence |= passes;
        if (ops[i].fence)
            from = i;
    }
}

HANDOVER int fab_wait_any(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    assert(n <= FAB_CONDS_MAX);
    return ep->ops->wait(ep, conds, n, deadline);
}

int fab_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen)
{
    assert(ep->ops->poll && (pair->width == 8 || pair->width == 16));
    return ep->ops->poll(ep, pair, deadline, seen);
}

int fab_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned n, uint64_t deadline)
{
    assert(ep->ops->watch && n > 0 && n <= FAB_WATCH_MAX);
    return ep->ops->watch(ep, addr, words, n, deadline);
}

void fab_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n)
{
    ep->ops->wake(ep, addr, mask, n);
}

int fab_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len)
{
    return len > FAB_MSG_MAX ? -EMSGSIZE : ep->ops->send(ep, to, data, len);
}

int fab_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline)
{
    return ep->ops->recv(ep, out, deadline);
}

int fab_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    return ep->ops->fence(ep, peer, proof);
}
