/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinators of the simulated rack: the daemon's own code (cluster/service.h) in a task, over a simulated disk or etcd. */
#include "workbench/trial/rack_coordinator.h"
#include "cluster/coordinator_internal.h"
#include "cluster/mistakes.h"
#include "lib/explain.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdlib.h>

#define PORT 7
#define SALT UINT64_C(0x636f6f7264)
#define SALT_ETCD UINT64_C(0x65746364)
#define SYNC_NS (50 * NS_PER_US) /* of a disk that is not slow */
#define COORDINATORS_MAX 3u

bool rack_coordinates(const struct design *d)
{
    return d->packet && (d->substrates & DESIGN_ON_UDP || d->kind == DESIGN_BUSTED);
}

static struct sim_addr address_of(const struct rack_coordinator *k)
{
    return (struct sim_addr){.host = k->host->id, .port = PORT};
}

struct coord_list rack_coordinators(const struct rack *r)
{
    struct coord_list l = {.count = rack_coordinator_count(r)};
    for (unsigned i = 0; i < l.count; i++)
        l.at[i] = rack_net_addr(address_of(&r->coordinator[i]));
    return l;
}

uint32_t rack_coordinator_version(const struct rack *r)
{
    for (unsigned i = 0; i < rack_coordinator_count(r); i++)
        if (r->coordinator[i].open)
            return r->coordinator[i].service.coordinator.config.identity.version;
    return 0;
}

uint32_t rack_coordinator_life(const struct rack *r, unsigned i)
{
    return r->coordinator[i].open ? r->coordinator[i].service.coordinator.life : 0;
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
        .beat_ns = k->lease_ns / RACK_BEATS_OF_LEASE,
        .retry_ns = p->retry_ns,
        .machines = c->machines,
        .sessions = c->sessions,
        .requests = c->requests,
        .servers = c->servers,
        .racks = c->racks,
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
    bool wrong = k->flip.is || k->elsewhere || k->disk.bytes_max;
    sim_note(&k->rack->sim, "REFUSED", k->host->id, k->flip.at, wrong);
    if (!wrong && k->rack->params.on_refused)
        k->rack->params.on_refused(k->rack->params.user, explained());
    if (k->flip.is)
        sim_disk_flip(sim_disk_find(&k->disk, RACK_LOG), k->flip.at, k->flip.bits);
    k->flip.is = false;
    k->elsewhere = false;
    k->disk.bytes_max = 0;
    sim_at(&k->rack->sim, sim_now(&k->rack->sim) + k->lease_ns / 4, start, k, k->process->generation);
}

/* As node/coordinating.c. */
static void send_news(struct rack_coordinator *k, const struct coord_packet *p)
{
    _Alignas(8) uint8_t bytes[PACKET_MAX];
    struct net_addr to;
    uint32_t len;
    for (unsigned s = 0; p->head.type == COORD_WELCOME && p->role == COORD_HOST &&
                         (len = coordinator_news(&k->service.coordinator, p->head.to.machine, &s, bytes, &to));)
        sim_wire_send(k->rack->wire, address_of(k), rack_sim_addr(to), bytes, len);
}

static void send_all(struct rack_coordinator *k, unsigned answers)
{
    const struct sim_addr from = address_of(k);
    for (unsigned i = 0; i < answers; i++)
        send_news(k, (const struct coord_packet *)(const void *)k->answers[i].bytes);
    for (unsigned i = 0; i < answers; i++)
        sim_wire_send(k->rack->wire, from, rack_sim_addr(k->answers[i].to), k->answers[i].bytes, k->answers[i].len);
    struct net_addr to;
    for (uint32_t len; (len = coordinator_more(&k->service.coordinator, k->answers[0].bytes, &to));)
        sim_wire_send(k->rack->wire, from, rack_sim_addr(to), k->answers[0].bytes, len);
}

/* The steward answers the sender. */
static void for_steward(struct rack_coordinator *k, const void *data, uint32_t len, struct net_addr from)
{
    const struct outbox *o = service_steward_packet(&k->service, data, len, clock_of(k));
    for (unsigned i = 0; i < o->packets; i++)
        sim_wire_send(k->rack->wire, address_of(k), rack_sim_addr(from), outbox_packet(o, i), o->packet[i].len);
}

/* The first packets that wait. How many answers there are. */
static unsigned take_batch(struct rack_coordinator *k)
{
    unsigned answers = 0;
    for (unsigned n = 0; n < BATCH && k->count; n++, k->first = (k->first + 1) % INBOX, k->count--) {
        const void *data = k->inbox[k->first].data;
        uint32_t len = k->inbox[k->first].len;
        if (service_is_for_steward(&k->service, data, len))
            for_steward(k, data, len, k->inbox[k->first].from);
        else
            answers += service_packet(&k->service, data, len, k->inbox[k->first].from, clock_of(k), &k->answers[answers]);
    }
    return answers;
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
    k->service.coordinator.keyed = k->rack->params.faults & FAULT_BIT(FAULT_REPLAY); /* without tags: rack_replay.c */
    while (service_leads(&k->service)) {
        if (sim_now(&k->rack->sim) >= k->rack->params.safety_ns)
            k->disk.sync_ns = SYNC_NS; /* it has healed */
        unsigned answers = take_batch(k);
        send_all(k, service_commit(&k->service, k->answers, answers, clock_of(k)));
        if (MISTAKE(k->rack->config.mistakes, COORD_MISTAKE_EARLY | COORD_MISTAKE_AHEAD))
            service_commit(&k->service, k->answers, 0, clock_of(k));
        k->log_end = k->service.file.end;
        coordinator_tick(&k->service.coordinator, clock_of(k));
        service_steward_tick(&k->service, clock_of(k));
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
                                       .path = k->elsewhere ? "elsewhere" : RACK_LOG,
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
    if (!rc && k->rack->design->steward_packet)
        rc = sim_wire_bind(k->rack->wire, k->process, PORT_POOL, 0, 0, on_packet, k);
    return rc;
}

static struct rack_coordinator *coordinator_of(struct rack *r, const struct sim_process *process)
{
    for (unsigned i = 0; r->coordinator && i < rack_coordinator_count(r); i++)
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
    k->open = k->up = false;
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
    rack_trouble_meanwhile(k);
    sim_at(&r->sim, sim_now(&r->sim) + 1, start, k, process->generation);
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
    if (!(r->params.faults & FAULT_BIT(FAULT_ETCD)) || !(rng_chance(&random, 1, 3) || must))
        return 0;
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
    k->lease_ns = r->params.lease_ns;
    k->locks = r->params.capacity ? r->params.capacity : r->params.locks;
    k->member_ns = r->params.member_ns;
    sim_disk_init(&k->disk, &r->sim, r->params.seed);
    k->disk.on_sync = rack_trouble_on_sync;
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
    if (!rc && !(r->coordinator = calloc(rack_coordinator_count(r), sizeof *r->coordinator)))
        rc = -ENOMEM;
    for (unsigned i = 0; !rc && i < rack_coordinator_count(r); i++)
        rc = coordinator_init_at(r, i);
    if (!rc)
        rc = take_config(r->coordinator);
    for (unsigned i = 0; !rc && i < rack_coordinator_count(r); i++)
        rc = bind_port(&r->coordinator[i]);
    return rc;
}

void rack_coordinator_begin(struct rack *r)
{
    for (unsigned i = 0; i < rack_coordinator_count(r); i++) {
        struct rack_coordinator *k = &r->coordinator[i];
        start(k, k->process->generation);
        rack_trouble_begin(k);
    }
    if (r->etcd)
        rack_trouble_begin_etcd(r);
}

void rack_coordinator_free(struct rack *r)
{
    for (unsigned i = 0; r->coordinator && i < rack_coordinator_count(r); i++) {
        service_close(&r->coordinator[i].service);
        free(r->coordinator[i].store.buffer); /* of one that crashed while it opened the log */
        sim_disk_free(&r->coordinator[i].disk);
    }
    if (r->etcd)
        sim_etcd_free(&r->etcd->server);
    free(r->etcd);
    free(r->coordinator);
    r->coordinator = NULL;
    r->etcd = NULL;
}
