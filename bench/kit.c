/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kit.h"
#include "world/world.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void kit_die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(2);
}

uint64_t kit_now(void)
{
    return world_clock(CLOCK_MONOTONIC);
}

void kit_sleep(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

/* ---- cores ---- */

static void find_cpus(struct kit *k)
{
    cpu_set_t allowed;
    unsigned found = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        kit_die("sched_getaffinity: %s", strerror(errno));
    for (int cpu = CPU_SETSIZE; cpu-- > 0 && found < 2;)
        if (CPU_ISSET(cpu, &allowed))
            k->cpus[found++] = cpu;
    if (found == 1)
        k->cpus[1] = k->cpus[0];
}

void kit_pin(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        kit_die("cannot pin to core %d: %s", cpu, strerror(errno));
}

bool kit_is_asleep(pid_t pid)
{
    char path[64], line[256] = "", state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    const char *end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    fclose(f);
    if (end && end[1] == ' ')
        state = end[2];
    return state == 'S';
}

/* ---- beginning and end ---- */

void kit_begin(struct kit *k, int argc, char **argv, const char *about)
{
    *k = (struct kit){.scale = 1};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--check"))
            k->check = true;
        else if (!strcmp(argv[i], "--scale") && i + 1 < argc && (k->scale = strtod(argv[++i], NULL)) > 0)
            continue;
        else
            kit_die("%s\nUsage: %s [--check] [--scale F]", about, argv[0]);
    }
    find_cpus(k);
    const char *name = strrchr(argv[0], '/');
    printf("== %s", name ? name + 1 : argv[0]);
    for (int i = 1; i < argc; i++)
        printf(" %s", argv[i]);
    printf(": %s\n", about);
    snprintf(k->folder, sizeof k->folder, "/dev/shm/pawl-bench.XXXXXX");
    if (!mkdtemp(k->folder))
        kit_die("cannot make a folder in /dev/shm: %s", strerror(errno));
    snprintf(k->place, sizeof k->place, "local:%s/space", k->folder);
    fflush(stdout);
}

void kit_drop(struct kit *k)
{
    unlink(k->place + strlen("local:"));
}

int kit_end(struct kit *k)
{
    kit_drop(k);
    rmdir(k->folder);
    return k->check && k->missed;
}

void *kit_shared(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        kit_die("no memory to share: %s", strerror(errno));
    return at;
}

pawl *kit_open(struct kit *k, const pawl_options *options)
{
    pawl *p;
    int rc = pawl_open(k->place, options, &p);
    if (rc)
        kit_die("%s: %s", k->place, pawl_strerror(rc));
    return p;
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double kit_percentile(double *values, unsigned n, double part)
{
    qsort(values, n, sizeof *values, compare);
    unsigned at = (unsigned)(part * n);
    return values[at < n ? at : n - 1];
}

static void judge(struct kit *k, const char *what, double value, const char *unit, double bound, bool ok)
{
    k->missed = k->missed || !ok;
    printf("%-58s %10.2f%s  bound %.10g%s: %s\n", what, value, unit, bound, unit, ok ? "ok" : "MISSED");
    fflush(stdout);
}

void kit_judge(struct kit *k, const char *what, double value, const char *unit, double bound)
{
    judge(k, what, value, unit, bound, value <= bound);
}

void kit_judge_least(struct kit *k, const char *what, double value, const char *unit, double bound)
{
    judge(k, what, value, unit, bound, value >= bound);
}

/* ---- between processes ---- */

void kit_post(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void kit_await(uint32_t *word, uint32_t value)
{
    uint32_t seen;
    while ((seen = __atomic_load_n(word, __ATOMIC_SEQ_CST)) != value)
        syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}
