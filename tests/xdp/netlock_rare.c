/* SPDX-License-Identifier: Apache-2.0 */
/* The branches of NetLock's program that packets seldom take, packet in and packets out. With netlock.c (many out of one, bad
 * packets, leases, two CPUs), netlock_same.c (the stages) and frame.c (heads, learning, relaying) those are the branches that there
 * are: tests/xdp/coverage.py counts them in the kernel. That the control process ends a lease while it is renewed cannot be had on
 * purpose. */
#include "tests/xdp/netlock_hand.h"

static void *at_memory(uint64_t where)
{
    return (uint8_t *)kit_memory + where;
}

static void expect(const char *what, const void *packet, uint32_t len, uint32_t verdict, enum plane_reason why)
{
    struct test_frame f = kit_frame(packet, len);
    bool control;
    outs.count = 0;
    test_reason(kit, ANY_REASON);
    uint32_t got = kit_pass(&f, &outs, &control);
    if (got != verdict)
        CHECK_FAIL("%s: verdict %u, not %u", what, got, verdict);
    CHECK_EQ(control, verdict == XDP_PASS);
    test_reason(kit, why);
}

static void to_control(const char *what, const struct netlock_packet *p)
{
    expect(what, p, sizeof *p, XDP_PASS, PLANE_CONTROL);
}

/* Packets that only the control process may handle. */
static void rare_packets(void)
{
    const struct netlock_packet good = ask(NETLOCK_ACQUIRE, 1, 3, 99, NETLOCK_EXCLUSIVE, LOCK);
    struct {
        struct netlock_packet p;
        uint64_t more;
    } longer = {.p = good};
    struct netlock_packet p = good;
    expect("with bytes behind it", &longer, sizeof longer, XDP_PASS, PLANE_CONTROL);
    p.head.from.machine = MACHINE_STEWARD;
    to_control("the steward", &p);
    p.head.from.machine = MACHINE_OPERATOR;
    to_control("an operator", &p);
    p = good;
    p.head.epoch = 2;
    to_control("a host that starts anew", &p);
    p = good;
    p.tenant = 0xffff;
    to_control("a tenant that there is not", &p);
    p = good;
    p.head.generation = 7;
    to_control("the first request of a generation", &p);
    uint32_t *generation = at_memory(kit_at.generations_at + LOCK * sizeof *generation);
    *generation = 9;
    to_control("a request of a former generation", &p);
    *generation = 0;
    p = good;
    p.flags = NETLOCK_PAYLOAD;
    to_control("a payload", &p);
    static const uint8_t others[] = {NETLOCK_CONVERT, NETLOCK_STAY, NETLOCK_PROBE};
    for (unsigned i = 0; i < countof(others); i++) {
        p = good;
        p.head.type = others[i];
        to_control("what the stages leave to it", &p);
    }
    p = good;
    p.head.nonce = nonce_of(REQUESTS, 99);
    expect("a request that does not exist", &p, sizeof p, XDP_DROP, PLANE_TYPE);
    struct netlock_machine *m = at_memory(kit_at.machines_at + sizeof *m);
    struct netlock_packet l = packet(NETLOCK_LEASE, 1, PORT_POOL, 0);
    l.life = KIT_LIFE;
    m->clean = false;
    to_control("it has heard of this life", &l);
    m->clean = true;
    expect("renewed", &l, sizeof l, XDP_TX, NO_REASON);
    m->live = false;
    to_control("a host that was lost", &good);
    m->live = true;
    uint64_t *until = at_memory(kit_at.until_at), active = *until;
    *until = 1;
    to_control("a switch that is not active", &good);
    *until = active;
}

/* Not in the switch. */
static void at_servers(void)
{
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 3, 99, NETLOCK_EXCLUSIVE, COLD);
    struct netlock_quota *quota = at_memory(kit_at.quota_at);
    quota->rate = 1;
    to_control("a quota", &p);
    p.head.type = NETLOCK_CANCEL;
    expect("which a CANCEL does not need", &p, sizeof p, XDP_TX, NO_REASON);
    quota->rate = 0;
    p.head.type = NETLOCK_ACQUIRE;
    uint16_t *owner = at_memory(kit_at.owner_at + sizeof *owner * (COLD % KIT_SERVERS)), was = *owner;
    *owner = 0;
    expect("no server has it", &p, sizeof p, XDP_DROP, PLANE_UNKNOWN);
    *owner = was;
    p.head.to = (struct place){KIT_HOSTS + KIT_SERVERS + 1, 5001};
    expect("to a machine that there is not", &p, sizeof p, XDP_DROP, PLANE_UNKNOWN);
    /* Behind a port that the switch has not. */
    p = ask(NETLOCK_CANCEL, 1, 3, 99, NETLOCK_EXCLUSIVE, COLD);
    struct plane_host h = {.mac = {htons(0x0200), 0, htons(5)}, .pool_port = htons(4700), .ip = htonl(0x0a000005), .ifindex = 77};
    CHECK_EQ(test_set_host(kit, KIT_HOSTS + KIT_SERVERS, &h), 0);
    expect("no such port", &p, sizeof p, XDP_DROP, NO_REASON);
    h.ifindex = 1;
    CHECK_EQ(test_set_host(kit, KIT_HOSTS + KIT_SERVERS, &h), 0);
    p.head.family = PACKET_FISSION;
    p.head.to = (struct place){MACHINE_SWITCH, PORT_POOL};
    expect("of another design", &p, sizeof p, XDP_DROP, PLANE_FAMILY);
}

static uint32_t number_of(uint64_t index)
{
    const uint64_t *open = at_memory(kit_at.open_at);
    uint32_t lock = 0;
    while (lock < kit_at.locks && open[lock] != index + 1)
        lock++;
    CHECK(lock < kit_at.locks);
    return lock;
}

static void from_servers(void)
{
    struct netlock_packet good = from_server(NETLOCK_PUSH, REMOTE), p;
    good.head.nonce = nonce_of(1, 99);
    good.mode = NETLOCK_SHARED;
    good.client = (struct place){1, 5001};
    p = good;
    p.life++;
    to_control("a push to another life", &p);
    p = good;
    p.head.epoch = 0;
    to_control("a push of a former life", &p);
    p = good;
    p.head.from.machine = config.server[LOCK % KIT_SERVERS];
    to_control("a push of a server that does not have the lock", &p);
    p = good;
    p.head.index = COLD;
    to_control("a push of what is not here", &p);
    p = from_server(NETLOCK_SYNC, REMOTE);
    to_control("another message", &p);
    p = from_server(NETLOCK_TYPES, REMOTE);
    expect("no message", &p, sizeof p, XDP_DROP, PLANE_TYPE);
    p = good;
    p.head.nonce = nonce_of(REQUESTS, 99);
    expect("a push for no request", &p, sizeof p, XDP_DROP, PLANE_TYPE);
    p = good;
    p.priority = NETLOCK_PRIORITIES;
    expect("a push of no priority", &p, sizeof p, XDP_DROP, PLANE_TYPE);
    p = good;
    p.tenant = 0xffff;
    expect("a push of no tenant", &p, sizeof p, XDP_DROP, PLANE_TYPE);
    uint32_t *notify = at_memory(kit_at.notify_at + sizeof *notify * number_of(REMOTE));
    *notify = 0;
    expect("while it moves", &good, sizeof good, XDP_PASS, PLANE_CONTROL); /* which answers it */
    *notify = 1;
}

/* Another packet of the same request is in a pass, and stays there. */
static void busy(void)
{
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 2, 3, 99, NETLOCK_EXCLUSIVE, LOCK);
    uint32_t *claim = at_memory(kit_at.claims_at + sizeof *claim * ((2 * kit_at.stride + 3) % kit_at.requests));
    *claim = 1;
    expect("a claim", &p, sizeof p, XDP_DROP, PLANE_CONTENDED);
    *claim = 0;
    uint32_t *active = at_memory(kit_at.active_at + sizeof *active * number_of(LOCK));
    CHECK_EQ(*active, 0);
    send_it(&p);
    uint32_t ticket = only(NETLOCK_GRANT)->ticket;
    /* An order for a lock with a packet under way waits. */
    struct netlock_order o = {.kind = NETLOCK_ORDER_CLOSE, .lock = number_of(LOCK), .index = LOCK};
    *active = 1;
    CHECK(!plane_order(kit, &o, sizeof o) && !o.done);
    *active = 0;
    o = (struct netlock_order){.kind = NETLOCK_ORDER_OPEN, .lock = number_of(LOCK | NETLOCK_CLOSING), .index = LOCK};
    CHECK(!plane_order(kit, &o, sizeof o) && o.done);
    o.kind = 99;
    CHECK(plane_order(kit, &o, sizeof o));
    p = ask(NETLOCK_RELEASE, 2, 3, 99, 0, LOCK);
    p.ticket = ticket;
    send_it(&p);
    only(NETLOCK_RELEASED);
    o = (struct netlock_order){.kind = NETLOCK_ORDER_REMOVE, .lock = number_of(LOCK), .index = LOCK};
    CHECK(!plane_order(kit, &o, sizeof o) && o.done);
    p = ask(NETLOCK_ACQUIRE, 2, 3, 100, NETLOCK_EXCLUSIVE, LOCK);
    send_it(&p);
    CHECK_EQ(only(NETLOCK_ACQUIRE)->flags, NETLOCK_FORWARDED); /* the server's from now on */
}

/* Copies on their way out whose note is gone, that are cut off, or that are not needed. */
static void copies(void)
{
    struct netlock_packet p = ask(NETLOCK_GRANT, 1, 3, 99, NETLOCK_SHARED, REMOTE);
    struct test_frame f = kit_frame(&p, sizeof p), out_frame;
    struct plane_run run = {.in = f.bytes, .in_len = f.len, .out = out_frame.bytes, .out_len = sizeof out_frame.bytes};
    f.ip.id = 0x7777;
    f.udp.check = 0x7777;
    test_reason(kit, ANY_REASON);
    CHECK_EQ(test_run(plane_program(kit, "fan_probe"), &run), 0);
    CHECK_EQ(run.verdict, XDP_DROP);
    test_reason(kit, PLANE_LOST_TWIN);
    run.in_len--;
    run.out_len = sizeof out_frame.bytes;
    CHECK_EQ(test_run(plane_program(kit, "fan_probe"), &run), 0);
    CHECK_EQ(run.verdict, XDP_DROP);
    test_reason(kit, NO_REASON);
}

int main(void)
{
    set_up(3600 * NS_PER_S);
    bring_in(LOCK);
    bring_in(REMOTE);
    rare_packets();
    at_servers();
    from_servers();
    copies();
    busy();
    kit_close();
    return 0;
}
