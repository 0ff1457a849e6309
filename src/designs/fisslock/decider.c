/* SPDX-License-Identifier: Apache-2.0 */
/* The decider on words in memory, 16 bytes per lock: the simulated switch, and the process over UDP. The stages are those of
 * dataplane/fission.h; here is which packets reach them. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/placement.h"

struct decider {
    struct fission_rules rules;
    struct packet_drops drops;
    struct fission_policy policy;
    uint64_t locks;
    uint32_t token_life;   /* in the high bits of tokens */
    uint64_t mistakes;     /* of the config */
    uint64_t lease_ns;     /* 0: there are no leases, and no host is ever taken for dead */
    uint64_t machines_at;  /* offset; machines 0 to rules.machines */
    uint64_t placement_at; /* offset; 0: all locks are here, each at its index */
    struct {
        uint16_t machine;
        uint64_t next, found;
    } scan;
    struct rebuild rebuild;
    struct rebuild_lock lock[];
};

struct machine {
    uint64_t heard_ns; /* its last heartbeat; 0: none */
    uint64_t asked;    /* whether an ACQUIRE of it has passed */
    uint64_t life;     /* the latest in a heartbeat */
    uint64_t said_ns;  /* when the host sent the heartbeat that renewed its lease last, by its own clock in that life */
};

static struct machine *machine_at(const struct decider *d, uint16_t machine)
{
    return (struct machine *)((char *)(uintptr_t)d + d->machines_at) + machine;
}

static struct placement *placement_of(const struct decider *d)
{
    return d->placement_at ? (struct placement *)((char *)(uintptr_t)d + d->placement_at) : NULL;
}

/* A lock that is decided here. */
static struct rebuild_lock *lock_of(const struct decider *d, uint64_t index)
{
    uint64_t at = d->placement_at ? placement_cell(placement_of(d), index) : index;
    return (struct rebuild_lock *)(uintptr_t)&d->lock[at];
}

/* An ACQUIRE or a RELEASE. */
static bool is_call(const struct fission_packet *p)
{
    return p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE;
}

#define LEASE_DRIFT_DIVISOR 5000 /* as in lease.c: the host counts a little less than a lease, the decider a little more */

static uint64_t lease_at_most(const struct decider *d)
{
    return d->lease_ns + d->lease_ns / LEASE_DRIFT_DIVISOR;
}

static uint64_t cells_of(const struct rack_config *c)
{
    return placement_needed(c) ? c->switch_locks : c->locks;
}

static uint64_t placement_at(const struct rack_config *c)
{
    return round_up(sizeof(struct decider) + cells_of(c) * sizeof(struct rebuild_lock) +
                        (c->machines + 1u) * sizeof(struct machine),
                    CACHE_LINE);
}

uint64_t fisslock_switch_bytes(const struct rack_config *config)
{
    return placement_at(config) + (placement_needed(config) ? placement_bytes(config) : 0);
}

ONCE void fisslock_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    struct decider *d = state; /* zeroed, or of a former life */
    if (d->locks)
        memset(d->lock, 0, d->locks * sizeof d->lock[0]); /* pages that were never touched take no memory */
    d->rules = rules_of(config);
    d->drops = (struct packet_drops){0};
    d->policy = policy_of(config);
    d->locks = cells_of(config);
    d->machines_at = sizeof *d + d->locks * sizeof(struct rebuild_lock);
    memset(machine_at(d, 0), 0, (config->machines + 1u) * sizeof(struct machine));
    d->mistakes = MISTAKES(config->mistakes);
    d->lease_ns = config->lease_ns;
    d->rules.life = d->lease_ns ? life : 0;
    d->token_life = MISTAKE(d->policy.mistakes, FISSION_MISTAKE_TOKEN) ? 1 : life;
    /* Its state was lost. Holds from before are reported by their hosts, or end with the leases of its former life. */
    d->rebuild.closed = false;
    if (life > 1 && d->lease_ns)
        rebuild_begin(&d->rebuild, config->machines,
                      MISTAKE(d->policy.mistakes, FISSION_MISTAKE_HASTY) ? 0 : now + lease_at_most(d));
    d->placement_at = placement_needed(config) ? placement_at(config) : 0;
    if (d->placement_at)
        placement_init(placement_of(d), config, life, now);
}

/* ---- of all deciders in memory ---- */

struct fission_packet *spill_copy(struct outbox *out, const struct fission_packet *p, uint32_t len)
{
    void *copy = outbox_add(out, len);
    return copy ? (struct fission_packet *)memcpy(copy, p, len) : NULL;
}

void spill_decide(struct rebuild_lock *lock, const struct fission_policy *policy, uint32_t life, const struct fission_packet *p,
                  uint32_t len, uint16_t flags, bool lost, struct outbox *out)
{
    struct fission_meta m;
    uint64_t before = lock->token;
    uint32_t dest = fission_destination_unless_lost(p, fission_decide(p, policy, &lock->word, &lock->token, &m), lost);
    assert(lock->token >= before); /* I2 */
    m.token += fission_base(lock->age, life);
    for (uint32_t one = FISSION_TO_CLIENT; one <= FISSION_BACK; one <<= 1) {
        struct fission_packet *copy = dest & one ? spill_copy(out, p, len) : NULL;
        if (!copy)
            continue;
        fission_rewrite(copy, policy, &m, one);
        copy->flags |= flags;
    }
}

bool spill_is_of_lock(struct rebuild_lock *lock, const struct fission_policy *policy, const struct fission_packet *p)
{
    uint32_t generation = p->head.generation;
    if (likely(generation == lock->age.generation))
        return true;
    if (generation < lock->age.generation)
        return MISTAKE(policy->mistakes, FISSION_MISTAKE_GENERATION);
    lock->word = fission_word_anew(lock->word);
    lock->token = fission_token_at(lock->token, fission_word_term(lock->word));
    if (!MISTAKE(policy->mistakes, FISSION_MISTAKE_FLOOR))
        lock->age.base = fission_base_of(lock->age, generation, lock->token);
    lock->age.generation = generation;
    return true;
}

void spill_say_over(const struct fission_packet *p, uint32_t len, uint16_t flags, struct outbox *out)
{
    struct fission_packet *copy = fission_has_agent(p) ? spill_copy(out, p, len) : NULL;
    if (!copy)
        return;
    fission_rewrite(copy, &(struct fission_policy){0}, &(struct fission_meta){0}, FISSION_BACK);
    copy->flags |= flags;
}

void spill_take_over(struct rebuild_lock *lock, const struct fission_policy *policy, struct place client)
{
    struct fission_meta m;
    const struct fission_packet take = {.head = {.type = FISSION_TAKE}, .client = client, .term = fission_word_term(lock->word)};
    uint64_t before = lock->token;
    fission_decide(&take, policy, &lock->word, &lock->token, &m);
    assert(lock->token >= before); /* I2 */
}

bool fisslock_relayed(const void *data, uint32_t len)
{
    const struct fission_packet *p = data;
    return len >= sizeof *p && (p->flags & (SPILL_SERVED | SPILL_MOVING));
}

/* ---- leases ---- */

static bool lives(const struct decider *d, uint16_t machine, uint64_t now)
{
    if (!d->lease_ns)
        return true;
    if (machine > d->rules.machines || !machine_at(d, machine)->heard_ns)
        return false;
    return now - machine_at(d, machine)->heard_ns <= lease_at_most(d);
}

static bool runs_lease(const void *state, uint16_t machine, uint64_t now)
{
    const struct decider *d = state;
    return lives(d, machine, now) && !MISTAKE(d->policy.mistakes, FISSION_MISTAKE_EARLY);
}

static bool is_closed(struct decider *d, uint64_t now)
{
    return d->rebuild.closed && rebuild_closed(&d->rebuild, now, runs_lease, d);
}

void fisslock_switch_expect(void *state, const uint64_t *machines, unsigned words)
{
    struct decider *d = state;
    if (d->rebuild.closed)
        rebuild_expect(&d->rebuild, machines, words);
}

/* The packet, without entries, back to its sender. */
static struct fission_packet *answer_to(const struct fission_packet *p, struct outbox *out)
{
    struct fission_packet *answer = spill_copy(out, p, sizeof *p);
    if (!answer)
        return NULL;
    answer->count = 0;
    answer->head.to = p->head.from;
    answer->head.from.machine = MACHINE_SWITCH;
    return answer;
}

static void lease(struct decider *d, const struct fission_packet *p, uint64_t now, struct outbox *out)
{
    struct machine *m = p->head.from.machine <= d->rules.machines ? machine_at(d, p->head.from.machine) : NULL;
    if (!m || p->head.nonce < m->life) {
        d->drops.stale++; /* of a former life of that machine */
        return;
    }
    if (p->head.nonce > m->life)
        m->said_ns = 0;
    m->life = p->head.nonce;
    if (p->flags & FISSION_DONE) { /* the host leaves */
        m->heard_ns = m->asked = 0;
        return;
    }
    bool news = lease_is_news(p->token, m->said_ns, d->mistakes);
    struct fission_packet *answer = news ? answer_to(p, out) : NULL;
    d->drops.stale += !news;
    if (!answer)
        return;
    m->said_ns = p->token;
    is_closed(d, now); /* before the heartbeat counts: this host may be the last that was waited for */
    machine_at(d, p->head.from.machine)->heard_ns = now ? now : 1;
    answer->flags = rebuild_heard(&d->rebuild, p->head.from.machine);
    answer->head.epoch = d->rules.life;
}

/* Whether a CENSUS was answered here, for a machine that never asked or whose lease is over: it holds nothing. */
static bool answered(struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    uint16_t machine = fission_presence_of(p);
    if (machine == MACHINE_NONE || machine > d->rules.machines)
        return false;
    bool asked = machine_at(d, machine)->asked && lives(d, machine, now);
    bool absent = fission_absent(p, &asked);
    if (p->head.type == FISSION_ACQUIRE)
        machine_at(d, machine)->asked = 1;
    struct fission_packet *answer = absent ? spill_copy(out, p, len) : NULL;
    if (answer)
        fission_answer_for_absent(answer);
    return absent;
}

/* Whether the packet asks a request whose host is lost: then it was answered here. */
static bool released(const struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    if (!fission_asks_request(p) || lives(d, p->head.to.machine, now))
        return false;
    struct fission_packet *answer = spill_copy(out, p, len);
    if (answer)
        fission_release_for_lost(answer);
    return true;
}

/* Decided by a server: it only passes, unless its host is lost. Then the server hears of that, if a live host wants the lock. An
 * agent that moved to the lost host ends where it came from: a request for the lock begins another tenure. */
static void pass(struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    if (lives(d, p->head.to.machine, now))
        spill_copy(out, p, len);
    else if (is_call(p) && lives(d, p->client.machine, now))
        placement_forward(placement_of(d), p, len, SPILL_DEAD, out);
    else if (fission_has_agent(p) && lives(d, p->head.from.machine, now))
        spill_say_over(p, len, SPILL_SERVED, out);
    else
        d->drops.stale++;
}

static void report(struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    uint16_t machine = p->head.from.machine;
    bool tells = d->rebuild.closed && machine <= d->rebuild.machines && d->rebuild.state[machine] == REBUILD_HEARD;
    if (d->placement_at && tells && placement_report(placement_of(d), p, len, now, out))
        return;
    if (!rebuild_report(&d->rebuild, d->lock, d->locks, p)) {
        d->drops.stale++;
        return;
    }
    if (!MISTAKE(d->policy.mistakes, FISSION_MISTAKE_MUTED))
        machine_at(d, p->head.from.machine)->asked = 1; /* it holds a lock: a census must ask it */
    answer_to(p, out);
}

/* The packet is from before the state was lost. Its host hears of that with its next heartbeat, which it is to send now. */
static void ask_for_heartbeat(struct decider *d, const struct fission_packet *p, struct outbox *out)
{
    bool former = p->head.epoch && p->head.epoch < d->rules.life && p->head.from.machine <= d->rules.machines;
    struct fission_packet *hint = former ? outbox_add(out, sizeof *p) : NULL;
    if (!hint)
        return;
    hint->head = p->head;
    hint->head.type = FISSION_LEASE;
    hint->head.index = hint->head.nonce = 0;
    hint->head.epoch = d->rules.life;
    hint->head.to = (struct place){p->head.from.machine, PORT_POOL};
    hint->head.from = (struct place){MACHINE_SWITCH, PORT_POOL};
    hint->flags = FISSION_RETRY;
}

/* A packet about a lock that is decided here. */
static void decide_lock(struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    struct rebuild_lock *lock = lock_of(d, p->head.index);
    if (!spill_is_of_lock(lock, &d->policy, p)) {
        d->drops.stale++;
        spill_say_over(p, len, 0, out);
        return;
    }
    if (d->placement_at && fission_asks(p))
        placement_used(placement_of(d), (uint32_t)(lock - d->lock), now);
    if (is_call(p) && (lock->word & FISSION_WORD_HELD) && !lives(d, fission_word_machine(lock->word), now))
        spill_take_over(lock, &d->policy, p->client);
    bool lost = fission_has_agent(p) && !lives(d, p->head.to.machine, now);
    spill_decide(lock, &d->policy, d->token_life, p, len, 0, lost, out);
}

/* A packet that is fine: which part of the decider it is for. */
static void dispatch(struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    struct placement *placement = placement_of(d);
    if (p->head.type == FISSION_LEASE)
        lease(d, p, now, out);
    else if (p->head.type == FISSION_REPORT)
        report(d, p, len, now, out);
    else if (is_closed(d, now) || answered(d, p, len, now, out) || released(d, p, len, now, out))
        return; /* closed: the sender retransmits */
    else if (placement && (p->flags & SPILL_SERVED))
        pass(d, p, len, now, out);
    else if (is_call(p) && !lives(d, p->client.machine, now))
        d->drops.stale++; /* I1: nothing is granted to a host without a lease */
    else if (!fission_concerns_lock(p))
        spill_copy(out, p, len); /* from host to host */
    else if (placement && placement_cell(placement, p->head.index) == CELL_NONE)
        placement_forward(placement, p, len, 0, out);
    else
        decide_lock(d, p, len, now, out);
}

void fisslock_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct decider *d = state;
    _Alignas(8) uint8_t copy[PACKET_MAX];
    struct fission_packet *p = (struct fission_packet *)copy;
    if (d->placement_at && len >= sizeof *p && len <= PACKET_MAX && fisslock_relayed(data, len)) {
        memcpy(copy, data, len); /* the server does not have the lock: as if the packet came from its sender again */
        p->flags &= (uint16_t)~SPILL_MOVING;
        data = copy;
    }
    if (d->placement_at && spill_is_control(data, len)) {
        placement_packet(placement_of(d), d->lock, data, len, now, out);
        return;
    }
    enum fission_fault fault = fission_verify(data, len, &d->rules);
    if (fault == FISSION_FINE) {
        dispatch(d, data, len, now, out);
        return;
    }
    spill_count_fault(&d->drops, fault);
    if (fault == FISSION_STALE)
        ask_for_heartbeat(d, data, out);
}

uint64_t fisslock_switch_tick(void *state, uint64_t now, struct outbox *out)
{
    struct decider *d = state;
    return d->placement_at ? placement_tick(placement_of(d), d->lock, now, out) : UINT64_MAX;
}

bool fisslock_switch_stale(const void *state)
{
    const struct placement *placement = placement_of(state);
    return placement && placement->stale;
}

uint64_t fisslock_switch_moves(const void *state)
{
    const struct placement *placement = placement_of(state);
    return placement ? placement->counts.in + placement->counts.out : 0;
}

/* ---- machines that are lost ---- */

#define SCAN_LOCKS (1u << 18) /* in one call: about a millisecond */

static uint16_t live_machine(const struct decider *d, uint64_t now)
{
    for (uint16_t m = 1; m <= d->rules.machines; m++)
        if (machine_at(d, m)->asked && lives(d, m, now))
            return m;
    return MACHINE_NONE;
}

static void clear(struct decider *d, uint64_t index, uint16_t heir, struct outbox *out)
{
    struct fission_packet look, *p;
    if (out->packets == OUTBOX_PACKETS || out->used + sizeof look > OUTBOX_BYTES)
        return; /* the next scan finds it */
    struct rebuild_lock *lock = lock_of(d, index);
    if (!rebuild_clear(lock, d->policy.options, heir, &look) || !look.head.to.machine || !(p = outbox_add(out, sizeof look)))
        return;
    *p = look;
    p->head.space = d->rules.space;
    p->head.epoch = d->rules.life;
    p->head.index = index;
    p->token += fission_base(lock->age, d->token_life);
}

uint64_t fisslock_switch_scan(void *state, uint16_t machine, uint64_t now, struct outbox *out)
{
    struct decider *d = state;
    if (is_closed(d, now))
        return UINT64_MAX;
    if (d->scan.machine != machine || d->scan.next == d->locks) {
        d->scan.machine = machine;
        d->scan.next = d->scan.found = 0;
    }
    bool gone = !lives(d, machine, now);
    uint16_t heir = live_machine(d, now);
    uint64_t end = min_u64(d->scan.next + SCAN_LOCKS, d->locks);
    for (; d->scan.next < end; d->scan.next++) {
        uint64_t word = d->lock[d->scan.next].word, index = d->scan.next;
        if (!(word & FISSION_WORD_HELD) || fission_word_machine(word) != machine)
            continue;
        if (d->placement_at && !placement_index(placement_of(d), (uint32_t)index, &index))
            continue; /* the lock is moving: this is not its word */
        d->scan.found++;
        if (gone)
            clear(d, index, heir, out);
    }
    return d->scan.next == d->locks ? d->scan.found : UINT64_MAX;
}

const struct packet_drops *fisslock_switch_drops(const void *state)
{
    return &((const struct decider *)state)->drops;
}

bool fisslock_switch_has(const void *state, uint64_t index)
{
    const struct decider *d = state;
    return !d->placement_at || placement_cell(placement_of(d), index) != CELL_NONE;
}

uint64_t fisslock_switch_word(const void *state, uint64_t index)
{
    return fisslock_switch_has(state, index) ? lock_of(state, index)->word : 0;
}

const struct rebuild *fisslock_switch_rebuild(const void *state)
{
    return &((const struct decider *)state)->rebuild;
}
