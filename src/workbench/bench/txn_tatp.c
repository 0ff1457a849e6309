/* SPDX-License-Identifier: Apache-2.0 */
/* TATP's transactions by their locks. Each subscriber has one to four rows of access information and of special facilities: as many
 * as a hash of its number says, so that all clients agree. Call forwardings share 80,000 locks for 100,000 subscribers. */
#include "lib/hash.h"
#include "workbench/bench/txn.h"

#include <errno.h>
#include <stdlib.h>

#define ROWS_MAX 4
#define FORWARDINGS_MAX 3 /* of a facility: they begin at 0, 8 and 16 o'clock */
#define HASHED_PERCENT 80 /* locks of forwardings, of the number of subscribers */

enum table { SUBSCRIBER, ACCESS, FACILITY, FORWARDING };

static unsigned rows(enum table t, uint64_t subscriber)
{
    return 1 + (unsigned)(mix64(subscriber * 4 + t) % ROWS_MAX);
}

/* The locks of a subscriber's rows of both tables are neighbours. `first_row` has the first of each subscriber, and the end. */
int tatp_prepare(struct txn_params *p)
{
    uint64_t next = p->scale;
    p->first_row = malloc((p->scale + 1) * sizeof *p->first_row);
    if (!p->first_row)
        return -ENOMEM;
    for (uint64_t i = 0; i < p->scale; i++) {
        p->first_row[i] = (uint32_t)next;
        next += rows(ACCESS, i) + rows(FACILITY, i);
    }
    p->first_row[p->scale] = (uint32_t)next;
    return 0;
}

static uint64_t forwardings(const struct txn_params *p)
{
    return p->scale * HASHED_PERCENT / 100;
}

uint64_t tatp_locks(const struct txn_params *p)
{
    return p->first_row[p->scale] + forwardings(p);
}

static uint64_t row(const struct txn_stream *s, enum table t, uint64_t subscriber, unsigned which)
{
    return s->params->first_row[subscriber] + (t == FACILITY ? rows(ACCESS, subscriber) : 0) + which;
}

static uint64_t forwarding(const struct txn_stream *s, uint64_t subscriber, unsigned facility, unsigned start)
{
    uint64_t hash = mix64((subscriber * ROWS_MAX + facility) * FORWARDINGS_MAX + start);
    return s->params->first_row[s->params->scale] + hash % forwardings(s->params);
}

/* Not uniform: the OR of two draws, as TATP has it. */
static uint64_t subscriber_of(struct txn_stream *s)
{
    return (rng_below(&s->random, UINT64_C(1) << 16) | rng_below(&s->random, s->params->scale)) % s->params->scale;
}

void tatp_next(struct txn_stream *s, struct txn *out)
{
    static const uint8_t shares[TATP_TYPES] = {35, 10, 35, 2, 14, 2, 2};
    uint64_t draw = rng_below(&s->random, 100), subscriber = subscriber_of(s);
    unsigned facilities = rows(FACILITY, subscriber), facility = (unsigned)rng_below(&s->random, facilities);
    while (draw >= shares[out->type])
        draw -= shares[out->type++];
    switch ((enum tatp_type)out->type) {
    case TATP_GS:
        txn_add(out, subscriber, PAWL_SHARED);
        break;
    case TATP_GD:
        txn_add(out, row(s, FACILITY, subscriber, facility), PAWL_SHARED);
        for (unsigned i = 0, n = (unsigned)rng_below(&s->random, FORWARDINGS_MAX + 1); i < n; i++)
            txn_add(out, forwarding(s, subscriber, facility, i), PAWL_SHARED);
        break;
    case TATP_GA: { /* of a row that may be missing */
        unsigned which = (unsigned)rng_below(&s->random, ROWS_MAX);
        if (which < rows(ACCESS, subscriber))
            txn_add(out, row(s, ACCESS, subscriber, which), PAWL_SHARED);
        break;
    }
    case TATP_US:
        txn_add(out, subscriber, PAWL_EXCLUSIVE);
        txn_add(out, row(s, FACILITY, subscriber, facility), PAWL_EXCLUSIVE);
        break;
    case TATP_UL:
        txn_add(out, subscriber, PAWL_EXCLUSIVE);
        break;
    case TATP_IF:
        txn_add(out, subscriber, PAWL_SHARED);
        for (unsigned i = 0; i < facilities; i++)
            txn_add(out, row(s, FACILITY, subscriber, i), PAWL_SHARED);
        txn_add(out, forwarding(s, subscriber, facility, (unsigned)rng_below(&s->random, FORWARDINGS_MAX)), PAWL_EXCLUSIVE);
        break;
    case TATP_DF:
        txn_add(out, subscriber, PAWL_SHARED);
        txn_add(out, forwarding(s, subscriber, facility, (unsigned)rng_below(&s->random, FORWARDINGS_MAX)), PAWL_EXCLUSIVE);
        break;
    case TATP_TYPES:
        break;
    }
}
