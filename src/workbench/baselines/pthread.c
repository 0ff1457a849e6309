/* SPDX-License-Identifier: Apache-2.0 */
/* References on one machine, of the C library: a robust process-shared mutex, and a process-shared rwlock, which is here for speed
 * only: it cannot survive the death of a holder. Both belong to the thread that took them. */
#include "workbench/baselines/baselines.h"

#include <errno.h>
#include <pthread.h>

static_assert(sizeof(pthread_mutex_t) <= CACHE_LINE && sizeof(pthread_rwlock_t) <= CACHE_LINE, "one line each");

static void *lock_here(const struct seat *seat, uint64_t index)
{
    return fab_shm_ptr(seat->ep, space_lock_addr(seat->space, index));
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* EBUSY as our own code, everything else as it is. */
static int result_of(int rc)
{
    return rc == EBUSY ? -PAWL_EHELD : -rc;
}

/* ---- mutex ---- */

static int mutex_format(const struct seat *seat, uint64_t index)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    int rc = pthread_mutex_init(lock_here(seat, index), &attr);
    pthread_mutexattr_destroy(&attr);
    return -rc;
}

static int mutex_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    pthread_mutex_t *m = lock_here(seat, h->index);
    struct timespec until = to_timespec(deadline);
    hold_publish(seat, h, RECORD_TRY_X);
    int rc = deadline == DEADLINE_TRY     ? pthread_mutex_trylock(m)
             : deadline == DEADLINE_NEVER ? pthread_mutex_lock(m)
                                          : pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &until);
    if (rc == EOWNERDEAD)
        rc = pthread_mutex_consistent(m);
    h->token = 0;
    return result_of(rc);
}

static int mutex_release(const struct seat *seat, const struct hold *h)
{
    if (!hold_is_named(seat, h) || pthread_mutex_unlock(lock_here(seat, h->index)))
        return -PAWL_ENOTOWNER; /* or another thread's */
    hold_close(seat, h);
    return 0;
}

static int mutex_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    uint32_t word = __atomic_load_n((uint32_t *)lock_here(seat, index), __ATOMIC_ACQUIRE);
    *out = (struct lock_view){.mode = word ? PAWL_EXCLUSIVE : 0, .owner = LOCK_OWNER_UNKNOWN};
    return 0;
}

const struct design design_pthread = {
    .name = "pthread",
    .summary = "robust process-shared mutex of the C library",
    .kind = DESIGN_REFERENCE,
    .features = DESIGN_EXCLUSIVE | DESIGN_RECOVERY | DESIGN_TIMEOUT,
    .substrates = DESIGN_ON_SHM,
    .lock_size = CACHE_LINE,
    .format = mutex_format,
    .acquire = mutex_acquire,
    .release = mutex_release,
    .holds = hold_is_named,
    .peek = mutex_peek,
};

/* ---- rwlock ---- */

static int rw_format(const struct seat *seat, uint64_t index)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    int rc = pthread_rwlock_init(lock_here(seat, index), &attr);
    pthread_rwlockattr_destroy(&attr);
    return -rc;
}

static int rw_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    pthread_rwlock_t *l = lock_here(seat, h->index);
    struct timespec until = to_timespec(deadline);
    bool shared = h->mode == PAWL_SHARED;
    hold_publish(seat, h, record_named(h->mode));
    int rc;
    if (deadline == DEADLINE_TRY)
        rc = shared ? pthread_rwlock_tryrdlock(l) : pthread_rwlock_trywrlock(l);
    else if (deadline == DEADLINE_NEVER)
        rc = shared ? pthread_rwlock_rdlock(l) : pthread_rwlock_wrlock(l);
    else
        rc = shared ? pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &until)
                    : pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &until);
    h->token = 0;
    return result_of(rc);
}

static int rw_release(const struct seat *seat, const struct hold *h)
{
    if (!hold_is_named(seat, h))
        return -PAWL_ENOTOWNER;
    pthread_rwlock_unlock(lock_here(seat, h->index));
    hold_close(seat, h);
    return 0;
}

static int rw_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    pthread_rwlock_t *l = lock_here(seat, index);
    bool writer = __atomic_load_n(&l->__data.__cur_writer, __ATOMIC_ACQUIRE);
    unsigned readers = __atomic_load_n(&l->__data.__readers, __ATOMIC_ACQUIRE) >> 3; /* glibc keeps flags in three bits */
    *out = (struct lock_view){.mode = writer    ? PAWL_EXCLUSIVE
                                      : readers ? PAWL_SHARED
                                                : 0,
                              .owner = LOCK_OWNER_UNKNOWN,
                              .readers = writer ? 0 : readers};
    return 0;
}

const struct design design_pthread_rw = {
    .name = "pthread-rw",
    .summary = "process-shared rwlock of the C library; does not survive the death of a holder",
    .kind = DESIGN_REFERENCE,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TIMEOUT,
    .substrates = DESIGN_ON_SHM,
    .lock_size = CACHE_LINE,
    .format = rw_format,
    .acquire = rw_acquire,
    .release = rw_release,
    .holds = hold_is_named,
    .peek = rw_peek,
};
