/* SPDX-License-Identifier: Apache-2.0 */
/* Clients whose ranges need several groups of nodes do not keep each other out for ever (seed 20055390). Each has its first nodes
 * again and again and gives them back when it meets another at the next ones. That is no progress: it counts as waiting in vain
 * until one of them takes a turn at a node that contains its whole range. */
#include "designs/citron/citron.h"
#include "tests/sim/stage.h"

#include <inttypes.h>

#define CLIENTS 3
#define TASKS 2
#define UNITS_MAX 4096
#define FAR 3000 /* a range that no other client wants */
#define ROUNDS 40
#define TIME_MAX_NS NS_PER_S

static struct cluster c;
static unsigned writers, readers, granted;

/* Both nodes above leaves, 256 units each, from 256 on. */
static void read_two_nodes(struct cluster_task *t)
{
    struct hold h;
    CHECK_EQ(locker_lock_range(&t->lockers[0], pawl_id(0), 256, 768, PAWL_SHARED, DEADLINE_NEVER, &h), 0);
    CHECK_EQ(writers, 0);
    readers++;
    granted++;
    cluster_sleep(t, NS_PER_US);
    readers--;
    CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
}

/* Leaf by leaf, because there is another range of the same lock to be had with it. */
static void write_leaves(struct cluster_task *t, uint64_t start, uint64_t end, uint64_t other)
{
    const pawl_want wants[2] = {{.key = pawl_id(0), .mode = PAWL_EXCLUSIVE, .start = start, .end = end},
                                {.key = pawl_id(0), .mode = PAWL_EXCLUSIVE, .start = other, .end = other + 1}};
    struct hold holds[2];
    CHECK_EQ(locker_lock_all(&t->lockers[0], wants, 2, DEADLINE_NEVER, holds), 0);
    CHECK(!readers);
    CHECK_EQ(writers++, 0); /* leaf 6 is in both ranges */
    granted++;
    cluster_sleep(t, NS_PER_US);
    writers--;
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(locker_unlock(&t->lockers[0], &holds[i]), 0);
}

static bool play(struct cluster_task *t)
{
    unsigned who = t->client->id * TASKS + (t != &t->client->tasks[0]);
    for (unsigned i = 0; i < ROUNDS; i++)
        if (who == 0)
            write_leaves(t, 4 * 64 + 3, 7 * 64 + 1, FAR);
        else if (who == 1)
            write_leaves(t, 6 * 64 + 36, 10 * 64 + 14, FAR + 100);
        else
            read_two_nodes(t);
    return true;
}

static void run(uint64_t seed)
{
    struct cluster_params p = stage_of(design_find("citron"), "citron-testbed", CLIENTS, UNITS_MAX, play);
    p.tasks = TASKS;
    p.seed = seed;
    p.time_max_ns = TIME_MAX_NS;
    granted = 0;
    stage_run(&c, &p);
    printf("seed %" PRIu64 ": %u ranges were had\n", seed, granted);
    cluster_free(&c);
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        run(seed);
    return 0;
}
