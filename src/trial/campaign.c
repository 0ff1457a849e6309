#include "trial/campaign.h"
#include "cluster/session.h"
#include "trial/campaign_ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LEASE_NONE_NS (3600 * NS_PER_S) /* for designs that cannot recover: nobody is ever declared lost */
#define SAFETY_MIN_NS (40 * NS_PER_MS)  /* four leases */
#define SAFETY_SPAN_NS (60 * NS_PER_MS)
#define HEALING_NS (400 * CAMPAIGN_LEASE_NS) /* what every waiter must be granted within, once faults have stopped (I9) */
#define OPS_AFTER 5                          /* that each client must complete after the healing */
#define POLL_NS (20 * NS_PER_US)             /* waiters look this often: ten times less than a real one, to save events */

static bool valid(void *ctx, unsigned client)
{
    struct campaign *c = ctx;
    return cluster_client_valid(&c->cluster.clients[client / CLUSTER_TASKS_MAX]);
}

static void on_gone(struct cluster_client *client)
{
    struct campaign *c = client->cluster->params.user;
    for (unsigned i = 0; i < CLUSTER_TASKS_MAX; i++) {
        oracle_gone(&c->oracle, client->id * CLUSTER_TASKS_MAX + i);
        c->op[client->id][i] = 0;
    }
}

/* ---- clients ---- */

/* A lost session stays lost: nothing is granted to it any more. */
static void try_after_loss(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    struct key_text text;
    struct hold h;
    for (int i = 0; i < 3; i++)
        if (!locker_lock(&t->locker, campaign_key(t, rng_below(&c->random, c->locks), &text), PAWL_EXCLUSIVE, DEADLINE_TRY, &h))
            oracle_violation(&c->oracle, "I8: client %u was granted a lock after its session was lost", campaign_who(t));
}

static bool work(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    for (unsigned after = 0; after < OPS_AFTER;) {
        cluster_sleep(t, rng_below(&c->random, 400 * NS_PER_US));
        int rc = rng_chance(&c->random, 1, 6) ? campaign_several_locks(t) : campaign_one_lock(t);
        if (rc == -PAWL_ELOST || rc == -FAB_EFENCED) {
            oracle_gone(&c->oracle, campaign_who(t));
            if (!cluster_client_valid(t->client))
                try_after_loss(t);
            return false;
        }
        c->done.timeouts += rc == -ETIMEDOUT;
        c->done.cancelled += rc == -ECANCELED;
        if (rc && !campaign_excusable(rc))
            oracle_violation(&c->oracle, "I10: client %u: unexpected result %d: %s", campaign_who(t), rc, pawl_strerror(rc));
        if (sim_now(&c->cluster.sim) > c->cluster.params.safety_ns)
            after++;
    }
    return true;
}

/* ---- the auditor: when all others are done, everything must be as at the beginning ---- */

static int count_other_slots(void *ctx, uint32_t slot, uint64_t lease)
{
    ++*(unsigned *)ctx;
    return 0;
}

static bool audit_sessions(struct cluster_task *t)
{
    for (unsigned i = 0; i < 10; i++) {
        unsigned slots = 0;
        session_tend(&t->locker.seat);
        if (seat_slots(&t->locker.seat, count_other_slots, &slots) == 0 && slots == 1)
            return true;
        cluster_sleep(t, CAMPAIGN_LEASE_NS);
    }
    return false;
}

static int audit_lock(struct cluster_task *t, uint64_t lock)
{
    struct campaign *c = campaign_of(t);
    struct key_text text;
    pawl_key key = campaign_key(t, lock, &text);
    pawl_state state;
    struct hold h;
    int rc = locker_query(&t->locker, key, &state);
    if (!rc && state.mode)
        oracle_violation(&c->oracle, "I11: lock %" PRIu64 " is held (mode %u, %u holders) when all have released it", lock,
                         state.mode, state.holders);
    rc = locker_lock(&t->locker, key, PAWL_EXCLUSIVE,
                     c->timeout ? world_now(t->locker.seat.world) + CAMPAIGN_LEASE_NS : DEADLINE_NEVER, &h);
    if (!rc) {
        campaign_granted(t, lock, &h);
        rc = campaign_give_back(t, lock, &h);
    } else if (rc != -PAWL_ENOTSUP && rc != -PAWL_ELOST) {
        oracle_violation(&c->oracle, "I11: lock %" PRIu64 " cannot be had when all have released it: %s", lock, pawl_strerror(rc));
    }
    return rc;
}

/* The auditor may itself have been paused or cut off for longer than its lease, until just now: then it starts again. */
static bool audit(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    while (c->cluster.clients_done < c->cluster.params.clients - 1)
        cluster_sleep(t, CAMPAIGN_LEASE_NS);
    if (c->cluster.params.design->ends)
        cluster_sleep(t, CAMPAIGN_LEASE_NS); /* until those that end by themselves have */
    bool recovers = c->cluster.params.design->features & DESIGN_RECOVERY;
    if (recovers && !audit_sessions(t)) {
        if (!seat_lives(&t->locker.seat))
            return false;
        oracle_violation(&c->oracle, "I11: slots of ended sessions are not free");
    }
    for (uint64_t lock = 0; lock < c->locks; lock++)
        if (audit_lock(t, lock) == -PAWL_ELOST)
            return false;
    return true;
}

static bool work_or_audit(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    if (t->client->id < c->cluster.params.clients - 1)
        return work(t);
    return t->number > 0 || audit(t);
}

/* ---- a run ---- */

/* Each seed is another cluster: few locks or many, keys of every kind, tables that overflow. */
static struct cluster_params draw_cluster(struct campaign *c, const struct campaign_params *p, const struct model *model)
{
    struct rng *r = &c->random;
    bool recovers = p->design->features & DESIGN_RECOVERY;
    unsigned workers = 2 + (unsigned)rng_below(r, CAMPAIGN_CLIENTS_MAX - 2);
    c->locks = rng_chance(r, 1, 4) ? CAMPAIGN_LOCKS_MAX : 1 + rng_below(r, 6);
    c->shared = p->design->features & DESIGN_SHARED;
    c->convert = p->design->features & DESIGN_CONVERT;
    c->timeout = p->design->features & DESIGN_TIMEOUT;
    bool ranges = p->design->features & DESIGN_RANGES;
    c->units = ranges ? UINT64_C(64) << 2 * rng_below(r, 4) : 0;
    if (ranges && rng_chance(r, 1, 2))
        c->locks = 1; /* so that ranges meet */
    uint64_t range_max = ranges ? c->units << 2 * rng_below(r, 4) : 0;
    bool overflow = p->design->features & DESIGN_TOKENS && p->design->raise && rng_chance(r, 1, 2);
    return (struct cluster_params){
        .design = p->design,
        .model = model,
        .keys = (enum pawl_keys)(PAWL_KEYS_NAMED + rng_below(r, 3)),
        .capacity = overflow ? max_u64(c->locks / 3, 1) : c->locks,
        .range_units = c->units,
        .range_max = range_max,
        .clients = workers + 1,
        .mortals = workers,
        .hosts = 1 + (unsigned)rng_below(r, 3),
        .home = rng_chance(r, 1, 2) || p->design->kind == DESIGN_BUSTED,
        .tasks = 1 + (unsigned)rng_below(r, 2),
        .faults = p->faults,
        .fabric_caps = FAB_ATOMIC128 | (rng_chance(r, 1, 2) ? FAB_MASKED : 0),
        .seed = p->seed,
        .safety_ns = SAFETY_MIN_NS + rng_below(r, SAFETY_SPAN_NS),
        .lease_ns = recovers ? CAMPAIGN_LEASE_NS : LEASE_NONE_NS,
        .trace = p->trace,
        .work = work_or_audit,
        .on_gone = on_gone,
        .user = c,
    };
}

/* Whether the node, in its present life, has forgotten locks to make room. */
static bool forgot(const struct cluster *cl)
{
    fab_addr at = FAB_ADDR(cl->server->id, offsetof(struct layout_header, token_floor));
    return *(const uint64_t *)sim_fabric_peek(cl->fabric, at, sizeof(uint64_t)) != 0;
}

static void report(const struct campaign *c, struct campaign_result *out)
{
    const struct cluster *cl = &c->cluster;
    *out = (struct campaign_result){
        .violations = c->oracle.violations,
        .stuck = cl->clients_done < cl->params.clients,
        .events = cl->sim.events,
        .grants = c->oracle.grants,
        .shared = c->done.shared,
        .exclusive = c->done.exclusive,
        .upgrades = c->done.upgrades,
        .downgrades = c->done.downgrades,
        .grown = c->done.grown,
        .shrunk = c->done.shrunk,
        .splits = c->done.splits,
        .timeouts = c->done.timeouts,
        .cancelled = c->done.cancelled,
        .sessions = cl->sessions,
        .lost = cl->lost,
        .forgot = forgot(cl),
        .virtual_ns = cl->sim.now_ns,
        .hash = cl->sim.hash,
    };
    memcpy(out->why, c->oracle.first, sizeof out->why);
    memcpy(out->faults, cl->sim.faults.counts, sizeof out->faults);
    if (out->stuck && !out->violations)
        for (unsigned i = 0; i < cl->params.clients; i++)
            if (!cl->clients[i].finished) {
                snprintf(out->why, sizeof out->why, "I9: client %u did not get on after everything had healed (%u of %u done)", i,
                         cl->clients_done, cl->params.clients);
                break;
            }
}

int campaign_run(const struct campaign_params *p, struct campaign_result *out)
{
    struct campaign c;
    memset(&c, 0, sizeof c);
    struct model model = *(p->model ? p->model : model_find("default"));
    model_set(&model, "poll_ns", max_u64(model_get(&model, MODEL_poll_ns), POLL_NS));
    rng_seed(&c.random, p->seed ^ UINT64_C(0x7061776c)); /* not the simulator's own stream */
    struct cluster_params params = draw_cluster(&c, p, &model);
    if (params.keys == PAWL_KEYS_DENSE)
        params.capacity = c.locks;
    params.time_max_ns = params.safety_ns + HEALING_NS;
    int rc = oracle_init(&c.oracle, c.locks, p->design->features & DESIGN_TOKENS, valid, &c);
    if (rc)
        return rc;
    rc = cluster_init(&c.cluster, &params);
    if (!rc) {
        cluster_run(&c.cluster);
        report(&c, out);
        cluster_free(&c.cluster);
    }
    oracle_free(&c.oracle);
    return rc;
}
