/* SPDX-License-Identifier: Apache-2.0 */
/* The fault layer: asked at every opportunity for a small fault, and itself the cause of the large ones.
 *
 * Swarm testing: a run that always mixes everything hides what one kind alone would show, so each seed draws which of the
 * enabled kinds are active and how often they strike. */
#include "world/sim.h"

#define SEED_FAULTS UINT64_C(0x4641554c5453)
#define SEED_SWARM UINT64_C(0x535741524d)
#define SEED_STALLS UINT64_C(0x5354414c4c53)
#define PPM UINT64_C(1000000)

/* Any two hosts' clocks then differ by at most 1e-4, which is what leases between hosts assume. */
#define DRIFT_MAX_PPB 50000

/* Per opportunity: the least rate, and how often it may double. */
static const struct {
    uint32_t ppm;
    unsigned doublings;
} drawn[FAULT_KINDS] = {
    [FAULT_LOSS] = {200, 8},        /* to 5 % */
    [FAULT_DUPLICATE] = {1000, 8},  /* to 25 % */
    [FAULT_REORDER] = {1000, 8},    /* to 25 % */
    [FAULT_DELAY] = {100, 8},       /* to 2.5 % */
    [FAULT_UNKNOWN] = {50, 8},      /* to 1.3 % */
    [FAULT_CRASH_CLIENT] = {10, 7}, /* to 0.13 % of a process's steps */
};

/* Of a swarm: the steps at which a process pauses, to 0.06 %. Pauses that come by time meet waiters and holders, which are where
 * time passes; these meet the short steps between two verbs as often. */
#define STALL_PPM 20
#define STALL_DOUBLINGS 5
#define STALL_ONE_IN 3 /* runs that have pauses at all */

/* How many of each kind the safety phase holds on average, at most. */
#define SCHEDULED_MAX 16

static bool is_scheduled(enum fault kind)
{
    return kind == FAULT_PARTITION || kind == FAULT_PAUSE || kind == FAULT_CRASH_SERVER || kind == FAULT_CRASH_SWITCH;
}

static void fault_strike(void *arg, uint64_t kind);

static void schedule_next(struct sim *sim, enum fault kind)
{
    struct sim_faults *faults = &sim->faults;
    uint64_t after_ns = rng_between(&faults->random, 1, 2 * faults->every_ns[kind]);
    sim_at_background(sim, sim->now_ns + after_ns, fault_strike, sim, kind);
}

static void heal_event(void *arg, uint64_t tag)
{
    (void)tag;
    sim_heal(arg);
}

/* Rates from a quarter of the drawn ones to four times them, some kinds in bursts. From a stream of its own. Of packets at most one
 * in four is lost or duplicated: if more were, every packet that is answered would beget more than one. */
static void shape_swarm(struct sim_faults *faults, const struct sim_config *config)
{
    struct rng r;
    rng_seed(&r, config->seed ^ SEED_SWARM);
    faults->drift_extreme = rng_chance(&r, 1, 2);
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++) {
        unsigned shift = (unsigned)rng_below(&r, 5);
        uint64_t burst_ns = config->safety_ns >> (1 + rng_below(&r, 8));
        faults->ppm[kind] = (uint32_t)min_u64(((uint64_t)faults->ppm[kind] << shift) / 4, PPM / 4);
        faults->every_ns[kind] = max_u64((faults->every_ns[kind] << shift) / 4, 1);
        faults->burst_ns[kind] = rng_chance(&r, 1, 3) ? max_u64(burst_ns, 1) : 0;
    }
    rng_seed(&faults->stalls, config->seed ^ SEED_STALLS);
    if (faults->active & FAULT_BIT(FAULT_PAUSE) && rng_chance(&faults->stalls, 1, STALL_ONE_IN))
        faults->stall_ppm = STALL_PPM << rng_below(&faults->stalls, STALL_DOUBLINGS + 1);
}

void sim_faults_init(struct sim *sim)
{
    struct sim_faults *faults = &sim->faults;
    const struct sim_config *config = &sim->config;
    rng_seed(&faults->random, config->seed ^ SEED_FAULTS);
    if (config->chooser)
        faults->active = config->faults;
    if (!config->faults || config->chooser)
        return;
    unsigned enabled = (unsigned)__builtin_popcount(config->faults);
    for (unsigned kind = 0; kind < FAULT_DRAWN; kind++) {
        uint64_t roll = rng_next(&faults->random); /* for all kinds, so that one more does not change the others */
        bool certain = enabled == 1 || (config->faults_certain & FAULT_BIT(kind));
        if (!(config->faults & FAULT_BIT(kind)) || (!certain && (roll & 1)))
            continue;
        faults->active |= FAULT_BIT(kind);
        if (drawn[kind].ppm)
            faults->ppm[kind] = drawn[kind].ppm << (roll >> 1) % (drawn[kind].doublings + 1);
        faults->every_ns[kind] = max_u64(config->safety_ns / (1 + (roll >> 1) % SCHEDULED_MAX), 1);
        if (is_scheduled(kind) && config->safety_ns && !config->swarm)
            schedule_next(sim, kind);
    }
    if (config->swarm) {
        shape_swarm(faults, config);
        for (unsigned kind = 0; kind < FAULT_DRAWN; kind++)
            if (faults->active & FAULT_BIT(kind) && is_scheduled(kind) && config->safety_ns)
                schedule_next(sim, kind);
    }
    sim_at_background(sim, config->safety_ns, heal_event, sim, 0);
}

int64_t sim_faults_drift_ppb(struct sim *sim)
{
    if (!(sim->faults.active & FAULT_BIT(FAULT_DRIFT)) || sim->config.chooser)
        return 0;
    sim->faults.counts[FAULT_DRIFT]++;
    int64_t drift_ppb = (int64_t)rng_below(&sim->faults.random, 2 * DRIFT_MAX_PPB + 1) - DRIFT_MAX_PPB;
    return !sim->faults.drift_extreme ? drift_ppb : drift_ppb < 0 ? -DRIFT_MAX_PPB : DRIFT_MAX_PPB;
}

bool sim_fault_draw(struct sim *sim, enum fault kind)
{
    struct sim_faults *faults = &sim->faults;
    if (likely(!(faults->active & FAULT_BIT(kind)) || faults->healed))
        return false;
    if (unlikely(sim->config.chooser))
        return sim_chooser_strikes(sim, kind);
    if (unlikely(faults->burst_ns[kind]) && sim->now_ns / faults->burst_ns[kind] % 2)
        return false;
    if (rng_below(&faults->random, PPM) >= faults->ppm[kind])
        return false;
    faults->counts[kind]++;
    return true;
}

unsigned sim_fault_fate(struct sim *sim, unsigned fates)
{
    return unlikely(sim->config.chooser) ? sim_chooser_fate(sim, fates) : (unsigned)rng_below(&sim->faults.random, fates);
}

/* ---- partitions ---- */

uint64_t sim_path_blocked_until(const struct sim *sim, uint32_t from, uint32_t to)
{
    uint64_t until_ns = sim->faults.blocked_until_ns[from][to];
    return until_ns > sim->now_ns ? until_ns : 0;
}

void sim_partition(struct sim *sim, uint32_t from, uint32_t to, uint64_t until_ns)
{
    assert(from < sim->host_count && to < sim->host_count && from != to);
    sim_note(sim, "partition", from, to, until_ns);
    sim->faults.blocked_until_ns[from][to] = until_ns;
}

static bool strike_partition(struct sim *sim)
{
    struct rng *random = &sim->faults.random;
    if (sim->host_count < 2)
        return false;
    uint32_t from = (uint32_t)rng_below(random, sim->host_count);
    uint32_t to = (uint32_t)rng_below(random, sim->host_count - 1);
    to += to >= from;
    /* From what retransmission hides to what outlasts both the connection and a lease. */
    uint64_t until_ns = sim->now_ns + rng_between(random, model_get(sim->model, MODEL_retransmit_ns) / 4,
                                                  2 * model_get(sim->model, MODEL_lease_ns));
    sim_partition(sim, from, to, until_ns);
    if (rng_next(random) & 1)
        sim_partition(sim, to, from, until_ns);
    return true;
}

/* ---- pauses ---- */

bool sim_fault_stall(struct sim_process *process)
{
    struct sim *sim = process->sim;
    struct sim_faults *faults = &sim->faults;
    if (faults->healed || !process->crashable || rng_below(&faults->stalls, PPM) >= faults->stall_ppm)
        return false;
    uint64_t lease_ns = model_get(sim->model, MODEL_lease_ns);
    sim_process_pause(process, sim->now_ns + rng_between(&faults->stalls, lease_ns / 8, 3 * lease_ns));
    faults->counts[FAULT_PAUSE]++;
    return true;
}

static bool strike_pause(struct sim *sim)
{
    struct rng *random = &sim->faults.random;
    if (!sim->process_count)
        return false;
    struct sim_process *process = sim->processes[rng_below(random, sim->process_count)];
    if (!process->alive || !process->crashable)
        return false;
    uint64_t lease_ns = model_get(sim->model, MODEL_lease_ns);
    uint64_t until_ns = sim->now_ns + rng_between(random, lease_ns / 8, 3 * lease_ns);
    if (rng_below(random, 4) == 0)
        sim_host_pause(process->host, until_ns);
    else
        sim_process_pause(process, until_ns);
    return true;
}

/* ---- crashes ---- */

static uint64_t down_ns(struct sim *sim)
{
    uint64_t lease_ns = model_get(sim->model, MODEL_lease_ns);
    return rng_between(&sim->faults.random, lease_ns / 16, 2 * lease_ns);
}

static void process_return(void *arg, uint64_t tag)
{
    struct sim_process *process = arg;
    if (!process->alive && process->generation == tag && process->host->up)
        sim_process_restart(process); /* else its host has crashed meanwhile and restarts it */
}

void sim_faults_crash(struct sim_process *process)
{
    struct sim *sim = process->sim;
    if (sim->config.chooser) { /* no other comes in its place: the world stays small */
        sim_process_crash(process);
        return;
    }
    uint64_t back_ns = sim->now_ns + down_ns(sim);
    sim_process_crash(process);
    sim_at(sim, back_ns, process_return, process, process->generation);
}

static void host_return(void *arg, uint64_t tag)
{
    struct sim_host *host = arg;
    if (!host->up && host->births == tag)
        sim_host_restart(host);
}

static bool strike_server(struct sim *sim)
{
    if (!sim->host_count)
        return false;
    struct sim_host *host = sim->hosts[rng_below(&sim->faults.random, sim->host_count)];
    if (!host->up || !host->server)
        return false;
    uint64_t back_ns = sim->now_ns + down_ns(sim);
    sim_host_crash(host);
    sim_at(sim, back_ns, host_return, host, host->births);
    return true;
}

static void switch_return(void *arg, uint64_t tag)
{
    struct sim *sim = arg;
    (void)tag;
    sim_note(sim, "switch-restart", 0, 0, 0);
    for (unsigned i = 0; i < sim->hook_count; i++)
        if (sim->hooks[i].switch_restarted)
            sim->hooks[i].switch_restarted(sim->hooks[i].ctx);
}

static bool strike_switch(struct sim *sim)
{
    bool heard = false;
    for (unsigned i = 0; i < sim->hook_count; i++)
        if (sim->hooks[i].switch_crashed) {
            sim->hooks[i].switch_crashed(sim->hooks[i].ctx);
            heard = true;
        }
    if (heard) {
        sim_note(sim, "switch-crash", 0, 0, 0);
        sim_at(sim, sim->now_ns + down_ns(sim), switch_return, sim, 0);
    }
    return heard;
}

static void fault_strike(void *arg, uint64_t kind)
{
    struct sim *sim = arg;
    bool struck = false;
    if (sim->faults.healed)
        return;
    switch ((enum fault)kind) {
    case FAULT_PARTITION:
        struck = strike_partition(sim);
        break;
    case FAULT_PAUSE:
        struck = strike_pause(sim);
        break;
    case FAULT_CRASH_SERVER:
        struck = strike_server(sim);
        break;
    case FAULT_CRASH_SWITCH:
        struck = strike_switch(sim);
        break;
    default:
        assert(false);
    }
    sim->faults.counts[kind] += struck;
    schedule_next(sim, (enum fault)kind);
}

/* ---- healing ---- */

void sim_heal(struct sim *sim)
{
    if (sim->faults.healed)
        return;
    sim->faults.healed = true;
    sim_note(sim, "heal", 0, 0, 0);
    for (unsigned from = 0; from < sim->host_count; from++)
        for (unsigned to = 0; to < sim->host_count; to++)
            sim->faults.blocked_until_ns[from][to] = 0;
    for (unsigned i = 0; i < sim->host_count; i++)
        sim->hosts[i]->paused_until_ns = 0;
    for (unsigned i = 0; i < sim->process_count; i++) {
        struct sim_process *process = sim->processes[i];
        process->paused_until_ns = 0;
        for (struct sim_task *task = process->tasks; task; task = task->next)
            if (task->deferred)
                sim_task_wake_at(task, sim->now_ns);
    }
    for (unsigned i = 0; i < sim->hook_count; i++)
        if (sim->hooks[i].healed)
            sim->hooks[i].healed(sim->hooks[i].ctx);
}
