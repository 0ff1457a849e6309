/* SPDX-License-Identifier: Apache-2.0 */
/* Lending locks to the switch, and q2 of the lent ones: pushes are numbered within a round, acknowledged, and retransmitted. */
#include "designs/netlock/server.h"

#define WINDOW 16u /* pushes of one lock that are on their way at once */

struct netlock_packet *server_to_switch(struct server *s, const struct lock *l, enum netlock_type type, struct outbox *out)
{
    struct netlock_packet *p =
        netlock_packet_new(out, &s->config, type, s->life, (struct place){s->machine, PORT_SERVER}, server_switch(s));
    if (!p)
        return NULL;
    p->head.index = server_lock_index(s, l);
    p->life = s->switch_life;
    p->round = l->round;
    return p;
}

/* ---- locks that have something to say again ---- */

static uint32_t link_of(struct server *s, const struct lock *l)
{
    return (uint32_t)server_lock_index(s, l) + 1;
}

static struct lock *at_link(struct server *s, uint32_t link)
{
    return server_lock(s, link - 1);
}

void server_set_busy(struct server *s, struct lock *l, bool busy)
{
    if (busy == l->busy)
        return;
    l->busy = busy;
    if (busy) {
        assert(s->busy != link_of(s, l)); /* a lock is in the list once */
        l->busy_prev = 0;
        l->busy_next = s->busy;
        if (s->busy)
            at_link(s, s->busy)->busy_prev = link_of(s, l);
        s->busy = link_of(s, l);
    } else {
        *(l->busy_prev ? &at_link(s, l->busy_prev)->busy_next : &s->busy) = l->busy_next;
        if (l->busy_next)
            at_link(s, l->busy_next)->busy_prev = l->busy_prev;
    }
}

/* ---- handing over ---- */

static void say_handover(struct server *s, struct lock *l, uint64_t now, struct outbox *out)
{
    struct netlock_packet *p = server_to_switch(s, l, NETLOCK_HANDOVER, out);
    l->next_ns = p ? now + s->config.retry_ns * 2 : now;
    if (p)
        p->token = server_token(s, l);
    if (p)
        p->stamp = l->drain_ns;
}

/* Lends the lock, if no client holds it and every lease that may have been given for it has ended. */
static bool lend(struct server *s, struct lock *l, uint64_t now)
{
    bool held = l->holders && !MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_NO_DRAIN);
    if (l->place != LOCK_LENDING || held || !server_open(s, l, now))
        return false;
    l->place = LOCK_LENT;
    l->drain_ns = now - l->drain_ns;
    l->confirmed = false;
    l->next_ns = now + s->config.retry_ns * 2;
    server_set_busy(s, l, true);
    return true;
}

void server_hand_over(struct server *s, struct lock *l, uint64_t now, struct outbox *out)
{
    if (lend(s, l, now))
        say_handover(s, l, now, out);
}

/* Arrivals are counted anew in every round: those of this one come before all of the next. */
static void forget_counts(struct server *s, const struct lock *l)
{
    for (uint32_t i = l->first; i; i = server_entry(s, i - 1)->next)
        server_entry(s, i - 1)->count = 0;
}

/* At the beginning of a round: no request has arrived, and the server was not called yet. */
static void begin_counts(struct lock *l)
{
    l->closed = l->closed_low = UINT32_MAX; /* before the first arrival */
    l->levels = 0;
    l->called = false;
    l->said_ns = 0;
}

/* Whether the switch is to have the lock in a round that this server did not know of. `asked`: by TAKE. */
static bool begin_lending(struct server *s, struct lock *l, uint32_t round, bool asked, uint64_t now)
{
    if ((int32_t)(round - l->round) <= 0)
        return false;
    if (l->place == LOCK_LENT && !asked) {
        s->drops.stale++; /* the switch is about to give it back */
        return false;
    }
    if (l->place == LOCK_LENT) {
        /* It was given back: this server has lost its memory, and a packet of an earlier round came late. */
        server_recall(s, l);
        server_set_busy(s, l, false);
    }
    if (l->place != LOCK_LENDING)
        l->drain_ns = now;
    l->place = LOCK_LENDING;
    l->round = round;
    l->push = l->acked = l->credit = 0;
    begin_counts(l);
    l->empty = false;
    forget_counts(s, l);
    return true;
}

void server_on_take(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    bool take = p->head.type == NETLOCK_TAKE;
    if (begin_lending(s, l, p->round, take, now))
        server_hand_over(s, l, now, out);
    else if (take && p->round == l->round && l->place == LOCK_LENT && !l->confirmed)
        say_handover(s, l, now, out);
    else if (p->round != l->round || l->place == LOCK_OWNED)
        s->drops.stale += take;
}

static const uint64_t *indexes_of(const struct netlock_packet *p)
{
    return (const uint64_t *)(const void *)(p + 1);
}

bool server_sound_many(const struct server *s, const struct netlock_packet *p, uint32_t len)
{
    if (!p->count || p->count > NETLOCK_MANY_MAX || len != sizeof *p + p->count * sizeof(uint64_t))
        return false;
    for (uint32_t i = 0; i < p->count; i++)
        if (indexes_of(p)[i] >= s->config.locks || !server_owns(s, indexes_of(p)[i]))
            return false;
    return true;
}

/* Locks without holders and waiters go in one packet; the others as if they were asked for one by one. */
void server_on_take_many(struct server *s, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct netlock_handed lent[NETLOCK_MANY_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        struct lock *l = server_lock(s, indexes_of(p)[i]);
        if (!begin_lending(s, l, p->round, true, now))
            continue; /* asked for again one by one */
        if (l->first)
            server_hand_over(s, l, now, out);
        else if ((l->empty = lend(s, l, now)))
            lent[count++] = (struct netlock_handed){indexes_of(p)[i], server_token(s, l)};
    }
    struct netlock_packet *a = count ? outbox_add(out, (uint32_t)(sizeof *a + count * sizeof *lent)) : NULL;
    if (!a)
        return; /* no room: server_lend_tick retransmits it */
    netlock_head(a, s->config.space, NETLOCK_HANDOVER_MANY, s->life, (struct place){s->machine, PORT_SERVER}, server_switch(s));
    a->head.index = lent[0].index;
    a->life = s->switch_life;
    a->round = p->round;
    a->count = count;
    memcpy(a + 1, lent, count * sizeof *lent);
}

void server_on_taken_many(struct server *s, const struct netlock_packet *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        struct lock *l = server_lock(s, indexes_of(p)[i]);
        if (l->place == LOCK_LENT && l->round == p->round)
            l->confirmed = true;
    }
}

/* ---- q2 ---- */

static bool push_one(struct server *s, struct lock *l, const struct entry *e, struct outbox *out)
{
    struct netlock_packet *p = server_to_switch(s, l, NETLOCK_PUSH, out);
    if (!p)
        return false;
    p->head.nonce = e->nonce;
    p->client = (struct place){server_machine_of(s, e), e->port};
    p->mode = e->mode; /* 0: it gave up, only its number counts */
    p->flags = e->try ? NETLOCK_TRY : 0;
    p->priority = e->priority;
    p->tenant = e->tenant;
    p->pushed = e->push;
    p->stamp = s->clients[p->client.machine].life;
    return true;
}

static void say_last(struct server *s, struct lock *l, uint32_t count, uint64_t now, struct outbox *out)
{
    struct netlock_packet *p = server_to_switch(s, l, NETLOCK_LAST, out);
    if (!p)
        return;
    p->count = count;
    p->flags = l->first ? NETLOCK_LOW : 0;
    l->closed = count;
    l->said_ns = now;
    if (!l->first)
        l->closed_low = count;
    l->called = false;
    l->credit = l->push; /* newcomers will fill the queue; the room is told anew */
}

/* The switch has room, and nothing is left to push: q2 is empty. The server says LAST once for each count. For the same or an older
 * count it says LAST again only if it has said none for a retry time. So a NOTIFY or PUSHED that is doubled or late is not
 * answered, and the exchange ends: the switch answers a LAST that is out of date by NOTIFY, and the server answers that by LAST
 * only if a request has come since or a call has begun, and a call leads to a push. If LAST is lost, the switch retransmits NOTIFY
 * at a time when the server has said nothing for a retry time. Only then may `closed` go back: the NOTIFY may be very late, or the
 * count may have wrapped, and the server cannot tell which. */
static void end_q2(struct server *s, struct lock *l, uint32_t count, uint64_t now, struct outbox *out)
{
    if ((int32_t)(count - l->closed) > 0 || now >= l->said_ns + s->config.retry_ns ||
        MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_RECALL))
        say_last(s, l, count, now, out);
    else
        l->credit = l->push; /* as with the LAST that was said */
}

/* ---- priorities that have no queue in the switch (dataplane/netlock.h) ---- */

void server_note_levels(struct lock *l, const struct netlock_packet *p)
{
    l->levels = (uint8_t)min_u64(p->ticket, PACKET_PRIORITIES);
}

static bool is_low(const struct lock *l, const struct entry *e)
{
    return l->levels && e->priority >= l->levels;
}

/* The switch calls: its queues are empty. A call from before this server's latest LAST does not count: other requests may have come
 * since. */
static void on_call(struct server *s, struct lock *l, const struct netlock_packet *p)
{
    bool fresh = (int32_t)(p->count - l->closed) > 0 && l->push == l->acked && p->pushed == l->push;
    if (!(p->flags & NETLOCK_LOW) || !(fresh || MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_LOW)))
        return;
    l->called = true;
    l->run = l->push;
    l->run_mode = 0;
}

/* Whether the request may be pushed now. A call is for a writer, or for readers one after the other, before all other pushes. */
static bool has_turn(const struct lock *l, const struct entry *e)
{
    bool first = !l->run_mode, share = l->run_mode == NETLOCK_SHARED && e->mode == NETLOCK_SHARED;
    return !is_low(l, e) || (l->called && l->push == l->run && (first || share));
}

/* No request is left that can wait in the switch, and all that were pushed have come. */
static bool has_only_lows(struct server *s, const struct lock *l)
{
    return l->push == l->acked && (!l->first || is_low(l, server_entry(s, l->first - 1)));
}

/* As many as there is room for: the switch said how many. */
void server_push(struct server *s, struct lock *l, uint64_t now, struct outbox *out)
{
    uint32_t link = l->first;
    while (link && server_entry(s, link - 1)->pushed)
        link = server_entry(s, link - 1)->next;
    for (; link && (int32_t)(l->credit - l->push) > 0 && l->push - l->acked < WINDOW; link = server_entry(s, link - 1)->next) {
        struct entry *e = server_entry(s, link - 1);
        e->push = l->push;
        if (!has_turn(l, e) || !push_one(s, l, e, out))
            break;
        if (is_low(l, e)) {
            l->run = l->push + 1;
            l->run_mode = e->mode;
        }
        e->pushed = true;
        l->push++;
        l->next_ns = now + s->config.retry_ns * 2;
        server_set_busy(s, l, true);
    }
}

/* All pushes below that number have come. */
static void acknowledge(struct server *s, struct lock *l, uint32_t upto)
{
    if ((int32_t)(upto - l->acked) <= 0 || (int32_t)(upto - l->push) > 0)
        return;
    while (l->first && server_entry(s, l->first - 1)->pushed && (int32_t)(server_entry(s, l->first - 1)->push - upto) < 0) {
        struct entry *e = server_entry(s, l->first - 1);
        server_take_out(s, l, e);
        e->state = e->mode ? ENTRY_MOVED : ENTRY_DONE;
        e->pushed = false;
    }
    l->acked = upto;
}

/* The switch lets the lock go, in a round of its own, and takes no more pushes of this one. The requests that have not come wait
 * here as if they had never been pushed. */
static void end_pushes(struct server *s, struct lock *l, uint32_t upto)
{
    acknowledge(s, l, upto);
    server_recall(s, l);
    l->push = l->credit = l->acked;
}

void server_on_pushed(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    if (l->place == LOCK_LENT && (int32_t)(p->round - l->round) > 0) {
        end_pushes(s, l, p->pushed);
        return;
    }
    if (l->place != LOCK_LENT || p->round != l->round) {
        s->drops.stale++;
        return;
    }
    server_note_levels(l, p);
    acknowledge(s, l, p->pushed);
    server_push(s, l, now, out);
    if (has_only_lows(s, l)) /* 4.3: q2 is empty, and q1 has taken what there was */
        end_q2(s, l, p->count, now, out);
}

void server_on_notify(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    int32_t newer = (int32_t)(p->round - l->round);
    if (newer < 0 || (newer > 0 && l->place != LOCK_OWNED) || (newer == 0 && l->place != LOCK_LENT)) {
        s->drops.stale++;
        return;
    }
    if (newer > 0) { /* this server has lost its memory: the switch has the lock, and knows how far the pushes were */
        if (l->holders) {
            s->drops.bad++;
            return;
        }
        l->place = LOCK_LENT;
        l->round = p->round;
        l->push = l->acked = p->pushed;
        begin_counts(l);
        l->credit = p->pushed;
    }
    if (l->push == l->acked && (int32_t)(p->pushed - l->push) > 0) /* pushes of a former life of this server */
        l->push = l->acked = p->pushed;
    l->confirmed = true;
    acknowledge(s, l, p->pushed);
    if ((int32_t)(p->pushed + p->room - l->credit) > 0)
        l->credit = p->pushed + p->room;
    server_note_levels(l, p);
    on_call(s, l, p);
    server_push(s, l, now, out);
    if (!l->first || has_only_lows(s, l))
        end_q2(s, l, p->count, now, out);
}

/* ---- and back ---- */

void server_recall(struct server *s, struct lock *l)
{
    for (uint32_t i = l->first; i;) {
        struct entry *e = server_entry(s, i - 1);
        i = e->next;
        e->pushed = false;
        if (!e->mode) {
            server_take_out(s, l, e);
            e->state = ENTRY_DONE;
        }
    }
}

/* Nothing of it is in the switch any more. */
void server_on_give(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    if ((int32_t)(p->round - l->round) < 0) {
        s->drops.stale++;
        return;
    }
    if (l->place == LOCK_LENDING)
        return; /* it never was there in this round */
    if (p->round != l->round || l->place != LOCK_OWNED) {
        if (l->place == LOCK_LENT)
            acknowledge(s, l, p->pushed);
        server_recall(s, l);
        forget_counts(s, l);
        l->place = LOCK_OWNED;
        l->round = p->round;
        l->token = max_u64(l->token, p->token); /* I2 */
        server_set_busy(s, l, false);
        assert(!l->busy && l->token >= p->token);
        server_pump(s, l, now, out);
    }
    struct netlock_packet *a = server_to_switch(s, l, NETLOCK_GIVEN, out);
    if (a)
        a->round = p->round;
}

/* ---- the switch and this server know each other ---- */

/* The switch has lost its memory: lent locks are this server's again, once the leases that the switch gave have ended. */
static void take_back_all(struct server *s, uint64_t now)
{
    uint64_t from = MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_HASTY_REVERT) ? now : now + lease_over(&s->config);
    for (unsigned i = 0; i < s->config.servers; i++)
        if (s->slots[i].term && !s->slots[i].whole &&
            !server_hasty(s, i)) /* this server does not know which locks were lent before it had the slot */
            s->slots[i].open_ns = max_u64(s->slots[i].open_ns, from);
    for (uint64_t i = server_next_lock(s, UINT64_MAX); i < s->config.locks; i = server_next_lock(s, i)) {
        struct lock *l = server_lock(s, i);
        if (l->place == LOCK_LENT) {
            server_recall(s, l);
            l->from_ns = from;
        }
        forget_counts(s, l);
        l->place = LOCK_OWNED;
        l->round = 0;
        server_set_busy(s, l, false);
    }
    s->revive_ns = min_u64(s->revive_ns, from);
}

/* No host holds anything that a former life of the switch granted. */
static void need_not_wait(struct server *s, uint64_t now)
{
    if (s->clean)
        return;
    s->clean = true;
    for (uint64_t i = server_next_lock(s, UINT64_MAX); i < s->config.locks; i = server_next_lock(s, i)) {
        struct lock *l = server_lock(s, i);
        if (l->from_ns > now) {
            l->from_ns = now;
            s->revive_ns = now;
        }
    }
    for (unsigned i = 0; i < s->config.servers; i++) {
        struct server_slot *slot = &s->slots[i];
        uint64_t heir = slot->whole ? 0 : slot->adopted_ns + lease_over(&s->config);
        if (slot->open_ns > max_u64(heir, now)) {
            slot->open_ns = max_u64(heir, now);
            s->revive_ns = min_u64(s->revive_ns, slot->open_ns);
        }
    }
}

void server_on_synced(struct server *s, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    (void)out;
    if (p->pushed != s->life || p->head.epoch < s->switch_life) {
        s->drops.stale++;
        return;
    }
    bool new_term = p->head.epoch != s->switch_life || !s->synced;
    if (new_term) {
        s->clean = false;
        s->switch_life = p->head.epoch;
        s->switch_number = p->head.from.port;
        s->synced = true;
        take_back_all(s, now);
        s->revive_ns = now;
    }
    for (unsigned i = 0; i < s->config.servers; i++) {
        struct server_slot *slot = &s->slots[i];
        slot->synced = slot->synced && !new_term;
        if (!slot->synced && p->stamp > slot->adopted_ns) { /* asked since */
            slot->synced = true;
            slot->version = p->round;
            s->revive_ns = now;
        }
    }
    if (p->count)
        need_not_wait(s, now);
}

uint64_t server_lend_tick(struct server *s, uint64_t now, struct outbox *out)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t link = s->busy; link;) {
        struct lock *l = at_link(s, link);
        link = l->busy_next;
        bool pushing = l->push != l->acked && !MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_NO_RESEND);
        if (l->confirmed && !pushing) {
            server_set_busy(s, l, false);
            continue;
        }
        if (l->next_ns <= now && !l->confirmed) {
            say_handover(s, l, now, out);
        } else if (l->next_ns <= now) {
            l->next_ns = now + s->config.retry_ns * 2;
            for (uint32_t i = l->first; i && server_entry(s, i - 1)->pushed; i = server_entry(s, i - 1)->next)
                if (!push_one(s, l, server_entry(s, i - 1), out))
                    break;
        }
        next = min_u64(next, l->next_ns);
    }
    return next;
}
