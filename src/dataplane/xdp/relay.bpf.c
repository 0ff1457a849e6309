/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A switch without a design of its own: echoes come back, lock packets go to the machine in their head. For designs that decide
 * nothing in the network, and as a baseline for those that do. */
#include "dataplane/xdp/frame.bpf.h"

SEC("xdp") int plane(struct xdp_md *ctx)
{
    struct plane_counters *c;
    struct frame f;
    int verdict = frame_begin(ctx, &c, &f);
    if (verdict != FRAME_OURS)
        return verdict;
    count_type(c, &f);
    return frame_relay(ctx, &f, c);
}

char licence[] SEC("license") = "GPL";
