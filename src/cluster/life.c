/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/life.h"

#include <errno.h>
#include <pthread.h>

static_assert(sizeof(pthread_mutex_t) <= SLOT_LIFE_LEN, "a slot has room for the mutex");
static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0, "waiters watch the mutex's first word");

static pthread_mutex_t *mutex_of(struct slot *slot)
{
    return (pthread_mutex_t *)slot->life;
}

int life_format(struct slot *slot)
{
    pthread_mutexattr_t attr;
    int rc = pthread_mutexattr_init(&attr);
    if (rc)
        return -rc;
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    rc = pthread_mutex_init(mutex_of(slot), &attr);
    pthread_mutexattr_destroy(&attr);
    return -rc;
}

int life_take(struct slot *slot)
{
    int rc = pthread_mutex_trylock(mutex_of(slot));
    if (rc == EOWNERDEAD)
        rc = pthread_mutex_consistent(mutex_of(slot));
    return -rc;
}

void life_drop(struct slot *slot)
{
    int rc = pthread_mutex_unlock(mutex_of(slot));
    assert(rc == 0);
}
