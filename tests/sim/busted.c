/* SPDX-License-Identifier: Apache-2.0 */
/* A test of the oracle: it catches every design that is wrong on purpose, for its mistake, within a bounded number of seeds. It
 * finds nothing in the same body without a mistake. */
#include "tests/sim/runs.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS_MAX 1500
#define BESIDE_FIRST 23 /* invariants from this one on are of campaign 3 */
#define SEEDS_CONTROL 200

/* Under the faults that it claims to tolerate, so that it is not caught for something else; and the invariants one of which it must
 * break. */
static const struct {
    const char *design;
    const char *breaks[5];
} expected[] = {
    {"busted-no-recheck", {"I1:"}},
    {"busted-unlock-by-name", {"I1:", "I2:"}},
    {"busted-token-reused", {"I2:"}},
    {"busted-early-steal", {"I1:"}},
    {"busted-unknown-is-success", {"I1:", "I2:", "I10:"}},
    {"busted-no-intent", {"I9:", "I11:"}},
    {"busted-no-fence", {"I1:"}},
    {"busted-mixed-cas", {"I1:"}},
    {"busted-shiftlock-late", {"I1:", "I2:"}},
    {"busted-shiftlock-nameless", {"I1:", "I2:"}},
    {"busted-shiftlock-markless", {"I1:", "I2:"}},
    {"busted-alock-nofence", {"I1:"}},
    {"busted-dslr-late", {"I1:"}},
    {"busted-alock-greedy", {"I12:"}},
    {"busted-shiftlock-greedy", {"I12:"}},
    {"busted-shiftlock-step", {"I1:", "I2:"}},
    {"busted-ranges-off-by-one", {"I1:", "I2:"}},
    {"busted-ranges-early-token", {"I2:"}},
    {"busted-ranges-release-more", {"I1:", "I2:"}},
    {"busted-ranges-grow-blind", {"I1:", "I2:"}},
    {"busted-ranges-split-loses", {"I1:", "I2:"}},
    {"busted-srvlock-nonce", {"I1:", "I2:"}},
    {"busted-srvlock-memory", {"I1:", "I2:", "I9:"}},
    {"busted-srvlock-blind", {"I1:", "I2:", "I9:"}},
    {"busted-srvlock-lapse", {"I1:", "I2:", "I9:"}},
    {"busted-srvlock-hasty", {"I1:", "I2:"}},
    {"busted-fisslock-keep", {"I1:", "I2:"}},
    {"busted-fisslock-term", {"I1:", "I2:", "I9:"}},
    {"busted-fisslock-inca", {"I1:", "I2:"}},
    {"busted-fisslock-frees", {"I1:", "I2:"}},
    {"busted-fisslock-nonce", {"I1:", "I2:"}},
    {"busted-fisslock-adopt", {"I1:", "I2:"}},
    {"busted-fisslock-census", {"I1:", "I2:"}},
    {"busted-fisslock-lease", {"I1:", "I2:", "I9:", "I11:"}},
    {"busted-fisslock-doubt", {"I1:", "I2:"}},
    {"busted-fisslock-hasty", {"I1:", "I2:"}},
    {"busted-fisslock-early", {"I1:", "I2:"}},
    {"busted-fisslock-token", {"I1:", "I2:"}},
    {"busted-fisslock-silent", {"I1:", "I2:"}},
    {"busted-fisslock-reuse", {"I1:", "I2:"}},
    {"busted-fisslock-order", {"I1:", "I2:"}},
    {"busted-fisslock-unpaused", {"I1:", "I2:", "I9:"}},
    {"busted-fisslock-blank", {"I1:", "I2:"}},
    {"busted-fisslock-amnesia", {"I1:", "I2:"}},
    {"busted-fisslock-stale", {"I13:"}},
    {"busted-fisslock-crowd", {"I13:"}},
    {"busted-citron-no-abort", {"I1:", "I2:", "I9:"}},
    {"busted-citron-no-wait", {"I1:", "I2:"}},
    {"busted-citron-no-fence", {"I1:", "I2:", "I10:", "I11:"}},
    {"busted-citron-blind-release", {"I1:", "I2:", "I9:", "I10:", "I11:"}}, /* I9: a turn that is passed on twice is lost */
    {"busted-citron-blind-reader", {"I1:", "I2:"}},
    {"busted-citron-blind-split", {"I1:", "I2:"}},
    {"busted-fabric-order", {"I1:", "I2:", "I9:", "I10:", "I11:"}},
    {"busted-fabric-fence", {"I1:", "I2:", "I9:", "I10:", "I11:"}},
    {"busted-node-hasty", {"I1:", "I2:"}},
    {"busted-fabric-split", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-blind", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-mode",
     {"I1:", "I2:", "I9:", "I13:"}}, /* I13: a release in the wrong mode ends a wait that the probe has seen */
    {"busted-netlock-end", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-grant", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-lapse", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-hasty", {"I1:", "I2:"}},
    {"busted-netlock-revert", {"I1:", "I2:"}},
    {"busted-netlock-hearsay", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-mumble", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-rash", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-drain", {"I1:", "I2:"}},
    {"busted-netlock-twice", {"I14:"}},
    {"busted-netlock-upgrade", {"I1:", "I2:"}},
    {"busted-netlock-eager", {"I1:", "I2:", "I14:"}},
    {"busted-netlock-called", {"I1:", "I2:"}},
    {"busted-netlock-deaf", {"I1:", "I2:"}},
    {"busted-netlock-heir", {"I1:", "I2:"}},
    {"busted-netlock-rebel", {"I1:", "I2:"}},
    {"busted-netlock-superseded", {"I1:", "I2:", "I9:"}},
    {"busted-netlock-return", {"I1:", "I2:"}},
    {"busted-netlock-loud", {"I1:", "I2:"}},
    {"busted-netlock-table", {"I1:", "I2:"}},
    {"busted-netlock-crowd", {"I13:"}},
    {"busted-netlock-stale", {"I13:"}},
    {"busted-netlock-silent", {"I9:", "I11:"}},
    {"busted-coordinator-clock", {"I1:", "I2:", "I9:"}},
    {"busted-coordinator-anonymous", {"I1:", "I2:", "I9:"}},
    {"busted-coordinator-early", {"I1:", "I2:", "I7:", "I9:", "I11:"}},
    {"busted-coordinator-lease", {"I1:", "I2:", "I7:"}},
    {"busted-coordinator-places", {"I1:", "I2:", "I9:"}},
    {"busted-srvlock-silent", {"I1:", "I2:", "I9:"}},
    {"busted-coordinator-hasty", {"I1:", "I2:"}},
    {"busted-coordinator-outlives", {"I1:", "I2:"}},
    {"busted-coordinator-torn", {"I1:", "I2:", "I9:"}},
    {"busted-srvlock-any-life", {"I1:", "I2:", "I7:", "I9:"}},
    {"busted-fisslock-any-life", {"I1:", "I2:", "I7:", "I9:"}},
    {"busted-netlock-any-life", {"I1:", "I2:", "I7:", "I9:"}},
    {"busted-srvlock-recorded", {"I9:", "I11:"}},
    {"busted-fisslock-recorded", {"I9:", "I11:"}},
    {"busted-netlock-recorded", {"I9:", "I11:"}},
    {"busted-coordinator-reuse", {"I1:", "I2:", "I7:", "I9:", "I11:"}},
    {"busted-coordinator-floor", {"I2:"}},
    {"busted-srvlock-generation", {"I7:"}},
    {"busted-fisslock-leak", {"I9:", "I11:"}},
    {"busted-fisslock-generation", {"I2:", "I7:", "I9:", "I11:"}},
    {"busted-fisslock-name-floor", {"I2:"}},
    {"busted-netlock-generation", {"I7:"}},
    {"busted-netlock-grown", {"I1:", "I2:"}},
    {"busted-netlock-name-floor", {"I2:"}},
    {"busted-coordinator-join", {"I1:", "I2:", "I7:"}},
    {"busted-fisslock-replaced", {"I1:", "I2:"}},
    {"busted-netlock-replaced", {"I1:", "I2:"}},
    {"busted-leader-deposed", {"I1:", "I2:", "I7:", "I9:", "I11:"}},
    {"busted-leader-ahead", {"I1:", "I2:", "I7:", "I9:", "I11:"}},
    {"busted-steward-fresh", {"I1:", "I2:", "I27:"}},
    {"busted-leader-guess", {"I1:", "I2:", "I7:", "I9:", "I18:"}},
    {"busted-word-rumour", {"I23:"}},
    {"busted-word-crowd", {"I25:"}},
    {"busted-word-forget", {"I25:"}},
    {"busted-word-torn", {"I26:"}},
    {"busted-coordinator-unsaved", {"I26:"}},
    {"busted-coordinator-late", {"I26:"}},
    {"busted-srvlock-crowd", {"I25:"}},
    {"busted-srvlock-blank", {"I25:"}},
    {"busted-word-mute", {"I24:"}},
    {"busted-srvlock-rumour", {"I23:"}},
    {"busted-srvlock-mute", {"I24:"}},
    {"busted-fisslock-rumour", {"I23:"}},
    {"busted-fisslock-mute", {"I24:"}},
    {"busted-fisslock-places", {"I25:"}},
    {"busted-fisslock-guess", {"I25:"}},
    {"busted-fisslock-open", {"I25:"}},
    {"busted-batch-twice", {"I1:", "I2:", "I9:"}},
    {"busted-batch-forget", {"I1:", "I2:"}},
    {"busted-batch-order", {"I9:"}},
};

/* To save time: the seed that found it last. All seeds are tried from there on, the first ones at the end. */
static const struct {
    const char *design;
    uint64_t seed;
} begins[] = {
    {"busted-netlock-hasty", 73},
    {"busted-netlock-grown", 311},
    {"busted-citron-blind-release", 269},
    {"busted-unlock-by-name", 97},
    {"busted-dslr-late", 124},
    {"busted-srvlock-nonce", 50},
    {"busted-srvlock-blind", 341},
    {"busted-srvlock-hasty", 132},
    {"busted-fisslock-adopt", 217},
    {"busted-fisslock-order", 21},
    {"busted-fisslock-stale", 318},
    {"busted-citron-no-wait", 35},
    {"busted-citron-no-fence", 34},
    {"busted-citron-blind-reader", 36},
    {"busted-fabric-order", 59},
    {"busted-fabric-fence", 59},
    {"busted-netlock-called", 71},
    {"busted-netlock-heir", 568},
    {"busted-netlock-mumble", 189},
    {"busted-netlock-rash", 349},
    {"busted-netlock-rebel", 75},
    {"busted-netlock-superseded", 24},
    {"busted-netlock-return", 51},
    {"busted-netlock-loud", 318},
    {"busted-netlock-stale", 67},
    {"busted-coordinator-lease", 170},
    {"busted-coordinator-places", 62},
    {"busted-srvlock-silent", 59},
    {"busted-coordinator-hasty", 138},
    {"busted-coordinator-outlives", 91},
    {"busted-fisslock-leak", 148},
    {"busted-leader-deposed", 66},
    {"busted-leader-ahead", 21},
    {"busted-srvlock-blank", 1443},
    {"busted-word-forget", 74},
    {"busted-shiftlock-step", 100},
    {"busted-no-fence", 7},
    {"busted-coordinator-late", 27},
    {"busted-node-hasty", 10},
    {"busted-netlock-replaced", 692},
    {"busted-netlock-grant", 26},
    {"busted-fisslock-guess", 49},
    {"busted-fisslock-open", 12},
};

/* Its mistake shows if a hold outlasts the restart of its server. With other faults, too, most holds are lost before. */
static const char restarts_only[] = "busted-netlock-hasty";

/* Too rare for campaigns, which met the first two once in millions of seeds, and the third once in tens of thousands. sim/exhaust
 * finds those two, and unit/netlock_steward (counts_as_steward) the third. */
static const char *const rare[] = {"busted-alock-hearsay", "busted-citron-twice-back", "busted-netlock-long"};

static bool is_rare(const struct design *d)
{
    for (size_t i = 0; i < countof(rare); i++)
        if (!strcmp(rare[i], d->name))
            return true;
    return false;
}

static uint64_t begin_of(const struct design *d)
{
    for (size_t i = 0; i < countof(begins); i++)
        if (!strcmp(begins[i].design, d->name))
            return begins[i].seed;
    return 0;
}

static bool breaks(size_t which, const char *why)
{
    for (size_t i = 0; i < countof(expected[which].breaks) && expected[which].breaks[i]; i++)
        if (!strncmp(why, expected[which].breaks[i], strlen(expected[which].breaks[i])))
            return true;
    return false;
}

/* The trace says what was violated, where it is known, however much later than its cause that is. */
static void check_trace(const struct campaign_params *failed, const char *why)
{
    static char line[1024];
    struct campaign_params p = *failed;
    struct campaign_result r;
    bool found = false;
    p.trace = tmpfile();
    CHECK(p.trace);
    CHECK_EQ(campaign_run(&p, &r), 0);
    rewind(p.trace);
    while (!found && fgets(line, sizeof line, p.trace)) {
        const char *at = strstr(line, " VIOLATION ");
        found = at && !strncmp(at + strlen(" VIOLATION "), why, strlen(why));
    }
    fclose(p.trace);
    if (!found)
        CHECK_FAIL("%s: the trace of seed %" PRIu64 " has no line with: %s", p.design->name, p.seed, why);
}

static void catch (const struct design *d)
{
    size_t which = 0;
    while (which < countof(expected) && strcmp(expected[which].design, d->name))
        which++;
    if (which == countof(expected))
        CHECK_FAIL("%s: no entry in `expected` says which invariant it breaks", d->name);
    bool beside = strtoul(expected[which].breaks[0] + 1, NULL, 10) >= BESIDE_FIRST;
    bool restarts = !strcmp(d->name, restarts_only);
    bool swarm = !strncmp(d->name, "busted-batch-", strlen("busted-batch-")); /* its packets leave together */
    bool steps = !strcmp(d->name, "busted-shiftlock-step");                   /* at memory nodes only */
    bool needs_quick = !strcmp(d->name, "busted-alock-nofence");
    for (uint64_t i = 0; i < SEEDS_MAX; i++) {
        uint64_t seed = (begin_of(d) + i) % SEEDS_MAX;
        const struct campaign_params p = {.design = d,
                                          .model = needs_quick ? model_find("quick") : NULL,
                                          .faults = restarts ? FAULT_BIT(FAULT_CRASH_SERVER) : d->tolerates,
                                          .seed = seed,
                                          .on_node = steps,
                                          .campaign = beside              ? CAMPAIGN_BESIDE
                                                      : restarts || swarm ? CAMPAIGN_SWARM
                                                                          : CAMPAIGN_FIXED};
        struct campaign_result r;
        CHECK_EQ(campaign_run(&p, &r), 0);
        if (!run_failed(&r))
            continue;
        if (!breaks(which, r.why))
            CHECK_FAIL("%s: seed %" PRIu64 " was caught for something else: %s", d->name, seed, r.why);
        printf("%s: caught at seed %" PRIu64 ": %s\n", d->name, seed, r.why);
        fflush(stdout);
        if (strncmp(r.why, "I1:", 3) && strncmp(r.why, "I2:", 3)) /* these are known at the grant */
            check_trace(&p, r.why);
        return;
    }
    CHECK_FAIL("%s was not caught within %d seeds", d->name, SEEDS_MAX);
}

int main(void)
{
    const struct design *control = design_named("busted-control");
    const struct design *ranges = design_named("busted-ranges-control");
    struct run_sum sum = {0}, sum_ranges = {0};
    unsigned caught = 0;
    for (const struct design *d = NULL; (d = design_next(d));)
        if (d->kind == DESIGN_BUSTED && d != control && d != ranges && !is_rare(d)) {
            catch (d);
            caught++;
        }
    CHECK_EQ(caught, countof(expected));
    for (uint64_t seed = 0; seed < SEEDS_CONTROL; seed++)
        run_clean(&sum, control, control->tolerates, seed);
    for (uint64_t seed = 0; seed < SEEDS_CONTROL / 4; seed++)
        run_clean(&sum_ranges, ranges, ranges->tolerates, seed);
    print_sum("busted-ranges-control", &sum_ranges);
    CHECK(sum_ranges.total.grown && sum_ranges.total.shrunk && sum_ranges.total.splits);
    print_sum("busted-control", &sum);
    check_struck(&sum, FAULTS_ALL);
    return 0;
}
