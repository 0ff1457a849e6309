/* SPDX-License-Identifier: Apache-2.0 */
/* Kills a process after exactly n instructions inside the library: each kind of lock operation, the insertion of a new key, opening
 * and closing a session. One run, instruction by instruction, finds out after which of them the shared memory had changed; then
 * the process dies after each of these, and after others at random. After each death another process must be able to get every
 * lock, with a higher token, within two seconds. */
#include "client/locker.h"
#include "client/segment.h"
#include "cluster/session.h"
#include "fabric/shm.h"
#include "lib/rng.h"
#include "tests/shm/space.h"
#include "tests/trap.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>

#define KEYS 3
#define SOON_NS (2 * NS_PER_S)

static bool readers; /* the design has shared locks, and conversions */

enum role { FREE_KEY, HELD_KEY, NEW_KEY };

#define CHANGES_MAX 512

static pawl_options options = {.capacity = 40, .sessions = 6, .holds = 4, .lease_ns = PAWL_LEASE_FOREVER};

static struct scene {
    uint64_t last_token[KEYS + 1];
    uint64_t round; /* names the new key of this round */
    uint64_t death; /* after so many steps */
    uint64_t steps; /* made */
    bool survived;
    uint64_t changes[CHANGES_MAX]; /* steps after which the shared memory was different */
    uint32_t change_count;
} * scene;

/* The memory that is watched for changes: slots and hold records, and descriptors and the cells with their locks. */
static volatile const uint64_t *watched[2];
static size_t watched_words[2];

static pawl_key key(enum role role)
{
    static char fresh[40];
    snprintf(fresh, sizeof fresh, "a new name, number %" PRIu64, scene->round);
    return role == FREE_KEY ? pawl_name("free") : role == HELD_KEY ? pawl_name("held") : pawl_name(fresh);
}

/* ---- what is done until death; each stops before and after the part that counts ---- */

static void watch(void)
{
    struct segment *s;
    CHECK_EQ(segment_open(space_path(), &s), 0);
    const struct layout_header *h = &s->header;
    const char *base = s->base;
    watched[0] = (const uint64_t *)(base + h->slots);
    watched_words[0] = (h->rings - h->slots) / 8;
    watched[1] = (const uint64_t *)(base + h->descs);
    watched_words[1] = (h->names - h->descs) / 8;
}

static struct scene *volatile step_scene;

PLAIN static uint64_t fingerprint(void)
{
    uint64_t sum = 0;
    for (unsigned part = 0; part < 2; part++)
        for (size_t i = 0; i < watched_words[part]; i++)
            sum = (sum ^ watched[part][i]) * UINT64_C(0x9e3779b97f4a7c15);
    return sum;
}

PLAIN static void on_step(int signal)
{
    static uint64_t before;
    struct scene *s = step_scene;
    if (s->death == UINT64_MAX && s->change_count < CHANGES_MAX) {
        uint64_t now = fingerprint();
        if (now != before)
            s->changes[s->change_count++] = s->steps;
        before = now;
    }
    if (s->steps++ == s->death)
        trap_die();
}

static void begin(void)
{
    step_scene = scene;
    watch();
    trap_begin(on_step);
}

static void end(void)
{
    trap_end();
    scene->survived = true;
}

static pawl *victim_open(void)
{
    pawl_grant g;
    pawl *p = space_open(&options);
    CHECK_OK(pawl_lock(p, key(FREE_KEY), PAWL_EXCLUSIVE, &g)); /* so that what is done once was done */
    CHECK_OK(pawl_unlock(p, &g));
    return p;
}

static void lock_unlock(enum role role, enum pawl_mode mode)
{
    pawl_grant g;
    pawl *p = victim_open();
    pawl_key k = key(role);
    begin();
    if (!pawl_lock(p, k, mode, &g))
        pawl_unlock(p, &g);
    end();
}

static void do_exclusive(void)
{
    lock_unlock(FREE_KEY, PAWL_EXCLUSIVE);
}

static void do_shared(void)
{
    lock_unlock(FREE_KEY, PAWL_SHARED);
}

static void do_second_reader(void) /* the judge reads it, too */
{
    lock_unlock(HELD_KEY, PAWL_SHARED);
}

static void do_insert(void)
{
    lock_unlock(NEW_KEY, PAWL_EXCLUSIVE);
}

static void do_convert(void)
{
    pawl_grant g;
    pawl *p = victim_open();
    CHECK_OK(pawl_lock(p, key(FREE_KEY), PAWL_EXCLUSIVE, &g));
    begin();
    if (!pawl_convert(p, &g, PAWL_SHARED, UINT64_MAX) && !pawl_convert(p, &g, PAWL_EXCLUSIVE, UINT64_MAX))
        pawl_unlock(p, &g);
    end();
}

static void do_refused_upgrade(void) /* the judge reads it, too: gives up at its deadline */
{
    pawl_grant g;
    pawl *p = victim_open();
    CHECK_OK(pawl_lock(p, key(HELD_KEY), PAWL_SHARED, &g));
    begin();
    pawl_convert(p, &g, PAWL_EXCLUSIVE, pawl_in(NS_PER_MS));
    pawl_unlock(p, &g);
    end();
}

static void do_wait(void)
{
    pawl_grant g;
    pawl *p = victim_open();
    pawl_key k = key(HELD_KEY);
    begin();
    pawl_timedlock(p, k, PAWL_EXCLUSIVE, pawl_in(NS_PER_MS), &g);
    end();
}

/* Another session of the process holds the lock until this one sleeps for it. The design may take the way of fast_wait. */
static void *release_to_waiter(void *arg)
{
    pawl *p = space_open(&options);
    pawl_grant g;
    pawl_state now = {0};
    CHECK_OK(pawl_lock(p, key(FREE_KEY), PAWL_EXCLUSIVE, &g));
    sem_post(arg);
    while (!now.waiters) {
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS / 4}, NULL);
        CHECK_OK(pawl_query(p, key(FREE_KEY), &now));
    }
    CHECK_OK(pawl_unlock(p, &g));
    return NULL;
}

static void do_wait_and_take(void)
{
    sem_t held;
    pthread_t thread;
    pawl_grant g;
    pawl *p = victim_open();
    CHECK(!sem_init(&held, 0, 0) && !pthread_create(&thread, NULL, release_to_waiter, &held));
    sem_wait(&held);
    pawl_key k = key(FREE_KEY);
    begin();
    if (!pawl_lock(p, k, PAWL_EXCLUSIVE, &g))
        pawl_unlock(p, &g);
    end();
}

/* Opening and closing happen in the library's thread; here they are done in this one, which can be stepped through. */
static void do_session(void)
{
    struct segment *s;
    struct space space;
    struct session me = {0};
    struct fab_ep ep;
    struct hold h;
    CHECK_EQ(segment_open(space_path(), &s), 0);
    layout_space(&s->header, 0, &space);
    fab_shm_init(&ep, s->base, s->size);
    me.seen = calloc(space.slot_count, sizeof *me.seen);
    struct locker locker = {.seat = {.space = &space, .me = &me, .ep = &ep, .world = &world_real}};
    table_init(&locker.table, &s->header, 0);
    const struct session_params params = {.lease_ns = PAWL_LEASE_FOREVER, .proof = fab_shm_proof(), .label = "stepped"};
    pawl_key k = key(FREE_KEY);
    begin();
    if (!session_open(&locker.seat, &params)) {
        locker_lock(&locker, k, readers ? PAWL_SHARED : PAWL_EXCLUSIVE, UINT64_MAX, &h); /* closing has something to free */
        session_tend(&locker.seat);
        session_close(&locker.seat);
    }
    end();
}

static const struct operation {
    const char *name;
    void (*run)(void);
    enum pawl_mode judge_holds; /* HELD_KEY meanwhile, 0: does not */
    bool readers;               /* only where there are any */
} operations[] = {
    {"insert", do_insert, 0, false}, /* while there is room */
    {"exclusive", do_exclusive, 0, false},
    {"shared", do_shared, 0, true},
    {"shared, second", do_second_reader, PAWL_SHARED, true},
    {"convert down and up", do_convert, 0, true},
    {"convert in vain", do_refused_upgrade, PAWL_SHARED, true},
    {"wait in vain", do_wait, PAWL_EXCLUSIVE, false},
    {"wait and take", do_wait_and_take, 0, false},
    {"session", do_session, 0, false},
    {"forget and insert", do_insert, 0, false},
};

static void victim(void *arg)
{
    const struct operation *op = arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    op->run();
}

/* ---- the judge: a process of its own, because this one must not have threads when it makes children ---- */

static int to_judge[2], from_judge[2];

static void take_all(pawl *p)
{
    for (enum role role = FREE_KEY; role <= NEW_KEY; role++) {
        pawl_grant g;
        pawl_state s;
        uint64_t *last = &scene->last_token[role];
        int rc = pawl_timedlock(p, key(role), PAWL_EXCLUSIVE, pawl_in(SOON_NS), &g);
        if (rc)
            CHECK_FAIL("lock %d is not to be had: %d, %s", (int)role, rc, pawl_explain());
        if (g.token <= *last)
            CHECK_FAIL("lock %d: token %" PRIx64 " is not above %" PRIx64, (int)role, g.token, *last);
        *last = g.token;
        CHECK_OK(pawl_unlock(p, &g));
        CHECK_OK(pawl_query(p, key(role), &s));
        CHECK_EQ(s.mode, 0);
    }
}

static void judge(void *arg)
{
    pawl *p = space_open(&options);
    pawl_grant held = {0};
    char command;
    close(to_judge[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(to_judge[0], &command, 1) == 1) {
        if (command == PAWL_SHARED || command == PAWL_EXCLUSIVE) {
            CHECK_OK(pawl_timedlock(p, key(HELD_KEY), (enum pawl_mode)command, pawl_in(SOON_NS), &held));
        } else {
            if (held.token) {
                CHECK_OK(pawl_check(p, &held));
                CHECK_OK(pawl_unlock(p, &held));
                held.token = 0;
            }
            take_all(p);
        }
        CHECK_EQ(write(from_judge[1], &command, 1), 1);
    }
    CHECK_OK(pawl_close(p));
}

static void ask(char command)
{
    char answer;
    CHECK_EQ(write(to_judge[1], &command, 1), 1);
    if (read(from_judge[0], &answer, 1) != 1)
        exit(1); /* it has said what is wrong */
}

/* One death after so many steps. False if the operation was over before. */
static bool die_after(const struct operation *op, uint64_t death)
{
    int status;
    scene->round++;
    scene->last_token[NEW_KEY] = 0;
    scene->death = death;
    scene->steps = 0;
    scene->survived = false;
    if (op->judge_holds)
        ask((char)op->judge_holds);
    pid_t pid = child_start(victim, (void *)op);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        exit(77);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!killed && !scene->survived)
        CHECK_FAIL("%s: status 0x%x after %" PRIu64 " steps", op->name, (unsigned)status, scene->steps);
    ask('?');
    return !scene->survived;
}

static struct rng rng;

static uint64_t lengths[countof(operations)];

/* After every change, in an order of chance should there not be time for all. */
static unsigned walk(unsigned n, uint64_t end)
{
    static uint64_t points[CHANGES_MAX];
    const struct operation *op = &operations[n];
    scene->change_count = 0;
    CHECK(!die_after(op, UINT64_MAX));
    lengths[n] = scene->steps;
    unsigned deaths = 0, count = scene->change_count;
    for (unsigned i = 0; i < count; i++) {
        unsigned at = (unsigned)rng_below(&rng, i + 1);
        points[i] = points[at];
        points[at] = scene->changes[i];
    }
    while (deaths < count && pawl_now() < end)
        die_after(op, points[deaths++]);
    printf("%-20s %7" PRIu64 " instructions, %3u changes, killed after %u of them\n", op->name, lengths[n], count, deaths);
    return deaths;
}

static bool applies(unsigned n)
{
    return readers || !operations[n].readers;
}

static void stage(const char *design, bool has_readers, uint64_t ns)
{
    unsigned deaths = 0;
    options.design = design;
    readers = has_readers;
    memset(scene, 0, sizeof *scene);
    space_reset();
    CHECK_EQ(pipe(to_judge), 0);
    CHECK_EQ(pipe(from_judge), 0);
    pid_t pid = child_start(judge, NULL);
    close(from_judge[1]);
    close(to_judge[0]);
    printf("%s\n", design);
    uint64_t end = pawl_in(ns);
    for (unsigned i = 0; i < countof(operations); i++)
        if (applies(i))
            deaths += walk(i, end);
    while (pawl_now() < end) { /* then at any instruction */
        unsigned n = (unsigned)rng_below(&rng, countof(operations));
        if (applies(n)) {
            die_after(&operations[n], rng_below(&rng, lengths[n]));
            deaths++;
        }
    }
    close(to_judge[1]);
    child_join(pid);
    close(from_judge[0]);
    printf("%u kills\n", deaths);
}

int main(void)
{
    rng_seed(&rng, (uint64_t)getpid());
    scene = shared_memory(sizeof *scene);
    space_where();
    stage("word", true, test_seconds() * NS_PER_S / 8);
    space_knobs = tuned(design_find("word"), "open-every", 1);
    stage("word", true, test_seconds() * NS_PER_S / 8);
    space_knobs = NULL;
    stage("alock", false, test_seconds() * NS_PER_S / 4);
    return 0;
}
