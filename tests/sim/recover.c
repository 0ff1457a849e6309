/* SPDX-License-Identifier: Apache-2.0 */
/* The recovery contract: recover() may be interrupted anywhere and repeated, also by several at once, and leaves the locks as if it
 * had run once: locks of the dead session are free, and live sessions keep theirs.
 *
 * The dead one is killed at every point of a script that uses a lock in every way; then sessions that recover it are killed,
 * too. */
#include "cluster/layout.h"
#include "cluster/session.h"
#include "designs/word/word.h"
#include "lib/rng.h"
#include "tests/unit/sim_kit.h"

#define LOCKS 4
#define SESSIONS 8
#define RECORDS 8
#define LEASE (3600 * NS_PER_S) /* none runs out: deaths are declared */
#define DEAD 0
#define LIVING 1
#define HELPERS 3
#define ACTORS (2 + HELPERS)
#define STEP_NS 700 /* less than the way of a verb: every state between two verbs is met */

struct player {
    struct site *site;
    unsigned id;
    struct sim_process *process;
    struct fab_ep *ep;
    struct session session;
    struct seat seat;
    struct hold holds[LOCKS];
    int rc;
};

struct site {
    struct kit kit;
    struct space space;
    struct layout_header header;
    struct player players[ACTORS];
};

static const struct design *word;

/* ---- the players ---- */

static void open_all(struct site *s, uint64_t seed)
{
    const struct layout_params p = {.design = word,
                                    .keys = PAWL_KEYS_DENSE,
                                    .capacity = LOCKS,
                                    .sessions = SESSIONS,
                                    .holds = RECORDS,
                                    .lease_ns = LEASE,
                                    .check_ns = NS_PER_MS,
                                    .birth = 1};
    memset(s, 0, sizeof *s);
    open_default(&s->kit, seed, 0, 1 + ACTORS);
    CHECK_EQ(layout_make(&p, &s->header), 0);
    layout_space(&s->header, FAB_ADDR(0, 0), &s->space);
    for (unsigned i = 0; i < ACTORS; i++) {
        struct player *a = &s->players[i];
        *a = (struct player){.site = s, .id = i};
        a->ep = kit_ep(&s->kit, 1 + i, &a->process);
        a->session.shadow = calloc(RECORDS, sizeof *a->session.shadow);
        a->session.seen = calloc(SESSIONS, sizeof *a->session.seen);
        a->seat = (struct seat){.space = &s->space, .me = &a->session, .ep = a->ep, .world = &a->process->host->world};
    }
}

static void close_all(struct site *s)
{
    for (unsigned i = 0; i < ACTORS; i++) {
        free(s->players[i].session.shadow);
        free(s->players[i].session.seen);
    }
    kit_close(&s->kit);
}

static void run(struct site *s)
{
    CHECK_EQ(sim_run(&s->kit.sim, UINT64_MAX), SIM_IDLE);
}

static void play(struct site *s, unsigned id, sim_task_fn fn)
{
    s->players[id].rc = -1;
    CHECK(sim_spawn(s->players[id].process, "player", fn, &s->players[id]));
}

static void opens(void *arg)
{
    struct player *a = arg;
    const struct session_params p = {
        .lease_ns = LEASE, .proof = (uint64_t)a->process->id << 32 | (uint32_t)a->process->generation, .label = "test"};
    a->rc = session_open(&a->seat, &p);
}

static void lock(struct player *a, uint64_t index, enum pawl_mode mode)
{
    CHECK_EQ(hold_open(&a->seat, index, &a->holds[index]), 0);
    a->holds[index].mode = mode;
    CHECK_EQ(word->acquire(&a->seat, &a->holds[index], DEADLINE_NEVER), 0);
}

/* Holds that stay: lock 1 shared, lock 2 exclusive. */
static void lives(void *arg)
{
    struct player *a = arg;
    lock(a, 1, PAWL_SHARED);
    lock(a, 2, PAWL_EXCLUSIVE);
    a->rc = 0;
}

/* Everything that one can do to a lock; at the end it waits for one that it will not get. */
static void dies(void *arg)
{
    struct player *a = arg;
    lock(a, 0, PAWL_EXCLUSIVE);
    lock(a, 1, PAWL_SHARED);
    CHECK_EQ(word->convert(&a->seat, &a->holds[0], PAWL_SHARED, DEADLINE_TRY), 0);
    lock(a, 3, PAWL_SHARED);
    CHECK_EQ(word->convert(&a->seat, &a->holds[0], PAWL_EXCLUSIVE, DEADLINE_TRY), 0);
    CHECK_EQ(word->release(&a->seat, &a->holds[1]), 0);
    CHECK_EQ(word->release(&a->seat, &a->holds[0]), 0);
    lock(a, 0, PAWL_SHARED);
    lock(a, 1, PAWL_SHARED);
    a->rc = word->convert(&a->seat, &a->holds[1], PAWL_EXCLUSIVE, world_now(a->seat.world) + 30 * NS_PER_US);
    lock(a, 2, PAWL_EXCLUSIVE); /* in vain */
}

static void recovers(void *arg)
{
    struct player *a = arg;
    const struct session *dead = &a->site->players[DEAD].session;
    a->rc = word->recover(&a->seat, dead->slot, dead->epoch);
}

static void condemns(void *arg)
{
    struct player *a = arg;
    const struct session *dead = &a->site->players[DEAD].session;
    a->rc = session_condemn(&a->seat, dead->slot, dead->epoch);
}

static void kill_event(void *arg, uint64_t tag)
{
    struct player *a = arg;
    if (a->process->alive)
        sim_process_crash(a->process);
}

static void kill_at(struct player *a, uint64_t after_ns)
{
    struct sim *sim = &a->site->kit.sim;
    sim_at(sim, sim_now(sim) + after_ns, kill_event, a, 0);
}

/* A session that dies may have asked, in its last step, for a recount of a lock that the others had already counted. The next
 * session that looks at the lock counts it. */
static void looks(void *arg)
{
    struct player *a = arg;
    struct lock_view view;
    for (uint64_t i = 0; i < LOCKS; i++)
        CHECK_EQ(word->peek(&a->seat, i, &view), 0);
    a->rc = 0;
}

/* ---- what must be ---- */

static uint64_t word_of(struct site *s, uint64_t index)
{
    return kit_word(&s->kit, space_lock_addr(&s->space, index));
}

static void check_locks(struct site *s)
{
    CHECK_EQ(word_mode(word_of(s, 0)), WORD_FREE);
    CHECK_EQ(word_mode(word_of(s, 1)), WORD_SHARED);
    CHECK_EQ(word_count(word_of(s, 1)), 1);
    CHECK_EQ(word_mode(word_of(s, 2)), WORD_EXCLUSIVE);
    CHECK_EQ(word_owner_slot(word_of(s, 2)), s->players[LIVING].session.slot);
    CHECK_EQ(word_mode(word_of(s, 3)), WORD_FREE);
    for (uint64_t i = 0; i < LOCKS; i++)
        CHECK(!(word_of(s, i) & WORD_UPGRADE));
}

static void releases(void *arg)
{
    struct player *a = arg;
    CHECK_EQ(word->release(&a->seat, &a->holds[1]), 0);
    CHECK_EQ(word->release(&a->seat, &a->holds[2]), 0);
    a->rc = 0;
}

/* The living go on as if nothing had happened, and then all is free and can be had. */
static void takes_all(void *arg)
{
    struct player *a = arg;
    for (uint64_t i = 0; i < LOCKS; i++) {
        lock(a, i, PAWL_EXCLUSIVE);
        CHECK_EQ(word->release(&a->seat, &a->holds[i]), 0);
    }
    a->rc = 0;
}

static void check_end(struct site *s, unsigned helper)
{
    play(s, LIVING, releases);
    run(s);
    CHECK_EQ(s->players[LIVING].rc, 0);
    for (uint64_t i = 0; i < LOCKS; i++)
        CHECK_EQ(word_mode(word_of(s, i)), WORD_FREE);
    play(s, helper, takes_all);
    run(s);
    CHECK_EQ(s->players[helper].rc, 0);
}

/* ---- runs ---- */

/* The dead one is killed that long after it began, and declared lost. False: it was already waiting for ever. */
static bool clean_up(struct site *s, uint64_t seed, uint64_t dead_ns)
{
    open_all(s, seed);
    memcpy(sim_fabric_peek(s->kit.fabric, FAB_ADDR(0, 0), sizeof s->header), &s->header, sizeof s->header);
    for (unsigned i = 0; i < ACTORS; i++)
        play(s, i, opens);
    run(s);
    for (unsigned i = 0; i < ACTORS; i++)
        CHECK_EQ(s->players[i].rc, 0);
    play(s, LIVING, lives);
    run(s);
    CHECK_EQ(s->players[LIVING].rc, 0);
    play(s, DEAD, dies);
    kill_at(&s->players[DEAD], dead_ns);
    run(s);
    play(s, 2, condemns);
    run(s);
    CHECK_EQ(s->players[2].rc, 0);
    return s->players[DEAD].rc == -1;
}

static uint64_t recovery_ns(struct site *s, unsigned helper)
{
    uint64_t start = sim_now(&s->kit.sim);
    play(s, helper, recovers);
    run(s);
    CHECK_EQ(s->players[helper].rc, 0);
    return sim_now(&s->kit.sim) - start;
}

static uint64_t test_interrupted(void)
{
    struct rng random;
    uint64_t runs = 0, longest = 0;
    rng_seed(&random, 1);
    bool goes_on = true;
    for (uint64_t dead_ns = 0; goes_on; dead_ns += STEP_NS) {
        struct site s;
        /* Once without a disturbance, to know how long it takes. Twice is the same as once. */
        goes_on = clean_up(&s, dead_ns, dead_ns);
        uint64_t took = recovery_ns(&s, 2);
        check_locks(&s);
        recovery_ns(&s, 3);
        check_locks(&s);
        check_end(&s, 4);
        close_all(&s);
        longest = max_u64(longest, took);
        /* The first is killed somewhere in it, the second too, the third comes through. */
        for (uint64_t cut = rng_below(&random, 4 * STEP_NS); cut < took; cut += 5 * STEP_NS) {
            clean_up(&s, dead_ns, dead_ns);
            play(&s, 2, recovers);
            kill_at(&s.players[2], cut);
            run(&s);
            play(&s, 3, recovers);
            kill_at(&s.players[3], rng_below(&random, took));
            run(&s);
            recovery_ns(&s, 4);
            check_locks(&s);
            check_end(&s, 4);
            close_all(&s);
            runs++;
        }
    }
    printf("interrupted and repeated: %" PRIu64 " runs, the longest recovery takes %" PRIu64 " us\n", runs, longest / NS_PER_US);
    return runs;
}

/* All at once, one of them killed on the way. */
static uint64_t test_together(void)
{
    struct rng random;
    uint64_t runs = 0;
    rng_seed(&random, 2);
    bool goes_on = true;
    for (uint64_t dead_ns = 0; goes_on; dead_ns += STEP_NS) {
        struct site s;
        goes_on = clean_up(&s, dead_ns, dead_ns);
        for (unsigned i = 2; i < ACTORS; i++)
            play(&s, i, recovers);
        kill_at(&s.players[2], rng_below(&random, 100 * NS_PER_US));
        run(&s);
        CHECK_EQ(s.players[3].rc, 0);
        CHECK_EQ(s.players[4].rc, 0);
        play(&s, 4, looks);
        run(&s);
        check_locks(&s);
        check_end(&s, 3);
        close_all(&s);
        runs++;
    }
    printf("several at once: %" PRIu64 " runs\n", runs);
    return runs;
}

/* A later session in the dead one's slot is none of its business. */
static void test_other_epoch(void)
{
    struct site s;
    clean_up(&s, 1, UINT32_MAX);
    s.players[DEAD].session.epoch--;
    recovery_ns(&s, 2);
    CHECK_EQ(word_mode(word_of(&s, 0)), WORD_SHARED);
    CHECK_EQ(word_count(word_of(&s, 1)), 2);
    s.players[DEAD].session.epoch++;
    recovery_ns(&s, 2);
    check_locks(&s);
    check_end(&s, 3);
    close_all(&s);
    printf("the session of another epoch is left alone\n");
}

int main(void)
{
    word = design_find("word");
    CHECK(test_interrupted() > 100);
    CHECK(test_together() > 50);
    test_other_epoch();
    return 0;
}
