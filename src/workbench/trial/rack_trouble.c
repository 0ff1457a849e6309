/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the coordinators of the simulated rack: their hosts crash or their processes are killed at any time; a disk is
 * full, or flips a bit; leaders are stopped, or do not reach etcd; an operator restarts them with another lease or with another
 * state, sets their clocks, and starts a lock server or a switch where there is no place for one. */
#include "lib/hash.h"
#include "workbench/trial/rack_coordinator.h"

#define STRIKES_MAX 12       /* on leaders, likewise */
#define CRASHES_MAX 12       /* in the time in which faults strike, on average */
#define SYNC_CRASH_ONE_IN 24 /* syncs */
#define SALT_SWITCH UINT64_C(0x737769746368)
#define SALT_PAIR UINT64_C(0x70616972)
#define SALT_STOP UINT64_C(0x73746f70)
#define SALT_WELCOME UINT64_C(0x77656c636f6d65)
#define FLIP_BYTES 700u /* at the end of the log: bits are flipped there, where something is */

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
            if (other < rack_coordinator_count(r) ||
                other >= rack_coordinator_count(r) + r->params.hosts) { /* coordinators are the first, then come the hosts */
                sim_partition(sim, host, other, min_u64(longest, r->params.safety_ns));
                sim_partition(sim, other, host, min_u64(longest, r->params.safety_ns));
            }
}

void rack_trouble_meanwhile(struct rack_coordinator *k)
{
    struct rng *r = &k->random;
    k->elsewhere = false;
    k->disk.bytes_max = 0;
    if (rack_strikes(k, FAULT_OPERATOR)) {
        rack_count_fault(k, FAULT_OPERATOR);
        if (rng_chance(r, 1, 2))
            k->lease_ns = (k->rack->params.lease_ns << rng_below(r, 4)) >> rng_below(r, 3); /* a quarter to eight times */
        if (rng_chance(r, 1, 4))
            k->member_ns = k->rack->params.lease_ns << rng_below(r, 5);
        k->wall = rng_chance(r, 1, 2) ? k->wall + 1 : (uint32_t)(1 + rng_below(r, 2 * WALL_BEGIN));
        if (rng_chance(r, 1, 3))
            k->elsewhere = true;
        if (rng_chance(r, 1, 2))
            cut_off(k);
        if (mix64(rng_next(r)) % 8 == 0)
            k->locks += rng_below(r, k->rack->params.locks - k->locks + 1);
        for (unsigned i = 0; i < rack_coordinator_count(k->rack); i++) { /* all have the same settings, from their next start on */
            k->rack->coordinator[i].lease_ns = k->lease_ns;
            k->rack->coordinator[i].member_ns = k->member_ns;
            k->rack->coordinator[i].locks = k->locks;
        }
        k->rack->longest_ns = max_u64(k->rack->longest_ns, k->lease_ns);
    }
    struct sim_disk_entry *e = sim_disk_find(&k->disk, RACK_LOG);
    if (k->rack->etcd || !rack_strikes(k, FAULT_DISK) || !e || k->elsewhere || k->log_end < FLIP_BYTES ||
        k->log_end > e->durable.size)
        return;
    rack_count_fault(k, FAULT_DISK);
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
    rack_count_fault(k, FAULT_CRASH_COORDINATOR);
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
    if (!rack_strikes(k, FAULT_CRASH_COORDINATOR))
        return;
    sim_at_background(sim, sim_now(sim) + rng_between(&k->random, 1, 2 * every), strike, k, tag);
    crash(k, rng_chance(&k->random, 1, 2));
}

/* A coordinator is stopped and goes on, or does not reach etcd for a while: most often the leader, and for longer than its lease.
 */
static void strike_leader(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    struct rack_coordinator *k = &r->coordinator[rng_below(&r->coordinator->random, rack_coordinator_count(r))];
    struct rng *random = &r->coordinator->random;
    uint64_t now = sim_now(&r->sim), until = now + 1 + rng_below(random, 4 * r->params.lease_ns);
    if (!rack_strikes(k, FAULT_ETCD))
        return;
    sim_at_background(&r->sim, now + rng_between(random, 1, 2 * r->params.safety_ns / (1 + tag)), strike_leader, r, tag);
    for (unsigned i = 0; i < rack_coordinator_count(r) && rng_chance(random, 3, 4); i++)
        if (r->coordinator[i].open)
            k = &r->coordinator[i];
    rack_count_fault(k, FAULT_ETCD);
    if (rng_chance(random, 1, 2))
        k->client.cut_until_ns = until;
    else if (k->process->alive)
        sim_process_pause(k->process, min_u64(until, r->params.safety_ns));
}

static void strike_sync(void *arg, uint64_t tag)
{
    struct rack_coordinator *k = arg;
    if (rack_strikes(k, FAULT_CRASH_COORDINATOR) && k->process->generation == tag)
        crash(k, true);
}

/* The most interesting moments are while something is being written. */
void rack_trouble_on_sync(void *ctx, uint64_t until_ns)
{
    struct rack_coordinator *k = ctx;
    struct sim *sim = &k->rack->sim;
    if (rack_strikes(k, FAULT_CRASH_COORDINATOR) && rng_chance(&k->random, 1, SYNC_CRASH_ONE_IN))
        sim_at_background(sim, rng_between(&k->random, sim_now(sim), until_ns + k->slow_ns / 4), strike_sync, k,
                          k->process->generation);
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
    rack_count_fault(k, FAULT_PARTITION);
    sim_partition(sim, k->host->id, server, until);
    sim_partition(sim, server, k->host->id, until);
    for (unsigned i = 0; i < r->params.hosts; i++)
        if (draw >> (8 + i) & 1) {
            sim_partition(sim, k->host->id, r->hosts[i].host->id, until);
            sim_partition(sim, r->hosts[i].host->id, k->host->id, until);
        }
}

static void find_server(void *arg, uint64_t tag)
{
    struct rack_box *b = arg;
    if (!b->member.running && b->process->alive && b->process->generation == tag)
        rack_member_start(&b->member);
}

/* A lock server is stopped in order, and started again later: it says that it decides nothing any more, so no host is waited for.
 */
static void stop_server(struct rack *r)
{
    struct rng random; /* of its own: runs in which none is stopped are what they were */
    rng_seed(&random, r->params.seed ^ SALT_STOP);
    struct rack_box *b = &r->servers[rng_below(&random, r->server_count)];
    if (!rng_chance(&random, 1, 4) || !b->process->alive)
        return;
    rack_member_leave(&b->member);
    uint64_t until = sim_now(&r->sim) + 1 + rng_below(&random, 4 * r->params.lease_ns);
    sim_at(&r->sim, max_u64(min_u64(until, r->params.safety_ns), sim_now(&r->sim) + 1), find_server, b, b->process->generation);
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
    stop_server(r);
    int rc = rack_box_add(r, &r->spare, RACK_SERVER, sim_host_new(&r->sim));
    assert(!rc);
}

static void find_switch(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    (void)tag;
    r->spare_switch.member.core.join.force = false;
    if (!r->switch_members[0].running)
        rack_member_start(&r->switch_members[0]);
}

/* The operator knows that no switch decides anything, and starts the other one with --force, until there is one again. */
static void force_other(struct rack *r)
{
    struct rack_member *m = &r->spare_switch.member;
    if (!m->running || rack_member_decides(m))
        return;
    rack_member_start(m);
    m->core.join.force = true;
}

/* The switch is lost for a while, which it may have said before, or reaches no coordinator and goes on with the hosts that it has,
 * of which some do not reach a coordinator either. */
static void lose_switch(struct rack *r, struct rng *random)
{
    struct sim *sim = &r->sim;
    uint64_t lease = r->params.lease_ns, draw = rng_next(random);
    uint64_t until =
        min_u64(sim_now(sim) + 2 * lease + rng_below(random, 4 * (lease + r->coordinator->member_ns)), r->params.safety_ns);
    rack_count_fault(r->coordinator, FAULT_PARTITION);
    if (draw & 1) {
        if (draw & 2)
            rack_member_leave(&r->switch_members[0]);
        else
            rack_member_stop(&r->switch_members[0]);
        if (draw & 4)
            force_other(r);
        sim_at_background(sim, until, find_switch, r, 0);
    }
    r->switch_cut_ns = until;
    for (unsigned c = 0; c < rack_coordinator_count(r); c++)
        for (unsigned i = 0; i < r->params.hosts; i++)
            if (draw >> (8 + i) & 1) {
                sim_partition(sim, r->coordinator[c].host->id, r->hosts[i].host->id, until);
                sim_partition(sim, r->hosts[i].host->id, r->coordinator[c].host->id, until);
            }
}

/* A switch at another address, which asks for the place of the first one again and again. It is given the place only if no host can
 * use the first one any more. Both may be lost later, and take the place of each other. */
static void start_spare_switch(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    struct rng random;
    rng_seed(&random, r->params.seed ^ mix64(SALT_SWITCH + tag));
    if (!r->spare_switch.process) {
        int rc = rack_box_add(r, &r->spare_switch, RACK_SWITCH, sim_host_new(&r->sim));
        assert(!rc);
        r->spare_switch.member.waits = mix64(r->params.seed ^ SALT_PAIR) & 1; /* else it takes the place of a silent one only */
    }
    if (sim_now(&r->sim) >= r->params.safety_ns)
        return;
    if (r->sim.faults.active & FAULT_BIT(FAULT_PARTITION))
        lose_switch(r, &random);
    sim_at_background(&r->sim, sim_now(&r->sim) + 1 + rng_below(&random, 16 * r->params.lease_ns), start_spare_switch, r, tag + 1);
}

/* Of several switches the first one. */
static void begin_spare_switch(struct rack_coordinator *k)
{
    struct rack *r = k->rack;
    struct rng random; /* of its own: runs without another switch are what they were */
    rng_seed(&random, r->params.seed ^ SALT_SWITCH);
    if (k->active & FAULT_BIT(FAULT_OPERATOR) && !k->number && r->design->switch_expect && rng_chance(&random, 1, 3))
        sim_at_background(&r->sim, rng_below(&random, r->params.safety_ns / 2), start_spare_switch, r, 0);
}

/* The coordinator hears the first host's JOINs, and its answers are lost for most of a membership lease. Then the host joins, and
 * its heartbeats are lost for as long as the last answer lets it hold. */
static void begin_late_welcome(struct rack *r)
{
    struct rng random;
    struct rack_member *m = &r->hosts[0].member;
    uint64_t member = r->params.member_ns;
    rng_seed(&random, r->params.seed ^ SALT_WELCOME);
    uint64_t until = rng_between(&random, member / 2, member);
    if (!r->params.late_welcome || !(r->sim.faults.active & FAULT_BIT(FAULT_PARTITION)) || until + member > r->params.safety_ns)
        return;
    rack_count_fault(r->coordinator, FAULT_PARTITION);
    m->deaf_until_ns = until;
    m->mute_until_ns = until + member;
}

void rack_trouble_begin(struct rack_coordinator *k)
{
    struct rack *r = k->rack;
    begin_spare_switch(k);
    if (!k->number)
        begin_late_welcome(r);
    uint64_t times = rng_below(&k->random, CRASHES_MAX);
    if (k->active & FAULT_BIT(FAULT_OPERATOR) && r->server_count && !k->number)
        sim_at_background(&r->sim, rng_below(&k->random, r->params.safety_ns / 2), start_spare, r, 0);
    if (k->active & FAULT_BIT(FAULT_CRASH_COORDINATOR))
        sim_at_background(&r->sim, 1 + rng_below(&k->random, 1 + r->params.safety_ns / (1 + times)), strike, k, times);
}

void rack_trouble_begin_etcd(struct rack *r)
{
    struct rng *random = &r->coordinator->random; /* one draw after the other: compilers differ in the order of arguments */
    uint64_t times = 1 + rng_below(random, STRIKES_MAX);
    uint64_t first_ns = 1 + rng_below(random, r->params.safety_ns / 4);
    sim_at_background(&r->sim, first_ns, strike_leader, r, times);
}
