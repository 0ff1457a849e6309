/* SPDX-License-Identifier: Apache-2.0 */
#include "client/segment_guard.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#define GUARDS_MAX 64 /* shared segments that one process has mapped at a time */

/* Read by the handler, so without a lock: the size is there before the base, and goes after it. */
static struct guard {
    uintptr_t base; /* 0: not in use */
    uint64_t size;
} guards[GUARDS_MAX];
static unsigned in_use;
static struct sigaction before;

static struct guard *guard_of(uintptr_t at)
{
    for (unsigned i = 0; i < GUARDS_MAX; i++) {
        uintptr_t base = __atomic_load_n(&guards[i].base, __ATOMIC_ACQUIRE);
        if (base && at >= base && at - base < __atomic_load_n(&guards[i].size, __ATOMIC_RELAXED))
            return &guards[i];
    }
    return NULL;
}

static void pass_on(int signal, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal);
    else
        sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); /* the access is repeated, and ends the process */
}

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    int saved = errno;
    const struct guard *g = info->si_code > 0 ? guard_of((uintptr_t)info->si_addr) : NULL; /* not one that a process sent */
    if (!g || mmap((void *)g->base, g->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        pass_on(signal, info, context);
    errno = saved;
}

int segment_guard_add(void *base, uint64_t size)
{
    struct guard *g = guards;
    while (g < guards + GUARDS_MAX && g->base)
        g++;
    if (g == guards + GUARDS_MAX)
        return -ENOSPC;
    const struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    if (!in_use && sigaction(SIGBUS, &ours, &before))
        return -errno;
    in_use++;
    __atomic_store_n(&g->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&g->base, (uintptr_t)base, __ATOMIC_RELEASE);
    return 0;
}

void segment_guard_remove(const void *base)
{
    struct guard *g = guard_of((uintptr_t)base);
    struct sigaction now;
    if (!g)
        return;
    __atomic_store_n(&g->base, 0, __ATOMIC_RELEASE);
    /* The library may be unloaded after this. */
    if (!--in_use && !sigaction(SIGBUS, NULL, &now) && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error)
        sigaction(SIGBUS, &before, NULL);
}
