/* SPDX-License-Identifier: Apache-2.0 */
/* `citron` with all faults and with each alone: ranges from one unit to all, shared and exclusive, that grow, shrink, are cut in
 * two and converted, in trees that grow meanwhile. */
#include "designs/citron/citron.h"
#include "tests/sim/runs.h"

#include <errno.h>

#define SEEDS_MIN 150
#define SEEDS_EACH 20
#define SEEDS_HIGH 60

static void all_faults(const struct design *d, uint64_t ns)
{
    uint64_t end = world_now(&world_real) + ns;
    struct run_sum sum = {0};
    citron_stats = (struct citron_stats){0};
    CHECK_EQ(d->tolerates, FAULTS_ALL);
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, FAULTS_ALL, seed);
    print_sum(d->name, &sum);
    check_struck(&sum, FAULTS_ALL);
    CHECK(sum.total.shared && sum.total.exclusive);
    CHECK(sum.total.upgrades && sum.total.downgrades && sum.total.grown && sum.total.shrunk && sum.total.splits);
    CHECK(sum.total.timeouts && sum.total.cancelled);
    printf("  %" PRIu64 " times m and T_wait were set, %" PRIu64 " times a tree was made taller and %" PRIu64 " times smaller\n",
           sum.total.retuned, sum.total.taller, sum.total.smaller);
    CHECK(sum.total.retuned && sum.total.taller && sum.total.smaller);
    CHECK(sum.total.lost && sum.forgot);
    printf("  %" PRIu64 " acquisitions, %" PRIu64 " late, %" PRIu64 " aborts, %" PRIu64 " escalated, %" PRIu64
           " words corrected, %" PRIu64 " trees grown\n",
           citron_stats.acquires, citron_stats.late, citron_stats.aborts, citron_stats.escalated, citron_stats.repaired,
           citron_stats.grown);
    printf("  %" PRIu64 " gave way, %" PRIu64 " were rivals, %" PRIu64 " nodes cut in two\n", citron_stats.yielded,
           citron_stats.rivals, citron_stats.joint);
    CHECK(citron_stats.late && citron_stats.aborts && citron_stats.repaired && citron_stats.grown);
    CHECK(citron_stats.yielded && citron_stats.rivals && citron_stats.joint);
}

/* The same with other settings: one node per range, every ancestor, a second look instead of T_wait, no fast path. */
static void other_settings(const struct design *d)
{
    static const struct {
        const char *knob;
        unsigned value;
    } settings[] = {{"blocked", 2}, {"k", 1},       {"k", 6},    {"m", 1},    {"m", 5},
                    {"confirm", 1}, {"confirm", 0}, {"fast", 0}, {"fast", 1}, {"scale-us", 0}};
    for (size_t i = 0; i < countof(settings); i++) {
        struct run_sum sum = {0};
        printf("%s = %u\n", settings[i].knob, settings[i].value);
        fflush(stdout);
        run_knobs = tuned(d, settings[i].knob, settings[i].value);
        for (uint64_t seed = 0; seed < SEEDS_EACH; seed++)
            run_clean(&sum, d, FAULTS_ALL, seed);
    }
    run_knobs = NULL;
    struct knobs knobs = design_knobs(d);
    CHECK(citron_stats.escalated);
    CHECK_EQ(design_tune(d, &knobs, "k", 0), -ERANGE);
    CHECK_EQ(design_tune(d, &knobs, "k", 7), -ERANGE);
    CHECK_EQ(design_tune(d, &knobs, "m", 0), -ERANGE);
    CHECK_EQ(design_tune(d, &knobs, "m", 6), -ERANGE);
}

/* High nodes in trees as small as they are here: counted in several words, known to the head; tokens by smaller parts. */
static void low_high_nodes(const struct design *d)
{
    static const unsigned confirms[] = {2, 1};
    const unsigned usual = citron_high;
    for (citron_high = 2; citron_high < usual; citron_high++)
        for (unsigned i = 0; i < countof(confirms); i++) {
            struct run_sum sum = {0};
            run_knobs = tuned(d, "confirm", confirms[i]);
            for (uint64_t seed = 0; seed < SEEDS_HIGH; seed++)
                run_clean(&sum, d, FAULTS_ALL, seed);
        }
    run_knobs = NULL;
    citron_high = usual;
}

/* A node counts so few claims that some clients always wait outside: none is refused, and all make progress. */
static void crowds(const struct design *d)
{
    citron_count_bits = 7; /* each of 32 sessions has two claims in flight */
    for (unsigned crowd = 1; crowd <= 3; crowd++) {
        struct run_sum sum = {0};
        run_knobs = tuned(d, "crowd", crowd);
        citron_stats = (struct citron_stats){0};
        for (uint64_t seed = 0; seed < SEEDS_HIGH; seed++)
            run_clean(&sum, d, seed % 4 ? FAULTS_ALL : 0, seed);
        printf("%u at a node: %" PRIu64 " times more\n", crowd, citron_stats.crowded);
        CHECK(citron_stats.crowded);
    }
    run_knobs = NULL;
    citron_count_bits = NODE_COUNT_BITS;
}

int main(void)
{
    const struct design *d = design_named("citron");
    all_faults(d, test_seconds() * NS_PER_S / 4);
    run_each_fault(d, SEEDS_EACH, SEEDS_EACH);
    other_settings(d);
    low_high_nodes(d);
    crowds(d);
    return 0;
}
