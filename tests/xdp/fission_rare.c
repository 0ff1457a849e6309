/* SPDX-License-Identifier: Apache-2.0 */
/* The branches of FissLock's program that packets seldom take, packet in and packet out. With fission.c (the stages, bad packets,
 * leases, two CPUs) and frame.c (heads, learning, relaying) those are the branches that there are:
 * tests/xdp/coverage.py counts them in the kernel. That the word changes eight times while the stages run cannot be had on purpose.
 */
#include "tests/xdp/fission_hand.h"

#define LOCKS 16
#define LEASE_NS (3600 * NS_PER_S)

static struct fission_packet packet(uint8_t type, uint16_t machine, uint64_t index)
{
    return packet_in(TEST_SPACE, type, machine, index);
}

static void renew(uint16_t machine, uint32_t life)
{
    struct fission_packet f = packet(FISSION_LEASE, machine, 0);
    f.head.from.port = PORT_POOL;
    f.head.nonce = life;
    CHECK_EQ(expect("lease", &f, XDP_TX, NO_REASON).head.to.machine, machine);
}

static void leases(void)
{
    struct fission_packet f = packet(FISSION_LEASE, 1, 0), a;
    f.head.from.machine = MACHINE_SWITCH; /* no host */
    expect("a lease for no host", &f, XDP_DROP, PLANE_UNKNOWN);
    renew(1, 0);
    f = packet(FISSION_ACQUIRE, 1, 1);
    CHECK_EQ(expect("leased", &f, XDP_TX, NO_REASON).head.type, FISSION_GRANT);
    f = packet(FISSION_LEASE, 1, 0);
    f.flags = FISSION_DONE;
    f.head.nonce = 77; /* of a life that it has not */
    expect("another life's end", &f, XDP_DROP, NO_REASON);
    f = packet(FISSION_ACQUIRE, 1, 2);
    CHECK_EQ(expect("still leased", &f, XDP_TX, NO_REASON).head.type, FISSION_GRANT);
    f = packet(FISSION_LEASE, 1, 0);
    f.flags = FISSION_DONE;
    f.head.nonce = 0;
    expect("its end", &f, XDP_DROP, NO_REASON);
    f = packet(FISSION_ACQUIRE, 1, 3);
    expect("after its end", &f, XDP_DROP, PLANE_REFUSED);
    f.flags = FISSION_RETRY;
    expect("again, marked", &f, XDP_DROP, PLANE_REFUSED);
    f = packet(FISSION_RELEASE, 1, 3);
    expect("a release of the dead", &f, XDP_DROP, PLANE_REFUSED);
    /* The next host that asks gets the agents of its locks, on any path that the packet takes. */
    renew(2, 0);
    for (uint64_t lock = 1; lock <= 2; lock++) {
        f = packet(FISSION_ACQUIRE, 2, lock);
        f.flags = lock == 2 ? FISSION_RETRY : 0;
        a = expect("taken over", &f, XDP_TX, NO_REASON);
        CHECK(a.head.to.machine == 2 && a.word & FISSION_WORD_TAKEN);
    }
}

static void closed(void)
{
    struct fission_packet f = packet(FISSION_REPORT, 2, 0);
    expect("a report that was not asked for", &f, XDP_DROP, PLANE_REFUSED);
    plane_live(p)->closed = 1;
    expect("a report", &f, XDP_PASS, PLANE_CONTROL);
    f.head.from.machine = MACHINE_SWITCH;
    expect("a report of no host", &f, XDP_DROP, PLANE_REFUSED);
    f = packet(FISSION_LEASE, 2, 0);
    CHECK_EQ(expect("a lease while closed", &f, XDP_TX, NO_REASON).flags, FISSION_CLOSED);
    f = packet(FISSION_ACQUIRE, 2, 5);
    expect("closed", &f, XDP_DROP, PLANE_CLOSED);
    f.flags = FISSION_NOWAIT;
    expect("closed, with flags", &f, XDP_DROP, PLANE_CLOSED);
    plane_live(p)->closed = 0;
    CHECK_EQ(expect("open again", &f, XDP_TX, NO_REASON).head.type, FISSION_GRANT);
}

/* Past the lock, and to unknown machines. */
static void passing(void)
{
    struct fission_packet f = packet(FISSION_CHASE, 2, 5);
    f.head.to = (struct place){3, PORT_POOL};
    CHECK_EQ(expect("a chase", &f, XDP_TX, NO_REASON).head.to.machine, 3);
    f.head.to.machine = 4;
    expect("to a machine without address", &f, XDP_DROP, PLANE_UNKNOWN);
    f.head.to.machine = MACHINE_SWITCH;
    expect("to the switch itself", &f, XDP_DROP, PLANE_UNKNOWN);
    f = packet(FISSION_PROBE, 2, 5);
    CHECK_EQ(expect("a probe", &f, XDP_TX, NO_REASON).head.to.machine, 2); /* which has the agent since closed() */
    f.head.index = 6;
    expect("a probe of a free lock", &f, XDP_DROP, NO_REASON);
    f = packet(FISSION_CENSUS, 2, 5);
    f.head.to = (struct place){MACHINE_SWITCH, PORT_POOL};
    CHECK_EQ(expect("a census of the switch", &f, XDP_TX, NO_REASON).head.type, FISSION_ANSWER);
    /* Behind a port that the switch has not. */
    struct plane_host h = {.mac = {htons(0x0200), 0, htons(3)}, .pool_port = htons(4700), .ip = htonl(0x0a000003), .ifindex = 77};
    CHECK_EQ(test_set_host(p, 3, &h), 0);
    f = packet(FISSION_CHASE, 2, 5);
    f.head.to = (struct place){3, PORT_POOL};
    expect("no such port", &f, XDP_DROP, NO_REASON);
}

static uint32_t verdict_of(struct packet_head h)
{
    struct test_frame in = test_frame(&h, sizeof h), out;
    return test_pass(p, &in, &out);
}

static void other_families(void)
{
    CHECK_EQ(verdict_of(test_head(PACKET_ECHO, 0)), XDP_TX);
    test_reason(p, NO_REASON);
    CHECK_EQ(verdict_of(test_head(PACKET_NETLOCK, 1)), XDP_DROP);
    test_reason(p, PLANE_FAMILY);
}

/* The agent goes with a GRANT. That may be lost behind us, so it may come again, but only as long as nothing has changed. */
static void once_more(void)
{
    struct fission_packet f = packet(FISSION_ACQUIRE, 1, 9), g;
    renew(1, 0);
    g = expect("the first holder", &f, XDP_TX, NO_REASON);
    f = packet(FISSION_GRANT, 1, 9);
    f.flags = FISSION_AGENT;
    f.old_mode = FISSION_EXCLUSIVE;
    f.term = g.term;
    f.head.to = (struct place){2, 5001};
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(expect("handed over", &f, XDP_TX, NO_REASON).head.to.machine, 2);
    f.mode = FISSION_SHARED;
    CHECK(expect("in another mode", &f, XDP_TX, NO_REASON).head.to.machine == 1);
    f.mode = FISSION_EXCLUSIVE;
    f.head.to.machine = 3;
    CHECK_EQ(expect("to another", &f, XDP_TX, NO_REASON).head.to.machine, 1);
}

/* The agent is to move to a host that is lost: it ends where it was, and a request takes the tenure over. */
static void to_lost(void)
{
    struct fission_packet f = packet(FISSION_ACQUIRE, 1, 11), a = expect("the holder", &f, XDP_TX, NO_REASON);
    f = packet(FISSION_GRANT, 1, 11);
    f.flags = FISSION_AGENT;
    f.old_mode = FISSION_EXCLUSIVE;
    f.term = a.term;
    f.head.to = (struct place){3, 5001};
    for (unsigned i = 0; i < 2; i++) {
        a = expect("to a lost host", &f, XDP_TX, NO_REASON);
        CHECK(a.head.to.machine == 1 && a.flags & FISSION_DONE && !(a.flags & FISSION_DENIED));
    }
    f = packet(FISSION_ACQUIRE, 2, 11);
    a = expect("taken over", &f, XDP_TX, NO_REASON);
    CHECK(a.head.to.machine == 2 && a.word & FISSION_WORD_TAKEN);
}

/* Copies on their way out. */
static void copies(void)
{
    struct fission_packet f = packet(FISSION_ACQUIRE, 2, 7);
    struct test_frame in, out, copy;
    f.mode = FISSION_SHARED;
    expect("the first reader", &f, XDP_TX, NO_REASON);
    f.client.machine = f.head.from.machine = 4; /* which has no address */
    renew(4, 0);
    in = test_frame(&f, sizeof f);
    CHECK_EQ(test_pass(p, &in, &out), XDP_REDIRECT);
    struct plane_run run = {.in = out.bytes, .in_len = out.len, .out = copy.bytes, .out_len = sizeof copy.bytes};
    CHECK_EQ(test_run(plane_program(p, "twin_probe"), &run), 0);
    CHECK_EQ(run.verdict, XDP_DROP);
    test_reason(p, PLANE_UNKNOWN);
    run.out_len = sizeof copy.bytes;
    CHECK_EQ(test_run(plane_program(p, "twin_probe"), &run), 0);
    CHECK_EQ(run.verdict, XDP_PASS); /* the agent hears of it */
    test_reason(p, NO_REASON);
    run = (struct plane_run){.in = out.bytes, .in_len = FRAME_HEADS + 79, .out = copy.bytes, .out_len = sizeof copy.bytes};
    CHECK_EQ(test_run(plane_program(p, "twin_probe"), &run), 0);
    CHECK_EQ(run.verdict, XDP_DROP); /* cut off */
    /* On the inner end of an in-path switch's loop they are addressed already. */
    struct packet_head h;
    memcpy(&h, out.packet, sizeof h);
    for (uint16_t machine = 2; machine <= 4; machine++) {
        h.to.machine = machine;
        memcpy(out.packet, &h, sizeof h);
        run = (struct plane_run){.in = out.bytes, .in_len = out.len, .out = copy.bytes, .out_len = sizeof copy.bytes};
        CHECK_EQ(test_run(plane_program(p, "twin_in"), &run), 0);
        CHECK_EQ(run.verdict, XDP_DROP); /* there is no such port, or it is unknown */
        test_reason(p, machine == 4 ? PLANE_UNKNOWN : NO_REASON);
    }
    run.in_len = FRAME_HEADS;
    CHECK_EQ(test_run(plane_program(p, "twin_in"), &run), 0);
    CHECK_EQ(run.verdict, XDP_DROP);
    test_reason(p, NO_REASON);
}

/* A map that is shorter than the settings say. */
static void no_such_lock(void)
{
    const struct plane_options o = {
        .program = "fission",
        .settings = {.port = htons(TEST_PORT), .machines = TEST_MACHINES, .space = TEST_SPACE, .locks = LOCKS},
        .locks_max = LOCKS / 2};
    struct fission_packet f = packet(FISSION_ACQUIRE, 1, LOCKS - 1);
    plane_close(p, PLANE_REMOVE);
    CHECK_EQ(test_open(&o, &p), 0);
    test_reason(p, ANY_REASON);
    expect("beyond the map", &f, XDP_DROP, PLANE_INDEX);
}

int main(void)
{
    p = test_plane_leased("fission", LOCKS, LEASE_NS);
    test_pin_to(0);
    leases();
    closed();
    once_more();
    to_lost();
    passing();
    other_families();
    copies();
    no_such_lock();
    plane_close(p, PLANE_REMOVE);
    return 0;
}
