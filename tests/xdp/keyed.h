/* SPDX-License-Identifier: Apache-2.0 */
/* The same tests with keys, with PAWL_TEST_KEY set: packets are tagged on their way to the program as their sender would do it, and
 * are opened on their way back as their receiver would, by wire/seal.h. A test sees the packets of a switch without a key. Every
 * second host has joined with the second of the two keys. */
#ifndef PAWL_TESTS_XDP_KEYED_H
#define PAWL_TESTS_XDP_KEYED_H

#include "tests/xdp/six.h"
#include "wire/seal.h"

#define KEYED_HEADS (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))

static struct {
    int program[16]; /* of switches that were opened */
    unsigned programs;
    uint16_t machines;
    uint64_t opened; /* packets */
} keyed;

static inline bool test_is_keyed(void)
{
    return getenv("PAWL_TEST_KEY") != NULL;
}

/* Of a host; number 0: of lock servers and switches. */
static inline struct seal_key keyed_key(uint16_t machine, unsigned which)
{
    const struct seal_key cluster = {{0x1234 + which, 77}};
    machine = machine <= keyed.machines ? machine : 0;
    return machine ? seal_host_key(&cluster, 1, machine, 5) : seal_member_key(&cluster, 0);
}

static inline uint32_t keyed_len(const struct six_test_frame *f)
{
    uint32_t len = ntohs(f->four.udp.len);
    bool whole = f->len >= KEYED_HEADS + sizeof(struct packet_head) && f->four.eth.h_proto == htons(ETH_P_IP) &&
                 f->four.ip.protocol == IPPROTO_UDP && f->four.ip.ihl == 5 &&
                 len >= sizeof f->four.udp + sizeof(struct packet_head) && f->len - KEYED_HEADS >= len - sizeof f->four.udp &&
                 len - sizeof f->four.udp <= PACKET_MAX;
    return whole ? len - (uint32_t)sizeof f->four.udp : 0;
}

/* As its sender tags it. Bytes that the program cannot read stay as they are. */
static inline void keyed_tag(struct six_test_frame *f)
{
    _Alignas(8) uint8_t packet[PACKET_MAX];
    const struct packet_head *h = (const struct packet_head *)(void *)packet;
    uint32_t len = keyed_len(f);
    bool spoilt = four_is_spoilt(f), summed = f->four.udp.check;
    if (!len)
        return;
    memcpy(packet, f->bytes + KEYED_HEADS, len);
    struct seal_key key = keyed_key(h->from.machine, h->from.machine <= keyed.machines ? h->from.machine % 2 : 0);
    seal_put(&key, packet, len);
    memcpy(f->bytes + KEYED_HEADS, packet, len);
    if (!summed || spoilt)
        return;
    const uint8_t *ip = f->bytes + sizeof f->four.eth;
    f->four.udp.check = 0;
    uint64_t pseudo = test_sum(ip + offsetof(struct iphdr, saddr), 8, 0) + (uint64_t)IPPROTO_UDP + ntohs(f->four.udp.len);
    uint16_t sum = (uint16_t)~test_sum(ip + sizeof f->four.ip, ntohs(f->four.udp.len), pseudo);
    f->four.udp.check = htons(sum ? sum : 0xffff);
}

/* As its receiver opens it: a host with its own key, a lock server with that of the member in whose name it is. */
static inline void keyed_open(struct six_test_frame *f)
{
    _Alignas(8) uint8_t packet[PACKET_MAX];
    const struct packet_head *h = (const struct packet_head *)(void *)packet;
    uint32_t len = keyed_len(f);
    CHECK(len);
    memcpy(packet, f->bytes + KEYED_HEADS, len);
    bool to_host = h->to.machine && h->to.machine <= keyed.machines && h->family != PACKET_ECHO;
    uint16_t machine = to_host ? h->to.machine : h->from.machine;
    bool opened = false;
    for (unsigned which = 0; which < SEAL_KEYS && !opened; which++) {
        struct seal_key key = keyed_key(machine, which);
        opened = seal_open(&key, packet, len);
    }
    if (!opened)
        CHECK_FAIL("a packet of family %u, type %u from %u to %u has a wrong tag", h->family, h->type, h->from.machine,
                   h->to.machine);
    keyed.opened++;
    memcpy(f->bytes + KEYED_HEADS, packet, len);
}

static inline bool keyed_is_switch(int program)
{
    for (unsigned i = 0; i < keyed.programs; i++)
        if (keyed.program[i] == program)
            return true;
    return false;
}

/* As plane_run(). Copies on their way out are not tagged yet; those that have left are. */
static inline int test_run(int program, struct plane_run *run)
{
    struct six_test_frame in = {.len = run->in_len}, out = {.len = 0};
    struct plane_run r = *run;
    if (!test_is_keyed())
        return six_run(program, run);
    CHECK(run->in_len <= sizeof in.bytes);
    memcpy(in.bytes, run->in, run->in_len);
    if (keyed_is_switch(program))
        keyed_tag(&in);
    r.in = in.bytes;
    r.out = out.bytes;
    r.out_len = sizeof out.bytes;
    int rc = six_run(program, &r);
    run->verdict = r.verdict;
    run->ns = r.ns;
    if (rc || !run->out)
        return rc;
    out.len = r.out_len;
    bool untouched = r.verdict == XDP_DROP || (r.verdict == XDP_PASS && out.len == in.len && !memcmp(out.bytes, in.bytes, in.len));
    bool copies = r.verdict == XDP_REDIRECT && keyed_is_switch(program) && keyed_len(&out) &&
                  !(out.bytes[KEYED_HEADS + offsetof(struct packet_head, features)] & PACKET_TAGGED);
    if (untouched)
        memcpy(out.bytes, run->in, out.len = run->in_len);
    else if (!copies)
        keyed_open(&out);
    CHECK(out.len <= run->out_len);
    memcpy(run->out, out.bytes, out.len);
    run->out_len = out.len;
    return 0;
}

static inline int test_open(const struct plane_options *options, struct plane **out)
{
    struct plane_options o = *options;
    void *seals;
    uint64_t bytes;
    o.settings.keyed = test_is_keyed();
    int rc = six_open(&o, out);
    if (rc || !test_is_keyed() || plane_map(*out, "seals", &seals, &bytes))
        return rc;
    CHECK(keyed.programs < countof(keyed.program) && (o.settings.machines + 1) * sizeof(struct plane_seal) <= bytes);
    keyed.program[keyed.programs++] = plane_program(*out, "plane");
    keyed.machines = o.settings.machines;
    for (uint16_t m = 0; m <= keyed.machines; m++) {
        struct plane_seal seal = {.life = 5};
        for (unsigned which = 0; which < SEAL_KEYS; which++) {
            struct seal_key key = keyed_key(m, which);
            memcpy(seal.key[which], key.k, sizeof key.k);
        }
        memcpy((struct plane_seal *)seals + m, &seal, sizeof seal);
    }
    return 0;
}

#endif
