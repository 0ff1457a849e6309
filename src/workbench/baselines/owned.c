/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/baselines/owned.h"
#include "workbench/baselines/baselines.h"

int owned_back_off(const struct seat *seat, uint64_t *pause_ns, uint64_t most_ns, uint64_t deadline)
{
    uint64_t until = world_now(seat->world) + *pause_ns / 2 + world_random(seat->world) % *pause_ns;
    int rc = fab_wait_any(seat->ep, NULL, 0, min_u64(until, deadline));
    *pause_ns = min_u64(2 * *pause_ns, most_ns);
    return rc == -ETIMEDOUT ? 0 : rc; /* the pause is over; the caller looks at the deadline */
}

int owned_try(const struct seat *seat, fab_addr addr, uint64_t name, uint64_t *old)
{
    int rc = fab_cas64(seat->ep, addr, 0, name, old);
    while (rc == -FAB_EUNKNOWN && !(rc = seat_retry(seat, rc))) {
        rc = fab_read64(seat->ep, addr, old);
        if (!rc)
            return *old == name;
    }
    return rc ? rc : *old == 0;
}

int owned_release(const struct seat *seat, const struct hold *h, uint64_t name)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t old;
    if (!hold_is(seat, h, RECORD_TRY_X))
        return -PAWL_ENOTOWNER;
    for (bool broke = false;; broke = true) {
        int rc = fab_cas64(seat->ep, addr, name, 0, &old);
        if (!rc && old != name && !broke)
            return -PAWL_ENOTOWNER;
        if (!rc) { /* if the connection broke before, an earlier try took effect */
            hold_close(seat, h);
            return 0;
        }
        rc = seat_retry(seat, rc);
        if (rc)
            return rc;
    }
}

int owned_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    uint64_t owner;
    int rc = fab_read64(seat->ep, space_lock_addr(seat->space, index), &owner);
    if (!rc)
        *out = (struct lock_view){.mode = owner ? PAWL_EXCLUSIVE : 0, .owner = owner ? owned_slot(owner) : 0};
    return rc;
}
