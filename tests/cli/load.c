/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the library at run time, uses it from threads with small stacks, closes it, and loads it again. A thread that has used it
 * ends after dlclose(): its memory in the library is given back then, so the library stays in memory (-z nodelete).
 * Usage: load LIBPAWL.so PLACE */
#include "pawl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024u
#define ROUNDS 20
#define THREADS 8
#define LIMIT_NS (60 * UINT64_C(1000000000))

/* The calls of one loaded library. */
static struct {
    __typeof__(&pawl_open) open;
    __typeof__(&pawl_close) close;
    __typeof__(&pawl_in) in;
    __typeof__(&pawl_timedlock) timedlock;
    __typeof__(&pawl_unlock) unlock;
    __typeof__(&pawl_submit) submit;
    __typeof__(&pawl_reap) reap;
    __typeof__(&pawl_explain) explain;
} lib;

static pawl *handle;
static uint64_t inside, sum;

static void fail(const char *what, int rc)
{
    fprintf(stderr, "%s: %d: %s\n", what, rc, lib.explain ? lib.explain() : dlerror());
    exit(1);
}

static void *symbol(void *so, const char *name)
{
    void *at = dlsym(so, name);
    if (!at)
        fail(name, 0);
    return at;
}

static void *work(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        pawl_grant g;
        int rc = lib.timedlock(handle, pawl_name("shared"), PAWL_EXCLUSIVE, lib.in(LIMIT_NS), &g);
        if (rc)
            fail("pawl_timedlock", rc);
        if (__atomic_fetch_add(&inside, 1, __ATOMIC_RELAXED))
            fail("two threads are inside", 0);
        sum++;
        __atomic_fetch_sub(&inside, 1, __ATOMIC_RELAXED);
        rc = lib.unlock(handle, &g);
        if (rc)
            fail("pawl_unlock", rc);
    }
    return NULL;
}

/* An operation that waits runs on a fiber or in the library's thread, and its errors have words. */
static void *work_async(void *arg)
{
    (void)arg;
    pawl_request r = {.op = PAWL_OP_LOCK, .key = pawl_name("async"), .mode = PAWL_EXCLUSIVE, .deadline_ns = lib.in(LIMIT_NS)};
    pawl_completion c;
    uint64_t id;
    int rc = lib.submit(handle, &r, &id);
    if (rc)
        fail("pawl_submit", rc);
    if (lib.reap(handle, &c, 1, lib.in(LIMIT_NS)) != 1 || c.result)
        fail("pawl_reap", c.result);
    rc = lib.unlock(handle, &c.grant);
    if (rc)
        fail("pawl_unlock", rc);
    if (!lib.timedlock(handle, pawl_name(""), PAWL_EXCLUSIVE, lib.in(LIMIT_NS), &c.grant) || !*lib.explain())
        fail("an empty name has no explanation", 0);
    return NULL;
}

static sem_t used, closed;

/* Has an explanation and a hold's record of its own, and ends after the library was closed. */
static void *outlive(void *arg)
{
    pawl_grant g;
    (void)arg;
    if (!lib.timedlock(handle, pawl_name(""), PAWL_EXCLUSIVE, lib.in(LIMIT_NS), &g) || !*lib.explain())
        fail("an empty name has no explanation", 0);
    int rc = lib.timedlock(handle, pawl_name("outlived"), PAWL_EXCLUSIVE, lib.in(LIMIT_NS), &g);
    if (!rc)
        rc = lib.unlock(handle, &g);
    if (rc)
        fail("pawl_timedlock", rc);
    sem_post(&used);
    sem_wait(&closed);
    return NULL;
}

static void run_threads(size_t stack, void *(*f)(void *), int count)
{
    pthread_t t[THREADS];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (pthread_attr_setstacksize(&attr, stack))
        fail("pthread_attr_setstacksize", (int)stack);
    for (int i = 0; i < count; i++) {
        int rc = pthread_create(&t[i], &attr, f, NULL);
        if (rc)
            fail("pthread_create", rc);
    }
    for (int i = 0; i < count; i++)
        pthread_join(t[i], NULL);
    pthread_attr_destroy(&attr);
}

static void use(const char *path, const char *place)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        fail("dlopen", 0);
    lib.open = (__typeof__(lib.open))symbol(so, "pawl_open");
    lib.close = (__typeof__(lib.close))symbol(so, "pawl_close");
    lib.in = (__typeof__(lib.in))symbol(so, "pawl_in");
    lib.timedlock = (__typeof__(lib.timedlock))symbol(so, "pawl_timedlock");
    lib.unlock = (__typeof__(lib.unlock))symbol(so, "pawl_unlock");
    lib.submit = (__typeof__(lib.submit))symbol(so, "pawl_submit");
    lib.reap = (__typeof__(lib.reap))symbol(so, "pawl_reap");
    lib.explain = (__typeof__(lib.explain))symbol(so, "pawl_explain");
    int rc = lib.open(place, NULL, &handle);
    if (rc)
        fail("pawl_open", rc);
    sum = 0;
    for (unsigned kib = 64; kib <= 128; kib *= 2)
        run_threads(kib * KIB, work, THREADS);
    if (sum != 2 * THREADS * ROUNDS)
        fail("the sum is wrong", (int)sum);
    if (strncmp(place, "pawl:", 5) != 0 || !strstr(place, "node"))
        run_threads(64 * KIB, work_async, 1);
    pthread_t late;
    rc = pthread_create(&late, NULL, outlive, NULL);
    if (rc)
        fail("pthread_create", rc);
    sem_wait(&used);
    rc = lib.close(handle);
    if (rc)
        fail("pawl_close", rc);
    if (dlclose(so))
        fail("dlclose", 0);
    sem_post(&closed);
    pthread_join(late, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    sem_init(&used, 0, 0);
    sem_init(&closed, 0, 0);
    use(argv[1], argv[2]);
    use(argv[1], argv[2]); /* once more, after it was closed */
    printf("%s: loaded twice\n", argv[2]);
    return 0;
}
