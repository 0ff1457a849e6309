/* SPDX-License-Identifier: Apache-2.0 */
/* The lock server: requests of hosts, which the switch passes on. Locks that are not in the switch are granted here; for locks that
 * are, the server has q2 (4.3). */
#include "dataplane/netlock_packets.h"
#include "designs/netlock/deadlock.h"

#include <errno.h>

static struct server_layout lay_out(const struct rack_config *c)
{
    uint64_t clients = c->machines + UINT64_C(1), requests = clients * rack_requests(c);
    struct server_layout l = {.entries = round_up(sizeof(struct server) + clients * sizeof(struct client), CACHE_LINE)};
    l.deeds = l.entries + round_up(requests * sizeof(struct entry), CACHE_LINE);
    l.locks = l.deeds + round_up(requests * sizeof(struct deed), CACHE_LINE);
    l.bytes = l.locks + c->locks * sizeof(struct lock);
    return l;
}

uint64_t netlock_server_bytes(const struct rack_config *c)
{
    return lay_out(c).bytes;
}

ONCE void netlock_server_init(void *server, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh,
                              uint64_t now)
{
    struct server *s = server; /* zeroed */
    s->config = *config;
    s->machine = machine;
    s->life = life;
    s->number = (uint16_t)rack_server_on(config, machine);
    assert(s->number < config->servers);
    s->at = lay_out(config);
    s->fresh = fresh;
    s->revive_ns = UINT64_MAX;
    s->beat_ns = now;
    s->sync_ns = now;
    s->report_ns = now + netlock_measure_ns(&s->config);
}

/* Locks lie behind everything else: nothing moves. */
ONCE void netlock_server_grow(void *server, uint64_t locks)
{
    struct server *s = server;
    assert(locks > s->config.locks);
    if (MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_GROW)) {
        memset((char *)s + s->at.entries, 0, s->at.bytes - s->at.entries);
        s->busy = s->touched = 0;
    }
    s->config.locks = locks;
    s->at = lay_out(&s->config);
}

const struct packet_drops *netlock_server_drops(const void *server)
{
    return &((const struct server *)server)->drops;
}

/* ---- answers ---- */

struct netlock_packet *server_answer(struct server *s, const struct entry *e, enum netlock_type type, struct outbox *out)
{
    struct netlock_packet *p = netlock_packet_new(out, &s->config, type, s->life, (struct place){s->machine, PORT_SERVER},
                                                  (struct place){server_machine_of(s, e), e->port});
    if (!p)
        return NULL;
    p->head.index = e->index;
    p->head.nonce = e->nonce;
    p->mode = e->mode;
    return p;
}

/* ---- queues ---- */

static bool before(const struct entry *a, const struct entry *b)
{
    if (a->pushed)
        return true;
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return !a->count || !b->count || (int32_t)(a->count - b->count) <= 0;
}

/* Behind all of its priority, and in the order in which the switch saw them. */
void server_append(struct server *s, struct lock *l, struct entry *e)
{
    uint32_t prev = l->last;
    while (prev && !before(server_entry(s, prev - 1), e))
        prev = server_entry(s, prev - 1)->prev;
    uint32_t next = prev ? server_entry(s, prev - 1)->next : l->first;
    e->prev = prev;
    e->next = next;
    *(prev ? &server_entry(s, prev - 1)->next : &l->first) = server_link(s, e);
    *(next ? &server_entry(s, next - 1)->prev : &l->last) = server_link(s, e);
    e->state = ENTRY_WAITING;
    l->waiters++;
    if (l->waiters + l->holders > l->peak)
        l->peak = l->waiters + l->holders;
}

void server_take_out(struct server *s, struct lock *l, struct entry *e)
{
    assert(l->waiters && e->state != ENTRY_HELD);
    *(e->prev ? &server_entry(s, e->prev - 1)->next : &l->first) = e->next;
    *(e->next ? &server_entry(s, e->next - 1)->prev : &l->last) = e->prev;
    l->waiters--;
}

void server_hold(struct server *s, struct lock *l, struct entry *e)
{
    assert(!l->upgrader && (!l->holders || (l->mode == NETLOCK_SHARED && e->mode == NETLOCK_SHARED))); /* I1 */
    e->state = ENTRY_HELD;
    e->old = false;
    l->mode = e->mode;
    e->prev = 0;
    e->next = l->held;
    if (l->held)
        server_entry(s, l->held - 1)->prev = server_link(s, e);
    l->held = server_link(s, e);
    l->holders++;
    l->kept += e->kept;
    if (l->holders > l->peak)
        l->peak = l->holders;
}

static void unlink_holder(struct server *s, struct lock *l, const struct entry *e)
{
    assert(l->holders);
    *(e->prev ? &server_entry(s, e->prev - 1)->next : &l->held) = e->next;
    if (e->next)
        server_entry(s, e->next - 1)->prev = e->prev;
    l->holders--;
    l->kept -= e->kept;
}

/* With a token that no other grant has had. */
static struct netlock_packet *say_granted(struct server *s, struct lock *l, const struct entry *e, struct outbox *out)
{
    assert(server_token(s, l) >= l->token); /* I2 */
    l->token = server_token(s, l) + 1;
    struct netlock_packet *p = server_forwards(s, e, l->token, out) ? NULL : server_answer(s, e, NETLOCK_GRANT, out);
    if (p)
        p->token = l->token;
    return p;
}

static void grant(struct server *s, struct lock *l, struct entry *e, struct outbox *out)
{
    server_hold(s, l, e);
    say_granted(s, l, e, out);
}

bool server_fits(const struct lock *l, uint8_t mode)
{
    if (l->upgrader)
        return false;
    return !l->holders || (l->mode == NETLOCK_SHARED && mode == NETLOCK_SHARED);
}

static void refuse(struct server *s, struct entry *e, struct outbox *out)
{
    e->state = ENTRY_DONE;
    struct netlock_packet *a = server_answer(s, e, NETLOCK_REFUSED, out);
    if (a)
        a->code = NETLOCK_HELD;
}

void server_pump(struct server *s, struct lock *l, uint64_t now, struct outbox *out)
{
    if (l->place == LOCK_LENDING && !l->kept)
        server_hand_over(s, l, now, out);
    else if (l->place == LOCK_LENT)
        server_push(s, l, now, out);
    else if (server_open(s, l, now))
        while (l->first && server_fits(l, server_entry(s, l->first - 1)->mode)) {
            struct entry *e = server_entry(s, l->first - 1);
            server_take_out(s, l, e);
            grant(s, l, e, out);
        }
    if (l->place == LOCK_OWNED && l->first && server_entry(s, l->first - 1)->try && server_open(s, l, now)) {
        struct entry *e = server_entry(s, l->first - 1); /* the lock has come back, and is held: the first waiter only tried */
        server_take_out(s, l, e);
        refuse(s, e, out);
    }
}

void server_end(struct server *s, struct entry *e, uint64_t now, struct outbox *out)
{
    struct lock *l = server_lock(s, e->index);
    enum entry_state was = (enum entry_state)e->state;
    if (was == ENTRY_WAITING && e->pushed) {
        e->mode =
            0; /* its push is in flight to the switch, which must get a push of that number: without a mode, it was given up */
        return;
    }
    e->state = ENTRY_DONE;
    if (was == ENTRY_WAITING)
        server_take_out(s, l, e);
    else if (was == ENTRY_HELD)
        unlink_holder(s, l, e);
    else
        return;
    if (was == ENTRY_HELD) {
        l->upgrader = l->upgrader == server_link(s, e) ? 0 : l->upgrader;
        server_strengthen(s, l, now, out);
    }
    server_pump(s, l, now, out);
}

/* Another life of the host numbers its requests anew. A request that is being pushed to the switch becomes a push without a
 * mode. */
static void end_all(void *server, uint16_t machine, bool anew, uint64_t now, struct outbox *out)
{
    struct server *s = server;
    uint64_t n = rack_requests(&s->config);
    for (uint64_t i = 0; i < n; i++)
        server_end(s, server_entry(s, machine * n + i), now, out);
    for (uint64_t i = 0; anew && i < n; i++)
        if (server_entry(s, machine * n + i)->state != ENTRY_WAITING)
            server_entry(s, machine * n + i)->nonce = 0;
}

/* ---- requests ---- */

/* Too late for q2: sent back to the switch as if it had just come. */
static void bounce(const struct netlock_packet *p, struct place to, struct outbox *out)
{
    struct netlock_packet *b = outbox_add(out, sizeof *b);
    if (!b)
        return;
    *b = *p;
    b->head.to = to;
    b->flags = (uint8_t)((p->flags & NETLOCK_TRY) | NETLOCK_BOUNCED);
}

/* A try is answered at once. If the lock is moving and has neither holders nor waiters, it is answered where the lock arrives. */
static void enter(struct server *s, struct lock *l, struct entry *e, uint64_t now, struct outbox *out)
{
    bool moving = l->place != LOCK_OWNED && !l->first && !l->holders;
    if (e->try && l->place == LOCK_LENDING && l->holders && !l->first && server_fits(l, e->mode) && server_open(s, l, now)) {
        grant(s, l, e, out); /* one more reader: the lock is still here */
        return;
    }
    if (e->try && !moving && (l->first || !server_fits(l, e->mode) || l->place != LOCK_OWNED)) {
        refuse(s, e, out);
        return;
    }
    if (e->try && l->place == LOCK_OWNED && !server_open(s, l, now)) {
        e->state = ENTRY_DONE; /* it is unknown whether the lock is held */
        return;
    }
    server_append(s, l, e);
    server_pump(s, l, now, out);
}

/* Whether a request or a deed is of the lock's generation, or of the next. Those of a former one are late duplicates: no host uses
 * it any more (cluster/coordinator_names.c). Requests that wait here are granted, and their hosts give them back. */
static bool is_of_lock(struct server *s, const struct packet_head *h)
{
    struct lock *l = server_lock(s, h->index);
    if (h->generation < l->generation && !MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_GENERATION)) {
        s->drops.stale++;
        return false;
    }
    l->generation = h->generation > l->generation ? h->generation : l->generation;
    return true;
}

static void on_acquire(struct server *s, struct entry *e, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct lock *l = server_lock(s, p->head.index);
    bool over = p->flags & NETLOCK_OVERFLOW;
    bool known = p->head.nonce == e->nonce, of_round = over && p->round == l->round;
    uint32_t closed = p->flags & NETLOCK_LOW ? l->closed_low : l->closed;
    if (of_round)
        server_note_levels(l, p);
    if (known && e->state == ENTRY_HELD) {
        if (server_rules(s, now))
            say_granted(s, l, e, out);
        return;
    }
    if (known && e->state == ENTRY_WAITING)
        return;
    if (known && e->state == ENTRY_DONE) {
        server_answer(s, e, NETLOCK_GONE, out);
        return;
    }
    if (known && l->place != LOCK_OWNED) /* moved: the switch has it */
        return;
    if (e->state == ENTRY_WAITING && e->pushed)
        return; /* the request before it is on its way to the switch; the host asks again */
    if (l->place == LOCK_LENT && (over ? of_round && (int32_t)(p->count - closed) <= 0 : l->confirmed || l->empty)) {
        struct netlock_packet *ask = over ? NULL : server_to_switch(s, l, NETLOCK_LAST, out);
        if (ask)                     /* the switch does not seem to have the lock: ask it */
            ask->count = UINT32_MAX; /* q2 need not be empty */
        bounce(p, server_switch(s), out);
        return;
    }
    server_end(s, e, now, out); /* the host is done with what it was */
    *e = (struct entry){.nonce = p->head.nonce,
                        .index = p->head.index,
                        .port = p->head.from.port,
                        .mode = p->mode,
                        .priority = p->priority,
                        .tenant = p->tenant,
                        .try = p->flags & NETLOCK_TRY,
                        .count = of_round ? p->count : 0};
    server_touch(s, l);
    enter(s, l, e, now, out);
}

static void on_release(struct server *s, struct entry *e, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct entry answered = {.nonce = p->head.nonce, .index = p->head.index, .port = p->head.from.port, .mode = NETLOCK_SHARED};
    bool travels = e->state == ENTRY_WAITING && e->pushed;
    server_end(s, e, now, out);
    if (!travels) {
        /* If it overtook its ACQUIRE, that one is now known as over. */
        *e = answered;
        server_answer(s, e, NETLOCK_RELEASED, out);
    } else if (p->head.nonce == e->nonce) {
        server_answer(s, e, NETLOCK_RELEASED, out); /* the switch has noted that it was cancelled, and will not queue it */
    }
}

static void say_released(struct server *s, const struct entry *e, const struct packet_head *h, struct outbox *out)
{
    struct netlock_packet *a = server_answer(s, e, NETLOCK_RELEASED, out);
    if (!a)
        return;
    a->head.nonce = h->nonce;
    a->head.index = h->index;
    a->head.to.port = h->from.port;
}

static void on_lease(struct server *s, struct client *c, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    bool gives = server_rules(s, now) && now >= s->quiet_ns && client_hears(c, p->stamp, &s->config, &s->drops);
    struct netlock_packet *a = gives ? outbox_add(out, sizeof *a) : NULL;
    if (!a)
        return; /* no answer, no lease */
    client_renew(c, &s->config, now);
    c->said_ns = p->stamp;
    *a = *p;
    netlock_turn_round(a, NETLOCK_LEASED, s->life, (struct place){s->machine, PORT_SERVER});
    a->token = 0;
    for (unsigned i = 0; i < s->config.servers; i++)
        a->token |= (uint64_t)(s->slots[i].term != 0) << i; /* whose locks it has */
}

/* ---- packets ---- */

static bool from_switch(const struct packet_head *h)
{
    return h->from.machine == MACHINE_SWITCH;
}

/* The requirements on a packet, by its type. Types that are not in the table are not for servers. */
enum { OF_HOST = 1, OF_SWITCH = 2, OWNED = 4, NONCE = 8, MODE = 16, FORWARDED = 32 };

static const uint8_t demands[NETLOCK_TYPES] = {
    [NETLOCK_LEASE] = OF_HOST,
    [NETLOCK_ACQUIRE] = OF_HOST | OWNED | NONCE | MODE | FORWARDED,
    [NETLOCK_CANCEL] = OF_HOST | OWNED | NONCE | FORWARDED,
    [NETLOCK_RELEASE] = OF_HOST | NONCE,
    [NETLOCK_CONVERT] = OF_HOST | OWNED | NONCE | MODE,
    [NETLOCK_STAY] = OF_HOST | OWNED | NONCE | MODE,
    [NETLOCK_PROBE] = OF_HOST | OWNED | NONCE | FORWARDED,
    [NETLOCK_DATA] = OF_HOST | NONCE | MODE,
    [NETLOCK_HOLD] = OF_HOST | OWNED | NONCE | MODE,
    [NETLOCK_NOTIFY] = OF_SWITCH | OWNED,
    [NETLOCK_PUSHED] = OF_SWITCH | OWNED,
    [NETLOCK_TAKE] = OF_SWITCH | OWNED,
    [NETLOCK_GIVE] = OF_SWITCH | OWNED,
    [NETLOCK_CHASE] = OF_SWITCH | OWNED,
    [NETLOCK_TAKE_MANY] = OF_SWITCH,
    [NETLOCK_TAKEN_MANY] = OF_SWITCH,
    [NETLOCK_SYNCED] = OF_SWITCH,
};

static bool sound(const struct server *s, const struct netlock_packet *p, uint32_t len)
{
    const struct packet_head *h = &p->head;
    uint8_t demand = h->type < NETLOCK_TYPES ? demands[h->type] : 0;
    if (!(demand & (from_switch(h) ? OF_SWITCH : OF_HOST)) || (demand & OWNED && !server_owns(s, h->index)) ||
        (demand & NONCE && !netlock_sound_nonce(p, rack_requests(&s->config))) || (demand & MODE && !netlock_sound_mode(p)) ||
        (demand & FORWARDED && !(p->flags & NETLOCK_FORWARDED)))
        return false;
    if (h->type == NETLOCK_ACQUIRE)
        return !(p->flags & NETLOCK_PAYLOAD) || netlock_sound_payload(&s->config, p, len);
    if (h->type == NETLOCK_DATA)
        return server_sound_data(s, p, len);
    if (h->type == NETLOCK_PROBE)
        return p->client.machine == h->from.machine;
    return (h->type != NETLOCK_TAKE_MANY && h->type != NETLOCK_TAKEN_MANY) || server_sound_many(s, p, len);
}

/* ACQUIRE and CANCEL must come from the switch's latest life, after it has answered SYNC; ACQUIRE only with a lease. */
static bool admit(struct server *s, struct client *c, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    const struct packet_head *h = &p->head;
    if (!client_admit(c, h, &s->drops, end_all, s, now, out))
        return false;
    if (h->type != NETLOCK_ACQUIRE && h->type != NETLOCK_CANCEL)
        return true;
    /* A request that the switch passed on before it answered SYNC does not tell which of the two has the lock now. */
    const struct server_slot *slot = server_slot(s, h->index);
    bool current = s->synced && slot->synced && p->life == s->switch_life &&
                   (p->flags & NETLOCK_OVERFLOW || (int32_t)(p->round - slot->version) >= 0);
    server_hear_of_term(s, p->life, now);
    if (current && (h->type == NETLOCK_CANCEL || c->live))
        return true;
    s->drops.stale++; /* it asks again */
    return false;
}

/* Asks the switch for its term, and what it has. */
static void say_sync(struct server *s, uint64_t now, struct outbox *out)
{
    if (now < s->sync_ns)
        return;
    struct netlock_packet *p =
        netlock_packet_new(out, &s->config, NETLOCK_SYNC, s->life, (struct place){s->machine, PORT_SERVER}, server_switch(s));
    if (p)
        p->stamp = now;
    bool settled = s->synced && s->table.term == s->switch_life;
    if (settled)
        s->syncs = 0;
    s->sync_ns = !p ? now : now + (settled ? s->config.lease_ns / LEASE_SHARE : netlock_pause(&s->config, &s->syncs));
}

static void on_switch(struct server *s, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    struct lock *l = server_lock(s, p->head.index);
    if (p->head.type == NETLOCK_SYNCED) {
        server_on_synced(s, p, now, out);
        return;
    }
    if (!s->synced || p->head.epoch != s->switch_life) {
        s->drops.stale++;
        return;
    }
    if (p->head.type == NETLOCK_TAKE)
        server_on_take(s, l, p, now, out);
    else if (p->head.type == NETLOCK_TAKE_MANY)
        server_on_take_many(s, p, now, out);
    else if (p->head.type == NETLOCK_TAKEN_MANY)
        server_on_taken_many(s, p);
    else if (p->head.type == NETLOCK_GIVE)
        server_on_give(s, l, p, now, out);
    else if (p->head.type == NETLOCK_NOTIFY)
        server_on_notify(s, l, p, now, out);
    else if (p->head.type == NETLOCK_CHASE)
        deadlock_at_server(s, p, len, now, out);
    else
        server_on_pushed(s, l, p, now, out);
}

static struct entry *entry_of(struct server *s, const struct packet_head *h)
{
    return server_entry(s, (uint64_t)h->from.machine * rack_requests(&s->config) + netlock_request_of(h->nonce));
}

/* A request of a host, by its nonce: an entry has the latest of them. */
static void on_request(struct server *s, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    const struct packet_head *h = &p->head;
    struct entry *e = entry_of(s, h);
    if (e->nonce && (int64_t)(h->nonce - e->nonce) < 0) {
        if (h->type != NETLOCK_ACQUIRE) /* it has ended long ago */
            say_released(s, e, h, out);
        s->drops.stale++;
        return;
    }
    if (!server_owns(s, h->index)) { /* another server has the lock now: no client holds it from this one */
        say_released(s, e, h, out);
        return;
    }
    if (h->nonce == e->nonce && h->index != e->index) {
        s->drops.bad++;
        return;
    }
    if (h->type == NETLOCK_ACQUIRE && !is_of_lock(s, h))
        return;
    if (h->nonce == e->nonce)
        e->port = h->from.port; /* the process that asked before, for any of its host, may be gone */
    /* The lock has a place in the switch, in a round that this server does not know of: TAKE has not come, or this server has lost
     * its memory since. In both cases nothing is granted here before the switch has said more. */
    if (p->flags & NETLOCK_OVERFLOW && !MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_DEAF_SERVER))
        server_on_take(s, server_lock(s, h->index), p, now, out);
    if (h->type == NETLOCK_ACQUIRE) {
        s->carried = p->flags & NETLOCK_PAYLOAD ? p : NULL;
        s->carried_len = len;
        on_acquire(s, e, p, now, out);
        s->carried = NULL;
    } else if (h->type == NETLOCK_CONVERT || h->type == NETLOCK_STAY) {
        server_on_convert(s, e, p, now, out);
    } else {
        on_release(s, e, p, now, out);
    }
}

static void on_host(struct server *s, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    struct client *c = &s->clients[p->head.from.machine];
    bool data = p->head.type == NETLOCK_DATA;
    if (data && is_of_lock(s, &p->head))
        server_on_data(s, p, len, out);
    else if (data || !admit(s, c, p, now, out))
        return;
    else if (p->head.type == NETLOCK_LEASE)
        on_lease(s, c, p, now, out);
    else if (p->head.type == NETLOCK_PROBE)
        deadlock_at_server(s, p, len, now, out);
    else if (p->head.type != NETLOCK_HOLD)
        on_request(s, p, len, now, out);
    else if (is_of_lock(s, &p->head))
        server_on_hold(s, c, entry_of(s, &p->head), p, now, out);
}

void netlock_server_packet(void *server, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct server *s = server;
    const struct packet_head *h = packet_check(data, len, PACKET_NETLOCK, &s->config, &s->drops);
    const struct netlock_packet *p = data;
    if (!h)
        return;
    bool of_steward = h->from.machine == MACHINE_STEWARD;
    if (len < sizeof *p || (!of_steward && !sound(s, p, len))) {
        s->drops.bad++;
        return;
    }
    if (of_steward)
        server_on_term(s, p, len, now);
    say_sync(s, now, out);
    if (of_steward)
        return;
    if (from_switch(h))
        on_switch(s, p, len, now, out);
    else if (h->from.machine <= s->config.machines)
        on_host(s, p, len, now, out);
    else
        s->drops.alien++;
}

/* ---- time ---- */

/* Locks whose leases have ended by now. */
static void revive(struct server *s, uint64_t now, struct outbox *out)
{
    s->revive_ns = UINT64_MAX;
    for (unsigned i = 0; i < s->config.servers; i++)
        if (s->slots[i].term && s->slots[i].open_ns > now)
            s->revive_ns = min_u64(s->revive_ns, s->slots[i].open_ns);
    for (uint64_t i = server_next_lock(s, UINT64_MAX); i < s->config.locks; i = server_next_lock(s, i)) {
        struct lock *l = server_lock(s, i);
        if (l->from_ns > now)
            s->revive_ns = min_u64(s->revive_ns, l->from_ns);
        else if (l->first || l->place == LOCK_LENDING)
            server_pump(s, l, now, out);
    }
}

/* Repeats the grants of holds that their hosts may not know of (the grant and the host's answer were lost). If a host does not want
 * one, it gives it back. As many at a time as the outbox has room for. */
static void remind(struct server *s, uint64_t now, struct outbox *out)
{
    uint64_t n = (s->config.machines + UINT64_C(1)) * rack_requests(&s->config);
    for (; s->remind_at < n && out->packets < OUTBOX_PACKETS / 2; s->remind_at++) {
        struct entry *e = server_entry(s, s->remind_at);
        struct netlock_packet *p = e->state == ENTRY_HELD && e->old ? say_granted(s, server_lock(s, e->index), e, out) : NULL;
        if (p)
            p->head.to.port = PORT_POOL; /* its process may be gone */
        e->old = e->state == ENTRY_HELD;
    }
    if (s->remind_at < n)
        return;
    s->remind_at = 0;
    s->remind_ns = now + s->config.lease_ns / 2;
}

uint64_t netlock_server_tick(void *server, uint64_t now, struct outbox *out)
{
    struct server *s = server;
    uint64_t lapses = clients_lapse(s->clients, &s->config, end_all, s, now, out);
    uint64_t beat = server_beat(s, now, out);
    say_sync(s, now, out);
    if (s->synced && s->revive_ns <= now && server_rules(s, now))
        revive(s, now, out);
    if (s->remind_ns <= now && server_rules(s, now))
        remind(s, now, out);
    if (s->report_ns <= now)
        server_report(s, now, out);
    uint64_t next = min_u64(min_u64(s->sync_ns, s->report_ns), server_lend_tick(s, now, out));
    next = min_u64(next, server_rules(s, now) ? min_u64(s->remind_ns, beat) : beat);
    next = min_u64(next, s->synced && server_rules(s, now) ? s->revive_ns : beat);
    return min_u64(next, lapses);
}
