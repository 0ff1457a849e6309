/* SPDX-License-Identifier: Apache-2.0 */
/* The branches that a hunt has reached, with counters as the compiler would make them: a branch that any run reached counts once.
 */
#include "workbench/trial/reached.h"
#include "tests/check.h"
#include "workbench/trial/hunt.h"

#define COUNTERS 5

static uint64_t counters[COUNTERS];

uint64_t *__llvm_profile_begin_counters(void);
uint64_t *__llvm_profile_end_counters(void);

uint64_t *__llvm_profile_begin_counters(void)
{
    return counters;
}

uint64_t *__llvm_profile_end_counters(void)
{
    return counters + COUNTERS;
}

int main(void)
{
    static uint8_t marks[COUNTERS];
    CHECK_EQ(reached_all(), COUNTERS);
    reached_mark(marks);
    CHECK_EQ(reached_count(marks), 0);
    counters[1] = 7;
    reached_mark(marks);
    counters[1] = 0; /* of another process */
    counters[4] = 1;
    reached_mark(marks);
    CHECK_EQ(reached_count(marks), 2);
    /* Workers of a hunt tell the hunter. */
    const struct hunt_params p = {
        .designs = {design_find("word")}, .count = 1, .jobs = 2, .seed = 1, .seeds = 2, .ns = UINT64_MAX, .faults = FAULTS_ALL};
    struct hunt_sum sum;
    struct hunt_failure failure;
    CHECK(p.designs[0]);
    CHECK_EQ(hunt_run(&p, &sum, &failure), 0);
    CHECK(!failure.found && sum.seeds == 2);
    CHECK_EQ(sum.reached, 1);
    CHECK_EQ(sum.branches, COUNTERS);
    return 0;
}
