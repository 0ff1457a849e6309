/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The frame around a switch program: parses and rewrites Ethernet, IPv4 and UDP, with every access checked against the end of the
 * frame; addresses of machines; counters. Included by each X.bpf.c, for the kernel only.
 *
 * A frame that is no lock packet (IPv4 without options, unfragmented, UDP, the switch's port) is passed to the network stack
 * untouched. A bad lock packet is dropped. Both are counted by reason; neither changes state. */
#ifndef PAWL_DATAPLANE_XDP_FRAME_BPF_H
#define PAWL_DATAPLANE_XDP_FRAME_BPF_H

#include "dataplane/xdp/plane.h"

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define INLINE static __attribute__((always_inline)) inline

/* ---- maps ---- */

/* A map of its own, of exactly this struct: the loader fills it in before the program is loaded. */
const volatile struct plane_settings settings SEC(".rodata.settings");

/* Written by the control process through mmap, read here. */
volatile struct plane_live live SEC(".data.live");

/* Machine's number -> its address. Limit: the numbers that fit into struct place; the loader makes it as long as the rack. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, uint32_t);
    __type(value, struct plane_host);
} hosts SEC(".maps");

/* Interface -> the same interface: for packets to a machine behind another port. Limit: the switch's ports. */
struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
    __uint(max_entries, 64);
    __type(key, uint32_t);
    __type(value, struct bpf_devmap_val);
} ports SEC(".maps");

/* One entry per CPU; readers add them up. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct plane_counters);
} counters SEC(".maps");

/* At an IPv6 address (six.bpf.h): the heads of the packet under way, as they came. One entry per CPU. */
struct six_way {
    struct six_head head;
    uint32_t sender; /* that stands for head.from */
    uint16_t check;
    uint16_t pad;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct six_way);
} ways SEC(".maps");

INLINE struct six_way *six_way(void)
{
    uint32_t zero = 0;
    return bpf_map_lookup_elem(&ways, &zero);
}

INLINE struct plane_counters *count_here(void)
{
    uint32_t zero = 0;
    return bpf_map_lookup_elem(&counters, &zero);
}

/* Off the path that most packets take; in the section that libbpf links calls to. */
#define COLD static __attribute__((noinline, cold, section(".text")))

COLD int pass(struct plane_counters *c, enum plane_reason why)
{
    c->verdict[PLANE_PASSED]++;
    c->reason[why]++;
    return XDP_PASS;
}

COLD int drop(struct plane_counters *c, enum plane_reason why)
{
    c->verdict[PLANE_DROPPED]++;
    c->reason[why]++;
    return XDP_DROP;
}

/* ---- parsing ---- */

/* An Ethernet head as words: struct ethhdr is packed, and would be copied byte by byte. The processors that the project supports
 * read words at any address. */
struct ether {
    uint16_t dest[3];
    uint16_t source[3];
    uint16_t protocol;
};

struct frame {
    struct ether *eth;
    struct iphdr *ip;
    struct udphdr *udp;
    struct packet_head *head;
    void *end;
    uint32_t len; /* of the lock packet; all of it lies before `end` */
};

#define FRAME_OURS (-1)
#define FRAME_MANY (-2) /* a lock packet with several in it; FRAME_READS_MANY: the program reads those (many.bpf.h) */
#define FRAME_HEADS (sizeof(struct ether) + sizeof(struct iphdr) + sizeof(struct udphdr))
#define SIX_HEADS (sizeof(struct ether) + sizeof(struct six_head) + sizeof(struct udphdr))
#define UDP_WORDS_MAX ((PACKET_MAX + sizeof(struct plane_trail)) / 4) /* words that a checksum adds up */

#include "dataplane/xdp/seal.bpf.h"

INLINE uint16_t sum_fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* The sum of an IPv4 head without options, in memory order; with its checksum included, a correct one gives 0xffff. */
INLINE uint16_t sum_ip(const struct iphdr *ip)
{
    const uint32_t *w = (const void *)ip;
    return sum_fold((uint64_t)w[0] + w[1] + w[2] + w[3] + w[4]);
}

/* The words of the lock packet, `len` bytes behind so many bytes of heads; a function of its own, since most packets do without. */
static __attribute__((noinline)) uint64_t sum_packet(struct xdp_md *ctx, uint32_t heads, uint32_t len)
{
    void *end = (void *)(long)ctx->data_end;
    uint8_t *at = (uint8_t *)(long)ctx->data + heads;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < UDP_WORDS_MAX && len > 3; i++, len -= 4) {
        if ((void *)(at + 4) > end)
            break;
        sum += *(uint32_t *)at;
        at += 4;
    }
    if (len > 1 && (void *)(at + 2) <= end) {
        sum += *(uint16_t *)at;
        at += 2;
        len -= 2;
    }
    if (len == 1 && (void *)(at + 1) <= end)
        sum += *at; /* the low byte of a little-endian word */
    return sum;
}

/* A sender on the same machine leaves the sum of the pseudo-head for a network card to complete (CHECKSUM_PARTIAL), and veth has
 * none: that is as good as no checksum. Every other one is added up. */
INLINE int udp_sound(struct xdp_md *ctx, const struct frame *f)
{
    uint16_t given = f->udp->check;
    uint64_t sum = (uint64_t)f->ip->saddr + f->ip->daddr + bpf_htons(IPPROTO_UDP) + f->udp->len;
    if (!given || given == sum_fold(sum))
        return 1;
    sum += (uint64_t)f->udp->source + f->udp->dest + f->udp->len + given + sum_packet(ctx, FRAME_HEADS, f->len);
    return sum_fold(sum) == 0xffff;
}

/* FRAME_OURS, FRAME_MANY: a lock packet, correct up to the end of its head. Else the verdict, counted. */
INLINE int frame_parse(struct xdp_md *ctx, struct plane_counters *c, struct frame *f)
{
    void *data = (void *)(long)ctx->data;
    f->end = (void *)(long)ctx->data_end;
    f->eth = data;
    f->ip = (void *)(f->eth + 1);
    f->udp = (void *)(f->ip + 1);
    f->head = (void *)(f->udp + 1);
    if ((void *)(f->eth + 1) > f->end)
        return pass(c, PLANE_NOT_IPV4);
    uint16_t protocol = f->eth->protocol;
    if (protocol != bpf_htons(ETH_P_IP))
        return pass(c, protocol == bpf_htons(ETH_P_IPV6)                                           ? PLANE_IPV6
                       : protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD) ? PLANE_VLAN
                                                                                                   : PLANE_NOT_IPV4);
    if ((void *)f->head > f->end) /* too short for IPv4 and UDP heads */
        return pass(c, PLANE_OTHER);
    if (f->ip->protocol != IPPROTO_UDP)
        return pass(c, PLANE_OTHER);
    if (f->ip->frag_off & bpf_htons(0x3fff)) /* more fragments, or an offset: there may be no UDP head in it */
        return pass(c, PLANE_FRAGMENT);
    if (f->ip->version != 4 || f->ip->ihl != 5)
        return pass(c, PLANE_OPTIONS);
    if (f->udp->dest != settings.port)
        return pass(c, PLANE_OTHER);
    if (settings.racks && f->ip->daddr != settings.ip)
        return pass(c, PLANE_OTHER);

    uint32_t ip_len = bpf_ntohs(f->ip->tot_len), udp_len = bpf_ntohs(f->udp->len);
    f->len = udp_len - (uint32_t)sizeof(struct udphdr);
    if (udp_len < sizeof(struct udphdr) + sizeof(struct packet_head) || f->len > PACKET_MAX ||
        ip_len < sizeof(struct iphdr) + udp_len || (void *)(f->head + 1) > f->end ||
        (uint8_t *)f->head + f->len > (uint8_t *)f->end)
        return drop(c, PLANE_SHORT);
    if (sum_ip(f->ip) != 0xffff || !udp_sound(ctx, f))
        return drop(c, PLANE_CHECKSUM);
    if (settings.keyed) {
        int verdict = seal_enter(ctx, f->len);
        if (verdict != FRAME_OURS)
            return verdict == XDP_PASS ? XDP_PASS : XDP_DROP;
    }
    if (packet_readable(f->head))
        return FRAME_OURS;
#ifdef FRAME_READS_MANY
    if (f->head->version == PACKET_VERSION && f->head->features == PACKET_MANY)
        return FRAME_MANY;
#endif
    return drop(c, PLANE_VERSION);
}

/* Every switch program begins with this: its counters, and its frame, parsed. As frame_parse. */
INLINE int frame_begin(struct xdp_md *ctx, struct plane_counters **c, struct frame *f)
{
    *f = (struct frame){0};
    *c = count_here();
    seal_begin();
    return *c ? frame_parse(ctx, *c, f) : XDP_ABORTED;
}

INLINE void count_type(struct plane_counters *c, const struct packet_head *head)
{
    c->type[head->family % PLANE_FAMILIES][head->type % PLANE_TYPES]++;
}

/* ---- sending ---- */

/* Back to the sender. The IPv4 checksum stays correct; UDP's is left out, which IPv4 allows: in native mode veth loses the mark
 * that it has to be completed. */
INLINE int frame_answer(struct frame *f, struct plane_counters *c)
{
    for (int i = 0; i < 3; i++) {
        uint16_t word = f->eth->dest[i];
        f->eth->dest[i] = f->eth->source[i];
        f->eth->source[i] = word;
    }
    uint32_t ip = f->ip->saddr;
    f->ip->saddr = f->ip->daddr;
    f->ip->daddr = ip;
    uint16_t port = f->udp->source;
    f->udp->source = f->udp->dest;
    f->udp->dest = port;
    f->udp->check = 0;
    c->verdict[PLANE_ANSWERED]++;
    return XDP_TX;
}

/* An answer is not answered. */
INLINE int frame_echo(struct frame *f, struct plane_counters *c)
{
    if (f->head->type == ECHO_BACK)
        return drop(c, PLANE_TYPE);
    f->head->type = ECHO_BACK;
    return frame_answer(f, c);
}

INLINE struct plane_host *host_of(uint16_t machine)
{
    uint32_t key = machine;
    struct plane_host *h = bpf_map_lookup_elem(&hosts, &key);
    return h && h->ip ? h : 0;
}

/* Addresses the frame to the place, from the address that it came to. */
INLINE void frame_address(struct frame *f, const struct plane_host *h, uint16_t port)
{
    for (int i = 0; i < 3; i++) {
        f->eth->source[i] = f->eth->dest[i];
        f->eth->dest[i] = h->mac[i];
    }
    f->ip->saddr = f->ip->daddr;
    f->ip->daddr = h->ip;
    f->ip->check = 0;
    f->ip->check = (uint16_t)~sum_ip(f->ip);
    f->udp->source = f->udp->dest;
    f->udp->dest = port == PORT_POOL ? h->pool_port : bpf_htons(port);
    f->udp->check = 0;
}

/* To the place in its head. */
INLINE int frame_send(struct xdp_md *ctx, struct frame *f, struct plane_counters *c)
{
    struct plane_host *h = host_of(f->head->to.machine);
    if (!h)
        return drop(c, PLANE_UNKNOWN);
    frame_address(f, h, f->head->to.port);
    c->verdict[PLANE_SENT]++;
    return h->ifindex == ctx->ingress_ifindex ? XDP_TX : (int)bpf_redirect_map(&ports, h->ifindex, XDP_DROP);
}

/* Whether a packet in the name of this machine comes from its address. A host of which the coordinator has not told yet is trusted.
 */
INLINE int is_from(uint16_t machine, uint32_t saddr)
{
    uint32_t key = machine;
    const struct plane_host *h = bpf_map_lookup_elem(&hosts, &key);
    return !h || !h->given_life || h->given_ip == saddr;
}

/* The sender's address, for a program that has the frame alone. */
INLINE uint32_t frame_saddr(const struct xdp_md *ctx)
{
    const struct iphdr *ip = (void *)((uint8_t *)(long)ctx->data + sizeof(struct ether));
    return (void *)(ip + 1) > (void *)(long)ctx->data_end ? 0 : ip->saddr;
}

/* The sender's address is this machine's from now on. */
INLINE void host_is_at(struct plane_host *h, uint32_t ip)
{
    const struct six_way *w = settings.six ? six_way() : 0;
    for (int i = 0; w && i < 4; i++)
        h->ip6[i] = w->head.from[i];
    h->ip = ip;
}

/* A host announces its address, again and again. One that does not agree with what the coordinator told is for the control process,
 * which asks. */
INLINE int frame_learn(struct xdp_md *ctx, struct frame *f, struct plane_counters *c)
{
    uint32_t key = f->head->from.machine;
    struct plane_host *h = bpf_map_lookup_elem(&hosts, &key);
    if (!h || key == MACHINE_NONE)
        return drop(c, PLANE_UNKNOWN);
    if (h->given_life && (h->given_ip != f->ip->saddr || h->given_life != f->head->epoch))
        return pass(c, PLANE_FORGED);
    if (!h->given_life && h->ip && h->life > f->head->epoch)
        return drop(c, PLANE_EPOCH);
    for (int i = 0; i < 3; i++)
        h->mac[i] = f->eth->source[i];
    h->life = f->head->epoch;
    h->ifindex = ctx->ingress_ifindex;
    h->pool_port = f->udp->source;
    host_is_at(h, f->ip->saddr);
    c->verdict[PLANE_ABSORBED]++;
    return XDP_DROP;
}

/* The number of the space in packets of its coordinator; a rack's own is higher (designs/packet/packet.h: rack_space_id). */
INLINE uint32_t whole_space(void)
{
    return settings.racks ? settings.space - 1 - settings.rack : settings.space;
}

/* A packet that is not for the switch's design: echoes go back, packets for a machine are sent on. */
INLINE int frame_relay(struct xdp_md *ctx, struct frame *f, struct plane_counters *c)
{
    if (f->head->family == PACKET_ECHO)
        return frame_echo(f, c);
    if (f->head->family == PACKET_COORDINATOR) {
        if (f->head->type == PLANE_HERE && f->head->space == whole_space() && f->head->from.port == PORT_POOL)
            return frame_learn(ctx, f, c);
        return pass(c, PLANE_CONTROL);
    }
    if (f->head->space != settings.space) /* its machines are not ours */
        return drop(c, PLANE_ALIEN);
    return f->head->to.machine == MACHINE_SWITCH ? drop(c, PLANE_FAMILY) : frame_send(ctx, f, c);
}

/* A frame that is addressed already goes to the port of the machine in its head. */
INLINE int frame_by_head(struct xdp_md *ctx)
{
    struct plane_counters *c = count_here();
    struct packet_head *head = (void *)((uint8_t *)(long)ctx->data + (settings.six ? SIX_HEADS : FRAME_HEADS));
    if (!c || (void *)(head + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    struct plane_host *h = host_of(head->to.machine);
    return h ? (int)bpf_redirect_map(&ports, h->ifindex, XDP_DROP) : drop(c, PLANE_UNKNOWN);
}

#endif
