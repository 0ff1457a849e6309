/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a switch pipeline: how much fits, and that every rule can be broken and is then counted. */
#include "dataplane/rmt.h"
#include "tests/check.h"

static const struct rmt_program program = {
    .name = "test",
    .logic_stages = 2,
    .arrays = 3,
    .array = {{"bit", 1, 1, 0, false}, {"byte", 8, 1, 0, false}, {"slots", 64, 4, 2, false}},
};

static const struct rmt_limits small = {.stages = 8, .stage_bits = 6400, .passes = 3};

static void check_size(void)
{
    CHECK_EQ(rmt_bits_per_unit(&program), 1 + 8 + 4 * 64);
    /* 100 registers of 64 bits per stage, 4 per unit and two beside: with four stages 398 / 4, with the other two for bit and byte.
     */
    CHECK_EQ(rmt_units_max(&program, &small), 99);
    CHECK_EQ(rmt_stages_needed(&program, &small, 99), 8);
    CHECK_EQ(rmt_stages_needed(&program, &small, 100), 9);
    CHECK(!rmt_new(&program, &small, 100));

    /* Side by side, a bit and a byte need one stage for both. */
    struct rmt_program joined = program;
    joined.array[1].joined = true;
    CHECK_EQ(rmt_units_max(&joined, &small), 124);
}

static void check_rules(void)
{
    struct rmt *r = rmt_new(&program, &small, 10);
    const struct rmt_counts *c = rmt_counts(r);
    rmt_packet(r);
    CHECK_EQ(rmt_read(r, 0, 3), 0);
    rmt_write(r, 0, 1);
    CHECK_EQ(rmt_read(r, 2, 41), 0);
    rmt_write(r, 2, UINT64_MAX);
    CHECK_EQ(rmt_rules_broken(r), 0);
    CHECK_EQ(rmt_read(r, 1, 0), 0);
    CHECK_EQ(c->backwards, 1);
    CHECK_EQ(rmt_read(r, 2, 41), 0);
    CHECK_EQ(c->twice, 1);
    rmt_write(r, 2, 7);
    CHECK_EQ(c->without_register, 1);

    CHECK(rmt_recirculate(r));
    CHECK_EQ(rmt_read(r, 0, 3), 1);
    rmt_write(r, 0, 2);
    CHECK_EQ(c->too_wide, 1);
    CHECK_EQ(rmt_read(r, 1, 10), 0);
    CHECK_EQ(c->out_of_range, 1);
    CHECK(rmt_recirculate(r));
    CHECK(!rmt_recirculate(r));
    CHECK_EQ(c->too_many_passes, 1);
    CHECK_EQ(c->passes_max, 3);
    CHECK_EQ(c->recirculations, 2);
    CHECK_EQ(rmt_peek(r, 0, 3), 1);
    CHECK_EQ(rmt_peek(r, 2, 41), -1);
    CHECK_EQ(rmt_rules_broken(r), 6);
    rmt_free(r);
}

int main(void)
{
    check_size();
    check_rules();
    return 0;
}
