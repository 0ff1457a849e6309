/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/swarm.h"
#include "lib/hash.h"

#define LEASE_NS (10 * NS_PER_MS)
#define CROWD_SALT UINT64_C(0x63726f7764)

const struct swarm_mix swarm_fixed = {
    .cancel = 12,
    .several = 6,
    .nested = 4,
    .order = 3,
    .tune = 24,
    .convert = 3,
    .shared = 2,
    .whole = 12,
    .beyond = 8,
    .long_hold = 20,
    .deadlines = {DEADLINE_IS_TRY, DEADLINE_IS_SHORT, DEADLINE_IS_LEASE, DEADLINE_IS_NONE, DEADLINE_IS_NONE, DEADLINE_IS_NONE},
    .changes = {CHANGE_GROWS, CHANGE_SHRINKS, CHANGE_SPLITS, CHANGE_NONE, CHANGE_NONE, CHANGE_NONE},
    .pause_ns = 400 * NS_PER_US,
    .hold_ns = 50 * NS_PER_US,
    .cancel_ns = NS_PER_MS,
    .lease_ns = LEASE_NS,
};

/* From half of the times to hardly ever, and often never. */
static unsigned draw_one_in(struct rng *r)
{
    static const unsigned chances[] = {0, 0, 2, 3, 6, 12, 40};
    return chances[rng_below(r, countof(chances))];
}

/* Logarithmic: from a few microseconds, less than a way to the lock, to a fraction of a lease. */
static uint64_t draw_ns(struct rng *r, uint64_t least, unsigned doublings)
{
    return least << rng_below(r, doublings + 1);
}

struct swarm_mix swarm_draw(struct rng *r)
{
    struct swarm_mix m = {
        .cancel = draw_one_in(r),
        .several = draw_one_in(r),
        .nested = draw_one_in(r),
        .order = draw_one_in(r),
        .tune = draw_one_in(r),
        .convert = draw_one_in(r),
        .shared = draw_one_in(r),
        .whole = draw_one_in(r),
        .beyond = draw_one_in(r),
        .long_hold = draw_one_in(r),
        .pause_ns = draw_ns(r, 16 * NS_PER_US, 7), /* to 2 ms */
        .hold_ns = draw_ns(r, NS_PER_US, 9),       /* to 0.5 ms */
        .cancel_ns = draw_ns(r, 8 * NS_PER_US, 9), /* to 4 ms */
        .lease_ns = draw_ns(r, 4 * NS_PER_MS, 3),  /* to 32 ms */
    };
    for (unsigned i = 0; i < countof(m.deadlines); i++) {
        m.deadlines[i] = (uint8_t)rng_below(r, DEADLINE_IS_NONE + 1);
        m.changes[i] = (uint8_t)rng_below(r, CHANGE_NONE + 1);
    }
    /* A client that only tries may starve: some operations wait without a deadline. */
    m.deadlines[0] = DEADLINE_IS_NONE;
    return m;
}

/* From the seed alone: a draw from the stream would change all that follow. */
unsigned swarm_crowd(uint64_t seed)
{
    static const unsigned chances[] = {0, 0, 0, 8, 40, 200};
    return chances[mix64(seed ^ CROWD_SALT) % countof(chances)];
}
