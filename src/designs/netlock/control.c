/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane of the switch, time: it ends the slots of hosts whose lease has ended, retransmits, and finishes the passes of
 * packets that needed too many. It works between packets, on registers. */
#include "dataplane/netlock_packets.h"
#include "designs/netlock/allocate.h"
#include "designs/netlock/switch.h"

#include <errno.h>

#define CONTROL_SHARE 8u /* it looks at everything eight times in a lease */
#define RESTLESS_AT_ONCE OUTBOX_PACKETS
#define LOOK_AT_ONCE 4096u /* queues of the kernel's that one look sees */
#define PATIENCE 16u       /* if there are more queues, the others follow after this fraction of the retry time */

/* ---- leases ---- */

/* One slot ends, wherever it is in its queue (pitfall 3). */
static void end_slot(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, bool waiting, uint64_t now,
                     struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    uint32_t place = (uint32_t)plane_get(plane, NETLOCK_PLACE, slot);
    struct netlock_pass pass = {.op = NETLOCK_OP_RELEASE,
                                .machine = (uint16_t)(place >> 16),
                                .port = (uint16_t)place,
                                .nonce = plane_get(plane, NETLOCK_NONCE, slot),
                                .ticket = ticket};
    w->counts.expired++;
    if (waiting) {
        plane_shut(plane, lock);
        if (plane_get(plane, NETLOCK_PLACE, slot) == place && plane_get(plane, NETLOCK_NONCE, slot) == pass.nonce)
            plane_set(plane, NETLOCK_FLAGS, slot, plane_get(plane, NETLOCK_FLAGS, slot) | NETLOCK_ENDED);
        plane_reopen(plane, lock);
        pass.op = NETLOCK_OP_PULL;
    }
    switch_run(w, lock, &pass, now, out);
}

/* Queue 0 is the lock's, others the priorities'. It comes last: when `fn` ends a slot of any queue, a waiter may move to it. */
void switch_each_slot(struct nl_switch *w, uint32_t lock, switch_slot_fn fn, void *ctx, uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    const struct plane_region r = plane_region(plane, lock);
    for (uint32_t queues = r.levels + 1u; queues; queues--) {
        uint32_t queue = queues - 1;
        uint64_t ends = queue ? plane_get(plane, NETLOCK_QUEUES, lock * NETLOCK_PRIORITIES + queue - 1) : switch_ends(w, lock);
        uint32_t size = queue ? r.wait_size : r.size, left = r.left + (queue ? r.size + (queue - 1) * r.wait_size : 0);
        uint32_t ticket = switch_head(ends), count = netlock_between(ticket, switch_tail(ends), size);
        for (uint32_t i = 0; i < count; i++, ticket = netlock_after(ticket, size))
            fn(w, lock, left + (ticket & 0xffffu), ticket, queue != 0, ctx, now, out);
    }
}

static void end_if_of(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, bool waiting, void *ctx, uint64_t now,
                      struct outbox *out)
{
    const struct plane *plane = switch_plane(w);
    const uint16_t *machine = ctx;
    if (plane_get(plane, NETLOCK_PLACE, slot) >> 16 == *machine && !(plane_get(plane, NETLOCK_FLAGS, slot) & NETLOCK_ENDED))
        end_slot(w, lock, slot, ticket, waiting, now, out);
}

/* The host of this waiter has requested anew under another name. When the old request is granted the host gives it back, but until
 * then it may block another waiter. */
static void end_if_abandoned(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, bool waiting, void *ctx,
                             uint64_t now, struct outbox *out)
{
    const struct plane *plane = switch_plane(w);
    uint64_t nonce = plane_get(plane, NETLOCK_NONCE, slot);
    uint32_t machine = (uint32_t)(plane_get(plane, NETLOCK_PLACE, slot) >> 16);
    uint32_t request = netlock_request_cell((uint16_t)machine, nonce, plane->config.stride, plane->config.requests);
    (void)ctx;
    if (!(plane_get(plane, NETLOCK_FLAGS, slot) & (NETLOCK_GRANTED | NETLOCK_ENDED)) &&
        netlock_newer(plane_get(plane, NETLOCK_SEEN, request), nonce))
        end_slot(w, lock, slot, ticket, waiting, now, out);
}

void switch_end_abandoned(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out)
{
    switch_each_slot(w, lock, end_if_abandoned, NULL, now, out);
}

static void each_lock(struct nl_switch *w, switch_slot_fn fn, void *ctx, uint64_t now, struct outbox *out)
{
    const struct plane *plane = switch_plane(w);
    for (uint32_t lock = 0, seen = 0; lock < plane->config.locks && seen < plane->used; lock++)
        if (switch_control(w, lock)->state != CONTROL_NONE) {
            seen++;
            switch_each_slot(w, lock, fn, ctx, now, out);
        }
}

bool switch_bar(struct nl_switch *w, struct netlock_machine *m, uint64_t until)
{
    if (!__atomic_compare_exchange_n(&m->until_ns, &until, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return false;
    m->live = false;
    plane_grace(switch_plane(w));
    return true;
}

void switch_end_machine(struct nl_switch *w, uint16_t machine, uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    each_lock(w, end_if_of, &machine, now, out);
    for (uint32_t i = 0; i < plane->config.stride; i++) /* another life numbers its requests anew */
        plane_set(plane, NETLOCK_SEEN, (machine * plane->config.stride + i) % plane->config.requests, 0);
}

/* Whether the slot's ticket was granted long ago, and has not ended. */
static bool is_old(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, uint64_t now)
{
    const struct plane *plane = switch_plane(w);
    uint32_t flags = (uint32_t)plane_get(plane, NETLOCK_FLAGS, slot);
    uint32_t age = plane_now(now) - (uint32_t)plane_get(plane, NETLOCK_SINCE, slot);
    uint64_t ends = switch_ends(w, lock);
    return (flags & (NETLOCK_GRANTED | NETLOCK_ENDED)) == NETLOCK_GRANTED && age >= plane_now(w->config.lease_ns / 2) &&
           age < UINT32_MAX / 2 && /* else it was granted after `now` was read */
           netlock_within(ticket, switch_head(ends), switch_tail(ends), plane_region(plane, lock).size);
}

static void say_granted(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    uint32_t flags = (uint32_t)plane_get(plane, NETLOCK_FLAGS, slot);
    uint32_t place = (uint32_t)plane_get(plane, NETLOCK_PLACE, slot);
    struct netlock_packet *p = netlock_packet_new(out, &w->config, NETLOCK_GRANT, w->term, switch_place(w),
                                                  (struct place){(uint16_t)(place >> 16), PORT_POOL}); /* its process may be gone */
    if (!p)
        return;
    uint64_t token = plane_get(plane, NETLOCK_TOKEN, lock) + 1;
    plane_set(plane, NETLOCK_TOKEN, lock, token);
    plane_set(plane, NETLOCK_SINCE, slot, plane_now(now));
    p->head.index = plane_index(plane, lock);
    p->head.nonce = plane_get(plane, NETLOCK_NONCE, slot);
    p->mode = (uint8_t)(flags & NETLOCK_SLOT_MODE);
    p->ticket = ticket;
    p->token = token;
}

/* Whether the slot's host has no lease here, though the slot has not ended: a server pushed the request after the lease had ended.
 * The host takes no grant of it, also if it comes back: its requests have other names in the next lease. It may never come back. */
static bool is_lost(struct nl_switch *w, uint32_t slot)
{
    const struct plane *plane = switch_plane(w);
    return !switch_machine(w, (uint16_t)(plane_get(plane, NETLOCK_PLACE, slot) >> 16))->live &&
           !(plane_get(plane, NETLOCK_FLAGS, slot) & NETLOCK_ENDED);
}

/* Repeats the grant of a hold that its host may not know of (the grant and the host's answer were lost). If the host does not want
 * it, it gives it back (pitfall 4). */
static void remind(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, bool waiting, void *ctx, uint64_t now,
                   struct outbox *out)
{
    (void)ctx;
    if (is_lost(w, slot)) {
        end_slot(w, lock, slot, ticket, waiting, now, out);
        return;
    }
    if (waiting || !is_old(w, lock, slot, ticket, now))
        return;
    plane_shut(switch_plane(w), lock);
    if (is_old(w, lock, slot, ticket, now)) /* still */
        say_granted(w, lock, slot, ticket, now, out);
    plane_reopen(switch_plane(w), lock);
}

/* ---- policies ---- */

int netlock_set_quota(void *state, uint16_t tenant, uint64_t per_second, uint32_t burst)
{
    struct nl_switch *w = state;
    /* The meter counts requests per 2^20 of its microseconds, of 1,024 ns each. */
    uint64_t rate = per_second > UINT32_MAX ? UINT64_MAX : (per_second << 30) / NS_PER_S;
    if (rate > UINT32_MAX || burst > UINT32_MAX >> 10 || (per_second && (!burst || !rate)))
        return -EINVAL;
    return plane_quota(switch_plane(w), tenant, &(struct netlock_quota){.rate = (uint32_t)rate, .burst = burst});
}

/* ---- time ---- */

/* Counts the writers in the queue anew: a packet that was left unfinished may not have counted them. */
static void recount(struct nl_switch *w, uint32_t lock)
{
    struct plane *plane = switch_plane(w);
    const struct plane_region r = plane_region(plane, lock);
    uint32_t writers = 0;
    plane_shut(plane, lock);
    uint64_t ends = switch_ends(w, lock);
    for (uint32_t ticket = switch_head(ends), n = netlock_between(ticket, switch_tail(ends), r.size); n;
         n--, ticket = netlock_after(ticket, r.size)) {
        uint32_t flags = (uint32_t)plane_get(plane, NETLOCK_FLAGS, r.left + (ticket & 0xffffu));
        writers += (flags & (NETLOCK_SLOT_MODE | NETLOCK_ENDED)) == NETLOCK_EXCLUSIVE;
        if ((flags & (NETLOCK_UPGRADES | NETLOCK_ENDED)) == NETLOCK_UPGRADES)
            writers = (writers + ((flags & NETLOCK_SLOT_MODE) == NETLOCK_SHARED)) | NETLOCK_UPGRADING;
    }
    plane_set(plane, NETLOCK_EXCL, lock, writers);
    plane_reopen(plane, lock);
}

/* Finishes the work of packets that would have taken too many passes. */
static void finish(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    const struct plane *plane = switch_plane(w);
    if (plane->counts.unfinished == w->unfinished)
        return;
    w->unfinished = plane->counts.unfinished;
    for (uint32_t lock = 0; lock < plane->config.locks; lock++)
        if (switch_control(w, lock)->state != CONTROL_NONE) {
            recount(w, lock);
            uint64_t ends = switch_ends(w, lock);
            struct netlock_pass pass = {.op = NETLOCK_OP_WALK, .mode = NETLOCK_EXCLUSIVE, .ticket = switch_head(ends)};
            switch_run(w, lock, &pass, now, out);
            pass = (struct netlock_pass){.op = NETLOCK_OP_PULL};
            switch_run(w, lock, &pass, now, out);
            pass = (struct netlock_pass){.op = NETLOCK_OP_SOLE, .ticket = NETLOCK_NO_TICKET, .mark = NETLOCK_NO_TICKET};
            switch_run(w, lock, &pass, now, out);
        }
}

static void look_at_leases(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    for (uint16_t i = 1; i <= w->config.machines; i++) {
        struct netlock_machine *m = switch_machine(w, i);
        uint64_t until = __atomic_load_n(&m->until_ns, __ATOMIC_ACQUIRE);
        if (m->live && now >= until && switch_bar(w, m, until))
            switch_end_machine(w, i, now, out);
    }
    each_lock(w, remind, NULL, now, out);
}

/* Visits a bounded number of locks at a time: if a server is gone, all of its locks that were to move in retransmit. */
static void look_at_restless(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    const struct plane *plane = switch_plane(w);
    for (unsigned n = 0; plane->in_kernel && n < LOOK_AT_ONCE; n++) { /* the control process does not see packets that overflow */
        uint32_t lock = w->over_at = (w->over_at + 1) % plane->config.locks;
        if (switch_control(w, lock)->state == CONTROL_LIVE && switch_has_others(w, lock))
            switch_set_restless(w, lock, true);
    }
    if (now < w->restless_ns)
        return;
    uint32_t link = w->restless_at && switch_control(w, w->restless_at - 1)->restless ? w->restless_at : w->restless;
    for (unsigned n = 0; n < RESTLESS_AT_ONCE && link; n++) {
        uint32_t lock = link - 1;
        link = switch_control(w, lock)->next;
        switch_give(w, lock, now, out);
        if (switch_control(w, lock)->state == CONTROL_LIVE && !switch_has_others(w, lock))
            switch_set_restless(w, lock, false);
        else
            switch_say_again(w, lock, now, out);
    }
    w->restless_at = link;
    w->restless_ns = link ? now + w->config.retry_ns / PATIENCE : now; /* the servers have enough to answer */
}

uint64_t netlock_switch_tick(void *state, uint64_t now, struct outbox *out)
{
    struct nl_switch *w = state;
    uint64_t beat = switch_beat(w, now, out);
    if (!switch_is_active(w, now))
        return beat;
    if (w->control_ns <= now) {
        w->control_ns = now + w->config.lease_ns / CONTROL_SHARE;
        look_at_leases(w, now, out);
    }
    finish(w, now, out);
    look_at_restless(w, now, out);
    uint64_t next = switch_place_locks(w, now, out);
    return min_u64(min_u64(w->control_ns, min_u64(next, beat)), now + w->config.retry_ns);
}
