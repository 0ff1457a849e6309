/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/exhaust_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES ((size_t)256 << 20) /* addresses, of which few are touched: a small world has less than a megabyte */

int exhaust_image_open(struct exhaust_image *image)
{
    memset(image, 0, sizeof *image);
    char *base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -ENOMEM;
    image->arena = (struct sim_arena){.base = base, .room = ARENA_BYTES};
    sim_arena = &image->arena;
    return 0;
}

void exhaust_image_close(struct exhaust_image *image)
{
    for (unsigned i = 0; image->stacks && i < image->pool->count; i++)
        free(image->stacks[i].copy);
    free(image->stacks);
    free(image->fibers);
    free(image->copy);
    sim_arena = NULL;
    munmap(image->arena.base, image->arena.room);
}

/* From its stack pointer to the top: what lies below is nobody's. */
static int keep_stack(const struct fiber *f, struct exhaust_stack *out)
{
    if (f->state != FIBER_SUSPENDED)
        return 0;
    out->bytes = (size_t)(f->stack + f->stack_bytes - (char *)f->sp);
    out->copy = malloc(out->bytes);
    if (!out->copy)
        return -ENOMEM;
    memcpy(out->copy, f->sp, out->bytes);
    return 0;
}

int exhaust_image_keep(struct exhaust_image *image, struct fiber_pool *pool)
{
    assert(!image->copy);
    image->bytes = image->arena.used;
    image->pool = pool;
    image->copy = malloc(image->bytes);
    image->fibers = malloc(pool->count * sizeof *image->fibers);
    image->stacks = calloc(pool->count, sizeof *image->stacks);
    if (!image->copy || !image->fibers || !image->stacks)
        return -ENOMEM;
    memcpy(image->copy, image->arena.base, image->bytes);
    memcpy(image->fibers, pool->fibers, pool->count * sizeof *image->fibers);
    int rc = 0;
    for (unsigned i = 0; i < pool->count && !rc; i++)
        rc = keep_stack(&pool->fibers[i], &image->stacks[i]);
    return rc;
}

void exhaust_image_put_back(struct exhaust_image *image)
{
    memcpy(image->arena.base, image->copy, image->bytes); /* the pool's own fields lie there, too */
    image->arena.used = image->bytes;
    for (unsigned i = 0; i < image->pool->count; i++) {
        struct fiber *f = &image->pool->fibers[i];
        bool guarded = f->guarded;
        *f = image->fibers[i];
        f->guarded = guarded; /* a page stays protected */
        if (image->stacks[i].bytes)
            memcpy(f->sp, image->stacks[i].copy, image->stacks[i].bytes);
    }
}
