/* SPDX-License-Identifier: Apache-2.0 */
/* A one-sided spinlock that reads before it tries again: compare-and-swap, and while the lock is held only READs, which do not
 * queue up at the address as atomics do. (`cas` is the one that repeats its compare-and-swap, as the papers' does.) Clients on the
 * lock's own node go through the NIC like all others. No tokens, no readers, no recovery. */
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/owned.h"

#include <errno.h>

#define WATCH FIELD_MASK(32, 32)
#define LOOK_NS (1 * NS_PER_MS) /* at the latest: a waiter that gave up may have been the one that was woken */

static int spin_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    int rc = hold_publish(seat, h, RECORD_TRY_X); /* so that inspection shows the holder */
    while (!rc) {
        uint64_t old = 0;
        rc = owned_try(seat, addr, owned_name(seat, h), &old);
        if (rc > 0) {
            h->token = 0;
            return 0;
        }
        if (!rc && deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        uint64_t until = add_saturating(world_now(seat->world), LOOK_NS);
        if (!rc)
            rc = fab_wait(seat->ep, addr, WATCH, old & WATCH, min_u64(until, deadline));
        if (rc == -ETIMEDOUT && until < deadline)
            rc = 0;
        rc = seat_retry(seat, rc);
    }
    return rc;
}

static int spin_release(const struct seat *seat, const struct hold *h)
{
    int rc = owned_release(seat, h, owned_name(seat, h));
    if (!rc)
        fab_wake(seat->ep, space_lock_addr(seat->space, h->index), WATCH, 1);
    return rc;
}

const struct design design_spin = {
    .name = "spin",
    .summary = "one-sided spinlock that polls by READ",
    .kind = DESIGN_BASELINE,
    .features = DESIGN_EXCLUSIVE | DESIGN_TIMEOUT,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM,
    .tolerates = BASELINE_TOLERATES,
    .lock_size = sizeof(struct owned_lock),
    .acquire = spin_acquire,
    .release = spin_release,
    .holds = hold_is_named,
    .peek = owned_peek,
};
