/* SPDX-License-Identifier: Apache-2.0 */
/* The validator: threads with a handle each, and threads that share one, lock at random. A lock protects a pair of plain words: a
 * holder finds them equal, writers change them one after the other, and the thread sanitizer reports accesses that the lock does
 * not order. */
#include "lib/rng.h"
#include "tests/shm/space.h"

#include <pthread.h>

#define THREADS 6
#define LOCKS 5
#define PATIENCE_NS (200 * NS_PER_US) /* of waiters that give up: about as long as the others hold a lock */

/* On lines of their own, or the locks would not be all that they share. */
static struct {
    _Alignas(CACHE_LINE) uint64_t left, right;
    uint64_t last_token;
} protected[LOCKS];

static struct worker {
    pthread_t thread;
    pawl *p;
    struct rng rng;
    uint64_t until_ns;
    uint64_t writes, reads, upgrades, refused;
} workers[THREADS];

static pawl_key key(unsigned i)
{
    return pawl_id(i * UINT64_C(0x9e3779b97f4a7c15));
}

static void write_under(struct worker *w, unsigned i, const pawl_grant *g)
{
    CHECK_EQ(protected[i].left, protected[i].right);
    CHECK(g->token > protected[i].last_token);
    protected[i].last_token = g->token;
    protected[i].left++;
    if (rng_chance(&w->rng, 1, 8))
        sched_yield();
    protected[i].right++;
    w->writes++;
}

static void read_under(struct worker *w, unsigned i, const pawl_grant *g)
{
    uint64_t left = protected[i].left;
    if (rng_chance(&w->rng, 1, 8))
        sched_yield();
    CHECK_EQ(left, protected[i].right);
    CHECK(g->token > protected[i].last_token);
    w->reads++;
}

/* Through submit, and in half of the cases cancelled at once. */
static int lock_later(struct worker *w, unsigned i, enum pawl_mode mode, pawl_grant *out)
{
    uint64_t id;
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = mode, .key = key(i), .deadline_ns = pawl_in(PATIENCE_NS), .user = w};
    pawl_completion c;
    CHECK_OK(pawl_submit(w->p, &r, &id));
    if (rng_chance(&w->rng, 1, 2))
        pawl_cancel(w->p, id);
    CHECK_EQ(pawl_reap(w->p, &c, 1, pawl_in(LIMIT_NS)), 1);
    CHECK(c.user == w);
    *out = c.grant;
    return c.result;
}

static int lock_somehow(struct worker *w, unsigned i, enum pawl_mode mode, bool alone, pawl_grant *out)
{
    switch (rng_below(&w->rng, alone ? 4 : 3)) {
    case 0:
        return pawl_trylock(w->p, key(i), mode, out);
    case 1:
        return pawl_timedlock(w->p, key(i), mode, pawl_in(PATIENCE_NS), out);
    case 2:
        return pawl_lock(w->p, key(i), mode, out);
    default:
        return lock_later(w, i, mode, out); /* completions of a shared handle would go to any thread */
    }
}

static void convert_somehow(struct worker *w, unsigned i, pawl_grant *g)
{
    if (g->mode == PAWL_EXCLUSIVE) {
        CHECK_OK(pawl_convert(w->p, g, PAWL_SHARED, UINT64_MAX));
        read_under(w, i, g);
        return;
    }
    uint64_t deadline = rng_chance(&w->rng, 1, 3) ? PAWL_TRY : rng_chance(&w->rng, 1, 2) ? pawl_in(PATIENCE_NS) : UINT64_MAX;
    int rc = pawl_convert(w->p, g, PAWL_EXCLUSIVE, deadline);
    CHECK(rc == 0 || rc == -EDEADLK || rc == -PAWL_EHELD || rc == -ETIMEDOUT);
    CHECK_EQ(g->mode, rc ? PAWL_SHARED : PAWL_EXCLUSIVE);
    if (rc) {
        w->refused++;
        read_under(w, i, g);
    } else {
        w->upgrades++;
        write_under(w, i, g);
    }
}

static void work(struct worker *w, bool alone)
{
    while (pawl_now() < w->until_ns) {
        unsigned i = (unsigned)rng_below(&w->rng, LOCKS);
        enum pawl_mode mode = rng_chance(&w->rng, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
        pawl_grant g;
        int rc = lock_somehow(w, i, mode, alone, &g);
        if (rc) {
            CHECK(rc == -PAWL_EHELD || rc == -ETIMEDOUT || rc == -ECANCELED);
            w->refused++;
            continue;
        }
        CHECK_EQ(g.mode, mode);
        if (mode == PAWL_EXCLUSIVE)
            write_under(w, i, &g);
        else
            read_under(w, i, &g);
        for (int n = 0; n < 2 && rng_chance(&w->rng, 1, 3); n++)
            convert_somehow(w, i, &g);
        CHECK_OK(pawl_unlock(w->p, &g));
    }
}

static void *work_alone(void *arg)
{
    work(arg, true);
    return NULL;
}

static void *work_together(void *arg)
{
    work(arg, false);
    return NULL;
}

/* As many holds as a session can have are free again, but for one that the library's own thread may keep for its next use. */
static void check_holds(pawl *p, unsigned holds)
{
    pawl_grant g[64];
    unsigned n = 0;
    int rc;
    CHECK(holds < countof(g));
    while (!(rc = pawl_trylock(p, key(0), PAWL_SHARED, &g[n])))
        n++;
    CHECK_RC(rc, -PAWL_ELIMIT);
    CHECK_BETWEEN(n, holds - 1, holds);
    while (n--)
        CHECK_OK(pawl_unlock(p, &g[n]));
}

static void run(bool together, uint64_t ns)
{
    const pawl_options o = {.keys = PAWL_KEYS_SPARSE, .capacity = 64, .sessions = 16, .holds = 32};
    space_reset();
    memset(protected, 0, sizeof protected);
    pawl *shared = space_open(&o);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.p = together ? shared : space_open(&o), .until_ns = pawl_in(ns)};
        rng_seed(&workers[i].rng, i + 1);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, together ? work_together : work_alone, &workers[i]), 0);
    struct worker sum = {0};
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
        sum.writes += workers[i].writes;
        sum.reads += workers[i].reads;
        sum.upgrades += workers[i].upgrades;
        sum.refused += workers[i].refused;
    }
    uint64_t changes = 0;
    for (unsigned i = 0; i < LOCKS; i++) {
        pawl_state s;
        CHECK_OK(pawl_query(shared, key(i), &s));
        CHECK_EQ(s.mode, 0);
        CHECK_EQ(s.waiters, 0);
        CHECK_EQ(protected[i].left, protected[i].right);
        changes += protected[i].left;
    }
    CHECK_EQ(changes, sum.writes);
    for (unsigned i = 0; i < THREADS; i++) {
        check_holds(workers[i].p, 32);
        if (!together)
            CHECK_OK(pawl_close(workers[i].p));
    }
    CHECK_OK(pawl_close(shared));
    printf("%s: %" PRIu64 " writes, %" PRIu64 " reads, %" PRIu64 " upgrades, %" PRIu64 " refusals\n",
           together ? "one handle" : "a handle each", sum.writes, sum.reads, sum.upgrades, sum.refused);
}

int main(void)
{
    uint64_t ns = test_seconds() * NS_PER_S / 20;
    space_where();
    run(false, ns);
    run(true, ns);
    return 0;
}
