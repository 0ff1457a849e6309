/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a rack in network namespaces, which are killed, stopped and cut off; clients that record their holds; and the oracle
 * over what they recorded. */
#ifndef PAWL_TESTS_LAB_CHAOS_H
#define PAWL_TESTS_LAB_CHAOS_H

#include "lib/base.h"
#include "lib/rng.h"
#include "pawl.h"
#include "tests/check.h"
#include "workbench/lab/child.h"
#include "workbench/lab/lab.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOSTS 4u        /* with clients: members 1 to 4 of the lab */
#define WORKERS 16u     /* four on each */
#define HOT 6u          /* names that all of them want */
#define HOLDS_MAX 20000 /* of one worker that are checked */
#define LOSSES_MAX 512
#define FAULTS_MAX 8192
#define LEASE_NS (5 * NS_PER_S) /* lock lease: longer than a busy machine stops a process */
#define LEASE_TEXT "5"
#define STALL_NS (LEASE_NS / 4)  /* of the whole machine: not held against the rack */
#define MEND_NS (120 * NS_PER_S) /* until every worker must make progress after the last fault */

/* ---- the record ---- */

struct held {
    uint64_t from_ns, to_ns, token;
    uint32_t lock, mode;
};

struct loss {
    uint64_t from_ns, at_ns;
};

/* The parts for which a fault is an excuse. */
enum fault_kind { FAULT_HOST, FAULT_GRANTER, FAULT_MACHINE, FAULT_OTHER };

struct fault {
    uint64_t from_ns, to_ns; /* to_ns 0: it has not ended */
    uint32_t kind, host;
};

static struct board {
    uint32_t stop;
    uint32_t calm; /* no fault has come yet: workers hold for moments only */
    uint64_t turns[WORKERS];
    uint64_t holds[WORKERS], losses[WORKERS];
    struct held hold[WORKERS][HOLDS_MAX];
    struct loss loss[WORKERS][LOSSES_MAX];
    struct fault fault[FAULTS_MAX];
    uint64_t faults;
} * board;

static inline uint64_t now_ns(void)
{
    return world_now(&world_real);
}

static inline void pause_for(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

static inline struct fault *begin_fault(enum fault_kind kind, unsigned host)
{
    uint64_t i = __atomic_fetch_add(&board->faults, 1, __ATOMIC_ACQ_REL);
    CHECK(i < FAULTS_MAX);
    board->fault[i] = (struct fault){.from_ns = now_ns(), .kind = kind, .host = host};
    return &board->fault[i];
}

/* A process that notices when this machine stops processes for long: hosts and granters may have been stopped as well. */
static inline pid_t start_watch(void)
{
    pid_t pid = child_fork();
    if (pid)
        return pid;
    for (uint64_t before = now_ns(), now;; before = now) {
        pause_for(STALL_NS / 20);
        now = now_ns();
        if (now - before < STALL_NS)
            continue;
        struct fault *f = begin_fault(FAULT_MACHINE, 0);
        f->from_ns = before;
        f->to_ns = now;
    }
}

/* ---- workers ---- */

/* How long a worker holds a lock, unless it is told to end. */
static inline void hold_for(uint64_t ns)
{
    for (uint64_t end = now_ns() + ns, now; (now = now_ns()) < end && !__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE);)
        pause_for(min_u64(end - now, 50 * NS_PER_MS));
}

/* Whether the session goes on. */
static inline bool worker_turn(unsigned w, pawl *p, struct rng *rng)
{
    char name[32];
    pawl_grant g;
    /* A name of its own, held for long: nothing but a fault ends it. */
    bool alone = rng_chance(rng, 1, 6) && !__atomic_load_n(&board->calm, __ATOMIC_ACQUIRE);
    struct held h = {.lock = alone ? HOT + w : (uint32_t)rng_below(rng, HOT),
                     .mode = rng_chance(rng, 1, 3) ? PAWL_SHARED : PAWL_EXCLUSIVE};
    snprintf(name, sizeof name, "name-%u", h.lock);
    int rc = pawl_timedlock(p, pawl_name(name), (enum pawl_mode)h.mode, pawl_in(2 * NS_PER_S), &g);
    if (rc == -ETIMEDOUT || rc == -PAWL_EHELD || rc == -EAGAIN)
        return true;
    if (rc)
        return false;
    h.from_ns = now_ns();
    h.token = g.token;
    hold_for(alone ? rng_below(rng, LEASE_NS * 3 / 2) : rng_below(rng, rng_chance(rng, 1, 10) ? 200 * NS_PER_MS : 2 * NS_PER_MS));
    h.to_ns = now_ns();
    rc = pawl_check(p, &g);
    if (!rc && board->holds[w] < HOLDS_MAX)
        board->hold[w][board->holds[w]++] = h;
    if (rc && board->losses[w] < LOSSES_MAX)
        board->loss[w][board->losses[w]++] = (struct loss){.from_ns = h.from_ns, .at_ns = h.to_ns};
    __atomic_fetch_add(&board->turns[w], 1, __ATOMIC_RELEASE);
    return !pawl_unlock(p, &g);
}

static inline void worker(const struct lab *lab, unsigned w, const char *place, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    if (lab_enter(lab, 1, 1 + w % HOSTS))
        _exit(1);
    while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE)) {
        const pawl_options o = {.open_ns = 5 * NS_PER_S};
        pawl *p;
        if (pawl_open(place, &o, &p)) {
            pause_for(50 * NS_PER_MS);
            continue;
        }
        while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE) && worker_turn(w, p, &rng))
            ;
        pawl_close(p);
    }
    _exit(0);
}

/* ---- the oracle ---- */

static inline int by_time(const void *a, const void *b)
{
    uint64_t x = ((const struct held *)a)->from_ns, y = ((const struct held *)b)->from_ns;
    return x < y ? -1 : x > y;
}

/* I1 and I2 over the holds that were valid at their end. How many there were. */
static inline uint64_t judge_holds(void)
{
    uint64_t writer[HOT + WORKERS] = {0}, reader[HOT + WORKERS] = {0}, token[HOT + WORKERS] = {0};
    struct held *all = malloc(sizeof *all * WORKERS * HOLDS_MAX);
    size_t n = 0;
    CHECK(all);
    for (unsigned w = 0; w < WORKERS; w++) {
        memcpy(&all[n], board->hold[w], board->holds[w] * sizeof *all);
        n += board->holds[w];
    }
    if (n)
        qsort(all, n, sizeof *all, by_time);
    for (size_t i = 0; i < n; i++) {
        const struct held *h = &all[i];
        bool writes = h->mode == PAWL_EXCLUSIVE;
        if (h->from_ns < writer[h->lock] || (writes && h->from_ns < reader[h->lock]))
            CHECK_FAIL("I1: lock %u is held twice at %" PRIu64 ", with token %" PRIu64, h->lock, h->from_ns, h->token);
        if (writes && h->token <= token[h->lock])
            CHECK_FAIL("I2: the token of lock %u fell from %" PRIu64 " to %" PRIu64, h->lock, token[h->lock], h->token);
        token[h->lock] = writes ? h->token : token[h->lock];
        uint64_t *until = writes ? &writer[h->lock] : &reader[h->lock];
        *until = max_u64(*until, h->to_ns);
    }
    free(all);
    return n;
}

/* A hold may be lost if its host did not reach its granter for a lock lease: the host was cut off, a process of it was stopped, or
 * the granter was away; or this machine had no time for them. Faults of coordinators, of etcd and of their hosts excuse nothing.
 * `short_ns`: a granter that was away for less excuses nothing either, since hosts report to it what they hold. */
static inline bool is_excused(unsigned w, const struct loss *l, uint64_t short_ns)
{
    for (uint64_t i = 0; i < board->faults; i++) {
        const struct fault *f = &board->fault[i];
        uint64_t to = f->to_ns ? f->to_ns : l->at_ns;
        if (f->kind == FAULT_OTHER || (f->kind == FAULT_HOST && f->host != 1 + w % HOSTS) ||
            (f->kind == FAULT_GRANTER && to - f->from_ns < short_ns))
            continue;
        if (f->from_ns <= l->at_ns && to + 2 * LEASE_NS >= l->from_ns)
            return true;
    }
    return false;
}

/* To explain a loss: the faults, with times relative to it. */
static inline void print_faults(uint64_t at_ns)
{
    static const char *const kinds[] = {"host", "granter", "machine", "coordinator or etcd"};
    for (uint64_t i = 0; i < board->faults; i++) {
        const struct fault *f = &board->fault[i];
        printf("  %s %u: from %" PRId64 " to %" PRId64 " ms\n", kinds[f->kind], f->host,
               ((int64_t)f->from_ns - (int64_t)at_ns) / (int64_t)NS_PER_MS,
               f->to_ns ? ((int64_t)f->to_ns - (int64_t)at_ns) / (int64_t)NS_PER_MS : 0);
    }
}

static inline uint64_t judge_losses(uint64_t short_ns)
{
    uint64_t count = 0;
    for (unsigned w = 0; w < WORKERS; w++)
        for (uint64_t i = 0; i < board->losses[w]; i++, count++)
            if (!is_excused(w, &board->loss[w][i], short_ns)) {
                print_faults(board->loss[w][i].at_ns);
                CHECK_FAIL("worker %u on host %u lost a hold of %" PRIu64 " ms at %" PRIu64 ", and its host and granter were well",
                           w, 1 + w % HOSTS, (board->loss[w][i].at_ns - board->loss[w][i].from_ns) / NS_PER_MS,
                           board->loss[w][i].at_ns);
            }
    return count;
}

#endif
