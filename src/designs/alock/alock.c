#include "designs/alock/alock.h"
#include "designs/all.h"
#include "lib/hash.h"

#include <errno.h>

unsigned alock_budget[COHORTS] = {ALOCK_BUDGET_LOCAL, ALOCK_BUDGET_REMOTE};

#define LINK_WAIT_LOCAL_NS (20 * NS_PER_US)   /* a successor is some instructions from linking itself, unless it was stopped */
#define LINK_WAIT_REMOTE_NS (200 * NS_PER_US) /* or some round trips; then its cohort queues up again */
#define WAKE_ALL UINT16_MAX
#define UPPER FIELD_MASK(32, 32)
#define LOWER FIELD_MAX(32)

/* One attempt to get the lock, or one hold that ends. */
struct turn {
    const struct seat *seat;
    const struct hold *h;
    enum cohort cohort;
    fab_addr lock, word, desc;
    uint64_t me;
    uint64_t era;     /* of the queue that it is in */
    bool queued;      /* it may be in the queue, or hold the baton */
    bool first;       /* it is the first of its era, behind a holder of an earlier one */
    bool unfenced;    /* wrong on purpose */
    unsigned budget;  /* 0: the Peterson lock is not ours (any more) */
    uint64_t count;   /* the lock's `token` as it is during this hold */
    uint64_t token;   /* of the grant */
    uint32_t victims; /* how many times it has been the victim */
};

static struct turn turn_of(const struct seat *seat, const struct hold *h)
{
    struct turn t = {.seat = seat, .h = h, .lock = space_lock_addr(seat->space, h->index)};
    t.cohort = alock_cohort_of(t.lock, seat->ep->node);
    t.word = t.lock + offsetof(struct alock, cohort) + t.cohort * sizeof(uint64_t);
    t.desc = seat_desc_addr(seat, h->record);
    t.me = alock_who(seat->me->slot, h->record);
    return t;
}

/* ---- access ---- */

int alock_load(const struct seat *seat, enum cohort c, fab_addr addr, uint64_t *value)
{
    if (c == COHORT_LOCAL) {
        *value = fab_local_load64(seat->ep, addr);
        return 0;
    }
    for (;;) {
        int rc = fab_read64(seat->ep, addr, value);
        if (!rc || (rc = seat_retry(seat, rc)))
            return rc;
    }
}

int alock_cas(const struct seat *seat, enum cohort c, fab_addr addr, uint64_t expect, uint64_t desired, uint64_t *old)
{
    if (c == COHORT_REMOTE)
        return fab_cas64(seat->ep, addr, expect, desired, old);
    *old = fab_local_cas64(seat->ep, addr, expect, desired);
    return 0;
}

static bool own_memory(const struct turn *t)
{
    return FAB_NODE(t->desc) == t->seat->ep->node;
}

/* The own descriptor: by CPU where it lies on the own node. */
static int own_load(const struct turn *t, size_t offset, uint64_t *value)
{
    return alock_load(t->seat, own_memory(t) ? COHORT_LOCAL : COHORT_REMOTE, t->desc + offset, value);
}

static int own_store(const struct turn *t, size_t offset, uint64_t value)
{
    if (own_memory(t)) {
        fab_local_store64(t->seat->ep, t->desc + offset, value);
        return 0;
    }
    for (;;) {
        int rc = fab_write64(t->seat->ep, t->desc + offset, value);
        if (!rc || (rc = seat_retry(t->seat, rc)))
            return rc;
    }
}

#define OWN(field) offsetof(struct alock_desc, field)

/* ---- links and grants: hints, marked so that those meant for others are recognised ---- */

/* A descriptor's memory may have belonged to another session before, which still stands in a queue: who writes there may mean that
 * one. So a link names whom it is meant for, and a grant the hold: slot, epoch and serial are no other's. */
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

/* What goes with a grant, marked with what the predecessor knows of it: a link to it that was meant for another lock may have come
 * between the words of the right one, and then it tells the wrong hold. */
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

/* Tells the predecessor who comes next (Algorithm 3, line 8). If that fails, it waits in vain for a while and then drops the
 * queue: nothing is lost but the order. */
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

/* Tells the successor that the baton is its own (line 18). If that fails, it finds out by looking at the word. */
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

/* Drops the queue of our era, ourselves with it. 0: we are out of it; 1: we have the baton. */
static int drop_queue(struct turn *t)
{
    for (;;) {
        uint64_t w, old;
        int rc = alock_load(t->seat, t->cohort, t->word, &w);
        if (rc)
            return rc;
        if (alock_holder(w) == t->me)
            return 1;
        if (alock_era(w) == t->era) {
            rc = alock_cas(t->seat, t->cohort, t->word, w, alock_word(t->era + 1, 0, alock_holder(w)), &old);
            if (!rc && old == w)
                fab_wake(t->seat->ep, t->word, ALOCK_ERA_MASK, WAKE_ALL);
            else if (rc && (rc = seat_retry(t->seat, rc)))
                return rc;
            if (rc || old != w)
                continue;
        }
        t->queued = false;
        return 0;
    }
}

/* The connection broke while we were queueing up: 1: we have the baton, 2: we are the last of the queue, 0: we are not in it. */
static int queued_or_not(struct turn *t, uint64_t before)
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
        return drop_queue(t); /* others may have come behind us, or instead of us */
    t->queued = false;
    return 0;
}

/* Joins the queue (Algorithm 3, lines 2 to 8; the swap is a compare-and-swap with what was learnt). 1: with the baton. */
static int join(struct turn *t)
{
    uint64_t w, old = 0;
    int rc = own_store(t, OWN(next), 0);
    if (!rc)
        rc = own_store(t, OWN(grant), 0);
    if (!rc)
        rc = alock_load(t->seat, t->cohort, t->word, &w);
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
    rc = drop_queue(t); /* whose turn it is does not come: it is dead */
    return rc ? rc : -ESTALE;
}

static void set_token(struct turn *t, const uint64_t sum[3])
{
    t->count = sum[0];
    t->token = t->seat->space->token_base + sum[0] + sum[1] + sum[2] + 1;
}

/* For a local one, that has the lock. */
static void read_token(struct turn *t)
{
    uint64_t sum[3];
    for (unsigned i = 0; i < countof(sum); i++)
        sum[i] = fab_local_load64(t->seat->ep, t->lock + offsetof(struct alock, token) + i * sizeof *sum);
    set_token(t, sum);
}

/* The predecessor's hint. 1: we have the baton, with its budget and tokens. */
static int read_grant(struct turn *t, uint64_t *seen)
{
    uint64_t grant, w;
    int rc = own_load(t, OWN(grant), &grant);
    if (rc)
        return rc;
    *seen = grant;
    if (!grant_is_for(t, grant))
        return 0;
    unsigned budget = (unsigned)(grant & GRANT_BUDGET_MASK);
    if (t->cohort == COHORT_LOCAL) { /* who wrote it may have been stopped long ago; a look costs next to nothing */
        rc = alock_load(t->seat, t->cohort, t->word, &w);
        if (rc || alock_holder(w) != t->me)
            return rc;
        read_token(t);
        t->budget = budget;
        return 1;
    }
    uint64_t count, skips;
    rc = own_load(t, OWN(count), &count);
    if (!rc)
        rc = own_load(t, OWN(skips), &skips);
    if (rc)
        return rc;
    const uint64_t sum[3] = {field_get(count, 0, COUNT_BITS), field_get(skips, 0, COUNT_BITS), 0};
    uint64_t expected[2] = {sum[0], sum[1]};
    mark_counts(t, grant_word(t), t->me, expected);
    if (count != expected[0] || skips != expected[1])
        return 0;
    set_token(t, sum);
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
static int await_baton(struct turn *t, uint64_t deadline)
{
    uint64_t seen = 0, grant = 0;
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
            return -PAWL_ELOST; /* it would not get the lock; it need not wait for it */
        if (looks_after && alock_holder(seen) && (rc = seat_retry(t->seat, alock_look_after(t->seat, alock_holder(seen)))))
            return rc;
    }
}

/* ---- the Peterson lock ---- */

static fab_addr other_word(const struct turn *t)
{
    return t->lock + offsetof(struct alock, cohort) + !t->cohort * sizeof(uint64_t);
}

static fab_addr victim_addr(const struct turn *t)
{
    return t->lock + offsetof(struct alock, victim);
}

static uint64_t victim_word(struct turn *t)
{
    uint64_t times = ++t->victims & FIELD_MAX(19);
    return (uint64_t)t->cohort << ALOCK_VICTIM_SHIFT | t->me << 39 | t->h->serial << 19 | times;
}

/* victim := us (Algorithm 4, line 4). A local one may have been stopped and be late, and nothing shuts it out: so by
 * compare-and-swap, from what it said while we certainly had the baton. The atomic is also the fence before the look at the other
 * cohort. */
static int become_victim(struct turn *t)
{
    uint64_t mine = victim_word(t), was, w;
    struct fab_ep *ep = t->seat->ep;
    if (t->unfenced) {
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
    *other = fab_local_load64(ep, other_word(t));
    if (alock_holder(*other) && fab_local_load64(ep, victim_addr(t)) >> ALOCK_VICTIM_SHIFT == t->cohort)
        return 0;
    read_token(t);
    return 1;
}

static int look_across_remote(struct turn *t, bool victim, uint64_t *other)
{
    uint64_t mine = victim ? victim_word(t) : 0, said, sum[3];
    struct fab_op ops[] = {
        {.verb = FAB_WRITE, .len = 8, .addr = victim_addr(t), .buf = &mine},
        {.verb = FAB_READ, .len = 8, .addr = other_word(t), .buf = other},
        {.verb = FAB_READ, .len = 8, .addr = victim_addr(t), .buf = &said},
        {.verb = FAB_READ, .len = sizeof sum, .addr = t->lock + offsetof(struct alock, token), .buf = sum},
    };
    int rc = fab_batch(t->seat->ep, victim ? ops : ops + 1, countof(ops) - !victim);
    if (rc)
        return rc;
    if (alock_holder(*other) && said >> ALOCK_VICTIM_SHIFT == t->cohort)
        return 0;
    set_token(t, sum);
    return 1;
}

static int sleep_across(const struct turn *t, uint64_t other, uint64_t deadline)
{
    struct fab_cond conds[3] = {
        {.addr = other_word(t), .mask = ALOCK_HOLDER_MASK, .value = alock_holder(other)},
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

/* Whoever waits at a place that was given to another key, holding other locks, breaks the order in which those are taken. It is
 * given away only while nobody stands in a queue or has a baton, so one look after joining is enough. -ESTALE: it was. */
static int confirm_place(const struct turn *t)
{
    uint64_t says;
    int rc = t->h->place ? alock_load(t->seat, t->cohort, t->h->place, &says) : 0;
    return rc || !t->h->place ? rc : says == t->h->place_says ? 0 : -ESTALE;
}

/* pReacquire (Algorithm 4). */
static int win_peterson(struct turn *t, uint64_t deadline)
{
    bool victim = false; /* we have said that we are */
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
            rc = confirm_place(t);
            confirmed = !rc;
        } else if (!rc) {
            rc = sleep_across(t, other, deadline);
        }
        if (rc && (rc = seat_retry(t->seat, rc)))
            return rc;
    }
    t->budget = alock_budget[t->cohort];
    assert(t->budget && t->budget <= ALOCK_BUDGET_MAX);
    return 0;
}

/* ---- giving the baton away ---- */

/* The successor's link, if it has one in this era. */
static int read_link(const struct turn *t, uint64_t *link)
{
    int rc = own_load(t, OWN(next), link);
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
        if (rc && rc != -ECANCELED) /* whoever gives a lock back is not to be stopped */
            return rc == -ETIMEDOUT ? read_link(t, link) : rc;
    }
}

/* One step from what the word says. 1: given away; 0: look again. */
static int give_step(const struct turn *t, uint64_t w, unsigned budget)
{
    uint64_t era = alock_era(w), tail = alock_tail(w), link = 0, old, next;
    bool hands_over = false;
    if (era != t->era) {
        next = alock_word(era, tail, 0); /* whoever came first in the new era takes it */
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
    int rc = hands_over ? own_load(t, OWN(next_desc), &desc) : 0;
    if (!rc && hands_over)
        rc = own_load(t, OWN(next_grant), &grant);
    if (!rc)
        rc = alock_cas(t->seat, t->cohort, t->word, w, next, &old);
    if (rc == -FAB_EUNKNOWN) {
        rc = seat_retry(t->seat, rc);
        if (!rc)
            rc = alock_load(t->seat, t->cohort, t->word, &old);
        if (!rc && alock_holder(old) != t->me)
            old = w; /* only we take ourselves out while we live */
        else
            old = ~w;
    }
    if (rc || old != w)
        return rc;
    if (hands_over)
        notify(t, link & ALOCK_HOLDER_MASK, desc, grant & ~GRANT_BUDGET_MASK, budget);
    else if (tail != t->me) /* else nobody waits here; and the other cohort is not one that has to be woken */
        fab_wake(t->seat->ep, t->word, alock_era(next) == era ? ALOCK_HOLDER_MASK : ALOCK_ERA_MASK, WAKE_ALL);
    return 1;
}

/* Hands the baton on, or puts it down (Algorithm 3, lines 14 to 18). `budget` is the successor's. */
static int give_baton(const struct turn *t, unsigned budget)
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

/* ---- the design ---- */

/* Gives up: out of the queue, or the baton to the next, who has to win the Peterson lock itself. */
static int leave(struct turn *t)
{
    int rc = t->queued ? drop_queue(t) : 0;
    return rc > 0 ? give_baton(t, 0) : rc;
}

/* A try does not queue up where it would have to wait. 0: worth it. */
static int look_before_try(struct turn *t)
{
    for (bool looked_after = false;; looked_after = true) {
        uint64_t w, other;
        int rc = alock_load(t->seat, t->cohort, t->word, &w);
        if (!rc)
            rc = alock_load(t->seat, t->cohort, other_word(t), &other);
        uint64_t busy = rc ? 0 : alock_holder(w) ? alock_holder(w) : alock_holder(other);
        if (rc || (!busy && !alock_tail(w)))
            return rc;
        if (looked_after || !busy)
            return -PAWL_EHELD;
        rc = seat_retry(t->seat, alock_look_after(t->seat, busy)); /* a holder that is dead does not count as one */
        if (rc)
            return rc;
    }
}

static int acquire(struct turn *t, uint64_t deadline)
{
    if (t->me > ALOCK_HOLDER_MASK)
        return -PAWL_ELIMIT;
    int rc = deadline == DEADLINE_TRY ? look_before_try(t) : 0;
    if (!rc)
        rc = hold_publish(t->seat, t->h, RECORD_TRY_X); /* intent before effect (I5) */
    while (!rc) {
        t->budget = 0;
        rc = join(t);
        if (!rc)
            rc = deadline == DEADLINE_TRY ? -PAWL_EHELD : confirm_place(t);
        if (!rc)
            rc = await_baton(t, deadline);
        if (rc > 0)
            break;
        rc = rc == -ESTALE ? 0 : seat_retry(t->seat, rc);
        if (!rc && t->queued)
            rc = drop_queue(t);
        if (!rc && deadline != DEADLINE_TRY)
            return DESIGN_LOOK_AGAIN; /* while nobody stood in the queue the place may have been given to another key */
        if (rc > 0)
            break;
    }
    if (rc > 0)
        rc = t->budget ? 0 : win_peterson(t, deadline);
    if (!rc)
        rc = own_store(t, OWN(own[0]), t->era << 8 | t->budget);
    if (!rc)
        rc = own_store(t, OWN(own[1]), t->count);
    if (rc && rc != -PAWL_ELOST) {
        int left = leave(t);
        rc = left == -PAWL_ELOST ? left : rc == -ESTALE ? DESIGN_LOOK_AGAIN : rc;
    }
    return rc;
}

static int alock_acquire_by(const struct seat *seat, struct hold *h, uint64_t deadline, bool unfenced)
{
    struct turn t = turn_of(seat, h);
    t.unfenced = unfenced;
    int rc = acquire(&t, deadline);
    if (rc)
        return rc;
    if (!seat_lives(seat))
        return -PAWL_ELOST; /* who was stopped in between finds out here, and leaves the lock to recovery */
    h->token = t.token;
    return 0;
}

static int alock_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    return alock_acquire_by(seat, h, deadline, false);
}

/* The next token, before anybody can be granted it. */
static int end_token(const struct turn *t)
{
    fab_addr addr = t->lock + offsetof(struct alock, token);
    if (t->cohort == COHORT_LOCAL) {
        fab_local_faa64(t->seat->ep, addr, 1);
        return 0;
    }
    for (;;) {
        int rc = fab_write64(t->seat->ep, addr, t->count + 1);
        if (!rc || (rc = seat_retry(t->seat, rc)))
            return rc;
    }
}

static int own_notes(struct turn *t)
{
    uint64_t notes;
    int rc = own_load(t, OWN(own[0]), &notes);
    if (!rc)
        rc = own_load(t, OWN(own[1]), &t->count);
    if (rc)
        return rc;
    t->era = notes >> 8;
    t->budget = notes & 0xff;
    assert(t->budget); /* who is in has something left of it */
    t->token = t->h->token;
    return 0;
}

/* Of two tasks that release the same hold only one does. The published record says that it may hold until it certainly does not. */
static bool begin_release(const struct seat *seat, const struct hold *h)
{
    uint64_t held = record_word(RECORD_TRY_X, h->serial, h->index), leaving = record_word(RECORD_WAIT, h->serial, h->index);
    return __atomic_compare_exchange_n(&seat->me->shadow[h->record], &held, leaving, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static int alock_release(const struct seat *seat, const struct hold *h)
{
    struct turn t = turn_of(seat, h);
    if (h->mode != PAWL_EXCLUSIVE || !begin_release(seat, h))
        return -PAWL_ENOTOWNER;
    int rc = own_notes(&t);
    if (!rc)
        rc = end_token(&t);
    if (!rc)
        rc = give_baton(&t, seat->space->design == &design_busted_alock_greedy ? t.budget : t.budget - 1);
    if (!rc)
        hold_close(seat, h);
    return rc;
}

static bool alock_holds(const struct seat *seat, const struct hold *h)
{
    return hold_is(seat, h, RECORD_TRY_X);
}

static int alock_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct alock l;
    int rc = fab_read(seat->ep, space_lock_addr(seat->space, index), &l, sizeof l);
    if (rc)
        return rc;
    /* If both cohorts have a leader, the one that waits is the victim. */
    uint64_t local = alock_holder(l.cohort[COHORT_LOCAL]), remote = alock_holder(l.cohort[COHORT_REMOTE]);
    bool remote_waits = l.victim >> ALOCK_VICTIM_SHIFT == COHORT_REMOTE;
    uint64_t holder = local && (!remote || remote_waits) ? local : remote;
    *out = (struct lock_view){
        .mode = holder ? PAWL_EXCLUSIVE : 0,
        .owner = holder ? alock_slot(holder) : 0,
        .token = seat->space->token_base + l.token + l.skip[COHORT_LOCAL] + l.skip[COHORT_REMOTE] + (holder != 0),
    };
    return 0;
}

static int alock_raise(const struct seat *seat, struct hold *h, uint64_t floor)
{
    if (h->token > floor)
        return 0;
    struct turn t = turn_of(seat, h);
    uint64_t more = floor + 1 - h->token;
    int rc = own_notes(&t);
    if (rc)
        return rc;
    fab_addr addr = t.lock + offsetof(struct alock, token);
    if (t.cohort == COHORT_LOCAL)
        fab_local_faa64(seat->ep, addr, more);
    else
        rc = fab_write64(seat->ep, addr, t.count + more);
    if (!rc)
        rc = own_store(&t, OWN(own[1]), t.count + more);
    if (!rc)
        h->token = floor + 1;
    return rc;
}

/* All before in the own cohort; and each time its budget ends, as many of the other as that one's allows. */
static struct overtaking alock_overtaking(unsigned others, enum pawl_mode mode)
{
    const unsigned least = ALOCK_BUDGET_LOCAL, most = ALOCK_BUDGET_REMOTE;
    return (struct overtaking){.exclusive = others + (others / least + 2) * most + OVERTAKING_ON_THE_WAY};
}

#define ALOCK_COMMON                                                                                                               \
    .features = DESIGN_EXCLUSIVE | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT, .overtaking = alock_overtaking,               \
    .lock_size = sizeof(struct alock), .desc_size = sizeof(struct alock_desc), .node_tends = true, .release = alock_release,       \
    .holds = alock_holds, .recover = alock_recover, .peek = alock_peek, .raise = alock_raise

static const struct design_knob knobs[] = {
    {"budget_local", &alock_budget[COHORT_LOCAL], 1, ALOCK_BUDGET_MAX},
    {"budget_remote", &alock_budget[COHORT_REMOTE], 1, ALOCK_BUDGET_MAX},
    {0},
};

const struct design design_alock = {
    .knobs = knobs,
    .name = "alock",
    .summary = "local clients by CPU, remote ones by fabric: two queues under a Peterson lock (SPAA'24)",
    .kind = DESIGN_MAIN,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM,
    ALOCK_COMMON,
    .tolerates = FAULTS_ALL,
    .acquire = alock_acquire,
};

const struct design design_busted_alock_greedy = {
    .name = "busted-alock-greedy",
    .summary = "alock whose budgets do not end",
    .kind = DESIGN_BUSTED,
    .substrates = DESIGN_ON_SIM,
    ALOCK_COMMON,
    .acquire = alock_acquire,
};

static int unfenced_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    return alock_acquire_by(seat, h, deadline, true);
}

const struct design design_busted_alock_nofence = {
    .name = "busted-alock-nofence",
    .summary = "alock whose local leader looks across before the others see that it is the victim",
    .kind = DESIGN_BUSTED,
    .substrates = DESIGN_ON_SIM,
    ALOCK_COMMON,
    .tolerates = FAULTS_ALL,
    .acquire = unfenced_acquire,
};
