/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/alock/turn.h"
#include "designs/core/design.h"

#include <errno.h>

/* Gives up: leaves the queue, or hands the baton to the successor, which then competes for the Peterson lock itself. */
static int leave(struct turn *t)
{
    int rc = t->queued ? alock_drop_queue(t) : 0;
    return rc > 0 ? alock_give_baton(t, 0) : rc;
}

/* The words of both cohorts. */
static int look_at_both(struct turn *t, uint64_t *own, uint64_t *other)
{
    if (!alock_is_far(t)) {
        int rc = alock_load(t->seat, t->cohort, t->word, own);
        return rc ? rc : alock_load(t->seat, t->cohort, alock_other_word(t), other);
    }
    uint64_t words[COHORTS];
    int rc;
    do
        rc = fab_read(t->seat->ep, t->lock + offsetof(struct alock, cohort), words, sizeof words);
    while (rc == -FAB_EUNKNOWN && !(rc = seat_retry(t->seat, rc)));
    if (rc)
        return seat_retry(t->seat, rc);
    *own = t->seen = words[t->cohort];
    *other = words[!t->cohort];
    t->looked = true;
    return 0;
}

/* A try does not queue up where it would have to wait. 0: it would not. */
static int look_before_try(struct turn *t)
{
    for (bool looked_after = false;; looked_after = true) {
        uint64_t w = 0, other = 0;
        int rc = look_at_both(t, &w, &other);
        uint64_t busy = rc ? 0 : alock_holder(w) ? alock_holder(w) : alock_holder(other);
        if (rc || (!busy && !alock_tail(w)))
            return rc;
        if (looked_after || !busy)
            return -PAWL_EHELD;
        rc = seat_retry(t->seat, alock_look_after(t->seat, busy)); /* recovers from a dead holder */
        if (rc)
            return rc;
    }
}

/* Queues up and waits for the baton (Algorithm 3, lines 2 to 9). 1: we have it; 0: we are out of the queue again, because its era
 * has ended or the connection broke; or an error, after which we may still stand in the queue. */
static int queue_up(struct turn *t, uint64_t deadline)
{
    t->budget = 0;
    int rc = alock_join(t);
    if (!rc)
        rc = deadline == DEADLINE_TRY ? -PAWL_EHELD : alock_confirm_place(t);
    if (!rc)
        rc = alock_await_baton(t, deadline);
    if (rc > 0)
        return rc;
    rc = rc == -ESTALE ? 0 : seat_retry(t->seat, rc);
    return rc || !t->queued ? rc : alock_drop_queue(t);
}

/* Gets the baton. DESIGN_LOOK_AGAIN: while we were out of the queue the place may have been given to another key. */
static int get_baton(struct turn *t, uint64_t deadline)
{
    int rc;
    do
        rc = queue_up(t, deadline);
    while (!rc && deadline == DEADLINE_TRY);
    return rc > 0 ? 0 : rc ? rc : DESIGN_LOOK_AGAIN;
}

/* Leaves what release needs in our own descriptor. */
static void note_grant(const struct turn *t)
{
    assert(t->budget > 0 && t->budget <= ALOCK_BUDGET_MAX); /* I12 */
    assert(t->token > t->seat->space->token_base);          /* I2 */
    alock_note(t, OWN(own[0]), t->era << 8 | t->budget);
    alock_note(t, OWN(own[1]), t->count);
}

/* With the baton of our cohort, unless `rc` is an error: the Peterson lock between the cohorts, unless the baton came with budget
 * left (Algorithm 3, line 10). */
static int win(struct turn *t, uint64_t deadline, int rc)
{
    if (!rc && !t->budget)
        rc = alock_win_peterson(t, deadline);
    if (!rc)
        note_grant(t);
    if (!rc || rc == -PAWL_ELOST)
        return rc;
    int left = leave(t);
    return left == -PAWL_ELOST ? left : rc == -ESTALE ? DESIGN_LOOK_AGAIN : rc;
}

static int acquire(struct turn *t, uint64_t deadline)
{
    if (t->me > ALOCK_HOLDER_MASK)
        return -PAWL_ELIMIT;
    int rc = deadline == DEADLINE_TRY ? look_before_try(t) : 0;
    if (!rc)
        rc = hold_publish(t->seat, t->h, RECORD_TRY_X); /* intent before effect (I5) */
    if (!rc)
        rc = get_baton(t, deadline);
    return rc == DESIGN_LOOK_AGAIN ? rc : win(t, deadline, rc);
}

static int granted(const struct seat *seat, struct hold *h, const struct turn *t)
{
    if (!seat_lives(seat))
        return -PAWL_ELOST; /* a session that was stopped in between finds out here (I1), and leaves the lock to recovery */
    assert(hold_is(seat, h, RECORD_TRY_X)); /* I5 */
    h->token = t->token;
    return 0;
}

static int alock_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    struct turn t = alock_turn_of(seat, h);
    int rc = acquire(&t, deadline);
    return rc ? rc : granted(seat, h, &t);
}

/* ---- a try in steps, of a remote session: a look at both cohorts, the step into the empty queue, Peterson's lock ---- */

ONCE static int alock_step(const struct seat *seat, struct hold *h, struct design_try *t, struct fab_op *ops)
{
    struct turn turn = alock_turn_of(seat, h);
    const uint64_t w = t->seen[turn.cohort];
    turn.era = alock_era(w);
    switch (t->step) {
    case 0:
        if (turn.me > ALOCK_HOLDER_MASK)
            return TRY_OTHERWISE;
        ops[0] = (struct fab_op){
            .verb = FAB_READ, .len = COHORTS * sizeof w, .addr = turn.lock + offsetof(struct alock, cohort), .buf = t->seen};
        break;
    case 1:
        if (alock_holder(w) || alock_tail(w) || alock_holder(t->seen[!turn.cohort]) || hold_publish(seat, h, RECORD_TRY_X))
            return TRY_OTHERWISE;
        alock_clear(&turn);
        ops[0] = (struct fab_op){
            .verb = FAB_CAS, .width = 8, .addr = turn.word, .compare = w, .swap = alock_word(turn.era, turn.me, turn.me)};
        ops[0].compare_mask = ops[0].swap_mask = UINT64_MAX;
        break;
    case 2:
        if ((uint64_t)t->old != w)
            return TRY_OTHERWISE;
        alock_look_across(&turn, t->seen + COHORTS, ops);
        break;
    default:
        if (!alock_won(&turn, t->seen + COHORTS))
            return TRY_OTHERWISE;
        note_grant(&turn);
        h->token = turn.token;
        return 0;
    }
    return t->step++ == 2 ? (int)ALOCK_ACROSS_VERBS : 1;
}

ONCE static int alock_rest(const struct seat *seat, struct hold *h, struct design_try *t)
{
    struct turn turn = alock_turn_of(seat, h);
    int baton = t->step == 3;
    turn.queued = t->step >= 2;
    turn.era = alock_era(t->seen[turn.cohort]);
    turn.victims = baton;        /* no word of a victim is written twice */
    if (t->step == 2 && t->rc) { /* was it the step into the queue? */
        int rc = seat_retry(seat, t->rc);
        baton = rc ? rc : alock_drop_queue(&turn);
    }
    if (baton <= 0)
        return baton ? baton : alock_acquire(seat, h, DEADLINE_TRY);
    int rc = win(&turn, DEADLINE_TRY, 0);
    return rc ? rc : granted(seat, h, &turn);
}

/* Moves the token on before the next grant. */
static int end_token(const struct turn *t)
{
    fab_addr addr = t->lock + offsetof(struct alock, token);
    if (t->cohort == COHORT_LOCAL) {
        fab_local_faa64(t->seat->ep, addr, 1);
        return 0;
    }
    return seat_retry(t->seat, seat_write64(t->seat, addr, t->count + 1));
}

static void own_notes(struct turn *t)
{
    uint64_t notes = alock_noted(t, OWN(own[0]));
    t->count = alock_noted(t, OWN(own[1]));
    t->era = notes >> 8;
    t->budget = notes & 0xff;
    assert(t->budget); /* a holder has budget left */
    t->token = t->h->token;
}

/* Both at once, for a hold behind which none has queued up. 1: released; 0: the token was moved on, and the baton is still ours. */
static int release_at_once(const struct turn *t)
{
    uint64_t count = t->count + 1, alone = alock_word(t->era, t->me, t->me), w;
    struct fab_op ops[] = {
        {.verb = FAB_WRITE, .len = 8, .addr = t->lock + offsetof(struct alock, token), .buf = &count},
        {.verb = FAB_CAS, .width = 8, .addr = t->word, .compare = alone, .swap = alock_word(t->era, 0, 0)},
    };
    ops[1].compare_mask = ops[1].swap_mask = UINT64_MAX;
    fab_keep_order(t->seat->ep, ops, countof(ops));
    int rc = fab_batch(t->seat->ep, ops, countof(ops));
    if (!rc)
        return (uint64_t)ops[1].old == alone;
    rc = seat_retry(t->seat, rc);
    if (!rc)
        rc = alock_load(t->seat, t->cohort, t->word, &w);
    if (rc)
        return rc;
    return alock_holder(w) == t->me ? end_token(t) : 1; /* while we live only we take ourselves out */
}

/* Of two tasks that release the same hold only one does. The published record says "may hold" until the lock is certainly released.
 */
static bool begin_release(const struct seat *seat, const struct hold *h)
{
    uint64_t held = record_word(RECORD_TRY_X, h->serial, h->index), leaving = record_word(RECORD_WAIT, h->serial, h->index);
    return __atomic_compare_exchange_n(&seat->me->shadow[h->record], &held, leaving, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static int alock_release(const struct seat *seat, const struct hold *h)
{
    struct turn t = alock_turn_of(seat, h);
    if (h->mode != PAWL_EXCLUSIVE || !begin_release(seat, h))
        return -PAWL_ENOTOWNER;
    own_notes(&t);
    int rc = alock_is_far(&t) ? release_at_once(&t) : end_token(&t);
    if (!rc)
        rc = alock_give_baton(&t, MISTAKE(seat->space->design->mistakes, ALOCK_GREEDY) ? t.budget : t.budget - 1);
    if (rc < 0)
        return rc;
    hold_close(seat, h);
    return 0;
}

ONCE static int alock_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
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

ONCE static int alock_raise(const struct seat *seat, struct hold *h, uint64_t floor)
{
    if (h->token > floor)
        return 0;
    struct turn t = alock_turn_of(seat, h);
    uint64_t more = floor + 1 - h->token;
    int rc = 0;
    own_notes(&t);
    fab_addr addr = t.lock + offsetof(struct alock, token);
    if (t.cohort == COHORT_LOCAL)
        fab_local_faa64(seat->ep, addr, more);
    else
        rc = fab_write64(seat->ep, addr, t.count + more);
    if (rc)
        return rc;
    alock_note(&t, OWN(own[1]), t.count + more);
    h->token = floor + 1;
    return 0;
}

/* All waiters before it in its own cohort, and each time the budget ends, as many of the other cohort as its budget allows (I12).
 */
static struct overtaking alock_overtaking(unsigned others, enum pawl_mode mode)
{
    const unsigned least = ALOCK_BUDGET_LOCAL, most = ALOCK_BUDGET_REMOTE;
    return (struct overtaking){.exclusive = others + (others / least + 2) * most + OVERTAKING_ON_THE_WAY};
}

#define ALOCK_COMMON                                                                                                               \
    .features = DESIGN_EXCLUSIVE | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT, .overtaking = alock_overtaking,               \
    .lock_size = sizeof(struct alock), .desc_size = sizeof(struct alock_desc), .node_tends = true, .release = alock_release,       \
    .holds = hold_is_named, .recover = alock_recover, .peek = alock_peek, .raise = alock_raise

static const struct design_knob knobs[] = {
    [COHORT_LOCAL] = {"budget-local", 1, ALOCK_BUDGET_MAX, ALOCK_BUDGET_LOCAL},
    [COHORT_REMOTE] = {"budget-remote", 1, ALOCK_BUDGET_MAX, ALOCK_BUDGET_REMOTE},
    {0},
};

const struct design design_alock = {
    .knobs = knobs,
    .name = "alock",
    .summary = "local clients by CPU, remote ones by fabric: two queues under a Peterson lock (SPAA'24)",
    .kind = DESIGN_MAIN,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM | DESIGN_ON_NODES | DESIGN_ON_RDMA,
    ALOCK_COMMON,
    .tolerates = FAULTS_ALL,
    .acquire = alock_acquire,
    .step = alock_step,
    .rest = alock_rest,
};
