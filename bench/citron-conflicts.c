/* SPDX-License-Identifier: Apache-2.0 */
/* False conflicts of citron by k (4.6, Figure 11): two ranges of one length, at random places of 2^28 units, are locked one after
 * the other by two sessions, on shared memory. One that is refused although it does not overlap the other is a false conflict.
 * Prints a line per length and k; how long anything takes does not matter, so the lines are the same on every machine. */
#include "bench/kit.h"
#include "client/handle.h"
#include "lib/rng.h"

#include <inttypes.h>

#define UNITS (UINT64_C(1) << 28)
#define UNIT UINT64_C(4096)
#define PAIRS 200000

static const unsigned lengths[] = {16, 64, 256, 1024, 4096, 16384};

static uint64_t count_false(pawl *a, pawl *b, uint64_t length, uint64_t pairs, uint64_t *overlaps)
{
    struct rng r;
    uint64_t falsely = 0;
    rng_seed(&r, length);
    *overlaps = 0;
    for (uint64_t i = 0; i < pairs; i++) {
        uint64_t x = rng_below(&r, UNITS - length + 1), y = rng_below(&r, UNITS - length + 1);
        bool overlap = x < y + length && y < x + length;
        pawl_grant g, h;
        if (pawl_lock_range(a, pawl_id(0), x * UNIT, (x + length) * UNIT, PAWL_EXCLUSIVE, PAWL_TRY, &g))
            kit_die("a free range was refused: %s", pawl_explain());
        int rc = pawl_lock_range(b, pawl_id(0), y * UNIT, (y + length) * UNIT, PAWL_EXCLUSIVE, PAWL_TRY, &h);
        if (rc ? rc != -PAWL_EHELD : overlap)
            kit_die("%" PRIu64 " and %" PRIu64 ": %s", x, y, rc ? pawl_explain() : "both were granted");
        *overlaps += overlap;
        falsely += rc && !overlap;
        if (!rc && pawl_unlock(b, &h))
            kit_die("%s", pawl_explain());
        if (pawl_unlock(a, &g))
            kit_die("%s", pawl_explain());
    }
    return falsely;
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "length, k, requests, overlaps, false conflicts");
    const pawl_options o = {.design = "citron",
                            .keys = PAWL_KEYS_DENSE,
                            .capacity = 1,
                            .sessions = 2,
                            .holds = 4,
                            .unit_bytes = UNIT,
                            .range_units = UNITS,
                            .range_max = UNITS};
    uint64_t pairs = (uint64_t)(PAIRS * k.scale);
    for (unsigned nodes = 1; nodes <= 6; nodes++) {
        struct knobs knobs = design_knobs(design_find("citron"));
        pawl *a;
        if (design_tune(design_find("citron"), &knobs, "k", nodes) || pawl_open_tuned(k.place, &o, &knobs, &a))
            kit_die("cannot make a space in which k is %u", nodes);
        pawl *b = kit_open(&k, &o);
        for (unsigned i = 0; i < countof(lengths); i++) {
            uint64_t overlaps, falsely = count_false(a, b, lengths[i], pairs, &overlaps);
            printf("%u\t%u\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", lengths[i], nodes, 2 * pairs, overlaps, falsely);
            fflush(stdout);
        }
        pawl_close(a);
        pawl_close(b);
        kit_drop(&k);
    }
    return kit_end(&k);
}
