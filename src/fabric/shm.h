/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric between processes of one machine: a mapped segment, the CPU's atomics, futexes. */
#ifndef PAWL_FABRIC_SHM_H
#define PAWL_FABRIC_SHM_H

#include "fabric/fabric.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Looks before a waiter sleeps. Two cores cannot afford more: the holder may need the core that spins. */
#define FAB_SHM_SPIN 100

/* All of them. Masked verbs are loops of the CPU's compare-and-swap. */
#define FAB_SHM_CAPS                                                                                                               \
    (FAB_ATOMIC128 | FAB_MASKED | FAB_CPU_ATOMIC64 | FAB_CPU_ATOMIC128 | FAB_ORDERED | FAB_WAIT | FAB_SHARED_CLOCK |               \
     FAB_KERNEL_LIFE | FAB_MESSAGES)

void fab_shm_init(struct fab_ep *ep, void *base, uint64_t size);

/* The table of operations with a wait of one's choice: asynchronous operations park a fiber instead of the thread. */
#define FAB_SHM_OPS(wait_fn)                                                                                                       \
    {                                                                                                                              \
        .batch = fab_shm_batch, .post = fab_shm_post, .wait = (wait_fn), .wake = fab_shm_wake, .send = fab_shm_ring_send,          \
        .recv = fab_shm_ring_recv, .fence = fab_shm_fence, .local = fab_shm_local, .local_fence = fab_shm_local_fence              \
    }

int fab_shm_batch(struct fab_ep *ep, struct fab_op *ops, unsigned n);
void fab_shm_post(struct fab_ep *ep, const struct fab_op *op);
int fab_shm_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n);

/* The half of a word in which a condition lies: x86 and aarch64 are little-endian, the high half comes second. */
static inline uint32_t *fab_shm_half(void *word, uint64_t mask)
{
    assert(!(mask >> 32) || !(mask & UINT32_MAX));
    return (uint32_t *)word + (mask >> 32 ? 1 : 0);
}

/* A system call without the C library between: its page, its table entry and errno are cold where a waiter is woken. The result, or
 * a negative error. */
INLINED long fab_shm_call(long number, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e)
{
#if defined __x86_64__
    register uintptr_t fourth __asm__("r10") = d, fifth __asm__("r8") = e;
    long rc;
    __asm__ volatile("syscall" : "=a"(rc) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
    return rc;
#else
    long rc = syscall(number, a, b, c, d, e);
    return rc < 0 ? -errno : rc;
#endif
}

/* fab_shm_wake at a word that was looked up before. */
static inline int fab_shm_wake_word(void *word, uint64_t mask, unsigned n)
{
    return (int)fab_shm_call(SYS_futex, (uintptr_t)fab_shm_half(word, mask), FUTEX_WAKE, n, 0, 0);
}

int fab_shm_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof);
uint64_t fab_shm_local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value);
void fab_shm_local_fence(struct fab_ep *ep);

/* Waiting, apart: a caller that waits for many operations at once gathers their conditions first. Adds a condition's futex to
 * `waits`; false if the condition no longer holds. */
struct futex_waitv;
bool fab_shm_arm(struct fab_ep *ep, const struct fab_cond *cond, struct futex_waitv *wait);
int fab_shm_sleep(struct futex_waitv *waits, unsigned n, uint64_t deadline);

/* ---- message rings (shm_ring.c) ---- */

uint64_t fab_shm_ring_bytes(void);
int fab_shm_ring_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len);
int fab_shm_ring_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline);

/* ---- processes (shm_process.c) ---- */

/* The identity of this process, valid after its death: id and start time. */
uint64_t fab_shm_proof(void);
uint32_t fab_shm_proof_pid(uint64_t proof);

/* 0 once no thread of that process can run any more, -EAGAIN while it might. */
int fab_shm_gone(uint64_t proof, uint64_t patience_ns);

#endif
