/* SPDX-License-Identifier: Apache-2.0 */
/* Range locks that are wrong on purpose, one mistake each, and the same body without a mistake. A table beside the lock has all
 * holds; it is read and written under a spinlock. No recovery, and no faults tolerated: a client that dies or is cut off while it
 * has the spinlock keeps all others out for ever, mistake or not. The mistakes show without faults. */
#include "workbench/baselines/owned.h"

#include <errno.h>

#define ENTRIES 64 /* of at most nine clients with two tasks and three ranges, one of them in two, each */
#define PAUSE_NS (20 * NS_PER_US)

enum mistake {
    NO_MISTAKE,
    OFF_BY_ONE,   /* takes the last unit of a range for the first behind it */
    EARLY_TOKEN,  /* draws its token when it begins to wait, not when it gets in */
    RELEASE_MORE, /* gives back whatever its session has there */
    GROW_BLIND,   /* grows without a check for conflicts */
    SPLIT_LOSES,  /* the second half of what it cut is free */
};

struct entry {
    uint64_t who; /* 0: none */
    uint64_t start, end;
};

struct table_lock {
    uint64_t spin; /* 0, or the client that has it */
    uint64_t token;
    struct entry entries[ENTRIES];
};

#define SHARED_BIT (UINT64_C(1) << 63)

static enum mistake mistake_of(const struct seat *seat)
{
    return (enum mistake)seat->space->design->mistakes;
}

static uint64_t who_of(const struct seat *seat, const struct hold *h)
{
    return owned_name(seat, h) | (h->mode == PAWL_SHARED ? SHARED_BIT : 0);
}

/* ---- under the spinlock ---- */

static int write_surely(const struct seat *seat, fab_addr addr, const void *from, uint16_t len)
{
    int rc;
    do
        rc = fab_write(seat->ep, addr, from, len);
    while (rc && !(rc = seat_retry(seat, rc)));
    return rc;
}

static int enter(const struct seat *seat, const struct hold *h, struct table_lock *out)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t old, name = owned_name(seat, h);
    for (;;) {
        int rc = fab_cas64(seat->ep, addr, 0, name, &old);
        while (rc == -FAB_EUNKNOWN && !(rc = seat_retry(seat, rc))) {
            rc = fab_read64(seat->ep, addr, &old);
            old = !rc && old == name ? 0 : 1;
        }
        if (!rc && !old)
            break;
        if (!rc)
            rc = fab_wait_any(seat->ep, NULL, 0, world_now(seat->world) + PAUSE_NS / 10);
        if (rc && rc != -ETIMEDOUT && rc != -ECANCELED)
            return rc;
    }
    for (;;) {
        int rc = fab_read(seat->ep, addr, out, sizeof *out);
        if (!rc || (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* The spinlock last, and only if it is still ours: after a break another may have it already. */
static int leave(const struct seat *seat, const struct hold *h, const struct table_lock *t)
{
    const uint16_t from = offsetof(struct table_lock, token);
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t old;
    int rc = write_surely(seat, addr + from, &t->token, sizeof *t - from);
    while (!rc) {
        rc = fab_cas64(seat->ep, addr, owned_name(seat, h), 0, &old);
        if (!rc)
            return 0;
        rc = seat_retry(seat, rc);
    }
    return rc;
}

static struct entry *find(struct table_lock *t, uint64_t who)
{
    for (unsigned i = 0; i < ENTRIES; i++)
        if (t->entries[i].who == who)
            return &t->entries[i];
    return NULL;
}

static bool admits(const struct table_lock *t, const struct entry *want, uint64_t except, enum mistake mistake)
{
    uint64_t less = mistake == OFF_BY_ONE;
    for (unsigned i = 0; i < ENTRIES; i++) {
        const struct entry *e = &t->entries[i];
        if (e->who && e->who != except && ranges_overlap(want->start, want->end - less, e->start, e->end - less) &&
            !(e->who & want->who & SHARED_BIT))
            return false;
    }
    return true;
}

static void take_out(struct table_lock *t, uint64_t who, enum mistake mistake)
{
    for (unsigned i = 0; i < ENTRIES; i++)
        if (mistake == RELEASE_MORE ? (t->entries[i].who & ~SHARED_BIT) >> 32 == (who & ~SHARED_BIT) >> 32
                                    : t->entries[i].who == who)
            t->entries[i].who = 0;
}

/* ---- the table of functions ---- */

static int acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    enum mistake mistake = mistake_of(seat);
    const struct entry mine = {.who = who_of(seat, h), .start = h->start, .end = h->end};
    struct table_lock t;
    h->token = 0;
    hold_note_range(seat, h);
    int rc = hold_publish(seat, h, RECORD_HELD_X);
    while (!rc) {
        rc = enter(seat, h, &t);
        if (rc)
            return rc;
        bool in = admits(&t, &mine, 0, mistake) && find(&t, 0);
        if (in)
            *find(&t, 0) = mine;
        if (in || (mistake == EARLY_TOKEN && !h->token))
            h->token = h->token ? h->token : seat->space->token_base + ++t.token;
        rc = leave(seat, h, &t);
        if (rc || in)
            return rc;
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        uint64_t until = world_now(seat->world) + PAUSE_NS + world_random(seat->world) % PAUSE_NS;
        rc = fab_wait_any(seat->ep, NULL, 0, min_u64(until, deadline));
        rc = rc == -ETIMEDOUT && until < deadline ? 0 : rc;
    }
    return rc;
}

static int release(const struct seat *seat, const struct hold *h)
{
    struct table_lock t;
    int rc = hold_change(seat, h, RECORD_HELD_X, RECORD_WAIT);
    if (!rc)
        rc = enter(seat, h, &t);
    if (rc)
        return rc;
    take_out(&t, who_of(seat, h), mistake_of(seat));
    rc = leave(seat, h, &t);
    if (!rc)
        hold_close(seat, h);
    return rc;
}

static int reshape(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    enum mistake mistake = mistake_of(seat);
    struct table_lock t;
    int rc = enter(seat, h, &t);
    if (rc)
        return rc;
    bool grows = start < h->start || end > h->end;
    const struct entry want = {.who = who_of(seat, h), .start = start, .end = end};
    struct entry *e = find(&t, want.who);
    bool in = e && (!grows || mistake == GROW_BLIND || admits(&t, &want, want.who, mistake));
    uint64_t token = in && grows ? ++t.token : 0;
    if (in)
        *e = want;
    rc = leave(seat, h, &t);
    if (rc || !in)
        return rc ? rc : -PAWL_EHELD;
    h->start = start;
    h->end = end;
    h->token = grows ? seat->space->token_base + token : h->token;
    hold_note_range(seat, h);
    return 0;
}

static int split(const struct seat *seat, struct hold *h, uint64_t at, struct hold *right)
{
    struct table_lock t;
    int rc = enter(seat, h, &t);
    if (rc)
        return rc;
    struct entry *e = find(&t, who_of(seat, h)), *place = find(&t, 0);
    bool in = e && place;
    if (in) {
        e->end = at;
        if (mistake_of(seat) != SPLIT_LOSES)
            *place = (struct entry){.who = who_of(seat, right), .start = at, .end = right->end};
    }
    rc = leave(seat, h, &t);
    if (rc || !in)
        return rc ? rc : -PAWL_ELIMIT;
    h->end = at;
    hold_note_range(seat, h);
    hold_note_range(seat, right);
    return hold_publish(seat, right, RECORD_HELD_X);
}

static bool holds(const struct seat *seat, const struct hold *h)
{
    return hold_is(seat, h, RECORD_HELD_X);
}

static int peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct table_lock t;
    int rc = fab_read(seat->ep, space_lock_addr(seat->space, index), &t, sizeof t);
    if (rc)
        return rc;
    *out = (struct lock_view){.owner = LOCK_OWNER_UNKNOWN, .token = t.token};
    for (unsigned i = 0; i < ENTRIES; i++)
        out->mode = t.entries[i].who ? PAWL_EXCLUSIVE : out->mode;
    return 0;
}

#define BUSTED(id, text, says, mistake)                                                                                            \
    const struct design design_busted_ranges_##id = {                                                                              \
        .name = "busted-ranges-" text,                                                                                             \
        .summary = (says),                                                                                                         \
        .kind = DESIGN_BUSTED,                                                                                                     \
        .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_TIMEOUT | DESIGN_RANGES,                             \
        .substrates = DESIGN_ON_SIM,                                                                                               \
        .mistakes = (mistake),                                                                                                     \
        .lock_size = sizeof(struct table_lock),                                                                                    \
        .acquire = acquire,                                                                                                        \
        .release = release,                                                                                                        \
        .reshape = reshape,                                                                                                        \
        .split = split,                                                                                                            \
        .holds = holds,                                                                                                            \
        .peek = peek,                                                                                                              \
    }

BUSTED(control, "control", "a table of ranges under a spinlock, without a mistake: the oracle must find nothing", NO_MISTAKE);
BUSTED(off_by_one, "off-by-one", "the last unit of a range belongs to the next", OFF_BY_ONE);
BUSTED(early_token, "early-token", "draws its token before it waits", EARLY_TOKEN);
BUSTED(release_more, "release-more", "gives back all that its session has", RELEASE_MORE);
BUSTED(grow_blind, "grow-blind", "grows into what others hold", GROW_BLIND);
BUSTED(split_loses, "split-loses", "cuts a range in two and forgets the second half", SPLIT_LOSES);
