/* SPDX-License-Identifier: Apache-2.0 */
/* Exclusion, time-outs, shared mode and recovery of the baselines on shared memory. The product does not offer them, so this
 * program opens them through the workbench's registry. */
#include "tests/shm/space.h"

#include <errno.h>

#define KEY pawl_name("demo")

enum stage { STARTING, HOLDS, MAY_RELEASE, HAS_RELEASED };

static struct shared {
    const char *design;
    enum pawl_mode mode;
    enum stage holder;
    bool waiter_had_it;
} * shared;

#define STAGE_IS(s) (__atomic_load_n(&shared->holder, __ATOMIC_SEQ_CST) >= (s))

static pawl *open_session(void)
{
    const pawl_options o = {.design = shared->design, .capacity = 100};
    return space_open(&o);
}

static void set_stage(enum stage s)
{
    __atomic_store_n(&shared->holder, s, __ATOMIC_SEQ_CST);
}

/* A child that locks, and unlocks when the parent allows it. */
static void hold(void *arg)
{
    pawl_grant g;
    pawl *p = open_session();
    (void)arg;
    CHECK_OK(pawl_lock(p, KEY, shared->mode, &g));
    set_stage(HOLDS);
    WAIT_FOR(STAGE_IS(MAY_RELEASE));
    set_stage(HAS_RELEASED); /* before the call: the waiter may get the lock before the call returns */
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

static pid_t start_holder(enum pawl_mode mode)
{
    shared->mode = mode;
    set_stage(STARTING);
    pid_t pid = child_start(hold, NULL);
    WAIT_FOR(STAGE_IS(HOLDS));
    return pid;
}

static void wait_for_it(void *arg)
{
    pawl_grant g;
    pawl *p = open_session();
    (void)arg;
    CHECK_OK(pawl_timedlock(p, KEY, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK(STAGE_IS(HAS_RELEASED));
    shared->waiter_had_it = true;
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

static void check_exclusive(void)
{
    pawl_grant g;
    pawl *p = open_session();
    pid_t holder = start_holder(PAWL_EXCLUSIVE);
    CHECK_RC(pawl_trylock(p, KEY, PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    CHECK_RC(pawl_timedlock(p, KEY, PAWL_EXCLUSIVE, pawl_in(50 * NS_PER_MS), &g), -ETIMEDOUT);
    shared->waiter_had_it = false;
    pid_t waiter = child_start(wait_for_it, NULL);
    pause_ns(50 * NS_PER_MS);
    set_stage(MAY_RELEASE);
    child_join(holder);
    child_join(waiter);
    CHECK(shared->waiter_had_it);
    CHECK_OK(pawl_trylock(p, KEY, PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

static void check_readers(void)
{
    pawl_grant g;
    pawl *p = open_session();
    pid_t holder = start_holder(PAWL_SHARED);
    CHECK_OK(pawl_trylock(p, KEY, PAWL_SHARED, &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_RC(pawl_trylock(p, KEY, PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    set_stage(MAY_RELEASE);
    child_join(holder);
    CHECK_OK(pawl_close(p));
}

static void check_recovery(void)
{
    pawl_grant g;
    pawl *p = open_session();
    child_kill(start_holder(PAWL_EXCLUSIVE));
    CHECK_OK(pawl_timedlock(p, KEY, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_RC(pawl_trylock(p, KEY, PAWL_SHARED, &g), -PAWL_ENOTSUP);
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    static const char *const designs[] = {"cas", "cas-backoff", "spin", "pthread", "pthread-rw"};
    shared = shared_memory(sizeof *shared);
    for (size_t i = 0; i < countof(designs); i++) {
        shared->design = designs[i];
        check_exclusive();
        if (!strcmp(designs[i], "pthread"))
            check_recovery();
        if (!strcmp(designs[i], "pthread-rw"))
            check_readers();
        space_reset();
    }
    return 0;
}
