/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that are wrong on purpose, one mistake each. The suite shows that the oracle catches every one of them, so its silence
 * about the other designs means something.
 *
 * All but two share one body, an exclusive lock with lease and token that would be right without the mistake: {owner 24, token 40},
 * owner 0 if free. It is not offered to users. */
#include "workbench/baselines/baselines.h"

#include <errno.h>

#define OWNER_SHIFT 40
#define TOKEN_MASK FIELD_MAX(OWNER_SHIFT)
#define PAUSE_NS (20 * NS_PER_US)

enum mistake {
    NO_MISTAKE,
    NO_RECHECK,         /* after a wait takes the lock by a plain write, without looking again */
    UNLOCK_BY_NAME,     /* frees the lock without a check of the holder: after its lease has ended, another session's hold */
    TOKEN_REUSED,       /* every second grant repeats the token of the one before */
    EARLY_STEAL,        /* takes a lock from a session that it has not seen renewed for an eighth of a lease */
    UNKNOWN_IS_SUCCESS, /* takes an unknown outcome for a success */
    NO_INTENT,          /* has no hold records: the holds of a dead session are unknown */
};

static uint64_t owner_of(uint64_t w)
{
    return w >> OWNER_SHIFT;
}
static uint64_t name_of(const struct seat *seat, const struct hold *h)
{
    return (uint64_t)(seat->me->slot + 1) << 12 | h->record;
}

static int pause_until(const struct seat *seat, uint64_t deadline)
{
    uint64_t until = world_now(seat->world) + PAUSE_NS + world_random(seat->world) % PAUSE_NS;
    int rc = fab_wait_any(seat->ep, NULL, 0, min_u64(until, deadline));
    return rc == -ETIMEDOUT && until < deadline ? 0 : rc;
}

static bool makes(const struct seat *seat, enum mistake mistake)
{
    return seat->space->design->mistakes == mistake;
}

static uint64_t token_of(const struct seat *seat, uint64_t w)
{
    uint64_t token = w & TOKEN_MASK;
    return seat->space->token_base + (makes(seat, TOKEN_REUSED) ? token / 2 : token);
}

static int recover(const struct seat *seat, uint32_t dead, uint32_t epoch);

/* The lock is held: does the holder live? */
static int look_after(const struct seat *seat, uint64_t w)
{
    uint32_t slot = (uint32_t)(owner_of(w) >> 12) - 1;
    uint64_t lease;
    if (slot == seat->me->slot)
        return 0;
    int dead = seat_peer_dead(seat, slot, &lease);
    if (dead > 0 && lease_state(lease) == SLOT_LOST)
        return recover(seat, slot, lease_epoch(lease));
    const struct sighting *seen = &seat->me->seen[slot];
    if (!dead && makes(seat, EARLY_STEAL) && world_now(seat->world) - seen->first_seen_ns > seat->space->lease_ns / 8)
        return 1;
    return dead < 0 ? dead : 0;
}

/* 1: ours. */
static int take(const struct seat *seat, struct hold *h, uint64_t w)
{
    uint64_t old, next = name_of(seat, h) << OWNER_SHIFT | ((w & TOKEN_MASK) + 1);
    int rc = makes(seat, NO_INTENT) ? 0 : hold_publish(seat, h, RECORD_TRY_X);
    if (rc)
        return rc;
    fab_addr addr = space_lock_addr(seat->space, h->index);
    rc = fab_cas64(seat->ep, addr, w, next, &old);
    if (rc == -FAB_EUNKNOWN && makes(seat, UNKNOWN_IS_SUCCESS)) {
        rc = 0;
        old = w;
    } else if (rc == -FAB_EUNKNOWN) {
        do
            rc = fab_read64(seat->ep, addr, &old);
        while (rc == -FAB_EUNKNOWN && !seat_retry(seat, rc));
        if (!rc)
            old = old == next ? w : ~w;
    }
    if (rc || old != w)
        return rc;
    h->token = token_of(seat, next);
    h->mode = PAWL_EXCLUSIVE;
    return seat_lives(seat) ? 1 : -PAWL_ELOST;
}

static int acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    for (bool waited = false;; waited = true) {
        uint64_t w;
        int rc = fab_read64(seat->ep, addr, &w);
        if (!rc && (!owner_of(w) || (rc = look_after(seat, w)) > 0)) {
            if (makes(seat, NO_RECHECK) && waited) {
                uint64_t next = name_of(seat, h) << OWNER_SHIFT | ((w & TOKEN_MASK) + 1);
                hold_publish(seat, h, RECORD_TRY_X);
                rc = fab_write64(seat->ep, addr, next);
                h->token = token_of(seat, next);
                if (!rc)
                    return 0;
            } else {
                rc = take(seat, h, w);
            }
            if (rc > 0)
                return 0;
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        rc = pause_until(seat, deadline);
        if (rc)
            return rc;
    }
}

static int release(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    for (bool broke = false;;) {
        uint64_t w, old;
        int rc = fab_read64(seat->ep, addr, &w);
        if (!rc && owner_of(w) != name_of(seat, h) && !makes(seat, UNLOCK_BY_NAME) && !broke)
            return -PAWL_ENOTOWNER;
        bool gone = !rc && owner_of(w) != name_of(seat, h) && broke; /* an earlier try took effect */
        if (!rc && !gone)
            rc = fab_cas64(seat->ep, addr, w, w & TOKEN_MASK, &old);
        if (!rc && (gone || old == w)) {
            hold_close(seat, h);
            return 0;
        }
        broke |= rc == -FAB_EUNKNOWN;
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

struct cleanup {
    const struct seat *seat;
    uint32_t epoch;
};

static int recover_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    const struct cleanup *f = ctx;
    const struct seat *seat = f->seat;
    fab_addr addr = space_lock_addr(seat->space, record_index(word));
    for (;;) {
        uint64_t w, lease, old;
        int rc = fab_read64(seat->ep, addr, &w);
        if (!rc)
            rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, lease), &lease);
        if (rc)
            return rc;
        if (lease_state(lease) != SLOT_LOST || lease_epoch(lease) != f->epoch)
            return 1;
        if (owner_of(w) >> 12 != slot + 1)
            return 0;
        rc = fab_cas64(seat->ep, addr, w, w & TOKEN_MASK, &old);
        if (rc || old == w)
            return rc;
    }
}

static int recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    struct cleanup f = {.seat = seat, .epoch = epoch};
    int rc = seat_records(seat, dead, recover_record, &f);
    return rc > 0 ? 0 : rc;
}

static int busted_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    uint64_t w;
    int rc = fab_read64(seat->ep, space_lock_addr(seat->space, index), &w);
    if (!rc)
        *out = (struct lock_view){.mode = owner_of(w) ? PAWL_EXCLUSIVE : 0, .token = w & TOKEN_MASK};
    return rc;
}

#define BUSTED(id, text, says, mistake)                                                                                            \
    const struct design design_busted_##id = {.name = "busted-" text,                                                              \
                                              .summary = (says),                                                                   \
                                              .kind = DESIGN_BUSTED,                                                               \
                                              .features = DESIGN_EXCLUSIVE | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT,     \
                                              .substrates = DESIGN_ON_SIM,                                                         \
                                              .tolerates = FAULTS_ALL,                                                             \
                                              .mistakes = (mistake),                                                               \
                                              .lock_size = 16,                                                                     \
                                              .acquire = acquire,                                                                  \
                                              .release = release,                                                                  \
                                              .holds = hold_is_named,                                                              \
                                              .recover = recover,                                                                  \
                                              .peek = busted_peek}

BUSTED(control, "control", "the body of the busted designs without a mistake: the oracle must find nothing", NO_MISTAKE);
BUSTED(no_recheck, "no-recheck", "takes the lock after a wait without looking again", NO_RECHECK);
BUSTED(unlock_by_name, "unlock-by-name", "frees the lock, even if another session holds it", UNLOCK_BY_NAME);
BUSTED(token_reused, "token-reused", "every second grant repeats a token", TOKEN_REUSED);
BUSTED(early_steal, "early-steal", "takes locks from the living", EARLY_STEAL);
BUSTED(unknown_is_success, "unknown-is-success", "takes an unknown outcome for a success", UNKNOWN_IS_SUCCESS);
BUSTED(no_intent, "no-intent", "has no hold records", NO_INTENT);

/* ---- without a fence: flags of all in one lock, correct if stores became visible at once ---- */

#define FLAGS_MAX 64

struct flags_lock {
    uint64_t flags[FLAGS_MAX];
};

static fab_addr flag_addr(const struct seat *seat, uint64_t index, uint32_t slot)
{
    return space_lock_addr(seat->space, index) + slot % FLAGS_MAX * sizeof(uint64_t);
}

static bool alone(const struct seat *seat, uint64_t index)
{
    uint32_t slots = seat->space->slot_count < FLAGS_MAX ? seat->space->slot_count : FLAGS_MAX;
    for (uint32_t i = 0; i < slots; i++)
        if (i != seat->me->slot && fab_local_load64(seat->ep, flag_addr(seat, index, i)))
            return false;
    return true;
}

/* The flag is the session's, and its tasks share it: only one of them at a time tries. That part is right: what each of them wants
 * is in its private records before it looks at the others'. */
static bool other_task(const struct seat *seat, const struct hold *h)
{
    for (uint32_t i = 0; i < seat->space->record_count; i++) {
        uint64_t word = __atomic_load_n(&seat->me->shadow[i], __ATOMIC_ACQUIRE);
        if (i != h->record && record_state(word) == RECORD_TRY_X && record_index(word) == h->index)
            return true;
    }
    return false;
}

static int no_fence_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr mine = flag_addr(seat, h->index, seat->me->slot);
    for (;;) {
        int rc = hold_publish(seat, h, RECORD_TRY_X);
        if (rc)
            return rc;
        if (!other_task(seat, h)) {
            fab_local_store64(seat->ep, mine, 1);
            /* Here a fence is missing: the store may still be in the store buffer when the others' flags are read. */
            if (alone(seat, h->index)) {
                h->token = 0;
                return 0;
            }
            fab_local_store64(seat->ep, mine, 0);
            fab_local_fence(seat->ep); /* or it could undo another task's */
        }
        rc = hold_publish(seat, h, RECORD_WAIT);
        if (rc)
            return rc;
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        rc = pause_until(seat, deadline);
        if (rc)
            return rc;
    }
}

static int no_fence_release(const struct seat *seat, const struct hold *h)
{
    fab_local_store64(seat->ep, flag_addr(seat, h->index, seat->me->slot), 0);
    fab_local_fence(seat->ep);
    hold_close(seat, h);
    return 0;
}

static int no_fence_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct flags_lock lock;
    int rc = fab_read(seat->ep, space_lock_addr(seat->space, index), &lock, sizeof lock);
    if (rc)
        return rc;
    *out = (struct lock_view){.mode = 0};
    for (uint32_t i = 0; i < FLAGS_MAX; i++)
        if (lock.flags[i])
            out->mode = PAWL_EXCLUSIVE;
    return 0;
}

const struct design design_busted_no_fence = {
    .name = "busted-no-fence",
    .summary = "store then load without a fence between, on a machine with store buffers",
    .kind = DESIGN_BUSTED,
    .features = DESIGN_EXCLUSIVE | DESIGN_TIMEOUT,
    .substrates = DESIGN_ON_SIM,
    .lock_size = sizeof(struct flags_lock),
    .local = true,
    .acquire = no_fence_acquire,
    .release = no_fence_release,
    .holds = hold_is_named,
    .peek = no_fence_peek,
};

/* ---- local and remote atomics mixed, on a NIC whose atomics are not atomic with the CPU's ---- */

static uint64_t mixed_cas(const struct seat *seat, fab_addr addr, uint64_t expect, uint64_t desired)
{
    uint64_t old = ~expect;
    if (FAB_NODE(addr) == seat->ep->node)
        return fab_local_cas64(seat->ep, addr, expect, desired);
    return fab_cas64(seat->ep, addr, expect, desired, &old) ? ~expect : old;
}

static int mixed_cas_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    while (mixed_cas(seat, addr, 0, name_of(seat, h) << OWNER_SHIFT)) {
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        int rc = pause_until(seat, deadline);
        if (rc)
            return rc;
    }
    hold_publish(seat, h, RECORD_TRY_X);
    h->token = 0;
    return 0;
}

static int mixed_cas_release(const struct seat *seat, const struct hold *h)
{
    mixed_cas(seat, space_lock_addr(seat->space, h->index), name_of(seat, h) << OWNER_SHIFT, 0);
    hold_close(seat, h);
    return 0;
}

const struct design design_busted_mixed_cas = {
    .name = "busted-mixed-cas",
    .summary = "local clients by CPU, remote ones by NIC, on the same word",
    .kind = DESIGN_BUSTED,
    .features = DESIGN_EXCLUSIVE | DESIGN_TIMEOUT,
    .substrates = DESIGN_ON_SIM,
    .lock_size = 16,
    .acquire = mixed_cas_acquire,
    .release = mixed_cas_release,
    .holds = hold_is_named,
    .peek = busted_peek,
};
