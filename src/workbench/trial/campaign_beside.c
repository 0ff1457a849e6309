/* SPDX-License-Identifier: Apache-2.0 */
/* Campaign 3: operations beside plain locks, in designs that offer them. Holders that want to know whether others wait for their
 * locks (I23, I24); semaphores (I25); values beside locks (I26: campaign_values.c). Every request is on the campaign's books from
 * before its call until after it, so the campaign knows which requests wait, and since when. */
#include "workbench/trial/campaign_ops.h"

#include <errno.h>
#include <inttypes.h>

#define POLLS_OF_LEASE 4 /* a holder that keeps its lock until others wait looks so often */
#define POLLS_ALONE 4    /* and gives up when so many times no other asked for the lock */
#define TOLD_LEASES 4    /* within which it is told, once faults have stopped (I24) */
#define GHOST_LEASES                                                                                                               \
    4            /* for which a request that has ended may be known to the granter: its end may be in flight, or its host cut off */
#define LIMITS 4 /* of semaphores: 1 to this */
#define COORDINATOR_FACTOR 16 /* an operator may have set eight times the lease, and a host's may begin just before it ends */

/* ---- the books ---- */

/* Such requests of a packet design end by packets; and so do those of a one-sided one on memory nodes, since the store that frees
 * the record leaves with a later verb. Those over a fabric have ended when the call returns, unless it died. */
static bool ends_by_packet(const struct campaign *c)
{
    return c->design->packet || c->cluster.params.on_node;
}

static uint64_t ghost_ns(const struct campaign *c)
{
    bool coordinated = c->design->packet && c->rack.coordinator;
    return GHOST_LEASES * c->mix.lease_ns * (coordinated ? COORDINATOR_FACTOR : 1);
}

void campaign_asks(struct actor *a, uint64_t lock)
{
    struct campaign *c = campaign_of(a);
    c->asks[campaign_who(a)] = (struct campaign_ask){.asks = true, .lock = lock, .since_ns = sim_now(c->sim)};
}

/* The request of a session that is dead or lost is known until others have recovered from it; also one that timed out, if the
 * session was lost before it could take that back. */
void campaign_asker_gone(struct campaign *c, unsigned who)
{
    struct campaign_ask *k = &c->asks[who];
    if (k->since_ns)
        c->gone_until[k->lock] =
            max_u64(sim_now(c->sim), c->safety_ns) + ghost_ns(c); /* all others may be cut off until faults stop */
    *k = (struct campaign_ask){0};
}

void campaign_answered(struct actor *a, int rc)
{
    struct campaign *c = campaign_of(a);
    struct campaign_ask *k = &c->asks[campaign_who(a)];
    k->asks = false;
    c->asked_until[k->lock][campaign_who(a)] = sim_now(c->sim) + (ends_by_packet(c) ? ghost_ns(c) : 0);
    if (rc == -PAWL_ELOST || rc == -FAB_EFENCED)
        campaign_asker_gone(c, campaign_who(a));
}

/* A place whose lock was forgotten is another key's, and a request that waited there for the former key looks for its own some
 * leases later. */
static bool places_move(const struct campaign *c)
{
    return !c->design->packet && c->cluster.params.capacity < c->locks;
}

/* Since when another task asks for the lock; UINT64_MAX: none does. */
static uint64_t asked_since(const struct campaign *c, unsigned me, uint64_t lock)
{
    uint64_t since = UINT64_MAX;
    for (unsigned who = 0; who < countof(c->asks); who++)
        if (who != me && c->asks[who].asks && c->asks[who].lock == lock)
            since = min_u64(since, c->asks[who].since_ns);
    return since;
}

/* Whether another request may have been known to the granter since then. */
static bool asked_lately(const struct campaign *c, unsigned me, uint64_t lock, uint64_t since)
{
    for (uint64_t i = 0; i < c->locks; i++) {
        if (i != lock && !places_move(c))
            continue;
        for (unsigned who = 0; who < countof(c->asks); who++)
            if (who != me && ((c->asks[who].asks && c->asks[who].lock == i) || c->asked_until[i][who] >= since))
                return true;
        if (c->gone_until[i] >= since)
            return true;
    }
    return false;
}

/* ---- watching ---- */

/* One look: 1: others wait; 0: not known; -PAWL_ELOST. */
static int look(struct actor *a, uint64_t lock, const struct hold *h, uint64_t granted_ns)
{
    struct campaign *c = campaign_of(a);
    unsigned me = campaign_who(a);
    uint64_t begin = sim_now(c->sim), since = asked_since(c, me, lock);
    int rc = a->ops->wanted(a, h);
    if (rc < 0)
        return rc == -PAWL_ELOST || rc == -FAB_EFENCED ? -PAWL_ELOST : 0;
    if (!a->ops->valid(a))
        return 0;
    if (rc && !asked_lately(c, me, lock, begin))
        oracle_violation(&c->oracle, "I23: client %u was told that a request waits for lock %" PRIu64 ", and none does", me, lock);
    c->done.told += rc > 0;
    since = max_u64(max_u64(since, granted_ns), c->safety_ns);
    bool orderly = c->design->packet ? !c->rack.coordinator : !places_move(c); /* else a request may wait for something else */
    if (!rc && orderly && begin > since && begin - since > TOLD_LEASES * c->mix.lease_ns)
        oracle_violation(&c->oracle, "I24: client %u was not told that a request waits for lock %" PRIu64, me, lock);
    return rc;
}

/* Holds until others want the lock, or no other has asked for it for a while. */
static int hold_until_wanted(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    uint64_t granted_ns = sim_now(c->sim);
    int rc = 0;
    for (unsigned alone = 0; !rc && alone < POLLS_ALONE && a->ops->valid(a);) {
        a->ops->sleep(a, c->mix.lease_ns / POLLS_OF_LEASE);
        rc = look(a, lock, h, granted_ns);
        alone += asked_since(c, campaign_who(a), lock) == UINT64_MAX;
    }
    return rc < 0 ? rc : 0;
}

/* Holds for a while, and looks now and then. */
static int hold_and_look(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    uint64_t ns = rng_below(&c->random, swarm_chance(&c->random, c->mix.long_hold) ? c->long_ns : c->mix.hold_ns);
    int rc = 0;
    for (unsigned i = 0; i < 3 && rc >= 0; i++) {
        a->ops->sleep(a, ns / 3);
        rc = look(a, lock, h, sim_now(c->sim));
        if (h->mode == PAWL_EXCLUSIVE)
            oracle_write(&c->oracle, campaign_who(a), lock, h->token);
    }
    return rc < 0 ? rc : 0;
}

/* ---- semaphores ---- */

/* Half of the locks are semaphores, each with a limit of its own; 0: it is none. */
static uint32_t limit_of(const struct campaign *c, uint64_t lock)
{
    uint64_t drawn = mix64(lock ^ c->seed);
    return c->design->features & DESIGN_SEMAPHORE && drawn % 2 ? 1 + (uint32_t)(drawn / 2 % LIMITS) : 0;
}

/* Mostly a place; sometimes with another limit, or without one, or all of them. */
static uint32_t draw_limit(struct campaign *c, uint64_t lock)
{
    uint32_t limit = limit_of(c, lock);
    if (!limit || rng_chance(&c->random, 1, 4))
        return 0;
    return rng_chance(&c->random, 1, 8) ? 1 + limit % LIMITS : limit;
}

static int lock_drawn(struct actor *a, uint64_t lock, struct hold *h)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    pawl_key key = campaign_key(a, lock, &text);
    uint32_t limit = draw_limit(c, lock);
    bool shared = swarm_chance(&c->random, c->mix.shared);
    campaign_maybe_cancel(a);
    uint64_t deadline = campaign_draw_deadline(a);
    campaign_asks(a, lock);
    int rc = limit ? a->ops->semaphore(a, key, limit, deadline, h)
                   : a->ops->lock(a, key, shared ? PAWL_SHARED : PAWL_EXCLUSIVE, deadline, h);
    campaign_answered(a, rc);
    campaign_no_more_cancel(a);
    c->done.places += !rc && limit;
    c->done.limits += rc == -PAWL_ELIMITS;
    return rc;
}

/* ---- one operation ---- */

int campaign_beside(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct hold h;
    uint64_t lock = rng_below(&c->random, c->locks);
    int rc = lock_drawn(a, lock, &h);
    if (rc)
        return rc == -PAWL_ELIMITS && limit_of(c, lock) ? 0 : rc;
    campaign_granted(a, lock, &h);
    rc = campaign_value(a, lock, &h);
    if (rc)
        return rc;
    unsigned one_in = sim_now(c->sim) > c->safety_ns ? 2 : 8;
    rc = rng_chance(&c->random, 1, one_in) ? hold_until_wanted(a, lock, &h) : hold_and_look(a, lock, &h);
    if (rc)
        return rc;
    if (c->convert && !limit_of(c, lock) && swarm_chance(&c->random, c->mix.convert)) {
        campaign_asks(a, lock);
        rc = campaign_convert(a, lock, &h);
        campaign_answered(a, rc);
        if (rc == -PAWL_ELOST || (rc = campaign_value(a, lock, &h)))
            return rc;
    }
    return campaign_give_back(a, lock, &h);
}
