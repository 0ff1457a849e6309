/* SPDX-License-Identifier: Apache-2.0 */
/* Acquiring: Algorithm 2, and what the paper leaves out: waiters that give up, and predecessors that are dead. */
#include "designs/core/steps.h"
#include "designs/shiftlock/shiftlock.h"

#include <errno.h>

#define PATIENCE_CHECKS 12         /* a lock that stands still for so many checks (three leases, 3.6) is counted anew */
#define STRANGE_MAX 2              /* looks at a predecessor that has nothing to do with this lock */
#define DYING_NS (100 * NS_PER_US) /* a process is being torn down, which takes microseconds */
#define PATIENCE_DOUBLINGS_NS (64 * NS_PER_S)

/* ---- looking after the sessions in the way ---- */

void shift_begin_watch(const struct seat *seat, struct shift_try *t)
{
    uint64_t now = world_now(seat->world);
    t->check_at = add_saturating(now, seat->space->check_ns);
    t->patience_ns = PATIENCE_CHECKS * seat->space->check_ns;
    t->still_since = now;
    t->still = t->seen;
    t->strange = 0;
}

/* Whether our predecessor in the queue is dead or gone: it may have died in between, or have learnt that its release failed. */
static int check_pred(const struct seat *seat, const struct hold *h, struct shift_try *t)
{
    const struct shift_form *f = shift_form(seat);
    uint32_t slot = shift_name_slot(f, t->pred);
    uint64_t word;
    int rc = census_look_after(seat, slot);
    if (!rc)
        rc = fab_read64(seat->ep, space_record_addr(seat->space, slot, shift_name_record(f, t->pred)), &word);
    if (rc)
        return rc;
    bool here = record_index(word) == h->index && record_state(word) != RECORD_WAIT && record_state(word) != RECORD_FREE &&
                record_state(word) != RECORD_SPARE;
    t->strange = here ? 0 : t->strange + 1;
    return t->strange < STRANGE_MAX ? 0 : shift_ask_recount(seat, h->index);
}

/* Now and then, while waiting. SHIFT_AGAIN: the lock is in another era. */
static int watch(const struct seat *seat, const struct hold *h, struct shift_try *t)
{
    struct shift_entry e;
    uint64_t now = world_now(seat->world);
    t->check_at = add_saturating(now, seat->space->check_ns);
    if (!seat_lives(seat))
        return -PAWL_ELOST; /* a lost session is not granted the lock (I8), so it need not wait */
    int rc = shift_look_rel_last(seat, h->index, &e);
    if (rc)
        return rc;
    if (e.era != t->seen.era)
        return SHIFT_AGAIN;
    bool still = e.rel == t->still.rel;
    if (t->pred && !seat_records_home(seat))
        rc = check_pred(seat, h, t);
    else if (still || !seat_records_home(seat)) /* over a fabric a look costs verbs, and a lock that moves needs none */
        rc = shift_check_dead(seat, h->index, still);
    if (rc)
        return rc;
    if (e.rel != t->still.rel) {
        t->still = e;
        t->still_since = now;
    } else if (now - t->still_since > t->patience_ns) {
        /* No session is dead and yet nothing moves: a session holds the lock for long, or a note was lost. Counting does no harm.
         */
        t->still_since = now;
        t->patience_ns = min_u64(2 * t->patience_ns, max_u64(PATIENCE_DOUBLINGS_NS, t->patience_ns));
        return shift_ask_recount(seat, h->index);
    }
    return 0;
}

/* The same by READs, over a fabric. */
static int poll_until(const struct seat *seat, const struct hold *h, const struct shift_try *t, unsigned fields,
                      struct shift_entry *e, uint64_t deadline)
{
    int rc = shift_poll(seat, h->index, fields, e, min_u64(deadline, t->check_at));
    return rc == -ETIMEDOUT && t->check_at < deadline ? 0 : rc;
}

/* Sleeps until a condition changes or it is time to look. -ETIMEDOUT only at the deadline. */
static int sleep_on(const struct seat *seat, const struct hold *h, struct shift_try *t, struct fab_cond *conds, unsigned n,
                    uint64_t deadline)
{
    bool dying = false;
    if (seat->ep->caps & FAB_KERNEL_LIFE) {
        uint32_t slot = shift_name_slot(shift_form(seat), t->pred);
        if (!t->pred)
            n += shift_life_conds(seat, h->index, conds + n, FAB_CONDS_MAX - n, &dying);
        else if (seat_life_cond(seat, slot, &conds[n]))
            n++;
        else
            dying = slot != seat->me->slot;
    }
    uint64_t now = world_now(seat->world);
    uint64_t until = dying ? min_u64(t->check_at, now + DYING_NS) : t->check_at;
    int rc = fab_wait_any(seat->ep, conds, n, min_u64(deadline, until));
    if (rc == -ETIMEDOUT && until < deadline)
        rc = 0;
    if (!rc && seat->ep->caps & FAB_KERNEL_LIFE)
        t->check_at = 0; /* it was woken: time to look */
    return rc;
}

static bool time_to_check(const struct seat *seat, const struct shift_try *t)
{
    return world_now(seat->world) >= t->check_at;
}

/* ---- readers and writers ---- */

int shift_granted(const struct seat *seat, struct hold *h, struct shift_entry e, struct shift_run run)
{
    shift_remember(seat, h, e, run);
    int rc = shift_token(seat, h, e, &h->token);
    return rc ? rc : hold_publish(seat, h, record_held(h->mode));
}

/* By the step into the lock alone, with the token that came with it. */
static int granted_at_once(const struct seat *seat, struct hold *h, struct shift_entry e, const struct shift_try *t)
{
    if (!t->drew)
        return shift_granted(seat, h, e, t->run);
    shift_remember(seat, h, e, t->run);
    shift_token_drawn(seat, h, t->drawn);
    return hold_publish(seat, h, record_held(h->mode));
}

/* Our step's outcome is unknown, or our place in the queue cannot be left otherwise. */
static int doubt(const struct seat *seat, const struct hold *h)
{
    return shift_doubt(seat, h, record_try(h->mode), RECORD_WAIT);
}

/* ---- readers (lines 1 to 5) ---- */

#define LEFT 0    /* out of the count, or never in it */
#define GRANTED 2 /* too late to leave: the lock is ours */

/* A reader that gives up takes itself out of the count only while it certainly waits (Epoch and count in one atomic). */
static int reader_leave(const struct seat *seat, struct hold *h, struct shift_entry seen)
{
    struct shift_entry e = {0}, old, next;
    for (;;) {
        int rc = shift_look_rel_last(seat, h->index, &e);
        if (!rc && !seat_lives(seat)) /* after the look: if the entry is then unchanged, no recovery has counted us out (I3) */
            return -PAWL_ELOST;
        if (!rc && e.era != seen.era)
            return LEFT;
        if (!rc && e.epoch != seen.epoch) {
            rc = shift_granted(seat, h, e, (struct shift_run){0});
            return rc ? rc : GRANTED;
        }
        next = e;
        next.readers--;
        if (!rc)
            rc = shift_cas(seat, h->index, e, SHIFT_ALL, next, SHIFT_ALL, &old);
        if (!rc && shift_matches(old, e, SHIFT_ALL))
            return LEFT;
        if (rc == -FAB_EUNKNOWN)
            return doubt(seat, h);
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* A step of line 5: what became of epoch and era. */
static int await_flip(const struct seat *seat, const struct hold *h, struct shift_try *t, struct shift_entry *e, uint64_t deadline)
{
    if (!fab_is_shm(seat->ep))
        return poll_until(seat, h, t, SHIFT_EPOCH | SHIFT_ERA, e, deadline);
    struct fab_cond conds[FAB_CONDS_MAX] = {shift_cond_epoch(seat, h->index, t->seen)};
    int rc = sleep_on(seat, h, t, conds, 1, deadline);
    return rc ? rc : shift_look_rel_last(seat, h->index, e);
}

/* Line 5, with a look at the recovery mark first: a new era begins with Epoch 0, which is no grant. */
static int reader_wait(const struct seat *seat, struct hold *h, struct shift_try *t, uint64_t deadline)
{
    bool mark = !shift_errs(seat, SHIFT_MARKLESS);
    for (;;) {
        struct shift_entry e = t->seen;
        /* RelCnt last: the token is then above the last writer's. */
        int rc = await_flip(seat, h, t, &e, deadline);
        if (!rc && e.era != t->seen.era && (mark || e.epoch == t->seen.epoch))
            return SHIFT_AGAIN;
        if (!rc && e.epoch != t->seen.epoch)
            return shift_granted(seat, h, e, (struct shift_run){0});
        if (!rc && time_to_check(seat, t))
            rc = watch(seat, h, t);
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* All but what the step finds, and what a wait begins with: most attempts end with their step. */
static void begin_try(struct shift_try *t)
{
    t->nonce = t->drawn = 0;
    t->direct = t->told_before = false;
    t->run = (struct shift_run){0};
    t->pred = 0;
    t->pred_desc = 0;
}

/* The verbs of the step ended with `rc`, and `old` is the entry as the step found it. SHIFT_AGAIN: the step had no effect, or the
 * lock is being counted anew. */
__attribute__((noinline)) static int stepped_in(const struct seat *seat, struct hold *h, u128 old, struct shift_try *t, int rc)
{
    step_done(seat, STEP_ATOMIC);
    if (rc == -FAB_EUNKNOWN) {
        rc = doubt(seat, h);
        return rc ? rc : SHIFT_AGAIN;
    }
    if (rc)
        return rc;
    t->seen = shift_unpack(shift_form(seat), old);
    return shift_recounting(t->seen) ? SHIFT_AGAIN : 0;
}

/* Lines 7 to 10 of a writer; a try compares, so that it joins a free lock only. */
__attribute__((noinline)) static void step_of(const struct seat *seat, const struct hold *h, bool try, struct fab_op *op)
{
    const struct shift_entry us = {.tail = shift_name(seat, h)};
    if (h->mode == PAWL_SHARED)
        shift_op_add_reader(seat, h->index, op);
    else
        shift_op_cas(seat, h->index, shift_guess(seat, h->index), try ? SHIFT_TAIL | SHIFT_READERS : 0, us, SHIFT_TAIL, op);
}

/* The step, unless it was taken already (`taken`). Intent before effect (I5), in one round trip. */
__attribute__((noinline)) static int step_in(const struct seat *seat, struct hold *h, bool try, const struct design_try *taken,
                                             struct shift_try *t)
{
    struct fab_op ops[2];
    begin_try(t);
    t->drew = false;
    if (taken)
        return stepped_in(seat, h, taken->old, t, taken->rc);
    step_of(seat, h, try, &ops[0]);
    t->drew = shift_op_draw(seat, h, &ops[1], &t->drawn);
    int rc = h->mode == PAWL_SHARED ? shift_publish_and(seat, h, RECORD_TRY_S, ops, 1 + t->drew)
                                    : shift_publish_joining(seat, h, ops, 1 + t->drew);
    if (!rc && t->drew && ops[1].verb == FAB_FAA)
        t->drawn = (uint64_t)ops[1].old;
    return stepped_in(seat, h, ops[0].old, t, rc);
}

static int enter_reader(const struct seat *seat, struct hold *h, uint64_t deadline, const struct design_try *taken)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_try t;
    int rc = step_in(seat, h, false, taken, &t);
    if (rc)
        return rc;
    struct shift_entry e = t.seen;
    e.readers++;
    if (likely(!e.tail && t.seen.readers < shift_readers_max(f)))
        return granted_at_once(seat, h, e, &t);
    if (!e.tail) { /* too many readers. We hold the lock, so we release it */
        rc = shift_doubt(seat, h, RECORD_LEAVE_S, RECORD_WAIT);
        return rc ? rc : -PAWL_ELIMIT;
    }
    shift_begin_watch(seat, &t);
    rc = deadline == DEADLINE_TRY ? -PAWL_EHELD : reader_wait(seat, h, &t, deadline);
    step_done(seat, STEP_WRITERS);
    if (rc >= 0 || rc == -PAWL_ELOST)
        return rc;
    int left = reader_leave(seat, h, t.seen);
    return left == GRANTED ? 0 : left ? left : rc;
}

/* ---- writers (lines 6 to 26) ---- */

/* Line 15. Where our own notes are far, the look at them goes with it. */
static int tell_pred(const struct seat *seat, const struct hold *h, struct shift_try *t, struct shift_look *look)
{
    const fab_addr mine = seat_desc_addr(seat, h->record);
    struct shift_note note = {.nonce = t->nonce, .value = mine, .extra = t->seen.rel};
    int rc = shift_find_desc(seat, t->pred, t->told_before, &t->pred_desc);
    t->told_before = true;
    if (rc)
        return rc;
    fab_addr to = t->pred_desc + offsetof(struct shift_desc, next);
    return look->known ? shift_leave_and_look(seat, to, h->index, t->seen.era, SHIFT_SUCCESSOR, note,
                                              mine + offsetof(struct shift_desc, grant), look)
                       : shift_leave_note(seat, to, h->index, t->seen.era, SHIFT_SUCCESSOR, note);
}

/* Line 16. The note says at which RelCnt the lock is ours, in which epoch, and how many writers came in a row. */
static bool take_turn(const struct seat *seat, const struct hold *h, struct shift_try *t, const struct shift_look *look)
{
    struct shift_note note;
    fab_addr at = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, grant);
    if (!shift_read_note(seat, at, h->index, t->seen.era, look, &note))
        return false;
    if (note.nonce != t->nonce && !shift_errs(seat, SHIFT_NAMELESS))
        return false;
    t->target = note.value;
    t->direct = shift_note_kind(&note) == SHIFT_HANDOVER;
    t->run = shift_note_run(&note);
    t->seen.epoch = note.extra & 1;
    return true;
}

/* As sleep_on, for the note that *look was at. */
static int sleep_on_note(const struct seat *seat, const struct hold *h, struct shift_try *t, fab_addr at, struct shift_look *look,
                         uint64_t deadline)
{
    if (!look->known)
        return sleep_on(seat, h, t, look->conds, look->n, deadline);
    int rc = shift_wait_note(seat, at, look, min_u64(deadline, t->check_at));
    return rc == -ETIMEDOUT && t->check_at < deadline ? 0 : rc;
}

static int await_turn(const struct seat *seat, const struct hold *h, struct shift_try *t, uint64_t deadline)
{
    const fab_addr at = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, grant);
    const bool far = shift_is_far(seat, at);
    struct shift_look look = {.known = far}; /* none is sound: nothing was seen so far */
    for (bool told = false;;) {
        int rc = 0;
        if (!far)
            shift_look_note(seat, at, &look);
        else if (!told && !take_turn(seat, h, t, &look))
            rc = tell_pred(seat, h, t, &look);
        if (take_turn(seat, h, t, &look))
            return 0;
        if (!told && !far)
            rc = tell_pred(seat, h, t, &look);
        if (!told)
            step_done(seat, STEP_TELL);
        told = told || !rc;
        if (!rc && time_to_check(seat, t)) {
            rc = watch(seat, h, t);
            told = false; /* a note from long ago may have taken the place of ours */
        } else if (!rc) {
            rc = sleep_on_note(seat, h, t, at, &look, deadline);
        } else if (rc == -FAB_EUNKNOWN && time_to_check(seat, t)) {
            rc = watch(seat, h, t); /* the predecessor cannot be reached: is it alive? */
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
        if (deadline != DEADLINE_NEVER && world_now(seat->world) >= deadline)
            return take_turn(seat, h, t, NULL) ? 0 : -ETIMEDOUT;
    }
}

/* RelCnt, when it has moved; it also does when the era does. */
static int await_leaving(const struct seat *seat, const struct hold *h, struct shift_try *t, struct shift_entry *e,
                         uint64_t deadline)
{
    if (!fab_is_shm(seat->ep))
        return poll_until(seat, h, t, SHIFT_REL | SHIFT_ERA, e, deadline);
    struct fab_cond conds[FAB_CONDS_MAX] = {shift_cond_rel(seat, h->index, *e)};
    int rc = sleep_on(seat, h, t, conds, 1, deadline);
    return rc ? rc : shift_look_rel_first(seat, h->index, e); /* if the era is then still ours, it was when RelCnt was read */
}

int shift_await_readers(const struct seat *seat, const struct hold *h, struct shift_try *t, uint64_t deadline)
{
    for (struct shift_entry e = t->seen;;) {
        int rc = e.rel == t->target ? 0 : await_leaving(seat, h, t, &e, deadline);
        if (!rc && e.era != t->seen.era)
            return SHIFT_AGAIN;
        if (!rc && e.rel == t->target)
            return 0;
        if (!rc && time_to_check(seat, t))
            rc = watch(seat, h, t);
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* A writer at the head of the queue gives up. If it is the tail, too, it lets in the readers behind it. */
static int head_leave(const struct seat *seat, struct hold *h, struct shift_try *t)
{
    struct shift_entry e = {0}, old, next;
    for (;;) {
        int rc = shift_look_rel_first(seat, h->index, &e);
        if (!rc && !seat_lives(seat))
            return -PAWL_ELOST;
        if (!rc && e.era != t->seen.era)
            return LEFT;
        if (!rc && e.rel == t->target)
            return GRANTED;
        if (!rc && e.tail != shift_name(seat, h))
            return doubt(seat, h);
        next = e;
        next.tail = 0;
        next.epoch = !e.epoch;
        if (!rc)
            rc = shift_cas(seat, h->index, e, SHIFT_ALL, next, SHIFT_ALL, &old);
        if (!rc && shift_matches(old, e, SHIFT_ALL)) {
            shift_wake_readers(seat, h->index);
            return LEFT;
        }
        if (rc == -FAB_EUNKNOWN)
            return doubt(seat, h);
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

static struct shift_entry entry_of_writer(const struct seat *seat, const struct hold *h, const struct shift_try *t)
{
    struct shift_entry e = t->seen;
    e.rel = t->target;
    e.tail = shift_name(seat, h);
    return e;
}

static int writer_has(const struct seat *seat, struct hold *h, const struct shift_try *t)
{
    return shift_granted(seat, h, entry_of_writer(seat, h, t), t->run);
}

static int writer_wait(const struct seat *seat, struct hold *h, struct shift_try *t, uint64_t deadline)
{
    int rc = 0;
    bool head = !t->pred;
    shift_begin_watch(seat, t);
    if (!head) {
        t->nonce = world_now(seat->world);
        rc = await_turn(seat, h, t, deadline);
        step_done(seat, STEP_TURN);
        head = !rc;
        t->pred = 0; /* from now on we wait for readers */
        t->still_since = world_now(seat->world);
    }
    if (!rc && !t->direct) {
        rc = shift_await_readers(seat, h, t, deadline);
        step_done(seat, STEP_READERS);
    }
    if (!rc)
        return writer_has(seat, h, t);
    if (rc > 0 || rc == -PAWL_ELOST)
        return rc;
    int left = head ? head_leave(seat, h, t) : doubt(seat, h);
    return left == GRANTED ? writer_has(seat, h, t) : left ? left : rc;
}

static int enter_writer(const struct seat *seat, struct hold *h, uint64_t deadline, const struct design_try *taken)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_try t;
    bool try = deadline == DEADLINE_TRY;
    int rc = step_in(seat, h, try, taken, &t);
    if (rc)
        return rc;
    t.target = shift_rel_add(f, t.seen.rel, t.seen.readers);
    t.pred = t.seen.tail;
    shift_join(seat, h, t.seen.rel);
    if (likely(!t.seen.tail && !t.seen.readers))
        return granted_at_once(seat, h, entry_of_writer(seat, h, &t), &t);
    if (try)
        return -PAWL_EHELD;
    if (t.pred == shift_name(seat, h)) { /* our own name, left by a count of long ago */
        rc = doubt(seat, h);
        return rc ? rc : SHIFT_AGAIN;
    }
    return writer_wait(seat, h, &t, deadline);
}

/* `taken`: the first step was. */
static int acquire(const struct seat *seat, struct hold *h, uint64_t deadline, const struct design_try *taken)
{
    bool looked_after = false;
    for (;; taken = NULL) {
        int rc = h->mode == PAWL_SHARED ? enter_reader(seat, h, deadline, taken) : enter_writer(seat, h, deadline, taken);
        if (likely(!rc)) {
            assert(hold_is_held(seat, h)); /* I5 */
            /* A session that was stopped in between finds out here (I1), and leaves the lock to recovery. */
            return seat_lives(seat) ? 0 : -PAWL_ELOST;
        }
        if (rc == SHIFT_AGAIN) {
            rc = hold_publish(seat, h, RECORD_WAIT); /* the session that counts must not wait for us */
            if (!rc)
                rc = seat_retry(seat, shift_recount(seat, h->index, deadline));
        } else if (rc == -PAWL_EHELD && !looked_after) {
            looked_after = true; /* the first try recovers from dead holders */
            rc = hold_publish(seat, h, RECORD_WAIT);
            if (!rc)
                rc = seat_retry(seat, shift_check_dead(seat, h->index, false));
        } else {
            rc = seat_retry(seat, rc);
        }
        if (rc)
            return rc;
    }
}

static bool has_name(const struct seat *seat, const struct hold *h)
{
    return h->record + 1 <= FIELD_MAX(shift_form(seat)->record_bits);
}

int shift_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    return has_name(seat, h) ? acquire(seat, h, deadline, NULL) : -PAWL_ELIMIT;
}

/* ---- a try in steps: there is one. For entries of 128 bits, whose tokens need no verb of their own ---- */

int shift_step(const struct seat *seat, struct hold *h, struct design_try *t, struct fab_op *ops)
{
    const bool writer = h->mode == PAWL_EXCLUSIVE;
    if (!t->step) {
        step_of(seat, h, true, ops);
        if (!has_name(seat, h) || !fab_has(seat->ep->caps, FAB_MASKED_CAS | FAB_MASKED_FAA) ||
            hold_publish(seat, h, record_try(h->mode)))
            return TRY_OTHERWISE;
        if (writer)
            shift_clear_note(seat, h);
        t->step = 1;
        return 1;
    }
    struct shift_entry e = shift_unpack(shift_form(seat), t->old);
    bool held = e.tail || e.readers >= (writer ? 1 : shift_readers_max(shift_form(seat)));
    if (shift_recounting(e) || (held && !shift_errs(seat, SHIFT_STEP)))
        return TRY_OTHERWISE;
    if (writer)
        shift_join(seat, h, e.rel);
    e.tail = writer ? shift_name(seat, h) : 0;
    e.readers += !writer;
    return shift_granted(seat, h, e, (struct shift_run){0}) ? TRY_OTHERWISE : 0;
}

ONCE int shift_rest(const struct seat *seat, struct hold *h, struct design_try *t)
{
    return has_name(seat, h) ? acquire(seat, h, DEADLINE_TRY, t->step ? t : NULL) : -PAWL_ELIMIT;
}
