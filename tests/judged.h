/* SPDX-License-Identifier: Apache-2.0 */
/* Locks in memory that all clients of a trial share, at which each hold is judged: no two valid holds at once (I1), tokens rise
 * (I2). All clients read one clock. */
#ifndef PAWL_TESTS_JUDGED_H
#define PAWL_TESTS_JUDGED_H

#include "pawl.h"
#include "tests/check.h"
#include "world/world.h"

#include <inttypes.h>

struct judged_lock {
    uint64_t until;   /* the end of the lease of the client inside; 0: none is */
    uint64_t highest; /* token */
    uint32_t dwells;  /* the client that holds it for long, counted from 1 */
};

/* This client has been granted the lock until `until`, by its own lease. False: it enters after that, since it was stopped between
 * its grant and its entry. It has no valid hold then, and cannot be judged. */
static bool judged_enter(struct judged_lock *l, unsigned lock, uint64_t token, uint64_t until)
{
    uint64_t highest = __atomic_load_n(&l->highest, __ATOMIC_SEQ_CST);
    uint64_t before = __atomic_exchange_n(&l->until, until, __ATOMIC_SEQ_CST), now = pawl_now();
    if (now >= until)
        return false;
    if (before > now)
        CHECK_FAIL("lock %u: granted with token %" PRIu64 " while another client has it for %" PRIu64 " us (I1)", lock, token,
                   (before - now) / NS_PER_US);
    if (highest >= token)
        CHECK_FAIL("lock %u: granted with token %" PRIu64 " after %" PRIu64 " (I2)", lock, token, highest);
    while (highest < token && !__atomic_compare_exchange_n(&l->highest, &highest, token, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return true;
}

static void judged_leave(struct judged_lock *l, unsigned lock, uint64_t until)
{
    uint64_t was = until;
    if (!__atomic_compare_exchange_n(&l->until, &was, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) && pawl_now() < until)
        CHECK_FAIL("lock %u: another client entered while this one has it (I1)", lock);
}

#endif
