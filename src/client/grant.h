/* Grants as the public interface shows them, holds as the inside knows them: the same thing. */
#ifndef PAWL_CLIENT_GRANT_H
#define PAWL_CLIENT_GRANT_H

#include "designs/seat.h"

/* Which session a grant is of: in the upper bits of its serial. */
static inline uint64_t grant_identity(const struct session *me)
{
    return ((uint64_t)me->epoch << 12 | me->slot) << RECORD_SERIAL_BITS;
}

static inline pawl_grant grant_of(const struct seat *seat, const struct hold *h)
{
    return (pawl_grant){
        .token = h->token,
        .expiry_ns = seat_expiry_ns(seat),
        .mode = h->mode,
        .hold = h->record,
        .index = h->index,
        .serial = grant_identity(seat->me) | h->serial,
    };
}

/* A grant of another session has no hold here: its record is out of bounds, which every call refuses. */
static inline struct hold hold_of(const struct session *me, const pawl_grant *g)
{
    bool ours = g->serial >> RECORD_SERIAL_BITS == grant_identity(me) >> RECORD_SERIAL_BITS;
    return (struct hold){
        .index = g->index & FIELD_MAX(RECORD_INDEX_BITS),
        .token = g->token,
        .serial = g->serial & FIELD_MAX(RECORD_SERIAL_BITS),
        .record = ours ? g->hold : UINT32_MAX,
        .mode = (enum pawl_mode)g->mode,
    };
}

#endif
