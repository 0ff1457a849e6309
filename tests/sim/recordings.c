/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody without the key of a rack records packets, and sends stretches of the recording again, in campaigns with and without a
 * coordinator: tags are right, and yet nothing may change (docs/operating.md, the trust model). Or sends packets of hosts with
 * lives that no coordinator has given. */
#include "tests/sim/runs.h"

#define SEEDS 24

static void test(const char *name, enum fault attack, uint64_t least, uint32_t faults, const char *what)
{
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    char text[128];
    faults = campaign_faults(d, faults | FAULT_BIT(attack));
    CHECK(faults & FAULT_BIT(attack));
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run_campaign = seed % 2 ? CAMPAIGN_SWARM : CAMPAIGN_FIXED;
        run_clean(&sum, d, faults, seed);
    }
    snprintf(text, sizeof text, "%s, %s", name, what);
    print_sum(text, &sum);
    CHECK(sum.total.faults[attack] > least * SEEDS);
}

int main(int argc, char **argv)
{
    static const char *const designs[] = {"srvlock", "netlock", "netlock-switches", "fisslock", "fisslock-racks"};
    for (unsigned i = 0; i < countof(designs); i++) {
        if (argc > 1 && strcmp(argv[1], designs[i]))
            continue;
        test(designs[i], FAULT_REPLAY, 1000, FAULTS_ALL, "all faults");
        test(designs[i], FAULT_REPLAY, 1000, FAULTS_ALL | FAULTS_COORDINATOR, "all faults, and the coordinator's");
        test(designs[i], FAULT_FORGE, 10, FAULTS_ALL | FAULTS_COORDINATOR, "forged lives, all faults, and the coordinator's");
    }
    return 0;
}
