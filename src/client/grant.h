/* Grants as the public interface shows them, holds as the inside knows them: the same thing. */
#ifndef PAWL_CLIENT_GRANT_H
#define PAWL_CLIENT_GRANT_H

#include "designs/seat.h"

static inline pawl_grant grant_of(const struct seat *seat, const struct hold *h)
{
    return (pawl_grant){
        .token = h->token,
        .expiry_ns = seat_expiry_ns(seat),
        .mode = h->mode,
        .hold = h->record,
        .index = h->index,
        .serial = h->serial,
    };
}

static inline struct hold hold_of(const pawl_grant *g)
{
    return (struct hold){
        .index = g->index & FIELD_MAX(RECORD_INDEX_BITS),
        .token = g->token,
        .serial = g->serial & FIELD_MAX(RECORD_SERIAL_BITS),
        .record = g->hold,
        .mode = (enum pawl_mode)g->mode,
    };
}

#endif
