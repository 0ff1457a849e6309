/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/campaign.h"
#include "workbench/trial/campaign_ops.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_NONE_NS (3600 * NS_PER_S) /* for designs that cannot recover: no session is ever declared lost */
#define SAFETY_MIN_NS (40 * NS_PER_MS)  /* four leases */
#define SAFETY_SPAN_NS (60 * NS_PER_MS)
#define HEALING_LEASES 400              /* what every waiter must be granted within, once faults have stopped (I9) */
#define FIXED_CLIENTS_MAX 8             /* of campaign 1 */
#define BUSY_ONE_IN 8                   /* runs without faults, */
#define BUSY_ONE_IN_FAULTY 32           /* and with: they have many times as many events as others */
#define BACKUP_SALT 0x6261636b7570      /* whether there is a second switch, apart from what else is drawn */
#define PARKS_SALT UINT64_C(0x7061726b) /* whether a memory node parks WAITs */
#define BUSY_SALT UINT64_C(0x62757379)
#define PATIENT_SALT UINT64_C(0x77616974)
#define SPILL_SALT UINT64_C(0x7370696c)
#define CALL_SALT UINT64_C(0x63616c6c)
#define TOGETHER_SALT UINT64_C(0x746f6765)
#define RANK_SALT UINT64_C(0x72616e6b)
#define NAMES_SALT UINT64_C(0x6e616d6573)
#define LONG_SALT UINT64_C(0x6c6f6e67)
#define WELCOME_SALT UINT64_C(0x77656c636f6d65)
#define MEMBER_SALT UINT64_C(0x6d656d626572)
#define SWARM_SALT UINT64_C(0x737761726d)
#define MODEL_SALT UINT64_C(0x6d6f64656c73)
#define MODEL_ONE_IN 4 /* runs of a swarm: with the model of a testbed, whose verbs and packets are in other proportions */
#define SPILL_ONE_IN 2 /* runs of designs that spill: the switch has room for some of the locks only */
#define CAPS_SALT UINT64_C(0x63617073)
#define NODES_SALT UINT64_C(0x6e6f646573)
#define ASSIGN_SALT UINT64_C(0x736c6f74)
#define CAPS_DRAWN (FAB_ATOMIC128 | FAB_MASKED | FAB_CPU_ATOMIC64 | FAB_CPU_ATOMIC128 | FAB_ORDERED | FAB_WAIT)
#define POLL_NS (20 * NS_PER_US)   /* waiters look this often: ten times less than a real one, to save events */
#define RETRY_NS (100 * NS_PER_US) /* racks: until a packet is sent again */
#define RETRIES_OF_LEASE 100       /* swarm: the pause grows to 64 times the first, which stays below a lease */

static bool valid(void *ctx, unsigned client, uint64_t lock)
{
    struct campaign *c = ctx;
    struct key_text text;
    if (c->design->packet)
        return rack_client_valid(&c->rack.clients[client / ACTORS_MAX]);
    const struct cluster_client *holder = &c->cluster.clients[client / ACTORS_MAX];
    return cluster_session_valid(holder, cluster_node_of(&c->cluster, campaign_key(&holder->tasks[0].actor, lock, &text)));
}

static void on_gone(void *user, unsigned client)
{
    struct campaign *c = user;
    for (unsigned i = 0; i < ACTORS_MAX; i++) {
        oracle_gone(&c->oracle, client * ACTORS_MAX + i);
        campaign_asker_gone(c, client * ACTORS_MAX + i);
        c->op[client][i] = 0;
    }
}

/* A client was told of a deadlock and was in none. */
static void on_deadlock(void *user, unsigned client, unsigned task, bool true_one)
{
    struct campaign *c = user;
    c->done.deadlocks++;
    sim_note(c->sim, true_one ? "DEADLOCK" : "NO DEADLOCK", c->rack.clients[client].host->host->id, client, task);
    if (!true_one)
        oracle_violation(&c->oracle, "I13: client %u was told of a deadlock, and there is none", client * ACTORS_MAX + task);
}

/* The coordinator does not start with a state that nothing has happened to. */
static void on_refused(void *user, const char *why)
{
    struct campaign *c = user;
    oracle_violation(&c->oracle, "I18: the coordinator refuses its own state: %s", why);
}

static void on_outdated(void *user, uint64_t index, uint32_t generation, uint32_t newest)
{
    struct campaign *c = user;
    oracle_violation(&c->oracle, "I7: a granter of lock %" PRIu64 " acts on a packet of generation %u, after one of %u", index,
                     generation, newest);
}

static void on_shared_index(void *user, uint64_t index, uint64_t key, uint64_t other)
{
    struct campaign *c = user;
    sim_note(c->sim, "SHARED INDEX", 0, key, other);
    oracle_violation(&c->oracle, "I7: keys %" PRIu64 " and %" PRIu64 " share lock %" PRIu64, key, other, index);
}

static void on_client_gone(struct cluster_client *client)
{
    on_gone(client->cluster->params.user, client->id);
}

static bool task_work(struct cluster_task *t)
{
    return campaign_work(&t->actor);
}

/* ---- a run ---- */

/* Each seed is another cluster: few locks or many, keys of every kind, tables that overflow. */
static struct cluster_params draw_cluster(struct campaign *c, const struct campaign_params *p, const struct model *model)
{
    struct rng *r = &c->random;
    bool recovers = p->design->features & DESIGN_RECOVERY;
    unsigned workers = 2 + (unsigned)rng_below(r, FIXED_CLIENTS_MAX - 2);
    c->locks = rng_chance(r, 1, 4) ? CAMPAIGN_LOCKS_MAX : 1 + rng_below(r, 6);
    bool ranges = p->design->features & DESIGN_RANGES;
    /* Not from the stream: the other draws stay what they are. */
    c->busy = !ranges && mix64(p->seed ^ BUSY_SALT) % (p->faults ? BUSY_ONE_IN_FAULTY : BUSY_ONE_IN) == 0;
    if (c->busy)
        c->locks = 1 + c->locks % 2;
    c->units = ranges ? UINT64_C(64) << 2 * rng_below(r, 4) : 0;
    if (ranges && rng_chance(r, 1, 2))
        c->locks = 1; /* so that ranges meet */
    uint64_t range_max = ranges ? c->units << 2 * rng_below(r, 4) : 0;
    bool overflow = p->design->features & DESIGN_TOKENS && p->design->raise && rng_chance(r, 1, 2);
    return (struct cluster_params){
        .design = p->design,
        .knobs = p->knobs,
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
        .fabric_caps = FAB_ATOMIC128 | FAB_ORDERED | (rng_chance(r, 1, 2) ? FAB_MASKED : 0),
        .seed = p->seed,
        .safety_ns = SAFETY_MIN_NS + rng_below(r, SAFETY_SPAN_NS),
        .lease_ns = recovers ? c->mix.lease_ns : LEASE_NONE_NS,
        .trace = p->trace,
        .work = task_work,
        .on_gone = on_client_gone,
        .user = c,
    };
}

bool campaign_forgot(const struct cluster *cl)
{
    bool any = false;
    for (unsigned i = 0; i < cl->params.nodes; i++) {
        fab_addr at = FAB_ADDR(cl->nodes[i].host->id, offsetof(struct layout_header, token_floor));
        any |= *(const uint64_t *)sim_fabric_peek(cl->fabric, at, sizeof(uint64_t)) != 0;
    }
    return any;
}

/* Whatever the design runs on. */
static void report(struct campaign *c, struct campaign_result *out)
{
    *out = c->done;
    out->violations = c->oracle.violations;
    out->stuck = *c->clients_done < c->clients;
    out->events = c->sim->events;
    out->grants = c->oracle.grants;
    out->virtual_ns = c->sim->now_ns;
    out->hash = c->sim->hash;
    memcpy(out->why, c->oracle.first, sizeof out->why);
    memcpy(out->faults, c->sim->faults.counts, sizeof out->faults);
    for (unsigned i = 0; i < c->clients && out->stuck && !out->violations; i++)
        if (!(c->design->packet ? c->rack.clients[i].finished : c->cluster.clients[i].finished)) {
            snprintf(out->why, sizeof out->why, "I9: client %u did not get on after everything had healed (%u of %u done)", i,
                     *c->clients_done, c->clients);
            campaign_violated(c, out->why);
            break;
        }
}

/* ---- swarm: sizes of every order, and what a failure is cut down to ---- */

static uint64_t draw_locks(struct rng *r)
{
    static const uint64_t most[] = {1, 1, 2, 4, 8, 40, CAMPAIGN_LOCKS_MAX};
    return 1 + rng_below(r, most[rng_below(r, countof(most))]);
}

static uint64_t draw_safety(struct rng *r, uint64_t lease_ns)
{
    return lease_ns / 2 + rng_below(r, 12 * lease_ns);
}

static unsigned limited(uint64_t drawn, uint64_t limit)
{
    return (unsigned)(limit ? min_u64(drawn, limit) : drawn);
}

static void draw_sizes(struct campaign *c, unsigned *clients, unsigned *hosts, unsigned *tasks)
{
    struct rng *r = &c->swarm;
    *clients = 2 + (unsigned)rng_below(r, rng_chance(r, 1, 2) ? 4 : CAMPAIGN_CLIENTS_MAX);
    c->locks = draw_locks(r);
    *hosts = 1 + (unsigned)rng_below(r, 6);
    *tasks = 1 + (unsigned)rng_below(r, ACTORS_MAX);
}

/* All clients but the last, which audits, are mortal. */
static void limit_sizes(struct campaign *c, const struct swarm_limits *l, unsigned *clients, unsigned *mortals, unsigned *hosts,
                        unsigned *tasks, uint64_t *safety_ns)
{
    *mortals = limited(*clients - 1, l->clients);
    *clients = *mortals + 1;
    c->locks = limited(c->locks, l->locks);
    *hosts = limited(*hosts, l->hosts);
    *tasks = limited(*tasks, l->tasks);
    *safety_ns = l->safety_ns ? min_u64(*safety_ns, l->safety_ns) : *safety_ns;
}

static void swarm_cluster(struct campaign *c, const struct campaign_params *p, struct cluster_params *out)
{
    struct rng *r = &c->swarm;
    if (p->campaign == CAMPAIGN_SWARM) {
        draw_sizes(c, &out->clients, &out->hosts, &out->tasks);
        out->capacity = out->capacity < c->locks || rng_chance(r, 1, 3) ? max_u64(c->locks / 3, 1) : c->locks;
        if (!(p->design->features & DESIGN_TOKENS) || !p->design->raise)
            out->capacity = c->locks;
        out->safety_ns = draw_safety(r, c->mix.lease_ns);
        out->swarm = true;
    }
    limit_sizes(c, &p->limits, &out->clients, &out->mortals, &out->hosts, &out->tasks, &out->safety_ns);
    out->capacity = min_u64(out->capacity, c->locks);
}

/* Capabilities of the fabric. Campaign 1 has one with or without masked verbs; campaign 2 any set, in half of its runs. The node of
 * a fabric without 128-bit atomics assigns slots, and others may. Not from the streams: the other draws stay what they are. */
static void draw_caps(const struct campaign_params *p, struct cluster_params *out)
{
    uint64_t drawn = mix64(p->seed ^ CAPS_SALT), assigns = mix64(p->seed ^ ASSIGN_SALT);
    bool any = p->campaign == CAMPAIGN_SWARM && drawn >> 63;
    out->fabric_mistakes = (uint32_t)(p->design->mistakes >> CLUSTER_FABRIC_MISTAKES) & SIM_FABRIC_MISTAKES;
    if (out->fabric_mistakes)
        out->fabric_caps = SIM_FABRIC_CAPS & ~(out->fabric_mistakes & SIM_FABRIC_UNFENCED ? FAB_ORDERED : 0u);
    else if (p->caps || any)
        out->fabric_caps = p->caps ? *p->caps : (uint32_t)drawn & CAPS_DRAWN;
    if (!p->caps)
        out->fabric_caps |= p->design->needs;
    if (out->fabric_caps & FAB_CPU_ATOMIC128)
        out->fabric_caps |= FAB_CPU_ATOMIC64;
    if (p->design->serve) /* a lock server takes all messages to its node for requests */
        out->fabric_caps |= FAB_ATOMIC128;
    if (!fab_has(out->fabric_caps, LAYOUT_TABLE_NEEDS))
        out->keys = PAWL_KEYS_DENSE;
    out->assigned = !fab_has(out->fabric_caps, FAB_ATOMIC128) || (any && !p->design->serve && assigns >> 63);
}

/* Campaign 2: locks on several nodes, in a third of its runs. Not from the streams, likewise. */
static void draw_nodes(const struct campaign_params *p, struct cluster_params *out)
{
    uint64_t drawn = mix64(p->seed ^ NODES_SALT);
    out->nodes = 1;
    out->node_mistakes = (uint32_t)(p->design->mistakes >> CLUSTER_NODE_MISTAKES) & CLUSTER_HASTY_NODE;
    if (p->design->serve)
        return;
    if (p->nodes || out->node_mistakes)
        out->nodes = p->nodes ? p->nodes : 2;
    else if (p->campaign == CAMPAIGN_SWARM && drawn % 3 == 0)
        out->nodes = 2 + (unsigned)(drawn / 3 % (CLUSTER_NODES_MAX - 1));
}

static int begin(struct campaign *c, uint64_t safety_ns, unsigned clients)
{
    c->safety_ns = safety_ns;
    c->clients = clients;
    int rc = oracle_init(&c->oracle, c->locks, c->design->features & DESIGN_TOKENS, valid, c);
    c->oracle.told = campaign_violated;
    return rc;
}

static int run_cluster(struct campaign *c, const struct campaign_params *p, const struct model *model, struct campaign_result *out)
{
    struct cluster_params params = draw_cluster(c, p, model);
    swarm_cluster(c, p, &params);
    draw_caps(p, &params);
    draw_nodes(p, &params);
    if (c->busy) /* finding a key takes time, in which others are granted it */
        params.keys = PAWL_KEYS_DENSE;
    if (params.keys == PAWL_KEYS_DENSE)
        params.capacity = c->locks;
    params.time_max_ns = params.safety_ns + HEALING_LEASES * c->mix.lease_ns;
    c->clients_done = &c->cluster.clients_done;
    c->sim = &c->cluster.sim;
    int rc = begin(c, params.safety_ns, params.clients);
    if (rc)
        return rc;
    params.strikes = p->strikes;
    params.strike_count = p->strike_count;
    if (c->busy && !p->faults && !p->strike_count) {
        params.fabric_caps |= FAB_MASKED; /* built from compare-and-swaps, a step can be overtaken for ever */
        c->oracle.overtaking = p->design->overtaking;
        c->oracle.others = params.clients * params.tasks;
    }
    if (p->on_node) {
        params.on_node = true;
        params.verbs_mistakes = p->verbs_mistakes;
        bool parks = mix64(p->seed ^ PARKS_SALT) % 2;
        params.assigned = false;
        params.fabric_caps = (params.fabric_caps & FAB_MASKED) | FAB_ATOMIC128 | FAB_ORDERED | (parks ? FAB_WAIT : 0);
        params.node_can = VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED | (parks ? VERBS_CAN_WAIT : 0);
    }
    rc = cluster_init(&c->cluster, &params);
    if (rc)
        return rc;
    cluster_run(&c->cluster);
    report(c, out);
    out->sessions = c->cluster.sessions;
    out->lost = c->cluster.lost;
    out->forgot = campaign_forgot(&c->cluster);
    cluster_free(&c->cluster);
    return 0;
}

/* ---- the same in a rack ---- */

static struct rack_params draw_rack(struct campaign *c, const struct campaign_params *p, const struct model *model)
{
    struct rng *r = &c->random;
    unsigned workers = 2 + (unsigned)rng_below(r, FIXED_CLIENTS_MAX - 2), hosts = 1 + (unsigned)rng_below(r, 4);
    c->locks = rng_chance(r, 1, 4) ? CAMPAIGN_LOCKS_MAX : 1 + rng_below(r, 6);
    c->nests = p->design->features & DESIGN_DEADLOCK;
    c->patient = c->nests && mix64(p->seed ^ PATIENT_SALT) % 2 == 0;
    c->calls = p->design->features & DESIGN_CALLS && mix64(p->seed ^ CALL_SALT) % 2 == 0;
    return (struct rack_params){
        .design = p->design,
        .knobs = p->knobs,
        .model = model,
        .locks = c->locks,
        .clients = workers + 1,
        .mortals = workers,
        .hosts = hosts,
        .servers = 1 + (unsigned)rng_below(r, p->design->packet->on_hosts ? hosts : 3),
        .cores = 1 + (unsigned)rng_below(r, 4),
        .tasks = 1 + (unsigned)rng_below(r, 2),
        .mortal_hosts = rng_chance(r, 1, 2),
        .racks = 2 + (unsigned)(mix64(p->seed) % (RACKS_MAX - 1)), /* not from the stream: the other draws stay what they are */
        .moves = p->faults != 0,
        .check_undo = p->seed % 4 == 0,
        .watch_waits = true,
        .together = p->campaign >= CAMPAIGN_SWARM && mix64(p->seed ^ TOGETHER_SALT) % 2,
        .backup = mix64(p->seed ^ BACKUP_SALT) % 2 == 0,
        .late_welcome = mix64(p->seed ^ WELCOME_SALT) % 4 == 0,
        .faults = p->faults,
        .seed = p->seed,
        .safety_ns = SAFETY_MIN_NS + rng_below(r, SAFETY_SPAN_NS),
        .lease_ns = c->mix.lease_ns,
        .retry_ns = RETRY_NS,
        .member_ns = c->mix.lease_ns << mix64(p->seed ^ MEMBER_SALT) % 4, /* not from the stream either */
        .options = p->design->packet->draws ? rng_next(r) & p->design->packet->draws : 0,
        .trace = p->trace,
        .work = campaign_work,
        .on_gone = on_gone,
        .on_deadlock = on_deadlock,
        .on_refused = on_refused,
        .on_outdated = on_outdated,
        .on_shared_index = on_shared_index,
        .apply = c->calls ? campaign_apply : NULL,
        .user = c,
    };
}

/* Not from the stream: the other draws stay what they are. */
static uint64_t draw_room(const struct campaign *c, const struct campaign_params *p)
{
    uint64_t drawn = mix64(p->seed ^ SPILL_SALT);
    bool spills = p->design->packet->spills && c->locks > 1 && drawn % SPILL_ONE_IN == 0;
    return spills ? 1 + drawn / SPILL_ONE_IN % (c->locks - 1) : 0;
}

/* Names come and go in half of the runs that have names: there are fewer locks than keys. Not from the stream, likewise. */
static uint64_t draw_capacity(const struct campaign *c, const struct campaign_params *p)
{
    uint64_t drawn = mix64(p->seed ^ NAMES_SALT);
    return drawn % 2 || !p->design->packet->uses ? c->locks : 1 + drawn / 2 % c->locks; /* else names are never retired */
}

/* Not from the stream, likewise. */
static void give_ranks(struct campaign *c, const struct campaign_params *p, const struct rack_params *params)
{
    uint64_t ranks = p->design->packet->ranks;
    for (unsigned i = 0; ranks && (params->options & ranks) == ranks && i < params->clients; i++)
        c->rack.clients[i].priority = (uint8_t)(mix64(p->seed ^ RANK_SALT ^ i) % PACKET_PRIORITIES);
}

static void swarm_rack(struct campaign *c, const struct campaign_params *p, struct rack_params *out)
{
    struct rng *r = &c->swarm;
    if (p->campaign == CAMPAIGN_SWARM) {
        draw_sizes(c, &out->clients, &out->hosts, &out->tasks);
        out->safety_ns = draw_safety(r, c->mix.lease_ns);
        out->retry_ns = c->mix.lease_ns / RETRIES_OF_LEASE >> rng_below(r, 3);
        out->swarm = true;
        out->crowd = swarm_crowd(p->seed);
    }
    limit_sizes(c, &p->limits, &out->clients, &out->mortals, &out->hosts, &out->tasks, &out->safety_ns);
    out->locks = c->locks;
    if (p->design->packet->on_hosts)
        out->servers = limited(out->servers, out->hosts);
}

/* Nothing but coordinators fails, and they keep their settings. Then their outages are shorter than the membership lease, and hosts
 * need them to join and to name keys alone. A NetLock with several servers needs its steward more often, so that one can take over
 * for another soon. */
static bool only_coordinators_fail(const struct campaign_params *p, struct rack_params *out)
{
    const uint32_t theirs = FAULT_BIT(FAULT_CRASH_COORDINATOR) | FAULT_BIT(FAULT_DISK) | FAULT_BIT(FAULT_ETCD);
    if (!p->faults || p->faults & ~theirs)
        return false;
    out->member_ns = 2 * out->safety_ns + 8 * out->lease_ns; /* longer than all outages together, which end with the faults */
    if (p->design->packet->steward_packet)
        out->servers = out->racks = p->design->packet->divides ? 2 : 1; /* one at each switch */
    return true;
}

static void check_lost(struct campaign *c, struct campaign_result *out)
{
    if (out->violations || !out->lost)
        return;
    out->violations++;
    snprintf(out->why, sizeof out->why, "I27: %" PRIu64 " sessions were lost, though nothing but coordinators failed", out->lost);
    campaign_violated(c, out->why);
}

static int run_rack(struct campaign *c, const struct campaign_params *p, const struct model *model, struct campaign_result *out)
{
    struct rack_params params = draw_rack(c, p, model);
    swarm_rack(c, p, &params);
    params.switch_locks = draw_room(c, p);
    params.capacity = draw_capacity(c, p);
    params.time_max_ns = params.safety_ns + HEALING_LEASES * c->mix.lease_ns;
    bool keeps_all = only_coordinators_fail(p, &params);
    c->clients_done = &c->rack.clients_done;
    c->sim = &c->rack.sim;
    int rc = begin(c, params.safety_ns, params.clients);
    if (!rc)
        rc = rack_init(&c->rack, &params);
    if (rc)
        return rc;
    give_ranks(c, p, &params);
    rack_run(&c->rack);
    report(c, out);
    out->sessions = c->rack.sessions;
    out->lost = c->rack.lost;
    if (keeps_all)
        check_lost(c, out);
    out->moves = p->design->packet->switch_moves ? p->design->packet->switch_moves(c->rack.switch_memory) : 0;
    rack_free(&c->rack);
    return 0;
}

uint32_t campaign_faults(const struct design *d, uint32_t faults)
{
    uint32_t of_rack = FAULTS_COORDINATOR | FAULT_BIT(FAULT_REPLAY) | FAULT_BIT(FAULT_FORGE);
    return faults & (d->tolerates | (d->kind != DESIGN_BUSTED && rack_coordinates(d) ? of_rack : 0));
}

bool campaign_has_nodes(const struct design *d)
{
    return !d->packet && !d->serve && !d->local && !d->clocks_ns;
}

bool campaign_has_beside(const struct design *d)
{
    return d->features & DESIGN_BAST;
}

static struct model choose_model(const struct campaign_params *p)
{
    uint64_t drawn = mix64(p->seed ^ MODEL_SALT);
    unsigned models = 0;
    if (p->model)
        return *p->model;
    if (p->campaign != CAMPAIGN_SWARM || drawn % MODEL_ONE_IN)
        return *model_find("default");
    while (model_at(models))
        models++;
    assert(models);
    return *model_at((unsigned)(drawn / MODEL_ONE_IN % models));
}

int campaign_run(const struct campaign_params *p, struct campaign_result *out)
{
    struct campaign *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    struct model model = choose_model(p);
    rng_seed(&c->random, p->seed ^ UINT64_C(0x7061776c)); /* not the simulator's own stream */
    rng_seed(&c->swarm, p->seed ^ SWARM_SALT);
    c->mix = swarm_fixed;
    if (p->campaign == CAMPAIGN_SWARM) {
        c->mix = swarm_draw(&c->swarm);
        model_set(&model, "lease_ns", c->mix.lease_ns);
    }
    model_set(&model, "poll_ns", max_u64(model_get(&model, MODEL_poll_ns), POLL_NS));
    c->long_ns = c->mix.lease_ns;
    if (p->faults & FAULTS_COORDINATOR) /* leases of the coordinator change, and some holds are to outlast the shorter ones */
        c->long_ns *= 1 + mix64(p->seed ^ LONG_SALT) % 4;
    c->design = p->design;
    c->seed = p->seed;
    c->beside = p->campaign == CAMPAIGN_BESIDE && campaign_has_beside(p->design);
    c->shared = p->design->features & DESIGN_SHARED;
    c->convert = p->design->features & DESIGN_CONVERT;
    c->timeout = p->design->features & DESIGN_TIMEOUT;
    int rc = p->design->packet ? run_rack(c, p, &model, out) : run_cluster(c, p, &model, out);
    oracle_free(&c->oracle);
    free(c);
    return rc;
}
