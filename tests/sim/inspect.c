/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts of one-sided designs that few callers use, on plain memory: what a look at a lock says in each of its states, and that
 * tokens stay above a floor from the time on at which the lock was raised above it. */
#define SITE_CHECK_NS NS_PER_S
#include "tests/sim/plain_site.h"

#include <errno.h>
#include <stdio.h>

static const char *const designs[] = {"word", "shiftlock", "shiftlock64", "alock"};

static struct lock_view look(void)
{
    struct lock_view v;
    memset(&v, 0xff, sizeof v);
    CHECK_EQ(site.design->peek(&site.seats[5], 0, &v), 0);
    return v;
}

static void test_look(const struct design *d)
{
    site_open(d);
    CHECK(!look().mode && !look().readers);
    for (unsigned who = 0; who < 3; who++) {
        struct hold h = locked(who, PAWL_EXCLUSIVE);
        struct lock_view v = look();
        CHECK_EQ(v.mode, PAWL_EXCLUSIVE);
        CHECK_EQ(v.owner, site.sessions[who].slot);
        CHECK_EQ(v.token, h.token);
        unlock(who, &h);
        CHECK(!look().mode && look().token >= h.token); /* the latest that was given */
    }
    if (d->features & DESIGN_SHARED) {
        struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED);
        CHECK(look().mode == PAWL_SHARED && look().readers == 2);
        unlock(0, &a);
        CHECK(look().mode == PAWL_SHARED && look().readers == 1);
        unlock(1, &b);
        CHECK(!look().mode && !look().readers);
    }
    struct hold h;
    CHECK_EQ(hold_open(&site.seats[0], 1, &h), 0); /* another lock */
    h.mode = PAWL_EXCLUSIVE;
    CHECK_EQ(d->acquire(&site.seats[0], &h, DEADLINE_TRY), 0);
    CHECK(!look().mode);
    unlock(0, &h);
    site_close();
}

static void test_raise(const struct design *d)
{
    site_open(d);
    struct hold h = locked(0, PAWL_EXCLUSIVE), other;
    uint64_t first = h.token;
    const uint64_t floors[] = {first - 1, first, first + 5, first + 5, first + 1000, first + 2, first + (UINT64_C(1) << 20), first};
    for (unsigned i = 0; i < countof(floors); i++) {
        uint64_t before = h.token;
        CHECK_EQ(d->raise(&site.seats[0], &h, floors[i]), 0);
        CHECK(h.token > floors[i] && h.token >= before);
        CHECK(floors[i] >= before || h.token == before); /* it is above the floor already */
        CHECK(d->holds(&site.seats[0], &h));
        CHECK_EQ(lock(1, PAWL_EXCLUSIVE, DEADLINE_TRY, &other), -PAWL_EHELD);
        CHECK_EQ(look().token, h.token);
    }
    uint64_t last = h.token;
    unlock(0, &h);
    for (unsigned who = 1; who < 4; who++) { /* the next ones go on from there (I2) */
        h = locked(who, PAWL_EXCLUSIVE);
        CHECK(h.token > last && h.token - last < 100);
        last = h.token;
        unlock(who, &h);
    }
    site_close();
}

/* A grant that is not held any more is neither released nor converted, and changes nothing for the next holder. */
static void test_not_held(const struct design *d)
{
    static const enum pawl_mode modes[] = {PAWL_EXCLUSIVE, PAWL_SHARED};
    const struct seat *seat;
    site_open(d);
    seat = &site.seats[0];
    for (unsigned i = 0; i < (d->features & DESIGN_SHARED ? 2 : 1); i++) {
        struct hold h = locked(0, modes[i]);
        if (d->features & DESIGN_CONVERT) {
            CHECK_EQ(d->convert(seat, &h, modes[i], DEADLINE_TRY), 0); /* as it is */
            CHECK(d->holds(seat, &h));
        }
        struct hold gone = h;
        unlock(0, &h);
        struct hold next = locked(1, PAWL_EXCLUSIVE);
        CHECK_EQ(d->release(seat, &gone), -PAWL_ENOTOWNER);
        for (unsigned k = 0; k < 2 && d->features & DESIGN_CONVERT; k++) {
            struct hold again = gone;
            CHECK_EQ(d->convert(seat, &again, modes[k], DEADLINE_TRY), -PAWL_ENOTOWNER);
        }
        CHECK(!d->holds(seat, &gone) && d->holds(&site.seats[1], &next));
        CHECK(look().mode == PAWL_EXCLUSIVE && look().token == next.token);
        unlock(1, &next);
    }
    site_close();
}

int main(void)
{
    for (unsigned i = 0; i < countof(designs); i++) {
        const struct design *d = design_find(designs[i]);
        CHECK(d != NULL);
        printf("%s\n", d->name);
        fflush(stdout);
        test_look(d);
        test_raise(d);
        test_not_held(d);
    }
    return 0;
}
