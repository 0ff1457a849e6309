/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that lock, convert and unlock at random over real UDP, and an oracle in memory of their own: no two live holders that
 * exclude each other, tokens that rise, progress of those that live, and in the end every lock can be had.
 *
 * On a busy machine a session may be lost by its lease. So the victim checks: a worker that finds another's mark notes that it met
 * it. A worker that finds such a note about itself before its release, while its own grant is certainly still held, has seen a
 * violation.
 *
 * Before: HOSTS, WORKERS (worker i is at host i % HOSTS), LOCKS in the space, of which the first HOT are fought for, LEASE_NS. */
#ifndef PAWL_TESTS_UDP_WORKERS_H
#define PAWL_TESTS_UDP_WORKERS_H

#include "lib/rng.h"
#include "tests/udp/rack.h"

#define STUCK_NS (45 * NS_PER_S)

static struct rng rng;

static struct oracle {
    struct {
        uint64_t writer, writer_met; /* the worker that holds it exclusively; the latest that another grant met */
        uint64_t readers[WORKERS], readers_met[WORKERS];
        uint64_t last_exclusive, last_any;
    } locks[HOT];
    uint64_t progress[WORKERS], opens[WORKERS];
    uint64_t exclusive, shared, converted, others, lost, sequence;
    uint32_t stop, judged;
} * oracle;

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static void raise_to(uint64_t *word, uint64_t value)
{
    uint64_t seen = load(word);
    while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

struct worker {
    unsigned number;
    uint64_t seed;
    uint64_t mark; /* of the present hold */
};

/* After a grant. */
static void enter(struct worker *w, pawl *p, unsigned i, const pawl_grant *g)
{
    uint64_t any = load(&oracle->locks[i].last_any), exclusive = load(&oracle->locks[i].last_exclusive);
    w->mark = __atomic_add_fetch(&oracle->sequence, 1, __ATOMIC_SEQ_CST) << 8 | w->number;
    if (g->mode == PAWL_EXCLUSIVE) {
        store(&oracle->locks[i].writer, w->mark); /* another's is of one that is dead or lost: else it will miss it */
        for (unsigned r = 0; r < WORKERS; r++)
            if (r != w->number && load(&oracle->locks[i].readers[r]))
                store(&oracle->locks[i].readers_met[r], load(&oracle->locks[i].readers[r]));
    } else {
        store(&oracle->locks[i].readers[w->number], w->mark);
        uint64_t writer = load(&oracle->locks[i].writer);
        if (writer)
            store(&oracle->locks[i].writer_met, writer);
    }
    if (pawl_check(p, g))
        return;
    uint64_t floor = g->mode == PAWL_EXCLUSIVE ? any : exclusive;
    if (g->token <= floor)
        CHECK_FAIL("lock %u: token %" PRIx64 " of a grant is not above %" PRIx64, i, g->token, floor);
    raise_to(&oracle->locks[i].last_any, g->token);
    if (g->mode == PAWL_EXCLUSIVE)
        raise_to(&oracle->locks[i].last_exclusive, g->token);
}

/* Before a release: was another worker granted the lock meanwhile? */
static void leave(const struct worker *w, pawl *p, unsigned i, const pawl_grant *g)
{
    bool alone = g->mode == PAWL_EXCLUSIVE
                     ? load(&oracle->locks[i].writer) == w->mark && load(&oracle->locks[i].writer_met) != w->mark
                     : load(&oracle->locks[i].readers_met[w->number]) != w->mark;
    if (!alone && !pawl_check(p, g))
        CHECK_FAIL("lock %u: another worker was granted it while worker %u held it (mode %u)", i, w->number, g->mode);
    uint64_t mine = w->mark;
    if (g->mode == PAWL_EXCLUSIVE)
        __atomic_compare_exchange_n(&oracle->locks[i].writer, &mine, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    else
        store(&oracle->locks[i].readers[w->number], 0);
}

static bool lost(int rc)
{
    if (rc == -PAWL_ELOST)
        return true;
    CHECK_OK(rc);
    return false;
}

/* One of the million, which is most likely free. */
static bool visit_another(pawl *p, struct rng *r)
{
    pawl_grant g;
    if (lost(pawl_lock(p, pawl_id(HOT + rng_below(r, LOCKS - HOT)), PAWL_EXCLUSIVE, &g)))
        return false;
    __atomic_fetch_add(&oracle->others, 1, __ATOMIC_RELAXED);
    return !lost(pawl_unlock(p, &g));
}

static bool work_once(struct worker *w, pawl *p, struct rng *r)
{
    unsigned i = (unsigned)rng_below(r, HOT);
    enum pawl_mode mode = rng_chance(r, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    pawl_grant g;
    if (rng_chance(r, 1, 4))
        return visit_another(p, r);
    int rc = rng_chance(r, 1, 4)   ? pawl_trylock(p, pawl_id(i), mode, &g)
             : rng_chance(r, 1, 4) ? pawl_timedlock(p, pawl_id(i), mode, pawl_in(rng_below(r, 20 * NS_PER_MS)), &g)
                                   : pawl_lock(p, pawl_id(i), mode, &g);
    if (rc == -PAWL_EHELD || rc == -ETIMEDOUT || rc == -EAGAIN)
        return true;
    if (lost(rc))
        return false;
    enter(w, p, i, &g);
    if (rng_chance(r, 1, 8))
        pause_ns(rng_below(r, NS_PER_MS));
    leave(w, p, i, &g);
    if (rng_chance(r, 1, 3)) {
        enum pawl_mode to = g.mode == PAWL_EXCLUSIVE ? PAWL_SHARED : PAWL_EXCLUSIVE;
        rc = pawl_convert(p, &g, to, pawl_in(rng_below(r, 20 * NS_PER_MS)));
        if (rc && rc != -PAWL_ENOTSUP && rc != -EDEADLK && rc != -PAWL_EHELD && rc != -ETIMEDOUT && lost(rc))
            return false;
        if (!rc) {
            enter(w, p, i, &g);
            leave(w, p, i, &g);
            __atomic_fetch_add(&oracle->converted, 1, __ATOMIC_RELAXED);
        }
    }
    __atomic_fetch_add(g.mode == PAWL_EXCLUSIVE ? &oracle->exclusive : &oracle->shared, 1, __ATOMIC_RELAXED);
    return !lost(pawl_unlock(p, &g));
}

static pawl *open_session(unsigned worker)
{
    char where[RACK_WHERE_LEN];
    const pawl_options o = {.lease_ns = LEASE_NS};
    pawl *p;
    for (uint64_t limit = pawl_in(STUCK_NS);; pause_ns(10 * NS_PER_MS)) {
        int rc = pawl_open(rack_where(worker % HOSTS, where), &o, &p);
        if (!rc)
            return p;
        if ((rc != -PAWL_ELIMIT && rc != -EAGAIN && rc != -ENOSPC) || pawl_now() > limit)
            CHECK_FAIL("pawl_open: %d, %s", rc, pawl_explain());
    }
}

static void worker_main(void *arg)
{
    struct worker *w = arg;
    struct rng r;
    rng_seed(&r, w->seed);
    for (unsigned i = 0; i < HOT; i++) /* the one before in this place is dead */
        store(&oracle->locks[i].readers[w->number], 0);
    pawl *p = open_session(w->number);
    for (uint64_t n = 0; !__atomic_load_n(&oracle->stop, __ATOMIC_RELAXED); n++) {
        bool again = n % 500 == 499; /* sessions come and go, too */
        if (!work_once(w, p, &r)) {
            __atomic_fetch_add(&oracle->lost, 1, __ATOMIC_RELAXED);
            for (unsigned i = 0; i < HOT; i++)
                store(&oracle->locks[i].readers[w->number], 0);
            again = true;
        }
        if (again) {
            CHECK_OK(pawl_close(p));
            p = open_session(w->number);
            __atomic_fetch_add(&oracle->opens[w->number], 1, __ATOMIC_RELAXED);
        }
        __atomic_fetch_add(&oracle->progress[w->number], 1, __ATOMIC_RELAXED);
    }
    CHECK_OK(pawl_close(p));
}

/* ---- the one that kills ---- */

static struct {
    struct worker worker;
    pid_t pid;
    uint64_t seen, seen_ns;
} crew[WORKERS];

static uint64_t kills;

static void hire(unsigned i)
{
    crew[i].worker = (struct worker){.number = i, .seed = rng_next(&rng)};
    crew[i].pid = child_start(worker_main, &crew[i].worker);
    crew[i].seen_ns = pawl_now();
}

static void look_after(unsigned i)
{
    int status;
    uint64_t now = pawl_now(), progress = load(&oracle->progress[i]);
    if (waitpid(crew[i].pid, &status, WNOHANG) == crew[i].pid)
        CHECK_FAIL("worker %u ended by itself with status 0x%x", i, (unsigned)status);
    if (progress != crew[i].seen) {
        crew[i].seen = progress;
        crew[i].seen_ns = now;
    } else if (now - crew[i].seen_ns > STUCK_NS) {
        CHECK_FAIL("worker %u, process %d, is stuck", i, (int)crew[i].pid);
    }
}

/* No worker is killed any more: it ends by itself, and soon. */
static void see_off(unsigned i)
{
    int status;
    for (uint64_t limit = pawl_in(STUCK_NS); waitpid(crew[i].pid, &status, WNOHANG) != crew[i].pid; pause_ns(NS_PER_MS))
        if (pawl_now() > limit)
            CHECK_FAIL("worker %u, process %d, is stuck in the end", i, (int)crew[i].pid);
    CHECK_EQ(status, 0);
}

static void judge(void *arg)
{
    pawl *p = open_session(0);
    for (unsigned i = 0; i < HOT; i++) {
        pawl_grant g;
        int rc = pawl_timedlock(p, pawl_id(i), PAWL_EXCLUSIVE, pawl_in(STUCK_NS), &g);
        if (rc)
            CHECK_FAIL("lock %u cannot be had in the end: %d, %s", i, rc, pawl_explain());
        CHECK(g.token > load(&oracle->locks[i].last_any));
        CHECK_OK(pawl_unlock(p, &g));
    }
    CHECK_OK(pawl_close(p));
}

#endif
