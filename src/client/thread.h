/* SPDX-License-Identifier: Apache-2.0 */
/* The library's thread of a session: opens the session, renews it, looks after the dead, and closes it. */
#ifndef PAWL_CLIENT_THREAD_H
#define PAWL_CLIENT_THREAD_H

#include "lib/base.h"

#include <pthread.h>
#include <semaphore.h>

struct library_thread {
    pthread_t id;
    bool stop;
    sem_t started;
    int start_result;
};

/* Starts run(arg) and waits until it has called library_thread_started: 0, or the result that it gave there. On failure the thread
 * has ended. Signals belong to the application, so all are blocked in the thread. */
int library_thread_start(struct library_thread *t, void *(*run)(void *), void *arg);
void library_thread_started(struct library_thread *t, int result);

/* The thread asks the first; the second tells it to stop. */
bool library_thread_stopped(const struct library_thread *t);
void library_thread_stop(struct library_thread *t);
void library_thread_join(struct library_thread *t);

#endif
