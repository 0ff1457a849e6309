/* SPDX-License-Identifier: Apache-2.0 */
/* Releasing: Algorithm 3, bound to the era: each change of the entry by a writer is a compare-and-swap that finds RelCnt and era as
 * the holder knows them. A client that is lost meanwhile changes nothing, since recovery has moved both. Readers compare, too, or
 * were fenced before the recovery. */
#include "designs/core/steps.h"
#include "designs/shiftlock/shiftlock.h"

#include <errno.h>

#define SUCCESSOR_CHECKS 4     /* how often to look for a successor without a note, before the lock is counted anew */
#define LAG_NS (2 * NS_PER_US) /* about a round trip */
#define LOOKS_MAX 8            /* with more releases at once the looks for notes of successors would need a second packet */
#define TELL_TRIES 4           /* a client that cannot be reached so often is partitioned */

/* The connection broke, or the lock was counted anew while our record was uncertain. */
ONCE static int leave_in_doubt(const struct seat *seat, const struct hold *h)
{
    return shift_doubt(seat, h, h->mode == PAWL_SHARED ? RECORD_LEAVE_S : RECORD_TRY_X, RECORD_FREE);
}

/* The fields that a release compares: they are unchanged only if no recovery has counted us out. */
static unsigned bound_to(const struct seat *seat, unsigned fields)
{
    return shift_errs(seat, SHIFT_LATE_RELEASE) ? fields & SHIFT_TAIL : fields;
}

/* Asked between reading the entry and changing it: if the entry is then unchanged, no recovery has counted us out. */
static bool lost(const struct seat *seat)
{
    return !shift_errs(seat, SHIFT_LATE_RELEASE) && !seat_lives(seat);
}

/* ---- readers (lines 1 and 2) ---- */

/* Line 2, where lost sessions are fenced before they are counted out: our record says that we hold until this has taken effect, so
 * we are counted in every even era until then (I3). */
static int reader_adds(const struct seat *seat, const struct hold *h)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_run run;
    struct fab_op op = {.verb = FAB_FAA,
                        .width = f->width,
                        .masked = true,
                        .addr = shift_addr(seat, h->index),
                        .compare = shift_pack(f, shift_recall(seat, h, &run))}; /* a guess: no client came or left since */
    op.swap = (u128)FIELD_MAX(f->readers_bits) << f->readers_shift | (u128)1 << f->rel_shift;
    op.swap_mask = (u128)1 << (f->readers_shift + f->readers_bits - 1) | (u128)1 << (f->rel_shift + f->rel_bits - 1);
    if (f->echo_bits) {
        op.swap |= (u128)1 << f->echo_shift;
        op.swap_mask |= (u128)1 << (f->echo_shift + f->echo_bits - 1);
    }
    if (lost(seat))
        return -PAWL_ELOST;
    int rc = fab_batch(seat->ep, &op, 1);
    step_done(seat, STEP_ATOMIC);
    if (rc)
        return rc == -FAB_EUNKNOWN ? leave_in_doubt(seat, h) : seat_retry(seat, rc);
    struct shift_entry old = shift_unpack(f, op.old);
    if (shift_recounting(old)) /* the session that counts may have read our record before it said that we leave */
        return leave_in_doubt(seat, h);
    assert(old.readers > 0 || shift_errs(seat, SHIFT_ANY)); /* a reader is counted until it is shut out (I3) */
    struct shift_entry next = old;
    next.rel = shift_rel_add(f, old.rel, 1);
    shift_expect(seat, h->index, next);
    hold_close(seat, h);
    if (old.tail)
        shift_wake_writer(seat, h->index);
    return 0;
}

/* Our record says that we may have left before the entry is changed, so no count completes meanwhile; one that completed before has
 * counted us. So in every even era in which we find the lock, we hold it. */
static int release_reader(const struct seat *seat, const struct hold *h)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_run run;
    int rc = shift_claim(seat, h, RECORD_HELD_S, RECORD_LEAVE_S);
    if (rc)
        return rc;
    if (shift_adds(seat))
        return reader_adds(seat, h);
    struct shift_entry e = shift_recall(seat, h, &run);
    for (;;) {
        struct shift_entry next = e, old;
        next.readers--;
        next.rel = shift_rel_add(f, e.rel, 1);
        if (lost(seat))
            return -PAWL_ELOST;
        rc = shift_cas(seat, h->index, e, SHIFT_ALL, next, SHIFT_ALL, &old);
        if (rc)
            return rc == -FAB_EUNKNOWN ? leave_in_doubt(seat, h) : seat_retry(seat, rc);
        if (shift_matches(old, e, SHIFT_ALL)) {
            hold_close(seat, h);
            if (e.tail)
                shift_wake_writer(seat, h->index);
            return 0;
        }
        if (shift_recounting(old))
            return leave_in_doubt(seat, h);
        assert(old.readers > 0 || shift_errs(seat, SHIFT_ANY) || !seat_lives(seat)); /* a live reader is counted (I3) */
        e = old;
    }
}

/* ---- writers (lines 3 to 23) ---- */

/* The note of our successor, if it is there. A note of a client that joined before we did is from an earlier hold. */
static bool successor(const struct seat *seat, const struct hold *h, struct shift_entry e, const struct shift_look *look,
                      struct shift_note *out)
{
    fab_addr at = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, next);
    if (!shift_read_note(seat, at, h->index, e.era, look, out) || shift_note_kind(out) != SHIFT_SUCCESSOR)
        return false;
    return shift_rel_reached(shift_form(seat), out->extra, shift_joined(seat, h)) || shift_errs(seat, SHIFT_NAMELESS);
}

int shift_await_successor(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_note *out)
{
    fab_addr at = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, next);
    uint64_t step_ns = seat->space->check_ns / 2;
    for (unsigned checks = 0; checks < SUCCESSOR_CHECKS; checks++) {
        uint64_t until = add_saturating(world_now(seat->world), step_ns);
        struct shift_look look = {0};
        for (bool seen = false; world_now(seat->world) < until;) {
            if (!seen)
                shift_look_note(seat, at, &look);
            if (successor(seat, h, e, &look, out))
                return 0;
            int rc = shift_wait_note(seat, at, &look, until);
            seen = !rc && look.known; /* by the end of the wait */
            if (rc == -ECANCELED)
                break; /* a release is not given up */
            if (rc && rc != -ETIMEDOUT && (rc = seat_retry(seat, rc)))
                return rc;
        }
        struct shift_entry now;
        int rc = shift_look_rel_last(seat, h->index, &now);
        if (!rc && (now.era != e.era || now.tail == shift_name(seat, h)))
            return SHIFT_AGAIN;
        if (!rc && !seat_lives(seat))
            return -PAWL_ELOST;
        if (!rc)
            rc = shift_check_dead(seat, h->index, true);
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
    return successor(seat, h, e, NULL, out) ? 0 : SHIFT_AGAIN;
}

static fab_addr grant_of(const struct shift_note *succ)
{
    return succ->value + offsetof(struct shift_desc, grant);
}

static struct shift_note grant_note(const struct shift_note *succ, struct shift_entry after, uint64_t target, struct shift_run run)
{
    return (struct shift_note){.nonce = succ->nonce, .value = target, .extra = shift_note_extra(run, after.epoch)};
}

int shift_tell(const struct seat *seat, const struct hold *h, const struct shift_note *succ, enum shift_kind kind,
               struct shift_entry after, uint64_t target, struct shift_run run)
{
    int rc = -FAB_EUNKNOWN;
    for (unsigned i = 0; i < TELL_TRIES && rc == -FAB_EUNKNOWN; i++)
        rc = shift_leave_note(seat, grant_of(succ), h->index, after.era, kind, grant_note(succ, after, target, run));
    step_done(seat, STEP_SUCCESSOR);
    return rc;
}

/* Our predecessor has handed over and is about to move RelCnt, unless it died in between. SHIFT_AGAIN: RelCnt has not arrived for
 * too long. */
static int await_lag(const struct seat *seat, uint64_t *since)
{
    uint64_t now = world_now(seat->world);
    *since = *since ? *since : now;
    if (now - *since > seat->space->check_ns)
        return SHIFT_AGAIN;
    int rc = fab_wait_any(seat->ep, NULL, 0, now + LAG_NS);
    return rc == -ETIMEDOUT || rc == -ECANCELED ? 0 : rc; /* a release is not given up */
}

static bool lags(const struct seat *seat, struct shift_entry now, struct shift_entry known)
{
    return now.era == known.era && now.epoch == known.epoch && !shift_rel_reached(shift_form(seat), now.rel, known.rel);
}

/* A compare-and-swap that hands over or frees the lock. 1: done; 0: *old is the entry that it found instead. `look`, if not null:
 * the look at our successor's note goes with it, and if there is one, RelCnt that lags is not waited for. */
static int step(const struct seat *seat, const struct hold *h, struct shift_entry e, unsigned compared, struct shift_entry next,
                unsigned swapped, struct shift_look *look, struct shift_entry *old)
{
    const fab_addr at = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, next);
    struct shift_note note;
    for (uint64_t since = 0;;) {
        int rc = look ? shift_look_and_cas(seat, at, look, h->index, e, compared, next, swapped, old)
                      : shift_cas(seat, h->index, e, compared, next, swapped, old);
        step_done(seat, STEP_ATOMIC);
        if (rc)
            return rc;
        if (shift_matches(*old, e, compared))
            return 1;
        if (!lags(seat, *old, e) || (look && successor(seat, h, e, look, &note)))
            return 0;
        rc = await_lag(seat, &since);
        if (rc)
            return rc > 0 ? 0 : rc;
        if (lost(seat))
            return -PAWL_ELOST;
    }
}

#define PASSED (SHIFT_REL | SHIFT_EPOCH)

/* Lines 20 to 23 the other way round: the note first, which spares the successor a round trip, RelCnt after it. If we are lost
 * before the note is sent, the successor is told to start over before another client is let in, and does not take the note. If we
 * are lost after it, the successor holds, publishes that, and is counted. docs/designs/shiftlock.md has the argument. */
static int hand_over_at_once(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_run run,
                             const struct shift_note *succ)
{
    struct shift_entry old, next = e;
    next.rel = shift_rel_add(shift_form(seat), e.rel, 1);
    run.writers++;
    assert(run.writers < shift_knob(seat, SHIFT_WRITERS_MAX) || shift_errs(seat, SHIFT_ANY)); /* I12 */
    run.lag++;
    shift_post_note(seat, grant_of(succ), h->index, e.era, SHIFT_HANDOVER, grant_note(succ, next, next.rel, run));
    int rc = step(seat, h, e, bound_to(seat, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH), next, PASSED, NULL, &old);
    return rc > 0 ? 0 : rc ? rc : SHIFT_AGAIN;
}

static bool is_readers_turn(const struct seat *seat, struct shift_run run)
{
    if (shift_errs(seat, SHIFT_GREEDY))
        return false;
    return run.writers + 1 >= shift_knob(seat, SHIFT_WRITERS_MAX);
}

/* Lines 15 to 23. */
static int hand_over(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_run run,
                     const struct shift_note *succ)
{
    const struct shift_form *f = shift_form(seat);
    const unsigned compared = bound_to(seat, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH);
    struct shift_entry old, next = e;
    bool readers_turn = is_readers_turn(seat, run);
    next.rel = shift_rel_add(f, e.rel, 1);
    if (lost(seat))
        return -PAWL_ELOST;
    if (!readers_turn && run.lag < SHIFT_LAG_MAX && !fab_is_shm(seat->ep) && shift_knob(seat, SHIFT_AT_ONCE))
        return hand_over_at_once(seat, h, e, run, succ);
    if (readers_turn && shift_knob(seat, SHIFT_KEEP_ON)) { /* unless no reader waits */
        struct shift_entry unread = e;
        unread.readers = 0;
        int rc = step(seat, h, unread, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH | SHIFT_READERS, next, PASSED, NULL, &old);
        if (rc < 0)
            return rc;
        if (rc) /* a reader that comes now waits for N writers from here on */
            return shift_tell(seat, h, succ, SHIFT_HANDOVER, next, next.rel, (struct shift_run){0});
        if (!shift_matches(old, e, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH))
            return SHIFT_AGAIN;
    }
    next.epoch = readers_turn ? !e.epoch : e.epoch;
    int rc = step(seat, h, e, compared, next, PASSED, NULL, &old);
    if (rc <= 0)
        return rc ? rc : SHIFT_AGAIN;
    if (!readers_turn)
        return shift_tell(seat, h, succ, SHIFT_HANDOVER, next, next.rel, (struct shift_run){.writers = run.writers + 1});
    if (old.readers)
        shift_wake_readers(seat, h->index);
    return shift_tell(seat, h, succ, SHIFT_MODE_CHANGED, next, shift_rel_add(f, next.rel, old.readers), (struct shift_run){0});
}

/* Line 6: no writer is known behind us. 1: the lock is free; 0: *e is the entry that was found. `look`: see step. */
static int free_lock(const struct seat *seat, const struct hold *h, struct shift_entry *e, uint64_t mine, struct shift_look *look)
{
    const unsigned compared = bound_to(seat, SHIFT_TAIL | SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH);
    struct shift_entry old, next = {.rel = shift_rel_after(shift_form(seat), e->rel, mine), .epoch = !e->epoch};
    if (lost(seat))
        return -PAWL_ELOST;
    int rc = step(seat, h, *e, compared, next, SHIFT_TAIL | SHIFT_REL | SHIFT_EPOCH, look, &old);
    if (rc < 0)
        return rc;
    if (rc) {
        next.era = old.era;
        shift_expect(seat, h->index, next);
        hold_close(seat, h);
        if (old.readers)
            shift_wake_readers(seat, h->index);
    }
    *e = old;
    if (!shift_rel_reached(shift_form(seat), old.rel, mine)) /* RelCnt still lags: the value that it will have is handed on */
        e->rel = mine;
    return rc;
}

/* No note came from the successor, or the entry has changed. 0: *e is the entry for another attempt. */
static int look_again(const struct seat *seat, const struct hold *h, struct shift_entry *e, uint64_t mine)
{
    struct shift_entry now;
    int rc = shift_look_rel_first(seat, h->index, &now);
    if (rc)
        return rc;
    if (now.era != e->era || now.tail != shift_name(seat, h) || !shift_rel_reached(shift_form(seat), now.rel, mine))
        return SHIFT_AGAIN;
    *e = now;
    return 0;
}

#define RELEASED (SHIFT_AGAIN + 1)

/* The lock could not be freed: waits for the note of the writer behind us (lines 13 and 14). SHIFT_AGAIN: there is none. */
static int find_successor(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_note *out)
{
    if (shift_recounting(e) || e.tail == shift_name(seat, h))
        return SHIFT_AGAIN;
    int rc = shift_await_successor(seat, h, e, out);
    step_done(seat, STEP_SUCCESSOR);
    return rc;
}

/* One attempt: frees the lock if no writer is known behind us (lines 5 to 12), else hands it over (lines 15 to 23). RELEASED; 0: *e
 * is the entry for another attempt; SHIFT_AGAIN or an error: the outcome is unknown. */
static int free_or_hand_over(const struct seat *seat, const struct hold *h, struct shift_entry *e, uint64_t mine,
                             struct shift_run run)
{
    struct shift_note succ;
    struct shift_look look;
    const bool far = shift_is_far(seat, seat_desc_addr(seat, h->record)); /* a look would take a round trip of its own */
    const bool looks = far && seat->ep->calls <= LOOKS_MAX;
    if (far || !successor(seat, h, *e, NULL, &succ)) {
        e->tail = shift_name(seat, h);
        int rc = free_lock(seat, h, e, mine, looks ? &look : NULL);
        if (rc)
            return rc > 0 ? RELEASED : rc;
        rc = looks && successor(seat, h, *e, &look, &succ) ? 0 : find_successor(seat, h, *e, &succ);
        if (rc == SHIFT_AGAIN && !shift_recounting(*e))
            return look_again(seat, h, e, mine);
        if (rc)
            return rc;
    }
    int rc = hand_over(seat, h, *e, run, &succ);
    if (rc)
        return rc;
    hold_close(seat, h);
    return RELEASED;
}

/* As with readers: in every even era in which we find the lock, we hold it. */
static int release_writer(const struct seat *seat, const struct hold *h)
{
    struct shift_run run;
    int rc = shift_claim(seat, h, RECORD_HELD_X, RECORD_TRY_X);
    if (rc)
        return rc;
    struct shift_entry e = shift_recall(seat, h, &run);
    const uint64_t mine = e.rel;
    assert(!shift_recounting(e)); /* no writer is granted the lock while it is counted anew */
    do
        rc = free_or_hand_over(seat, h, &e, mine, run);
    while (!rc);
    if (rc == RELEASED)
        return 0;
    return rc == SHIFT_AGAIN || rc == -FAB_EUNKNOWN ? leave_in_doubt(seat, h) : seat_retry(seat, rc);
}

int shift_release(const struct seat *seat, const struct hold *h)
{
    return h->mode == PAWL_EXCLUSIVE ? release_writer(seat, h) : release_reader(seat, h);
}
