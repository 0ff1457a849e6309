/* SPDX-License-Identifier: Apache-2.0 */
/* DSLR (Yoon et al., SIGMOD'18), as ShiftLock (4.1) compares with: Lamport's bakery in one word, four counters of 16 bits moved by
 * fetch-and-add. maxX and maxS are the next tickets of writers and readers, nX and nS count those that have left. A writer waits
 * until all clients ahead of it have left, a reader until all writers ahead of it have. Both read the word again after a time in
 * proportion to the number of clients ahead.
 *
 * Leases: a waiter that sees the counters stand still checks whether a live client holds the lock. If none does, the waiter has the
 * word start anew. The original moves the counters past a client that has overstayed its lease, by compare-and-swap. But the late
 * release of that client is the same fetch-and-add as the release that is due, and a ticket whose fetch-and-add had no answer has
 * no owner. So here the word is marked. A client that draws from a marked word gets no ticket, and the tickets of waiters are void.
 * When the record of every live client says for certain whether it holds the lock (census.h), and lost clients are fenced, one
 * compare-and-swap starts the word anew with exactly the live holders.
 *
 * Counters end at half their range, and then the word starts anew in the same way. The original takes a ticket out of range back by
 * adding -1, which corrupts a word that has just been reset. A client that has a ticket cannot leave, so there is no time-out. */
#include "designs/core/census.h"
#include "designs/core/steps.h"
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/tickets.h"

#include <errno.h>

/* Waits as in ShiftLock's artifact (dslr.rs): 1,862 ns for each client ahead, without a limit. */
enum { COUNT_MAX, WAIT_NS, WAIT_MAX_NS };

static const struct design_knob knobs[] = {
    [COUNT_MAX] = {"count-max", 8, DSLR_COUNT_MAX, DSLR_COUNT_MAX},
    [WAIT_NS] = {"wait-ns", 1, 1 * NS_PER_MS, TICKET_WAIT_NS},
    [WAIT_MAX_NS] = {"wait-max-ns", 1, 1 * NS_PER_S, TICKET_WAIT_MAX_NS},
    {0},
};

#define PAUSE_NS (50 * NS_PER_US) /* while the word is about to start anew: a few round trips */
#define AGAIN 1                   /* the word starts anew: our ticket is void */

struct dslr_lock {
    uint64_t word; /* maxX 16, maxS 16, nX 16, nS 16 */
    uint64_t life; /* how often the word has started anew: a count is valid only in the life in which it was made */
};

/* In the session's own memory. */
struct dslr_desc {
    uint64_t unused[7];
    uint64_t record;
};
static_assert(sizeof(struct dslr_desc) == CACHE_LINE, "descriptors do not share lines");

/* A word with maxX from here on starts anew. Clients that find it so have added one each, and add no more before it has. */
#define MARK 0xc000
static_assert(MARK > DSLR_COUNT_MAX + SLOTS_MAX, "clients that draw out of range do not reach the mark");

static bool is_marked(uint64_t w)
{
    return tickets_unpack(w).max_x >= MARK;
}

static bool is_in_range(const struct seat *seat, uint64_t w)
{
    return tickets_in_range(tickets_unpack(w), seat->space->knobs.value[COUNT_MAX]);
}

static fab_addr word_addr(const struct seat *seat, uint64_t index)
{
    return space_lock_addr(seat->space, index);
}

/* ---- starting anew ---- */

/* Marks the word. A word that is marked already is changed, too, so that a count in progress fails: it may include a client that
 * has died or left since. */
static int ask_anew(const struct seat *seat, uint64_t index)
{
    fab_addr addr = word_addr(seat, index);
    for (;;) {
        uint64_t w = 0, old = 0;
        int rc = fab_read64(seat->ep, addr, &w);
        if (!rc)
            rc = fab_cas64(seat->ep, addr, w, is_marked(w) ? w + ADD_N_S : (w & ~FIELD_MASK(48, 16)) | MARK * ADD_MAX_X, &old);
        if (!rc && old == w)
            return 0;
        if (rc && (rc = seat_retry(seat, rc))) /* twice does no harm */
            return rc;
    }
}

/* The outcome of this task's step is unknown. */
static int doubt(const struct seat *seat, const struct hold *h, enum record_state then)
{
    int rc = ask_anew(seat, h->index); /* the record says "may" */
    if (rc)
        return rc;
    if (then != RECORD_FREE)
        return hold_publish(seat, h, then);
    hold_close(seat, h);
    return 0;
}

/* In this order: a mark that is found is then of this life. */
static int read_life_first(const struct seat *seat, fab_addr addr, uint64_t *life, uint64_t *w)
{
    struct fab_op ops[] = {
        {.verb = FAB_READ, .len = 8, .buf = life, .addr = addr + offsetof(struct dslr_lock, life)},
        {.verb = FAB_READ, .len = 8, .buf = w, .addr = addr},
    };
    return fab_batch(seat->ep, ops, countof(ops));
}

/* 0 once the word is not marked; -PAWL_EHELD if it still is and the caller does not wait. The caller's own record is certain. */
static int start_anew(const struct seat *seat, uint64_t index, uint64_t deadline)
{
    fab_addr addr = word_addr(seat, index);
    for (;;) {
        struct census c = {0};
        uint64_t w, life;
        u128 old;
        int rc = read_life_first(seat, addr, &life, &w);
        if (!rc && !is_marked(w))
            return 0;
        if (!rc)
            rc = census_take(seat, index, !MISTAKE(seat->space->design->mistakes, DSLR_LATE), NULL, &c);
        if (!rc && !c.unsure && c.writers <= 1 && !(c.writers && c.readers))
            rc = fab_cas128(seat->ep, addr, (u128)life << 64 | w,
                            (u128)(life + 1) << 64 | (c.writers * ADD_MAX_X + c.readers * ADD_MAX_S), &old);
        else if (!rc && deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        else if (!rc)
            rc = ticket_pause(seat, PAUSE_NS);
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
        if (!seat_lives(seat))
            return -PAWL_ELOST;
    }
}

/* Marks the word if no live client has to do with the lock. `still`: the counters have stood still for a while, so sessions in the
 * middle of a step are taken for waiters and do not count. */
static int check_holders(const struct seat *seat, uint64_t index, bool still)
{
    struct census c;
    int rc = census_take(seat, index, false, NULL, &c);
    return rc || c.readers || c.writers || (c.unsure && !still) ? rc : ask_anew(seat, index);
}

/* ---- acquiring ---- */

/* Draws a ticket only if it is a hold at once. */
static int draw_if_free(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = word_addr(seat, h->index);
    uint64_t w, old;
    int rc = fab_read64(seat->ep, addr, &w);
    if (rc)
        return rc;
    if (is_marked(w) || !is_in_range(seat, w))
        return AGAIN;
    if (!ticket_is_turn(tickets_unpack(w), tickets_unpack(w), h->mode))
        return -PAWL_EHELD;
    rc = fab_cas64(seat->ep, addr, w, w + ticket_of(h->mode), &old);
    return rc ? rc : old == w ? 0 : -PAWL_EHELD;
}

static int await_turn(const struct seat *seat, const struct hold *h, uint64_t drawn)
{
    const uint32_t *knob = seat->space->knobs.value;
    struct tickets mine = tickets_unpack(drawn), now = mine;
    uint64_t w = drawn, still = drawn, check_at = add_saturating(world_now(seat->world), seat->space->check_ns);
    while (!ticket_is_turn(mine, now, h->mode)) {
        int rc = ticket_pause(seat, ticket_wait_ns(mine, now, h->mode, knob[WAIT_NS], knob[WAIT_MAX_NS]));
        if (!rc)
            rc = fab_read64(seat->ep, word_addr(seat, h->index), &w);
        if (!rc && is_marked(w))
            return AGAIN;
        now = rc ? now : tickets_unpack(w);
        if (!rc && world_now(seat->world) >= check_at) {
            if (!seat_lives(seat))
                return -PAWL_ELOST;
            const uint64_t left = FIELD_MAX(32); /* nX and nS */
            rc = (w & left) == (still & left) ? check_holders(seat, h->index, true) : 0;
            still = w;
            check_at = add_saturating(world_now(seat->world), seat->space->check_ns);
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
    return 0;
}

static int enter(const struct seat *seat, const struct hold *h, uint64_t deadline)
{
    uint64_t drawn = 0;
    int rc = hold_publish(seat, h, record_try(h->mode)); /* intent before effect (I5) */
    if (rc)
        return rc;
    rc = deadline == DEADLINE_TRY ? draw_if_free(seat, h)
                                  : fab_faa64(seat->ep, word_addr(seat, h->index), ticket_of(h->mode), &drawn);
    step_done(seat, STEP_ATOMIC);
    if (rc == -FAB_EUNKNOWN) {
        rc = doubt(seat, h, RECORD_WAIT);
        return rc ? rc : AGAIN;
    }
    if (rc || deadline == DEADLINE_TRY)
        return rc;
    if (is_marked(drawn))
        return AGAIN;
    if (!is_in_range(seat, drawn)) { /* the counters have ended */
        rc = ask_anew(seat, h->index);
        return rc ? rc : AGAIN;
    }
    return await_turn(seat, h, drawn);
}

static int dslr_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    bool looked_after = false;
    h->token = 0;
    for (;;) {
        int rc = enter(seat, h, deadline);
        if (!rc)
            rc = hold_publish(seat, h, record_held(h->mode));
        if (!rc) /* a session that was stopped and lost in between finds out here, and leaves the lock to others */
            return seat_lives(seat) ? 0 : -PAWL_ELOST;
        bool held_by_nobody = rc == -PAWL_EHELD && !looked_after;
        if (rc == AGAIN || held_by_nobody) {
            int why = rc;
            rc = hold_publish(seat, h, RECORD_WAIT); /* a client that counts must not wait for this record */
            if (!rc && held_by_nobody)
                rc = seat_retry(seat, check_holders(seat, h->index, false));
            if (!rc && why == AGAIN && deadline == DEADLINE_TRY) /* at its end, or marked already */
                rc = looked_after ? -PAWL_EHELD : ask_anew(seat, h->index);
            if (!rc)
                rc = start_anew(seat, h->index, deadline);
            looked_after = true;
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* ---- the rest ---- */

static int dslr_release(const struct seat *seat, const struct hold *h)
{
    bool shared = h->mode == PAWL_SHARED;
    uint64_t old;
    /* Adding twice would let two clients in: of two tasks that release the same hold only one does. From here on no count
     * completes. A count that completed before saw the record "held", so it has counted this hold. */
    int rc = hold_change(seat, h, record_held(h->mode), shared ? RECORD_LEAVE_S : RECORD_TRY_X);
    if (rc)
        return rc;
    if (!seat_lives(seat) && !MISTAKE(seat->space->design->mistakes, DSLR_LATE))
        return -PAWL_ELOST;
    rc = fab_faa64(seat->ep, word_addr(seat, h->index), shared ? ADD_N_S : ADD_N_X, &old);
    step_done(seat, STEP_ATOMIC);
    if (rc == -FAB_EUNKNOWN || (!rc && is_marked(old)))
        return doubt(seat, h, RECORD_FREE);
    if (rc)
        return seat_retry(seat, rc);
    hold_close(seat, h);
    return 0;
}

/* The locks of another session need no work: the next client that wants one finds that no live client holds it. For its own slot
 * the caller marks the locks of its records. */
static int dslr_recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    int rc = 0;
    for (uint32_t i = 0; dead == seat->me->slot && i < seat->space->record_count && !rc; i++) {
        uint64_t word = __atomic_load_n(&seat->me->shadow[i], __ATOMIC_ACQUIRE);
        if (record_state(word) != RECORD_FREE && record_state(word) != RECORD_WAIT)
            rc = ask_anew(seat, record_index(word));
    }
    return rc;
}

static int dslr_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    uint64_t w;
    struct census c = {0};
    int rc = fab_read64(seat->ep, word_addr(seat, index), &w);
    struct tickets t = tickets_unpack(w);
    if (!rc && (is_marked(w) || t.max_x != t.n_x || t.max_s != t.n_s)) {
        rc = check_holders(seat, index, false);
        if (!rc)
            rc = start_anew(seat, index, DEADLINE_TRY);
        if (!rc || rc == -PAWL_EHELD)
            rc = fab_read64(seat->ep, word_addr(seat, index), &w);
        if (!rc)
            rc = census_take(seat, index, false, NULL, &c);
        t = tickets_unpack(w);
    }
    if (rc)
        return rc;
    bool writers = c.writers || is_marked(w) || t.max_x != t.n_x, readers = c.readers || t.max_s != t.n_s;
    *out = (struct lock_view){
        .mode = c.readers ? PAWL_SHARED
                : writers ? PAWL_EXCLUSIVE
                : readers ? PAWL_SHARED
                          : 0,
        .owner = c.writers ? c.slot : LOCK_OWNER_UNKNOWN,
        .readers = c.readers ? c.readers
                   : writers ? 0
                             : t.max_s - t.n_s,
    };
    return 0;
}

#define DSLR_COMMON                                                                                                                \
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_RECOVERY, .substrates = DESIGN_ON_SIM | DESIGN_ON_NODE,                  \
    .lock_size = sizeof(struct dslr_lock), .desc_size = sizeof(struct dslr_desc),                                                  \
    .desc_record = offsetof(struct dslr_desc, record), .acquire = dslr_acquire, .release = dslr_release, .holds = hold_is_held,    \
    .recover = dslr_recover, .peek = dslr_peek

const struct design design_dslr = {
    .name = "dslr",
    .summary = "tickets of readers and writers by fetch-and-add, with leases (SIGMOD'18)",
    .kind = DESIGN_BASELINE,
    .tolerates = FAULTS_ALL,
    .needs = FAB_ATOMIC128, /* word and life are counted anew at once */
    .instead = "drtm",
    .knobs = knobs,
    DSLR_COMMON,
};
