/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/progress.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#define SILENT_NS (2 * NS_PER_S)      /* shorter work needs no company */
#define INTERVAL_NS (200 * NS_PER_MS) /* often enough to look alive, too seldom to cost anything */

#define WIPE "\r\033[K" /* back to the first column, erase to the end of the line */

static uint64_t now_coarse(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void progress_start_at(struct progress *p, FILE *out, const char *what, uint64_t total, uint64_t now_ns)
{
    *p = (struct progress){.out = out, .what = what, .total = total, .start_ns = now_ns, .next_ns = now_ns + SILENT_NS};
}

void progress_update_at(struct progress *p, uint64_t done, uint64_t now_ns)
{
    if (!p->out || now_ns < p->next_ns)
        return;
    uint64_t elapsed_ns = now_ns - p->start_ns;
    fprintf(p->out, WIPE "%" PRIu64, done);
    if (p->total)
        fprintf(p->out, " of %" PRIu64, p->total);
    fprintf(p->out, " %s, %" PRIu64 " s", p->what, elapsed_ns / NS_PER_S);
    if (done && p->total > done) {
        uint64_t left_ns = (uint64_t)((u128)elapsed_ns * (p->total - done) / done);
        fprintf(p->out, ", about %" PRIu64 " s left", left_ns / NS_PER_S + 1);
    }
    fflush(p->out);
    p->shown = true;
    p->next_ns = now_ns + INTERVAL_NS;
}

void progress_start(struct progress *p, const char *what, uint64_t total)
{
    progress_start_at(p, isatty(STDERR_FILENO) ? stderr : NULL, what, total, now_coarse());
}

void progress_update(struct progress *p, uint64_t done)
{
    if (unlikely(p->out))
        progress_update_at(p, done, now_coarse());
}

void progress_wipe(struct progress *p)
{
    if (p->shown) {
        fputs(WIPE, p->out);
        fflush(p->out);
    }
    p->shown = false;
}

void progress_end(struct progress *p)
{
    progress_wipe(p);
    p->out = NULL;
}
