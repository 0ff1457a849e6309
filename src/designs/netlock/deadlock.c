/* SPDX-License-Identifier: Apache-2.0 */
/* The switch or server that has a lock's queue says which requests block a waiter. In one queue, a writer waits for all holders; a
 * reader waits for the writer that holds, or for the first writer that waits before it. But a queue of the switch is bounded: a
 * request in q2, in a priority's queue, or at a server whose lock is to move, waits until all holders have gone, even a reader
 * behind readers. */
#include "designs/netlock/deadlock.h"

#include <errno.h>

bool deadlock_read(const struct rack_config *c, const struct netlock_packet *p, uint32_t len, struct chase_probe *out)
{
    const struct chase_step *steps = (const struct chase_step *)(const void *)(p + 1);
    out->at = p->room;
    out->serial = p->ticket;
    out->sure = p->flags & NETLOCK_SURE;
    return p->count && p->count <= CHASE_STEPS_MAX && len == sizeof *p + p->count * sizeof *steps && p->room <= CHASE_STEPS_MAX &&
           (p->mode == NETLOCK_SHARED || p->mode == NETLOCK_EXCLUSIVE) && p->client.machine != MACHINE_NONE &&
           p->client.machine <= c->machines && chase_read(steps, p->count, c->machines, &out->way);
}

/* To the host of the step that is looked at, or by way of a server. */
static void pass_on(const struct rack_config *c, const struct netlock_packet *p, const struct chase_probe *probe, uint32_t life,
                    struct place from, struct place to, struct outbox *out)
{
    struct netlock_packet *f = outbox_add(out, (uint32_t)(sizeof *f + probe->way.count * sizeof probe->way.step[0]));
    if (!f)
        return;
    *f = *p;
    netlock_head(f, c->space, NETLOCK_CHASE, life, from, to);
    f->head.index = p->head.index;
    f->head.nonce = p->head.nonce;
    f->flags = p->flags & NETLOCK_SURE;
    f->count = probe->way.count;
    f->room = probe->at;
    memcpy(f + 1, probe->way.step, probe->way.count * sizeof probe->way.step[0]);
}

static struct place pool_of(const struct chase_step *s)
{
    return (struct place){s->machine, PORT_POOL};
}

/* ---- in the switch ---- */

/* One look at the queues of a lock. */
struct view {
    struct place client; /* of the waiter */
    uint64_t nonce;
    uint8_t mode;
    bool queued, apart;       /* it is in the lock's queue; in a priority's */
    uint32_t holders, skip;   /* that were seen; to skip, because earlier probes named them */
    struct chase_step writer; /* the first that waits before it */
    struct chase_blockers found;
};

static void look_at_slot(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, bool waiting, void *ctx, uint64_t now,
                         struct outbox *out)
{
    const struct plane *plane = switch_plane(w);
    struct view *v = ctx;
    uint32_t flags = (uint32_t)plane_get(plane, NETLOCK_FLAGS, slot);
    uint64_t nonce = plane_get(plane, NETLOCK_NONCE, slot);
    uint16_t machine = (uint16_t)(plane_get(plane, NETLOCK_PLACE, slot) >> 16);
    bool writes = (flags & NETLOCK_SLOT_MODE) == NETLOCK_EXCLUSIVE;
    if (flags & NETLOCK_ENDED)
        return;
    if (nonce == v->nonce && machine == v->client.machine) {
        *(waiting ? &v->apart : &v->queued) = true;
    } else if (waiting) {
        return;
    } else if (flags & NETLOCK_GRANTED) {
        if (flags & NETLOCK_UPGRADES && !writes && !v->writer.id) /* no reader is granted before it */
            v->writer = (struct chase_step){.id = nonce, .machine = machine, .kind = CHASE_QUEUED};
        if (v->holders++ >= v->skip)
            chase_block(&v->found, nonce, machine, writes, CHASE_AHEAD);
    } else if (writes && !v->queued && !v->writer.id) {
        v->writer = (struct chase_step){.id = nonce, .machine = machine, .kind = CHASE_QUEUED};
    }
}

/* The requests that the request waits for, as the queue names them. */
static void judge(struct view *v, uint32_t term)
{
    bool fair = v->queued; /* a queued request does not wait for requests that it does not exclude */
    unsigned count = 0;
    for (unsigned i = 0; i < v->found.count; i++) {
        struct chase_step s = v->found.step[i];
        bool excludes = v->mode == NETLOCK_EXCLUSIVE || s.term;
        if (fair && !excludes)
            continue;
        s.kind = fair ? CHASE_HOLD : CHASE_AHEAD;
        s.term = term;
        v->found.step[count++] = s;
    }
    v->found.count = count;
    if (fair && v->mode == NETLOCK_SHARED && v->writer.id && !count)
        chase_block(&v->found, v->writer.id, v->writer.machine, term, CHASE_QUEUED);
}

static void look_at_lock(struct nl_switch *w, uint32_t lock, const struct netlock_packet *p, struct view *v)
{
    const struct view blank = {.client = p->client, .nonce = p->head.nonce, .mode = p->mode};
    *v = blank;
    switch_each_slot(w, lock, look_at_slot, v, 0, NULL);
    if (v->holders > CHASE_FANOUT_MAX) { /* beginning elsewhere every time */
        uint32_t skip = p->ticket * CHASE_FANOUT_MAX % v->holders;
        *v = blank;
        v->skip = skip;
        switch_each_slot(w, lock, look_at_slot, v, 0, NULL);
    }
    judge(v, w->term * UINT32_C(0x9e3779b1) + (uint32_t)(plane_get(switch_plane(w), NETLOCK_ROUNDS, lock) >> 32));
}

/* As it is, to the server that has the lock. */
static void to_owner(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, struct outbox *out)
{
    struct netlock_packet *f = switch_owner(w, p->head.index) ? outbox_add(out, len) : NULL;
    if (!f)
        return;
    memcpy(f, p, len);
    f->head.to = switch_server_place(w, p->head.index);
    f->flags = (uint8_t)((p->flags & NETLOCK_SURE) | NETLOCK_FORWARDED);
    f->life = w->term;
}

void deadlock_at_switch(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    uint32_t lock = plane_match(switch_plane(w), p->head.index);
    struct chase_probe probe;
    struct view v;
    bool bad = !deadlock_read(&w->config, p, len, &probe);
    if (bad || p->client.machine != p->head.from.machine) {
        w->drops.bad++;
        return;
    }
    enum control_state state = lock == PLANE_NO_LOCK ? CONTROL_NONE : (enum control_state)switch_control(w, lock)->state;
    if (state != CONTROL_LIVE && state != CONTROL_DRAINING) {
        to_owner(w, p, len, out); /* its server grants, and knows */
        return;
    }
    if (!chase_turn(&probe, &bad)) {
        w->drops.bad += bad;
        return;
    }
    switch_end_abandoned(w, lock, now, out); /* no host can say what they wait for */
    look_at_lock(w, lock, p, &v);
    for (unsigned i = 0; i < v.found.count; i++) {
        const struct chase_step *s = &v.found.step[i];
        struct place to = v.queued || v.apart ? pool_of(s) : switch_server_place(w, p->head.index);
        if (chase_take(&probe, s))
            pass_on(&w->config, p, &probe, w->term, switch_place(w), to, out);
    }
}

/* ---- in a server ---- */

/* Holders, from the one on whose turn it is. */
static void add_holders(struct server *s, const struct lock *l, const struct entry *but, uint32_t turn, uint32_t term,
                        enum chase_kind kind, struct chase_blockers *b)
{
    uint32_t skip = l->holders > CHASE_FANOUT_MAX ? turn * CHASE_FANOUT_MAX % l->holders : 0;
    for (uint32_t i = l->held; i; i = server_entry(s, i - 1)->next)
        if (skip)
            skip--;
        else if (server_entry(s, i - 1) != but)
            chase_block(b, server_entry(s, i - 1)->nonce, server_machine_of(s, server_entry(s, i - 1)), term, kind);
}

static void find_blockers(struct server *s, const struct lock *l, const struct entry *e, uint32_t turn, struct chase_blockers *b)
{
    uint32_t term = server_slot(s, e->index)->term * UINT32_C(0x9e3779b1) + l->round;
    bool converts = e->state == ENTRY_HELD; /* the only reader is what it wants to be */
    bool moving = !converts && l->place == LOCK_LENDING && !l->kept;
    if (converts || moving || e->mode == NETLOCK_EXCLUSIVE || l->mode == NETLOCK_EXCLUSIVE) {
        add_holders(s, l, e, turn, term, moving ? CHASE_AHEAD : CHASE_HOLD, b);
    } else if (l->upgrader) {
        const struct entry *v = server_entry(s, l->upgrader - 1);
        chase_block(b, v->nonce, server_machine_of(s, v), term, CHASE_QUEUED);
    } else {
        for (uint32_t i = l->first; i != server_link(s, e); i = server_entry(s, i - 1)->next) {
            const struct entry *v = server_entry(s, i - 1);
            if (v->mode != NETLOCK_EXCLUSIVE)
                continue;
            chase_block(b, v->nonce, server_machine_of(s, v), term, CHASE_QUEUED);
            return;
        }
    }
}

/* The waiter, if it waits here. That includes a request that was pushed to a switch which takes no requests in, because the lock is
 * to move. */
static struct entry *who_waits(struct server *s, const struct netlock_packet *p)
{
    uint64_t requests = rack_requests(&s->config);
    if (netlock_request_of(p->head.nonce) >= requests)
        return NULL;
    struct entry *e = server_entry(s, p->client.machine * requests + netlock_request_of(p->head.nonce));
    bool waits = (e->state == ENTRY_WAITING && e->mode) ||
                 (e->state == ENTRY_HELD && server_lock(s, p->head.index)->upgrader == server_link(s, e));
    return e->nonce == p->head.nonce && e->index == p->head.index && waits ? e : NULL;
}

void deadlock_at_server(struct server *s, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    const struct place here = {s->machine, PORT_SERVER};
    struct lock *l = server_lock(s, p->head.index);
    struct chase_blockers found = {0};
    struct chase_probe probe;
    bool bad = !deadlock_read(&s->config, p, len, &probe), probes = p->head.type == NETLOCK_PROBE;
    if (bad || (!probes && probe.at >= probe.way.count)) {
        s->drops.bad++;
        return;
    }
    const struct entry *e = who_waits(s, p);
    if (!e || !server_rules(s, now)) {
        s->drops.stale++;
        return;
    }
    if (!probes) {
        pass_on(&s->config, p, &probe, s->life, here, pool_of(&probe.way.step[probe.at]), out);
        return;
    }
    if (l->place == LOCK_LENT || !chase_turn(&probe, &bad)) {
        s->drops.bad += bad;
        return;
    }
    find_blockers(s, l, e, p->ticket, &found);
    for (unsigned i = 0; i < found.count; i++)
        if (chase_take(&probe, &found.step[i]))
            pass_on(&s->config, p, &probe, s->life, here, pool_of(&found.step[i]), out);
}
