/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/lower.h"

#include <errno.h>

/* Each failed round means that another's succeeded; that many in a row means a broken fabric. */
#define ROUNDS_MAX 1000000

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

int fab_lower_masked(struct fab_ep *ep, struct fab_op *op)
{
    struct fab_op other = *op;
    if (fab_stand_in(ep->caps, &other)) {
        int rc = ep->ops->batch(ep, &other, 1);
        if (!rc)
            op->old = other.old;
        return rc;
    }
    const u128 all = op->width == 16 ? ~(u128)0 : UINT64_MAX;
    u128 word = op->compare & all;
    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        struct fab_op cas = whole_cas(op, word, all);
        int rc = ep->ops->batch(ep, &cas, 1);
        if (rc)
            return rc; /* the rounds before had no effect, so this one's outcome is the verb's */
        op->old = cas.old;
        bool refused = op->verb == FAB_CAS && (cas.old ^ op->compare) & op->compare_mask;
        if (cas.old == word || refused)
            return 0;
        word = cas.old;
    }
    return -EIO;
}
