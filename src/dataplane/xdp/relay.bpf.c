/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A switch without a design of its own: echoes come back, lock packets go to the machine in their head. For designs that decide
 * nothing in the network, and as a baseline for those that do. */
#include "dataplane/xdp/six.bpf.h"

INLINE int take(struct xdp_md *ctx)
{
    struct plane_counters *c;
    struct frame f;
    int verdict = frame_begin(ctx, &c, &f);
    if (verdict != FRAME_OURS)
        return verdict;
    count_type(c, f.head);
    return frame_relay(ctx, &f, c);
}

INLINE int handle(struct xdp_md *ctx)
{
    return seal_end(ctx, take(ctx));
}

SEC("xdp.frags") int plane(struct xdp_md *ctx)
{
    int verdict = six_begin(ctx);
    return verdict == FRAME_OURS ? six_end(ctx, handle(ctx)) : verdict;
}

char licence[] SEC("license") = "GPL";
