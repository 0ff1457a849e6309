/* Releasing: Algorithm 3, bound to the era: each change of the entry by a writer is a compare-and-swap that finds RelCnt and era as
 * the holder knows them. A client that is lost meanwhile changes nothing, for whatever was done about it has moved both. Readers
 * compare, too, or were shut out before anything was done about them. */
#include "designs/shiftlock/shiftlock.h"

#include <errno.h>

#define SUCCESSOR_CHECKS 4 /* how often to look for a successor that does not say who it is, before the lock is counted anew */
#define TELL_TRIES 4       /* a client that cannot be reached so often is on the other side of something */

/* The connection broke, or the lock was counted anew while our record said neither this nor that. */
static int leave_in_doubt(const struct seat *seat, const struct hold *h)
{
    return shift_doubt(seat, h, h->mode == PAWL_SHARED ? RECORD_LEAVE_S : RECORD_TRY_X, RECORD_FREE);
}

/* What a release compares: all that says that nothing was done about us. */
static unsigned bound_to(const struct seat *seat, unsigned fields)
{
    return shift_of(seat)->busted & SHIFT_LATE_RELEASE ? fields & SHIFT_TAIL : fields;
}

/* Asked between reading the entry and changing it: if it is then as it was read, nobody has counted us out. */
static bool lost(const struct seat *seat)
{
    return !(shift_of(seat)->busted & SHIFT_LATE_RELEASE) && !seat_lives(seat);
}

/* One compare-and-swap that ends the hold. With it, in the same round trip, the record says that nothing is held any more; if it
 * did not end, the record says again, and soon, that it may. What happens in between is noticed by those who wait (check_pred and
 * patience, in acquire.c). */
static int end_by(const struct seat *seat, const struct hold *h, struct fab_op *op, bool record_says_may)
{
    if (fab_is_shm(seat->ep) || record_says_may)
        return fab_batch(seat->ep, op, 1);
    uint64_t word = record_word(RECORD_FREE, h->serial, 0);
    struct fab_op ops[] = {
        *op,
        {.verb = FAB_WRITE, .len = 8, .buf = &word, .addr = space_record_addr(seat->space, seat->me->slot, h->record)},
    };
    int rc = fab_batch(seat->ep, ops, countof(ops));
    op->old = ops[0].old;
    return rc;
}

static void ended(const struct seat *seat, const struct hold *h, bool record_says_may)
{
    if (fab_is_shm(seat->ep) || record_says_may)
        hold_close(seat, h);
    else
        hold_forget(seat, h);
}

/* ---- readers (lines 1 and 2) ---- */

/* Line 2, where the lost are shut out before they are counted out: our record says that we hold until this has taken effect, so in
 * whatever even era that is, we are counted. */
static int reader_adds(const struct seat *seat, const struct hold *h)
{
    const struct shift_form *f = shift_form(seat);
    struct fab_op op = {.verb = FAB_FAA, .width = f->width, .masked = true, .addr = shift_addr(seat, h->index)};
    op.swap = (u128)FIELD_MAX(f->readers_bits) << f->readers_shift | (u128)1 << f->rel_shift;
    op.swap_mask = (u128)1 << (f->readers_shift + f->readers_bits - 1) | (u128)1 << (f->rel_shift + f->rel_bits - 1);
    if (lost(seat))
        return -PAWL_ELOST;
    int rc = end_by(seat, h, &op, false);
    if (rc)
        return rc == -FAB_EUNKNOWN ? leave_in_doubt(seat, h) : seat_retry(seat, rc);
    struct shift_entry old = shift_unpack(f, op.old);
    if (shift_recounting(old)) /* whoever counts may have seen our record before it said that we have left */
        return leave_in_doubt(seat, h);
    assert(old.readers > 0 || shift_of(seat)->busted); /* a reader is counted until it is shut out (I3) */
    ended(seat, h, false);
    if (old.tail)
        shift_wake_writer(seat, h->index);
    return 0;
}

static int release_reader(const struct seat *seat, const struct hold *h)
{
    const struct shift_form *f = shift_form(seat);
    uint64_t writers;
    int rc = shift_claim(seat, h, RECORD_HELD_S, RECORD_LEAVE_S);
    if (rc)
        return rc;
    if (shift_adds(seat))
        return reader_adds(seat, h);
    struct shift_entry e = shift_recall(seat, h, &writers);
    for (bool may = false;; may = true) {
        struct shift_entry next = e, old;
        struct fab_op op;
        next.readers--;
        next.rel = shift_rel_add(f, e.rel, 1);
        if (lost(seat))
            return -PAWL_ELOST;
        shift_op_cas(seat, h->index, e, SHIFT_ALL, next, SHIFT_ALL, &op);
        rc = end_by(seat, h, &op, may);
        if (rc)
            return rc == -FAB_EUNKNOWN ? leave_in_doubt(seat, h) : seat_retry(seat, rc);
        old = shift_unpack(f, op.old);
        if (shift_matches(old, e, SHIFT_ALL)) {
            ended(seat, h, may);
            if (e.tail)
                shift_wake_writer(seat, h->index);
            return 0;
        }
        /* At the first look our record still said that we hold: whatever even era it is, we are counted in it. */
        if (shift_recounting(old) || (may && old.era != e.era))
            return leave_in_doubt(seat, h);
        assert(old.readers > 0 || shift_of(seat)->busted || !seat_lives(seat)); /* a live reader is counted (I3) */
        e = old;
        if (!may && (rc = hold_publish(seat, h, RECORD_LEAVE_S)))
            return rc;
    }
}

/* ---- writers (lines 3 to 23) ---- */

/* What our successor has left for us, if it has. One that joined before we did is somebody's from an earlier time. */
static bool successor(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_note *out)
{
    fab_addr at = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, next);
    if (!shift_read_note(seat, at, h->index, e.era, out) || shift_note_kind(out) != SHIFT_SUCCESSOR)
        return false;
    return shift_rel_reached(shift_form(seat), out->extra, shift_joined(seat, h)) || shift_of(seat)->busted & SHIFT_NAMELESS;
}

int shift_await_successor(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_note *out)
{
    fab_addr at = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, next);
    uint64_t step_ns = seat->space->check_ns / 2;
    for (unsigned checks = 0; checks < SUCCESSOR_CHECKS; checks++) {
        uint64_t until = add_saturating(world_now(seat->world), step_ns);
        while (world_now(seat->world) < until) {
            struct fab_cond conds[2];
            unsigned n = shift_note_conds(seat, at, conds);
            if (successor(seat, h, e, out))
                return 0;
            int rc = fab_wait_any(seat->ep, conds, n, until);
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
            rc = shift_check_dead(seat, h->index);
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
    return successor(seat, h, e, out) ? 0 : SHIFT_AGAIN;
}

int shift_tell(const struct seat *seat, const struct hold *h, const struct shift_note *succ, enum shift_kind kind,
               struct shift_entry after, uint64_t target, uint64_t writers)
{
    struct shift_note note = {.nonce = succ->nonce, .value = target, .extra = writers << 1 | after.epoch};
    int rc = 0;
    for (unsigned i = 0; i < TELL_TRIES; i++) {
        rc = shift_leave_note(seat, succ->value + offsetof(struct shift_desc, grant), h->index, after.era, kind, note);
        if (rc != -FAB_EUNKNOWN)
            return rc;
    }
    return rc;
}

/* A compare-and-swap that passes the lock on; the record says before it that we may still hold. */
static int pass_by(const struct seat *seat, const struct hold *h, struct shift_entry compare, unsigned compared,
                   struct shift_entry swap, struct shift_entry *old)
{
    struct fab_op op;
    shift_op_cas(seat, h->index, compare, compared, swap, SHIFT_REL | SHIFT_EPOCH, &op);
    int rc = shift_publish_and(seat, h, RECORD_TRY_X, &op);
    if (!rc)
        *old = shift_unpack(shift_form(seat), op.old);
    return rc;
}

/* Lines 15 to 23. */
static int hand_over(const struct seat *seat, const struct hold *h, struct shift_entry e, uint64_t writers,
                     const struct shift_note *succ)
{
    const struct shift_form *f = shift_form(seat);
    const struct shift_design *d = shift_of(seat);
    const unsigned compared = bound_to(seat, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH);
    struct shift_entry old, next = e;
    bool readers_turn = writers + 1 >= (shift_tuned_writers_max ? shift_tuned_writers_max : d->writers_max);
    next.rel = shift_rel_add(f, e.rel, 1);
    if (lost(seat))
        return -PAWL_ELOST;
    if (readers_turn && (shift_tuned_keep_on < 2 ? shift_tuned_keep_on : d->keep_on)) { /* unless nobody waits */
        struct shift_entry nobody = e;
        nobody.readers = 0;
        int rc = pass_by(seat, h, nobody, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH | SHIFT_READERS, next, &old);
        if (rc)
            return rc;
        if (!shift_matches(old, e, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH))
            return SHIFT_AGAIN;
        if (!old.readers)
            return shift_tell(seat, h, succ, SHIFT_HANDOVER, next, next.rel, writers);
    }
    next.epoch = readers_turn ? !e.epoch : e.epoch;
    int rc = pass_by(seat, h, e, compared, next, &old);
    if (rc)
        return rc;
    if (!shift_matches(old, e, compared))
        return SHIFT_AGAIN;
    if (!readers_turn)
        return shift_tell(seat, h, succ, SHIFT_HANDOVER, next, next.rel, writers + 1);
    if (old.readers)
        shift_wake_readers(seat, h->index);
    return shift_tell(seat, h, succ, SHIFT_MODE_CHANGED, next, shift_rel_add(f, next.rel, old.readers), 0);
}

/* Line 6: nobody behind us, as far as we know. 1: the lock is free; 0: *e is what the entry was. */
static int free_lock(const struct seat *seat, const struct hold *h, struct shift_entry *e, bool may)
{
    const struct shift_form *f = shift_form(seat);
    const unsigned compared = bound_to(seat, SHIFT_TAIL | SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH);
    struct shift_entry next = {.rel = shift_rel_add(f, e->rel, 1), .epoch = !e->epoch};
    struct fab_op op;
    if (lost(seat))
        return -PAWL_ELOST;
    shift_op_cas(seat, h->index, *e, compared, next, SHIFT_TAIL | SHIFT_REL | SHIFT_EPOCH, &op);
    int rc = end_by(seat, h, &op, may);
    if (rc)
        return rc;
    struct shift_entry old = shift_unpack(f, op.old);
    bool done = shift_matches(old, *e, compared);
    if (done) {
        ended(seat, h, may);
        if (old.readers)
            shift_wake_readers(seat, h->index);
    }
    *e = old;
    return done;
}

static int release_writer(const struct seat *seat, const struct hold *h)
{
    uint64_t writers;
    struct shift_note succ;
    int rc = shift_claim(seat, h, RECORD_HELD_X, RECORD_TRY_X);
    if (rc)
        return rc;
    struct shift_entry e = shift_recall(seat, h, &writers);
    for (bool may = false;; may = true) {
        struct shift_entry was = e;
        bool known = successor(seat, h, e, &succ);
        if (!known) {
            e.tail = shift_name(seat, h);
            rc = free_lock(seat, h, &e, may);
            if (rc > 0)
                return 0;
            if (rc)
                return rc == -FAB_EUNKNOWN ? leave_in_doubt(seat, h) : seat_retry(seat, rc);
            /* At the first look our record still said that we hold: whatever even era it is, we hold in it. */
            if (shift_recounting(e) || (may && e.era != was.era))
                return leave_in_doubt(seat, h);
        }
        if (!may && !known && (rc = hold_publish(seat, h, RECORD_TRY_X)))
            return rc;
        rc = known ? 0 : e.tail == shift_name(seat, h) ? SHIFT_AGAIN : shift_await_successor(seat, h, e, &succ);
        if (rc == SHIFT_AGAIN && !known) {
            struct shift_entry now;
            rc = shift_look_rel_first(seat, h->index, &now);
            if (!rc && now.era == e.era && now.tail == shift_name(seat, h)) {
                e = now;
                continue;
            }
            return rc && rc != -FAB_EUNKNOWN ? seat_retry(seat, rc) : leave_in_doubt(seat, h);
        }
        if (!rc)
            rc = hand_over(seat, h, e, writers, &succ);
        if (!rc) {
            hold_close(seat, h);
            return 0;
        }
        return rc == SHIFT_AGAIN || rc == -FAB_EUNKNOWN ? leave_in_doubt(seat, h) : seat_retry(seat, rc);
    }
}

int shift_release(const struct seat *seat, const struct hold *h)
{
    return h->mode == PAWL_EXCLUSIVE ? release_writer(seat, h) : release_reader(seat, h);
}
