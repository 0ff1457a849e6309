/* SPDX-License-Identifier: Apache-2.0 */
/* Designs with ranges, under the faults that they claim to tolerate: ranges from one unit to all, that grow, shrink and are cut in
 * two. And of those whose ranges cannot: that they say so, and that nothing has changed. */
#include "tests/sim/runs.h"
#include "tests/sim/stage.h"

#define SEEDS_MIN 40

static void campaign(const struct design *d, uint64_t ns)
{
    struct run_sum sum = {0};
    uint64_t end = world_now(&world_real) + ns;
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, seed % 4 ? d->tolerates : 0, seed);
    print_sum(d->name, &sum);
    check_struck(&sum, d->tolerates);
    CHECK(sum.total.exclusive && (sum.total.shared || !(d->features & DESIGN_SHARED)));
    CHECK(!d->reshape || (sum.total.grown && sum.total.shrunk));
    CHECK(!d->split || sum.total.splits);
    if (d->features & DESIGN_CONVERT)
        CHECK(sum.total.upgrades && sum.total.downgrades);
    if (d->features & DESIGN_TIMEOUT)
        CHECK(sum.total.timeouts && sum.total.cancelled);
}

static bool ask_in_vain(struct cluster_task *t)
{
    const struct design *d = t->client->cluster->params.design;
    const struct locker *l = &t->lockers[0];
    const uint64_t untouched = 0xa5a5;
    struct hold h, before, other = {.start = untouched, .token = untouched};
    CHECK_EQ(locker_lock_range(l, pawl_id(0), 64, 128, PAWL_EXCLUSIVE, DEADLINE_NEVER, &h), 0);
    before = h;
    if (!d->reshape) {
        CHECK_EQ(locker_reshape(l, &h, 0, 256, DEADLINE_TRY), -PAWL_ENOTSUP);
        CHECK_EQ(locker_reshape(l, &h, 64, 65, DEADLINE_NEVER), -PAWL_ENOTSUP);
    }
    if (!d->split)
        CHECK_EQ(locker_split(l, &h, 96, &other), -PAWL_ENOTSUP);
    if (!d->convert)
        CHECK_EQ(locker_convert(l, &h, PAWL_SHARED, DEADLINE_TRY), -PAWL_ENOTSUP);
    CHECK(h.start == before.start && h.end == before.end && h.mode == before.mode && h.token == before.token);
    CHECK(other.start == untouched && other.token == untouched);
    CHECK_EQ(locker_check(l, &h), 0);
    if (d->features & DESIGN_TIMEOUT) /* all of it is kept from others, and nothing else */
        for (uint64_t unit = 63; unit <= 128; unit++) {
            int rc = locker_lock_range(l, pawl_id(0), unit, unit + 1, PAWL_EXCLUSIVE, DEADLINE_TRY, &other);
            CHECK_EQ(rc, (unit >= 64 && unit < 128) || (rc && d->cover) ? -PAWL_EHELD : 0);
            if (!rc)
                CHECK_EQ(locker_unlock(l, &other), 0);
        }
    CHECK_EQ(locker_unlock(l, &h), 0);
    CHECK_EQ(locker_lock_range(l, pawl_id(0), 0, 256, PAWL_EXCLUSIVE, DEADLINE_NEVER, &h), 0);
    CHECK_EQ(locker_unlock(l, &h), 0);
    return true;
}

static void refusals(const struct design *d)
{
    static struct cluster c;
    struct cluster_params p = stage_of(d, "default", 1, 1024, ask_in_vain);
    p.time_max_ns = 0;
    p.lease_ns = 3600 * NS_PER_S;
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
            refusals(d);
            campaign(d, test_seconds() * NS_PER_S / 4 / count);
        }
    return 0;
}
