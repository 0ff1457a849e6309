/* SPDX-License-Identifier: Apache-2.0 */
/* A server of FissLock: the decider of the locks that are not in the switch, by the same stages, on words in its memory. The switch
 * forwards packets to it and passes on what it decides; who lives, and where a lock is, the switch knows. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/spill.h"

#define HELLO_SHARE 8 /* of a lease: how often it looks whether the switch is still the same */
#define HOT 4         /* requests in about two periods */

enum annex_state {
    ANNEX_FRESH, /* nothing was decided here in this era */
    ANNEX_TOLD,  /* nor of this; but those who hold it from before have said so */
    ANNEX_HERE,
    ANNEX_LENT, /* to the switch, by `round` */
};

struct annex_lock {
    uint64_t word, token, round;
    uint32_t era; /* another than the server's: nothing of this is true */
    uint32_t state;
    struct heat heat;
};

struct annex {
    struct rack_config config;
    struct fission_policy policy;
    struct fission_rules rules; /* epoch: the switch's life; 0: not welcomed yet */
    struct packet_drops drops;
    uint16_t machine;
    unsigned ward;
    uint32_t life;
    uint32_t era;
    uint64_t capacity; /* of the switch: what is in it when it begins */
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
    struct annex *a = server; /* zero: no lock has an era */
    a->config = *config;
    a->rules = (struct fission_rules){.space = config->space, .machines = config->machines, .locks = config->locks};
    a->policy = policy_of(config);
    a->machine = machine;
    a->life = life;
    while (a->ward < config->servers && config->server[a->ward] != machine)
        a->ward++;
    assert(a->ward < config->servers && life);
}

/* ---- locks ---- */

/* What nobody was granted yet in this era. */
static struct annex_lock fresh(const struct annex *a, uint64_t index)
{
    return (struct annex_lock){.era = a->era, .state = index < a->capacity ? ANNEX_LENT : ANNEX_FRESH};
}

static struct annex_lock *lock_at(struct annex *a, uint64_t index)
{
    struct annex_lock *l = &a->lock[index / a->config.servers];
    if (l->era != a->era)
        *l = fresh(a, index);
    return l;
}

/* ---- to the switch ---- */

static struct fission_packet *say(const struct annex *a, enum spill_type type, unsigned entries, struct outbox *out)
{
    return spill_packet(out, type, a->config.space, a->rules.life, (struct place){a->machine, PORT_SERVER},
                        (struct place){MACHINE_SWITCH, PORT_POOL}, entries);
}

static void say_hand(const struct annex *a, uint64_t index, const struct annex_lock *l, struct outbox *out)
{
    struct fission_packet *p = say(a, SPILL_HAND, 0, out);
    if (!p)
        return; /* it is called again */
    p->head.index = index;
    p->head.nonce = l->round;
    p->word = l->word;
    p->token = l->token;
    if (MISTAKE(a->config.mistakes, FISSLOCK_MISTAKE_BLANK) && !(l->word & FISSION_WORD_HELD))
        p->word = p->token = 0;
}

static void on_call(struct annex *a, const struct fission_packet *p, struct outbox *out)
{
    struct annex_lock *l = lock_at(a, p->head.index);
    if (l->state != ANNEX_LENT) {
        if (p->head.nonce <= l->round)
            return;            /* it has been there and back */
        l->state = ANNEX_LENT; /* not decided here from now on */
        l->round = p->head.nonce;
    }
    if (l->round == p->head.nonce)
        say_hand(a, p->head.index, l, out);
}

static void on_give(struct annex *a, const struct fission_packet *p, struct outbox *out)
{
    struct annex_lock *l = lock_at(a, p->head.index);
    if (l->state == ANNEX_LENT && l->round == p->head.nonce) {
        l->word = p->word;
        l->token = p->token;
        l->round = p->head.nonce;
        l->state = ANNEX_HERE;
    }
    if (l->state != ANNEX_HERE || l->round != p->head.nonce)
        return;
    struct fission_packet *answer = say(a, SPILL_GIVEN, 0, out);
    if (!answer)
        return;
    answer->head.index = p->head.index;
    answer->head.nonce = p->head.nonce;
}

/* A switch that begins anew: nothing that was known is true. */
static void on_welcome(struct annex *a, const struct fission_packet *p)
{
    if (p->stamp != a->life)
        a->hello_ns = 0; /* it does not know us: HELLO at once */
    if (p->stamp != a->life || p->head.epoch <= a->rules.life)
        return;
    a->rules.life = p->head.epoch;
    a->capacity = p->word;
    a->era++;
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

static uint32_t decide(struct annex *a, struct annex_lock *l, const struct fission_packet *p, struct fission_meta *m)
{
    uint32_t dest = fission_decide(p, &a->policy, &l->word, &l->token, m);
    m->token += (uint64_t)a->rules.life << FISSION_TOKEN_LIFE_SHIFT;
    return dest;
}

/* The switch says that the agent's host is lost, of the tenure that the word on the packet names: whoever asked has it from now on
 * (decider.c, take_over()). What was granted stays so; else it is routed, and raises nothing. */
static void take_over(struct annex *a, struct annex_lock *l, struct fission_packet *p)
{
    bool same = (l->word & FISSION_WORD_HELD) && fission_word_term(l->word) == fission_word_term(p->word) &&
                fission_word_machine(l->word) == fission_word_machine(p->word);
    p->flags &= (uint16_t)~SPILL_DEAD;
    if (!(p->flags & FISSION_COPY) && p->head.type == FISSION_ACQUIRE)
        p->flags |= FISSION_RETRY;
    if (!same)
        return;
    struct fission_meta m;
    struct fission_packet take = {
        .head = {.type = FISSION_TAKE, .index = p->head.index}, .client = p->client, .term = fission_word_term(l->word)};
    decide(a, l, &take, &m);
}

static void say_heat(struct annex *a, struct outbox *out)
{
    struct fission_packet *p = a->hot_count ? say(a, SPILL_HEAT, a->hot_count, out) : NULL;
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
        say_heat(a, out);
}

static void emit(struct annex *a, const struct fission_packet *in, uint32_t len, const struct fission_meta *m, uint32_t dest,
                 struct outbox *out)
{
    struct fission_packet *p = outbox_add(out, len);
    if (!p)
        return;
    memcpy(p, in, len);
    if (m) {
        fission_rewrite(p, &a->policy, m, dest);
        p->flags |= SPILL_SERVED;
    } else {
        p->hops++;
        p->flags |= SPILL_MOVING; /* back to the switch */
    }
}

/* The switch lost its state: what a host holds (rebuild.c). One that comes late finds a lock that was decided since, and nothing to
 * tell. Back to the switch, which then has it told to the next server. */
static void on_report(struct annex *a, struct fission_packet *p, uint32_t len, struct outbox *out)
{
    const struct fission_entry *entries = (const struct fission_entry *)(p + 1);
    for (unsigned i = 0; i < p->count; i++) {
        struct fission_entry e = entries[i];
        bool known = e.nonce < a->config.locks && (e.mode == FISSION_SHARED || e.mode == FISSION_EXCLUSIVE);
        struct annex_lock *l = known && ward_of(&a->config, e.nonce) == a->ward ? lock_at(a, e.nonce) : NULL;
        if (!l || l->state == ANNEX_HERE || l->state == ANNEX_LENT)
            continue;
        l->state = ANNEX_TOLD;
        fission_reported(&l->word, &l->token, p->head.from.machine, e.mode);
    }
    p->hops = (uint8_t)(a->ward + 1);
    p->flags |= SPILL_MOVING;
    struct fission_packet *back = outbox_add(out, len);
    if (back)
        memcpy(back, p, len);
}

void fisslock_server_packet(void *server, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct annex *a = server;
    _Alignas(8) uint8_t copy[PACKET_MAX];
    struct fission_packet *p = (struct fission_packet *)copy;
    struct fission_meta m;
    if (len < sizeof *p || len > PACKET_MAX) {
        a->drops.bad++;
        return;
    }
    memcpy(p, data, len);
    if (spill_is_control(p, len)) {
        on_control(a, p, len, out);
        return;
    }
    /* As it was before it was forwarded: a GRANT with agent names the next host here, too. */
    p->head.to = p->head.type == FISSION_GRANT ? p->client : (struct place){MACHINE_SWITCH, PORT_POOL};
    enum fission_fault fault = a->rules.life ? fission_verify(p, len, &a->rules) : FISSION_STALE;
    bool tells = p->head.type == FISSION_REPORT;
    bool mine = (fission_concerns_lock(p) || tells) && p->head.from.machine != MACHINE_SWITCH;
    if (fault == FISSION_FINE && (!mine || ward_of(&a->config, p->head.index) != a->ward))
        fault = FISSION_ALIEN;
    if (fault != FISSION_FINE) {
        ++*(fault == FISSION_BAD ? &a->drops.bad : fault == FISSION_ALIEN ? &a->drops.alien : &a->drops.stale);
        return;
    }
    if (tells) {
        on_report(a, p, len, out);
        return;
    }
    struct annex_lock *l = lock_at(a, p->head.index);
    p->flags &= (uint16_t) ~(SPILL_MOVING | SPILL_SERVED);
    if (l->state == ANNEX_LENT && !MISTAKE(a->config.mistakes, FISSLOCK_MISTAKE_UNPAUSED)) {
        p->flags &= (uint16_t)~SPILL_DEAD;
        emit(a, p, len, NULL, 0, out);
        return;
    }
    if (l->state != ANNEX_LENT)
        l->state = ANNEX_HERE;
    if (p->flags & SPILL_DEAD)
        take_over(a, l, p);
    else if (fission_asks(p))
        count(a, l, p->head.index, now, out);
    uint32_t dest = decide(a, l, p, &m);
    for (uint32_t one = FISSION_TO_CLIENT; one <= FISSION_BACK; one <<= 1)
        if (dest & one)
            emit(a, p, len, &m, one, out);
}

/* ---- time ---- */

uint64_t fisslock_server_tick(void *server, uint64_t now, struct outbox *out)
{
    struct annex *a = server;
    if (now >= a->hello_ns) {
        struct fission_packet *p = say(a, SPILL_HELLO, 0, out);
        if (p)
            p->stamp = a->life;
        a->hello_ns = now + (a->rules.life ? max_u64(a->config.lease_ns / HELLO_SHARE, a->config.retry_ns) : a->config.retry_ns);
    }
    if (now >= a->heat_ns) {
        say_heat(a, out);
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
    return l->era == a->era && l->state != ANNEX_LENT ? l->word : 0;
}

bool fisslock_relayed(const void *data, uint32_t len)
{
    const struct fission_packet *p = data;
    return len >= sizeof *p && (p->flags & (SPILL_SERVED | SPILL_MOVING));
}
