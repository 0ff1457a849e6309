/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests on shared memory: a space of their own that goes away with them, children, and waiting for a condition with a
 * limit instead of sleeping and hoping. */
#ifndef PAWL_TESTS_SHM_SPACE_H
#define PAWL_TESTS_SHM_SPACE_H

#include "client/handle.h"
#include "tests/tuned.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS (20 * NS_PER_S) /* whatever should happen at once has happened by then, however loaded the machine is */

/* Children of a process with threads open sessions of their own, which start threads; the sanitizer would rather die. */
const char *__tsan_default_options(void);
__attribute__((used)) const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

/* ---- the space ---- */

static char space_where_text[128];
static pid_t space_owner;

static inline const char *space_path(void)
{
    return space_where_text + strlen("local:");
}

static inline void space_remove(void)
{
    if (getpid() == space_owner)
        unlink(space_path());
}

/* "local:/dev/shm/…", different for every process that runs tests. Removed when that process exits. */
static inline const char *space_where(void)
{
    if (!space_owner) {
        space_owner = getpid();
        snprintf(space_where_text, sizeof space_where_text, "local:/dev/shm/pawl-test.%d", (int)space_owner);
        unlink(space_path());
        atexit(space_remove);
    }
    return space_where_text;
}

/* The design under test, where a test is run for several. */
static inline const char *space_design(void)
{
    return getenv("PAWL_TEST_DESIGN");
}

static const struct knobs *space_knobs; /* of spaces that are made; null: the usual ones */

static inline pawl *space_open(const pawl_options *o)
{
    pawl *p = NULL;
    pawl_options with = o ? *o : (pawl_options){0};
    if (!with.design)
        with.design = space_design();
    int rc = pawl_open_tuned(space_where(), &with, space_knobs, &p);
    if (rc)
        CHECK_FAIL("pawl_open: %d: %s (%s)", rc, pawl_strerror(rc), pawl_explain());
    return p;
}

/* The present space goes; the next space_open makes another. */
static inline void space_reset(void)
{
    unlink(space_path());
}

/* ---- results ---- */

#define CHECK_RC(call, want)                                                                                                       \
    do {                                                                                                                           \
        int rc_ = (call), want_rc_ = (want);                                                                                       \
        if (rc_ != want_rc_)                                                                                                       \
            CHECK_FAIL("%s is %d (%s; %s), not %d (%s)", #call, rc_, pawl_strerror(rc_), pawl_explain(), want_rc_,                 \
                       pawl_strerror(want_rc_));                                                                                   \
    } while (0)
#define CHECK_OK(call) CHECK_RC(call, 0)

/* A lock that clients take in turns, in memory that they share. */
struct turns {
    uint64_t inside, sum, token;
};

/* One turn: no other client is inside (I1), and tokens rise (I2). */
static inline void take_turn(struct turns *t, pawl *p, pawl_key key, uint64_t deadline)
{
    pawl_grant g;
    CHECK_OK(pawl_timedlock(p, key, PAWL_EXCLUSIVE, deadline, &g));
    CHECK_EQ(__atomic_fetch_add(&t->inside, 1, __ATOMIC_RELAXED), 0);
    CHECK(g.token > t->token);
    t->token = g.token;
    t->sum++;
    CHECK_EQ(__atomic_fetch_sub(&t->inside, 1, __ATOMIC_RELAXED), 1);
    CHECK_OK(pawl_unlock(p, &g));
}

/* ---- waiting ---- */

static inline void pause_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    nanosleep(&t, NULL);
}

/* Looks every tenth of a millisecond until the condition is true. */
#define WAIT_FOR(condition)                                                                                                        \
    do {                                                                                                                           \
        uint64_t limit_ = pawl_in(LIMIT_NS);                                                                                       \
        while (!(condition)) {                                                                                                     \
            if (pawl_now() > limit_)                                                                                               \
                CHECK_FAIL("did not become true: %s", #condition);                                                                 \
            pause_ns(100 * NS_PER_US);                                                                                             \
        }                                                                                                                          \
    } while (0)

/* ---- children ---- */

/* Memory that parent and children share. */
static inline void *shared_memory(size_t bytes)
{
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED);
    return m;
}

/* Runs fn in a child, which dies with its parent and ends without running the parent's exit handlers. */
static inline pid_t child_start(void (*fn)(void *), void *arg)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        fn(arg);
        fflush(NULL);
        _exit(0);
    }
    return pid;
}

static inline void child_join(pid_t pid)
{
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        CHECK_FAIL("the child ended with status 0x%x", (unsigned)status);
}

static inline void child_kill(pid_t pid)
{
    int status;
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status))
        CHECK_FAIL("the child ended by itself with status 0x%x", (unsigned)status);
}

#endif
