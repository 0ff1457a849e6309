/* SPDX-License-Identifier: Apache-2.0 */
/* A server of FissLock: the decider of locks that are not in the switch, by the same stages, on words in its memory. The switch
 * forwards packets to it and passes on its decisions. The switch knows which hosts are live, and where each lock is. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/spill.h"

#define HELLO_SHARE 8 /* heartbeats to the switch in a lease */
#define HOT 4         /* requests in about two periods make a lock hot */

enum annex_state {
    ANNEX_FRESH, /* nothing was decided here in this life of the switch */
    ANNEX_TOLD,  /* the same, but hosts have reported holds from before */
    ANNEX_HERE,
    ANNEX_LENT, /* to the switch, by `round` */
};

struct annex_lock {
    struct rebuild_lock lock;
    uint64_t round;
    uint32_t life; /* of the switch: what is known from an earlier one does not count */
    uint32_t state;
    struct heat heat;
};

struct annex {
    struct rack_config config;
    struct fission_policy policy;
    struct fission_rules rules; /* life: 0 before the switch has answered */
    struct packet_drops drops;
    uint16_t machine;
    unsigned ward;
    uint32_t life;
    uint64_t capacity; /* of the switch: the first locks are in it when it begins */
    uint64_t hello_ns, heat_ns;
    unsigned hot_count;
    uint64_t hot[SPILL_HEAT_ENTRIES];
    struct annex_lock lock[];
};

static uint64_t locks_of(const struct rack_config *c)
{
    return (c->locks + c->servers - 1) / c->servers;
}

uint64_t fisslock_server_bytes(const struct rack_config *config)
{
    return sizeof(struct annex) + locks_of(config) * sizeof(struct annex_lock);
}

void fisslock_server_init(void *server, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh, uint64_t now)
{
    struct annex *a = server; /* zero: no lock is of any life */
    a->config = *config;
    a->rules = rules_of(config);
    a->policy = policy_of(config);
    a->machine = machine;
    a->life = life;
    while (a->ward < config->servers && config->server[a->ward] != machine)
        a->ward++;
    assert(a->ward < config->servers && life);
}

/* ---- locks ---- */

/* A lock of which nothing is known in this life of the switch. */
static struct annex_lock fresh(const struct annex *a, uint64_t index)
{
    return (struct annex_lock){.life = a->rules.life, .state = index < a->capacity ? ANNEX_LENT : ANNEX_FRESH};
}

static struct annex_lock *lock_at(struct annex *a, uint64_t index)
{
    struct annex_lock *l = &a->lock[index / a->config.servers];
    if (l->life != a->rules.life)
        *l = fresh(a, index);
    return l;
}

/* ---- to the switch ---- */

static struct fission_packet *send(const struct annex *a, enum spill_type type, unsigned entries, struct outbox *out)
{
    return spill_packet(out, type, a->config.space, a->rules.life, (struct place){a->machine, PORT_SERVER},
                        (struct place){MACHINE_SWITCH, PORT_POOL}, entries);
}

static void send_hand(const struct annex *a, uint64_t index, const struct annex_lock *l, struct outbox *out)
{
    struct fission_packet *p = send(a, SPILL_HAND, 0, out);
    if (!p)
        return; /* the switch retransmits CALL */
    p->head.index = index;
    p->head.nonce = l->round;
    p->word = l->lock.word;
    p->token = l->lock.token;
    p->head.generation = l->lock.age.generation;
    p->stamp = l->lock.age.base;
    if (MISTAKE(a->config.mistakes, FISSLOCK_MISTAKE_BLANK) && !(p->word & FISSION_WORD_HELD))
        p->word = p->token = 0;
}

static void on_call(struct annex *a, const struct fission_packet *p, struct outbox *out)
{
    struct annex_lock *l = lock_at(a, p->head.index);
    if (l->state != ANNEX_LENT) {
        if (p->head.nonce <= l->round)
            return;            /* an old CALL: the lock has been there and came back */
        l->state = ANNEX_LENT; /* not decided here from now on */
        l->round = p->head.nonce;
    }
    if (l->round == p->head.nonce)
        send_hand(a, p->head.index, l, out);
}

static void on_give(struct annex *a, const struct fission_packet *p, struct outbox *out)
{
    struct annex_lock *l = lock_at(a, p->head.index);
    if (l->state == ANNEX_LENT && l->round == p->head.nonce) {
        l->lock = spill_lock_in(p);
        l->round = p->head.nonce;
        l->state = ANNEX_HERE;
    }
    if (l->state != ANNEX_HERE || l->round != p->head.nonce)
        return;
    struct fission_packet *answer = send(a, SPILL_GIVEN, 0, out);
    if (!answer)
        return;
    answer->head.index = p->head.index;
    answer->head.nonce = p->head.nonce;
}

/* The switch begins another life: nothing from before counts. */
static void on_welcome(struct annex *a, const struct fission_packet *p)
{
    if (p->stamp != a->life)
        a->hello_ns = 0; /* the switch does not know this life: HELLO at once */
    if (p->stamp != a->life || p->head.epoch <= a->rules.life)
        return;
    a->rules.life = p->head.epoch;
    a->capacity = p->word;
    a->hot_count = 0;
}

static void on_control(struct annex *a, const struct fission_packet *p, uint32_t len, struct outbox *out)
{
    if (!spill_verify(p, len, &a->config) || p->head.from.machine != MACHINE_SWITCH) {
        a->drops.bad++;
        return;
    }
    if (p->head.type == SPILL_WELCOME) {
        on_welcome(a, p);
        return;
    }
    if (!a->rules.life || p->head.epoch != a->rules.life || ward_of(&a->config, p->head.index) != a->ward) {
        a->drops.stale++;
        return;
    }
    if (p->head.type == SPILL_CALL)
        on_call(a, p, out);
    else if (p->head.type == SPILL_GIVE)
        on_give(a, p, out);
    else
        a->drops.bad++;
}

/* ---- deciding ---- */

/* The switch says that the agent's host is lost, of the tenure that the word on the packet names. A request that was granted stays
 * granted; any other is routed, and not counted. */
static void take_over(struct annex *a, struct annex_lock *l, struct fission_packet *p)
{
    bool same = (l->lock.word & FISSION_WORD_HELD) && fission_word_term(l->lock.word) == fission_word_term(p->word) &&
                fission_word_machine(l->lock.word) == fission_word_machine(p->word);
    p->flags &= (uint16_t)~SPILL_DEAD;
    if (!(p->flags & FISSION_COPY) && p->head.type == FISSION_ACQUIRE)
        p->flags |= FISSION_RETRY;
    if (same)
        spill_take_over(&l->lock, &a->policy, p->client);
}

static void send_heat(struct annex *a, struct outbox *out)
{
    struct fission_packet *p = a->hot_count ? send(a, SPILL_HEAT, a->hot_count, out) : NULL;
    for (unsigned i = 0; p && i < a->hot_count; i++) {
        struct fission_entry *e = (struct fission_entry *)(p + 1) + i;
        e->nonce = a->hot[i];
        e->inca = (uint16_t)min_u64(lock_at(a, a->hot[i])->heat.count, UINT16_MAX);
    }
    a->hot_count = 0;
}

static void count(struct annex *a, struct annex_lock *l, uint64_t index, uint64_t now, struct outbox *out)
{
    uint32_t period = (uint32_t)(now / a->config.retry_ns);
    struct heat before = l->heat;
    uint32_t times = heat_add(&l->heat, period), least = a->config.options & FISSLOCK_RESTLESS ? 1 : HOT;
    bool news = before.period != period || before.count < least; /* once in a period */
    if (!news || times < least)
        return;
    a->hot[a->hot_count++] = index;
    if (a->hot_count == SPILL_HEAT_ENTRIES)
        send_heat(a, out);
}

/* The lock is lent: back to the switch. Not a PROBE, which has no count of hops: its sender sends another one. */
static void give_back(const struct fission_packet *p, uint32_t len, struct outbox *out)
{
    struct fission_packet *back = spill_counts_hops(p) ? spill_copy(out, p, len) : NULL;
    if (!back)
        return;
    back->hops++;
    back->flags = (uint16_t)((back->flags & ~SPILL_DEAD) | SPILL_MOVING);
}

/* The switch lost its state: a host's report (rebuild.c). A late one finds locks that were decided since, and changes nothing. It
 * goes back to the switch, which sends it to the next server. */
static void on_report(struct annex *a, struct fission_packet *p, uint32_t len, struct outbox *out)
{
    const struct fission_entry *entries = (const struct fission_entry *)(p + 1);
    for (unsigned i = 0; i < p->count; i++) {
        struct fission_entry e = entries[i];
        bool known = e.nonce < a->config.locks && e.mode >= FISSION_SHARED && e.mode <= FISSION_PLACE;
        struct annex_lock *l = known && ward_of(&a->config, e.nonce) == a->ward ? lock_at(a, e.nonce) : NULL;
        if (!l || l->state == ANNEX_HERE || l->state == ANNEX_LENT)
            continue;
        l->state = ANNEX_TOLD;
        rebuild_reported(&l->lock, p->head.from.machine, &e);
    }
    p->hops = (uint8_t)(a->ward + 1);
    p->flags |= SPILL_MOVING;
    spill_copy(out, p, len);
}

/* The packet as it was before the switch forwarded it; a GRANT with agent names the next host. False: it is not for this server. */
static bool unwrap(struct annex *a, struct fission_packet *p, uint32_t len)
{
    p->head.to = p->head.type == FISSION_GRANT ? p->client : (struct place){MACHINE_SWITCH, PORT_POOL};
    enum fission_fault fault = a->rules.life ? fission_verify(p, len, &a->rules) : FISSION_STALE;
    bool mine = (fission_concerns_lock(p) || p->head.type == FISSION_REPORT) && p->head.from.machine != MACHINE_SWITCH;
    if (fault == FISSION_FINE && (!mine || ward_of(&a->config, p->head.index) != a->ward))
        fault = FISSION_ALIEN;
    if (fault != FISSION_FINE)
        spill_count_fault(&a->drops, fault);
    return fault == FISSION_FINE;
}

void fisslock_server_packet(void *server, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct annex *a = server;
    _Alignas(8) uint8_t copy[PACKET_MAX];
    struct fission_packet *p = (struct fission_packet *)copy;
    if (len < sizeof *p || len > PACKET_MAX) {
        a->drops.bad++;
        return;
    }
    memcpy(p, data, len);
    if (spill_is_control(p, len)) {
        on_control(a, p, len, out);
        return;
    }
    if (!unwrap(a, p, len))
        return;
    if (p->head.type == FISSION_REPORT) {
        on_report(a, p, len, out);
        return;
    }
    struct annex_lock *l = lock_at(a, p->head.index);
    p->flags &= (uint16_t) ~(SPILL_MOVING | SPILL_SERVED);
    if (l->state == ANNEX_LENT && !MISTAKE(a->config.mistakes, FISSLOCK_MISTAKE_UNPAUSED)) {
        give_back(p, len, out);
        return;
    }
    if (l->state != ANNEX_LENT)
        l->state = ANNEX_HERE;
    if (!spill_is_of_lock(&l->lock, &a->policy, p)) {
        a->drops.stale++;
        spill_say_over(p, len, SPILL_SERVED, out);
        return;
    }
    if (p->flags & SPILL_DEAD)
        take_over(a, l, p);
    else if (fission_asks(p))
        count(a, l, p->head.index, now, out);
    spill_decide(&l->lock, &a->policy, a->rules.life, p, len, SPILL_SERVED, false, out); /* the switch knows who is lost */
}

/* ---- time ---- */

uint64_t fisslock_server_tick(void *server, uint64_t now, struct outbox *out)
{
    struct annex *a = server;
    if (now >= a->hello_ns) {
        struct fission_packet *p = send(a, SPILL_HELLO, 0, out);
        if (p)
            p->stamp = a->life;
        a->hello_ns = now + (a->rules.life ? max_u64(a->config.lease_ns / HELLO_SHARE, a->config.retry_ns) : a->config.retry_ns);
    }
    if (now >= a->heat_ns) {
        send_heat(a, out);
        a->heat_ns = now + a->config.retry_ns;
    }
    return min_u64(a->hello_ns, a->hot_count ? a->heat_ns : UINT64_MAX);
}

const struct packet_drops *fisslock_server_drops(const void *server)
{
    return &((const struct annex *)server)->drops;
}

uint64_t fisslock_server_word(const void *server, uint64_t index)
{
    const struct annex *a = server;
    const struct annex_lock *l = &a->lock[index / a->config.servers];
    return l->life == a->rules.life && l->state != ANNEX_LENT ? l->lock.word : 0;
}
