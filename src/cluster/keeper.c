/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/keeper.h"

#include <string.h>

#define RENEWALS_PER_LEASE 3 /* two may fail */
#define TEND_EVERY 4         /* rounds */

uint64_t care_silent_until(uint64_t now, uint64_t lease_ns)
{
    return add_saturating(now, lease_ns + 2 * (lease_ns / SEAT_DRIFT_DIVISOR) + 1);
}

int care_format(struct care *c, const struct layout_params *p)
{
    *c = (struct care){0};
    return layout_make(p, &c->header);
}

int care_begin(struct care *c, struct fab_ep *ep, fab_addr base, struct sighting *seen)
{
    layout_space(&c->header, base, &c->space);
    c->none = (struct session){.slot = UINT32_MAX, .seen = seen};
    c->none.lease = &c->none.lease_copy;
    c->seat = (struct seat){.space = &c->space, .me = &c->none, .ep = ep, .world = ep->world};
    memset(seen, 0, c->space.slot_count * sizeof *seen);
    int rc = 0;
    for (uint64_t i = 0; i < c->space.lock_count && !rc && c->space.design->format; i++)
        rc = c->space.design->format(&c->seat, i);
    return rc;
}

void keeper_init(struct keeper *k, const struct seat *seat, uint64_t round_ns)
{
    *k = (struct keeper){.seat = seat,
                         .pause_ns = min_u64(seat->me->lease_ns / RENEWALS_PER_LEASE, round_ns),
                         .tend_every = TEND_EVERY,
                         .tend_slots = SESSION_TEND_AT_ONCE,
                         .tend_next = SESSION_TEND_AT_ONCE * seat->me->slot}; /* not all begin at the same slot */
}

int keeper_step(struct keeper *k)
{
    int rc = seat_renew(k->seat);
    if (rc || ++k->rounds % k->tend_every)
        return rc;
    return k->tend_slots ? session_tend_some(k->seat, &k->tend_next) : session_tend(k->seat);
}
