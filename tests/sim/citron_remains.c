/* SPDX-License-Identifier: Apache-2.0 */
/* Lost sessions may leave counts without an owner at many nodes. A client that wants all of the lock finds them one after the
 * other, and waits for the first one as for a claim of a live session. Once that count has turned out to be wrong, it counts the
 * others anew at once: otherwise it would wait a millisecond for each, and longer than a lease for many of them. */
#include "designs/citron/citron.h"
#include "tests/sim/stage.h"

#define UNITS 4096 /* a tree with 16 nodes right above leaves */
#define REMAINS 16
#define LEASE_NS (10 * NS_PER_MS)
#define BOUND_NS (LEASE_NS / 2)

static struct cluster c;
static uint64_t took_ns;

/* The word of the n-th node right above leaves. */
static uint64_t *word_of(unsigned n)
{
    const struct space *s = &c.clients[0].at[0].space;
    const struct tree_node node = {.height = 1, .number = n};
    fab_addr addr =
        space_lock_addr(s, 0) + sizeof(struct citron_lock) + (tree_index(node, citron_height_last(s)) - 1) * sizeof(uint64_t);
    return (uint64_t *)(uintptr_t)sim_fabric_peek(c.fabric, addr, sizeof(uint64_t));
}

static void lock_and_unlock(struct cluster_task *t)
{
    struct hold h;
    CHECK_EQ(locker_lock_range(&t->lockers[0], pawl_id(0), 0, UNITS, PAWL_EXCLUSIVE, DEADLINE_NEVER, &h), 0);
    CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
}

static bool play(struct cluster_task *t)
{
    lock_and_unlock(t); /* makes the lock's tree */
    for (unsigned i = 0; i < REMAINS; i++)
        *word_of(i) += UINT64_C(1) << NODE_DMAX;
    uint64_t begin_ns = c.sim.now_ns;
    lock_and_unlock(t);
    took_ns = c.sim.now_ns - begin_ns;
    return true;
}

int main(void)
{
    struct cluster_params p = stage_of(design_find("citron"), "citron-testbed", 1, UNITS, play);
    p.lease_ns = LEASE_NS;
    stage_run(&c, &p);
    for (unsigned i = 0; i < REMAINS; i++)
        CHECK_EQ(node_below(*word_of(i)), 0);
    cluster_free(&c);
    printf("%u counts without an owner were corrected within %.2f ms\n", REMAINS, (double)took_ns / NS_PER_MS);
    CHECK(took_ns >= NS_PER_MS); /* the first one is waited for: it could be a claim */
    CHECK(took_ns < BOUND_NS);
    return 0;
}
