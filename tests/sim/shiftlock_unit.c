/* SPDX-License-Identifier: Apache-2.0 */
/* Details of `shiftlock` and `shiftlock64` on plain memory: every counter of the entry where it overflows, giving up, handing over,
 * late releases. Waiters run in threads. */
#define SITE_CHECK_NS NS_PER_S /* some of them without a change and a lock is counted anew: not because the machine is busy */
#include "designs/shiftlock/shiftlock.h"
#include "tests/far_site.h"
#include "tests/sim/plain_site.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define SOON (world_now(&world_real) + 20 * NS_PER_MS)
#define AT_LAST (world_now(&world_real) + 20 * NS_PER_S) /* of what happens, however busy the machine is */

static const struct design *d;
static const struct shift_form *f;

static void begin(const char *what)
{
    printf("%s: %s\n", d->name, what);
    site_open(d);
}

static struct shift_entry get(void)
{
    const uint64_t *w = fab_shm_ptr(&site.ep, space_lock_addr(&site.space, 0));
    return shift_unpack(f, f->width == 16 ? (u128)w[1] << 64 | w[0] : w[0]);
}

static void put(struct shift_entry e)
{
    uint64_t *w = fab_shm_ptr(&site.ep, space_lock_addr(&site.space, 0));
    u128 word = shift_pack(f, e);
    w[0] = (uint64_t)word;
    if (f->width == 16)
        w[1] = (uint64_t)(word >> 64);
}

static uint64_t rel_max(void)
{
    return f->rel_bits == 64 ? UINT64_MAX : FIELD_MAX(f->rel_bits);
}

/* A waiter has a thread of its own. */
struct waiter {
    pthread_t thread;
    unsigned who;
    enum pawl_mode mode;
    struct hold h;
    int rc;
};

static void *wait_main(void *arg)
{
    struct waiter *w = arg;
    w->rc = lock(w->who, w->mode, AT_LAST, &w->h);
    return NULL;
}

static void start(struct waiter *w, unsigned who, enum pawl_mode mode)
{
    *w = (struct waiter){.who = who, .mode = mode};
    CHECK_EQ(pthread_create(&w->thread, NULL, wait_main, w), 0);
}

static void got(struct waiter *w)
{
    CHECK_EQ(pthread_join(w->thread, NULL), 0);
    CHECK_EQ(w->rc, 0);
}

static void until_tail(unsigned who)
{
    while (get().tail >> f->record_bits != site.sessions[who].slot || !get().tail)
        sched_yield();
}

static void until_readers(uint32_t readers)
{
    while (get().readers != readers)
        sched_yield();
}

/* ---- the entry ---- */

static void test_pack(void)
{
    const struct shift_entry all = {.rel = rel_max(),
                                    .readers = (uint32_t)FIELD_MAX(f->readers_bits),
                                    .tail = (uint32_t)FIELD_MAX(f->slot_bits + f->record_bits),
                                    .era = (uint32_t)FIELD_MAX(shift_era_bits(f)),
                                    .epoch = true};
    printf("%s: fields do not overlap, and fill the word\n", d->name);
    u128 ones = f->width == 16 ? ~(u128)0 : UINT64_MAX;
    CHECK(shift_pack(f, all) == ones);
    CHECK_EQ(f->rel_bits + f->readers_bits + f->slot_bits + f->record_bits + shift_era_bits(f) + f->echo_bits + 1, 8u * f->width);
    CHECK(shift_matches(shift_unpack(f, shift_pack(f, all)), all, SHIFT_ALL));
    const struct shift_entry one = {.rel = 5, .readers = 3, .tail = 9, .era = 0x5a & (uint32_t)FIELD_MAX(shift_era_bits(f))};
    CHECK(shift_matches(shift_unpack(f, shift_pack(f, one)), one, SHIFT_ALL));
    CHECK(shift_rel_reached(f, shift_rel_add(f, rel_max(), 3), rel_max()));
    CHECK(!shift_rel_reached(f, rel_max(), shift_rel_add(f, rel_max(), 3)));
}

/* ---- counters that run over ---- */

static void test_rel_wraps(void)
{
    begin("RelCnt runs over under readers, a waiting writer and a hand-over");
    put((struct shift_entry){.rel = rel_max() - 1});
    struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED), c = locked(2, PAWL_SHARED);
    struct waiter w, next;
    start(&w, 3, PAWL_EXCLUSIVE); /* waits for RelCnt 1: three readers after the last but one */
    until_tail(3);
    start(&next, 4, PAWL_EXCLUSIVE);
    until_tail(4);
    unlock(0, &a);
    unlock(1, &b);
    CHECK_EQ(get().rel, 0);
    CHECK(!d->holds(&site.seats[3], &w.h));
    unlock(2, &c);
    got(&w);
    CHECK_EQ(get().rel, 1);
    unlock(3, &w.h);
    got(&next);
    if (f->rel_bits < 64) /* with 64 bits the token would overflow, too, which takes longer than any space lives */
        CHECK(next.h.token > w.h.token);
    unlock(4, &next.h);
    CHECK_EQ(get().rel, 3);
    CHECK(!get().tail && !get().readers);
    site_close();
}

static void test_era_wraps(void)
{
    begin("the era runs over while one reads, one writes next and one waits");
    put((struct shift_entry){.era = (uint32_t)FIELD_MAX(shift_era_bits(f)) - 1, .rel = 7});
    struct hold a = locked(0, PAWL_SHARED);
    CHECK_EQ(shift_ask_recount(&site.seats[1], 0), 0);
    CHECK_EQ(get().era, (uint32_t)FIELD_MAX(shift_era_bits(f)));
    CHECK_EQ(shift_recount(&site.seats[1], 0, DEADLINE_TRY), 0);
    CHECK_EQ(get().era, 0);
    CHECK_EQ(get().readers, 1);
    struct waiter w;
    start(&w, 1, PAWL_EXCLUSIVE);
    until_tail(1);
    unlock(0, &a);
    got(&w);
    unlock(1, &w.h);
    CHECK(!get().tail && !get().readers);
    site_close();
}

static void test_too_many_readers(void)
{
    begin("no reader enters beyond the limit, and refused readers leave nothing");
    put((struct shift_entry){.readers = shift_readers_max(f), .rel = 7});
    struct hold h;
    CHECK_EQ(lock(0, PAWL_SHARED, DEADLINE_TRY, &h), -PAWL_ELIMIT);
    CHECK_EQ(lock(0, PAWL_EXCLUSIVE, AT_LAST, &h), 0); /* no records account for these readers */
    unlock(0, &h);
    site_close();
}

/* ---- order ---- */

static void test_writers_bound(void)
{
    begin("after N writers in a row it is the readers' turn; while none waits they go on");
    struct hold first = locked(0, PAWL_EXCLUSIVE);
    struct shift_entry e = get();
    shift_remember(
        &site.seats[0], &first, e,
        (struct shift_run){.writers = shift_knob(&site.seats[0], SHIFT_WRITERS_MAX) - 1}); /* as if so many had gone before */
    struct waiter w, r;
    start(&w, 1, PAWL_EXCLUSIVE);
    until_tail(1);
    start(&r, 2, PAWL_SHARED);
    until_readers(1);
    unlock(0, &first);
    got(&r);
    CHECK_EQ(get().epoch, !e.epoch);
    unlock(2, &r.h);
    got(&w);
    CHECK(w.h.token > r.h.token && r.h.token > first.token);

    shift_remember(&site.seats[1], &w.h, get(), (struct shift_run){.writers = shift_knob(&site.seats[0], SHIFT_WRITERS_MAX) - 1});
    start(&r, 3, PAWL_EXCLUSIVE);
    until_tail(3);
    unlock(1, &w.h);
    got(&r);
    CHECK_EQ(get().epoch, !e.epoch);
    unlock(3, &r.h);
    site_close();
}

static void test_give_up(void)
{
    begin("readers, the first writer and writers in the queue give up");
    struct hold h, x = locked(0, PAWL_EXCLUSIVE);
    CHECK_EQ(lock(1, PAWL_SHARED, SOON, &h), -ETIMEDOUT);
    CHECK_EQ(get().readers, 0);
    CHECK_EQ(lock(1, PAWL_EXCLUSIVE, SOON, &h), -ETIMEDOUT);
    CHECK_EQ(lock(1, PAWL_EXCLUSIVE, DEADLINE_TRY, &h), -PAWL_EHELD);
    CHECK(d->holds(&site.seats[0], &x));
    unlock(0, &x);
    struct hold s = locked(0, PAWL_SHARED);
    CHECK_EQ(lock(1, PAWL_EXCLUSIVE, SOON, &h), -ETIMEDOUT);
    CHECK_EQ(get().tail, 0);
    CHECK_EQ(get().readers, 1);
    h = locked(2, PAWL_SHARED);
    unlock(2, &h);
    unlock(0, &s);
    x = locked(3, PAWL_EXCLUSIVE);
    unlock(3, &x);
    site_close();
}

/* A try that finds the lock held leaves nothing behind: no name in the queue that others would wait for. */
static void test_try(void)
{
    static const enum pawl_mode modes[] = {PAWL_EXCLUSIVE, PAWL_SHARED};
    begin("tries leave nothing behind");
    for (unsigned i = 0; i < countof(modes); i++) {
        struct hold h, held = locked(0, modes[i]);
        const struct shift_entry before = get();
        CHECK_EQ(lock(1, PAWL_EXCLUSIVE, DEADLINE_TRY, &h), -PAWL_EHELD);
        CHECK(shift_matches(get(), before, SHIFT_ALL));
        CHECK_EQ(lock(1, PAWL_SHARED, DEADLINE_TRY, &h), modes[i] == PAWL_SHARED ? 0 : -PAWL_EHELD);
        if (modes[i] == PAWL_SHARED)
            unlock(1, &h);
        CHECK(get().tail == before.tail && get().era == before.era);
        unlock(0, &held);
    }
    site_close();
}

/* ---- what comes late ---- */

static void lose(unsigned who)
{
    CHECK_EQ(session_break(&site.seats[5], site.sessions[who].slot, site.sessions[who].epoch), 0);
}

static void test_late_release(void)
{
    begin("releases and conversions of the lost change nothing");
    static const enum pawl_mode modes[] = {PAWL_EXCLUSIVE, PAWL_SHARED};
    for (unsigned i = 0; i < countof(modes); i++) {
        struct hold late = locked(i, modes[i]);
        lose(i);
        struct hold h = locked(2, PAWL_EXCLUSIVE);
        CHECK(h.token > late.token);
        struct shift_entry before = get();
        CHECK_EQ(d->release(&site.seats[i], &late), -PAWL_ELOST);
        CHECK(shift_matches(get(), before, SHIFT_ALL));
        CHECK_EQ(lock(3, PAWL_SHARED, DEADLINE_TRY, &late), -PAWL_EHELD);
        unlock(2, &h);
    }
    site_close();
}

static void test_try_recovers(void)
{
    begin("the first try recovers from a holder that is lost");
    struct hold late = locked(0, PAWL_EXCLUSIVE);
    CHECK_EQ(session_condemn(&site.seats[5], site.sessions[0].slot, site.sessions[0].epoch), 0);
    struct hold h = locked(1, PAWL_EXCLUSIVE);
    CHECK(h.token > late.token);
    unlock(1, &h);
    site_close();
}

static int end_session(unsigned session)
{
    far.sessions[session].ended = true;
    return -ETIMEDOUT;
}

/* The predecessor has handed over, and RelCnt has not arrived yet. */
static void test_lost_while_it_lags(void)
{
    struct hold h;
    printf("%s: a writer that is lost while it waits for RelCnt learns it\n", d->name);
    far_open(d, PAWL_KEYS_DENSE, 1, 0);
    uint64_t *entry = far_word(space_lock_addr(&far.space, 0));
    u128 before = shift_pack(f, (struct shift_entry){.rel = 7}), lags;
    memcpy(entry, &before, f->width);
    CHECK_EQ(hold_open(&far.seats[0], 0, &h), 0);
    h.mode = PAWL_EXCLUSIVE;
    CHECK_EQ(d->acquire(&far.seats[0], &h, DEADLINE_TRY), 0);
    memcpy(&before, entry, f->width);
    struct shift_entry e = shift_unpack(f, before);
    e.rel--;
    lags = shift_pack(f, e);
    memcpy(entry, &lags, f->width);
    far.waits = end_session;
    CHECK_EQ(d->release(&far.seats[0], &h), -PAWL_ELOST);
    CHECK(far.sessions[0].ended);
    CHECK(!memcmp(entry, &lags, f->width));
    far_close();
}

static void test_recount_keeps_the_living(void)
{
    begin("a live session keeps its hold when another is lost, and waiters join again");
    struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED);
    struct waiter w;
    start(&w, 2, PAWL_EXCLUSIVE);
    until_tail(2);
    lose(0);
    while (get().era != 2)
        sched_yield();
    CHECK(d->holds(&site.seats[1], &b));
    CHECK_EQ(d->release(&site.seats[0], &a), -PAWL_ELOST);
    unlock(1, &b);
    got(&w);
    struct hold copy = w.h; /* the writer, now holding, survives one as well */
    CHECK_EQ(shift_ask_recount(&site.seats[3], 0), 0);
    CHECK_EQ(shift_recount(&site.seats[3], 0, DEADLINE_TRY), 0);
    CHECK_EQ(lock(3, PAWL_SHARED, DEADLINE_TRY, &a), -PAWL_EHELD);
    unlock(2, &w.h);
    CHECK_EQ(d->release(&site.seats[2], &copy), -PAWL_ENOTOWNER);
    CHECK(!get().tail && !get().readers);
    site_close();
}

static void test_notes(void)
{
    begin("a note for another lock, era or life of the memory is none, nor one that is not whole");
    struct hold h;
    CHECK_EQ(hold_open(&site.seats[0], 2, &h), 0);
    fab_addr at = seat_desc_addr(&site.seats[0], h.record) + offsetof(struct shift_desc, next);
    struct shift_note out, note = {.nonce = 17, .value = 4, .extra = 2};
    CHECK_EQ(shift_leave_note(&site.seats[1], at, 2, 6, SHIFT_HANDOVER, note), 0);
    CHECK(shift_read_note(&site.seats[0], at, 2, 6, NULL, &out) && out.value == 4 && shift_note_kind(&out) == SHIFT_HANDOVER);
    CHECK(!shift_read_note(&site.seats[0], at, 1, 6, NULL, &out));
    CHECK(!shift_read_note(&site.seats[0], at, 2, 8, NULL, &out));
    site.space.token_base++;
    CHECK(!shift_read_note(&site.seats[0], at, 2, 6, NULL, &out));
    site.space.token_base--;
    ++*(uint64_t *)fab_shm_ptr(&site.ep, at + offsetof(struct shift_note, value));
    CHECK(!shift_read_note(&site.seats[0], at, 2, 6, NULL, &out));
    CHECK_EQ(shift_leave_note(&site.seats[1], at, 2, 6, SHIFT_HANDOVER, note), 0);
    shift_clear_note(&site.seats[0], &h);
    CHECK(!shift_read_note(&site.seats[0], at, 2, 6, NULL, &out));
    hold_close(&site.seats[0], &h);
    site_close();
}

int main(void)
{
    static const struct design *const both[] = {&design_shiftlock, &design_shiftlock64};
    for (unsigned i = 0; i < countof(both); i++) {
        d = both[i];
        f = d->variant;
        test_pack();
        test_rel_wraps();
        test_era_wraps();
        test_too_many_readers();
        test_writers_bound();
        test_give_up();
        test_try();
        test_late_release();
        test_try_recovers();
        test_lost_while_it_lags();
        test_recount_keeps_the_living();
        test_notes();
    }
    return 0;
}
