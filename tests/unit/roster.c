/* SPDX-License-Identifier: Apache-2.0 */
/* What a lock server or switch takes from the coordinator's list of hosts, and what it does not. */
#include "cluster/roster.h"
#include "tests/check.h"

#include <stdlib.h>

#define MACHINES 40u

static struct coord_hosts list_of(uint16_t machine, uint32_t life, struct net_addr at)
{
    struct coord_hosts h = {.count = 1};
    h.host[0] = (struct coord_host){.machine = machine, .life = life, .at = at};
    return h;
}

static void take(struct roster *r, uint16_t machine, uint32_t life, struct net_addr at)
{
    struct coord_hosts h = list_of(machine, life, at);
    roster_take(r, &h);
}

int main(void)
{
    const struct rack_config c = {.machines = MACHINES, .space = 16};
    const struct net_addr at = net_v4(5, 0), elsewhere = net_v4(6, 0);
    const struct seal_ring no_keys = {.count = 0};
    struct roster *r = roster_make(&c, &no_keys, false);
    CHECK(r && !r->ring && !roster_has(r, at));
    const struct packet_head alien = {.from = {.machine = MACHINES + 1}};
    r->wanted = 1;
    roster_park(r, &alien, sizeof alien, at, true); /* of no host: it does not wait for the coordinator's list */
    CHECK_EQ(r->parks, 0);
    r->wanted = 0;
    take(r, 3, 7, at);
    CHECK(roster_knows(r, 3, 7, at) && roster_has(r, at) && !roster_has(r, elsewhere) && !roster_key(r, 3));
    take(r, 3, 6, elsewhere); /* a former life */
    take(r, 0, 9, elsewhere); /* numbers that no host has */
    take(r, MACHINES + 1, 9, elsewhere);
    CHECK(roster_knows(r, 3, 7, at) && !roster_has(r, elsewhere));
    r->wanted = 0;
    CHECK(!roster_admits(r, 3, 6, at) && !r->wanted); /* the coordinator need not be asked about a former life */
    CHECK_EQ(r->late, 1);
    CHECK_EQ(r->unknown + r->forged, 0);

    r->wanted = 1;
    CHECK_EQ(roster_question(r, NS_PER_S), 1);
    CHECK_EQ(roster_question(r, 2 * NS_PER_S), 0);
    struct coord_hosts more = list_of(4, 8, at); /* there are more hosts than one list has, from this number on */
    more.packet.head.index = 31;
    roster_take(r, &more);
    CHECK_EQ(roster_question(r, 3 * NS_PER_S), 31);
    more.packet.head.index = MACHINES + 1;
    more.count = UINT32_MAX; /* and no list has so many */
    roster_take(r, &more);
    CHECK_EQ(roster_question(r, 4 * NS_PER_S), 0);

    /* A thousand at once, then one in a millisecond; another host does not notice. */
    CHECK_EQ(r->limited, 0);
    roster_limit(r, 1000);
    uint64_t now = NS_PER_S, taken = 0;
    for (unsigned i = 0; i < 5000; i++)
        taken += roster_takes(r, 3, now);
    CHECK_EQ(taken, 1001);
    CHECK(roster_takes(r, 4, now) && !roster_takes(r, 3, now));
    CHECK(roster_takes(r, 3, now + NS_PER_MS) && !roster_takes(r, 3, now + NS_PER_MS));
    CHECK(r->limited == r->host[3].limited && r->limited == 5000 - 1001 + 2 && !r->host[4].limited);
    for (now += NS_PER_S, taken = 0; now < 4 * NS_PER_S; now += NS_PER_MS / 10) /* ten times as many as it may send */
        taken += roster_takes(r, 3, now);
    CHECK(taken >= 2900 && taken <= 4100);
    now += 100 * NS_PER_S;
    for (unsigned i = taken = 0; i < 5000; i++) /* a long silence allows no more at once */
        taken += roster_takes(r, 3, now);
    CHECK_EQ(taken, 1001);
    roster_limit(r, UINT64_C(100000));
    CHECK(r->gap_ns == 10000 && r->burst_ns == NS_PER_S / 10);
    roster_limit(r, 0);
    CHECK_EQ(r->gap_ns, 0);
    free(r);
    return 0;
}
