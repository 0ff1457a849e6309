/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that work until they are killed, thousands of times; one is stopped for longer than its lease instead. The work, and
 * the watching, is up to the test. */
#ifndef PAWL_TESTS_SHM_CREW_H
#define PAWL_TESTS_SHM_CREW_H

#include "lib/rng.h"
#include "tests/shm/space.h"

#include <poll.h>
#include <sys/syscall.h>

#define CREW_MAX 8
#define STUCK_NS (15 * NS_PER_S)
#define STOP_LEASE_NS (150 * NS_PER_MS)

struct worker {
    unsigned number;
    uint64_t seed;
    bool stoppable; /* has a short lease, which it will overstay */
};

static struct {
    struct worker worker;
    pid_t pid;
    uint64_t seen, seen_ns; /* progress, and when it last changed */
    uint64_t go_on_ns;      /* stopped until then */
} crew[CREW_MAX];

/* In memory that all of them share. */
static struct crew_board {
    uint64_t progress[CREW_MAX];
    uint32_t stop;
} * board;

static struct rng rng;
static uint64_t kills, stops;

/* ---- what workers and their watcher use ---- */

static inline uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void raise_to(uint64_t *word, uint64_t value)
{
    uint64_t seen = load(word);
    while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

static inline bool process_gone(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return true;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    bool gone = poll(&ended, 1, 0) == 1;
    close(fd);
    return gone;
}

static inline bool crew_goes_on(void)
{
    return !__atomic_load_n(&board->stop, __ATOMIC_RELAXED);
}

static inline void crew_progress(const struct worker *w)
{
    __atomic_fetch_add(&board->progress[w->number], 1, __ATOMIC_RELAXED);
}

static inline pawl *crew_open(const struct worker *w, const pawl_options *o)
{
    pawl_options with = *o;
    pawl *p;
    with.lease_ns = w->stoppable ? STOP_LEASE_NS : PAWL_LEASE_FOREVER;
    for (uint64_t limit = pawl_in(STUCK_NS);;) {
        int rc = pawl_open_tuned(space_where(), &with, space_knobs, &p);
        if (!rc)
            return p;
        if (rc != -PAWL_ELIMIT || pawl_now() > limit) /* the killed of the last moment may still have slots */
            CHECK_FAIL("pawl_open: %d, %s", rc, pawl_explain());
        pause_ns(NS_PER_MS);
    }
}

/* Whether that call found the session lost, which is right only for a worker that was stopped. */
static inline bool lost(const struct worker *w, int rc)
{
    if (rc == -PAWL_ELOST && w->stoppable)
        return true;
    CHECK_OK(rc);
    return false;
}

/* ---- the one that kills ---- */

struct crew_plan {
    void (*work)(void *worker);
    unsigned workers;
    bool stops;        /* the last of them is stopped rather than killed */
    uint64_t pause_ns; /* at most, between two deaths */
};

static inline void crew_hire(const struct crew_plan *p, unsigned i)
{
    crew[i].worker = (struct worker){.number = i, .seed = rng_next(&rng), .stoppable = p->stops && i == p->workers - 1};
    crew[i].pid = child_start(p->work, &crew[i].worker);
    crew[i].seen_ns = pawl_now();
    crew[i].go_on_ns = 0;
}

static inline void crew_look_after(unsigned i)
{
    int status;
    uint64_t now = pawl_now(), progress = load(&board->progress[i]);
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

static inline void crew_torture(const struct crew_plan *p, uint64_t ns)
{
    CHECK(p->workers <= CREW_MAX);
    board = shared_memory(sizeof *board);
    for (unsigned i = 0; i < p->workers; i++)
        crew_hire(p, i);
    for (uint64_t end = pawl_in(ns); pawl_now() < end;) {
        unsigned i = (unsigned)rng_below(&rng, p->workers);
        pause_ns(rng_below(&rng, p->pause_ns));
        if (!crew[i].worker.stoppable || rng_chance(&rng, 1, 20)) {
            child_kill(crew[i].pid);
            kills++;
            crew_hire(p, i);
        } else if (!crew[i].go_on_ns) {
            CHECK_EQ(kill(crew[i].pid, SIGSTOP), 0);
            crew[i].go_on_ns = pawl_in(2 * STOP_LEASE_NS);
            stops++;
        }
        for (unsigned k = 0; k < p->workers; k++)
            crew_look_after(k);
    }
    /* Half of them are killed, the others end in order. */
    for (unsigned i = 1; i < p->workers; i += 2, kills++)
        child_kill(crew[i].pid);
    __atomic_store_n(&board->stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < p->workers; i += 2)
        child_join(crew[i].pid);
    munmap(board, sizeof *board);
}

/* Seeds the choice of victims: by PAWL_TEST_SEED, else as no run before. */
static inline uint64_t crew_seed(void)
{
    const char *text = getenv("PAWL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)getpid();
    rng_seed(&rng, seed);
    return seed;
}

#endif
