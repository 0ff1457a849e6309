/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmark programs: cores, clocks, medians, a space of their own, and how a figure and its bound are printed.
 *
 * Baseline and candidate take turns in short rounds. A ratio is the median of the rounds' ratios, so that other work of the machine
 * affects both alike. The exit status is 0 whatever was measured, unless --check asks for 1 if a bound is missed. */
#ifndef PAWL_BENCH_KIT_H
#define PAWL_BENCH_KIT_H

#include "lib/base.h"
#include "pawl.h"

#include <stdio.h>
#include <sys/types.h>

struct kit {
    bool check;
    bool missed;  /* some bound */
    double scale; /* how much of the usual work: 0.1 is a tenth */
    int cpus[2];  /* two cores to pin to; the same one twice if there is no other */
    char folder[64];
    char place[96]; /* "local:" and a path in it */
};

/* Options --check and --scale F; says what is run on what. The space's folder is made, and removed by kit_end. */
void kit_begin(struct kit *k, int argc, char **argv, const char *about);
int kit_end(struct kit *k); /* the exit status */

uint64_t kit_now(void);
void kit_pin(int cpu);
void kit_sleep(uint64_t ns);
void *kit_shared(size_t bytes); /* zeroed, between this process and its children; or the end */

/* Asleep in the kernel, as /proc has it. */
bool kit_is_asleep(pid_t pid);

/* Opens the space with 0 or the end. */
pawl *kit_open(struct kit *k, const pawl_options *options);
void kit_drop(struct kit *k); /* the next kit_open makes another */

/* Sorts. `part` in 0..1. */
double kit_percentile(double *values, unsigned n, double part);

/* "what: value unit, bound N: ok" and remembers a miss. The bound is the most that is allowed, or the least. */
void kit_judge(struct kit *k, const char *what, double value, const char *unit, double bound);
void kit_judge_least(struct kit *k, const char *what, double value, const char *unit, double bound);

__attribute__((format(printf, 1, 2), noreturn)) void kit_die(const char *format, ...);

/* A word to wait for, between processes. */
void kit_post(uint32_t *word, uint32_t value);  /* and wakes */
void kit_await(uint32_t *word, uint32_t value); /* sleeps until it is that */

#endif
