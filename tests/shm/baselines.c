/* SPDX-License-Identifier: Apache-2.0 */
/* The baselines and references that run on shared memory do there what they say: they exclude, they share, a waiter gives up or is
 * granted the lock, and those with recovery survive the death of a holder. The workbench has them, libpawl does not. */
#include "designs/core/design.h"
#include "tests/shm/space.h"

#define PATIENCE_NS (20 * NS_PER_MS)

static struct shared {
    bool held, release;
} * shared;

/* Another process: holds the lock until it is told to release it. */
static void hold(void *mode)
{
    pawl *p = space_open(NULL);
    pawl_grant g;
    CHECK_OK(pawl_lock(p, pawl_name("demo"), *(enum pawl_mode *)mode, &g));
    __atomic_store_n(&shared->held, true, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&shared->release, __ATOMIC_ACQUIRE))
        pause_ns(100 * NS_PER_US);
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

static pid_t start_holder(enum pawl_mode mode)
{
    *shared = (struct shared){0};
    pid_t holder = child_start(hold, &mode);
    WAIT_FOR(__atomic_load_n(&shared->held, __ATOMIC_ACQUIRE));
    return holder;
}

static void end_holder(pid_t holder)
{
    __atomic_store_n(&shared->release, true, __ATOMIC_RELEASE);
    child_join(holder);
}

static void test_exclusive(pawl *p)
{
    pawl_grant g;
    pid_t holder = start_holder(PAWL_EXCLUSIVE);
    CHECK_RC(pawl_trylock(p, pawl_name("demo"), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    CHECK_RC(pawl_timedlock(p, pawl_name("demo"), PAWL_EXCLUSIVE, pawl_in(PATIENCE_NS), &g), -ETIMEDOUT);
    end_holder(holder);
    CHECK_OK(pawl_timedlock(p, pawl_name("demo"), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_OK(pawl_unlock(p, &g));
}

static void test_shared(pawl *p, bool offered)
{
    pawl_grant g;
    pid_t holder = start_holder(offered ? PAWL_SHARED : PAWL_EXCLUSIVE);
    int rc = pawl_trylock(p, pawl_name("demo"), PAWL_SHARED, &g);
    CHECK_EQ(rc, offered ? 0 : -PAWL_ENOTSUP);
    CHECK_RC(pawl_trylock(p, pawl_name("demo"), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    end_holder(holder);
    if (offered)
        CHECK_RC(pawl_trylock(p, pawl_name("demo"), PAWL_EXCLUSIVE, &g), -PAWL_EHELD); /* the own reader is left */
}

static void test_recovery(pawl *p)
{
    pawl_grant g;
    pid_t holder = start_holder(PAWL_EXCLUSIVE);
    CHECK_EQ(kill(holder, SIGKILL), 0);
    CHECK_EQ(waitpid(holder, NULL, 0), holder);
    CHECK_OK(pawl_timedlock(p, pawl_name("demo"), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_OK(pawl_unlock(p, &g));
}

static void try_design(const char *name)
{
    const struct design *d = design_find(name);
    CHECK(d);
    setenv("PAWL_TEST_DESIGN", name, 1);
    space_reset();
    pawl *p = space_open(&(pawl_options){.capacity = 100});
    test_exclusive(p);
    if (d->features & DESIGN_RECOVERY)
        test_recovery(p);
    test_shared(p, d->features & DESIGN_SHARED);
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    static const char *const designs[] = {"cas", "cas-backoff", "spin", "pthread", "pthread-rw"};
    space_where();
    shared = shared_memory(sizeof *shared);
    for (size_t i = 0; i < countof(designs); i++)
        try_design(designs[i]);
    return 0;
}
