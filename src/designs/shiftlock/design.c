/* SPDX-License-Identifier: Apache-2.0 */
/* The designs: the paper's entry of 128 bits, and the same protocol in 64. */
#include "designs/core/design.h"
#include "designs/shiftlock/shiftlock.h"

#define WRITERS_MAX 16 /* N of 3.5.2; 4.7 finds goodput stable from there on */

/* ---- the state of a lock ---- */

static bool is_free(struct shift_entry e)
{
    return !shift_recounting(e) && !e.tail && !e.readers;
}

/* Reads the state; a lock that no record explains is counted first. */
static int look_closely(const struct seat *seat, uint64_t index, struct shift_entry *e, struct census *c)
{
    int rc = shift_look_rel_last(seat, index, e);
    if (rc || is_free(*e))
        return rc;
    rc = census_take(seat, index, false, NULL, c);
    if (rc || (!shift_recounting(*e) && (c->readers || c->writers || c->unsure)))
        return rc;
    if (!shift_recounting(*e))
        rc = shift_ask_recount(seat, index);
    if (!rc)
        rc = shift_recount(seat, index, DEADLINE_TRY);
    if (rc && rc != -PAWL_EHELD)
        return rc;
    rc = shift_look_rel_last(seat, index, e);
    return rc ? rc : census_take(seat, index, false, NULL, c);
}

ONCE static int shift_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct shift_entry e;
    struct census c = {0};
    uint64_t counter = 0;
    int rc = look_closely(seat, index, &e, &c);
    if (!rc && shift_form(seat)->rel_bits < 64)
        rc = fab_read64(seat->ep, shift_addr(seat, index) + 8, &counter);
    if (rc)
        return rc;
    bool beside = shift_form(seat)->rel_bits < 64;
    struct lock_view v = {.token = seat->space->token_base + (beside ? 2 * counter : e.rel)};
    if (c.readers || (!is_free(e) && !e.tail && e.readers)) {
        v.mode = PAWL_SHARED;
        v.readers = c.readers ? c.readers : e.readers;
    } else if (!is_free(e)) {
        v.mode = PAWL_EXCLUSIVE;
        v.owner = c.writers ? c.slot : LOCK_OWNER_UNKNOWN;
    }
    fab_addr desc;
    if (c.writers && !shift_find_desc(seat, shift_counted_writer(seat, &c), true, &desc) &&
        !fab_read64(seat->ep, shift_token_addr(desc), &v.token)) {
        *out = v;
        return 0;
    }
    /* No grant so far has a higher one; where the lock was counted anew since, the latest may have a lower one. */
    v.token += beside ? v.mode == PAWL_SHARED : v.mode != 0;
    *out = v;
    return 0;
}

/* ---- tokens above a floor ---- */

static int raise_counter(const struct seat *seat, struct hold *h, uint64_t floor)
{
    fab_addr addr = shift_addr(seat, h->index) + 8;
    uint64_t next = (floor - seat->space->token_base) / 2 + 1, was, old;
    int rc = fab_read64(seat->ep, addr, &was);
    while (!rc && was < next) { /* by compare-and-swap: if we are lost meanwhile, it must not undo what others have raised it to */
        rc = fab_cas64(seat->ep, addr, was, next, &old);
        if (!rc && old == was)
            break;
        rc = rc ? rc : fab_read64(seat->ep, addr, &was);
    }
    if (rc)
        return rc;
    h->token = seat->space->token_base + 2 * max_u64(next, was);
    fab_own_store64(seat->ep, shift_token_addr(seat_desc_addr(seat, h->record)), h->token);
    return 0;
}

/* While we hold the lock exclusively, only counting anew moves RelCnt. */
ONCE static int shift_raise(const struct seat *seat, struct hold *h, uint64_t floor)
{
    struct shift_run run;
    if (h->token > floor)
        return 0;
    if (shift_form(seat)->rel_bits < 64)
        return raise_counter(seat, h, floor);
    shift_recall(seat, h, &run);
    for (;;) {
        struct shift_entry e = {0}, old;
        int rc = shift_look_rel_first(seat, h->index, &e);
        if (!rc && !seat_lives(seat))
            return -PAWL_ELOST;
        if (!rc && shift_recounting(e)) {
            rc = shift_recount(seat, h->index, DEADLINE_NEVER);
            if (!rc)
                continue;
        }
        struct shift_entry next = e;
        next.rel = max_u64(e.rel, floor - seat->space->token_base);
        if (!rc)
            rc = shift_cas(seat, h->index, e, SHIFT_REL | SHIFT_ERA, next, SHIFT_REL, &old);
        if (!rc && shift_matches(old, e, SHIFT_REL | SHIFT_ERA)) {
            next.tail = old.tail;
            shift_remember(seat, h, next, (struct shift_run){.writers = run.writers});
            return shift_token(seat, h, next, &h->token);
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

static const struct design_knob knobs[] = {
    [SHIFT_WRITERS_MAX] = {"writers-max", 1, UINT32_MAX, WRITERS_MAX},
    [SHIFT_KEEP_ON] = {"keep-on", 0, 1, 1},
    [SHIFT_AT_ONCE] = {"at-once", 0, 1, 1},
    {0},
};

/* Readers: at most N writers in a row. Writers: all earlier writers, and the readers that are let in after every Nth of them, or
 * were in already (I12). */
static struct overtaking shift_overtaking(unsigned others, enum pawl_mode mode)
{
    return (struct overtaking){
        .exclusive = (mode == PAWL_SHARED ? WRITERS_MAX : others) + OVERTAKING_ON_THE_WAY,
        .shared = mode == PAWL_SHARED ? UINT32_MAX : (others / WRITERS_MAX + 2) * others + OVERTAKING_ON_THE_WAY,
    };
}

#define SHIFT_COMMON                                                                                                               \
    .features =                                                                                                                    \
        DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT | DESIGN_ASYNC,       \
    .tolerates = FAULTS_ALL, .lock_size = sizeof(struct shift_lock), .desc_size = sizeof(struct shift_desc),                       \
    .desc_record = offsetof(struct shift_desc, record), .acquire = shift_acquire, .release = shift_release,                        \
    .convert = shift_convert, .holds = hold_is_held, .recover = shift_recover, .peek = shift_peek, .raise = shift_raise,           \
    .knobs = knobs, .overtaking = shift_overtaking

const struct design design_shiftlock = {
    .name = "shiftlock",
    .summary = "one-sided, handed over from client to client",
    .kind = DESIGN_MAIN,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM | DESIGN_ON_NODES,
    .needs = FAB_ATOMIC128,
    .instead = "shiftlock64",
    .variant = &shift_form128,
    .step = shift_step,
    .rest = shift_rest,
    SHIFT_COMMON,
};

const struct design design_shiftlock64 = {
    .name = "shiftlock64",
    .summary = "shiftlock in a word of 64 bits, for fabrics without larger atomics",
    .kind = DESIGN_MAIN,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM | DESIGN_ON_NODES | DESIGN_ON_RDMA,
    .variant = &shift_form64,
    .session_bytes = sizeof(struct shift_session),
    SHIFT_COMMON,
};
