/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that lock, convert and unlock at random, readers and writers, are killed at random, thousands of times; some are
 * stopped for longer than their lease instead. An oracle in memory of its own watches: no two live holders that exclude each
 * other, tokens that rise through every death, progress of those that live; and in the end nothing is left behind. */
#include "client/segment.h"
#include "fabric/shm.h"
#include "tests/shm/crew.h"

#define WORKERS 8
#define LOCKS 6
#define SESSIONS 24

static const struct {
    const char *design;
    enum pawl_keys kind;
    bool shared;         /* and conversions */
    unsigned open_every; /* word: how often readers open a lock to each other; 0: as it is */
} rounds[] = {
    {"word", PAWL_KEYS_NAMED, true, 0},
    {"word", PAWL_KEYS_SPARSE, true, 2},
    {"alock", PAWL_KEYS_SPARSE, false, 0},
};
static unsigned turn;

/* ---- the oracle ---- */

/* The holders: process id in the upper half, whether it may be stopped in the lower. Marked after the grant, cleared before the
 * release, so a mark without a live process behind it is of one that was killed inside. */
static struct oracle {
    struct {
        uint64_t writer;
        uint64_t readers[WORKERS];
        uint64_t last_exclusive, last_any; /* tokens */
    } locks[LOCKS];
    uint64_t exclusive, shared, converted, lost;
} * oracle;

#define STOPPABLE 1 /* in a mark */

/* A mark that is in the way of a grant: of one that is gone, or of one that was stopped and may not know yet that it lost. */
static void check_mark(uint64_t mark, const char *what, unsigned lock)
{
    pid_t pid = (pid_t)(mark >> 32);
    if (mark && pid != getpid() && !(mark & STOPPABLE) && !process_gone(pid))
        CHECK_FAIL("lock %u is granted although process %d, alive, holds it %s", lock, (int)pid, what);
}

/* ---- workers ---- */

static pawl_key key(unsigned i)
{
    static const char *const names[LOCKS] = {"one", "two", "three", "a rather longer name than the others have", "five", "six"};
    return rounds[turn].kind == PAWL_KEYS_NAMED ? pawl_name(names[i]) : pawl_id(i * UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t my_mark(const struct worker *w)
{
    return (uint64_t)getpid() << 32 | (w->stoppable ? STOPPABLE : 0);
}

static pawl *open_session(const struct worker *w)
{
    const pawl_options o = {.design = space_design() ? space_design() : rounds[turn].design,
                            .keys = rounds[turn].kind,
                            .capacity = 48,
                            .sessions = SESSIONS,
                            .holds = 8};
    return crew_open(w, &o);
}

/* After a grant, while it certainly holds. A finding of a stoppable worker counts only if it still held the lock afterwards. */
static void enter(const struct worker *w, pawl *p, unsigned i, const pawl_grant *g)
{
    uint64_t writer = 0, any = load(&oracle->locks[i].last_any), exclusive = load(&oracle->locks[i].last_exclusive);
    uint64_t readers[WORKERS] = {0};
    if (g->mode == PAWL_EXCLUSIVE) {
        writer = __atomic_exchange_n(&oracle->locks[i].writer, my_mark(w), __ATOMIC_SEQ_CST);
        for (unsigned r = 0; r < WORKERS; r++)
            readers[r] = load(&oracle->locks[i].readers[r]);
    } else {
        __atomic_store_n(&oracle->locks[i].readers[w->number], my_mark(w), __ATOMIC_SEQ_CST);
        writer = load(&oracle->locks[i].writer);
    }
    if (pawl_check(p, g))
        return;
    check_mark(writer, "exclusively", i);
    for (unsigned r = 0; r < WORKERS; r++)
        if (r != w->number)
            check_mark(readers[r], "shared", i);
    uint64_t floor = g->mode == PAWL_EXCLUSIVE ? any : exclusive;
    if (g->token <= floor)
        CHECK_FAIL("lock %u: token %" PRIx64 " of a grant is not above %" PRIx64, i, g->token, floor);
    raise_to(&oracle->locks[i].last_any, g->token);
    if (g->mode == PAWL_EXCLUSIVE)
        raise_to(&oracle->locks[i].last_exclusive, g->token);
}

static void leave(const struct worker *w, unsigned i)
{
    uint64_t mine = my_mark(w);
    __atomic_compare_exchange_n(&oracle->locks[i].writer, &mine, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    __atomic_store_n(&oracle->locks[i].readers[w->number], 0, __ATOMIC_SEQ_CST);
}

/* False if the session was lost. */
static bool work_once(const struct worker *w, pawl *p, struct rng *r)
{
    unsigned i = (unsigned)rng_below(r, LOCKS);
    enum pawl_mode mode = rng_chance(r, 1, 2) && rounds[turn].shared ? PAWL_SHARED : PAWL_EXCLUSIVE;
    pawl_grant g;
    int rc = rng_chance(r, 1, 4)   ? pawl_trylock(p, key(i), mode, &g)
             : rng_chance(r, 1, 4) ? pawl_timedlock(p, key(i), mode, pawl_in(rng_below(r, NS_PER_MS)), &g)
                                   : pawl_lock(p, key(i), mode, &g);
    if (rc == -PAWL_EHELD || rc == -ETIMEDOUT)
        return true;
    if (lost(w, rc))
        return false;
    enter(w, p, i, &g);
    for (uint64_t spin = rng_below(r, 200); spin; spin--)
        __asm__ volatile("" ::: "memory");
    if (rounds[turn].shared && rng_chance(r, 1, 3)) {
        if (g.mode == PAWL_EXCLUSIVE)
            leave(w, i); /* readers may come from here on */
        enum pawl_mode to = g.mode == PAWL_EXCLUSIVE ? PAWL_SHARED : PAWL_EXCLUSIVE;
        rc = pawl_convert(p, &g, to, rng_chance(r, 1, 2) ? PAWL_TRY : pawl_in(rng_below(r, NS_PER_MS)));
        if (rc && rc != -EDEADLK && rc != -PAWL_EHELD && rc != -ETIMEDOUT && lost(w, rc))
            return false;
        enter(w, p, i, &g);
        __atomic_fetch_add(&oracle->converted, !rc, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(g.mode == PAWL_EXCLUSIVE ? &oracle->exclusive : &oracle->shared, 1, __ATOMIC_RELAXED);
    leave(w, i);
    return !lost(w, pawl_unlock(p, &g));
}

static void worker_main(void *arg)
{
    const struct worker *w = arg;
    struct rng r;
    rng_seed(&r, w->seed);
    for (unsigned i = 0; i < LOCKS; i++) /* the one before in this place is dead */
        __atomic_store_n(&oracle->locks[i].readers[w->number], 0, __ATOMIC_SEQ_CST);
    pawl *p = open_session(w);
    for (uint64_t n = 0; crew_goes_on(); n++) {
        bool again = n % 1000 == 999; /* sessions come and go, too */
        if (!work_once(w, p, &r)) {
            __atomic_fetch_add(&oracle->lost, 1, __ATOMIC_RELAXED);
            for (unsigned i = 0; i < LOCKS; i++)
                leave(w, i);
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

/* Slots in use, and records that are neither free nor kept for the next use. */
static void count_left(const struct segment *s, unsigned *slots, unsigned *records, bool print)
{
    struct space space;
    struct fab_ep ep;
    layout_space(&s->header, 0, &space);
    fab_shm_init(&ep, s->base, s->size);
    *slots = *records = 0;
    for (uint32_t i = 0; i < space.slot_count; i++) {
        uint64_t lease, word;
        fab_read64(&ep, space_slot_addr(&space, i), &lease);
        *slots += lease_state(lease) != SLOT_FREE;
        if (print && lease_state(lease) != SLOT_FREE)
            fprintf(stderr, "slot %u: lease %" PRIx64 ", life %x\n", i, lease,
                    *(const unsigned *)(s->base + space_slot_addr(&space, i) + offsetof(struct slot, life)));
        for (uint32_t k = 0; k < space.record_count && lease_state(lease) == SLOT_LIVE; k++) {
            fab_read64(&ep, space_record_addr(&space, i, k), &word);
            *records += record_state(word) != RECORD_FREE && record_state(word) != RECORD_SPARE;
        }
    }
}

static void judge(void *arg)
{
    const struct worker me = {0};
    pawl *p = open_session(&me);
    for (unsigned i = 0; i < LOCKS; i++) {
        pawl_grant g;
        CHECK_OK(pawl_timedlock(p, key(i), PAWL_EXCLUSIVE, pawl_in(STUCK_NS), &g));
        CHECK(g.token > load(&oracle->locks[i].last_any));
        CHECK_OK(pawl_unlock(p, &g));
        pawl_state s;
        CHECK_OK(pawl_query(p, key(i), &s));
        CHECK_EQ(s.mode, 0);
    }
    struct segment *s;
    unsigned slots, records;
    CHECK_EQ(segment_open(space_path(), &s), 0);
    for (uint64_t limit = pawl_in(STUCK_NS);; pause_ns(NS_PER_MS)) {
        bool late = pawl_now() > limit;
        count_left(s, &slots, &records, late);
        if (slots == 1) /* ours */
            break;
        if (late)
            CHECK_FAIL("%u slots are left behind", slots - 1);
    }
    CHECK_EQ(records, 0);
    segment_close(s);
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    const struct crew_plan plan = {.work = worker_main, .workers = WORKERS, .stops = true, .pause_ns = 4 * NS_PER_MS};
    printf("seed %" PRIu64 "\n", crew_seed());
    space_where();
    for (turn = 0; turn < countof(rounds); turn++) {
        space_reset();
        bool opens = rounds[turn].open_every && !strcmp(space_design() ? space_design() : rounds[turn].design, "word");
        space_knobs = opens ? tuned(design_find("word"), "open-every", rounds[turn].open_every) : NULL;
        oracle = shared_memory(sizeof *oracle);
        crew_torture(&plan, test_seconds() * NS_PER_S / countof(rounds));
        child_join(child_start(judge, NULL)); /* this process has no threads, so that it can go on making children */
        printf("%s, %s: %" PRIu64 " exclusive, %" PRIu64 " shared, %" PRIu64 " converted, %" PRIu64 " sessions lost\n",
               rounds[turn].design, rounds[turn].kind == PAWL_KEYS_NAMED ? "named" : "sparse", oracle->exclusive, oracle->shared,
               oracle->converted, oracle->lost);
        munmap(oracle, sizeof *oracle);
    }
    printf("%" PRIu64 " kills, %" PRIu64 " stops\n", kills, stops);
    return 0;
}
