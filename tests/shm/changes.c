/* SPDX-License-Identifier: Apache-2.0 */
/* A held range while others wait for it: it is upgraded, grows and is cut in two although others want it, and of two holders that
 * wait for each other one is the victim. The widths are those of citron's nodes: within a leaf (64 units), across leaves, a node of
 * 256 and of 1,024 units, and one that takes all. */
#include "tests/shm/space.h"

#define UNIT UINT64_C(4096)
#define SOON_NS (10 * NS_PER_MS)

static pawl *a, *b, *c;

static const struct {
    uint64_t start, end;
} widths[] = {{3, 7}, {60, 70}, {0, 256}, {100, 700}, {1024, 2048}, {5, 60000}, {10, UINT64_C(1) << 39}};

static pawl_key file(void)
{
    return pawl_name("file");
}

static int lock(pawl *p, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline, pawl_grant *g)
{
    return pawl_lock_range(p, file(), start * UNIT, end * UNIT, mode, deadline, g);
}

static uint64_t submit(pawl *p, uint64_t start, uint64_t end, enum pawl_mode mode)
{
    const pawl_request r = {
        .op = PAWL_OP_LOCK, .mode = mode, .key = file(), .deadline_ns = UINT64_MAX, .start = start * UNIT, .end = end * UNIT};
    uint64_t id;
    CHECK_OK(pawl_submit(p, &r, &id));
    return id;
}

static uint64_t submit_change(pawl *p, enum pawl_op op, const pawl_grant *g, uint64_t start, uint64_t end)
{
    const pawl_request r = {
        .op = op, .mode = PAWL_EXCLUSIVE, .grant = *g, .deadline_ns = UINT64_MAX, .start = start * UNIT, .end = end * UNIT};
    uint64_t id;
    CHECK_OK(pawl_submit(p, &r, &id));
    return id;
}

static pawl_completion reap(pawl *p)
{
    pawl_completion done;
    CHECK_EQ(pawl_reap(p, &done, 1, pawl_in(LIMIT_NS)), 1);
    return done;
}

static void reap_and_unlock(pawl *p)
{
    pawl_completion done = reap(p);
    CHECK_OK(done.result);
    CHECK_OK(pawl_unlock(p, &done.grant));
}

static void nothing_yet(pawl *p)
{
    pawl_completion done;
    CHECK_EQ(pawl_reap(p, &done, 1, pawl_in(SOON_NS)), 0);
}

static bool is_kept(uint64_t start, uint64_t end)
{
    pawl_grant g;
    int rc = lock(c, start, end, PAWL_EXCLUSIVE, PAWL_TRY, &g);
    if (!rc)
        CHECK_OK(pawl_unlock(c, &g));
    else
        CHECK_RC(rc, -PAWL_EHELD);
    return rc;
}

static void check_all_free(void)
{
    CHECK(!is_kept(0, UINT64_C(1) << 40));
}

/* A single reader is upgraded although writers wait: for the same range, for a part, for all. */
static void lone_upgrade(uint64_t start, uint64_t end)
{
    pawl_grant g;
    CHECK_OK(lock(a, start, end, PAWL_SHARED, PAWL_TRY, &g));
    submit(b, start, end, PAWL_EXCLUSIVE);
    submit(b, start, start + 1, PAWL_EXCLUSIVE);
    submit(b, 0, UINT64_C(1) << 40, PAWL_EXCLUSIVE);
    nothing_yet(b);
    uint64_t token = g.token;
    CHECK_OK(pawl_convert(a, &g, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS)));
    CHECK(g.mode == PAWL_EXCLUSIVE && g.token > token);
    nothing_yet(b);
    CHECK(is_kept(start, end));
    CHECK_OK(pawl_unlock(a, &g));
    for (unsigned i = 0; i < 3; i++)
        reap_and_unlock(b);
    check_all_free();
}

/* It waits for other readers, and says so when that takes too long. */
static void upgrade_waits(uint64_t start, uint64_t end)
{
    pawl_grant g, other;
    CHECK_OK(lock(a, start, end, PAWL_SHARED, PAWL_TRY, &g));
    CHECK_OK(lock(c, start, end, PAWL_SHARED, PAWL_TRY, &other));
    CHECK_RC(pawl_convert(a, &g, PAWL_EXCLUSIVE, PAWL_TRY), -PAWL_EHELD);
    CHECK_RC(pawl_convert(a, &g, PAWL_EXCLUSIVE, pawl_in(SOON_NS)), -ETIMEDOUT);
    CHECK_EQ(g.mode, PAWL_SHARED);
    CHECK_OK(pawl_check(a, &g));
    submit_change(a, PAWL_OP_CONVERT, &g, 0, 0);
    nothing_yet(a);
    CHECK_OK(pawl_unlock(c, &other));
    pawl_completion up = reap(a);
    CHECK_OK(up.result);
    CHECK(is_kept(start, end));
    CHECK_OK(pawl_unlock(a, &up.grant));
    check_all_free();
}

/* Two that go up wait for each other: one is told, and when it leaves the other gets there. */
static void two_upgrades(uint64_t start, uint64_t end)
{
    pawl_grant g, other;
    CHECK_OK(lock(a, start, end, PAWL_SHARED, PAWL_TRY, &g));
    CHECK_OK(lock(b, start, end, PAWL_SHARED, PAWL_TRY, &other));
    submit_change(a, PAWL_OP_CONVERT, &g, 0, 0);
    submit_change(b, PAWL_OP_CONVERT, &other, 0, 0);
    pawl_completion done;
    pawl *loser = NULL, *winner = NULL;
    uint64_t limit = pawl_in(LIMIT_NS);
    while (!loser && pawl_now() < limit) {
        if (pawl_reap(a, &done, 1, pawl_in(NS_PER_MS)) == 1)
            loser = a;
        else if (pawl_reap(b, &done, 1, pawl_in(NS_PER_MS)) == 1)
            loser = b;
    }
    CHECK(loser);
    CHECK_RC(done.result, -EDEADLK);
    winner = loser == a ? b : a;
    nothing_yet(winner);
    CHECK_OK(pawl_check(loser, loser == a ? &g : &other)); /* it still reads */
    CHECK_OK(pawl_unlock(loser, loser == a ? &g : &other));
    reap_and_unlock(winner);
    check_all_free();
}

/* Grows although others wait for all of it; step by step, so that the pieces would be many. */
static void growing(enum pawl_mode mode)
{
    pawl_grant g, other;
    CHECK_OK(lock(a, 1000, 1001, mode, PAWL_TRY, &g));
    submit(b, 0, 2000, PAWL_EXCLUSIVE);
    nothing_yet(b);
    uint64_t start = 1000, end = 1001;
    for (unsigned i = 0; i < 9; i++) {
        start -= i % 2 ? 0 : 1 + 7 * i;
        end += UINT64_C(1) << 2 * i;
        CHECK_OK(pawl_reshape(a, &g, start * UNIT, end * UNIT, pawl_in(LIMIT_NS)));
        CHECK(is_kept(start, start + 1) && is_kept(end - 1, end));
    }
    CHECK_OK(pawl_reshape(a, &g, 0, PAWL_END, pawl_in(LIMIT_NS)));
    CHECK_RC(lock(c, UINT64_C(1) << 39, (UINT64_C(1) << 39) + 1, PAWL_EXCLUSIVE, PAWL_TRY, &other), -PAWL_EHELD);
    CHECK_OK(pawl_reshape(a, &g, 500 * UNIT, 501 * UNIT, PAWL_TRY));
    CHECK(is_kept(500, 501));
    CHECK_OK(pawl_unlock(a, &g));
    reap_and_unlock(b);
    check_all_free();
}

/* Two that grow towards each other. */
static void towards_each_other(void)
{
    pawl_grant g, other;
    CHECK_OK(lock(a, 0, 1024, PAWL_EXCLUSIVE, PAWL_TRY, &g));
    CHECK_OK(lock(b, 4096, 5120, PAWL_EXCLUSIVE, PAWL_TRY, &other));
    submit_change(a, PAWL_OP_RESHAPE, &g, 0, 5000);
    int rc = pawl_reshape(b, &other, 1000 * UNIT, 5120 * UNIT, pawl_in(LIMIT_NS));
    pawl *loser = rc ? b : a, *winner = rc ? a : b;
    if (rc)
        CHECK_RC(rc, -EDEADLK);
    else
        CHECK_RC(reap(a).result, -EDEADLK);
    CHECK_OK(pawl_unlock(loser, loser == a ? &g : &other));
    if (winner == a)
        reap_and_unlock(a);
    else
        CHECK_OK(pawl_unlock(b, &other));
    check_all_free();
}

/* Cut in two wherever: each half is kept while it is held, and can change by itself. */
static void cutting(uint64_t start, uint64_t end, enum pawl_mode mode)
{
    pawl_grant left, middle, right;
    uint64_t at = start + (end - start) / 3, then = start + 2 * (end - start) / 3;
    CHECK_OK(lock(a, start, end, mode, PAWL_TRY, &left));
    CHECK_OK(pawl_split(a, &left, at * UNIT, &middle));
    CHECK_OK(pawl_split(a, &middle, then * UNIT, &right));
    CHECK(left.end == middle.start && middle.end == right.start);
    CHECK(is_kept(start, at) && is_kept(at, then) && is_kept(then, end));
    /* a range of another hold of the same session is refused */
    if (mode == PAWL_EXCLUSIVE)
        CHECK(pawl_reshape(a, &left, start * UNIT, (at + 1) * UNIT, PAWL_TRY));
    CHECK_OK(pawl_unlock(a, &left));
    CHECK_RC(pawl_unlock(a, &left), -PAWL_ENOTOWNER);
    CHECK(is_kept(at, then) && is_kept(then, end));
    CHECK_OK(pawl_convert(a, &middle, PAWL_SHARED, PAWL_TRY));
    CHECK(is_kept(at, then) && is_kept(then, end));
    CHECK_OK(pawl_unlock(a, &right));
    CHECK(is_kept(at, then));
    CHECK_OK(pawl_convert(a, &middle, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS)));
    CHECK_OK(pawl_reshape(a, &middle, start * UNIT, end * UNIT, pawl_in(LIMIT_NS))); /* the others are gone */
    CHECK(is_kept(start, end));
    CHECK_OK(pawl_unlock(a, &middle));
    check_all_free();
}

/* A downgrade always succeeds, even if a leaf has no place for one more reader: then others have to wait a little longer. */
static void down_always(void)
{
    pawl_grant g[20];
    for (unsigned i = 0; i < countof(g); i++)
        CHECK_OK(lock(a, i, i + 1, PAWL_EXCLUSIVE, PAWL_TRY, &g[i]));
    for (unsigned i = 0; i < countof(g); i++) {
        CHECK_OK(pawl_convert(a, &g[i], PAWL_SHARED, PAWL_TRY));
        CHECK(is_kept(i, i + 1));
    }
    for (unsigned i = 0; i < countof(g); i++) {
        CHECK_OK(pawl_convert(a, &g[i], PAWL_EXCLUSIVE, pawl_in(LIMIT_NS)));
        CHECK_OK(pawl_unlock(a, &g[i]));
    }
    check_all_free();
}

int main(void)
{
    setenv("PAWL_TEST_DESIGN", "citron", 1);
    a = space_open(NULL);
    b = space_open(NULL);
    c = space_open(NULL);
    for (unsigned i = 0; i < countof(widths); i++) {
        lone_upgrade(widths[i].start, widths[i].end);
        upgrade_waits(widths[i].start, widths[i].end);
        two_upgrades(widths[i].start, widths[i].end);
        cutting(widths[i].start, widths[i].end, PAWL_EXCLUSIVE);
        cutting(widths[i].start, widths[i].end, PAWL_SHARED);
    }
    growing(PAWL_EXCLUSIVE);
    growing(PAWL_SHARED);
    towards_each_other();
    down_always();
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
    CHECK_OK(pawl_close(c));
    return 0;
}
