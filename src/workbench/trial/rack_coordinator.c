/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of the simulated rack: the daemon's own code (cluster/service.h) in a task, over a simulated disk; and what
 * happens to it. Its host crashes or its process is killed at any time; its disk is slow, full, or flips a bit; an operator
 * restarts it with another lease or with another state, sets its clock, and starts a lock server where there is no place for one.
 */
#include "cluster/mistakes.h"
#include "lib/explain.h"
#include "workbench/trial/rack.h"
#include "world/sim_disk.h"

#include <errno.h>
#include <stdlib.h>

#define PORT 7
#define SALT UINT64_C(0x636f6f7264)
#define INBOX 256u               /* packets that wait: a socket's buffer */
#define BATCH 8u                 /* packets that are answered together */
#define CRASHES_MAX 12           /* in the time in which faults strike, on average */
#define SYNC_CRASH_ONE_IN 24     /* syncs */
#define FLIP_BYTES 700u          /* at the end of the log: bits are flipped there, where something is */
#define SYNC_NS (50 * NS_PER_US) /* of a disk that is not slow */
#define WALL_BEGIN 100000u
static const char PATH_OURS[] = "state";
static const char PATH_OTHER[] = "elsewhere";

struct rack_coordinator {
    struct rack *rack;
    struct sim_host *host;
    struct sim_process *process;
    struct sim_disk disk;
    struct service service;
    bool open, begun; /* begun: the space exists */
    struct rng random;
    uint32_t active; /* faults in this run */
    /* Set by the operator: */
    uint64_t lease_ns, member_ns, locks;
    const char *path;
    uint32_t wall; /* the clock, in lives */
    /* Faults of the disk: */
    uint64_t slow_ns, log_end;
    struct {
        bool is;
        uint64_t at;
        uint8_t bits;
    } flip;
    struct sim_ticket sleeper;
    unsigned first, count;
    struct {
        struct net_addr from;
        uint32_t len;
        _Alignas(8) uint8_t data[PACKET_MAX];
    } inbox[INBOX];
    struct service_answer answers[BATCH];
    struct design design; /* with the options that the seed has drawn */
    struct packet_design packet;
};

bool rack_coordinates(const struct design *d)
{
    return d->packet && !d->packet->steward_packet && !packet_divides(d->packet) &&
           (d->substrates & DESIGN_ON_UDP || d->kind == DESIGN_BUSTED);
}

struct sim_addr rack_coordinator_at(const struct rack *r)
{
    return (struct sim_addr){.host = r->coordinator->host->id, .port = PORT};
}

uint32_t rack_coordinator_version(const struct rack *r)
{
    return r->coordinator->open ? r->coordinator->service.coordinator.config.identity.version : 0;
}

static bool strikes(const struct rack_coordinator *k, enum fault kind)
{
    return (k->active & FAULT_BIT(kind)) && sim_now(&k->rack->sim) < k->rack->params.safety_ns;
}

static void count(const struct rack_coordinator *k, enum fault kind)
{
    k->rack->sim.faults.counts[kind]++;
}

/* ---- the process ---- */

static struct coord_params params_of(struct rack_coordinator *k)
{
    const struct rack_params *p = &k->rack->params;
    const struct rack_config *c = &k->rack->config;
    return (struct coord_params){
        .design = &k->design,
        .knobs = p->knobs,
        .space = "sim",
        .locks = k->locks,
        .lease_ns = k->lease_ns,
        .member_ns = max_u64(k->member_ns, k->lease_ns),
        .retry_ns = p->retry_ns,
        .machines = c->machines,
        .sessions = c->sessions,
        .requests = c->requests,
        .servers = c->servers,
        .life = k->wall,
        .fresh = !k->begun,
        .keys = PAWL_KEYS_NAMED,
        .mistakes = c->mistakes,
    };
}

static uint64_t clock_of(const struct rack_coordinator *k)
{
    return sim_host_clock(k->host, sim_now(&k->rack->sim));
}

static void start(void *arg, uint64_t tag);

/* The operator reads why, and puts it right after a while. If nothing was wrong, something is. */
static void refused(struct rack_coordinator *k)
{
    bool wrong = k->flip.is || k->path != PATH_OURS || k->disk.bytes_max;
    sim_note(&k->rack->sim, "REFUSED", k->host->id, k->flip.at, wrong);
    if (!wrong && k->rack->params.on_refused)
        k->rack->params.on_refused(k->rack->params.user, explained());
    if (k->flip.is)
        sim_disk_flip(sim_disk_find(&k->disk, PATH_OURS), k->flip.at, k->flip.bits);
    k->flip.is = false;
    k->path = PATH_OURS;
    k->disk.bytes_max = 0;
    sim_at(&k->rack->sim, sim_now(&k->rack->sim) + k->lease_ns / 4, start, k, k->process->generation);
}

static void send_all(struct rack_coordinator *k, unsigned answers)
{
    const struct sim_addr from = rack_coordinator_at(k->rack);
    for (unsigned i = 0; i < answers; i++)
        sim_wire_send(k->rack->wire, from, rack_sim_addr(k->answers[i].to), k->answers[i].bytes, k->answers[i].len);
    struct net_addr to;
    for (uint32_t len; (len = coordinator_more(&k->service.coordinator, k->answers[0].bytes, &to));)
        sim_wire_send(k->rack->wire, from, rack_sim_addr(to), k->answers[0].bytes, len);
}

static void run(struct rack_coordinator *k)
{
    struct sim *sim = &k->rack->sim;
    for (;;) {
        unsigned answers = 0;
        if (sim_now(sim) >= k->rack->params.safety_ns)
            k->disk.sync_ns = SYNC_NS; /* it has healed */
        for (unsigned n = 0; n < BATCH && k->count; n++, k->first = (k->first + 1) % INBOX, k->count--)
            answers += service_packet(&k->service, k->inbox[k->first].data, k->inbox[k->first].len, k->inbox[k->first].from,
                                      clock_of(k), &k->answers[answers]);
        send_all(k, service_commit(&k->service, k->answers, answers, clock_of(k)));
        if (MISTAKE(k->rack->config.mistakes, COORD_MISTAKE_EARLY))
            service_commit(&k->service, k->answers, 0, clock_of(k));
        k->log_end = k->service.file.end;
        coordinator_tick(&k->service.coordinator, clock_of(k));
        if (k->count)
            continue;
        k->sleeper = sim_ticket_take(sim_current(sim));
        sim_task_wait(sim_current(sim), sim_now(sim) + k->lease_ns / 8);
        k->sleeper.task = NULL;
    }
}

static void task(void *arg)
{
    struct rack_coordinator *k = arg;
    const struct coord_params p = params_of(k);
    const struct state_params where = {.disk = &k->disk.disk,
                                       .path = k->path,
                                       .how = k->begun ? STORE_CONTINUE : STORE_FRESH,
                                       .id = {rng_next(&k->random), rng_next(&k->random)},
                                       .life = k->wall};
    k->disk.sync_ns = 0;
    int rc = service_open(&k->service, &p, &where, clock_of(k));
    k->disk.sync_ns = k->slow_ns;
    if (rc) {
        refused(k);
        return;
    }
    k->open = k->begun = true;
    k->flip.is = false; /* it did no harm, and is repaired */
    if (MISTAKE(p.mistakes, COORD_MISTAKE_PLACES)) {
        memset(k->service.coordinator.server, 0, sizeof k->service.coordinator.server);
        k->service.coordinator.logged = false;
    }
    run(k);
}

static void start(void *arg, uint64_t tag)
{
    struct rack_coordinator *k = arg;
    if (!k->process->alive || k->process->generation != tag)
        return;
    const struct sim_task *t = sim_spawn(k->process, "coordinator", task, k);
    assert(t);
}

static void on_packet(void *ctx, const void *data, uint32_t len, struct sim_addr from)
{
    struct rack_coordinator *k = ctx;
    if (!k->open || k->count == INBOX || len > PACKET_MAX)
        return;
    unsigned at = (k->first + k->count++) % INBOX;
    k->inbox[at].from = rack_net_addr(from);
    k->inbox[at].len = len;
    memcpy(k->inbox[at].data, data, len);
    if (k->sleeper.task)
        sim_ticket_wake_at(k->sleeper, sim_now(&k->rack->sim));
}

static int bind_port(struct rack_coordinator *k)
{
    return sim_wire_bind(k->rack->wire, k->process, PORT, 0, 0, on_packet, k);
}

/* ---- what happens to it ---- */

/* Some hosts reach neither the coordinator nor the lock servers for a while: an operator who restarts one thing often restarts
 * more. */
static void cut_off(struct rack_coordinator *k)
{
    struct rack *r = k->rack;
    struct sim *sim = &r->sim;
    uint64_t hosts = rng_next(&k->random), longest = sim_now(sim) + 1 + rng_below(&k->random, 4 * r->params.lease_ns);
    if (!(sim->faults.active & FAULT_BIT(FAULT_PARTITION)))
        return;
    for (unsigned i = 0; i < r->params.hosts; i++)
        for (uint32_t host = r->hosts[i].host->id, other = 0; other < sim->host_count && (hosts >> i & 1); other++)
            if (other == k->host->id || other > r->params.hosts) { /* the coordinator is the first, then come the hosts */
                sim_partition(sim, host, other, min_u64(longest, r->params.safety_ns));
                sim_partition(sim, other, host, min_u64(longest, r->params.safety_ns));
            }
}

/* Before it starts: what the disk has done meanwhile, and what the operator says. */
static void meanwhile(struct rack_coordinator *k)
{
    struct rng *r = &k->random;
    k->path = PATH_OURS;
    k->disk.bytes_max = 0;
    if (strikes(k, FAULT_OPERATOR)) {
        count(k, FAULT_OPERATOR);
        if (rng_chance(r, 1, 2))
            k->lease_ns = (k->rack->params.lease_ns << rng_below(r, 4)) >> rng_below(r, 3); /* a quarter to eight times */
        if (rng_chance(r, 1, 4))
            k->member_ns = k->rack->params.lease_ns << rng_below(r, 5);
        k->wall = rng_chance(r, 1, 2) ? k->wall + 1 : (uint32_t)(1 + rng_below(r, 2 * WALL_BEGIN));
        if (rng_chance(r, 1, 3))
            k->path = PATH_OTHER;
        if (rng_chance(r, 1, 2))
            cut_off(k);
        if (mix64(rng_next(r)) % 8 == 0)
            k->locks += rng_below(r, k->rack->params.locks - k->locks + 1);
    }
    struct sim_disk_entry *e = sim_disk_find(&k->disk, PATH_OURS);
    if (!strikes(k, FAULT_DISK) || !e || k->path == PATH_OTHER || k->log_end < FLIP_BYTES || k->log_end > e->durable.size)
        return;
    count(k, FAULT_DISK);
    if (rng_chance(r, 1, 3))
        k->disk.bytes_max = 1; /* no room for another byte, until it starts again */
    if (rng_chance(r, 1, 3)) {
        k->flip.is = true;
        k->flip.bits = (uint8_t)(1u << rng_below(r, 8));
        k->flip.at = rng_chance(r, 1, 2) ? k->log_end - 1 - rng_below(r, FLIP_BYTES) : rng_below(r, e->durable.size);
        sim_disk_flip(e, k->flip.at, k->flip.bits);
    }
}

static void come_back(void *arg, uint64_t tag)
{
    struct rack_coordinator *k = arg;
    if (!k->host->up && k->host->births == tag)
        sim_host_restart(k->host);
}

static void restart_process(void *arg, uint64_t tag)
{
    struct rack_coordinator *k = arg;
    if (!k->process->alive && k->host->up && k->process->generation == tag)
        sim_process_restart(k->process);
}

static void crash(struct rack_coordinator *k, bool whole_host)
{
    struct sim *sim = &k->rack->sim;
    uint64_t back = sim_now(sim) + 1 + rng_below(&k->random, rng_chance(&k->random, 1, 2) ? k->lease_ns / 8 : 2 * k->lease_ns);
    if (!k->host->up || !k->process->alive)
        return;
    count(k, FAULT_CRASH_COORDINATOR);
    if (whole_host) {
        sim_host_crash(k->host);
        sim_at(sim, back, come_back, k, k->host->births);
    } else {
        sim_process_crash(k->process);
        sim_at(sim, back, restart_process, k, k->process->generation);
    }
}

static void strike(void *arg, uint64_t tag)
{
    struct rack_coordinator *k = arg;
    struct sim *sim = &k->rack->sim;
    uint64_t every = k->rack->params.safety_ns / (1 + tag);
    if (!strikes(k, FAULT_CRASH_COORDINATOR))
        return;
    sim_at_background(sim, sim_now(sim) + rng_between(&k->random, 1, 2 * every), strike, k, tag);
    crash(k, rng_chance(&k->random, 1, 2));
}

static void strike_sync(void *arg, uint64_t tag)
{
    struct rack_coordinator *k = arg;
    if (strikes(k, FAULT_CRASH_COORDINATOR) && k->process->generation == tag)
        crash(k, true);
}

/* The most interesting moments are while something is being written. */
static void on_sync(void *ctx, uint64_t until_ns)
{
    struct rack_coordinator *k = ctx;
    struct sim *sim = &k->rack->sim;
    if (strikes(k, FAULT_CRASH_COORDINATOR) && rng_chance(&k->random, 1, SYNC_CRASH_ONE_IN))
        sim_at_background(sim, rng_between(&k->random, sim_now(sim), until_ns + k->slow_ns / 4), strike_sync, k,
                          k->process->generation);
}

void rack_coordinator_crashed(struct rack *r, const struct sim_process *process)
{
    struct rack_coordinator *k = r->coordinator;
    if (!k || process != k->process)
        return;
    service_close(&k->service);
    k->open = false;
    k->sleeper.task = NULL;
    k->first = k->count = 0;
    if (!k->host->up) /* else what was written is still in the kernel's memory, and will be on the disk */
        sim_disk_crash(&k->disk);
}

void rack_coordinator_restarted(struct rack *r, const struct sim_process *process)
{
    struct rack_coordinator *k = r->coordinator;
    if (!k || process != k->process)
        return;
    int rc = bind_port(k);
    assert(!rc);
    meanwhile(k);
    sim_at(&r->sim, sim_now(&r->sim) + 1, start, k, process->generation);
}

/* The coordinator does not hear of a lock server and of some hosts for a while. They hear of each other. */
static void cut_off_granter(struct rack_coordinator *k)
{
    struct rack *r = k->rack;
    struct sim *sim = &r->sim;
    uint64_t lease = r->params.lease_ns, draw = rng_next(&k->random);
    uint64_t until = min_u64(sim_now(sim) + 2 * lease + rng_below(&k->random, 4 * (lease + k->member_ns)), r->params.safety_ns);
    uint32_t server = r->servers[draw % r->server_count].process->host->id;
    if (!(sim->faults.active & FAULT_BIT(FAULT_PARTITION)) || !rng_chance(&k->random, 2, 3))
        return;
    count(k, FAULT_PARTITION);
    sim_partition(sim, k->host->id, server, until);
    sim_partition(sim, server, k->host->id, until);
    for (unsigned i = 0; i < r->params.hosts; i++)
        if (draw >> (8 + i) & 1) {
            sim_partition(sim, k->host->id, r->hosts[i].host->id, until);
            sim_partition(sim, r->hosts[i].host->id, k->host->id, until);
        }
}

/* A lock server at another address, which asks for a place again and again. It is given one only if no host can use the old server
 * any more. */
static void start_spare(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    (void)tag;
    r->spare.spare = true;
    r->spare.machine = r->config.server[0];
    cut_off_granter(r->coordinator);
    int rc = rack_box_add(r, &r->spare, RACK_SERVER, sim_host_new(&r->sim));
    assert(!rc);
}

/* ---- the beginning and the end ---- */

/* All members of the rack use the configuration that the coordinator makes of its parameters. */
static int take_config(struct rack_coordinator *k)
{
    struct rack *r = k->rack;
    struct directory none;
    const char *why;
    r->config.machines = (uint16_t)(2 * r->config.machines + 2); /* a number is used again when its lease has ended */
    struct coord_params p = params_of(k);
    p.locks = r->params.locks; /* the space may grow up to this */
    uint64_t switch_locks = r->config.switch_locks;
    p.directory = &none;
    int rc = coordinator_config(&p, &r->config, &why);
    r->config.switch_locks = switch_locks;
    return rc;
}

int rack_coordinator_new(struct rack *r)
{
    struct rack_coordinator *k = calloc(1, sizeof *k);
    uint32_t enabled = r->params.faults & FAULTS_COORDINATOR;
    if (!k)
        return -ENOMEM;
    r->coordinator = k;
    k->rack = r;
    rng_seed(&k->random, r->params.seed ^ SALT);
    for (unsigned kind = FAULT_DRAWN; kind < FAULT_KINDS; kind++) /* the first one brings the others about */
        if ((enabled & FAULT_BIT(kind)) && (kind == FAULT_CRASH_COORDINATOR || rng_chance(&k->random, 3, 4)))
            k->active |= FAULT_BIT(kind);
    k->packet = *r->design;
    k->packet.options |= r->params.options;
    k->design = *r->params.design;
    k->design.packet = &k->packet;
    k->design.substrates |= DESIGN_ON_UDP; /* variants with a mistake are for simulations only */
    k->wall = WALL_BEGIN;
    k->path = PATH_OURS;
    k->lease_ns = r->params.lease_ns;
    k->locks = r->params.capacity ? r->params.capacity : r->params.locks;
    k->member_ns = r->params.member_ns;
    sim_disk_init(&k->disk, &r->sim, r->params.seed);
    k->disk.on_sync = on_sync;
    k->disk.ctx = k;
    k->slow_ns = k->active & FAULT_BIT(FAULT_DISK) ? 1 + rng_below(&k->random, r->params.lease_ns / 4) : SYNC_NS;
    k->host = sim_host_new(&r->sim);
    k->process = k->host ? sim_process_new(k->host) : NULL;
    int rc = k->process ? take_config(k) : -ENOMEM;
    return rc ? rc : bind_port(k);
}

void rack_coordinator_begin(struct rack *r)
{
    struct rack_coordinator *k = r->coordinator;
    uint64_t times = rng_below(&k->random, CRASHES_MAX);
    start(k, k->process->generation);
    if (k->active & FAULT_BIT(FAULT_OPERATOR) && r->server_count)
        sim_at_background(&r->sim, rng_below(&k->random, r->params.safety_ns / 2), start_spare, r, 0);
    if (k->active & FAULT_BIT(FAULT_CRASH_COORDINATOR))
        sim_at_background(&r->sim, 1 + rng_below(&k->random, 1 + r->params.safety_ns / (1 + times)), strike, k, times);
}

void rack_coordinator_free(struct rack *r)
{
    struct rack_coordinator *k = r->coordinator;
    if (!k)
        return;
    service_close(&k->service);
    sim_disk_free(&k->disk);
    free(k);
    r->coordinator = NULL;
}
