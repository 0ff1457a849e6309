/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: for a word near or far, for a turn, an ancestor, a leaf or room in a counter; and what a job does that has waited too
 * often in vain. This file writes the job's `wait`. */
#include "designs/citron/steps.h"

#include <errno.h>

#define PAUSE_POLLS 8 /* after so many polls in vain a pause is twice as long; and each time that another client was quicker */
#define PAUSE_DOUBLINGS 6
#define TURN_TRIPS 2 /* a turn takes at least so many round trips: looking up and claiming */

/* ---- for the last resort of lines 23 and 24 ---- */

int job_escalate(struct citron_job *j, struct tree_node to)
{
    plan_one_node(j, to);
    j->wait.blocked = j->wait.passed = 0;
    int rc = job_drop_all(j, j->claims.base, false);
    job_count(j, &citron_stats.escalated);
    return rc ? rc : JOB_AGAIN;
}

/* ---- for a word ---- */

/* Before a client sleeps, other clients must be able to learn which tickets it has, and a claim that queues does not tell. A job
 * that does not know the outcome of its draw has no ticket; if it went on saying that it queues, no client could skip that ticket.
 */
OWN_FRAME static int say_turns(struct citron_job *j)
{
    struct citron_batch b;
    batch_start(&b);
    for (unsigned i = 0; i < j->claims.n; i++) {
        const struct citron_claim *c = &j->claims.at[i];
        if ((c->state == CLAIM_TURN && c->said != CLAIM_TURN) || (c->state == CLAIM_WAIT && c->said == CLAIM_QUEUE))
            job_say(j, &b, i, i + 1, c->state);
    }
    return job_run_surely(j, &b);
}

/* One READ of a poll: 0 if the condition no longer holds, 1 if it does, or an error. */
static int poll_once(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen, uint64_t *asked_ns)
{
    *asked_ns = world_now(j->seat->world);
    int rc = fab_read64(j->seat->ep, cond->addr, seen);
    j->wait.poll_ns = world_now(j->seat->world) - *asked_ns;
    return rc ? rc : (*seen & cond->mask) == cond->value;
}

/* At random, so that clients do not all poll at once. */
static uint64_t random_pause(const struct citron_job *j, uint64_t span)
{
    return span / 2 + world_random(j->seat->world) % (span / 2 + 1);
}

/* Over a fabric: pauses of up to a few round trips, as long as these take at present, so that many waiters do not fill the NIC. */
static int wait_far(struct citron_job *j, const struct fab_cond *cond, uint64_t until, uint64_t *seen)
{
    uint64_t was = 0, asked;
    for (unsigned n = 0;; n++) {
        unsigned doublings = j->wait.blocked + n / PAUSE_POLLS;
        uint64_t now = world_now(j->seat->world);
        uint64_t pause = random_pause(j, j->trip_ns << (doublings < PAUSE_DOUBLINGS ? doublings : PAUSE_DOUBLINGS));
        if (j->wait.ahead)
            pause = (j->wait.ahead - 1) * TURN_TRIPS * j->wait.poll_ns;           /* the client whose turn is next does not pause */
        int rc = fab_wait_any(j->seat->ep, NULL, 0, min_u64(until, now + pause)); /* without a pause: whether it was cancelled */
        if (rc && rc != -ETIMEDOUT)
            return rc;
        if ((rc = poll_once(j, cond, seen, &asked)) <= 0)
            return rc;
        now = world_now(j->seat->world);
        if (n && (*seen ^ was) & j->wait.moves) { /* another holder: the word is not left over from a dead one */
            until = min_u64(j->deadline, add_saturating(now, j->wait.patience_ns));
            if (++j->wait.passed > j->policy.blocked)
                return 0;
        }
        was = *seen;
        if (now >= until)
            return -ETIMEDOUT;
    }
}

int wait_briefly(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen, uint64_t *asked_ns)
{
    for (unsigned n = 0; n < PAUSE_POLLS && world_now(j->seat->world) < j->deadline; n++) {
        uint64_t pause = random_pause(j, j->wait.poll_ns ? j->wait.poll_ns : j->trip_ns);
        int rc = fab_wait_any(j->seat->ep, NULL, 0, min_u64(j->deadline, world_now(j->seat->world) + pause));
        if (rc && rc != -ETIMEDOUT)
            return rc;
        if ((rc = poll_once(j, cond, seen, asked_ns)) <= 0)
            return rc;
    }
    return 1;
}

/* On shared memory: asleep, and counted among the sleepers (job_wake). */
static int wait_near(struct citron_job *j, const struct fab_cond *cond, uint64_t until, uint64_t *seen)
{
    const fab_addr sleepers = job_header(j, offsetof(struct citron_lock, sleepers));
    uint64_t old;
    fab_faa64(j->seat->ep, sleepers, 1, &old);
    int rc = fab_wait_any(j->seat->ep, cond, 1, until);
    fab_faa64(j->seat->ep, sleepers, -UINT64_C(1), &old);
    return rc ? rc : fab_read64(j->seat->ep, cond->addr, seen);
}

int job_wait(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen)
{
    assert(!j->in_flight.n); /* so that what a session has in flight depends on no other session */
    int rc = say_turns(j);
    if (rc)
        return rc;
    if (j->deadline == DEADLINE_TRY) { /* one census: claims of dead sessions do not count */
        if (j->wait.tried)
            return -PAWL_EHELD;
        j->wait.tried = true;
        return 1;
    }
    if (j->claims.base && !j->claims.marked && (rc = citron_mark(j)))
        return rc;
    uint64_t until = min_u64(j->deadline, add_saturating(world_now(j->seat->world), j->wait.patience_ns));
    *seen = cond->value; /* if the connection breaks: as if nothing had changed */
    rc = j->near ? wait_near(j, cond, until, seen) : wait_far(j, cond, until, seen);
    bool in_vain = rc == -ETIMEDOUT && world_now(j->seat->world) < j->deadline;
    if (rc && !in_vain && (rc = seat_retry(j->seat, rc)))
        return rc;
    if (!seat_lives(j->seat))
        return -PAWL_ELOST;
    if (!in_vain)
        return 0;
    uint64_t longer_ns = max_u64(2 * j->wait.patience_ns, j->policy.patience_ns);
    j->wait.patience_ns = min_u64(longer_ns, max_u64(j->seat->space->check_ns, j->policy.patience_ns));
    rc = citron_give_way(j);
    return rc ? rc : 1;
}

int job_wait_bits(struct citron_job *j, struct tree_node leaf, uint64_t busy, uint64_t *seen)
{
    const uint64_t mask = busy & UINT32_MAX ? busy & UINT32_MAX : busy;
    const struct fab_cond cond = {.addr = job_node(j, leaf), .mask = mask, .value = mask};
    /* Over a fabric dead sessions have leases: a census much before these end finds nothing. */
    if (!j->near)
        j->wait.patience_ns = max_u64(j->wait.patience_ns, j->seat->space->lease_ns / 2);
    return job_wait(j, &cond, seen);
}

int job_wait_at(struct citron_job *j, struct tree_node n, bool spill, const struct fab_cond *cond, uint64_t *seen)
{
    int rc = job_wait(j, cond, seen);
    if (rc <= 0)
        return rc;
    rc = citron_repair(j, n, spill);
    if (rc == CITRON_REPAIRED)
        j->wait.patience_ns = 0; /* where one count was wrong, others may be: the next one is counted anew at once */
    if (rc >= 0)
        rc = fab_read64(j->seat->ep, cond->addr, seen);
    return rc < 0 && rc != -EAGAIN ? seat_retry(j->seat, rc) : 0;
}

/* ---- for what an acquisition meets ---- */

int wait_turn(struct citron_job *j, unsigned i, uint64_t *seen, uint32_t ahead)
{
    struct citron_claim *c = &j->claims.at[i];
    while (turns_ahead(c, *seen) > ahead) {
        const struct fab_cond cond = {.addr = job_claim_node(j, c), .mask = NODE_T_MASK, .value = *seen & NODE_T_MASK};
        j->wait.ahead = turns_ahead(c, *seen);
        int rc = job_wait_at(j, c->node, c->spill, &cond, seen);
        j->wait.ahead = 0;
        if (rc)
            return rc;
    }
    return 0;
}

OWN_FRAME int wait_step_back(struct citron_job *j, unsigned from, unsigned to)
{
    struct citron_batch b;
    flight_end(j);
    batch_start(&b);
    for (unsigned i = from; i < to; i++)
        if (j->claims.at[i].state == CLAIM_FLUX)
            job_say(j, &b, i, i + 1, claim_internal(&j->claims.at[i]) ? CLAIM_TURN : CLAIM_WAIT);
    return job_run_surely(j, &b);
}

/* Claims [from, to) step back, and those before them are given back but for their turns. */
static int give_back(struct citron_job *j, unsigned from, unsigned to)
{
    int rc = wait_step_back(j, from, to);
    if (!rc && from > j->claims.base)
        rc = job_drop_all(j, j->claims.base, true);
    for (unsigned i = j->claims.base; i < j->claims.n && !rc; i++)
        assert(j->claims.at[i].state <= CLAIM_TURN); /* I9: no client waits for an ancestor with a claim in hand */
    return rc;
}

/* Lines 16 to 18. */
int wait_ancestor(struct citron_job *j, unsigned from, unsigned to, struct tree_node above, uint64_t word)
{
    int rc = give_back(j, from, to);
    if (rc)
        return rc;
    if (++j->wait.passed > j->policy.blocked && j->deadline != DEADLINE_TRY)
        return job_escalate(j, above);
    job_count(j, &citron_stats.blocked);
    uint64_t flag = word & NODE_OCC ? NODE_OCC : NODE_SHARED;
    const struct fab_cond cond = {.addr = job_node(j, above), .mask = flag, .value = flag};
    uint64_t seen;
    j->wait.moves = NODE_T_MASK;
    rc = job_wait_at(j, above, false, &cond, &seen);
    j->wait.moves = 0;
    return rc ? rc : JOB_WAITED;
}

/* The word counts as many as it may: waits until it counts other claims, or fewer. Counts without an owner go meanwhile. */
int wait_room(struct citron_job *j, unsigned from, unsigned to, const struct crowd_word *full)
{
    const struct fab_cond cond = {.addr = full->addr, .mask = NODE_D_MASK, .value = full->value & NODE_D_MASK};
    uint64_t seen;
    int rc = give_back(j, from, to);
    if (!rc)
        rc = job_wait_at(j, full->node, false, &cond, &seen);
    return rc ? rc : JOB_WAITED;
}

/* Gives back everything, to begin with another plan. */
static int plan_again(struct citron_job *j)
{
    int rc = job_drop_all(j, 0, false);
    return rc ? rc : JOB_AGAIN;
}

/* Bits that other clients have. After a while: do these live? */
int wait_leaf(struct citron_job *j, unsigned i, uint64_t bits)
{
    struct citron_claim *c = &j->claims.at[i];
    if (wait_blocked(j))
        return job_escalate(j, tree_parent(c->node)); /* lines 23 and 24 */
    uint64_t seen;
    int rc = job_wait_bits(j, c->node, bits, &seen);
    if (rc <= 0)
        return rc ? rc : JOB_WAITED;
    rc = citron_own_way(j, c);
    if (rc > 0 && !j->plan.exact && !j->claims.base) {
        plan_exactly(j);
        return plan_again(j);
    }
    if (rc >= 0)
        rc = citron_leaf_owned(j, c->node, bits);
    if (rc) {
        rc = rc > 0 || rc == -EAGAIN ? 0 : seat_retry(j->seat, rc);
        return rc ? rc : JOB_WAITED;
    }
    if (j->claims.base)
        return job_escalate(j, tree_parent(c->node)); /* a job that holds something goes around these bits */
    plan_scrub(j, true, tree_parent(c->node)); /* no owner: a client that has the parent exclusively clears them (3.10, line 22) */
    return plan_again(j);
}
