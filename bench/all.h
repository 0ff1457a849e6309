/* SPDX-License-Identifier: Apache-2.0 */
/* Ten free locks by one pawl_lock_all against one lock, and a transaction of ten locks, taken and given back together against one
 * by one, in turns. Shared by the benchmarks that do so in different places. */
#ifndef PAWL_BENCH_ALL_H
#define PAWL_BENCH_ALL_H

#include "bench/kit.h"
#include "pawl.h"

#include <stdio.h>

#define ALL_ROUNDS 21
#define ALL_TURNS 200
#define ALL_TOGETHER 10
#define ALL_STRIDE 7919 /* a prime: neighbours in time are not neighbours in memory */

static uint64_t all_locks; /* keys are numbers below it */

static inline uint64_t next_key(void)
{
    static uint64_t n;
    return ++n * ALL_STRIDE % all_locks;
}

static inline void must(int rc, const char *what)
{
    if (rc)
        kit_die("cannot %s: %s", what, pawl_explain());
}

/* The time of one lock and of its transaction. */
static inline void one(pawl *p, double *lock, double *both)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    must(pawl_lock(p, pawl_id(next_key()), PAWL_EXCLUSIVE, &g), "lock");
    *lock = (double)(kit_now() - begin);
    must(pawl_unlock(p, &g), "unlock");
    *both = (double)(kit_now() - begin);
}

static inline void ten_in_turn(pawl *p, double *both)
{
    pawl_grant g[ALL_TOGETHER];
    uint64_t begin = kit_now();
    for (unsigned i = 0; i < ALL_TOGETHER; i++)
        must(pawl_lock(p, pawl_id(next_key()), PAWL_EXCLUSIVE, &g[i]), "lock");
    for (unsigned i = 0; i < ALL_TOGETHER; i++)
        must(pawl_unlock(p, &g[i]), "unlock");
    *both = (double)(kit_now() - begin);
}

static inline void ten_together(pawl *p, double *lock, double *both)
{
    pawl_want wants[ALL_TOGETHER];
    pawl_grant g[ALL_TOGETHER];
    for (unsigned i = 0; i < ALL_TOGETHER; i++)
        wants[i] = (pawl_want){.key = pawl_id(next_key()), .mode = PAWL_EXCLUSIVE};
    uint64_t begin = kit_now();
    must(pawl_lock_all(p, wants, ALL_TOGETHER, UINT64_MAX, g), "lock ten");
    *lock = (double)(kit_now() - begin);
    must(pawl_unlock_all(p, g, ALL_TOGETHER), "unlock ten");
    *both = (double)(kit_now() - begin);
}

/* Through a session of a space with so many locks. */
static inline void all_measure(struct kit *k, const char *name, pawl *p, uint64_t locks)
{
    static double lock1[ALL_TURNS], both1[ALL_TURNS], turn[ALL_TURNS], lock10[ALL_TURNS], both10[ALL_TURNS], time1[ALL_ROUNDS],
        time10[ALL_ROUNDS], ratio[ALL_ROUNDS], faster[ALL_ROUNDS];
    const unsigned rounds = (unsigned)max_u64(5, min_u64(ALL_ROUNDS, (uint64_t)(ALL_ROUNDS * k->scale)));
    char what[128];
    all_locks = locks;
    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < ALL_TURNS; i++) {
            one(p, &lock1[i], &both1[i]);
            ten_together(p, &lock10[i], &both10[i]);
            ten_in_turn(p, &turn[i]);
        }
        time1[r] = kit_percentile(lock1, ALL_TURNS, 0.5);
        time10[r] = kit_percentile(lock10, ALL_TURNS, 0.5);
        ratio[r] = time10[r] / time1[r];
        faster[r] = kit_percentile(turn, ALL_TURNS, 0.5) / kit_percentile(both10, ALL_TURNS, 0.5);
    }
    snprintf(what, sizeof what, "%s: one lock %.1f us, ten by pawl_lock_all %.1f us, ratio", name,
             kit_percentile(time1, rounds, 0.5) / 1000, kit_percentile(time10, rounds, 0.5) / 1000);
    kit_judge(k, what, kit_percentile(ratio, rounds, 0.5), "x", 1.5);
    snprintf(what, sizeof what, "%s: ten locks, taken and given back together, faster than in turn by", name);
    kit_judge_least(k, what, kit_percentile(faster, rounds, 0.5), "x", 5);
}

#endif
