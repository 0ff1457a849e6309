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

static uint64_t fill(struct demand *d, uint64_t count, uint64_t slots)
{
    uint64_t used = 0;
    for (uint64_t i = 0; i < count; i++) {
        d[i].slots = (uint32_t)min_u64(min_u64(d[i].contention, NETLOCK_SIZE_MAX), slots - used);
        used += d[i].slots;
    }
    return used;
}

uint64_t netlock_allocate(struct demand *demands, uint64_t count, uint64_t slots)
{
    qsort(demands, count, sizeof *demands, by_value);
    return fill(demands, count, slots);
}

uint64_t netlock_allocate_random(struct demand *demands, uint64_t count, uint64_t slots, uint64_t seed)
{
    for (uint64_t i = count; i > 1; i--) {
        uint64_t j = mix64(seed + i) % i;
        struct demand d = demands[i - 1];
        demands[i - 1] = demands[j];
        demands[j] = d;
    }
    return fill(demands, count, slots);
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

#define REPORTS 8u /* packets at most */

void server_touch(struct server *s, struct lock *l)
{
    if (!l->arrivals && s->touched < SERVER_TOUCHED_MAX)
        s->touched_lock[s->touched++] = (uint32_t)(server_lock_index(s, l) / s->config.servers);
    l->arrivals++;
}

static struct lock *touched_lock(struct server *s, uint32_t i)
{
    return server_lock(s, (uint64_t)s->touched_lock[i] * s->config.servers);
}

/* Those worth most per slot first, as many as fit. */
static uint32_t collect(struct server *s, struct demand *demands)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->touched; i++) {
        struct lock *l = touched_lock(s, i);
        if (l->place == LOCK_OWNED)
            demands[count++] =
                (struct demand){.index = server_lock_index(s, l), .rate = l->arrivals, .contention = (uint32_t)max_u64(l->peak, 1)};
        l->arrivals = 0;
        l->peak = l->holders + l->waiters;
    }
    s->touched = 0;
    qsort(demands, count, sizeof *demands, by_value);
    return count;
}

void server_report(struct server *s, uint64_t now, struct outbox *out)
{
    struct demand demands[SERVER_TOUCHED_MAX];
    uint32_t count = collect(s, demands), sent = 0;
    s->report_ns = now + s->config.lease_ns / NETLOCK_REPORT_SHARE;
    for (unsigned n = 0; n < REPORTS && sent < count; n++) {
        uint32_t part = (uint32_t)min_u64(count - sent, NETLOCK_REPORT_MAX);
        struct netlock_packet *p = outbox_add(out, (uint32_t)(sizeof *p + part * sizeof(struct netlock_demand)));
        if (!p)
            return;
        p->head = (struct packet_head){.version = PACKET_VERSION,
                                       .head_len = sizeof p->head,
                                       .family = PACKET_NETLOCK,
                                       .type = NETLOCK_REPORT,
                                       .space = s->config.space,
                                       .epoch = s->life,
                                       .index = s->number,
                                       .from = {s->machine, PORT_SERVER},
                                       .to = {MACHINE_SWITCH, PORT_POOL}};
        p->life = s->switch_life;
        p->count = part;
        struct netlock_demand *d = (struct netlock_demand *)(void *)(p + 1);
        for (uint32_t i = 0; i < part; i++, sent++)
            d[i] = (struct netlock_demand){demands[sent].index, demands[sent].rate, demands[sent].contention};
    }
}

/* ---- as the workload moves ---- */

#define MOVES_AT_ONCE 32u /* that one look begins: what the outbox has room for */
#define KEEP_NUM 5u       /* a lock stays if it is worth four fifths of the worst that would take its place */
#define KEEP_DEN 4u
#define SLOTS_SPARE_SHIFT 1 /* contention was measured in the past: half as much again */
#define WAIT_SIZE 16u       /* of each priority's queue */

void switch_on_report(struct nl_switch *w, const struct netlock_packet *p, const struct netlock_demand *demands)
{
    for (uint32_t i = 0; i < p->count && w->reported < SWITCH_REPORTED_MAX; i++) {
        const struct netlock_demand *d = &demands[i];
        if (d->index >= w->config.locks || !d->rate || !d->contention || plane_match(switch_plane(w), d->index) != PLANE_NO_LOCK)
            continue;
        switch_demands(w)[w->reported++] = (struct demand){.index = d->index, .rate = d->rate, .contention = d->contention};
    }
}

static uint32_t wait_size_of(const struct nl_switch *w)
{
    return w->config.options & NETLOCK_PRIORITY ? WAIT_SIZE : 0;
}

/* What the locks in the switch were asked for since the latest look; behind what was reported. */
static uint32_t measure(struct nl_switch *w)
{
    struct plane *plane = switch_plane(w);
    uint32_t count = w->reported;
    for (uint32_t lock = 0; lock < plane->config.locks; lock++) {
        struct control *c = switch_control(w, lock);
        if (c->state != CONTROL_LIVE)
            continue;
        uint32_t arrivals = (uint32_t)plane_get(plane, NETLOCK_ARRIVALS, lock);
        c->rate = arrivals - c->arrivals;
        c->arrivals = arrivals;
        c->peak = (uint32_t)plane_get(plane, NETLOCK_PEAK, lock);
        plane_set(plane, NETLOCK_PEAK, lock, 0);
        const struct plane_region r = plane_region(plane, lock);
        bool over = plane_get(plane, NETLOCK_ENDS, lock) & NETLOCK_OVER;
        switch_demands(w)[count++] = (struct demand){.index = plane_index(plane, lock),
                                                     .rate = c->rate,
                                                     .contention = over ? 2u * r.size : (uint32_t)max_u64(c->peak, 1),
                                                     .in = lock + 1};
    }
    return count;
}

/* Those that lose their place go, and those that won one come as room allows. */
static void move_all(struct nl_switch *w, uint32_t count, uint64_t now, struct outbox *out)
{
    unsigned moves = 0;
    for (uint32_t i = count; i-- > 0 && moves < MOVES_AT_ONCE;) {
        const struct demand *d = &switch_demands(w)[i];
        if (d->in && !d->slots)
            moves += !switch_move_out(w, d->index, now, out);
    }
    for (uint32_t i = 0; i < count && moves < MOVES_AT_ONCE; i++) {
        const struct demand *d = &switch_demands(w)[i];
        if (!d->slots)
            break;
        if (!d->in)
            moves += !switch_move_in(w, d->index, d->slots, wait_size_of(w), now, out);
    }
}

/* Locks whose queue is empty slide down over holes: positions in a queue are relative to its left end. */
static void defragment(struct nl_switch *w)
{
    struct plane *plane = switch_plane(w);
    for (uint32_t lock = 0; lock < plane->config.locks; lock++)
        if (switch_control(w, lock)->state == CONTROL_LIVE)
            plane_slide(plane, lock);
}

static void allocate(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    uint32_t count = measure(w);
    struct demand *demands = switch_demands(w);
    uint64_t slots = w->config.options & NETLOCK_PRIORITY ? netlock_slots(&w->config) / 8 : netlock_slots(&w->config);
    for (uint32_t i = 0; i < count; i++) {
        demands[i].contention += demands[i].contention >> SLOTS_SPARE_SHIFT;
        if (demands[i].in)
            demands[i].rate = (uint32_t)min_u64((uint64_t)demands[i].rate * KEEP_NUM / KEEP_DEN, UINT32_MAX);
    }
    if (w->config.options & NETLOCK_ALLOC_RANDOM)
        netlock_allocate_random(demands, count, slots, w->life);
    else
        netlock_allocate(demands, count, slots);
    defragment(w);
    move_all(w, count, now, out);
    w->reported = 0;
}

/* For trials: some lock comes, some lock goes, with queues that overflow. */
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

void switch_place_locks(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    if (w->config.options & NETLOCK_SERVERS_ONLY)
        return;
    if (w->config.options & NETLOCK_CHURN) {
        if (now >= w->churn_ns)
            churn(w, now, out);
        return;
    }
    if (now < w->allocate_ns)
        return;
    w->allocate_ns = now + w->config.lease_ns / NETLOCK_REPORT_SHARE;
    allocate(w, now, out);
}
