/* SPDX-License-Identifier: Apache-2.0 */
/* Locks and unlocks of one session with as many in flight as it may have. */
#ifndef PAWL_BENCH_PAIRS_H
#define PAWL_BENCH_PAIRS_H

#include "bench/kit.h"

static inline void pairs_submit(pawl *p, const pawl_request *r)
{
    uint64_t id;
    if (pawl_submit(p, r, &id))
        kit_die("cannot submit: %s", pawl_explain());
}

/* Pairs a second, for so long, on locks with numbers below `locks`. */
static inline double pairs_in_flight(pawl *p, uint64_t locks, uint64_t ns)
{
    static uint64_t key;
    pawl_completion done[PAWL_INFLIGHT_MAX];
    uint64_t begin = kit_now(), end = begin + ns, pairs = 0;
    unsigned flying = 0;
    for (bool more = true; more || flying;) {
        more = kit_now() < end;
        for (; more && flying < PAWL_INFLIGHT_MAX; flying++) {
            const pawl_request lock = {
                .op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(++key * 7919 % locks), .deadline_ns = UINT64_MAX};
            pairs_submit(p, &lock);
        }
        int n = pawl_reap(p, done, PAWL_INFLIGHT_MAX, pawl_in(NS_PER_S));
        for (int i = 0; i < n; i++) {
            if (done[i].result)
                kit_die("refused: %s", pawl_strerror(done[i].result));
            bool unlocked = done[i].user;
            const pawl_request unlock = {.op = PAWL_OP_UNLOCK, .grant = done[i].grant, .user = p};
            if (!unlocked)
                pairs_submit(p, &unlock);
            pairs += unlocked;
            flying -= unlocked;
        }
    }
    return (double)pairs * 1e9 / (double)(kit_now() - begin);
}

#endif
