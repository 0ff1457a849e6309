/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks of packet designs in the simulated rack: no faults, virtual time, the same figures on every machine. */
#include "workbench/trial/rack.h"
#include "workbench/bench/bench.h"
#include "workbench/bench/txn_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_NS (3600 * NS_PER_S)  /* nothing fails */
#define RETRY_NS (10 * NS_PER_MS)   /* nothing is lost; longer than any queue of a server (wire/sim.h) */
#define GATHER_NS (100 * NS_PER_US) /* until every host has its leases */
/* Of a client: those of a transaction, and as many that are still being released. With fewer, clients wait for room with locks in
 * hand. */
#define TXN_REQUESTS (2 * TXN_LOCKS_MAX)
#define LOOK_EVERY 64 /* operations between two updates of the progress line */

struct bench_rack {
    struct bench_window window;
    struct rack rack;
    struct workload_stream *streams;
    struct txn_stream *txns; /* or these */
    uint64_t looks, packets_before, packets_after;
    struct packet_grants grants_before, grants_after;
    bool begun, ended;
};

/* The grants of all hosts, by granter. If hosts do not count and there are servers, the servers granted everything. */
static struct packet_grants grants_of(const struct bench_rack *b)
{
    const struct packet_design *d = b->rack.design;
    struct packet_grants sum = {.by_server = d->host_grants ? 0 : b->window.ops};
    for (unsigned i = 0; d->host_grants && i < b->window.params->nodes; i++) {
        const struct packet_grants grants = d->host_grants(b->rack.hosts[i].memory);
        bench_add(&sum, NULL, &grants, sizeof sum);
    }
    return sum;
}

/* Counts all packets of the window, also those of operations that did not end in it. */
static void mark(struct bench_rack *b)
{
    uint64_t now = bench_now(&b->window);
    if (!b->begun && now >= b->window.start_ns) {
        b->begun = true;
        b->packets_before = b->rack.packets;
        b->grants_before = grants_of(b);
    }
    if (!b->ended && bench_measures(&b->window))
        b->packets_after = b->rack.packets;
    if (!b->ended && (!bench_measures(&b->window) || b->window.params->ops))
        b->grants_after = grants_of(b);
    b->ended = b->ended || !bench_measures(&b->window);
}

static void work_on_core(struct actor *a, uint64_t ns)
{
    struct bench_rack *b = a->user;
    if (ns)
        a->ops->sleep(a, bench_core(&b->window, a->client, ns));
}

/* The time of the client's own core for one lock and unlock. */
static uint64_t cycle_ns(const struct actor *a)
{
    const struct bench_rack *b = a->user;
    return model_get(b->window.params->model, MODEL_client_cycle_ns);
}

static int cycle(struct actor *a, struct workload_op op)
{
    struct bench_rack *b = a->user;
    const struct workload *w = &b->window.params->workload;
    struct validation inside;
    struct hold h;
    work_on_core(a, cycle_ns(a));
    uint64_t begin = bench_now(&b->window);
    int rc;
    /* If all its requests are still being released, it waits until the servers have acknowledged one. */
    while ((rc = a->ops->lock(a, pawl_id(op.lock), op.mode, DEADLINE_NEVER, &h)) == -PAWL_ELIMIT)
        a->ops->sleep(a, NS_PER_US);
    if (rc)
        return rc;
    uint64_t took = bench_now(&b->window) - begin;
    b->window.out->violations += validator_enter(&b->window.validators[op.lock], op.mode, h.token, &inside);
    work_on_core(a, w->hold_ns);
    b->window.out->violations += validator_leave(&inside);
    uint64_t release_begin = bench_now(&b->window);
    rc = a->ops->unlock(a, &h);
    if (bench_now(&b->window) >= b->window.start_ns)
        mark(b);
    if (rc || !bench_measures(&b->window))
        return rc;
    hist_add(&b->window.hist, took);
    bench_count(&b->window, a->client, op.mode, took, release_begin);
    return 0;
}

/* ---- transactions ---- */

struct txn_actor {
    struct actor *actor;
    struct hold holds[TXN_LOCKS_MAX];
};

static int txn_lock(void *ctx, unsigned at, const struct txn_lock *l, uint64_t deadline)
{
    struct txn_actor *t = ctx;
    int rc;
    work_on_core(t->actor, cycle_ns(t->actor));
    while ((rc = t->actor->ops->lock(t->actor, pawl_id(l->lock), l->mode, deadline, &t->holds[at])) == -PAWL_ELIMIT)
        t->actor->ops->sleep(t->actor, NS_PER_US);
    return rc;
}

static int txn_lock_all(void *ctx, const struct txn *txn, uint64_t deadline)
{
    struct txn_actor *t = ctx;
    pawl_want wants[TXN_LOCKS_MAX];
    int rc;
    work_on_core(t->actor, txn->count * cycle_ns(t->actor));
    for (unsigned i = 0; i < txn->count; i++)
        wants[i] = (pawl_want){.key = pawl_id(txn->locks[i].lock), .mode = txn->locks[i].mode};
    while ((rc = t->actor->ops->lock_all(t->actor, wants, txn->count, deadline, t->holds)) == -PAWL_ELIMIT)
        t->actor->ops->sleep(t->actor, NS_PER_US);
    return rc;
}

static int txn_unlock(void *ctx, unsigned at)
{
    struct txn_actor *t = ctx;
    return t->actor->ops->unlock(t->actor, &t->holds[at]);
}

static uint64_t txn_token(void *ctx, unsigned at)
{
    const struct txn_actor *t = ctx;
    return t->holds[at].token;
}

static uint64_t txn_now(void *ctx)
{
    const struct txn_actor *t = ctx;
    const struct bench_rack *b = t->actor->user;
    return sim_host_clock(t->actor->process->host, bench_now(&b->window)); /* deadlines are by this clock */
}

static void txn_pause(void *ctx, uint64_t ns)
{
    const struct txn_actor *t = ctx;
    t->actor->ops->sleep(t->actor, ns);
}

static void txn_work(void *ctx, uint64_t ns)
{
    const struct txn_actor *t = ctx;
    work_on_core(t->actor, ns);
}

static const struct txn_calls txn_calls = {.lock = txn_lock,
                                           .lock_all = txn_lock_all,
                                           .unlock = txn_unlock,
                                           .token = txn_token,
                                           .now = txn_now,
                                           .pause = txn_pause,
                                           .work = txn_work,
                                           .forever = DEADLINE_NEVER};

static int transaction(struct actor *a)
{
    struct bench_rack *b = a->user;
    struct txn_actor t = {.actor = a};
    struct txn_run r = {.calls = &txn_calls,
                        .ctx = &t,
                        .validators = b->window.validators,
                        .exclusive = !(b->window.design->features & DESIGN_SHARED)};
    struct txn txn;
    txn_run_init(&r, &b->window.params->workload);
    int rc = txn_run(&r, &b->txns[a->client], &txn);
    b->window.out->violations += r.violations;
    if (bench_now(&b->window) >= b->window.start_ns)
        mark(b);
    if (!rc)
        bench_count_txn(&b->window, a->client, &txn, &r);
    return rc;
}

/* On a lock of the client's own host, or of another host. */
static struct workload_op next_op(struct bench_rack *b, unsigned client)
{
    struct workload_stream *s = &b->streams[client];
    struct workload_op op = workload_next(s);
    const struct bench_params *p = b->window.params;
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
    const struct workload *w = &b->window.params->workload;
    int rc = 0;
    if (bench_now(&b->window) < GATHER_NS)
        a->ops->sleep(a, GATHER_NS - bench_now(&b->window));
    while (!rc && !bench_is_over(&b->window, a->client)) {
        if (w->txn) {
            rc = transaction(a);
        } else {
            struct workload_op op = next_op(b, a->client);
            if (w->hot)
                op.lock = workload_hot(&b->streams[a->client],
                                       bench_now(&b->window) - min_u64(bench_now(&b->window), b->window.start_ns));
            rc = cycle(a, op);
        }
        if (++b->looks % LOOK_EVERY == 0)
            bench_window_progress(&b->window);
        if (!rc && w->think_ns)
            a->ops->sleep(a, w->think_ns);
    }
    if (rc && !b->window.error)
        b->window.error = rc;
    return true;
}

static struct rack_params rack_of(struct bench_rack *b)
{
    const struct bench_params *p = b->window.params;
    unsigned cores = (unsigned)model_get(p->model, MODEL_server_cores);
    bool spread = b->window.design->packet->on_hosts;                              /* as many cores, but on all hosts */
    unsigned parts = b->window.design->packet->divides && p->racks ? p->racks : 1; /* each has a server of its own */
    unsigned servers = spread ? p->nodes : parts;
    return (struct rack_params){
        .design = b->window.design,
        .knobs = bench_knobs(p, b->window.design),
        .model = p->model,
        .locks = p->workload.locks,
        .clients = p->clients,
        .hosts = p->nodes,
        .servers = servers,
        .racks = p->racks,
        .switch_locks = b->window.design->packet->spills && p->room < p->workload.locks ? p->room : 0,
        .cores = spread ? (cores + servers - 1) / servers : cores,
        .pool_cores = b->window.design->packet->switch_packet ? 1 : 0, /* FissLock 7.1: one core of each node for its agents */
        .tasks = 1,
        .requests = p->workload.txn ? TXN_REQUESTS : 0,
        .seed = p->workload.seed + b->window.round,
        .lease_ns = p->lease_ns ? p->lease_ns : LEASE_NS,
        .retry_ns = RETRY_NS,
        .work = work,
        .user = b,
    };
}

static int set_up(struct bench_rack *b, const struct bench_params *p, const struct design *design, unsigned round,
                  struct bench_round *out)
{
    b->streams = calloc(p->clients, sizeof *b->streams);
    b->txns = calloc(p->clients, sizeof *b->txns);
    int rc = b->streams && b->txns ? bench_window_open(&b->window, p, design, round, out) : -ENOMEM;
    if (rc)
        return rc;
    b->window.sim = &b->rack.sim;
    b->window.start_ns = GATHER_NS + p->warmup_ns;
    for (unsigned i = 0; i < p->clients; i++)
        workload_start(&b->streams[i], &p->workload, &b->window.zipf, round * p->clients + i);
    for (unsigned i = 0; i < p->clients && p->workload.txn; i++)
        txn_start(&b->txns[i], p->workload.txn, i, p->clients, p->workload.seed + round);
    struct rack_params params = rack_of(b);
    rc = rack_init(&b->rack, &params);
    if (!rc)
        bench_sim_watch(&b->window);
    return rc;
}

static int run(struct bench_rack *b, char why[BENCH_WHY_LEN])
{
    enum sim_end end = rack_run(&b->rack);
    int rc = bench_sim_verdict(&b->window, end, b->rack.clients_done, why);
    rack_free(&b->rack);
    return rc;
}

static void collect(struct bench_rack *b, uint64_t begin_ns)
{
    b->window.out->packets = b->packets_after - b->packets_before;
    b->window.out->granted = true;
    bench_add(&b->window.out->grants, &b->grants_before, &b->grants_after, sizeof b->grants_after);
    bench_sim_collect(&b->window, begin_ns);
}

/* Why the rack cannot be set up. */
static void explain_set_up(struct bench_rack *b, int rc, char why[BENCH_WHY_LEN])
{
    const struct rack_params r = b->window.params ? rack_of(b) : (struct rack_params){.design = NULL};
    if (rc == -EINVAL && r.design && rack_sim_hosts(&r) > SIM_HOSTS_MAX)
        snprintf(why, BENCH_WHY_LEN,
                 "too many hosts: %u, and lock servers: %u; with the other members of a rack they take %u simulated hosts, of %d",
                 r.hosts, r.servers, rack_sim_hosts(&r), SIM_HOSTS_MAX);
    else
        snprintf(why, BENCH_WHY_LEN, "cannot set up the simulated rack: %s", strerror(-rc));
}

int bench_rack_round(const struct bench_params *p, const struct design *design, unsigned round, struct bench_round *out,
                     char why[BENCH_WHY_LEN])
{
    uint64_t begin_ns = world_clock(CLOCK_MONOTONIC);
    struct bench_rack *b = calloc(1, sizeof *b);
    int rc = b ? set_up(b, p, design, round, out) : -ENOMEM;
    if (rc && b)
        explain_set_up(b, rc, why);
    else if (rc)
        snprintf(why, BENCH_WHY_LEN, "out of memory");
    else
        rc = run(b, why);
    if (!rc)
        collect(b, begin_ns);
    if (b) {
        bench_window_close(&b->window);
        free(b->streams);
        free(b->txns);
    }
    free(b);
    return rc;
}
