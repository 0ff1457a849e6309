/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/netlock/steward.h"

#include <errno.h>

const uint64_t *netlock_hosts_read(const struct netlock_packet *p, uint32_t len)
{
    uint64_t at = sizeof *p + p->count * sizeof(struct netlock_slot);
    bool named = p->head.type == NETLOCK_TERM && p->flags & NETLOCK_TERM_HOSTS;
    if (!named || len != at + NETLOCK_HOST_WORDS * sizeof(uint64_t))
        return NULL;
    return (const uint64_t *)(const void *)((const char *)p + at);
}

int netlock_table_read(const struct rack_config *c, const struct netlock_packet *p, uint32_t len, struct netlock_table *out)
{
    const struct netlock_slot *slots = (const struct netlock_slot *)(const void *)(p + 1);
    if (len < sizeof *p || p->count > c->servers || p->round >= STEWARD_SWITCHES)
        return -EINVAL;
    if (len != sizeof *p + p->count * sizeof *slots && !netlock_hosts_read(p, len))
        return -EINVAL;
    for (uint32_t i = 0; i < p->count; i++)
        if (slots[i].slot >= c->servers || slots[i].owner >= c->servers || !slots[i].term)
            return -EINVAL;
    *out = (struct netlock_table){.term = p->life, .active_life = p->pushed, .number = (uint16_t)p->round, .count = p->count};
    memcpy(out->slots, slots, p->count * sizeof *slots);
    return 0;
}

uint64_t netlock_table_hear(const struct rack_config *c, const struct netlock_packet *p, uint32_t len, uint32_t life,
                            uint64_t latest, uint64_t now, struct packet_drops *drops, uint32_t *steward, struct netlock_table *out)
{
    bool follow = p->head.type == NETLOCK_FOLLOW && len == sizeof *p;
    if (!follow && (p->head.type != NETLOCK_TERM || netlock_table_read(c, p, len, out))) {
        drops->bad++;
        return 0;
    }
    if (p->ticket != life || (p->head.epoch < *steward && !MISTAKE(c->mistakes, NETLOCK_MISTAKE_OLD_STEWARD))) {
        drops->stale++;
        return 0;
    }
    *steward = p->head.epoch > *steward ? p->head.epoch : *steward;
    if (follow)
        return 0;
    out->steward = *steward;
    bool is_switch = p->head.to.machine == MACHINE_SWITCH && !MISTAKE(c->mistakes, NETLOCK_MISTAKE_LONG);
    uint64_t until = lease_valid_until(p->stamp, is_switch ? netlock_switch_term_ns(c) : netlock_term_ns(c));
    if (p->stamp <= now && p->stamp > latest && until > now)
        return until;
    drops->stale++;
    return 0;
}

struct netlock_packet *netlock_table_write(const struct rack_config *c, const struct netlock_table *table, enum netlock_type type,
                                           uint32_t life, struct place from, struct place to, struct outbox *out)
{
    uint64_t slots = table->count * sizeof *table->slots, hosts = table->hosts ? NETLOCK_HOST_WORDS * sizeof(uint64_t) : 0;
    struct netlock_packet *p = outbox_add(out, (uint32_t)(sizeof *p + slots + hosts));
    if (!p)
        return NULL;
    netlock_head(p, c->space, type, life, from, to);
    p->life = table->term;
    p->round = table->number;
    p->pushed = table->active_life;
    p->count = table->count;
    memcpy(p + 1, table->slots, slots);
    if (table->hosts)
        memcpy((char *)(p + 1) + slots, table->hosts, hosts);
    return p;
}

struct netlock_packet *netlock_beat(const struct rack_config *c, const struct netlock_table *table, uint32_t life,
                                    struct place from, uint64_t now, uint64_t until, struct outbox *out)
{
    const struct place steward = {MACHINE_STEWARD, PORT_POOL};
    struct netlock_packet *p = netlock_table_write(c, table, NETLOCK_BEAT, life, from, steward, out);
    if (!p)
        return NULL;
    p->stamp = now;
    p->ticket = table->steward;
    p->flags = (uint8_t)(now < until ? NETLOCK_BEAT_LEASED : 0);
    if (from.machine == MACHINE_SWITCH)
        p->flags |= NETLOCK_BEAT_BRIEF;
    return p;
}

uint64_t netlock_steward_bytes(const struct rack_config *config)
{
    (void)config;
    return sizeof(struct steward);
}

ONCE void netlock_steward_init(void *state, const struct rack_config *config, uint32_t life, bool fresh, uint64_t now)
{
    struct steward *s = state; /* zeroed */
    s->config = *config;
    s->policy = netlock_policy(config->options);
    s->life = life;
    s->term = life;
    s->fresh = fresh;
    s->began_ns = s->elected_ns = now;
    s->open_ns = fresh ? now : now + lease_surely_over(netlock_term_ns(config));
}

static unsigned switches(const struct steward *s)
{
    return s->config.switches > 1 ? STEWARD_SWITCHES : 1;
}

static bool alive(const struct steward_member *m, uint64_t now)
{
    return m->life && now < m->until_ns;
}

/* A term above all earlier ones, of this steward and of earlier lives: lives are further apart than the terms that a life gave, as
 * long as it gave at most one in a quarter of a second on average. With a coordinator, terms and generations of names are lives of
 * one counter: a term is above all generations before it, and a generation above all terms before it. So tokens of a name rise
 * whichever of them they begin with (I2). */
static uint32_t next_term(struct steward *s, uint64_t now)
{
    if (s->floor)
        return s->term = (s->floor > s->term ? s->floor : s->term) + 1;
    uint32_t timely = s->life + (uint32_t)((now - s->began_ns) >> NETLOCK_TERM_TICK_SHIFT);
    s->term = timely > s->term ? timely : s->term + 1;
    return s->term;
}

/* ---- assignments ---- */

static bool owned(const struct steward *s, const struct steward_slot *slot, uint64_t now)
{
    const struct steward_member *m = &s->servers[slot->owner];
    return slot->term && m->life == slot->life && alive(m, now);
}

static unsigned load_of(const struct steward *s, unsigned server, uint64_t now)
{
    unsigned load = 0;
    for (unsigned i = 0; i < s->config.servers; i++)
        load += owned(s, &s->slots[i], now) && s->slots[i].owner == server;
    return load;
}

/* The server with the slot's number, if it lives; else the one with the fewest slots. Returns the server's number; -1: none. At
 * first, the server with the slot's number has some time to join. */
static int choose(const struct steward *s, unsigned slot, uint64_t now)
{
    int best = -1;
    if (alive(&s->servers[slot], now))
        return (int)slot;
    if (!s->slots[slot].term && now < s->began_ns + lease_over(&s->config))
        return -1;
    for (unsigned i = 0; i < s->config.servers; i++)
        if (alive(&s->servers[i], now) && (best < 0 || load_of(s, i, now) < load_of(s, (unsigned)best, now)))
            best = (int)i;
    return best;
}

static void assign_slots(struct steward *s, uint64_t now)
{
    uint32_t term = 0; /* one for all that change hands now */
    for (unsigned i = 0; i < s->config.servers; i++) {
        struct steward_slot *slot = &s->slots[i];
        int owner = owned(s, slot, now) ? -1 : choose(s, i, now);
        if (owner < 0)
            continue;
        term = term ? term : next_term(s, now);
        assert(term > slot->term); /* I2 */
        *slot = (struct steward_slot){
            .first = s->fresh && !slot->term, .term = term, .owner = (uint16_t)owner, .life = s->servers[owner].life};
        s->counts.assigned++;
    }
}

static void elect(struct steward *s, unsigned number, bool clean, uint64_t now)
{
    uint32_t term = next_term(s, now);
    assert(term > s->active_term && s->switches[number].life); /* I2: tokens begin with it */
    s->active_term = term;
    s->active = (uint16_t)number;
    s->active_life = s->switches[number].life;
    s->elected_ns = now;
    s->clean = clean;
    s->retire = false;
    s->counts.elected++;
}

/* The switch that should be active: the original. In trials both take turns. */
static unsigned preferred(const struct steward *s, uint64_t now)
{
    bool toggle = s->policy.toggle && switches(s) > 1;
    return toggle ? (unsigned)((now - s->began_ns) / (2 * s->config.lease_ns)) % 2 : 0;
}

/* Elects the preferred switch, if it lives. If the other one is active, its queues must drain first. */
static void assign_switch(struct steward *s, uint64_t now)
{
    const struct steward_member *m = &s->switches[s->active];
    unsigned first = preferred(s, now);
    bool elected = s->active_term && m->life == s->active_life && alive(m, now);
    bool there = alive(&s->switches[first], now);
    if (elected) {
        s->retire = s->active != first && there;
        return;
    }
    bool patient = !s->active_term && now < s->began_ns + lease_over(&s->config); /* at first it has some time to come */
    if (there)
        elect(s, first, s->fresh && !s->active_term, now);
    else if (switches(s) > 1 && alive(&s->switches[1 - first], now) && !patient)
        elect(s, 1 - first, false, now);
}

/* ---- after a loss of memory ---- */

static bool heard_all(const struct steward *s)
{
    for (unsigned i = 0; i < switches(s); i++)
        if (!s->switches[i].life)
            return false;
    for (unsigned i = 0; i < s->config.servers; i++)
        if (!s->servers[i].life)
            return false;
    return true;
}

/* Learns from a heartbeat what an earlier steward had assigned: the latest terms. */
static void hear(struct steward *s, const struct netlock_table *t, bool leased)
{
    s->heard_lease = s->heard_lease || leased;
    if (t->term > s->active_term) {
        s->active_term = t->term;
        s->active = t->number;
        s->active_life = t->active_life;
    }
    for (uint32_t i = 0; i < t->count; i++)
        if (t->slots[i].term > s->slots[t->slots[i].slot].term)
            s->slots[t->slots[i].slot] =
                (struct steward_slot){.term = t->slots[i].term, .owner = t->slots[i].owner, .life = t->slots[i].life};
}

static void note_terms(struct steward *s, const struct netlock_table *t)
{
    s->term = t->term > s->term ? t->term : s->term;
    for (uint32_t i = 0; i < t->count; i++)
        s->term = t->slots[i].term > s->term ? t->slots[i].term : s->term;
}

/* No member has a lease from an earlier steward any more: heartbeats may report old assignments, so everything is assigned anew. */
static void open_late(struct steward *s)
{
    for (unsigned i = 0; i < s->config.servers; i++)
        s->slots[i].life = 0;
    s->active_life = 0;
}

/* One switch and one server: their leases are as long as the membership lease, which is long to wait for. When both follow this
 * steward, and neither has a lease, no member has one: a former life of either is over, as for a steward that remembers it. */
static bool none_leased(const struct steward *s)
{
    return switches(s) == 1 && s->config.servers == 1 && heard_all(s) && !s->heard_lease;
}

static bool is_open(struct steward *s, uint64_t now)
{
    if (!s->open_ns)
        return true;
    /* A member with a lease knows of everything that was assigned a lease ago, and what was assigned later is not used yet. */
    bool complete = heard_all(s) && s->heard_lease;
    if (now < s->open_ns && !complete && !none_leased(s))
        return false;
    if (!complete && !s->fresh)
        open_late(s);
    s->open_ns = 0;
    return true;
}

/* ---- packets ---- */

static struct steward_member *member_of(struct steward *s, struct place from, bool *is_switch, unsigned *number)
{
    *is_switch = from.machine == MACHINE_SWITCH;
    if (*is_switch) {
        *number = from.port;
        return from.port < switches(s) ? &s->switches[from.port] : NULL;
    }
    *number = rack_server_on(&s->config, from.machine);
    return *number < s->config.servers ? &s->servers[*number] : NULL;
}

static void answer(struct steward *s, const struct netlock_packet *p, struct outbox *out)
{
    struct netlock_table t = {.term = s->active_term, .active_life = s->active_life, .number = s->active};
    for (unsigned i = 0; i < s->config.servers; i++)
        if (s->slots[i].term)
            t.slots[t.count++] = (struct netlock_slot){.slot = (uint16_t)i,
                                                       .owner = s->slots[i].owner,
                                                       .term = s->slots[i].term,
                                                       .life = s->slots[i].life,
                                                       .first = s->slots[i].first};
    t.hosts = s->hosts_known && p->flags & NETLOCK_BEAT_BRIEF ? s->hosts : NULL;
    struct netlock_packet *a =
        netlock_table_write(&s->config, &t, NETLOCK_TERM, s->life, (struct place){MACHINE_STEWARD, PORT_POOL}, p->head.from, out);
    if (!a)
        return; /* no answer, no lease */
    a->stamp = p->stamp;
    a->ticket = p->head.epoch;
    a->flags =
        (uint8_t)((s->clean ? NETLOCK_TERM_CLEAN : 0) | (s->retire ? NETLOCK_TERM_RETIRE : 0) | (t.hosts ? NETLOCK_TERM_HOSTS : 0));
}

/* A steward that lost its memory counts what a member reports when the member follows it. Else the member could take a late TERM of
 * the steward before, and so an assignment that it has not reported. Leases of that steward have ended by open_ns. */
static bool follows(struct steward *s, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    if (now >= s->open_ns || s->fresh || p->ticket == s->life || MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_OLD_STEWARD))
        return true;
    struct netlock_packet *a =
        netlock_packet_new(out, &s->config, NETLOCK_FOLLOW, s->life, (struct place){MACHINE_STEWARD, PORT_POOL}, p->head.from);
    if (a)
        a->ticket = p->head.epoch;
    return false;
}

void netlock_steward_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct steward *s = state;
    const struct packet_head *h = packet_check(data, len, PACKET_NETLOCK, &s->config, &s->drops);
    const struct netlock_packet *p = data;
    struct netlock_table t;
    bool is_switch;
    unsigned number;
    if (!h)
        return;
    if (len < sizeof *p || p->head.type != NETLOCK_BEAT || !h->epoch || netlock_table_read(&s->config, p, len, &t)) {
        s->drops.bad++;
        return;
    }
    struct steward_member *m = member_of(s, h->from, &is_switch, &number);
    if (!m) {
        s->drops.alien++;
        return;
    }
    if (h->epoch < m->life || (h->epoch == m->life && p->stamp < m->stamp) || p->ticket > s->life) {
        s->drops.stale++; /* late, or its sender follows a later steward */
        return;
    }
    if (!follows(s, p, now, out))
        return;
    bool brief = is_switch && p->flags & NETLOCK_BEAT_BRIEF; /* one of another build takes a whole lease */
    if (h->epoch > m->life || lease_is_news(p->stamp, m->stamp, s->config.mistakes))
        m->until_ns = now + lease_surely_over(brief ? netlock_switch_term_ns(&s->config) : netlock_term_ns(&s->config));
    m->life = h->epoch;
    m->stamp = p->stamp;
    note_terms(s, &t);
    if (s->open_ns && !s->fresh)
        hear(s, &t, p->flags & NETLOCK_BEAT_LEASED);
    if (!is_open(s, now))
        return; /* not open yet: the sender has the assignments of an earlier steward */
    if (is_switch && s->active == number && p->life == s->active_term && p->flags & NETLOCK_BEAT_EMPTY) {
        s->counts.returns++; /* it has promised to grant nothing more in this term */
        unsigned first = preferred(s, now);
        /* Holds of earlier terms may be left, unless the term was clean or the leases have ended since. */
        bool clean = s->clean || now >= s->elected_ns + lease_over(&s->config);
        elect(s, alive(&s->switches[first], now) ? first : 1 - first, clean, now);
    }
    netlock_steward_tick(s, now, out);
    answer(s, p, out);
}

/* A host holds something from an earlier term only if it joined before that term's switch had to stop, and has not left. So the
 * hosts that there are at any time from the election on are all. */
void netlock_steward_hosts(void *state, const uint64_t *hosts, unsigned words)
{
    struct steward *s = state;
    s->hosts_known = hosts && words == NETLOCK_HOST_WORDS && s->config.machines < 64 * NETLOCK_HOST_WORDS;
    if (s->hosts_known)
        memcpy(s->hosts, hosts, sizeof s->hosts);
}

uint32_t netlock_steward_since(void *state, uint32_t life)
{
    struct steward *s = state;
    s->floor = life > s->floor ? life : s->floor;
    return s->term;
}

uint64_t netlock_steward_tick(void *state, uint64_t now, struct outbox *out)
{
    struct steward *s = state;
    (void)out;
    if (is_open(s, now)) {
        assign_slots(s, now);
        assign_switch(s, now);
    }
    return now + s->config.lease_ns / LEASE_SHARE;
}
