/* SPDX-License-Identifier: Apache-2.0 */
/* `word` with all faults: no invariant is violated, and all clients make progress afterwards. */
#include "tests/sim/runs.h"

#define SEEDS_MIN 300

int main(void)
{
    const struct design *word = design_named("word");
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 2;
    struct run_sum sum = {0};
    CHECK_EQ(word->tolerates, FAULTS_ALL);
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, word, FAULTS_ALL, seed);
    print_sum("word, all faults", &sum);
    check_struck(&sum, FAULTS_ALL);
    CHECK(sum.total.shared && sum.total.exclusive);
    CHECK(sum.total.upgrades && sum.total.downgrades);
    CHECK(sum.total.timeouts && sum.total.cancelled);
    CHECK(sum.total.lost && sum.forgot);

    /* The same where readers open locks to each other at every occasion. */
    struct run_sum open = {0};
    run_knobs = tuned(word, "open-every", 1);
    for (uint64_t seed = 0; seed < SEEDS_MIN; seed++)
        run_clean(&open, word, FAULTS_ALL, seed);
    print_sum("word, all faults, open to readers", &open);
    run_knobs = NULL;

    struct run_sum calm = {0};
    for (uint64_t seed = 0; seed < 30; seed++)
        run_clean(&calm, word, 0, seed);
    print_sum("word, no faults", &calm);
    CHECK_EQ(calm.total.lost, 0);
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++)
        CHECK_EQ(calm.total.faults[kind], 0);
    return 0;
}
