/* SPDX-License-Identifier: Apache-2.0 */
/* Every knob of every sound design: with its smallest and with a large value campaigns find nothing wrong, and one of the two makes
 * a difference. Names have one spelling, and values belong to a space: one that is tuned leaves others alone. */
#include "tests/sim/runs.h"

#include <errno.h>
#include <string.h>

#define SEEDS 10
#define SEEDS_MAX 200 /* of a knob for which so few seeds make no difference: some matter in rare moments only */
#define LARGE 10000   /* pauses of seconds and switches of gigabytes would be too much for a campaign */

/* Those that a campaign cannot try, and the tests that do. */
static bool is_tried_elsewhere(const struct design *d, const struct design_knob *k)
{
    /* Without tokens the oracle finds fault: sim/citron_cost. */
    return !strcmp(d->name, "citron") && !strcmp(k->name, "tokens");
}

/* `netchain` has NetLock's knobs. With fewer slots than locks several locks share a word, and a client of a campaign that wants two
 * of them waits for itself. `segments-under` has the knob of `segments-exact`. With the smallest value a range takes so many locks
 * that campaigns do not end in time. */
static bool is_tried(const struct design *d)
{
    return d->knobs && d->kind != DESIGN_BUSTED && d->substrates & DESIGN_ON_SIM && strcmp(d->name, "netchain") != 0 &&
           strcmp(d->name, "segments-under") != 0;
}

static void check_spelling(const char *name)
{
    CHECK(strspn(name, "abcdefghijklmnopqrstuvwxyz-") == strlen(name));
    CHECK(name[0] != '-' && name[strlen(name) - 1] != '-');
}

/* The seeds' hashes, folded. */
static uint64_t run_all(const struct design *d)
{
    uint64_t hash = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct campaign_result r = run_seed(d, d->tolerates, seed);
        if (run_failed(&r))
            CHECK_FAIL("%s: seed %" PRIu64 ": %s", d->name, seed, r.why);
        hash = hash * 31 + r.hash;
    }
    return hash;
}

static bool differs(const struct design *d, const struct design_knob *k, uint32_t value, uint64_t usual)
{
    run_knobs = tuned(d, k->name, value);
    bool other = run_all(d) != usual;
    run_knobs = NULL;
    return other;
}

/* Whether the smallest value makes a difference to some later seed. */
static bool differs_later(const struct design *d, const struct design_knob *k)
{
    bool other = false;
    for (uint64_t seed = SEEDS; seed < SEEDS_MAX && !other; seed++) {
        struct campaign_result usual = run_seed(d, d->tolerates, seed);
        run_knobs = tuned(d, k->name, k->min);
        struct campaign_result r = run_seed(d, d->tolerates, seed);
        run_knobs = NULL;
        other = r.hash != usual.hash;
    }
    return other;
}

static void check_bounds(const struct design *d, const struct design_knob *k)
{
    struct knobs knobs = design_knobs(d);
    CHECK(design_knobs_fine(d, &knobs));
    CHECK(k->min < k->max && k->usual <= k->max);
    if (k->min)
        CHECK_EQ(design_tune(d, &knobs, k->name, k->min - 1), -ERANGE);
    CHECK_EQ(design_tune(d, &knobs, k->name, (uint64_t)k->max + 1), -ERANGE);
    CHECK_EQ(design_tune(d, &knobs, "nonesuch", 1), -ENOENT);
}

static void check_design(const struct design *d)
{
    uint64_t usual = run_all(d);
    for (const struct design_knob *k = d->knobs; k->name; k++) {
        check_spelling(k->name);
        check_bounds(d, k);
        if (is_tried_elsewhere(d, k))
            continue;
        uint32_t large = (uint32_t)min_u64(k->max, LARGE);
        bool low = differs(d, k, k->min, usual), high = differs(d, k, large, usual);
        printf("%s: %s=%u %s, %s=%u %s\n", d->name, k->name, k->min, low ? "differs" : "is the same", k->name, large,
               high ? "differs" : "is the same");
        fflush(stdout);
        CHECK(low || high || differs_later(d, k));
    }
    CHECK_EQ(run_all(d), usual);
}

int main(void)
{
    for (const struct design *d = NULL; (d = design_next(d));)
        if (is_tried(d))
            check_design(d);
    return 0;
}
