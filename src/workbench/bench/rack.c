/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks of packet designs in the simulated rack: no faults, virtual time, the same figures on every machine. */
#include "workbench/trial/rack.h"
#include "workbench/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LEASE_NS (3600 * NS_PER_S)  /* nothing fails */
#define RETRY_NS (10 * NS_PER_MS)   /* nothing is lost; longer than any queue of a server (wire/sim.h) */
#define GATHER_NS (100 * NS_PER_US) /* until every host has its leases */
#define LOOK_EVERY 64               /* operations after which the person in front of the terminal is thought of */

struct bench_rack {
    const struct bench_params *params;
    const struct design *design;
    unsigned round;
    struct rack rack;
    struct zipf zipf;
    struct validator *validators;
    struct workload_stream *streams;
    uint64_t *counts;
    struct hist hist;
    uint64_t start_ns, end_ns, ops, looks, packets_before, packets_after;
    struct packet_grants grants_before, grants_after;
    bool begun, ended;
    int error;
    struct bench_round *out;
};

static uint64_t now_of(const struct bench_rack *b)
{
    return sim_now(&b->rack.sim);
}

static bool is_measured(const struct bench_rack *b)
{
    return now_of(b) >= b->start_ns && (b->params->ops || now_of(b) < b->start_ns + b->params->seconds_ns);
}

static bool is_over(const struct bench_rack *b, unsigned client)
{
    if (*b->params->interrupted || b->error)
        return true;
    return b->params->ops ? b->counts[client] >= bench_share(b->params, client) : now_of(b) >= b->start_ns + b->params->seconds_ns;
}

/* Of all hosts. Where they do not count, and there are servers, those granted everything. */
static struct packet_grants grants_of(const struct bench_rack *b)
{
    const struct packet_design *d = b->rack.design;
    struct packet_grants sum = {.by_server = d->host_grants ? 0 : b->ops};
    for (unsigned i = 0; d->host_grants && i < b->params->nodes; i++) {
        struct packet_grants g = d->host_grants(b->rack.hosts[i].memory);
        sum.by_switch += g.by_switch;
        sum.by_agent += g.by_agent;
        sum.by_server += g.by_server;
        sum.local += g.local;
    }
    return sum;
}

/* All packets of the window, those of operations that did not end in it, too. */
static void mark(struct bench_rack *b)
{
    uint64_t now = now_of(b);
    if (!b->begun && now >= b->start_ns) {
        b->begun = true;
        b->packets_before = b->rack.packets;
        b->grants_before = grants_of(b);
    }
    if (!b->ended && is_measured(b))
        b->packets_after = b->rack.packets;
    if (!b->ended && (!is_measured(b) || b->params->ops))
        b->grants_after = grants_of(b);
    b->ended = b->ended || !is_measured(b);
}

static int cycle(struct actor *a, struct workload_op op)
{
    struct bench_rack *b = a->user;
    struct bench_steps *steps = &b->out->steps;
    const struct workload *w = &b->params->workload;
    struct validation inside;
    struct hold h;
    uint64_t begin = now_of(b);
    int rc;
    /* All its requests are still being released: then it waits until the servers have counted them. */
    while ((rc = a->ops->lock(a, pawl_id(op.lock), op.mode, DEADLINE_NEVER, &h)) == -PAWL_ELIMIT)
        a->ops->sleep(a, NS_PER_US);
    if (rc)
        return rc;
    uint64_t took = now_of(b) - begin;
    b->out->violations += validator_enter(&b->validators[op.lock], op.mode, h.token, &inside);
    if (w->hold_ns)
        a->ops->sleep(a, w->hold_ns);
    b->out->violations += validator_leave(&inside);
    uint64_t release_begin = now_of(b);
    rc = a->ops->unlock(a, &h);
    if (now_of(b) >= b->start_ns)
        mark(b);
    if (rc || !is_measured(b))
        return rc;
    hist_add(&b->hist, took);
    *(op.mode == PAWL_SHARED ? &steps->shared_ns : &steps->exclusive_ns) += took;
    *(op.mode == PAWL_SHARED ? &steps->shared : &steps->exclusive) += 1;
    steps->release_ns += now_of(b) - release_begin;
    uint64_t interval = b->params->series_ns ? (now_of(b) - b->start_ns) / b->params->series_ns : BENCH_SERIES_MAX;
    if (interval < BENCH_SERIES_MAX)
        b->out->series[interval]++;
    b->counts[a->client]++;
    b->ops++;
    b->end_ns = now_of(b);
    return 0;
}

/* On a lock of the own host's part, or of another's. */
static struct workload_op next_op(struct bench_rack *b, unsigned client)
{
    struct workload_stream *s = &b->streams[client];
    struct workload_op op = workload_next(s);
    const struct bench_params *p = b->params;
    if (!p->parted || p->nodes == 1)
        return op;
    bool local = rng_chance(&s->random, p->local, 1000);
    while ((op.lock * p->nodes / p->workload.locks == client % p->nodes) != local)
        op.lock = workload_lock(s);
    return op;
}

static bool work(struct actor *a)
{
    struct bench_rack *b = a->user;
    const struct workload *w = &b->params->workload;
    int rc = 0;
    if (now_of(b) < GATHER_NS)
        a->ops->sleep(a, GATHER_NS - now_of(b));
    while (!rc && !is_over(b, a->client)) {
        struct workload_op op = next_op(b, a->client);
        if (w->hot)
            op.lock = workload_hot(&b->streams[a->client], now_of(b) - min_u64(now_of(b), b->start_ns));
        rc = cycle(a, op);
        if (++b->looks % LOOK_EVERY == 0)
            bench_progress(b->params, b->round, b->design, b->params->ops ? b->ops : now_of(b) - min_u64(now_of(b), b->start_ns));
        if (!rc && w->think_ns)
            a->ops->sleep(a, w->think_ns);
    }
    if (rc && !b->error)
        b->error = rc;
    return true;
}

static struct rack_params rack_of(struct bench_rack *b)
{
    const struct bench_params *p = b->params;
    unsigned cores = (unsigned)model_get(p->model, MODEL_server_cores);
    bool spread = b->design->packet->on_hosts; /* as many cores, but on all hosts */
    unsigned servers = spread ? p->nodes : 1;
    return (struct rack_params){
        .design = b->design,
        .knobs = bench_knobs(p, b->design),
        .model = p->model,
        .locks = p->workload.locks,
        .clients = p->clients,
        .hosts = p->nodes,
        .servers = servers,
        .switch_locks = b->design->packet->spills && p->room < p->workload.locks ? p->room : 0,
        .cores = spread ? (cores + servers - 1) / servers : cores,
        .pool_cores = b->design->packet->switch_packet ? 1 : 0, /* FissLock 7.1: one core of each node for its agents */
        .tasks = 1,
        .seed = p->workload.seed + b->round,
        .lease_ns = LEASE_NS,
        .retry_ns = RETRY_NS,
        .work = work,
        .user = b,
    };
}

static int run(struct bench_rack *b, char why[BENCH_WHY_LEN])
{
    struct rack_params params = rack_of(b);
    b->start_ns = GATHER_NS + b->params->warmup_ns;
    int rc = rack_init(&b->rack, &params);
    if (rc) {
        snprintf(why, BENCH_WHY_LEN, "cannot set up the simulated rack: %s", strerror(-rc));
        return rc;
    }
    enum sim_end end = rack_run(&b->rack);
    rc = bench_sim_verdict(b->params, end, b->rack.clients_done, b->error, b->ops, why);
    rack_free(&b->rack);
    return rc;
}

static void collect(struct bench_rack *b, uint64_t begin_ns)
{
    b->out->packets = b->packets_after - b->packets_before;
    b->out->granted = true;
    b->out->grants = (struct packet_grants){.by_switch = b->grants_after.by_switch - b->grants_before.by_switch,
                                            .by_agent = b->grants_after.by_agent - b->grants_before.by_agent,
                                            .by_server = b->grants_after.by_server - b->grants_before.by_server,
                                            .local = b->grants_after.local - b->grants_before.local};
    bench_sim_collect(b->params, b->out, b->ops, b->end_ns - b->start_ns, b->counts, &b->hist, begin_ns);
}

int bench_rack_round(const struct bench_params *p, const struct design *design, unsigned round, struct bench_round *out,
                     char why[BENCH_WHY_LEN])
{
    uint64_t begin_ns = world_clock(CLOCK_MONOTONIC), validator_bytes = p->workload.locks * sizeof(struct validator);
    struct bench_rack *b = calloc(1, sizeof *b);
    struct validator *validators =
        mmap(NULL, validator_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct workload_stream *streams = calloc(p->clients, sizeof *streams);
    uint64_t *counts = calloc(p->clients, sizeof *counts);
    *out = (struct bench_round){0};
    int rc = b && validators != MAP_FAILED && streams && counts ? 0 : -ENOMEM;
    if (!rc) {
        b->params = p;
        b->design = design;
        b->round = round;
        b->validators = validators;
        b->streams = streams;
        b->counts = counts;
        b->out = out;
        hist_init(&b->hist);
        rc = zipf_init(&b->zipf, workload_items(&p->workload), (uint32_t)p->workload.zipf);
    }
    for (unsigned i = 0; i < p->clients && !rc; i++)
        workload_start(&streams[i], &p->workload, &b->zipf, round * p->clients + i);
    if (rc)
        snprintf(why, BENCH_WHY_LEN, "cannot set up the simulated rack: %s", strerror(-rc));
    if (!rc)
        rc = run(b, why);
    if (!rc)
        collect(b, begin_ns);
    free(counts);
    free(streams);
    if (validators != MAP_FAILED)
        munmap(validators, validator_bytes);
    free(b);
    return rc;
}
