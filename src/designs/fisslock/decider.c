/* SPDX-License-Identifier: Apache-2.0 */
/* The decider on words in memory, 16 bytes per lock. */
#include "dataplane/fission.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/placement.h"
#include "designs/fisslock/rebuild.h"

struct decider {
    struct fission_rules rules;
    struct packet_drops drops;
    struct fission_policy policy;
    uint64_t locks;
    uint64_t token_base;   /* of this life */
    uint64_t lease_ns;     /* 0: there are none, and nobody is ever taken for dead */
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
    uint64_t heard_ns; /* when it renewed its lease; 0: never */
    uint64_t asked;    /* whether an ACQUIRE of it has passed */
    uint64_t life;     /* the latest that was heard of */
};

static struct machine *machine_at(const struct decider *d, uint16_t machine)
{
    return (struct machine *)((char *)(uintptr_t)d + d->machines_at) + machine;
}

static struct placement *placement_of(const struct decider *d)
{
    return d->placement_at ? (struct placement *)((char *)(uintptr_t)d + d->placement_at) : NULL;
}

/* Of a lock that is here. */
static struct rebuild_lock *lock_of(const struct decider *d, uint64_t index)
{
    uint64_t at = d->placement_at ? placement_cell(placement_of(d), index) : index;
    return (struct rebuild_lock *)(uintptr_t)&d->lock[at];
}

#define LEASE_DRIFT_DIVISOR 5000 /* as the host's: it counts a little less, the decider a little more */

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

void fisslock_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    struct decider *d = state;
    d->rules = (struct fission_rules){.space = config->space, .machines = config->machines, .locks = config->locks};
    d->drops = (struct packet_drops){0};
    d->policy = policy_of(config);
    d->locks = cells_of(config);
    d->machines_at = sizeof *d + d->locks * sizeof(struct rebuild_lock);
    memset(machine_at(d, 0), 0, (config->machines + 1u) * sizeof(struct machine));
    d->lease_ns = config->lease_ns;
    d->rules.life = d->lease_ns ? life : 0;
    d->token_base = (uint64_t)(MISTAKE(d->policy.mistakes, FISSION_MISTAKE_TOKEN) ? 1 : life) << FISSION_TOKEN_LIFE_SHIFT;
    /* Its state was lost. What was granted before is told by those who hold it, or runs out with the leases of its former life. */
    d->rebuild.closed = false;
    if (life > 1 && d->lease_ns)
        rebuild_begin(&d->rebuild, config->machines,
                      MISTAKE(d->policy.mistakes, FISSION_MISTAKE_HASTY) ? 0 : now + lease_at_most(d));
    for (uint64_t i = 0; i < d->locks; i++) {
        d->lock[i].word = 0;
        d->lock[i].token = 0;
    }
    d->placement_at = placement_needed(config) ? placement_at(config) : 0;
    if (d->placement_at)
        placement_init(placement_of(d), config, life, now);
}

static uint32_t decide(struct decider *d, const struct fission_packet *p, struct fission_meta *m)
{
    struct rebuild_lock *lock = lock_of(d, p->head.index);
    uint32_t dest = fission_decide(p, &d->policy, &lock->word, &lock->token, m);
    m->token += d->token_base;
    return dest;
}

static void emit(struct outbox *out, const void *data, uint32_t len, const struct fission_policy *policy,
                 const struct fission_meta *m, uint32_t dest)
{
    struct fission_packet *p = outbox_add(out, len);
    if (!p)
        return;
    memcpy(p, data, len);
    if (m)
        fission_rewrite(p, policy, m, dest);
}

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
    return rebuild_closed(&d->rebuild, now, runs_lease, d);
}

void fisslock_switch_expect(void *state, const uint64_t *machines, unsigned words)
{
    struct decider *d = state;
    if (d->rebuild.closed)
        rebuild_expect(&d->rebuild, machines, words);
}

static void lease(struct decider *d, const struct fission_packet *p, uint64_t now, struct outbox *out)
{
    struct machine *m = p->head.from.machine <= d->rules.machines ? machine_at(d, p->head.from.machine) : NULL;
    if (!m || p->head.nonce < m->life) {
        d->drops.stale++; /* from a former life of that number */
        return;
    }
    m->life = p->head.nonce;
    if (p->flags & FISSION_DONE) { /* it goes */
        m->heard_ns = m->asked = 0;
        return;
    }
    struct fission_packet *answer = outbox_add(out, sizeof *p);
    if (!answer)
        return;
    is_closed(d, now); /* before it is heard: it may be the last whose silence was waited for */
    machine_at(d, p->head.from.machine)->heard_ns = now ? now : 1;
    *answer = *p;
    answer->flags = rebuild_heard(&d->rebuild, p->head.from.machine);
    answer->head.epoch = d->rules.life;
    answer->head.to = p->head.from;
    answer->head.from.machine = MACHINE_SWITCH;
    answer->count = 0;
}

/* The agent was lost with its host, and somebody who lives asks: its host has it from now on, in a new tenure, and will find that
 * out (forward.c) and who holds (census.c). On a pipeline this is a second pass. */
static void take_over(struct decider *d, const struct fission_packet *p, uint64_t now)
{
    uint64_t word = lock_of(d, p->head.index)->word;
    if (!(word & FISSION_WORD_HELD) || lives(d, fission_word_machine(word), now))
        return;
    struct fission_meta m;
    struct fission_packet take = {
        .head = {.type = FISSION_TAKE, .index = p->head.index}, .client = p->client, .term = fission_word_term(word)};
    decide(d, &take, &m);
}

/* Whether it was answered here. Who never asked, or whose lease is over, holds nothing. */
static bool answered(struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    uint16_t machine = fission_presence_of(p);
    if (machine == MACHINE_NONE || machine > d->rules.machines)
        return false;
    bool asked = machine_at(d, machine)->asked && lives(d, machine, now);
    bool absent = fission_absent(p, &asked);
    if (p->head.type == FISSION_ACQUIRE)
        machine_at(d, machine)->asked = 1;
    struct fission_packet *answer = absent ? outbox_add(out, len) : NULL;
    if (answer) {
        memcpy(answer, p, len);
        fission_answer_for_absent(answer);
    }
    return absent;
}

/* Decided by a server: it only passes, unless its host is lost. Of that the server hears, if somebody who lives wants the lock. */
static void pass(struct decider *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    bool asks = p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE;
    if (lives(d, p->head.to.machine, now))
        emit(out, p, len, &d->policy, NULL, 0);
    else if (asks && lives(d, p->client.machine, now))
        placement_forward(placement_of(d), p, len, SPILL_DEAD, out);
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
        machine_at(d, p->head.from.machine)->asked = 1; /* it holds something, and is to be asked */
    struct fission_packet *answer = outbox_add(out, sizeof *p);
    if (!answer)
        return;
    *answer = *p;
    answer->count = 0;
    answer->head.to = p->head.from;
    answer->head.from.machine = MACHINE_SWITCH;
}

/* From before the state was lost. Who sent it hears so by asking for its lease, which it should do now. */
static void nudge(struct decider *d, const struct fission_packet *p, struct outbox *out)
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

static void decide_packet(struct decider *d, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    const struct fission_packet *p = data;
    struct fission_meta m;
    struct placement *placement = placement_of(d);
    if (placement && spill_is_control(data, len)) {
        placement_packet(placement, d->lock, data, len, now, out);
        return;
    }
    enum fission_fault fault = fission_verify(data, len, &d->rules);
    if (fault != FISSION_FINE) {
        ++*(fault == FISSION_BAD ? &d->drops.bad : fault == FISSION_ALIEN ? &d->drops.alien : &d->drops.stale);
        if (fault == FISSION_STALE)
            nudge(d, p, out);
        return;
    }
    if (p->head.type == FISSION_LEASE) {
        lease(d, p, now, out);
        return;
    }
    if (p->head.type == FISSION_REPORT) {
        report(d, p, len, now, out);
        return;
    }
    if (is_closed(d, now))
        return;
    if (answered(d, p, len, now, out))
        return;
    if (placement && (p->flags & SPILL_SERVED)) {
        pass(d, p, len, now, out);
        return;
    }
    if (p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE) {
        if (!lives(d, p->client.machine, now)) {
            d->drops.stale++; /* nothing is granted to the dead */
            return;
        }
    }
    if (!fission_concerns_lock(p)) {
        emit(out, data, len, &d->policy, NULL, 0);
        return;
    }
    uint32_t cell = placement ? placement_cell(placement, p->head.index) : 0;
    if (cell == CELL_NONE) {
        placement_forward(placement, p, len, 0, out);
        return;
    }
    if (placement && fission_asks(p))
        placement_used(placement, cell, now);
    if (p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE)
        take_over(d, p, now);
    uint32_t dest = decide(d, p, &m);
    for (uint32_t one = FISSION_TO_CLIENT; one <= FISSION_BACK; one <<= 1)
        if (dest & one)
            emit(out, data, len, &d->policy, &m, one);
}

void fisslock_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct decider *d = state;
    _Alignas(8) uint8_t copy[PACKET_MAX];
    struct fission_packet *p = (struct fission_packet *)copy;
    if (d->placement_at && len >= sizeof *p && len <= PACKET_MAX && fisslock_relayed(data, len)) {
        memcpy(copy, data, len); /* a server does not have the lock: as if it came from its sender again */
        p->flags &= (uint16_t)~SPILL_MOVING;
        data = copy;
    }
    decide_packet(d, data, len, now, out);
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

/* ---- machines that are gone ---- */

#define SCAN_LOCKS (1u << 18) /* looked at in one call: about a millisecond */

static uint16_t somebody_who_lives(const struct decider *d, uint64_t now)
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
        return; /* next time */
    if (!rebuild_clear(lock_of(d, index), d->policy.options, heir, &look) || !look.head.to.machine ||
        !(p = outbox_add(out, sizeof look)))
        return;
    *p = look;
    p->head.space = d->rules.space;
    p->head.epoch = d->rules.life;
    p->head.index = index;
    p->token += d->token_base;
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
    uint16_t heir = somebody_who_lives(d, now);
    uint64_t end = min_u64(d->scan.next + SCAN_LOCKS, d->locks);
    for (; d->scan.next < end; d->scan.next++) {
        uint64_t word = d->lock[d->scan.next].word, index = d->scan.next;
        if (!(word & FISSION_WORD_HELD) || fission_word_machine(word) != machine)
            continue;
        if (d->placement_at && !placement_index(placement_of(d), (uint32_t)index, &index))
            continue; /* it is on its way, or was: the word is not the lock's */
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
