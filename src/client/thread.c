/* SPDX-License-Identifier: Apache-2.0 */
#include "client/thread.h"
#include "lib/explain.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

int library_thread_start(struct library_thread *t, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    t->stop = false;
    sem_init(&t->started, 0, 0);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->id, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return explain(-rc, "cannot start the library's thread: %s", strerror(rc));
    while (sem_wait(&t->started))
        assert(errno == EINTR);
    if (t->start_result)
        library_thread_join(t);
    return t->start_result;
}

void library_thread_started(struct library_thread *t, int result)
{
    t->start_result = result;
    sem_post(&t->started);
}

bool library_thread_stopped(const struct library_thread *t)
{
    return __atomic_load_n(&t->stop, __ATOMIC_ACQUIRE);
}

void library_thread_stop(struct library_thread *t)
{
    __atomic_store_n(&t->stop, true, __ATOMIC_RELEASE);
}

void library_thread_join(struct library_thread *t)
{
    pthread_join(t->id, NULL);
    sem_destroy(&t->started);
}
