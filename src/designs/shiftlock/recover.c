/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery: counting anew.
 *
 * 3.6 resets a lock that has stood still for three leases, and everybody starts over. Here leases belong to sessions, so it is
 * known who is dead; but not what a dead client's last step has come to, nor what it leaves in the queue. So the lock is counted
 * anew: its era becomes odd, in which nobody enters and nobody is let in; who waits sees that and says in its record that it waits
 * outside; who holds stays on the books. When every living client's record says something certain, the next even era begins with
 * exactly the living holders, and those who waited join again. RelCnt rises with each step, so no compare-and-swap that was
 * prepared before succeeds. */
#include "designs/shiftlock/shiftlock.h"

#include <errno.h>

#define RECOUNT_PAUSE_NS (50 * NS_PER_US) /* for somebody in the middle of a step: a few round trips */

static void wake_all(const struct seat *seat, uint64_t index)
{
    shift_wake_readers(seat, index);
    shift_wake_writer(seat, index);
}

int shift_ask_recount(const struct seat *seat, uint64_t index)
{
    const struct shift_form *f = shift_form(seat);
    struct shift_entry e = {0}, old;
    int rc = shift_look_rel_last(seat, index, &e);
    for (;;) {
        struct shift_entry next = {.rel = shift_rel_add(f, e.rel, 1),
                                   .era = shift_recounting(e) ? e.era : shift_era_next(f, e.era)};
        if (!rc)
            rc = shift_cas(seat, index, e, SHIFT_REL | SHIFT_ERA, next, SHIFT_REL | SHIFT_ERA | SHIFT_EPOCH, &old);
        if (!rc && shift_matches(old, e, SHIFT_REL | SHIFT_ERA)) {
            wake_all(seat, index);
            return 0;
        }
        if (!rc) {
            e = old;
            continue;
        }
        /* Twice does no harm. */
        if ((rc = seat_retry(seat, rc)))
            return rc;
        rc = shift_look_rel_last(seat, index, &e);
    }
}

int shift_doubt(const struct seat *seat, const struct hold *h, enum record_state may, enum record_state then)
{
    int rc = hold_publish(seat, h, may);
    if (!rc)
        rc = shift_ask_recount(seat, h->index);
    if (rc)
        return rc;
    if (then != RECORD_FREE)
        return then == may ? 0 : hold_publish(seat, h, then);
    hold_close(seat, h);
    return 0;
}

/* ---- the census ---- */

/* Wakes who is in the middle of a step, for it may be asleep. */
static void stir(const struct seat *seat, uint32_t slot, uint32_t record)
{
    const struct space *s = seat->space;
    if (!fab_is_shm(seat->ep))
        return;
    fab_addr desc = s->descs + ((uint64_t)slot * s->record_count + record) * s->desc_size;
    fab_wake(seat->ep, desc + offsetof(struct shift_desc, grant.sum), UINT32_MAX, 1);
    fab_wake(seat->ep, desc + offsetof(struct shift_desc, next.sum), UINT32_MAX, 1);
}

/* In order to let others in, who is lost is shut out before it is counted out: where readers leave by adding, an addition that
 * comes late would count for somebody else. On shared memory they compare. */
static int count_for_good(const struct seat *seat, uint64_t index, struct census *out)
{
    return census_take(seat, index, shift_adds(seat) && !shift_errs(seat, SHIFT_LATE_RELEASE), stir, out);
}

/* One census for the entry as it was. 1: counted and written. */
static int recount_once(const struct seat *seat, uint64_t index, struct shift_entry e)
{
    const struct shift_form *f = shift_form(seat);
    struct census c;
    struct shift_entry old;
    int rc = count_for_good(seat, index, &c);
    if (rc)
        return rc;
    /* A writer beside others has just left, and its record is about to say so. */
    if (c.unsure || c.writers > 1 || (c.writers && c.readers))
        return 0;
    struct shift_entry next = {/* Above what tokens of hand-overs under way were taken from. */
                               .rel = shift_rel_add(f, e.rel, 1 + SHIFT_LAG_MAX),
                               .readers = c.readers,
                               .tail = shift_counted_writer(seat, &c),
                               .era = shift_era_next(f, e.era)};
    /* RdrCnt and tail may have been touched by those who came meanwhile; they saw the odd era. */
    rc = shift_cas(seat, index, e, SHIFT_REL | SHIFT_ERA, next, SHIFT_ALL, &old);
    if (rc || !shift_matches(old, e, SHIFT_REL | SHIFT_ERA))
        return rc;
    wake_all(seat, index);
    return 1;
}

int shift_recount(const struct seat *seat, uint64_t index, uint64_t deadline)
{
    for (;;) {
        struct shift_entry e;
        /* An exact reading: what is counted must belong to this RelCnt. RelCnt first: if the era is odd afterwards and the
         * compare-and-swap finds both, they are of one moment. */
        int rc = shift_look_rel_first(seat, index, &e);
        if (!rc && !shift_recounting(e))
            return 0;
        if (!rc)
            rc = recount_once(seat, index, e);
        if (rc)
            return rc > 0 ? 0 : rc;
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        uint64_t until = add_saturating(world_now(seat->world), RECOUNT_PAUSE_NS);
        struct fab_cond conds[] = {shift_cond_epoch(seat, index, e), shift_cond_rel(seat, index, e)};
        rc = fab_wait_any(seat->ep, conds, countof(conds), min_u64(until, deadline));
        if (rc && (rc != -ETIMEDOUT || deadline <= until))
            return rc;
        if (!seat_lives(seat))
            return -PAWL_ELOST;
    }
}

/* ---- recovery of a dead session ---- */

struct cleanup {
    const struct seat *seat;
    uint32_t dead;
    uint32_t epoch;
};

static int recover_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    const struct cleanup *f = ctx;
    const struct seat *seat = f->seat;
    uint64_t index = record_index(word), lease;
    struct shift_entry e;
    if (record_state(word) == RECORD_WAIT)
        return 0; /* certainly outside */
    if (index >= seat->space->lock_count)
        return -EFAULT; /* memory was overwritten by a stranger */
    int rc = shift_look_rel_last(seat, index, &e);
    if (!rc) /* after the entry: what it says is then the dead session's, not its successor's in the slot (I6) */
        rc = fab_read64(seat->ep, space_slot_addr(seat->space, f->dead) + offsetof(struct slot, lease), &lease);
    if (rc)
        return rc;
    if (lease_state(lease) != SLOT_LOST || lease_epoch(lease) != f->epoch)
        return 1;
    if (!shift_recounting(e) && !e.tail && !e.readers)
        return 0; /* nobody at all */
    /* Also one that is under way may have counted the dead one in: it must not stand. */
    rc = shift_ask_recount(seat, index);
    if (!rc)
        rc = shift_recount(seat, index, DEADLINE_TRY);
    return rc == -PAWL_EHELD ? 0 : rc; /* somebody is in the middle of a step: whoever wants the lock goes on counting */
}

/* A session that ends knows what it had. */
static int recover_self(const struct seat *seat, struct cleanup *f)
{
    int rc = 0;
    for (uint32_t i = 0; i < seat->space->record_count && !rc; i++) {
        uint64_t word = __atomic_load_n(&seat->me->shadow[i], __ATOMIC_ACQUIRE);
        if (record_state(word) != RECORD_FREE && record_state(word) != RECORD_SPARE)
            rc = recover_record(f, f->dead, i, word);
    }
    return rc > 0 ? 0 : rc;
}

/* Where records died with their session nobody knows which locks it had; nor need anybody: whoever wants one of them finds that
 * nobody living holds it (shift_check_dead, and look_closely for those who only ask). */
int shift_recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    struct cleanup f = {.seat = seat, .dead = dead, .epoch = epoch};
    if (seat_records_home(seat))
        return dead == seat->me->slot ? recover_self(seat, &f) : 0;
    int rc = seat_records(seat, dead, recover_record, &f);
    return rc > 0 ? 0 : rc;
}

/* ---- what waiters do about those in their way ---- */

/* Everything but WAIT, which is certainly outside. */
#define CONCERNED                                                                                                                  \
    (CENSUS_STATE(RECORD_TRY_X) | CENSUS_STATE(RECORD_TRY_S) | CENSUS_STATE(RECORD_HELD_S) | CENSUS_STATE(RECORD_LEAVE_S) |        \
     CENSUS_STATE(RECORD_HELD_X))

static int recover_if_dead(void *ctx, uint32_t slot)
{
    const struct seat *seat = ctx;
    uint64_t lease;
    int dead = seat_peer_dead(seat, slot, &lease);
    return dead > 0 && lease_state(lease) == SLOT_LOST ? shift_recover(seat, slot, lease_epoch(lease)) : dead < 0 ? dead : 0;
}

/* Those who wait say "may"; a holder says so itself. */
static int check_holders(const struct seat *seat, uint64_t index, bool still)
{
    struct census c;
    int rc = census_take(seat, index, false, NULL, &c);
    return rc || c.readers || c.writers || (c.unsure && !still) ? rc : shift_ask_recount(seat, index);
}

int shift_check_dead(const struct seat *seat, uint64_t index, bool still)
{
    if (seat_records_home(seat))
        return check_holders(seat, index, still);
    return census_concerned(seat, index, CONCERNED, recover_if_dead, (void *)seat);
}

unsigned shift_life_conds(const struct seat *seat, uint64_t index, struct fab_cond *conds, unsigned max, bool *dying)
{
    return census_life_conds(seat, index, CONCERNED, conds, max, dying);
}
