/* SPDX-License-Identifier: Apache-2.0 */
/* `shiftlock` and `shiftlock64` with all faults and with each alone: no invariant is violated, and all clients make progress
 * afterwards. */
#include "tests/sim/runs.h"

#define SEEDS_MIN 150
#define SEEDS_EACH 25
#define SEEDS_CALM 48

static void all_faults(const struct design *d, uint64_t ns)
{
    uint64_t end = world_now(&world_real) + ns;
    struct run_sum sum = {0};
    CHECK_EQ(d->tolerates, FAULTS_ALL);
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, FAULTS_ALL, seed);
    print_sum(d->name, &sum);
    check_struck(&sum, FAULTS_ALL);
    CHECK(sum.total.shared && sum.total.exclusive);
    CHECK(sum.total.upgrades && sum.total.downgrades);
    CHECK(sum.total.timeouts && sum.total.cancelled);
    CHECK(sum.total.lost && sum.forgot);
}

int main(void)
{
    static const char *const names[] = {"shiftlock", "shiftlock64"};
    for (size_t i = 0; i < countof(names); i++) {
        const struct design *d = design_named(names[i]);
        all_faults(d, test_seconds() * NS_PER_S / 6);
        run_each_fault(d, SEEDS_EACH, SEEDS_CALM);
    }
    return 0;
}
