/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks on this machine, on shared memory, over UDP or on a memory node: real processes (or threads), each with a session of
 * its own, pinned to the cores in turn. */
#include "workbench/bench/shm.h"
#include "client/memory.h"
#include "workbench/baselines/baselines.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_NS (2 * NS_PER_MS)     /* how often the parent looks up */
#define PATIENCE_NS (20 * NS_PER_S) /* for clients to end after they were told */
#define OPENING_NS (300 * NS_PER_S) /* for all of them to open their sessions and map large tables */
#define HELD_EACH RECORDS_MAX       /* ranges of a session that holds them all the while */

static void *shared_memory(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static uint64_t report_bytes(const struct bench_shm *b)
{
    return b->params->clients * sizeof *b->reports;
}

static uint64_t types_bytes(const struct bench_shm *b)
{
    return b->params->workload.txn ? b->params->clients * TXN_TYPES_MAX * sizeof *b->types : 1;
}

static uint64_t slot_bytes(const struct bench_shm *b)
{
    return b->params->clients * sizeof *b->slots;
}

/* ---- the parent ---- */

static bool start_client(struct bench_shm *b, struct client *c)
{
    if (b->params->threads)
        return !pthread_create(&c->thread, NULL, bench_client_main, c);
    c->pid = child_fork();
    if (c->pid)
        return c->pid > 0;
    /* The terminal's signals reach the children, too, but the parent says when to end. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    bench_client_main(c);
    _exit(0);
}

static void look_again_later(void)
{
    const struct timespec t = {.tv_nsec = (long)LOOK_NS};
    nanosleep(&t, NULL);
}

static bool all_finished(const struct bench_shm *b)
{
    for (unsigned i = 0; i < b->params->clients; i++)
        if (!__atomic_load_n(&b->reports[i].finished, __ATOMIC_SEQ_CST))
            return false;
    return true;
}

static uint64_t ops_so_far(const struct bench_shm *b)
{
    uint64_t ops = 0;
    for (unsigned i = 0; i < b->params->clients; i++)
        ops += __atomic_load_n(&b->reports[i].ops, __ATOMIC_RELAXED);
    return ops;
}

/* A client process that ended without saying so died. */
static int find_dead(struct bench_shm *b, struct client *clients, char why[BENCH_WHY_LEN])
{
    for (unsigned i = 0; i < b->params->clients && !b->params->threads; i++) {
        int status;
        if (clients[i].pid <= 0 || waitpid(clients[i].pid, &status, WNOHANG) != clients[i].pid)
            continue;
        clients[i].pid = 0;
        if (!__atomic_load_n(&b->reports[i].finished, __ATOMIC_SEQ_CST)) {
            snprintf(why, BENCH_WHY_LEN, "client %u ended unexpectedly, by %s %d", i, WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            return -ECHILD;
        }
    }
    return 0;
}

static int await_ready(struct bench_shm *b, struct client *clients, char why[BENCH_WHY_LEN])
{
    uint64_t until = world_clock(CLOCK_MONOTONIC) + OPENING_NS;
    while (__atomic_load_n(&b->control->ready, __ATOMIC_SEQ_CST) < b->params->clients) {
        int rc = find_dead(b, clients, why);
        if (rc)
            return rc;
        if (world_clock(CLOCK_MONOTONIC) > until) {
            snprintf(why, BENCH_WHY_LEN, "the clients did not open their sessions in time");
            return -ETIMEDOUT;
        }
        look_again_later();
    }
    return 0;
}

/* Until the time is over, the operations are done, a client died or a signal came. */
static int watch(struct bench_shm *b, struct client *clients, uint64_t start, char why[BENCH_WHY_LEN])
{
    const struct bench_params *p = b->params;
    uint64_t told = UINT64_MAX;
    int rc = 0;
    while (!all_finished(b)) {
        uint64_t now = world_clock(CLOCK_MONOTONIC);
        bool over = rc || *p->interrupted || (!p->ops && now - start >= p->seconds_ns);
        if (over && told == UINT64_MAX) {
            __atomic_store_n(&b->control->stop, 1, __ATOMIC_SEQ_CST);
            told = now;
        }
        if (told != UINT64_MAX && now - told > PATIENCE_NS) {
            snprintf(why, BENCH_WHY_LEN, "a client does not end: it waits for a lock that is never granted");
            return -ETIMEDOUT;
        }
        if (!rc)
            rc = find_dead(b, clients, why);
        bench_progress(p, b->round, b->design, p->ops ? ops_so_far(b) : now - start);
        look_again_later();
        if (rc && told != UINT64_MAX) /* the others may wait for the dead one */
            return rc;
    }
    return rc;
}

/* Ends all clients, whatever happened. */
static void end_clients(struct bench_shm *b, struct client *clients, unsigned started, bool kill_them)
{
    for (unsigned i = 0; i < started; i++)
        if (b->params->threads)
            pthread_join(clients[i].thread, NULL);
        else
            child_end(&clients[i].pid, kill_them ? SIGKILL : 0);
}

/* Sums the grants by granter: each host's counters, as its last client saw them. If hosts do not count, the servers granted. */
static void add_grants(const struct bench_shm *b, struct bench_round *out)
{
    unsigned nodes = b->params->nodes ? b->params->nodes : 1;
    out->granted = true;
    if (!b->design->packet->host_grants)
        out->grants.by_server = out->ops;
    for (unsigned host = 0; host < nodes && b->design->packet->host_grants; host++) {
        struct packet_grants last = {0};
        for (unsigned i = host; i < b->params->clients; i += nodes) {
            const struct packet_grants *g = &b->reports[i].grants;
            if (g->by_switch + g->by_agent + g->by_server + g->local >=
                last.by_switch + last.by_agent + last.by_server + last.local)
                last = *g;
        }
        bench_add(&out->grants, NULL, &last, sizeof last);
    }
}

static int collect(const struct bench_shm *b, uint64_t start, struct bench_round *out, char why[BENCH_WHY_LEN])
{
    static struct hist all; /* too large for a stack, and only the parent's one thread is here */
    uint64_t counts[BENCH_CLIENTS_MAX], end = start;
    hist_init(&all);
    for (unsigned i = 0; i < b->params->clients; i++) {
        const struct client_report *r = &b->reports[i];
        if (r->error) {
            memcpy(why, r->why, BENCH_WHY_LEN);
            return r->error;
        }
        counts[i] = r->ops;
        out->ops += r->ops;
        out->aborts += r->aborts;
        out->timeouts += r->timeouts;
        out->violations += r->violations;
        out->fast += r->fast;
        out->peak_rss = max_u64(out->peak_rss, r->peak_rss);
        end = max_u64(end, r->end_ns);
        hist_merge(&all, &r->hist);
    }
    for (unsigned t = 0; t < TXN_TYPES_MAX && b->params->workload.txn; t++) {
        static struct hist type;
        hist_init(&type);
        for (unsigned i = 0; i < b->params->clients; i++)
            hist_merge(&type, &b->types[i * TXN_TYPES_MAX + t]);
        bench_type_latencies(&out->types[t], &type);
    }
    if (b->params->packets)
        add_grants(b, out);
    out->elapsed_ns = end - start;
    bench_fairness(out, counts, b->params->clients);
    bench_latencies(out, &all);
    return 0;
}

static int run_clients(struct bench_shm *b, struct client *clients, struct bench_round *out, char why[BENCH_WHY_LEN])
{
    unsigned started = 0, wanted = b->params->clients;
    for (; started < wanted; started++) {
        clients[started] = (struct client){.bench = b, .number = started};
        if (!start_client(b, &clients[started]))
            break;
    }
    int rc = 0;
    if (started < wanted) {
        snprintf(why, BENCH_WHY_LEN, "cannot start client %u: %s", started, strerror(errno));
        rc = -EAGAIN;
    }
    if (!rc)
        rc = await_ready(b, clients, why);
    if (rc)
        __atomic_store_n(&b->control->stop, 1, __ATOMIC_SEQ_CST);
    uint64_t start = world_clock(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < started; i++)
        if (write(b->start_pipe[1], "", 1) != 1)
            rc = rc ? rc : -errno;
    if (!rc)
        rc = watch(b, clients, start, why);
    end_clients(b, clients, started, rc != 0);
    return rc ? rc : collect(b, start, out, why);
}

int bench_shm_round(struct bench_shm *b, unsigned round, struct bench_round *out, char why[BENCH_WHY_LEN])
{
    uint64_t begin = world_clock(CLOCK_MONOTONIC);
    struct client *clients = calloc(b->params->clients, sizeof *clients);
    if (!clients)
        return bench_fail(why, -ENOMEM, "clients");
    *out = (struct bench_round){0};
    b->round = round;
    memset(b->reports, 0, report_bytes(b));
    for (unsigned i = 0; i < b->params->clients; i++)
        hist_init(&b->reports[i].hist);
    for (unsigned i = 0; i < b->params->clients * TXN_TYPES_MAX && b->params->workload.txn; i++)
        hist_init(&b->types[i]);
    memset(b->slots, 0, slot_bytes(b));
    *b->control = (struct control){0};
    int rc = run_clients(b, clients, out, why);
    out->wall_ns = world_clock(CLOCK_MONOTONIC) - begin;
    free(clients);
    return rc;
}

/* ---- the space ---- */

/* Makes every lock before the first round: the benchmark measures locking, not making locks. */
static int make_locks(struct bench_shm *b, char why[BENCH_WHY_LEN])
{
    const struct workload *w = &b->params->workload;
    const pawl_options options = {
        .design = b->design->name,
        .keys = w->names ? PAWL_KEYS_NAMED : PAWL_KEYS_SPARSE,
        .capacity = w->locks,
        .sessions = b->params->clients + BENCH_SESSIONS_SPARE + (w->held ? BENCH_HOLDERS_MAX : 0),
        .holds = w->held ? HELD_EACH : 0,
        .range_units = w->length_count ? w->units : 0,
        .range_max = w->length_count ? w->units : 0,
        .flags = PAWL_MUST_CREATE,
    };
    static const pawl_options there;
    bool made = b->place.node; /* by the node */
    char text[WORKLOAD_NAME_LEN];
    pawl_grant grant;
    pawl *p;
    int rc = pawl_open_tuned(b->place.at, made ? &there : &options, made ? NULL : bench_knobs(b->params, b->design), &p);
    if (rc)
        return bench_fail(why, rc, "cannot make a space");
    for (uint64_t lock = 0; lock < w->locks && !rc && !*b->params->interrupted; lock++) {
        rc = pawl_lock(p, workload_key(w, lock, text), PAWL_EXCLUSIVE, &grant);
        if (!rc)
            rc = pawl_unlock(p, &grant);
    }
    if (rc)
        bench_fail(why, rc, "cannot make the locks");
    pawl_close(p);
    return rc;
}

/* Single units, as far from each other as there is room for. */
static int hold_ranges(struct bench_shm *b, char why[BENCH_WHY_LEN])
{
    const struct workload *w = &b->params->workload;
    const pawl_options options = {.flags = PAWL_NO_CREATE, .lease_ns = PAWL_LEASE_FOREVER};
    char text[WORKLOAD_NAME_LEN];
    pawl_grant grant;
    int rc = 0;
    uint64_t held = w->held;
    if (held && b->design == &design_ofd) { /* a process may not have so many descriptions as it would take */
        rc = pawl_open(b->place.at, &options, &b->holders[b->holder_count++]);
        if (!rc)
            rc = ofd_hold_apart(&memory_of(b->holders[0])->locker.seat, 0, w->units / 2, w->units / 2 / held, held, &b->held_fd);
        held = 0;
    }
    for (uint64_t i = 0; i < held && !rc && !*b->params->interrupted; i++) {
        if (i % HELD_EACH == 0) {
            rc = pawl_open(b->place.at, &options, &b->holders[b->holder_count]);
            if (rc)
                return bench_fail(why, rc, "cannot open a session for what is held all the while");
            b->holder_count++;
        }
        pawl *p = b->holders[b->holder_count - 1];
        uint64_t at = w->units / 2 + i * (w->units / 2 / w->held);
        const uint64_t unit = memory_of(p)->space.unit_bytes;
        rc = pawl_lock_range(p, workload_key(w, i % w->locks, text), at * unit, (at + 1) * unit, PAWL_EXCLUSIVE, PAWL_TRY, &grant);
    }
    return rc ? bench_fail(why, rc, "cannot hold so many ranges") : 0;
}

int bench_shm_open(const struct bench_params *p, const struct design *design, struct bench_shm **out, char why[BENCH_WHY_LEN])
{
    struct bench_shm *b = calloc(1, sizeof *b);
    if (!b)
        return bench_fail(why, -ENOMEM, "benchmark");
    b->params = p;
    b->design = design;
    b->start_pipe[0] = b->start_pipe[1] = -1;
    *out = b; /* from here on bench_shm_close cleans up */
    b->control = shared_memory(sizeof *b->control);
    b->reports = shared_memory(report_bytes(b));
    b->validators = shared_memory(validator_bytes(b));
    b->slots = shared_memory(slot_bytes(b));
    b->types = shared_memory(types_bytes(b));
    if (!b->control || !b->reports || !b->validators || !b->slots || !b->types || pipe2(b->start_pipe, O_CLOEXEC))
        return bench_fail(why, -ENOMEM, "memory to share with the clients");
    int rc = zipf_init(&b->zipf, workload_items(&p->workload), (uint32_t)p->workload.zipf);
    if (rc)
        return bench_fail(why, rc, "the distribution of the locks");
    rc = bench_place_open(&b->place, p, design, why);
    if (rc || !b->place.at[0] || (p->node && !p->workload.names))
        return rc; /* dense keys are there */
    rc = make_locks(b, why);
    return rc ? rc : hold_ranges(b, why);
}

void bench_shm_close(struct bench_shm *b)
{
    if (!b)
        return;
    if (b->held_fd > 0)
        close(b->held_fd);
    /* The sessions that hold ranges end with this process: releasing thousands of holds in order would take longer than the whole
     * measurement, and their space is removed now. */
    bench_place_close(&b->place);
    for (unsigned i = 0; i < 2; i++)
        if (b->start_pipe[i] >= 0)
            close(b->start_pipe[i]);
    if (b->control)
        munmap(b->control, sizeof *b->control);
    if (b->reports)
        munmap(b->reports, report_bytes(b));
    if (b->validators)
        munmap(b->validators, validator_bytes(b));
    if (b->slots)
        munmap(b->slots, slot_bytes(b));
    if (b->types)
        munmap(b->types, types_bytes(b));
    free(b);
}
