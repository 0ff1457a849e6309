/* SPDX-License-Identifier: Apache-2.0 */
/* Each batch of verbs of a session fails once, in turn: it is lost, or only its answer is, or the session has been shut out. A
 * story has all that a holder can do, with another session in its way and one that is lost; in a second one the session recovers
 * from a lost one. Whatever fails, the lock can be had when the holders are gone (I9, I11). sim/each_request does so in campaigns,
 * and meets fewer of the steps. */
#include "designs/core/design.h"
#include "tests/far_site.h"

#define UNITS 4096
#define LEASE_NS (4 * NS_PER_MS)
#define PATIENCE_NS (100 * LEASE_NS) /* more than a client waits for what a lost one has left */
#define WAITS_BEFORE_RELEASE 3
#define VERBS_MAX 100000 /* of one story */
#define AGAIN_MAX 5
#define STRUCK_MAX 500 /* the batches behind these are polls */

enum { FIRST, OTHER, LAST }; /* the sessions; the first one's verbs fail */
enum { LOST, ANSWER_LOST, FENCED, WAYS };

static const struct design *d;
static unsigned verbs, struck, again, way, waits; /* again: so many batches later another one is lost; 0: none */
static bool fenced, other_holds, renewing, wrong;
static struct hold others; /* of the other session, which the first one meets */

/* ---- what fails, and when others act ---- */

static void renew(void)
{
    for (unsigned i = fenced ? OTHER : FIRST; i < FAR_SESSIONS && !renewing; i++) {
        renewing = true;
        if (lease_state(*far.sessions[i].lease) == SLOT_LIVE && seat_expiry_ns(&far.seats[i]) < far.now_ns + LEASE_NS / 2)
            seat_renew(&far.seats[i]);
        renewing = false;
    }
}

static int strike(unsigned session, const struct fab_op *ops, unsigned n)
{
    renew();
    if (session != FIRST || renewing)
        return 0;
    CHECK(++verbs < VERBS_MAX);
    if (verbs == struck && way == FENCED)
        fenced = true;
    if (fenced)
        return -FAB_EFENCED;
    if (again && struck && verbs == struck + again)
        return -FAB_EUNKNOWN;
    return verbs != struck ? 0 : way == LOST ? -FAB_EUNKNOWN : FAR_ANSWER_LOST;
}

static int release_other(unsigned session)
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
        if (far.space.range_units) {
            h->start = start;
            h->end = end;
        }
        rc = d->acquire(&far.seats[who], h, deadline);
        if (rc && rc != -PAWL_ELOST)
            hold_close(&far.seats[who], h);
    }
    CHECK(rc != -FAB_EUNKNOWN && rc != -FAB_EFENCED);
    return rc;
}

static int unlock(const struct hold *h)
{
    int rc = d->release(&far.seats[FIRST], h);
    wrong |= rc && rc != -PAWL_ELOST;
    return rc;
}

/* 0, or the session is lost; a change that was refused leaves the hold as it was. */
static int change(int rc)
{
    CHECK(rc != -FAB_EUNKNOWN && rc != -FAB_EFENCED);
    return rc == -PAWL_ELOST ? rc : 0;
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

static int everything(void)
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
    return rc;
}

/* ---- stories ---- */

static void lose(unsigned who)
{
    int rc = session_condemn(&far.seats[LAST], far.sessions[who].slot, far.sessions[who].epoch);
    CHECK(!rc || lease_state(*far_word(space_slot_addr(&far.space, far.sessions[who].slot))) != SLOT_LIVE);
}

static int recover(unsigned who, unsigned from)
{
    return d->recover(&far.seats[who], far.sessions[from].slot, far.sessions[from].epoch);
}

static void recover_surely(unsigned from)
{
    int rc = -EAGAIN;
    for (unsigned i = 0; rc && i < 100; i++)
        rc = recover(LAST, from);
    CHECK_EQ(rc, 0);
}

/* The holds that are left belong to sessions that are gone. Whether all went well, and the lock can be had. */
static bool end(bool lost)
{
    struct hold h;
    far.waits = NULL;
    if (other_holds)
        CHECK_EQ(d->release(&far.seats[OTHER], &others), 0);
    other_holds = false;
    far.fence_rc = 0;
    if (lost) {
        fenced = true;
        lose(FIRST);
        recover_surely(FIRST);
    }
    struct lock_view view;
    if (d->peek)
        CHECK_EQ(d->peek(&far.seats[LAST], 0, &view), 0);
    int rc = lock(LAST, 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE, far.now_ns + PATIENCE_NS, &h);
    if (!rc)
        CHECK_EQ(d->release(&far.seats[LAST], &h), 0);
    far_close();
    return !rc && !wrong;
}

static void begin(void)
{
    far_lease_ns = LEASE_NS;
    verbs = waits = 0;
    fenced = other_holds = wrong = false;
    far_open(d, PAWL_KEYS_DENSE, 1, d->features & DESIGN_RANGES ? UNITS : 0);
}

static bool hold_and_change(void)
{
    begin();
    CHECK_EQ(lock(OTHER, 0, 10, PAWL_EXCLUSIVE, DEADLINE_NEVER, &others), 0);
    other_holds = true;
    far.before = strike;
    far.waits = release_other;
    int rc = everything();
    if (!struck)
        CHECK_EQ(rc, 0);
    wrong |= rc && rc != -PAWL_ELOST && rc != -PAWL_EHELD && rc != -ETIMEDOUT;
    return end(rc == -PAWL_ELOST || fenced);
}

/* The other session keeps the lock, and the client gives up. The client keeps its own holds. */
static int in_vain(enum pawl_mode mode)
{
    struct hold h;
    int rc = lock(FIRST, 0, 10, PAWL_EXCLUSIVE, DEADLINE_TRY, &h);
    if (rc == -PAWL_EHELD)
        rc = lock(FIRST, 0, 300, PAWL_EXCLUSIVE, far.now_ns + LEASE_NS, &h);
    if (rc != -ETIMEDOUT || !(d->features & DESIGN_SHARED))
        return rc;
    rc = lock(FIRST, 5, 300, PAWL_SHARED, far.now_ns + LEASE_NS, &h);
    if (rc || mode != PAWL_SHARED)
        return rc;
    rc = d->convert ? change(d->convert(&far.seats[FIRST], &h, PAWL_EXCLUSIVE, far.now_ns + LEASE_NS)) : 0;
    return rc ? rc : unlock(&h);
}

static bool give_up(enum pawl_mode mode)
{
    begin();
    CHECK_EQ(lock(OTHER, 0, 10, mode, DEADLINE_NEVER, &others), 0);
    other_holds = true;
    far.before = strike;
    int rc = in_vain(mode);
    if (!struck)
        CHECK_EQ(rc, mode == PAWL_SHARED ? 0 : -ETIMEDOUT);
    wrong |= rc && rc != -PAWL_ELOST && rc != -PAWL_EHELD && rc != -ETIMEDOUT;
    wrong |= !d->holds(&far.seats[OTHER], &others) || (!rc && mode == PAWL_EXCLUSIVE); /* I1 */
    return end(rc == -PAWL_ELOST || fenced);
}

static bool give_up_writer(void)
{
    return give_up(PAWL_EXCLUSIVE);
}

static bool give_up_reader(void)
{
    return !(d->features & DESIGN_SHARED) || give_up(PAWL_SHARED);
}

static bool recover_from(enum pawl_mode mode)
{
    struct hold h, waiting;
    begin();
    CHECK_EQ(lock(OTHER, 0, 300, mode, DEADLINE_NEVER, &h), 0);
    far.before = strike;
    fenced = false;
    lose(OTHER);
    far.fence_rc = struck % 2 ? 0 : -EAGAIN;
    recover(FIRST, OTHER);
    far.fence_rc = 0;
    int rc = fenced ? -PAWL_ELOST : lock(FIRST, 0, 10, PAWL_EXCLUSIVE, soon(), &waiting);
    if (!rc)
        rc = unlock(&waiting);
    recover_surely(OTHER);
    return end(rc == -PAWL_ELOST || fenced);
}

static bool recover_from_writer(void)
{
    return recover_from(PAWL_EXCLUSIVE);
}

static bool recover_from_reader(void)
{
    return !(d->features & DESIGN_SHARED) || recover_from(PAWL_SHARED);
}

static const struct story {
    const char *name;
    bool (*play)(void);
} stories[] = {
    {"a holder that changes", hold_and_change},      {"a writer keeps the lock", give_up_writer},
    {"a reader keeps the lock", give_up_reader},     {"recovery from a writer", recover_from_writer},
    {"recovery from a reader", recover_from_reader},
};

/* The story that fails; null: there is none. At first nothing fails. */
static const struct story *find_failure(const char *name, unsigned *runs)
{
    *runs = 0;
    d = design_find(name);
    CHECK(d);
    for (way = again = 0; way < WAYS; again = (again + 1) % AGAIN_MAX, way += !again)
        for (size_t i = 0; i < countof(stories); i++)
            for (struck = 0, verbs = UINT32_MAX; struck <= min_u64(verbs, STRUCK_MAX); struck++, ++*runs)
                if (!stories[i].play())
                    return &stories[i];
    return NULL;
}

int main(void)
{
    static const char *const designs[] = {"word", "shiftlock", "shiftlock64", "citron"};
    static const char *const ways[] = {"lost", "done, and its answer lost", "fenced"};
    const struct story *failed;
    unsigned runs;
    for (size_t i = 0; i < countof(designs); i++) {
        if ((failed = find_failure(designs[i], &runs)))
            CHECK_FAIL("%s: %s: batch %u of %u is %s, and one lost %u later: both hold the lock, or no session can have it",
                       designs[i], failed->name, struck, verbs, ways[way], again);
        printf("%s: %u stories in which one or two batches fail\n", designs[i], runs);
    }
    CHECK((failed = find_failure("busted-unknown-is-success", &runs)));
    printf("busted-unknown-is-success: %s: batch %u is %s: both hold the lock, or no session can have it\n", failed->name, struck,
           ways[way]);
    return 0;
}
