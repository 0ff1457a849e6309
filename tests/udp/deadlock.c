/* SPDX-License-Identifier: Apache-2.0 */
/* Processes and threads that wait for each other over real packets, some of which are lost: one of each deadlock is told, long
 * before its deadline, and no other is. */
#include "tests/udp/rack.h"

#include <errno.h>

#define LOCKS 16
#define LEASE_NS (6 * NS_PER_S) /* the machine may stop any process for seconds, and no host shall be lost by that */
#define DEADLINE_NS (30 * NS_PER_S)
#define SOON_NS (10 * NS_PER_S) /* a tenth of a second, on a machine that has time */
#define A_WHILE_NS (400 * NS_PER_MS)

/* Shared by two clients that wait for each other. */
static struct crossing {
    uint64_t first_lock; /* and the one after it */
    uint32_t arrived, told, granted;
    uint64_t told_ns; /* after how long */
} * crossing;

static void meet(uint32_t count)
{
    __atomic_add_fetch(&crossing->arrived, 1, __ATOMIC_ACQ_REL);
    WAIT_FOR(__atomic_load_n(&crossing->arrived, __ATOMIC_ACQUIRE) >= count);
}

/* Holds one lock and wants the other. The client that is told releases its own, and the other client gets it. */
static void cross(pawl *p, unsigned side, unsigned others)
{
    pawl_grant mine, other;
    CHECK_OK(pawl_lock(p, pawl_id(crossing->first_lock + side), PAWL_EXCLUSIVE, &mine));
    meet(2 + others);
    uint64_t begin = pawl_now();
    int rc = pawl_timedlock(p, pawl_id(crossing->first_lock + !side), PAWL_EXCLUSIVE, pawl_in(DEADLINE_NS), &other);
    if (rc == -EDEADLK) {
        __atomic_store_n(&crossing->told_ns, pawl_now() - begin, __ATOMIC_RELEASE);
        CHECK(strstr(pawl_explain(), "release that"));
        CHECK_OK(pawl_check(p, &mine));
        __atomic_add_fetch(&crossing->told, 1, __ATOMIC_ACQ_REL);
    } else {
        CHECK_OK(rc);
        CHECK_OK(pawl_unlock(p, &other));
        __atomic_add_fetch(&crossing->granted, 1, __ATOMIC_ACQ_REL);
    }
    CHECK_OK(pawl_unlock(p, &mine));
}

static void check_one_told(const char *what)
{
    CHECK_EQ(crossing->told, 1);
    CHECK_EQ(crossing->granted, 1);
    CHECK(crossing->told_ns < SOON_NS);
    printf("%s: told after %.0f ms\n", what, (double)crossing->told_ns / NS_PER_MS);
    *crossing = (struct crossing){.first_lock = crossing->first_lock + 2};
}

static void process(void *side)
{
    pawl *p = rack_open(*(unsigned *)side, NULL);
    cross(p, *(unsigned *)side, 0);
    CHECK_OK(pawl_close(p));
}

static void processes(void)
{
    pid_t pids[2];
    for (unsigned i = 0; i < 2; i++)
        pids[i] = child_start(process, &i);
    for (unsigned i = 0; i < 2; i++)
        child_join(pids[i]);
    check_one_told("two processes on two hosts");
}

struct side {
    pawl *p;
    pawl_grant grant;
    pthread_t thread;
    int rc;
};

static void *second_thread(void *arg)
{
    const struct side *s = arg;
    cross(s->p, 1, 0);
    return NULL;
}

static void threads(void)
{
    struct side s = {.p = rack_open(0, NULL)};
    CHECK_EQ(pthread_create(&s.thread, NULL, second_thread, &s), 0);
    cross(s.p, 0, 0);
    CHECK_EQ(pthread_join(s.thread, NULL), 0);
    check_one_told("two threads of one session");
    CHECK_OK(pawl_close(s.p));
}

/* ---- cycles that are no deadlocks ---- */

static void *wait_for_second(void *arg)
{
    struct side *s = arg;
    s->rc = pawl_timedlock(s->p, pawl_id(crossing->first_lock + 1), PAWL_EXCLUSIVE, pawl_in(DEADLINE_NS), &s->grant);
    return NULL;
}

static void *wait_for_first(void *arg)
{
    struct side *s = arg;
    s->rc = pawl_timedlock(s->p, pawl_id(crossing->first_lock), PAWL_EXCLUSIVE, pawl_in(DEADLINE_NS), &s->grant);
    return NULL;
}

/* One thread of the session has the first lock and goes on; another waits for the second, whose holder waits for the first. */
static void thread_that_goes_on(void)
{
    struct side one = {.p = rack_open(0, NULL)}, two = {.p = rack_open(1, NULL)};
    pawl_grant first, second;
    CHECK_OK(pawl_lock(one.p, pawl_id(crossing->first_lock), PAWL_EXCLUSIVE, &first));
    CHECK_OK(pawl_lock(two.p, pawl_id(crossing->first_lock + 1), PAWL_EXCLUSIVE, &second));
    CHECK_EQ(pthread_create(&one.thread, NULL, wait_for_second, &one), 0);
    CHECK_EQ(pthread_create(&two.thread, NULL, wait_for_first, &two), 0);
    pause_ns(A_WHILE_NS);
    CHECK_OK(pawl_unlock(one.p, &first));
    CHECK_EQ(pthread_join(two.thread, NULL), 0);
    CHECK_OK(two.rc);
    CHECK_OK(pawl_unlock(two.p, &second));
    CHECK_EQ(pthread_join(one.thread, NULL), 0);
    CHECK_OK(one.rc);
    CHECK_OK(pawl_close(one.p));
    CHECK_OK(pawl_close(two.p));
    crossing->first_lock += 2;
}

static void *give_back(void *arg)
{
    struct side *s = arg;
    s->rc = pawl_unlock(s->p, &s->grant);
    return NULL;
}

/* Has the second lock, and wants the first. */
static void *second_then_first(void *arg)
{
    struct side *s = arg;
    pawl_grant second;
    CHECK_OK(pawl_lock(s->p, pawl_id(crossing->first_lock + 1), PAWL_EXCLUSIVE, &second));
    meet(2);
    wait_for_first(s);
    CHECK_OK(pawl_unlock(s->p, &second));
    return NULL;
}

/* In this session threads give back what others have locked: that one waits says nothing about what it has locked. */
static void session_that_hands_over(void)
{
    struct side one = {.p = rack_open(0, NULL)}, two = {.p = rack_open(1, NULL)};
    pawl_grant none;
    CHECK_OK(pawl_lock(one.p, pawl_id(LOCKS - 1), PAWL_SHARED, &one.grant));
    CHECK_EQ(pthread_create(&one.thread, NULL, give_back, &one), 0);
    CHECK_EQ(pthread_join(one.thread, NULL), 0);
    CHECK_OK(one.rc);

    CHECK_OK(pawl_lock(one.p, pawl_id(crossing->first_lock), PAWL_EXCLUSIVE, &one.grant));
    CHECK_EQ(pthread_create(&two.thread, NULL, second_then_first, &two), 0);
    meet(2);
    int rc = pawl_timedlock(one.p, pawl_id(crossing->first_lock + 1), PAWL_EXCLUSIVE, pawl_in(A_WHILE_NS), &none);
    CHECK_EQ(rc, -ETIMEDOUT);
    CHECK_OK(pawl_unlock(one.p, &one.grant));
    CHECK_EQ(pthread_join(two.thread, NULL), 0);
    CHECK_OK(two.rc);
    CHECK_OK(pawl_close(one.p));
    CHECK_OK(pawl_close(two.p));
    crossing->first_lock += 2;
}

/* A thread that submits does not wait. */
static void submitted(void)
{
    pawl *one = rack_open(0, NULL), *two = rack_open(1, NULL);
    pawl_grant first, second, none;
    pawl_completion done;
    uint64_t id;
    CHECK_OK(pawl_lock(one, pawl_id(crossing->first_lock), PAWL_EXCLUSIVE, &first));
    CHECK_OK(pawl_lock(two, pawl_id(crossing->first_lock + 1), PAWL_EXCLUSIVE, &second));
    const pawl_request r = {
        .op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(crossing->first_lock + 1), .deadline_ns = pawl_in(DEADLINE_NS)};
    CHECK_OK(pawl_submit(one, &r, &id));
    int rc = pawl_timedlock(two, pawl_id(crossing->first_lock), PAWL_EXCLUSIVE, pawl_in(A_WHILE_NS), &none);
    CHECK_EQ(rc, -ETIMEDOUT);
    CHECK_OK(pawl_unlock(two, &second));
    CHECK_EQ(pawl_reap(one, &done, 1, pawl_in(DEADLINE_NS)), 1);
    CHECK_OK(done.result);
    CHECK_OK(pawl_close(one));
    CHECK_OK(pawl_close(two));
    crossing->first_lock += 2;
}

int main(void)
{
    const struct rack_test t = {.design = rack_design("fisslock"),
                                .servers = 2,
                                .locks = LOCKS,
                                .lease_ns = LEASE_NS,
                                .faults = {.loss = 10, .duplicate = 20, .late = 20, .late_ns = 5 * NS_PER_MS},
                                .seed = (uint64_t)getpid()};
    crossing = shared_memory(sizeof *crossing);
    rack_begin(&t);
    processes();
    threads();
    thread_that_goes_on();
    session_that_hands_over();
    submitted();
    rack_end();
    return 0;
}
