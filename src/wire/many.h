/* SPDX-License-Identifier: Apache-2.0 */
/* Several packets in one datagram, its parts: they cost the network's stack as much as one. A head with PACKET_MANY, a struct
 * packet_many, and the parts, one behind the other, each with a head of its own. They mean what they would mean one by one, in this
 * order; they are lost, doubled or late together. Each is of another lock. Nothing of the operating system here.
 *
 * A switch in the kernel answers in the datagram that came: parts that it has answered are the answers, the others are marked. A
 * part that is marked `singly` is a packet on its way that took a detour: its sender sends it on, alone. */
#ifndef PAWL_WIRE_MANY_H
#define PAWL_WIRE_MANY_H

#include "wire/packet.h"

#include <stdbool.h>
#include <stddef.h>

/* The parts of a datagram that is being made, and its first bytes. */
struct many_front {
    struct packet_head head;
    struct packet_many many;
};
_Static_assert(sizeof(struct many_front) == 72, "no padding");

/* Whether a packet can be a part. */
static inline bool many_takes(const struct packet_head *part, uint32_t len)
{
    return len >= sizeof *part && len % 8 == 0 && len / 8 <= UINT8_MAX && len <= PACKET_MAX / 2 && !part->features;
}

static inline void many_begin(struct many_front *f, const struct packet_head *first)
{
    *f = (struct many_front){.head = *first};
    f->head.features = PACKET_MANY;
}

/* Whether that lock is among these: a datagram has one packet of a lock, and a second one begins the next datagram. */
static inline bool many_has(const uint64_t *indexes, unsigned count, uint64_t index)
{
    for (unsigned i = 0; i < count; i++)
        if (indexes[i] == index)
            return true;
    return false;
}

/* A further part, which follows in the datagram. False: there is no room; `used` is what the datagram has, front included. */
static inline bool many_add(struct many_front *f, uint32_t len, uint32_t *used)
{
    if (f->many.count == PACKET_MANY_MAX || *used + len > PACKET_MAX)
        return false;
    f->many.eighths[f->many.count++] = (uint8_t)(len / 8);
    *used += len;
    return true;
}

/* Whether it is a datagram with parts. */
static inline bool many_is(const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    return len >= sizeof *h && h->version == PACKET_VERSION && h->features == PACKET_MANY;
}

/* Whether all of it is as it must be; else it is refused as a whole. */
static inline bool many_sound(const void *data, uint32_t len)
{
    const struct many_front *f = data;
    uint64_t indexes[PACKET_MANY_MAX];
    uint32_t at = sizeof *f;
    if (len < sizeof *f || len > PACKET_MAX || !f->many.count || f->many.count > PACKET_MANY_MAX)
        return false;
    for (unsigned i = 0; i < sizeof f->many.zero; i++)
        if (f->many.zero[i])
            return false;
    if ((f->many.settled | f->many.singly) >> f->many.count || f->many.settled & f->many.singly)
        return false;
    for (unsigned i = 0; i < PACKET_MANY_MAX; i++) {
        uint32_t part = f->many.eighths[i] * 8u;
        const struct packet_head *h = (const struct packet_head *)(const void *)((const char *)data + at);
        if (i >= f->many.count && part)
            return false;
        if (i >= f->many.count)
            continue;
        if (part > len - at || !many_takes(h, part) || h->version != PACKET_VERSION || h->family != f->head.family ||
            many_has(indexes, i, h->index))
            return false;
        indexes[i] = h->index;
        at += part;
    }
    return at == len;
}

/* Whether it has marks, and so is an answer: lock servers and switches refuse those that are not their own. */
static inline bool many_is_answer(const void *data)
{
    const struct many_front *f = data;
    return f->many.settled || f->many.singly;
}

/* The parts of a sound one, one after the other: begin with *i and *at zero. Null: that was all. */
static inline const struct packet_head *many_walk(const void *data, unsigned *i, uint32_t *at, uint32_t *len)
{
    const struct many_front *f = data;
    if (*i == f->many.count)
        return NULL;
    if (!*i)
        *at = sizeof *f;
    const struct packet_head *h = (const struct packet_head *)(const void *)((const char *)data + *at);
    *len = f->many.eighths[(*i)++] * 8u;
    *at += *len;
    return h;
}

/* The same without those that are marked. */
static inline const struct packet_head *many_next(const void *data, unsigned *i, uint32_t *at, uint32_t *len)
{
    const struct many_front *f = data;
    const struct packet_head *h = many_walk(data, i, at, len);
    while (h && (f->many.settled | f->many.singly) >> (*i - 1) & 1)
        h = many_walk(data, i, at, len);
    return h;
}

/* The same: those that are to be sent again, alone. */
static inline const struct packet_head *many_next_singly(const void *data, unsigned *i, uint32_t *at, uint32_t *len)
{
    const struct many_front *f = data;
    const struct packet_head *h = many_walk(data, i, at, len);
    while (h && !(f->many.singly >> (*i - 1) & 1))
        h = many_walk(data, i, at, len);
    return h;
}

#endif
