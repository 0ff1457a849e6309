/* SPDX-License-Identifier: Apache-2.0 */
/* Spins in vain become rare, short waits bring them back, and one that was worth it makes them usual again. */
#include "lib/spin.h"
#include "tests/check.h"

#define MOST 50000u

/* Waits that each take so long, spin or not: how many of them began with a spin. */
static unsigned spins(struct spin *s, unsigned waits, uint64_t took)
{
    unsigned count = 0;
    for (unsigned i = 0; i < waits; i++) {
        uint64_t spin = spin_for(s);
        CHECK(spin == 0 || spin == MOST);
        count += spin != 0;
        spin_ended(s, spin, took);
    }
    return count;
}

static void short_waits_spin(void)
{
    struct spin s = {.most_ns = MOST};
    CHECK_EQ(spins(&s, 1000, MOST - 1), 1000);
}

static void long_waits_seldom_spin(void)
{
    struct spin s = {.most_ns = MOST};
    CHECK(spins(&s, 10000, 2 * MOST) < 24); /* 4 + 8 + … + 1024, and one in 1,025 from then on */
    CHECK(spins(&s, 102500, 2 * MOST) <= 101);
    CHECK_EQ(s.rest, SPIN_REST_MAX);
}

/* The machine is no longer crowded: waits without a spin are short, and so are those with one. */
static void spins_come_back(void)
{
    struct spin s = {.most_ns = MOST};
    spins(&s, 10000, 2 * MOST);
    CHECK(spins(&s, 100, MOST / 2) > 40);
    CHECK_EQ(spins(&s, 100, MOST / 2), 100);
    CHECK_EQ(spins(&s, 1, 2 * MOST), 1);
    CHECK_EQ(s.left, SPIN_REST_FIRST);
}

static void none_is_none(void)
{
    struct spin s = {0};
    for (unsigned i = 0; i < 100; i++) {
        CHECK_EQ(spin_for(&s), 0);
        spin_ended(&s, 0, i);
    }
    CHECK_EQ(s.left, 0);
}

int main(void)
{
    short_waits_spin();
    long_waits_seldom_spin();
    spins_come_back();
    none_is_none();
    return 0;
}
