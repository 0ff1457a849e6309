/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/life.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel reads this when the thread ends: an empty list, and one futex beside it. */
static _Thread_local struct robust_list_head watched;
static _Thread_local struct robust_list_head *before; /* the C library's list, which comes back when the futex is dropped */

static void watch(uint32_t *word)
{
    size_t len;
    if (watched.list_op_pending)
        return;
    watched.list.next = &watched.list;
    watched.list_op_pending = (struct robust_list *)word;
    /* A sandbox without these calls notices deaths by leases alone. */
    if (syscall(SYS_get_robust_list, 0, &before, &len))
        before = NULL;
    syscall(SYS_set_robust_list, &watched, sizeof watched);
}

static void unwatch(const uint32_t *word)
{
    if ((const uint32_t *)watched.list_op_pending != word)
        return;
    if (before)
        syscall(SYS_set_robust_list, before, sizeof *before);
    watched.list_op_pending = NULL;
}

int life_take(struct slot *slot)
{
    uint32_t *word = (uint32_t *)slot->life, tid = (uint32_t)gettid();
    uint32_t was = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (was & FUTEX_TID_MASK)
        return -EBUSY;
    watch(word); /* first: the thread may end right after it has the futex */
    if (__atomic_compare_exchange_n(word, &was, tid | (was & FUTEX_WAITERS), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return 0;
    unwatch(word);
    return -EBUSY;
}

void life_drop(struct slot *slot)
{
    uint32_t *word = (uint32_t *)slot->life;
    uint32_t was = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while ((was & FUTEX_TID_MASK) == (uint32_t)gettid())
        if (__atomic_compare_exchange_n(word, &was, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            if (was & FUTEX_WAITERS)
                syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
            break;
        }
    unwatch(word);
}
