/* SPDX-License-Identifier: Apache-2.0 */
/* A space as the designs see it, and a session's seat in it.
 *
 * Lock memory holds, beside the locks, a *slot* per session and an array of *hold records* per slot:
 *
 *     slot     the session's lease (one word that says whether it lives, and until when) and how to recognise its owner
 *     records  what the session holds, may hold or waits for, each written *before* the lock itself is touched
 *
 * so that after a death at any instruction every other session can read what the dead one may have held (I5). A slot's records are
 * written by its session only; a lost session's stay as they are until the slot is taken by the next one. Designs whose recovery
 * asks what the living hold, and not what the dead held, keep them in the session's own memory (desc_record).
 *
 * The states of a slot:
 *
 *     FREE(e) -> TAKEN(e+1) -> LIVE(e+1) -> FREE(e+1)              opened, set up, closed
 *                     '-----------'--> LOST(e+1) -> FREE(e+1)      died or overstayed; shut out (fenced) and recovered from
 *
 * LIVE -> LOST is one compare-and-swap by any session that notices; the owner's renewals are compare-and-swaps on the same word, so
 * a session is either renewed or lost, never both (I6). LOST -> FREE only once nothing of the session can take effect any more.
 */
#ifndef PAWL_DESIGNS_CORE_SEAT_H
#define PAWL_DESIGNS_CORE_SEAT_H

#include "designs/core/knobs.h"
#include "fabric/fabric.h"
#include "lib/bits.h"
#include "pawl.h"

struct design;
struct step_clock;

/* ---- the lease word: state 2, epoch 22, withdrawn 1, stamp 39 ---- */

enum slot_state { SLOT_FREE, SLOT_LIVE, SLOT_LOST, SLOT_TAKEN };

/* Clocks of different hosts may differ in speed by one part in this many (invariants.md); both sides' errors add up. */
#define SEAT_DRIFT_DIVISOR 10000

#define LEASE_STAMP_BITS 39
#define LEASE_STAMP_SHIFT 20 /* stamps count 2^20 ns, about a millisecond: 39 bits last 18 years of uptime */
#define LEASE_WITHDRAWN_SHIFT 39
#define LEASE_EPOCH_BITS 22
#define LEASE_EPOCH_SHIFT 40
#define LEASE_STATE_SHIFT 62
#define LEASE_STAMP_FOREVER FIELD_MAX(LEASE_STAMP_BITS)

static inline uint64_t lease_word(enum slot_state state, uint32_t epoch, uint64_t stamp)
{
    return (uint64_t)state << LEASE_STATE_SHIFT | (uint64_t)epoch << LEASE_EPOCH_SHIFT | stamp;
}
static inline enum slot_state lease_state(uint64_t lease)
{
    return (enum slot_state)(lease >> LEASE_STATE_SHIFT);
}
static inline uint32_t lease_epoch(uint64_t lease)
{
    return (uint32_t)field_get(lease, LEASE_EPOCH_SHIFT, LEASE_EPOCH_BITS);
}
/* On shared memory the uncontended path reads no clock: after it has taken a lock it looks whether its lease was withdrawn
 * (client/fast.h). So a lease that has run out is withdrawn first, and its session is declared lost this much later at the
 * earliest, unless it has renewed the lease: every grant is good for that long, however long the process was stopped before. */
#define SEAT_GRACE_NS (500 * NS_PER_MS)

/* Whether another session has seen that this lease had run out, and said so in the word (seat_peer_dead). Its owner may renew it.
 */
static inline bool lease_withdrawn(uint64_t lease)
{
    return lease >> LEASE_WITHDRAWN_SHIFT & 1;
}
static inline uint64_t lease_stamp(uint64_t lease)
{
    return field_get(lease, 0, LEASE_STAMP_BITS);
}
static inline uint64_t lease_expiry_ns(uint64_t lease)
{
    uint64_t stamp = lease_stamp(lease);
    return stamp == LEASE_STAMP_FOREVER ? UINT64_MAX : stamp << LEASE_STAMP_SHIFT;
}

/* ---- slots, as they lie in lock memory ---- */

#define SLOT_LABEL_LEN 32
#define SLOT_LIFE_LEN 48 /* the futex has 4 bytes; a slot has whole cache lines */

struct slot {
    uint64_t lease;
    uint64_t
        proof; /* peer and proof for fab_fence, 32 bits each; set together with the lease when the slot is taken, hence beside it */
    uint64_t lease_ns; /* for people to read */
    uint64_t opened;   /* seconds since WORLD_BIRTH_EPOCH_S, likewise */
    fab_addr home;     /* the first of its descriptors: on its own node, if it has memory there */
    char label[SLOT_LABEL_LEN];
    _Alignas(8) char life[SLOT_LIFE_LEN]; /* shared memory: a robust futex that a thread of the session holds (cluster/life.h) */
    char pad[8];
};
static_assert(sizeof(struct slot) == 2 * CACHE_LINE, "slots do not share lines");

#define SLOTS_MAX 4096   /* 12 bits of the owner in `word`'s lock word */
#define RECORDS_MAX 4096 /* the other 12 */

/* ---- hold records: state 4, serial 20, index 40 ---- */

enum record_state {
    RECORD_FREE,    /* nothing */
    RECORD_WAIT,    /* wants the lock and certainly does not hold it */
    RECORD_TRY_X,   /* may hold it exclusively */
    RECORD_TRY_S,   /* may be counted among its readers */
    RECORD_HELD_S,  /* is counted among its readers */
    RECORD_LEAVE_S, /* may still be counted among them */
    RECORD_SPARE,   /* nothing; kept by a thread for its next hold */
    RECORD_HELD_X,  /* holds it exclusively: for designs whose lock does not name its owner */
};

#define RECORD_INDEX_BITS 40
#define RECORD_SERIAL_BITS 20
#define RECORD_SERIAL_SHIFT 40
#define RECORD_STATE_SHIFT 60

static inline uint64_t record_word(enum record_state state, uint64_t serial, uint64_t index)
{
    return (uint64_t)state << RECORD_STATE_SHIFT | serial << RECORD_SERIAL_SHIFT | index;
}
static inline enum record_state record_state(uint64_t record)
{
    return (enum record_state)(record >> RECORD_STATE_SHIFT);
}
static inline uint64_t record_serial(uint64_t record)
{
    return field_get(record, RECORD_SERIAL_SHIFT, RECORD_SERIAL_BITS);
}
static inline uint64_t record_index(uint64_t record)
{
    return field_get(record, 0, RECORD_INDEX_BITS);
}

/* ---- ranges, for designs that have them: units [start, end) of what a lock protects ---- */

#define RANGE_UNITS_BITS 40
#define RANGE_UNITS_MAX (UINT64_C(1) << RANGE_UNITS_BITS) /* of one lock; [0, this) is the whole of it */

/* The range of a hold record. Beside the records, so that every session can read which part a dead one may have held. */
struct record_range {
    uint64_t start, end;
};

static inline bool ranges_overlap(uint64_t start, uint64_t end, uint64_t other_start, uint64_t other_end)
{
    return start < other_end && other_start < end;
}

/* ---- the space ---- */

struct space {
    const struct design *design;
    fab_addr slots;
    fab_addr records; /* slot_count arrays of record_count words */
    fab_addr ranges;  /* likewise of struct record_range; only if the design has ranges */
    fab_addr locks;   /* the first lock */
    fab_addr values;  /* lock_count cells (value.h); 0: there are none */
    fab_addr descs;   /* descriptors of sessions that have no memory of their own: slot_count arrays of record_count */
    uint32_t desc_size;
    uint32_t desc_record; /* of the design */
    uint64_t lock_count;
    uint64_t lock_stride;
    uint32_t slot_count;
    uint32_t record_count;
    uint64_t range_units; /* that a lock is laid out for when it is made, */
    uint64_t range_max;   /* and that its memory has room for; a design may still lock beyond, with less to gain. 0: no ranges */
    uint64_t unit_bytes;  /* bytes per unit, a power of two; for the public interface */
    uint64_t token_base;  /* tokens start above this: what was granted before the state was last lost lies below (I2) */
    uint64_t lease_ns;    /* the longest that a session may have; the one that counts where clocks are not shared */
    uint64_t margin_ns;   /* how long after its expiry a lease is taken for lost: covers coarse clocks */
    uint64_t check_ns;    /* how often a waiter looks whether those it waits for still live */
    struct knobs knobs;   /* of the design */
};

static inline fab_addr space_lock_addr(const struct space *s, uint64_t index)
{
    return s->locks + index * s->lock_stride;
}
static inline fab_addr space_slot_addr(const struct space *s, uint32_t slot)
{
    return s->slots + slot * sizeof(struct slot);
}
static inline fab_addr space_record_addr(const struct space *s, uint32_t slot, uint32_t record)
{
    return s->records + ((uint64_t)slot * s->record_count + record) * sizeof(uint64_t);
}
static inline fab_addr space_range_addr(const struct space *s, uint32_t slot, uint32_t record)
{
    return s->ranges + ((uint64_t)slot * s->record_count + record) * sizeof(struct record_range);
}

/* ---- the session, private to its process ---- */

struct session {
    const uint64_t *lease; /* shared memory: the word itself; elsewhere a copy of what the latest renewal wrote */
    uint64_t lease_copy;
    uint64_t lease_ns; /* how much longer each renewal makes it */
    bool ended;        /* a call was told that the session is lost: from then on it is (I8), even if no other session has noticed */
    uint32_t slot;
    uint32_t epoch;
    uint32_t insertions; /* of keys into the table, so far */
    uint32_t claims;     /* while it opens: the slot that it may have claimed, + 1; 0: none */
    fab_addr home;       /* the first of its descriptors */
    uint64_t id;         /* unlike that of any other session of this process */
    uint64_t *shadow;    /* record_count words: what the records say. Shared memory: the records themselves; else a private copy */
    uint32_t records_used;       /* records from this one on were never used */
    struct record_range *ranges; /* likewise of the records' ranges; null if the design has none */
    struct step_clock *clock;    /* null, or where a benchmark wants to know the time of each step (steps.h) */
    uint64_t *descs;             /* likewise of its descriptors in the space, for designs that keep words there */
    void *design_state;          /* what its design keeps for each session: design->session_bytes, zero when it opens; null: none */
    struct session *next;        /* in the process's list of sessions whose records threads may keep */
    struct sighting {            /* of other sessions' leases: slot_count of them */
        uint64_t lease;
        uint64_t first_seen_ns;
        fab_addr home; /* where its descriptors were when last asked; 0: not asked yet */
    } * seen;
};

/* The means of a task: the space, its session, and how it reaches memory and time. Small enough to copy. */
struct seat {
    const struct space *space;
    struct session *me;
    struct fab_ep *ep;
    struct world *world;
};

/* Descriptors in which waiters queue lie in the session's registered memory, never on a stack: on its own node where it has one,
 * else beside the records. A descriptor belongs to the hold record of the same number. */
static inline fab_addr seat_desc_addr(const struct seat *seat, uint32_t record)
{
    return seat->me->home + (uint64_t)record * seat->space->desc_size;
}

/* A lock held or being acquired. */
struct hold {
    uint64_t index;
    uint64_t token;
    uint64_t serial;
    uint32_t record;
    enum pawl_mode mode;
    uint64_t start, end; /* units; [0, RANGE_UNITS_MAX) is the whole */
    uint32_t limit;      /* while it is acquired: of the semaphore; 0: it is none */
    bool exact;          /* others of the same client are to be held with it: lock as little beside them as possible */
    /* While it is acquired: the lock's place is still its key's as long as this word says so; no address: it always is. */
    fab_addr place;
    uint64_t place_says;
};

/* Whether the session's lease still runs at `now`, by the clock that it was renewed by. Grants are checked with this *after* the
 * lock was taken: a process that slept in between finds out here (I1). */
static inline bool seat_alive(const struct seat *seat, uint64_t now)
{
    uint64_t lease = __atomic_load_n(seat->me->lease, __ATOMIC_ACQUIRE);
    return lease >> LEASE_EPOCH_SHIFT == lease_word(SLOT_LIVE, seat->me->epoch, 0) >> LEASE_EPOCH_SHIFT &&
           now >> LEASE_STAMP_SHIFT < lease_stamp(lease);
}

/* The stamp of a lease that begins now. */
uint64_t lease_stamp_for(const struct seat *seat, uint64_t lease_ns);

/* Moves the lease on by one compare-and-swap: 0, or -PAWL_ELOST if the session was declared lost (or ended), or another error. */
int seat_renew(const struct seat *seat);

/* Like seat_alive, by the coarse clock; a lease that has run out unnoticed is renewed. Once this has returned
 * false, it always does (I8). */
bool seat_lives(const struct seat *seat);

/* Whether the leases of all these sessions of one client run at one moment (I1). Renewing one takes a round trip, in which that of
 * another may end: looking at each once is not enough. False: the client is lost. */
bool seats_live(const struct seat *const seats[], unsigned count);

/* A compare-and-swap whose outcome, should the connection break, is learnt by reading: only for values that no other session would
 * write. 0 and *old as of a plain one. */
int seat_sure_cas(const struct seat *seat, fab_addr addr, uint64_t expect, uint64_t desired, uint64_t *old);

/* A READ or WRITE, repeated while the connection breaks and the session lives. Other errors are the fabric's: see seat_retry. */
int seat_read64(const struct seat *seat, fab_addr addr, uint64_t *value);
int seat_write64(const struct seat *seat, fab_addr addr, uint64_t value);

static inline uint64_t seat_expiry_ns(const struct seat *seat)
{
    return lease_expiry_ns(__atomic_load_n(seat->me->lease, __ATOMIC_ACQUIRE));
}

/* ---- hold records ---- */

/* Whether records lie in their sessions' own memory. */
static inline bool seat_records_home(const struct seat *seat)
{
    return seat->space->desc_record && !fab_is_shm(seat->ep);
}

/* Takes a free record of the session for `index`: all but its token and mode. -PAWL_ELIMIT if all are in use. */
int hold_open(const struct seat *seat, uint64_t index, struct hold *out);

/* Writes a record where others read it, and returns when it is there: 0, or -PAWL_ELOST once the lease has run out meanwhile. */
int hold_write(const struct seat *seat, const struct hold *h, uint64_t word);

/* Publishes what the session is about to do or has done, before it goes on. */
static inline int hold_publish(const struct seat *seat, const struct hold *h, enum record_state state)
{
    uint64_t word = record_word(state, h->serial, h->index);
    __atomic_store_n(&seat->me->shadow[h->record], word, __ATOMIC_RELEASE);
    return fab_is_shm(seat->ep) ? 0 : hold_write(seat, h, word);
}

/* Notes the hold's range on the session's own books; on shared memory that publishes it, too. */
static inline void hold_note_range(const struct seat *seat, const struct hold *h)
{
    struct record_range *range = &seat->me->ranges[h->record];
    __atomic_store_n(&range->start, h->start, __ATOMIC_RELEASE);
    __atomic_store_n(&range->end, h->end, __ATOMIC_RELEASE);
}

/* Whether the session's books have the record with this very range. */
static inline bool hold_has_range(const struct seat *seat, const struct hold *h)
{
    const struct record_range *range = &seat->me->ranges[h->record];
    return __atomic_load_n(&range->start, __ATOMIC_ACQUIRE) == h->start && __atomic_load_n(&range->end, __ATOMIC_ACQUIRE) == h->end;
}

/* Of two tasks that end the same hold only one succeeds: 0 if this call changed the state, else -PAWL_ENOTOWNER. */
int hold_change(const struct seat *seat, const struct hold *h, enum record_state from, enum record_state to);

/* Whether the session has this hold on its books in that state. */
static inline bool hold_is(const struct seat *seat, const struct hold *h, enum record_state state)
{
    return h->record < seat->space->record_count &&
           __atomic_load_n(&seat->me->shadow[h->record], __ATOMIC_ACQUIRE) == record_word(state, h->serial, h->index);
}

/* The record of a session that may have the lock in that mode, that has it, and that has a lock which names its writer. */
static inline enum record_state record_try(enum pawl_mode mode)
{
    return mode == PAWL_SHARED ? RECORD_TRY_S : RECORD_TRY_X;
}
static inline enum record_state record_held(enum pawl_mode mode)
{
    return mode == PAWL_SHARED ? RECORD_HELD_S : RECORD_HELD_X;
}
static inline enum record_state record_named(enum pawl_mode mode)
{
    return mode == PAWL_SHARED ? RECORD_HELD_S : RECORD_TRY_X;
}

/* For design.holds. */
static inline bool hold_is_held(const struct seat *seat, const struct hold *h)
{
    return hold_is(seat, h, record_held(h->mode));
}
static inline bool hold_is_named(const struct seat *seat, const struct hold *h)
{
    return hold_is(seat, h, record_named(h->mode));
}

/* Gives the record back; its published copy says so first. */
void hold_close(const struct seat *seat, const struct hold *h);

/* The same where the published copy says so already: not on shared memory, where the two are one. */
void hold_forget(const struct seat *seat, const struct hold *h);

/* A thread keeps the record that it closed last for the next hold that it opens, which spares an atomic. It gives it back when it
 * ends, if the session is still there: a session is on the list from begin to end. */
void hold_keeping_begin(struct session *me);
void hold_keeping_end(struct session *me);

/* ---- other sessions ---- */

/* Is that session dead or lost? 1 yes (and its lease word says LOST or FREE from now on), 0 not that one could tell, or an
 * error. *lease is what its lease word said. */
int seat_peer_dead(const struct seat *seat, uint32_t slot, uint64_t *lease);

/* Whether the slot still belongs to that lost session, and not to a successor: 1, 0 or an error. Recovery reads a lock first and
 * asks this second: then what it read was left by the lost session (I6). */
int seat_still_lost(const struct seat *seat, uint32_t slot, uint32_t epoch);

/* Makes sure that nothing that the lost session has begun takes effect any more; -EAGAIN if that is not certain yet. A slot that is
 * not the lost session's any more was free since, and so the session was fenced before. */
int seat_fence(const struct seat *seat, uint32_t slot, uint32_t epoch);

/* Calls fn for every record of a slot that is not free, until it returns non-zero. Records that lie in the session's own memory are
 * those of the session that has that memory now: the same one if it lives. */
typedef int (*record_fn)(void *ctx, uint32_t slot, uint32_t record, uint64_t word);
int seat_records(const struct seat *seat, uint32_t slot, record_fn fn, void *ctx);

/* The same for the session's own records, as it knows them: without a verb. */
int seat_own_records(const struct seat *seat, record_fn fn, void *ctx);

/* Reads every slot's lease word, in bounded pieces, and calls fn for those that are not FREE. */
typedef int (*slot_fn)(void *ctx, uint32_t slot, uint64_t lease);
int seat_slots(const struct seat *seat, slot_fn fn, void *ctx);
int seat_slots_of(const struct seat *seat, uint32_t from, uint32_t to, slot_fn fn, void *ctx);

/* A condition with which a waiter is woken when the kernel notices that session's death. False where it does not. The slot may be
 * any number that was read from memory. */
bool seat_life_cond(const struct seat *seat, uint32_t slot, struct fab_cond *out);

/* Memory says something that no sound session writes. On shared memory another user of the segment may have written it: the caller
 * returns -PAWL_ESEGMENT, and ends no process. On other fabrics it is a mistake of ours. */
static inline bool seat_damaged(const struct seat *seat, bool impossible)
{
    assert(!impossible || fab_is_shm(seat->ep));
    return unlikely(impossible);
}

/* Turns a fabric error into what the caller of a lock operation gets; 0 means that it is worth trying again. */
int seat_retry(const struct seat *seat, int rc);

#endif
