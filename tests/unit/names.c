/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that come and go, step by step: when a coordinator may use an index again, and which answers a host may take. */
#include "cluster/host_names.h"
#include "cluster/service.h"
#include "tests/check.h"

#include <errno.h>
#include <stdio.h>

#define MACHINES 3
#define LOCKS 4
#define LEASE_NS (2 * NS_PER_S)

static struct service service;
static uint64_t now;
static struct service_answer answer;

/* A host, as far as names go. */
static struct host {
    uint16_t machine;
    uint32_t life;
    uint64_t nonce; /* of its JOIN */
    struct host_names names;
    uint64_t used; /* indexes, a bit each */
} hosts[MACHINES + 1];

static void start_with(uint64_t locks)
{
    const struct coord_params p = {.design = design_find("srvlock"),
                                   .space = "test",
                                   .locks = locks,
                                   .lease_ns = LEASE_NS,
                                   .retry_ns = 5 * NS_PER_MS,
                                   .machines = MACHINES,
                                   .sessions = 2,
                                   .requests = 2,
                                   .servers = 1,
                                   .life = 100,
                                   .fresh = true,
                                   .keys = PAWL_KEYS_NAMED};
    const struct state_params nowhere = {.how = STORE_FRESH};
    now = NS_PER_S;
    memset(hosts, 0, sizeof hosts);
    CHECK_EQ(service_open(&service, &p, &nowhere, now), 0);
}

static void start(void)
{
    start_with(LOCKS);
}

static uint32_t sender = 1; /* its address */

/* The answer, when it may be sent. */
static bool tell(const void *data, uint32_t len, uint16_t port)
{
    unsigned count = service_packet(&service, data, len, net_v4(sender, port), now, &answer);
    return service_commit(&service, &answer, count, now) != 0;
}

static void join(enum coord_role role, uint64_t nonce, uint16_t port)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "test", NULL, nonce);
    p.role = role;
    CHECK(tell(&p, sizeof p, port));
    const struct coord_welcome *w = (const struct coord_welcome *)(const void *)answer.bytes;
    CHECK_EQ(w->packet.head.type, COORD_WELCOME);
    if (role != COORD_HOST)
        return;
    struct host *h = &hosts[w->packet.head.to.machine];
    *h = (struct host){.machine = w->packet.head.to.machine, .life = w->packet.head.generation, .nonce = nonce};
}

static void beat(const struct host *h)
{
    struct coord_beat b;
    memset(&b, 0, sizeof b);
    coord_make(&b.packet, COORD_BEAT, "test", &service.coordinator.config.identity, h->nonce);
    b.packet.head.from.machine = h->machine;
    b.packet.head.epoch = h->life;
    b.packet.code = coord_config_sum(&service.coordinator.config);
    CHECK(tell(&b, sizeof b, h->machine) && ((struct coord_packet *)(void *)answer.bytes)->head.type == COORD_BEAT_ACK);
}

static uint64_t first_round; /* of the client's first answer, if it asks again */

static int find(const char *name, struct host_name *out)
{
    struct coord_key k;
    memset(&k, 0, sizeof k);
    coord_make(&k.packet, COORD_FIND, "test", NULL, 9);
    k.packet.stamp = first_round;
    k.len = (uint32_t)snprintf(k.bytes, sizeof k.bytes, "%s", name);
    CHECK(tell(&k, sizeof k, 90));
    const struct coord_key *a = (const struct coord_key *)(const void *)answer.bytes;
    *out = (struct host_name){.index = a->packet.head.index, .generation = a->packet.head.generation, .round = a->packet.stamp};
    return a->packet.code;
}

static bool uses(void *host, uint64_t index, uint64_t at, struct outbox *out)
{
    (void)at;
    (void)out;
    return index < 64 && (((const struct host *)host)->used >> index & 1);
}

/* The questions that are under way: whether there is one for this host. */
static bool asked(const struct host *h, struct coord_retire *out)
{
    _Alignas(8) uint8_t packet[PACKET_MAX];
    struct net_addr to;
    bool found = false;
    service.coordinator.names.ask_next = 1;
    while (coordinator_more(&service.coordinator, packet, &to)) {
        const struct coord_retire *r = (const struct coord_retire *)(const void *)packet;
        if (r->packet.head.to.machine != h->machine)
            continue;
        CHECK(coord_check(packet, sizeof *r, 0) && r->packet.head.epoch == h->life);
        *out = *r;
        found = true;
    }
    return found;
}

static void answer_round(struct host *h, const struct coord_retire *r)
{
    struct coord_packet p;
    uint64_t used;
    if (!host_names_retire(&h->names, r, uses, h, now, NULL, &used))
        return;
    coord_make(&p, COORD_RETIRED, "test", &service.coordinator.config.identity, h->nonce);
    p.head.from.machine = h->machine;
    p.head.epoch = h->life;
    p.head.index = used;
    p.stamp = r->round;
    tell(&p, sizeof p, h->machine);
}

/* A rack with hosts and four names, all of which they know. */
static void fill(unsigned count, struct host_name names[LOCKS])
{
    static const char *const all[] = {"a", "b", "c", "d"};
    start();
    join(COORD_SERVER, 50, 70);
    for (unsigned i = 0; i < count; i++)
        join(COORD_HOST, 60 + i, (uint16_t)(1 + i));
    for (unsigned i = 0; i < LOCKS; i++)
        CHECK_EQ(find(all[i], &names[i]), 0);
}

/* Asks for a name until it has a lock; hosts answer meanwhile. How many times. */
static unsigned find_with(unsigned count, const char *name, struct host_name *out)
{
    unsigned tries = 1;
    for (; find(name, out) && tries < 100; tries++) {
        for (unsigned m = 1; m <= count; m++) {
            struct coord_retire r;
            if (asked(&hosts[m], &r))
                answer_round(&hosts[m], &r);
        }
        now += NS_PER_MS;
    }
    return tries;
}

/* A fifth name in a space for four gets the lock of one that no host uses, with a higher generation. */
static void used_again(void)
{
    struct host_name names[LOCKS], e, again;
    fill(2, names);
    for (unsigned i = 0; i < LOCKS; i++)
        CHECK(host_names_know(&hosts[1].names, &names[i]));
    hosts[1].used = 1u << names[0].index | 1u << names[1].index;
    hosts[2].used = 1u << names[2].index;
    CHECK_EQ(find("e", &e), -EAGAIN);
    CHECK(find_with(2, "e", &e) < 100);
    CHECK_EQ(e.index, names[3].index);
    CHECK(e.generation > names[3].generation);
    for (unsigned m = 1; m <= 2; m++) {
        for (unsigned i = 0; i < 3; i++) /* passed over or kept; those of others are asked for again */
            CHECK(host_names_know(&hosts[m].names, &names[i]) || !(hosts[m].used >> names[i].index & 1));
        CHECK(!host_names_know(&hosts[m].names, &names[3]));
    }
    for (unsigned i = 0; i < 3; i++) { /* they have not moved */
        static const char *const kept[] = {"a", "b", "c"};
        CHECK(!find(kept[i], &again) && again.index == names[i].index && again.generation == names[i].generation);
    }
    hosts[2].used = 0; /* the name that has gone comes back, higher */
    CHECK(find_with(2, "d", &again) < 100);
    CHECK(again.generation > e.generation);
}

/* Not before every live host has answered; a host whose lease has ended is not waited for. */
static void waits_for_all(void)
{
    struct host_name names[LOCKS], e;
    struct coord_retire r;
    fill(2, names);
    CHECK_EQ(find("e", &e), -EAGAIN);
    for (unsigned i = 0; i < 20; i++) {
        if (asked(&hosts[1], &r))
            answer_round(&hosts[1], &r);
        now += LEASE_NS / 50;
        beat(&hosts[1]);
        CHECK_EQ(find("e", &e), -EAGAIN);
        CHECK(!service.state.directory.resting.count);
    }
    CHECK(asked(&hosts[2], &r)); /* again and again */
    for (unsigned i = 0; i < 80 && service.coordinator.members[2].live; i++) {
        now += LEASE_NS / 50;
        beat(&hosts[1]);
    }
    CHECK(!service.coordinator.members[2].live);
    CHECK(find_with(1, "e", &e) < 100);
}

/* A key that a client asks for during the round stays, though every host has let go of it. Its answer is newer than the round. */
static void asked_meanwhile(void)
{
    struct host_name names[LOCKS], e, again;
    struct coord_retire r;
    fill(2, names);
    CHECK_EQ(find("e", &e), -EAGAIN);
    CHECK(asked(&hosts[1], &r) && r.count == 1);
    answer_round(&hosts[1], &r);
    unsigned gone = 0;
    while (names[gone].index != r.key[0].index)
        gone++;
    static const char *const all[] = {"a", "b", "c", "d"};
    CHECK(!host_names_know(&hosts[1].names, &names[gone]));
    CHECK(!host_names_current(&hosts[1].names, names[gone].round)); /* a late answer, from before the round */
    CHECK_EQ(find(all[gone], &again), 0);
    CHECK(again.index == names[gone].index && again.generation == names[gone].generation);
    CHECK(host_names_current(&hosts[1].names, again.round) && host_names_know(&hosts[1].names, &again));
    CHECK(asked(&hosts[2], &r));
    answer_round(&hosts[2], &r);
    CHECK_EQ(service.state.directory.key[directory_cell(&service.state.directory, again.index)].state, DIRECTORY_USED);
    answer_round(&hosts[1], &r); /* the question came twice: what was heard since is still known */
    CHECK(host_names_know(&hosts[1].names, &again));
}

/* Answers of other rounds, lives and machines do not count. */
static void bad_answers(void)
{
    struct host_name names[LOCKS], e;
    struct coord_packet p;
    fill(1, names);
    CHECK_EQ(find("e", &e), -EAGAIN);
    CHECK(service.coordinator.names.count);
    const struct {
        uint16_t machine;
        uint32_t life;
        uint64_t round;
    } bad[] = {{0, hosts[1].life, 0},
               {2, hosts[1].life, 0},
               {MACHINES + 1, hosts[1].life, 0},
               {1, hosts[1].life - 1, 0},
               {1, hosts[1].life, 1}};
    for (unsigned i = 0; i < countof(bad); i++) {
        coord_make(&p, COORD_RETIRED, "test", &service.coordinator.config.identity, 0);
        p.head.from.machine = bad[i].machine;
        p.head.epoch = bad[i].life;
        p.stamp = service.coordinator.names.round - bad[i].round;
        tell(&p, sizeof p, 1);
        CHECK(!service.state.directory.resting.count && !service.coordinator.members[1].retired);
    }
}

/* All in use, for longer than a lease: the client is told. Soon after one is not, it gets a lock. A client that comes then is not
 * told what was so before it came (srvlock, rack seed 101753). */
static void all_in_use(void)
{
    struct host_name names[LOCKS], e;
    fill(1, names);
    first_round = 0;
    hosts[1].used = (1u << LOCKS) - 1;
    int rc = -EAGAIN;
    for (unsigned i = 0; i < 400 && rc == -EAGAIN; i++) {
        struct coord_retire r;
        if (asked(&hosts[1], &r))
            answer_round(&hosts[1], &r);
        now += LEASE_NS / 100;
        beat(&hosts[1]);
        rc = find("e", &e);
        first_round = first_round ? first_round : e.round;
    }
    CHECK_EQ(rc, -ENOSPC);
    first_round = 0;
    CHECK_EQ(find("f", &e), -EAGAIN);
    hosts[1].used = 1;
    CHECK_EQ(find("f", &e), -EAGAIN);
    CHECK(find_with(1, "f", &e) < 100);
}

/* The list of what the host forgot is bounded: older knowledge is not trusted. */
static void bounded_memory(void)
{
    static struct host_names n;
    const struct host_name old = {.index = 1, .generation = 5, .round = 1};
    struct host h = {0};
    struct coord_retire r = {.round = 2, .count = COORD_RETIRE_MAX};
    uint64_t used;
    memset(&n, 0, sizeof n);
    for (unsigned i = 0; i < HOST_NAMES_GONE / COORD_RETIRE_MAX; i++, r.round++) {
        for (uint32_t k = 0; k < COORD_RETIRE_MAX; k++)
            r.key[k] = (struct coord_retire_key){.index = 1000 + i * COORD_RETIRE_MAX + k, .generation = 5};
        CHECK(host_names_retire(&n, &r, uses, &h, 0, NULL, &used));
        CHECK(host_names_know(&n, &old));
    }
    r.count = 1;
    CHECK(host_names_retire(&n, &r, uses, &h, 0, NULL, &used));
    CHECK(!host_names_know(&n, &old)); /* what was forgotten in round 2 is not all in the list */
    const struct host_name recent = {.index = 1, .generation = 5, .round = r.round - 1}, dense = {.index = 1};
    CHECK(host_names_know(&n, &recent) && host_names_know(&n, &dense));
    r.round -= 2;
    CHECK(!host_names_retire(&n, &r, uses, &h, 0, NULL, &used)); /* outdated */
}

/* A flood of new names from one address: what is too much waits and is counted, known names are found, and another address goes on.
 */
static void flood(void)
{
    struct host_name found;
    char name[32];
    unsigned added = 0;
    start_with(UINT64_C(2) * COORD_NAMES_AT_ONCE);
    join(COORD_SERVER, 1, 4);
    for (unsigned i = 0; i < COORD_NAMES_AT_ONCE + 3000; i++) {
        snprintf(name, sizeof name, "flood %u", i);
        int rc = find(name, &found);
        CHECK(!rc || rc == -EAGAIN);
        added += !rc;
    }
    CHECK_EQ(added, COORD_NAMES_AT_ONCE);
    CHECK_EQ(service.coordinator.drops.limited, 3000);
    CHECK_EQ(find("flood 0", &found), 0);
    sender = 2;
    CHECK_EQ(find("of another", &found), 0);
    sender = 1;
    CHECK_EQ(find("one more", &found), -EAGAIN);
    now += NS_PER_S;
    for (unsigned i = added = 0; i < 2 * COORD_NAMES_PER_S; i++) {
        snprintf(name, sizeof name, "later %u", i);
        added += !find(name, &found);
    }
    CHECK_EQ(added, COORD_NAMES_PER_S);
}

int main(void)
{
    used_again();
    service_close(&service);
    waits_for_all();
    service_close(&service);
    asked_meanwhile();
    service_close(&service);
    bad_answers();
    service_close(&service);
    all_in_use();
    service_close(&service);
    bounded_memory();
    flood();
    service_close(&service);
    return 0;
}
