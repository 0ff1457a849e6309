/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a lost datagram with several packets: of ten locks that are taken and given back by one call each, one packet in ten
 * is lost. The same work is done with datagrams and with single packets, and all packets on the cables are counted. */
#include "lib/rng.h"
#include "tests/check.h"
#include "workbench/trial/rack.h"
#include "world/world.h"

#define LOCKS 4000 /* few are wanted twice at once */
#define CLIENTS 8
#define ROUNDS 200
#define TOGETHER 10
#define REQUESTS 256 /* of a session: some are still being released */
#define LOSS_PPM 100000
#define SEEDS 3
#define LEASE_NS NS_PER_S
#define START_NS (3 * LEASE_NS) /* by then NetLock's switch and servers have found each other, though packets were lost */

static struct rack r;
static unsigned taken;
static uint64_t before, began_ns; /* packets and time when the work began */

static uint64_t packets_so_far(void)
{
    const struct sim_wire_counts *c = sim_wire_counts(r.wire);
    return c->sent + c->emitted;
}

static bool work(struct actor *a)
{
    struct rng draws;
    rng_seed(&draws, a->client);
    a->ops->sleep(a, START_NS);
    if (!began_ns) {
        began_ns = sim_now(&r.sim);
        before = packets_so_far();
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        pawl_want wants[TOGETHER];
        struct hold holds[TOGETHER];
        int rc[TOGETHER];
        uint64_t first = rng_below(&draws, LOCKS);
        for (unsigned k = 0; k < TOGETHER; k++)
            wants[k] = (pawl_want){.key = pawl_id((first + k * (LOCKS / TOGETHER)) % LOCKS), .mode = PAWL_EXCLUSIVE};
        CHECK_EQ(a->ops->lock_all(a, wants, TOGETHER, DEADLINE_NEVER, holds), 0);
        a->ops->unlock_all(a, holds, TOGETHER, rc);
        for (unsigned k = 0; k < TOGETHER; k++)
            CHECK_EQ(rc[k], 0);
        taken += TOGETHER;
    }
    return true;
}

struct cost {
    double packets; /* a lock, taken and given back */
    double ns;      /* until all work is done */
};

static struct cost cost_of(const char *design, bool together, uint32_t loss_ppm, uint64_t seed)
{
    const struct rack_params p = {
        .design = design_find(design),
        .model = model_find("netlock-testbed"),
        .locks = LOCKS,
        .clients = CLIENTS,
        .hosts = 4,
        .servers = 2,
        .tasks = 1,
        .requests = REQUESTS,
        .together = together,
        .faults = FAULT_BIT(FAULT_LOSS),
        .seed = seed,
        .safety_ns = 1000 * NS_PER_S, /* packets are lost to the end */
        .time_max_ns = 1000 * NS_PER_S,
        .lease_ns = LEASE_NS,
        .retry_ns = 100 * NS_PER_US,
        .work = work,
    };
    CHECK_EQ(rack_init(&r, &p), 0);
    r.sim.faults.ppm[FAULT_LOSS] = loss_ppm;
    taken = 0;
    began_ns = 0;
    rack_run(&r);
    CHECK_EQ(r.clients_done, CLIENTS);
    CHECK_EQ(taken, CLIENTS * ROUNDS * TOGETHER);
    const struct cost cost = {.packets = (double)(packets_so_far() - before) / taken, .ns = (double)(sim_now(&r.sim) - began_ns)};
    rack_free(&r);
    return cost;
}

int main(void)
{
    static const char *const designs[] = {"srvlock", "fisslock", "netlock"};
    static const uint32_t losses[] = {0, LOSS_PPM};
    for (unsigned i = 0; i < countof(designs); i++)
        for (unsigned l = 0; l < countof(losses); l++)
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                struct cost singly = cost_of(designs[i], false, losses[l], seed), all = cost_of(designs[i], true, losses[l], seed);
                printf("%s, %u %% lost, seed %u: %.2f packets a lock together, %.2f singly, time %.2fx\n", designs[i],
                       losses[l] / 10000, (unsigned)seed, all.packets, singly.packets, all.ns / singly.ns);
                CHECK(all.packets < singly.packets);
            }
    return 0;
}
