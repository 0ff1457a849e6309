/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm.h"
#include "fabric/lower.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A dead process's last thread leaves the processor within microseconds of the first; a loaded machine may take longer. */
#define GONE_PATIENCE_NS (2 * NS_PER_MS)

/* Without futex_waitv only the first condition can be slept on; the others are looked at this often. */
#define FALLBACK_SLICE_NS (5 * NS_PER_MS)

/* The thread sanitizer has no 16-byte atomics: its runtime takes a lock of the process instead, and other processes know nothing of
 * it. There the instruction is written out, and the sanitizer told what it means. */
#if defined(__has_feature) && defined(__x86_64__)
#if __has_feature(thread_sanitizer)
#define CAS128_BY_HAND
#include <sanitizer/tsan_interface.h>
#endif
#endif

static u128 cas128(u128 *word, u128 expect, u128 desired)
{
#ifdef CAS128_BY_HAND
    uint64_t low = (uint64_t)expect, high = (uint64_t)(expect >> 64);
    __tsan_release(word);
    __asm__ volatile("lock cmpxchg16b %0"
                     : "+m"(*word), "+a"(low), "+d"(high)
                     : "b"((uint64_t)desired), "c"((uint64_t)(desired >> 64))
                     : "cc", "memory");
    __tsan_acquire(word);
    return (u128)high << 64 | low;
#else
    return __sync_val_compare_and_swap(word, expect, desired);
#endif
}

static u128 atomic_word128(u128 *word, const struct fab_op *op)
{
    u128 seen = cas128(word, 0, 0); /* the only atomic 16-byte load there is */
    for (;;) {
        u128 found = cas128(word, seen, fab_verb_result(op, seen));
        if (found == seen)
            return found;
        seen = found;
    }
}

static uint64_t atomic_word64(uint64_t *word, const struct fab_op *op)
{
    uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (
        !__atomic_compare_exchange_n(word, &seen, (uint64_t)fab_verb_result(op, seen), false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    return seen;
}

static void copy_words(uint64_t *to, const uint64_t *from, uint16_t len)
{
    for (uint16_t i = 0; i < len / 8; i++)
        __atomic_store_n(&to[i], __atomic_load_n(&from[i], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

int fab_shm_batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct fab_op *op = &ops[i];
        if (op->verb == FAB_READ || op->verb == FAB_WRITE) {
            if (op->addr % 8 || op->len % 8 || op->addr + op->len > ep->size)
                return -EFAULT;
            uint64_t *there = fab_shm_ptr(ep, op->addr);
            if (op->verb == FAB_READ)
                copy_words(op->buf, there, op->len);
            else
                copy_words(there, op->buf, op->len);
        } else {
            if (op->addr % op->width || op->addr + op->width > ep->size)
                return -EFAULT;
            void *there = fab_shm_ptr(ep, op->addr);
            op->old = op->width == 16 ? atomic_word128(there, op) : atomic_word64(there, op);
        }
    }
    return 0;
}

void fab_shm_post(struct fab_ep *ep, const struct fab_op *op)
{
    struct fab_op copy = *op;
    fab_shm_batch(ep, &copy, 1);
}

/* ---- waiting ---- */

static bool holds(struct fab_ep *ep, const struct fab_cond *cond)
{
    uint64_t word = __atomic_load_n((uint64_t *)fab_shm_ptr(ep, cond->addr), __ATOMIC_ACQUIRE);
    return (word & cond->mask) == cond->value;
}

bool fab_shm_arm(struct fab_ep *ep, const struct fab_cond *cond, struct futex_waitv *wait)
{
    uint64_t word = __atomic_load_n((uint64_t *)fab_shm_ptr(ep, cond->addr), __ATOMIC_ACQUIRE);
    if ((word & cond->mask) != cond->value)
        return false;
    *wait = (struct futex_waitv){
        .uaddr = (uintptr_t)fab_shm_half(fab_shm_ptr(ep, cond->addr), cond->mask),
        .val = (uint32_t)(cond->mask >> 32 ? word >> 32 : word),
        .flags = FUTEX_32,
    };
    return true;
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* Kernels before 5.16. */
static int sleep_on_first(struct futex_waitv *first, uint64_t deadline)
{
    uint64_t slice = add_saturating(world_clock(CLOCK_MONOTONIC), FALLBACK_SLICE_NS);
    struct timespec until = to_timespec(min_u64(slice, deadline));
    long rc = syscall(SYS_futex, (uint32_t *)(uintptr_t)first->uaddr, FUTEX_WAIT_BITSET, (uint32_t)first->val, &until, NULL,
                      FUTEX_BITSET_MATCH_ANY);
    return rc < 0 && errno == ETIMEDOUT && deadline <= slice ? -ETIMEDOUT : 0;
}

/* Without a futex. */
ONCE static int sleep_until(uint64_t deadline)
{
    struct timespec until = to_timespec(deadline);
    int rc = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    return rc == EINTR ? 0 : -ETIMEDOUT;
}

/* The result of a sleep that ended otherwise than by a wake. */
__attribute__((noinline, cold)) static int slept(long rc, struct futex_waitv *waits, uint64_t deadline)
{
    if (rc == -ETIMEDOUT)
        return -ETIMEDOUT;
    if (rc == -ENOSYS)
        return sleep_on_first(&waits[0], deadline);
    assert(rc == -EAGAIN || rc == -EINTR || rc == -EWOULDBLOCK || rc == -ENOMEM ||
           rc == -EFAULT); /* the file was made shorter: the next look at it tells (client/segment_guard.h) */
    return 0;
}

HANDOVER int fab_shm_sleep(struct futex_waitv *waits, unsigned n, uint64_t deadline)
{
    if (!n)
        return sleep_until(deadline);
    struct timespec until = to_timespec(deadline);
    uintptr_t timeout = deadline == DEADLINE_NEVER ? 0 : (uintptr_t)&until;
    long rc = fab_shm_call(SYS_futex_waitv, (uintptr_t)waits, n, 0, timeout, CLOCK_MONOTONIC);
    return likely(rc >= 0) ? 0 : slept(rc, waits, deadline);
}

/* The conditions of most waits: the lock's word, and the life of its holder. */
#define FEW_CONDS 2

/* False: a condition no longer holds. */
static bool arm(struct fab_ep *ep, const struct fab_cond *conds, struct futex_waitv *waits, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!fab_shm_arm(ep, &conds[i], &waits[i]))
            return false;
    return true;
}

__attribute__((noinline, cold)) static int sleep_on_many(struct fab_ep *ep, const struct fab_cond *conds, unsigned n,
                                                         uint64_t deadline)
{
    struct futex_waitv waits[FAB_CONDS_MAX];
    return arm(ep, conds, waits, n) ? fab_shm_sleep(waits, n, deadline) : 0;
}

HANDOVER static int shm_wait(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    for (uint32_t look = 0; n && look < ep->spin; look++) {
        for (unsigned i = 0; i < n; i++)
            if (!holds(ep, &conds[i]))
                return 0;
#if defined __x86_64__
        __builtin_ia32_pause();
#endif
    }
    if (n > FEW_CONDS)
        return sleep_on_many(ep, conds, n, deadline);
    struct futex_waitv waits[FEW_CONDS]; /* a small frame: a waiter that was woken finds its stack cold */
    if (!arm(ep, conds, waits, n))
        return 0;
    int rc = fab_shm_sleep(waits, n, deadline);
    if (n)
        __builtin_prefetch(fab_shm_ptr(ep, conds[0].addr), 1); /* the word that the caller looks at next */
    return rc;
}

HANDOVER int fab_shm_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n)
{
    return fab_shm_wake_word(fab_shm_ptr(ep, addr), mask, n);
}

int fab_shm_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    return fab_shm_gone((uint64_t)peer << 32 | proof, GONE_PATIENCE_NS);
}

/* On shared memory the inline layer never comes here. */
uint64_t fab_shm_local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    assert(!"inline on shared memory");
    return 0;
}

void fab_shm_local_fence(struct fab_ep *ep)
{
    assert(!"inline on shared memory");
}

static const struct fab_ops shm_ops = FAB_SHM_OPS(shm_wait);

void fab_shm_init(struct fab_ep *ep, void *base, uint64_t size)
{
    *ep = (struct fab_ep){
        .base = base,
        .size = size,
        .ops = &shm_ops,
        .world = &world_real,
        .caps = FAB_SHM_CAPS,
        .spin = FAB_SHM_SPIN,
    };
}
