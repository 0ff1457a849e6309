/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Tags of packets in a switch program (wire/seal.h). A packet that comes is opened with the key of the member in whose name it is,
 * before anything is decided; a packet that leaves is tagged with the key of the host to which it goes. In between the program sees
 * it as if there were no keys. A packet that passes to the network stack has the tag with which it came.
 *
 * The control process fills in the keys. Costs a switch without a key nothing: `settings.keyed` is a constant to the kernel's
 * compiler. Included by frame.bpf.h. */
#ifndef PAWL_DATAPLANE_XDP_SEAL_BPF_H
#define PAWL_DATAPLANE_XDP_SEAL_BPF_H

#include "wire/siphash.h"

#define SEAL_WORDS_MAX ((PACKET_MAX + sizeof(struct plane_trail)) / 8) /* of the longest datagram */

/* Keys by machine's number; those of number 0 are of coordinators, lock servers and switches. Limit: as `hosts`. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, uint32_t);
    __type(value, struct plane_seal);
} seals SEC(".maps");

/* The packet under way. One entry per CPU. */
enum { SEAL_NONE, SEAL_OPENED, SEAL_ANEW, SEAL_COPIED };
struct seal_way {
    uint64_t tag;   /* with which it came */
    uint32_t state; /* SEAL_NONE: it was not opened. SEAL_ANEW: it passes to a process, with another content than it came with.
                       SEAL_COPIED: its copies are tagged on their way out. */
    uint32_t pad;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct seal_way);
} seal_ways SEC(".maps");

INLINE struct seal_way *seal_way(void)
{
    uint32_t zero = 0;
    return bpf_map_lookup_elem(&seal_ways, &zero);
}

INLINE void seal_state(uint32_t state)
{
    struct seal_way *w = settings.keyed ? seal_way() : 0;
    if (w)
        w->state = state;
}

/* The input of a hash: a lock packet, or a datagram of a memory node's client, with its trail. */
enum { SEAL_HEADED, SEAL_TRAILED };

/* Functions that the verifier looks at once. */
__attribute__((noinline)) uint64_t seal_hash(struct xdp_md *ctx, uint32_t what, uint32_t len, uint64_t k0, uint64_t k1);
__attribute__((noinline)) int seal_enter(struct xdp_md *ctx, uint32_t len);
__attribute__((noinline)) int seal_leave(struct xdp_md *ctx, int verdict);

/* The verifier takes no arithmetic with the frame's end, which the compiler would do to save a comparison. */
INLINE int seal_is_before(const void *at, const void *end)
{
    asm volatile("" : "+r"(at));
    return at <= end;
}

/* A word of the datagram at that offset. False: the frame ends before that. */
INLINE int seal_word(struct xdp_md *ctx, uint64_t offset, uint64_t *out)
{
    asm volatile("" : "+r"(offset)); /* what is checked is what is used */
    if (offset > PACKET_MAX + sizeof(struct plane_trail))
        return 0;
    const uint64_t *at = (void *)((uint8_t *)(long)ctx->data + FRAME_HEADS + offset);
    if (!seal_is_before(at + 1, (void *)(long)ctx->data_end))
        return 0;
    *out = *at;
    return 1;
}

/* The tag of a datagram of `len` bytes, without its trail; 0: the frame ends before that. */
uint64_t seal_hash(struct xdp_md *ctx, uint32_t what, uint32_t len, uint64_t k0, uint64_t k1)
{
    void *end = (void *)(long)ctx->data_end;
    uint8_t *at = (uint8_t *)(long)ctx->data + FRAME_HEADS;
    uint64_t first, last, rest = len % 8, whole = len + sizeof(uint64_t);
    struct sip s;
    if (len > PACKET_MAX || len < sizeof(struct packet_head) || !seal_word(ctx, len - 8, &last))
        return 0;
    if (what == SEAL_TRAILED) { /* begins with the number, which is behind the datagram */
        if (!seal_word(ctx, len, &first))
            return 0;
    } else { /* without the tag, the second word */
        if (!seal_word(ctx, 0, &first))
            return 0;
        at += 2 * sizeof(uint64_t);
        len -= 2 * (uint32_t)sizeof(uint64_t);
        whole -= 2 * sizeof(uint64_t);
    }
    last = rest ? last >> (64 - 8 * rest) : 0; /* the bytes after the last whole word */
    sip_begin(&s, k0, k1);
    sip_word(&s, first);
    for (uint32_t i = 0; i < SEAL_WORDS_MAX && len >= sizeof(uint64_t); i++) {
        if (!seal_is_before(at + sizeof(uint64_t), end))
            return 0;
        sip_word(&s, *(uint64_t *)at);
        at += sizeof(uint64_t);
        len -= (uint32_t)sizeof(uint64_t);
    }
    return sip_end(&s, last, whole);
}

/* The member whose keys open packets of the machine and tag packets to it. */
INLINE uint32_t seal_of(uint16_t machine)
{
    return machine <= settings.machines ? machine : MACHINE_NONE;
}

INLINE int seal_fits(struct xdp_md *ctx, uint32_t what, uint32_t len, const struct plane_seal *seal, uint32_t which, uint64_t tag)
{
    uint64_t k0 = which ? seal->key[1][0] : seal->key[0][0], k1 = which ? seal->key[1][1] : seal->key[0][1];
    if (!(k0 | k1) || !tag)
        return 0;
    return seal_hash(ctx, what, len, k0, k1) == tag;
}

/* With either of two keys. A host's packets are tagged with the one that it has used last. */
INLINE int seal_opens(struct xdp_md *ctx, uint32_t what, uint32_t len, struct plane_seal *seal, uint32_t number, uint64_t tag)
{
    uint32_t which = seal->which & 1;
    if (seal_fits(ctx, what, len, seal, which, tag))
        return 1;
    if (!seal_fits(ctx, what, len, seal, !which, tag))
        return 0;
    if (number != MACHINE_NONE)
        seal->which = !which;
    return 1;
}

/* Packets that the control process judges: of the coordinator, and questions of programs that have joined nothing, by the key of
 * their file, which only the process can make. */
INLINE int seal_is_processes(const struct packet_head *h)
{
    if (h->from.machine != MACHINE_NONE)
        return 0;
    int asks = h->family == PACKET_COORDINATOR || h->family == PACKET_ECHO;
    return asks && (h->from.port || (h->family == PACKET_COORDINATOR && !(h->features & PACKET_TAGGED)));
}

/* A host of which the coordinator has told nothing yet, or of a later life than it has told of: the process asks. */
INLINE int seal_is_news(const struct packet_head *h, const struct plane_seal *seal)
{
    return seal_of(h->from.machine) != MACHINE_NONE && h->family == PACKET_COORDINATOR && h->type == PLANE_HERE &&
           h->epoch > seal->life;
}

/* FRAME_OURS: the packet of `len` bytes was opened, and is as it was before it was tagged. Else the verdict, counted. The frame has
 * all of it. */
int seal_enter(struct xdp_md *ctx, uint32_t len)
{
    struct plane_counters *c = count_here();
    struct seal_way *w = seal_way();
    struct packet_head *h = (void *)((uint8_t *)(long)ctx->data + FRAME_HEADS);
    if (!c || !w || (void *)(h + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    w->state = SEAL_NONE;
    if (seal_is_processes(h))
        return pass(c, PLANE_CONTROL);
    uint32_t number = seal_of(h->from.machine);
    struct plane_seal *seal = bpf_map_lookup_elem(&seals, &number);
    if (!seal || !(h->features & PACKET_TAGGED) || (h->from.machine == MACHINE_NONE && h->from.port))
        return drop(c, PLANE_UNTAGGED);
    uint64_t tag = h->tag;
    if (!seal_opens(ctx, SEAL_HEADED, len, seal, number, tag))
        return seal_is_news(h, seal) ? pass(c, PLANE_CONTROL) : drop(c, PLANE_UNTAGGED);
    w->tag = tag;
    w->state = SEAL_OPENED;
    h->features &= (uint8_t)~PACKET_TAGGED;
    h->tag = 0;
    return FRAME_OURS;
}

/* Tags the packet for the host to which it goes, or in the name of the member whose it is. An echo goes back. */
INLINE int seal_frame(struct xdp_md *ctx)
{
    const struct udphdr *udp = (void *)((uint8_t *)(long)ctx->data + FRAME_HEADS - sizeof(struct udphdr));
    struct packet_head *h = (void *)(udp + 1);
    if ((void *)(h + 1) > (void *)(long)ctx->data_end)
        return 0;
    uint32_t len = (uint32_t)bpf_ntohs(udp->len) - (uint32_t)sizeof *udp;
    uint32_t number = h->family == PACKET_ECHO ? MACHINE_NONE : seal_of(h->to.machine);
    if (number == MACHINE_NONE)
        number = seal_of(h->from.machine);
    const struct plane_seal *seal = bpf_map_lookup_elem(&seals, &number);
    if (!seal)
        return 0;
    uint32_t which = seal->which & 1;
    uint64_t k0 = which ? seal->key[1][0] : seal->key[0][0], k1 = which ? seal->key[1][1] : seal->key[0][1];
    h->features |= PACKET_TAGGED;
    h->tag = seal_hash(ctx, SEAL_HEADED, len, k0, k1);
    return 1;
}

/* The frame as it leaves, or as it came if it passes. */
int seal_leave(struct xdp_md *ctx, int verdict)
{
    struct seal_way *w = seal_way();
    struct packet_head *h = (void *)((uint8_t *)(long)ctx->data + FRAME_HEADS);
    if (!w || verdict == XDP_DROP || w->state == SEAL_NONE || w->state == SEAL_COPIED)
        return verdict;
    if (verdict != XDP_PASS || w->state == SEAL_ANEW)
        return seal_frame(ctx) ? verdict : XDP_ABORTED;
    if ((void *)(h + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    h->features |= PACKET_TAGGED;
    h->tag = w->tag;
    return verdict;
}

/* Around every switch program; without a key, both do nothing. */
INLINE void seal_begin(void)
{
    seal_state(SEAL_NONE);
}

INLINE int seal_end(struct xdp_md *ctx, int verdict)
{
    return settings.keyed ? seal_leave(ctx, verdict) : verdict;
}

#endif
