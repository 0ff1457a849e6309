/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/lower.h"

#include <errno.h>

/* Each failed round means that another's succeeded; that many in a row means a broken fabric. */
#define ROUNDS_MAX 1000000

#define RIDERS_MAX 3u /* verbs that travel with another: designs have one */

u128 fab_verb_result(const struct fab_op *op, u128 word)
{
    switch (op->verb) {
    case FAB_CAS:
        if ((word & op->compare_mask) != (op->compare & op->compare_mask))
            return word;
        return (word & ~op->swap_mask) | (op->swap & op->swap_mask);
    case FAB_FAA:
        return masked_add128(word, op->swap, op->swap_mask);
    case FAB_SWAP:
        return (word & ~op->swap_mask) | (op->swap & op->swap_mask);
    default:
        assert(!"not an atomic");
        return word;
    }
}

bool fab_must_lower(uint32_t caps, const struct fab_op *op)
{
    static const uint32_t needs[FAB_VERBS] = {[FAB_CAS] = FAB_MASKED_CAS, [FAB_FAA] = FAB_MASKED_FAA, [FAB_SWAP] = FAB_MASKED_SWAP};
    return op->masked && !fab_has(caps, needs[op->verb]);
}

bool fab_stand_in(uint32_t caps, struct fab_op *op)
{
    if (op->verb == FAB_SWAP && fab_has(caps, FAB_MASKED_CAS)) {
        op->verb = FAB_CAS;
        op->compare_mask = 0;
        return true;
    }
    if (op->verb != FAB_CAS || op->compare_mask || !fab_has(caps, FAB_MASKED_SWAP))
        return false;
    op->verb = FAB_SWAP;
    return true;
}

/* A compare-and-swap of the whole word, from what it is believed to be to what the verb makes of it. */
static struct fab_op whole_cas(const struct fab_op *op, u128 believed, u128 all)
{
    return (struct fab_op){.verb = FAB_CAS,
                           .width = op->width,
                           .fence = op->fence,
                           .addr = op->addr,
                           .compare = believed,
                           .compare_mask = all,
                           .swap = fab_verb_result(op, believed) & all,
                           .swap_mask = all};
}

unsigned fab_riders(const struct fab_op *ops, unsigned n)
{
    unsigned riders = 0;
    while (riders + 1 < n && riders < RIDERS_MAX && ops[riders + 1].again)
        riders++;
    return riders;
}

/* The verb in place of the first, and the riders; their results go where they belong. */
static int together(struct fab_ep *ep, struct fab_op *ops, unsigned riders, const struct fab_op *first)
{
    struct fab_op trip[1 + RIDERS_MAX] = {*first};
    for (unsigned i = 1; i <= riders; i++) {
        assert(!ops[i].masked);
        trip[i] = ops[i];
    }
    int rc = ep->ops->batch(ep, trip, 1 + riders);
    for (unsigned i = 0; i <= riders && !rc; i++)
        ops[i].old = trip[i].old;
    return rc;
}

ONCE int fab_lower_masked(struct fab_ep *ep, struct fab_op *op, unsigned riders)
{
    struct fab_op other = *op;
    if (fab_stand_in(ep->caps, &other))
        return together(ep, op, riders, &other);
    const u128 all = op->width == 16 ? ~(u128)0 : UINT64_MAX;
    u128 word = op->compare & all;
    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        struct fab_op cas = whole_cas(op, word, all);
        int rc = together(ep, op, riders, &cas);
        if (rc)
            return rc; /* the rounds before had no effect, so this one's outcome is the verb's */
        bool refused = op->verb == FAB_CAS && (op->old ^ op->compare) & op->compare_mask;
        if (op->old == word || refused)
            return 0;
        word = op->old;
    }
    return -EIO;
}
