/* SPDX-License-Identifier: Apache-2.0 */
/* pawl hunt: random seeds of all designs until one fails or time is up. */
#include "workbench/trial/hunt.h"
#include "cli/commands.h"
#include "cli/sim.h"
#include "world/world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SEED_BITS 40 /* of the first seed: short enough to type */
#define SHRINK_NS (60 * NS_PER_S)
#define REACHED_LEN 80   /* two numbers and words */
#define LINES_BEFORE 24u /* of the trace, up to the violation; */
#define LINES_AFTER 4u   /* and behind it */
#define LINE_LEN 256

static struct {
    const char *design, *faults;
    uint64_t minutes, jobs, seed, seeds, campaign, seed_limit;
    bool jobs_given, json, no_shrink;
} opts = {.faults = "all", .minutes = 10, .seed = UINT64_MAX, .seed_limit = 60 * NS_PER_S};

static const struct arg table[] = {
    {"minutes", 0, ARG_U64, "N", "how long to hunt; 0: until a failure; default 10", &opts.minutes, NULL},
    {"jobs", 0, ARG_U64, "N", "runs at a time; default one per core", &opts.jobs, &opts.jobs_given},
    {"design", 0, ARG_STRING, "D[,D...]", "designs in turns; default all offered ones that run in the simulation", &opts.design,
     NULL},
    {"faults", 0, ARG_STRING, "LIST", "all, none, or names with commas between; default all", &opts.faults, NULL},
    {"seed", 0, ARG_U64, "N", "the first seed; default a random one", &opts.seed, NULL},
    {"seeds", 0, ARG_U64, "N", "at most so many seeds of each design; default no bound", &opts.seeds, NULL},
    {"campaign", 0, ARG_U64, "N", "1 to 3, as 'pawl sim' has them; default each, mostly 2", &opts.campaign, NULL},
    {"seed-limit", 0, ARG_DURATION, "TIME", "CPU time after which a seed counts as hanging; default 60s", &opts.seed_limit, NULL},
    {"no-shrink", 0, ARG_FLAG, NULL, "leave the failure as it was found", &opts.no_shrink, NULL},
    {"json", 0, ARG_FLAG, NULL, "print one JSON object", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl hunt",
    .usage = "[--minutes N] [--jobs N] [--design D[,D...]] [--faults all|none|LIST] [--seed N] [--seeds N]\n"
             "                 [--campaign 1|2|3] [--seed-limit TIME] [--no-shrink] [--json]",
    .about = "Runs fault campaigns of random seeds, all designs in turns, until a run violates an invariant, aborts, hangs or\n"
             "leaves a client stuck. The failure is made smaller and printed as one 'pawl sim' command that repeats it.",
    .after = "Exit status: 0 no run failed, 1 one did, 2 wrong usage, 130 interrupted before one failed.",
    ARGS_TABLE(table),
};

/* ---- what is hunted ---- */

static int add(struct hunt_params *p, const struct design *d)
{
    if (p->count == HUNT_DESIGNS_MAX)
        return args_complain(&usage, "--design names more than %u designs", HUNT_DESIGNS_MAX);
    p->designs[p->count++] = d;
    return 0;
}

static int choose(struct hunt_params *p)
{
    if (!opts.design) {
        for (const struct design *d = NULL; (d = design_next(d));)
            if (d->kind == DESIGN_MAIN && d->substrates & DESIGN_ON_SIM)
                add(p, d);
        return 0;
    }
    const char *list = opts.design;
    for (char name[TEXT_WORD_LEN]; text_next(&list, name);) {
        const struct design *d = sim_design(&usage, name);
        int status = d ? sim_check_faults(&usage, opts.faults, p->faults, d) : EXIT_USAGE;
        status = status ? status : add(p, d);
        if (status)
            return status;
    }
    return 0;
}

static int prepare(struct hunt_params *p)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (!faults_parse(opts.faults, &p->faults))
        return args_complain(&usage, "--faults: '%s' is neither all nor none nor a list of faults; 'pawl sim --help' names them",
                             opts.faults);
    if (opts.jobs_given && (!opts.jobs || opts.jobs > HUNT_JOBS_MAX))
        return args_complain(&usage, "--jobs must be between 1 and %u", HUNT_JOBS_MAX);
    if (!opts.seed_limit)
        return args_complain(&usage, "--seed-limit must be more than 0");
    if (opts.campaign > CAMPAIGN_BESIDE)
        return args_complain(&usage, "--campaign must be between %d and %d", CAMPAIGN_FIXED, CAMPAIGN_BESIDE);
    if (opts.seed == UINT64_MAX && getrandom(&opts.seed, sizeof opts.seed, 0) != (ssize_t)sizeof opts.seed)
        opts.seed = world_now(&world_real);
    p->seed = opts.seed & FIELD_MAX(SEED_BITS);
    p->seeds = opts.seeds;
    p->jobs = opts.jobs ? (unsigned)opts.jobs : cores > 0 ? (unsigned)min_u64((uint64_t)cores, HUNT_JOBS_MAX) : 1;
    p->ns = opts.minutes ? opts.minutes * 60 * NS_PER_S : UINT64_MAX;
    p->seed_ns = opts.seed_limit;
    p->campaign = (unsigned)opts.campaign;
    p->stop = &cli_signal;
    return choose(p);
}

/* ---- what is told ---- */

static double per_second(const struct hunt_sum *s, uint64_t n)
{
    return s->ns ? (double)n * (double)NS_PER_S / (double)s->ns : 0;
}

/* Empty if the compiler does not count them. */
static void reached_text(char out[REACHED_LEN], const struct hunt_sum *s)
{
    *out = 0;
    if (s->branches)
        snprintf(out, REACHED_LEN, ", %" PRIu64 " of %" PRIu64 " branches reached", s->reached, s->branches);
}

static void show(void *ctx, const struct hunt_sum *s)
{
    char reached[REACHED_LEN];
    (void)ctx;
    reached_text(reached, s);
    fprintf(stderr, "\r%" PRIu64 " s: %" PRIu64 " seeds (%.0f/s), %" PRIu64 " grants, %" PRIu64 " faults, %.1f M events/s%s  ",
            s->ns / NS_PER_S, s->seeds, per_second(s, s->seeds), s->grants, s->faults, per_second(s, s->events) / 1e6, reached);
}

static void command_text(char out[REPLAY_LEN], const struct hunt_failure *f)
{
    char names[FAULTS_LEN] = "";
    uint32_t faults = f->params.faults;
    bool all = faults == (FAULTS_ALL & f->params.design->tolerates);
    const char *list = faults ? bits_text(faults, fault_name, ",", names, sizeof names) : "none";
    const struct sim_replay replay = {.faults = all ? "all" : list, .campaign = f->params.campaign, .limits = f->params.limits};
    sim_replay_text(out, f->params.design, &replay, f->params.seed);
}

/* The trace up to the first violation, or its end. */
static void print_trace(const struct hunt_failure *f)
{
    static char lines[LINES_BEFORE][LINE_LEN];
    FILE *trace = tmpfile();
    uint64_t n = 0;
    unsigned after = 0;
    if (!trace || hunt_trace(f, trace)) {
        if (trace)
            fclose(trace);
        return;
    }
    rewind(trace);
    while (after < LINES_AFTER && fgets(lines[n % LINES_BEFORE], LINE_LEN, trace)) {
        after += after || strstr(lines[n % LINES_BEFORE], "VIOLATION");
        n++;
    }
    printf("The trace %s:\n", after ? "around the violation" : "ends with");
    for (uint64_t i = n > LINES_BEFORE ? n - LINES_BEFORE : 0; i < n; i++)
        printf("  %s", lines[i % LINES_BEFORE]);
    fclose(trace);
}

static void print_failure(const struct hunt_failure *f, const char *first, unsigned runs)
{
    char command[REPLAY_LEN];
    command_text(command, f);
    printf("%s, seed %" PRIu64 ": %s\n", f->params.design->name, f->params.seed, f->why);
    printf("Found by:   %s\n", first);
    if (!opts.no_shrink)
        printf("Cut to:     %s\n            (%u runs)\n", command, runs);
    print_trace(f);
}

static void json_failure(struct json *j, const struct hunt_failure *f, const char *first, unsigned runs)
{
    char command[REPLAY_LEN];
    command_text(command, f);
    json_object(j, "failure");
    json_string(j, "design", f->params.design->name);
    json_u64(j, "seed", f->params.seed);
    json_string(j, "what", f->why);
    json_string(j, "found_by", first);
    json_string(j, "replay", command);
    json_u64(j, "shrink_runs", runs);
    json_end(j);
}

static int report(const struct hunt_params *p, const struct hunt_sum *s, struct hunt_failure *f)
{
    char first[REPLAY_LEN], reached[REACHED_LEN];
    unsigned runs = 0;
    reached_text(reached, s);
    if (f->found) {
        command_text(first, f);
        if (!opts.no_shrink)
            runs = hunt_shrink(f, p->seed_ns, SHRINK_NS);
    }
    if (opts.json) {
        struct json j;
        json_open(&j, stdout);
        json_u64(&j, "first_seed", p->seed);
        json_u64(&j, "designs", p->count);
        json_u64(&j, "seeds", s->seeds);
        json_u64(&j, "grants", s->grants);
        json_u64(&j, "events", s->events);
        json_u64(&j, "faults", s->faults);
        json_double(&j, "seconds", (double)s->ns / (double)NS_PER_S);
        json_double(&j, "cpu_seconds", (double)s->cpu_ns / (double)NS_PER_S);
        if (s->branches) {
            json_u64(&j, "branches_reached", s->reached);
            json_u64(&j, "branches", s->branches);
        }
        json_bool(&j, "interrupted", cli_signal);
        if (f->found)
            json_failure(&j, f, first, runs);
        else
            json_null(&j, "failure");
        return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
    }
    printf("%" PRIu64 " seeds of %u designs from seed %" PRIu64 " in %.0f s (%.0f/s): %" PRIu64 " grants, %" PRIu64
           " faults, %.1f M events/s%s\n",
           s->seeds, p->count, p->seed, (double)s->ns / (double)NS_PER_S, per_second(s, s->seeds), s->grants, s->faults,
           per_second(s, s->events) / 1e6, reached);
    if (f->found)
        print_failure(f, first, runs);
    else
        printf("No run failed.\n");
    return 0;
}

static int run_hunt(struct args_rest *rest)
{
    struct hunt_params p = {.progress = isatty(STDERR_FILENO) ? show : NULL};
    struct hunt_sum sum = {0};
    struct hunt_failure failure;
    int status = prepare(&p);
    if (status)
        return status;
    cli_catch(SIGINT, 0);
    cli_catch(SIGTERM, 0);
    int rc = hunt_run(&p, &sum, &failure);
    if (p.progress)
        fputs("\r\033[K", stderr);
    if (rc)
        return cli_fail("hunt", rc);
    status = report(&p, &sum, &failure);
    return status ? status : failure.found ? EXIT_NO : cli_signal ? EXIT_INTERRUPTED : 0;
}

const struct command cmd_hunt = {&usage, run_hunt};
