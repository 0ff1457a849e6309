/* SPDX-License-Identifier: Apache-2.0 */
/* One seed, one run: the same events, the same hash, the same trace, every time; watched or not. */
#include "tests/sim/runs.h"

#include <string.h>

#define SEEDS 6

/* Long enough for a whole run's trace would be some megabytes: two of them are compared as text. */
static struct campaign_result with_trace(const struct design *d, uint64_t seed, char **text, size_t *len)
{
    FILE *out = open_memstream(text, len);
    CHECK(out);
    struct campaign_result r = run_traced(d, d->tolerates, seed, out);
    fclose(out);
    return r;
}

static void check_same(const struct campaign_result *a, const struct campaign_result *b)
{
    CHECK_EQ(a->hash, b->hash);
    CHECK_EQ(a->events, b->events);
    CHECK_EQ(a->virtual_ns, b->virtual_ns);
    CHECK_EQ(a->grants, b->grants);
    CHECK_EQ(memcmp(a->faults, b->faults, sizeof a->faults), 0);
}

static void replay(const char *name)
{
    const struct design *d = design_named(name);
    uint64_t hashes[SEEDS];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct campaign_result first = run_seed(d, d->tolerates, seed), again = run_seed(d, d->tolerates, seed);
        check_same(&first, &again);
        hashes[seed] = first.hash;
        for (uint64_t other = 0; other < seed; other++)
            CHECK(hashes[other] != hashes[seed]);
        printf("%s seed %" PRIu64 ": %016" PRIx64 ", %" PRIu64 " events\n", name, seed, first.hash, first.events);
    }
    char *one, *two;
    size_t one_len, two_len;
    struct campaign_result plain = run_seed(d, d->tolerates, 1), a = with_trace(d, 1, &one, &one_len),
                           b = with_trace(d, 1, &two, &two_len);
    check_same(&plain, &a);
    check_same(&plain, &b);
    CHECK(one_len > 1000 && strstr(one, "GRANTED"));
    CHECK(one_len == two_len && !memcmp(one, two, one_len));
    printf("%s seed 1: the trace has %zu bytes\n", name, one_len);
    free(one);
    free(two);
}

int main(void)
{
    replay("word");
    replay("cas");
    replay("cas-backoff");
    replay("busted-control");
    replay("busted-mixed-cas");
    /* Other faults, another run. */
    const struct design *word = design_named("word");
    CHECK(run_seed(word, 0, 0).hash != run_seed(word, FAULTS_ALL, 0).hash);
    return 0;
}
