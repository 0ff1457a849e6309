/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Several packets in one datagram (wire/many.h), for a switch program: it decides the parts one after the other in a bounded loop,
 * and answers in the datagram that came. Parts without an answer and parts that it does not decide are marked.
 *
 * The program decides a part of which everything stays between the switch and the sender: a grant, a refusal, an acknowledgement,
 * or no answer. All others are sent again singly by their sender, since a frame leaves by one way: those for an agent, another
 * client, a lock server or the control process. Such a part has changed nothing. */
#ifndef PAWL_DATAPLANE_XDP_MANY_BPF_H
#define PAWL_DATAPLANE_XDP_MANY_BPF_H

#include "dataplane/xdp/frame.bpf.h"

/* The outcome of a part: bits, so that the verifier goes through the loop once, and not once for each outcome of each part. */
enum { MANY_ANSWERED = 0, MANY_SETTLED = 1, MANY_SINGLY = 2 };

#define MANY_FRONT (sizeof(struct packet_head) + sizeof(struct packet_many))

/* Decides the part of `len` bytes at offset `at` of the packet: the program's. A function that the verifier looks at once, for all
 * parts. */
__attribute__((noinline)) int decide_part(struct xdp_md *ctx, uint32_t at, uint32_t len);

/* Null: `size` bytes at that offset of the packet would end beyond the frame. */
INLINE void *many_bytes(struct xdp_md *ctx, uint64_t at, uint64_t size)
{
    asm volatile("" : "+r"(at)); /* what is checked is what is used */
    if (at > PACKET_MAX)
        return 0;
    uint8_t *p = (uint8_t *)(long)ctx->data + FRAME_HEADS + at;
    return (void *)(p + size) > (void *)(long)ctx->data_end ? 0 : p;
}

/* A part that changes nothing, and has no answer. */
COLD int refuse_part(struct plane_counters *c, enum plane_reason why)
{
    c->reason[why]++;
    return MANY_SETTLED;
}

INLINE int part_is_sound(const struct packet_head *h, uint8_t family)
{
    return h->version == PACKET_VERSION && !h->features && h->family == family;
}

/* Whether the datagram's tag speaks for the part, too: it has no other. */
INLINE int part_is_senders(struct xdp_md *ctx, uint16_t machine)
{
    const struct packet_head *whole = settings.keyed ? many_bytes(ctx, 0, sizeof *whole) : 0;
    return !settings.keyed || (whole && whole->from.machine == machine);
}

/* As many_sound() of wire/many.h has it, without marks. */
static __attribute__((noinline)) int datagram_is_sound(struct xdp_md *ctx, uint32_t len, uint8_t family)
{
    uint64_t indexes[PACKET_MANY_MAX];
    const struct packet_many *many = many_bytes(ctx, sizeof(struct packet_head), sizeof *many);
    uint32_t at = MANY_FRONT;
    if (!many || len > PACKET_MAX)
        return 0;
    uint32_t count = many->count;
    if (!count || count > PACKET_MANY_MAX || many->zero[0] | many->zero[1] | many->zero[2] | many->settled | many->singly)
        return 0;
    for (uint32_t i = 0; i < PACKET_MANY_MAX; i++) {
        uint32_t part = many->eighths[i] * 8u;
        if (i >= count) {
            if (part)
                return 0;
            continue;
        }
        const struct packet_head *h = many_bytes(ctx, at, sizeof *h);
        if (!h || part < sizeof *h || part > PACKET_MAX / 2 || !part_is_sound(h, family))
            return 0;
        indexes[i] = h->index;
        for (uint32_t k = 0; k < i; k++)
            if (indexes[k] == indexes[i])
                return 0;
        at += part;
    }
    return at == len;
}

/* The datagram. The verdict of the frame is counted once; reasons and types are counted for each part. */
INLINE int many_decide(struct xdp_md *ctx, struct frame *f, struct plane_counters *c)
{
    uint8_t family = f->head->family;
    uint32_t settled = 0, singly = 0, count = 0, at = MANY_FRONT;
    if (!datagram_is_sound(ctx, f->len, family))
        return drop(c, PLANE_MANY);
    for (uint32_t i = 0; i < PACKET_MANY_MAX; i++) {
        const struct packet_many *many = many_bytes(ctx, sizeof(struct packet_head), sizeof *many);
        if (!many || i >= many->count)
            break;
        uint32_t part = many->eighths[i] * 8u, outcome = (uint32_t)decide_part(ctx, at, part);
        settled |= (outcome & 1) << i;
        singly |= (outcome >> 1 & 1) << i;
        at += part;
        count++;
    }
    struct packet_many *many = many_bytes(ctx, sizeof(struct packet_head), sizeof *many);
    if (!many || settled == (1u << count) - 1) {
        c->verdict[PLANE_ABSORBED]++;
        return XDP_DROP;
    }
    many->settled = (uint16_t)settled;
    many->singly = (uint16_t)singly;
    c->singly += (uint64_t)__builtin_popcount(singly);
    return frame_answer(f, c);
}

#endif
