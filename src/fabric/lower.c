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

static int read_word(struct fab_ep *ep, const struct fab_op *op, u128 *word)
{
    uint64_t half;
    if (op->width == 16)
        return fab_read128(ep, op->addr, word);
    int rc = fab_read64(ep, op->addr, &half);
    if (!rc)
        *word = half;
    return rc;
}

int fab_lower_masked(struct fab_ep *ep, struct fab_op *op)
{
    u128 word;
    int rc = read_word(ep, op, &word);
    for (unsigned round = 0; !rc && round < ROUNDS_MAX; round++) {
        u128 all = op->width == 16 ? ~(u128)0 : UINT64_MAX;
        u128 next = fab_verb_result(op, word) & all;
        /* Even when nothing changes, the CAS makes what was read one moment's value. */
        struct fab_op cas = {.verb = FAB_CAS,
                             .width = op->width,
                             .addr = op->addr,
                             .compare = word,
                             .compare_mask = all,
                             .swap = next,
                             .swap_mask = all};
        rc = ep->ops->batch(ep, &cas, 1);
        if (!rc && cas.old == word) {
            op->old = word;
            return 0;
        }
        word = cas.old;
    }
    return rc ? rc : -EIO;
}
