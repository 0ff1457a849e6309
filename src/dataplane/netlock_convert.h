/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program, the part about holds that change their mode (pawl_convert; beyond the paper). Included by netlock.h.
 *
 * A slot that is weakened is a reader's from then on: it counts as a writer no more, and readers behind it are granted as behind
 * any reader. One that wants to write is marked (UPGRADES) and counted among the writers, so that no reader is granted any more;
 * there is one such of a lock at a time, which a bit of `excl` says, and another is told that both would wait for each other. It
 * has what it wants when all readers but itself have gone: whoever leaves looks (SOLE). Writers that wait are behind it in the
 * queue. The mark and the bit stay for as long as it writes: a packet may still be on its way that walks over readers, this one
 * among them, and grants those behind.
 *
 * Conversions of one hold are numbered; the slot has the number of the latest, so that one that comes late is known. */
#ifndef PAWL_DATAPLANE_NETLOCK_CONVERT_H
#define PAWL_DATAPLANE_NETLOCK_CONVERT_H

#define NETLOCK_UPGRADES 16u /* of a slot: granted shared, and wants to write, or does */
#define NETLOCK_STEP_SHIFT 6
#define NETLOCK_UPGRADING 0x80000000u /* in `excl`: one of the readers wants to write, or does */

static inline uint32_t netlock_step_of(uint32_t flags)
{
    return flags >> NETLOCK_STEP_SHIFT & (NETLOCK_STEPS - 1);
}

static inline uint32_t netlock_with_step(uint32_t flags, uint32_t step)
{
    return (flags & ~((NETLOCK_STEPS - 1) << NETLOCK_STEP_SHIFT)) | (step & (NETLOCK_STEPS - 1)) << NETLOCK_STEP_SHIFT;
}

/* How far ahead of the slot's latest conversion this one is; NETLOCK_STEPS: it is of the past, or of another hold. */
static inline uint32_t netlock_ahead(const struct netlock_pass *p, uint32_t flags)
{
    uint32_t ahead = (p->step - netlock_step_of(flags)) & (NETLOCK_STEPS - 1);
    bool held = p->found && (flags & (NETLOCK_GRANTED | NETLOCK_ENDED)) == NETLOCK_GRANTED;
    return held && ahead < NETLOCK_STEPS / 2 ? ahead : NETLOCK_STEPS;
}

/* Its mode is this from now on, or has been. */
static inline uint32_t netlock_converted(struct netlock_pass *p, uint32_t flags, uint32_t mode, uint32_t step)
{
    p->convert = true;
    p->out_ticket = p->ticket;
    p->out_mode = (uint8_t)mode;
    p->step = (uint16_t)step;
    return netlock_with_step((flags & ~NETLOCK_SLOT_MODE) | mode, step);
}

static inline void netlock_begin_sole(struct netlock_pass *p)
{
    p->next = NETLOCK_OP_SOLE;
    p->mark = p->ticket = NETLOCK_NO_TICKET; /* from the head on */
}

/* CONVERT. */
static inline uint32_t netlock_change_mode(struct netlock_pass *p, uint32_t flags)
{
    uint32_t mode = flags & NETLOCK_SLOT_MODE, ahead = netlock_ahead(p, flags);
    if (ahead == NETLOCK_STEPS)
        return flags;
    if (mode == p->mode)
        return netlock_converted(p, flags, mode, p->step);
    if (p->mode == NETLOCK_SHARED) {
        if (!ahead)
            return flags;
        p->next = NETLOCK_OP_WEAKENED;
        p->strip = flags & NETLOCK_UPGRADES;
        return netlock_converted(p, flags & ~NETLOCK_UPGRADES, NETLOCK_SHARED, p->step);
    }
    if (flags & NETLOCK_UPGRADES) {
        netlock_begin_sole(p); /* it asks again */
        return flags;
    }
    if (ahead && !p->upgrading) {
        p->next = NETLOCK_OP_UPGRADE;
        return flags;
    }
    p->out |= NETLOCK_OUT_DEADLOCK;
    return netlock_with_step(flags, p->step);
}

/* The second pass of that: it is counted. If the slot has ended since, or another was faster, it is not. */
static inline uint32_t netlock_upgrade(struct netlock_pass *p, uint32_t flags)
{
    uint32_t ahead = netlock_ahead(p, flags);
    bool can = ahead && ahead < NETLOCK_STEPS && (flags & NETLOCK_SLOT_MODE) == NETLOCK_SHARED;
    if (p->upgrading) { /* before: nothing was counted */
        p->out |= can ? NETLOCK_OUT_DEADLOCK : 0;
        return can ? netlock_with_step(flags, p->step) : flags;
    }
    if (!can) {
        p->strip = true;
        p->next = NETLOCK_OP_WEAKENED;
        return flags;
    }
    netlock_begin_sole(p);
    return netlock_with_step(flags | NETLOCK_UPGRADES, p->step);
}

/* STAY: given up. It may have become true before. */
static inline uint32_t netlock_stay(struct netlock_pass *p, uint32_t flags)
{
    if (netlock_ahead(p, flags) == NETLOCK_STEPS)
        return flags;
    if ((flags & NETLOCK_SLOT_MODE) == NETLOCK_EXCLUSIVE)
        return netlock_converted(p, flags, NETLOCK_EXCLUSIVE, p->step);
    p->out |= NETLOCK_OUT_DEADLOCK; /* what it says is up to the host, which knows why */
    if (flags & NETLOCK_UPGRADES) {
        p->strip = true;
        p->next = NETLOCK_OP_WEAKENED;
    }
    return netlock_with_step(flags & ~NETLOCK_UPGRADES, p->step);
}

/* SOLE, from slot to slot: no reader but the one that wants to write? */
static inline void netlock_end_sole(struct netlock_pass *p)
{
    p->next = p->mark != NETLOCK_NO_TICKET ? NETLOCK_OP_STRENGTHEN : NETLOCK_OP_NONE;
    p->ticket = p->mark;
}

static inline void netlock_sole(struct netlock_pass *p, uint32_t flags)
{
    bool granted = flags & NETLOCK_GRANTED, ended = flags & NETLOCK_ENDED;
    if (granted && !ended && !(flags & NETLOCK_UPGRADES) && !MISTAKE(p->bust, NETLOCK_BUST_UPGRADE))
        return; /* it will look when it leaves */
    if (!granted && !ended && (flags & NETLOCK_SLOT_MODE) == NETLOCK_EXCLUSIVE) {
        netlock_end_sole(p);
        return;
    }
    /* Readers that wait: whoever came behind them may be granted already, while another packet is on its way to them. */
    if (flags & NETLOCK_UPGRADES && !ended) {
        p->mark = p->ticket;
        p->step = (uint16_t)netlock_step_of(flags);
    }
    p->next = NETLOCK_OP_SOLE;
    p->ticket = netlock_after(p->ticket, p->size);
}

/* None, and since it is counted none has come: unless it has given up, or ended, it is a writer. */
static inline uint32_t netlock_strengthen(struct netlock_pass *p, uint32_t flags)
{
    const uint32_t ready = NETLOCK_SHARED | NETLOCK_GRANTED | NETLOCK_UPGRADES;
    if ((flags & (NETLOCK_SLOT_MODE | NETLOCK_GRANTED | NETLOCK_ENDED | NETLOCK_UPGRADES)) != ready ||
        netlock_step_of(flags) != p->step)
        return flags;
    return netlock_converted(p, flags, NETLOCK_EXCLUSIVE, p->step);
}

/* Counting all of that: the register of writers. */
static inline uint32_t netlock_count_conversion(struct netlock_pass *p, uint32_t writers)
{
    if (p->op == NETLOCK_OP_UPGRADE && !p->upgrading)
        return (writers + 1) | NETLOCK_UPGRADING;
    if (p->op == NETLOCK_OP_WEAKENED)
        writers--;
    if (p->strip) {
        writers &= ~NETLOCK_UPGRADING;
        p->strip = p->upgrading = false;
    }
    return writers;
}

#endif
