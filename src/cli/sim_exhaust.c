/* SPDX-License-Identifier: Apache-2.0 */
/* pawl sim --exhaust: every schedule of a small world. */
#include "cli/sim.h"
#include "lib/progress.h"
#include "workbench/trial/exhaust.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MICROS_DECIMALS 6
#define BOUND_MAX 16   /* of preemptions, early timers and faults: more would never end */
#define TRACE_LINES 60 /* of a failure: its end */
#define TRACE_COLUMNS 160
#define REPEAT_LEN 4096

struct outcome {
    struct exhaust_params params;
    struct exhaust_result result;
    const struct sim_small *asked;
    struct exhaust_answer answers[EXHAUST_ANSWERS_MAX]; /* to be replayed */
    unsigned answer_count;
    struct progress progress;
};

/* ---- what was asked for ---- */

static int read_plan(const struct args *usage, const struct sim_small *o, struct exhaust_params *p)
{
    const char *reason;
    if (o->plan)
        return exhaust_plan_parse(o->plan, &p->plan, &reason) ? args_complain(usage, "--plan '%s': %s", o->plan, reason) : 0;
    if (!o->clients || o->clients > EXHAUST_CLIENTS_MAX)
        return args_complain(usage, "--clients must be between 1 and %d with --exhaust", EXHAUST_CLIENTS_MAX);
    if (!o->ops || o->ops > EXHAUST_OPS_MAX)
        return args_complain(usage, "--ops must be between 1 and %d", EXHAUST_OPS_MAX);
    exhaust_plan_make(p->design, (unsigned)o->clients, (unsigned)o->ops, &p->plan);
    return 0;
}

static int read_faults(const struct args *usage, const struct sim_small *o, struct exhaust_params *p)
{
    if (o->faults && !faults_parse(o->faults, &p->faults))
        return args_complain(usage, "--faults: '%s' is not all, none or a list of faults; --help lists them", o->faults);
    if (p->faults == FAULTS_ALL)
        p->faults = EXHAUST_FAULTS & p->design->tolerates & ~(p->design->packet ? FAULT_BIT(FAULT_UNKNOWN) : 0);
    p->faults |= o->crash ? FAULT_BIT(FAULT_CRASH_CLIENT) : 0;
    p->strikes = p->faults ? (unsigned)o->strikes : 0;
    return 0;
}

static int read_bounds(const struct args *usage, const struct sim_small *o, struct outcome *out)
{
    struct exhaust_params *p = &out->params;
    if (o->preemptions > BOUND_MAX || o->early > BOUND_MAX || o->strikes > BOUND_MAX)
        return args_complain(usage, "--preemptions, --early and --strikes must be %d at most", BOUND_MAX);
    p->preemptions = (unsigned)o->preemptions;
    p->early = (unsigned)o->early;
    p->ns = o->minutes * 60 * NS_PER_S;
    if (o->choices && exhaust_answers_parse(o->choices, out->answers, &out->answer_count))
        return args_complain(usage, "--choices: '%s' is not a list such as 17:1,45:2", o->choices);
    if (o->trace && (!o->choices || o->json))
        return args_complain(usage, "--trace is for one schedule (--choices), and not with --json");
    const char *reason = exhaust_refuses(p);
    return reason ? args_complain(usage, "--exhaust --design %s: %s", p->design->name, reason) : 0;
}

/* ---- what came of it ---- */

/* The command; with the choices of a failure it repeats it. */
static void command_text(const struct outcome *o, bool choices, char out[REPEAT_LEN])
{
    const struct exhaust_params *p = &o->params;
    char plan[EXHAUST_CLIENTS_MAX * (EXHAUST_OPS_MAX + 4) + 1];
    exhaust_plan_text(&p->plan, plan, sizeof plan);
    snprintf(out, REPEAT_LEN, "pawl sim --exhaust --design %s --plan %s --preemptions %u --early %u", p->design->name, plan,
             p->preemptions, p->early);
    if (p->faults) {
        text_add(out, REPEAT_LEN, " --faults ");
        bits_text(p->faults, fault_name, ",", out, REPEAT_LEN);
        text_add(out, REPEAT_LEN, " --strikes %u", p->strikes);
    }
    if (o->asked->tune)
        text_add(out, REPEAT_LEN, " --tune %s", o->asked->tune);
    for (unsigned i = 0; choices && i < o->result.answer_count; i++)
        text_add(out, REPEAT_LEN, "%s%u:%u", i ? "," : " --choices ", o->result.answers[i].at, o->result.answers[i].answer);
    if (choices && !o->result.answer_count)
        text_add(out, REPEAT_LEN, " --choices 0:0");
}

/* In a process of its own: it may fail an assertion. */
static void trace_to(const struct outcome *o, FILE *out)
{
    struct exhaust_result *r = malloc(sizeof *r);
    fflush(NULL);
    pid_t pid = r ? fork() : -1;
    if (!pid) {
        setvbuf(out, NULL, _IOLBF, 0); /* what was written before it aborts is there */
        exhaust_replay(&o->params, o->result.answers, o->result.answer_count, out, r);
        fflush(out);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
    free(r);
}

/* The last lines, all choices among them. */
static void print_trace(const struct outcome *o)
{
    char(*lines)[TRACE_COLUMNS] = calloc(TRACE_LINES, sizeof *lines);
    FILE *file = tmpfile();
    uint64_t count = 0;
    if (file && lines) {
        trace_to(o, file);
        rewind(file);
        while (fgets(lines[count % TRACE_LINES], TRACE_COLUMNS, file))
            count++;
        for (uint64_t i = count > TRACE_LINES ? count - TRACE_LINES : 0; i < count; i++)
            printf("    %s", lines[i % TRACE_LINES]);
    }
    if (file)
        fclose(file);
    free(lines);
}

static void print_failure(const struct outcome *o)
{
    char command[REPEAT_LEN];
    command_text(o, true, command);
    printf("  %s\n  repeated by: %s --trace\n", o->result.why, command);
    if (o->asked->trace)
        return;
    printf("  the end of its trace:\n");
    print_trace(o);
}

static void print_outcome(const struct outcome *o)
{
    const struct exhaust_result *r = &o->result;
    char command[REPEAT_LEN];
    command_text(o, false, command);
    uint64_t per_second = r->cpu_ns ? r->schedules * NS_PER_S / r->cpu_ns : 0;
    printf("%s\n  %" PRIu64 " schedules, %" PRIu64 " events, %" PRIu64 " grants, %" PRIu64 " faults, %" PRIu64 ".%03" PRIu64
           " s (%" PRIu64 " schedules per second of CPU time)\n",
           command, r->schedules, r->events, r->grants, r->strikes, r->ns / NS_PER_S, r->ns % NS_PER_S / NS_PER_MS, per_second);
    printf("  cut: %" PRIu64 " schedules at their length; %" PRIu64 " steps beyond the bounds were not taken\n", r->cut, r->beyond);
    if (r->failed)
        print_failure(o);
    else if (r->complete)
        printf("  none is left within the bounds; no violation, no client stuck\n");
    else
        printf("  ended early: others are left; no violation so far\n");
    fflush(stdout);
}

static int print_json(const struct outcome *o)
{
    const struct exhaust_result *r = &o->result;
    char command[REPEAT_LEN];
    struct json j;
    json_open(&j, stdout);
    json_string(&j, "design", o->params.design->name);
    command_text(o, false, command);
    json_string(&j, "command", command);
    json_u64(&j, "clients", o->params.plan.clients);
    json_u64(&j, "preemptions", o->params.preemptions);
    json_u64(&j, "early", o->params.early);
    json_u64(&j, "strikes", o->params.strikes);
    json_u64(&j, "schedules", r->schedules);
    json_bool(&j, "complete", r->complete);
    json_u64(&j, "cut", r->cut);
    json_u64(&j, "beyond_bounds", r->beyond);
    json_u64(&j, "events", r->events);
    json_u64(&j, "grants", r->grants);
    json_u64(&j, "faults", r->strikes);
    json_decimal(&j, "wall_seconds", r->ns / NS_PER_US, MICROS_DECIMALS);
    json_decimal(&j, "cpu_seconds", r->cpu_ns / NS_PER_US, MICROS_DECIMALS);
    json_bool(&j, "failed", r->failed);
    if (r->failed) {
        command_text(o, true, command);
        json_string(&j, "what", r->why);
        json_string(&j, "replay", command);
    }
    return json_finish(&j);
}

static void show(void *ctx, uint64_t schedules)
{
    progress_update(ctx, schedules);
}

/* One schedule by its choices, in this process if it is traced. */
static int replay(struct outcome *o)
{
    return exhaust_replay(&o->params, o->answers, o->answer_count, o->asked->trace ? stdout : NULL, &o->result);
}

static int run(struct outcome *o)
{
    progress_start(&o->progress, "schedules", 0);
    o->params.progress = show;
    o->params.ctx = &o->progress;
    int rc = exhaust_run(&o->params, &o->result);
    progress_end(&o->progress);
    return rc;
}

int sim_exhaust(const struct args *usage, const struct sim_small *asked, const struct design *d, const struct knobs *knobs)
{
    struct outcome *o = calloc(1, sizeof *o);
    if (!o)
        return cli_fail("sim", -ENOMEM);
    o->asked = asked;
    o->params = (struct exhaust_params){.design = d, .knobs = knobs, .stop = &cli_signal};
    int status = read_plan(usage, asked, &o->params);
    if (!status)
        status = read_faults(usage, asked, &o->params);
    if (!status)
        status = read_bounds(usage, asked, o);
    if (!status) {
        int rc = asked->choices ? replay(o) : run(o);
        if (!rc && asked->json)
            rc = print_json(o);
        else if (!rc)
            print_outcome(o);
        status = rc ? cli_fail("sim", rc) : o->result.failed ? EXIT_NO : !o->result.complete && cli_signal ? EXIT_INTERRUPTED : 0;
    }
    free(o);
    return status;
}

/* ---- pawl hunt --small ---- */

struct small_sum {
    uint64_t worlds, schedules, events, grants, faults, cpu_ns;
};

static void add_up(struct small_sum *sum, const struct exhaust_result *r)
{
    sum->worlds++;
    sum->schedules += r->schedules;
    sum->events += r->events;
    sum->grants += r->grants;
    sum->faults += r->strikes;
    sum->cpu_ns += r->cpu_ns;
}

static int hunt_json(const struct sim_small_hunt *h, const struct small_sum *sum, const struct outcome *o, uint64_t ns)
{
    struct json j;
    char command[REPEAT_LEN];
    json_open(&j, stdout);
    json_u64(&j, "first_seed", h->seed);
    json_u64(&j, "designs", h->count);
    json_u64(&j, "seeds", sum->worlds);
    json_u64(&j, "schedules", sum->schedules);
    json_u64(&j, "grants", sum->grants);
    json_u64(&j, "events", sum->events);
    json_u64(&j, "faults", sum->faults);
    json_decimal(&j, "seconds", ns / NS_PER_US, MICROS_DECIMALS);
    json_decimal(&j, "cpu_seconds", sum->cpu_ns / NS_PER_US, MICROS_DECIMALS);
    json_bool(&j, "interrupted", cli_signal);
    if (o->result.failed) {
        command_text(o, true, command);
        json_object(&j, "failure");
        json_string(&j, "design", o->params.design->name);
        json_string(&j, "what", o->result.why);
        json_string(&j, "replay", command);
        json_end(&j);
    } else
        json_null(&j, "failure");
    return json_finish(&j);
}

/* Worlds until one fails. 0 or a negative errno. */
static int hunt_worlds(const struct sim_small_hunt *h, struct small_sum *sum, struct outcome *o, uint64_t begin)
{
    for (uint64_t n = 0; !cli_signal && (!h->seeds || n < h->seeds * h->count); n++) {
        uint64_t past = world_now(&world_real) - begin;
        if (past >= h->ns)
            break;
        exhaust_draw(h->designs[n % h->count], h->faults, h->seed + n / h->count, &o->params);
        if (exhaust_refuses(&o->params)) /* a design with several switches */
            continue;
        o->params.stop = &cli_signal;
        o->params.ns = h->ns == UINT64_MAX ? 0 : h->ns - past;
        int rc = exhaust_run(&o->params, &o->result);
        if (rc)
            return rc;
        add_up(sum, &o->result);
        if (o->result.failed)
            break;
    }
    return 0;
}

int sim_hunt_small(const struct sim_small_hunt *h)
{
    static const struct sim_small asked;
    struct small_sum sum = {0};
    struct outcome *o = calloc(1, sizeof *o);
    if (!o)
        return cli_fail("hunt", -ENOMEM);
    o->asked = &asked;
    uint64_t begin = world_now(&world_real);
    int rc = hunt_worlds(h, &sum, o, begin);
    uint64_t ns = world_now(&world_real) - begin;
    if (!rc && h->json)
        rc = hunt_json(h, &sum, o, ns);
    else if (!rc) {
        printf("%" PRIu64 " small worlds of %u designs from seed %" PRIu64 " in %" PRIu64 " s: %" PRIu64 " schedules, %" PRIu64
               " grants, %" PRIu64 " faults\n",
               sum.worlds, h->count, h->seed, ns / NS_PER_S, sum.schedules, sum.grants, sum.faults);
        if (o->result.failed)
            print_failure(o);
        else
            printf("No world failed.\n");
    }
    int status = rc ? cli_fail("hunt", rc) : o->result.failed ? EXIT_NO : cli_signal ? EXIT_INTERRUPTED : 0;
    free(o);
    return status;
}
