/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* For measuring the cost of one packet: BPF_PROG_TEST_RUN repeats a program on the same frame, and the program changes the frame
 * and the lock. cost_run restores both after every round; cost_restore does only that, and its time is subtracted. Loaded only if
 * asked for. */
#ifndef PAWL_DATAPLANE_XDP_COST_BPF_H
#define PAWL_DATAPLANE_XDP_COST_BPF_H

#include "dataplane/xdp/frame.bpf.h"

/* The frame and the lock as every round finds them. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct cost_case);
} cost_cases SEC(".maps");

INLINE void cost_put_back(struct xdp_md *ctx, void *lock_map)
{
    uint32_t zero = 0;
    uint64_t *frame = (void *)(long)ctx->data;
    const struct cost_case *s = bpf_map_lookup_elem(&cost_cases, &zero);
    if (!s)
        return;
    for (uint32_t i = 0; i < COST_FRAME_WORDS && i < s->words && (void *)(frame + i + 1) <= (void *)(long)ctx->data_end; i++)
        frame[i] = s->frame[i];
    for (uint32_t i = 0; i < PACKET_MANY_MAX && i < s->locks; i++) {
        uint32_t index = s->index + i;
        uint64_t *lock = bpf_map_lookup_elem(lock_map, &index);
        if (!lock)
            return;
        lock[0] = s->lock[0];
        lock[1] = s->lock[1];
    }
}

#endif
