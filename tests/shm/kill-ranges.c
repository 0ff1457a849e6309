/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that lock ranges of one thing, make them larger and smaller, cut them in two, convert and release them at random, are
 * killed at random; one is stopped for longer than its lease instead. An oracle in memory of its own watches: no two live holders
 * of the same unit that exclude each other, tokens that rise unit by unit through every death, progress of those that live; and in
 * the end the whole can be had and nothing is left behind. */
#include "client/segment.h"
#include "designs/core/design.h"
#include "tests/shm/crew.h"

#include <fcntl.h>

#define WORKERS 6
#define SESSIONS 24
#define UNITS 512 /* twice as many as the lock is made for */
#define UNIT UINT64_C(4096)
#define HALVES 2

/* ---- the oracle ---- */

/* A worker's hold, written after the grant and cleared before the release: a mark without a live process behind it is of a worker
 * that was killed while it held. */
struct mark {
    uint64_t turns; /* odd: held */
    uint64_t pid, stoppable, mode, start, end;
};

static struct oracle {
    struct mark marks[WORKERS][HALVES];
    uint64_t last_exclusive[UNITS], last_any[UNITS]; /* tokens */
    uint64_t exclusive, shared, converted, grown, shrunk, splits, lost;
} * oracle;

static void store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

/* A process that was killed loses its memory first, then its files, and with them the kernel's locks, and is gone last. */
static bool has_no_memory(pid_t pid)
{
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool none = fd < 0 || read(fd, &byte, 1) <= 0;
    if (fd >= 0)
        close(fd);
    return none;
}

static bool read_mark(const struct mark *m, struct mark *out)
{
    uint64_t turns = load(&m->turns);
    if (!(turns % 2))
        return false;
    *out = (struct mark){.pid = load(&m->pid),
                         .stoppable = load(&m->stoppable),
                         .mode = load(&m->mode),
                         .start = load(&m->start),
                         .end = load(&m->end)};
    return load(&m->turns) == turns;
}

/* ---- workers ---- */

struct held {
    pawl_grant grant;
    unsigned half;
};

static const struct design *design(void)
{
    return design_find(space_design());
}

static pawl *open_session(const struct worker *w)
{
    const pawl_options o = {.design = space_design(),
                            .capacity = 4,
                            .sessions = SESSIONS,
                            .holds = 8,
                            .unit_bytes = UNIT,
                            .range_units = UNITS / 2,
                            .range_max = UNITS};
    return crew_open(w, &o);
}

static void leave(const struct worker *w, unsigned half)
{
    struct mark *m = &oracle->marks[w->number][half];
    store(&m->turns, (load(&m->turns) | 1) + 1);
}

static void write_down(const struct worker *w, const struct held *h)
{
    struct mark *m = &oracle->marks[w->number][h->half];
    leave(w, h->half);
    store(&m->pid, (uint64_t)getpid());
    store(&m->stoppable, w->stoppable);
    store(&m->mode, h->grant.mode);
    store(&m->start, h->grant.start / UNIT);
    store(&m->end, h->grant.end / UNIT);
    store(&m->turns, load(&m->turns) + 1);
}

static bool in_the_way(const struct mark *m, const pawl_grant *g)
{
    return m->start < g->end / UNIT && g->start / UNIT < m->end && (m->mode == PAWL_EXCLUSIVE || g->mode == PAWL_EXCLUSIVE);
}

static void check_others(const struct worker *w, const pawl_grant *g)
{
    struct mark m;
    for (unsigned i = 0; i < WORKERS; i++)
        for (unsigned half = 0; half < HALVES; half++)
            if (i != w->number && read_mark(&oracle->marks[i][half], &m) && in_the_way(&m, g) && !m.stoppable && !w->stoppable &&
                !process_gone((pid_t)m.pid) && !has_no_memory((pid_t)m.pid))
                CHECK_FAIL("%" PRIu64 ":%" PRIu64 " is granted although process %d, alive, holds %" PRIu64 ":%" PRIu64,
                           g->start / UNIT, g->end / UNIT, (int)m.pid, m.start, m.end);
}

/* After a grant, while it certainly holds; `own` is the token that some of it was held with before. A finding of a stoppable worker
 * counts only if it still held the lock afterwards. */
static void enter(const struct worker *w, pawl *p, const struct held *h, uint64_t own)
{
    const pawl_grant *g = &h->grant;
    uint64_t floor = 0, from = g->start / UNIT, to = min_u64(g->end / UNIT, UNITS);
    for (uint64_t u = from; u < to; u++) {
        uint64_t seen = load(g->mode == PAWL_EXCLUSIVE ? &oracle->last_any[u] : &oracle->last_exclusive[u]);
        floor = seen == own ? floor : max_u64(floor, seen);
    }
    write_down(w, h);
    if (pawl_check(p, g))
        return;
    check_others(w, g);
    if (pawl_check(p, g) || !(design()->features & DESIGN_TOKENS))
        return;
    if (g->token <= floor)
        CHECK_FAIL("%" PRIu64 ":%" PRIu64 ": token %" PRIx64 " of a grant is not above %" PRIx64, from, to, g->token, floor);
    for (uint64_t u = from; u < to; u++) {
        raise_to(&oracle->last_any[u], g->token);
        if (g->mode == PAWL_EXCLUSIVE)
            raise_to(&oracle->last_exclusive[u], g->token);
    }
}

static bool refused(int rc)
{
    return rc == -PAWL_EHELD || rc == -ETIMEDOUT || rc == -EDEADLK || rc == -PAWL_ELIMIT;
}

static uint64_t some_deadline(struct rng *r, bool may_wait)
{
    bool timed = design()->features & DESIGN_TIMEOUT;
    if (rng_chance(r, 1, 4))
        return PAWL_TRY;
    if (timed && (!may_wait || rng_chance(r, 1, 4)))
        return pawl_in(rng_below(r, NS_PER_MS));
    return may_wait ? UINT64_MAX : PAWL_TRY;
}

static int grow(const struct worker *w, pawl *p, struct rng *r, struct held *h)
{
    uint64_t from = h->grant.start / UNIT, to = h->grant.end / UNIT, own = h->grant.token;
    int rc = pawl_reshape(p, &h->grant, (from - rng_below(r, min_u64(from, 64) + 1)) * UNIT,
                          (to + rng_below(r, min_u64(UNITS - min_u64(to, UNITS), 64) + 1)) * UNIT, some_deadline(r, false));
    if (rc)
        return refused(rc) ? 0 : rc;
    __atomic_fetch_add(&oracle->grown, 1, __ATOMIC_RELAXED);
    enter(w, p, h, own);
    return 0;
}

static int shrink(const struct worker *w, pawl *p, struct rng *r, struct held *h)
{
    uint64_t from = h->grant.start / UNIT, to = h->grant.end / UNIT;
    uint64_t start = from + rng_below(r, to - from), end = start + 1 + rng_below(r, to - start);
    struct held then = *h;
    then.grant.start = start * UNIT;
    then.grant.end = end * UNIT;
    write_down(w, &then); /* others may come from here on */
    int rc = pawl_reshape(p, &h->grant, start * UNIT, end * UNIT, UINT64_MAX);
    __atomic_fetch_add(&oracle->shrunk, !rc, __ATOMIC_RELAXED);
    return refused(rc) ? 0 : rc;
}

static int split(const struct worker *w, pawl *p, struct rng *r, struct held *h)
{
    uint64_t from = h->grant.start / UNIT, to = h->grant.end / UNIT;
    struct held right = {.half = 1};
    if (to - from < 2)
        return 0;
    int rc = pawl_split(p, &h->grant, (from + 1 + rng_below(r, to - from - 1)) * UNIT, &right.grant);
    if (rc)
        return refused(rc) ? 0 : rc;
    write_down(w, h);
    write_down(w, &right);
    __atomic_fetch_add(&oracle->splits, 1, __ATOMIC_RELAXED);
    leave(w, 1);
    return pawl_unlock(p, &right.grant);
}

static int convert(const struct worker *w, pawl *p, struct rng *r, struct held *h)
{
    enum pawl_mode to = h->grant.mode == PAWL_EXCLUSIVE ? PAWL_SHARED : PAWL_EXCLUSIVE;
    struct held then = *h;
    then.grant.mode = PAWL_SHARED;
    write_down(w, &then); /* readers may come from here on */
    int rc = pawl_convert(p, &h->grant, to, some_deadline(r, false));
    if (rc)
        return refused(rc) ? 0 : rc;
    __atomic_fetch_add(&oracle->converted, 1, __ATOMIC_RELAXED);
    enter(w, p, h, 0);
    return 0;
}

static int change(const struct worker *w, pawl *p, struct rng *r, struct held *h)
{
    switch (rng_below(r, 6)) {
    case 0:
        return design()->reshape ? grow(w, p, r, h) : 0;
    case 1:
        return design()->reshape ? shrink(w, p, r, h) : 0;
    case 2:
        return design()->split ? split(w, p, r, h) : 0;
    case 3:
        return design()->convert ? convert(w, p, r, h) : 0;
    default:
        return 0;
    }
}

/* False if the session was lost. */
static bool work_once(const struct worker *w, pawl *p, struct rng *r)
{
    enum pawl_mode mode = rng_chance(r, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    uint64_t length = min_u64(1 + rng_below(r, UINT64_C(1) << rng_below(r, 10)), UNITS), start = rng_below(r, UNITS - length + 1);
    struct held h = {.half = 0};
    bool whole = rng_chance(r, 1, 40);
    int rc = pawl_lock_range(p, pawl_name("file"), whole ? 0 : start * UNIT, whole ? PAWL_END : (start + length) * UNIT, mode,
                             some_deadline(r, true), &h.grant);
    if (refused(rc))
        return true;
    if (lost(w, rc))
        return false;
    enter(w, p, &h, 0);
    for (uint64_t spin = rng_below(r, 200); spin; spin--)
        __asm__ volatile("" ::: "memory");
    __atomic_fetch_add(mode == PAWL_EXCLUSIVE ? &oracle->exclusive : &oracle->shared, 1, __ATOMIC_RELAXED);
    rc = change(w, p, r, &h);
    if (rc && lost(w, rc))
        return false;
    leave(w, 0);
    return !lost(w, pawl_unlock(p, &h.grant));
}

static void worker_main(void *arg)
{
    const struct worker *w = arg;
    struct rng r;
    rng_seed(&r, w->seed);
    for (unsigned half = 0; half < HALVES; half++) /* the one before in this place is dead */
        leave(w, half);
    pawl *p = open_session(w);
    for (uint64_t n = 0; crew_goes_on(); n++) {
        bool again = n % 1000 == 999; /* sessions come and go, too */
        if (!work_once(w, p, &r)) {
            __atomic_fetch_add(&oracle->lost, 1, __ATOMIC_RELAXED);
            for (unsigned half = 0; half < HALVES; half++)
                leave(w, half);
            again = true;
        }
        if (again) {
            CHECK_OK(pawl_close(p));
            p = open_session(w);
        }
        crew_progress(w);
    }
    CHECK_OK(pawl_close(p));
}

/* ---- what is left ---- */

static void judge(void *arg)
{
    const struct worker me = {.stoppable = false};
    pawl *p = open_session(&me);
    pawl_grant g;
    pawl_state s;
    for (uint64_t limit = pawl_in(STUCK_NS);; pause_ns(NS_PER_MS)) {
        int rc = pawl_trylock(p, pawl_name("file"), PAWL_EXCLUSIVE, &g);
        if (!rc)
            break;
        if (rc != -PAWL_EHELD || pawl_now() > limit)
            CHECK_FAIL("the whole cannot be locked when no session is left: %d, %s", rc, pawl_explain());
    }
    for (unsigned u = 0; u < UNITS && design()->features & DESIGN_TOKENS; u++)
        CHECK(g.token > load(&oracle->last_any[u]));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_query(p, pawl_name("file"), &s));
    CHECK_EQ(s.mode, 0);
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    if (!space_design())
        setenv("PAWL_TEST_DESIGN", "mutex", 1);
    /* The kernel's locks have no leases. */
    const struct crew_plan plan = {
        .work = worker_main, .workers = WORKERS, .stops = design()->features & DESIGN_TIMEOUT, .pause_ns = 8 * NS_PER_MS};
    printf("%s, seed %" PRIu64 "\n", space_design(), crew_seed());
    space_where();
    oracle = shared_memory(sizeof *oracle);
    crew_torture(&plan, test_seconds() * NS_PER_S / 12);
    child_join(child_start(judge, NULL));
    printf("%" PRIu64 " killed, %" PRIu64 " stopped; granted %" PRIu64 " exclusive, %" PRIu64 " shared; %" PRIu64
           " converted, %" PRIu64 " grown, %" PRIu64 " shrunk, %" PRIu64 " cut in two; %" PRIu64 " sessions lost\n",
           kills, stops, oracle->exclusive, oracle->shared, oracle->converted, oracle->grown, oracle->shrunk, oracle->splits,
           oracle->lost);
    CHECK(kills && oracle->exclusive && oracle->shared);
    return 0;
}
