/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded by scripts/walk: notes the address of each function that a process enters while the client has the gate open. Both
 * processes of a walk share one file. */
#include "walk/walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

static struct walk *walk;
static uint32_t pid;
static __thread uint32_t thread;

/* Where the process has its programs: addresses mean nothing without that. */
__attribute__((constructor, no_instrument_function)) static void begin(void)
{
    const char *path = getenv("PAWL_WALK");
    char name[256], buffer[4096];
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd >= 0 ? mmap(NULL, sizeof *walk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return;
    pid = (uint32_t)getpid();
    snprintf(name, sizeof name, "%s.%u", path, pid);
    int from = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), to = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (ssize_t n; from >= 0 && to >= 0 && (n = read(from, buffer, sizeof buffer)) > 0;)
        if (write(to, buffer, (size_t)n) != n)
            break;
    close(from);
    close(to);
    walk = at;
}

__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    if (!walk || !__atomic_load_n(&walk->open, __ATOMIC_ACQUIRE))
        return;
    if (!thread)
        thread = (uint32_t)syscall(SYS_gettid);
    uint32_t at = __atomic_fetch_add(&walk->count, 1, __ATOMIC_ACQ_REL);
    if (at < WALK_STEPS)
        walk->steps[at] = (struct walk_step){(uint64_t)(uintptr_t)function, pid, thread, walk->round, 0};
}

__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
}
