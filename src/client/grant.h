/* Grants as the public interface shows them, holds as the inside knows them: the same thing, and whose it is. */
#ifndef PAWL_CLIENT_GRANT_H
#define PAWL_CLIENT_GRANT_H

#include "designs/seat.h"

/* Two sessions count their records and serials alike, so a grant also says which session it is of, in the bits that its index
 * leaves: slot 12, epoch 12. Otherwise a reader could unlock with the grant of another, and lose its own hold by it. */
static inline uint64_t grant_mark(const struct seat *seat)
{
    return (uint64_t)seat->me->slot << RECORD_INDEX_BITS | (uint64_t)seat->me->epoch << (RECORD_INDEX_BITS + 12);
}

static inline pawl_grant grant_of(const struct seat *seat, const struct hold *h)
{
    return (pawl_grant){
        .token = h->token,
        .expiry_ns = seat_expiry_ns(seat),
        .mode = h->mode,
        .hold = h->record,
        .index = h->index | grant_mark(seat),
        .serial = h->serial,
    };
}

/* A grant of another session becomes a hold in no record, which nobody has. */
static inline struct hold hold_of(const struct seat *seat, const pawl_grant *g)
{
    return (struct hold){
        .index = g->index & FIELD_MAX(RECORD_INDEX_BITS),
        .token = g->token,
        .serial = g->serial & FIELD_MAX(RECORD_SERIAL_BITS),
        .record = likely(g->index >> RECORD_INDEX_BITS == grant_mark(seat) >> RECORD_INDEX_BITS) ? g->hold : UINT32_MAX,
        .mode = (enum pawl_mode)g->mode,
    };
}

#endif
