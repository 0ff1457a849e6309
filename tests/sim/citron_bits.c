/* SPDX-License-Identifier: Apache-2.0 */
/* A bit of a leaf without an owner, which a lost session left behind, is cleared although clients come and look all the while (seed
 * 20050669). Three clients want a node above leaves and the leaf beside it. The client whose turn has come finds the bit, gives its
 * turn to the next one and takes the leaf's parent to clear the bit. At that very moment the third client becomes the next in the
 * queue of the other node, and begins to look at the leaf. */
#include "designs/citron/citron.h"
#include "tests/sim/stage.h"

#define CLIENTS 3
#define FIRST_NODE 256 /* units of a node right above leaves */
#define UNITS (FIRST_NODE + 8)
#define UNITS_MAX 4096
#define ROUNDS 4
#define STEP_NS (2 * NS_PER_US)
#define TIME_MAX_NS (2 * NS_PER_S) /* a client looks after claims without an owner after milliseconds */
#define LEFT_OVER UINT64_C(0x10)

static struct cluster c;
static unsigned inside, granted;
static bool left;

static uint64_t *leaf_word(void)
{
    const struct space *s = &c.clients[0].at[0].space;
    const struct tree_node n = {.height = 0, .number = FIRST_NODE / 64};
    fab_addr addr =
        space_lock_addr(s, 0) + sizeof(struct citron_lock) + (tree_index(n, citron_height_last(s)) - 1) * sizeof(uint64_t);
    return (uint64_t *)(uintptr_t)sim_fabric_peek(c.fabric, addr, sizeof(uint64_t));
}

static void lock_and_unlock(struct cluster_task *t)
{
    struct hold h;
    CHECK_EQ(locker_lock_range(&t->lockers[0], pawl_id(0), 0, UNITS, PAWL_EXCLUSIVE, DEADLINE_NEVER, &h), 0);
    CHECK_EQ(inside++, 0);
    granted++;
    cluster_sleep(t, STEP_NS);
    inside--;
    CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
}

static bool play(struct cluster_task *t)
{
    if (t->client->id == 0) {
        lock_and_unlock(t); /* makes the lock's tree */
        CHECK_EQ(*leaf_word(), 0);
        *leaf_word() = LEFT_OVER;
        left = true;
    }
    while (!left)
        cluster_sleep(t, STEP_NS);
    for (unsigned i = 0; i < ROUNDS; i++)
        lock_and_unlock(t);
    return true;
}

static void run(uint64_t seed)
{
    struct cluster_params p = stage_of(design_find("citron"), "citron-testbed", CLIENTS, UNITS_MAX, play);
    p.seed = seed;
    p.time_max_ns = TIME_MAX_NS;
    p.lease_ns = 10 * NS_PER_MS;
    left = false;
    granted = 0;
    stage_run(&c, &p);
    CHECK_EQ(granted, 1 + CLIENTS * ROUNDS);
    CHECK_EQ(*leaf_word(), 0);
    cluster_free(&c);
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++)
        run(seed);
    printf("a bit without an owner was cleared while others looked\n");
    return 0;
}
