/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts with their clocks, and the processes on them. */
#include "world/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SEED_HOST UINT64_C(0x484f5354)
#define CLOCK_OFFSET_MAX_NS (UINT64_C(1) << 40) /* up for eighteen minutes at most: clocks of hosts have nothing in common */

/* ---- the host's world ---- */

static uint64_t host_now(struct world *w)
{
    const struct sim_host *host = container_of(w, struct sim_host, world);
    return sim_host_clock(host, host->sim->now_ns);
}

static uint64_t host_random(struct world *w)
{
    struct sim_host *host = container_of(w, struct sim_host, world);
    if (unlikely(host->sim->config.chooser))
        return ++host->sim->config.chooser->numbers; /* different each time, and nothing more is asked of it */
    return rng_next(&host->random);
}

static uint64_t host_birth(struct world *w)
{
    return container_of(w, struct sim_host, world)->births << 32;
}

static const struct world_ops host_world_ops = {.now = host_now, .random = host_random, .birth = host_birth};

uint64_t sim_host_clock(const struct sim_host *host, uint64_t virtual_ns)
{
    uint64_t clock_ns = host->offset_ns + virtual_ns;
    if (host->drift_ppb) /* |drift| < 1e6 and time < 2^50: fits 128 bits by far */
        clock_ns += (uint64_t)(int64_t)((__int128)virtual_ns * host->drift_ppb / (int64_t)NS_PER_S);
    return clock_ns;
}

uint64_t sim_host_clock_inverse(const struct sim_host *host, uint64_t clock_ns)
{
    if (clock_ns == DEADLINE_NEVER || clock_ns <= host->offset_ns)
        return clock_ns == DEADLINE_NEVER ? DEADLINE_NEVER : 0;
    uint64_t elapsed_ns = clock_ns - host->offset_ns;
    if (elapsed_ns > SIM_TIME_MAX_NS)
        return DEADLINE_NEVER; /* beyond the end of any simulation */
    uint64_t virtual_ns = (uint64_t)((u128)elapsed_ns * NS_PER_S / (uint64_t)((int64_t)NS_PER_S + host->drift_ppb));
    virtual_ns -= virtual_ns ? 1 : 0;
    while (sim_host_clock(host, virtual_ns) < clock_ns) /* rounding: two or three steps */
        virtual_ns++;
    return virtual_ns;
}

/* ---- hosts ---- */

struct sim_host *sim_host_new(struct sim *sim)
{
    if (sim->host_count == SIM_HOSTS_MAX)
        return NULL;
    struct sim_host *host = sim_alloc(sizeof *host);
    if (!host)
        return NULL;
    uint32_t id = sim->host_count;
    *host = (struct sim_host){
        .world.ops = &host_world_ops, .sim = sim, .id = id, .up = true, .births = 1, .drift_ppb = sim_faults_drift_ppb(sim)};
    rng_seed(&host->random, mix64(sim->config.seed) ^ SEED_HOST << 8 ^ id);
    host->offset_ns = sim->config.chooser ? (id + 1) * NS_PER_S : rng_below(&host->random, CLOCK_OFFSET_MAX_NS);
    sim->hosts[sim->host_count++] = host;
    return host;
}

int sim_host_memory(struct sim_host *host, uint64_t bytes)
{
    assert(!host->memory && bytes);
    if (sim_arena) {
        host->memory = sim_alloc(bytes);
        host->memory_bytes = bytes;
        return host->memory ? 0 : -ENOMEM;
    }
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    host->memory = memory;
    host->memory_bytes = bytes;
    return 0;
}

void sim_host_crash(struct sim_host *host)
{
    struct sim *sim = host->sim;
    assert(host->up && !(sim->current && sim->current->process->host == host));
    host->up = false;
    sim_note(sim, "host-crash", host->id, host->births, 0);
    for (unsigned i = 0; i < sim->process_count; i++)
        if (sim->processes[i]->host == host && sim->processes[i]->alive)
            sim_process_crash(sim->processes[i]);
    for (unsigned i = 0; i < sim->hook_count; i++)
        if (sim->hooks[i].server_crashed)
            sim->hooks[i].server_crashed(sim->hooks[i].ctx, host);
}

void sim_host_restart(struct sim_host *host)
{
    struct sim *sim = host->sim;
    assert(!host->up);
    if (host->memory && (sim_arena || madvise(host->memory, host->memory_bytes, MADV_DONTNEED)))
        memset(host->memory, 0, host->memory_bytes);
    host->births++;
    host->up = true;
    host->paused_until_ns = 0;
    sim_note(sim, "host-restart", host->id, host->births, 0);
    for (unsigned i = 0; i < sim->hook_count; i++)
        if (sim->hooks[i].server_restarted)
            sim->hooks[i].server_restarted(sim->hooks[i].ctx, host);
    for (unsigned i = 0; i < sim->process_count; i++)
        if (sim->processes[i]->host == host && !sim->processes[i]->alive)
            sim_process_restart(sim->processes[i]);
}

void sim_host_pause(struct sim_host *host, uint64_t until_ns)
{
    sim_note(host->sim, "host-pause", host->id, until_ns, 0);
    host->paused_until_ns = max_u64(host->paused_until_ns, until_ns);
}

uint64_t sim_nic_context_ns(struct sim_host *host)
{
    uint64_t contexts = model_get(host->sim->model, MODEL_contexts);
    uint32_t connections = host->nic.connections;
    if (likely(connections <= contexts))
        return 0;
    return sim_draw(host->sim, connections) < contexts ? 0 : model_get(host->sim->model, MODEL_context_miss_ns);
}

/* ---- processes ---- */

struct sim_process *sim_process_new(struct sim_host *host)
{
    struct sim *sim = host->sim;
    if (sim->process_count == SIM_PROCESSES_MAX)
        return NULL;
    struct sim_process *process = sim_alloc(sizeof *process);
    if (!process)
        return NULL;
    *process = (struct sim_process){.sim = sim, .host = host, .id = sim->process_count, .generation = 1, .alive = true};
    sim->processes[sim->process_count++] = process;
    return process;
}

void sim_process_crash(struct sim_process *process)
{
    struct sim *sim = process->sim;
    assert(process->alive);
    if (sim->current && sim->current->process == process) {
        process->dying = true; /* the loop does the rest, once it is off this stack */
        sim_task_block(sim->current);
        __builtin_unreachable();
    }
    process->alive = process->dying = false;
    sim_note(sim, "crash", process->host->id, process->id, process->generation);
    while (process->tasks)
        sim_task_release(process->tasks);
    process->paused_until_ns = 0;
    for (unsigned i = 0; i < sim->hook_count; i++)
        if (sim->hooks[i].process_crashed)
            sim->hooks[i].process_crashed(sim->hooks[i].ctx, process);
}

void sim_process_restart(struct sim_process *process)
{
    struct sim *sim = process->sim;
    assert(!process->alive && process->host->up);
    process->alive = true;
    process->generation++;
    sim_note(sim, "restart", process->host->id, process->id, process->generation);
    for (unsigned i = 0; i < sim->hook_count; i++)
        if (sim->hooks[i].process_restarted)
            sim->hooks[i].process_restarted(sim->hooks[i].ctx, process);
}

void sim_process_pause(struct sim_process *process, uint64_t until_ns)
{
    sim_note(process->sim, "pause", process->host->id, process->id, until_ns);
    process->paused_until_ns = max_u64(process->paused_until_ns, until_ns);
}
