/* SPDX-License-Identifier: Apache-2.0 */
/* Phase (a) of Algorithm 2: turns at internal nodes, served in order; and waiting in general. */
#include "designs/citron/citron.h"

#include <errno.h>

/* ---- waiting ---- */

#define PAUSE_POLLS 8 /* after so many polls in vain a pause is twice as long; and each time that somebody else was quicker */
#define PAUSE_DOUBLINGS 6
#define TURN_TRIPS 2 /* a turn takes at least so many round trips: looking up and claiming */

static void sleeper(const struct citron_job *j, uint64_t add)
{
    uint64_t old;
    if (fab_is_shm(j->seat->ep))
        fab_faa64(j->seat->ep, j->lock + offsetof(struct citron_lock, sleepers), add, &old);
}

/* Before one sleeps: others may have to know whose tickets are whose, and nobody knows which one it has who queues. One that does
 * not know what became of its ticket has none, and if it went on saying that it queues, nobody could pass that ticket by. */
OWN_FRAME static int say_turns(struct citron_job *j)
{
    struct citron_batch b;
    batch_start(&b);
    for (unsigned i = 0; i < j->count; i++) {
        const struct citron_claim *c = &j->claims[i];
        if ((c->state == CLAIM_TURN && c->said != CLAIM_TURN) || (c->state == CLAIM_WAIT && c->said == CLAIM_QUEUE))
            job_say(j, &b, i, i + 1, c->state);
    }
    int rc = job_run(j, &b);
    while (rc && !(rc = seat_retry(j->seat, rc)))
        rc = job_run(j, &b);
    return rc;
}

/* Polling another host's memory: pauses of up to a few round trips, as long as those take at present, so that many who wait do not
 * fill the NIC, and do not all come at once. */
static int poll_far(struct citron_job *j, const struct fab_cond *cond, uint64_t until, uint64_t *seen)
{
    uint64_t was = 0;
    for (unsigned n = 0;; n++) {
        unsigned doublings = j->blocked + n / PAUSE_POLLS;
        uint64_t span = j->trip_ns << (doublings < PAUSE_DOUBLINGS ? doublings : PAUSE_DOUBLINGS);
        uint64_t now = world_now(j->seat->world), pause = span / 2 + world_random(j->seat->world) % (span / 2 + 1);
        if (j->ahead)
            pause = (j->ahead - 1) * TURN_TRIPS * j->poll_ns; /* whose turn it is next does not pause */
        int rc = pause ? fab_wait_any(j->seat->ep, NULL, 0, min_u64(until, now + pause)) : 0;
        if (rc && rc != -ETIMEDOUT)
            return rc;
        uint64_t asked = world_now(j->seat->world);
        rc = fab_read64(j->seat->ep, cond->addr, seen);
        now = world_now(j->seat->world);
        j->poll_ns = now - asked;
        if (rc || (*seen & cond->mask) != cond->value)
            return rc;
        if (n && (*seen ^ was) & j->moves) { /* another holder: there is nothing wrong with it */
            until = min_u64(j->deadline, add_saturating(now, j->patience_ns));
            if (++j->passed > citron_knob(j, CITRON_BLOCKED))
                return 0;
        }
        was = *seen;
        if (now >= until)
            return -ETIMEDOUT;
    }
}

int job_poll_briefly(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen)
{
    for (unsigned n = 0; n < PAUSE_POLLS && world_now(j->seat->world) < j->deadline; n++) {
        const uint64_t span = j->poll_ns ? j->poll_ns : j->trip_ns;
        uint64_t pause = span / 2 + world_random(j->seat->world) % (span / 2 + 1);
        int rc = fab_wait_any(j->seat->ep, NULL, 0, min_u64(j->deadline, world_now(j->seat->world) + pause));
        if (rc && rc != -ETIMEDOUT)
            return rc;
        j->looked_ns = world_now(j->seat->world);
        rc = fab_read64(j->seat->ep, cond->addr, seen);
        j->poll_ns = world_now(j->seat->world) - j->looked_ns;
        if (rc || (*seen & cond->mask) != cond->value)
            return rc;
    }
    return 1;
}

static int wait_here(struct citron_job *j, const struct fab_cond *cond, uint64_t until, uint64_t *seen)
{
    sleeper(j, 1);
    int rc = fab_wait_any(j->seat->ep, cond, 1, until);
    sleeper(j, -UINT64_C(1));
    return rc ? rc : fab_read64(j->seat->ep, cond->addr, seen);
}

int job_wait(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen)
{
    int rc = say_turns(j);
    if (rc)
        return rc;
    if (j->deadline == DEADLINE_TRY) {
        /* Once: what the dead have left does not count. */
        if (j->tried)
            return -PAWL_EHELD;
        j->tried = true;
        return 1;
    }
    if (j->base && !j->marked && (rc = citron_mark(j)))
        return rc;
    uint64_t look_after = add_saturating(world_now(j->seat->world), j->patience_ns);
    uint64_t until = min_u64(j->deadline, look_after);
    *seen = cond->value; /* should the connection break: as if nothing had changed */
    rc = fab_is_shm(j->seat->ep) ? wait_here(j, cond, until, seen) : poll_far(j, cond, until, seen);
    bool in_vain = rc == -ETIMEDOUT && world_now(j->seat->world) < j->deadline;
    if (rc && !in_vain && (rc = seat_retry(j->seat, rc)))
        return rc;
    if (!seat_lives(j->seat))
        return -PAWL_ELOST;
    if (!in_vain)
        return 0;
    j->patience_ns = min_u64(2 * j->patience_ns, max_u64(j->seat->space->check_ns, job_patience_ns(j)));
    rc = citron_give_way(j);
    return rc ? rc : 1;
}

int job_wait_bits(struct citron_job *j, struct tree_node leaf, uint64_t busy, uint64_t *seen)
{
    const uint64_t mask = busy & UINT32_MAX ? busy & UINT32_MAX : busy;
    const struct fab_cond cond = {.addr = job_node(j, leaf), .mask = mask, .value = mask};
    /* Far away the dead have leases, so nothing is gained by asking everybody much earlier than these end. */
    if (!fab_is_shm(j->seat->ep))
        j->patience_ns = max_u64(j->patience_ns, j->seat->space->lease_ns / 2);
    return job_wait(j, &cond, seen);
}

/* Waits for a node's word, and after a while looks whether anybody is behind what it says. */
int job_wait_at(struct citron_job *j, struct tree_node n, bool spill, const struct fab_cond *cond, uint64_t *seen)
{
    int rc = job_wait(j, cond, seen);
    if (rc <= 0)
        return rc;
    rc = citron_repair(j, n, spill);
    if (rc == CITRON_REPAIRED)
        j->patience_ns = job_patience_ns(j); /* where something was wrong, more may be */
    if (rc >= 0)
        rc = fab_read64(j->seat->ep, cond->addr, seen);
    return rc < 0 && rc != -EAGAIN ? seat_retry(j->seat, rc) : 0;
}

/* ---- phase (a): turns ---- */

/* One that does not wait takes a ticket only if that is served at once: it wants the word to be this. */
static int look_for_turn(struct citron_job *j, struct citron_claim *c, uint64_t *seen)
{
    fab_addr addr = job_claim_node(j, c);
    int rc = fab_read64(j->seat->ep, addr, seen);
    if (rc || !node_queue(*seen))
        return rc;
    const struct fab_cond cond = {.addr = addr, .mask = NODE_T_MASK, .value = *seen & NODE_T_MASK};
    rc = job_wait_at(j, c->node, c->spill, &cond, seen);
    return rc ? rc : JOB_WAITED;
}

/* There was a crowd. If the queue is too long it waits until it is not, outside of it. */
static int look_for_room(struct citron_job *j, struct citron_claim *c)
{
    fab_addr addr = job_claim_node(j, c);
    uint64_t seen;
    int rc = fab_read64(j->seat->ep, addr, &seen);
    if (rc || node_queue(seen) < citron_knob(j, CITRON_CROWD))
        return rc;
    const struct fab_cond cond = {.addr = addr, .mask = NODE_T_MASK, .value = seen & NODE_T_MASK};
    job_land(j);
    rc = job_wait_at(j, c->node, c->spill, &cond, &seen);
    return rc ? rc : JOB_WAITED;
}

/* Too many: from now on it looks before it draws. */
static int return_ticket(struct citron_job *j, unsigned i)
{
    j->crowded = true;
    int rc = job_tell_crowd(j);
    if (!rc)
        rc = job_drop(j, i, false);
    return rc ? rc : JOB_WAITED;
}

/* `at_once`: only if the word is what was expected. 1: it was not. */
OWN_FRAME static int draw_ticket(struct citron_job *j, unsigned i, bool at_once, uint64_t expect, uint64_t *seen)
{
    struct citron_claim *c = &j->claims[i];
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, i, i + 1, CLAIM_QUEUE);
    if (c->spill)
        citron_note_end(j, &b);
    uint64_t with = masked_add64(expect, UINT64_C(1) << NODE_TMAX, NODE_TOPS);
    unsigned op = at_once ? batch_mcas(&b, job_claim_node(j, c), expect, UINT64_MAX, with, UINT64_MAX)
                          : batch_mfaa(&b, job_claim_node(j, c), UINT64_C(1) << NODE_TMAX, NODE_TOPS);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    *seen = batch_old(&b, op);
    return at_once && *seen != expect;
}

/* In the air: no more draw at once than may. One that wants the word to be what it was needs no such thing. */
static int draw_in_air(struct citron_job *j, unsigned i, uint64_t *seen)
{
    int rc = job_take_off(j, i, i, (int)i);
    if (!rc && (j->flight.wary || j->crowded))
        rc = look_for_room(j, &j->claims[i]);
    if (rc)
        return rc;
    rc = draw_ticket(j, i, false, 0, seen);
    int told = rc == -FAB_EUNKNOWN ? crowd_doubt(j, i, i, (int)i) : 0;
    return told ? told : rc;
}

static int try_ticket(struct citron_job *j, unsigned i, uint64_t *seen)
{
    uint64_t expect = 0;
    bool at_once = j->deadline == DEADLINE_TRY;
    int rc = at_once ? look_for_turn(j, &j->claims[i], &expect) : draw_in_air(j, i, seen);
    if (rc > 0 || (rc < 0 && rc != -FAB_EUNKNOWN))
        return rc;
    if (!rc && at_once)
        rc = draw_ticket(j, i, true, expect, seen);
    if (rc) { /* if it is not known, it was nobody's ticket */
        j->claims[i].state = CLAIM_WAIT;
        rc = rc < 0 ? seat_retry(j->seat, rc) : 0;
        return rc ? rc : JOB_WAITED;
    }
    return job_take_ticket(j, i, *seen);
}

static int take_ticket(struct citron_job *j, unsigned i, uint64_t *seen)
{
    int rc = try_ticket(j, i, seen);
    job_land(j);
    return rc;
}

int job_take_ticket(struct citron_job *j, unsigned i, uint64_t found)
{
    struct citron_claim *c = &j->claims[i];
    c->state = CLAIM_TURN;
    c->ticket = node_field(found, NODE_TMAX);
    return node_queue(found) >= citron_knob(j, CITRON_CROWD) ? return_ticket(j, i) : 0;
}

/* Until it is this claim's turn (line 11), or nearly so. */
int job_await_turn(struct citron_job *j, unsigned i, uint64_t *seen, uint32_t ahead)
{
    struct citron_claim *c = &j->claims[i];
    fab_addr addr = job_claim_node(j, c);
    while (turns_ahead(c, *seen) > ahead) {
        const struct fab_cond cond = {.addr = addr, .mask = NODE_T_MASK, .value = *seen & NODE_T_MASK};
        j->ahead = turns_ahead(c, *seen);
        int rc = job_wait_at(j, c->node, c->spill, &cond, seen);
        j->ahead = 0;
        if (rc)
            return rc;
    }
    return 0;
}

int job_take_turns(struct citron_job *j, unsigned to)
{
    for (unsigned i = j->base; i < to;) {
        struct citron_claim *c = &j->claims[i];
        uint64_t seen = 0;
        if (!claim_internal(c) || c->state == CLAIM_TURN || c->state == CLAIM_FLUX || c->state == CLAIM_HELD) {
            i++;
            continue;
        }
        int rc = take_ticket(j, i, &seen);
        if (rc == JOB_WAITED)
            continue;
        if (!rc)
            rc = job_await_turn(j, i, &seen, 0);
        if (rc)
            return rc;
        i++;
    }
    return 0;
}
