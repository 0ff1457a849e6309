/* The measure of all things: a program that swaps the heads of UDP packets and nothing else, and one that passes everything, which
 * the peer of a veth needs for native XDP_TX to reach it. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("xdp") int echo(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = data;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP || ip->ihl != 5)
        return XDP_PASS;
    __u8 mac[ETH_ALEN];
    __builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, mac, ETH_ALEN);
    __u32 address = ip->saddr;
    ip->saddr = ip->daddr;
    ip->daddr = address;
    __u16 port = udp->source;
    udp->source = udp->dest;
    udp->dest = port;
    udp->check = 0;
    return XDP_TX;
}

SEC("xdp") int pass_all(struct xdp_md *ctx)
{
    return XDP_PASS;
}

char licence[] SEC("license") = "Apache-2.0";
