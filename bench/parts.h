/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinators and lock servers as processes: `pawl serve` with some words. */
#ifndef PAWL_BENCH_PARTS_H
#define PAWL_BENCH_PARTS_H

#include "bench/etcd.h"

#include <libgen.h>

#define PARTS 4u
#define WORDS 512
#define OPEN_NS (60 * NS_PER_S)

static pid_t parts[PARTS];
static char command[256], words[PARTS][WORDS];

static inline void end_part(unsigned i, int signal)
{
    if (parts[i] <= 0)
        return;
    kill(parts[i], signal);
    waitpid(parts[i], NULL, 0);
    parts[i] = 0;
}

static inline void end_parts(void)
{
    for (unsigned i = 0; i < PARTS && getpid() == owner; i++)
        end_part(i, SIGKILL);
}

/* Its address is in the file `outI`, and the words of a coordinator about its terms are in `errI`. */
static inline void start_part(unsigned i, const char *more)
{
    char line[sizeof command + WORDS + 256];
    snprintf(line, sizeof line, "exec %s serve %s %s >%s/out%u 2>>%s/err%u", command, words[i], more, folder, i, folder, i);
    parts[i] = fork();
    if (parts[i])
        return;
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

static inline bool says(unsigned i, const char *file, const char *what, char *rest, size_t room)
{
    char path[96], line[512];
    bool found = false;
    snprintf(path, sizeof path, "%s/%s%u", folder, file, i);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, what);
        if (at && rest)
            snprintf(rest, room, "%s", at + strlen(what));
        found |= at != NULL;
    }
    if (f)
        fclose(f);
    return found;
}

static inline void await_part(unsigned i)
{
    for (uint64_t until = kit_now() + OPEN_NS; !says(i, "out", " at ", NULL, 0); kit_sleep(10 * NS_PER_MS))
        if (kit_now() > until)
            kit_die("a coordinator or lock server does not start: see %s/err%u", folder, i);
}

/* After make_folder. `self`: argv[0]; the command lies beside the folder of the benchmarks. */
static inline void prepare_parts(const char *self)
{
    char path[256];
    snprintf(path, sizeof path, "%s", self);
    snprintf(command, sizeof command, "%.240s/../pawl", dirname(path));
    atexit(end_parts);
}

#endif
