/* SPDX-License-Identifier: Apache-2.0 */
/* One line on a terminal for work that lasts: nothing for the first two seconds, nothing into pipes and logs. */
#ifndef PAWL_LIB_PROGRESS_H
#define PAWL_LIB_PROGRESS_H

#include "lib/base.h"
#include <stdio.h>

struct progress {
    FILE *out;        /* null: no terminal */
    const char *what; /* "seeds", "seconds" …: what is counted */
    uint64_t total;   /* 0: unknown */
    uint64_t start_ns, next_ns;
    bool shown;
};

/* On stderr if that is a terminal. `what` must outlive the work. */
void progress_start(struct progress *p, const char *what, uint64_t total);
/* Cheap enough (one read of the coarse clock) for a loop whose rounds take microseconds. */
void progress_update(struct progress *p, uint64_t done);
/* Wipes the line, so that something else can be printed; the next update shows it again. */
void progress_wipe(struct progress *p);
/* The same for good: results start in an empty line. */
void progress_end(struct progress *p);

/* The same on another stream and by a clock of the caller's. */
void progress_start_at(struct progress *p, FILE *out, const char *what, uint64_t total, uint64_t now_ns);
void progress_update_at(struct progress *p, uint64_t done, uint64_t now_ns);

#endif
