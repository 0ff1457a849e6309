/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges through the public interface: what is locked and what is not, what grows, shrinks and is cut in two, and what is refused
 * without changing anything. For any design that has ranges: a design may lock more than was asked for, but the same range, and one
 * that overlaps, must be kept from others. */
#include "designs/core/design.h"
#include "tests/shm/space.h"

#define UNIT UINT64_C(4096)
#define FAR (UINT64_C(1) << 38) /* units; so far apart that no design takes two ranges for one, unless it does so with all */

static pawl *a, *b;

static const struct design *design(void)
{
    return design_find(space_design());
}

static pawl_key file(void)
{
    return pawl_name("file");
}

static int try(pawl *p, uint64_t start, uint64_t end, enum pawl_mode mode, pawl_grant *g)
{
    return pawl_lock_range(p, file(), start, end, mode, PAWL_TRY, g);
}

/* No session holds any range. */
static void check_all_free(void)
{
    pawl_grant g;
    pawl_state s;
    CHECK_OK(pawl_query(a, file(), &s));
    CHECK_EQ(s.mode, 0);
    CHECK_OK(pawl_trylock(b, file(), PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_unlock(b, &g));
}

/* Whether [start, end) is kept from others. */
static bool is_kept(uint64_t start, uint64_t end)
{
    pawl_grant g;
    int rc = try(b, start, end, PAWL_EXCLUSIVE, &g);
    if (!rc)
        CHECK_OK(pawl_unlock(b, &g));
    else
        CHECK_RC(rc, -PAWL_EHELD);
    return rc;
}

static void units(void)
{
    pawl_grant g;
    CHECK_OK(try(a, 1, 2, PAWL_EXCLUSIVE, &g));
    CHECK_EQ(g.start, 0);
    CHECK_EQ(g.end, UNIT);
    CHECK(is_kept(UNIT - 1, UNIT));
    CHECK(is_kept(0, PAWL_END));
    CHECK_OK(pawl_check(a, &g));
    CHECK_OK(pawl_unlock(a, &g));
    CHECK_RC(pawl_check(a, &g), -PAWL_ENOTOWNER);
    CHECK_OK(try(a, UNIT - 1, 3 * UNIT, PAWL_EXCLUSIVE, &g));
    CHECK_EQ(g.start, 0);
    CHECK_EQ(g.end, 3 * UNIT);
    CHECK(is_kept(3 * UNIT - 1, 3 * UNIT));
    CHECK_OK(pawl_unlock(a, &g));
    CHECK_OK(try(a, FAR * UNIT, PAWL_END, PAWL_EXCLUSIVE, &g));
    CHECK_EQ(g.end, RANGE_UNITS_MAX * UNIT);
    CHECK(is_kept(RANGE_UNITS_MAX * UNIT - 1, RANGE_UNITS_MAX * UNIT));
    CHECK_OK(pawl_unlock(a, &g));
    CHECK_OK(pawl_lock(a, file(), PAWL_EXCLUSIVE, &g)); /* the whole */
    CHECK_EQ(g.end, RANGE_UNITS_MAX * UNIT);
    CHECK(is_kept(0, 1) && is_kept(FAR * UNIT, FAR * UNIT + 1));
    CHECK_OK(pawl_unlock(a, &g));
    check_all_free();
}

static void modes(void)
{
    pawl_grant x, s, t;
    CHECK_OK(try(a, 0, 10 * UNIT, PAWL_EXCLUSIVE, &x));
    CHECK_RC(try(b, 9 * UNIT, 20 * UNIT, PAWL_SHARED, &s), -PAWL_EHELD);
    uint64_t token = x.token;
    CHECK_OK(pawl_unlock(a, &x));
    if (!(design()->features & DESIGN_SHARED))
        return;
    CHECK_OK(try(a, 0, 10 * UNIT, PAWL_SHARED, &s));
    CHECK_OK(try(b, 5 * UNIT, 20 * UNIT, PAWL_SHARED, &t));
    CHECK(!token || (s.token > token && t.token > token));
    CHECK_RC(try(b, 0, UNIT, PAWL_EXCLUSIVE, &x), -PAWL_EHELD);
    CHECK_OK(pawl_unlock(a, &s));
    CHECK(is_kept(5 * UNIT, 6 * UNIT));
    CHECK_OK(pawl_unlock(b, &t));
    CHECK_OK(try(b, 0, 20 * UNIT, PAWL_EXCLUSIVE, &x));
    CHECK(!token || (x.token > s.token && x.token > t.token));
    CHECK_OK(pawl_unlock(b, &x));
    check_all_free();
}

static void waiting(void)
{
    pawl_grant x, y;
    CHECK_OK(try(a, 0, 10 * UNIT, PAWL_EXCLUSIVE, &x));
    if (design()->features & DESIGN_TIMEOUT)
        CHECK_RC(pawl_lock_range(b, file(), 5 * UNIT, 6 * UNIT, PAWL_EXCLUSIVE, pawl_in(5 * NS_PER_MS), &y), -ETIMEDOUT);
    CHECK_OK(pawl_unlock(a, &x));
    check_all_free();
}

static void downgrade(void)
{
    pawl_grant g, s;
    if (!design()->convert)
        return;
    CHECK_OK(try(a, 0, 10 * UNIT, PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_convert(a, &g, PAWL_SHARED, PAWL_TRY));
    CHECK_OK(try(b, UNIT, 2 * UNIT, PAWL_SHARED, &s));
    CHECK_RC(pawl_convert(a, &g, PAWL_EXCLUSIVE, pawl_in(2 * NS_PER_MS)), -ETIMEDOUT);
    CHECK_EQ(g.mode, PAWL_SHARED);
    CHECK_OK(pawl_unlock(b, &s));
    CHECK_OK(pawl_convert(a, &g, PAWL_EXCLUSIVE, pawl_in(NS_PER_S)));
    CHECK(is_kept(9 * UNIT, 10 * UNIT));
    CHECK_OK(pawl_unlock(a, &g));
    check_all_free();
}

static void reshape(void)
{
    pawl_grant g, other;
    if (!design()->reshape) {
        CHECK_OK(try(a, 0, UNIT, PAWL_EXCLUSIVE, &g));
        CHECK_RC(pawl_reshape(a, &g, 0, 2 * UNIT, PAWL_TRY), -PAWL_ENOTSUP);
        CHECK_OK(pawl_unlock(a, &g));
        return;
    }
    CHECK_OK(try(a, 100 * UNIT, 200 * UNIT, PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_reshape(a, &g, 10 * UNIT, 300 * UNIT, PAWL_TRY));
    CHECK_EQ(g.start, 10 * UNIT);
    CHECK_EQ(g.end, 300 * UNIT);
    CHECK(is_kept(10 * UNIT, 11 * UNIT) && is_kept(299 * UNIT, 300 * UNIT) && is_kept(150 * UNIT, 151 * UNIT));
    pawl_grant before = g;
    CHECK_OK(pawl_reshape(a, &g, 150 * UNIT, 160 * UNIT, PAWL_TRY));
    CHECK(is_kept(150 * UNIT, 160 * UNIT));
    CHECK_RC(pawl_unlock(a, &before), -PAWL_ENOTOWNER); /* more than it has */
    CHECK(is_kept(159 * UNIT, 160 * UNIT));
    CHECK_OK(pawl_check(a, &g));
    if (!design()->cover) { /* the rest is free for others, and in the way of growing */
        CHECK_OK(try(b, 20 * UNIT, 30 * UNIT, PAWL_EXCLUSIVE, &other));
        before = g;
        CHECK_RC(pawl_reshape(a, &g, 25 * UNIT, 160 * UNIT, PAWL_TRY), -PAWL_EHELD);
        CHECK_RC(pawl_reshape(a, &g, 25 * UNIT, 160 * UNIT, pawl_in(2 * NS_PER_MS)), -ETIMEDOUT);
        CHECK(!memcmp(&g, &before, sizeof g));
        CHECK_OK(pawl_check(a, &g));
        CHECK_OK(pawl_unlock(b, &other));
        CHECK_OK(pawl_reshape(a, &g, 25 * UNIT, 160 * UNIT, PAWL_TRY));
        CHECK(g.token > other.token);
    }
    CHECK_OK(pawl_unlock(a, &g));
    check_all_free();
}

static void split(void)
{
    pawl_grant g, right, more;
    CHECK_OK(try(a, 0, 100 * UNIT, PAWL_EXCLUSIVE, &g));
    if (!design()->split) {
        CHECK_RC(pawl_split(a, &g, 40 * UNIT, &right), -PAWL_ENOTSUP);
        CHECK_OK(pawl_unlock(a, &g));
        return;
    }
    CHECK_OK(pawl_split(a, &g, 40 * UNIT, &right));
    CHECK(g.start == 0 && g.end == 40 * UNIT && right.start == 40 * UNIT && right.end == 100 * UNIT);
    CHECK_EQ(g.token, right.token);
    CHECK_OK(pawl_split(a, &right, 41 * UNIT, &more));
    CHECK_OK(pawl_unlock(a, &right));
    CHECK(is_kept(39 * UNIT, 40 * UNIT) && is_kept(41 * UNIT, 42 * UNIT));
    CHECK_OK(pawl_unlock(a, &g));
    CHECK(is_kept(99 * UNIT, 100 * UNIT));
    CHECK_OK(pawl_check(a, &more));
    CHECK_OK(pawl_unlock(a, &more));
    check_all_free();
}

static void several(void)
{
    pawl_grant g[3], one;
    const pawl_want wants[] = {
        {.key = file(), .mode = PAWL_EXCLUSIVE, .start = FAR * UNIT, .end = FAR * UNIT + 1},
        {.key = pawl_name("another"), .mode = PAWL_EXCLUSIVE},
        {.key = file(), .mode = PAWL_EXCLUSIVE, .start = 0, .end = 1},
    };
    int rc = pawl_lock_all(a, wants, 3, PAWL_TRY, g);
    if (rc == -EDEADLK) { /* to this design they are one, and it says so before it takes anything */
        CHECK(design()->cover);
    } else {
        CHECK_OK(rc);
        CHECK(is_kept(0, 1) && is_kept(FAR * UNIT, FAR * UNIT + 1));
        CHECK_EQ(g[0].start, FAR * UNIT);
        for (unsigned i = 0; i < 3; i++)
            CHECK_OK(pawl_unlock(a, &g[i]));
        CHECK_OK(try(b, 0, 10, PAWL_EXCLUSIVE, &one));
        CHECK_RC(pawl_lock_all(a, wants, 3, PAWL_TRY, g), -PAWL_EHELD);
        CHECK_OK(pawl_unlock(b, &one));
    }
    check_all_free();
    const pawl_want twice[] = {
        {.key = file(), .mode = PAWL_EXCLUSIVE, .start = 0, .end = 2 * UNIT},
        {.key = file(), .mode = PAWL_EXCLUSIVE, .start = 2 * UNIT - 1, .end = 3 * UNIT},
    };
    CHECK_RC(pawl_lock_all(a, twice, 2, PAWL_TRY, g), -EINVAL);
    const pawl_want reversed = {.key = file(), .mode = PAWL_EXCLUSIVE, .start = 5, .end = 4};
    CHECK_RC(pawl_lock_all(a, &reversed, 1, PAWL_TRY, g), -EINVAL);
    check_all_free();
}

/* Specific errors, and nothing has changed. */
static void bad_ranges(void)
{
    const uint64_t beyond = RANGE_UNITS_MAX * UNIT;
    pawl_grant g, other, right;
    CHECK_RC(try(a, 10, 10, PAWL_EXCLUSIVE, &g), -EINVAL);
    CHECK_RC(try(a, 11, 10, PAWL_EXCLUSIVE, &g), -EINVAL);
    CHECK_RC(try(a, PAWL_END, PAWL_END, PAWL_EXCLUSIVE, &g), -EINVAL);
    CHECK_RC(try(a, 0, beyond + 1, PAWL_EXCLUSIVE, &g), -EOVERFLOW);
    CHECK_RC(try(a, beyond, beyond + 1, PAWL_EXCLUSIVE, &g), -EOVERFLOW);
    CHECK_RC(try(a, beyond, PAWL_END, PAWL_EXCLUSIVE, &g), -EOVERFLOW);
    CHECK_RC(try(a, UINT64_MAX - 2, UINT64_MAX - 1, PAWL_EXCLUSIVE, &g), -EOVERFLOW);
    check_all_free();

    CHECK_OK(try(a, 10 * UNIT, 20 * UNIT, PAWL_EXCLUSIVE, &g));
    const pawl_grant held = g;
    if (design()->reshape) {
        CHECK_RC(pawl_reshape(a, &g, 15 * UNIT, 25 * UNIT, PAWL_TRY), -EINVAL); /* neither in it nor around it */
        CHECK_RC(pawl_reshape(a, &g, 30 * UNIT, 40 * UNIT, PAWL_TRY), -EINVAL);
        CHECK_RC(pawl_reshape(a, &g, 15 * UNIT, 15 * UNIT, PAWL_TRY), -EINVAL);
        CHECK_RC(pawl_reshape(a, &g, 0, beyond + 1, PAWL_TRY), -EOVERFLOW);
        CHECK_RC(pawl_reshape(b, &g, 11 * UNIT, 12 * UNIT, PAWL_TRY), -PAWL_ENOTOWNER); /* another's */
    }
    if (design()->split) {
        CHECK_RC(pawl_split(a, &g, 10 * UNIT, &right), -EINVAL);
        CHECK_RC(pawl_split(a, &g, 20 * UNIT, &right), -EINVAL);
        CHECK_RC(pawl_split(a, &g, 15 * UNIT + 1, &right), -EINVAL);
        CHECK_RC(pawl_split(a, &g, 100 * UNIT, &right), -EINVAL);
        CHECK_RC(pawl_split(b, &g, 15 * UNIT, &right), -PAWL_ENOTOWNER);
    }
    /* Grants of a range that is not held: larger, smaller, elsewhere, not even of units. */
    const uint64_t forged[][2] = {{0, 20}, {10, 21}, {10, 19}, {11, 20}, {30, 40}, {20, 10}};
    for (unsigned i = 0; i < countof(forged); i++) {
        g.start = forged[i][0] * UNIT;
        g.end = forged[i][1] * UNIT;
        CHECK_RC(pawl_unlock(a, &g), -PAWL_ENOTOWNER);
        CHECK_RC(pawl_check(a, &g), -PAWL_ENOTOWNER);
        if (design()->reshape && g.start < g.end)
            CHECK_RC(pawl_reshape(a, &g, g.start, g.start + UNIT, PAWL_TRY), -PAWL_ENOTOWNER);
    }
    g.start = held.start + 1;
    g.end = held.end;
    CHECK_RC(pawl_unlock(a, &g), -PAWL_ENOTOWNER);
    g = held;
    CHECK_RC(pawl_unlock(b, &g), -PAWL_ENOTOWNER);
    CHECK(is_kept(10 * UNIT, 11 * UNIT) && is_kept(19 * UNIT, 20 * UNIT));
    CHECK_OK(pawl_unlock(a, &g));
    CHECK_RC(pawl_unlock(a, &g), -PAWL_ENOTOWNER);
    check_all_free();
    CHECK_OK(try(b, 10 * UNIT, 20 * UNIT, PAWL_EXCLUSIVE, &other));
    CHECK_RC(pawl_unlock(a, &g), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_unlock(b, &other));
}

static void bad_spaces(void)
{
    static const struct {
        uint64_t unit, units, max;
    } wrong[] = {{3, 0, 0}, {UINT64_C(1) << 24, 0, 0}, {0, RANGE_UNITS_MAX + 1, 0}, {0, 0, RANGE_UNITS_MAX + 1}, {0, 4096, 1024}};
    pawl *p;
    char where[160];
    snprintf(where, sizeof where, "%s.bad", space_where());
    for (unsigned i = 0; i < countof(wrong); i++) {
        const pawl_options o = {
            .design = space_design(), .unit_bytes = wrong[i].unit, .range_units = wrong[i].units, .range_max = wrong[i].max};
        CHECK_RC(pawl_open(where, &o, &p), -EINVAL);
    }
    const pawl_options none = {.design = "word", .unit_bytes = UNIT};
    CHECK_RC(pawl_open(where, &none, &p), -PAWL_ENOTSUP);
    const pawl_options other_unit = {.unit_bytes = 512};
    CHECK_RC(pawl_open(space_where(), &other_unit, &p), -EINVAL);
}

/* Through requests that wait without a thread. */
static void async(void)
{
    pawl_grant x;
    pawl_completion c;
    uint64_t id;
    if (!(design()->features & DESIGN_ASYNC))
        return;
    CHECK_OK(try(a, 0, 10 * UNIT, PAWL_EXCLUSIVE, &x));
    pawl_request r = {
        .op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = file(), .deadline_ns = UINT64_MAX, .start = 5 * UNIT, .end = 15 * UNIT};
    CHECK_OK(pawl_submit(b, &r, &id));
    CHECK_EQ(pawl_reap(b, &c, 1, pawl_in(NS_PER_MS)), 0);
    CHECK_OK(pawl_unlock(a, &x));
    CHECK_EQ(pawl_reap(b, &c, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_OK(c.result);
    CHECK(c.grant.start == 5 * UNIT && c.grant.end == 15 * UNIT);
    if (design()->reshape) {
        r = (pawl_request){.op = PAWL_OP_RESHAPE, .grant = c.grant, .deadline_ns = UINT64_MAX, .start = 0, .end = 15 * UNIT};
        CHECK_OK(pawl_submit(b, &r, &id));
        CHECK_EQ(pawl_reap(b, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_OK(c.result);
        CHECK_EQ(c.grant.start, 0);
    }
    CHECK_OK(pawl_unlock(b, &c.grant));
    check_all_free();
}

int main(void)
{
    if (!space_design())
        setenv("PAWL_TEST_DESIGN", "mutex", 1);
    a = space_open(NULL);
    b = space_open(NULL);
    units();
    modes();
    waiting();
    downgrade();
    reshape();
    split();
    several();
    bad_ranges();
    bad_spaces();
    async();
    CHECK_OK(pawl_close(a));
    CHECK_OK(pawl_close(b));
    return 0;
}
