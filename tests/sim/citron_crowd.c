/* SPDX-License-Identifier: Apache-2.0 */
/* More clients of `citron` than a node's counters count: none is miscounted, whenever they come, and all make progress. The
 * counters have few bits here; the rules that bound them are the same. */
#include "designs/citron/citron.h"
#include "tests/sim/stage.h"
#include "tests/tuned.h"

#include <errno.h>
#include <stdlib.h>

#define CLIENTS 7
#define SLOTS (CLIENTS + 1)
#define TASKS CLUSTER_TASKS_MAX
#define BITS 5 /* up to 31, and there are 56 tasks */
#define UNITS 4096
#define HELD_NS (3 * NS_PER_MS)
#define ROUNDS 20
#define SEEDS 3

static struct cluster c;
static uint64_t granted, timeouts, left_over;
static unsigned inside[UNITS]; /* how many have a unit, */
static bool over;              /* and the one that has had it for long no longer does */

static void run(cluster_work_fn work, uint64_t seed)
{
    struct cluster_params p = stage_of(design_find("citron"), "citron-testbed", CLIENTS, UNITS, work);
    p.knobs = tuned(p.design, "crowd", 1u << (BITS - 2));
    p.spare_slots = SLOTS - CLIENTS;
    p.tasks = TASKS;
    p.seed = seed;
    over = false;
    stage_run(&c, &p);
    cluster_free(&c);
}

static void enter(uint64_t start, uint64_t end)
{
    for (uint64_t i = start; i < end; i++)
        CHECK_EQ(inside[i]++, 0);
}

static void leave(uint64_t start, uint64_t end)
{
    for (uint64_t i = start; i < end; i++)
        inside[i]--;
}

/* Returns whether it was to be had in time. */
static bool use(struct cluster_task *t, uint64_t start, uint64_t end, uint64_t timeout_ns, uint64_t ns)
{
    struct hold h;
    uint64_t deadline = timeout_ns ? world_now(t->lockers[0].seat.world) + timeout_ns : DEADLINE_NEVER;
    int rc = locker_lock_range(&t->lockers[0], pawl_id(0), start, end, PAWL_EXCLUSIVE, deadline, &h);
    if (rc == -ETIMEDOUT && timeout_ns) {
        timeouts++;
        return false;
    }
    CHECK_EQ(rc, 0);
    enter(start, end);
    granted++;
    if (ns)
        cluster_sleep(t, ns);
    leave(start, end);
    CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
    return true;
}

static bool is_first(const struct cluster_task *t)
{
    return !t->client->id && !t->number;
}

/* One has a node for long; the others give up waiting for it, and come again: each time a ticket may stay in the row. */
static bool give_up(struct cluster_task *t)
{
    if (is_first(t)) {
        use(t, 0, 256, 0, HELD_NS);
        over = true;
    } else {
        cluster_sleep(t, 20 * NS_PER_US); /* so that the first is the first */
        while (!over)
            use(t, 0, 256, NS_PER_US + world_random(t->lockers[0].seat.world) % (30 * NS_PER_US), 0);
    }
    CHECK(use(t, 0, 256, 0, 0));
    return true;
}

/* All come at once, again and again: to a node, and to the edge of two leaves right below it, which counts twice. */
static bool burst(struct cluster_task *t)
{
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        uint64_t now = world_now(t->lockers[0].seat.world), at = i * 500 * NS_PER_US;
        if (now < at)
            cluster_sleep(t, at - now);
        if ((t->number + i) % 4 == 0)
            CHECK(use(t, 0, 256, 0, 0));
        else
            CHECK(use(t, 60, 68, 0, i % 3 ? 0 : 2 * NS_PER_US));
    }
    return true;
}

/* The remains of a broken connection: notifications of a node that have no owner. They are no more than a session has in flight,
 * and are added only where there is room. The slot that no client has stands for the sessions that left them. */
static void leave_over(struct cluster_task *t)
{
    const struct seat *seat = &t->lockers[0].seat;
    const struct tree_node parent = {.height = 1};
    uint64_t word, at = (tree_index(parent, citron_height_last(seat->space)) - 1) * sizeof word;
    fab_addr addr = space_lock_addr(seat->space, 0) + sizeof(struct citron_lock) + at;
    CHECK_EQ(fab_read64(seat->ep, addr, &word), 0);
    for (unsigned i = 0; i < citron_in_flight_max(SLOTS) && node_below(word) < NODE_LIMIT; i++, left_over++)
        CHECK_EQ(fab_mfaa64(seat->ep, addr, UINT64_C(1) << NODE_DMAX, NODE_TOPS, &word), 0);
}

/* The node itself is not claimed, so they are in the way of no client there; but a client that is to be counted with them removes
 * them. */
static bool leftovers(struct cluster_task *t)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned n = 0; is_first(t) && n < NODE_LIMIT; n++)
            leave_over(t);
        if (is_first(t) || !i)
            cluster_sleep(t, 200 * NS_PER_US);
        if (!is_first(t))
            CHECK(use(t, 60, 68, 0, NS_PER_US));
    }
    if (is_first(t))
        CHECK(use(t, 0, 256, 0, 0));
    return true;
}

/* All wait in one row. */
static bool row(struct cluster_task *t)
{
    if (!is_first(t))
        cluster_sleep(t, 20 * NS_PER_US);
    for (unsigned i = 0; i < ROUNDS; i++)
        CHECK(use(t, 0, 256, 0, is_first(t) && !i ? HELD_NS : 0));
    return true;
}

static void try_all(const char *name, cluster_work_fn work)
{
    granted = timeouts = left_over = 0;
    citron_stats = (struct citron_stats){0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(work, seed);
    printf("%s: %" PRIu64 " granted, %" PRIu64 " in vain, %" PRIu64 " times too many, %" PRIu64 " left over\n", name, granted,
           timeouts, citron_stats.crowded, left_over);
    fflush(stdout);
    CHECK(citron_stats.crowded);
    CHECK(work != leftovers || left_over > SEEDS * NODE_COUNT_MAX);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        cluster_work_fn work;
    } cases[] = {{"giving up", give_up}, {"bursts", burst}, {"a row", row}, {"leftovers", leftovers}};
    citron_count_bits = BITS;
    for (size_t i = 0; i < countof(cases); i++)
        if (argc < 2 || (size_t)atoi(argv[1]) == i)
            try_all(cases[i].name, cases[i].work);
    return 0;
}
