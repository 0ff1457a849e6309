/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The baseline of measurements: a program that swaps the heads of UDP packets and does nothing else. And a program that passes
 * everything, which the peer of a veth needs for native XDP_TX to reach it. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct ether { /* as in frame.bpf.h */
    __u16 dest[3];
    __u16 source[3];
    __u16 protocol;
};

SEC("xdp.frags") int echo(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct ether *eth = data;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > end || eth->protocol != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP || ip->ihl != 5)
        return XDP_PASS;
    for (int i = 0; i < 3; i++) {
        __u16 word = eth->dest[i];
        eth->dest[i] = eth->source[i];
        eth->source[i] = word;
    }
    __u32 address = ip->saddr;
    ip->saddr = ip->daddr;
    ip->daddr = address;
    __u16 port = udp->source;
    udp->source = udp->dest;
    udp->dest = port;
    udp->check = 0;
    return XDP_TX;
}

SEC("xdp.frags") int pass_all(struct xdp_md *ctx)
{
    return XDP_PASS;
}

char licence[] SEC("license") = "GPL";
