/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers for every file that the standard library lacks. */
#ifndef PAWL_LIB_BASE_H
#define PAWL_LIB_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
/* Runs between the release of a lock and the waiter that slept for it. By then nothing of it is in the caches: the linker puts
 * these functions close together, so that they are on few pages. */
#define HANDOVER __attribute__((hot))
/* Runs once, when a session or a daemon begins, or seldom, or beside what takes far longer: made for size. */
#define ONCE __attribute__((cold))
#define INLINED static inline __attribute__((always_inline)) /* on a fast path, whatever the compiler estimates */

/* For the hot path: what the sanitized builds assert and the release does not pay for. */
#ifdef PAWL_CHECKED
#define debug_assert(x) assert(x)
#else
#define debug_assert(x) ((void)0)
#endif

#define countof(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* `a` is a power of two. */
#define round_up(x, a) (((x) + ((a)-1)) & ~((__typeof__(x))(a)-1))

/* Two cores that write to one line stop each other; nothing hot shares one. */
#define CACHE_LINE 64

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* Deadlines are absolute nanoseconds of the caller's clock. */
#define DEADLINE_TRY UINT64_C(0)  /* do not wait at all */
#define DEADLINE_NEVER UINT64_MAX /* wait for as long as it takes */

typedef unsigned __int128 u128;

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Deadlines are added to, and "never" must stay never. */
static inline uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
