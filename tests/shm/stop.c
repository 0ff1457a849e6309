/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is stopped for longer than its lease: its locks go to others with higher tokens, it learns so from its next call,
 * whatever that is, and can open a new session. If no other session wanted them it may go on as before; but once a call
 * has said that the session is lost, it stays lost (I8). */
#include "tests/shm/space.h"

#define LEASE_NS (200 * NS_PER_MS)

enum step { START, HOLDING, GO_ON, DONE };

/* The first call of a holder when it goes on. */
enum call { CHECK_CALL, UNLOCK_CALL, LOCK_CALL, CONVERT_CALL, EXTEND_CALL, SUBMIT_CALL, CALLS };

static struct scene {
    uint32_t step;
    enum call call;
    enum pawl_mode mode;
    pawl_grant grant; /* of the one that is stopped */
    bool wanted;      /* by another session, which gets the lock meanwhile */
} * scene;

/* Only the process that is stopped has a short lease: the machine may stop any other for as long. */
static const pawl_options short_lease = {.keys = PAWL_KEYS_SPARSE, .sessions = 16, .lease_ns = LEASE_NS},
                          options = {.keys = PAWL_KEYS_SPARSE, .sessions = 16};

static void reach(enum step step)
{
    __atomic_store_n(&scene->step, step, __ATOMIC_SEQ_CST);
}

static bool reached(enum step step)
{
    return __atomic_load_n(&scene->step, __ATOMIC_SEQ_CST) >= step;
}

static int first_call(pawl *p, pawl_grant *g)
{
    pawl_grant other;
    pawl_completion c;
    uint64_t id;
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(8), .deadline_ns = UINT64_MAX};
    switch (scene->call) {
    case CHECK_CALL:
        return pawl_check(p, g);
    case UNLOCK_CALL:
        return pawl_unlock(p, g);
    case LOCK_CALL:
        return pawl_lock(p, pawl_id(8), PAWL_SHARED, &other);
    case CONVERT_CALL:
        return pawl_convert(p, g, g->mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED, UINT64_MAX);
    case EXTEND_CALL:
        return pawl_extend(p, g);
    default:
        CHECK_OK(pawl_submit(p, &r, &id));
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
        return c.result;
    }
}

static void holder(void *arg)
{
    pawl_grant g, other;
    pawl *p = space_open(&short_lease); /* no other session is open now, which could declare it lost */
    CHECK_OK(pawl_lock(p, pawl_id(7), scene->mode, &g));
    CHECK(g.expiry_ns <= pawl_in(LEASE_NS));
    scene->grant = g;
    reach(HOLDING);
    while (!reached(GO_ON)) /* no call of the library here: it is stopped in this loop */
        sched_yield();
    int rc = first_call(p, &g);
    CHECK(rc == -PAWL_ELOST || (rc == 0 && !scene->wanted));
    for (int i = 0; rc && i < 3; i++) { /* and it stays lost */
        CHECK_RC(pawl_check(p, &g), -PAWL_ELOST);
        CHECK_RC(pawl_lock(p, pawl_id(9), PAWL_EXCLUSIVE, &other), -PAWL_ELOST);
        CHECK_RC(pawl_trylock(p, pawl_id(7), PAWL_SHARED, &other), -PAWL_ELOST);
        CHECK_RC(pawl_extend(p, &g), -PAWL_ELOST);
        int end = pawl_unlock(p, &g); /* a lock that no other session has had since was held until now */
        CHECK(end == -PAWL_ELOST || (end == 0 && !scene->wanted));
        pause_ns(LEASE_NS / 2); /* long enough for a renewal, were there still any */
    }
    CHECK_OK(pawl_close(p));
    p = space_open(&options);
    for (uint64_t id = scene->wanted ? 8 : 7; id <= 9; id++) /* nothing of the old one is left */
        CHECK_OK(pawl_trylock(p, pawl_id(id), PAWL_EXCLUSIVE, &other));
    CHECK_OK(pawl_close(p));
    reach(DONE);
}

static bool stopped(pid_t pid)
{
    siginfo_t info = {0};
    return !waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) && info.si_pid == pid;
}

static pid_t stop_holder(void)
{
    reach(START);
    pid_t pid = child_start(holder, NULL);
    WAIT_FOR(reached(HOLDING));
    CHECK_EQ(kill(pid, SIGSTOP), 0);
    WAIT_FOR(stopped(pid));
    return pid;
}

static void next(void *arg)
{
    pawl_grant g;
    pawl *p = space_open(&options);
    uint64_t start = pawl_now();
    CHECK_OK(pawl_timedlock(p, pawl_id(7), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK(g.token > scene->grant.token);
    CHECK(pawl_now() > scene->grant.expiry_ns + SEAT_GRACE_NS); /* not before the lease was over, and withdrawn for a while */
    if (pawl_now() - start > 4 * LEASE_NS)
        printf("note: it took %" PRIu64 " ms to get the lock of a stopped process\n", (pawl_now() - start) / NS_PER_MS);
    reach(GO_ON);
    CHECK_EQ(kill((pid_t)(intptr_t)arg, SIGCONT), 0);
    WAIT_FOR(reached(DONE));
    CHECK_OK(pawl_check(p, &g)); /* the late one has changed nothing */
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

/* Another process wants the lock meanwhile. */
static void with_a_successor(void)
{
    scene->wanted = true;
    pid_t pid = stop_holder();
    child_join(child_start(next, (void *)(intptr_t)pid));
    child_join(pid);
}

/* No other process wants it. */
static void alone(void)
{
    scene->wanted = false;
    pid_t pid = stop_holder();
    WAIT_FOR(pawl_now() > scene->grant.expiry_ns + LEASE_NS); /* it may have been renewed after the grant */
    reach(GO_ON);
    CHECK_EQ(kill(pid, SIGCONT), 0);
    child_join(pid);
}

int main(void)
{
    scene = shared_memory(sizeof *scene);
    space_where();
    for (enum call call = 0; call < CALLS; call++) {
        scene->call = call;
        scene->mode = call % 2 ? PAWL_SHARED : PAWL_EXCLUSIVE;
        with_a_successor();
        scene->mode = call % 2 ? PAWL_EXCLUSIVE : PAWL_SHARED;
        alone();
    }
    return 0;
}
