/* Processes that lock, convert and unlock at random, readers and writers, are killed at random, thousands of times; some are
 * stopped for longer than their lease instead. An oracle in memory of its own watches: no two live holders that exclude each
 * other, tokens that rise whoever dies, progress of those that live; and in the end nothing is left behind. */
#include "client/segment.h"
#include "fabric/shm.h"
#include "lib/rng.h"
#include "tests/shm/space.h"

#include <poll.h>
#include <sys/syscall.h>

#define WORKERS 8
#define LOCKS 6
#define SESSIONS 24
#define STUCK_NS (15 * NS_PER_S)
#define STOP_LEASE_NS (150 * NS_PER_MS)

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
static struct rng rng;

/* ---- the oracle ---- */

/* Who is inside: process id in the upper half, whether it may be stopped in the lower. Marked after the grant, cleared before the
 * release, so a mark without a live process behind it is of one that was killed inside. */
static struct oracle {
    struct {
        uint64_t writer;
        uint64_t readers[WORKERS];
        uint64_t last_exclusive, last_any; /* tokens */
    } locks[LOCKS];
    uint64_t progress[WORKERS];
    uint64_t exclusive, shared, converted, lost;
    uint32_t stop;
} * oracle;

#define STOPPABLE 1 /* in a mark */

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void raise_to(uint64_t *word, uint64_t value)
{
    uint64_t seen = load(word);
    while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

static bool process_gone(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return true;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    bool gone = poll(&ended, 1, 0) == 1;
    close(fd);
    return gone;
}

/* A mark that is in the way of a grant: of one that is gone, or of one that was stopped and may not know yet that it lost. */
static void check_mark(uint64_t mark, const char *what, unsigned lock)
{
    pid_t pid = (pid_t)(mark >> 32);
    if (mark && pid != getpid() && !(mark & STOPPABLE) && !process_gone(pid))
        CHECK_FAIL("lock %u is granted although process %d, alive, holds it %s", lock, (int)pid, what);
}

/* ---- workers ---- */

struct worker {
    unsigned number;
    uint64_t seed;
    bool stoppable; /* has a short lease, which it will overstay */
};

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
                            .holds = 8,
                            .lease_ns = w->stoppable ? STOP_LEASE_NS : PAWL_LEASE_FOREVER};
    pawl *p;
    for (uint64_t limit = pawl_in(STUCK_NS);;) {
        int rc = pawl_open(space_where(), &o, &p);
        if (!rc)
            return p;
        if (rc != -PAWL_ELIMIT || pawl_now() > limit) /* the killed of the last moment may still have slots */
            CHECK_FAIL("pawl_open: %d, %s", rc, pawl_explain());
        pause_ns(NS_PER_MS);
    }
}

/* After a grant, while it certainly holds. What a stoppable one finds counts only if it still held it afterwards. */
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

static bool lost(const struct worker *w, int rc)
{
    if (rc == -PAWL_ELOST && w->stoppable)
        return true;
    CHECK_OK(rc);
    return false;
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
        rc = pawl_convert(p, &g, to, rng_chance(r, 1, 2) ? 0 : pawl_in(rng_below(r, NS_PER_MS)));
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
    for (uint64_t n = 0; !__atomic_load_n(&oracle->stop, __ATOMIC_RELAXED); n++) {
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
        __atomic_fetch_add(&oracle->progress[w->number], 1, __ATOMIC_RELAXED);
    }
    CHECK_OK(pawl_close(p));
}

/* ---- the one that kills ---- */

static struct crew {
    struct worker worker;
    pid_t pid;
    uint64_t seen, seen_ns; /* progress, and when it last changed */
    uint64_t go_on_ns;      /* stopped until then */
} crew[WORKERS];

static uint64_t kills, stops;

static void hire(unsigned i)
{
    crew[i].worker = (struct worker){.number = i, .seed = rng_next(&rng), .stoppable = i == WORKERS - 1};
    crew[i].pid = child_start(worker_main, &crew[i].worker);
    crew[i].seen_ns = pawl_now();
    crew[i].go_on_ns = 0;
}

static void look_after(unsigned i)
{
    int status;
    uint64_t now = pawl_now(), progress = load(&oracle->progress[i]);
    if (waitpid(crew[i].pid, &status, WNOHANG) == crew[i].pid)
        CHECK_FAIL("worker %u ended by itself with status 0x%x", i, (unsigned)status);
    if (crew[i].go_on_ns && now >= crew[i].go_on_ns) {
        CHECK_EQ(kill(crew[i].pid, SIGCONT), 0);
        crew[i].go_on_ns = 0;
        crew[i].seen_ns = now;
    }
    if (progress != crew[i].seen || crew[i].go_on_ns) {
        crew[i].seen = progress;
        crew[i].seen_ns = now;
    } else if (now - crew[i].seen_ns > STUCK_NS) {
        CHECK_FAIL("worker %u, process %d, is stuck", i, (int)crew[i].pid);
    }
}

static void torture(uint64_t ns)
{
    for (unsigned i = 0; i < WORKERS; i++)
        hire(i);
    for (uint64_t end = pawl_in(ns); pawl_now() < end;) {
        unsigned i = (unsigned)rng_below(&rng, WORKERS);
        pause_ns(rng_below(&rng, 4 * NS_PER_MS));
        if (!crew[i].worker.stoppable || rng_chance(&rng, 1, 20)) {
            child_kill(crew[i].pid);
            kills++;
            hire(i);
        } else if (!crew[i].go_on_ns) {
            CHECK_EQ(kill(crew[i].pid, SIGSTOP), 0);
            crew[i].go_on_ns = pawl_in(2 * STOP_LEASE_NS);
            stops++;
        }
        for (unsigned k = 0; k < WORKERS; k++)
            look_after(k);
    }
    /* Half of them are killed, the others end in order. */
    for (unsigned i = 1; i < WORKERS; i += 2, kills++)
        child_kill(crew[i].pid);
    __atomic_store_n(&oracle->stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WORKERS; i += 2)
        child_join(crew[i].pid);
}

/* ---- what is left ---- */

/* Slots in use, and records that are neither free nor kept for the next use. */
static void count_left(const struct segment *s, unsigned *slots, unsigned *records, bool print)
{
    struct space space;
    struct fab_ep ep;
    layout_space(s->header, 0, &space);
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
        CHECK_OK(pawl_timedlock(p, key(i), PAWL_EXCLUSIVE, pawl_in(5 * NS_PER_S), &g));
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
    uint64_t seed = (uint64_t)getpid();
    const char *text = getenv("PAWL_TEST_SEED");
    if (text)
        seed = strtoull(text, NULL, 10);
    printf("seed %" PRIu64 "\n", seed);
    rng_seed(&rng, seed);
    space_where();
    for (turn = 0; turn < countof(rounds); turn++) {
        space_reset();
        if (rounds[turn].open_every)
            CHECK_EQ(design_tune(design_find("word"), "word_open_every", rounds[turn].open_every), 0);
        oracle = shared_memory(sizeof *oracle);
        torture(test_seconds() * NS_PER_S / countof(rounds));
        child_join(child_start(judge, NULL)); /* this process has no threads, so that it can go on making children */
        printf("%s, %s: %" PRIu64 " exclusive, %" PRIu64 " shared, %" PRIu64 " converted, %" PRIu64 " sessions lost\n",
               rounds[turn].design, rounds[turn].kind == PAWL_KEYS_NAMED ? "named" : "sparse", oracle->exclusive, oracle->shared,
               oracle->converted, oracle->lost);
        munmap(oracle, sizeof *oracle);
    }
    printf("%" PRIu64 " kills, %" PRIu64 " stops\n", kills, stops);
    return 0;
}
