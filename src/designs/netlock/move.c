/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane of the switch, moving (4.3, 4.5): a lock moves from its server to the switch and back, with the messages of
 * servers about it. */
#include "dataplane/netlock_packets.h"
#include "designs/netlock/allocate.h"
#include "designs/netlock/switch.h"
#include "lib/hash.h"

#include <errno.h>

#define PATIENCE 16u /* locks that were asked for many at once are asked for one by one after so many retry times */
#define AGAIN 2u     /* retransmissions: after so many retry times */
#define DOUBLINGS 6u /* of that for a lock on the move: a busy server gets no more than it can answer */

static bool is_empty(struct nl_switch *w, uint32_t lock)
{
    return netlock_is_empty(switch_ends(w, lock)) && !plane_waiting(switch_plane(w), lock);
}

static void set_over(struct nl_switch *w, uint32_t lock)
{
    plane_set(switch_plane(w), NETLOCK_ENDS, lock, switch_ends(w, lock) | NETLOCK_OVER);
}

static uint32_t round_of(struct nl_switch *w, uint32_t lock)
{
    return (uint32_t)(plane_get(switch_plane(w), NETLOCK_ROUNDS, lock) >> 32);
}

void switch_set_restless(struct nl_switch *w, uint32_t lock, bool restless)
{
    struct control *c = switch_control(w, lock);
    if (restless == c->restless)
        return;
    c->restless = restless;
    if (restless) {
        c->prev = 0;
        c->next = w->restless;
        if (w->restless)
            switch_control(w, w->restless - 1)->prev = lock + 1;
        w->restless = lock + 1;
    } else {
        *(c->prev ? &switch_control(w, c->prev - 1)->next : &w->restless) = c->next;
        if (c->next)
            switch_control(w, c->next - 1)->prev = c->prev;
    }
}

static void enter_state(struct nl_switch *w, uint32_t lock, enum control_state state, uint64_t now)
{
    struct control *c = switch_control(w, lock);
    assert(w->taking || c->state != CONTROL_TAKING);
    w->taking = w->taking + (state == CONTROL_TAKING) - (c->state == CONTROL_TAKING);
    c->state = (uint8_t)state;
    c->since_ns = now;
    c->next_ns = now;
    c->sent = 0;
    switch_set_restless(w, lock, state != CONTROL_NONE);
    plane_set_notify(switch_plane(w), lock, state == CONTROL_LIVE);
}

/* ---- what a state has to say ---- */

bool switch_has_others(struct nl_switch *w, uint32_t lock)
{
    return switch_ends(w, lock) & NETLOCK_OVER || plane_lows(switch_plane(w), lock);
}

void switch_notify(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    const struct plane_region r = plane_region(plane, lock);
    if (r.wait_size && r.levels < NETLOCK_PRIORITIES && switch_has_others(w, lock) && is_empty(w, lock)) {
        /* A NOTIFY that calls the server promises an empty queue, which only a pass can check. The pass of a LAST with a wrong
         * count sends NOTIFY with the same count again if OVER is set. CALL would count itself as an arrival: if the server took
         * longer to answer than the switch to retransmit, no LAST would ever have the right count. */
        uint32_t other = ~(uint32_t)plane_get(plane, NETLOCK_ARRIVALS, lock);
        struct netlock_pass pass = {.op = NETLOCK_OP_LAST, .round = round_of(w, lock), .count = other};
        if (MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_RECALL))
            pass = (struct netlock_pass){.op = NETLOCK_OP_CALL};
        switch_run(w, lock, &pass, now, out);
        return;
    }
    uint64_t ends = switch_ends(w, lock), rounds = plane_get(plane, NETLOCK_ROUNDS, lock);
    struct netlock_packet *p = switch_to_server(w, plane_index(plane, lock), NETLOCK_NOTIFY, out);
    if (!p)
        return;
    p->round = (uint32_t)(rounds >> 32);
    p->pushed = (uint32_t)rounds;
    p->count = (uint32_t)plane_get(plane, NETLOCK_ARRIVALS, lock);
    p->room = r.size - netlock_between(switch_head(ends), switch_tail(ends), r.size);
    if (r.wait_size)
        p->room = plane_waiting(plane, lock) ? 0 : (uint32_t)min_u64(p->room, r.wait_size);
    p->ticket = r.levels;
}

static void say_give(struct nl_switch *w, uint64_t index, uint64_t rounds, uint64_t token, struct outbox *out)
{
    struct netlock_packet *p = switch_to_server(w, index, NETLOCK_GIVE, out);
    if (!p)
        return;
    p->round = (uint32_t)(rounds >> 32);
    p->pushed = (uint32_t)rounds;
    p->token = token;
}

void switch_say_again(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    struct control *c = switch_control(w, lock);
    uint64_t index = plane_index(plane, lock);
    if (now < c->next_ns)
        return;
    c->next_ns = now + (AGAIN * w->config.retry_ns << c->sent);
    c->sent += c->state != CONTROL_LIVE && c->sent < DOUBLINGS;
    if (c->state == CONTROL_TAKING) {
        struct netlock_packet *p = switch_to_server(w, index, NETLOCK_TAKE, out);
        if (p)
            p->round = round_of(w, lock);
    } else if (c->state == CONTROL_LIVE) {
        /* Pitfall 9: a server that lost q2 will say LAST; one that did not get NOTIFY will push. */
        if (switch_has_others(w, lock) && is_empty(w, lock) && !MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_SILENT_EMPTY))
            switch_notify(w, lock, now, out);
    } else if (c->state == CONTROL_GIVING) {
        say_give(w, index, plane_get(plane, NETLOCK_ROUNDS, lock), plane_get(plane, NETLOCK_TOKEN, lock), out);
    }
}

/* ---- moving ---- */

/* How many priorities get a queue, if there are priorities. */
static uint32_t levels_for(const struct nl_switch *w, uint64_t index)
{
    if (w->policy.churn && w->policy.few)
        return 1 + (uint32_t)(mix64(w->version + index) % NETLOCK_PRIORITIES);
    return w->policy.levels ? w->policy.levels : NETLOCK_PRIORITIES;
}

/* Installs a lock. Its new requests wait at the server until that has handed over. */
static int install(struct nl_switch *w, uint64_t index, uint32_t size, uint32_t wait_size, uint32_t round, uint64_t now,
                   uint32_t *out)
{
    struct plane *plane = switch_plane(w);
    struct plane_region r = {.size = (uint16_t)size, .wait_size = (uint16_t)wait_size, .levels = (uint16_t)levels_for(w, index)};
    uint32_t lock;
    if (index >= w->config.locks || !size || size > NETLOCK_SIZE_MAX || wait_size > UINT8_MAX)
        return -EINVAL;
    if (plane_match(plane, index) != PLANE_NO_LOCK)
        return -EEXIST;
    int rc = plane_room(plane, index, plane_region_slots(&r), &r.left);
    rc = rc ? rc : plane_install(plane, index, &r, &lock);
    if (rc)
        return rc;
    plane_set(plane, NETLOCK_ROUNDS, lock, (uint64_t)round << 32);
    set_over(w, lock); /* newcomers wait at the server until it has handed over */
    *switch_control(w, lock) = (struct control){.moved_ns = now};
    enter_state(w, lock, CONTROL_TAKING, now);
    plane_reopen(plane, lock);
    *out = lock;
    return 0;
}

int switch_move_in(struct nl_switch *w, uint64_t index, uint32_t size, uint32_t wait_size, uint64_t now, struct outbox *out)
{
    uint32_t lock;
    int rc = install(w, index, size, wait_size, w->version + 1, now, &lock);
    if (rc)
        return rc;
    w->version++; /* in this order: requests that are passed on with this version have found the lock here */
    switch_say_again(w, lock, now, out);
    return 0;
}

/* A packet of the switch's to a server that so many entries follow. */
static struct netlock_packet *many_to_server(struct nl_switch *w, struct place to, enum netlock_type type, uint32_t round,
                                             const uint64_t *indexes, uint32_t count, struct outbox *out)
{
    struct netlock_packet *p = outbox_add(out, (uint32_t)(sizeof *p + count * sizeof *indexes));
    if (!p)
        return NULL;
    netlock_head(p, w->config.space, type, w->term, switch_place(w), to);
    p->head.index = indexes[0];
    p->life = w->term;
    p->round = round;
    p->count = count;
    memcpy(p + 1, indexes, count * sizeof *indexes);
    return p;
}

uint64_t switch_move_in_many(struct nl_switch *w, unsigned slot, uint64_t first, uint32_t size, uint32_t wait_size, uint64_t now,
                             struct outbox *out)
{
    uint64_t indexes[NETLOCK_MANY_MAX], index;
    uint32_t count = 0, lock, round = w->version + 1;
    for (; count < NETLOCK_MANY_MAX && (index = first * w->config.servers + slot) < w->config.locks; first++) {
        int rc = install(w, index, size, wait_size, round, now, &lock);
        if (rc == -ENOSPC) {
            first = w->config.locks; /* other queues have grown meanwhile: the remaining locks move in when they are requested */
            break;
        }
        if (rc)
            continue;
        switch_control(w, lock)->next_ns = now + PATIENCE * w->config.retry_ns; /* then one by one */
        indexes[count++] = index;
    }
    if (count) {
        w->version++;
        many_to_server(w, switch_server_place(w, slot), NETLOCK_TAKE_MANY, round, indexes, count, out);
    }
    return first;
}

void switch_give(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out)
{
    if (switch_control(w, lock)->state != CONTROL_DRAINING)
        return;
    bool empty = is_empty(w, lock) || MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_NO_DRAIN);
    if (!empty)
        return;
    enter_state(w, lock, CONTROL_GIVING, now);
    switch_say_again(w, lock, now, out);
}

int switch_move_out(struct nl_switch *w, uint64_t index, uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    uint32_t lock = plane_match(plane, index);
    if (lock == PLANE_NO_LOCK)
        return -ENOENT;
    struct control *c = switch_control(w, lock);
    if (c->state == CONTROL_TAKING)
        c->unwanted = true;
    if (c->state != CONTROL_LIVE)
        return -EBUSY;
    /* A new round: packets of the server that are still in flight belong to the old one. */
    plane_shut(plane, lock);
    uint64_t pushed = plane_get(plane, NETLOCK_ROUNDS, lock) & UINT32_MAX;
    plane_set(plane, NETLOCK_ROUNDS, lock, (uint64_t)++w->version << 32 | pushed);
    set_over(w, lock);
    plane_reopen(plane, lock);
    if (plane_region(plane, lock).wait_size)
        plane_grace(plane); /* a packet may be between two passes, and in no queue */
    c->moved_ns = now;
    enter_state(w, lock, CONTROL_DRAINING, now);
    switch_give(w, lock, now, out);
    return 0;
}

/* ---- what servers say ---- */

uint64_t switch_stop_percentile(const uint32_t *stops, unsigned percent)
{
    uint64_t all = 0, seen = 0;
    for (unsigned i = 0; i < SWITCH_STOP_BUCKETS; i++)
        all += stops[i];
    for (unsigned i = 0; i < SWITCH_STOP_BUCKETS; i++) {
        seen += stops[i];
        if (all && seen * 100 >= all * percent) /* the bucket's upper end */
            return i < 8 ? i : ((UINT64_C(4) + (i & 3) + 1) << ((i >> 2) - 1)) - 1;
    }
    return 0;
}

/* The lock's waiters are granted from here on. */
static void count_stop(struct nl_switch *w, struct control *c, uint64_t now)
{
    uint64_t all = now - c->moved_ns;
    w->stops[SWITCH_STOP_IN][switch_stop_bucket(all)]++;
    w->stops[SWITCH_STOP_IN_ALONE][switch_stop_bucket(all - min_u64(all, c->drain_ns))]++;
    c->stopped = false;
}

static void go_live(struct nl_switch *w, uint32_t lock, uint64_t token, uint64_t now)
{
    assert(switch_control(w, lock)->state == CONTROL_TAKING && switch_ends(w, lock) & NETLOCK_OVER); /* I1: nothing was granted */
    switch_control(w, lock)->stopped = true;
    plane_set(switch_plane(w), NETLOCK_TOKEN, lock, switch_token(w, plane_index(switch_plane(w), lock), token));
    enter_state(w, lock, CONTROL_LIVE, now);
    switch_control(w, lock)->next_ns = now + AGAIN * w->config.retry_ns;
    w->counts.moved_in++;
}

static void on_handover(struct nl_switch *w, uint32_t lock, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct control *c = switch_control(w, lock);
    if (p->round != round_of(w, lock)) {
        w->drops.stale++;
        return;
    }
    if (c->state == CONTROL_TAKING) {
        c->drain_ns = p->stamp;
        go_live(w, lock, p->token, now);
    }
    if (c->state == CONTROL_LIVE)
        switch_notify(w, lock, now, out);
    if (c->state == CONTROL_LIVE && c->unwanted)
        switch_move_out(w, p->head.index, now, out);
}

/* The lock is to move out: no push of the round before comes in any more. The server learns how many have come, and has the others
 * again at once. Without this answer they would be in flight until the last holder has released; and a request that was given up
 * meanwhile would be in the way of the next one of its number, of which neither the server nor a deadlock's probe would know. */
static void refuse_push(struct nl_switch *w, uint32_t lock, const struct netlock_packet *p, struct outbox *out)
{
    uint64_t rounds = plane_get(switch_plane(w), NETLOCK_ROUNDS, lock);
    struct netlock_packet *a = switch_to_server(w, p->head.index, NETLOCK_PUSHED, out);
    if (!a)
        return;
    a->round = (uint32_t)(rounds >> 32);
    a->pushed = (uint32_t)rounds;
}

/* PUSH and LAST are for the data plane. */
static void on_push(struct nl_switch *w, uint32_t lock, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    if (switch_control(w, lock)->state != CONTROL_LIVE) {
        if (switch_control(w, lock)->state == CONTROL_DRAINING && p->head.type == NETLOCK_PUSH)
            refuse_push(w, lock, p, out);
        w->drops.stale++;
        return;
    }
    struct netlock_pass pass = {0};
    netlock_pass_of_push(&pass, p, p->head.type == NETLOCK_PUSH ? switch_machine(w, p->client.machine)->life : 0, w->policy.levels);
    if (switch_control(w, lock)->stopped && p->round == round_of(w, lock))
        count_stop(w, switch_control(w, lock), now);
    switch_run(w, lock, &pass, now, out);
}

/* As many HANDOVERs, each with the LAST of a q2 that was empty from the start. */
static void on_handover_many(struct nl_switch *w, const struct netlock_packet *p, const struct netlock_handed *lent, uint64_t now,
                             struct outbox *out)
{
    uint64_t taken[NETLOCK_MANY_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t lock = plane_match(switch_plane(w), lent[i].index);
        if (lock == PLANE_NO_LOCK || p->round != round_of(w, lock)) {
            w->drops.stale++; /* the server will say it again, alone */
            continue;
        }
        const struct control *c = switch_control(w, lock);
        const struct netlock_packet last = {.head = {.type = NETLOCK_LAST, .index = lent[i].index}, .round = p->round};
        bool first = c->state == CONTROL_TAKING;
        if (first)
            go_live(w, lock, lent[i].token, now);
        if (c->state == CONTROL_LIVE)
            taken[count++] = lent[i].index;
        if (first)
            on_push(w, lock, &last, now, out);
        if (first && !(switch_ends(w, lock) & NETLOCK_OVER))
            switch_set_restless(w, lock, false); /* as most are: no client has asked for it yet */
        if (first && c->unwanted)
            switch_move_out(w, lent[i].index, now, out);
    }
    if (count)
        many_to_server(w, p->head.from, NETLOCK_TAKEN_MANY, p->round, taken, count, out);
}

static void on_given(struct nl_switch *w, uint32_t lock, const struct netlock_packet *p, uint64_t now)
{
    const struct control *c = switch_control(w, lock);
    if (c->state != CONTROL_GIVING || p->round != round_of(w, lock)) {
        w->drops.stale++;
        return;
    }
    w->counts.moved_out++;
    w->stops[SWITCH_STOP_OUT][switch_stop_bucket(now - c->since_ns)]++;
    plane_remove(switch_plane(w), lock);
    enter_state(w, lock, CONTROL_NONE, now);
}

void switch_say_synced(struct nl_switch *w, unsigned server, uint64_t stamp, struct outbox *out)
{
    struct netlock_packet *a = netlock_packet_new(out, &w->config, NETLOCK_SYNCED, w->term, switch_place(w),
                                                  (struct place){w->config.server[server], PORT_SERVER});
    if (!a)
        return;
    a->stamp = stamp;
    a->pushed = w->servers[server].life;
    a->round = ++w->version; /* tells packets that pass from now on from earlier ones */
    a->life = w->term;
    a->count = w->clean;
}

static void on_sync(struct nl_switch *w, const struct netlock_packet *p, struct outbox *out)
{
    unsigned server = rack_server_on(&w->config, p->head.from.machine);
    assert(server < w->config.servers);
    if (p->head.epoch < w->servers[server].life)
        return; /* of a life that is over */
    w->servers[server].life = p->head.epoch;
    switch_say_synced(w, server, p->stamp, out);
}

static bool owns(const struct nl_switch *w, const struct netlock_packet *p, uint64_t index)
{
    return switch_server_place(w, index).machine == p->head.from.machine;
}

/* All of them are the sender's. */
static bool sound_many(const struct nl_switch *w, const struct netlock_packet *p, uint32_t len)
{
    const struct netlock_handed *lent = (const struct netlock_handed *)(const void *)(p + 1);
    if (!p->count || p->count > NETLOCK_MANY_MAX || len != sizeof *p + p->count * sizeof *lent)
        return false;
    for (uint32_t i = 0; i < p->count; i++)
        if (lent[i].index >= w->config.locks || !owns(w, p, lent[i].index))
            return false;
    return owns(w, p, p->head.index);
}

static bool sound(const struct nl_switch *w, const struct netlock_packet *p, uint32_t len)
{
    switch ((enum netlock_type)p->head.type) {
    case NETLOCK_SYNC:
        return true;
    case NETLOCK_HANDOVER_MANY:
        return sound_many(w, p, len);
    case NETLOCK_REPORT:
        return p->count <= NETLOCK_REPORT_MAX && len == sizeof *p + p->count * sizeof(struct netlock_demand);
    case NETLOCK_PUSH:
        if (!netlock_sound_push(p, w->config.machines, rack_requests(&w->config), SWITCH_TENANTS))
            return false;
        break;
    case NETLOCK_LAST:
    case NETLOCK_HANDOVER:
    case NETLOCK_GIVEN:
        break;
    default:
        return false;
    }
    return owns(w, p, p->head.index);
}

void switch_on_server(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    if (!sound(w, p, len)) {
        w->drops.bad++;
        return;
    }
    if (p->head.type == NETLOCK_SYNC) {
        on_sync(w, p, out);
        return;
    }
    unsigned server = rack_server_on(&w->config, p->head.from.machine);
    assert(server < w->config.servers);
    if (p->life != w->term || p->head.epoch != w->servers[server].life) {
        w->drops.stale++; /* from another life of the switch, or of the server */
        return;
    }
    if (p->head.type == NETLOCK_REPORT) {
        switch_on_report(w, p, (const struct netlock_demand *)(const void *)(p + 1));
        return;
    }
    if (p->head.type == NETLOCK_HANDOVER_MANY) {
        on_handover_many(w, p, (const struct netlock_handed *)(const void *)(p + 1), now, out);
        return;
    }
    uint32_t lock = plane_match(switch_plane(w), p->head.index);
    if (lock == PLANE_NO_LOCK) {
        if (p->head.type != NETLOCK_GIVEN) /* a lock that is not here belongs to the server */
            say_give(w, p->head.index, (uint64_t)w->version << 32, 0, out);
    } else if (p->head.type == NETLOCK_HANDOVER) {
        on_handover(w, lock, p, now, out);
    } else if (p->head.type == NETLOCK_GIVEN) {
        on_given(w, lock, p, now);
    } else {
        on_push(w, lock, p, now, out);
    }
}
