/* SPDX-License-Identifier: Apache-2.0 */
/* Locks in memory that all clients of a trial share, at which each hold is judged: no two valid holds at once (I1), tokens rise
 * (I2). All clients read one clock. */
#ifndef PAWL_TESTS_JUDGED_H
#define PAWL_TESTS_JUDGED_H

#include "pawl.h"
#include "tests/shm/space.h"

#include <sys/wait.h>

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

/* ---- a trial: clients that lock until they are told to stop ---- */

#define JUDGED_CLIENTS 8
#define JUDGED_LOCKS 4

struct judged {
    uint32_t stop;
    struct judged_lock locks[JUDGED_LOCKS];
    uint64_t turns[JUDGED_CLIENTS][JUDGED_LOCKS];
    uint64_t lost[JUDGED_CLIENTS]; /* sessions */
    uint64_t late; /* entries after the end of the client's own lease: it was stopped between its grant and its entry */
};

/* Client `number` locks and unlocks once, and stays inside for so long; 0: as short as it can. Events look for a client that stays.
 * 0, or how it failed, which must be a way that the trial explains. */
static int judged_turn(struct judged *j, pawl *p, unsigned number, unsigned lock, uint64_t dwell_ns)
{
    pawl_grant g;
    struct judged_lock *l = &j->locks[lock];
    int rc = pawl_timedlock(p, pawl_id(lock), PAWL_EXCLUSIVE, pawl_in(10 * NS_PER_S), &g);
    if (rc)
        return rc;
    uint64_t until = g.expiry_ns;
    if (!judged_enter(l, lock, g.token, until))
        __atomic_fetch_add(&j->late, 1, __ATOMIC_RELAXED);
    if (dwell_ns) {
        __atomic_store_n(&l->dwells, number + 1, __ATOMIC_RELEASE);
        pause_ns(dwell_ns);
        __atomic_store_n(&l->dwells, 0, __ATOMIC_RELEASE);
    }
    judged_leave(l, lock, until);
    return pawl_unlock(p, &g);
}

/* Until each of `count` clients has had all locks once more. A client that has ended has failed. `but`: a client that is stopped;
 * `count`: none. */
static void judged_go_on(const struct judged *j, const pid_t *pids, unsigned count, unsigned but, uint64_t limit, const char *after)
{
    const struct judged then = *j;
    for (unsigned i = 0; i < count; i++)
        for (unsigned l = 0; l < JUDGED_LOCKS && i != but;) {
            int status;
            if (waitpid(pids[i], &status, WNOHANG) == pids[i])
                CHECK_FAIL("after %s: client %u ended with status 0x%x", after, i, (unsigned)status);
            if (pawl_now() > limit)
                CHECK_FAIL("after %s: client %u gets lock %u no more", after, i, l);
            if (__atomic_load_n(&j->turns[i][l], __ATOMIC_ACQUIRE) > then.turns[i][l])
                l++;
            else
                pause_ns(NS_PER_MS);
        }
}

/* All turns, and all sessions that were lost. */
static void judged_sum(const struct judged *j, uint64_t *turns, uint64_t *lost)
{
    *turns = *lost = 0;
    for (unsigned i = 0; i < JUDGED_CLIENTS; i++) {
        *lost += j->lost[i];
        for (unsigned l = 0; l < JUDGED_LOCKS; l++)
            *turns += j->turns[i][l];
    }
}

#endif
