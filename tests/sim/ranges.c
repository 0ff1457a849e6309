/* Designs with ranges, under the faults that they claim to tolerate: ranges from one unit to all, that grow, shrink and are cut in
 * two. */
#include "tests/sim/runs.h"

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

int main(void)
{
    unsigned count = 0;
    for (const struct design *const *d = designs; *d; d++)
        count += (*d)->features & DESIGN_RANGES && (*d)->substrates & DESIGN_ON_SIM && (*d)->kind != DESIGN_BUSTED;
    CHECK(count);
    for (const struct design *const *d = designs; *d; d++)
        if ((*d)->features & DESIGN_RANGES && (*d)->substrates & DESIGN_ON_SIM && (*d)->kind != DESIGN_BUSTED)
            campaign(*d, test_seconds() * NS_PER_S / 4 / count);
    return 0;
}
