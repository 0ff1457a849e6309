/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Many packets out of one: the packets that a packet's passes have made leave as copies of it, each rewritten on its way out.
 *
 * As in twin.bpf.h a device map that has one interface several times makes the copies, and neither mode tells them apart. The
 * ingress program writes a number of its CPU into the packet, and the egress program, on the same CPU, counts how often it saw that
 * number. There are maps of 2 to 32 entries; spare copies are dropped. If a copy is lost, the last packet is lost. */
#ifndef PAWL_DATAPLANE_XDP_FAN_BPF_H
#define PAWL_DATAPLANE_XDP_FAN_BPF_H

#include "dataplane/xdp/fan.h"
#include "dataplane/xdp/six.bpf.h"

#define FAN(name, count)                                                                                                           \
    struct {                                                                                                                       \
        __uint(type, BPF_MAP_TYPE_DEVMAP);                                                                                         \
        __uint(max_entries, count);                                                                                                \
        __type(key, uint32_t);                                                                                                     \
        __type(value, struct bpf_devmap_val);                                                                                      \
    } name SEC(".maps")

/* Every entry is the interface by which copies leave. */
FAN(fan2, 2);
FAN(fan4, 4);
FAN(fan8, 8);
FAN(fan16, 16);
FAN(fan32, 32);

/* The latest number of a packet on each CPU. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, uint32_t);
} fan_numbers SEC(".maps");

/* FAN_WORKS of each CPU; the loader makes it as long as there are CPUs. Limit: packets of one CPU between the two programs; the
 * kernel queues at most 16 frames in between. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, FAN_WORKS);
    __type(key, uint32_t);
    __type(value, struct fan_work);
} works SEC(".maps");

/* For lock servers on this machine, which a copy that leaves does not reach: the control process delivers these. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 18);
} mail SEC(".maps");

INLINE struct fan_work *fan_work(uint32_t number)
{
    uint32_t key = bpf_get_smp_processor_id() * FAN_WORKS + number % FAN_WORKS;
    return bpf_map_lookup_elem(&works, &key);
}

INLINE struct fan_work *fan_begin(void)
{
    uint32_t zero = 0, *number = bpf_map_lookup_elem(&fan_numbers, &zero);
    struct fan_work *w = number ? fan_work(*number + 1) : 0;
    if (!w)
        return 0;
    w->number = ++*number;
    w->outs = w->seen = 0;
    return w;
}

/* Room for the packets of a part (many.bpf.h), which leave before the next packet comes: its number stays unused, since a datagram
 * with many parts would use up the notes for frames that are on their way out. */
INLINE struct fan_work *fan_scratch(void)
{
    uint32_t zero = 0, *number = bpf_map_lookup_elem(&fan_numbers, &zero);
    struct fan_work *w = number ? fan_work(*number + 1) : 0;
    if (w)
        w->number = w->outs = w->seen = 0;
    return w;
}

/* A lock server on this machine: the network stack delivers the packet. */
INLINE int is_here(const struct plane_host *h)
{
    return !h->ifindex;
}

INLINE void fan_put(struct frame *f, const struct netlock_packet *o)
{
    uint64_t *to = (void *)f->head;
    const uint64_t *from = (const void *)o;
    for (uint32_t i = 0; i < sizeof *o / 8; i++)
        to[i] = from[i];
}

/* The frame as it is, with a packet of ours in it, to the place in its head. */
INLINE int fan_one(struct xdp_md *ctx, struct frame *f, struct plane_counters *c)
{
    struct plane_host *h = host_of(f->head->to.machine);
    if (!h)
        return drop(c, PLANE_UNKNOWN);
    if (is_here(h)) { /* keeps its source: the server answers the sender */
        f->ip->daddr = h->ip;
        f->ip->check = 0;
        f->ip->check = (uint16_t)~sum_ip(f->ip);
        f->udp->dest = h->pool_port;
        f->udp->check = 0;
        c->verdict[PLANE_SENT]++;
        seal_state(SEAL_ANEW);
        return XDP_PASS;
    }
    uint16_t port = f->head->to.port;
    frame_address(f, h, port == PORT_SERVER ? PORT_POOL : port);
    c->verdict[PLANE_SENT]++;
    return h->ifindex == ctx->ingress_ifindex ? XDP_TX : (int)bpf_redirect_map(&ports, h->ifindex, XDP_DROP);
}

/* Takes out the packets for servers on this machine. */
struct fan_sorting {
    struct fan_work *work;
    uint32_t kept;
};

static long fan_sort(uint32_t i, struct fan_sorting *s)
{
    struct fan_work *w = s->work;
    uint32_t kept = s->kept;
    if (i >= FAN_MAX || i >= w->outs || kept >= FAN_MAX)
        return 1;
    struct plane_host *h = host_of(w->out[i].head.to.machine);
    if (h && is_here(h)) {
        bpf_ringbuf_output(&mail, &w->out[i], sizeof w->out[i], 0);
        return 0;
    }
    if (kept != i)
        __builtin_memcpy(&w->out[kept], &w->out[i], sizeof w->out[i]);
    s->kept = kept + 1;
    return 0;
}

INLINE void fan_post(struct fan_work *w)
{
    struct fan_sorting s = {.work = w};
    bpf_loop(FAN_MAX, fan_sort, &s, 0);
    w->outs = s.kept;
}

/* Sends all packets that the passes of this packet have made. */
INLINE int fan_send(struct xdp_md *ctx, struct frame *f, struct fan_work *w, struct plane_counters *c)
{
    if (w->outs > 1)
        fan_post(w);
    if (!w->outs) {
        c->verdict[PLANE_ABSORBED]++;
        return XDP_DROP;
    }
    if (w->outs == 1) {
        fan_put(f, &w->out[0]);
        return fan_one(ctx, f, c);
    }
    f->ip->id = (uint16_t)(w->number >> 16);
    f->udp->check = (uint16_t)w->number;
    c->verdict[PLANE_DOUBLED]++;
    seal_state(SEAL_COPIED);
    if (w->outs <= 2)
        return (int)bpf_redirect_map(&fan2, 0, BPF_F_BROADCAST);
    if (w->outs <= 4)
        return (int)bpf_redirect_map(&fan4, 0, BPF_F_BROADCAST);
    if (w->outs <= 8)
        return (int)bpf_redirect_map(&fan8, 0, BPF_F_BROADCAST);
    if (w->outs <= 16)
        return (int)bpf_redirect_map(&fan16, 0, BPF_F_BROADCAST);
    return (int)bpf_redirect_map(&fan32, 0, BPF_F_BROADCAST);
}

INLINE int fan_leave(struct xdp_md *ctx)
{
    struct plane_counters *c = count_here();
    struct frame f = {.eth = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end};
    f.ip = (void *)(f.eth + 1);
    f.udp = (void *)(f.ip + 1);
    f.head = (void *)(f.udp + 1);
    if (!c || (void *)((struct netlock_packet *)(void *)f.head + 1) > f.end)
        return XDP_DROP;
    uint32_t number = (uint32_t)f.ip->id << 16 | f.udp->check;
    struct fan_work *w = fan_work(number);
    if (!w || w->number != number)
        return drop(c, PLANE_LOST_TWIN);
    uint32_t copy = w->seen++;
    if (copy >= w->outs || copy >= FAN_MAX)
        return XDP_DROP; /* one more than needed */
    const struct netlock_packet *o = &w->out[copy];
    struct plane_host *h = host_of(o->head.to.machine);
    if (!h)
        return drop(c, PLANE_UNKNOWN);
    fan_put(&f, o);
    f.ip->id = 0;
    frame_address(&f, h, o->head.to.port == PORT_SERVER ? PORT_POOL : o->head.to.port);
    if (settings.keyed && !seal_frame(ctx))
        return XDP_DROP;
    return settings.six ? six_out(ctx, o->head.to.machine) : XDP_PASS;
}

SEC("xdp.frags/devmap") int fan_out(struct xdp_md *ctx)
{
    return fan_leave(ctx);
}

/* A switch with several ports: as twin_in. */
SEC("xdp.frags") int fan_in(struct xdp_md *ctx)
{
    return frame_by_head(ctx);
}

/* The same for tests: BPF_PROG_TEST_RUN takes no program of a device map. Loaded only if asked for. */
SEC("?xdp.frags") int fan_probe(struct xdp_md *ctx)
{
    return fan_leave(ctx);
}

#endif
