/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/alock/turn.h"

#include <errno.h>

struct turn alock_turn_of(const struct seat *seat, const struct hold *h)
{
    struct turn t = {.seat = seat, .h = h, .lock = space_lock_addr(seat->space, h->index)};
    t.cohort = alock_cohort_of(t.lock, seat->ep->node);
    t.word = t.lock + offsetof(struct alock, cohort) + t.cohort * sizeof(uint64_t);
    t.desc = seat_desc_addr(seat, h->record);
    t.me = alock_who(seat->me->slot, h->record);
    return t;
}

int alock_load(const struct seat *seat, enum cohort c, fab_addr addr, uint64_t *value)
{
    if (c == COHORT_LOCAL) {
        *value = fab_local_load64(seat->ep, addr);
        return 0;
    }
    return seat_retry(seat, seat_read64(seat, addr, value));
}

int alock_cas(const struct seat *seat, enum cohort c, fab_addr addr, uint64_t expect, uint64_t desired, uint64_t *old)
{
    if (c == COHORT_REMOTE)
        return fab_cas64(seat->ep, addr, expect, desired, old);
    *old = fab_local_cas64(seat->ep, addr, expect, desired);
    return 0;
}

static bool own_memory(const struct turn *t)
{
    return FAB_NODE(t->desc) == t->seat->ep->node;
}

int alock_own_load(const struct turn *t, size_t offset, uint64_t *value)
{
    return alock_load(t->seat, own_memory(t) ? COHORT_LOCAL : COHORT_REMOTE, t->desc + offset, value);
}

/* At a memory node it takes effect before whatever verb of the session comes next. */
void alock_own_store(const struct turn *t, size_t offset, uint64_t value)
{
    fab_local_store64(t->seat->ep, t->desc + offset, value);
}

uint64_t alock_noted(const struct turn *t, size_t offset)
{
    fab_addr at = t->desc + offset;
    return own_memory(t) ? fab_local_load64(t->seat->ep, at) : fab_own_load64(t->seat->ep, at);
}

void alock_note(const struct turn *t, size_t offset, uint64_t value)
{
    if (own_memory(t))
        alock_own_store(t, offset, value);
    else
        fab_private_store64(t->seat->ep, t->desc + offset, value);
}

void alock_set_token(struct turn *t, const uint64_t sum[3])
{
    t->count = sum[0];
    t->token = t->seat->space->token_base + sum[0] + sum[1] + sum[2] + 1;
}

/* For a local session that has the lock. */
void alock_read_token(struct turn *t)
{
    uint64_t sum[3];
    for (unsigned i = 0; i < countof(sum); i++)
        sum[i] = fab_local_load64(t->seat->ep, t->lock + offsetof(struct alock, token) + i * sizeof *sum);
    alock_set_token(t, sum);
}

int alock_confirm_place(const struct turn *t)
{
    uint64_t says;
    int rc = t->h->place ? alock_load(t->seat, t->cohort, t->h->place, &says) : 0;
    return rc || !t->h->place ? rc : says == t->h->place_says ? 0 : -ESTALE;
}
