/* SPDX-License-Identifier: Apache-2.0 */
/* The lock server: queues per lock, and for each slot of each host what it asked last. */
#include "designs/packet/clients.h"
#include "designs/srvlock/srvlock.h"

#include <errno.h>

enum entry_state { ENTRY_DONE, ENTRY_WAITING, ENTRY_HELD, ENTRY_UPGRADING };

/* The latest request of one slot of one host. */
struct entry {
    uint64_t nonce; /* 0: none yet */
    uint64_t index;
    uint64_t token;
    uint32_t next, prev; /* in the lock's queue; entry + 1, 0: none */
    uint32_t step;       /* of the latest conversion */
    uint32_t generation; /* of the index; if the lock has another one, the entry has no part in it any more */
    uint16_t port;
    uint16_t limit; /* of a semaphore; 0: it is none */
    uint16_t code;  /* how a request that is done, or the latest conversion, was refused; 0: not */
    uint8_t state;
    uint8_t mode;
};

struct lock {
    uint64_t grants; /* the token's lower half */
    uint32_t first, last;
    uint32_t holders;
    uint32_t upgrader; /* entry + 1 of the reader that waits to be the only one; 0: none */
    uint32_t generation;
    uint16_t limit; /* of the holders, if they have places of a semaphore; else 0 */
    uint8_t mode;   /* of the holders */
};

struct server {
    struct rack_config config;
    struct packet_drops drops;
    struct packet_figures figures;
    uint64_t open_ns; /* grants from then on */
    uint32_t life;
    uint16_t machine;
    uint16_t number;   /* among the servers */
    uint64_t locks_at; /* offsets */
    uint64_t entries_at;
    struct client clients[]; /* by the machine's number, from 0 on; then locks, then entries */
};

static uint64_t lock_count(const struct rack_config *c)
{
    return c->locks / c->servers + 1;
}

static uint64_t locks_at(const struct rack_config *c)
{
    return round_up(sizeof(struct server) + (c->machines + UINT64_C(1)) * sizeof(struct client), CACHE_LINE);
}

uint64_t srv_server_bytes(const struct rack_config *c)
{
    return locks_at(c) + lock_count(c) * sizeof(struct lock) +
           (c->machines + UINT64_C(1)) * rack_requests(c) * sizeof(struct entry);
}

void srv_server_init(void *memory, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh, uint64_t now)
{
    struct server *s = memory; /* zeroed */
    s->config = *config;
    s->machine = machine;
    s->life = life;
    s->number = (uint16_t)rack_server_on(config, machine);
    assert(s->number < config->servers);
    s->locks_at = locks_at(config);
    s->entries_at = s->locks_at + lock_count(config) * sizeof(struct lock);
    bool wait = !fresh && !MISTAKE(config->mistakes, SRV_MISTAKE_HASTY_SERVER);
    s->open_ns = wait ? now + lease_over(config) : now;
}

const struct packet_drops *srv_server_drops(const void *server)
{
    return &((const struct server *)server)->drops;
}

struct packet_figures srv_server_figures(const void *server)
{
    struct packet_figures f = ((const struct server *)server)->figures;
    f.passed_on = PACKET_UNCOUNTED;
    return f;
}

static struct lock *lock_of(struct server *s, uint64_t index)
{
    return (struct lock *)(void *)((char *)s + s->locks_at) + srv_place(&s->config, index);
}

static struct entry *entry_at(struct server *s, uint64_t i)
{
    return (struct entry *)(void *)((char *)s + s->entries_at) + i;
}

static uint32_t link_of(struct server *s, const struct entry *e)
{
    return (uint32_t)(e - entry_at(s, 0)) + 1;
}

static uint16_t machine_of(struct server *s, const struct entry *e)
{
    return (uint16_t)((uint64_t)(e - entry_at(s, 0)) / rack_requests(&s->config));
}

/* ---- answers ---- */

static void answer(struct server *s, const struct entry *e, enum srv_type type, struct outbox *out)
{
    struct srv_packet *p = outbox_add(out, sizeof *p);
    if (!p)
        return; /* as if it were lost on its way */
    srv_head(p, &s->config, type, s->life, (struct place){s->machine, PORT_SERVER}, (struct place){machine_of(s, e), e->port});
    p->head.index = e->index;
    p->head.generation = e->generation;
    p->head.nonce = e->nonce;
    p->step = e->step;
    p->code = e->code;
    p->mode = e->mode;
    p->token = e->token;
}

/* ---- queues ---- */

static void append(struct server *s, struct lock *l, struct entry *e)
{
    e->next = 0;
    e->prev = l->last;
    *(l->last ? &entry_at(s, l->last - 1)->next : &l->first) = link_of(s, e);
    l->last = link_of(s, e);
}

static void take_out(struct server *s, struct lock *l, struct entry *e)
{
    *(e->prev ? &entry_at(s, e->prev - 1)->next : &l->first) = e->next;
    *(e->next ? &entry_at(s, e->next - 1)->prev : &l->last) = e->prev;
}

static void grant(struct server *s, struct lock *l, struct entry *e, enum pawl_mode mode, struct outbox *out)
{
    assert(l->holders == 1 || (l->holders && mode == PAWL_SHARED)); /* I1 */
    e->state = ENTRY_HELD;
    e->mode = l->mode = (uint8_t)mode;
    e->code = 0;
    e->token = ((uint64_t)s->life << 32) + ++l->grants;
    answer(s, e, SRV_GRANT, out);
}

/* A shared request without a limit takes a place of a semaphore, too. */
static bool fits(const struct server *s, const struct lock *l, const struct entry *e)
{
    bool full = l->limit && l->holders >= l->limit + (MISTAKE(s->config.mistakes, SRV_MISTAKE_CROWD) ? 1u : 0u);
    return !l->holders || (l->mode == PAWL_SHARED && e->mode == PAWL_SHARED && !l->upgrader && !full);
}

/* The holders do not go with a semaphore of that limit. */
static bool other_limit(const struct server *s, const struct lock *l, const struct entry *e)
{
    return e->limit && l->holders && l->mode == PAWL_SHARED && l->limit != e->limit &&
           !MISTAKE(s->config.mistakes, SRV_MISTAKE_CROWD);
}

static void enter(struct server *s, struct lock *l, struct entry *e, struct outbox *out)
{
    if (!l->holders++)
        l->limit = e->limit;
    s->figures.holds++;
    grant(s, l, e, (enum pawl_mode)e->mode, out);
    assert(!l->limit || l->holders <= l->limit || MISTAKES(s->config.mistakes)); /* I25 */
    assert(!e->limit || e->limit == l->limit || MISTAKES(s->config.mistakes));   /* I25: one limit for all */
}

static void refuse(struct server *s, struct entry *e, uint16_t code, struct outbox *out)
{
    s->figures.refused++;
    e->state = ENTRY_DONE;
    e->code = code;
    answer(s, e, SRV_REFUSED, out);
}

/* Grants what can be granted now: first the reader that wants to write, then the queue in its order. */
static void pump(struct server *s, struct lock *l, struct outbox *out)
{
    if (l->upgrader && l->holders == 1) {
        struct entry *e = entry_at(s, l->upgrader - 1);
        l->upgrader = 0;
        l->limit = 0; /* there may have been a semaphore whose places it waited for */
        grant(s, l, e, PAWL_EXCLUSIVE, out);
    }
    while (l->first) {
        struct entry *e = entry_at(s, l->first - 1);
        bool refused = other_limit(s, l, e);
        if (!refused && !fits(s, l, e))
            break;
        take_out(s, l, e);
        s->figures.waiting--;
        if (refused)
            refuse(s, e, PAWL_ELIMITS, out);
        else
            enter(s, l, e, out);
    }
}

/* Out of it, from whatever state. */
static void end(struct server *s, struct entry *e, struct outbox *out)
{
    struct lock *l = lock_of(s, e->index);
    enum entry_state was = (enum entry_state)e->state;
    e->state = ENTRY_DONE;
    if (was == ENTRY_DONE || e->generation != l->generation)
        return;
    assert(l->holders || (was != ENTRY_HELD && was != ENTRY_UPGRADING));
    if (was == ENTRY_WAITING) {
        take_out(s, l, e);
        s->figures.waiting--;
        s->figures.gave_up++;
    } else {
        l->holders--;
        s->figures.holds--;
    }
    if (was == ENTRY_UPGRADING)
        l->upgrader = 0;
    pump(s, l, out);
}

static void end_all(void *server, uint16_t machine, bool anew, uint64_t now, struct outbox *out)
{
    struct server *s = server;
    uint64_t n = rack_requests(&s->config);
    (void)now;
    s->figures.lapsed += !anew;
    for (uint64_t i = 0; i < n; i++)
        end(s, entry_at(s, machine * n + i), out);
    if (anew)
        memset(entry_at(s, machine * n), 0, n * sizeof(struct entry));
}

/* ---- generations ---- */

/* No host uses the lock in its former generation (cluster/coordinator_names.c): holders and waiters that are still known are gone.
 */
static void begin_generation(struct server *s, struct lock *l, uint32_t generation)
{
    for (uint32_t i = l->first; i; i = entry_at(s, i - 1)->next) {
        entry_at(s, i - 1)->state = ENTRY_DONE;
        s->figures.waiting--;
    }
    s->figures.holds -= l->holders;
    *l = (struct lock){.grants = l->grants, .generation = generation};
}

/* A name that had another lock before gets higher tokens than it had there (I2): its generation is a later life than any before. */
static void raise_tokens(const struct server *s, struct lock *l, uint32_t generation)
{
    uint64_t floor = generation > s->life ? (uint64_t)(generation - s->life) << 32 : 0;
    if (!MISTAKE(s->config.mistakes, SRV_MISTAKE_FLOOR))
        l->grants = max_u64(l->grants, floor);
}

/* Whether the packet is of the lock's generation, or of the next. */
static bool is_of_lock(struct server *s, const struct packet_head *h)
{
    struct lock *l = lock_of(s, h->index);
    if (likely(h->generation == l->generation))
        return true;
    if (h->generation < l->generation) {
        s->drops.stale++;
        return MISTAKE(s->config.mistakes, SRV_MISTAKE_GENERATION);
    }
    raise_tokens(s, l, h->generation);
    begin_generation(s, l, h->generation);
    return true;
}

/* ---- requests ---- */

static void on_acquire(struct server *s, struct entry *e, const struct srv_packet *p, struct outbox *out)
{
    bool seen = p->head.nonce == e->nonce && !MISTAKE(s->config.mistakes, SRV_MISTAKE_NO_MEMORY);
    if (seen) {
        s->figures.repeated++;
        if (e->state == ENTRY_WAITING)
            answer(s, e, SRV_QUEUED, out);
        else if (e->state == ENTRY_HELD && !e->step)
            answer(s, e, SRV_GRANT, out);
        else if (e->state == ENTRY_DONE)
            answer(s, e, e->code ? SRV_REFUSED : SRV_RELEASED, out);
        return;
    }
    end(s, e, out); /* the slot is in use for something new: the host is done with what it was */
    *e = (struct entry){.nonce = p->head.nonce,
                        .index = p->head.index,
                        .generation = p->head.generation,
                        .port = p->head.from.port,
                        .limit = p->head.type == SRV_ENTER ? p->code : 0,
                        .mode = p->mode};
    struct lock *l = lock_of(s, e->index);
    if (other_limit(s, l, e)) {
        refuse(s, e, PAWL_ELIMITS, out);
    } else if (!l->first && fits(s, l, e)) {
        enter(s, l, e, out);
    } else if (p->flags & SRV_TRY) {
        refuse(s, e, PAWL_EHELD, out);
    } else {
        e->state = ENTRY_WAITING;
        s->figures.waiting++;
        s->figures.waited++;
        append(s, l, e);
        answer(s, e, SRV_QUEUED, out);
    }
}

static void on_release(struct server *s, struct entry *e, const struct srv_packet *p, struct outbox *out)
{
    end(s, e, out);
    /* If it overtook its ACQUIRE, that one is now known as over. */
    *e =
        (struct entry){.nonce = p->head.nonce, .index = p->head.index, .generation = p->head.generation, .port = p->head.from.port};
    answer(s, e, SRV_RELEASED, out);
}

/* A hold that a former life of this server has granted. It is taken as long as nothing is granted here; afterwards the host's lease
 * of that life is over. */
static void on_report(struct server *s, struct client *c, struct entry *e, const struct srv_packet *p, uint64_t now,
                      struct outbox *out)
{
    struct lock *l = lock_of(s, p->head.index);
    bool known = p->head.nonce == e->nonce;
    if (p->stamp != s->life) {
        s->drops.stale++; /* to a former life: the host may have released the lock since */
        return;
    }
    if (!known) {
        end(s, e, out); /* the slot is in use for something else */
        *e = (struct entry){.nonce = p->head.nonce,
                            .index = p->head.index,
                            .generation = p->head.generation,
                            .port = p->head.from.port,
                            .limit = p->code,
                            .step = p->step};
        if (now < s->open_ns && (!l->holders || (l->mode == PAWL_SHARED && p->mode == PAWL_SHARED))) {
            l->limit = l->holders++ ? (uint16_t)max_u64(l->limit, e->limit) : e->limit;
            s->figures.holds++;
            l->mode = e->mode = p->mode;
            e->token = p->token;
            e->state = ENTRY_HELD;
            client_renew(c, &s->config, now);
        }
    }
    struct srv_packet *a = outbox_add(out, sizeof *a);
    if (!a)
        return; /* it is reported again */
    srv_head(a, &s->config, SRV_REPORTED, s->life, (struct place){s->machine, PORT_SERVER}, p->head.from);
    a->head.index = p->head.index;
    a->head.generation = p->head.generation;
    a->head.nonce = p->head.nonce;
    a->code = e->state == ENTRY_HELD || e->state == ENTRY_UPGRADING ? 0 : ESTALE;
}

/* The same conversion as before: the same answer. */
static void repeat(struct server *s, const struct entry *e, struct outbox *out)
{
    if (e->state == ENTRY_HELD)
        answer(s, e, e->code ? SRV_REFUSED : SRV_GRANT, out);
    else if (e->state == ENTRY_UPGRADING)
        answer(s, e, SRV_QUEUED, out);
}

static void on_convert(struct server *s, struct entry *e, const struct srv_packet *p, struct outbox *out)
{
    if (p->step == e->step) {
        repeat(s, e, out);
        return;
    }
    if (e->state == ENTRY_UPGRADING) {
        s->drops.bad++; /* a host has one conversion of a hold at a time */
        return;
    }
    struct lock *l = lock_of(s, e->index);
    e->step = p->step;
    e->code = 0;
    if (p->mode == e->mode || p->mode == PAWL_SHARED) {
        grant(s, l, e, (enum pawl_mode)p->mode, out);
    } else if (l->upgrader) {
        e->code = EDEADLK;
        answer(s, e, SRV_REFUSED, out);
    } else {
        e->state = ENTRY_UPGRADING;
        l->upgrader = link_of(s, e);
        if (l->holders > 1)
            answer(s, e, SRV_QUEUED, out);
    }
    pump(s, l, out);
}

static void on_stay(struct server *s, struct entry *e, const struct srv_packet *p, struct outbox *out)
{
    if (e->state == ENTRY_UPGRADING) {
        struct lock *l = lock_of(s, e->index);
        e->state = ENTRY_HELD;
        e->code = ECANCELED;
        l->upgrader = 0;
        pump(s, l, out);
    } else if (p->step > e->step) { /* it overtook its CONVERT, which is now known as given up */
        e->step = p->step;
        e->code = ECANCELED;
    }
    repeat(s, e, out);
}

static void on_lease(struct server *s, struct client *c, const struct srv_packet *p, uint64_t now, struct outbox *out)
{
    struct srv_packet *a = client_hears(c, p->stamp, &s->config, &s->drops) ? outbox_add(out, sizeof *a) : NULL;
    if (!a)
        return; /* no answer, no lease */
    client_renew(c, &s->config, now);
    c->said_ns = p->stamp;
    srv_head(a, &s->config, SRV_LEASED, s->life, (struct place){s->machine, PORT_SERVER}, p->head.from);
    a->stamp = p->stamp;
}

/* The holder asks as often as it wants to know: neither the question nor the answer needs an acknowledgement. */
static void on_watch(struct server *s, const struct entry *e, const struct srv_packet *p, struct outbox *out)
{
    const struct lock *l = lock_of(s, p->head.index);
    bool holds = p->head.nonce == e->nonce && (e->state == ENTRY_HELD || e->state == ENTRY_UPGRADING);
    bool converts = l->upgrader && l->upgrader != link_of(s, e);
    bool waits = l->first || converts || MISTAKE(s->config.mistakes, SRV_MISTAKE_RUMOUR);
    assert(!l->first || entry_at(s, l->first - 1)->state == ENTRY_WAITING || MISTAKES(s->config.mistakes)); /* I23 */
    if (holds && waits && !MISTAKE(s->config.mistakes, SRV_MISTAKE_MUTE))
        answer(s, e, SRV_WANTED, out);
}

/* Null: not for this server, or nonsense. */
static const struct srv_packet *check(struct server *s, const void *data, uint32_t len)
{
    const struct packet_head *h = packet_check(data, len, PACKET_SERVER, &s->config, &s->drops);
    const struct srv_packet *p = data;
    if (!h)
        return NULL;
    if (h->from.machine > s->config.machines) {
        s->drops.alien++;
        return NULL;
    }
    bool mode = h->type == SRV_ACQUIRE || h->type == SRV_ENTER || h->type == SRV_CONVERT || h->type == SRV_REPORT;
    bool limit = h->type == SRV_ENTER || (h->type == SRV_REPORT && p->code);
    if (len != sizeof *p || h->type < SRV_ACQUIRE ||
        (h->type > SRV_LEASE && h->type != SRV_REPORT && h->type != SRV_WATCH && h->type != SRV_ENTER) ||
        (mode && p->mode != PAWL_SHARED && p->mode != PAWL_EXCLUSIVE) ||
        (limit && (p->mode != PAWL_SHARED || !p->code || p->code > PAWL_SEMAPHORE_MAX)) ||
        (h->type != SRV_LEASE && (srv_of(&s->config, h->index) != s->number || srv_slot(h->nonce) >= rack_requests(&s->config) ||
                                  !(h->nonce >> SRV_SLOT_BITS)))) {
        s->drops.bad++;
        return NULL;
    }
    return p;
}

static bool asks(const struct packet_head *h)
{
    return h->type == SRV_ACQUIRE || h->type == SRV_ENTER;
}

/* ACQUIRE: with a lease only, and when all leases of a former life of this server have ended. CONVERT: likewise then, because a
 * holder that has not reported yet may share the lock. */
static bool admit(struct server *s, struct client *c, const struct packet_head *h, uint64_t now, struct outbox *out)
{
    if (!client_admit(c, h, &s->drops, end_all, s, now, out))
        return false;
    if ((!asks(h) && h->type != SRV_CONVERT) || ((c->live || !asks(h)) && now >= s->open_ns))
        return true;
    s->drops.stale++; /* it asks again */
    return false;
}

void srv_server_packet(void *memory, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct server *s = memory;
    const struct srv_packet *p = check(s, data, len);
    if (!p)
        return;
    struct client *c = &s->clients[p->head.from.machine];
    if (!admit(s, c, &p->head, now, out))
        return;
    if (p->head.type == SRV_LEASE) {
        on_lease(s, c, p, now, out);
        return;
    }
    if (!is_of_lock(s, &p->head))
        return;
    struct entry *e = entry_at(s, (uint64_t)p->head.from.machine * rack_requests(&s->config) + srv_slot(p->head.nonce));
    if (p->head.nonce < e->nonce) {
        s->drops.stale++;
        if (MISTAKE(s->config.mistakes, SRV_MISTAKE_BLIND_RELEASE) && p->head.type == SRV_RELEASE)
            end(s, e, out);
        return;
    }
    if (p->head.nonce == e->nonce && p->head.index != e->index) {
        s->drops.bad++;
        return;
    }
    if (asks(&p->head) && p->head.nonce != e->nonce && p->stamp != s->life) {
        s->drops.stale++; /* I11: asked of a former life: the host may have given the request up since, and released the lock */
        return;
    }
    if (p->head.nonce == e->nonce)
        e->port = p->head.from.port; /* the process that asked before, for any of its host, may be gone */
    switch ((enum srv_type)p->head.type) {
    case SRV_ACQUIRE:
    case SRV_ENTER:
        on_acquire(s, e, p, out);
        break;
    case SRV_RELEASE:
        on_release(s, e, p, out);
        break;
    case SRV_REPORT:
        on_report(s, c, e, p, now, out);
        break;
    case SRV_WATCH:
        on_watch(s, e, p, out);
        break;
    case SRV_CONVERT:
    case SRV_STAY:
        if (p->head.nonce != e->nonce || (e->state != ENTRY_HELD && e->state != ENTRY_UPGRADING) || p->step < e->step)
            s->drops.stale++;
        else if (p->head.type == SRV_CONVERT)
            on_convert(s, e, p, out);
        else
            on_stay(s, e, p, out);
        break;
    default:
        break;
    }
}

uint64_t srv_server_tick(void *memory, uint64_t now, struct outbox *out)
{
    struct server *s = memory;
    return clients_lapse(s->clients, &s->config, end_all, s, now, out);
}
