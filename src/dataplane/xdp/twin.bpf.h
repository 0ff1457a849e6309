/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Two packets out of one: a device map has the same interface twice, and a program runs on every copy that leaves by it.
 *
 * In native mode both copies run one program, in generic mode each entry's own, so the entry does not tell the copies apart.
 * Instead the ingress program writes a number of its CPU into the packet, and the egress program, which runs on the same CPU,
 * remembers the last number that it saw; the same number again is the second copy. If a copy is lost, its number is seen once, and
 * the next packet has another number. */
#ifndef PAWL_DATAPLANE_XDP_TWIN_BPF_H
#define PAWL_DATAPLANE_XDP_TWIN_BPF_H

#include "dataplane/xdp/six.bpf.h"

/* Two entries, both the interface by which doubled packets leave. */
struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 2);
    __type(key, uint32_t);
    __type(value, struct bpf_devmap_val);
} twins SEC(".maps");

/* Notes from the ingress to the egress program. Limit: packets of one CPU between the two. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct twin_ring);
} rings SEC(".maps");

INLINE struct twin_ring *twin_ring(void)
{
    uint32_t zero = 0;
    return bpf_map_lookup_elem(&rings, &zero);
}

/* The note for a packet that is about to be doubled: the caller fills in `to` and `first`. */
INLINE struct twin_note *twin_begin(struct frame *f)
{
    struct twin_ring *r = twin_ring();
    if (!r)
        return 0;
    uint32_t number = ++r->next;
    struct twin_note *n = &r->note[number % TWIN_NOTES];
    n->number = number;
    /* Two fields that the egress program writes anew. */
    f->ip->id = (uint16_t)(number >> 16);
    f->udp->check = (uint16_t)number;
    return n;
}

INLINE int twin_send(struct plane_counters *c)
{
    c->verdict[PLANE_DOUBLED]++;
    seal_state(SEAL_COPIED);
    return (int)bpf_redirect_map(&twins, 0, BPF_F_BROADCAST);
}

INLINE int twin_leave(struct xdp_md *ctx)
{
    struct plane_counters *c = count_here();
    struct twin_ring *r = twin_ring();
    void *data = (void *)(long)ctx->data;
    struct frame f = {.eth = data, .end = (void *)(long)ctx->data_end};
    f.ip = (void *)(f.eth + 1);
    f.udp = (void *)(f.ip + 1);
    f.head = (void *)(f.udp + 1);
    uint64_t *words = (void *)f.head;
    if (!c || !r || (void *)(words + TWIN_WORDS) > f.end)
        return XDP_DROP;
    uint32_t number = (uint32_t)f.ip->id << 16 | f.udp->check;
    struct twin_note *n = &r->note[number % TWIN_NOTES];
    if (n->number != number)
        return drop(c, PLANE_LOST_TWIN);
    uint32_t second = r->last == number;
    r->last = number;
    struct plane_host *h = host_of(n->to[second].machine);
    if (!h)
        return drop(c, PLANE_UNKNOWN);
    if (!second)
        for (uint32_t i = 0; i < TWIN_WORDS; i++)
            words[i] = n->first[i];
    f.ip->id = 0;
    struct place to = n->to[second];
    frame_address(&f, h, to.port);
    if (settings.keyed && !seal_frame(ctx))
        return XDP_DROP;
    return settings.six ? six_out(ctx, to.machine) : XDP_PASS;
}

SEC("xdp.frags/devmap") int twin_out(struct xdp_md *ctx)
{
    return twin_leave(ctx);
}

/* A switch with several ports: copies leave by an interface whose other end is on this machine. They are addressed already, and
 * each goes to the port of the machine in its head. */
SEC("xdp.frags") int twin_in(struct xdp_md *ctx)
{
    return frame_by_head(ctx);
}

/* The same for tests: BPF_PROG_TEST_RUN takes no program of a device map. Loaded only if asked for. */
SEC("?xdp.frags") int twin_probe(struct xdp_md *ctx)
{
    return twin_leave(ctx);
}

#endif
