/* SPDX-License-Identifier: Apache-2.0 */
/* DrTM's lock (Wei et al., SOSP'15), as ShiftLock (4.1) compares with: one word, moved by compare-and-swap, that is free, or names
 * the writer, or says until when readers may read. A reader that finds a lease which still runs shares it without changing
 * anything; if it has run out the reader begins another. Readers do not release: their hold ends when the lease does, whether or
 * not they are done (`ends`), and a release after that returns -PAWL_ENOTOWNER. A writer waits for the end of the lease.
 *
 * Assumes synchronised clocks: those of any two hosts differ by CLOCKS_NS at most (ShiftLock 4.1: PTP, 50 us). Readers leave that
 * much before the end and writers enter that much after it, which is what the original pays for its clocks. Clocks that drift
 * without correction are not tolerated. A lease is not extended while it runs, so readers cannot keep a writer out for ever; there
 * is no other fairness. No recovery: a writer that dies keeps the lock. */
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/owned.h"

#include <errno.h>

#define CLOCKS_NS (50 * NS_PER_US)
/* ShiftLock's artifact (drtm.rs) has leases of 1 ms, of which 500 us are left for the work of a client that shares one, and repeats
 * its compare-and-swap without a pause: read-us=1000,use-us=500,spin=1. */
enum { READ_US, USE_US, SPIN };

static const struct design_knob knobs[] = {
    [READ_US] = {"read-us", 4 * CLOCKS_NS / NS_PER_US, 10000, 400}, /* several times what the clocks cost */
    [USE_US] = {"use-us", 1, 10000, 20}, /* a lease that has less left is not shared; at most half of it */
    [SPIN] = {"spin", 0, 1, 0},
    {0},
};

#define WRITER (UINT64_C(1) << 63)
#define PAUSE_MIN_NS (2 * NS_PER_US)
#define PAUSE_MAX_NS (64 * NS_PER_US)

struct drtm_lock {
    uint64_t word; /* 0: free; WRITER and its name; else the time at which the readers' lease ends */
    uint64_t unused;
};

static uint64_t name_of(const struct seat *seat, const struct hold *h)
{
    return WRITER | owned_name(seat, h);
}

/* The lease has ended by the clock of every host. True of a free lock, too. */
static bool is_over(uint64_t word, uint64_t now)
{
    return !(word & WRITER) && now > add_saturating(word, CLOCKS_NS);
}

/* Whether enough of the lease is left for another reader. */
static bool is_shareable(const struct seat *seat, uint64_t word, uint64_t now)
{
    const uint32_t *knob = seat->space->knobs.value;
    return !(word & WRITER) && now + min_u64(knob[USE_US], knob[READ_US] / 2) * NS_PER_US + CLOCKS_NS < word;
}

/* A compare-and-swap. If the connection breaks, reads the word to learn the outcome. *word is the word's value now, and the caller
 * compares it with the value that it wanted: each name is unique, and leases with the same end are equally good. */
static int move(const struct seat *seat, fab_addr addr, uint64_t expect, uint64_t desired, uint64_t *word)
{
    int rc = fab_cas64(seat->ep, addr, expect, desired, word);
    if (!rc && *word == expect)
        *word = desired;
    while (rc == -FAB_EUNKNOWN && !(rc = seat_retry(seat, rc)))
        rc = fab_read64(seat->ep, addr, word);
    return rc;
}

/* Waits until the readers' lease is over. For a writer, waits for a pause that doubles each time. */
static int wait_turn(const struct seat *seat, uint64_t word, uint64_t *pause_ns, uint64_t deadline)
{
    uint64_t now = world_now(seat->world), until;
    if (word & WRITER) {
        until = now + *pause_ns / 2 + world_random(seat->world) % *pause_ns;
        *pause_ns = min_u64(2 * *pause_ns, PAUSE_MAX_NS);
    } else {
        until = max_u64(word + CLOCKS_NS + 1, now);
    }
    if (deadline == DEADLINE_TRY)
        return -PAWL_EHELD;
    int rc = fab_wait_any(seat->ep, NULL, 0, min_u64(until, deadline));
    return rc == -ETIMEDOUT && until <= deadline ? 0 : rc;
}

static int drtm_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    bool shared = h->mode == PAWL_SHARED;
    const uint32_t *knob = seat->space->knobs.value;
    uint64_t word = 0, pause_ns = PAUSE_MIN_NS;
    bool tried = false;
    int rc = hold_publish(seat, h, record_named(h->mode)); /* so that inspection shows the holder */
    while (!rc) {                                          /* begins as if the lock were free */
        uint64_t now = world_now(seat->world);
        if (shared ? is_shareable(seat, word, now) : word == name_of(seat, h)) {
            h->token = shared ? word : 0; /* not a fencing token: the end of the lease */
            return 0;
        }
        bool spin =
            tried && knob[SPIN] && deadline == DEADLINE_NEVER; /* looks by a compare-and-swap that takes a lock that is free */
        if (is_over(word, now) || spin) {
            rc =
                move(seat, addr, is_over(word, now) ? word : 0, shared ? now + knob[READ_US] * NS_PER_US : name_of(seat, h), &word);
            tried = true;
            continue;
        }
        rc = wait_turn(seat, word, &pause_ns, deadline);
        if (!rc && (shared || word & WRITER)) /* a lease that keeps a writer out stays as it is until it is over */
            rc = seat_retry(seat, fab_read64(seat->ep, addr, &word));
    }
    return rc;
}

/* A reader leaves, by its own clock, before the lease is over by any host's clock. */
static uint64_t drtm_ends(const struct hold *h)
{
    return h->mode == PAWL_SHARED ? h->token - CLOCKS_NS : DEADLINE_NEVER;
}

static int reader_leave(const struct seat *seat, const struct hold *h)
{
    bool in_time = world_now(seat->world) < drtm_ends(h);
    int rc = hold_change(seat, h, RECORD_HELD_S, RECORD_WAIT);
    if (rc)
        return rc;
    hold_close(seat, h);
    return in_time ? 0 : -PAWL_ENOTOWNER;
}

static int drtm_release(const struct seat *seat, const struct hold *h)
{
    return h->mode == PAWL_SHARED ? reader_leave(seat, h) : owned_release(seat, h, name_of(seat, h));
}

static bool drtm_holds(const struct seat *seat, const struct hold *h)
{
    return hold_is_named(seat, h) && world_now(seat->world) < drtm_ends(h);
}

static int drtm_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    uint64_t word;
    int rc = fab_read64(seat->ep, space_lock_addr(seat->space, index), &word);
    if (rc)
        return rc;
    *out = (struct lock_view){0};
    if (word & WRITER)
        *out = (struct lock_view){.mode = PAWL_EXCLUSIVE, .owner = owned_slot(word)};
    else if (!is_over(word, world_now(seat->world)))
        *out = (struct lock_view){.mode = PAWL_SHARED, .readers = 1}; /* or more: readers are not counted */
    return 0;
}

const struct design design_drtm = {
    .name = "drtm",
    .knobs = knobs,
    .summary = "DrTM: writers by compare-and-swap, readers by leases",
    .kind = DESIGN_BASELINE,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TIMEOUT,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_NODE,
    .tolerates = BASELINE_TOLERATES & ~FAULT_BIT(FAULT_DRIFT),
    .lock_size = sizeof(struct drtm_lock),
    .clocks_ns = CLOCKS_NS,
    .acquire = drtm_acquire,
    .release = drtm_release,
    .ends = drtm_ends,
    .holds = drtm_holds,
    .peek = drtm_peek,
};
