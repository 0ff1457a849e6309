/* SPDX-License-Identifier: Apache-2.0 */
/* Citron's state of a session, private to its process: session->design_state. */
#ifndef PAWL_DESIGNS_CITRON_SESSION_H
#define PAWL_DESIGNS_CITRON_SESSION_H

#include "designs/core/seat.h"

#define CITRON_HINTS 16
#define CITRON_FLIGHTS 128

/* The configuration of a lock as the session last read it. It rarely changes, and may be out of date. */
struct citron_hint {
    uint64_t index, word, more;
    uint32_t skip_blind;
};

/* How many claims of the session are in flight, by the word that counts them (batch.c). */
struct citron_flights {
    uint16_t below[CITRON_FLIGHTS], turns[CITRON_FLIGHTS], locks[16];
};

struct citron_session {
    struct citron_hint hints[CITRON_HINTS]; /* by lock index */
    struct citron_flights flights;
    uint64_t scaled_ns; /* when the session last looked whether a lock should grow */
};

static inline struct citron_session *citron_session(const struct seat *seat)
{
    assert(seat->me->design_state);
    return seat->me->design_state;
}

#endif
