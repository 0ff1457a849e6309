/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of pawl bench: a table for people, an object for programs. A value that a substrate does not count is null,
 * not 0. */
#include "cli/bench.h"

#include <inttypes.h>

#define PERCENTILES_SHOWN 4

/* ---- for people ---- */

static void print_duration(uint64_t ns)
{
    if (ns < 10 * NS_PER_US)
        printf(" %6" PRIu64 " ns", ns);
    else if (ns < 10 * NS_PER_MS)
        printf(" %6.1f us", (double)ns / (double)NS_PER_US);
    else
        printf(" %6.1f ms", (double)ns / (double)NS_PER_MS);
}

static void print_heading(const struct bench_params *p)
{
    const struct workload *w = &p->workload;
    printf("%s", p->simulated  ? "simulated cluster"
                 : p->place    ? p->place
                 : p->lab      ? p->node ? "memory node in the kernel of a lab, processes" : "lab, processes"
                 : p->verbs    ? "memory node on this machine by libibverbs, processes"
                 : p->provider ? "memory node on loopback by libfabric, processes"
                 : p->node     ? "memory node on loopback, processes"
                 : p->packets  ? "UDP on loopback, processes"
                 : p->threads  ? "shared memory, threads"
                               : "shared memory, processes");
    if (p->simulated)
        printf(", model %s, %u client host%s", p->model->name, p->nodes, p->nodes == 1 ? "" : "s");
    if ((p->packets || (p->node && p->lab)) && !p->place)
        printf(" of %u host%s", p->nodes, p->nodes == 1 ? "" : "s");
    printf("; %u client%s, %" PRIu64 " lock%s%s", p->clients, p->clients == 1 ? "" : "s", w->locks, w->locks == 1 ? "" : "s",
           w->names ? " by name" : "");
    if (w->txn)
        printf(", transactions%s%s", w->txn->sorted ? " in the order of their locks" : "",
               w->together ? ", all locks by one call" : "");
    for (unsigned i = 0; i < w->length_count; i++)
        printf("%s%" PRIu64, i ? "," : ", ranges of ", w->lengths[i]);
    if (w->length_count)
        printf(" of %" PRIu64 " units", w->units);
    if (w->held)
        printf(", %" PRIu64 " ranges held", w->held);
    if (w->reads)
        printf(", %.1f %% reads", (double)w->reads / 10);
    if (w->objects)
        printf(" of %" PRIu64 " objects", w->objects);
    if (w->zipf)
        printf(", zipf %.3g", (double)w->zipf / 1000);
    if (p->residents)
        printf(", %u client%s beside the locks", p->residents, p->residents == 1 ? "" : "s");
    if (p->partitioned)
        printf(", locks on the clients' hosts, %.1f %% of the operations local", (double)p->local / 10);
    if (w->hold_ns)
        printf(", held for %" PRIu64 " ns", w->hold_ns);
    if (w->think_ns)
        printf(", %" PRIu64 " ns apart", w->think_ns);
    printf("\n\n%-14s %6s %10s %12s %9s %9s %9s %9s %8s %10s", "design", "rounds", p->simulated ? "virtual s" : "seconds",
           "goodput/s", "p50", "p90", "p99", "p99.9", "fairness", "violations");
    if (p->simulated)
        printf(" %8s %8s", "verbs", "trips");
    if (p->design_count > 1)
        printf("  ratio");
    putchar('\n');
}

static void print_row(const struct bench_params *p, const struct bench_result *r, const struct bench_summary *s)
{
    printf("%-14s %6u %10.3f %12.0f", r->design->name, r->round_count, (double)s->elapsed_ns / (double)NS_PER_S, s->goodput);
    for (unsigned i = 0; i < PERCENTILES_SHOWN; i++)
        print_duration(s->latency_ns[i]);
    printf(" %8.3f %10" PRIu64, s->fairness, s->violations);
    if (p->simulated)
        printf(" %8.2f %8.2f", s->per_cycle[0] + s->per_cycle[1] + s->per_cycle[2] + s->per_cycle[3], s->acquire_round_trips);
    if (p->design_count > 1)
        printf(" %6.2f", s->ratio);
    putchar('\n');
    if (p->fast)
        printf("%u of %u clients went past the network stack\n", s->fast, p->clients);
}

/* Transactions by type, each design's. */
static void print_types(const struct bench_params *p, const struct bench_result *r, const struct bench_summary *s)
{
    if (!p->workload.txn)
        return;
    printf("\n%s: %" PRIu64 " transactions given up\n%-20s %10s %9s %9s %9s\n", r->design->name, s->timeouts, "type", "count",
           "p50", "p90", "p99");
    for (unsigned i = 0; i < txn_types(p->workload.txn->kind); i++) {
        const struct bench_type *t = &s->types[i];
        if (!t->count)
            continue;
        printf("%-20s %10" PRIu64, txn_type_name(p->workload.txn->kind, i), t->count);
        print_duration(t->p50_ns);
        print_duration(t->p90_ns);
        print_duration(t->p99_ns);
        putchar('\n');
    }
}

/* The words of the table. */
static void print_legend(const struct bench_params *p)
{
    printf("\ngoodput/s   %s per second, by all clients; the median of the rounds\n"
           "p50...p99.9 time to get %s: half of the acquisitions, ... 999 of 1000 took no longer\n"
           "fairness    how far clients are apart: standard deviation of their counts, in parts of the mean; 0: all did as much\n"
           "violations  grants that excluded each other and were there at the same time; 0 unless a design is wrong\n",
           p->workload.txn ? "transactions that had all their locks and released them" : "locks that were acquired and released",
           p->workload.txn ? "all locks of a transaction" : "the lock");
    if (p->simulated)
        printf("verbs       accesses to remote memory per lock and unlock; trips: round trips until the lock is acquired\n");
    if (p->design_count > 1)
        printf("ratio       goodput in parts of the last design's, which ran in turns with it\n");
}

#define PLOT_ROWS 24  /* a screen; neighbouring intervals share a row if there are more */
#define PLOT_WIDTH 50 /* of the longest bar */

/* Operations over time. A table of every interval would be too long to read. */
static void print_series(const struct bench_params *p, const struct bench_result *r)
{
    uint64_t sums[PLOT_ROWS] = {0}, most = 1;
    if (!p->series_ns || !r->round_count)
        return;
    uint64_t count = (r->rounds[0].elapsed_ns + p->series_ns - 1) / p->series_ns;
    count = count < BENCH_SERIES_MAX ? count : BENCH_SERIES_MAX;
    uint64_t each = (count + PLOT_ROWS - 1) / PLOT_ROWS;
    for (uint64_t i = 0; i < count; i++)
        sums[i / each] += r->rounds[0].series[i];
    for (unsigned i = 0; i < PLOT_ROWS; i++)
        most = most > sums[i] ? most : sums[i];
    printf("\n%s, operations every %.3f ms\n", r->design->name, (double)(each * p->series_ns) / NS_PER_MS);
    for (uint64_t i = 0; i * each < count; i++)
        printf("%10.3f ms %10" PRIu64 " %.*s\n", (double)(i * each * p->series_ns) / NS_PER_MS, sums[i],
               (int)(sums[i] * PLOT_WIDTH / most), "##################################################");
}

/* ---- for programs ---- */

static void json_model_value(void *ctx, const struct model_field_info *info, const struct model_value *value)
{
    struct json *j = ctx;
    json_object(j, info->name);
    json_u64(j, "value", value->value);
    json_string(j, "unit", info->unit);
    json_string(j, "source", value->source);
    json_string(j, "kind", model_kind_name(value->kind));
    json_end(j);
}

static void json_model(struct json *j, const struct model *m)
{
    if (!m) {
        json_null(j, "model");
        return;
    }
    json_object(j, "model");
    json_string(j, "name", m->name);
    json_string(j, "about", m->about);
    json_object(j, "parameters");
    model_each(m, json_model_value, j);
    json_end(j);
    json_end(j);
}

/* Thousandths are enough for what was divided, and the same digits everywhere. */
static void json_thousandths(struct json *j, const char *key, double value)
{
    json_decimal(j, key, (uint64_t)(value * 1000 + 0.5), 3);
}

static void json_measured(struct json *j, const char *key, bool measured, double value)
{
    if (measured)
        json_thousandths(j, key, value);
    else
        json_null(j, key);
}

static void json_costs(struct json *j, const struct bench_params *p, const struct bench_summary *s)
{
    static const char *const verbs[] = {"atomics", "reads", "writes", "sends"};
    json_object(j, "per_cycle");
    for (unsigned i = 0; i < countof(verbs); i++)
        json_measured(j, verbs[i], p->simulated, s->per_cycle[i]);
    json_measured(j, "packets", p->simulated, s->packets); /* 0: one-sided designs use the fabric alone */
    json_end(j);
    json_measured(j, "acquire_round_trips", p->simulated, s->acquire_round_trips);
    static const char *const steps[] = {"acquire_exclusive", "acquire_shared", "release"};
    json_object(j, "mean_ns");
    for (unsigned i = 0; i < countof(steps); i++)
        json_u64_if(j, steps[i], p->simulated && s->mean_ns[i] > 0, (uint64_t)(s->mean_ns[i] + 0.5));
    json_end(j);
#define STEP_NAME(name, text, paper) text,
    static const char *const parts[STEPS] = {STEPS_EACH(STEP_NAME)};
#undef STEP_NAME
    json_object(j, "steps_ns");
    for (unsigned i = 0; i < countof(steps); i++) {
        json_object(j, steps[i]);
        for (unsigned k = 0; k < STEPS && p->simulated; k++)
            if (s->part_ns[i][k] >= 0.5)
                json_u64(j, parts[k], (uint64_t)(s->part_ns[i][k] + 0.5));
        json_end(j);
    }
    json_end(j);
    json_object(j, "grants");
    const char *const kinds[] = {"switch", "agent", "server", "local"};
    const uint64_t grants[] = {s->grants.by_switch, s->grants.by_agent, s->grants.by_server, s->grants.local};
    for (unsigned i = 0; i < countof(kinds); i++)
        if (!s->granted && !p->simulated && !p->packets && !p->node && !strcmp(kinds[i], "local"))
            json_u64(j, kinds[i], s->ops);
        else
            json_u64_if(j, kinds[i], s->granted, grants[i]); /* there is none, or it is not counted */
    json_null(j, "handover");
    json_end(j);
    json_null(j, "retries"); /* no design of this release counts them */
}

/* The design's own counters, with warm-up and all rounds. */
static void json_counters(struct json *j, const struct bench_params *p, const struct design *d)
{
    json_object(j, "counters");
    for (const struct design_counter *c = p->simulated ? d->counters : NULL; c && c->name; c++)
        json_u64(j, c->name, *c->value);
    json_end(j);
}

/* Of the clients of each length; and over time. */
static void json_ranges(struct json *j, const struct bench_params *p, const struct bench_result *r)
{
    uint64_t ops[WORKLOAD_LENGTHS_MAX] = {0}, bytes = 0;
    for (unsigned i = 0; i < r->round_count; i++) {
        bytes += r->rounds[i].bytes;
        for (unsigned k = 0; k < WORKLOAD_LENGTHS_MAX; k++)
            ops[k] += r->rounds[i].length_ops[k];
    }
    json_array(j, "range_ops");
    for (unsigned k = 0; k < p->workload.length_count && p->simulated; k++)
        json_u64(j, NULL, ops[k]);
    json_end(j);
    json_u64(j, "bytes_moved", bytes);
}

static void json_series(struct json *j, const struct bench_params *p, const struct bench_result *r)
{
    if (!p->series_ns || !r->round_count)
        return;
    json_u64(j, "series_ns", p->series_ns);
    json_array(j, "series");
    for (uint64_t i = 0; i < BENCH_SERIES_MAX && i * p->series_ns < r->rounds[0].elapsed_ns; i++)
        json_u64(j, NULL, r->rounds[0].series[i]);
    json_end(j);
}

/* The wire that was used, not the one that was asked for. */
static void json_wire(struct json *j, const struct bench_params *p, const struct bench_summary *s)
{
    json_string(j, "wire", !p->packets ? NULL : s->fast ? "afxdp" : "udp");
    json_u64_if(j, "afxdp_clients", p->packets, s->fast);
}

static void json_types(struct json *j, const struct bench_params *p, const struct bench_summary *s)
{
    if (!p->workload.txn)
        return;
    json_array(j, "transactions");
    for (unsigned i = 0; i < txn_types(p->workload.txn->kind); i++) {
        json_object(j, NULL);
        json_string(j, "type", txn_type_name(p->workload.txn->kind, i));
        json_u64(j, "count", s->types[i].count);
        json_u64(j, "p50_ns", s->types[i].p50_ns);
        json_u64(j, "p90_ns", s->types[i].p90_ns);
        json_u64(j, "p99_ns", s->types[i].p99_ns);
        json_end(j);
    }
    json_end(j);
}

static void json_result(struct json *j, const struct bench_params *p, const struct bench_result *r, const struct bench_summary *s)
{
    static const char *const percentiles[] = {"p50_ns", "p90_ns", "p99_ns", "p999_ns", "p20_ns"};
    json_object(j, NULL);
    json_string(j, "design", r->design->name);
    json_string(j, "on",
                p->simulated  ? "sim"
                : p->verbs    ? "verbs"
                : p->provider ? "ofi"
                : p->node     ? p->lab ? "node-xdp" : "node"
                : p->lab      ? "lab"
                : p->packets  ? "udp"
                              : "shm");
    if (p->provider)
        json_string(j, "provider", p->provider);
    json_wire(j, p, s);
    json_u64(j, "clients", p->clients);
    json_u64(j, "locks", p->workload.locks);
    if (p->workload.length_count) {
        json_array(j, "range");
        for (unsigned i = 0; i < p->workload.length_count; i++)
            json_u64(j, NULL, p->workload.lengths[i]);
        json_end(j);
        json_u64(j, "units", p->workload.units);
        json_ranges(j, p, r);
        json_u64(j, "held", p->workload.held);
    }
    json_u64(j, "ops", s->ops);
    json_decimal(j, "seconds", s->elapsed_ns, 9);
    json_decimal(j, "wall_seconds", s->wall_ns, 9);
    json_u64(j, "peak_rss", s->peak_rss);
    json_u64(j, "goodput", (uint64_t)(s->goodput + 0.5));
    json_array(j, "goodputs"); /* of the rounds */
    for (unsigned i = 0; i < r->round_count; i++)
        json_u64(j, NULL, (uint64_t)(bench_goodput(&r->rounds[i]) + 0.5));
    json_end(j);
    for (unsigned i = 0; i < countof(percentiles); i++)
        json_u64(j, percentiles[i], s->latency_ns[i]);
    json_thousandths(j, "fairness", s->fairness);
    json_types(j, p, s);
    json_costs(j, p, s);
    json_series(j, p, r);
    json_counters(j, p, r->design);
    json_u64(j, "aborts", s->aborts);
    json_u64(j, "timeouts", s->timeouts);
    json_u64(j, "violations", s->violations);
    json_model(j, p->model);
    if (p->design_count > 1)
        json_thousandths(j, "ratio", s->ratio);
    json_end(j);
}

int bench_print(const struct bench_params *p, const struct bench_result *results, bool json, uint64_t *violations)
{
    struct json j;
    if (!json)
        print_heading(p);
    else
        json_init(&j, stdout);
    if (json && p->design_count > 1)
        json_array(&j, NULL);
    for (unsigned i = 0; i < p->design_count; i++) {
        struct bench_summary s;
        bench_summarize(&results[i], &results[p->design_count - 1], &s);
        *violations += s.violations;
        if (json)
            json_result(&j, p, &results[i], &s);
        else
            print_row(p, &results[i], &s);
    }
    for (unsigned i = 0; i < p->design_count && !json; i++) {
        struct bench_summary s;
        bench_summarize(&results[i], &results[p->design_count - 1], &s);
        print_types(p, &results[i], &s);
        print_series(p, &results[i]);
    }
    if (!json)
        print_legend(p);
    return json && json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}
