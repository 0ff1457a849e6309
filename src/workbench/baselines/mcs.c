/* SPDX-License-Identifier: Apache-2.0 */
/* The MCS lock over a fabric, as ShiftLock (Algorithm 1) and ALock (6) compare with: a client swaps its descriptor into the tail,
 * links it to the predecessor's, and waits for a word in its own memory; the release writes that word of the successor. Clients on
 * the lock's own node go through the NIC like all others.
 *
 * It has the limits of the original. A client in the queue cannot leave, so there is no time-out. A swap whose outcome is unknown
 * cannot be repaired, because no other client knows the predecessor. A client that dies stops the queue. */
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/queue.h"

struct mcs_lock {
    uint64_t tail; /* descriptor of the last in the queue; 0: free */
    uint64_t unused;
};

/* Algorithm 1 looks whether there is a successor before it touches the lock; cas-first 1: the lock first. ALock's artifact does
 * that, and has no swap: swap-loop 1. In ShiftLock's artifact (mcs.rs) a holder knows its successor only if the link came while it
 * was still waiting itself, and turns to the lock otherwise: early-next 1. */
enum { CAS_FIRST, SWAP_LOOP, EARLY_NEXT };

static const struct design_knob knobs[] = {
    [CAS_FIRST] = {"cas-first", 0, 1, 0}, [SWAP_LOOP] = {"swap-loop", 0, 1, 0}, [EARLY_NEXT] = {"early-next", 0, 1, 0}, {0}};

static int mcs_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index), desc = seat_desc_addr(seat, h->record);
    uint64_t go = 0, next = 0;
    enum queue_join how = deadline == DEADLINE_TRY ? QUEUE_ONCE : seat->space->knobs.value[SWAP_LOOP] ? QUEUE_LOOP : QUEUE_SWAP;
    int rc = hold_publish(seat, h, RECORD_TRY_X); /* so that inspection shows the holder */
    if (!rc)
        rc = queue_join(seat, addr, desc, how, &go);
    if (!rc && go && seat->space->knobs.value[EARLY_NEXT])
        rc = queue_next(seat, desc, &next);
    h->token = next; /* not a fencing token: for the release */
    return rc;
}

static int mcs_release(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = space_lock_addr(seat->space, h->index), desc = seat_desc_addr(seat, h->record);
    const uint32_t *knob = seat->space->knobs.value;
    uint64_t next = h->token;
    int rc = hold_change(seat, h, RECORD_TRY_X, RECORD_WAIT); /* of two tasks that release the same hold only one does */
    if (!rc && !knob[CAS_FIRST] && !knob[EARLY_NEXT])
        rc = queue_next(seat, desc, &next);
    if (!rc && !next)
        rc = queue_end(seat, addr, desc, &next);
    if (!rc && next)
        rc = queue_go(seat, next, 1);
    if (!rc)
        hold_close(seat, h);
    return rc;
}

static int mcs_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    uint64_t tail;
    int rc = fab_read64(seat->ep, space_lock_addr(seat->space, index), &tail);
    if (!rc)
        *out = (struct lock_view){.mode = tail ? PAWL_EXCLUSIVE : 0, .owner = LOCK_OWNER_UNKNOWN};
    return rc;
}

const struct design design_mcs = {
    .name = "mcs",
    .knobs = knobs,
    .summary = "the MCS queue lock by one-sided verbs",
    .kind = DESIGN_BASELINE,
    .features = DESIGN_EXCLUSIVE,
    .substrates = DESIGN_ON_SIM,
    .tolerates = BASELINE_TOLERATES_KNOWN,
    .lock_size = sizeof(struct mcs_lock),
    .desc_size = sizeof(struct queue_desc),
    .acquire = mcs_acquire,
    .release = mcs_release,
    .holds = hold_is_named,
    .peek = mcs_peek,
};
