/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing: options, and the kinds of sessions. */
#include "client/handle.h"
#include "client/offered.h"
#include "client/segment.h"
#include "cluster/layout.h"
#include "lib/explain.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEASE_MIN_NS (100 * NS_PER_MS) /* ten ticks of the coarse clock at its coarsest */

/* The kinds of sessions. Nothing else refers to them by name, so a program without one of them lacks its places and nothing more.
 */
extern const struct session_ops memory_ops, memory_system_ops, net_ops;
static const struct session_ops *const kinds[] = {&memory_ops, &memory_system_ops, &net_ops};

/* ---- what every handle has ---- */

/* The page that a forked child sees empty (fast.h). */
static struct fast *make_fast_page(void)
{
    struct fast *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    madvise(page, sizeof *page, MADV_WIPEONFORK);
    page->alive = FAST_ALIVE;
    return page;
}

int handle_init(struct pawl *p, const struct session_ops *ops)
{
    p->ops = ops;
    pthread_mutex_init(&p->setting, NULL);
    int rc = async_init(&p->async);
    if (!rc && !(p->fast = make_fast_page())) {
        async_free(&p->async);
        rc = -ENOMEM;
    }
    return rc;
}

void handle_free(struct pawl *p)
{
    if (!p->fast)
        return;
    munmap(p->fast, sizeof *p->fast);
    async_free(&p->async);
    pthread_mutex_destroy(&p->setting);
}

/* The library's threads in this process: the process in the upper half, since a child has none of them. */
static uint64_t threads;

void handle_count_threads(int change)
{
    uint64_t was = __atomic_load_n(&threads, __ATOMIC_RELAXED), pid = (uint64_t)getpid() << 32, now;
    do
        now = pid | ((was & ~(uint64_t)UINT32_MAX) == pid ? (uint32_t)((int)was + change) : (uint32_t)change);
    while (!__atomic_compare_exchange_n(&threads, &was, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

bool handle_only_thread(void)
{
    DIR *tasks = opendir("/proc/self/task");
    uint32_t all = 0;
    if (!tasks)
        return false; /* not known */
    for (const struct dirent *e = readdir(tasks); e; e = readdir(tasks))
        all += e->d_name[0] != '.';
    closedir(tasks);
    return all == (uint32_t)__atomic_load_n(&threads, __ATOMIC_RELAXED) + 1;
}

int handle_start(struct pawl *p, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* comes of an access to memory, and ends a process that blocks it: segment_guard.h */
    sem_init(&p->started, 0, 0);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&p->thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return explain(-rc, "cannot start the library's thread: %s", strerror(rc));
    while (sem_wait(&p->started))
        assert(errno == EINTR);
    if (p->start_result)
        pthread_join(p->thread, NULL);
    else
        handle_count_threads(1);
    return p->start_result;
}

void handle_started(struct pawl *p, int result)
{
    p->start_result = result;
    sem_post(&p->started);
}

void handle_stop(struct pawl *p, void (*wake)(struct pawl *p))
{
    __atomic_store_n(&p->stop, true, __ATOMIC_RELEASE);
    if (wake)
        wake(p);
    pthread_join(p->thread, NULL);
    handle_count_threads(-1);
}

/* ---- options ---- */

static int check_options(const pawl_options *o)
{
    if (o->design && !design_find(o->design))
        return refuse_design(o->design);
    if (o->keys > PAWL_KEYS_DENSE)
        return explain(-EINVAL, "there is no kind of keys %u", (unsigned)o->keys);
    if (o->lease_ns && o->lease_ns != PAWL_LEASE_FOREVER && (o->lease_ns < LEASE_MIN_NS || o->lease_ns > HANDLE_LEASE_MAX_NS))
        return explain(-EINVAL, "a lease lasts from 100 ms to a day, or for ever");
    if (o->flags & ~(uint32_t)(PAWL_NO_CREATE | PAWL_MUST_CREATE))
        return explain(-EINVAL, "unknown flags 0x%x", o->flags);
    if (o->flags & PAWL_NO_CREATE && o->flags & PAWL_MUST_CREATE)
        return explain(-EINVAL, "PAWL_NO_CREATE and PAWL_MUST_CREATE exclude each other");
    if (o->unit_bytes > LAYOUT_UNIT_BYTES_MAX || o->unit_bytes & (o->unit_bytes - 1))
        return explain(-EINVAL, "a unit has a power of two of bytes, up to %llu", (unsigned long long)LAYOUT_UNIT_BYTES_MAX);
    if (o->range_units > RANGE_UNITS_MAX || o->range_max > RANGE_UNITS_MAX || (o->range_max && o->range_units > o->range_max))
        return explain(-EINVAL, "range_units must not exceed range_max, nor either of them 2^%d", RANGE_UNITS_BITS);
    for (unsigned i = 0; i < countof(o->reserved); i++)
        if (o->reserved[i])
            return explain(-EINVAL, "a reserved field of the options is not 0: initialise the struct as a whole");
    if (o->permissions & ~0777u)
        return explain(-EINVAL, "permissions 0%o are not those of a file", o->permissions);
    return 0;
}

/* ---- opening ---- */

ONCE int pawl_open_tuned(const char *where, const pawl_options *options, const struct knobs *knobs, pawl **out)
{
    static const pawl_options defaults;
    const pawl_options *o = options ? options : &defaults;
    explain_nothing();
    if (!where || !out)
        return explain(-EINVAL, "pawl_open needs a place and a pointer to the handle");
    for (unsigned i = 0; i < countof(kinds); i++) {
        size_t len = strlen(kinds[i]->scheme);
        if (strncmp(where, kinds[i]->scheme, len))
            continue;
        int rc = check_options(o);
        rc = rc ? rc : kinds[i]->open(where + len, o, knobs, out);
        if (!rc)
            explain_nothing(); /* of a space that was not there, and was made */
        return rc;
    }
    return segment_no_place(where);
}

int pawl_open(const char *where, const pawl_options *options, pawl **out)
{
    return pawl_open_tuned(where, options, NULL, out);
}

int pawl_close(pawl *p)
{
    return p ? p->ops->close(p) : -EINVAL;
}
