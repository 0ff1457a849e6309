/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/thread_memory.h"

#include <pthread.h>
#include <stdlib.h>

struct block {
    struct block *next; /* of the same thread */
    /* In the list of all blocks. A child process has the blocks of its parent's threads, and none of those threads. */
    struct block *before, *after;
    max_align_t bytes[];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;
static struct block *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_all(void)
{
    pthread_mutex_lock(&all_lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&all_lock);
}

static void add(struct block *b)
{
    lock_all();
    b->after = all;
    if (all)
        all->before = b;
    all = b;
    unlock_all();
}

static void drop(struct block *b)
{
    lock_all();
    *(b->before ? &b->before->after : &all) = b->after;
    if (b->after)
        b->after->before = b->before;
    unlock_all();
    free(b);
}

static void drop_blocks(void *arg)
{
    for (struct block *b = arg, *next; b; b = next) {
        next = b->next;
        drop(b);
    }
}

static void make_key(void)
{
    has_key = !pthread_key_create(&key, drop_blocks);
    pthread_atfork(lock_all, unlock_all, unlock_all); /* so that a child finds the list whole */
}

void *thread_memory(size_t bytes)
{
    pthread_once(&once, make_key);
    struct block *b = has_key ? calloc(1, sizeof *b + bytes) : NULL;
    if (!b)
        return NULL;
    add(b);
    b->next = pthread_getspecific(key);
    if (!pthread_setspecific(key, b))
        return b->bytes;
    drop(b);
    return NULL;
}
