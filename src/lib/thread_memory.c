/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/thread_memory.h"

#include <pthread.h>
#include <stdlib.h>

struct block {
    struct block *next; /* of the same thread */
    max_align_t bytes[];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

static void free_blocks(void *arg)
{
    for (struct block *b = arg, *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

static void make_key(void)
{
    has_key = !pthread_key_create(&key, free_blocks);
}

void *thread_memory(size_t bytes)
{
    pthread_once(&once, make_key);
    struct block *b = has_key ? calloc(1, sizeof *b + bytes) : NULL;
    if (!b)
        return NULL;
    b->next = pthread_getspecific(key);
    if (!pthread_setspecific(key, b))
        return b->bytes;
    free(b);
    return NULL;
}
