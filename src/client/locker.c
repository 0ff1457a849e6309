/* SPDX-License-Identifier: Apache-2.0 */
#include "client/locker.h"
#include "designs/core/value.h"
#include "designs/packet/gather.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Each try means that the lock was forgotten, to make room, between finding and acquiring it. */
#define FIND_TRIES_MAX 1000

#define SLICE_CHECKS 40 /* ten leases, or four seconds on shared memory: long for a wait, short for a deadlock */

/* Whether the design offers what this call needs. */
static int supported(const struct design *d, enum pawl_mode mode, uint64_t deadline)
{
    if (mode != PAWL_SHARED && mode != PAWL_EXCLUSIVE)
        return -EINVAL;
    if (mode == PAWL_SHARED && !(d->features & DESIGN_SHARED))
        return -PAWL_ENOTSUP;
    if (deadline != DEADLINE_TRY && deadline != DEADLINE_NEVER && !(d->features & DESIGN_TIMEOUT))
        return -PAWL_ENOTSUP;
    return 0;
}

/* Declared lost, as far as this process knows. */
static bool session_lost(const struct seat *seat)
{
    uint64_t lease = __atomic_load_n(seat->me->lease, __ATOMIC_ACQUIRE);
    return lease_state(lease) != SLOT_LIVE || lease_epoch(lease) != seat->me->epoch ||
           __atomic_load_n(&seat->me->ended, __ATOMIC_ACQUIRE);
}

/* The code for the caller when a hold could not be ended. */
static int ended(const struct seat *seat, int rc)
{
    return rc == -PAWL_ENOTOWNER && (session_lost(seat) || !seat_lives(seat)) ? -PAWL_ELOST : rc;
}

/* Whether a record is a hold in the way of another one of its session in that mode. */
static bool in_the_way(const struct locker *l, uint32_t record, uint64_t index, enum pawl_mode mode)
{
    uint64_t word = __atomic_load_n(&l->seat.me->shadow[record], __ATOMIC_ACQUIRE);
    enum record_state state = record_state(word);
    bool shared = state == RECORD_HELD_S || state == RECORD_TRY_S, exclusive = state == RECORD_HELD_X || state == RECORD_TRY_X;
    return record_index(word) == index && (exclusive || (shared && mode == PAWL_EXCLUSIVE));
}

/* With ranges only holds that overlap [start, end) are in the way. No other thread may change them meanwhile. */
static bool overlaps(const struct locker *l, uint32_t record, uint64_t start, uint64_t end)
{
    const struct record_range *r = l->seat.me->ranges ? &l->seat.me->ranges[record] : NULL;
    return !r || ranges_overlap(start, end, r->start, r->end);
}

/* Whether a call that may wait would wait for a hold of its own session, which no other thread releases: 0 or -EDEADLK. `but` is a
 * record that does not count. No verb is needed: a session knows its own records. */
static int waits_for_itself(const struct locker *l, uint32_t but, uint64_t index, uint64_t start, uint64_t end, enum pawl_mode mode)
{
    uint32_t used = __atomic_load_n(&l->seat.me->records_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; l->alone && i < used; i++)
        if (i != but && in_the_way(l, i, index, mode) && l->alone(l) && overlaps(l, i, start, end))
            return explain(-EDEADLK, "this session holds the lock already, and its only thread would wait for itself");
    return 0;
}

/* The same of a place of a semaphore: all of them are this session's. The lock tells by which limit they are held. */
ONCE static int waits_for_own_place(const struct locker *l, uint64_t index, uint32_t limit)
{
    uint32_t used = __atomic_load_n(&l->seat.me->records_used, __ATOMIC_ACQUIRE), places = 0;
    struct lock_view view;
    for (uint32_t i = 0; l->alone && i < used; i++)
        places += in_the_way(l, i, index, PAWL_EXCLUSIVE);
    if (places < limit || !l->alone || !l->alone(l) || l->seat.space->design->peek(&l->seat, index, &view) || view.limit != limit)
        return 0;
    return explain(-EDEADLK, "this session has all %u places of the semaphore, and its only thread would wait for itself", limit);
}

enum { MOVED = 1, LOOK_AGAIN }; /* the place belongs to another key; it may */

/* Until when to wait at a place. Between our finding the place and our joining the queue there, the key's lock may have been
 * forgotten and the place given to another key: then we wait for a lock that we do not want, and its holder may wait for us. So a
 * waiter that has waited for long looks for its key again. */
static uint64_t slice_of(const struct locker *l, uint64_t deadline)
{
    const struct space *s = l->seat.space;
    if (l->table.keys == PAWL_KEYS_DENSE || !(s->design->features & DESIGN_TIMEOUT) || deadline == DEADLINE_TRY)
        return deadline;
    return min_u64(deadline, add_saturating(world_now(l->seat.world), SLICE_CHECKS * s->check_ns));
}

static bool has_ranges(const struct locker *l)
{
    return l->seat.space->design->features & DESIGN_RANGES;
}

static int check_range(uint64_t start, uint64_t end)
{
    return start >= end ? -EINVAL : end > RANGE_UNITS_MAX ? -EOVERFLOW : 0;
}

/* Mode and range that are asked for. */
struct claim {
    enum pawl_mode mode;
    uint64_t start, end;
    uint32_t limit;
    bool exact;
};

/* Acquires the lock at a place with a record of its own. 0: and the place is still the key's; positive: look for the key again. */
HANDOVER static int acquire_at(const struct locker *l, const struct cell *place, struct claim claim, uint64_t deadline,
                               struct hold *h)
{
    const struct seat *seat = &l->seat;
    int rc = hold_open(seat, place->index, h);
    if (unlikely(rc))
        return rc;
    assert(h->index < seat->space->lock_count && h->record < seat->space->record_count);
    h->mode = claim.mode;
    h->start = claim.start;
    h->end = claim.end;
    h->limit = claim.limit;
    h->exact = claim.exact;
    if (l->table.keys != PAWL_KEYS_DENSE) {
        h->place = table_meta_addr(&l->table, place);
        h->place_says = place->meta;
    }
    uint64_t slice = slice_of(l, deadline);
    rc = seat->space->design->acquire(seat, h, slice);
    if (unlikely(rc)) {
        if (rc != -PAWL_ELOST)
            hold_close(seat, h);
        return rc != -ETIMEDOUT || slice == deadline ? rc : LOOK_AGAIN;
    }
    rc = table_confirm(seat, &l->table, place);
    if (rc > 0) /* that took a round trip, so the lease may have ended (I1) */
        return fab_is_shm(seat->ep) || seat_lives(seat) ? 0 : -PAWL_ELOST;
    int end = seat->space->design->release(seat, h);
    return rc ? rc : end ? end : MOVED;
}

HANDOVER static int lock_claim(const struct locker *l, pawl_key key, struct claim claim, uint64_t deadline, struct hold *out)
{
    const struct seat *seat = &l->seat;
    int rc = supported(seat->space->design, claim.mode, deadline);
    if (!rc)
        rc = table_check_key(&l->table, key);
    if (!rc && session_lost(seat))
        rc = -PAWL_ELOST;
    for (int i = 0; i < FIND_TRIES_MAX && !rc;) {
        struct cell place = {0, 0};
        struct hold h;
        rc = table_find_or_insert(seat, &l->table, key, &place);
        if (!rc && deadline != DEADLINE_TRY)
            rc = waits_for_itself(l, UINT32_MAX, place.index, claim.start, claim.end, claim.mode);
        if (!rc && deadline != DEADLINE_TRY && claim.limit)
            rc = waits_for_own_place(l, place.index, claim.limit);
        if (!rc)
            rc = acquire_at(l, &place, claim, deadline, &h);
        if (!rc) {
            *out = h;
            return 0;
        }
        i += rc == MOVED; /* a wait may look again as often as it is long */
        /* Finding the key may itself have taken locks, which fail in the same ways. */
        rc = rc > 0 ? 0 : ended(seat, seat_retry(seat, rc));
        if (rc == -EAGAIN && fab_is_shm(seat->ep) && deadline != DEADLINE_TRY)
            rc = world_now(seat->world) < deadline ? 0 : -ETIMEDOUT; /* the table was busy for seconds: a process is stopped */
    }
    return rc ? rc : -EAGAIN;
}

HANDOVER int locker_lock(const struct locker *l, pawl_key key, enum pawl_mode mode, uint64_t deadline, struct hold *out)
{
    return lock_claim(l, key, (struct claim){.mode = mode, .start = 0, .end = RANGE_UNITS_MAX}, deadline, out);
}

int locker_semaphore(const struct locker *l, pawl_key key, uint32_t limit, uint64_t deadline, struct hold *out)
{
    assert(limit && limit <= PAWL_SEMAPHORE_MAX);
    if (!(l->seat.space->design->features & DESIGN_SEMAPHORE))
        return -PAWL_ENOTSUP;
    return lock_claim(l, key, (struct claim){.mode = PAWL_SHARED, .start = 0, .end = RANGE_UNITS_MAX, .limit = limit}, deadline,
                      out);
}

int locker_lock_range(const struct locker *l, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                      struct hold *out)
{
    int rc = has_ranges(l) ? check_range(start, end) : -PAWL_ENOTSUP;
    return rc ? rc : lock_claim(l, key, (struct claim){.mode = mode, .start = start, .end = end}, deadline, out);
}

/* Whether a grant that the application passes could be one of ours. One of a range must have the very range that the session's
 * records have: a caller that gives back more units than it holds, or others, must not free those of another. */
static bool plausible(const struct locker *l, const struct hold *h)
{
    return likely(h->index < l->seat.space->lock_count && h->record < l->seat.space->record_count &&
                  (h->mode == PAWL_SHARED || h->mode == PAWL_EXCLUSIVE) && (!has_ranges(l) || hold_has_range(&l->seat, h)));
}

int locker_unlock(const struct locker *l, const struct hold *h)
{
    const struct seat *seat = &l->seat;
    if (unlikely(!plausible(l, h)))
        return -PAWL_ENOTOWNER;
    int rc = seat->space->design->release(seat, h);
    return likely(!rc) ? 0 : ended(seat, rc);
}

int locker_convert(const struct locker *l, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    const struct design *d = l->seat.space->design;
    int rc = supported(d, mode, deadline);
    if (rc)
        return rc;
    if (!d->convert)
        return -PAWL_ENOTSUP;
    if (!plausible(l, h) || !d->holds(&l->seat, h))
        return ended(&l->seat, -PAWL_ENOTOWNER);
    if (deadline != DEADLINE_TRY && mode == PAWL_EXCLUSIVE)
        rc = waits_for_itself(l, h->record, h->index, h->start, h->end, mode);
    if (!rc)
        rc = d->convert(&l->seat, h, mode, deadline);
    if (!rc && !seat_lives(&l->seat)) /* the verbs may have taken long (I1) */
        rc = -PAWL_ELOST;
    return ended(&l->seat, rc);
}

/* For reshape and split: the grant is a hold of this session. */
static int check_held(const struct locker *l, const struct hold *h)
{
    if (session_lost(&l->seat))
        return -PAWL_ELOST;
    return plausible(l, h) && l->seat.space->design->holds(&l->seat, h) ? 0 : ended(&l->seat, -PAWL_ENOTOWNER);
}

ONCE int locker_reshape(const struct locker *l, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    const struct design *d = l->seat.space->design;
    if (!d->reshape)
        return -PAWL_ENOTSUP;
    int rc = supported(d, h->mode, deadline);
    if (!rc)
        rc = check_range(start, end);
    if (!rc)
        rc = check_held(l, h);
    if (rc)
        return rc;
    bool larger = start <= h->start && end >= h->end, smaller = start >= h->start && end <= h->end;
    if (!larger && !smaller)
        return -EINVAL;
    if (!larger || !smaller)
        rc = d->reshape(&l->seat, h, start, end, deadline);
    if (!rc && !seat_lives(&l->seat))
        rc = -PAWL_ELOST;
    return ended(&l->seat, rc);
}

ONCE int locker_split(const struct locker *l, struct hold *h, uint64_t at, struct hold *right)
{
    const struct seat *seat = &l->seat;
    struct hold r;
    if (!seat->space->design->split)
        return -PAWL_ENOTSUP;
    int rc = check_held(l, h);
    if (!rc && (at <= h->start || at >= h->end))
        rc = -EINVAL;
    if (!rc)
        rc = hold_open(seat, h->index, &r);
    if (rc)
        return rc;
    r.mode = h->mode;
    r.token = h->token;
    r.start = at;
    r.end = h->end;
    rc = seat->space->design->split(seat, h, at, &r);
    if (rc && rc != -PAWL_ELOST)
        hold_close(seat, &r);
    if (!rc && !seat_lives(seat))
        rc = -PAWL_ELOST;
    if (!rc)
        *right = r;
    return ended(seat, rc);
}

bool locker_lost(const struct locker *l)
{
    return session_lost(&l->seat) || !seat_lives(&l->seat);
}

int locker_check(const struct locker *l, const struct hold *h)
{
    if (locker_lost(l))
        return -PAWL_ELOST;
    return plausible(l, h) && l->seat.space->design->holds(&l->seat, h) ? 0 : -PAWL_ENOTOWNER;
}

ONCE int locker_wanted(const struct locker *l, const struct hold *h)
{
    const struct design *d = l->seat.space->design;
    int rc = d->wanted ? locker_check(l, h) : -PAWL_ENOTSUP;
    if (!rc)
        rc = seat_retry(&l->seat, d->wanted(&l->seat, h));
    if (rc <= 0)
        return rc;
    rc = locker_check(l, h); /* the record may have been used anew since the first check */
    return rc ? rc : 1;
}

/* ---- values ---- */

/* Of the cell, while its lock is held: a value of another one belonged to another key. */
static int check_value(const struct locker *l, const struct hold *h, uint64_t *generation)
{
    if (!l->seat.space->values)
        return -PAWL_ENOTSUP;
    int rc = locker_check(l, h);
    return rc ? rc : table_generation(&l->seat, &l->table, h->index, generation);
}

int locker_set_value(const struct locker *l, const struct hold *h, const void *bytes, uint32_t len)
{
    uint64_t generation = 0;
    int rc = check_value(l, h, &generation);
    if (!rc)
        rc = value_set(&l->seat, h, generation, bytes, len);
    return ended(&l->seat, rc);
}

int locker_get_value(const struct locker *l, const struct hold *h, void *bytes, uint32_t *len)
{
    uint64_t generation = 0;
    int rc = check_value(l, h, &generation);
    if (!rc)
        rc = value_get(&l->seat, h, generation, bytes, len);
    if (rc && rc != -PAWL_ENOVALUE)
        return ended(&l->seat, rc);
    int held = locker_check(l, h); /* after it was read: no later holder has set another one (I26) */
    return held ? held : rc;
}

/* ---- what a lock looks like ---- */

struct tally {
    const struct seat *seat;
    uint64_t index;
    uint32_t owner; /* of an exclusive lock; LOCK_OWNER_UNKNOWN: none, or not known */
    uint32_t waiters;
    uint32_t owner_tries;
    bool owner_holds;
};

ONCE static int tally_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct tally *t = ctx;
    if (record_index(word) != t->index)
        return 0;
    enum record_state state = record_state(word);
    if (state == RECORD_TRY_X && slot == t->owner)
        t->owner_tries++; /* one of them is the hold, unless that has a record which says so */
    else if (state == RECORD_WAIT || state == RECORD_TRY_S || state == RECORD_TRY_X)
        t->waiters++;
    t->owner_holds |= state == RECORD_HELD_X;
    return 0;
}

ONCE static int tally_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    struct tally *t = ctx;
    return lease_state(lease) == SLOT_LIVE ? seat_records(t->seat, slot, tally_record, t) : 0;
}

#define QUERY_TRIES 1000 /* while cells come and go: so many in a row are a session that is stopped in the middle */

/* The key's cell and the lock in it, of one moment. 1; 0: the key has no lock; -EAGAIN: the cell was changed in between. A session
 * that makes room condemns a cell before it knows whether the lock in it is held, so a condemned cell says nothing of its own. */
ONCE static int peek_once(const struct locker *l, pawl_key key, struct cell *place, struct lock_view *view)
{
    int found = table_find(&l->seat, &l->table, key, place);
    if (found == -ENOENT)
        return 0;
    if (found && found != -EBUSY)
        return found;
    int rc = l->seat.space->design->peek(&l->seat, place->index, view);
    if (!rc)
        rc = table_confirm(&l->seat, &l->table, place);
    return rc < 0 ? rc : rc && !found ? 1 : -EAGAIN;
}

ONCE int locker_query(const struct locker *l, pawl_key key, pawl_state *out)
{
    struct cell place = {0, 0};
    struct lock_view view = {0};
    int rc = table_check_key(&l->table, key);
    if (rc)
        return rc;
    for (int i = 0; i < QUERY_TRIES && (!i || rc == -EAGAIN); i++)
        rc = peek_once(l, key, &place, &view);
    if (!rc)
        *out = (pawl_state){0}; /* a lock that was never taken is free, and so is one that was forgotten */
    if (rc <= 0 && rc != -EAGAIN)
        return rc;
    struct tally t = {
        .seat = &l->seat, .index = place.index, .owner = view.mode == PAWL_EXCLUSIVE ? view.owner : LOCK_OWNER_UNKNOWN};
    rc = seat_slots(&l->seat, tally_slot, &t);
    if (rc)
        return rc;
    t.waiters += t.owner_tries && !t.owner_holds ? t.owner_tries - 1 : t.owner_tries;
    *out = (pawl_state){
        .mode = view.mode,
        .holders = view.mode == PAWL_EXCLUSIVE ? 1 : view.readers,
        .waiters = t.waiters,
        .token = view.token,
    };
    return 0;
}

/* ---- how a lock is laid out ---- */

/* The place of a key's lock, for a design with a layout. */
ONCE static int find_laid_out(const struct locker *l, pawl_key key, struct cell *out)
{
    int rc = l->seat.space->design->layout ? table_check_key(&l->table, key) : -PAWL_ENOTSUP;
    return rc ? rc : table_find_or_insert(&l->seat, &l->table, key, out);
}

ONCE int locker_layout(const struct locker *l, pawl_key key, struct lock_layout *out)
{
    struct cell place = {0, 0};
    int rc = find_laid_out(l, key, &place);
    return rc ? rc : l->seat.space->design->layout(&l->seat, place.index, out);
}

ONCE int locker_retune(const struct locker *l, pawl_key key, unsigned m, uint64_t wait_ns, uint64_t deadline)
{
    struct cell place = {0, 0};
    int rc = find_laid_out(l, key, &place);
    return rc ? rc : l->seat.space->design->retune(&l->seat, place.index, m, wait_ns, deadline);
}

#define RESCALE_TRIES_MAX 16 /* each means that another session scaled it at the same time */

ONCE int locker_rescale(const struct locker *l, pawl_key key, uint64_t units, uint64_t deadline)
{
    const struct design *d = l->seat.space->design;
    int rc = d->rescale ? -EAGAIN : -PAWL_ENOTSUP;
    for (unsigned i = 0; i < RESCALE_TRIES_MAX && rc == -EAGAIN; i++) {
        struct lock_layout now;
        struct hold h;
        rc = locker_layout(l, key, &now);
        if (!rc && (units < now.units_first || units > now.units_max))
            return -ERANGE;
        if (!rc)
            rc = locker_lock_range(l, key, units > now.units ? now.units : 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE, deadline, &h);
        if (rc)
            return rc;
        rc = d->rescale(&l->seat, &h, units, deadline);
        int end = rc == -PAWL_ELOST ? 0 : locker_unlock(l, &h);
        rc = rc ? rc : end;
    }
    return ended(&l->seat, rc);
}

/* ---- several at once ---- */

static struct claim claim_of(const pawl_want *want)
{
    bool whole = !want->start && !want->end;
    return (struct claim){.mode = want->mode, .start = want->start, .end = whole ? RANGE_UNITS_MAX : want->end};
}

static int compare_keys(pawl_key a, pawl_key b)
{
    if (a.id != b.id)
        return a.id < b.id ? -1 : 1;
    return a.name ? memcmp(a.name, b.name, a.id) : 0;
}

/* By key, then by start; the whole of a lock starts at 0. */
static int compare_wants(const pawl_want *a, const pawl_want *b)
{
    int by = compare_keys(a->key, b->key);
    return by ? by : (a->start > b->start) - (a->start < b->start);
}

static void sort_wants(const pawl_want *wants, unsigned count, unsigned *order)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i;
        for (; at > 0 && compare_wants(&wants[order[at - 1]], &wants[i]) > 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Two ranges of one lock must not share an internal lock of the design, or the second would wait for the first. */
ONCE static int check_neighbours(const struct locker *l, const pawl_want *a, const pawl_want *b)
{
    const struct space *s = l->seat.space;
    if (compare_keys(a->key, b->key))
        return 0;
    struct claim x = claim_of(a), y = claim_of(b);
    if (!has_ranges(l))
        return explain(-EINVAL, "a lock is twice among those to be locked together");
    if (ranges_overlap(x.start, x.end, y.start, y.end))
        return explain(-EINVAL, "two of the ranges to be locked together are of one lock, and overlap");
    if (s->design->cover) {
        s->design->cover(s, &x.start, &x.end);
        s->design->cover(s, &y.start, &y.end);
    }
    return ranges_overlap(x.start, x.end, y.start, y.end) ? -EDEADLK : 0;
}

static int check_want(const struct locker *l, const pawl_want *want)
{
    int rc = table_check_key(&l->table, want->key);
    if (rc || (!want->start && !want->end))
        return rc;
    return has_ranges(l) ? check_range(want->start, want->end) : -PAWL_ENOTSUP;
}

static void unlock_all(const struct locker *l, const struct hold *got, const unsigned *order, unsigned count)
{
    while (count-- > 0)
        locker_unlock(l, &got[order[count]]);
}

#define GROUP_PAUSE_NS (50 * NS_PER_US) /* at first; twice as long each time, up to */
#define GROUP_PAUSE_MAX_NS (5 * NS_PER_MS)

ONCE static int pause_before_again(const struct locker *l, unsigned failures, uint64_t deadline)
{
    uint64_t pause = min_u64(GROUP_PAUSE_NS << (failures < 10 ? failures : 10), GROUP_PAUSE_MAX_NS);
    uint64_t until = add_saturating(world_now(l->seat.world), pause / 2 + world_random(l->seat.world) % pause);
    int rc = fab_wait_any(l->seat.ep, NULL, 0, min_u64(until, deadline));
    return rc == -ETIMEDOUT && until < deadline ? 0 : rc;
}

/* The ranges of one lock. To wait for one range while holding another can deadlock in any order: another session may wait for both
 * at once, before us in the queue. So we wait for one range with none in hand, then take the others without waiting or give all
 * back, and next time wait for the one that was missing. */
static int lock_group(const struct locker *l, const pawl_want *wants, unsigned *order, unsigned count, uint64_t deadline,
                      struct hold *got)
{
    for (unsigned failures = 0;; failures++) {
        unsigned n = 0;
        int rc = 0;
        for (; n < count && !rc; n += !rc) {
            const pawl_want *want = &wants[order[n]];
            struct claim claim = claim_of(want);
            claim.exact = count > 1;
            rc = lock_claim(l, want->key, claim, n ? DEADLINE_TRY : deadline, &got[order[n]]);
        }
        if (!rc)
            return 0;
        unlock_all(l, got, order, n);
        if (rc != -PAWL_EHELD || n == 0 || deadline == DEADLINE_TRY)
            return rc;
        unsigned missing = order[n];
        order[n] = order[0];
        order[0] = missing;
        rc = pause_before_again(l, failures, deadline);
        if (rc)
            return rc;
    }
}

#define STEPS_MAX (FAB_BATCH_MAX / TRY_VERBS_MAX) /* more locks than that need more than one batch */

/* A call for several locks, of which the ranges of one lock are a group. */
struct gathering {
    const struct locker *l;
    const pawl_want *wants;
    uint64_t deadline;
    unsigned order[PAWL_ALL_MAX];    /* of the wants: by key and start */
    unsigned from[PAWL_ALL_MAX + 1]; /* where in it each group begins; and the end */
    struct hold got[PAWL_ALL_MAX];   /* of each want */
    unsigned due[PAWL_ALL_MAX];      /* groups that are to be asked for, or given back, at the next `send` */
    unsigned due_count;
    bool gives[PAWL_ALL_MAX]; /* each of those: given back */
    int rc[PAWL_ALL_MAX];     /* of each group that was asked for */
    /* Of each group that is asked for in steps. */
    struct design_try tries[STEPS_MAX];
    bool has_rest[STEPS_MAX];
};

static int lock_nth(struct gathering *g, const struct locker *l, unsigned i, uint64_t deadline)
{
    return lock_group(l, g->wants, g->order + g->from[i], g->from[i + 1] - g->from[i], deadline, g->got);
}

static void unlock_nth(struct gathering *g, const struct locker *l, unsigned i)
{
    unlock_all(l, g->got, g->order + g->from[i], g->from[i + 1] - g->from[i]);
}

static void do_due(void *ctx, unsigned k, struct fab_ep *ep)
{
    struct gathering *g = ctx;
    struct locker l = *g->l;
    unsigned i = g->due[k];
    l.seat.ep = ep;
    if (g->gives[k])
        unlock_nth(g, &l, i);
    else
        g->rc[i] = lock_nth(g, &l, i, DEADLINE_TRY);
}

/* Whether all that is due can be asked for in steps: whole locks at a memory node whose places are known. */
ONCE static bool may_step(const struct gathering *g)
{
    const struct seat *seat = &g->l->seat;
    bool may = seat->space->design->step && seat->ep->node == FAB_NODE_ELSEWHERE && g->l->table.keys == PAWL_KEYS_DENSE &&
               g->due_count <= STEPS_MAX && !session_lost(seat);
    for (unsigned k = 0; k < g->due_count && may; k++)
        may =
            !g->gives[k] && !has_ranges(g->l) && !supported(seat->space->design, g->wants[g->order[g->due[k]]].mode, DEADLINE_TRY);
    return may;
}

/* Groups are single locks here. */
ONCE static unsigned step_due(void *ctx, unsigned k, struct fab_ep *ep, const struct fab_op *done, int rc, struct fab_op *ops)
{
    struct gathering *g = ctx;
    struct seat seat = g->l->seat;
    const unsigned i = g->due[k], want = g->order[i];
    struct design_try *t = &g->tries[k];
    seat.ep = ep;
    if (!t->step) {
        g->rc[i] = hold_open(&seat, g->wants[want].key.id, &g->got[want]);
        if (g->rc[i])
            return 0;
        g->got[want].mode = g->wants[want].mode;
    } else {
        t->rc = rc;
        t->old = done->old;
    }
    int verbs = rc ? TRY_OTHERWISE : seat.space->design->step(&seat, &g->got[want], t, ops);
    g->has_rest[k] = verbs < 0;
    return verbs > 0 ? (unsigned)verbs : 0;
}

ONCE static void do_rest(void *ctx, unsigned k, struct fab_ep *ep)
{
    struct gathering *g = ctx;
    struct locker l = *g->l;
    const unsigned i = g->due[k];
    if (!g->has_rest[k])
        return;
    l.seat.ep = ep;
    struct hold *h = &g->got[g->order[i]];
    int rc = l.seat.space->design->rest(&l.seat, h, &g->tries[k]);
    if (rc && rc != -PAWL_ELOST)
        hold_close(&l.seat, h);
    g->rc[i] = rc <= 0 ? ended(&l.seat, seat_retry(&l.seat, rc)) : 0;
    if (rc && !g->rc[i])
        g->rc[i] = lock_nth(g, &l, i, DEADLINE_TRY);
}

ONCE static bool step_together(struct gathering *g)
{
    bool rest = false;
    if (!may_step(g))
        return false;
    memset(g->tries, 0, g->due_count * sizeof *g->tries);
    memset(g->has_rest, 0, g->due_count * sizeof *g->has_rest);
    if (!together_steps(g->l->together, g->l->seat.ep, g->due_count, TRY_VERBS_MAX, step_due, g))
        return false;
    for (unsigned k = 0; k < g->due_count; k++)
        rest |= g->has_rest[k];
    if (rest && !together_run(g->l->together, g->l->seat.ep, g->due_count, do_rest, g))
        for (unsigned k = 0; k < g->due_count; k++)
            do_rest(g, k, g->l->seat.ep);
    return true;
}

static void send_due(void *caller)
{
    struct gathering *g = caller;
    struct fab_ep *ep = g->l->seat.ep;
    bool together = g->due_count > 1 && (step_together(g) || together_run(g->l->together, ep, g->due_count, do_due, g));
    for (unsigned k = 0; k < g->due_count && !together; k++)
        do_due(g, k, ep);
    g->due_count = 0;
}

static int ask(void *caller, unsigned i, bool wait)
{
    struct gathering *g = caller;
    if (wait) /* `answer` does all of it */
        return 0;
    g->gives[g->due_count] = false;
    g->due[g->due_count++] = i;
    return 0;
}

static int answer(void *caller, unsigned i, bool wait)
{
    struct gathering *g = caller;
    return wait ? lock_nth(g, g->l, i, g->deadline) : g->rc[i];
}

static void give_back(void *caller, unsigned i)
{
    struct gathering *g = caller;
    g->gives[g->due_count] = true;
    g->due[g->due_count++] = i;
}

static_assert(PAWL_ALL_MAX <= GATHER_MAX, "one call of gather has all of them");
static_assert(PAWL_ALL_MAX <= TOGETHER_MAX, "and one of together_run");

/* Whether verbs that leave together save round trips, and a request that meets a holder can be taken back. */
static bool may_gather(const struct locker *l)
{
    return l->together && !fab_is_shm(l->seat.ep) && l->seat.space->design->features & DESIGN_TIMEOUT;
}

static int lock_in_turn(struct gathering *g, unsigned groups)
{
    int rc = 0;
    for (unsigned i = 0; i < groups && !rc; i++) {
        rc = lock_nth(g, g->l, i, g->deadline);
        if (rc)
            unlock_all(g->l, g->got, g->order, g->from[i]);
    }
    return rc;
}

/* The wants in their order, as groups. How many, or an error. */
static int plan_groups(struct gathering *g, unsigned count)
{
    unsigned groups = 0;
    int rc = 0;
    for (unsigned i = 0; i < count && !rc; i++)
        rc = check_want(g->l, &g->wants[i]);
    if (rc)
        return rc;
    sort_wants(g->wants, count, g->order);
    for (unsigned i = 0; i < count && !rc; i++) {
        const pawl_want *before = i ? &g->wants[g->order[i - 1]] : NULL, *want = &g->wants[g->order[i]];
        rc = before ? check_neighbours(g->l, before, want) : 0;
        if (!before || compare_keys(before->key, want->key))
            g->from[groups++] = i;
    }
    g->from[groups] = count;
    return rc ? rc : (int)groups;
}

int locker_lock_all(const struct locker *l, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds)
{
    static const struct gather_ops ops = {.ask = ask, .send = send_due, .answer = answer, .give_back = give_back};
    struct gathering g; /* its arrays are filled as far as they are used */
    g.l = l;
    g.wants = wants;
    g.deadline = deadline;
    g.due_count = 0;
    if (!count || count > PAWL_ALL_MAX)
        return -EINVAL;
    memset(g.from, 0, (count + 1) * sizeof *g.from);
    int groups = plan_groups(&g, count);
    if (groups < 0)
        return groups;
    int rc = groups > 1 && may_gather(l) ? gather(&ops, &g, (unsigned)groups, deadline != DEADLINE_TRY)
                                         : lock_in_turn(&g, (unsigned)groups);
    if (rc)
        return rc;
    if (!seat_lives(&l->seat)) /* the first grant may be long ago */
        return -PAWL_ELOST;
    memcpy(holds, g.got, count * sizeof *g.got);
    return 0;
}

struct ending {
    const struct locker *l;
    const struct hold *holds;
    int *rc;
};

static void end_one(void *ctx, unsigned i, struct fab_ep *ep)
{
    const struct ending *e = ctx;
    struct locker l = *e->l;
    l.seat.ep = ep;
    e->rc[i] = locker_unlock(&l, &e->holds[i]);
}

void locker_unlock_all(const struct locker *l, const struct hold *holds, unsigned count, int *rc)
{
    struct ending e = {.l = l, .holds = holds, .rc = rc};
    assert(count <= PAWL_ALL_MAX);
    if (count > 1 && may_gather(l) && together_run(l->together, l->seat.ep, count, end_one, &e))
        return;
    for (unsigned i = 0; i < count; i++)
        end_one(&e, i, l->seat.ep);
}
