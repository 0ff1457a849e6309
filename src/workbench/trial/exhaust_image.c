/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/exhaust_image.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* ---- pages that are written ---- */

static struct exhaust_image *kept; /* the image whose pages are protected: a signal handler has no argument */

/* The first write to a page of the image. Anything else is the program's own fault, which then strikes again and ends it. */
static void on_write(int number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t offset = (uintptr_t)info->si_addr - (uintptr_t)kept->arena.base;
    if (offset >= kept->bytes) {
        signal(number, SIG_DFL);
        return;
    }
    size_t page = offset / kept->page_bytes;
    kept->written[kept->written_count++] = (uint32_t)page;
    mprotect(kept->arena.base + page * kept->page_bytes, kept->page_bytes, PROT_READ | PROT_WRITE);
}

static int watch_writes(struct exhaust_image *image)
{
    struct sigaction action = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO | SA_NODEFER};
    size_t pages = image->bytes / image->page_bytes;
    image->written = calloc(pages, sizeof *image->written);
    if (!image->written)
        return -ENOMEM;
    kept = image;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, NULL) || mprotect(image->arena.base, image->bytes, PROT_READ) ? -errno : 0;
}

/* ---- images ---- */

void exhaust_image_close(struct exhaust_image *image)
{
    if (kept) {
        signal(SIGSEGV, SIG_DFL);
        kept = NULL;
    }
    free(image->written);
    for (unsigned i = 0; image->stacks && i < image->pool->count; i++)
        free(image->stacks[i].copy);
    free(image->stacks);
    free(image->fibers);
    free(image->copy);
    sim_arena = NULL;
    munmap(image->arena.base, image->arena.room);
}

/* From its stack pointer to the top: the bytes below are not in use. */
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
    image->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    image->bytes = image->arena.used = round_up(image->arena.used, image->page_bytes);
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
    return rc ? rc : watch_writes(image);
}

void exhaust_image_put_back(struct exhaust_image *image)
{
    for (uint32_t i = 0; i < image->written_count; i++) { /* the pool's own fields lie there, too */
        size_t at = image->written[i] * image->page_bytes;
        memcpy(image->arena.base + at, image->copy + at, image->page_bytes);
    }
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
