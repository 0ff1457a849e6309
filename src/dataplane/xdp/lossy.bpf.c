/* A bad network for the lab: drops some of the UDP packets that come in. */
#include "dataplane/xdp/frame.bpf.h"

SEC("xdp") int plane(struct xdp_md *ctx)
{
    struct plane_counters *c = count_here();
    struct ether *eth = (void *)(long)ctx->data;
    struct iphdr *ip = (void *)(eth + 1);
    if (!c)
        return XDP_ABORTED;
    if ((void *)(ip + 1) > (void *)(long)ctx->data_end || eth->protocol != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP)
        return pass(c, PLANE_NOT_IPV4);
    /* settings.options: of 1000 packets so many */
    return bpf_get_prandom_u32() % 1000 < settings.options ? drop(c, PLANE_REFUSED) : pass(c, PLANE_OTHER);
}

char licence[] SEC("license") = "GPL";
