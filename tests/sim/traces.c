/* SPDX-License-Identifier: Apache-2.0 */
/* Prints each sound design and its trace hash after the given numbers of seeds: `traces 20 200` has in the last column what
 * `pawl sim --design D --seeds 0:200 --faults all` prints. It is built twice, with the workbench's objects and with the product's;
 * the two must agree (tests/sim/same-traces). */
#include "designs/core/design.h"
#include "lib/hash.h"
#include "tests/check.h"
#include "workbench/trial/campaign.h"

static void print_hashes(const struct design *d, int count, const uint64_t seeds[])
{
    uint64_t hash = 0, seed = 0;
    uint32_t faults;
    CHECK(faults_parse("all", &faults));
    printf("%s", d->name);
    for (int i = 0; i < count; i++) {
        for (; seed < seeds[i]; seed++) {
            const struct campaign_params p = {.design = d, .faults = faults & d->tolerates, .seed = seed};
            struct campaign_result result;
            CHECK_EQ(campaign_run(&p, &result), 0);
            hash = mix64(hash ^ result.hash);
        }
        printf("\t%016" PRIx64, hash);
    }
    putchar('\n');
    fflush(stdout);
}

int main(int argc, char **argv)
{
    uint64_t seeds[8];
    if (argc < 2 || argc > 1 + (int)countof(seeds)) {
        fprintf(stderr, "usage: traces SEEDS...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++)
        seeds[i - 1] = strtoull(argv[i], NULL, 10);
    for (const struct design *d = NULL; (d = design_next(d));)
        if (d->substrates & DESIGN_ON_SIM && strncmp(d->name, "busted", 6))
            print_hashes(d, argc - 1, seeds);
    return 0;
}
