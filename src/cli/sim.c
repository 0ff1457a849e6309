/* SPDX-License-Identifier: Apache-2.0 */
/* pawl sim: fault campaigns. One thread and one seed at a time, so that the same command gives the same hash everywhere. */
#include "cli/sim.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "lib/hash.h"
#include "lib/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define DESIGNS_MAX 64                  /* of one command: more than there are */
#define EXIT_INTERRUPTED (128 + SIGINT) /* as a shell has it */

static struct {
    const char *design, *faults, *model, *tune;
    struct arg_range seeds;
    uint64_t campaign;
    struct swarm_limits limits;
    bool list, models, trace, json;
} opts = {.design = "word", .faults = "all", .model = "default", .seeds = {0, 100}, .campaign = CAMPAIGN_FIXED};

static const struct arg table[] = {
    {"design", 0, ARG_STRING, "D[,D...]", "designs to try; default word", &opts.design, NULL},
    {"seeds", 0, ARG_RANGE, "A:B", "a run for each seed from A to B-1; default 0:100", &opts.seeds, NULL},
    {"faults", 0, ARG_STRING, "LIST",
     "all, rack (all, and those of the coordinator), none, or names with commas between; default all", &opts.faults, NULL},
    {"model", 0, ARG_STRING, "NAME", "model of the simulated cluster; default 'default'", &opts.model, NULL},
    SETTINGS_TUNE_OPTION(&opts.tune),
    {"campaign", 0, ARG_U64, "N", "1: one mix of operations for all seeds (default); 2: every seed draws its own", &opts.campaign,
     NULL},
    {"clients", 0, ARG_U64, "N", "at most so many clients; default as the seed draws", &opts.limits.clients, NULL},
    {"hosts", 0, ARG_U64, "N", "at most so many hosts of clients", &opts.limits.hosts, NULL},
    {"tasks", 0, ARG_U64, "N", "at most so many tasks of each client", &opts.limits.tasks, NULL},
    {"locks", 0, ARG_U64, "N", "at most so many locks", &opts.limits.locks, NULL},
    {"safety", 0, ARG_DURATION, "TIME", "faults stop after this virtual time at the latest", &opts.limits.safety_ns, NULL},
    {"list", 0, ARG_FLAG, NULL, "list all designs, with their features and the faults that they tolerate", &opts.list, NULL},
    {"models", 0, ARG_FLAG, NULL, "print the models, each number with its source", &opts.models, NULL},
    {"trace", 0, ARG_FLAG, NULL, "print every event; for one seed", &opts.trace, NULL},
    {"json", 0, ARG_FLAG, NULL, "print one JSON object per design", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl sim",
    .usage = "[--design D[,D...]] [--seeds A:B] [--faults all|none|LIST] [--model NAME]\n"
             "                [--tune KNOB=N[,...]] [--campaign 1|2] [--clients N] [--hosts N] [--tasks N] [--locks N]\n"
             "                [--safety TIME] [--trace] [--json]\n"
             "       pawl sim --list [--json]\n"
             "       pawl sim --models [--json]",
    .about =
        "Runs designs in simulated clusters, one for each seed. Packets are lost, connections break, clocks drift, hosts pause "
        "and\n"
        "crash, while an oracle checks every grant. Then all faults end, and every client must get on.\n"
        "Faults that a design does not tolerate are left out, and for designs that are wrong on purpose those that would hide it.",
    .after =
        "Faults: loss, duplicate, reorder, delay, partition, pause, crash-client, crash-server, crash-switch, unknown, drift;\n"
        "of a rack's coordinator: crash-coordinator, disk, operator.\n"
        "Exit status: 0 no violation was found, 1 an invariant was violated or a client got stuck (the command that\n"
        "repeats the run is printed), 2 wrong usage, 130 interrupted before a violation was found.",
    ARGS_TABLE(table),
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* The first one ends the campaign after the current seed, the second one everything. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---- runs ---- */

static void add_run(struct sim_sum *sum, uint64_t seed, const struct campaign_result *r)
{
    sum->runs++;
    sum->events += r->events;
    sum->grants += r->grants;
    sum->sessions += r->sessions;
    sum->moves += r->moves;
    sum->lost += r->lost;
    sum->deadlocks += r->deadlocks;
    sum->orders += r->orders;
    sum->unknown += r->unknown;
    sum->virtual_ns += r->virtual_ns;
    sum->violations += r->violations;
    sum->stuck += r->stuck;
    sum->hash = mix64(sum->hash ^ r->hash);
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        sum->counts[kind] += r->faults[kind];
    if (!r->violations && !r->stuck)
        return;
    if (sum->failed < SIM_FAILURES_MAX) {
        struct sim_failure *f = &sum->failures[sum->failed];
        f->seed = seed;
        memcpy(f->what, r->why, sizeof f->what);
    }
    sum->failed++;
}

static int run_design(struct sim_sum *sum, const struct knobs *knobs, const struct model *model, struct progress *progress,
                      uint64_t done)
{
    uint64_t start = world_now(&world_real);
    for (uint64_t seed = sum->seeds.from; seed < sum->seeds.to && !interrupted; seed++) {
        const struct campaign_params p = {.design = sum->design,
                                          .knobs = knobs,
                                          .model = model,
                                          .faults = sum->faults,
                                          .seed = seed,
                                          .campaign = (unsigned)opts.campaign,
                                          .limits = opts.limits,
                                          .trace = opts.trace ? stdout : NULL};
        struct campaign_result result;
        int rc = campaign_run(&p, &result);
        if (rc)
            return rc;
        add_run(sum, seed, &result);
        progress_update(progress, done + sum->runs);
    }
    sum->interrupted = sum->runs < sum->seeds.to - sum->seeds.from;
    sum->wall_ns = world_now(&world_real) - start;
    return 0;
}

static int print_sum(const struct sim_sum *sum)
{
    const struct sim_replay replay = {
        .faults = opts.faults, .model = opts.model, .tune = opts.tune, .campaign = (unsigned)opts.campaign, .limits = opts.limits};
    if (opts.json)
        return sim_print_json(sum, &replay);
    sim_print(sum, &replay);
    return 0;
}

static int campaign(const struct design *const *chosen, const struct knobs *knobs, unsigned count, uint32_t faults,
                    const struct model *model)
{
    struct sim_sum *sum = malloc(sizeof *sum);
    struct progress progress;
    uint64_t seeds = opts.seeds.to - opts.seeds.from;
    bool wrong = false;
    int rc = sum ? 0 : -ENOMEM;
    catch_interrupts();
    progress_start(&progress, "seeds", opts.trace ? 0 : seeds * count);
    if (opts.trace)
        progress.out = NULL; /* the trace itself is company enough */
    for (unsigned i = 0; i < count && !rc && !interrupted; i++) {
        assert(chosen[i]);
        uint32_t left_out = faults & ~campaign_faults(chosen[i], faults);
        memset(sum, 0, sizeof *sum);
        sum->design = chosen[i];
        sum->faults = faults & ~left_out;
        sum->left_out = left_out;
        sum->seeds = opts.seeds;
        rc = run_design(sum, &knobs[i], model, &progress, i * seeds);
        progress_wipe(&progress);
        if (!rc)
            rc = print_sum(sum);
        wrong = wrong || sum->failed;
    }
    progress_end(&progress);
    free(sum);
    if (rc)
        return cli_fail("sim", rc);
    return wrong ? EXIT_NO : interrupted ? EXIT_INTERRUPTED : 0;
}

/* ---- what was asked for ---- */

static int no_such_model(void)
{
    char names[512] = "";
    for (unsigned i = 0; model_at(i); i++) {
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", model_at(i)->name);
    }
    return args_complain(&usage, "there is no model '%s'; there are %s", opts.model, names);
}

/* One name of --design, up to a comma. 0 or the exit status. */
static int choose(const char *name, size_t len, const struct design **out)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)min_u64(len, sizeof text - 1), name);
    const struct design *d = design_find(text);
    if (!d)
        return args_complain(&usage, "there is no design '%s'; 'pawl sim --list' lists the designs", text);
    if (!(d->substrates & DESIGN_ON_SIM))
        return args_complain(&usage, "the design '%s' does not run in the simulation", text);
    *out = d;
    return 0;
}

static int choose_all(const struct design *chosen[DESIGNS_MAX], unsigned *count)
{
    const char *name = opts.design;
    for (*count = 0; *count < DESIGNS_MAX; name++) {
        size_t len = strcspn(name, ",");
        int status = choose(name, len, &chosen[(*count)++]);
        name += len;
        if (status || !*name)
            return status;
    }
    return args_complain(&usage, "--design names more than %d designs", DESIGNS_MAX);
}

int cmd_sim(int argc, char **argv)
{
    const struct design *chosen[DESIGNS_MAX] = {NULL};
    struct knobs knobs[DESIGNS_MAX];
    unsigned count;
    uint32_t faults;
    int status = args_parse(&usage, argc, argv, NULL);
    if (status != ARGS_RUN)
        return status;
    if (opts.list && opts.models)
        return args_complain(&usage, "--list and --models do not go together");
    if (opts.list)
        return sim_list(opts.json);
    if (opts.models)
        return sim_models(opts.json);
    if (opts.campaign != CAMPAIGN_FIXED && opts.campaign != CAMPAIGN_SWARM)
        return args_complain(&usage, "--campaign must be between %d and %d", CAMPAIGN_FIXED, CAMPAIGN_SWARM);
    if (!faults_parse(opts.faults, &faults))
        return args_complain(&usage, "--faults: '%s' is not all, none or a list of faults; --help lists them", opts.faults);
    const struct model *model = model_find(opts.model);
    if (!model)
        return no_such_model();
    status = choose_all(chosen, &count);
    if (!status)
        status = settings_tune(&usage, opts.tune, chosen, count, knobs);
    if (status)
        return status;
    if (opts.trace && (opts.json || count > 1 || opts.seeds.to - opts.seeds.from > 1))
        return args_complain(&usage, "--trace is for one seed of one design, and not with --json: --seeds %" PRIu64 ":%" PRIu64,
                             opts.seeds.from, opts.seeds.from + 1);
    return campaign(chosen, knobs, count, faults, model);
}
