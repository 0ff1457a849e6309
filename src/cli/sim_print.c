/* SPDX-License-Identifier: Apache-2.0 */
/* pawl sim: prints the results of a campaign, for people and for programs. */
#include "cli/sim.h"

#include <inttypes.h>

#define LINES_MAX 10 /* failures shown of one design */
#define MICROS_DECIMALS 6

static void add_option(char out[REPLAY_LEN], const char *option, const char *value)
{
    if (value)
        text_add(out, REPLAY_LEN, " --%s %s", option, value);
}

static void add_number(char out[REPLAY_LEN], const char *option, uint64_t value)
{
    if (value)
        text_add(out, REPLAY_LEN, " --%s %" PRIu64, option, value);
}

void sim_replay_text(char out[REPLAY_LEN], const struct design *d, const struct sim_replay *replay, uint64_t seed)
{
    const struct swarm_limits *l = &replay->limits;
    snprintf(out, REPLAY_LEN, "pawl sim --design %s --seeds %" PRIu64 ":%" PRIu64, d->name, seed, seed + 1);
    add_option(out, "faults", replay->faults);
    add_option(out, "model", replay->model);
    add_option(out, "tune", replay->tune);
    add_option(out, "caps", replay->caps);
    add_number(out, "campaign", replay->campaign == CAMPAIGN_FIXED ? 0 : replay->campaign);
    add_number(out, "nodes", replay->nodes);
    add_number(out, "clients", l->clients);
    add_number(out, "hosts", l->hosts);
    add_number(out, "tasks", l->tasks);
    add_number(out, "locks", l->locks);
    if (l->safety_ns)
        text_add(out, REPLAY_LEN, " --safety %" PRIu64 "us", l->safety_ns / NS_PER_US);
    add_option(out, "on", replay->on);
    text_add(out, REPLAY_LEN, " --trace");
}

/* ---- for people ---- */

static void print_failures(const struct sim_sum *sum, const struct sim_replay *replay)
{
    for (uint64_t i = 0; i < sum->failed && i < LINES_MAX; i++) {
        char again[REPLAY_LEN];
        sim_replay_text(again, sum->design, replay, sum->failures[i].seed);
        printf("  seed %" PRIu64 ": %s; %s\n", sum->failures[i].seed, sum->failures[i].what, again);
    }
    if (sum->failed > LINES_MAX)
        printf("  and %" PRIu64 " more\n", sum->failed - LINES_MAX);
}

void sim_print(const struct sim_sum *sum, const struct sim_replay *replay)
{
    const char *between = "";
    char left_out[FAULTS_LEN] = "";
    printf("%s: %" PRIu64 " seed%s from %" PRIu64 "%s, %" PRIu64 " events, %" PRIu64 " grants, %" PRIu64 " sessions (%" PRIu64
           " lost), %" PRIu64 ".%03" PRIu64 " s virtual, %" PRIu64 ".%03" PRIu64 " s real, trace %016" PRIx64 "\n",
           sum->design->name, sum->runs, sum->runs == 1 ? "" : "s", sum->seeds.from, sum->interrupted ? " (interrupted)" : "",
           sum->events, sum->grants, sum->sessions, sum->lost, sum->virtual_ns / NS_PER_S, sum->virtual_ns % NS_PER_S / NS_PER_MS,
           sum->wall_ns / NS_PER_S, sum->wall_ns % NS_PER_S / NS_PER_MS, sum->hash);
    if (sum->design->features & DESIGN_DEADLOCK)
        printf("  deadlocks: %" PRIu64 " reported\n", sum->deadlocks);
    if (sum->design->features & DESIGN_CALLS)
        printf("  data: %" PRIu64 " orders done under locks, %" PRIu64 " with an unknown outcome\n", sum->orders, sum->unknown);
    printf("  faults: ");
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        if (sum->faults & FAULT_BIT(kind)) {
            printf("%s%s %" PRIu64, between, fault_name(kind), sum->counts[kind]);
            between = ", ";
        }
    puts(sum->faults ? "" : "none");
    if (sum->left_out)
        printf("  left out: %s (not tolerated)\n", bits_text(sum->left_out, fault_name, ", ", left_out, sizeof left_out));
    if (sum->moves)
        printf("  %" PRIu64 " moves of locks between switch and servers\n", sum->moves);
    print_failures(sum, replay);
    if (sum->failed)
        printf("  %" PRIu64 " of %" PRIu64 " seeds failed: %" PRIu64 " violations, %" PRIu64 " stuck\n", sum->failed, sum->runs,
               sum->violations, sum->stuck);
    else
        printf("  no violation, no client stuck\n");
    fflush(stdout);
}

/* ---- for programs ---- */

static void json_failures(struct json *j, const struct sim_sum *sum, const struct sim_replay *replay)
{
    json_array(j, "failures");
    for (uint64_t i = 0; i < sum->failed && i < SIM_FAILURES_MAX; i++) {
        char again[REPLAY_LEN];
        sim_replay_text(again, sum->design, replay, sum->failures[i].seed);
        json_object(j, NULL);
        json_u64(j, "seed", sum->failures[i].seed);
        json_string(j, "what", sum->failures[i].what);
        json_string(j, "replay", again);
        json_end(j);
    }
    json_end(j);
}

static void json_counts(struct json *j, const struct sim_sum *sum)
{
    json_object(j, "faults");
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        if (sum->faults & FAULT_BIT(kind))
            json_u64(j, fault_name(kind), sum->counts[kind]);
    json_end(j);
    json_bits(j, "left_out", sum->left_out, fault_name);
}

int sim_print_json(const struct sim_sum *sum, const struct sim_replay *replay)
{
    struct json j;
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, sum->hash); /* 64 bits are more than a number of JSON is read with */
    json_open(&j, stdout);
    json_string(&j, "design", sum->design->name);
    json_u64(&j, "seeds", sum->runs);
    json_u64(&j, "first_seed", sum->seeds.from);
    json_bool(&j, "interrupted", sum->interrupted);
    json_string(&j, "model", replay->model ? replay->model : replay->campaign == CAMPAIGN_SWARM ? "by seed" : "default");
    json_u64(&j, "events", sum->events);
    json_u64(&j, "grants", sum->grants);
    json_u64(&j, "deadlocks", sum->deadlocks);
    json_u64(&j, "orders", sum->orders);
    json_u64(&j, "sessions", sum->sessions);
    json_u64(&j, "sessions_lost", sum->lost);
    json_u64(&j, "moves", sum->moves);
    json_decimal(&j, "virtual_seconds", sum->virtual_ns / NS_PER_US, MICROS_DECIMALS);
    json_decimal(&j, "wall_seconds", sum->wall_ns / NS_PER_US, MICROS_DECIMALS);
    json_counts(&j, sum);
    json_u64(&j, "violations", sum->violations);
    json_u64(&j, "stuck", sum->stuck);
    json_u64(&j, "failed_seeds", sum->failed);
    json_string(&j, "trace_hash", hash);
    json_failures(&j, sum, replay);
    return json_finish(&j);
}
