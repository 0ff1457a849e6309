/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A faulty network for the lab, for packets to a host and from it: some UDP packets are lost, some come twice, and some come after
 * the one that was sent after them. A filter of traffic control, not XDP: it can make copies, and leaves the interface free for
 * XDP. */
#include "dataplane/xdp/frame.bpf.h"

#include <linux/pkt_cls.h>

#define LATE_BYTES 256u /* of a frame that can be late: lock packets are shorter, and others are never late */

/* Marks of copies that this program made, which pass it again. */
enum { MARK_TWICE = 0x70617731, MARK_LATE };

/* One packet in each direction that waits for the next. Two CPUs may lose one between them; a faulty network may do that, too. */
struct late {
    uint32_t len; /* 0: no packet waits */
    uint8_t bytes[LATE_BYTES];
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, uint32_t);
    __type(value, struct late);
} latecomer SEC(".maps");

/* With a probability in thousandths: settings.options has three numbers of ten bits, see noise_options. */
INLINE int happens(uint32_t shift)
{
    return bpf_get_prandom_u32() % 1000 < (settings.options >> shift & 0x3ff);
}

/* This copy becomes the one that waited. */
INLINE int become(struct __sk_buff *skb, struct late *l)
{
    uint32_t len = l->len;
    asm volatile("" : "+r"(len));
    skb->mark = 0;
    if (len < 64 || len > LATE_BYTES || bpf_skb_change_tail(skb, len, 0) ||
        bpf_skb_store_bytes(skb, 0, l->bytes, len, BPF_F_INVALIDATE_HASH))
        return TC_ACT_SHOT;
    l->len = 0;
    return TC_ACT_OK;
}

/* Waits for the next, if it is short enough. */
INLINE int keep(struct __sk_buff *skb, struct late *l)
{
    uint32_t len = skb->len;
    asm volatile("" : "+r"(len)); /* what is checked is what is used */
    if (len < 64 || len > LATE_BYTES || bpf_skb_load_bytes(skb, 0, l->bytes, len))
        return 0;
    l->len = len;
    return 1;
}

/* Copies go the same way again: `flags` is BPF_F_INGRESS or 0. */
INLINE int noise(struct __sk_buff *skb, uint64_t flags)
{
    uint32_t way = flags == BPF_F_INGRESS;
    struct late *l = bpf_map_lookup_elem(&latecomer, &way);
    struct plane_counters *c = count_here();
    uint8_t protocol = 0;
    if (!l || !c)
        return TC_ACT_OK;
    if (skb->mark == MARK_LATE)
        return become(skb, l);
    if (skb->mark == MARK_TWICE) {
        skb->mark = 0;
        return TC_ACT_OK;
    }
    if (skb->protocol != bpf_htons(ETH_P_IP) ||
        bpf_skb_load_bytes(skb, sizeof(struct ether) + __builtin_offsetof(struct iphdr, protocol), &protocol, 1) ||
        protocol != IPPROTO_UDP)
        return TC_ACT_OK;
    if (happens(0)) {
        c->verdict[PLANE_DROPPED]++;
        return TC_ACT_SHOT;
    }
    if (happens(10)) {
        c->verdict[PLANE_DOUBLED]++;
        skb->mark = MARK_TWICE;
        bpf_clone_redirect(skb, skb->ifindex, flags);
        skb->mark = 0;
    }
    if (l->len) { /* after this one */
        c->verdict[PLANE_SENT]++;
        skb->mark = MARK_LATE;
        bpf_clone_redirect(skb, skb->ifindex, flags);
        skb->mark = 0;
    } else if (happens(20) && keep(skb, l)) {
        c->verdict[PLANE_ABSORBED]++;
        return TC_ACT_SHOT;
    }
    return TC_ACT_OK;
}

SEC("tc") int noise_in(struct __sk_buff *skb)
{
    return noise(skb, BPF_F_INGRESS);
}

SEC("tc") int noise_out(struct __sk_buff *skb)
{
    return noise(skb, 0);
}

/* A host in a VLAN: the tag is beside the frame, for a card to put in. */
SEC("tc") int tag_out(struct __sk_buff *skb)
{
    if (skb->protocol == bpf_htons(ETH_P_IP))
        bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 5);
    return TC_ACT_OK;
}

char licence[] SEC("license") = "GPL";
