/* FissLock with its locks divided among several switches (5.4).
 *
 * A host takes part in every rack with a pool of its own: requests, agents, a lease, what it tells a switch that lost its state.
 * The parts know nothing of each other; their packets differ in the number of the space. Which rack a lock is in, a table says: the
 * lock's slot and the slot's switch. A failure of one switch does not touch what the others have.
 *
 * The table changes while all is running, as if the switches that lose or get slots had lost their state: they begin another life
 * with the new table, closed, first those that lose slots, and every host tells them what it holds (rebuild.h). The table comes
 * with the answer by which a host hears of the new life: before it tells anything, the host carries what it holds over to the part
 * of the rack that has the lock now, and what waits asks there. So when the new owner opens, everybody who lives has told it what
 * it holds, and nobody but it decides. Lives are given from one source, so that tokens rise from one rack to the next, too. */
#include "designs/fisslock/racks.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/pool.h"

#include <errno.h>

static unsigned slot_of(uint64_t index)
{
    return (unsigned)(mix64(index) % RACK_SLOTS);
}

static struct rack_config part_config(const struct rack_config *c, unsigned rack)
{
    struct rack_config part = *c;
    part.space = rack_space_id(c, rack);
    part.rack = (uint16_t)rack;
    return part;
}

/* ---- the host ---- */

struct racks_host {
    struct rack_config config;
    struct rack_rules rules;
    struct packet_drops drops;
    uint64_t parts_at, part_bytes, racks_at; /* racks_at: a byte per request, the rack that it is, or was last, in */
};

static uint64_t part_bytes(const struct rack_config *config)
{
    struct rack_config part = part_config(config, 0);
    return round_up(fisslock_host_bytes(&part), UNDO_LINE);
}

uint64_t racks_host_bytes(const struct rack_config *config)
{
    return round_up(sizeof(struct racks_host), UNDO_LINE) + round_up(rack_requests(config), UNDO_LINE) +
           config->racks * part_bytes(config);
}

void *racks_part(void *host, unsigned rack)
{
    const struct racks_host *h = host;
    return (char *)host + h->parts_at + rack * h->part_bytes;
}

static uint8_t *rack_of(void *host, uint32_t request)
{
    return (uint8_t *)host + ((const struct racks_host *)host)->racks_at + request;
}

static void *part_of(const void *host, uint32_t request)
{
    void *h = (void *)(uintptr_t)host;
    return racks_part(h, *rack_of(h, request));
}

static bool has_request(const void *host, uint32_t request)
{
    return request < rack_requests(&((const struct racks_host *)host)->config);
}

const struct rack_rules *racks_rules(const void *host)
{
    return &((const struct racks_host *)host)->rules;
}

void racks_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    struct racks_host *h = host;
    assert(config->racks && config->racks <= RACKS_MAX);
    memset(h, 0, sizeof *h);
    h->config = *config;
    h->rules = rack_rules_first(config->racks);
    h->racks_at = round_up(sizeof *h, UNDO_LINE);
    h->parts_at = h->racks_at + round_up(rack_requests(config), UNDO_LINE);
    h->part_bytes = part_bytes(config);
    memset((char *)host + h->racks_at, 0, rack_requests(config));
    for (unsigned d = 0; d < config->racks; d++) {
        struct rack_config part = part_config(config, d);
        fisslock_host_init(racks_part(host, d), &part, machine, life, now);
        ((struct fisslock_host *)racks_part(host, d))->part_bytes = h->part_bytes;
    }
}

/* ---- calls go to the part in which the request is ---- */

int racks_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    struct racks_host *h = host;
    if (!has_request(host, ask->request) || ask->index >= h->config.locks)
        return -EINVAL;
    if (!fisslock_idle(part_of(host, ask->request), ask->request))
        return -EBUSY;
    uint8_t *rack = rack_of(host, ask->request);
    outbox_touch(out, rack, 1);
    *rack = h->rules.owner[slot_of(ask->index)];
    return fisslock_acquire(racks_part(host, *rack), ask, now, out);
}

int racks_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    return has_request(host, request) ? fisslock_release(part_of(host, request), request, now, out) : -EINVAL;
}

int racks_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    return has_request(host, request) ? fisslock_give_up(part_of(host, request), request, why, now, out) : -EINVAL;
}

int racks_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    return has_request(host, request) ? fisslock_convert(part_of(host, request), request, mode, now, out) : -EINVAL;
}

void racks_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out)
{
    if (has_request(host, request))
        fisslock_thread(part_of(host, request), request, thread, now, out);
}

int racks_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    return has_request(host, request) ? fisslock_outcome(part_of(host, request), request, out) : -EINVAL;
}

bool racks_idle(const void *host, uint32_t request)
{
    return fisslock_idle(part_of(host, request), request);
}

bool racks_holds(const void *host, uint32_t request)
{
    return fisslock_holds(part_of(host, request), request);
}

bool racks_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    return has_request(host, request) && fisslock_claim(part_of(host, request), request, out);
}

void racks_leave(void *host, uint64_t now, struct outbox *out)
{
    const struct racks_host *h = host;
    for (unsigned d = 0; d < h->config.racks; d++)
        fisslock_leave(racks_part(host, d), now, out);
}

uint64_t racks_expiry(const void *host, uint32_t session)
{
    const struct racks_host *h = host;
    uint64_t until = UINT64_MAX;
    for (unsigned d = 0; d < h->config.racks; d++)
        until = min_u64(until, fisslock_expiry(racks_part((void *)(uintptr_t)host, d), session));
    return until;
}

uint32_t racks_leases(const void *host, uint64_t now)
{
    const struct racks_host *h = host;
    uint32_t mask = 0;
    for (unsigned d = 0; d < h->config.racks; d++)
        mask |= (uint32_t)lease_runs(racks_part((void *)(uintptr_t)host, d), now) << d;
    return mask;
}

void racks_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    const struct racks_host *h = host;
    for (unsigned d = 0; d < h->config.racks; d++)
        fisslock_session_dead(racks_part(host, d), session, now, out);
}

uint64_t racks_tick(void *host, uint64_t now, struct outbox *out)
{
    const struct racks_host *h = host;
    uint64_t next = UINT64_MAX;
    for (unsigned d = 0; d < h->config.racks; d++)
        next = min_u64(next, fisslock_tick(racks_part(host, d), now, out));
    return next;
}

void racks_rouse(void *host, uint64_t now, struct outbox *out)
{
    const struct racks_host *h = host;
    for (unsigned d = 0; d < h->config.racks; d++)
        fisslock_rouse(racks_part(host, d), now, out);
}

const struct packet_drops *racks_host_drops(const void *host)
{
    return &((const struct racks_host *)host)->drops;
}

/* ---- another table ---- */

/* What a request holds or waits for, from one part to another. */
static void carry(struct racks_host *h, uint32_t request, uint8_t to, uint64_t now, struct outbox *out)
{
    void *from_part = part_of(h, request), *to_part = racks_part(h, to);
    const struct request was = *host_request(from_part, request);
    if (was.state == REQUEST_RELEASING)
        return; /* it holds nothing; it ends where it is */
    uint8_t *rack = rack_of(h, request);
    outbox_touch(out, rack, 1);
    *rack = to;
    if (was.state == REQUEST_WAITING) {
        const struct packet_ask ask = {.request = request,
                                       .thread = *host_thread(from_part, request),
                                       .port = was.port,
                                       .priority = was.priority,
                                       .try = was.try,
                                       .mode = (enum pawl_mode)was.mode,
                                       .index = was.index};
        fisslock_give_up(from_part, request, -EAGAIN, now, out);
        if (fisslock_acquire(to_part, &ask, now, out) < 0)
            *rack = (uint8_t)(((char *)from_part - (char *)racks_part(h, 0)) / (ptrdiff_t)h->part_bytes); /* there it has ended */
        return;
    }
    request_carry(from_part, to_part, request, now, out);
}

static void apply(struct racks_host *h, const struct rack_rules *rules, uint64_t now, struct outbox *out)
{
    outbox_touch(out, &h->rules, sizeof h->rules);
    h->rules = *rules;
    for (uint32_t r = 0; r < rack_requests(&h->config); r++) {
        const struct request *request = host_request(part_of(h, r), r);
        uint8_t owner = h->rules.owner[slot_of(request->index)];
        if (request->state != REQUEST_IDLE && request->state != REQUEST_ENDED && owner != *rack_of(h, r))
            carry(h, r, owner, now, out);
    }
}

#define RULES_ENTRIES (RACK_SLOTS / sizeof(struct fission_entry))
static_assert(RACK_SLOTS % sizeof(struct fission_entry) == 0, "a table is whole entries");

void racks_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct racks_host *h = host;
    const struct fission_packet *p = data;
    uint32_t rack = len >= sizeof *p ? p->head.space - rack_space_id(&h->config, 0) : UINT32_MAX;
    if (rack >= h->config.racks) {
        outbox_touch(out, &h->drops, sizeof h->drops);
        h->drops.alien++;
        return;
    }
    bool tells = p->head.type == FISSION_LEASE && p->head.from.machine == MACHINE_SWITCH && p->count == RULES_ENTRIES &&
                 len == sizeof *p + RACK_SLOTS;
    if (tells) {
        struct rack_rules rules = {.version = p->stamp};
        memcpy(rules.owner, p + 1, RACK_SLOTS);
        if (rules.version > h->rules.version && rack_rules_fine(&rules, h->config.racks))
            apply(h, &rules, now, out);
    }
    fisslock_packet(racks_part(host, rack), data, len, now, out);
}

/* ---- the switch ---- */

struct racks_switch {
    struct rack_config config;
    struct rack_rules rules;
    struct packet_drops drops;
    _Alignas(CACHE_LINE) char decider[];
};

uint64_t racks_switch_bytes(const struct rack_config *config)
{
    struct rack_config part = part_config(config, config->rack);
    return sizeof(struct racks_switch) + fisslock_switch_bytes(&part);
}

const void *racks_decider(const void *state)
{
    return ((const struct racks_switch *)state)->decider;
}

void racks_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    struct racks_switch *s = state;
    struct rack_config part = part_config(config, config->rack);
    s->config = *config;
    s->rules = rack_rules_first(config->racks);
    s->drops = (struct packet_drops){0};
    fisslock_switch_init(s->decider, &part, life, now);
}

void racks_switch_rules(void *state, const struct rack_rules *rules)
{
    struct racks_switch *s = state;
    if (rules->version > s->rules.version && rack_rules_fine(rules, s->config.racks))
        s->rules = *rules;
}

void racks_switch_expect(void *state, const uint64_t *machines, unsigned words)
{
    fisslock_switch_expect(((struct racks_switch *)state)->decider, machines, words);
}

uint64_t racks_switch_scan(void *state, uint16_t machine, uint64_t now, struct outbox *out)
{
    return fisslock_switch_scan(((struct racks_switch *)state)->decider, machine, now, out);
}

/* The table goes with every answer to a LEASE, which is the last packet there. */
static void add_rules(const struct racks_switch *s, struct outbox *out)
{
    uint32_t at = out->packet[out->packets - 1].at;
    struct fission_packet *p = (struct fission_packet *)(void *)(out->bytes + at);
    if (p->head.type != FISSION_LEASE || OUTBOX_BYTES - out->used < RACK_SLOTS)
        return;
    p->stamp = s->rules.version;
    p->count = RULES_ENTRIES;
    memcpy(p + 1, s->rules.owner, RACK_SLOTS);
    out->packet[out->packets - 1].len += RACK_SLOTS;
    out->used += RACK_SLOTS;
}

void racks_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct racks_switch *s = state;
    const struct fission_packet *p = data;
    if (len >= sizeof *p && p->head.type == FISSION_ACQUIRE && s->rules.owner[slot_of(p->head.index)] != s->config.rack) {
        s->drops.stale++; /* another's, and its host will hear so */
        return;
    }
    unsigned before = out->packets;
    fisslock_switch_packet(s->decider, data, len, now, out);
    if (len >= sizeof *p && p->head.type == FISSION_LEASE && out->packets == before + 1)
        add_rules(s, out);
}

const struct packet_design fisslock_racks_packets = {FISSLOCK_RACKS_PACKETS, .draws = FISSION_WRITE_PREFERRING | FISSLOCK_PRIORITY};
