/* SPDX-License-Identifier: Apache-2.0 */
#include "world/fiber.h"

#include "tests/check.h"
#include "world/world.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct probe {
    struct fiber *fiber;
    unsigned steps, depth;
    uint64_t sum;
};

static void three_steps(void *arg)
{
    struct probe *p = arg;
    for (int i = 0; i < 3; i++) {
        p->steps++;
        fiber_yield(p->fiber);
    }
}

static void test_switch(struct fiber_pool *pool)
{
    struct probe p = {.fiber = fiber_pool_take(pool)};
    fiber_start(p.fiber, three_steps, &p);
    CHECK_EQ(p.steps, 0);
    for (unsigned i = 1; i <= 3; i++) {
        CHECK(!fiber_resume(p.fiber));
        CHECK_EQ(p.steps, i);
    }
    CHECK(fiber_resume(p.fiber));
    CHECK_EQ(p.fiber->state, FIBER_IDLE);
    fiber_pool_give_back(pool, p.fiber);
}

/* The compiler trusts the ABI's alignment and moves 16 bytes at once. */
static void look_at_alignment(void *arg)
{
    struct probe *p = arg;
    p->sum = (uintptr_t)__builtin_frame_address(0) % 16;
}

static void test_alignment(struct fiber_pool *pool)
{
    struct probe p = {.fiber = fiber_pool_take(pool), .sum = 1};
    fiber_start(p.fiber, look_at_alignment, &p);
    CHECK(fiber_resume(p.fiber));
    CHECK_EQ(p.sum, 0);
    fiber_pool_give_back(pool, p.fiber);
}

/* Touches about half a kilobyte per level, so that the levels asked for fill most of a stack. */
static __attribute__((noinline)) uint64_t dive(struct probe *p, unsigned depth)
{
    volatile char frame[512];
    memset((char *)frame, (int)depth & 0x7f, sizeof frame);
    if (depth == 0)
        fiber_yield(p->fiber);
    uint64_t below = depth ? dive(p, depth - 1) : 0;
    return below + (uint64_t)frame[depth % sizeof frame];
}

static void run_dive(void *arg)
{
    struct probe *p = arg;
    p->sum = dive(p, p->depth);
}

static void test_deep(struct fiber_pool *pool)
{
    struct probe p = {.fiber = fiber_pool_take(pool), .depth = 40};
    fiber_start(p.fiber, run_dive, &p);
    CHECK(!fiber_resume(p.fiber));
    CHECK(fiber_resume(p.fiber));
    uint64_t expect = 0;
    for (unsigned d = 0; d <= 40; d++)
        expect += d & 0x7f;
    CHECK_EQ(p.sum, expect);
    fiber_pool_give_back(pool, p.fiber);
}

static void test_guard(struct fiber_pool *pool)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report it as an error of ours */
        signal(SIGBUS, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        struct probe p = {.fiber = fiber_pool_take(pool), .depth = 1u << 20};
        fiber_start(p.fiber, run_dive, &p);
        fiber_resume(p.fiber);
        _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void *resume_elsewhere(void *arg)
{
    struct probe *p = arg;
    CHECK(!fiber_resume(p->fiber));
    return NULL;
}

static void test_threads(struct fiber_pool *pool)
{
    struct probe p = {.fiber = fiber_pool_take(pool)};
    fiber_start(p.fiber, three_steps, &p);
    CHECK(!fiber_resume(p.fiber));
    for (unsigned i = 2; i <= 3; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, resume_elsewhere, &p), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(p.steps, i);
    }
    CHECK(fiber_resume(p.fiber));
    fiber_pool_give_back(pool, p.fiber);
}

static void test_abandon(struct fiber_pool *pool)
{
    struct probe p = {.fiber = fiber_pool_take(pool), .depth = 40};
    for (int round = 0; round < 100; round++) {
        p.steps = 0;
        fiber_start(p.fiber, run_dive, &p);
        CHECK(!fiber_resume(p.fiber)); /* deep in the stack, and left there */
        fiber_reset(p.fiber);
        fiber_start(p.fiber, three_steps, &p);
        while (!fiber_resume(p.fiber))
            ;
        CHECK_EQ(p.steps, 3);
    }
    fiber_start(p.fiber, run_dive, &p);
    CHECK(!fiber_resume(p.fiber));
    fiber_pool_give_back(pool, p.fiber); /* suspended: abandons it */
    CHECK_EQ(p.fiber->state, FIBER_IDLE);
}

static void test_bounds(void)
{
    struct fiber_pool pool;
    CHECK_EQ(fiber_pool_init(&pool, 0, FIBER_STACK_BYTES), -EINVAL);
    CHECK_EQ(fiber_pool_init(&pool, 2, FIBER_STACK_BYTES), 0);
    struct fiber *a = fiber_pool_take(&pool), *b = fiber_pool_take(&pool);
    CHECK(a && b && a != b);
    CHECK(!fiber_pool_take(&pool));
    fiber_pool_give_back(&pool, a);
    CHECK(fiber_pool_take(&pool) == a);
    fiber_pool_give_back(&pool, a);
    fiber_pool_give_back(&pool, b);
    fiber_pool_free(&pool);
}

static void yield_for_ever(void *arg)
{
    struct probe *p = arg;
    for (;;)
        fiber_yield(p->fiber);
}

static void print_cost(struct fiber_pool *pool)
{
    enum { ROUNDS = 200000 };
    struct probe p = {.fiber = fiber_pool_take(pool)};
    fiber_start(p.fiber, yield_for_ever, &p);
    fiber_resume(p.fiber);
    uint64_t start = world_clock(CLOCK_MONOTONIC);
    for (int i = 0; i < ROUNDS; i++)
        fiber_resume(p.fiber);
    uint64_t ns = world_clock(CLOCK_MONOTONIC) - start;
    printf("%" PRIu64 ".%" PRIu64 " ns per switch\n", ns / ROUNDS / 2, ns * 10 / ROUNDS / 2 % 10);
    fiber_pool_give_back(pool, p.fiber);
}

int main(void)
{
    struct fiber_pool pool;
    CHECK_EQ(fiber_pool_init(&pool, 4, FIBER_STACK_BYTES), 0);
    test_switch(&pool);
    test_alignment(&pool);
    test_deep(&pool);
    test_guard(&pool);
    test_threads(&pool);
    test_abandon(&pool);
    test_bounds();
    print_cost(&pool);
    CHECK_EQ(pool.taken, 0);
    fiber_pool_free(&pool);
    return 0;
}
