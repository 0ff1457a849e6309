/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's switch in the kernel, driven by hand: packets of hosts and servers, and a lock that is brought into the switch. */
#ifndef PAWL_TESTS_XDP_NETLOCK_HAND_H
#define PAWL_TESTS_XDP_NETLOCK_HAND_H

#include "cluster/host.h"
#include "tests/xdp/netlock_kit.h"

#define LOCKS 1000 /* more than there are slots: only what is wanted comes in */
#define SLOTS UINT64_C(512)
#define LOCK 2   /* of the server on this machine */
#define REMOTE 3 /* of the other */
#define COLD 5   /* not in the switch */
#define REQUESTS 16
#define CONTENTION 60
#define BRING_IN_NS (20 * NS_PER_S) /* the switch looks at what is wanted every few milliseconds */

static struct rack_config config;
static struct kit_outs outs;

static inline struct netlock_packet packet(uint8_t type, uint16_t machine, uint16_t port, uint64_t index)
{
    struct netlock_packet p = {.head = test_head(PACKET_NETLOCK, type)};
    p.head.index = index;
    p.head.nonce = 0;
    p.head.epoch = 1;
    p.head.from = (struct place){machine, port};
    return p;
}

static inline uint64_t nonce_of(unsigned request, uint64_t serial)
{
    return serial * NETLOCK_SERIAL_STEP + request;
}

static inline struct netlock_packet ask(uint8_t type, uint16_t machine, unsigned request, uint64_t serial, uint8_t mode,
                                        uint64_t index)
{
    struct netlock_packet p = packet(type, machine, (uint16_t)(5000 + request), index);
    p.head.nonce = nonce_of(request, serial);
    p.mode = mode;
    return p;
}

static inline void send_it(const struct netlock_packet *p)
{
    kit_packet(p, sizeof *p, host_now(), &outs);
}

static inline const struct netlock_packet *out(unsigned i)
{
    CHECK(i < outs.count);
    return (const void *)outs.out[i].bytes;
}

static inline const struct netlock_packet *only(uint8_t type)
{
    CHECK_EQ(outs.count, 1);
    CHECK_EQ(out(0)->head.type, type);
    return out(0);
}

static inline unsigned count_of(uint8_t type)
{
    unsigned n = 0;
    for (unsigned i = 0; i < outs.count; i++)
        n += out(i)->head.type == type;
    return n;
}

static inline struct netlock_packet from_server(uint8_t type, uint64_t index)
{
    struct netlock_packet p = packet(type, config.server[index % KIT_SERVERS], PORT_SERVER, index);
    p.life = KIT_LIFE;
    return p;
}

/* The server reports that the lock is wanted, and hands it over when asked. */
static inline void bring_in(uint64_t index)
{
    static struct outbox box;
    struct {
        struct netlock_packet p;
        struct netlock_demand d;
    } report = {from_server(NETLOCK_REPORT, index), {index, 1000, CONTENTION}};
    report.p.count = 1;
    kit_packet(&report, sizeof report, host_now(), &outs);
    uint32_t round = 0;
    for (uint64_t now = host_now(), end = now + BRING_IN_NS; !round && now < end; now = host_now()) {
        outbox_clear(&box);
        netlock_switch_tick(kit_memory, now, &box);
        outs.count = 0;
        kit_add_outbox(&outs, &box);
        for (unsigned i = 0; i < outs.count; i++)
            if (out(i)->head.type == NETLOCK_TAKE && out(i)->head.index == index)
                round = out(i)->round;
    }
    CHECK(round);
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 15, 1, NETLOCK_SHARED, index); /* waits at the server meanwhile */
    send_it(&p);
    CHECK_EQ(only(NETLOCK_ACQUIRE)->flags, NETLOCK_FORWARDED | NETLOCK_OVERFLOW);
    p = from_server(NETLOCK_HANDOVER, index);
    p.round = round;
    p.token = 1000;
    send_it(&p);
    CHECK_EQ(only(NETLOCK_NOTIFY)->round, round);
    uint32_t count = out(0)->count;
    p = from_server(NETLOCK_PUSH, index);
    p.round = round;
    p.head.nonce = nonce_of(15, 1);
    p.client = (struct place){1, 5015};
    send_it(&p); /* without a mode: it gave up on its way */
    CHECK_EQ(only(NETLOCK_PUSHED)->pushed, 1);
    p = from_server(NETLOCK_LAST, index);
    p.round = round;
    p.count = count;
    send_it(&p);
    CHECK_EQ(outs.count, 0);
}

static inline void lease(uint16_t machine)
{
    static uint64_t stamp = 4711;
    struct netlock_packet p = packet(NETLOCK_LEASE, machine, PORT_POOL, 0);
    p.stamp = ++stamp;
    p.life = KIT_LIFE;
    send_it(&p);
    CHECK_EQ(count_of(NETLOCK_LEASED), 1); /* when all hosts have heard of us, servers are told */
    for (unsigned i = 0; i < outs.count; i++)
        if (out(i)->head.type == NETLOCK_LEASED)
            CHECK(out(i)->stamp == stamp && out(i)->head.epoch == KIT_LIFE && out(i)->head.to.machine == machine);
    for (unsigned i = 0; i < 2; i++, p.stamp--) { /* sent again, and overtaken: it renews nothing */
        send_it(&p);
        CHECK_EQ(outs.count, 0);
    }
}

static inline void set_up(uint64_t lease_ns)
{
    config = kit_config(LOCKS, SLOTS << NETLOCK_SLOTS_SHIFT);
    config.lease_ns = lease_ns;
    kit_load(&config, host_now());
    for (uint64_t s = 0; s < KIT_SERVERS; s++) {
        struct netlock_packet p = from_server(NETLOCK_SYNC, s);
        send_it(&p);
        CHECK_EQ(only(NETLOCK_SYNCED)->life, KIT_LIFE);
    }
    for (uint16_t m = 1; m <= KIT_HOSTS; m++)
        lease(m);
    for (uint16_t m = 1; m <= KIT_HOSTS; m++)
        lease(m); /* by the program */
}

#endif
