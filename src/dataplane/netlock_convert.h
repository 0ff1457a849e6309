/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program, holds that change their mode (pawl_convert; beyond the paper).
 *
 * A slot that is weakened is a reader's from then on: it counts as a writer no more, and readers behind it are granted as behind
 * any reader. A reader that wants to write is marked (UPGRADES) and counted among the writers, so that no reader is granted any
 * more. A lock has one such reader at a time, which a bit of EXCL says; another is told that both would wait for each other. The
 * reader has what it wants when all other readers have gone: every reader that leaves looks (SOLE). Waiting writers are behind it
 * in the queue. The mark and the bit stay for as long as it writes: a packet in flight may still walk over readers, this one among
 * them, and grant those behind.
 *
 * Conversions of one hold are numbered; the slot has the number of the latest, so that a late packet is known as such. */
#ifndef PAWL_DATAPLANE_NETLOCK_CONVERT_H
#define PAWL_DATAPLANE_NETLOCK_CONVERT_H

#include "dataplane/netlock_grant.h"

static inline uint32_t netlock_step_of(uint32_t flags)
{
    return flags >> NETLOCK_STEP_SHIFT & (NETLOCK_STEPS - 1);
}

static inline uint32_t netlock_with_step(uint32_t flags, uint32_t step)
{
    return (flags & ~((NETLOCK_STEPS - 1) << NETLOCK_STEP_SHIFT)) | (step & (NETLOCK_STEPS - 1)) << NETLOCK_STEP_SHIFT;
}

/* How far ahead of the slot's latest conversion this one is; NETLOCK_STEPS: it is of the past, or of another hold. */
static inline uint32_t netlock_ahead(const struct netlock_pass *p, uint32_t flags, bool own)
{
    uint32_t ahead = (p->step - netlock_step_of(flags)) & (NETLOCK_STEPS - 1);
    bool held = own && (flags & (NETLOCK_GRANTED | NETLOCK_ENDED)) == NETLOCK_GRANTED;
    return held && ahead < NETLOCK_STEPS / 2 ? ahead : NETLOCK_STEPS;
}

/* The hold's mode is this from now on, or has been. */
static inline uint32_t netlock_converted(struct netlock_pass *p, uint32_t flags, uint32_t mode)
{
    p->out |= NETLOCK_OUT_CONVERTED;
    p->out_ticket = p->ticket;
    p->out_mode = (uint8_t)mode;
    return netlock_with_step((flags & ~NETLOCK_SLOT_MODE) | mode, p->step);
}

/* A reader is not counted as a writer any more. */
static inline void netlock_begin_weakened(struct netlock_pass *p, bool strip)
{
    p->strip = strip;
    p->next = NETLOCK_OP_WEAKENED;
}

/* CONVERT, of the slot's flags. */
static inline uint32_t netlock_change_mode(struct netlock_pass *p, uint32_t flags, bool own, bool upgrading)
{
    uint32_t mode = flags & NETLOCK_SLOT_MODE, ahead = netlock_ahead(p, flags, own);
    if (ahead == NETLOCK_STEPS)
        return flags;
    if (mode == p->mode)
        return netlock_converted(p, flags, mode);
    if (p->mode == NETLOCK_SHARED) {
        if (!ahead)
            return flags;
        netlock_begin_weakened(p, flags & NETLOCK_UPGRADES);
        return netlock_converted(p, flags & ~NETLOCK_UPGRADES, NETLOCK_SHARED);
    }
    if (flags & NETLOCK_UPGRADES) {
        netlock_begin_sole(p); /* it asks again */
        return flags;
    }
    if (ahead && !upgrading) {
        p->next = NETLOCK_OP_UPGRADE;
        return flags;
    }
    p->out |= NETLOCK_OUT_DEADLOCK;
    return netlock_with_step(flags, p->step);
}

/* STAY: the conversion was given up. It may have been done before. */
static inline uint32_t netlock_stay(struct netlock_pass *p, uint32_t flags, bool own)
{
    if (netlock_ahead(p, flags, own) == NETLOCK_STEPS)
        return flags;
    if ((flags & NETLOCK_SLOT_MODE) == NETLOCK_EXCLUSIVE)
        return netlock_converted(p, flags, NETLOCK_EXCLUSIVE);
    p->out |= NETLOCK_OUT_DEADLOCK; /* the host knows why it gave up */
    if (flags & NETLOCK_UPGRADES)
        netlock_begin_weakened(p, true);
    return netlock_with_step(flags & ~NETLOCK_UPGRADES, p->step);
}

/* STRENGTHEN: no other reader is left, and since this one is counted none has come. Unless it has given up, or ended, it writes. */
static inline uint32_t netlock_strengthen(struct netlock_pass *p, uint32_t flags)
{
    const uint32_t ready = NETLOCK_SHARED | NETLOCK_GRANTED | NETLOCK_UPGRADES;
    if ((flags & (NETLOCK_SLOT_MODE | NETLOCK_GRANTED | NETLOCK_ENDED | NETLOCK_UPGRADES)) != ready ||
        netlock_step_of(flags) != p->step)
        return flags;
    return netlock_converted(p, flags, NETLOCK_EXCLUSIVE);
}

/* CONVERT, STAY, STRENGTHEN: change the flags of a hold's slot. */
static inline void netlock_op_convert(struct netlock_pass *p, const struct netlock_registers *r)
{
    struct netlock_ends e = netlock_look_at_ends(p, r);
    if (!netlock_in_queue(p, &e))
        return;
    bool upgrading = netlock_upgrading(r);
    uint32_t slot = netlock_queue_slot(p);
    bool own = netlock_is_own(p, r, slot, p->op != NETLOCK_OP_STRENGTHEN);
    uint32_t flags = (uint32_t)netlock_get(r, NETLOCK_FLAGS, slot);
    uint32_t after = p->op == NETLOCK_OP_CONVERT ? netlock_change_mode(p, flags, own, upgrading)
                     : p->op == NETLOCK_OP_STAY  ? netlock_stay(p, flags, own)
                                                 : netlock_strengthen(p, flags);
    netlock_set(r, NETLOCK_FLAGS, slot, flags, after);
    if (p->out & NETLOCK_OUT_CONVERTED)
        netlock_next_token(p, r);
}

/* UPGRADE, the second pass of a CONVERT: the reader is counted as a writer. If its slot has ended since, or another reader was
 * faster, it is not. */
static inline void netlock_op_upgrade(struct netlock_pass *p, const struct netlock_registers *r)
{
    struct netlock_ends e = netlock_look_at_ends(p, r);
    bool found = netlock_in_queue(p, &e);
    e.writer = netlock_ranked(p) ? NETLOCK_WRITER : e.writer;
    netlock_set_ends(p, r, &e);
    uint64_t writers = netlock_get(r, NETLOCK_EXCL, r->lock);
    bool upgrading = writers & NETLOCK_UPGRADING;
    netlock_set(r, NETLOCK_EXCL, r->lock, writers, upgrading ? writers : ((uint32_t)writers + 1) | NETLOCK_UPGRADING);
    uint32_t slot = netlock_queue_slot(p), flags = 0;
    bool can = false;
    if (found) {
        bool own = netlock_is_own(p, r, slot, false);
        flags = (uint32_t)netlock_get(r, NETLOCK_FLAGS, slot);
        uint32_t ahead = netlock_ahead(p, flags, own);
        can = ahead && ahead < NETLOCK_STEPS && (flags & NETLOCK_SLOT_MODE) == NETLOCK_SHARED;
    }
    if (can)
        netlock_set(r, NETLOCK_FLAGS, slot, flags, netlock_with_step(flags | (upgrading ? 0 : NETLOCK_UPGRADES), p->step));
    if (upgrading) /* another was counted before, this one was not */
        p->out |= can ? NETLOCK_OUT_DEADLOCK : 0;
    else if (can)
        netlock_begin_sole(p);
    else
        netlock_begin_weakened(p, true);
}

/* WEAKENED: a writer less is in the queue, as if one had gone. */
static inline void netlock_op_weakened(struct netlock_pass *p, const struct netlock_registers *r)
{
    struct netlock_ends e = netlock_look_at_ends(p, r);
    if (netlock_ranked(p) || netlock_after(p->ticket, p->size) == e.tail)
        e.writer = 0;
    p->ticket = e.head;
    p->mode = NETLOCK_EXCLUSIVE;
    netlock_set_ends(p, r, &e);
    bool upgrading = netlock_uncount_writer(p, r, 1);
    if (!e.empty)
        netlock_look(p, r, true, upgrading);
    if (netlock_ranked(p))
        p->next = NETLOCK_OP_PULL; /* the queue has only requests that can be granted at once */
}

/* SOLE, from slot to slot: is the reader that wants to write the only one? Then it does. */
static inline void netlock_op_sole(struct netlock_pass *p, const struct netlock_registers *r)
{
    struct netlock_ends e = netlock_look_at_ends(p, r);
    if (!e.empty && !netlock_in_queue(p, &e) && p->ticket != e.tail) {
        p->ticket = e.head;
        p->mark = NETLOCK_NO_TICKET;
    }
    bool end = e.empty || p->ticket == e.tail;
    uint32_t slot = netlock_queue_slot(p);
    if (!end && slot == NETLOCK_NO_TICKET)
        return;
    uint32_t flags = end ? NETLOCK_ENDED : (uint32_t)netlock_get(r, NETLOCK_FLAGS, slot);
    bool granted = flags & NETLOCK_GRANTED, ended = flags & NETLOCK_ENDED;
    if (granted && !ended && !(flags & NETLOCK_UPGRADES) && !MISTAKE(p->mistakes, NETLOCK_MISTAKE_UPGRADE))
        return; /* that reader will look when it leaves */
    if (end || (!granted && !ended && (flags & NETLOCK_SLOT_MODE) == NETLOCK_EXCLUSIVE)) {
        p->next = p->mark != NETLOCK_NO_TICKET ? NETLOCK_OP_STRENGTHEN : NETLOCK_OP_NONE;
        p->ticket = p->mark;
        return;
    }
    /* Waiting readers are passed over: a request behind them may be granted already, while another packet is on its way to them. */
    if (flags & NETLOCK_UPGRADES && !ended) {
        p->mark = p->ticket;
        p->step = (uint16_t)netlock_step_of(flags);
    }
    p->next = NETLOCK_OP_SOLE;
    p->ticket = netlock_after(p->ticket, p->size);
}

#endif
