/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks in the simulated cluster: no faults, virtual time, the same figures on every machine. */
#include "workbench/bench/bench.h"
#include "workbench/bench/partition.h"
#include "workbench/bench/txn_run.h"
#include "workbench/bench/workload_io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_NONE_NS (3600 * NS_PER_S) /* for designs that cannot recover: no session is ever declared lost */
#define SPARE_FOR_DEATHS 1024           /* slots: as many as die within a lease or two */
#define GATHER_NS (20 * NS_PER_US)      /* how often a client that is ready looks whether all are */
#define IO_TURN_NS (5 * NS_PER_US)      /* how often one whose turn it is not looks whether it is */
#define TXN_ROW_BYTES 64                /* ShiftLock's artifact, client.rs */
#define LOOK_EVERY 64                   /* operations between two updates of the progress line */

struct sim_client {
    struct workload_stream stream;
    struct txn_stream txns; /* or these */
    uint64_t made, looks;
    bool ready;
    struct step_clock clock;
};

struct bench_sim {
    struct bench_window window; /* start 0: not all are ready */
    struct cluster cluster;
    struct partition partition; /* if the locks lie in parts */
    struct range_slot *slots;   /* with ranges */
    struct io_wires wires;
    struct workload_tally tallies[SIM_HOSTS_MAX];
    struct sim_client *clients;
    unsigned ready;
    struct fab_counts verbs_before, verbs_after; /* of all clients, at the first end of an operation in the window and after it */
    bool begun, ended;
};

static struct bench_sim *bench_of(const struct cluster_task *t)
{
    return t->client->cluster->params.user;
}

static const struct locker *locker_of(const struct cluster_task *t, uint64_t *lock)
{
    const struct bench_sim *b = bench_of(t);
    if (!b->window.params->partitioned)
        return &t->lockers[0];
    const struct locker *l = partition_locker(&b->partition, t, partition_host(&b->partition, *lock));
    *lock = partition_index(&b->partition, *lock);
    return l;
}

/* Counts all verbs of the window, also those of operations that did not end in it, as the counters of a server's NIC would. */
static void mark(struct bench_sim *b)
{
    uint64_t now = bench_now(&b->window), end = b->window.start_ns + b->window.params->seconds_ns;
    if (b->window.params->ops || b->window.params->deaths || now < b->window.start_ns || b->ended || (b->begun && now < end))
        return;
    struct fab_counts *to = b->begun ? &b->verbs_after : &b->verbs_before;
    for (unsigned i = 0; i < b->window.params->clients; i++)
        if (b->cluster.clients[i].tasks[0].ep)
            bench_add(to, NULL, &b->cluster.clients[i].tasks[0].ep->counts, sizeof *to);
    b->ended = b->begun;
    b->begun = true;
}

struct op_times {
    enum pawl_mode mode;
    bool timed;
    uint64_t begin_ns, bytes;
    uint64_t acquire_ns, acquire_round_trips, release_begin_ns;
    uint64_t acquire_parts[STEPS];
};

/* Adds the cost of an operation that counts. */
static void count(struct cluster_task *t, const struct fab_counts *before, const struct op_times *o)
{
    struct bench_sim *b = bench_of(t);
    struct bench_steps *steps = &b->window.out->steps;
    mark(b);
    if (!bench_measures(&b->window))
        return;
    if (!b->window.params->workload.io)
        hist_add(&b->window.hist, o->acquire_ns);
    else if (o->timed) /* the whole of it */
        hist_add(&b->window.hist, bench_now(&b->window) - o->begin_ns);
    b->window.out->bytes += o->bytes;
    bench_count(&b->window, t->client->id, o->mode, o->acquire_ns, o->release_begin_ns);
    const struct step_clock *clock = &b->clients[t->client->id].clock;
    for (unsigned step = 0; step < STEPS; step++) {
        steps->parts[o->mode == PAWL_SHARED ? 1 : 0][step] += o->acquire_parts[step];
        steps->parts[2][step] += clock->ns[step];
    }
    b->window.out->acquire_round_trips += o->acquire_round_trips;
    bench_add(&b->window.out->cycle, before, &t->ep->counts, sizeof *before);
}

static unsigned enter(struct bench_sim *b, const struct cluster_task *t, const struct workload_op *op, const struct hold *h,
                      struct validation *inside)
{
    if (op->end)
        return range_enter(b->slots, b->window.params->clients, t->client->id, op);
    uint64_t token =
        b->window.design->features & DESIGN_TOKENS ? h->token : 0; /* others keep there what they need for the release */
    return validator_enter(&b->window.validators[op->lock], op->mode, token, inside);
}

static unsigned leave(struct bench_sim *b, const struct cluster_task *t, const struct workload_op *op,
                      const struct validation *inside)
{
    if (!op->end)
        return validator_leave(inside);
    range_leave(b->slots, t->client->id);
    return 0;
}

static int lock_op(const struct locker *locker, pawl_key key, const struct workload_op *op, struct hold *h)
{
    return op->end ? locker_lock_range(locker, key, op->start, op->end, op->mode, DEADLINE_NEVER, h)
                   : locker_lock(locker, key, op->mode, DEADLINE_NEVER, h);
}

static struct step_clock *start_clock(const struct locker *locker, struct sim_client *c)
{
    c->clock = (struct step_clock){.since_ns = world_now(locker->seat.world)};
    locker->seat.me->clock = &c->clock;
    return &c->clock;
}

static void move_data(struct cluster_task *t, const struct workload_op *op)
{
    struct bench_sim *b = bench_of(t);
    unsigned here = t->client->id % b->window.params->nodes, from = op->fetches ? op->host : here,
             to = op->fetches ? here : op->host;
    cluster_sleep(t, io_move(&b->wires, from, to, op->bytes, bench_now(&b->window)) - bench_now(&b->window));
}

static void work_on_core(struct cluster_task *t, uint64_t ns)
{
    if (ns)
        cluster_sleep(t, bench_core(&bench_of(t)->window, t->client->id, ns));
}

/* One lock and unlock. */
static int cycle(struct cluster_task *t, struct workload_op op)
{
    struct bench_sim *b = bench_of(t);
    const struct workload *w = &b->window.params->workload;
    struct fab_counts before = t->ep->counts;
    struct validation inside;
    char text[WORKLOAD_NAME_LEN];
    struct hold h;
    work_on_core(t, model_get(b->window.params->model, MODEL_client_cycle_ns));
    uint64_t begin = bench_now(&b->window), lock = op.lock;
    const struct locker *locker = locker_of(t, &lock);
    struct step_clock *clock = start_clock(locker, &b->clients[t->client->id]);
    int rc = lock_op(locker, workload_key(w, lock, text), &op, &h);
    if (rc)
        return rc;
    struct op_times times = {.mode = op.mode,
                             .timed = op.timed,
                             .begin_ns = begin,
                             .bytes = op.bytes,
                             .acquire_ns = bench_now(&b->window) - begin,
                             .acquire_round_trips = t->ep->counts.round_trips - before.round_trips};
    step_done(&locker->seat, STEP_REST);
    memcpy(times.acquire_parts, clock->ns, sizeof clock->ns);
    b->window.out->violations += enter(b, t, &op, &h, &inside);
    if (op.bytes)
        move_data(t, &op);
    work_on_core(t, w->hold_ns);
    b->window.out->violations += leave(b, t, &op, &inside);
    if (b->window.params->deaths && bench_measures(&b->window) &&
        rng_chance(&b->clients[t->client->id].stream.random, 1, b->window.params->deaths))
        return -PAWL_ELOST; /* ShiftLock 4.8: it holds the lock and does not release it */
    times.release_begin_ns = bench_now(&b->window);
    start_clock(locker, &b->clients[t->client->id]);
    rc = locker_unlock(locker, &h);
    step_done(&locker->seat, STEP_REST);
    if (rc == -PAWL_ENOTOWNER &&
        b->window.design->ends) { /* the hold had ended by itself: the work under it would have to be repeated */
        b->window.out->aborts++;
        rc = 0;
    }
    if (!rc)
        count(t, &before, &times);
    return rc;
}

/* ---- transactions ---- */

struct txn_task {
    struct cluster_task *task;
    struct hold holds[TXN_LOCKS_MAX];
    _Alignas(8) unsigned char row[TXN_ROW_BYTES];
};

static int txn_lock(void *ctx, unsigned at, const struct txn_lock *l, uint64_t deadline)
{
    struct txn_task *t = ctx;
    char text[WORKLOAD_NAME_LEN];
    uint64_t lock = l->lock;
    const struct locker *locker = locker_of(t->task, &lock);
    const struct workload *w = &bench_of(t->task)->window.params->workload;
    work_on_core(t->task, model_get(bench_of(t->task)->window.params->model, MODEL_client_cycle_ns));
    return locker_lock(locker, workload_key(w, lock, text), l->mode, deadline, &t->holds[at]);
}

static int txn_unlock(void *ctx, unsigned at)
{
    struct txn_task *t = ctx;
    return locker_unlock(&t->task->lockers[0], &t->holds[at]);
}

static uint64_t txn_token(void *ctx, unsigned at)
{
    const struct txn_task *t = ctx;
    return bench_of(t->task)->window.design->features & DESIGN_TOKENS ? t->holds[at].token : 0;
}

static uint64_t txn_now(void *ctx)
{
    const struct txn_task *t = ctx;
    return world_now(t->task->lockers[0].seat.world); /* deadlines are by this clock */
}

static void txn_pause(void *ctx, uint64_t ns)
{
    struct txn_task *t = ctx;
    cluster_sleep(t->task, ns);
}

static void txn_work(void *ctx, uint64_t ns)
{
    struct txn_task *t = ctx;
    work_on_core(t->task, ns);
}

/* The row of a lock. Each client has one, behind the locks: to the NIC all rows are alike. */
static int txn_move(void *ctx, enum pawl_mode mode)
{
    struct txn_task *t = ctx;
    const struct sim_host *node = bench_of(t->task)->cluster.nodes[0].host;
    fab_addr row = FAB_ADDR(node->id, node->memory_bytes - (uint64_t)(t->task->client->id + 1) * TXN_ROW_BYTES);
    return mode == PAWL_SHARED ? fab_read(t->task->ep, row, t->row, sizeof t->row)
                               : fab_write(t->task->ep, row, t->row, sizeof t->row);
}

#define TXN_CALLS                                                                                                                  \
    .lock = txn_lock, .unlock = txn_unlock, .token = txn_token, .now = txn_now, .pause = txn_pause, .work = txn_work,              \
    .forever = DEADLINE_NEVER

static const struct txn_calls txn_calls = {TXN_CALLS}, data_calls = {TXN_CALLS, .move = txn_move};

static int transaction(struct cluster_task *task)
{
    struct bench_sim *b = bench_of(task);
    struct txn_task t = {.task = task};
    struct txn_run r = {.calls = b->window.params->workload.moves_data ? &data_calls : &txn_calls,
                        .ctx = &t,
                        .validators = b->window.validators,
                        /* Shared holds that end by themselves are no use to transactions (ShiftLock's artifact, client.rs). */
                        .exclusive = !(b->window.design->features & DESIGN_SHARED) || b->window.design->ends};
    struct fab_counts before = task->ep->counts;
    struct txn txn;
    txn_run_init(&r, &b->window.params->workload);
    int rc = txn_run(&r, &b->clients[task->client->id].txns, &txn);
    b->window.out->violations += r.violations;
    mark(b);
    if (rc || !bench_measures(&b->window))
        return rc;
    bench_count_txn(&b->window, task->client->id, &txn, &r);
    bench_add(&b->window.out->cycle, &before, &task->ep->counts, sizeof before);
    return 0;
}

/* Names have their locks before the measuring begins; each client makes its share. */
static int make_locks(struct cluster_task *t)
{
    struct bench_sim *b = bench_of(t);
    const struct workload *w = &b->window.params->workload;
    struct sim_client *c = &b->clients[t->client->id];
    for (; w->names && c->made * b->window.params->clients + t->client->id < w->locks && !*b->window.params->interrupted;
         c->made++) {
        char text[WORKLOAD_NAME_LEN];
        struct hold h;
        uint64_t lock = c->made * b->window.params->clients + t->client->id;
        int rc = locker_lock(&t->lockers[0], workload_key(w, lock, text), PAWL_EXCLUSIVE, DEADLINE_NEVER, &h);
        if (!rc)
            rc = locker_unlock(&t->lockers[0], &h);
        if (rc)
            return rc;
    }
    return 0;
}

static void gather(struct cluster_task *t)
{
    struct bench_sim *b = bench_of(t);
    struct sim_client *c = &b->clients[t->client->id];
    if (!c->ready && ++b->ready == b->window.params->clients)
        b->window.start_ns = bench_now(&b->window) + GATHER_NS + b->window.params->warmup_ns;
    c->ready = true;
    while (!b->window.start_ns && !b->window.error)
        cluster_sleep(t, GATHER_NS);
    if (b->window.start_ns - b->window.params->warmup_ns > bench_now(&b->window))
        cluster_sleep(t, b->window.start_ns - b->window.params->warmup_ns - bench_now(&b->window));
}

/* As the generator of ALock's artifact does (setup.h): one number from 1 on, local if its last two digits are below the percentage.
 * A local one stands for a lock of the own host. */
static uint64_t lock_by_key(struct bench_sim *b, struct workload_stream *s, unsigned home)
{
    const struct bench_params *p = b->window.params;
    uint64_t number = 1 + workload_lock(s), own = (p->workload.locks - home + p->nodes - 1) / p->nodes;
    return number % 100 * 10 < p->local ? number % own * p->nodes + home : number - 1;
}

/* On a lock of the client's own host, or of another host. */
static struct workload_op next_op(struct bench_sim *b, const struct cluster_task *t)
{
    struct workload_stream *s = &b->clients[t->client->id].stream;
    struct workload_op op = b->window.params->workload.io ? workload_io_next(s) : workload_next(s);
    if (!b->window.params->partitioned || b->window.params->nodes == 1)
        return op;
    unsigned home = partition_home(&b->partition, t->client->id);
    if (b->window.params->by_key) {
        op.lock = lock_by_key(b, s, home);
        return op;
    }
    bool local = rng_chance(&s->random, b->window.params->local, 1000);
    while ((partition_host(&b->partition, op.lock) == home) != local)
        op.lock = workload_lock(s);
    return op;
}

static bool work(struct cluster_task *t)
{
    struct bench_sim *b = bench_of(t);
    unsigned id = t->client->id;
    struct sim_client *c = &b->clients[id];
    int rc = make_locks(t);
    if (!rc)
        gather(t);
    while (!rc && !bench_is_over(&b->window, id)) {
        if (b->window.params->workload.txn) {
            rc = transaction(t);
        } else {
            struct workload_op op = next_op(b, t);
            if (b->window.params->workload.io && !op.end) {
                cluster_sleep(t, IO_TURN_NS);
                continue;
            }
            rc = cycle(t, op);
        }
        if (rc)
            break;
        if (++c->looks % LOOK_EVERY == 0)
            bench_window_progress(&b->window);
        if (b->window.params->workload.think_ns)
            cluster_sleep(t, b->window.params->workload.think_ns);
    }
    if (rc)
        b->window.out->aborts++;
    if (rc == -PAWL_ELOST || rc == -FAB_EFENCED)
        return false; /* the session was lost: another takes its place and goes on */
    if (rc && !b->window.error)
        b->window.error = rc;
    return true;
}

static uint64_t lease_of(const struct bench_sim *b)
{
    const struct bench_params *p = b->window.params;
    bool recovers = b->window.design->features & DESIGN_RECOVERY && !p->partitioned;
    return !recovers ? LEASE_NONE_NS : p->lease_ns ? p->lease_ns : model_get(p->model, MODEL_lease_ns);
}

static struct cluster_params cluster_of(struct bench_sim *b)
{
    const struct bench_params *p = b->window.params;
    return (struct cluster_params){
        .design = b->window.design,
        .knobs = bench_knobs(p, b->window.design),
        .model = p->model,
        .keys = p->workload.names ? PAWL_KEYS_NAMED : PAWL_KEYS_DENSE,
        .capacity = p->workload.locks,
        .range_units = p->workload.length_count ? p->workload.units : 0,
        .range_max = !p->workload.length_count ? 0
                     : p->workload.max_units   ? p->workload.max_units
                                               : p->workload.units,
        .clients = p->clients,
        .data_bytes = p->workload.moves_data ? (uint64_t)p->clients * TXN_ROW_BYTES : 0,
        .spare_slots = p->deaths ? SPARE_FOR_DEATHS : 0,
        .residents = p->residents,
        .hosts = p->nodes,
        .tasks = 1,
        .fabric_caps = SIM_FABRIC_CAPS,
        .seed = p->workload.seed + b->window.round,
        .lease_ns = lease_of(b),
        .work = work,
        .user = b,
    };
}

static int set_up(struct bench_sim *b, const struct bench_params *p, const struct design *design, unsigned round,
                  struct bench_round *out)
{
    b->clients = calloc(p->clients, sizeof *b->clients);
    b->slots = aligned_alloc(_Alignof(struct range_slot), p->clients * sizeof *b->slots);
    int rc = b->clients && b->slots ? bench_window_open(&b->window, p, design, round, out) : -ENOMEM;
    if (rc)
        return rc;
    memset(b->slots, 0, p->clients * sizeof *b->slots);
    b->window.sim = &b->cluster.sim;
    for (unsigned i = 0; i < p->clients; i++) {
        struct workload_stream *s = &b->clients[i].stream;
        workload_start(s, &p->workload, &b->window.zipf, round * p->clients + i);
        s->client = i;
        s->clients = p->clients;
        s->hosts = p->nodes;
        s->tallies = b->tallies;
        if (p->workload.txn)
            txn_start(&b->clients[i].txns, p->workload.txn, i, p->clients, p->workload.seed + round);
    }
    struct cluster_params params = cluster_of(b);
    rc = p->partitioned ? partition_init(&b->partition, &b->cluster, &params) : cluster_init(&b->cluster, &params);
    if (!rc)
        bench_sim_watch(&b->window);
    return rc;
}

static int run(struct bench_sim *b, char why[BENCH_WHY_LEN])
{
    enum sim_end end = cluster_run(&b->cluster);
    int rc = bench_sim_verdict(&b->window, end, b->cluster.clients_done, why);
    if (b->window.params->partitioned)
        partition_free(&b->partition);
    else
        cluster_free(&b->cluster);
    return rc;
}

static void collect(struct bench_sim *b, uint64_t begin_ns)
{
    struct bench_round *out = b->window.out;
    for (unsigned i = 0; i < b->window.params->clients && b->window.params->workload.length_count; i++)
        out->length_ops[(b->window.round * b->window.params->clients + i) % b->window.params->workload.length_count] +=
            b->window.counts[i];
    if (b->ended) {
        out->cycle = (struct fab_counts){0};
        bench_add(&out->cycle, &b->verbs_before, &b->verbs_after, sizeof out->cycle);
    }
    bench_sim_collect(&b->window, begin_ns);
}

int bench_sim_round(const struct bench_params *p, const struct design *design, unsigned round, struct bench_round *out,
                    char why[BENCH_WHY_LEN])
{
    uint64_t begin_ns = world_clock(CLOCK_MONOTONIC);
    struct bench_sim *b = calloc(1, sizeof *b);
    int rc = b ? set_up(b, p, design, round, out) : -ENOMEM;
    if (rc)
        snprintf(why, BENCH_WHY_LEN, "cannot set up the simulated cluster: %s", strerror(-rc));
    else
        rc = run(b, why);
    if (!rc)
        collect(b, begin_ns);
    if (b) {
        bench_window_close(&b->window);
        free(b->slots);
        free(b->clients);
    }
    free(b);
    return rc;
}
