/* SPDX-License-Identifier: Apache-2.0 */
/* The plain one-sided spinlock that the papers compare with: a word that is 0 or the holder, taken by compare-and-swap, tried again
 * until it succeeds (ShiftLock 2.3). `cas-backoff` pauses between tries, twice as long each time up to a bound (truncated
 * exponential backoff, as in SMART). ShiftLock prints no more; its artifact (cas.rs) moves the bound as SMART does, which is
 * `moving-max`. No tokens, no readers, no recovery: as good as they are described and no better. */
#include "designs/core/steps.h"
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/owned.h"

#include <errno.h>

enum { BACKOFF_MIN_NS, BACKOFF_MAX_NS, MOVING_MAX };

static const struct design_knob knobs[] = {
    [BACKOFF_MIN_NS] = {"backoff-min-ns", 1, 1 * NS_PER_S, 1 * NS_PER_US},   /* about half a round trip */
    [BACKOFF_MAX_NS] = {"backoff-max-ns", 1, 1 * NS_PER_S, 128 * NS_PER_US}, /* enough for some sixty to take turns */
    [MOVING_MAX] = {"moving-max", 0, 1, 0}, /* a session's bound lies between the shortest pause and backoff-max-ns */
    {0},
};

/* SMART's bound (ASPLOS'24, 4.3) as ShiftLock's artifact has it (cas.rs, client.rs): a session looks at the clock every 64
 * acquisitions. If a millisecond has passed, the bound doubles where more than half of its tries were retries, and halves where
 * fewer than a tenth were. */
#define LOOK_EVERY 64
#define MOVE_NS (1 * NS_PER_MS)

/* Threads that share a session share its bound; an update that is lost among them does no harm. */
struct cas_session {
    uint64_t most_ns; /* 0: the shortest pause */
    uint64_t moved_ns;
    uint64_t retries, acquisitions; /* since then */
};

static uint64_t get(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void set(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static uint64_t bound_of(const struct seat *seat)
{
    const uint32_t *knob = seat->space->knobs.value;
    const struct cas_session *s = seat->me->design_state;
    return knob[MOVING_MAX] ? max_u64(get(&s->most_ns), knob[BACKOFF_MIN_NS]) : knob[BACKOFF_MAX_NS];
}

static void move_bound(const struct seat *seat, uint64_t retries)
{
    const uint32_t *knob = seat->space->knobs.value;
    struct cas_session *s = seat->me->design_state;
    uint64_t tries, now, most_ns = bound_of(seat);
    if (!knob[MOVING_MAX])
        return;
    set(&s->retries, get(&s->retries) + retries);
    set(&s->acquisitions, get(&s->acquisitions) + 1);
    if (get(&s->acquisitions) % LOOK_EVERY)
        return;
    now = world_now(seat->world);
    if (now - get(&s->moved_ns) < MOVE_NS)
        return;
    tries = get(&s->retries) + get(&s->acquisitions);
    if (get(&s->retries) * 2 > tries)
        most_ns = min_u64(2 * most_ns, knob[BACKOFF_MAX_NS]);
    else if (get(&s->retries) * 10 < tries)
        most_ns = max_u64(most_ns / 2, knob[BACKOFF_MIN_NS]);
    set(&s->most_ns, most_ns);
    set(&s->moved_ns, now);
    set(&s->retries, 0);
    set(&s->acquisitions, 0);
}

/* The artifact's pause: bounded, and up to one of the shortest more. */
static int pause_smart(const struct seat *seat, uint64_t *pause_ns, uint64_t deadline)
{
    uint64_t least_ns = seat->space->knobs.value[BACKOFF_MIN_NS];
    uint64_t until = world_now(seat->world) + min_u64(*pause_ns, bound_of(seat)) + world_random(seat->world) % least_ns;
    int rc = fab_wait_any(seat->ep, NULL, 0, min_u64(until, deadline));
    *pause_ns = min_u64(2 * *pause_ns, seat->space->knobs.value[BACKOFF_MAX_NS]);
    return rc == -ETIMEDOUT ? 0 : rc;
}

static int back_off(const struct seat *seat, uint64_t *pause_ns, uint64_t deadline)
{
    return seat->space->knobs.value[MOVING_MAX]
               ? pause_smart(seat, pause_ns, deadline)
               : owned_back_off(seat, pause_ns, seat->space->knobs.value[BACKOFF_MAX_NS], deadline);
}

static int cas_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    uint64_t old, pause = seat->space->knobs.value[BACKOFF_MIN_NS], tries = 0;
    int rc = hold_publish(seat, h, RECORD_TRY_X); /* so that inspection shows the holder */
    for (;;) {
        if (rc)
            return rc;
        rc = owned_try(seat, addr, owned_name(seat, h), &old);
        if (!tries++)
            step_done(seat, STEP_ATOMIC);
        if (rc > 0) {
            move_bound(seat, tries - 1);
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
        rc = back_off(seat, &pause, deadline);
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
    .lock_size = sizeof(struct owned_lock), .session_bytes = sizeof(struct cas_session), .acquire = cas_acquire,                   \
    .release = cas_release, .holds = hold_is_named, .peek = owned_peek

const struct design design_cas = {.name = "cas", .summary = "one-sided spinlock, tried again at once", CAS_COMMON};

const struct design design_cas_backoff = {
    .name = "cas-backoff", .summary = "one-sided spinlock with truncated exponential backoff", .knobs = knobs, CAS_COMMON};
