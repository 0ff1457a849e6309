/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a benchmark on this machine: single locks, ranges, or transactions. */
#include "client/memory.h"
#include "client/net.h"
#include "workbench/bench/shm.h"
#include "workbench/bench/txn_run.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define TIMED_EVERY 8                /* acquisitions of which one is timed: reading the clock twice costs as much as a lock */
#define SPIN_MAX_NS (50 * NS_PER_US) /* shorter pauses cannot be slept */

int bench_fail(char why[BENCH_WHY_LEN], int rc, const char *what)
{
    const char *more = pawl_explain();
    snprintf(why, BENCH_WHY_LEN, "%s: %s", what, *more ? more : pawl_strerror(rc));
    return rc;
}

static void pause_for(uint64_t ns)
{
    uint64_t until = world_clock(CLOCK_MONOTONIC) + ns;
    if (ns > SPIN_MAX_NS) {
        struct timespec t = {.tv_sec = (time_t)(until / NS_PER_S), .tv_nsec = (long)(until % NS_PER_S)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    while (world_clock(CLOCK_MONOTONIC) < until)
        ;
}

static int lock_op(pawl *p, pawl_key key, const struct workload_op *op, pawl_grant *out)
{
    if (!op->end)
        return pawl_lock(p, key, op->mode, out);
    const uint64_t unit = memory_of(p)->space.unit_bytes;
    return pawl_lock_range(p, key, op->start * unit, op->end * unit, op->mode, UINT64_MAX, out);
}

/* Locks, validates, unlocks. False: it cannot go on. */
static bool cycle(struct bench_shm *b, pawl *p, unsigned number, struct workload_op op, bool timed)
{
    struct client_report *r = &b->reports[number];
    const struct workload *w = &b->params->workload;
    char text[WORKLOAD_NAME_LEN];
    pawl_key key = workload_key(w, op.lock, text);
    pawl_grant grant;
    struct validation inside;
    uint64_t begin = timed ? world_clock(CLOCK_MONOTONIC) : 0;
    int rc = lock_op(p, key, &op, &grant);
    if (unlikely(rc)) {
        r->aborts++;
        r->error = bench_fail(r->why, rc, "a client could not lock");
        return false;
    }
    if (timed)
        hist_add(&r->hist, world_clock(CLOCK_MONOTONIC) - begin);
    r->violations += op.end ? range_enter(b->slots, b->params->clients, number, &op)
                            : validator_enter(&b->validators[op.lock], op.mode, grant.token, &inside);
    if (w->hold_ns)
        pause_for(w->hold_ns);
    if (op.end)
        range_leave(b->slots, number);
    else
        r->violations += validator_leave(&inside);
    rc = pawl_unlock(p, &grant);
    if (unlikely(rc))
        r->error = bench_fail(r->why, rc, "a client could not unlock");
    return !rc;
}

/* ---- transactions ---- */

struct txn_client {
    pawl *p;
    const struct workload *workload;
    pawl_grant grants[TXN_LOCKS_MAX];
};

static int txn_lock(void *ctx, unsigned at, const struct txn_lock *l, uint64_t deadline)
{
    struct txn_client *t = ctx;
    char text[WORKLOAD_NAME_LEN];
    return pawl_timedlock(t->p, workload_key(t->workload, l->lock, text), l->mode, deadline, &t->grants[at]);
}

static int txn_lock_all(void *ctx, const struct txn *txn, uint64_t deadline)
{
    struct txn_client *t = ctx;
    char texts[TXN_LOCKS_MAX][WORKLOAD_NAME_LEN];
    pawl_want wants[TXN_LOCKS_MAX];
    for (unsigned i = 0; i < txn->count; i++)
        wants[i] = (pawl_want){.key = workload_key(t->workload, txn->locks[i].lock, texts[i]), .mode = txn->locks[i].mode};
    return pawl_lock_all(t->p, wants, txn->count, deadline, t->grants);
}

static int txn_unlock(void *ctx, unsigned at)
{
    struct txn_client *t = ctx;
    return pawl_unlock(t->p, &t->grants[at]);
}

static int txn_unlock_all(void *ctx, unsigned count)
{
    struct txn_client *t = ctx;
    return pawl_unlock_all(t->p, t->grants, count);
}

static uint64_t txn_token(void *ctx, unsigned at)
{
    const struct txn_client *t = ctx;
    return t->grants[at].token;
}

static uint64_t txn_now(void *ctx)
{
    (void)ctx;
    return world_clock(CLOCK_MONOTONIC);
}

static void txn_pause(void *ctx, uint64_t ns)
{
    (void)ctx;
    pause_for(ns);
}

static const struct txn_calls txn_calls = {.lock = txn_lock,
                                           .lock_all = txn_lock_all,
                                           .unlock = txn_unlock,
                                           .unlock_all = txn_unlock_all,
                                           .token = txn_token,
                                           .now = txn_now,
                                           .pause = txn_pause,
                                           .forever = UINT64_MAX};

/* False: it cannot go on. */
static bool transaction(struct bench_shm *b, unsigned number, struct txn_stream *stream, struct txn_run *run, uint64_t *done)
{
    struct client_report *r = &b->reports[number];
    struct txn txn;
    int rc = txn_run(run, stream, &txn);
    r->violations += run->violations;
    r->timeouts += run->aborted;
    if (rc) {
        r->error = bench_fail(r->why, rc, "a client could not lock or unlock");
        return false;
    }
    if (!run->aborted) {
        hist_add(&r->hist, run->locked_ns);
        hist_add(&b->types[number * TXN_TYPES_MAX + txn.type], run->locked_ns);
        ++*done;
    }
    return true;
}

static void work_transactions(struct bench_shm *b, unsigned number, pawl *p)
{
    struct client_report *r = &b->reports[number];
    const struct workload *w = &b->params->workload;
    struct txn_client client = {.p = p, .workload = w};
    struct txn_run run = {
        .calls = &txn_calls, .ctx = &client, .validators = b->validators, .exclusive = !(b->design->features & DESIGN_SHARED)};
    struct txn_stream stream;
    uint64_t share = bench_share(b->params, number), done = 0;
    txn_run_init(&run, w);
    txn_start(&stream, w->txn, number, b->params->clients, w->seed + b->round);
    while (!__atomic_load_n(&b->control->stop, __ATOMIC_RELAXED) && (!b->params->ops || done < share)) {
        if (!transaction(b, number, &stream, &run, &done))
            break;
        __atomic_store_n(&r->ops, done, __ATOMIC_RELAXED);
        if (w->think_ns)
            pause_for(w->think_ns);
    }
    r->end_ns = world_clock(CLOCK_MONOTONIC);
}

static void work(struct bench_shm *b, unsigned number, pawl *p)
{
    struct client_report *r = &b->reports[number];
    struct workload_stream stream;
    uint64_t share = bench_share(b->params, number), done = 0;
    workload_start(&stream, &b->params->workload, &b->zipf, b->round * b->params->clients + number);
    while (!__atomic_load_n(&b->control->stop, __ATOMIC_RELAXED) && (!b->params->ops || done < share)) {
        if (!cycle(b, p, number, workload_next(&stream), done % TIMED_EVERY == 0))
            break;
        __atomic_store_n(&r->ops, ++done, __ATOMIC_RELAXED);
        if (b->params->workload.think_ns)
            pause_for(b->params->workload.think_ns);
    }
    r->end_ns = world_clock(CLOCK_MONOTONIC);
}

static void pin(unsigned number)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || !CPU_COUNT(&allowed))
        return;
    unsigned skip = number % (unsigned)CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

/* Maps every page before the start: the first access to each would cost more than the operations to be measured. */
static void touch_all(struct bench_shm *b, pawl *p)
{
    const struct memory_session *m = memory_of(p);
    if (m && m->segment && !layout_is_sparse(&m->segment->header)) /* that may be more than there is */
        madvise(m->segment->base, m->segment->size, MADV_POPULATE_WRITE);
    madvise(b->validators, validator_bytes(b), MADV_POPULATE_WRITE);
}

void *bench_client_main(void *arg)
{
    struct client *c = arg;
    struct bench_shm *b = c->bench;
    struct client_report *r = &b->reports[c->number];
    struct rusage usage;
    pawl *p;
    char go;
    pin(c->number);
    int rc = bench_place_session(&b->place, c->number, &p);
    if (rc)
        r->error = bench_fail(r->why, rc, "a client could not open the space");
    else
        touch_all(b, p);
    const struct net *net = rc ? NULL : net_of(p);
    r->fast = net && net->udp.fast;
    __atomic_fetch_add(&b->control->ready, 1, __ATOMIC_SEQ_CST);
    while (read(b->start_pipe[0], &go, 1) < 0 && errno == EINTR)
        ;
    if (!rc) {
        if (b->params->workload.txn)
            work_transactions(b, c->number, p);
        else
            work(b, c->number, p);
        if (net && net->host.design->host_grants)
            r->grants = net->host.design->host_grants(net->host.memory);
        getrusage(RUSAGE_SELF, &usage);
        r->peak_rss = (uint64_t)usage.ru_maxrss * 1024;
        pawl_close(p);
    }
    __atomic_store_n(&r->finished, true, __ATOMIC_SEQ_CST);
    return NULL;
}
