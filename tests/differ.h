/* SPDX-License-Identifier: Apache-2.0 */
/* A range design beside a trivially correct table of ranges: random operations on both, one after the other. The design never
 * grants what the table refuses. A refusal of a range that the table would grant is a false conflict, and counted. Some runs have
 * another design beside it, which must agree with the table exactly. */
#ifndef PAWL_TESTS_DIFFER_H
#define PAWL_TESTS_DIFFER_H

#include "client/locker.h"
#include "lib/rng.h"
#include "tests/check.h"

#include <errno.h>

#define DIFFER_HELD_MAX 200
#define DIFFER_LOCKERS_MAX 8

struct differ_hold {
    const struct locker *locker;
    struct hold hold;        /* in the design: its mode and range are the table's, too */
    struct hold shadow_hold; /* in the other one */
};

struct differ {
    const struct design *design;
    const struct locker *lockers[DIFFER_LOCKERS_MAX]; /* sessions: all in one space */
    unsigned locker_count;
    const struct locker *shadow; /* of another design; null: none */
    unsigned held_max;
    bool plain;          /* lock and unlock only */
    uint64_t units;      /* ranges lie within */
    uint64_t length_max; /* and are no longer than this, and a power of two more often than not */
    struct rng random;
    struct differ_hold held[DIFFER_HELD_MAX];
    unsigned count;
    uint64_t ops, grants, refused, falsely;
    uint64_t limited; /* -PAWL_ELIMIT: a design may have no room for what a hold would become */
};

/* ---- the table ---- */

static inline bool differ_admits(const struct differ *d, uint64_t start, uint64_t end, enum pawl_mode mode, unsigned except)
{
    for (unsigned i = 0; i < d->count; i++) {
        const struct hold *h = &d->held[i].hold;
        if (i != except && ranges_overlap(start, end, h->start, h->end) && (mode == PAWL_EXCLUSIVE || h->mode == PAWL_EXCLUSIVE))
            return false;
    }
    return true;
}

static inline void differ_show(const struct differ *d)
{
    for (unsigned i = 0; i < d->count; i++)
        fprintf(stderr, "  held: %" PRIu64 ":%" PRIu64 " %s\n", d->held[i].hold.start, d->held[i].hold.end,
                d->held[i].hold.mode == PAWL_SHARED ? "shared" : "exclusive");
}

/* Compares the answer of the design with that of the table. True: the design granted it. */
static inline bool differ_judge(struct differ *d, const char *what, uint64_t start, uint64_t end, int rc, bool admitted)
{
    d->ops++;
    d->limited += rc == -PAWL_ELIMIT;
    if (rc == -PAWL_ELIMIT)
        return false;
    if (rc && rc != -PAWL_EHELD && rc != -ETIMEDOUT && rc != -EDEADLK)
        CHECK_FAIL("%s: operation %" PRIu64 ", %s %" PRIu64 ":%" PRIu64 ": %d: %s", d->design->name, d->ops, what, start, end, rc,
                   pawl_strerror(rc));
    if (!rc && !admitted) {
        differ_show(d);
        CHECK_FAIL("%s: operation %" PRIu64 ": granted what the table refuses: %s %" PRIu64 ":%" PRIu64, d->design->name, d->ops,
                   what, start, end);
    }
    d->grants += !rc;
    d->refused += rc && !admitted;
    d->falsely += rc && admitted;
    return !rc;
}

/* ---- the other design ---- */

static inline int differ_shadow_lock(const struct differ *d, const struct hold *like, struct hold *out)
{
    return locker_lock_range(d->shadow, pawl_id(0), like->start, like->end, like->mode, DEADLINE_TRY, out);
}

static inline void differ_shadow_gets(const struct differ *d, struct differ_hold *h)
{
    if (d->shadow)
        CHECK_EQ(differ_shadow_lock(d, &h->hold, &h->shadow_hold), 0);
}

static inline void differ_shadow_ends(const struct differ *d, const struct differ_hold *h)
{
    if (d->shadow)
        CHECK_EQ(locker_unlock(d->shadow, &h->shadow_hold), 0);
}

/* ---- operations ---- */

static inline void differ_draw(struct differ *d, uint64_t *start, uint64_t *end)
{
    unsigned bits = (unsigned)rng_below(&d->random, 64 - (unsigned)__builtin_clzll(d->length_max));
    uint64_t length = min_u64(1 + rng_below(&d->random, UINT64_C(2) << bits), d->length_max);
    *start = rng_below(&d->random, d->units - length + 1);
    *end = *start + length;
}

static inline void differ_lock(struct differ *d)
{
    struct differ_hold *h = &d->held[d->count];
    bool shared = d->design->features & DESIGN_SHARED && rng_chance(&d->random, 1, 2);
    struct hold want = {.mode = shared ? PAWL_SHARED : PAWL_EXCLUSIVE};
    differ_draw(d, &want.start, &want.end);
    bool admitted = differ_admits(d, want.start, want.end, want.mode, UINT32_MAX);
    h->locker = d->lockers[rng_below(&d->random, d->locker_count)];
    int rc = locker_lock_range(h->locker, pawl_id(0), want.start, want.end, want.mode, DEADLINE_TRY, &h->hold);
    if (differ_judge(d, "lock", want.start, want.end, rc, admitted)) {
        differ_shadow_gets(d, h);
        d->count++;
    } else if (d->shadow && !admitted) {
        CHECK_EQ(differ_shadow_lock(d, &want, &h->shadow_hold), -PAWL_EHELD);
    }
}

static inline void differ_unlock(struct differ *d, unsigned i)
{
    CHECK_EQ(locker_unlock(d->held[i].locker, &d->held[i].hold), 0);
    differ_shadow_ends(d, &d->held[i]);
    d->held[i] = d->held[--d->count];
    d->ops++;
}

static inline void differ_convert(struct differ *d, unsigned i)
{
    struct differ_hold *h = &d->held[i];
    enum pawl_mode mode = h->hold.mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED;
    bool admitted = differ_admits(d, h->hold.start, h->hold.end, mode, i);
    int rc = locker_convert(h->locker, &h->hold, mode, DEADLINE_TRY);
    if (mode == PAWL_SHARED && rc != -PAWL_ELIMIT)
        CHECK_EQ(rc, 0);
    if (differ_judge(d, "convert", h->hold.start, h->hold.end, rc, admitted)) {
        differ_shadow_ends(d, h);
        differ_shadow_gets(d, h);
    }
}

static inline void differ_grow(struct differ *d, unsigned i)
{
    struct differ_hold *h = &d->held[i];
    uint64_t room = d->length_max - (h->hold.end - h->hold.start);
    uint64_t start = h->hold.start - rng_below(&d->random, min_u64(h->hold.start, room / 2) + 1);
    uint64_t end = h->hold.end + rng_below(&d->random, min_u64(d->units - h->hold.end, room / 2) + 1);
    bool admitted = differ_admits(d, start, end, h->hold.mode, i);
    int rc = locker_reshape(h->locker, &h->hold, start, end, DEADLINE_TRY);
    if (differ_judge(d, "grow to", start, end, rc, admitted)) {
        differ_shadow_ends(d, h);
        differ_shadow_gets(d, h);
    }
}

static inline void differ_shrink(struct differ *d, unsigned i)
{
    struct differ_hold *h = &d->held[i];
    uint64_t start = h->hold.start + rng_below(&d->random, h->hold.end - h->hold.start);
    uint64_t end = start + 1 + rng_below(&d->random, h->hold.end - start);
    int rc = locker_reshape(h->locker, &h->hold, start, end, DEADLINE_TRY);
    CHECK(!rc || rc == -PAWL_ELIMIT);
    if (!differ_judge(d, "shrink to", start, end, rc, true))
        return;
    CHECK(h->hold.start == start && h->hold.end == end);
    differ_shadow_ends(d, h);
    differ_shadow_gets(d, h);
}

static inline void differ_split(struct differ *d, unsigned i)
{
    struct differ_hold *h = &d->held[i], *right = &d->held[d->count];
    if (h->hold.end - h->hold.start < 2 || d->count == d->held_max)
        return;
    uint64_t at = h->hold.start + 1 + rng_below(&d->random, h->hold.end - h->hold.start - 1);
    right->locker = h->locker;
    int rc = locker_split(h->locker, &h->hold, at, &right->hold);
    CHECK(!rc || rc == -PAWL_ELIMIT);
    if (!differ_judge(d, "split", h->hold.start, at, rc, true))
        return;
    differ_shadow_ends(d, h);
    differ_shadow_gets(d, h);
    differ_shadow_gets(d, right);
    d->count++;
}

/* One operation. How many are held goes up and down over time. */
static inline void differ_step(struct differ *d)
{
    unsigned i = d->count ? (unsigned)rng_below(&d->random, d->count) : 0;
    bool rising = d->ops / (4 * (uint64_t)d->held_max) % 2 == 0;
    unsigned change = d->plain ? UINT32_MAX : (unsigned)rng_below(&d->random, 10);
    if (d->count && change == 0 && d->design->convert)
        differ_convert(d, i);
    else if (d->count && change == 1 && d->design->reshape)
        differ_grow(d, i);
    else if (d->count && change == 2 && d->design->reshape)
        differ_shrink(d, i);
    else if (d->count && change == 3 && d->design->split)
        differ_split(d, i);
    else if (d->count < d->held_max && (!d->count || rng_chance(&d->random, rising ? 8 : 3, 10)))
        differ_lock(d);
    else
        differ_unlock(d, i);
}

/* Everything is given back, and then the whole can be had. */
static inline void differ_end(struct differ *d)
{
    struct hold h;
    while (d->count)
        differ_unlock(d, d->count - 1);
    CHECK_EQ(locker_lock(d->lockers[0], pawl_id(0), PAWL_EXCLUSIVE, DEADLINE_TRY, &h), 0);
    CHECK_EQ(locker_unlock(d->lockers[0], &h), 0);
    printf("%s%s: ranges up to %" PRIu64 " of %" PRIu64 " units: %" PRIu64 " operations, %" PRIu64 " granted, %" PRIu64
           " refused, %" PRIu64 " of them falsely, %" PRIu64 " without room\n",
           d->design->name, d->plain ? ", lock and unlock" : "", d->length_max, d->units, d->ops, d->grants,
           d->refused + d->falsely, d->falsely, d->limited);
    fflush(stdout);
}

/* Designs that lock exactly what was asked for. */
static inline bool differ_is_exact(const struct design *d)
{
    return !d->cover;
}

#endif
