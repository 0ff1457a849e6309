/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/alock/turn.h"
#include "lib/hash.h"

#include <errno.h>

#define LINK_WAIT_LOCAL_NS (20 * NS_PER_US)   /* a successor is some instructions from linking itself, unless it was stopped */
#define LINK_WAIT_REMOTE_NS (200 * NS_PER_US) /* or some round trips; then its cohort queues up again */
#define WAKE_ALL UINT16_MAX
#define UPPER FIELD_MASK(32, 32)
#define LOWER FIELD_MAX(32)

/* ---- links and grants: hints, marked so that those meant for others are recognised ---- */

/* A descriptor's memory may have belonged to another session before, whose name still stands in a queue, so a write may be meant
 * for that session. So a link names the hold that it is meant for, and so does a grant: slot, epoch and serial are unique. */
#define LINK_TAG_SHIFT ALOCK_WHO_BITS
static uint64_t link_tag(const struct turn *t, uint64_t to)
{
    return mix64(t->h->index << ALOCK_WHO_BITS ^ to ^ mix64(t->era)) >> LINK_TAG_SHIFT;
}

static uint64_t link_word(const struct turn *t, uint64_t to)
{
    return link_tag(t, to) << LINK_TAG_SHIFT | t->me;
}

#define GRANT_BUDGET_MASK UINT64_C(0xff)
static uint64_t grant_word(const struct turn *t)
{
    return UINT64_C(1) << 63 | (uint64_t)t->seat->me->slot << 50 | (uint64_t)t->seat->me->epoch << 28 | t->h->serial << 8;
}

/* Words that go with a grant carry a mark of the hold: if a link for another lock was written between the words of the right one,
 * the predecessor notifies the wrong hold, which must recognise that. */
#define COUNT_BITS 44
static void mark_counts(const struct turn *t, uint64_t grant, uint64_t to, uint64_t counts[2])
{
    uint64_t mark = mix64(grant ^ mix64(t->h->index << ALOCK_ERA_BITS ^ t->era ^ to << 40));
    counts[0] |= mark >> COUNT_BITS << COUNT_BITS;
    counts[1] |= mark << COUNT_BITS;
}

static bool grant_is_for(const struct turn *t, uint64_t grant)
{
    return (grant & ~GRANT_BUDGET_MASK) == grant_word(t);
}

static int home_of(const struct turn *t, uint64_t who, fab_addr *desc)
{
    fab_addr home;
    int rc = alock_load(t->seat, t->cohort, space_slot_addr(t->seat->space, alock_slot(who)) + offsetof(struct slot, home), &home);
    if (!rc)
        *desc = home + ((who - 1) & FIELD_MAX(12)) * t->seat->space->desc_size;
    return rc;
}

/* Links us to the predecessor (Algorithm 3, line 8). If that fails, the predecessor waits in vain for a while and then drops the
 * queue: only the order is lost. */
static int link_to(const struct turn *t, uint64_t pred)
{
    fab_addr desc;
    int rc = home_of(t, pred, &desc);
    if (rc)
        return rc;
    struct fab_ep *ep = t->seat->ep;
    uint64_t link = link_word(t, pred), mine[] = {t->desc, grant_word(t)};
    if (t->cohort == COHORT_LOCAL) {
        fab_local_store64(ep, desc + OWN(next_desc), mine[0]);
        fab_local_store64(ep, desc + OWN(next_grant), mine[1]);
        fab_local_store64(ep, desc + OWN(next), link);
        fab_wake(ep, desc + OWN(next), UPPER, WAKE_ALL);
        return 0;
    }
    struct fab_op ops[] = {
        {.verb = FAB_WRITE, .len = sizeof mine, .addr = desc + OWN(next_desc), .buf = mine},
        {.verb = FAB_WRITE, .len = 8, .addr = desc + OWN(next), .buf = &link},
    };
    rc = fab_batch(ep, ops, countof(ops));
    return rc == -FAB_EUNKNOWN ? 0 : rc;
}

/* Tells the successor that it has the baton (line 18). If that fails, the successor finds out by looking at the word. */
static void notify(const struct turn *t, uint64_t to, fab_addr desc, uint64_t grant, unsigned budget)
{
    struct fab_ep *ep = t->seat->ep;
    uint64_t count = t->count + 1, skips = t->token - t->seat->space->token_base - count; /* token = base + count + skips + 1 */
    if (!budget || count > FIELD_MAX(COUNT_BITS) || skips > FIELD_MAX(COUNT_BITS))
        budget = count = skips = 0; /* the successor finds the token where it is */
    uint64_t counts[] = {count, skips};
    mark_counts(t, grant, to, counts);
    grant |= budget;
    if (t->cohort == COHORT_LOCAL) {
        fab_local_store64(ep, desc + OWN(grant), grant);
        fab_wake(ep, desc + OWN(grant), LOWER, WAKE_ALL);
        return;
    }
    struct fab_op ops[] = {
        {.verb = FAB_WRITE, .len = sizeof counts, .addr = desc + OWN(count), .buf = counts},
        {.verb = FAB_WRITE, .len = 8, .addr = desc + OWN(grant), .buf = &grant},
    };
    fab_batch(ep, ops, countof(ops));
}

/* ---- the cohort's queue ---- */

/* Drops the queue of our era, ourselves with it. 0: we are out of it; 1: we have the baton.
 *
 * We are out once we have seen that the era has ended, by our own step or another's. Before that, others may hand us the baton,
 * which would be stuck with a hold whose record may be closed. A step that failed, or whose outcome is unknown, does not show that:
 * the next look at the word does. */
ONCE int alock_drop_queue(struct turn *t)
{
    for (uint64_t old = 0;;) {
        uint64_t w;
        int rc = alock_load(t->seat, t->cohort, t->word, &w);
        if (rc)
            return rc;
        if (alock_holder(w) == t->me)
            return 1;
        if (alock_era(w) != t->era)
            break;
        rc = alock_cas(t->seat, t->cohort, t->word, w, alock_word(t->era + 1, 0, alock_holder(w)), &old);
        if (!rc && old == w) {
            fab_wake(t->seat->ep, t->word, ALOCK_ERA_MASK, WAKE_ALL);
            break;
        }
        bool hearsay = MISTAKE(t->seat->space->design->mistakes, ALOCK_HEARSAY) && rc == -FAB_EUNKNOWN && old == w;
        if (rc && (rc = seat_retry(t->seat, rc)))
            return rc;
        if (hearsay)
            break;
    }
    t->queued = false;
    return 0;
}

/* The connection broke while we were queueing up: 1: we have the baton, 2: we are the last of the queue, 0: we are not in it. */
ONCE static int queued_or_not(struct turn *t, uint64_t before)
{
    uint64_t w;
    int rc = alock_load(t->seat, t->cohort, t->word, &w);
    if (rc)
        return rc;
    if (alock_holder(w) == t->me)
        return 1;
    if (alock_tail(w) == t->me && alock_era(w) == t->era)
        return 2;
    if (w != before)
        return alock_drop_queue(t); /* others may have joined behind us, or instead of us */
    t->queued = false;
    return 0;
}

void alock_clear(const struct turn *t)
{
    alock_own_store(t, OWN(next), 0);
    alock_own_store(t, OWN(grant), 0);
}

/* Joins the queue (Algorithm 3, lines 2 to 8; the swap is a compare-and-swap with what was learnt). 1: with the baton. */
int alock_join(struct turn *t)
{
    uint64_t w = t->seen, old = 0;
    assert(!t->queued); /* I11: no place in a queue is left behind */
    alock_clear(t);
    int rc = t->looked ? 0 : alock_load(t->seat, t->cohort, t->word, &w);
    t->looked = false;
    while (!rc) {
        uint64_t holder = alock_holder(w), tail = alock_tail(w);
        bool empty = !holder && !tail;
        t->era = alock_era(w);
        t->queued = true;
        rc = alock_cas(t->seat, t->cohort, t->word, w, alock_word(t->era, t->me, empty ? t->me : holder), &old);
        if (rc == -FAB_EUNKNOWN) {
            rc = seat_retry(t->seat, rc);
            int is = rc ? rc : queued_or_not(t, w);
            if (is == 0) {
                rc = alock_load(t->seat, t->cohort, t->word, &w);
                continue;
            }
            if (is == 1 || is < 0)
                return is;
            old = w;
            rc = 0;
        }
        if (!rc && old == w) {
            t->first = !empty && !tail;
            return empty ? 1 : tail ? link_to(t, tail) : 0;
        }
        if (!rc)
            t->queued = false;
        w = old;
    }
    return rc;
}

/* Whether the turn has come. 1: we have the baton; 0: not yet; -ESTALE: the queue was dropped. */
static int look(struct turn *t, uint64_t *seen)
{
    uint64_t w, old;
    int rc = alock_load(t->seat, t->cohort, t->word, &w);
    if (rc)
        return rc;
    bool still = w == *seen;
    *seen = w;
    if (alock_holder(w) == t->me)
        return 1;
    if (alock_era(w) != t->era) {
        t->queued = false;
        return -ESTALE;
    }
    if (alock_holder(w))
        return 0;
    if (t->first) {
        rc = alock_cas(t->seat, t->cohort, t->word, w, alock_word(t->era, alock_tail(w), t->me), &old);
        return rc ? seat_retry(t->seat, rc) : old == w;
    }
    if (!still)
        return 0;
    rc = alock_drop_queue(t); /* the hold whose turn it is does not take it: it is dead */
    return rc ? rc : -ESTALE;
}

/* The predecessor's hint. 1: we have the baton, with its budget and tokens. */
static int read_grant(struct turn *t, uint64_t *seen)
{
    uint64_t grant, w;
    int rc = alock_own_load(t, OWN(grant), &grant);
    if (rc)
        return rc;
    *seen = grant;
    if (!grant_is_for(t, grant))
        return 0;
    unsigned budget = (unsigned)(grant & GRANT_BUDGET_MASK);
    if (t->cohort == COHORT_LOCAL) { /* the writer may have been stopped long ago, and a look at the word costs little */
        rc = alock_load(t->seat, t->cohort, t->word, &w);
        if (rc || alock_holder(w) != t->me)
            return rc;
        alock_read_token(t);
        t->budget = budget;
        return 1;
    }
    uint64_t count, skips;
    rc = alock_own_load(t, OWN(count), &count);
    if (!rc)
        rc = alock_own_load(t, OWN(skips), &skips);
    if (rc)
        return rc;
    const uint64_t sum[3] = {field_get(count, 0, COUNT_BITS), field_get(skips, 0, COUNT_BITS), 0};
    uint64_t expected[2] = {sum[0], sum[1]};
    mark_counts(t, grant_word(t), t->me, expected);
    if (count != expected[0] || skips != expected[1])
        return 0;
    alock_set_token(t, sum);
    t->budget = budget;
    return 1;
}

/* Sleeps until the predecessor's hint comes, the queue is dropped, or it is time to look. 1: it is time. */
static int sleep_in_queue(const struct turn *t, uint64_t grant, uint64_t w, uint64_t deadline)
{
    struct fab_cond conds[4];
    unsigned n = 0;
    if (t->first)
        conds[n++] = (struct fab_cond){.addr = t->word, .mask = ALOCK_HOLDER_MASK, .value = alock_holder(w)};
    else
        conds[n++] = (struct fab_cond){.addr = t->desc + OWN(grant), .mask = LOWER, .value = grant & LOWER};
    if (t->cohort == COHORT_LOCAL)
        conds[n++] = (struct fab_cond){.addr = t->word, .mask = ALOCK_ERA_MASK, .value = t->era << ALOCK_ERA_SHIFT};
    if (alock_holder(w) && seat_life_cond(t->seat, alock_slot(alock_holder(w)), &conds[n]))
        n++;
    uint64_t until = add_saturating(world_now(t->seat->world), t->seat->space->check_ns);
    int rc = fab_wait_any(t->seat->ep, conds, n, min_u64(until, deadline));
    return rc == -ETIMEDOUT && until < deadline ? 1 : rc;
}

/* Waits for the baton (Algorithm 3, line 9). 1: we have it; -ESTALE: queue up again. */
int alock_await_baton(struct turn *t, uint64_t deadline)
{
    uint64_t seen = 0, grant = 0;
    assert(t->queued);                                         /* I5: the record has named the place since before the queue did */
    bool time_to_look = t->first || t->cohort == COHORT_LOCAL; /* else the hint comes without a look across the network */
    for (;;) {
        int rc = t->first ? 0 : read_grant(t, &grant);
        if (!rc && time_to_look)
            rc = look(t, &seen);
        if (rc)
            return rc;
        rc = sleep_in_queue(t, grant, seen, deadline);
        time_to_look = rc > 0 || t->first || t->cohort == COHORT_LOCAL;
        bool looks_after = rc > 0 || t->seat->ep->caps & FAB_KERNEL_LIFE;
        if (rc < 0 && (rc = seat_retry(t->seat, rc)))
            return rc;
        if (!seat_lives(t->seat))
            return -PAWL_ELOST; /* a lost session is not granted the lock (I8), so it need not wait */
        if (looks_after && alock_holder(seen) && (rc = seat_retry(t->seat, alock_look_after(t->seat, alock_holder(seen)))))
            return rc;
    }
}

/* ---- giving the baton away ---- */

/* The successor's link, if it has one in this era. */
static int read_link(const struct turn *t, uint64_t *link)
{
    int rc = alock_own_load(t, OWN(next), link);
    return rc ? rc : (*link & ALOCK_HOLDER_MASK && *link >> LINK_TAG_SHIFT == link_tag(t, t->me));
}

static int await_link(const struct turn *t, uint64_t *link)
{
    uint64_t wait_ns = t->cohort == COHORT_LOCAL ? LINK_WAIT_LOCAL_NS : LINK_WAIT_REMOTE_NS;
    uint64_t until = add_saturating(world_now(t->seat->world), wait_ns);
    for (;;) {
        int rc = read_link(t, link);
        if (rc)
            return rc;
        rc = fab_wait(t->seat->ep, t->desc + OWN(next), UPPER, *link & UPPER, until);
        if (rc && rc != -ECANCELED) /* a release is not cancelled */
            return rc == -ETIMEDOUT ? read_link(t, link) : rc;
    }
}

/* One step from what the word says. 1: given away; 0: look again. */
static int give_step(const struct turn *t, uint64_t w, unsigned budget)
{
    uint64_t era = alock_era(w), tail = alock_tail(w), link = 0, old, next;
    bool hands_over = false;
    if (era != t->era) {
        next = alock_word(era, tail, 0); /* the first of the new era takes it */
    } else if (tail == t->me) {
        next = alock_word(era, 0, 0);
    } else {
        int rc = await_link(t, &link);
        if (rc < 0)
            return rc;
        hands_over = rc > 0;
        next = hands_over ? alock_word(era, tail, link & ALOCK_HOLDER_MASK) : alock_word(era + 1, 0, 0);
    }
    uint64_t desc = 0, grant = 0;
    int rc = hands_over ? alock_own_load(t, OWN(next_desc), &desc) : 0;
    if (!rc && hands_over)
        rc = alock_own_load(t, OWN(next_grant), &grant);
    if (!rc)
        rc = alock_cas(t->seat, t->cohort, t->word, w, next, &old);
    if (rc == -FAB_EUNKNOWN) {
        rc = seat_retry(t->seat, rc);
        if (!rc)
            rc = alock_load(t->seat, t->cohort, t->word, &old);
        if (!rc && alock_holder(old) != t->me)
            old = w; /* while we live only we take ourselves out */
        else
            old = ~w;
    }
    if (rc || old != w)
        return rc;
    if (hands_over)
        notify(t, link & ALOCK_HOLDER_MASK, desc, grant & ~GRANT_BUDGET_MASK, budget);
    else if (tail != t->me) /* else there is no waiter; those of the other cohort are not woken */
        fab_wake(t->seat->ep, t->word, alock_era(next) == era ? ALOCK_HOLDER_MASK : ALOCK_ERA_MASK, WAKE_ALL);
    return 1;
}

/* Hands the baton on, or puts it down (Algorithm 3, lines 14 to 18). `budget` is the successor's. */
int alock_give_baton(const struct turn *t, unsigned budget)
{
    for (;;) {
        uint64_t w;
        int rc = alock_load(t->seat, t->cohort, t->word, &w);
        if (!rc && alock_holder(w) != t->me)
            return seat_lives(t->seat) ? -PAWL_ENOTOWNER : -PAWL_ELOST;
        if (!rc)
            rc = give_step(t, w, budget);
        if (rc > 0)
            return 0;
        if (rc && (rc = seat_retry(t->seat, rc)))
            return rc;
    }
}
