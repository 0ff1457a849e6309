/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of the kernel's programs per packet, by BPF_PROG_TEST_RUN: nothing of drivers, queues or sockets. FissLock's decider and
 * a program that only swaps the heads of the same frame take turns. */
#include "bench/kit.h"
#include "dataplane/fission.h"
#include "tests/xdp/packets.h"

#define LOCKS 1024
#define INDEX 77
#define PARTS ((PACKET_MAX - sizeof(struct many_front)) / sizeof(struct fission_packet)) /* 15: those that fit */
#define ROUNDS 21
#define REPEAT 200000

static struct plane *echo_plane, *plane;

static double run(int program, const struct cost_case *c, uint32_t repeat, uint32_t verdict)
{
    struct plane_run r = {.in = c->frame, .in_len = c->words * 8, .repeat = repeat};
    int rc = plane_run(program, &r);
    if (rc)
        kit_die("BPF_PROG_TEST_RUN: %s", strerror(-rc));
    if (r.verdict != verdict)
        kit_die("verdict %u, not %u", r.verdict, verdict);
    return r.ns;
}

struct scene {
    const char *name;
    uint32_t verdict;
    uint64_t word;
    unsigned parts; /* of a datagram, each for a lock of its own; 0: a single packet */
    struct fission_packet packet;
};

static struct fission_packet packet(uint8_t type, uint8_t mode)
{
    struct fission_packet f = {.head = test_head(PACKET_FISSION, type), .mode = mode, .old_mode = mode, .client = {1, 5001}};
    f.head.index = INDEX;
    return f;
}

static struct test_frame frame_of(const struct scene *s)
{
    struct test_many d;
    if (!s->parts)
        return test_frame(&s->packet, sizeof s->packet);
    test_many_begin(&d, &s->packet.head);
    for (unsigned i = 0; i < s->parts; i++) {
        struct fission_packet part = s->packet;
        part.head.index += i;
        if (!test_many_add(&d, &part, sizeof part))
            kit_die("%u parts do not fit", s->parts);
    }
    return test_frame(d.bytes, d.len);
}

static struct cost_case case_of(const struct scene *s)
{
    struct cost_case c = {.lock = {s->word, 0}, .index = INDEX, .locks = s->parts ? s->parts : 1};
    struct test_frame f = frame_of(s);
    f.udp.check = 0;
    c.words = (uint32_t)round_up(f.len, 8) / 8;
    memcpy(c.frame, f.bytes, f.len);
    return c;
}

/* The net cost; the cost of the loop of BPF_PROG_TEST_RUN is in it, as in the echo's. */
static double cost(const struct scene *s, const struct cost_case *c, uint32_t repeat)
{
    int run_fd = plane_program(plane, "cost_run"), restore = plane_program(plane, "cost_restore");
    if (plane_set_case(plane, c))
        kit_die("no case");
    run(restore, c, 1, XDP_TX);
    double all = run(run_fd, c, repeat, s->verdict), back = run(restore, c, repeat, XDP_TX);
    return all - (back - run(plane_program(echo_plane, "pass_all"), c, repeat, XDP_PASS));
}

/* The median over rounds of net cost and of its ratio to the bare echo of the same round. */
static void measure(struct kit *k, const struct scene *s, double *median_ns, double *median_ratio)
{
    double ns[ROUNDS], ratio[ROUNDS];
    struct cost_case c = case_of(s);
    uint32_t repeat = (uint32_t)(REPEAT * k->scale) / c.locks + 1;
    for (unsigned i = 0; i < ROUNDS; i++) {
        double echo = run(plane_program(echo_plane, "echo"), &c, repeat, XDP_TX);
        ns[i] = cost(s, &c, repeat);
        ratio[i] = ns[i] / echo;
    }
    *median_ns = kit_percentile(ns, ROUNDS, 0.5);
    *median_ratio = kit_percentile(ratio, ROUNDS, 0.5);
}

/* Requests in one datagram against a single one, in turns. */
static void many_against_one(struct kit *k, const struct scene *one, const struct scene *many)
{
    double ratio[ROUNDS];
    struct cost_case c = case_of(one), d = case_of(many);
    uint32_t repeat = (uint32_t)(REPEAT * k->scale) / d.locks + 1;
    for (unsigned i = 0; i < ROUNDS; i++)
        ratio[i] = cost(many, &d, repeat) / cost(one, &c, repeat);
    kit_judge(k, "as many acquires as a datagram has room for, against one", kit_percentile(ratio, ROUNDS, 0.5), "x", 10);
}

static uint64_t word(bool shared, uint16_t machine, uint16_t inca)
{
    return FISSION_WORD_HELD | (shared ? FISSION_WORD_SHARED : 0) | (uint64_t)machine << FISSION_WORD_MACHINE_SHIFT | inca;
}

/* To machines 1 to 3; the question has room for so many entries. */
static void give_leases(uint16_t room)
{
    struct {
        struct fission_packet packet;
        struct fission_entry entry[RULES_ENTRIES];
    } lease = {.packet = packet(FISSION_LEASE, 0)};
    for (uint16_t m = 1; m <= 3; m++) {
        struct test_frame in, out;
        lease.packet.head.from = (struct place){m, PORT_POOL};
        lease.packet.count = room;
        in = test_frame(&lease, (uint32_t)(sizeof lease.packet + room * sizeof lease.entry[0]));
        if (test_pass(plane, &in, &out) != XDP_TX)
            kit_die("no lease for machine %u", m);
    }
}

/* The same program as the switch of one of two racks. */
static void in_a_rack(struct kit *k)
{
    const struct scene s = {"", XDP_TX, 0, 0, packet(FISSION_ACQUIRE, FISSION_EXCLUSIVE)};
    double ns, ratio;
    plane_close(plane, PLANE_REMOVE);
    plane = test_plane_of("fission", &(struct plane_settings){.port = htons(TEST_PORT),
                                                              .machines = TEST_MACHINES,
                                                              .space = TEST_SPACE,
                                                              .locks = LOCKS,
                                                              .lease_ns = 3600 * NS_PER_S,
                                                              .racks = 2,
                                                              .ip = htonl(0x0a000063)});
    plane_live(plane)->shards = UINT64_MAX;
    give_leases(RULES_ENTRIES);
    measure(k, &s, &ns, &ratio);
    printf("  %-40s %6.1f ns  %5.2f x the bare echo\n", "ACQUIRE exclusive, free, one of two racks", ns, ratio);
    kit_judge(k, "the same at the switch of one of several racks", ratio, "x", 3.5);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "cost of the kernel's programs per packet (BPF_PROG_TEST_RUN)");
    echo_plane = test_plane("echo", 0);
    plane = test_plane_leased("fission", LOCKS, 3600 * NS_PER_S);
    kit_pin(k.cpus[0]);
    give_leases(0);

    struct scene scenes[] = {
        {"an echo, through the decider's frame", XDP_TX, 0, 0, packet(FISSION_ACQUIRE, FISSION_EXCLUSIVE)},
        {"ACQUIRE exclusive, free", XDP_TX, 0, 0, packet(FISSION_ACQUIRE, FISSION_EXCLUSIVE)},
        {"ACQUIRE shared, free", XDP_TX, 0, 0, packet(FISSION_ACQUIRE, FISSION_SHARED)},
        {"ACQUIRE shared, held shared: two out", XDP_REDIRECT, word(true, 2, 1), 0, packet(FISSION_ACQUIRE, FISSION_SHARED)},
        {"ACQUIRE exclusive, held: to the agent", XDP_TX, word(false, 2, 0), 0, packet(FISSION_ACQUIRE, FISSION_EXCLUSIVE)},
        {"RELEASE: to the agent", XDP_TX, word(false, 2, 0), 0, packet(FISSION_RELEASE, FISSION_EXCLUSIVE)},
        {"LEASE", XDP_TX, 0, 0, packet(FISSION_LEASE, 0)},
        {"FREE", XDP_TX, word(false, 1, 0), 0, packet(FISSION_FREE, FISSION_EXCLUSIVE)},
        {"GRANT with the agent", XDP_TX, word(false, 1, 0), 0, packet(FISSION_GRANT, FISSION_EXCLUSIVE)},
        {"FLAGS", XDP_DROP, word(false, 1, 0), 0, packet(FISSION_FLAGS, FISSION_EXCLUSIVE)},
        {"LOOK: to the agent", XDP_TX, word(false, 2, 0), 0, packet(FISSION_LOOK, FISSION_EXCLUSIVE)},
        {"ACK: passes", XDP_TX, 0, 0, packet(FISSION_ACK, FISSION_EXCLUSIVE)},
        {"one ACQUIRE, in a datagram for several", XDP_TX, 0, 1, packet(FISSION_ACQUIRE, FISSION_EXCLUSIVE)},
        {"fifteen FREE in a datagram", XDP_TX, word(false, 1, 0), PARTS, packet(FISSION_FREE, FISSION_EXCLUSIVE)},
        {"fifteen ACQUIRE in a datagram", XDP_TX, 0, PARTS, packet(FISSION_ACQUIRE, FISSION_EXCLUSIVE)},
    };
    scenes[0].packet.head.family = PACKET_ECHO;
    for (size_t i = 0; i < countof(scenes); i++) {
        struct fission_packet *p = &scenes[i].packet;
        if (p->head.type == FISSION_GRANT)
            p->flags = FISSION_AGENT;
        if (p->head.type == FISSION_GRANT || p->head.type == FISSION_ACK)
            p->head.to = (struct place){2, PORT_POOL};
        double ns, ratio;
        measure(&k, &scenes[i], &ns, &ratio);
        printf("  %-40s %6.1f ns  %5.2f x the bare echo\n", scenes[i].name, ns, ratio);
        if (i == 1)
            kit_judge(&k, "an uncontended acquire with its token, against a bare echo", ratio, "x", 3.5);
    }
    many_against_one(&k, &scenes[1], &scenes[countof(scenes) - 1]);
    printf("  the verifier went through %" PRIu32 " instructions\n", plane_verified(plane));
    in_a_rack(&k);
    plane_close(plane, PLANE_REMOVE);
    plane_close(echo_plane, PLANE_REMOVE);
    return kit_end(&k);
}
