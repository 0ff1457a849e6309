/* The locks that the papers compare with, under the faults that they claim to tolerate. */
#include "designs/all.h"
#include "tests/check.h"
#include "trial/campaign.h"

#include <inttypes.h>

#define SEEDS_MIN 30

static void campaign(const struct design *d, uint64_t ns)
{
    uint64_t end = world_now(&world_real) + ns, seed = 0, grants = 0;
    for (; seed < SEEDS_MIN || world_now(&world_real) < end; seed++) {
        const struct campaign_params p = {.design = d, .faults = seed % 4 ? d->tolerates : 0, .seed = seed};
        struct campaign_result r;
        CHECK_EQ(campaign_run(&p, &r), 0);
        if (r.violations || r.stuck)
            CHECK_FAIL("%s: seed %" PRIu64 ", faults %x: %s", d->name, seed, p.faults, r.why);
        grants += r.grants;
    }
    printf("%s: %" PRIu64 " seeds, %" PRIu64 " grants\n", d->name, seed, grants);
}

int main(void)
{
    uint64_t each_ns = test_seconds() * NS_PER_S / 8;
    campaign(&design_spin, each_ns);
    campaign(&design_mcs, each_ns);
    campaign(&design_dslr, each_ns);
    dslr_count_max = 8; /* the counters end all the time */
    campaign(&design_dslr, each_ns);
    return 0;
}
