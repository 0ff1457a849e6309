/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the simulator is, and how large: clients that acquire and release random CAS locks on the ShiftLock testbed. */
#include "bench/kit.h"
#include "fabric/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#define LOCK_BYTES 16
#define CLIENTS 240
#define LOCKS UINT64_C(10000000)
#define ROUNDS 11
#define ROUND_NS (10 * NS_PER_MS) /* virtual */
#define OPS_PER_SECOND 1000000
#define EVENTS_PER_SECOND 2700000
#define RSS_MIB 2048

struct client {
    struct fab_ep *ep;
    uint64_t locks, cycles;
};

static struct client clients[CLIENTS];

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

static uint64_t ops_so_far(void)
{
    uint64_t ops = 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        ops += clients[i].ep->counts.atomics;
    return ops;
}

static void set_up(struct sim *sim, struct sim_fabric **fabric)
{
    const struct sim_config config = {.model = model_find("shiftlock-testbed"), .seed = 1};
    if (sim_init(sim, &config) || !(*fabric = sim_fabric_new(sim, SIM_FABRIC_CAPS)))
        kit_die("no memory for the simulation");
    if (sim_host_memory(sim_host_new(sim), LOCKS * LOCK_BYTES))
        kit_die("no memory for %llu locks", (unsigned long long)LOCKS);
    unsigned hosts = (unsigned)model_get(sim->model, MODEL_client_nodes);
    assert(hosts);
    for (unsigned i = 0; i < hosts; i++)
        sim_host_new(sim);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct sim_process *process = sim_process_new(sim->hosts[1 + i % hosts]);
        clients[i] = (struct client){.ep = sim_ep_new(*fabric, process), .locks = LOCKS};
        sim_spawn(process, "client", client_run, &clients[i]);
    }
}

int main(int argc, char **argv)
{
    static struct sim sim;
    static double rate[ROUNDS], events[ROUNDS];
    struct sim_fabric *fabric;
    struct rusage usage;
    struct kit k;
    kit_begin(&k, argc, argv, "fabric operations and events of the simulated cluster per second of one core, and its memory");
    kit_pin(k.cpus[0]);
    uint64_t span_ns = max_u64(NS_PER_MS, (uint64_t)(k.scale * (double)ROUND_NS));
    printf("one thread on core %d, no sleep, processor time; %d clients, %llu locks, %d rounds of %.1f virtual ms\n", k.cpus[0],
           CLIENTS, (unsigned long long)LOCKS, ROUNDS, (double)span_ns / (double)NS_PER_MS);
    set_up(&sim, &fabric);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t start = world_clock(CLOCK_THREAD_CPUTIME_ID), ops = ops_so_far(), happened = sim.events;
        sim_run(&sim, (i + 1) * span_ns);
        double seconds = (double)(world_clock(CLOCK_THREAD_CPUTIME_ID) - start) / (double)NS_PER_S;
        rate[i] = (double)(ops_so_far() - ops) / seconds;
        events[i] = (double)(sim.events - happened) / seconds;
    }
    kit_judge_least(&k, "operations per second of one core, median", kit_percentile(rate, ROUNDS, 0.5), "", OPS_PER_SECOND);
    kit_judge_least(&k, "events per second of one core, median", kit_percentile(events, ROUNDS, 0.5), "", EVENTS_PER_SECOND);
    getrusage(RUSAGE_SELF, &usage);
    kit_judge(&k, "peak of resident memory", (double)usage.ru_maxrss / 1024, " MiB", RSS_MIB);
    printf("events %" PRIu64 ", trace hash %016" PRIx64 "\n", sim.events, sim.hash);
    sim_fabric_free(fabric);
    sim_free(&sim);
    return kit_end(&k);
}
