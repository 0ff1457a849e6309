/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/census.h"
#include "designs/core/design.h"

#include <errno.h>

struct count {
    const struct seat *seat;
    uint64_t index;
    bool for_good;
    census_stir_fn stir;
    uint64_t lease;
    struct census c;
};

/* Proof first, lease second: the proof is then that session's, not its successor's in the slot. */
static int shut_out(struct count *n, uint32_t slot, uint64_t lost)
{
    const struct seat *seat = n->seat;
    fab_addr at = space_slot_addr(seat->space, slot);
    uint64_t proof, lease;
    if (!n->for_good || slot == seat->me->slot || fab_is_shm(seat->ep))
        return 0;
    int rc = fab_read64(seat->ep, at + offsetof(struct slot, proof), &proof);
    if (!rc)
        rc = fab_read64(seat->ep, at + offsetof(struct slot, lease), &lease);
    if (rc || lease_state(lease) != SLOT_LOST || lease_epoch(lease) != lease_epoch(lost))
        return rc; /* its slot is free: it was shut out before that */
    rc = fab_fence(seat->ep, (uint32_t)(proof >> 32), (uint32_t)proof);
    n->c.unsure += rc == -EAGAIN;
    return rc == -EAGAIN ? 0 : rc;
}

/* 1: once is enough. */
static int count_dead(struct count *n, uint32_t slot, uint64_t lease)
{
    int rc = lease_state(lease) == SLOT_LOST ? shut_out(n, slot, lease) : 0;
    return rc ? rc : 1;
}

static int count_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct count *n = ctx;
    enum record_state state = record_state(word);
    if (record_index(word) != n->index || state == RECORD_WAIT)
        return 0;
    uint64_t lease = n->lease;
    int dead = slot == n->seat->me->slot ? lease_state(lease) != SLOT_LIVE : seat_peer_dead(n->seat, slot, &lease);
    if (dead)
        return dead < 0 ? dead : count_dead(n, slot, lease);
    if (state == RECORD_HELD_S) {
        n->c.readers++;
    } else if (state == RECORD_HELD_X) {
        n->c.writers++;
        n->c.slot = slot;
        n->c.record = record;
    } else {
        n->c.unsure++;
        if (n->stir)
            n->stir(n->seat, slot, record);
    }
    return 0;
}

static int count_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    struct count *n = ctx;
    bool live = lease_state(lease) == SLOT_LIVE, home = seat_records_home(n->seat);
    n->lease = lease;
    if (!live && (lease_state(lease) != SLOT_LOST || !n->for_good))
        return 0;
    int rc = 0;
    if (slot == n->seat->me->slot) {
        rc = seat_own_records(n->seat, count_record, n);
    } else if (!live && home) { /* what it held it no longer tells; whatever it was, it must not end it any more */
        rc = count_dead(n, slot, lease);
    } else {
        rc = seat_records(n->seat, slot, count_record, n);
        if (home && rc == -FAB_EUNKNOWN) { /* out of reach: it lives and may hold, or it will be lost */
            int dead = seat_peer_dead(n->seat, slot, &lease);
            n->c.unsure += !dead;
            rc = dead > 0 ? count_dead(n, slot, lease) : dead;
        }
    }
    return rc > 0 ? 0 : rc;
}

int census_take(const struct seat *seat, uint64_t index, bool for_good, census_stir_fn stir, struct census *out)
{
    struct count n = {.seat = seat, .index = index, .for_good = for_good, .stir = stir};
    int rc = seat_slots(seat, count_slot, &n);
    if (!rc)
        *out = n.c;
    return rc;
}

/* ---- sessions in the way ---- */

typedef int (*slot_concerned_fn)(void *ctx, uint32_t slot);

struct search {
    const struct seat *seat;
    uint64_t index;
    unsigned states;
    slot_concerned_fn fn;
    void *ctx;
};

static int is_concerned(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    const struct search *s = ctx;
    return record_index(word) == s->index && s->states & CENSUS_STATE(record_state(word));
}

static int search_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    const struct search *s = ctx;
    if (slot == s->seat->me->slot)
        return 0;
    int rc = seat_records(s->seat, slot, is_concerned, ctx);
    return rc > 0 ? s->fn(s->ctx, slot) : rc; /* one record is enough */
}

/* Calls fn for every other session that has a record of the lock in one of these states, until it returns non-zero. */
static int concerned(const struct seat *seat, uint64_t index, unsigned states, slot_concerned_fn fn, void *ctx)
{
    struct search s = {.seat = seat, .index = index, .states = states, .fn = fn, .ctx = ctx};
    return seat_slots(seat, search_slot, &s);
}

int census_look_after(const struct seat *seat, uint32_t slot)
{
    uint64_t lease;
    if (seat_damaged(seat, slot >= seat->space->slot_count))
        return -PAWL_ESEGMENT;
    int dead = slot == seat->me->slot ? 0 : seat_peer_dead(seat, slot, &lease);
    if (dead <= 0 || lease_state(lease) != SLOT_LOST)
        return dead < 0 ? dead : 0;
    int rc = seat->space->design->recover(seat, slot, lease_epoch(lease));
    return rc > 0 ? 0 : rc;
}

static int look_after(void *ctx, uint32_t slot)
{
    return census_look_after(ctx, slot);
}

int census_look_after_all(const struct seat *seat, uint64_t index, unsigned states)
{
    return concerned(seat, index, states, look_after, (void *)seat);
}

struct lives {
    const struct seat *seat;
    struct fab_cond *conds;
    unsigned count, max;
    bool dying;
};

static int add_life(void *ctx, uint32_t slot)
{
    struct lives *l = ctx;
    if (l->count == l->max)
        return 0;
    if (seat_life_cond(l->seat, slot, &l->conds[l->count]))
        l->count++;
    else
        l->dying = true;
    return 0;
}

unsigned census_life_conds(const struct seat *seat, uint64_t index, unsigned states, struct fab_cond *conds, unsigned max,
                           bool *dying)
{
    struct lives l = {.seat = seat, .conds = conds, .max = max};
    if (seat->ep->caps & FAB_KERNEL_LIFE)
        concerned(seat, index, states, add_life, &l);
    *dying = l.dying;
    return l.count;
}
