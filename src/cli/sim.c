/* SPDX-License-Identifier: Apache-2.0 */
/* pawl sim: fault campaigns. One thread and one seed at a time, so that the same command gives the same hash everywhere. */
#include "cli/sim.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "lib/explain.h"
#include "lib/hash.h"
#include "lib/progress.h"
#include "workbench/trial/cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DESIGNS_MAX 64 /* of one command: more than there are */

static struct {
    const char *design;
    struct sim_replay run; /* of each seed */
    struct arg_range seeds;
    struct sim_small small;
    bool list, models, trace, json, exhaust;
} opts = {.design = "word",
          .run = {.faults = "all", .campaign = CAMPAIGN_FIXED},
          .seeds = {0, 100},
          .small = {.clients = 2, .ops = 2, .preemptions = 2, .early = 1, .strikes = 1}};

/* Options that belong to campaigns, to the exhaustive search, or to both with another default. */
static struct {
    bool campaign, small, ops, faults, clients;
} given;

static const struct arg table[] = {
    {"design", 0, ARG_STRING, "D[,D...]", "designs to try; default word", &opts.design, NULL},
    {"seeds", 0, ARG_RANGE, "A:B", "a run for each seed from A to B-1; default 0:100", &opts.seeds, &given.campaign},
    {"faults", 0, ARG_STRING, "LIST",
     "all, rack (all, and those of the coordinator), none, or names with commas between; default all (--exhaust: none)",
     &opts.run.faults, &given.faults},
    {"model", 0, ARG_STRING, "NAME", "model of the simulated cluster; default 'default', in campaign 2 one of them by seed",
     &opts.run.model, &given.campaign},
    {"caps", 0, ARG_STRING, "LIST", "capabilities of the fabric: all, none, or names; default as the seed draws", &opts.run.caps,
     &given.campaign},
    SETTINGS_TUNE_OPTION(&opts.run.tune),
    {"campaign", 0, ARG_U64, "N",
     "1: one mix of operations for all seeds (default); 2: every seed draws its own; 3: watches, semaphores and values",
     &opts.run.campaign, &given.campaign},
    {"nodes", 0, ARG_U64, "N", "one-sided designs: locks lie on so many nodes; default as the seed draws", &opts.run.nodes,
     &given.campaign},
    {"clients", 0, ARG_U64, "N", "at most so many clients; default as the seed draws (--exhaust: so many; default 2)",
     &opts.run.limits.clients, &given.clients},
    {"hosts", 0, ARG_U64, "N", "at most so many hosts of clients", &opts.run.limits.hosts, &given.campaign},
    {"tasks", 0, ARG_U64, "N", "at most so many tasks of each client", &opts.run.limits.tasks, &given.campaign},
    {"locks", 0, ARG_U64, "N", "at most so many locks", &opts.run.limits.locks, &given.campaign},
    {"safety", 0, ARG_DURATION, "TIME", "faults stop after this virtual time at the latest", &opts.run.limits.safety_ns,
     &given.campaign},
    {"on", 0, ARG_STRING, "WHAT", "one-sided designs: 'fabric', with NICs (default), or 'node', a memory node over datagrams",
     &opts.run.on, &given.campaign},
    {"exhaust", 0, ARG_FLAG, NULL, "instead of seeds: every schedule of a small world with one lock or two", &opts.exhaust, NULL},
    {"ops", 0, ARG_U64, "N", "--exhaust: operations of each client; default 2", &opts.small.ops, &given.ops},
    {"plan", 0, ARG_STRING, "OPS,...",
     "--exhaust: operations of each client: X exclusive, S shared; Y, T of a second lock; A, B of both; small with a deadline",
     &opts.small.plan, &given.small},
    {"preemptions", 0, ARG_U64, "N", "--exhaust: at most so many in a schedule; default 2", &opts.small.preemptions, &given.small},
    {"early", 0, ARG_U64, "N", "--exhaust: of them at most so many timers that come early; default 1", &opts.small.early,
     &given.small},
    {"crash", 0, ARG_FLAG, NULL, "--exhaust: clients crash (--faults crash-client)", &opts.small.crash, &given.small},
    {"strikes", 0, ARG_U64, "N", "--exhaust: at most so many faults in a schedule; default 1", &opts.small.strikes, &given.small},
    {"minutes", 0, ARG_U64, "N", "--exhaust: stop after so long; default when all is seen", &opts.small.minutes, &given.small},
    {"choices", 0, ARG_STRING, "LIST", "--exhaust: this schedule only, as a failure prints it", &opts.small.choices, &given.small},
    {"list", 0, ARG_FLAG, NULL, "list all designs, with their features and the faults that they tolerate", &opts.list, NULL},
    {"models", 0, ARG_FLAG, NULL, "print the models, each number with its source", &opts.models, NULL},
    {"trace", 0, ARG_FLAG, NULL, "print every event; for one seed", &opts.trace, NULL},
    {"json", 0, ARG_FLAG, NULL, "print one JSON object per design", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl sim",
    .usage = "[--design D[,D...]] [--seeds A:B] [--faults all|rack|none|LIST] [--model NAME]\n"
             "                [--caps all|none|LIST] [--nodes N] [--tune KNOB=N[,...]] [--campaign 1|2|3] [--clients N]\n"
             "                [--hosts N] [--tasks N] [--locks N] [--safety TIME] [--on fabric|node]\n"
             "                [--trace] [--json]\n"
             "       pawl sim --exhaust [--design D] [--clients N] [--ops N] [--plan OPS,...] [--preemptions N] [--early N]\n"
             "                [--crash] [--faults LIST] [--strikes N] [--minutes N] [--choices LIST] [--trace] [--json]\n"
             "       pawl sim --list [--json]\n"
             "       pawl sim --models [--json]",
    .about =
        "Runs designs in simulated clusters, one for each seed. Packets are lost, connections break, clocks drift, hosts pause "
        "and\n"
        "crash, while an oracle checks every grant. Then all faults end, and every client must make progress.\n"
        "Faults that a design does not tolerate are left out, and for designs that are wrong on purpose those that would hide it.\n"
        "--exhaust explores a small world instead: all orders of verbs, local steps, packets and timers within the bounds, and a\n"
        "fault at every point. It draws no random number, and says whether a schedule is left (docs/exhaustive.md).",
    .after =
        "Faults: loss, duplicate, reorder, delay, partition, pause, crash-client, crash-server, crash-switch, unknown, drift;\n"
        "of a rack's coordinator: crash-coordinator, disk, operator, etcd; of a sender that records packets and sends them\n"
        "again: replay; of one that forges lives of hosts which no coordinator gave, beside a fault of the coordinator: forge.\n"
        "Capabilities, for one-sided designs: atomic128, masked-swap, masked-cas, masked-faa, cpu-atomic64, cpu-atomic128,\n"
        "order-mixed, order-write-after-read, wait. 'pawl sim --list' says what each design needs.\n"
        "Exit status: 0 no violation was found, 1 an invariant was violated or a client got stuck (the command that\n"
        "repeats the run is printed), 2 wrong usage, 130 interrupted before a violation was found.",
    ARGS_TABLE(table),
};

#define CAPS_OF_SIM ((1u << FAB_CAPS) - 1 - FAB_SHARED_CLOCK - FAB_KERNEL_LIFE)

static uint32_t caps; /* opts.run.caps */
/* The first one ends the campaign after the current seed, the second one everything. */
static void catch_interrupts(void)
{
    cli_catch(SIGINT, (int)SA_RESETHAND | SA_RESTART);
    cli_catch(SIGTERM, SA_RESTART); /* timeout(1) sends it twice */
}

/* ---- runs ---- */

static bool on_node(void)
{
    return opts.run.on && !strcmp(opts.run.on, "node");
}

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
    for (uint64_t seed = sum->seeds.from; seed < sum->seeds.to && !cli_signal; seed++) {
        const struct campaign_params p = {.design = sum->design,
                                          .knobs = knobs,
                                          .model = model,
                                          .faults = sum->faults,
                                          .seed = seed,
                                          .campaign = (unsigned)opts.run.campaign,
                                          .on_node = on_node(),
                                          .limits = opts.run.limits,
                                          .caps = opts.run.caps ? &caps : NULL,
                                          .nodes = (unsigned)opts.run.nodes,
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
    for (unsigned i = 0; i < count && !rc && !cli_signal; i++) {
        assert(chosen[i]);
        uint32_t left_out = faults & ~campaign_faults(chosen[i], faults);
        memset(sum, 0, sizeof *sum);
        sum->design = chosen[i];
        sum->faults = faults & ~left_out;
        sum->left_out = left_out;
        sum->seeds = opts.seeds;
        rc = run_design(sum, &knobs[i], model, &progress, i * seeds);
        progress_wipe(&progress);
        if (!rc && opts.json)
            rc = sim_print_json(sum, &opts.run);
        else if (!rc)
            sim_print(sum, &opts.run);
        wrong = wrong || sum->failed;
    }
    progress_end(&progress);
    free(sum);
    if (rc)
        return cli_fail("sim", rc);
    return wrong ? EXIT_NO : cli_signal ? EXIT_INTERRUPTED : 0;
}

/* ---- what was asked for ---- */

const struct design *sim_design(const struct args *args, const char *name)
{
    const struct design *d = design_find(name);
    if (!d)
        args_complain(args, "there is no design '%s'; 'pawl sim --list' lists the designs", name);
    else if (!(d->substrates & DESIGN_ON_SIM))
        args_complain(args, "the design '%s' does not run in the simulation", name);
    return d && d->substrates & DESIGN_ON_SIM ? d : NULL;
}

static int choose(const struct design *chosen[DESIGNS_MAX], unsigned *count)
{
    const char *list = opts.design;
    *count = 0;
    for (char name[TEXT_WORD_LEN]; text_next(&list, name);) {
        const struct design *d = sim_design(&usage, name);
        if (!d)
            return EXIT_USAGE;
        if ((on_node() && sim_check_nodes(&usage, d)) || sim_check_campaign(&usage, opts.run.campaign, d))
            return EXIT_USAGE;
        if (*count == DESIGNS_MAX)
            return args_complain(&usage, "--design names more than %d designs", DESIGNS_MAX);
        chosen[(*count)++] = d;
    }
    return 0;
}

int sim_check_nodes(const struct args *args, const struct design *d)
{
    return campaign_has_nodes(d)
               ? 0
               : args_complain(args, "the design '%s' does not run on a memory node: it is not one-sided, or only for one machine",
                               d->name);
}

int sim_check_campaign(const struct args *args, uint64_t campaign, const struct design *d)
{
    return campaign != CAMPAIGN_BESIDE || campaign_has_beside(d)
               ? 0
               : args_complain(args, "--campaign %d has watches, semaphores and values, and the design '%s' offers none of them",
                               CAMPAIGN_BESIDE, d->name);
}

int sim_check_faults(const struct args *args, const char *list, uint32_t faults, const struct design *d)
{
    bool chosen = strcmp(list, "all") != 0 && strcmp(list, "rack") != 0;
    uint32_t elsewhere = FAULT_BIT(d->packet ? FAULT_UNKNOWN : FAULT_CRASH_SWITCH); /* of verbs; of what forwards packets */
    return chosen && faults && !(campaign_faults(d, faults) & ~elsewhere)
               ? args_complain(args, "--faults %s: none of them strikes the design '%s'; 'pawl sim --list' says which ones do",
                               list, d->name)
               : 0;
}

/* Whether what was asked for is possible with the design: nodes and capabilities are of a fabric. */
static int check_run(const struct design *d, uint32_t faults)
{
    const char *option = opts.run.nodes ? "--nodes" : opts.run.caps ? "--caps" : NULL;
    return d->packet && option
               ? args_complain(&usage, "%s: the design '%s' sends packets, and its locks do not lie on nodes of a fabric", option,
                               d->name)
               : sim_check_faults(&usage, opts.run.faults, faults, d);
}

/* Every schedule of a small world. */
static int exhaust(void)
{
    const struct design *d = sim_design(&usage, opts.design);
    struct knobs knobs;
    int status = d ? settings_tune(&usage, opts.run.tune, &d, 1, &knobs) : EXIT_USAGE;
    if (status)
        return status;
    if (given.campaign)
        return args_complain(
            &usage, "--seeds, --model, --caps, --nodes, --campaign, --hosts, --tasks, --locks, --safety and --on do not go "
                    "with --exhaust");
    if (opts.small.plan && (given.clients || given.ops))
        return args_complain(&usage, "--clients and --ops do not go with --plan, which has the operations of each client");
    struct sim_small small = opts.small;
    small.clients = given.clients ? opts.run.limits.clients : small.clients;
    small.faults = given.faults ? opts.run.faults : NULL;
    small.tune = opts.run.tune;
    small.trace = opts.trace;
    small.json = opts.json;
    catch_interrupts();
    return sim_exhaust(&usage, &small, d, &knobs);
}

static int run_sim(struct args_rest *rest)
{
    const struct design *chosen[DESIGNS_MAX] = {NULL};
    struct knobs knobs[DESIGNS_MAX];
    unsigned count;
    uint32_t faults;
    if (opts.list && opts.models)
        return args_complain(&usage, "--list and --models do not go together");
    if (opts.list)
        return sim_list(opts.json);
    if (opts.models)
        return sim_models(opts.json);
    if (opts.exhaust)
        return exhaust();
    if (given.small || given.ops)
        return args_complain(&usage,
                             "--ops, --plan, --preemptions, --early, --crash, --strikes, --minutes and --choices need --exhaust");
    if (opts.run.campaign < CAMPAIGN_FIXED || opts.run.campaign > CAMPAIGN_BESIDE)
        return args_complain(&usage, "--campaign must be between %d and %d", CAMPAIGN_FIXED, CAMPAIGN_BESIDE);
    if (opts.run.nodes > CLUSTER_NODES_MAX)
        return args_complain(&usage, "--nodes must be between 1 and %d", CLUSTER_NODES_MAX);
    if (!faults_parse(opts.run.faults, &faults))
        return args_complain(&usage, "--faults: '%s' is not all, none or a list of faults; --help lists them", opts.run.faults);
    if (opts.run.on && !on_node() && strcmp(opts.run.on, "fabric") != 0)
        return args_complain(&usage, "--on is fabric or node, not '%s'", opts.run.on);
    if (opts.run.caps && !fab_caps_parse(opts.run.caps, &caps))
        return args_complain(&usage, "--caps: '%s' is not all, none or a list of capabilities; --help lists them", opts.run.caps);
    caps &= CAPS_OF_SIM;
    const struct model *model = opts.run.model ? sim_model(&usage, opts.run.model) : NULL;
    if (opts.run.model && !model)
        return EXIT_USAGE;
    int status = choose(chosen, &count);
    if (!status)
        status = settings_tune(&usage, opts.run.tune, chosen, count, knobs);
    if (status)
        return status;
    if (opts.trace && (opts.json || count > 1 || opts.seeds.to - opts.seeds.from > 1))
        return args_complain(&usage, "--trace is for one seed of one design, and not with --json: --seeds %" PRIu64 ":%" PRIu64,
                             opts.seeds.from, opts.seeds.from + 1);
    for (unsigned i = 0; i < count && !status; i++)
        status = check_run(chosen[i], faults);
    if (status)
        return status;
    for (unsigned i = 0; i < count && opts.run.caps; i++)
        if (layout_check_caps(chosen[i], PAWL_KEYS_DENSE, caps))
            return args_complain(&usage, "--caps %s: %s", opts.run.caps, explained());
    return campaign(chosen, knobs, count, faults, model);
}

const struct command cmd_sim = {&usage, run_sim};
