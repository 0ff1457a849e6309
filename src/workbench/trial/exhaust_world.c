/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/exhaust_world.h"

#include <errno.h>
#include <string.h>

#define LEASE_NS (4 * NS_PER_MS)
#define LEASE_NONE_NS (3600 * NS_PER_S) /* for designs that cannot recover */
#define POLL_NS (LEASE_NS / 8)          /* a poll changes nothing: few of them fit into a lease */
#define RETRY_NS (LEASE_NS / 40)        /* racks: until a packet is sent again */
#define PATIENCE_NS (LEASE_NS / 40)     /* of operations with a deadline: before any other timer of a waiter */
#define PAUSE_LEASES 3                  /* of a client that stops: longer than a lease, by any clock */
#define TIME_LEASES 100                 /* by then every client has made progress (I9) */
#define AUDIT_LEASES 8                  /* by then the lock of a client that died can be had */
#define EVENTS_MAX 20000                /* of a schedule: a longer one is cut */
#define QUIET_EVENTS 1000               /* by then no packet is on its way any more, if nothing but what was sent happens */
#define UNITS 256                       /* of a lock with ranges: several leaves of a tree */
#define PART_START 60                   /* a part of it, across the border of two leaves, */
#define PART_UNITS 8                    /* and how long it is */

static struct exhaust_world *world_of(const struct actor *a)
{
    return container_of(campaign_of(a), struct exhaust_world, campaign);
}

/* ---- the start and the end ---- */

static void block_at(struct actor *a, struct exhaust_world *w)
{
    w->waiting[a->client] = sim_ticket_take(a->task);
    sim_task_block(a->task);
}

/* All begin together, with their sessions open; from then on the chooser is asked. */
static void await_start(struct actor *a, struct exhaust_world *w)
{
    unsigned all = w->params->plan.clients + 1;
    w->arrived++;
    if (w->arrived < all) {
        block_at(a, w);
        return;
    }
    for (unsigned i = 0; i < all; i++)
        if (i != a->client && i < all - 1)
            sim_ticket_wake_at(w->waiting[i], sim_now(w->campaign.sim));
    w->started = w->chooser.open = true;
    sim_stop(w->campaign.sim); /* here the run is put back to, again and again */
}

static bool all_ended(const struct exhaust_world *w)
{
    for (unsigned i = 0; i < w->params->plan.clients; i++)
        if (!w->ended[i])
            return false;
    return true;
}

static void note_end(struct exhaust_world *w, unsigned client)
{
    w->ended[client] = true;
    if (!all_ended(w))
        return;
    w->chooser.open = false;
    sim_ticket_wake_at(w->waiting[w->params->plan.clients], sim_now(w->campaign.sim));
}

/* ---- operations ---- */

/* All ranges overlap, and parts of neighbours by one unit. */
static void range_of(const struct exhaust_plan *plan, unsigned client, uint64_t *start, uint64_t *end)
{
    bool part = plan->parts >> client & 1;
    *start = part ? PART_START + (PART_UNITS - 1) * (uint64_t)client : 0;
    *end = part ? *start + PART_UNITS : UNITS;
}

/* The locks that an operation wants, in the caller's order. How many. */
static unsigned locks_of(char letter, uint64_t locks[EXHAUST_LOCKS_MAX])
{
    char large = (char)(letter & ~0x20);
    locks[0] = large == 'B' || large == 'Y' || large == 'T';
    locks[1] = 1 - locks[0];
    return large == 'A' || large == 'B' ? 2 : 1;
}

static int lock_once(struct actor *a, char letter, struct hold *holds)
{
    struct campaign *c = campaign_of(a);
    bool shared = strchr("SsTt", letter), impatient = letter >= 'a';
    enum pawl_mode mode = shared ? PAWL_SHARED : PAWL_EXCLUSIVE;
    uint64_t deadline = impatient ? world_now(&a->process->host->world) + PATIENCE_NS : DEADLINE_NEVER, start, end;
    uint64_t locks[EXHAUST_LOCKS_MAX];
    unsigned n = locks_of(letter, locks);
    const pawl_want wants[] = {{.key = pawl_id(locks[0]), .mode = mode}, {.key = pawl_id(locks[1]), .mode = mode}};
    range_of(&world_of(a)->params->plan, a->client, &start, &end);
    a->task->any_deadline = impatient;
    int rc = n > 1      ? a->ops->lock_all(a, wants, n, deadline, holds)
             : c->units ? a->ops->lock_range(a, wants[0].key, start, end, mode, deadline, holds)
                        : a->ops->lock(a, wants[0].key, mode, deadline, holds);
    a->task->any_deadline = false;
    return rc;
}

static int one_operation(struct actor *a, char letter)
{
    struct campaign *c = campaign_of(a);
    struct hold holds[EXHAUST_LOCKS_MAX];
    uint64_t locks[EXHAUST_LOCKS_MAX];
    unsigned n = locks_of(letter, locks);
    int rc = lock_once(a, letter, holds);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        campaign_granted(a, locks[i], &holds[i]);
    sim_task_yield(a->task);
    for (unsigned i = 0; i < n; i++) {
        const struct hold *h = &holds[i];
        const struct oracle_holder holder = {
            .client = campaign_who(a), .mode = h->mode, .token = h->token, .range = {.start = h->start, .end = h->end}};
        if (h->mode == PAWL_EXCLUSIVE)
            oracle_write_range(&c->oracle, locks[i], &holder);
    }
    return campaign_give_back_several(a, locks, holds, n, n > 1);
}

static bool work(struct actor *a, struct exhaust_world *w)
{
    const char *ops = w->params->plan.ops[a->client];
    while (ops[w->next[a->client]]) {
        char letter = ops[w->next[a->client]++];
        int rc = one_operation(a, letter);
        if (rc == -PAWL_ELOST || rc == -FAB_EFENCED) {
            oracle_gone(&w->campaign.oracle, campaign_who(a));
            return false;
        }
        if (rc && !campaign_excusable(rc))
            oracle_violation(&w->campaign.oracle, "I10: client %u: unexpected result %d: %s", a->client, rc, pawl_strerror(rc));
        if (w->campaign.oracle.violations)
            sim_stop(w->campaign.sim);
    }
    note_end(w, a->client);
    return true;
}

/* ---- the auditor ---- */

static int audit_lock(struct actor *a, struct exhaust_world *w, uint64_t lock)
{
    struct oracle *o = &w->campaign.oracle;
    uint64_t deadline = world_now(&a->process->host->world) + AUDIT_LEASES * LEASE_NS;
    pawl_state state;
    struct hold h;
    int rc = a->ops->query(a, pawl_id(lock), &state);
    if (!rc && state.mode && !w->deaths)
        oracle_violation(o, "I11: the lock is held (mode %u, %u holders) when all have released it", state.mode, state.holders);
    if (!w->campaign.timeout)
        deadline = DEADLINE_NEVER;
    rc = w->campaign.units ? a->ops->lock_range(a, pawl_id(lock), 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE, deadline, &h)
                           : a->ops->lock(a, pawl_id(lock), PAWL_EXCLUSIVE, deadline, &h);
    if (!rc) {
        campaign_granted(a, lock, &h);
        rc = campaign_give_back(a, lock, &h);
    } else if (rc != -PAWL_ELOST) {
        oracle_violation(o, "I11: the lock cannot be had when all have released it: %s", pawl_strerror(rc));
    }
    return rc;
}

static int audit_locks(struct actor *a, struct exhaust_world *w)
{
    int rc = 0;
    for (uint64_t lock = 0; lock < exhaust_plan_locks(&w->params->plan) && rc != -PAWL_ELOST; lock++)
        rc = audit_lock(a, w, lock);
    return rc;
}

/* Of packet designs it has each lock once before the others start, so that leases and terms are settled. */
static bool await_end(struct actor *a, struct exhaust_world *w)
{
    struct hold h;
    unsigned locks = w->campaign.design->packet ? exhaust_plan_locks(&w->params->plan) : 0;
    for (uint64_t lock = 0; lock < locks; lock++)
        if (a->ops->lock(a, pawl_id(lock), PAWL_EXCLUSIVE, DEADLINE_NEVER, &h) || a->ops->unlock(a, &h))
            return false;
    await_start(a, w);
    if (w->chooser.open)
        block_at(a, w);
    return true;
}

/* Its session may be lost, too, if a long time has passed at once: then it starts again. */
static bool audit(struct actor *a, struct exhaust_world *w)
{
    if (!w->started && !await_end(a, w))
        return false;
    if (audit_locks(a, w) == -PAWL_ELOST)
        return false;
    int left = w->deaths ? a->ops->tidy(a) : 0;
    if (left == -PAWL_ELOST)
        return false;
    if (left)
        oracle_violation(&w->campaign.oracle, "I11: something of ended sessions is left");
    w->audited = true;
    sim_stop(w->campaign.sim);
    return true;
}

static bool actor_work(struct actor *a)
{
    struct exhaust_world *w = world_of(a);
    if (a->client == w->params->plan.clients)
        return audit(a, w);
    if (!w->started) {
        await_start(a, w);
        if (exhaust_plan_locks(&w->params->plan) > 1)
            sim_task_yield(a->task); /* a call for several locks has stacks that are not put back: it begins after that point */
    }
    return work(a, w);
}

static bool task_work(struct cluster_task *t)
{
    return actor_work(&t->actor);
}

/* A client that died stays dead; others whose session was lost start again. */
static void on_gone(void *user, unsigned client)
{
    struct campaign *c = user;
    struct exhaust_world *w = container_of(c, struct exhaust_world, campaign);
    oracle_gone(&c->oracle, client * ACTORS_MAX);
    if (w->deaths == c->sim->faults.counts[FAULT_CRASH_CLIENT])
        return;
    w->deaths++;
    note_end(w, client);
}

static void on_client_gone(struct cluster_client *client)
{
    on_gone(client->cluster->params.user, client->id);
}

static void on_deadlock(void *user, unsigned client, unsigned task, bool true_one)
{
    struct campaign *c = user;
    if (!true_one)
        oracle_violation(&c->oracle, "I13: client %u was told of a deadlock, and there is none", client);
}

static bool valid(void *ctx, unsigned client, uint64_t lock)
{
    struct campaign *c = ctx;
    return c->design->packet ? rack_client_valid(&c->rack.clients[client / ACTORS_MAX])
                             : cluster_client_valid(&c->cluster.clients[client / ACTORS_MAX]);
}

/* ---- a run ---- */

static int make_cluster(struct exhaust_world *w, const struct model *model, FILE *trace)
{
    const struct exhaust_params *p = w->params;
    bool ranges = p->design->features & DESIGN_RANGES;
    /* The auditor is the last client, and so it would run on the node if others do: it is one more resident then. */
    const struct cluster_params params = {
        .design = p->design,
        .knobs = p->knobs,
        .model = model,
        .keys = PAWL_KEYS_DENSE,
        .capacity = exhaust_plan_locks(&p->plan),
        .range_units = ranges ? UNITS : 0,
        .range_max = ranges ? UNITS : 0,
        .clients = p->plan.clients + 1,
        .mortals = p->plan.clients,
        .hosts = p->plan.clients + 1,
        .residents = p->plan.residents ? p->plan.residents + 1 : 0,
        .tasks = 1,
        .faults = p->faults,
        .fabric_caps = FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED,
        .time_max_ns = TIME_LEASES * LEASE_NS,
        .lease_ns = p->design->features & DESIGN_RECOVERY ? LEASE_NS : LEASE_NONE_NS,
        .events_max = EVENTS_MAX,
        .chooser = &w->chooser,
        .trace = trace,
        .work = task_work,
        .on_gone = on_client_gone,
        .user = &w->campaign,
    };
    w->campaign.sim = &w->campaign.cluster.sim;
    return cluster_init(&w->campaign.cluster, &params);
}

static int make_rack(struct exhaust_world *w, const struct model *model, FILE *trace)
{
    const struct exhaust_params *p = w->params;
    const struct rack_params params = {
        .design = p->design,
        .knobs = p->knobs,
        .model = model,
        .locks = exhaust_plan_locks(&p->plan),
        .clients = p->plan.clients + 1,
        .mortals = p->plan.clients,
        .hosts = p->plan.clients + 1,
        .servers = 1,
        .cores = 1,
        .tasks = 1,
        .requests = 4,
        .racks = 1,
        .watch_waits = true,
        .faults = p->faults,
        .time_max_ns = TIME_LEASES * LEASE_NS,
        .lease_ns = LEASE_NS,
        .retry_ns = RETRY_NS,
        .events_max = EVENTS_MAX,
        .chooser = &w->chooser,
        .trace = trace,
        .work = actor_work,
        .on_gone = on_gone,
        .on_deadlock = on_deadlock,
        .user = &w->campaign,
    };
    w->campaign.sim = &w->campaign.rack.sim;
    int rc = rack_init(&w->campaign.rack, &params);
    uint64_t ranks = p->design->packet->ranks, options = w->campaign.rack.config.options;
    for (unsigned i = 1; !rc && ranks && (options & ranks) == ranks && i < p->plan.clients; i++)
        w->campaign.rack.clients[i].priority = PACKET_PRIORITIES - 1; /* all but the first have the lowest */
    return rc;
}

static enum exhaust_end judge(struct exhaust_world *w, enum sim_end how)
{
    struct oracle *o = &w->campaign.oracle;
    if (!o->violations && !w->audited && how != SIM_EVENTS_END) {
        unsigned client = 0;
        while (client < w->params->plan.clients && w->ended[client])
            client++;
        oracle_violation(o, "I9: %s %u did not get on", client < w->params->plan.clients ? "client" : "the auditor,", client);
    }
    return o->violations ? EXHAUST_BAD : w->audited ? EXHAUST_GOOD : EXHAUST_CUT;
}

/* Every exchange of packets comes to an end, though the timers that begin the next one do not. */
static enum exhaust_end become_quiet(struct exhaust_world *w)
{
    struct sim *sim = w->campaign.sim;
    sim->config.events_max = sim->events + QUIET_EVENTS;
    w->chooser.no_timers = true;
    if (sim_run(sim, UINT64_MAX) != SIM_EVENTS_END)
        return EXHAUST_GOOD;
    oracle_violation(&w->campaign.oracle, "I9: packets go to and fro without end when all have released the lock");
    return EXHAUST_BAD;
}

int exhaust_world_make(const struct exhaust_params *p, FILE *trace, struct exhaust_world **out)
{
    struct model model = *model_find("default");
    struct exhaust_world *w = sim_alloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    struct campaign *c = &w->campaign;
    model_set(&model, "poll_ns", POLL_NS);
    w->params = p;
    w->model = model;
    w->chooser.pause_ns = PAUSE_LEASES * LEASE_NS;
    c->design = p->design;
    c->timeout = p->design->features & DESIGN_TIMEOUT;
    c->units = p->design->features & DESIGN_RANGES ? UNITS : 0;
    int rc = oracle_init(&c->oracle, exhaust_plan_locks(&p->plan), p->design->features & DESIGN_TOKENS, valid, c);
    c->oracle.told = campaign_violated;
    if (!rc)
        rc = p->design->packet ? make_rack(w, &w->model, trace) : make_cluster(w, &w->model, trace);
    if (rc) {
        oracle_free(&c->oracle);
        sim_give_back(w);
        return rc;
    }
    w->untouched[0] = c->sim->random;
    w->untouched[1] = c->sim->faults.random;
    sim_run(c->sim, UINT64_MAX);
    assert(w->started);    /* without a fault all sessions are opened */
    w->chooser.thread = 0; /* none runs: all may go first, without cost */
    *out = w;
    return 0;
}

void exhaust_world_free(struct exhaust_world *w)
{
    if (w->params->design->packet)
        rack_free(&w->campaign.rack);
    else
        cluster_free(&w->campaign.cluster);
    oracle_free(&w->campaign.oracle);
    sim_give_back(w);
}

enum exhaust_end exhaust_world_run(struct exhaust_world *w)
{
    w->chooser.preemptions = w->params->preemptions;
    w->chooser.early = w->params->early;
    w->chooser.strikes = w->params->strikes;
    for (unsigned i = 0; i < w->params->plan.clients; i++) {
        const struct campaign *c = &w->campaign;
        const struct sim_process *process = c->design->packet ? c->rack.clients[i].process : c->cluster.clients[i].process;
        w->chooser.spared |= (w->params->plan.spared >> i & UINT64_C(1)) << (process->id + 1);
    }
    enum exhaust_end end = judge(w, sim_run(w->campaign.sim, UINT64_MAX));
    if (end == EXHAUST_GOOD && w->params->design->packet)
        end = become_quiet(w);
    const struct sim *sim = w->campaign.sim;
    assert(!memcmp(&sim->random, &w->untouched[0], sizeof sim->random)); /* no random number was drawn */
    assert(!memcmp(&sim->faults.random, &w->untouched[1], sizeof sim->faults.random));
    return end;
}
