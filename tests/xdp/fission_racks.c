/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's program as the switch of one of three racks: packets for others pass or are refused, the table of the locks' division
 * goes with every lease, and while the control process changes that table, the program is quiet. Packet in and packet out. */
#include "tests/xdp/fission_hand.h"

#define LOCKS 256
#define RACKS 3
#define RACK 1
#define OWN_SPACE (TEST_SPACE + 1 + RACK) /* TEST_SPACE is that of all racks */
#define LEASE_NS (3600 * NS_PER_S)
#define VERSION 7
#define SWITCH_IP 0x0a000063

static struct fission_packet packet(uint8_t type, uint16_t machine, uint64_t index)
{
    return packet_in(OWN_SPACE, type, machine, index);
}

/* Slot s is rack (s + turn) % RACKS's. */
static void set_rules(unsigned at, uint32_t version, unsigned turn)
{
    uint8_t owner[RACK_SHARDS];
    uint64_t words[RACK_SHARDS / 8], slots = 0;
    for (unsigned s = 0; s < RACK_SHARDS; s++) {
        owner[s] = (uint8_t)((s + turn) % RACKS);
        slots |= (uint64_t)(owner[s] == RACK) << s;
    }
    memcpy(words, owner, sizeof words);
    for (unsigned i = 0; i < RACK_SHARDS / 8; i++)
        plane_live(p)->rules[at].owner[i] = words[i];
    plane_live(p)->rules[at].version = version;
    plane_live(p)->shards = slots;
    plane_live(p)->rules_at = at;
}

/* The first lock from `from` on whose slot is, or is not, this rack's when set_rules was told `turn`. */
static uint64_t lock_of(bool own, unsigned turn, uint64_t from)
{
    while (((shard_of(from) + turn) % RACKS == RACK) != own)
        from++;
    CHECK(from < LOCKS);
    return from;
}

struct leased {
    struct fission_packet packet;
    uint8_t owner[RACK_SHARDS];
};

static struct leased question(uint16_t machine)
{
    struct leased l = {.packet = packet(FISSION_LEASE, machine, 0)};
    l.packet.head.from.port = PORT_POOL;
    l.packet.count = RULES_ENTRIES;
    return l;
}

static struct leased renew(uint16_t machine)
{
    const struct leased l = question(machine);
    struct test_frame in = test_frame(&l, sizeof l), out;
    struct leased answer;
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    test_reason(p, NO_REASON);
    CHECK_EQ(out.len, in.len);
    memcpy(&answer, out.packet, sizeof answer);
    CHECK_EQ(answer.packet.head.to.machine, machine);
    CHECK_EQ(answer.packet.count, RULES_ENTRIES);
    return answer;
}

/* Other racks' frames and packets. */
static void not_ours(void)
{
    struct fission_packet f = packet(FISSION_ACQUIRE, 1, lock_of(true, 0, 0));
    struct test_frame in = test_frame(&f, sizeof f), out;
    in.ip.daddr = htonl(SWITCH_IP + 1); /* an in-path switch lies on the way to another one */
    test_ip_sum(&in);
    test_udp_sum(&in);
    CHECK_EQ(test_pass(p, &in, &out), XDP_PASS);
    CHECK(out.len == in.len && !memcmp(out.bytes, in.bytes, in.len));
    test_reason(p, PLANE_OTHER);
    f.head.space = OWN_SPACE + 1;
    expect("another rack's, to this one", &f, XDP_DROP, PLANE_ALIEN);
    f.head.space = TEST_SPACE;
    expect("the whole space's", &f, XDP_DROP, PLANE_ALIEN);
}

static void learning(void)
{
    struct packet_head h = test_head(PACKET_COORDINATOR, PLANE_HERE);
    struct test_frame in, out;
    h.from = (struct place){5, PORT_POOL};
    h.space = OWN_SPACE;
    in = test_frame(&h, sizeof h);
    CHECK_EQ(test_pass(p, &in, &out), XDP_PASS); /* the coordinator's packets have the number of the whole space */
    test_reason(p, PLANE_CONTROL);
    h.space = TEST_SPACE;
    in = test_frame(&h, sizeof h);
    CHECK_EQ(test_pass(p, &in, &out), XDP_DROP);
    test_reason(p, NO_REASON);
    struct fission_packet f = packet(FISSION_CHASE, 1, 0);
    f.head.to = (struct place){5, PORT_POOL};
    expect("to one that was learnt", &f, XDP_TX, NO_REASON);
}

static void leases(void)
{
    struct leased l = question(1), a;
    struct fission_packet f = l.packet;
    f.count = 0;
    expect("no room for the table", &f, XDP_DROP, PLANE_TYPE);
    f.count = RULES_ENTRIES; /* and nothing follows */
    expect("less room than it says", &f, XDP_DROP, PLANE_TYPE);
    f = packet(FISSION_ACQUIRE, 1, lock_of(true, 0, 0));
    expect("neither was heard", &f, XDP_DROP, PLANE_REFUSED);
    a = renew(1);
    CHECK_EQ(a.packet.flags, 0);
    CHECK_EQ(a.packet.stamp, VERSION);
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        CHECK_EQ(a.owner[s], s % RACKS);
    set_rules(1, VERSION + 1, 2);
    a = renew(1);
    CHECK_EQ(a.packet.stamp, VERSION + 1);
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        CHECK_EQ(a.owner[s], (s + 2) % RACKS);
    set_rules(0, VERSION, 0);
    f = packet(FISSION_LEASE, 1, 0); /* its end is not answered, and needs no room */
    f.flags = FISSION_DONE;
    f.head.nonce = 0;
    expect("its end", &f, XDP_DROP, NO_REASON);
    renew(1);
}

static void others_locks(void)
{
    uint64_t own = lock_of(true, 0, 0), other = lock_of(false, 0, 0);
    struct fission_packet f = packet(FISSION_ACQUIRE, 1, own);
    CHECK_EQ(expect("its own", &f, XDP_TX, NO_REASON).head.type, FISSION_GRANT);
    for (uint16_t flags = 0; flags <= FISSION_UPGRADE; flags = (uint16_t)(flags ? flags << 1 : 1)) {
        f = packet(FISSION_ACQUIRE, 1, other);
        f.flags = flags;
        expect("another's", &f, XDP_DROP, PLANE_FOREIGN);
    }
    f = packet(FISSION_RELEASE, 1, other); /* a free lock is free in every rack */
    CHECK_EQ(expect("given back", &f, XDP_TX, NO_REASON).head.type, FISSION_ACK);
    /* With other rules it is the other way round. */
    set_rules(1, VERSION + 1, 1);
    uint64_t both = lock_of(true, 1, 0);
    f = packet(FISSION_ACQUIRE, 1, own);
    expect("its own before", &f, XDP_DROP, PLANE_FOREIGN);
    f = packet(FISSION_ACQUIRE, 1, both);
    CHECK_EQ(expect("another's before", &f, XDP_TX, NO_REASON).head.type, FISSION_GRANT);
    set_rules(0, VERSION, 0);
}

/* While the control process changes the rules that the program uses. */
static void quiet(void)
{
    struct fission_packet f = packet(FISSION_ACQUIRE, 1, lock_of(true, 0, 200));
    const struct leased l = question(2);
    struct test_frame in = test_frame(&l, sizeof l), out;
    plane_live(p)->closed = PLANE_QUIET;
    CHECK_EQ(test_pass(p, &in, &out), XDP_DROP);
    test_reason(p, PLANE_CLOSED);
    expect("quiet", &f, XDP_DROP, PLANE_CLOSED);
    f = packet(FISSION_REPORT, 1, 0);
    expect("a report", &f, XDP_DROP, PLANE_REFUSED);
    plane_live(p)->closed = 0;
    f = packet(FISSION_ACQUIRE, 2, lock_of(true, 0, 200));
    expect("it was not heard", &f, XDP_DROP, PLANE_REFUSED);
}

/* A host whose reports the switch does not wait for is told so. */
static void apart(void)
{
    struct plane_host h = {
        .mac = {htons(0x0200), 0, htons(2)}, .pool_port = htons(4700), .ip = htonl(0x0a000002), .ifindex = 1, .apart = 1};
    CHECK_EQ(test_set_host(p, 2, &h), 0);
    plane_live(p)->closed = PLANE_REBUILDING;
    CHECK_EQ(renew(1).packet.flags, FISSION_CLOSED);
    CHECK_EQ(renew(2).packet.flags, FISSION_CLOSED | FISSION_DENIED);
    plane_live(p)->closed = 0;
    CHECK_EQ(renew(2).packet.flags, 0);
}

int main(void)
{
    p = test_plane_of("fission", &(struct plane_settings){.port = htons(TEST_PORT),
                                                          .machines = TEST_MACHINES,
                                                          .space = OWN_SPACE,
                                                          .locks = LOCKS,
                                                          .lease_ns = LEASE_NS,
                                                          .racks = RACKS,
                                                          .rack = RACK,
                                                          .ip = htonl(SWITCH_IP)});
    test_pin_to(0);
    set_rules(0, VERSION, 0);
    not_ours();
    learning();
    leases();
    others_locks();
    quiet();
    apart();
    printf("the verifier went through %" PRIu32 " instructions\n", plane_verified(p));
    plane_close(p, PLANE_REMOVE);
    return 0;
}
