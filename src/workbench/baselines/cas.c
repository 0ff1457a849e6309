/* SPDX-License-Identifier: Apache-2.0 */
/* The plain one-sided spinlock that the papers compare with: a word that is 0 or the holder, taken by compare-and-swap, tried again
 * until it succeeds (ShiftLock 2.3). `cas-backoff` pauses between tries, twice as long each time up to a bound (truncated
 * exponential backoff, as in SMART). No tokens, no readers, no recovery: as good as they are described and no better. */
#include "designs/core/steps.h"
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/owned.h"

#include <errno.h>

enum { BACKOFF_MIN_NS, BACKOFF_MAX_NS };

static const struct design_knob knobs[] = {
    [BACKOFF_MIN_NS] = {"backoff-min-ns", 1, 1 * NS_PER_S, 1 * NS_PER_US},   /* about half a round trip */
    [BACKOFF_MAX_NS] = {"backoff-max-ns", 1, 1 * NS_PER_S, 128 * NS_PER_US}, /* enough for some sixty to take turns */
    {0},
};

static int cas_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t old, pause = seat->space->knobs.value[BACKOFF_MIN_NS];
    bool first = true;
    int rc = hold_publish(seat, h, RECORD_TRY_X); /* so that inspection shows the holder */
    for (;;) {
        if (rc)
            return rc;
        rc = owned_try(seat, addr, owned_name(seat, h), &old);
        if (first)
            step_done(seat, STEP_ATOMIC);
        first = false;
        if (rc > 0) {
            h->token = 0;
            return 0;
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        if (deadline != DEADLINE_NEVER && world_now(seat->world) >= deadline)
            return -ETIMEDOUT;
        if (seat->space->design == &design_cas)
            continue;
        rc = owned_back_off(seat, &pause, seat->space->knobs.value[BACKOFF_MAX_NS], deadline);
    }
}

static int cas_release(const struct seat *seat, const struct hold *h)
{
    int rc = owned_release(seat, h, owned_name(seat, h));
    step_done(seat, STEP_ATOMIC);
    return rc;
}

#define CAS_COMMON                                                                                                                 \
    .kind = DESIGN_BASELINE, .features = DESIGN_EXCLUSIVE | DESIGN_TIMEOUT,                                                        \
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM | DESIGN_ON_NODE, .tolerates = BASELINE_TOLERATES,                                 \
    .lock_size = sizeof(struct owned_lock), .acquire = cas_acquire, .release = cas_release, .holds = hold_is_named,                \
    .peek = owned_peek

const struct design design_cas = {.name = "cas", .summary = "one-sided spinlock, tried again at once", CAS_COMMON};

const struct design design_cas_backoff = {
    .name = "cas-backoff", .summary = "one-sided spinlock with truncated exponential backoff", .knobs = knobs, CAS_COMMON};
