/* SPDX-License-Identifier: Apache-2.0 */
#include "world/fiber.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif

#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* fiber_switch.S */
void fiber_switch(void **save_sp, void *to_sp);
void fiber_boot(void);
void fiber_main(struct fiber *f);

/* ---- what the sanitizers are told ----
 *
 * Always inline: the thread sanitizer keeps a stack of calls per fiber, and a function that changes fibers in between would be
 * entered on the one and left on the other. */

/* Before leaving the resumer's stack. */
static inline __attribute__((always_inline)) void announce_enter(struct fiber *f)
{
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&f->asan_resumer_fake, f->stack, f->stack_bytes);
#endif
#ifdef FIBER_TSAN
    f->tsan_resumer = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan_self, 0);
#endif
}

/* Having arrived on the fiber. Its fake stack is kept from its last yield; after fiber_reset the next run inherits it
 * rather than leaking it, and ASan collects the abandoned frames by their address. */
static inline __attribute__((always_inline)) void announce_entered(struct fiber *f)
{
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(f->asan_fake, &f->asan_resumer_stack, &f->asan_resumer_bytes);
#endif
}

/* Before leaving the fiber; `last` if it will not come back, so that ASan frees its fake stack. */
static inline __attribute__((always_inline)) void announce_leave(struct fiber *f, bool last)
{
#ifdef FIBER_ASAN
    if (last)
        f->asan_fake = NULL;
    __sanitizer_start_switch_fiber(last ? NULL : &f->asan_fake, f->asan_resumer_stack, f->asan_resumer_bytes);
#endif
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(f->tsan_resumer, 0);
#endif
}

static inline __attribute__((always_inline)) void announce_left(struct fiber *f)
{
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(f->asan_resumer_fake, NULL, NULL);
#endif
}

static void announce_start(struct fiber *f)
{
#ifdef FIBER_ASAN
    __asan_unpoison_memory_region(f->stack, f->stack_bytes);
#endif
#ifdef FIBER_TSAN
    f->tsan_self = __tsan_create_fiber(0);
#endif
}

static void announce_end(struct fiber *f)
{
#ifdef FIBER_TSAN
    __tsan_destroy_fiber(f->tsan_self);
    f->tsan_self = NULL;
#endif
}

/* Memory that is mapped in its place later must not have the marks of frames that were never left. */
static void announce_unmap(struct fiber *f)
{
#ifdef FIBER_ASAN
    if (f->guarded)
        __asan_unpoison_memory_region(f->stack, f->stack_bytes);
#endif
    (void)f;
}

/* ---- fibers ---- */

/* The frame that fiber_switch pops: see fiber_switch.S. */
#if defined(__x86_64__)
/* r15 r14 r13 r12 rbx rbp return, and two words: fiber_boot starts with an aligned stack, so that its call is one. */
enum { FRAME_WORDS = 9, FRAME_SELF = 3, FRAME_RETURN = 6 };
#elif defined(__aarch64__)
enum { FRAME_WORDS = 20, FRAME_SELF = 0, FRAME_RETURN = 11 }; /* x19 … x29 x30, d8 … d15 */
#endif

void fiber_start(struct fiber *f, fiber_fn fn, void *arg)
{
    assert(f->state == FIBER_IDLE);
    announce_start(f);
    f->fn = fn;
    f->arg = arg;
    uintptr_t *frame = (uintptr_t *)(f->stack + f->stack_bytes) - FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    frame[FRAME_SELF] = (uintptr_t)f;
    frame[FRAME_RETURN] = (uintptr_t)fiber_boot;
    f->sp = frame;
    f->state = FIBER_SUSPENDED;
}

/* The bottom of every fiber's stack. Not static: called from assembly. */
__attribute__((used, noreturn, visibility("hidden"))) void fiber_main(struct fiber *f)
{
    announce_entered(f);
    f->fn(f->arg);
    f->state = FIBER_IDLE;
    announce_leave(f, true);
    fiber_switch(&f->sp, f->resumer_sp);
    __builtin_trap();
}

bool fiber_resume(struct fiber *f)
{
    assert(f->state == FIBER_SUSPENDED);
    f->state = FIBER_RUNNING;
    announce_enter(f);
    fiber_switch(&f->resumer_sp, f->sp);
    announce_left(f);
    if (f->state != FIBER_IDLE)
        return false;
    announce_end(f);
    return true;
}

void fiber_yield(struct fiber *self)
{
    assert(self->state == FIBER_RUNNING);
    self->state = FIBER_SUSPENDED;
    announce_leave(self, false);
    fiber_switch(&self->sp, self->resumer_sp);
    announce_entered(self);
}

void fiber_reset(struct fiber *f)
{
    assert(f->state != FIBER_RUNNING);
    if (f->state == FIBER_SUSPENDED)
        announce_end(f);
    f->state = FIBER_IDLE;
}

/* ---- the pool ---- */

/* Stacks that began at the same place of a page would drive each other out of the first cache, when several fibers run in turns. */
#define SHIFTS 8u
#define SHIFT_BYTES 512u

int fiber_pool_init(struct fiber_pool *pool, unsigned count, size_t stack_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    stack_bytes = round_up(stack_bytes, page);
    if (!count || !stack_bytes)
        return -EINVAL;
    size_t slot_bytes = stack_bytes + page;
    struct fiber *fibers = calloc(count, sizeof *fibers);
    char *mapping = mmap(NULL, count * slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!fibers || mapping == MAP_FAILED) {
        if (mapping != MAP_FAILED)
            munmap(mapping, count * slot_bytes);
        free(fibers);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < count; i++) {
        fibers[i] = (struct fiber){.stack = mapping + i * slot_bytes + page, .stack_bytes = stack_bytes - i % SHIFTS * SHIFT_BYTES};
        fibers[i].next_free = i + 1 < count ? &fibers[i + 1] : NULL;
    }
    *pool = (struct fiber_pool){
        .fibers = fibers, .free = fibers, .mapping = mapping, .mapping_bytes = count * slot_bytes, .count = count};
    return 0;
}

void fiber_pool_free(struct fiber_pool *pool)
{
    for (unsigned i = 0; i < pool->count; i++) {
        fiber_reset(&pool->fibers[i]);
        announce_unmap(&pool->fibers[i]);
    }
    munmap(pool->mapping, pool->mapping_bytes);
    free(pool->fibers);
    *pool = (struct fiber_pool){0};
}

/* At the first use only: a large pool of which few are ever used costs nothing. */
static bool fiber_guard(struct fiber *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!f->guarded)
        f->guarded = !mprotect(f->stack - page, page, PROT_NONE);
    return f->guarded;
}

struct fiber *fiber_pool_take(struct fiber_pool *pool)
{
    struct fiber *f = pool->free;
    if (!f || !fiber_guard(f))
        return NULL;
    assert(f->state == FIBER_IDLE && pool->taken < pool->count);
    pool->free = f->next_free;
    pool->taken++;
    return f;
}

void fiber_pool_give_back(struct fiber_pool *pool, struct fiber *f)
{
    assert(f >= pool->fibers && f < pool->fibers + pool->count && pool->taken);
    fiber_reset(f);
    f->next_free = pool->free;
    pool->free = f;
    pool->taken--;
}
