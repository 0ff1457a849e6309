/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by targets that run a program of the kernel here, on frames from the fuzzer: a frame whose end is the end of readable
 * memory, sound heads around it, and the conditions that hold for every frame. Included after the program itself.
 *
 * Input: frames, each after a byte with its length (a quarter of it) and one that says which heads are made sound around it. */
#ifndef PAWL_TESTS_FUZZ_FRAME_H
#define PAWL_TESTS_FUZZ_FRAME_H

#include "tests/check.h"
#include "wire/many.h"

#include <sys/mman.h>
#include <unistd.h>

#define PORT 4747
#define SPACE 7
#define LOW ((void *)0x10000000) /* an address in a frame's context has 32 bits */

enum how {
    HOW_FRAME = 1, /* Ethernet, IPv4 and UDP heads */
    HOW_HEAD = 2,  /* the packet's */
    HOW_IP_SUM = 4,
    HOW_NO_UDP_SUM = 8,
    HOW_TO_SWITCH = 16,
    HOW_COORDINATOR = 32, /* of that family */
    HOW_DESIGN = 64,      /* the design's own fields, too */
    HOW_LATER = 128,      /* time passes after it */
};

static struct plane_counters counted;
static uint8_t *low, *end_of_low;

/* The program has these as constants; here they are written once. */
static void set_constant(const volatile void *constant, const void *value, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)constant & ~(page - 1);
    CHECK_EQ(mprotect((void *)from, (uintptr_t)constant + size - from, PROT_READ | PROT_WRITE), 0);
    memcpy((void *)(uintptr_t)constant, value, size);
}

static void set_up_frames(const struct plane_settings *wanted)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = round_up(64 * 1024, page);
    set_constant(&settings, wanted, sizeof *wanted);
    low = mmap(LOW, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(low == LOW);
    end_of_low = low + bytes;
    CHECK_EQ(mprotect(end_of_low, page, PROT_NONE), 0);
}

static struct xdp_md context(const uint8_t *data, uint32_t len)
{
    return (struct xdp_md){.data = (uint32_t)(uintptr_t)data, .data_end = (uint32_t)(uintptr_t)data + len, .ingress_ifindex = 1};
}

static uint16_t sum(const uint8_t *b, size_t len, uint64_t s)
{
    for (size_t i = 0; i < len; i++)
        s += i & 1 ? (uint64_t)b[i] << 8 : b[i];
    while (s >> 16)
        s = (s & 0xffff) + (s >> 16);
    return (uint16_t)s;
}

static void sound_head(struct packet_head *h, uint8_t how, uint8_t family, uint64_t indexes, uint16_t machines)
{
    h->version = PACKET_VERSION;
    h->features = 0;
    h->family = how & HOW_COORDINATOR ? PACKET_COORDINATOR : family;
    h->type = (uint8_t)(h->type % 32);
    h->space = SPACE;
    h->epoch = h->generation = 0;
    h->index %= indexes + 1;
    h->from.machine %= (uint16_t)(machines + 2);
    if (how & HOW_TO_SWITCH)
        h->to.machine = MACHINE_SWITCH;
}

/* The packets of the design in a frame: one, or the parts of a datagram. */
struct in_frame {
    unsigned count;
    uint8_t *first;
    uint32_t size; /* of each part */
};

/* A datagram with as many packets of the design as there is room for. One of its bytes may be another. */
static uint32_t make_parts(struct packet_head *h, uint32_t room, uint8_t how, struct in_frame *in, uint64_t indexes,
                           uint16_t machines)
{
    struct packet_many *many = (void *)(h + 1);
    uint8_t spoils = many->zero[0];
    uint32_t parts = (room - (uint32_t)sizeof(struct many_front)) / in->size;
    *many = (struct packet_many){.count = (uint8_t)(parts < PACKET_MANY_MAX ? parts : PACKET_MANY_MAX)};
    h->features = PACKET_MANY;
    in->first = (uint8_t *)(many + 1);
    in->count = many->count;
    for (unsigned i = 0; i < many->count; i++) {
        many->eighths[i] = (uint8_t)(in->size / 8);
        sound_head((void *)(in->first + i * in->size), how & (uint8_t)~HOW_COORDINATOR, h->family, indexes, machines);
    }
    uint32_t len = (uint32_t)sizeof(struct many_front) + many->count * in->size;
    if (spoils >= 128)
        ((uint8_t *)h)[sizeof *h + spoils % (len - sizeof *h)] ^= (uint8_t)(1 << spoils % 8);
    return len;
}

/* Heads around the packet, so that more than one in a billion gets through. `in`: the packets of the design in it, of `size` bytes
 * or more each. */
static void make_sound(uint8_t *frame, uint32_t len, uint8_t how, uint8_t family, uint64_t indexes, uint16_t machines,
                       struct in_frame *in)
{
    struct ether *eth = (void *)frame;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);
    struct packet_head *h = (void *)(udp + 1);
    uint32_t packet = len - (uint32_t)FRAME_HEADS;
    in->count = 0;
    if (len < FRAME_HEADS)
        return;
    bool has_head = packet >= sizeof *h;
    bool several = has_head && h->features & PACKET_MANY && packet >= sizeof(struct many_front) + in->size;
    if (how & HOW_HEAD && has_head)
        sound_head(h, how, family, indexes, machines);
    if (how & HOW_HEAD && how & HOW_DESIGN && several) {
        packet = make_parts(h, packet, how, in, indexes, machines);
    } else if (how & HOW_DESIGN && packet >= in->size) {
        in->first = (uint8_t *)h;
        in->count = 1;
    }
    if (how & HOW_FRAME) {
        eth->protocol = bpf_htons(ETH_P_IP);
        *(uint8_t *)ip = 0x45;
        ip->frag_off = 0;
        ip->protocol = IPPROTO_UDP;
        ip->tot_len = bpf_htons((uint16_t)(sizeof *ip + sizeof *udp + packet));
        udp->dest = bpf_htons(PORT);
        udp->len = bpf_htons((uint16_t)(sizeof *udp + packet));
    }
    if (how & HOW_IP_SUM) {
        ip->check = 0;
        ip->check = (uint16_t)~sum((uint8_t *)ip, sizeof *ip, 0);
    }
    if (how & HOW_NO_UDP_SUM)
        udp->check = 0;
}

/* A frame at the end of what can be read. */
static uint8_t *place_frame(const uint8_t *bytes, uint32_t len)
{
    return memcpy(end_of_low - len, bytes, len);
}

/* A datagram with several packets that was answered: as a host reads it, with those as they were that are to go singly. */
static void check_answer(const uint8_t *frame, const uint8_t *before)
{
    static _Alignas(8) uint8_t was[1024], is[1024];
    uint16_t udp_len;
    uint32_t offset = 0, part;
    const struct packet_head *h;
    memcpy(&udp_len, frame + FRAME_HEADS - 4, sizeof udp_len);
    uint32_t len = bpf_ntohs(udp_len) - (uint32_t)sizeof(struct udphdr);
    memcpy(was, before + FRAME_HEADS, len);
    memcpy(is, frame + FRAME_HEADS, len);
    CHECK(many_sound(was, len) && !many_is_answer(was) && many_sound(is, len));
    for (unsigned i = 0; (h = many_next_singly(is, &i, &offset, &part));)
        CHECK(!memcmp(h, was + ((const uint8_t *)h - is), part));
}

/* Runs the program on it. The verdict; *why: whether a reason was counted that means that nothing may have changed. */
static int run_frame(uint8_t *frame, uint32_t len, bool *why)
{
    static uint8_t before[1024];
    const struct plane_counters was = counted;
    struct xdp_md ctx = context(frame, len);
    memcpy(before, frame, len);
    int verdict = plane(&ctx);
    CHECK(verdict == XDP_DROP || verdict == XDP_PASS || verdict == XDP_TX || verdict == XDP_REDIRECT);
    uint64_t counts = 0, reasons = 0;
    for (unsigned i = 0; i < PLANE_VERDICTS; i++)
        counts += counted.verdict[i] - was.verdict[i];
    for (unsigned i = 0; i < PLANE_REASONS; i++)
        reasons += counted.reason[i] - was.reason[i];
    struct packet_head h = {0};
    if (len >= FRAME_HEADS + sizeof h)
        memcpy(&h, before + FRAME_HEADS, sizeof h);
    bool parts = h.features == PACKET_MANY && (verdict == XDP_TX || counted.verdict[PLANE_ABSORBED] != was.verdict[PLANE_ABSORBED]);
    CHECK_EQ(counts, 1);
    CHECK(reasons <= (parts ? PACKET_MANY_MAX : 1)); /* of each part its own */
    if (parts && verdict == XDP_TX)
        check_answer(frame, before);
    if (verdict == XDP_PASS && counted.verdict[PLANE_PASSED] != was.verdict[PLANE_PASSED])
        CHECK(reasons && !memcmp(before, frame, len)); /* untouched */
    *why = !parts && reasons &&
           counted.reason[PLANE_UNKNOWN] == was.reason[PLANE_UNKNOWN]; /* decided, but the receiver's address is unknown */
    return verdict;
}

static struct six_way way;

static void make_six_sound(uint8_t *frame, uint32_t len, uint8_t how)
{
    struct ether *eth = (void *)frame;
    struct six_head *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);
    uint32_t udp_len = len - (uint32_t)(sizeof *eth + sizeof *ip);
    eth->protocol = bpf_htons(ETH_P_IPV6);
    ip->version = 6 << 4;
    ip->next = IPPROTO_UDP;
    ip->len = udp->len = bpf_htons((uint16_t)udp_len);
    udp->dest = bpf_htons(PORT);
    uint16_t pseudo = sum((uint8_t *)ip->from, 32, (uint64_t)bpf_htons(IPPROTO_UDP) + udp->len);
    udp->check = how & HOW_NO_UDP_SUM ? pseudo : 0;
    if (!(how & HOW_NO_UDP_SUM) && how & HOW_IP_SUM)
        udp->check = (uint16_t)~sum((uint8_t *)udp, udp_len, pseudo);
}

/* The same bytes as a frame of IPv6: the program's own heads come and go, and the frame is as it was. */
static inline void six_there_and_back(const uint8_t *bytes, uint32_t len, uint8_t how)
{
    static uint8_t was[1024];
    uint8_t *frame = place_frame(bytes, len);
    if (how & HOW_FRAME && len >= SIX_HEADS)
        make_six_sound(frame, len, how);
    memcpy(was, frame, len);
    struct xdp_md ctx = context(frame, len);
    int verdict = six_enter(&ctx);
    if (verdict == FRAME_OURS) {
        CHECK_EQ(ctx.data_end - ctx.data, len - (sizeof(struct six_head) - sizeof(struct iphdr)));
        CHECK_EQ(six_leave(&ctx, XDP_PASS), XDP_PASS);
    } else {
        CHECK(verdict == XDP_PASS || verdict == XDP_DROP);
    }
    CHECK_EQ(ctx.data, (uint32_t)(uintptr_t)frame);
    CHECK(!memcmp(was, frame, len));
}

/* The copies of a frame that is to leave several times, each through the program for that. */
static void run_copies(const uint8_t *frame, uint32_t len, unsigned copies, int (*program)(struct xdp_md *ctx))
{
    for (unsigned copy = 0; copy < copies; copy++) {
        uint8_t *again = end_of_low - 2048 - len;
        memcpy(again, frame, len);
        struct xdp_md ctx = context(again, len);
        int out = program(&ctx);
        CHECK(out == XDP_PASS || out == XDP_DROP);
    }
}

static void each_frame(const uint8_t *data, size_t size, void (*fn)(const uint8_t *bytes, uint32_t len, uint8_t how))
{
    while (size > 2) {
        uint32_t len = data[0] * 4u + 2; /* as heads of 42 bytes and a packet have */
        uint8_t how = data[1];
        data += 2;
        size -= 2;
        len = len < size ? len : (uint32_t)size;
        fn(data, len, how);
        data += len;
        size -= len;
    }
}

#endif
