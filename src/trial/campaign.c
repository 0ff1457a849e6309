#include "trial/campaign.h"
#include "lib/rng.h"
#include "trial/cluster.h"
#include "trial/rack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 8
#define LOCKS_MAX 200
#define LEASE_NS (10 * NS_PER_MS)
#define LEASE_NONE_NS (3600 * NS_PER_S) /* for designs that cannot recover: nobody is ever declared lost */
#define SAFETY_MIN_NS (40 * NS_PER_MS)  /* four leases */
#define SAFETY_SPAN_NS (60 * NS_PER_MS)
#define HEALING_NS (400 * LEASE_NS) /* what every waiter must be granted within, once faults have stopped (I9) */
#define RETRY_NS (100 * NS_PER_US)  /* racks: until a packet is sent again */
#define OPS_AFTER 5                 /* that each client must complete after the healing */
#define POLL_NS (20 * NS_PER_US)    /* waiters look this often: ten times less than a real one, to save events */

struct campaign {
    const struct design *design;
    struct cluster cluster; /* of a one-sided design, */
    struct rack rack;       /* or of one with packets */
    struct sim *sim;
    struct oracle oracle;
    struct rng random;
    uint64_t locks, safety_ns;
    unsigned clients, *clients_done;
    uint64_t op[CLIENTS_MAX + 1][ACTORS_MAX]; /* number of the operation that may be cancelled; 0: none */
    uint64_t ops;
    struct {
        uint64_t shared, exclusive, upgrades, downgrades, timeouts, cancelled;
    } done;
    bool shared, convert, timeout;
};

/* Every task holds on its own. */
static unsigned who(const struct actor *a)
{
    return a->client * ACTORS_MAX + a->number;
}

static struct campaign *campaign_of(const struct actor *a)
{
    return a->user;
}

static bool valid(void *ctx, unsigned client)
{
    struct campaign *c = ctx;
    return c->design->packet ? rack_client_valid(&c->rack.clients[client / ACTORS_MAX])
                             : cluster_client_valid(&c->cluster.clients[client / ACTORS_MAX]);
}

static void on_gone(void *user, unsigned client)
{
    struct campaign *c = user;
    for (unsigned i = 0; i < ACTORS_MAX; i++) {
        oracle_gone(&c->oracle, client * ACTORS_MAX + i);
        c->op[client][i] = 0;
    }
}

static void on_client_gone(struct cluster_client *client)
{
    on_gone(client->cluster->params.user, client->id);
}

/* ---- one operation ---- */

struct key_text {
    char name[32];
};

static pawl_key key_of(const struct actor *a, uint64_t lock, struct key_text *text)
{
    if (a->keys != PAWL_KEYS_NAMED)
        return pawl_id(lock);
    snprintf(text->name, sizeof text->name, "lock-%" PRIu64, lock);
    return pawl_name(text->name);
}

static void cancel_event(void *arg, uint64_t tag)
{
    struct actor *a = arg;
    struct campaign *c = campaign_of(a);
    if (c->op[a->client][a->number] == tag && a->process->alive)
        sim_task_cancel(a->task);
}

/* Sometimes somebody else loses patience. */
static void maybe_cancel(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    if (!rng_chance(&c->random, 1, 12) || !c->timeout)
        return;
    uint64_t number = ++c->ops;
    c->op[a->client][a->number] = number;
    sim_at_background(c->sim, sim_now(c->sim) + rng_below(&c->random, NS_PER_MS), cancel_event, a, number);
}

static void no_more_cancel(struct actor *a)
{
    campaign_of(a)->op[a->client][a->number] = 0;
    a->task->cancelled = false;
}

static uint64_t draw_deadline(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    uint64_t now = world_now(&a->process->host->world);
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
static void note(const struct actor *a, const char *what, uint64_t x, uint64_t y)
{
    sim_note(a->process->sim, what, a->process->host->id, x, y);
}

/* ---- holds that end by themselves ---- */

/* Holder, lock and token travel in an event's tag. */
#define END_TOKEN_BITS 48
#define END_LOCK_BITS 8
static_assert(LOCKS_MAX <= 1 << END_LOCK_BITS && (CLIENTS_MAX + 1) * ACTORS_MAX <= 1 << (64 - END_TOKEN_BITS - END_LOCK_BITS),
              "fits the tag");

static void end_event(void *arg, uint64_t tag)
{
    struct campaign *c = arg;
    unsigned holder = (unsigned)(tag >> (END_TOKEN_BITS + END_LOCK_BITS));
    oracle_releasing(&c->oracle, holder, field_get(tag, END_TOKEN_BITS, END_LOCK_BITS), PAWL_SHARED,
                     field_get(tag, 0, END_TOKEN_BITS));
}

static uint64_t ends_at(const struct actor *a, const struct hold *h)
{
    const struct design *d = campaign_of(a)->design;
    return d->ends ? sim_host_clock_inverse(a->process->host, d->ends(h)) : DEADLINE_NEVER;
}

/* From then on its holder does not count on it. False: it has ended already. */
static bool will_end(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    uint64_t at = ends_at(a, h);
    if (at == DEADLINE_NEVER)
        return true;
    assert(h->mode == PAWL_SHARED && h->token <= FIELD_MAX(END_TOKEN_BITS));
    if (at > sim_now(c->sim))
        sim_at_background(c->sim, at, end_event, c,
                          (uint64_t)who(a) << (END_TOKEN_BITS + END_LOCK_BITS) | lock << END_TOKEN_BITS | h->token);
    return at > sim_now(c->sim);
}

static void granted(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    uint64_t before = c->oracle.violations;
    if (!will_end(a, lock, h))
        return;
    note(a, h->mode == PAWL_SHARED ? "GRANTED shared" : "GRANTED exclusive", lock, h->token);
    ++*(h->mode == PAWL_SHARED ? &c->done.shared : &c->done.exclusive);
    oracle_granted(&c->oracle, who(a), lock, h->mode, h->token);
    if (c->oracle.violations > before)
        note(a, "VIOLATION", lock, h->token);
}

/* Holding: writes to the resource, most often briefly, sometimes for long. */
static void enjoy(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    uint64_t ns = rng_below(&c->random, rng_chance(&c->random, 1, 20) ? LEASE_NS : 50 * NS_PER_US);
    for (unsigned i = 0; i < 2; i++) {
        a->ops->sleep(a, ns / 2);
        if (h->mode == PAWL_EXCLUSIVE)
            oracle_write(&c->oracle, who(a), lock, h->token);
    }
}

static int convert(struct actor *a, uint64_t lock, struct hold *h)
{
    struct campaign *c = campaign_of(a);
    const struct oracle_holder from = {.client = who(a), .mode = PAWL_SHARED, .token = h->token}; /* exclusive is weakened first */
    enum pawl_mode to = h->mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED;
    uint64_t deadline = world_now(&a->process->host->world) + rng_below(&c->random, 2 * NS_PER_MS);
    if (to == PAWL_SHARED)
        oracle_weakening(&c->oracle, who(a), lock, h->token);
    maybe_cancel(a);
    int rc = a->ops->convert(a, h, to, deadline);
    no_more_cancel(a);
    note(a, rc ? "could not convert" : "converted", lock, rc ? (uint64_t)-rc : h->token);
    if (rc)
        return rc;
    oracle_converted(&c->oracle, who(a), lock, &from, h->mode, h->token);
    ++*(to == PAWL_SHARED ? &c->done.downgrades : &c->done.upgrades);
    return 0;
}

/* Codes that an operation may end with in a world full of faults, the lock not being held. */
static bool excusable(int rc)
{
    return rc == -PAWL_EHELD || rc == -ETIMEDOUT || rc == -ECANCELED || rc == -EDEADLK || rc == -EAGAIN || rc == -ENOSPC ||
           rc == -PAWL_ELIMIT || rc == -FAB_EUNKNOWN;
}

static int give_back(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    note(a, h->mode == PAWL_SHARED ? "releases shared" : "releases exclusive", lock, h->token);
    oracle_releasing(&c->oracle, who(a), lock, h->mode, h->token);
    int rc = a->ops->unlock(a, h);
    if (rc == -PAWL_ENOTOWNER && ends_at(a, h) <= sim_now(c->sim))
        return 0; /* it had ended by itself */
    if (rc && rc != -PAWL_ELOST && a->ops->valid(a))
        oracle_violation(&c->oracle, "I10: client %u could not release lock %" PRIu64 ": %s", who(a), lock, pawl_strerror(rc));
    return rc;
}

static int one_lock(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    struct hold h;
    uint64_t lock = rng_below(&c->random, c->locks);
    enum pawl_mode mode = c->shared && rng_chance(&c->random, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    maybe_cancel(a);
    int rc = a->ops->lock(a, key_of(a, lock, &text), mode, draw_deadline(a), &h);
    no_more_cancel(a);
    if (rc)
        return rc;
    granted(a, lock, &h);
    enjoy(a, lock, &h);
    if (c->convert && rng_chance(&c->random, 1, 3)) {
        rc = convert(a, lock, &h);
        if (rc == -PAWL_ELOST)
            return rc;
        enjoy(a, lock, &h);
    }
    return give_back(a, lock, &h);
}

static int several_locks(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text[3];
    pawl_want wants[3];
    uint64_t locks[3];
    struct hold holds[3];
    unsigned n = 0;
    for (uint64_t lock = rng_below(&c->random, c->locks); n < 3 && lock < c->locks; lock += 1 + rng_below(&c->random, 3), n++) {
        enum pawl_mode mode = c->shared && rng_chance(&c->random, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
        locks[n] = lock;
        wants[n] = (pawl_want){.key = key_of(a, lock, &text[n]), .mode = mode};
    }
    assert(n > 0); /* the first draw is below c->locks */
    maybe_cancel(a);
    int rc = a->ops->lock_all(a, wants, n, draw_deadline(a), holds);
    no_more_cancel(a);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        granted(a, locks[i], &holds[i]);
    enjoy(a, locks[0], &holds[0]);
    for (unsigned i = 0; i < n; i++) {
        int end = give_back(a, locks[i], &holds[i]);
        rc = rc ? rc : end;
    }
    return rc;
}

/* ---- clients ---- */

/* A lost session stays lost: nothing is granted to it any more. */
static void try_after_loss(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    struct hold h;
    for (int i = 0; i < 3; i++)
        if (!a->ops->lock(a, key_of(a, rng_below(&c->random, c->locks), &text), PAWL_EXCLUSIVE, DEADLINE_TRY, &h))
            oracle_violation(&c->oracle, "I8: client %u was granted a lock after its session was lost", who(a));
}

static bool work(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    for (unsigned after = 0; after < OPS_AFTER;) {
        a->ops->sleep(a, rng_below(&c->random, 400 * NS_PER_US));
        int rc = rng_chance(&c->random, 1, 6) ? several_locks(a) : one_lock(a);
        if (rc == -PAWL_ELOST || rc == -FAB_EFENCED) {
            oracle_gone(&c->oracle, who(a));
            if (!a->ops->valid(a))
                try_after_loss(a);
            return false;
        }
        c->done.timeouts += rc == -ETIMEDOUT;
        c->done.cancelled += rc == -ECANCELED;
        if (rc && !excusable(rc))
            oracle_violation(&c->oracle, "I10: client %u: unexpected result %d: %s", who(a), rc, pawl_strerror(rc));
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
    pawl_key key = key_of(a, lock, &text);
    pawl_state state;
    struct hold h;
    int rc = a->ops->query(a, key, &state);
    if (!rc && state.mode)
        oracle_violation(&c->oracle, "I11: lock %" PRIu64 " is held (mode %u, %u holders) when all have released it", lock,
                         state.mode, state.holders);
    rc = a->ops->lock(a, key, PAWL_EXCLUSIVE, c->timeout ? world_now(&a->process->host->world) + LEASE_NS : DEADLINE_NEVER, &h);
    if (!rc) {
        granted(a, lock, &h);
        rc = give_back(a, lock, &h);
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
        a->ops->sleep(a, LEASE_NS);
    if (c->design->ends)
        a->ops->sleep(a, LEASE_NS); /* until those that end by themselves have */
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

static bool work_or_audit(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    if (a->client < c->clients - 1)
        return work(a);
    return a->number > 0 || audit(a);
}

static bool task_work(struct cluster_task *t)
{
    return work_or_audit(&t->actor);
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
        .work = task_work,
        .on_gone = on_client_gone,
        .user = c,
    };
}

/* Whether the node, in its present life, has forgotten locks to make room. */
static bool forgot(const struct cluster *cl)
{
    fab_addr at = FAB_ADDR(cl->server->id, offsetof(struct layout_header, token_floor));
    return *(const uint64_t *)sim_fabric_peek(cl->fabric, at, sizeof(uint64_t)) != 0;
}

/* Whatever the design runs on. */
static void report(const struct campaign *c, struct campaign_result *out)
{
    *out = (struct campaign_result){
        .violations = c->oracle.violations,
        .stuck = *c->clients_done < c->clients,
        .events = c->sim->events,
        .grants = c->oracle.grants,
        .shared = c->done.shared,
        .exclusive = c->done.exclusive,
        .upgrades = c->done.upgrades,
        .downgrades = c->done.downgrades,
        .timeouts = c->done.timeouts,
        .cancelled = c->done.cancelled,
        .virtual_ns = c->sim->now_ns,
        .hash = c->sim->hash,
    };
    memcpy(out->why, c->oracle.first, sizeof out->why);
    memcpy(out->faults, c->sim->faults.counts, sizeof out->faults);
    for (unsigned i = 0; i < c->clients && out->stuck && !out->violations; i++)
        if (!(c->design->packet ? c->rack.clients[i].finished : c->cluster.clients[i].finished)) {
            snprintf(out->why, sizeof out->why, "I9: client %u did not get on after everything had healed (%u of %u done)", i,
                     *c->clients_done, c->clients);
            break;
        }
}

static int run_cluster(struct campaign *c, const struct campaign_params *p, const struct model *model, struct campaign_result *out)
{
    struct cluster_params params = draw_cluster(c, p, model);
    if (params.keys == PAWL_KEYS_DENSE)
        params.capacity = c->locks;
    params.time_max_ns = params.safety_ns + HEALING_NS;
    c->safety_ns = params.safety_ns;
    c->clients = params.clients;
    c->clients_done = &c->cluster.clients_done;
    c->sim = &c->cluster.sim;
    int rc = oracle_init(&c->oracle, c->locks, p->design->features & DESIGN_TOKENS, valid, c);
    if (rc)
        return rc;
    rc = cluster_init(&c->cluster, &params);
    if (rc)
        return rc;
    cluster_run(&c->cluster);
    report(c, out);
    out->sessions = c->cluster.sessions;
    out->lost = c->cluster.lost;
    out->forgot = forgot(&c->cluster);
    cluster_free(&c->cluster);
    return 0;
}

/* ---- the same in a rack ---- */

static struct rack_params draw_rack(struct campaign *c, const struct campaign_params *p, const struct model *model)
{
    struct rng *r = &c->random;
    unsigned workers = 2 + (unsigned)rng_below(r, CLIENTS_MAX - 2), hosts = 1 + (unsigned)rng_below(r, 4);
    c->locks = rng_chance(r, 1, 4) ? LOCKS_MAX : 1 + rng_below(r, 6);
    c->shared = p->design->features & DESIGN_SHARED;
    c->convert = p->design->features & DESIGN_CONVERT;
    c->timeout = p->design->features & DESIGN_TIMEOUT;
    return (struct rack_params){
        .design = p->design,
        .model = model,
        .locks = c->locks,
        .clients = workers + 1,
        .mortals = workers,
        .hosts = hosts,
        .servers = 1 + (unsigned)rng_below(r, p->design->packet->on_hosts ? hosts : 3),
        .cores = 1 + (unsigned)rng_below(r, 4),
        .tasks = 1 + (unsigned)rng_below(r, 2),
        .mortal_hosts = rng_chance(r, 1, 2),
        .faults = p->faults,
        .seed = p->seed,
        .safety_ns = SAFETY_MIN_NS + rng_below(r, SAFETY_SPAN_NS),
        .lease_ns = LEASE_NS,
        .retry_ns = RETRY_NS,
        .options = p->design->packet->draws ? rng_next(r) & p->design->packet->draws : 0,
        .trace = p->trace,
        .work = work_or_audit,
        .on_gone = on_gone,
        .user = c,
    };
}

static int run_rack(struct campaign *c, const struct campaign_params *p, const struct model *model, struct campaign_result *out)
{
    struct rack_params params = draw_rack(c, p, model);
    params.time_max_ns = params.safety_ns + HEALING_NS;
    c->safety_ns = params.safety_ns;
    c->clients = params.clients;
    c->clients_done = &c->rack.clients_done;
    c->sim = &c->rack.sim;
    int rc = oracle_init(&c->oracle, c->locks, p->design->features & DESIGN_TOKENS, valid, c);
    if (rc)
        return rc;
    rc = rack_init(&c->rack, &params);
    if (rc)
        return rc;
    rack_run(&c->rack);
    report(c, out);
    out->sessions = c->rack.sessions;
    out->lost = c->rack.lost;
    rack_free(&c->rack);
    return 0;
}

int campaign_run(const struct campaign_params *p, struct campaign_result *out)
{
    struct campaign *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    struct model model = *(p->model ? p->model : model_find("default"));
    model_set(&model, "poll_ns", max_u64(model_get(&model, MODEL_poll_ns), POLL_NS));
    rng_seed(&c->random, p->seed ^ UINT64_C(0x7061776c)); /* not the simulator's own stream */
    c->design = p->design;
    int rc = p->design->packet ? run_rack(c, p, &model, out) : run_cluster(c, p, &model, out);
    oracle_free(&c->oracle);
    free(c);
    return rc;
}
