/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a campaign's clients, and of the auditor afterwards. */
#include "designs/packet/requests.h"
#include "workbench/trial/campaign_ops.h"

#include <errno.h>
#include <inttypes.h>

#define COORDINATOR_LEASES 16 /* an operator may have set eight times the lease, and a host's may begin just before it ends */
#define OPS_AFTER 5           /* that each client must complete after the healing */

/* ---- clients ---- */

/* A lost session stays lost: nothing is granted to it any more. */
static void try_after_loss(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    struct hold h;
    for (int i = 0; i < 3; i++)
        if (!a->ops->lock(a, campaign_key(a, rng_below(&c->random, c->locks), &text), PAWL_EXCLUSIVE, DEADLINE_TRY, &h))
            oracle_violation(&c->oracle, "I8: client %u was granted a lock after its session was lost", campaign_who(a));
}

static bool work(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    for (unsigned after = 0; after < OPS_AFTER;) {
        a->ops->sleep(a, rng_below(&c->random, c->busy ? CAMPAIGN_BUSY_NS : c->mix.pause_ns));
        int rc = c->design->retune && swarm_chance(&c->random, c->mix.tune) ? campaign_tune(a)
                 : c->beside                                                ? campaign_beside(a)
                 : c->busy                                                  ? campaign_busy_lock(a)
                 : c->calls && swarm_chance(&c->random, c->mix.order)       ? campaign_order(a)
                 : c->nests && swarm_chance(&c->random, c->mix.nested)      ? campaign_nested_locks(a)
                 : swarm_chance(&c->random, c->mix.several)                 ? campaign_several_locks(a)
                                                                            : campaign_one_lock(a);
        if (rc == -PAWL_ELOST || rc == -FAB_EFENCED) {
            oracle_gone(&c->oracle, campaign_who(a));
            if (!a->ops->valid(a))
                try_after_loss(a);
            return false;
        }
        c->done.timeouts += rc == -ETIMEDOUT;
        c->done.cancelled += rc == -ECANCELED;
        if (rc && !campaign_excusable(rc))
            oracle_violation(&c->oracle, "I10: client %u: unexpected result %d: %s", campaign_who(a), rc, pawl_strerror(rc));
        if (sim_now(c->sim) > c->safety_ns)
            after++;
    }
    return true;
}

/* ---- the auditor: when all others are done, everything must be as at the beginning ---- */

static int audit_lock(struct actor *a, uint64_t lock)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    pawl_key key = campaign_key(a, lock, &text);
    pawl_state state;
    struct hold h;
    /* Leases that may have to be waited out one after the other: with a steward that has just lost its memory its own, then what
     * it had given, then what those had given; and the time to notice. */
    uint64_t leases = c->design->packet && c->design->packet->steward_packet ? 4 : 1;
    uint64_t patience_ns = leases * c->mix.lease_ns;
    if (c->design->packet &&
        c->rack.coordinator) /* the last: of a host that is gone, and may use the index that the name is to get */
        patience_ns = patience_ns * COORDINATOR_LEASES + c->rack.params.member_ns;
    if (c->design->packet) /* a granter that waits says nothing: the request comes again after the longest pause at the latest */
        patience_ns += c->rack.params.retry_ns << REQUEST_RETRY_DOUBLINGS;
    int rc = a->ops->query(a, key, &state);
    if (!rc && state.mode)
        oracle_violation(&c->oracle, "I11: lock %" PRIu64 " is held (mode %u, %u holders) when all have released it", lock,
                         state.mode, state.holders);
    rc = a->ops->lock(a, key, PAWL_EXCLUSIVE, c->timeout ? world_now(&a->process->host->world) + patience_ns : DEADLINE_NEVER, &h);
    if (!rc) {
        campaign_granted(a, lock, &h);
        rc = campaign_give_back(a, lock, &h);
    } else if (rc == -ENOSPC && c->beside && c->design->features & DESIGN_VALUES) {
        return 0; /* keys with values stay, and there is no lock for another */
    } else if (rc != -PAWL_ENOTSUP && rc != -PAWL_ELOST) {
        oracle_violation(&c->oracle, "I11: lock %" PRIu64 " cannot be had when all have released it: %s", lock, pawl_strerror(rc));
    }
    return rc;
}

/* The auditor may itself have been paused or cut off for longer than its lease, until just now: then it starts again. */
static bool audit(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    while (*c->clients_done < c->clients - 1)
        a->ops->sleep(a, c->mix.lease_ns);
    if (c->design->ends)
        a->ops->sleep(a, c->mix.lease_ns); /* until those that end by themselves have */
    bool recovers = c->design->features & DESIGN_RECOVERY;
    int rc = recovers ? a->ops->tidy(a) : 0;
    if (rc == -PAWL_ELOST)
        return false;
    if (rc)
        oracle_violation(&c->oracle, "I11: something of ended sessions is left");
    for (uint64_t lock = 0; lock < c->locks; lock++)
        if (audit_lock(a, lock) == -PAWL_ELOST)
            return false;
    return true;
}

bool campaign_work(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    if (a->client < c->clients - 1)
        return work(a);
    return a->number > 0 || audit(a);
}
