/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock under every fault: packets lost, doubled, overtaken and late, processes, hosts, servers and the switch that die,
 * partitions and pauses longer than a lease; with locks that move all the time, queues of one to four slots that overflow, and
 * priorities. */
#include "tests/sim/runs.h"

#define SEEDS_MIN 80

/* Each of these once failed. */
static const uint64_t kept[] = {
    10,   /* a server that was open again did not serve its waiters */
    60,   /* a server that lost its memory granted a lock that the switch had */
    101,  /* the same, with a token below an earlier one */
    202,  /* a hold that no request knew of was reported to a process that was gone */
    267,  /* a hold of a server that its host knew nothing of */
    1522, /* a grant that a server made under a lease that had lapsed there was taken for one of the next lease */
    2425, /* the same */
    383,  /* a server that got its lease from the steward late did not serve its waiters then */
    434,  /* a server that had lost its locks went on giving leases to hosts that held them */
    599,  /* the same */
    821,  /* a term that was empty passed for clean, and left holds of the term before it */
    63,   /* a request for a moving lock was in flight to the switch, and part of a deadlock that was not found */
    314,  /* a lock was to be lent, and the server did not check again when the leases had ended */
    532,  /* a server whose lock was another's by now converted a hold, with a token of a term that both had heard of */
};

/* The baseline: a word per lock in the switch; and locks that are divided among several switches. */
static void others(const char *name, uint64_t ns)
{
    const struct design *d = design_named(name);
    struct run_sum sum = {0};
    uint64_t end = world_now(&world_real) + ns;
    for (uint64_t seed = 0; seed < SEEDS_MIN / 4 || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    CHECK(sum.total.exclusive && sum.total.timeouts && sum.total.lost);
}

int main(void)
{
    const struct design *d = design_named("netlock");
    struct run_sum calm = {0}, sum = {0};
    others("netchain", test_seconds() * NS_PER_S / 12);
    others("netlock-switches", test_seconds() * NS_PER_S / 12);
    uint64_t end = world_now(&world_real) + test_seconds() * NS_PER_S / 4;
    for (uint64_t seed = 0; seed < SEEDS_MIN; seed++)
        run_clean(&calm, d, 0, seed);
    CHECK_EQ(calm.total.lost, 0); /* without faults no session is lost */
    for (unsigned i = 0; i < countof(kept); i++)
        run_clean(&sum, d, d->tolerates, kept[i]);
    for (uint64_t seed = 0; seed < SEEDS_MIN || world_now(&world_real) < end; seed++)
        run_clean(&sum, d, d->tolerates, seed);
    print_sum("netlock", &sum);
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++)
        if (kind != FAULT_UNKNOWN && !sum.total.faults[kind]) /* there are no verbs */
            CHECK_FAIL("no fault of kind %s was injected", fault_name((enum fault)kind));
    CHECK(sum.total.exclusive && sum.total.shared && sum.total.timeouts && sum.total.cancelled && sum.total.lost);
    CHECK(sum.total.upgrades && sum.total.downgrades);
    CHECK(calm.total.orders && !calm.total.unknown && sum.total.orders > 10 * sum.total.unknown);
    return 0;
}
