/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/cluster.h"
#include "cluster/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_NS (1 * NS_PER_MS) /* between attempts to open a session */
#define ROUND_NS (3 * NS_PER_MS) /* how often a session's keeper looks up, if its lease is longer than three of these */
#define TEND_EVERY 4             /* renewals: how often a session looks after the dead */
#define SLOTS_SPARE 8            /* sessions that are lost and not yet recovered from keep their slots; unless more are asked for */
#define RECORDS 64               /* holds per session: more than any workload here has at once */
#define DRIFT_DIVISOR 10000
#define TIDY_LOOKS 10 /* leases for which the slots of ended sessions may stay */

static uint32_t slots_of(const struct cluster_params *p)
{
    return p->clients + (p->spare_slots ? p->spare_slots : SLOTS_SPARE);
}

/* ---- the node ---- */

/* Formats the lock memory: at the start, and after a crash once every lease that may still run has ended, for the holders of locks
 * in the lost memory believe in them until then (invariant I1). */
static void look_after_sessions(struct cluster *c);
static void start_serving(struct cluster *c);

static void node_task(void *arg)
{
    struct cluster *c = arg;
    struct sim_task *self = sim_current(&c->sim);
    if (c->server->births > 1) {
        uint64_t lease = c->params.lease_ns;
        uint64_t until = sim_host_clock(c->server, sim_now(&c->sim)) + lease + 2 * (lease / DRIFT_DIVISOR) + 1;
        sim_task_wake_at(self, sim_host_clock_inverse(c->server, until));
        sim_task_block(self);
    }
    struct layout_params p = {
        .design = c->params.design,
        .knobs = c->params.knobs,
        .keys = c->params.keys,
        .capacity = c->params.capacity,
        .range_units = c->params.range_units,
        .range_max = c->params.range_max,
        .sessions = slots_of(&c->params),
        .holds = RECORDS,
        .lease_ns = c->params.lease_ns,
        .check_ns = c->params.lease_ns / 4,
        .birth = world_birth(&c->server->world),
    };
    int rc = layout_make(&p, &c->header);
    assert(!rc);
    memcpy(sim_fabric_peek(c->fabric, FAB_ADDR(c->server->id, 0), sizeof c->header), &c->header, sizeof c->header);
    if (p.design->serve)
        start_serving(c);
    if (p.design->node_tends)
        look_after_sessions(c);
}

/* One core of the lock server. It needs no session either. */
static void serve_task(void *arg)
{
    struct cluster *c = arg;
    struct session none = {.slot = UINT32_MAX};
    struct fab_ep *ep = sim_ep_new(c->fabric, c->node);
    assert(ep);
    none.lease = &none.lease_copy;
    const struct seat seat = {.space = &c->server_space, .me = &none, .ep = ep, .world = &c->server->world};
    c->params.design->serve(&seat, c->server_memory, model_get(c->sim.model, MODEL_server_service_ns));
}

static void start_serving(struct cluster *c)
{
    layout_space(&c->header, FAB_ADDR(c->server->id, 0), &c->server_space);
    sim_give_back(c->server_memory); /* of the life before this one */
    c->server_memory = sim_alloc(c->params.design->server_bytes(&c->server_space));
    assert(c->server_memory);
    for (uint64_t core = 0; core < model_get(c->sim.model, MODEL_server_cores); core++) {
        const struct sim_task *task = sim_spawn(c->node, "serve", serve_task, c);
        assert(task);
    }
}

/* Recovers from its own sessions, and from the others while it is at it. It needs no session for that. */
static void look_after_sessions(struct cluster *c)
{
    struct space space;
    struct session none = {.slot = UINT32_MAX, .seen = c->node_seen};
    struct fab_ep *ep = sim_ep_new(c->fabric, c->node);
    assert(ep);
    none.lease = &none.lease_copy;
    memset(c->node_seen, 0, (slots_of(&c->params)) * sizeof *c->node_seen);
    layout_space(&c->header, FAB_ADDR(c->server->id, 0), &space);
    const struct seat seat = {.space = &space, .me = &none, .ep = ep, .world = &c->server->world};
    for (;;) {
        fab_wait_any(ep, NULL, 0, world_now(ep->world) + min_u64(c->params.lease_ns / 2, ROUND_NS));
        session_tend(&seat);
    }
}

/* ---- clients ---- */

bool cluster_client_valid(const struct cluster_client *client)
{
    if (!client->open || !client->process->alive)
        return false;
    return !client->session.ended && seat_alive(&client->keeper, world_now(&client->process->host->world));
}

static struct seat seat_of(struct cluster_client *client, struct fab_ep *ep)
{
    return (struct seat){.space = &client->space, .me = &client->session, .ep = ep, .world = &client->process->host->world};
}

/* Reads where everything is. */
static int attach(struct cluster_client *client, struct fab_ep *ep, struct layout_header *header)
{
    fab_addr base = FAB_ADDR(client->cluster->server->id, 0);
    sim_ep_reconnect(ep);
    int rc = fab_read(ep, base, header, round_up(sizeof *header, 8));
    if (rc)
        return rc;
    if (layout_fault(header, client->cluster->server->memory_bytes < header->total_bytes ? 0 : header->total_bytes))
        return -EAGAIN; /* the node has not formatted it yet */
    layout_space(header, base, &client->space);
    return 0;
}

static int open_session(struct cluster_client *client, struct layout_header *header)
{
    int rc = attach(client, client->keeper_ep, header);
    if (rc)
        return rc;
    client->keeper = seat_of(client, client->keeper_ep);
    struct session_params p = {
        .lease_ns = client->cluster->params.lease_ns,
        .proof = (uint64_t)client->process->id << 32 | (uint32_t)client->process->generation,
        .label = "simulated",
        .home = client->home,
    };
    return session_open(&client->keeper, &p);
}

/* The session is lost. Another process with new connections takes this one's place: the old ones may be shut out. */
static void restart_client(void *arg, uint64_t tag)
{
    struct cluster_client *client = arg;
    if (!client->process->alive && client->process->host->up && client->process->generation == tag)
        sim_process_restart(client->process);
}

static void start_again(struct cluster_client *client)
{
    struct sim *sim = &client->cluster->sim;
    sim_at_timer(sim, sim_now(sim) + RETRY_NS, restart_client, client, client->process->generation);
    sim_process_crash(client->process); /* does not return to its tasks */
}

static void work_task(void *arg)
{
    struct cluster_task *task = arg;
    struct cluster_client *client = task->client;
    if (!client->cluster->params.work(task))
        start_again(client);
    client->done[task->number] = true;
    client->working--;
}

static void start_work(struct cluster_client *client, const struct layout_header *header)
{
    struct cluster *c = client->cluster;
    client->working = 0;
    for (unsigned i = 0; i < c->params.tasks; i++) {
        struct cluster_task *task = &client->tasks[i];
        task->ep = sim_ep_new(c->fabric, client->process);
        assert(task->ep);
        /* Connecting names the life of the node in which the session was opened: in another life it is void. */
        sim_ep_reconnect(task->ep);
        if (!c->server->up || c->server->births != header->token_base >> 32)
            start_again(client);
        task->locker.seat = seat_of(client, task->ep);
        table_init(&task->locker.table, header, FAB_ADDR(c->server->id, 0));
        if (client->done[i])
            continue;
        client->working++;
        task->actor.task = sim_spawn(client->process, "work", work_task, task);
        assert(task->actor.task);
    }
}

static void sleep_on_clock(struct fab_ep *ep, uint64_t ns)
{
    fab_wait_any(ep, NULL, 0, world_now(ep->world) + ns);
}

void cluster_sleep(struct cluster_task *task, uint64_t ns)
{
    sleep_on_clock(task->ep, ns);
}

/* Opens the session, renews it until the work is done, closes it. */
static void keeper_task(void *arg)
{
    struct cluster_client *client = arg;
    struct cluster *c = client->cluster;
    struct layout_header header;
    memset(client->session.seen, 0, (slots_of(&c->params)) * sizeof *client->session.seen); /* a new process has seen nothing */
    client->keeper_ep = sim_ep_new(c->fabric, client->process);
    assert(client->keeper_ep);
    sim_ep_use_rarely(client->keeper_ep); /* a verb every few milliseconds */
    int rc;
    while ((rc = open_session(client, &header))) {
        if (rc == -FAB_EFENCED || rc == -PAWL_ELOST)
            start_again(client);
        sleep_on_clock(client->keeper_ep, RETRY_NS);
    }
    uint32_t tend_next = 32 * client->id; /* not all begin at the same slot */
    client->open = true;
    c->sessions++;
    start_work(client, &header);
    for (uint64_t round = 1; client->working; round++) {
        sleep_on_clock(client->keeper_ep, min_u64(c->params.lease_ns / 3, ROUND_NS));
        rc = seat_renew(&client->keeper);
        if (!rc && round % TEND_EVERY == 0)
            rc = session_tend_some(&client->keeper, &tend_next);
        if (rc == -PAWL_ELOST || rc == -FAB_EFENCED) {
            /* The tasks find out by themselves at their next step, and start again. */
            sleep_on_clock(client->keeper_ep, min_u64(c->params.lease_ns, 3 * ROUND_NS));
            start_again(client);
        }
    }
    rc = session_close(&client->keeper);
    client->open = false;
    if (rc) /* could not be told: others will find it dead */
        c->lost++;
    client->finished = true;
    client->process->crashable = false;
    c->clients_done++;
    sim_process_crash(client->process); /* it exits: a client that shares the node's memory counts as gone only then */
}

/* ---- what an actor calls ---- */

static int actor_lock(struct actor *a, pawl_key key, enum pawl_mode mode, uint64_t deadline, struct hold *out)
{
    return locker_lock(&cluster_task_of(a)->locker, key, mode, deadline, out);
}

static int actor_lock_all(struct actor *a, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds)
{
    return locker_lock_all(&cluster_task_of(a)->locker, wants, count, deadline, holds);
}

static int actor_unlock(struct actor *a, const struct hold *h)
{
    return locker_unlock(&cluster_task_of(a)->locker, h);
}

static int actor_convert(struct actor *a, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    return locker_convert(&cluster_task_of(a)->locker, h, mode, deadline);
}

static int actor_lock_range(struct actor *a, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                            struct hold *out)
{
    return locker_lock_range(&cluster_task_of(a)->locker, key, start, end, mode, deadline, out);
}

static int actor_reshape(struct actor *a, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    return locker_reshape(&cluster_task_of(a)->locker, h, start, end, deadline);
}

static int actor_split(struct actor *a, struct hold *h, uint64_t at, struct hold *right)
{
    return locker_split(&cluster_task_of(a)->locker, h, at, right);
}

static int actor_layout(struct actor *a, pawl_key key, struct lock_layout *out)
{
    return locker_layout(&cluster_task_of(a)->locker, key, out);
}

static int actor_retune(struct actor *a, pawl_key key, unsigned m, uint64_t wait_ns, uint64_t deadline)
{
    return locker_retune(&cluster_task_of(a)->locker, key, m, wait_ns, deadline);
}

static int actor_rescale(struct actor *a, pawl_key key, uint64_t units, uint64_t deadline)
{
    return locker_rescale(&cluster_task_of(a)->locker, key, units, deadline);
}

static int actor_query(struct actor *a, pawl_key key, pawl_state *out)
{
    return locker_query(&cluster_task_of(a)->locker, key, out);
}

static void actor_sleep(struct actor *a, uint64_t ns)
{
    cluster_sleep(cluster_task_of(a), ns);
}

static bool actor_valid(const struct actor *a)
{
    return cluster_client_valid(container_of(a, struct cluster_task, actor)->client);
}

static int count_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    ++*(unsigned *)ctx;
    return 0;
}

/* Only the actor's own slot is taken. */
static int actor_tidy(struct actor *a)
{
    struct cluster_task *t = cluster_task_of(a);
    for (unsigned i = 0; i < TIDY_LOOKS; i++) {
        unsigned slots = 0;
        session_tend(&t->locker.seat);
        if (seat_slots(&t->locker.seat, count_slot, &slots) == 0 && slots == 1)
            return 0;
        cluster_sleep(t, t->client->cluster->params.lease_ns);
    }
    return seat_lives(&t->locker.seat) ? -EBUSY : -PAWL_ELOST;
}

static const struct actor_ops cluster_actor_ops = {
    .lock = actor_lock,
    .lock_all = actor_lock_all,
    .unlock = actor_unlock,
    .convert = actor_convert,
    .lock_range = actor_lock_range,
    .reshape = actor_reshape,
    .split = actor_split,
    .layout = actor_layout,
    .retune = actor_retune,
    .rescale = actor_rescale,
    .query = actor_query,
    .tidy = actor_tidy,
    .sleep = actor_sleep,
    .valid = actor_valid,
};

/* ---- the cluster ---- */

static struct cluster_client *client_of(const struct sim_process *process)
{
    return process->user;
}

static void forget_endpoints(struct cluster_client *client)
{
    for (unsigned i = 0; i < CLUSTER_TASKS_MAX; i++) {
        if (client->tasks[i].ep)
            sim_ep_free(client->tasks[i].ep);
        client->tasks[i].ep = NULL;
    }
    if (client->keeper_ep)
        sim_ep_free(client->keeper_ep);
    client->keeper_ep = NULL;
}

static void on_crashed(void *ctx, struct sim_process *process)
{
    struct cluster *c = ctx;
    struct cluster_client *client = client_of(process);
    if (!client)
        return;
    if (client->open)
        c->lost++;
    client->open = false;
    if (c->params.on_gone)
        c->params.on_gone(client);
    forget_endpoints(client);
}

static void on_restarted(void *ctx, struct sim_process *process)
{
    struct cluster *c = ctx;
    struct cluster_client *client = client_of(process);
    if (process == c->node)
        sim_spawn(process, "node", node_task, c);
    else if (client && !client->finished)
        sim_spawn(process, "keeper", keeper_task, client);
}

static int add_client(struct cluster *c, unsigned id, struct sim_host *host)
{
    struct cluster_client *client = &c->clients[id];
    assert(host);
    *client = (struct cluster_client){.cluster = c, .id = id, .process = sim_process_new(host)};
    uint32_t slots = slots_of(&c->params);
    client->session.shadow = sim_alloc(RECORDS * sizeof *client->session.shadow);
    client->session.seen = sim_alloc(slots * sizeof *client->session.seen);
    bool ranges = c->params.design->features & DESIGN_RANGES;
    client->session.ranges = ranges ? sim_alloc(RECORDS * sizeof *client->session.ranges) : NULL;
    size_t claims = ranges ? c->params.design->desc_size : 0;
    client->session.descs = claims ? sim_alloc(RECORDS * claims) : NULL;
    size_t state = c->params.design->session_bytes;
    client->session.design_state = state ? sim_alloc(state) : NULL;
    if (!client->process || (state && !client->session.design_state) || !client->session.shadow || !client->session.seen ||
        (ranges && !client->session.ranges) || (claims && !client->session.descs))
        return -ENOMEM;
    client->process->user = client;
    /* On its host, behind what the clients before it have there; 0 is no address. */
    client->home = FAB_ADDR(host->id, (host == c->server ? c->space_bytes : CACHE_LINE) +
                                          (uint64_t)id * RECORDS * c->params.design->desc_size);
    client->process->crashable = id < c->params.mortals;
    for (unsigned i = 0; i < CLUSTER_TASKS_MAX; i++)
        client->tasks[i] = (struct cluster_task){.client = client,
                                                 .number = i,
                                                 .actor = {.ops = &cluster_actor_ops,
                                                           .process = client->process,
                                                           .client = id,
                                                           .number = i,
                                                           .keys = c->params.keys,
                                                           .user = c->params.user}};
    return sim_spawn(client->process, "keeper", keeper_task, client) ? 0 : -ENOMEM;
}

/* As PTP would: no two clocks differ by more than the design can do with, and some differ by that. */
static void synchronise(struct cluster *c, struct sim_host *const hosts[])
{
    uint64_t spread_ns = c->params.design->clocks_ns;
    for (unsigned i = 0; i < c->params.hosts && spread_ns; i++)
        hosts[i]->offset_ns = c->server->offset_ns + mix64(c->params.seed + i) % (spread_ns + 1);
}

static int add_hosts(struct cluster *c)
{
    const struct cluster_params *p = &c->params;
    struct sim_host *hosts[SIM_HOSTS_MAX] = {NULL};
    struct layout_params layout = {.design = p->design,
                                   .knobs = p->knobs,
                                   .keys = p->keys,
                                   .capacity = p->capacity,
                                   .sessions = slots_of(p),
                                   .holds = RECORDS,
                                   .range_units = p->range_units,
                                   .range_max = p->range_max};
    int rc = layout_make(&layout, &c->header);
    if (rc)
        return rc;
    uint64_t homes = CACHE_LINE + (uint64_t)p->clients * RECORDS * p->design->desc_size;
    c->space_bytes = c->header.total_bytes;
    c->server = sim_host_new(&c->sim);
    if (!c->server || (rc = sim_host_memory(c->server, c->space_bytes + homes)))
        return rc ? rc : -ENOMEM;
    memset(&c->header, 0, sizeof c->header);
    c->server->server = true;
    c->node = sim_process_new(c->server);
    for (unsigned i = 0; i < p->hosts; i++)
        if (!(hosts[i] = sim_host_new(&c->sim)) || (p->design->desc_size && sim_host_memory(hosts[i], homes)))
            return -ENOMEM;
    synchronise(c, hosts);
    if (!c->node || !sim_spawn(c->node, "node", node_task, c))
        return -ENOMEM;
    for (unsigned i = 0; i < p->clients && !rc; i++) {
        bool home = p->design->local || (p->home && i % 2) || i >= p->clients - p->residents;
        rc = add_client(c, i, home ? c->server : hosts[i % p->hosts]);
    }
    return rc;
}

int cluster_init(struct cluster *c, const struct cluster_params *p)
{
    if (!p->clients || !p->hosts || p->hosts >= SIM_HOSTS_MAX || !p->tasks || p->tasks > CLUSTER_TASKS_MAX ||
        p->residents > p->clients)
        return -EINVAL;
    memset(c, 0, sizeof *c);
    c->params = *p;
    struct sim_config config = {
        .model = p->model,
        .seed = p->seed,
        .faults = p->faults,
        .swarm = p->swarm,
        .safety_ns = p->safety_ns,
        .time_max_ns = p->time_max_ns,
        .tasks_max = p->clients * (p->tasks + 1) + 8 +
                     (p->design->serve ? (unsigned)model_get(p->model ? p->model : model_find("default"), MODEL_server_cores) : 0),
        .trace = p->trace,
        .events_max = p->events_max,
        .chooser = p->chooser,
    };
    int rc = sim_init(&c->sim, &config);
    if (rc)
        return rc;
    c->fabric = sim_fabric_new(&c->sim, p->fabric_caps);
    c->clients = sim_alloc(p->clients * sizeof *c->clients);
    c->node_seen = sim_alloc(slots_of(p) * sizeof *c->node_seen);
    const struct sim_hooks hooks = {.ctx = c, .process_crashed = on_crashed, .process_restarted = on_restarted};
    sim_hooks_add(&c->sim, &hooks);
    rc = c->fabric && c->clients && c->node_seen ? add_hosts(c) : -ENOMEM;
    if (rc)
        cluster_free(c);
    return rc;
}

void cluster_free(struct cluster *c)
{
    for (unsigned i = 0; c->clients && i < c->params.clients; i++) {
        sim_give_back(c->clients[i].session.shadow);
        sim_give_back(c->clients[i].session.seen);
        sim_give_back(c->clients[i].session.ranges);
        sim_give_back(c->clients[i].session.descs);
        sim_give_back(c->clients[i].session.design_state);
    }
    sim_give_back(c->clients);
    sim_give_back(c->node_seen);
    sim_give_back(c->server_memory);
    if (c->fabric)
        sim_fabric_free(c->fabric);
    sim_free(&c->sim);
}

enum sim_end cluster_run(struct cluster *c)
{
    enum sim_end end = SIM_UNTIL;
    while (c->clients_done < c->params.clients && end == SIM_UNTIL)
        end = sim_run(&c->sim, sim_now(&c->sim) + ROUND_NS);
    return end;
}
