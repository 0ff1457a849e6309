/* SPDX-License-Identifier: Apache-2.0 */
/* For unit/each_verb: what fails, when the other sessions act, and all that a holder can do. */
#ifndef PAWL_TESTS_UNIT_EACH_VERB_H
#define PAWL_TESTS_UNIT_EACH_VERB_H

#include "designs/core/design.h"
#include "designs/core/value.h"
#include "designs/word/word.h"
#include "tests/far_site.h"
#include "tests/tuned.h"

#define UNITS 4096
#define LEASE_NS (4 * NS_PER_MS)
#define PATIENCE_NS (100 * LEASE_NS) /* more than a client waits for what a lost one has left */
#define WAITS_BEFORE_RELEASE 3
#define VERBS_MAX 100000 /* of one story */
#define AGAIN_MAX 5
#define STRUCK_MAX 500 /* the batches behind these are polls */

enum { FIRST, OTHER, LAST }; /* the sessions; the first one's verbs fail */
enum { LOST, ANSWER_LOST, FENCED, STOPPED, WAYS };

static const struct design *d;
static unsigned verbs, struck, again, way, waits; /* again: so many batches later another one is lost; 0: none */
static bool fenced, stopped, other_holds, renewing, wrong;
static struct hold others; /* of the other session, which the first one meets */
static uint64_t limit;     /* of shared holds that are asked for now; 0: none */

/* ---- what fails, and when others act ---- */

static void renew(void)
{
    for (unsigned i = fenced || stopped ? OTHER : FIRST; i < FAR_SESSIONS && !renewing; i++) {
        renewing = true;
        if (lease_state(*far.sessions[i].lease) == SLOT_LIVE && seat_expiry_ns(&far.seats[i]) < far.now_ns + LEASE_NS / 2)
            seat_renew(&far.seats[i]);
        renewing = false;
    }
}

static void lose(unsigned who)
{
    int rc = session_condemn(&far.seats[LAST], far.sessions[who].slot, far.sessions[who].epoch);
    CHECK(!rc || lease_state(*far_word(space_slot_addr(&far.space, far.sessions[who].slot))) != SLOT_LIVE);
}

static int strike(unsigned session, const struct fab_op *ops, unsigned n)
{
    renew();
    if (session != FIRST || renewing)
        return 0;
    CHECK(++verbs < VERBS_MAX);
    if (verbs == struck && way == FENCED)
        fenced = true;
    if (verbs == struck && way == STOPPED) {
        stopped = true;
        far.now_ns += 2 * LEASE_NS;
        renew();
        lose(FIRST);
    }
    if (fenced)
        return -FAB_EFENCED;
    if (again && struck && verbs == struck + again)
        return -FAB_EUNKNOWN;
    return verbs != struck || stopped ? 0 : way == LOST ? -FAB_EUNKNOWN : FAR_ANSWER_LOST;
}

static inline int release_other(unsigned session)
{
    if (session == FIRST && other_holds && ++waits >= WAITS_BEFORE_RELEASE) {
        other_holds = false;
        CHECK_EQ(d->release(&far.seats[OTHER], &others), 0);
    }
    return FAR_WAITS;
}

/* ---- what a holder does ---- */

static int lock(unsigned who, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline, struct hold *h)
{
    int rc = DESIGN_LOOK_AGAIN;
    while (rc == DESIGN_LOOK_AGAIN) {
        rc = hold_open(&far.seats[who], 0, h);
        if (rc)
            return rc;
        h->mode = mode;
        h->limit = limit;
        if (far.space.range_units) {
            h->start = start;
            h->end = end;
        }
        rc = d->acquire(&far.seats[who], h, deadline);
        if (rc && rc != -PAWL_ELOST)
            hold_close(&far.seats[who], h);
    }
    CHECK(rc != -FAB_EUNKNOWN && rc != -FAB_EFENCED);
    return !rc && who == FIRST && !seat_lives(&far.seats[FIRST]) ? -PAWL_ELOST : rc; /* as the library does */
}

static int unlock(const struct hold *h)
{
    int rc = d->release(&far.seats[FIRST], h);
    wrong |= rc && rc != -PAWL_ELOST;
    return stopped ? -PAWL_ELOST : rc;
}

/* 0, or the session is lost; a change that was refused leaves the hold as it was. */
static int change(int rc)
{
    CHECK(rc != -FAB_EUNKNOWN && rc != -FAB_EFENCED);
    return rc == -PAWL_ELOST || !seat_lives(&far.seats[FIRST]) ? -PAWL_ELOST : 0; /* as the library does */
}

static uint64_t soon(void)
{
    return far.now_ns + PATIENCE_NS;
}

static int convert(struct hold *h, enum pawl_mode mode)
{
    return d->convert ? change(d->convert(&far.seats[FIRST], h, mode, soon())) : 0;
}

static int reshape(struct hold *h, uint64_t start, uint64_t end)
{
    return change(d->reshape(&far.seats[FIRST], h, start, end, soon()));
}

/* One hold is cut in two, and both parts change. */
static int ranges(enum pawl_mode mode, uint64_t start, uint64_t end)
{
    struct hold h, right;
    int rc = lock(FIRST, start, end, mode, soon(), &h);
    if (rc)
        return rc;
    if (!rc)
        rc = reshape(&h, start + 1, end - 1);
    if (!rc)
        rc = reshape(&h, start, end + 200);
    if (!rc)
        rc = convert(&h, mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED);
    if (!rc)
        rc = hold_open(&far.seats[FIRST], 0, &right);
    if (rc)
        return rc;
    right.mode = h.mode;
    right.token = h.token;
    right.start = (h.start + h.end) / 2;
    right.end = h.end;
    int cut = d->split(&far.seats[FIRST], &h, right.start, &right);
    if (cut && cut != -PAWL_ELOST)
        hold_close(&far.seats[FIRST], &right);
    if ((rc = change(cut)))
        return rc;
    rc = cut ? 0 : convert(&right, PAWL_SHARED);
    if (!rc && !cut)
        rc = unlock(&right);
    return rc ? rc : unlock(&h);
}

static int layouts(void)
{
    struct lock_layout layout;
    struct hold h;
    const struct seat *seat = &far.seats[FIRST];
    d->layout(seat, 0, &layout);
    int rc = change(d->retune(seat, 0, 3, 6400, soon()));
    for (unsigned i = 0; i < 2 && !rc; i++) {
        if ((rc = lock(FIRST, 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE, soon(), &h)))
            return rc;
        rc = change(d->rescale(seat, &h, i ? UNITS : 4 * UNITS, soon()));
        if (!rc)
            rc = unlock(&h);
    }
    return rc;
}

/* Two places of a semaphore, and a third client that finds none left. */
static int places(void)
{
    struct hold h[2], third;
    limit = 2;
    int rc = lock(FIRST, 0, 0, PAWL_SHARED, soon(), &h[0]);
    rc = rc ? rc : lock(FIRST, 0, 0, PAWL_SHARED, soon(), &h[1]);
    if (!rc) {
        int full = lock(FIRST, 0, 0, PAWL_SHARED, far.now_ns + LEASE_NS, &third);
        wrong |= !full; /* I25 */
        rc = full == -PAWL_ELOST ? full : 0;
    }
    limit = 3; /* another limit than the holds have */
    if (!rc) {
        int other = lock(FIRST, 0, 0, PAWL_SHARED, DEADLINE_TRY, &third);
        wrong |= !other;
        rc = other == -PAWL_ELOST ? other : 0;
    }
    limit = 0;
    for (unsigned i = 0; i < countof(h) && !rc; i++)
        rc = unlock(&h[i]);
    return rc;
}

/* What was set is read, by a later hold, too. A holder of the past, whose token is lower, sets nothing (I26). */
static int values(void)
{
    static const char text[] = "sixteen letters!";
    char found[PAWL_VALUE_MAX];
    struct hold h, past;
    uint32_t len;
    int rc = 0;
    for (unsigned i = 0; i < 2 && !rc; i++) {
        if ((rc = lock(FIRST, 0, 0, PAWL_EXCLUSIVE, soon(), &h)))
            return rc;
        int got = value_get(&far.seats[FIRST], &h, 0, found, &len);
        wrong |= !got && (len != sizeof text || memcmp(found, text, len) != 0);
        rc = change(value_set(&far.seats[FIRST], &h, 0, text, sizeof text));
        if (i && !rc)
            rc = change(value_set(&far.seats[FIRST], &past, 0, "past", 4));
        if (!rc && !(got = value_get(&far.seats[FIRST], &h, 0, found, &len)))
            wrong |= len != sizeof text || memcmp(found, text, len) != 0;
        past = h;
        if (!rc)
            rc = unlock(&h);
    }
    return rc;
}

static inline int everything(void)
{
    const struct seat *seat = &far.seats[FIRST];
    struct lock_view view;
    struct hold h;
    int rc = lock(FIRST, 0, 10, PAWL_EXCLUSIVE, soon(), &h);
    if (rc)
        return rc;
    wrong |= other_holds; /* I1 */
    if (d->raise)
        rc = seat_retry(seat, d->raise(seat, &h, h.token + 1000));
    if (!rc)
        rc = convert(&h, PAWL_SHARED);
    if (!rc)
        rc = convert(&h, PAWL_EXCLUSIVE);
    if (!rc)
        rc = unlock(&h);
    if (d->peek)
        d->peek(seat, 0, &view);
    if (!rc && d->features & DESIGN_SHARED)
        rc = lock(FIRST, 5, 300, PAWL_SHARED, DEADLINE_TRY, &h);
    else
        return rc;
    if (!rc)
        rc = unlock(&h);
    if (!rc && far.space.range_units) {
        rc = ranges(PAWL_EXCLUSIVE, 40, 300);
        rc = rc ? rc : ranges(PAWL_SHARED, UNITS - 100, UNITS + 10);
        rc = rc ? rc : layouts();
    }
    if (!rc && d->features & DESIGN_SEMAPHORE)
        rc = places();
    if (!rc && d->features & DESIGN_VALUES)
        rc = values();
    limit = 0;
    return rc;
}

#endif
