/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/bench/bench.h"
#include "workbench/bench/txn_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

const uint32_t bench_percentiles[BENCH_PERCENTILES] = {HIST_P50, HIST_P90, HIST_P99, HIST_P999, HIST_P20};

/* ---- figures ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, unsigned n)
{
    if (!n)
        return 0;
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Newton's method from above, so that programs need not link the mathematical library. */
double bench_root(double x)
{
    double root = x > 1 ? x : 1;
    for (int i = 0; i < 64 && root * root > x; i++)
        root = (root + x / root) / 2;
    return root;
}

void bench_fairness(struct bench_round *out, const uint64_t *counts, unsigned clients)
{
    double sum = 0, squares = 0;
    for (unsigned i = 0; i < clients; i++)
        sum += (double)counts[i];
    double mean = sum / clients;
    for (unsigned i = 0; i < clients; i++)
        squares += ((double)counts[i] - mean) * ((double)counts[i] - mean);
    out->fairness = mean > 0 ? bench_root(squares / clients) / mean : 0;
}

void bench_latencies(struct bench_round *out, const struct hist *hist)
{
    for (unsigned i = 0; i < countof(bench_percentiles); i++)
        out->latency_ns[i] = hist_percentile(hist, bench_percentiles[i]);
}

void bench_type_latencies(struct bench_type *out, const struct hist *hist)
{
    *out = (struct bench_type){.count = hist->count};
    if (!hist->count)
        return;
    out->p50_ns = hist_percentile(hist, HIST_P50);
    out->p90_ns = hist_percentile(hist, HIST_P90);
    out->p99_ns = hist_percentile(hist, HIST_P99);
}

/* ---- simulated rounds ---- */

static uint64_t validator_bytes(const struct bench_params *p)
{
    return p->workload.locks * sizeof(struct validator);
}

int bench_window_open(struct bench_window *w, const struct bench_params *p, const struct design *design, unsigned round,
                      struct bench_round *out)
{
    void *validators = mmap(NULL, validator_bytes(p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = (struct bench_round){0};
    w->params = p;
    w->design = design;
    w->round = round;
    w->validators = validators == MAP_FAILED ? NULL : validators;
    w->counts = calloc(p->clients, sizeof *w->counts);
    w->core_free_ns = calloc(1 + p->nodes * model_get(p->model, MODEL_client_cores), sizeof *w->core_free_ns);
    w->out = out;
    hist_init(&w->hist);
    for (unsigned i = 0; i < TXN_TYPES_MAX; i++)
        hist_init(&w->types[i]);
    return w->validators && w->counts && w->core_free_ns
               ? zipf_init(&w->zipf, workload_items(&p->workload), (uint32_t)p->workload.zipf)
               : -ENOMEM;
}

void bench_window_close(struct bench_window *w)
{
    free(w->counts);
    free(w->core_free_ns);
    if (w->validators)
        munmap(w->validators, validator_bytes(w->params));
}

bool bench_measures(const struct bench_window *w)
{
    return bench_now(w) >= w->start_ns && (w->params->ops || bench_now(w) < w->start_ns + w->params->seconds_ns);
}

uint64_t bench_core(struct bench_window *w, unsigned client, uint64_t ns)
{
    uint64_t cores = model_get(w->params->model, MODEL_client_cores), now = bench_now(w);
    if (!cores)
        return ns;
    unsigned host = client % w->params->nodes;
    uint64_t *free_ns = &w->core_free_ns[host * cores + client / w->params->nodes % cores];
    *free_ns = max_u64(*free_ns, now) + ns;
    return *free_ns - now;
}

bool bench_is_over(const struct bench_window *w, unsigned client)
{
    if (*w->params->interrupted || w->error)
        return true;
    return w->params->ops ? w->counts[client] >= bench_share(w->params, client)
                          : bench_now(w) >= w->start_ns + w->params->seconds_ns;
}

void bench_count(struct bench_window *w, unsigned client, enum pawl_mode mode, uint64_t acquire_ns, uint64_t release_begin_ns)
{
    struct bench_steps *steps = &w->out->steps;
    steps->ns[mode == PAWL_SHARED] += acquire_ns;
    steps->count[mode == PAWL_SHARED]++;
    steps->ns[2] += bench_now(w) - release_begin_ns;
    steps->count[2]++;
    uint64_t interval = w->params->series_ns ? (bench_now(w) - w->start_ns) / w->params->series_ns : BENCH_SERIES_MAX;
    if (interval < BENCH_SERIES_MAX)
        w->out->series[interval]++;
    w->counts[client]++;
    w->ops++;
    w->end_ns = bench_now(w);
}

void bench_count_txn(struct bench_window *w, unsigned client, const struct txn *t, const struct txn_run *r)
{
    if (!bench_measures(w))
        return;
    w->out->timeouts += r->aborted;
    if (r->aborted)
        return;
    hist_add(&w->hist, r->locked_ns);
    hist_add(&w->types[t->type], r->locked_ns);
    bench_count(w, client, PAWL_EXCLUSIVE, r->locked_ns, bench_now(w));
}

void bench_window_progress(const struct bench_window *w)
{
    uint64_t now = bench_now(w);
    bench_progress(w->params, w->round, w->design, w->params->ops ? w->ops : now - min_u64(now, w->start_ns));
}

#define LOOK_NS (100 * NS_PER_US) /* of simulated time */
#define PATIENCE_NS NS_PER_S      /* of real time: for clients to end what they do */

static void look_for_signal(void *arg, uint64_t tag)
{
    struct bench_window *w = arg;
    uint64_t now = world_clock(CLOCK_MONOTONIC);
    if (*w->params->interrupted && !w->stop_ns)
        w->stop_ns = now + PATIENCE_NS;
    if (w->stop_ns && now >= w->stop_ns)
        sim_stop(w->sim);
    else
        sim_at_background(w->sim, sim_now(w->sim) + LOOK_NS, look_for_signal, w, 0);
}

void bench_sim_watch(struct bench_window *w)
{
    look_for_signal(w, 0);
}

int bench_sim_verdict(const struct bench_window *w, enum sim_end end, unsigned clients_done, char why[BENCH_WHY_LEN])
{
    unsigned clients = w->params->clients;
    if (clients_done < clients && end != SIM_STOPPED) {
        snprintf(why, BENCH_WHY_LEN, "the simulation stopped (%d) with %u of %u clients done", (int)end, clients_done, clients);
        return -EIO;
    }
    if (w->error) {
        snprintf(why, BENCH_WHY_LEN, "a client could not lock: %s", pawl_strerror(w->error));
        return w->error;
    }
    if (!w->ops && !*w->params->interrupted) {
        snprintf(why, BENCH_WHY_LEN, "no client ended an operation in that time");
        return -ETIME;
    }
    return 0;
}

void bench_sim_collect(const struct bench_window *w, uint64_t wall_begin_ns)
{
    struct bench_round *out = w->out;
    struct rusage usage;
    bool whole = !w->params->ops && !*w->params->interrupted;
    out->ops = w->ops;
    out->elapsed_ns = whole ? w->params->seconds_ns : w->ops ? w->end_ns - w->start_ns : 0;
    out->counted = true;
    bench_fairness(out, w->counts, w->params->clients);
    bench_latencies(out, &w->hist);
    for (unsigned i = 0; i < TXN_TYPES_MAX; i++)
        bench_type_latencies(&out->types[i], &w->types[i]);
    getrusage(RUSAGE_SELF, &usage);
    out->peak_rss = (uint64_t)usage.ru_maxrss * 1024;
    out->wall_ns = world_clock(CLOCK_MONOTONIC) - wall_begin_ns;
}

double bench_goodput(const struct bench_round *r)
{
    return r->elapsed_ns ? (double)r->ops * (double)NS_PER_S / (double)r->elapsed_ns : 0;
}

static double mean(uint64_t sum, uint64_t count)
{
    return count ? (double)sum / (double)count : 0;
}

static void sum_up(const struct bench_result *result, struct bench_summary *out)
{
    struct fab_counts cycle = {0};
    struct bench_steps steps = {0};
    uint64_t round_trips = 0, packets = 0;
    for (unsigned i = 0; i < result->round_count; i++) {
        const struct bench_round *r = &result->rounds[i];
        out->ops += r->ops;
        out->elapsed_ns += r->elapsed_ns;
        out->wall_ns += r->wall_ns;
        out->peak_rss = max_u64(out->peak_rss, r->peak_rss);
        out->aborts += r->aborts;
        out->timeouts += r->timeouts;
        out->violations += r->violations;
        bench_add(&cycle, NULL, &r->cycle, sizeof cycle);
        bench_add(&steps, NULL, &r->steps, sizeof steps);
        bench_add(&out->grants, NULL, &r->grants, sizeof out->grants);
        round_trips += r->acquire_round_trips;
        packets += r->packets;
        out->granted = r->granted;
        out->fast = !i || r->fast < out->fast ? r->fast : out->fast;
    }
    const uint64_t counts[] = {cycle.atomics, cycle.reads, cycle.writes, cycle.sends};
    for (unsigned i = 0; i < countof(counts); i++)
        out->per_cycle[i] = mean(counts[i], out->ops);
    out->acquire_round_trips = mean(round_trips, out->ops);
    out->packets = mean(packets, out->ops);
    for (unsigned k = 0; k < countof(steps.count); k++) {
        out->mean_ns[k] = mean(steps.ns[k], steps.count[k]);
        for (unsigned step = 0; step < STEPS; step++)
            out->part_ns[k][step] = mean(steps.parts[k][step], steps.count[k]);
    }
}

static uint64_t median_of(const struct bench_result *r, unsigned type, size_t field)
{
    double values[BENCH_ROUNDS_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < r->round_count; i++)
        if (r->rounds[i].types[type].count)
            values[n++] = (double)*(const uint64_t *)((const char *)&r->rounds[i].types[type] + field);
    return (uint64_t)bench_median(values, n);
}

static void summarize_types(const struct bench_result *r, struct bench_summary *out)
{
    for (unsigned t = 0; t < TXN_TYPES_MAX; t++) {
        for (unsigned i = 0; i < r->round_count; i++)
            out->types[t].count += r->rounds[i].types[t].count;
        out->types[t].p50_ns = median_of(r, t, offsetof(struct bench_type, p50_ns));
        out->types[t].p90_ns = median_of(r, t, offsetof(struct bench_type, p90_ns));
        out->types[t].p99_ns = median_of(r, t, offsetof(struct bench_type, p99_ns));
    }
}

void bench_summarize(const struct bench_result *result, const struct bench_result *last, struct bench_summary *out)
{
    double values[BENCH_ROUNDS_MAX];
    unsigned n = result->round_count;
    *out = (struct bench_summary){0};
    sum_up(result, out);
    for (unsigned i = 0; i < n; i++)
        values[i] = bench_goodput(&result->rounds[i]);
    out->goodput = bench_median(values, n);
    for (unsigned i = 0; i < n; i++)
        values[i] = result->rounds[i].fairness;
    out->fairness = bench_median(values, n);
    for (unsigned p = 0; p < countof(bench_percentiles); p++) {
        for (unsigned i = 0; i < n; i++)
            values[i] = (double)result->rounds[i].latency_ns[p];
        out->latency_ns[p] = (uint64_t)bench_median(values, n);
    }
    summarize_types(result, out);
    unsigned pairs = 0;
    for (unsigned i = 0; i < n && i < last->round_count; i++)
        if (bench_goodput(&last->rounds[i]) > 0)
            values[pairs++] = bench_goodput(&result->rounds[i]) / bench_goodput(&last->rounds[i]);
    out->ratio = bench_median(values, pairs);
}

/* ---- how far it is ---- */

/* Shown in operations, in seconds, or in microseconds of virtual time. */
static uint64_t progress_unit(const struct bench_params *p)
{
    return p->ops ? 1 : p->simulated ? NS_PER_US : NS_PER_S;
}

static uint64_t round_size(const struct bench_params *p)
{
    return p->ops ? p->ops : p->seconds_ns;
}

uint64_t bench_progress_total(const struct bench_params *p)
{
    return round_size(p) * p->rounds * p->design_count / progress_unit(p);
}

void bench_progress(const struct bench_params *p, unsigned round, const struct design *design, uint64_t done)
{
    unsigned before = round * p->design_count;
    for (unsigned i = 0; i < p->design_count && p->designs[i] != design; i++)
        before++;
    if (p->progress)
        progress_update(p->progress, (before * round_size(p) + min_u64(done, round_size(p))) / progress_unit(p));
}

/* ---- the rounds ---- */

static int one_round(const struct bench_params *p, unsigned d, unsigned round, struct bench_shm **spaces,
                     struct bench_result *result, char why[BENCH_WHY_LEN])
{
    struct bench_round *out = &result->rounds[result->round_count];
    int rc = !p->simulated           ? bench_shm_round(spaces[d], round, out, why)
             : p->designs[d]->packet ? bench_rack_round(p, p->designs[d], round, out, why)
                                     : bench_sim_round(p, p->designs[d], round, out, why);
    if (!rc && out->ops) /* a round that was interrupted before it began has measured nothing */
        result->round_count++;
    return rc;
}

int bench_run(const struct bench_params *p, struct bench_result *results, char why[BENCH_WHY_LEN])
{
    struct bench_shm *spaces[BENCH_DESIGNS_MAX] = {0};
    int rc = 0;
    for (unsigned d = 0; d < p->design_count; d++) {
        results[d].design = p->designs[d];
        results[d].round_count = 0;
    }
    for (unsigned d = 0; d < p->design_count && !p->simulated && !rc && !*p->interrupted; d++)
        rc = bench_shm_open(p, p->designs[d], &spaces[d], why);
    for (unsigned round = 0; round < p->rounds && !rc; round++)
        for (unsigned d = 0; d < p->design_count && !rc && !*p->interrupted; d++)
            rc = one_round(p, d, round, spaces, &results[d], why);
    for (unsigned d = 0; d < p->design_count; d++)
        bench_shm_close(spaces[d]);
    return rc;
}
