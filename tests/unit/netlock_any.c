/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's stages on registers in any state: every operation, with tickets, queues, steps and priorities that are right or cannot
 * be, late and in any order. A pass touches the registers of its lock and its request only, its queue never has more requests than
 * slots, and a packet's passes end. Campaigns and fuzz targets meet the states that packets lead to; here are the others, which
 * late packets of a switch with another program, or damaged memory, would find. */
#include "dataplane/netlock_packets.h"
#include "designs/netlock/plane.h"
#include "lib/rng.h"
#include "tests/check.h"

#include <stdlib.h>

#define RUNS 300000u
#define LOCKS 3u
#define SLOTS 64u
#define REQUESTS 8u
#define PASSES 64u /* of one packet: more than its lock has slots, for each of two walks */

static struct rng r;
static struct plane *p;
static uint8_t *before;
static uint64_t bytes;
static unsigned ops[NETLOCK_OP_STRENGTHEN + 1], grants;

static uint32_t draw_ticket(uint32_t size)
{
    return rng_chance(&r, 1, 20) ? NETLOCK_NO_TICKET : (uint32_t)(rng_below(&r, 3) << 16 | rng_below(&r, size + 1));
}

/* Head and tail of a queue: up to a lap apart. */
static uint64_t draw_ends(uint32_t size)
{
    uint32_t head = (uint32_t)(rng_below(&r, 2) << 16 | rng_below(&r, size)), tail = head;
    for (uint64_t n = rng_below(&r, size + 1); n; n--)
        tail = netlock_after(tail, size);
    return netlock_pair(head | (rng_chance(&r, 1, 4) ? NETLOCK_WRITER : 0), tail | (rng_chance(&r, 1, 3) ? NETLOCK_OVER : 0));
}

static void draw_lock(uint32_t lock)
{
    const struct plane_region region = plane_region(p, lock);
    uint64_t waiting = 0;
    for (uint32_t i = 0; i < region.levels && i < NETLOCK_PRIORITIES; i++) {
        uint64_t ends = rng_chance(&r, 1, 2) ? 0 : draw_ends(region.wait_size);
        plane_set(p, NETLOCK_QUEUES, lock * NETLOCK_PRIORITIES + i, ends);
        waiting |= (rng_chance(&r, 7, 8) ? netlock_between((uint32_t)(ends >> 32) & NETLOCK_TICKET, (uint32_t)ends & NETLOCK_TICKET,
                                                           region.wait_size)
                                         : rng_below(&r, 3))
                   << (8 * i);
    }
    if (region.wait_size && rng_chance(&r, 1, 3))
        waiting |= netlock_low_flag(region.levels);
    plane_set(p, NETLOCK_WAITING, lock, region.wait_size ? waiting : 0);
    plane_set(p, NETLOCK_ENDS, lock, rng_chance(&r, 1, 4) ? rng_below(&r, 2) << 31 : draw_ends(region.size));
    plane_set(p, NETLOCK_EXCL, lock, rng_below(&r, 4) | (rng_chance(&r, 1, 4) ? NETLOCK_UPGRADING : 0));
    plane_set(p, NETLOCK_ROUNDS, lock, netlock_pair((uint32_t)rng_below(&r, 3), (uint32_t)rng_below(&r, 4)));
    for (uint32_t i = 0; i < plane_region_slots(&region); i++) {
        plane_set(p, NETLOCK_NONCE, region.left + i, rng_below(&r, 6));
        plane_set(p, NETLOCK_FLAGS, region.left + i, rng_below(&r, 32) | rng_below(&r, 3) << NETLOCK_STEP_SHIFT);
        plane_set(p, NETLOCK_PLACE, region.left + i, (1 + rng_below(&r, 2)) << 16);
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        plane_set(p, NETLOCK_SEEN, i, rng_below(&r, 6));
}

static struct netlock_pass draw_pass(const struct plane_region *region)
{
    uint8_t op = (uint8_t)(1 + rng_below(&r, NETLOCK_OP_STRENGTHEN));
    bool waits = op == NETLOCK_OP_PEEK || op == NETLOCK_OP_MOVE || op == NETLOCK_OP_DROP; /* of a priority's queue */
    return (struct netlock_pass){.op = op,
                                 .mode = (uint8_t)(NETLOCK_SHARED + rng_below(&r, 2)),
                                 .priority = (uint8_t)rng_below(&r, NETLOCK_PRIORITIES),
                                 .flags = (uint8_t)(rng_below(&r, 2) * NETLOCK_TRY | rng_below(&r, 2) * NETLOCK_FROM_SERVER),
                                 .machine = (uint16_t)(1 + rng_below(&r, 2)),
                                 .nonce = 1 + rng_below(&r, 5),
                                 .ticket = draw_ticket(region->size),
                                 .round = (uint32_t)rng_below(&r, 3),
                                 .count = (uint32_t)rng_below(&r, 4),
                                 .pushed = (uint32_t)rng_below(&r, 4),
                                 .step = (uint16_t)rng_below(&r, 3),
                                 .mark = draw_ticket(region->size),
                                 .queue = (uint8_t)(waits ? rng_below(&r, region->levels + 2u) : 0),
                                 .strip = rng_chance(&r, 1, 4)};
}

/* Registers of other locks are unchanged. */
static void check_others(uint32_t lock)
{
    const struct plane *old = (const struct plane *)(const void *)before;
    const struct plane_region region = plane_region(p, lock);
    for (uint32_t other = 0; other < LOCKS; other++) {
        if (other == lock)
            continue;
        CHECK(plane_get(p, NETLOCK_ENDS, other) == plane_get(old, NETLOCK_ENDS, other));
        CHECK(plane_get(p, NETLOCK_WAITING, other) == plane_get(old, NETLOCK_WAITING, other));
        CHECK(plane_get(p, NETLOCK_EXCL, other) == plane_get(old, NETLOCK_EXCL, other));
    }
    CHECK(plane_get(p, NETLOCK_BOUNDS, lock) == plane_get(old, NETLOCK_BOUNDS, lock));
    for (uint32_t i = 0; i < SLOTS; i++)
        if (i < region.left || i >= region.left + plane_region_slots(&region))
            CHECK(plane_get(p, NETLOCK_NONCE, i) == plane_get(old, NETLOCK_NONCE, i) &&
                  plane_get(p, NETLOCK_FLAGS, i) == plane_get(old, NETLOCK_FLAGS, i));
}

/* The queue has no more requests than slots. */
static void check_queue(uint32_t lock)
{
    const struct plane_region region = plane_region(p, lock);
    uint64_t ends = plane_get(p, NETLOCK_ENDS, lock);
    uint32_t head = (uint32_t)(ends >> 32) & NETLOCK_TICKET, tail = (uint32_t)ends & NETLOCK_TICKET;
    CHECK((head & 0xffff) < region.size && (tail & 0xffff) < region.size);
    CHECK(netlock_between(head, tail, region.size) <= region.size);
}

static void run(void)
{
    uint32_t lock = (uint32_t)rng_below(&r, LOCKS);
    const struct plane_region region = plane_region(p, lock);
    draw_lock(lock);
    memcpy(before, p, bytes);
    struct netlock_pass pass = draw_pass(&region);
    for (unsigned passes = 0; passes < PASSES; passes++) {
        CHECK(pass.op && pass.op <= NETLOCK_OP_STRENGTHEN);
        ops[pass.op]++;
        plane_pass(p, lock, &pass);
        grants += (pass.out & NETLOCK_OUT_GRANT) != 0;
        check_queue(lock);
        if (pass.next == NETLOCK_OP_NONE)
            break;
        netlock_resubmit(&pass);
    }
    check_others(lock);
}

int main(void)
{
    const struct plane_config c = {.slots = SLOTS, .locks = LOCKS, .requests = REQUESTS, .stride = REQUESTS / 2, .tenants = 1};
    static const struct plane_region regions[LOCKS] = {
        {.left = 1, .size = 4}, {.left = 8, .size = 3, .wait_size = 2}, {.left = 40, .size = 2, .wait_size = 3, .levels = 2}};
    uint32_t lock;
    bytes = plane_bytes(&c);
    p = calloc(1, bytes);
    before = malloc(bytes);
    CHECK(p && before);
    plane_init(p, &c);
    for (uint32_t i = 0; i < LOCKS; i++)
        CHECK_EQ(plane_install(p, i, &regions[i], &lock), 0);
    rng_seed(&r, 1);
    for (unsigned i = 0; i < RUNS; i++)
        run();
    for (unsigned op = 1; op < countof(ops); op++)
        CHECK(ops[op]);
    printf("%u packets, %u grants\n", RUNS, grants);
    CHECK(grants > RUNS / 100);
    free(p);
    free(before);
    return 0;
}
