/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery: counting anew.
 *
 * 3.6 resets a lock that has stood still for three leases, and every client starts over. Here leases belong to sessions, so it is
 * known which session is dead, but not whether its last step took effect, nor what it left in the queue. So the lock is counted
 * anew. Its era becomes odd, in which no client enters or is let in. Waiters see that, and publish that they wait outside; the
 * records of holders stay. When the record of every living client is certain, the next even era begins with exactly the living
 * holders, and the waiters join again. RelCnt rises with each step, so no compare-and-swap that was prepared before succeeds. */
#include "designs/shiftlock/shiftlock.h"

#include <errno.h>

#define RECOUNT_PAUSE_NS (50 * NS_PER_US) /* for a client in the middle of a step: a few round trips */

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
        /* Doing it twice does no harm. */
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

/* Wakes a client in the middle of a step, which may be asleep. */
static void stir(const struct seat *seat, uint32_t slot, uint32_t record)
{
    const struct space *s = seat->space;
    if (!fab_is_shm(seat->ep))
        return;
    fab_addr desc = s->descs + ((uint64_t)slot * s->record_count + record) * s->desc_size;
    fab_wake(seat->ep, desc + offsetof(struct shift_desc, grant.sum), UINT32_MAX, 1);
    fab_wake(seat->ep, desc + offsetof(struct shift_desc, next.sum), UINT32_MAX, 1);
}

/* A lost session is fenced before it is counted out: where readers leave by adding, a late addition would count for another client.
 * On shared memory readers compare, so that is not needed. */
static int count_for_good(const struct seat *seat, uint64_t index, struct census *out)
{
    return census_take(seat, index, shift_adds(seat) && !shift_errs(seat, SHIFT_LATE_RELEASE), stir, out);
}

/* Counts once, for the entry as it was. 1: counted and written. */
static int recount_once(const struct seat *seat, uint64_t index, struct shift_entry e)
{
    const struct shift_form *f = shift_form(seat);
    struct census c;
    struct shift_entry old;
    int rc = count_for_good(seat, index, &c);
    if (rc)
        return rc;
    /* A writer beside other holders has just left, and its record is about to say so. */
    if (c.unsure || c.writers > 1 || (c.writers && c.readers))
        return 0;
    struct shift_entry next = {/* Above the RelCnt of hand-overs in flight, from which tokens were taken (I2). */
                               .rel = shift_rel_add(f, e.rel, 1 + SHIFT_LAG_MAX),
                               .readers = c.readers,
                               .tail = shift_counted_writer(seat, &c),
                               .era = shift_era_next(f, e.era)};
    /* Newcomers may have changed RdrCnt and tail meanwhile; they saw the odd era. */
    rc = shift_cas(seat, index, e, SHIFT_REL | SHIFT_ERA, next, SHIFT_ALL, &old);
    if (rc || !shift_matches(old, e, SHIFT_REL | SHIFT_ERA))
        return rc;
    wake_all(seat, index);
    return 1;
}

ONCE int shift_recount(const struct seat *seat, uint64_t index, uint64_t deadline)
{
    for (;;) {
        struct shift_entry e;
        /* The count must belong to this RelCnt. RelCnt first: if the era is odd afterwards and the compare-and-swap finds both,
         * they are of one moment. */
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
    uint64_t index = record_index(word);
    struct shift_entry e;
    if (record_state(word) == RECORD_WAIT)
        return 0; /* certainly outside */
    if (index >= seat->space->lock_count)
        return -EFAULT; /* foreign code has overwritten the memory */
    int rc = shift_look_rel_last(seat, index, &e);
    if (!rc && !(rc = seat_still_lost(seat, f->dead, f->epoch)))
        return 1;
    if (rc < 0)
        return rc;
    if (!shift_recounting(e) && !e.tail && !e.readers)
        return 0; /* no holders and no waiters */
    /* A count in progress may have included the dead session: it must not stand. */
    rc = shift_ask_recount(seat, index);
    if (!rc)
        rc = shift_recount(seat, index, DEADLINE_TRY);
    return rc == -PAWL_EHELD ? 0 : rc; /* a client is in the middle of a step: the next one that wants the lock goes on counting */
}

/* Where records died with their session, its locks are unknown, and need not be known: the next client that wants one of them finds
 * that no living session holds it (shift_check_dead; look_closely for a query). */
int shift_recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    struct cleanup f = {.seat = seat, .dead = dead, .epoch = epoch};
    assert(dead < seat->space->slot_count);
    bool home = seat_records_home(seat), own = dead == seat->me->slot;
    int rc = !home ? seat_records(seat, dead, recover_record, &f) : own ? seat_own_records(seat, recover_record, &f) : 0;
    return rc > 0 ? 0 : rc;
}

/* ---- what waiters do about the sessions in their way ---- */

/* Everything but WAIT, which is certainly outside. */
#define CONCERNED                                                                                                                  \
    (CENSUS_STATE(RECORD_TRY_X) | CENSUS_STATE(RECORD_TRY_S) | CENSUS_STATE(RECORD_HELD_S) | CENSUS_STATE(RECORD_LEAVE_S) |        \
     CENSUS_STATE(RECORD_HELD_X))

/* The record of a waiter says "may"; that of a holder says "holds". */
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
    return census_look_after_all(seat, index, CONCERNED);
}

unsigned shift_life_conds(const struct seat *seat, uint64_t index, struct fab_cond *conds, unsigned max, bool *dying)
{
    return census_life_conds(seat, index, CONCERNED, conds, max, dying);
}
