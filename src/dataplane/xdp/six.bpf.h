/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A switch at an IPv6 address. Its programs see IPv4 heads all the same: a lock packet that arrives gets one in place of its IPv6
 * head, and the head that it needs on its way out. Frames of IPv4 pass, as frames of IPv6 do at a switch with an IPv4 address.
 *
 * In the IPv4 head a machine's address is its number (SIX_HOST), which no IPv4 network has. Addresses of hosts are in the map
 * `hosts`, those of the packet under way in the map `ways`. UDP over IPv6 must have a checksum (RFC 8200), which is added up when
 * the packet leaves. Costs a switch at an IPv4 address nothing: `settings.six` is a constant to the kernel's compiler. */
#ifndef PAWL_DATAPLANE_XDP_SIX_BPF_H
#define PAWL_DATAPLANE_XDP_SIX_BPF_H

#include "dataplane/xdp/frame.bpf.h"

#define SIX_MORE ((int)sizeof(struct six_head) - (int)sizeof(struct iphdr)) /* bytes that IPv6's head is longer */

/* Heads between IPv6's and UDP's that make a frame none of ours. */
enum { SIX_HOP_OPTIONS = 0, SIX_ROUTING = 43, SIX_FRAGMENT = 44, SIX_OPTIONS = 60 };

/* Functions that the verifier looks at once. */
__attribute__((noinline)) int six_enter(struct xdp_md *ctx);
__attribute__((noinline)) int six_leave(struct xdp_md *ctx, int verdict);
__attribute__((noinline)) int six_out(struct xdp_md *ctx, uint32_t machine);

struct six_frame {
    struct ether *eth;
    struct six_head *ip;
    struct udphdr *udp;
    void *end;
};

INLINE int six_frame(struct xdp_md *ctx, struct six_frame *f)
{
    f->end = (void *)(long)ctx->data_end;
    f->eth = (void *)(long)ctx->data;
    f->ip = (void *)(f->eth + 1);
    f->udp = (void *)(f->ip + 1);
    return (void *)(f->udp + 1) <= f->end;
}

INLINE uint64_t six_sum_addresses(const struct six_head *ip)
{
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (uint64_t)ip->from[i] + ip->to[i];
    return sum;
}

/* Everything that the checksum covers, but the packet; the field itself included. */
INLINE uint64_t six_sum_heads(const struct six_frame *f)
{
    const struct udphdr *u = f->udp;
    return six_sum_addresses(f->ip) + bpf_htons(IPPROTO_UDP) + u->len + u->source + u->dest + u->len + u->check;
}

/* As udp_sound(). */
INLINE int six_sound(struct xdp_md *ctx, const struct six_frame *f, uint32_t len)
{
    uint64_t pseudo = six_sum_addresses(f->ip) + bpf_htons(IPPROTO_UDP) + f->udp->len;
    if (!f->udp->check)
        return 0;
    if (f->udp->check == sum_fold(pseudo))
        return 1; /* left for a card to complete */
    return sum_fold(six_sum_heads(f) + sum_packet(ctx, SIX_HEADS, len)) == 0xffff;
}

INLINE int six_same(const volatile uint32_t *a, const volatile uint32_t *b)
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* Why a frame is no lock packet; 0: it is one, as far as its heads say. */
INLINE int six_other(const struct six_frame *f, enum plane_reason *why)
{
    uint8_t next = f->ip->next;
    int options = next == SIX_HOP_OPTIONS || next == SIX_ROUTING || next == SIX_OPTIONS;
    *why = next == SIX_FRAGMENT ? PLANE_FRAGMENT : options ? PLANE_OPTIONS : PLANE_OTHER;
    return f->ip->version >> 4 != 6 || next != IPPROTO_UDP || f->udp->dest != settings.port ||
           (settings.racks && !six_same(f->ip->to, settings.ip6));
}

/* The number that stands for the sender: of the machine in the packet's head, if it has that address. */
INLINE uint32_t six_sender(const struct six_head *ip, uint16_t machine)
{
    uint32_t key = machine;
    const struct plane_host *h = bpf_map_lookup_elem(&hosts, &key);
    return h && h->given_life && !six_same(h->given_ip6, ip->from) ? SIX_STRANGER : SIX_HOST(machine);
}

/* IPv6's head goes, an IPv4 head comes. */
INLINE int six_shorten(struct xdp_md *ctx, const struct six_frame *f, uint32_t sender)
{
    struct ether eth = *f->eth;
    uint16_t bytes = (uint16_t)(bpf_ntohs(f->udp->len) + sizeof(struct iphdr));
    if (bpf_xdp_adjust_head(ctx, SIX_MORE))
        return XDP_ABORTED;
    struct ether *to = (void *)(long)ctx->data;
    struct iphdr *ip = (void *)(to + 1);
    struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    eth.protocol = bpf_htons(ETH_P_IP);
    *to = eth;
    __builtin_memset(ip, 0, sizeof *ip);
    ip->version = 4;
    ip->ihl = 5;
    ip->ttl = SIX_HOPS;
    ip->protocol = IPPROTO_UDP;
    ip->tot_len = bpf_htons(bytes);
    ip->saddr = sender;
    ip->daddr = SIX_SWITCH;
    ip->check = (uint16_t)~sum_ip(ip);
    udp->check = 0;
    return FRAME_OURS;
}

/* FRAME_OURS: a lock packet, with an IPv4 head now. Else the verdict, counted, as frame_parse() has it. */
int six_enter(struct xdp_md *ctx)
{
    struct plane_counters *c = count_here();
    struct six_way *w = six_way();
    struct six_frame f;
    enum plane_reason why;
    if (!c || !w)
        return XDP_ABORTED;
    int whole = six_frame(ctx, &f);
    if ((void *)(f.eth + 1) > f.end || f.eth->protocol != bpf_htons(ETH_P_IPV6)) {
        uint16_t protocol = (void *)(f.eth + 1) > f.end ? 0 : f.eth->protocol;
        int tagged = protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
        return pass(c, tagged ? PLANE_VLAN : PLANE_OTHER);
    }
    if (!whole)
        return pass(c, PLANE_OTHER);
    if (six_other(&f, &why))
        return pass(c, why);
    const struct packet_head *head = (void *)(f.udp + 1);
    uint32_t udp_len = bpf_ntohs(f.udp->len), len = udp_len - (uint32_t)sizeof(struct udphdr);
    if (udp_len < sizeof(struct udphdr) + sizeof *head || len > PACKET_MAX || bpf_ntohs(f.ip->len) < udp_len ||
        (void *)(head + 1) > f.end || (uint8_t *)head + len > (uint8_t *)f.end)
        return drop(c, PLANE_SHORT);
    if (!six_sound(ctx, &f, len))
        return drop(c, PLANE_CHECKSUM);
    w->head = *f.ip;
    w->check = f.udp->check;
    w->sender = six_sender(f.ip, head->from.machine);
    return six_shorten(ctx, &f, w->sender);
}

/* An IPv6 head with these addresses comes, the IPv4 head goes. `check`: the checksum, or 0: to be added up. */
INLINE int six_lengthen(struct xdp_md *ctx, const struct six_head *head, uint16_t check)
{
    struct ether *was = (void *)(long)ctx->data;
    if ((void *)(was + 1) > (void *)(long)ctx->data_end)
        return 0;
    struct ether eth = *was;
    struct six_frame f;
    eth.protocol = bpf_htons(ETH_P_IPV6);
    if (bpf_xdp_adjust_head(ctx, -SIX_MORE) || !six_frame(ctx, &f))
        return 0;
    *f.eth = eth;
    *f.ip = *head;
    f.ip->len = f.udp->len;
    f.udp->check = check;
    if (check)
        return 1;
    uint32_t len = (uint32_t)bpf_ntohs(f.udp->len) - (uint32_t)sizeof(struct udphdr);
    uint16_t sum = (uint16_t)~sum_fold(six_sum_heads(&f) + sum_packet(ctx, SIX_HEADS, len));
    f.udp->check = sum ? sum : 0xffff;
    return 1;
}

INLINE void six_copy(uint32_t to[4], const uint32_t from[4])
{
    for (int i = 0; i < 4; i++)
        to[i] = from[i];
}

INLINE int six_place(uint32_t to[4], uint32_t number, const struct six_way *w)
{
    if (number == SIX_SWITCH) {
        six_copy(to, w->head.to);
        return 1;
    }
    if (number == w->sender) {
        six_copy(to, w->head.from);
        return 1;
    }
    struct plane_host *h = host_of((uint16_t)__builtin_bswap32(number));
    if (h)
        six_copy(to, h->ip6);
    return h != 0;
}

/* The frame as it leaves, or as it came if it passes to the network stack. */
int six_leave(struct xdp_md *ctx, int verdict)
{
    struct six_way *w = six_way();
    struct iphdr *ip = (void *)((struct ether *)(long)ctx->data + 1);
    if (verdict == XDP_DROP || !w || (void *)(ip + 1) > (void *)(long)ctx->data_end)
        return verdict == XDP_DROP ? XDP_DROP : XDP_ABORTED;
    uint32_t from = ip->saddr, to = ip->daddr;
    struct six_head head = w->head;
    if (verdict == XDP_REDIRECT && to == SIX_SWITCH)
        return verdict; /* it becomes several, and each gets its head on the way out */
    if (verdict == XDP_PASS && to == SIX_SWITCH)
        return six_lengthen(ctx, &head, w->check) ? verdict : XDP_ABORTED;
    head.hops = SIX_HOPS;
    if (!six_place(head.from, from, w) || !six_place(head.to, to, w))
        return XDP_ABORTED;
    return six_lengthen(ctx, &head, 0) ? verdict : XDP_ABORTED;
}

/* A copy on its way out (twin.bpf.h, fan.bpf.h), which has its addresses: from the switch to this host. */
int six_out(struct xdp_md *ctx, uint32_t machine)
{
    struct plane_host *h = host_of((uint16_t)machine);
    struct six_head head = {.version = 6 << 4, .next = IPPROTO_UDP, .hops = SIX_HOPS};
    if (!h)
        return XDP_DROP;
    for (int i = 0; i < 4; i++)
        head.from[i] = settings.ip6[i];
    six_copy(head.to, h->ip6);
    return six_lengthen(ctx, &head, 0) ? XDP_PASS : XDP_DROP;
}

/* Around every switch program: at an IPv4 address, both do nothing. */
INLINE int six_begin(struct xdp_md *ctx)
{
    return settings.six ? six_enter(ctx) : FRAME_OURS;
}

INLINE int six_end(struct xdp_md *ctx, int verdict)
{
    return settings.six ? six_leave(ctx, verdict) : verdict;
}

#endif
