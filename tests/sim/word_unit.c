/* SPDX-License-Identifier: Apache-2.0 */
/* Details of `word` on plain memory, one thread: tokens at their last values, readers, waiters, counting anew. */
#define SITE_CHECK_NS NS_PER_MS
#include "designs/word/word.h"
#include "tests/sim/plain_site.h"
#include "tests/tuned.h"
#include "workbench/baselines/baselines.h"

#include <errno.h>

#define LAST WORD_TOKEN_MAX
#define SOON (world_now(&world_real) + 20 * NS_PER_MS)   /* some rounds of looking after the holders */
#define AT_LAST (world_now(&world_real) + 20 * NS_PER_S) /* of what happens, however busy the machine is */

static const struct design *const d = &design_word;

static void begin(const char *what)
{
    printf("%s\n", what);
    site_open(d);
}

static struct word_lock *lock_at(uint64_t index)
{
    return fab_shm_ptr(&site.ep, space_lock_addr(&site.space, index));
}

static int convert(unsigned who, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    return d->convert(&site.seats[who], h, mode, deadline);
}

/* The token of a grant, for a high part and a token of the word. */
static uint64_t token(uint64_t high, uint64_t low)
{
    return site.space.token_base + (high << WORD_TOKEN_BITS) + low;
}

static void check_word(enum word_mode mode, uint64_t count, uint64_t low)
{
    uint64_t w = lock_at(0)->word;
    CHECK_EQ(word_mode(w), mode);
    CHECK_EQ(word_count(w), count);
    CHECK_EQ(word_token(w), low);
}

/* ---- tokens ---- */

static void test_last_token(void)
{
    begin("the last token of the word, then the high part");
    static const enum pawl_mode modes[] = {PAWL_EXCLUSIVE, PAWL_SHARED};
    for (size_t i = 0; i < countof(modes); i++) {
        *lock_at(0) = (struct word_lock){.word = word_make(WORD_FREE, 0, LAST - 1), .high = 41};
        struct hold h = locked(0, modes[i]);
        CHECK_EQ(h.token, token(41, LAST));
        unlock(0, &h);
        check_word(WORD_FREE, 0, LAST);
        uint64_t before = h.token;
        h = locked(1, modes[i]);
        CHECK_EQ(h.token, token(42, 1));
        CHECK(h.token > before);
        CHECK_EQ(lock_at(0)->high, 42);
        unlock(1, &h);
    }
    /* The client that raised the high part died before it could start the word anew: the next one raises it once more. */
    *lock_at(0) = (struct word_lock){.word = word_make(WORD_FREE, 0, LAST), .high = 43};
    struct hold h = locked(0, PAWL_EXCLUSIVE);
    CHECK_EQ(h.token, token(44, 1));
    unlock(0, &h);
    site_close();
}

static void test_convert_at_last_token(void)
{
    begin("conversions have no room above the last token, and change nothing");
    *lock_at(0) = (struct word_lock){.word = word_make(WORD_FREE, 0, LAST - 1)};
    struct hold h = locked(0, PAWL_EXCLUSIVE);
    CHECK_EQ(convert(0, &h, PAWL_SHARED, DEADLINE_TRY), -EAGAIN);
    CHECK_EQ(h.mode, PAWL_EXCLUSIVE);
    CHECK(d->holds(&site.seats[0], &h));
    unlock(0, &h);
    *lock_at(0) = (struct word_lock){.word = word_make(WORD_FREE, 0, LAST - 1)};
    h = locked(0, PAWL_SHARED);
    CHECK_EQ(convert(0, &h, PAWL_EXCLUSIVE, DEADLINE_TRY), -EAGAIN);
    check_word(WORD_SHARED, 1, LAST);
    unlock(0, &h);
    /* One below it there is. */
    *lock_at(0) = (struct word_lock){.word = word_make(WORD_FREE, 0, LAST - 2), .high = 3};
    h = locked(0, PAWL_EXCLUSIVE);
    CHECK_EQ(convert(0, &h, PAWL_SHARED, DEADLINE_TRY), 0);
    CHECK_EQ(h.token, token(3, LAST));
    unlock(0, &h);
    *lock_at(0) = (struct word_lock){.word = word_make(WORD_FREE, 0, LAST - 2), .high = 3};
    h = locked(0, PAWL_SHARED);
    CHECK_EQ(convert(0, &h, PAWL_EXCLUSIVE, DEADLINE_TRY), 0);
    CHECK_EQ(h.token, token(3, LAST));
    unlock(0, &h);
    check_word(WORD_FREE, 0, LAST);
    site_close();
}

static void test_raise(void)
{
    begin("raising a token above a floor");
    struct hold h = locked(0, PAWL_EXCLUSIVE);
    uint64_t first = h.token;
    CHECK_EQ(d->raise(&site.seats[0], &h, first - 1), 0);
    CHECK_EQ(h.token, first);
    CHECK_EQ(d->raise(&site.seats[0], &h, first), 0);
    CHECK_EQ(h.token, first + 1);
    CHECK_EQ(d->raise(&site.seats[0], &h, token(5, LAST)), 0);
    CHECK_EQ(h.token, token(6, 0));
    CHECK_EQ(lock_at(0)->high, 6);
    CHECK(d->holds(&site.seats[0], &h));
    unlock(0, &h);
    h = locked(1, PAWL_EXCLUSIVE);
    CHECK_EQ(h.token, token(6, 1));
    unlock(1, &h);
    site_close();
}

/* ---- readers and waiters ---- */

static void test_readers(void)
{
    begin("readers are counted, and share a token");
    struct hold h[SITE_SESSIONS], more, writer;
    for (unsigned i = 0; i < SITE_SESSIONS; i++) {
        h[i] = locked(i, PAWL_SHARED);
        CHECK_EQ(h[i].token, h[0].token);
        check_word(WORD_SHARED, i + 1, word_short_token(&site.seats[0], h[0].token));
    }
    more = locked(0, PAWL_SHARED);
    check_word(WORD_SHARED, SITE_SESSIONS + 1, word_short_token(&site.seats[0], h[0].token));
    CHECK_EQ(lock(1, PAWL_EXCLUSIVE, DEADLINE_TRY, &writer), -PAWL_EHELD);
    unlock(0, &more);
    CHECK_EQ(d->release(&site.seats[0], &more), -PAWL_ENOTOWNER); /* twice */
    for (unsigned i = 0; i < SITE_SESSIONS; i++)
        unlock(i, &h[i]);
    check_word(WORD_FREE, 0, word_short_token(&site.seats[0], h[0].token));
    /* As many as the field holds, and no more. */
    lock_at(0)->word = word_make(WORD_SHARED, WORD_READERS_MAX, 9);
    CHECK_EQ(lock(1, PAWL_SHARED, DEADLINE_TRY, &writer), -PAWL_EHELD);
    lock_at(0)->word = word_make(WORD_FREE, 0, 9);
    site_close();
}

static void test_open(void)
{
    begin("an open lock: readers are not counted until a writer comes");
    struct hold h[3], writer;
    struct lock_view view;
    site.space.knobs = *tuned(d, "open-every", 1);
    h[0] = locked(0, PAWL_SHARED);
    h[1] = locked(1, PAWL_SHARED); /* finds another inside, and opens */
    uint64_t open = lock_at(0)->word;
    CHECK(word_open(open));
    h[2] = locked(2, PAWL_SHARED);
    CHECK_EQ(lock_at(0)->word, open);
    for (unsigned i = 0; i < countof(h); i++)
        CHECK_EQ(h[i].token, h[0].token);
    unlock(1, &h[1]);
    CHECK_EQ(lock_at(0)->word, open);
    CHECK_EQ(d->release(&site.seats[1], &h[1]), -PAWL_ENOTOWNER);
    CHECK_EQ(lock(3, PAWL_EXCLUSIVE, DEADLINE_TRY, &writer), -PAWL_EHELD); /* counts the two that are left */
    check_word(WORD_SHARED, 2, word_token(open) + 1);
    unlock(0, &h[0]);
    check_word(WORD_SHARED, 1, word_token(open) + 1);
    h[1] = locked(1, PAWL_SHARED);
    CHECK(word_open(lock_at(0)->word)); /* with one that was counted inside */
    CHECK_EQ(d->peek(&site.seats[0], 0, &view), 0);
    CHECK(view.mode == PAWL_SHARED && view.readers == 2);
    h[0] = locked(0, PAWL_SHARED);
    CHECK(word_open(lock_at(0)->word));
    unlock(0, &h[0]);
    unlock(1, &h[1]);
    CHECK_EQ(convert(2, &h[2], PAWL_EXCLUSIVE, DEADLINE_TRY), 0); /* alone after all */
    CHECK(h[2].token > h[1].token);
    unlock(2, &h[2]);
    h[0] = locked(0, PAWL_SHARED);
    h[1] = locked(1, PAWL_SHARED);
    unlock(0, &h[0]);
    unlock(1, &h[1]);
    CHECK(word_open(lock_at(0)->word)); /* no reader is left */
    CHECK_EQ(d->peek(&site.seats[0], 0, &view), 0);
    CHECK_EQ(view.mode, 0);
    writer = locked(3, PAWL_EXCLUSIVE);
    CHECK(writer.token > h[1].token);
    unlock(3, &writer);
    site_close();
}

static void test_owner(void)
{
    begin("an exclusive word names its hold");
    struct hold h = locked(2, PAWL_EXCLUSIVE), stolen = h, other;
    struct lock_view view;
    CHECK_EQ(word_owner_slot(lock_at(0)->word), site.sessions[2].slot);
    CHECK_EQ(d->peek(&site.seats[0], 0, &view), 0);
    CHECK(view.mode == PAWL_EXCLUSIVE && view.owner == site.sessions[2].slot && view.token == h.token);
    CHECK_EQ(lock(0, PAWL_EXCLUSIVE, DEADLINE_TRY, &other), -PAWL_EHELD);
    CHECK_EQ(lock(0, PAWL_SHARED, DEADLINE_TRY, &other), -PAWL_EHELD);
    CHECK_EQ(d->release(&site.seats[0], &stolen), -PAWL_ENOTOWNER);
    stolen.token--;
    CHECK_EQ(d->release(&site.seats[2], &stolen), -PAWL_ENOTOWNER);
    unlock(2, &h);
    CHECK_EQ(d->release(&site.seats[2], &h), -PAWL_ENOTOWNER);
    site_close();
}

static void test_waiters(void)
{
    begin("waiters leave a mark; the next change of the word clears it");
    struct hold h = locked(0, PAWL_EXCLUSIVE), w, r;
    CHECK_EQ(lock(1, PAWL_EXCLUSIVE, SOON, &w), -ETIMEDOUT);
    CHECK(lock_at(0)->word & WORD_WAITERS);
    CHECK_EQ(d->holds(&site.seats[0], &h), true);
    unlock(0, &h);
    CHECK(!(lock_at(0)->word & WORD_WAITERS));
    /* New readers do not pass waiters; but the last waiter that gives up clears the mark. */
    r = locked(0, PAWL_SHARED);
    CHECK_EQ(lock(1, PAWL_EXCLUSIVE, SOON, &w), -ETIMEDOUT);
    CHECK(!(lock_at(0)->word & WORD_WAITERS));
    struct hold still;
    CHECK_EQ(hold_open(&site.seats[3], 0, &still), 0);
    CHECK_EQ(hold_publish(&site.seats[3], &still, RECORD_WAIT), 0);
    CHECK_EQ(lock(1, PAWL_EXCLUSIVE, SOON, &w), -ETIMEDOUT);
    CHECK(lock_at(0)->word & WORD_WAITERS);
    CHECK_EQ(lock(2, PAWL_SHARED, DEADLINE_TRY, &w), -PAWL_EHELD);
    hold_close(&site.seats[3], &still);
    CHECK_EQ(lock(2, PAWL_SHARED, AT_LAST, &w), 0); /* a waiter may: it was woken for that */
    unlock(2, &w);
    unlock(0, &r);
    CHECK_EQ(word_mode(lock_at(0)->word), WORD_FREE);
    CHECK(!(lock_at(0)->word & WORD_WAITERS));
    site_close();
}

static void test_upgrade(void)
{
    begin("upgrades: alone, beside readers, against another's");
    struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED);
    uint64_t was = a.token;
    CHECK_EQ(convert(0, &a, PAWL_EXCLUSIVE, DEADLINE_TRY), -PAWL_EHELD);
    CHECK_EQ(convert(0, &a, PAWL_EXCLUSIVE, SOON), -ETIMEDOUT);
    CHECK(!(lock_at(0)->word & WORD_UPGRADE)); /* taken back */
    CHECK(a.mode == PAWL_SHARED && d->holds(&site.seats[0], &a));
    lock_at(0)->word |= WORD_UPGRADE; /* as if the other waited to become the writer */
    CHECK_EQ(convert(0, &a, PAWL_EXCLUSIVE, AT_LAST), -EDEADLK);
    struct hold c;
    CHECK_EQ(lock(2, PAWL_SHARED, DEADLINE_TRY, &c), -PAWL_EHELD);
    lock_at(0)->word &= ~WORD_UPGRADE;
    unlock(1, &b);
    CHECK_EQ(convert(0, &a, PAWL_EXCLUSIVE, AT_LAST), 0);
    CHECK(a.mode == PAWL_EXCLUSIVE && a.token > was);
    CHECK_EQ(convert(0, &a, PAWL_EXCLUSIVE, DEADLINE_TRY), 0); /* it is that already */
    was = a.token;
    CHECK_EQ(convert(0, &a, PAWL_SHARED, DEADLINE_TRY), 0);
    CHECK(a.mode == PAWL_SHARED && a.token > was);
    b = locked(1, PAWL_SHARED);
    CHECK_EQ(b.token, a.token);
    unlock(0, &a);
    unlock(1, &b);
    CHECK_EQ(convert(1, &b, PAWL_EXCLUSIVE, DEADLINE_TRY), -PAWL_ENOTOWNER);
    site_close();
}

/* ---- counting anew ---- */

static void test_recount(void)
{
    begin("counting anew finds the readers in their records");
    struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED), c;
    uint64_t low = word_token(lock_at(0)->word);
    lock_at(0)->word = word_make(WORD_RECOUNT, 0, low);
    unlock(1, &b); /* leaves while it is being counted */
    check_word(WORD_RECOUNT, 1, low);
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), 0);
    check_word(WORD_SHARED, 1, low + 1);
    c = locked(2, PAWL_SHARED);
    CHECK_EQ(c.token, a.token + 1); /* above; and both below the next writer's */
    unlock(0, &a);
    unlock(2, &c);
    check_word(WORD_FREE, 0, low + 1);
    lock_at(0)->word = word_make(WORD_RECOUNT, 5, low + 1);
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), 0);
    check_word(WORD_FREE, 0, low + 2);
    site_close();
}

static void test_unsure(void)
{
    begin("no count completes while a reader is in the middle of a step");
    struct hold a = locked(0, PAWL_SHARED), b, c;
    uint64_t low = word_token(lock_at(0)->word);
    CHECK_EQ(hold_open(&site.seats[1], 0, &b), 0);
    b.mode = PAWL_SHARED;
    static const enum record_state unsure[] = {RECORD_TRY_S, RECORD_LEAVE_S};
    for (size_t i = 0; i < countof(unsure); i++) {
        CHECK_EQ(hold_publish(&site.seats[1], &b, unsure[i]), 0);
        lock_at(0)->word = word_make(WORD_RECOUNT, 0, low);
        CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), -PAWL_EHELD);
        CHECK_EQ(word_recount(&site.seats[2], 0, SOON), -ETIMEDOUT);
        CHECK_EQ(lock(2, PAWL_EXCLUSIVE, DEADLINE_TRY, &c), -PAWL_EHELD);
        check_word(WORD_RECOUNT, 0, low);
    }
    CHECK_EQ(hold_publish(&site.seats[1], &b, RECORD_WAIT), 0);
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), 0);
    check_word(WORD_SHARED, 1, low + 1);
    hold_close(&site.seats[1], &b);

    /* At the last token there is no other to mark the new count with: the readers leave first. */
    lock_at(0)->word = word_make(WORD_RECOUNT, 0, LAST);
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), -PAWL_EHELD);
    unlock(0, &a);
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), 0);
    check_word(WORD_FREE, 0, LAST);
    site_close();
}

static void test_disown(void)
{
    begin("a reader that does not know whether it is counted asks for a count");
    struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED);
    uint64_t low = word_token(lock_at(0)->word);
    CHECK_EQ(word_disown(&site.seats[1], &b, RECORD_WAIT), 0);
    check_word(WORD_RECOUNT, 0, low);
    CHECK_EQ(word_disown(&site.seats[1], &b, RECORD_WAIT), 0); /* tells a count under way that it is out of date */
    check_word(WORD_RECOUNT, 1, low);
    hold_close(&site.seats[1], &b);
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), 0);
    check_word(WORD_SHARED, 1, low + 1);
    unlock(0, &a);
    site_close();
}

/* Foreign code has changed the lock's word: holders are told, and no count is made of it (I25). */
static void test_damaged(void)
{
    begin("a word that cannot be");
    struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED), none;
    uint64_t low = word_token(lock_at(0)->word), was = lock_at(0)->word;
    lock_at(0)->word = word_make(WORD_RECOUNT, word_limit_bits(1), low); /* with two readers */
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), -PAWL_ESEGMENT);
    CHECK_EQ(lock(2, PAWL_EXCLUSIVE, DEADLINE_TRY, &none), -PAWL_ESEGMENT);
    lock_at(0)->word = word_make(WORD_RECOUNT, 0, low);
    CHECK_EQ(word_recount(&site.seats[2], 0, DEADLINE_TRY), 0);
    CHECK_EQ(word_count(lock_at(0)->word), word_count(was));
    was = lock_at(0)->word;
    lock_at(0)->word = word_make(WORD_EXCLUSIVE, 77, low);
    CHECK_EQ(convert(0, &a, PAWL_EXCLUSIVE, DEADLINE_TRY), -PAWL_ESEGMENT);
    CHECK_EQ(d->release(&site.seats[0], &a), -PAWL_ESEGMENT);
    lock_at(0)->word = word_make(WORD_SHARED, 1, word_token(was));
    unlock(1, &b);
    check_word(WORD_FREE, 0, word_token(was));
    site_close();
}

/* ---- recovery ---- */

static void test_recover(void)
{
    begin("a session that was declared lost holds nothing");
    struct hold a = locked(0, PAWL_SHARED), b = locked(1, PAWL_SHARED), w;
    CHECK_EQ(session_break(&site.seats[2], site.sessions[1].slot, site.sessions[1].epoch), 0);
    CHECK_EQ(word_mode(lock_at(0)->word), WORD_SHARED);
    CHECK_EQ(word_count(lock_at(0)->word), 1);
    CHECK_EQ(d->release(&site.seats[1], &b), -PAWL_ELOST);
    CHECK_EQ(word_count(lock_at(0)->word), 1); /* and no other hold is released with it */
    CHECK_EQ(session_break(&site.seats[2], site.sessions[1].slot, site.sessions[1].epoch), -ENOENT);
    unlock(0, &a);
    w = locked(0, PAWL_EXCLUSIVE);
    CHECK_EQ(session_break(&site.seats[2], site.sessions[0].slot, site.sessions[0].epoch), 0);
    CHECK_EQ(word_mode(lock_at(0)->word), WORD_FREE);
    struct hold next = locked(2, PAWL_EXCLUSIVE);
    CHECK(next.token > w.token);
    CHECK_EQ(d->release(&site.seats[0], &w), -PAWL_ENOTOWNER);
    unlock(2, &next);
    site_close();
}

int main(void)
{
    test_last_token();
    test_convert_at_last_token();
    test_raise();
    test_readers();
    test_open();
    test_owner();
    test_waiters();
    test_upgrade();
    test_recount();
    test_unsure();
    test_disown();
    test_damaged();
    test_recover();
    return 0;
}
