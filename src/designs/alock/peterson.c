/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/alock/turn.h"

#include <errno.h>

static fab_addr victim_addr(const struct turn *t)
{
    return t->lock + offsetof(struct alock, victim);
}

static uint64_t victim_word(struct turn *t)
{
    uint64_t times = ++t->victims & FIELD_MAX(19);
    return (uint64_t)t->cohort << ALOCK_VICTIM_SHIFT | t->me << 39 | t->h->serial << 19 | times;
}

/* victim := us (Algorithm 4, line 4). A local session may have been stopped, and nothing fences it: so by compare-and-swap, from
 * the value at a time when we certainly had the baton. The atomic is also the fence before the look at the other cohort. */
static int become_victim(struct turn *t)
{
    uint64_t mine = victim_word(t), was, w;
    struct fab_ep *ep = t->seat->ep;
    if (MISTAKE(t->seat->space->design->mistakes, ALOCK_UNFENCED)) {
        fab_local_store64(ep, victim_addr(t), mine);
        return 0;
    }
    do {
        was = fab_local_load64(ep, victim_addr(t));
        w = fab_local_load64(ep, t->word);
        if (alock_holder(w) != t->me)
            return -PAWL_ELOST;
    } while (fab_local_cas64(ep, victim_addr(t), was, mine) != was);
    return 0;
}

/* 1: the lock is ours (line 5): the other cohort has no leader, or it came after us. The tokens are read after that. */
static int look_across_local(struct turn *t, uint64_t *other)
{
    struct fab_ep *ep = t->seat->ep;
    *other = fab_local_load64(ep, alock_other_word(t));
    if (alock_holder(*other) && fab_local_load64(ep, victim_addr(t)) >> ALOCK_VICTIM_SHIFT == t->cohort)
        return 0;
    alock_read_token(t);
    return 1;
}

static int look_across_remote(struct turn *t, bool victim, uint64_t *other)
{
    uint64_t mine = victim ? victim_word(t) : 0, said, sum[3];
    struct fab_op ops[] = {
        {.verb = FAB_WRITE, .len = 8, .addr = victim_addr(t), .buf = &mine},
        {.verb = FAB_READ, .len = 8, .addr = alock_other_word(t), .buf = other},
        {.verb = FAB_READ, .len = 8, .addr = victim_addr(t), .buf = &said},
        {.verb = FAB_READ, .len = sizeof sum, .addr = t->lock + offsetof(struct alock, token), .buf = sum},
    };
    int rc = fab_batch(t->seat->ep, victim ? ops : ops + 1, countof(ops) - !victim);
    if (rc)
        return rc;
    if (alock_holder(*other) && said >> ALOCK_VICTIM_SHIFT == t->cohort)
        return 0;
    alock_set_token(t, sum);
    return 1;
}

void alock_look_across(struct turn *t, uint64_t *words, struct fab_op *ops)
{
    fab_local_store64(t->seat->ep, victim_addr(t), victim_word(t)); /* takes effect before these verbs */
    ops[0] = (struct fab_op){.verb = FAB_READ, .len = 8, .addr = alock_other_word(t), .buf = &words[0]};
    ops[1] = (struct fab_op){.verb = FAB_READ, .len = 8, .addr = victim_addr(t), .buf = &words[1]};
    ops[2] = (struct fab_op){.verb = FAB_READ, .len = 24, .addr = t->lock + offsetof(struct alock, token), .buf = &words[2]};
}

bool alock_won(struct turn *t, const uint64_t *words)
{
    if (alock_holder(words[0]) && words[1] >> ALOCK_VICTIM_SHIFT == t->cohort)
        return false;
    alock_set_token(t, words + 2);
    t->budget = t->seat->space->knobs.value[t->cohort];
    return true;
}

static int sleep_across(const struct turn *t, uint64_t other, uint64_t deadline)
{
    struct fab_cond conds[3] = {
        {.addr = alock_other_word(t), .mask = ALOCK_HOLDER_MASK, .value = alock_holder(other)},
        {.addr = victim_addr(t), .mask = UINT64_C(1) << ALOCK_VICTIM_SHIFT, .value = (uint64_t)t->cohort << ALOCK_VICTIM_SHIFT},
    };
    unsigned n = 2;
    if (seat_life_cond(t->seat, alock_slot(alock_holder(other)), &conds[n]))
        n++;
    uint64_t until = add_saturating(world_now(t->seat->world), t->seat->space->check_ns);
    int rc = fab_wait_any(t->seat->ep, conds, n, min_u64(until, deadline));
    bool looks_after = (rc == -ETIMEDOUT && until < deadline) || t->seat->ep->caps & FAB_KERNEL_LIFE;
    if (rc && !(rc == -ETIMEDOUT && until < deadline))
        return rc;
    if (!seat_lives(t->seat))
        return -PAWL_ELOST;
    return looks_after ? alock_look_after(t->seat, alock_holder(other)) : 0;
}

/* pReacquire (Algorithm 4). */
int alock_win_peterson(struct turn *t, uint64_t deadline)
{
    bool victim = false; /* we have written that we are */
    bool confirmed = false;
    for (;;) {
        uint64_t other = 0;
        int rc = t->cohort == COHORT_LOCAL && !victim ? become_victim(t) : 0;
        if (!rc)
            rc = t->cohort == COHORT_LOCAL ? look_across_local(t, &other) : look_across_remote(t, !victim, &other);
        victim |= rc >= 0;
        if (rc > 0)
            break;
        if (!rc && deadline == DEADLINE_TRY) {
            rc = -PAWL_EHELD;
        } else if (!rc && !confirmed) {
            rc = alock_confirm_place(t);
            confirmed = !rc;
        } else if (!rc) {
            rc = sleep_across(t, other, deadline);
        }
        if (rc && (rc = seat_retry(t->seat, rc)))
            return rc;
    }
    t->budget = t->seat->space->knobs.value[t->cohort];
    assert(t->budget && t->budget <= ALOCK_BUDGET_MAX);
    return 0;
}
