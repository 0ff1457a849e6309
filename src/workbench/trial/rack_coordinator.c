/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of the simulated rack: the daemon's own code (cluster/service.h) in a task, over a simulated disk; and what
 * happens to it. Its host crashes or its process is killed at any time; its disk is slow, full, or flips a bit; an operator
 * restarts it with another lease or with another state, sets its clock, and starts a lock server where there is no place for one.
 */
#include "cluster/mistakes.h"
#include "lib/explain.h"
#include "lib/hash.h"
#include "workbench/trial/rack.h"
#include "world/sim_disk.h"
#include "world/sim_etcd.h"

#include <errno.h>
#include <stdlib.h>

#define PORT 7
#define SALT UINT64_C(0x636f6f7264)
#define SALT_ETCD UINT64_C(0x65746364)
#define INBOX 256u               /* packets that wait: a socket's buffer */
#define BATCH 8u                 /* packets that are answered together */
#define STRIKES_MAX 12           /* on leaders, likewise */
#define CRASHES_MAX 12           /* in the time in which faults strike, on average */
#define SYNC_CRASH_ONE_IN 24     /* syncs */
#define FLIP_BYTES 700u          /* at the end of the log: bits are flipped there, where something is */
#define SYNC_NS (50 * NS_PER_US) /* of a disk that is not slow */
#define WALL_BEGIN 100000u
static const char PATH_OURS[] = "state";
static const char PATH_OTHER[] = "elsewhere";

#define COORDINATORS_MAX 3u

/* The etcd of several coordinators. */
struct rack_etcd {
    struct sim_etcd server;
    unsigned coordinators;
    uint64_t lease_ns; /* of leaders */
    bool begun;        /* the space exists */
};

struct rack_coordinator {
    struct rack *rack;
    unsigned number;
    struct sim_etcd_client client; /* if there is etcd, and: */
    struct store_etcd store;
    bool up; /* it stands by, or leads */
    struct sim_host *host;
    struct sim_process *process;
    struct sim_disk disk;
    struct service service;
    bool open, begun; /* begun: the space exists */
    void *steward;    /* of designs that have one: it runs with the coordinator */
    bool steward_runs, steward_fresh;
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
    return d->packet && !packet_divides(d->packet) && (d->substrates & DESIGN_ON_UDP || d->kind == DESIGN_BUSTED);
}

static unsigned count_of(const struct rack *r)
{
    return r->etcd ? r->etcd->coordinators : 1;
}

static struct sim_addr address_of(const struct rack_coordinator *k)
{
    return (struct sim_addr){.host = k->host->id, .port = PORT};
}

struct coord_list rack_coordinators(const struct rack *r)
{
    struct coord_list l = {.count = count_of(r)};
    for (unsigned i = 0; i < l.count; i++)
        l.at[i] = rack_net_addr(address_of(&r->coordinator[i]));
    return l;
}

uint32_t rack_coordinator_version(const struct rack *r)
{
    for (unsigned i = 0; i < count_of(r); i++)
        if (r->coordinator[i].open)
            return r->coordinator[i].service.coordinator.config.identity.version;
    return 0;
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
        .fresh = k->rack->etcd ? !k->rack->etcd->begun : !k->begun,
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
    const struct sim_addr from = address_of(k);
    for (unsigned i = 0; i < answers; i++)
        sim_wire_send(k->rack->wire, from, rack_sim_addr(k->answers[i].to), k->answers[i].bytes, k->answers[i].len);
    struct net_addr to;
    for (uint32_t len; (len = coordinator_more(&k->service.coordinator, k->answers[0].bytes, &to));)
        sim_wire_send(k->rack->wire, from, rack_sim_addr(to), k->answers[0].bytes, len);
}

/* The steward begins when members may join, and loses its memory with the process. */
static bool steward_runs(struct rack_coordinator *k)
{
    const struct packet_design *d = k->rack->design;
    const struct coordinator *c = &k->service.coordinator;
    if (k->steward && !k->steward_runs && k->open && !c->changed) {
        memset(k->steward, 0, d->steward_bytes(&c->config));
        d->steward_init(k->steward, &c->config, k->service.first_life, k->steward_fresh, clock_of(k));
        k->steward_runs = true;
    }
    return k->steward_runs;
}

static void steward_tick(struct rack_coordinator *k)
{
    if (!steward_runs(k))
        return;
    k->rack->design->steward_tick(k->steward, clock_of(k), &k->rack->outbox);
    rack_send_all(k->rack, k->host);
    rack_clear_outbox(k->rack);
}

static void on_steward_packet(void *ctx, const void *data, uint32_t len, struct sim_addr from)
{
    struct rack_coordinator *k = ctx;
    (void)from;
    if (!k->steward_runs)
        return;
    k->rack->design->steward_packet(k->steward, data, len, clock_of(k), &k->rack->outbox);
    rack_send_all(k->rack, k->host);
    rack_clear_outbox(k->rack);
}

static void sleep_for(struct rack_coordinator *k, uint64_t ns)
{
    struct sim *sim = &k->rack->sim;
    k->sleeper = sim_ticket_take(sim_current(sim));
    sim_task_wait(sim_current(sim), sim_now(sim) + ns);
    k->sleeper.task = NULL;
}

/* Until it leads no more. */
static void run(struct rack_coordinator *k)
{
    while (service_leads(&k->service)) {
        unsigned answers = 0;
        if (sim_now(&k->rack->sim) >= k->rack->params.safety_ns)
            k->disk.sync_ns = SYNC_NS; /* it has healed */
        for (unsigned n = 0; n < BATCH && k->count; n++, k->first = (k->first + 1) % INBOX, k->count--)
            answers += service_packet(&k->service, k->inbox[k->first].data, k->inbox[k->first].len, k->inbox[k->first].from,
                                      clock_of(k), &k->answers[answers]);
        send_all(k, service_commit(&k->service, k->answers, answers, clock_of(k)));
        if (MISTAKE(k->rack->config.mistakes, COORD_MISTAKE_EARLY | COORD_MISTAKE_AHEAD))
            service_commit(&k->service, k->answers, 0, clock_of(k));
        k->log_end = k->service.file.end;
        coordinator_tick(&k->service.coordinator, clock_of(k));
        steward_tick(k);
        if (!k->count)
            sleep_for(k, (k->rack->etcd ? k->rack->etcd->lease_ns : k->lease_ns) / 8);
    }
}

/* ---- with etcd ---- */

/* Until it leads: says so to members that ask, and looks whether the leader is still there. */
static void stand_by(struct rack_coordinator *k)
{
    struct leader *l = &k->store.leader;
    for (;;) {
        for (; k->count; k->first = (k->first + 1) % INBOX, k->count--) {
            uint32_t len = coord_stand_by(k->inbox[k->first].data, k->inbox[k->first].len, k->store.identity.id, "sim",
                                          l->seen.term.at, k->answers[0].bytes);
            if (len)
                sim_wire_send(k->rack->wire, address_of(k), rack_sim_addr(k->inbox[k->first].from), k->answers[0].bytes, len);
        }
        if (!store_etcd_look(&k->store, clock_of(k) + l->lease_ns) && leader_is_vacant(l) && !leader_take(l))
            return;
        sleep_for(k, l->lease_ns / 8);
    }
}

/* One that cannot be reached, or is faster: it stands by again. All else is wrong with the state. */
static bool is_passing(int rc)
{
    return rc == -ESTALE || rc == -ETIMEDOUT || rc == -EBUSY;
}

static void lead(struct rack_coordinator *k)
{
    const struct coord_params p = params_of(k);
    const struct state_params where = {.etcd = &k->store,
                                       .how = k->rack->etcd->begun ? STORE_CONTINUE : STORE_FRESH,
                                       .id = {rng_next(&k->random), rng_next(&k->random)},
                                       .life = k->wall};
    int rc = service_open(&k->service, &p, &where, clock_of(k));
    sim_note(&k->rack->sim, "LEADS", k->host->id, k->store.leader.number, (uint64_t)-rc);
    if (rc && !is_passing(rc) && k->rack->params.on_refused)
        k->rack->params.on_refused(k->rack->params.user, explained());
    if (rc)
        return;
    k->open = k->rack->etcd->begun = true;
    run(k);
    k->open = false;
    service_close(&k->service);
}

static void task_with_etcd(struct rack_coordinator *k)
{
    const struct leader_params p = {.etcd = &k->client.etcd,
                                    .prefix = "pawl",
                                    .space = "sim",
                                    .place = "etcd://sim/pawl",
                                    .lease_ns = k->rack->etcd->lease_ns,
                                    .nonce = mix64(sim_now(&k->rack->sim) ^ mix64(k->number + UINT64_C(1))) | 1,
                                    .at = rack_net_addr(address_of(k)),
                                    .mistakes = k->rack->config.mistakes};
    int rc = leader_open(&k->store.leader, &p);
    assert(!rc);
    k->up = true;
    for (;;) {
        stand_by(k);
        lead(k);
    }
}

static void task(void *arg)
{
    struct rack_coordinator *k = arg;
    if (k->rack->etcd)
        task_with_etcd(k);
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
    k->steward_fresh = p.fresh;
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
    if (!(k->open || k->up) || k->count == INBOX || len > PACKET_MAX)
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
    int rc = sim_wire_bind(k->rack->wire, k->process, PORT, 0, 0, on_packet, k);
    if (!rc && k->steward)
        rc = sim_wire_bind(k->rack->wire, k->process, PORT_POOL, 0, 0, on_steward_packet, k);
    return rc;
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
            if (other < count_of(r) ||
                other >= count_of(r) + r->params.hosts) { /* coordinators are the first, then come the hosts */
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
        for (unsigned i = 0; i < count_of(k->rack); i++) { /* all have the same settings, from their next start on */
            k->rack->coordinator[i].lease_ns = k->lease_ns;
            k->rack->coordinator[i].member_ns = k->member_ns;
            k->rack->coordinator[i].locks = k->locks;
        }
    }
    struct sim_disk_entry *e = sim_disk_find(&k->disk, PATH_OURS);
    if (k->rack->etcd || !strikes(k, FAULT_DISK) || !e || k->path == PATH_OTHER || k->log_end < FLIP_BYTES ||
        k->log_end > e->durable.size)
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

/* A coordinator is stopped and goes on, or does not reach etcd for a while: most often the leader, and for longer than its lease.
 */
static void strike_leader(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    struct rack_coordinator *k = &r->coordinator[rng_below(&r->coordinator->random, count_of(r))];
    struct rng *random = &r->coordinator->random;
    uint64_t now = sim_now(&r->sim), until = now + 1 + rng_below(random, 4 * r->params.lease_ns);
    if (!strikes(k, FAULT_ETCD))
        return;
    sim_at_background(&r->sim, now + rng_between(random, 1, 2 * r->params.safety_ns / (1 + tag)), strike_leader, r, tag);
    for (unsigned i = 0; i < count_of(r) && rng_chance(random, 3, 4); i++)
        if (r->coordinator[i].open)
            k = &r->coordinator[i];
    count(k, FAULT_ETCD);
    if (rng_chance(random, 1, 2))
        k->client.cut_until_ns = until;
    else if (k->process->alive)
        sim_process_pause(k->process, min_u64(until, r->params.safety_ns));
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

static struct rack_coordinator *coordinator_of(struct rack *r, const struct sim_process *process)
{
    for (unsigned i = 0; r->coordinator && i < count_of(r); i++)
        if (r->coordinator[i].process == process)
            return &r->coordinator[i];
    return NULL;
}

void rack_coordinator_crashed(struct rack *r, const struct sim_process *process)
{
    struct rack_coordinator *k = coordinator_of(r, process);
    if (!k)
        return;
    service_close(&k->service);
    k->open = k->up = k->steward_runs = false;
    k->sleeper.task = NULL;
    k->first = k->count = 0;
    if (!k->host->up) /* else what was written is still in the kernel's memory, and will be on the disk */
        sim_disk_crash(&k->disk);
}

void rack_coordinator_restarted(struct rack *r, const struct sim_process *process)
{
    struct rack_coordinator *k = coordinator_of(r, process);
    if (!k)
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

/* Whether coordinators share an etcd, and how many there are. */
static int draw_etcd(struct rack *r)
{
    struct rng random; /* of its own: runs without etcd are what they were */
    bool must = !(r->params.faults & FAULT_BIT(FAULT_DISK));
    rng_seed(&random, r->params.seed ^ SALT_ETCD);
    if (!(r->params.faults & FAULT_BIT(FAULT_ETCD)) || !(rng_chance(&random, 1, 3) || must) || r->design->steward_packet)
        return 0; /* a steward is in one place */
    struct rack_etcd *e = r->etcd = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    sim_etcd_init(&e->server, &r->sim, r->params.seed);
    e->coordinators = 1 + (unsigned)rng_below(&random, COORDINATORS_MAX);
    e->lease_ns = r->params.lease_ns / (1 + rng_below(&random, 8));
    e->server.travel_ns = 1 + e->lease_ns / (20 + rng_below(&random, 200));
    e->server.late_ns = 1 + rng_below(&random, 6 * e->lease_ns);
    e->server.lossy = 2 + (unsigned)rng_below(&random, 30);
    e->server.calm_ns = r->params.safety_ns;
    return 0;
}

static int coordinator_init_at(struct rack *r, unsigned number)
{
    struct rack_coordinator *k = &r->coordinator[number];
    uint32_t enabled = r->params.faults & FAULTS_COORDINATOR;
    k->rack = r;
    k->number = number;
    rng_seed(&k->random, (r->params.seed ^ SALT) + number);
    for (unsigned kind = FAULT_DRAWN; kind < FAULT_ETCD; kind++) /* the first one brings the others about */
        if ((enabled & FAULT_BIT(kind)) && (kind == FAULT_CRASH_COORDINATOR || rng_chance(&k->random, 3, 4)))
            k->active |= FAULT_BIT(kind);
    k->active |= r->etcd ? FAULT_BIT(FAULT_ETCD) : 0;
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
    if (!k->process)
        return -ENOMEM;
    if (r->etcd)
        sim_etcd_client_init(&k->client, &r->etcd->server, k->host);
    return 0;
}

int rack_coordinator_new(struct rack *r)
{
    int rc = draw_etcd(r);
    if (!rc && !(r->coordinator = calloc(count_of(r), sizeof *r->coordinator)))
        rc = -ENOMEM;
    for (unsigned i = 0; !rc && i < count_of(r); i++)
        rc = coordinator_init_at(r, i);
    if (!rc)
        rc = take_config(r->coordinator);
    if (!rc && r->design->steward_packet && !(r->coordinator->steward = calloc(1, r->design->steward_bytes(&r->config))))
        rc = -ENOMEM;
    for (unsigned i = 0; !rc && i < count_of(r); i++)
        rc = bind_port(&r->coordinator[i]);
    return rc;
}

void rack_coordinator_begin(struct rack *r)
{
    uint32_t active = r->coordinator->active;
    for (unsigned i = 0; i < count_of(r); i++) {
        struct rack_coordinator *k = &r->coordinator[i];
        uint64_t times = rng_below(&k->random, CRASHES_MAX);
        start(k, k->process->generation);
        if (active & FAULT_BIT(FAULT_OPERATOR) && r->server_count && !i)
            sim_at_background(&r->sim, rng_below(&k->random, r->params.safety_ns / 2), start_spare, r, 0);
        if (k->active & FAULT_BIT(FAULT_CRASH_COORDINATOR))
            sim_at_background(&r->sim, 1 + rng_below(&k->random, 1 + r->params.safety_ns / (1 + times)), strike, k, times);
    }
    if (r->etcd)
        sim_at_background(&r->sim, 1 + rng_below(&r->coordinator->random, r->params.safety_ns / 4), strike_leader, r,
                          1 + rng_below(&r->coordinator->random, STRIKES_MAX));
}

void rack_coordinator_free(struct rack *r)
{
    for (unsigned i = 0; r->coordinator && i < count_of(r); i++) {
        service_close(&r->coordinator[i].service);
        free(r->coordinator[i].store.buffer); /* of one that crashed while it opened the log */
        sim_disk_free(&r->coordinator[i].disk);
        free(r->coordinator[i].steward);
    }
    if (r->etcd)
        sim_etcd_free(&r->etcd->server);
    free(r->etcd);
    free(r->coordinator);
    r->coordinator = NULL;
    r->etcd = NULL;
}
