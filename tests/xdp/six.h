/* SPDX-License-Identifier: Apache-2.0 */
/* The same tests at an IPv6 address, with PAWL_TEST_SIX set: frames get IPv6 heads on their way to the program, and IPv4 heads on
 * their way back, so a test sees the packets of a switch at an IPv4 address. 10.0.0.m stands for fd00::10.0.0.m. */
#ifndef PAWL_TESTS_XDP_SIX_H
#define PAWL_TESTS_XDP_SIX_H

#include "dataplane/xdp/loader.h"
#include "tests/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdlib.h>
#include <string.h>

#define SIX_MORE (sizeof(struct six_head) - sizeof(struct iphdr))
#define SIX_ROOM 2048u
#define SIX_PREFIX htonl(0xfd000000u)

struct six_test_frame {
    union {
        uint8_t bytes[SIX_ROOM];
        struct {
            struct ethhdr eth;
            struct six_head ip;
            struct udphdr udp;
        } __attribute__((packed)) six;
        struct {
            struct ethhdr eth;
            struct iphdr ip;
            struct udphdr udp;
        } __attribute__((packed)) four;
    };
    uint32_t len;
};

static inline bool test_is_six(void)
{
    return getenv("PAWL_TEST_SIX") != NULL;
}

static inline uint16_t test_sum(const void *data, size_t len, uint64_t sum)
{
    const uint8_t *b = data;
    for (size_t i = 0; i < len; i++)
        sum += i & 1 ? (uint64_t)b[i] : (uint64_t)b[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Of the UDP head and its packet with the pseudo-head; with a correct checksum in it: 0xffff. */
static inline uint16_t six_test_sum(const struct six_test_frame *f)
{
    uint32_t len = ntohs(f->six.udp.len);
    CHECK(offsetof(struct six_test_frame, six.udp) + len <= sizeof f->bytes);
    uint64_t pseudo = test_sum(f->bytes + sizeof f->six.eth + offsetof(struct six_head, from), 32, 0) + (uint64_t)IPPROTO_UDP + len;
    return test_sum(f->bytes + sizeof f->six.eth + sizeof f->six.ip, len, pseudo);
}

static inline void six_test_sign(struct six_test_frame *f)
{
    f->six.udp.check = 0;
    uint16_t sum = (uint16_t)~six_test_sum(f);
    f->six.udp.check = htons(sum ? sum : 0xffff);
}

/* Whether one of an IPv4 frame's checksums is wrong. */
static inline bool four_is_spoilt(const struct six_test_frame *f)
{
    const uint8_t *ip = f->bytes + sizeof f->four.eth;
    uint32_t len = ntohs(f->four.udp.len);
    if (test_sum(ip, sizeof f->four.ip, 0) != 0xffff)
        return true;
    uint64_t pseudo = test_sum(ip + offsetof(struct iphdr, saddr), 8, 0) + (uint64_t)IPPROTO_UDP + len;
    return f->four.udp.check && sizeof f->four + len <= sizeof f->bytes && test_sum(ip + sizeof f->four.ip, len, pseudo) != 0xffff;
}

/* A frame that ends within its UDP packet, or says that it is longer than it is, stays like that; so does a wrong checksum. */
static inline struct six_test_frame six_of_four(const void *bytes, uint32_t len)
{
    struct six_test_frame four = {.len = len}, six = {.len = len + (uint32_t)SIX_MORE};
    CHECK(six.len <= sizeof six.bytes);
    memcpy(four.bytes, bytes, len);
    six.six.eth = four.four.eth;
    six.six.eth.h_proto = htons(ETH_P_IPV6);
    six.six.ip = (struct six_head){.version = 6 << 4,
                                   .len = htons((uint16_t)(ntohs(four.four.ip.tot_len) - sizeof four.four.ip)),
                                   .next = four.four.ip.protocol,
                                   .hops = 64,
                                   .from = {SIX_PREFIX, 0, 0, four.four.ip.saddr},
                                   .to = {SIX_PREFIX, 0, 0, four.four.ip.daddr}};
    memcpy(six.bytes + sizeof six.six.eth + sizeof six.six.ip, bytes + sizeof four.four.eth + sizeof four.four.ip,
           len - sizeof four.four.eth - sizeof four.four.ip);
    six_test_sign(&six);
    if (four_is_spoilt(&four))
        six.six.udp.check ^= 0x10;
    return six;
}

/* Back, with the IPv4 checksum, and without UDP's, which must have been correct. */
static inline void four_of_six(const struct six_test_frame *six, struct plane_run *run)
{
    struct six_test_frame four = {.len = six->len - (uint32_t)SIX_MORE};
    CHECK(six->len >= sizeof six->six && six->six.ip.version >> 4 == 6 && six->six.ip.next == IPPROTO_UDP);
    CHECK_EQ(six->six.ip.len, six->six.udp.len);
    CHECK(six->six.udp.check);
    CHECK_EQ(six_test_sum(six), 0xffff);
    CHECK(six->six.ip.from[0] == SIX_PREFIX && six->six.ip.to[0] == SIX_PREFIX);
    four.four.eth = six->six.eth;
    four.four.eth.h_proto = htons(ETH_P_IP);
    four.four.ip = (struct iphdr){.version = 4,
                                  .ihl = 5,
                                  .ttl = 64,
                                  .protocol = IPPROTO_UDP,
                                  .tot_len = htons((uint16_t)(ntohs(six->six.udp.len) + sizeof four.four.ip)),
                                  .saddr = six->six.ip.from[3],
                                  .daddr = six->six.ip.to[3]};
    four.four.ip.check = htons((uint16_t)~test_sum(four.bytes + sizeof four.four.eth, sizeof four.four.ip, 0));
    memcpy(four.bytes + sizeof four.four.eth + sizeof four.four.ip, six->bytes + sizeof six->six.eth + sizeof six->six.ip,
           six->len - sizeof six->six.eth - sizeof six->six.ip);
    four.four.udp.check = 0;
    CHECK(four.len <= run->out_len);
    run->out_len = four.len;
    memcpy(run->out, four.bytes, four.len);
}

/* As plane_run(). A frame between the program and its copies has the program's own heads, and is left as it is. */
static inline int six_run(int program, struct plane_run *run)
{
    struct six_test_frame in, out = {.len = 0};
    if (!test_is_six())
        return plane_run(program, run);
    uint32_t to;
    memcpy(&to, (const uint8_t *)run->in + sizeof(struct ethhdr) + offsetof(struct iphdr, daddr), sizeof to);
    in = six_of_four(run->in, run->in_len);
    struct plane_run six = *run;
    if (to != SIX_SWITCH) {
        six.in = in.bytes;
        six.in_len = in.len;
    }
    six.out = out.bytes;
    six.out_len = sizeof out.bytes;
    int rc = plane_run(program, &six);
    run->verdict = six.verdict;
    run->ns = six.ns;
    if (rc || !run->out)
        return rc;
    out.len = six.out_len;
    bool untouched = six.verdict == XDP_PASS && to != SIX_SWITCH && out.len == in.len && !memcmp(out.bytes, in.bytes, in.len);
    if (untouched || six.verdict == XDP_DROP) {
        memcpy(run->out, run->in, run->in_len);
        run->out_len = run->in_len;
    } else if (out.six.eth.h_proto == htons(ETH_P_IPV6)) {
        four_of_six(&out, run);
    } else {
        memcpy(run->out, out.bytes, out.len);
        run->out_len = out.len;
    }
    return 0;
}

static inline int test_set_host(struct plane *p, uint16_t machine, const struct plane_host *host)
{
    struct plane_host h = *host;
    if (test_is_six()) {
        memcpy(h.ip6, (uint32_t[4]){SIX_PREFIX, 0, 0, h.ip}, sizeof h.ip6);
        h.ip = SIX_HOST(machine);
    }
    return plane_set_host(p, machine, &h);
}

static inline int six_open(const struct plane_options *options, struct plane **out)
{
    struct plane_options o = *options;
    if (test_is_six()) {
        o.settings.six = 1;
        memcpy(o.settings.ip6, (uint32_t[4]){SIX_PREFIX, 0, 0, htonl(0x0a000063)}, sizeof o.settings.ip6);
        o.settings.ip = SIX_SWITCH;
    }
    return plane_open(&o, out);
}

#endif
