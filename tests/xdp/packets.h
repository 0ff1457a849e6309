/* SPDX-License-Identifier: Apache-2.0 */
/* Frames for BPF_PROG_TEST_RUN: built whole and sound, then broken one way at a time. */
#ifndef PAWL_TESTS_XDP_PACKETS_H
#define PAWL_TESTS_XDP_PACKETS_H

#include "dataplane/xdp/loader.h"
#include "tests/check.h"
#include "tests/xdp/keyed.h"
#include "wire/many.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEST_PORT 4747
#define TEST_SPACE 77
#define TEST_MACHINES 8
#define FRAME_HEADS (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))
#define FRAME_MAX (FRAME_HEADS + PACKET_MAX + 24) /* with room for a trail */

struct test_frame {
    union {
        uint8_t bytes[FRAME_MAX];
        struct {
            struct ethhdr eth;
            struct iphdr ip;
            struct udphdr udp;
            uint8_t packet[PACKET_MAX + 16];
        } __attribute__((packed));
    };
    uint32_t len;
};

static inline void test_ip_sum(struct test_frame *f)
{
    f->ip.check = 0;
    f->ip.check = htons((uint16_t)~test_sum(&f->ip, sizeof f->ip, 0));
}

static inline uint64_t test_pseudo(const struct test_frame *f)
{
    return test_sum(&f->ip.saddr, 8, 0) + (uint64_t)IPPROTO_UDP + ntohs(f->udp.len);
}

static inline void test_udp_sum(struct test_frame *f)
{
    f->udp.check = 0;
    uint16_t sum = (uint16_t)~test_sum(&f->udp, ntohs(f->udp.len), test_pseudo(f));
    f->udp.check = htons(sum ? sum : 0xffff);
}

/* Of a million instructions that the kernel's verifier goes through, a program takes less than half: there is room to grow. Not so
 * one that counts what it comes by (tests/xdp/coverage.py). */
static inline void test_verified(const struct plane *p)
{
    printf("the verifier went through %" PRIu32 " instructions\n", plane_verified(p));
    CHECK_BETWEEN(plane_verified(p), 1, getenv("PAWL_COVERAGE") ? 1000000 : 500000);
}

/* Notes about copies belong to the CPU by which a packet came in; another CPU does not find them. */
static inline void test_pin_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

/* From machine 1 to the switch. Machine m has address 10.0.0.m and Ethernet address 02:00:00:00:00:m; the switch is 99. */
static inline struct test_frame test_frame(const void *packet, uint32_t len)
{
    struct test_frame f = {.len = (uint32_t)FRAME_HEADS + len};
    memcpy(f.eth.h_dest, (uint8_t[]){2, 0, 0, 0, 0, 99}, 6);
    memcpy(f.eth.h_source, (uint8_t[]){2, 0, 0, 0, 0, 1}, 6);
    f.eth.h_proto = htons(ETH_P_IP);
    f.ip.version = 4;
    f.ip.ihl = 5;
    f.ip.ttl = 64;
    f.ip.protocol = IPPROTO_UDP;
    f.ip.saddr = htonl(0x0a000001);
    f.ip.daddr = htonl(0x0a000063);
    f.ip.tot_len = htons((uint16_t)(sizeof f.ip + sizeof f.udp + len));
    f.udp.source = htons(5001);
    f.udp.dest = htons(TEST_PORT);
    f.udp.len = htons((uint16_t)(sizeof f.udp + len));
    memcpy(f.packet, packet, len);
    test_ip_sum(&f);
    test_udp_sum(&f);
    return f;
}

static inline struct packet_head test_head(uint8_t family, uint8_t type)
{
    return (struct packet_head){
        .version = PACKET_VERSION,
        .family = family,
        .type = type,
        .space = TEST_SPACE,
        .nonce = 0x1122334455667788,
        .from = {1, 5001},
        .to = {MACHINE_SWITCH, 0},
    };
}

/* A datagram with several packets, as it is being made. */
struct test_many {
    uint32_t len;
    _Alignas(8) uint8_t bytes[PACKET_MAX];
};

static inline void test_many_begin(struct test_many *d, const struct packet_head *first)
{
    many_begin((struct many_front *)(void *)d->bytes, first);
    d->len = sizeof(struct many_front);
}

static inline bool test_many_add(struct test_many *d, const void *part, uint32_t len)
{
    uint32_t at = d->len;
    if (!many_add((struct many_front *)(void *)d->bytes, len, &d->len))
        return false;
    memcpy(d->bytes + at, part, len);
    return true;
}

/* Runs `in` through the program once. Returns the verdict; the resulting frame is in `out`. */
static inline uint32_t test_pass(const struct plane *p, const struct test_frame *in, struct test_frame *out)
{
    struct plane_run run = {.in = in->bytes, .in_len = in->len, .out = out->bytes, .out_len = sizeof out->bytes};
    int rc = test_run(plane_program(p, "plane"), &run);
    if (rc)
        CHECK_FAIL("BPF_PROG_TEST_RUN: %s", strerror(-rc));
    out->len = run.out_len;
    return run.verdict;
}

/* A plane with machines 1 to 3, all behind the interface that BPF_PROG_TEST_RUN pretends: 1, loopback. */
static inline struct plane *test_plane_of(const char *program, const struct plane_settings *settings)
{
    struct plane_options o = {.program = program, .settings = *settings, .probe = true, .locks_max = (uint32_t)settings->locks};
    struct plane *p;
    if (plane_missing())
        SKIP("%s", plane_missing());
    o.settings.simple = getenv("PAWL_TEST_SIMPLE") != NULL; /* as for an older kernel, whose verifier gives up on the rest */
    int rc = test_open(&o, &p);
    if (rc == -EPERM)
        SKIP("%s", explained());
    if (rc)
        CHECK_FAIL("%s", explained());
    for (uint16_t m = 1; m <= 3; m++) {
        struct plane_host h = {
            .mac = {htons(0x0200), 0, htons(m)}, .pool_port = htons(4700), .ip = htonl(0x0a000000u + m), .ifindex = 1};
        int there = test_set_host(p, m, &h);
        CHECK(!there || there == -ENOENT); /* a bare echo knows no machines */
    }
    return p;
}

static inline struct plane *test_plane_leased(const char *program, uint32_t locks, uint64_t lease_ns)
{
    return test_plane_of(
        program,
        &(struct plane_settings){
            .port = htons(TEST_PORT), .machines = TEST_MACHINES, .space = TEST_SPACE, .locks = locks, .lease_ns = lease_ns});
}

static inline struct plane *test_plane(const char *program, uint32_t locks)
{
    return test_plane_leased(program, locks, 0);
}

#define NO_REASON PLANE_REASONS
#define ANY_REASON (PLANE_REASONS + 1u)

/* Exactly one more packet with this reason since the last call; ANY_REASON: whatever has come. */
static inline void test_reason(const struct plane *p, enum plane_reason why)
{
    static struct plane_counters before;
    struct plane_counters now;
    CHECK_EQ(plane_count(p, &now), 0);
    for (unsigned i = 0; i < PLANE_REASONS && (unsigned)why != ANY_REASON; i++)
        if (now.reason[i] - before.reason[i] != (i == (unsigned)why))
            CHECK_FAIL("reason %u was counted %" PRIu64 " times, and %u was due", i, now.reason[i] - before.reason[i], why);
    before = now;
}

#endif
