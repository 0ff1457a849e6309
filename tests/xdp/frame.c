/* SPDX-License-Identifier: Apache-2.0 */
/* The frame around every switch program, packet in and packet out: a frame that is no lock packet is passed untouched, a bad lock
 * packet is dropped, both counted by reason; echoes come back; packets for a machine go there. */
#include "tests/xdp/packets.h"

static struct plane *p;

static struct test_frame echo(void)
{
    struct packet_head h = test_head(PACKET_ECHO, 0);
    return test_frame(&h, sizeof h);
}

static void expect(const char *what, const struct test_frame *in, uint32_t verdict, enum plane_reason why)
{
    struct test_frame out = {.len = 0};
    uint32_t got = test_pass(p, in, &out);
    if (got != verdict)
        CHECK_FAIL("%s: verdict %u, not %u", what, got, verdict);
    if (verdict == XDP_PASS && (out.len != in->len || memcmp(out.bytes, in->bytes, in->len) != 0))
        CHECK_FAIL("%s: was passed, but changed", what);
    test_reason(p, why);
}

static void echo_comes_back(void)
{
    struct test_frame in = echo(), out;
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    CHECK_EQ(out.len, in.len);
    CHECK(!memcmp(out.eth.h_dest, in.eth.h_source, 6) && !memcmp(out.eth.h_source, in.eth.h_dest, 6));
    CHECK_EQ(out.ip.saddr, in.ip.daddr);
    CHECK_EQ(out.ip.daddr, in.ip.saddr);
    CHECK_EQ(out.udp.dest, in.udp.source);
    CHECK_EQ(out.udp.source, in.udp.dest);
    CHECK_EQ(out.udp.check, 0);
    CHECK_EQ(test_sum(&out.ip, sizeof out.ip, 0), 0xffff);
    struct packet_head back = test_head(PACKET_ECHO, ECHO_BACK);
    CHECK(!memcmp(out.packet, &back, sizeof back));
    test_reason(p, NO_REASON);
    in = test_frame(&back, sizeof back);
    expect("the answer to an echo", &in, XDP_DROP, PLANE_TYPE);
}

static void send_to(struct place to, uint16_t port)
{
    struct packet_head h = test_head(PACKET_SERVER, 3);
    uint8_t packet[PACKET_MAX] = {0};
    h.to = to;
    memcpy(packet, &h, sizeof h);
    for (uint32_t len = sizeof h; len <= PACKET_MAX; len += 17) {
        memset(packet + sizeof h, (int)len, len - sizeof h);
        struct test_frame in = test_frame(packet, len), out;
        CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
        CHECK_EQ(out.len, in.len);
        CHECK_EQ(out.eth.h_dest[5], to.machine);
        CHECK_EQ(out.eth.h_source[5], 99);
        CHECK_EQ(ntohl(out.ip.daddr), 0x0a000000u + to.machine);
        CHECK_EQ(out.ip.saddr, in.ip.daddr);
        CHECK_EQ(ntohs(out.udp.dest), port);
        CHECK_EQ(ntohs(out.udp.source), TEST_PORT);
        CHECK_EQ(test_sum(&out.ip, sizeof out.ip, 0), 0xffff);
        CHECK(!memcmp(out.packet, packet, len));
        test_reason(p, NO_REASON);
    }
}

static void passed_untouched(void)
{
    struct test_frame f = echo();
    f.eth.h_proto = htons(ETH_P_ARP);
    expect("ARP", &f, XDP_PASS, PLANE_NOT_IPV4);
    f.eth.h_proto = htons(ETH_P_IPV6);
    expect("IPv6", &f, XDP_PASS, PLANE_IPV6);
    f.eth.h_proto = htons(ETH_P_8021Q);
    expect("a VLAN tag", &f, XDP_PASS, PLANE_VLAN);
    f.eth.h_proto = htons(ETH_P_8021AD);
    expect("an outer VLAN tag", &f, XDP_PASS, PLANE_VLAN);
    f = echo();
    f.ip.protocol = IPPROTO_TCP;
    expect("TCP", &f, XDP_PASS, PLANE_OTHER);
    f = echo();
    f.udp.dest = htons(TEST_PORT + 1);
    expect("another port", &f, XDP_PASS, PLANE_OTHER);
    f = echo();
    f.ip.ihl = 6;
    expect("options", &f, XDP_PASS, PLANE_OPTIONS);
    f = echo();
    f.ip.version = 5;
    expect("no version of IP", &f, XDP_PASS, PLANE_OPTIONS);
    f = echo();
    f.ip.frag_off = htons(0x2000);
    expect("the first fragment", &f, XDP_PASS, PLANE_FRAGMENT);
    f.ip.frag_off = htons(100);
    expect("a later fragment", &f, XDP_PASS, PLANE_FRAGMENT);
    f = echo();
    f.len = sizeof f.eth; /* the least that BPF_PROG_TEST_RUN takes */
    expect("an Ethernet head alone", &f, XDP_PASS, PLANE_OTHER);
}

/* Cut after every byte: nothing that is too short for a lock packet is answered. */
static void truncated(void)
{
    for (uint32_t len = FRAME_HEADS; len < FRAME_HEADS + sizeof(struct packet_head); len++) {
        struct test_frame f = echo();
        f.len = len;
        expect("cut short", &f, XDP_DROP, PLANE_SHORT);
        f.udp.len = htons((uint16_t)(len - sizeof f.eth - sizeof f.ip));
        f.ip.tot_len = htons((uint16_t)(len - sizeof f.eth));
        test_ip_sum(&f);
        test_udp_sum(&f);
        expect("sent short", &f, XDP_DROP, PLANE_SHORT);
    }
    const uint8_t longer[sizeof(struct packet_head) + 16] = {0};
    struct test_frame f = test_frame(longer, sizeof longer);
    f.len -= 9;
    expect("cut behind the head", &f, XDP_DROP, PLANE_SHORT);
    f = echo();
    f.udp.len = htons(0);
    expect("UDP length 0", &f, XDP_DROP, PLANE_SHORT);
    f = echo();
    f.udp.len = htons((uint16_t)(ntohs(f.udp.len) + 1));
    expect("UDP longer than IP", &f, XDP_DROP, PLANE_SHORT);
    f = echo();
    f.udp.len = htons(0xffff);
    f.ip.tot_len = htons(0xffff);
    expect("longer than any packet", &f, XDP_DROP, PLANE_SHORT);
}

static void bad_sums(void)
{
    struct test_frame f = echo(), out;
    f.ip.ttl--;
    expect("IP sum", &f, XDP_DROP, PLANE_CHECKSUM);
    /* Every byte that UDP's sum covers, and every length of the odd end. */
    for (uint32_t len = sizeof(struct packet_head); len < sizeof(struct packet_head) + 3; len++) {
        uint8_t packet[64] = {0};
        struct packet_head h = test_head(PACKET_ECHO, 0);
        memcpy(packet, &h, sizeof h);
        packet[sizeof h] = 9;
        for (uint32_t i = 0; i < len; i++) {
            f = test_frame(packet, len);
            f.packet[i] ^= 0x10;
            expect("UDP sum", &f, XDP_DROP, PLANE_CHECKSUM);
        }
        f = test_frame(packet, len);
        CHECK_EQ(test_pass(p, &f, &out), XDP_TX);
        f.udp.check = 0;
        CHECK_EQ(test_pass(p, &f, &out), XDP_TX);
        f.udp.check = htons(test_sum(NULL, 0, test_pseudo(&f))); /* as a sender with offload leaves it */
        CHECK_EQ(test_pass(p, &f, &out), XDP_TX);
        test_reason(p, NO_REASON);
    }
}

static void bad_heads(void)
{
    struct packet_head h = test_head(PACKET_ECHO, 0);
    h.version = PACKET_VERSION - 1;
    struct test_frame f = test_frame(&h, sizeof h);
    expect("version", &f, XDP_DROP, PLANE_VERSION);
    h = test_head(PACKET_ECHO, 0);
    for (unsigned bit = 0; bit < 8; bit++) {
        h.features = (uint8_t)(1u << bit);
        f = test_frame(&h, sizeof h);
        expect("a feature that the program does not know", &f, XDP_DROP, PLANE_VERSION);
    }
    h = test_head(PACKET_SERVER, 0);
    h.space++;
    h.to.machine = 1;
    f = test_frame(&h, sizeof h);
    expect("to a machine of another space", &f, XDP_DROP, PLANE_ALIEN);
    h = test_head(PACKET_SERVER, 0);
    f = test_frame(&h, sizeof h);
    expect("for the switch, which is no server", &f, XDP_DROP, PLANE_FAMILY);
    h.to.machine = 4;
    f = test_frame(&h, sizeof h);
    expect("a machine without address", &f, XDP_DROP, PLANE_UNKNOWN);
    h.to.machine = TEST_MACHINES + 1;
    f = test_frame(&h, sizeof h);
    expect("a machine beyond the rack", &f, XDP_DROP, PLANE_UNKNOWN);
    h.to.machine = MACHINE_NONE;
    f = test_frame(&h, sizeof h);
    expect("no machine", &f, XDP_DROP, PLANE_UNKNOWN);
}

/* A host's pool says where it is: from then on packets for the host go there, unless an older life says so. */
static void learn_hosts(void)
{
    struct packet_head h = test_head(PACKET_COORDINATOR, PLANE_HERE);
    struct test_frame f;
    h.from = (struct place){5, PORT_POOL};
    h.to = (struct place){0};
    h.epoch = 9;
    f = test_frame(&h, sizeof h);
    f.eth.h_source[5] = 5;
    f.ip.saddr = htonl(0x0a000005);
    f.udp.source = htons(4700);
    f.udp.check = 0;
    test_ip_sum(&f);
    expect("here", &f, XDP_DROP, NO_REASON);
    send_to((struct place){5, PORT_POOL}, 4700);
    send_to((struct place){5, 5555}, 5555);
    h.epoch = 8;
    h.from.machine = 5;
    struct test_frame old = test_frame(&h, sizeof h);
    expect("here, in an older life", &old, XDP_DROP, PLANE_EPOCH);
    send_to((struct place){5, PORT_POOL}, 4700);
    /* The coordinator has told of the host: another life, and another address, are for the control process, and teach nothing. */
    void *hosts;
    uint64_t bytes;
    CHECK_EQ(plane_map(p, "hosts", &hosts, &bytes), 0);
    struct plane_host *given = &((struct plane_host *)hosts)[5];
    given->given_life = 9;
    given->given_ip = htonl(0x0a000005);
    struct test_frame forged = f;
    forged.packet[offsetof(struct packet_head, epoch) + 3] = 0xff;
    expect("here, of a life that was not given", &forged, XDP_PASS, PLANE_FORGED);
    forged = f;
    forged.ip.saddr = htonl(0x0a000006);
    test_ip_sum(&forged);
    expect("here, from another address", &forged, XDP_PASS, PLANE_FORGED);
    send_to((struct place){5, PORT_POOL}, 4700);
    given->life = UINT32_MAX; /* learnt before the coordinator told: the given one counts */
    expect("here, after a forged one", &f, XDP_DROP, NO_REASON);
    CHECK_EQ(given->life, 9);
    given->given_life = 0;
    h.from.machine = TEST_MACHINES + 1;
    f = test_frame(&h, sizeof h);
    expect("here, beyond the rack", &f, XDP_DROP, PLANE_UNKNOWN);
    h.from.machine = MACHINE_NONE;
    f = test_frame(&h, sizeof h);
    expect("here, from no machine", &f, XDP_DROP, PLANE_UNKNOWN);
    h.from = (struct place){5, 5001};
    h.epoch = 10;
    f = test_frame(&h, sizeof h);
    expect("here, but not from the pool", &f, XDP_PASS, PLANE_CONTROL);
    h.from = (struct place){5, PORT_POOL};
    f = test_frame(&h, sizeof h);
    f.udp.source = htons(4701);
    f.eth.h_source[5] = 5;
    f.ip.saddr = htonl(0x0a000005);
    f.udp.check = 0;
    test_ip_sum(&f);
    expect("here, in a later life", &f, XDP_DROP, NO_REASON);
    send_to((struct place){5, PORT_POOL}, 4701);
    h.from.machine = 6;
    h.space++;
    f = test_frame(&h, sizeof h);
    expect("here, in another space", &f, XDP_PASS, PLANE_CONTROL);
    h = test_head(PACKET_COORDINATOR, 1);
    f = test_frame(&h, sizeof h);
    expect("for the control process", &f, XDP_PASS, PLANE_CONTROL);
}

static void count_types(void)
{
    struct plane_counters before, now;
    struct packet_head h = test_head(PACKET_SERVER, 9);
    struct test_frame f, out;
    h.to.machine = 2;
    f = test_frame(&h, sizeof h);
    CHECK_EQ(plane_count(p, &before), 0);
    for (int i = 0; i < 5; i++)
        test_pass(p, &f, &out);
    CHECK_EQ(plane_count(p, &now), 0);
    CHECK_EQ(now.type[PACKET_SERVER][9] - before.type[PACKET_SERVER][9], 5);
    CHECK_EQ(now.verdict[PLANE_SENT] - before.verdict[PLANE_SENT], 5);
}

int main(void)
{
    p = test_plane("relay", 0);
    echo_comes_back();
    send_to((struct place){2, 5002}, 5002);
    send_to((struct place){3, PORT_POOL}, 4700);
    passed_untouched();
    truncated();
    bad_sums();
    bad_heads();
    learn_hosts();
    count_types();
    test_verified(p);
    plane_close(p, PLANE_REMOVE);
    return 0;
}
