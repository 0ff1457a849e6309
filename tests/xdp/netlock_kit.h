/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's switch in the kernel for tests: its memory mapped here as in the control process, packets in by BPF_PROG_TEST_RUN, and
 * all that leaves in a list. Hosts are machines 1 to KIT_HOSTS; of the two servers the first is on this machine. */
#ifndef PAWL_TESTS_XDP_NETLOCK_KIT_H
#define PAWL_TESTS_XDP_NETLOCK_KIT_H

#include "dataplane/xdp/fan.h"
#include "designs/netlock/kernel.h"
#include "designs/netlock/netlock.h"
#include "tests/term.h"
#include "tests/xdp/packets.h"

#define KIT_HOSTS 3
#define KIT_SERVERS 2
#define KIT_LIFE 7
#define KIT_HERE_PORT 4800 /* of the server on this machine */

static struct plane *kit;
static void *kit_memory;
static struct netlock_memory kit_at;

struct kit_outs {
    unsigned count;
    struct {
        uint32_t len;
        _Alignas(8) uint8_t bytes[PACKET_MAX];
    } out[256];
};

static inline struct rack_config kit_config(uint64_t locks, uint64_t options)
{
    return (struct rack_config){.space = TEST_SPACE,
                                .machines = KIT_HOSTS,
                                .sessions = 2,
                                .requests = 8,
                                .servers = KIT_SERVERS,
                                .server = {KIT_HOSTS + 1, KIT_HOSTS + 2},
                                .locks = locks,
                                .lease_ns = 3600 * NS_PER_S,
                                .retry_ns = NS_PER_MS,
                                .options = options};
}

static inline int kit_order(void *ctx, struct netlock_order *o)
{
    (void)ctx;
    return plane_order(kit, o, sizeof *o);
}

static inline void kit_grace(void *ctx)
{
    (void)ctx;
}

static inline void kit_load(const struct rack_config *c, uint64_t now)
{
    static const struct plane_kernel kernel = {.order = kit_order, .grace = kit_grace};
    uint64_t bytes;
    netlock_switch_describe(c, &kit_at);
    const struct plane_options o = {.program = "netlock",
                                    .settings = {.port = htons(TEST_PORT),
                                                 .machines = c->machines,
                                                 .space = c->space,
                                                 .locks = c->locks,
                                                 .options = (uint32_t)c->options,
                                                 .lease_ns = c->lease_ns},
                                    .probe = true,
                                    .hosts_max = KIT_HOSTS + KIT_SERVERS,
                                    .netlock = &kit_at};
    if (plane_missing())
        SKIP("%s", plane_missing());
    int rc = test_open(&o, &kit);
    if (rc == -EPERM)
        SKIP("%s", explained());
    if (rc)
        CHECK_FAIL("%s", explained());
    test_pin_to(0);
    CHECK_EQ(plane_map(kit, "memory", &kit_memory, &bytes), 0);
    CHECK(bytes >= kit_at.bytes);
    netlock_switch_init(kit_memory, c, KIT_LIFE, now);
    netlock_switch_in_kernel(kit_memory, &kernel);
    term_switch(kit_memory, c, KIT_LIFE, now);
    for (uint16_t m = 1; m <= KIT_HOSTS + KIT_SERVERS; m++) {
        bool here = m == KIT_HOSTS + 1;
        const struct plane_host h = {.mac = {htons(0x0200), 0, htons(m)},
                                     .pool_port = htons(here ? KIT_HERE_PORT : 4700),
                                     .ip = htonl(here ? 0x0a000063u : 0x0a000000u + m),
                                     .ifindex = !here};
        CHECK_EQ(test_set_host(kit, m, &h), 0);
    }
}

static inline void kit_close(void)
{
    netlock_switch_in_kernel(kit_memory, NULL);
    plane_close(kit, PLANE_REMOVE);
}

static inline void kit_add(struct kit_outs *o, const void *data, uint32_t len)
{
    CHECK(o->count < countof(o->out) && len <= PACKET_MAX);
    o->out[o->count].len = len;
    memcpy(o->out[o->count++].bytes, data, len);
}

static inline void kit_add_outbox(struct kit_outs *o, const struct outbox *box)
{
    for (unsigned i = 0; i < box->packets; i++)
        kit_add(o, outbox_packet(box, i), box->packet[i].len);
}

/* Checks that the frame is addressed to the receiver in its head. */
static inline void kit_add_frame(struct kit_outs *o, const struct test_frame *f)
{
    struct packet_head h;
    memcpy(&h, f->packet, sizeof h);
    CHECK_EQ(ntohl(f->ip.daddr), 0x0a000000u + h.to.machine);
    CHECK_EQ(f->eth.h_dest[5], h.to.machine);
    CHECK_EQ(ntohs(f->udp.dest), h.to.port == PORT_POOL || h.to.port == PORT_SERVER ? 4700 : h.to.port);
    CHECK_EQ(test_sum(&f->ip, sizeof f->ip, 0), 0xffff);
    CHECK_EQ(f->udp.check, 0);
    kit_add(o, f->packet, f->len - (uint32_t)FRAME_HEADS);
}

static inline void kit_mail(void *ctx, const void *data, uint32_t len)
{
    kit_add(ctx, data, len);
}

/* As its sender would send it: hosts from the port of their process, pools and servers from 4700. */
static inline struct test_frame kit_frame(const void *packet, uint32_t len)
{
    struct packet_head h;
    struct test_frame f = test_frame(packet, len);
    memcpy(&h, packet, sizeof h);
    f.eth.h_source[5] = (uint8_t)h.from.machine;
    f.ip.saddr = htonl(0x0a000000u + h.from.machine);
    f.udp.source = htons(h.from.port == PORT_POOL || h.from.port == PORT_SERVER ? 4700 : h.from.port);
    test_ip_sum(&f);
    test_udp_sum(&f);
    return f;
}

/* One frame through the program alone, without the control process. */
static inline uint32_t kit_pass(const struct test_frame *in, struct kit_outs *o, bool *control)
{
    static _Thread_local struct test_frame out, copy;
    uint32_t verdict = test_pass(kit, in, &out);
    *control = false;
    if (verdict == XDP_TX) {
        kit_add_frame(o, &out);
    } else if (verdict == XDP_REDIRECT) { /* to a map of copies: all machines are behind one interface */
        for (unsigned i = 0; i <= FAN_MAX; i++) {
            struct plane_run run = {.in = out.bytes, .in_len = out.len, .out = copy.bytes, .out_len = sizeof copy.bytes};
            CHECK_EQ(test_run(plane_program(kit, "fan_probe"), &run), 0);
            copy.len = run.out_len;
            if (run.verdict == XDP_DROP)
                break;
            CHECK_EQ(run.verdict, XDP_PASS);
            kit_add_frame(o, &copy);
        }
    } else if (verdict == XDP_PASS &&
               out.udp.dest == htons(KIT_HERE_PORT)) { /* to the server here, with the address of the sender */
        CHECK_EQ(out.ip.saddr, in->ip.saddr);
        CHECK_EQ(test_sum(&out.ip, sizeof out.ip, 0), 0xffff);
        kit_add(o, out.packet, out.len - (uint32_t)FRAME_HEADS);
    } else if (verdict == XDP_PASS) {
        CHECK(out.len == in->len && !memcmp(out.bytes, in->bytes, in->len)); /* untouched */
        *control = true;
    } else {
        CHECK_EQ(verdict, XDP_DROP);
    }
    return verdict;
}

/* A packet to the switch: by the program and, if it says so, the control process. Packets of the server on this machine come by no
 * interface. */
static inline void kit_packet(const void *packet, uint32_t len, uint64_t now, struct kit_outs *o)
{
    static struct outbox box;
    struct test_frame in = kit_frame(packet, len);
    struct packet_head h;
    memcpy(&h, packet, sizeof h);
    bool control = h.from.machine == KIT_HOSTS + 1;
    o->count = 0;
    if (!control)
        kit_pass(&in, o, &control);
    CHECK_EQ(plane_mail(kit, kit_mail, o, 0), 0);
    if (!control)
        return;
    outbox_clear(&box);
    netlock_switch_packet(kit_memory, packet, len, now, &box);
    kit_add_outbox(o, &box);
}

/* A datagram with several packets of one machine to the switch, by the program alone. Which parts are to be sent again singly. */
static inline uint16_t kit_datagram(const struct test_many *d, struct kit_outs *o)
{
    static struct test_frame in, out;
    struct many_front front;
    const struct packet_head *h;
    uint32_t at = 0, len, verdict;
    in = kit_frame(d->bytes, d->len);
    o->count = 0;
    verdict = test_pass(kit, &in, &out);
    CHECK_EQ(plane_mail(kit, kit_mail, o, 0), 0);
    if (verdict == XDP_DROP)
        return 0;
    CHECK_EQ(verdict, XDP_TX);
    CHECK(out.len == in.len && out.ip.daddr == in.ip.saddr && out.udp.dest == in.udp.source && !out.udp.check);
    _Alignas(8) uint8_t answer[PACKET_MAX];
    memcpy(answer, out.packet, out.len - FRAME_HEADS);
    CHECK(many_sound(answer, out.len - (uint32_t)FRAME_HEADS));
    for (unsigned i = 0; (h = many_next(answer, &i, &at, &len));)
        kit_add(o, h, len);
    for (unsigned i = 0; (h = many_next_singly(answer, &i, &at, &len));) /* as it came */
        CHECK(!memcmp(h, d->bytes + ((const uint8_t *)h - answer), len));
    memcpy(&front, answer, sizeof front);
    return front.many.singly;
}

#endif
