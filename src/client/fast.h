/* SPDX-License-Identifier: Apache-2.0 */
/* The short paths through the public interface: `word`, shared memory, a lock that exists. It is free; or another session holds it
 * exclusively, and the caller sleeps until it is released.
 *
 * Locking an uncontended lock costs about as much as the two compare-and-swaps that it needs, so here the layers below are inlined
 * into a few steps. Every other case takes the ordinary path through the session's table (pawl.c, memory.c). */
#ifndef PAWL_CLIENT_FAST_H
#define PAWL_CLIENT_FAST_H

#include "client/locker.h"
#include "designs/core/kept.h"
#include "designs/word/fast.h"
#include "designs/word/word.h"
#include "fabric/shm.h"
#include "lib/hash.h"

#define FAST_ALIVE UINT64_C(0x6c7761702d65736f)

/* Lies in a page that a forked child sees empty, so that `cells` is null in the child, too. */
struct fast {
    struct word_fast word; /* with the next three in one cache line: what a waiter needs that was woken */
    uint64_t identity;     /* of the session, as grants carry it */
    enum pawl_keys keys;
    uint32_t lock_offset; /* of the lock in its cell */
    uint64_t alive;       /* FAST_ALIVE in the process that opened the handle */
    char *cells;          /* null: this path is not available */
    const char *names;    /* null: keys are numbers */
    uint64_t mask;        /* buckets - 1 */
    uint64_t session;     /* session.id */
    uint32_t home_shift;  /* table_home's */
    uint32_t cell_shift;  /* cells of `word` have a power of two of bytes */
    uint64_t capacity;
    uint32_t records;
    const struct locker *locker;
};

static inline void fast_init(struct fast *f, const struct locker *l, uint64_t identity)
{
    *f = (struct fast){.alive = FAST_ALIVE, .identity = identity};
    if (!fab_is_shm(l->seat.ep) || l->seat.space->design->acquire != design_word.acquire)
        return;
    word_fast_init(&f->word, &l->seat);
    f->cells = fab_shm_ptr(l->seat.ep, l->table.cells);
    f->names = l->table.keys == PAWL_KEYS_NAMED ? fab_shm_ptr(l->seat.ep, l->table.names) : NULL;
    f->mask = l->table.buckets - 1;
    f->home_shift = l->table.home_shift;
    f->session = l->seat.me->id;
    f->cell_shift = (uint32_t)__builtin_ctzll(l->table.cell_bytes);
    f->lock_offset = l->table.keys == PAWL_KEYS_DENSE ? 0 : 16;
    assert(l->table.cell_bytes == UINT64_C(1) << f->cell_shift);
    f->keys = l->table.keys;
    f->capacity = l->table.capacity;
    f->records = l->seat.space->record_count;
    f->locker = l;
}

INLINED bool fast_cell_has(const char *cell, uint64_t key, uint64_t *meta)
{
    const uint64_t *bucket = (const uint64_t *)cell;
    *meta = __atomic_load_n(&bucket[1], __ATOMIC_ACQUIRE);
    return *meta >> CELL_STATE_SHIFT == CELL_LIVE && __atomic_load_n(&bucket[0], __ATOMIC_ACQUIRE) == key;
}

/* How far to look: in a table that is half full one key in a hundred lies further from its home. */
#define FAST_PROBES 8

/* The cell of a u64 key, if it is near its home; *meta as found. Once the lock is held, an unchanged meta proves that the cell
 * still has the key (I7). */
INLINED char *fast_find(const struct fast *f, uint64_t id, uint64_t *index, uint64_t *meta)
{
    if (unlikely(f->keys == PAWL_KEYS_DENSE)) {
        *index = id;
        *meta = 0;
        return id < f->capacity ? f->cells + (id << f->cell_shift) : NULL;
    }
    *index = table_home(id, f->home_shift);
    for (unsigned n = 0; n < FAST_PROBES; n++, *index = (*index + 1) & f->mask) {
        char *cell = f->cells + (*index << f->cell_shift);
        if (likely(fast_cell_has(cell, id, meta)))
            return cell;
    }
    return NULL;
}

INLINED uint64_t fast_load64(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* Whether a cell's name is this one. It is stored as words that begin with its length (table.c). */
INLINED bool fast_name_is(const uint64_t *there, const char *name, uint64_t len)
{
    uint64_t first = len, last = len / 8; /* the word of the name's last byte, */
    if (unlikely(len < 8)) {
        for (uint64_t i = 0; i < len; i++)
            first |= (uint64_t)(unsigned char)name[i] << 8 * (i + 1);
        return __atomic_load_n(&there[0], __ATOMIC_ACQUIRE) == first;
    }
    first |= fast_load64(name) << 8;
    uint64_t end = fast_load64(name + len - 8) >> 8 * (7 - len % 8); /* which begins in the middle of these eight */
    /* The word between, or the first again: no branch on the length, which differs from name to name. */
    uint64_t between = last > 1, middle = first ^ ((fast_load64(name + (7 & -between)) ^ first) & -between);
    uint64_t other = (__atomic_load_n(&there[0], __ATOMIC_ACQUIRE) ^ first) |
                     (__atomic_load_n(&there[between], __ATOMIC_ACQUIRE) ^ middle) |
                     (__atomic_load_n(&there[last], __ATOMIC_ACQUIRE) ^ end);
    for (uint64_t i = 2; unlikely(i < last); i++)
        other |= __atomic_load_n(&there[i], __ATOMIC_ACQUIRE) ^ fast_load64(name + 8 * i - 1);
    return !other;
}

/* The same by name. By value, so that the caller's variables stay in registers; no cell has the index UINT64_MAX. */
INLINED struct cell fast_find_name(const struct fast *f, pawl_key key)
{
    uint64_t hash = hash_bytes_inline(key.name, key.id, 0), index = table_home(hash, f->home_shift), meta;
    for (unsigned n = 0; n < FAST_PROBES; n++, index = (index + 1) & f->mask)
        if (likely(fast_cell_has(f->cells + (index << f->cell_shift), hash, &meta)) &&
            likely(fast_name_is((const uint64_t *)(f->names + index * LAYOUT_NAME_BYTES), key.name, key.id)))
            return (struct cell){.index = index, .meta = meta};
    return (struct cell){.index = UINT64_MAX};
}

/* The lease word if the session lives, else 0. Asked after a lock was taken (I1). No clock: a lease that was not withdrawn by now
 * keeps the session for SEAT_GRACE_NS at least. */
INLINED uint64_t fast_lease(const struct fast *f)
{
    uint64_t lease = __atomic_load_n(f->word.lease, __ATOMIC_ACQUIRE);
    bool alive = lease >> LEASE_WITHDRAWN_SHIFT == f->word.live && !__atomic_load_n(f->word.ended, __ATOMIC_ACQUIRE);
    return likely(alive) ? lease : 0;
}

/* Whether a cell is still that of the key that was found there; certain while the lock is held. */
INLINED bool fast_cell_is(const struct fast *f, const char *cell, uint64_t meta)
{
    return f->keys == PAWL_KEYS_DENSE || __atomic_load_n((const uint64_t *)cell + 1, __ATOMIC_ACQUIRE) == meta;
}

/* Takes the lock in that cell with the record that this thread keeps. FAST_NO: not taken, the record is kept as before; FAST_STRAY:
 * taken, but the cell belongs to another key by now, or the session does not live; the grant is to be given back. */
enum fast_result { FAST_NO, FAST_HELD, FAST_STRAY };

/* The lock is taken with the kept record. */
INLINED enum fast_result fast_granted(const struct fast *f, const char *cell, struct cell at, enum pawl_mode mode, uint32_t record,
                                      uint64_t serial, uint64_t token, pawl_grant *out)
{
    hold_kept.session = 0;
    uint64_t lease = fast_lease(f);
    *out = (pawl_grant){
        .token = token,
        .expiry_ns = lease_expiry_ns(lease),
        .mode = mode,
        .hold = record,
        .index = at.index,
        .serial = f->identity | serial,
    };
    return likely(lease && fast_cell_is(f, cell, at.meta)) ? FAST_HELD : FAST_STRAY;
}

INLINED enum fast_result fast_lock(const struct fast *f, char *cell, uint64_t index, uint64_t meta, enum pawl_mode mode,
                                   pawl_grant *out)
{
    struct hold_kept *kept = &hold_kept;
    if (unlikely(kept->session != f->session || mode - PAWL_SHARED > PAWL_EXCLUSIVE - PAWL_SHARED))
        return FAST_NO;
    struct word_lock *lock = (struct word_lock *)(cell + f->lock_offset);
    uint32_t record = kept->record;
    uint64_t serial = (record_serial(f->word.records[record]) + 1) & FIELD_MAX(RECORD_SERIAL_BITS), token;
    uint64_t index_serial = record_word(RECORD_FREE, serial, index);
    if (unlikely(!word_fast_lock(&f->word, lock, record, index_serial, mode == PAWL_SHARED, &token))) {
        __atomic_store_n(&f->word.records[record], record_word(RECORD_SPARE, serial, 0), __ATOMIC_RELEASE);
        return FAST_NO;
    }
    return fast_granted(f, cell, (struct cell){.index = index, .meta = meta}, mode, record, serial, token, out);
}

/* ---- waiting ---- */

/* A waiter for the lock of one cell. */
struct fast_turn {
    char *cell;
    struct word_lock *lock;
    struct cell at;
    uint64_t index_serial; /* the record's word but for its state */
    uint64_t w;            /* on which it has slept; 0: it has not */
    uint32_t record;
};

/* The lock of a key that this thread may wait for; without a cell: in the ordinary way only. */
static __attribute__((noinline, cold, unused)) struct fast_turn fast_turn_of(const struct fast *f, pawl_key key,
                                                                             enum pawl_mode mode, uint64_t deadline)
{
    struct fast_turn t = {.record = hold_kept.record};
    if (!f->cells || mode != PAWL_EXCLUSIVE || deadline == DEADLINE_TRY || hold_kept.session != f->session ||
        table_check_key(&f->locker->table, key) || table_find(&f->locker->seat, &f->locker->table, key, &t.at))
        return t;
    uint64_t serial = (record_serial(f->word.records[t.record]) + 1) & FIELD_MAX(RECORD_SERIAL_BITS);
    t.index_serial = record_word(RECORD_FREE, serial, t.at.index);
    t.cell = f->cells + (t.at.index << f->cell_shift);
    t.lock = (struct word_lock *)(t.cell + f->lock_offset);
    return t;
}

/* Joins the waiters of a lock that another session holds exclusively (wait_turn, sleep_on in word.c). True: the caller is to sleep
 * while the conditions hold, until then. False: the ordinary way must go on. So it does when the caller was woken and the holder is
 * still the same: that one may be dead. */
static __attribute__((noinline, cold, unused)) bool fast_queue(const struct fast *f, struct fast_turn *t, struct fab_cond conds[2],
                                                               uint64_t *until)
{
    const struct seat *seat = &f->locker->seat;
    uint64_t w = __atomic_load_n(&t->lock->word, __ATOMIC_ACQUIRE);
    if (word_mode(w) != WORD_EXCLUSIVE || !((w ^ t->w) & WORD_WATCH) || word_owner_slot(w) == seat->me->slot || !fast_lease(f) ||
        !fast_cell_is(f, t->cell, t->at.meta))
        return false;
    __atomic_store_n(&f->word.records[t->record], (uint64_t)RECORD_WAIT << RECORD_STATE_SHIFT | t->index_serial, __ATOMIC_RELEASE);
    if (!(w & WORD_WAITERS) &&
        !__atomic_compare_exchange_n(&t->lock->word, &w, w | WORD_WAITERS, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return false;
    t->w = w | WORD_WAITERS;
    conds[0] = (struct fab_cond){space_lock_addr(seat->space, t->at.index), WORD_WATCH, t->w & WORD_WATCH};
    *until = min_u64(*until, add_saturating(world_now(seat->world), seat->space->check_ns));
    return seat_life_cond(seat, word_owner_slot(w), &conds[1]);
}

/* The waiter goes the ordinary way, as if it had only come now. It may have been woken for the lock: then another waiter is woken
 * instead, unless the lock is held by a session that will wake one. */
static __attribute__((noinline, cold, unused)) enum fast_result fast_leave(const struct fast *f, const struct fast_turn *t)
{
    __atomic_store_n(&f->word.records[t->record], record_word(RECORD_SPARE, record_serial(t->index_serial), 0), __ATOMIC_RELEASE);
    if (t->w && !(__atomic_load_n(&t->lock->word, __ATOMIC_ACQUIRE) & WORD_WAITERS))
        fab_shm_wake_word(&t->lock->word, WORD_WATCH, 1);
    return FAST_NO;
}

/* Takes a lock that another session holds exclusively, with the record that this thread keeps. FAST_NO: the ordinary way must go
 * on. This is the loop of word_acquire, with as little code and memory as possible between the wake and the caller: all of it is
 * cold by then. */
INLINED enum fast_result fast_wait(const struct fast *f, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    struct fast_turn t = fast_turn_of(f, key, mode, deadline);
    if (!t.cell)
        return FAST_NO;
    struct fab_cond conds[2];
    uint64_t until, token;
    do {
        until = deadline;
        if (unlikely(!fast_queue(f, &t, conds, &until) || fab_wait_any(f->locker->seat.ep, conds, countof(conds), until)))
            return fast_leave(f, &t);
        __builtin_prefetch(t.lock, 1); /* together, not one after the other */
        __builtin_prefetch(&f->word.records[t.record], 1);
        __builtin_prefetch(f->word.lease);
        __builtin_prefetch(f->word.ended);
    } while (unlikely(!word_fast_take(&f->word, t.lock, t.record, t.index_serial, &token)));
    return fast_granted(f, t.cell, t.at, PAWL_EXCLUSIVE, t.record, record_serial(t.index_serial), token, out);
}

/* ---- release ---- */

/* The lock is free: the thread keeps the record for its next one. */
INLINED void fast_keep(const struct fast *f, const pawl_grant *g)
{
    hold_kept.session = f->session;
    hold_kept.record = g->hold;
    uint64_t serial = g->serial & FIELD_MAX(RECORD_SERIAL_BITS);
    __atomic_store_n(&f->word.records[g->hold], record_word(RECORD_SPARE, serial, 0), __ATOMIC_RELEASE);
}

/* Others wait for the lock, or the grant is not a hold. A function of its own, so that it takes no registers from the usual path.
 */
static __attribute__((noinline, unused)) HANDOVER bool fast_unlock_waited(const struct fast *f, const pawl_grant *g,
                                                                          struct word_lock *lock)
{
    if (!word_fast_unlock(&f->word, lock, g->hold, g->token, WORD_WAITERS))
        return false;
    fab_shm_wake_word(&lock->word, WORD_WATCH, 1); /* the next holder first */
    fast_keep(f, g);
    return true;
}

INLINED bool fast_unlock(const struct fast *f, const pawl_grant *g)
{
    struct hold_kept *kept = &hold_kept;
    if (unlikely(!f->cells || g->mode != PAWL_EXCLUSIVE || g->index > f->mask || g->hold >= f->records ||
                 g->serial >> RECORD_SERIAL_BITS != f->identity >> RECORD_SERIAL_BITS || kept->session || !kept->returns))
        return false;
    struct word_lock *lock = (struct word_lock *)(f->cells + (g->index << f->cell_shift) + f->lock_offset);
    if (unlikely(!word_fast_unlock(&f->word, lock, g->hold, g->token, 0)))
        return fast_unlock_waited(f, g, lock);
    fast_keep(f, g);
    return true;
}

#endif
