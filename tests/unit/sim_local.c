/* SPDX-License-Identifier: Apache-2.0 */
/* Local memory in the simulation: store buffers, and remote atomics that are not atomic with the CPU. Each test shows an
 * algorithm that a sequentially consistent simulator would pass, and that it fails here only for the reason named. */
#include "tests/unit/sim_kit.h"

#define ROUNDS 3000
#define FLAG(side) FAB_ADDR(0, (uint64_t)(side)*64)
#define TURN FAB_ADDR(0, 128)
#define COUNTER FAB_ADDR(0, 192)
#define LOCK FAB_ADDR(0, 256)

struct side {
    struct fab_ep *ep;
    unsigned me;
    bool fence;
};

/* Not atomic: loses an increment if another does the same meanwhile. */
static void increment(struct fab_ep *ep)
{
    uint64_t value = fab_local_load64(ep, COUNTER);
    fab_local_store64(ep, COUNTER, value + 1);
    fab_local_fence(ep);
}

static void peterson(void *arg)
{
    struct side *s = arg;
    for (int i = 0; i < ROUNDS; i++) {
        fab_local_store64(s->ep, FLAG(s->me), 1);
        fab_local_store64(s->ep, TURN, !s->me);
        if (s->fence)
            fab_local_fence(s->ep);
        while (fab_local_load64(s->ep, FLAG(!s->me)) && fab_local_load64(s->ep, TURN) == !s->me)
            ;
        increment(s->ep);
        fab_local_store64(s->ep, FLAG(s->me), 0);
        /* Both must arrive at about the same time to meet in each other's store buffers. */
        fab_wait_any(s->ep, NULL, 0, world_now(s->ep->world) + world_random(s->ep->world) % 512);
    }
}

static uint64_t run_peterson(bool fence)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 1};
    kit_open(&kit, &config, SIM_FABRIC_CAPS, 1);
    struct side sides[2];
    for (unsigned i = 0; i < 2; i++) {
        struct sim_process *process;
        sides[i] = (struct side){.ep = kit_ep(&kit, 0, &process), .me = i, .fence = fence};
        sim_spawn(process, "side", peterson, &sides[i]);
    }
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    uint64_t sum = kit_word(&kit, COUNTER);
    kit_close(&kit);
    return sum;
}

/* A CAS lock that some take by the CPU and some through the NIC. */
static void lock_locally(void *arg)
{
    struct side *s = arg;
    for (int i = 0; i < ROUNDS; i++) {
        while (fab_local_cas64(s->ep, LOCK, 0, 1))
            ;
        increment(s->ep);
        fab_local_store64(s->ep, LOCK, 0);
        fab_local_fence(s->ep);
        fab_wait_any(s->ep, NULL, 0, world_now(s->ep->world) + 500);
    }
}

static void lock_remotely(void *arg)
{
    struct side *s = arg;
    uint64_t value, old;
    for (int i = 0; i < ROUNDS; i++) {
        do
            CHECK_EQ(fab_cas64(s->ep, LOCK, 0, 2, &old), 0);
        while (old);
        CHECK_EQ(fab_read64(s->ep, COUNTER, &value), 0);
        CHECK_EQ(fab_write64(s->ep, COUNTER, value + 1), 0);
        CHECK_EQ(fab_write64(s->ep, LOCK, 0), 0);
    }
}

static uint64_t run_mixed(uint32_t caps)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 1};
    kit_open(&kit, &config, caps, 2);
    struct side sides[2];
    for (unsigned i = 0; i < 2; i++) {
        struct sim_process *process;
        sides[i] = (struct side){.ep = kit_ep(&kit, i, &process), .me = i};
        sim_spawn(process, "side", i ? lock_remotely : lock_locally, &sides[i]);
    }
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    uint64_t sum = kit_word(&kit, COUNTER);
    kit_close(&kit);
    return sum;
}

/* Stores of a process that dies are not undone: they had retired. */
static void store_and_die(void *arg)
{
    struct side *s = arg;
    fab_local_store64(s->ep, COUNTER, 42);
    CHECK_EQ(fab_local_load64(s->ep, COUNTER), 42);
    sim_process_crash(container_of(s->ep->world, struct sim_host, world)->sim->processes[s->ep->id]);
}

static void test_stores_survive(void)
{
    static struct kit kit;
    const struct sim_config config = {.seed = 1};
    kit_open(&kit, &config, 0, 1);
    struct sim_process *process;
    struct side side = {.ep = kit_ep(&kit, 0, &process)};
    sim_spawn(process, "dies", store_and_die, &side);
    CHECK_EQ(sim_run(&kit.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(kit_word(&kit, COUNTER), 42);
    sim_ep_free(side.ep);
    kit_close(&kit);
}

int main(void)
{
    uint64_t without = run_peterson(false), with = run_peterson(true);
    printf("Peterson: %" PRIu64 " of %d without the fence, %" PRIu64 " with it\n", without, 2 * ROUNDS, with);
    CHECK_EQ(with, 2 * ROUNDS);
    CHECK(without < 2 * ROUNDS);
    uint64_t apart = run_mixed(FAB_MASKED | FAB_ORDERED), together = run_mixed(FAB_MASKED | FAB_ORDERED | FAB_CPU_ATOMIC64);
    printf("mixed CAS lock: %" PRIu64 " of %d with a window, %" PRIu64 " without\n", apart, 2 * ROUNDS, together);
    CHECK_EQ(together, 2 * ROUNDS);
    CHECK(apart < 2 * ROUNDS);
    test_stores_survive();
    return 0;
}
