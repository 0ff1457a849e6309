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
#define LINES_BEFORE 24u /* of the trace, up to some behind the violation: of all, and of those that tell more; */
#define LINES_AFTER 4u   /* and behind it */
#define LINE_LEN 256

static struct {
    const char *design, *faults, *model, *on;
    uint64_t minutes, jobs, seed, seeds, campaign, seed_limit;
    bool jobs_given, json, no_shrink, small;
} opts = {.faults = "all", .minutes = 10, .seed = UINT64_MAX, .seed_limit = 60 * NS_PER_S};

static const struct arg table[] = {
    {"minutes", 0, ARG_U64, "N", "how long to hunt; 0: until a failure; default 10", &opts.minutes, NULL},
    {"jobs", 0, ARG_U64, "N", "runs at a time; default one per core", &opts.jobs, &opts.jobs_given},
    {"design", 0, ARG_STRING, "D[,D...]", "designs in turns; default all offered ones that run in the simulation", &opts.design,
     NULL},
    {"faults", 0, ARG_STRING, "LIST", "all, rack, none, or names with commas between, as 'pawl sim' has them; default all",
     &opts.faults, NULL},
    {"model", 0, ARG_STRING, "NAME", "of the simulated cluster, as 'pawl sim' has them; default as the campaign draws", &opts.model,
     NULL},
    {"seed", 0, ARG_U64, "N", "the first seed; default a random one", &opts.seed, NULL},
    {"seeds", 0, ARG_U64, "N", "at most so many seeds of each design; default no bound", &opts.seeds, NULL},
    {"campaign", 0, ARG_U64, "N", "1 to 3, as 'pawl sim' has them; default each, mostly 2", &opts.campaign, NULL},
    {"on", 0, ARG_STRING, "WHAT",
     "one-sided designs: 'fabric' or 'node', as 'pawl sim' has them; default both, with --campaign 'fabric'", &opts.on, NULL},
    {"seed-limit", 0, ARG_DURATION, "TIME", "CPU time after which a seed counts as hanging; default 60s", &opts.seed_limit, NULL},
    {"small", 0, ARG_FLAG, NULL,
     "every schedule of small worlds, as 'pawl sim --exhaust' has them, which seeds draw; one at a time", &opts.small, NULL},
    {"no-shrink", 0, ARG_FLAG, NULL, "leave the failure as it was found", &opts.no_shrink, NULL},
    {"json", 0, ARG_FLAG, NULL, "print one JSON object", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl hunt",
    .usage = "[--minutes N] [--jobs N] [--design D[,D...]] [--faults all|rack|none|LIST] [--model NAME]\n"
             "                 [--seed N] [--seeds N] [--campaign 1|2|3] [--on fabric|node] [--seed-limit TIME]\n"
             "                 [--small] [--no-shrink] [--json]",
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
            if (d->kind == DESIGN_MAIN && d->substrates & DESIGN_ON_SIM && (p->on != HUNT_ON_NODE || campaign_has_nodes(d)) &&
                (p->campaign != CAMPAIGN_BESIDE || campaign_has_beside(d)))
                add(p, d);
        return 0;
    }
    const char *list = opts.design;
    for (char name[TEXT_WORD_LEN]; text_next(&list, name);) {
        const struct design *d = sim_design(&usage, name);
        int status = d ? sim_check_faults(&usage, opts.faults, p->faults, d) : EXIT_USAGE;
        if (!status && p->on == HUNT_ON_NODE)
            status = sim_check_nodes(&usage, d);
        if (!status)
            status = sim_check_campaign(&usage, p->campaign, d);
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
        return args_complain(
            &usage, "--faults: '%s' is neither all, rack nor none nor a list of faults; 'pawl sim --help' names them", opts.faults);
    if (opts.jobs_given && (!opts.jobs || opts.jobs > HUNT_JOBS_MAX))
        return args_complain(&usage, "--jobs must be between 1 and %u", HUNT_JOBS_MAX);
    if (!opts.seed_limit)
        return args_complain(&usage, "--seed-limit must be more than 0");
    if (opts.campaign > CAMPAIGN_BESIDE)
        return args_complain(&usage, "--campaign must be between %d and %d", CAMPAIGN_FIXED, CAMPAIGN_BESIDE);
    if (opts.on && strcmp(opts.on, "fabric") != 0 && strcmp(opts.on, "node") != 0)
        return args_complain(&usage, "--on is fabric or node, not '%s'", opts.on);
    p->model = opts.model ? sim_model(&usage, opts.model) : NULL;
    if (opts.model && !p->model)
        return EXIT_USAGE;
    if (opts.seed == UINT64_MAX && getrandom(&opts.seed, sizeof opts.seed, 0) != (ssize_t)sizeof opts.seed)
        opts.seed = world_now(&world_real);
    p->seed = opts.seed & FIELD_MAX(SEED_BITS);
    p->seeds = opts.seeds;
    p->jobs = opts.jobs ? (unsigned)opts.jobs : cores > 0 ? (unsigned)min_u64((uint64_t)cores, HUNT_JOBS_MAX) : 1;
    p->ns = opts.minutes ? opts.minutes * 60 * NS_PER_S : UINT64_MAX;
    p->seed_ns = opts.seed_limit;
    p->campaign = (unsigned)opts.campaign;
    p->on = !opts.on ? HUNT_ON_DRAWN : strcmp(opts.on, "node") ? HUNT_ON_FABRIC : HUNT_ON_NODE;
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
    const struct sim_replay replay = {.faults = all ? "all" : list,
                                      .model = f->params.model ? f->params.model->name : NULL,
                                      .on = f->params.on_node ? "node" : NULL,
                                      .campaign = f->params.campaign,
                                      .limits = f->params.limits};
    sim_replay_text(out, f->params.design, &replay, f->params.seed);
}

/* The last lines of a trace. */
struct tail {
    char lines[LINES_BEFORE][LINE_LEN];
    uint64_t numbers[LINES_BEFORE]; /* of the lines in the trace */
    uint64_t count;                 /* of all that were added */
};

static void tail_add(struct tail *t, const char *line, uint64_t number)
{
    uint64_t i = t->count++ % LINES_BEFORE;
    snprintf(t->lines[i], LINE_LEN, "%s", line);
    t->numbers[i] = number;
}

/* The number of the first line; and the lines from `from` on: the next one before line `end`, or null. */
static uint64_t tail_first(const struct tail *t)
{
    return t->count > LINES_BEFORE ? t->count - LINES_BEFORE : 0;
}

static const char *tail_next(const struct tail *t, uint64_t *from, uint64_t end)
{
    if (*from == t->count || t->numbers[*from % LINES_BEFORE] >= end)
        return NULL;
    return t->lines[(*from)++ % LINES_BEFORE];
}

/* Of a trace up to some lines behind its first violation, or up to its end: the last lines; and the last of those that say more
 * than that a verb, a packet or a step was done: grants, releases, faults. */
struct excerpt {
    struct tail all, telling;
    bool violation; /* it has one */
};

static bool is_telling(const char *line)
{
    static const char *const routine[] = {" goes on ", " switch ", " packet ", " message ", " local ", " store ", " read ",
                                          " write ",   " cas ",    " faa ",    " swap ",    " spawn ", " leaves "};
    for (unsigned i = 0; i < countof(routine); i++)
        if (strstr(line, routine[i]))
            return false;
    return true;
}

static void take_excerpt(struct excerpt *e, const struct hunt_failure *f)
{
    char line[LINE_LEN];
    FILE *trace = tmpfile();
    unsigned after = 0;
    if (!trace || hunt_trace(f, trace)) {
        if (trace)
            fclose(trace);
        return;
    }
    rewind(trace);
    while (after < LINES_AFTER && fgets(line, LINE_LEN, trace)) {
        line[strcspn(line, "\n")] = 0;
        after += after || strstr(line, "VIOLATION");
        if (is_telling(line))
            tail_add(&e->telling, line, e->all.count);
        tail_add(&e->all, line, e->all.count);
    }
    e->violation = after;
    fclose(trace);
}

/* The next telling line before the last lines. */
static const char *telling_next(const struct excerpt *e, uint64_t *from)
{
    return tail_next(&e->telling, from, tail_first(&e->all));
}

static void print_excerpt(const struct excerpt *e)
{
    const char *line, *title = "Grants, releases and faults before:\n";
    for (uint64_t i = tail_first(&e->telling); (line = telling_next(e, &i)); title = "")
        printf("%s  %s\n", title, line);
    printf("The trace %s:\n", e->violation ? "around the violation" : "ends with");
    for (uint64_t i = tail_first(&e->all); (line = tail_next(&e->all, &i, UINT64_MAX));)
        printf("  %s\n", line);
}

static void json_excerpt(struct json *j, const struct excerpt *e)
{
    const char *line;
    json_array(j, "before");
    for (uint64_t i = tail_first(&e->telling); (line = telling_next(e, &i));)
        json_string(j, NULL, line);
    json_end(j);
    json_array(j, "trace");
    for (uint64_t i = tail_first(&e->all); (line = tail_next(&e->all, &i, UINT64_MAX));)
        json_string(j, NULL, line);
    json_end(j);
}

/* The commands come last: a log that is cut keeps its end. */
static void print_failure(const struct hunt_failure *f, const struct excerpt *e, const char *first, unsigned runs)
{
    char command[REPLAY_LEN];
    command_text(command, f);
    print_excerpt(e);
    printf("%s, seed %" PRIu64 ": %s\n", f->params.design->name, f->params.seed, f->why);
    printf("Found by:   %s\n", first);
    if (!opts.no_shrink)
        printf("Cut to:     %s\n            (%u runs)\n", command, runs);
}

static void json_failure(struct json *j, const struct hunt_failure *f, const struct excerpt *e, const char *first, unsigned runs)
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
    json_excerpt(j, e);
    json_end(j);
}

static int report(const struct hunt_params *p, const struct hunt_sum *s, struct hunt_failure *f)
{
    static struct excerpt excerpt;
    char first[REPLAY_LEN], reached[REACHED_LEN];
    unsigned runs = 0;
    reached_text(reached, s);
    if (f->found) {
        command_text(first, f);
        if (!opts.no_shrink)
            runs = hunt_shrink(f, p->seed_ns, SHRINK_NS);
        take_excerpt(&excerpt, f);
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
            json_failure(&j, f, &excerpt, first, runs);
        else
            json_null(&j, "failure");
        return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
    }
    printf("%" PRIu64 " seed%s of %u design%s from seed %" PRIu64 " in %.0f s (%.0f/s): %" PRIu64 " grants, %" PRIu64
           " faults, %.1f M events/s%s\n",
           s->seeds, s->seeds == 1 ? "" : "s", p->count, p->count == 1 ? "" : "s", p->seed, (double)s->ns / (double)NS_PER_S,
           per_second(s, s->seeds), s->grants, s->faults, per_second(s, s->events) / 1e6, reached);
    if (f->found)
        print_failure(f, &excerpt, first, runs);
    else
        printf("No run failed.\n");
    return 0;
}

static int run_small(const struct hunt_params *p)
{
    if (opts.campaign || opts.model || opts.on)
        return args_complain(&usage, "--small has no campaigns, so not --campaign, --model or --on");
    return sim_hunt_small(&(struct sim_small_hunt){.designs = p->designs,
                                                   .count = p->count,
                                                   .seed = p->seed,
                                                   .seeds = p->seeds,
                                                   .ns = p->ns,
                                                   .faults = p->faults,
                                                   .json = opts.json});
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
    if (opts.small)
        return run_small(&p);
    int rc = hunt_run(&p, &sum, &failure);
    if (p.progress)
        fputs("\r\033[K", stderr);
    if (rc)
        return cli_fail("hunt", rc);
    status = report(&p, &sum, &failure);
    return status ? status : failure.found ? EXIT_NO : cli_signal ? EXIT_INTERRUPTED : 0;
}

const struct command cmd_hunt = {&usage, run_hunt};
