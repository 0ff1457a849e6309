/* SPDX-License-Identifier: Apache-2.0 */
/* Range designs in the simulation, without faults, beside a trivially correct table: the servers' trees and lists with far more
 * ranges than a campaign has. */
#include "tests/differ.h"
#include "tests/sim/stage.h"

#define HELD 60 /* of a session's 64 records */
#define OPS_MAX UINT64_C(1000000)

struct job {
    const struct design *design;
    uint64_t length_max, until_ns;
};

static bool work(struct cluster_task *t)
{
    const struct job *job = t->client->cluster->params.user;
    static struct differ d; /* too large for a fiber's stack */
    d = (struct differ){.design = job->design,
                        .lockers = {&t->lockers[0]},
                        .locker_count = 1,
                        .held_max = HELD,
                        .units = 4096,
                        .length_max = job->length_max};
    rng_seed(&d.random, job->length_max);
    while (d.ops < OPS_MAX && (d.ops % 256 || world_now(&world_real) < job->until_ns))
        differ_step(&d);
    differ_end(&d);
    if (differ_is_exact(job->design) && job->length_max <= 64)
        CHECK_EQ(d.falsely, 0);
    return true;
}

static void compare(const struct design *design, uint64_t length_max, uint64_t ns)
{
    static struct cluster c;
    struct job job = {.design = design, .length_max = length_max, .until_ns = world_now(&world_real) + ns};
    struct cluster_params p = stage_of(design, "default", 1, 1024, work);
    p.range_max = 16384;
    p.time_max_ns = 0;
    p.lease_ns = 3600 * NS_PER_S;
    p.user = &job;
    stage_run(&c, &p);
    cluster_free(&c);
}

int main(void)
{
    unsigned count = 0;
    for (const struct design *d = NULL; (d = design_next(d));)
        count += d->features & DESIGN_RANGES && d->substrates & DESIGN_ON_SIM && d->kind != DESIGN_BUSTED;
    CHECK(count);
    for (const struct design *d = NULL; (d = design_next(d));)
        if (d->features & DESIGN_RANGES && d->substrates & DESIGN_ON_SIM && d->kind != DESIGN_BUSTED) {
            compare(d, 16, test_seconds() * NS_PER_S / 24 / count);
            compare(d, 1024, test_seconds() * NS_PER_S / 24 / count);
        }
    return 0;
}
