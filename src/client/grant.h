/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between grants (pawl.h) and holds (designs/core/seat.h). */
#ifndef PAWL_CLIENT_GRANT_H
#define PAWL_CLIENT_GRANT_H

#include "designs/core/seat.h"

#include <errno.h>

/* The session of a grant, in the upper bits of its serial. */
static inline uint64_t grant_identity(const struct session *me)
{
    return ((uint64_t)me->epoch << 12 | me->slot) << RECORD_SERIAL_BITS;
}

/* Bytes as the units that they touch; PAWL_END is the end of all. The range must not be empty: -EINVAL, nor go beyond what a lock
 * can have: -EOVERFLOW. */
static inline int units_of(const struct space *s, uint64_t start, uint64_t end, uint64_t *first, uint64_t *last)
{
    if (start >= end)
        return -EINVAL;
    if (!s->unit_bytes)
        return -PAWL_ENOTSUP;
    uint64_t until = end == PAWL_END ? RANGE_UNITS_MAX : (end - 1) / s->unit_bytes + 1;
    if (until > RANGE_UNITS_MAX || start / s->unit_bytes >= RANGE_UNITS_MAX)
        return -EOVERFLOW;
    *first = start / s->unit_bytes;
    *last = until;
    return 0;
}

static inline pawl_grant grant_of(const struct seat *seat, const struct hold *h)
{
    uint64_t unit_bytes = seat->space->unit_bytes; /* 0: without ranges */
    return (pawl_grant){
        .token = h->token,
        .expiry_ns = seat_expiry_ns(seat),
        .mode = h->mode,
        .hold = h->record,
        .index = h->index,
        .serial = grant_identity(seat->me) | h->serial,
        .start = h->start * unit_bytes,
        .end = h->end * unit_bytes,
    };
}

/* A grant of another session becomes a hold whose record is out of bounds, which every call refuses. */
static inline struct hold hold_of(const struct seat *seat, const pawl_grant *g)
{
    uint64_t unit_bytes = seat->space->unit_bytes;
    bool ours = g->serial >> RECORD_SERIAL_BITS == grant_identity(seat->me) >> RECORD_SERIAL_BITS;
    ours &= !unit_bytes || !((g->start | g->end) & (unit_bytes - 1));
    return (struct hold){
        .index = g->index & FIELD_MAX(RECORD_INDEX_BITS),
        .token = g->token,
        .serial = g->serial & FIELD_MAX(RECORD_SERIAL_BITS),
        .record = ours ? g->hold : UINT32_MAX,
        .mode = (enum pawl_mode)g->mode,
        .start = unit_bytes ? g->start / unit_bytes : 0,
        .end = unit_bytes ? g->end / unit_bytes : RANGE_UNITS_MAX,
    };
}

#endif
