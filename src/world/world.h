/* SPDX-License-Identifier: Apache-2.0 */
/* A world: where code runs and what time it is.
 *
 * Protocol code asks the world for time and randomness, never the operating system. The real world answers from the
 * machine's clocks; the simulated one has virtual time, one seed, and a clock per host that drifts. Waiting is not here:
 * the only way to wait is fab_wait (fabric/fabric.h), because what one waits for is always a word of memory or a time. */
#ifndef PAWL_WORLD_WORLD_H
#define PAWL_WORLD_WORLD_H

#include "lib/base.h"
#include <time.h>

struct world;

struct world_ops {
    uint64_t (*now)(struct world *);
    uint64_t (*random)(struct world *);
    uint64_t (*birth)(struct world *);
};

/* One per host and, in the simulation, embedded in the host. */
struct world {
    const struct world_ops *ops; /* null in the real world: its clock is read inline */
};

extern struct world world_real;

static inline uint64_t world_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* This host's monotonic clock in nanoseconds; says nothing about another host's. */
static inline uint64_t world_now(struct world *w)
{
    return likely(!w->ops) ? world_clock(CLOCK_MONOTONIC) : w->ops->now(w);
}

/* The same clock, cheaper (7 ns instead of 30) and up to WORLD_COARSE_LAG_NS behind. */
#define WORLD_COARSE_LAG_NS (10 * NS_PER_MS) /* one tick at the slowest common HZ, 100 */

static inline uint64_t world_now_coarse(struct world *w)
{
    return likely(!w->ops) ? world_clock(CLOCK_MONOTONIC_COARSE) : w->ops->now(w);
}

uint64_t world_random(struct world *w);

/* A number that is larger every time state that could be lost is made anew; tokens start from it. Real: wall-clock time since the
 * epoch below in units of 2^-32 s, which no machine's grants catch up with; 31 bits of seconds last until 2088. Simulated: how
 * often the host has started, times 2^32. */
#define WORLD_BIRTH_EPOCH_S UINT64_C(1577836800)
uint64_t world_birth(struct world *w);

/* The name of this process for people who look at holders: its command, up to 15 characters; "" if it is not known. */
#define WORLD_NAME_LEN 16
void world_process_name(char out[WORLD_NAME_LEN]);

#endif
