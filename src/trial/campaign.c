#include "trial/campaign.h"
#include "cluster/session.h"
#include "lib/rng.h"
#include "trial/cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CLIENTS_MAX 8
#define LOCKS_MAX 200
#define LEASE_NS (10 * NS_PER_MS)
#define LEASE_NONE_NS (3600 * NS_PER_S) /* for designs that cannot recover: nobody is ever declared lost */
#define SAFETY_MIN_NS (40 * NS_PER_MS)  /* four leases */
#define SAFETY_SPAN_NS (60 * NS_PER_MS)
#define HEALING_NS (400 * LEASE_NS) /* what every waiter must be granted within, once faults have stopped (I9) */
#define OPS_AFTER 5                 /* that each client must complete after the healing */
#define BUSY_ONE_IN 8               /* runs */
#define BUSY_SALT UINT64_C(0x62757379)
#define BUSY_NS (4 * NS_PER_US)  /* pauses and holds, at most: about a way to the lock and back */
#define POLL_NS (20 * NS_PER_US) /* waiters look this often: ten times less than a real one, to save events */

struct campaign {
    struct cluster cluster;
    struct oracle oracle;
    struct rng random;
    uint64_t locks;
    uint64_t op[CLIENTS_MAX + 1][CLUSTER_TASKS_MAX]; /* number of the operation that may be cancelled; 0: none */
    uint64_t ops;
    struct {
        uint64_t shared, exclusive, upgrades, downgrades, timeouts, cancelled;
    } done;
    bool shared, convert, timeout;
    bool busy; /* hardly a pause between operations, on few locks, and nobody gives up */
};

/* Every task holds on its own. */
static unsigned who(const struct cluster_task *t)
{
    return t->client->id * CLUSTER_TASKS_MAX + t->number;
}

static struct campaign *campaign_of(const struct cluster_task *t)
{
    return t->client->cluster->params.user;
}

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

/* ---- one operation ---- */

struct key_text {
    char name[32];
};

static pawl_key key_of(const struct cluster_task *t, uint64_t lock, struct key_text *text)
{
    if (t->locker.table.keys != PAWL_KEYS_NAMED)
        return pawl_id(lock);
    snprintf(text->name, sizeof text->name, "lock-%" PRIu64, lock);
    return pawl_name(text->name);
}

static void cancel_event(void *arg, uint64_t tag)
{
    struct cluster_task *t = arg;
    struct campaign *c = campaign_of(t);
    if (c->op[t->client->id][t->number] == tag && t->client->process->alive)
        sim_task_cancel(t->sim_task);
}

/* Sometimes somebody else loses patience. */
static void maybe_cancel(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    if (!rng_chance(&c->random, 1, 12) || !c->timeout)
        return;
    uint64_t number = ++c->ops;
    c->op[t->client->id][t->number] = number;
    sim_at_background(&c->cluster.sim, sim_now(&c->cluster.sim) + rng_below(&c->random, NS_PER_MS), cancel_event, t, number);
}

static void no_more_cancel(struct cluster_task *t)
{
    campaign_of(t)->op[t->client->id][t->number] = 0;
    t->sim_task->cancelled = false;
}

static uint64_t draw_deadline(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    uint64_t now = world_now(t->locker.seat.world);
    switch (rng_below(&c->random, 6)) {
    case 0:
        return DEADLINE_TRY;
    case 1:
        return c->timeout ? now + rng_below(&c->random, NS_PER_MS) : DEADLINE_NEVER;
    case 2:
        return c->timeout ? now + rng_below(&c->random, LEASE_NS) : DEADLINE_NEVER;
    default:
        return DEADLINE_NEVER;
    }
}

/* Into the trace. */
static void note(const struct cluster_task *t, const char *what, uint64_t a, uint64_t b)
{
    sim_note(&t->client->cluster->sim, what, t->client->process->host->id, a, b);
}

/* ---- holds that end by themselves ---- */

/* Holder, lock and token travel in an event's tag. */
#define END_TOKEN_BITS 48
#define END_LOCK_BITS 8
static_assert(LOCKS_MAX <= 1 << END_LOCK_BITS &&
                  (CLIENTS_MAX + 1) * CLUSTER_TASKS_MAX <= 1 << (64 - END_TOKEN_BITS - END_LOCK_BITS),
              "fits the tag");

static void end_event(void *arg, uint64_t tag)
{
    struct campaign *c = arg;
    unsigned holder = (unsigned)(tag >> (END_TOKEN_BITS + END_LOCK_BITS));
    oracle_releasing(&c->oracle, holder, field_get(tag, END_TOKEN_BITS, END_LOCK_BITS), PAWL_SHARED,
                     field_get(tag, 0, END_TOKEN_BITS));
}

static uint64_t ends_at(const struct cluster_task *t, const struct hold *h)
{
    const struct design *d = t->client->cluster->params.design;
    return d->ends ? sim_host_clock_inverse(t->client->process->host, d->ends(h)) : DEADLINE_NEVER;
}

/* From then on its holder does not count on it. False: it has ended already. */
static bool will_end(struct cluster_task *t, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(t);
    uint64_t at = ends_at(t, h);
    if (at == DEADLINE_NEVER)
        return true;
    assert(h->mode == PAWL_SHARED && h->token <= FIELD_MAX(END_TOKEN_BITS));
    if (at > sim_now(&c->cluster.sim))
        sim_at_background(&c->cluster.sim, at, end_event, c,
                          (uint64_t)who(t) << (END_TOKEN_BITS + END_LOCK_BITS) | lock << END_TOKEN_BITS | h->token);
    return at > sim_now(&c->cluster.sim);
}

static void granted(struct cluster_task *t, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(t);
    uint64_t before = c->oracle.violations;
    if (!will_end(t, lock, h))
        return;
    note(t, h->mode == PAWL_SHARED ? "GRANTED shared" : "GRANTED exclusive", lock, h->token);
    ++*(h->mode == PAWL_SHARED ? &c->done.shared : &c->done.exclusive);
    oracle_granted(&c->oracle, who(t), lock, h->mode, h->token);
    if (c->oracle.violations > before)
        note(t, "VIOLATION", lock, h->token);
}

/* Holding: writes to the resource, most often briefly, sometimes for long. */
static void enjoy(struct cluster_task *t, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(t);
    uint64_t ns = rng_below(&c->random, rng_chance(&c->random, 1, 20) ? LEASE_NS : 50 * NS_PER_US);
    for (unsigned i = 0; i < 2; i++) {
        cluster_sleep(t, ns / 2);
        if (h->mode == PAWL_EXCLUSIVE)
            oracle_write(&c->oracle, who(t), lock, h->token);
    }
}

static int convert(struct cluster_task *t, uint64_t lock, struct hold *h)
{
    struct campaign *c = campaign_of(t);
    const struct oracle_holder from = {.client = who(t), .mode = PAWL_SHARED, .token = h->token}; /* exclusive is weakened first */
    enum pawl_mode to = h->mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED;
    uint64_t deadline = world_now(t->locker.seat.world) + rng_below(&c->random, 2 * NS_PER_MS);
    if (to == PAWL_SHARED)
        oracle_weakening(&c->oracle, who(t), lock, h->token);
    maybe_cancel(t);
    int rc = locker_convert(&t->locker, h, to, deadline);
    no_more_cancel(t);
    note(t, rc ? "could not convert" : "converted", lock, rc ? (uint64_t)-rc : h->token);
    if (rc)
        return rc;
    oracle_converted(&c->oracle, who(t), lock, &from, h->mode, h->token);
    ++*(to == PAWL_SHARED ? &c->done.downgrades : &c->done.upgrades);
    return 0;
}

/* Codes that an operation may end with in a world full of faults, the lock not being held. */
static bool excusable(int rc)
{
    return rc == -PAWL_EHELD || rc == -ETIMEDOUT || rc == -ECANCELED || rc == -EDEADLK || rc == -EAGAIN || rc == -ENOSPC ||
           rc == -PAWL_ELIMIT || rc == -FAB_EUNKNOWN;
}

static int give_back(struct cluster_task *t, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(t);
    note(t, h->mode == PAWL_SHARED ? "releases shared" : "releases exclusive", lock, h->token);
    oracle_releasing(&c->oracle, who(t), lock, h->mode, h->token);
    int rc = locker_unlock(&t->locker, h);
    if (rc == -PAWL_ENOTOWNER && ends_at(t, h) <= sim_now(&c->cluster.sim))
        return 0; /* it had ended by itself */
    if (rc && rc != -PAWL_ELOST && cluster_client_valid(t->client))
        oracle_violation(&c->oracle, "I10: client %u could not release lock %" PRIu64 ": %s", who(t), lock, pawl_strerror(rc));
    return rc;
}

/* The same readers and writers all the time: otherwise all would soon be readers who wait for each other's writers. */
static int busy_lock(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    struct key_text text;
    struct hold h;
    uint64_t lock = rng_below(&c->random, c->locks);
    enum pawl_mode mode = c->shared && who(t) % 3 == 0 ? PAWL_SHARED : PAWL_EXCLUSIVE;
    oracle_asking(&c->oracle, who(t), lock, mode);
    int rc = locker_lock(&t->locker, key_of(t, lock, &text), mode, DEADLINE_NEVER, &h);
    if (rc)
        return rc;
    granted(t, lock, &h);
    cluster_sleep(t, rng_below(&c->random, BUSY_NS));
    return give_back(t, lock, &h);
}

static int one_lock(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    struct key_text text;
    struct hold h;
    uint64_t lock = rng_below(&c->random, c->locks);
    enum pawl_mode mode = c->shared && rng_chance(&c->random, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    maybe_cancel(t);
    int rc = locker_lock(&t->locker, key_of(t, lock, &text), mode, draw_deadline(t), &h);
    no_more_cancel(t);
    if (rc)
        return rc;
    granted(t, lock, &h);
    enjoy(t, lock, &h);
    if (c->convert && rng_chance(&c->random, 1, 3)) {
        rc = convert(t, lock, &h);
        if (rc == -PAWL_ELOST)
            return rc;
        enjoy(t, lock, &h);
    }
    return give_back(t, lock, &h);
}

static int several_locks(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    struct key_text text[3];
    pawl_want wants[3];
    uint64_t locks[3];
    struct hold holds[3];
    unsigned n = 0;
    for (uint64_t lock = rng_below(&c->random, c->locks); n < 3 && lock < c->locks; lock += 1 + rng_below(&c->random, 3), n++) {
        enum pawl_mode mode = c->shared && rng_chance(&c->random, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
        locks[n] = lock;
        wants[n] = (pawl_want){.key = key_of(t, lock, &text[n]), .mode = mode};
    }
    assert(n > 0); /* the first draw is below c->locks */
    maybe_cancel(t);
    int rc = locker_lock_all(&t->locker, wants, n, draw_deadline(t), holds);
    no_more_cancel(t);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        granted(t, locks[i], &holds[i]);
    enjoy(t, locks[0], &holds[0]);
    for (unsigned i = 0; i < n; i++) {
        int end = give_back(t, locks[i], &holds[i]);
        rc = rc ? rc : end;
    }
    return rc;
}

/* ---- clients ---- */

/* A lost session stays lost: nothing is granted to it any more. */
static void try_after_loss(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    struct key_text text;
    struct hold h;
    for (int i = 0; i < 3; i++)
        if (!locker_lock(&t->locker, key_of(t, rng_below(&c->random, c->locks), &text), PAWL_EXCLUSIVE, DEADLINE_TRY, &h))
            oracle_violation(&c->oracle, "I8: client %u was granted a lock after its session was lost", who(t));
}

static bool work(struct cluster_task *t)
{
    struct campaign *c = campaign_of(t);
    for (unsigned after = 0; after < OPS_AFTER;) {
        cluster_sleep(t, rng_below(&c->random, c->busy ? BUSY_NS : 400 * NS_PER_US));
        int rc = c->busy ? busy_lock(t) : rng_chance(&c->random, 1, 6) ? several_locks(t) : one_lock(t);
        if (rc == -PAWL_ELOST || rc == -FAB_EFENCED) {
            oracle_gone(&c->oracle, who(t));
            if (!cluster_client_valid(t->client))
                try_after_loss(t);
            return false;
        }
        c->done.timeouts += rc == -ETIMEDOUT;
        c->done.cancelled += rc == -ECANCELED;
        if (rc && !excusable(rc))
            oracle_violation(&c->oracle, "I10: client %u: unexpected result %d: %s", who(t), rc, pawl_strerror(rc));
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
        cluster_sleep(t, LEASE_NS);
    }
    return false;
}

static int audit_lock(struct cluster_task *t, uint64_t lock)
{
    struct campaign *c = campaign_of(t);
    struct key_text text;
    pawl_key key = key_of(t, lock, &text);
    pawl_state state;
    struct hold h;
    int rc = locker_query(&t->locker, key, &state);
    if (!rc && state.mode)
        oracle_violation(&c->oracle, "I11: lock %" PRIu64 " is held (mode %u, %u holders) when all have released it", lock,
                         state.mode, state.holders);
    rc = locker_lock(&t->locker, key, PAWL_EXCLUSIVE, c->timeout ? world_now(t->locker.seat.world) + LEASE_NS : DEADLINE_NEVER, &h);
    if (!rc) {
        granted(t, lock, &h);
        rc = give_back(t, lock, &h);
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
        cluster_sleep(t, LEASE_NS);
    if (c->cluster.params.design->ends)
        cluster_sleep(t, LEASE_NS); /* until those that end by themselves have */
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
    unsigned workers = 2 + (unsigned)rng_below(r, CLIENTS_MAX - 2);
    c->locks = rng_chance(r, 1, 4) ? LOCKS_MAX : 1 + rng_below(r, 6);
    c->shared = p->design->features & DESIGN_SHARED;
    c->convert = p->design->features & DESIGN_CONVERT;
    c->timeout = p->design->features & DESIGN_TIMEOUT;
    c->busy = mix64(p->seed ^ BUSY_SALT) % BUSY_ONE_IN == 0; /* not from the stream: the other draws stay what they are */
    if (c->busy)
        c->locks = 1 + c->locks % 2;
    bool overflow = p->design->features & DESIGN_TOKENS && p->design->raise && rng_chance(r, 1, 2);
    return (struct cluster_params){
        .design = p->design,
        .model = model,
        .keys = (enum pawl_keys)(PAWL_KEYS_NAMED + rng_below(r, 3)),
        .capacity = overflow ? max_u64(c->locks / 3, 1) : c->locks,
        .clients = workers + 1,
        .mortals = workers,
        .hosts = 1 + (unsigned)rng_below(r, 3),
        .home = rng_chance(r, 1, 2) || p->design->kind == DESIGN_BUSTED,
        .tasks = 1 + (unsigned)rng_below(r, 2),
        .faults = p->faults,
        .fabric_caps = FAB_ATOMIC128 | (rng_chance(r, 1, 2) ? FAB_MASKED : 0),
        .seed = p->seed,
        .safety_ns = SAFETY_MIN_NS + rng_below(r, SAFETY_SPAN_NS),
        .lease_ns = recovers ? LEASE_NS : LEASE_NONE_NS,
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
    if (c.busy) /* finding a key takes time, in which others are granted it */
        params.keys = PAWL_KEYS_DENSE;
    if (params.keys == PAWL_KEYS_DENSE)
        params.capacity = c.locks;
    params.time_max_ns = params.safety_ns + HEALING_NS;
    int rc = oracle_init(&c.oracle, c.locks, p->design->features & DESIGN_TOKENS, valid, &c);
    if (rc)
        return rc;
    if (c.busy && !p->faults) {
        params.fabric_caps |= FAB_MASKED; /* built from compare-and-swaps, a step can be overtaken for ever */
        c.oracle.overtaking = p->design->overtaking;
        c.oracle.others = params.clients * params.tasks;
    }
    rc = cluster_init(&c.cluster, &params);
    if (!rc) {
        cluster_run(&c.cluster);
        report(&c, out);
        cluster_free(&c.cluster);
    }
    oracle_free(&c.oracle);
    return rc;
}
