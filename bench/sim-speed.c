/* How fast the simulator is: clients that acquire and release random CAS locks on the ShiftLock testbed.
 * Usage: sim-speed [CLIENTS [LOCKS [VIRTUAL_MS]]] */
#include "fabric/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#define LOCK_BYTES 16

struct client {
    struct fab_ep *ep;
    uint64_t locks, cycles;
};

static struct client clients[SIM_TASKS_MAX];

static void client_run(void *arg)
{
    struct client *c = arg;
    uint64_t me = c->ep->id + 1, old;
    for (;;) {
        fab_addr lock = FAB_ADDR(0, world_random(c->ep->world) % c->locks * LOCK_BYTES);
        do
            if (fab_cas64(c->ep, lock, 0, me, &old))
                return;
        while (old);
        if (fab_cas64(c->ep, lock, me, 0, &old) || old != me)
            abort();
        c->cycles++;
    }
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 240;
    uint64_t locks = argc > 2 ? (uint64_t)atoll(argv[2]) : 10000000;
    uint64_t virtual_ns = (argc > 3 ? (uint64_t)atoll(argv[3]) : 100) * NS_PER_MS;
    static struct sim sim;
    const struct sim_config config = {.model = model_find("shiftlock-testbed"), .seed = 1};
    if (count > SIM_TASKS_MAX || sim_init(&sim, &config))
        return 1;
    struct sim_fabric *fabric = sim_fabric_new(&sim, SIM_FABRIC_CAPS);
    struct sim_host *server = sim_host_new(&sim);
    if (sim_host_memory(server, locks * LOCK_BYTES))
        return 1;
    unsigned hosts = (unsigned)model_get(sim.model, MODEL_client_nodes);
    for (unsigned i = 0; i < hosts; i++)
        sim_host_new(&sim);
    for (unsigned i = 0; i < count; i++) {
        struct sim_process *process = sim_process_new(sim.hosts[1 + i % hosts]);
        clients[i] = (struct client){.ep = sim_ep_new(fabric, process), .locks = locks};
        sim_spawn(process, "client", client_run, &clients[i]);
    }
    uint64_t start = world_clock(CLOCK_MONOTONIC);
    sim_run(&sim, virtual_ns);
    uint64_t wall_ns = world_clock(CLOCK_MONOTONIC) - start, ops = 0, cycles = 0;
    for (unsigned i = 0; i < count; i++) {
        ops += clients[i].ep->counts.atomics;
        cycles += clients[i].cycles;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("ops %" PRIu64 "  events %" PRIu64 "  wall_ms %" PRIu64 "  ops_per_wall_second %" PRIu64
           "  virtual_cycles_per_second %" PRIu64 "  peak_rss_mib %ld  trace_hash %016" PRIx64 "\n",
           ops, sim.events, wall_ns / NS_PER_MS, ops * NS_PER_S / wall_ns, cycles * NS_PER_S / virtual_ns, usage.ru_maxrss / 1024,
           sim.hash);
    sim_fabric_free(fabric);
    sim_free(&sim);
    return 0;
}
