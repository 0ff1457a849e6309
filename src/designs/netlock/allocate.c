/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/netlock/allocate.h"
#include "designs/netlock/server.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdlib.h>

/* ---- Algorithm 3 ---- */

/* By rate per slot, the larger first; without division. */
static int by_value(const void *a, const void *b)
{
    const struct demand *x = a, *y = b;
    uint64_t left = (uint64_t)x->rate * y->contention, right = (uint64_t)y->rate * x->contention;
    if (left != right)
        return left > right ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static uint64_t fill(struct demand *d, uint64_t count, const struct netlock_share *share)
{
    const struct plane_config c = {.pipes = share->pipes, .homes = share->homes};
    uint64_t left[NETLOCK_PIPES_MAX], used = 0;
    for (unsigned i = 0; i < NETLOCK_PIPES_MAX; i++)
        left[i] = share->slots / max_u64(share->pipes, 1);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *room = &left[plane_pipe(&c, d[i].index)];
        d[i].slots = (uint32_t)min_u64(min_u64(d[i].contention, NETLOCK_SIZE_MAX), *room);
        *room -= d[i].slots;
        used += d[i].slots;
    }
    return used;
}

/* Locks without requests are worth nothing and are not sorted: in a large memory most locks are such. */
static uint64_t part_wanted(struct demand *demands, uint64_t count)
{
    uint64_t wanted = 0;
    for (uint64_t i = 0; i < count; i++)
        if (demands[i].rate) {
            struct demand d = demands[wanted];
            demands[wanted++] = demands[i];
            demands[i] = d;
        }
    return wanted;
}

uint64_t netlock_allocate(struct demand *demands, uint64_t count, const struct netlock_share *share)
{
    qsort(demands, part_wanted(demands, count), sizeof *demands, by_value);
    return fill(demands, count, share);
}

uint64_t netlock_allocate_random(struct demand *demands, uint64_t count, const struct netlock_share *share, uint64_t seed)
{
    for (uint64_t i = count; i > 1; i--) {
        uint64_t j = mix64(seed + i) % i;
        struct demand d = demands[i - 1];
        demands[i - 1] = demands[j];
        demands[j] = d;
    }
    return fill(demands, count, share);
}

uint64_t netlock_servers_needed(const struct demand *demands, uint64_t count, uint64_t per_server)
{
    uint64_t left = 0;
    for (uint64_t i = 0; i < count; i++)
        if (demands[i].contention)
            left += demands[i].rate - (uint64_t)demands[i].rate * demands[i].slots / demands[i].contention;
    return (left + per_server - 1) / per_server;
}

/* ---- what the servers know ---- */

#define MOVES_NS (20 * NS_PER_US) /* between two checks for locks to report or to move */
#define REPORTS 8u                /* packets at most */

void server_touch(struct server *s, struct lock *l)
{
    if (!l->arrivals && s->touched < SERVER_TOUCHED_MAX)
        s->touched_lock[s->touched++] = (uint32_t)server_lock_index(s, l);
    l->arrivals++;
}

static struct lock *touched_lock(struct server *s, uint32_t i)
{
    return server_lock(s, s->touched_lock[i]);
}

/* Takes up to `max` locks off the list of those with new requests. */
static uint32_t collect(struct server *s, struct netlock_demand *out, uint32_t max)
{
    uint32_t count = 0;
    while (s->touched && count < max) {
        struct lock *l = touched_lock(s, --s->touched);
        if (l->place == LOCK_OWNED && server_owns(s, server_lock_index(s, l)))
            out[count++] = (struct netlock_demand){server_lock_index(s, l), l->arrivals, (uint32_t)max_u64(l->peak, 1)};
        l->arrivals = 0;
        l->peak = l->holders + l->waiters;
    }
    return count;
}

void server_report(struct server *s, uint64_t now, struct outbox *out)
{
    for (unsigned n = 0; n < REPORTS && s->touched; n++) {
        struct netlock_demand demands[NETLOCK_REPORT_MAX];
        uint32_t count = collect(s, demands, NETLOCK_REPORT_MAX);
        struct netlock_packet *p = outbox_add(out, (uint32_t)(sizeof *p + count * sizeof *demands));
        if (!p)
            break; /* as if the packet were lost: a hot lock will be reported again */
        netlock_head(p, s->config.space, NETLOCK_REPORT, s->life, (struct place){s->machine, PORT_SERVER}, server_switch(s));
        p->life = s->switch_life;
        p->count = count;
        memcpy(p + 1, demands, count * sizeof *demands);
    }
    s->report_ns = now + (s->touched ? MOVES_NS : netlock_measure_ns(&s->config));
}

/* ---- as the workload moves ---- */

#define MOVES_AT_ONCE 32u /* that one check begins: as many as the outbox has room for */
#define KEEP_NUM 5u       /* a lock stays if it is worth four fifths of the worst that would take its place */
#define KEEP_DEN 4u
#define WAIT_SIZE 16u       /* of each priority's queue */
#define SLIDES_AT_ONCE 256u /* queues that one defragmentation moves, */
#define SLIDE_LOOKS 4096u   /* and looks at: with a hundred thousand locks it took a quarter of the switch's time */
#define FILL_SIZE 8u        /* slots of a lock without requests so far, if there is that much room for all */
#define FILL_PACKETS 8u     /* of TAKE_MANY that one look sends */
/* Locks that are on their way in at once. Those whose packets a socket has no room for are asked for one by one. */
#define FILL_FLYING (16u * NETLOCK_MANY_MAX)

void switch_on_report(struct nl_switch *w, const struct netlock_packet *p, const struct netlock_demand *demands)
{
    for (uint32_t i = 0; i < p->count && w->reported < w->reports_max; i++) {
        const struct netlock_demand *d = &demands[i];
        if (d->index >= w->config.locks || !d->rate || !d->contention || plane_match(switch_plane(w), d->index) != PLANE_NO_LOCK)
            continue;
        switch_reports(w)[w->reported++] = (struct demand){.index = d->index, .rate = d->rate, .contention = d->contention};
    }
}

static uint32_t wait_size_of(const struct nl_switch *w)
{
    return w->policy.levels ? WAIT_SIZE : 0;
}

/* Contention was measured over a short time in the past, so a lock gets half as many slots again, and one more. */
static uint32_t with_spare(uint32_t contention)
{
    return contention + (contention >> 1) + 1;
}

/* The demands for the next plan: those that servers reported, and those of locks in the switch since the latest measurement. */
static void measure(struct nl_switch *w)
{
    struct plane *plane = switch_plane(w);
    struct demand *plan = switch_plan(w);
    uint32_t count = w->reported;
    memcpy(plan, switch_reports(w), count * sizeof *plan);
    for (uint32_t i = 0; i < count; i++)
        plan[i].contention = w->policy.slots_each ? w->policy.slots_each : with_spare(plan[i].contention);
    w->reported = 0;
    for (uint32_t lock = 0, seen = 0; lock < plane->config.locks && seen < plane->used; lock++) {
        struct control *c = switch_control(w, lock);
        seen += c->state != CONTROL_NONE;
        if (c->state != CONTROL_LIVE)
            continue;
        uint32_t arrivals = (uint32_t)plane_get(plane, NETLOCK_ARRIVALS, lock);
        c->rate = arrivals - c->arrivals;
        c->arrivals = arrivals;
        c->old_peak = c->peak;
        if (c->rate || c->peak) {
            c->peak = (uint32_t)plane_get(plane, NETLOCK_PEAK, lock);
            plane_set(plane, NETLOCK_PEAK, lock, 0);
        }
        uint32_t size = plane_region(plane, lock).size, peak = (uint32_t)max_u64(max_u64(c->peak, c->old_peak), 1);
        /* Its slots are enough, unless the queue was full. OVER alone does not show that: it also stays set while the server has
         * not yet said LAST. */
        bool crowded = plane_get(plane, NETLOCK_ENDS, lock) & NETLOCK_OVER && max_u64(c->peak, c->old_peak) >= size;
        uint32_t contention = with_spare(crowded ? 2 * size : peak);
        if (w->policy.slots_each || (!crowded && contention > size))
            contention = size;
        plan[count++] = (struct demand){.index = plane_index(plane, lock),
                                        .rate = (uint32_t)min_u64((uint64_t)c->rate * KEEP_NUM / KEEP_DEN, UINT32_MAX),
                                        .contention = contention,
                                        .in = lock + 1};
    }
    w->planned = count;
}

/* Only a queue that overflowed grows. If room is short, a queue that needs half of its slots or less shrinks. */
static void resize(struct nl_switch *w, const struct demand *d)
{
    struct plane *plane = switch_plane(w);
    uint32_t lock = d->in - 1, size = plane_region(plane, lock).size;
    if (d->slots && (d->slots > size || (w->tight && d->slots * 2 <= size)) && plane_index(plane, lock) == d->index &&
        switch_control(w, lock)->state == CONTROL_LIVE)
        plane_resize(plane, lock, (uint16_t)d->slots); /* if its queue is not empty, at the next look */
}

/* Locks without slots in the plan move out, and locks with new slots move in as room allows; a few at a time. */
static void follow_plan(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    const struct demand *plan = switch_plan(w);
    unsigned moves = 0;
    for (; w->leaving > 0 && moves < MOVES_AT_ONCE; w->leaving--) {
        const struct demand *d = &plan[w->leaving - 1];
        if (d->in && !d->slots)
            moves += !switch_move_out(w, d->index, now, out);
    }
    for (; w->coming < w->planned && moves < MOVES_AT_ONCE; w->coming++) {
        const struct demand *d = &plan[w->coming];
        if (d->in)
            resize(w, d);
        else if (d->slots)
            moves += !switch_move_in(w, d->index, d->slots, wait_size_of(w), now, out);
    }
}

/* Regions of empty queues move left to close gaps. They may, because positions in a queue are relative to its left end. */
static void defragment(struct nl_switch *w)
{
    struct plane *plane = switch_plane(w);
    uint32_t slides = 0, looks = (uint32_t)min_u64(plane->config.locks, SLIDE_LOOKS);
    for (uint32_t n = 0; n < looks && slides < SLIDES_AT_ONCE && plane->free_slot < plane->config.slots; n++) {
        uint32_t lock = w->slide_next = (w->slide_next + 1) % plane->config.locks;
        if (switch_control(w, lock)->state == CONTROL_LIVE)
            slides += plane_slide(plane, lock);
    }
}

static void allocate(struct nl_switch *w)
{
    struct demand *plan = switch_plan(w);
    uint64_t slots = switch_plane(w)->config.slots, used;
    measure(w);
    if (wait_size_of(w)) /* each lock takes its waiting queues, too */
        slots /= 1 + w->policy.levels * WAIT_SIZE;
    const struct netlock_share share = {slots, switch_plane(w)->config.pipes, switch_plane(w)->config.homes};
    if (w->policy.alloc_random) {
        /* As many locks as have room, whether they are requested or not: most of them are not requested at all. */
        for (uint32_t i = 0; i < w->planned; i++)
            if (mix64(plan[i].index + w->term) % w->config.locks >= slots)
                plan[i].contention = 0;
        used = netlock_allocate_random(plan, w->planned, &share, w->term);
    } else {
        used = netlock_allocate(plan, w->planned, &share);
    }
    w->tight = used >= slots;
    defragment(w);
    w->leaving = w->planned;
    w->coming = 0;
}

/* For trials: locks move in and out at random, with queues that overflow. */
static void churn(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    uint64_t dice = w->dice = mix64(w->dice + 1);
    uint64_t index = dice % w->config.locks;
    if (plane_match(switch_plane(w), index) == PLANE_NO_LOCK)
        switch_move_in(w, index, 1 + (uint32_t)(dice >> 40) % 4, wait_size_of(w) ? 1 + (uint32_t)(dice >> 44) % 4 : 0, now, out);
    else if (dice >> 50 & 1)
        switch_move_out(w, index, now, out);
    w->churn_ns = now + w->config.retry_ns * (1 + (dice >> 52) % 16);
    if ((dice >> 56) % 4 == 0)
        defragment(w);
}

/* Moves locks out, a few at a time: all of them, or those whose waiting queues differ from the policy. */
static unsigned clear_out(struct nl_switch *w, bool all, uint64_t now, struct outbox *out)
{
    const struct plane *plane = switch_plane(w);
    unsigned moves = 0;
    for (uint32_t lock = 0; lock < plane->config.locks && plane->used && moves < MOVES_AT_ONCE; lock++) {
        const struct control *c = switch_control(w, lock);
        if ((c->state == CONTROL_LIVE || c->state == CONTROL_TAKING) &&
            (all || plane_region(plane, lock).levels != w->policy.levels))
            moves += !switch_move_out(w, plane_index(plane, lock), now, out);
    }
    return moves;
}

/* If all locks fit, they move in as soon as their servers are known, without measurement, and Algorithm 3 decides only how many
 * slots each gets. Returns whether there are more to move in. */
static bool fill_up(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    uint32_t wait_size = wait_size_of(w), waiting = w->policy.levels * wait_size;
    uint64_t room = switch_plane(w)->config.slots / w->config.locks, fixed = w->policy.slots_each, each = fixed ? fixed : room;
    bool more = false;
    if (each <= waiting || each > room)
        return false;
    for (unsigned i = 0; i < w->config.servers; i++) {
        struct netlock_lent *s = &w->servers[i];
        bool there = switch_slot_there(w, i);
        for (unsigned n = 0;
             n < FILL_PACKETS && there && w->taking < FILL_FLYING && s->filled * w->config.servers + i < w->config.locks; n++)
            s->filled = switch_move_in_many(w, i, s->filled, (uint32_t)min_u64(each - waiting, fixed ? fixed : FILL_SIZE),
                                            wait_size, now, out);
        more = more || (there && s->filled * w->config.servers + i < w->config.locks);
    }
    return more;
}

uint64_t switch_place_locks(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    if (w->policy.servers_only || w->policy.chain)
        return UINT64_MAX;
    if (w->retire) { /* the original is back: these locks go to the servers, and from there to the original (4.5) */
        clear_out(w, true, now, out);
        w->leaving = w->planned = w->coming = 0;
        return now + w->config.retry_ns;
    }
    if (w->policy.churn) {
        if (now >= w->churn_ns)
            churn(w, now, out);
        return w->churn_ns;
    }
    if (w->remake) /* priorities have been turned on or off, or have fewer queues */
        w->remake = clear_out(w, false, now, out) == MOVES_AT_ONCE;
    if (now >= w->allocate_ns && !w->filling) { /* looking at a hundred thousand locks takes as long as bringing them in */
        w->allocate_ns = w->policy.profile_ns ? UINT64_MAX : now + NETLOCK_MEASURE_NS;
        if (w->reported || w->restless) /* else nothing has changed since the latest plan */
            allocate(w);
    }
    w->filling = fill_up(w, now, out);
    follow_plan(w, now, out);
    return w->filling || w->leaving || w->coming < w->planned ? now + MOVES_NS : w->allocate_ns;
}
