/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: a stack of their own and a switch that costs a few nanoseconds.
 *
 * In the simulation every task is one. In production an asynchronous lock operation that must wait goes on in one from a
 * bounded pool. A fiber is passed explicitly and keeps nothing in thread-local storage, so any thread may resume it, one
 * at a time; code on a fiber must not hold a pointer to a thread-local variable across a yield.
 *
 * The switch saves what the ABI calls callee-saved, and no floating-point control words: nothing here changes them.
 * Under AddressSanitizer and ThreadSanitizer every switch is announced. */
#ifndef PAWL_WORLD_FIBER_H
#define PAWL_WORLD_FIBER_H

#include "lib/base.h"

typedef void (*fiber_fn)(void *arg);

enum fiber_state { FIBER_IDLE, FIBER_SUSPENDED, FIBER_RUNNING };

struct fiber {
    void *sp;         /* of the fiber, while it is suspended */
    void *resumer_sp; /* of its resumer, while it runs */
    char *stack;      /* lowest usable address; the guard page lies below */
    size_t stack_bytes;
    fiber_fn fn;
    void *arg;
    enum fiber_state state;
    bool guarded; /* the guard page is in place */
    struct fiber *next_free;
    /* For the sanitizers; unused without them. */
    void *asan_fake, *asan_resumer_fake;
    const void *asan_resumer_stack;
    size_t asan_resumer_bytes;
    void *tsan_self, *tsan_resumer;
};

/* Prepares an idle fiber to run fn(arg); nothing runs before fiber_resume. */
void fiber_start(struct fiber *f, fiber_fn fn, void *arg);

/* Runs the fiber until it yields or fn returns. True if fn returned: the fiber is idle again. */
bool fiber_resume(struct fiber *f);

/* Called on the fiber itself: goes back to its resumer, returns when it is resumed again. */
void fiber_yield(struct fiber *self);

/* Abandons whatever a suspended fiber was doing, without unwinding: a simulated crash. It is idle afterwards. */
void fiber_reset(struct fiber *f);

/* A fixed number of fibers with their stacks in one mapping. The caller serialises take and give_back. */
struct fiber_pool {
    struct fiber *fibers;
    struct fiber *free;
    char *mapping;
    size_t mapping_bytes;
    unsigned count, taken;
};

/* Deep enough for a protocol over a fabric with room for the C library's formatted output. */
#ifdef __SANITIZE_ADDRESS__
#define FIBER_STACK_BYTES ((size_t)256 << 10) /* the sanitizer puts walls around every variable */
#else
#define FIBER_STACK_BYTES ((size_t)64 << 10)
#endif

/* 0, or -ENOMEM, or -EINVAL if there would be no fiber or no stack. */
int fiber_pool_init(struct fiber_pool *pool, unsigned count, size_t stack_bytes);
void fiber_pool_free(struct fiber_pool *pool);

/* Null if all are taken: the bound is the caller's back-pressure. (Or if the kernel refuses a guard page.) */
struct fiber *fiber_pool_take(struct fiber_pool *pool);

/* An idle or suspended fiber; a suspended one is abandoned. */
void fiber_pool_give_back(struct fiber_pool *pool, struct fiber *f);

#endif
