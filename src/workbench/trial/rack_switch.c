/* SPDX-License-Identifier: Apache-2.0 */
/* The switches of the simulated rack: their programs in the middle of the star, and how locks are divided among several of them. */
#include "cluster/rules.h"
#include "dataplane/fission.h"
#include "lib/hash.h"
#include "wire/many.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPERATOR_PORT 9999 /* no process of the rack has it */

static unsigned switch_count(const struct rack *r)
{
    return r->config.racks ? r->config.racks : 1;
}

static bool is_cut(const struct rack *r, uint32_t rack, uint32_t host)
{
    return sim_now(&r->sim) < r->cut.until_ns && rack == r->cut.rack && host == r->cut.host;
}

/* The switch that a packet of this space's number is for; as many as there are: none. */
static unsigned switch_for(const struct rack *r, uint32_t space)
{
    if (!r->coordinator)
        return r->config.racks ? space - RACK_SPACE - 1 : 0;
    unsigned i = 0;
    while (i < switch_count(r) && r->config.racks &&
           !(r->switch_members[i].joined && rack_space_id(&r->switch_members[i].core.welcome.said.config, i) == space))
        i++;
    return i;
}

static const struct rack_member *sender_of(const struct rack *r, const struct packet_head *h)
{
    unsigned rack = switch_for(r, h->space);
    return &r->switch_members[rack < switch_count(r) ? rack : 0];
}

/* NetLock's switch lets packets between hosts and lock servers pass: they go to where their sender takes the receiver to be. */
static bool passes(const struct rack *r, const struct sim_packet *packet)
{
    return r->design->family == PACKET_NETLOCK && packet->len && packet->to.host != SIM_WIRE_SWITCH;
}

/* A mistake on purpose: the grant is also the answer to the next packet of the datagram. */
static void grant_next(struct rack *r, const struct sim_packet *leaving)
{
    struct sim_packet copy = *leaving;
    struct fission_packet *p = (struct fission_packet *)(void *)copy.data;
    const struct packet_head *next = r->next_part;
    if (!next || next->type != FISSION_ACQUIRE || p->head.type != FISSION_GRANT || leaving->to.host != leaving->from.host)
        return;
    p->head.index = next->index;
    p->head.nonce = next->nonce;
    p->client = ((const struct fission_packet *)next)->client;
    p->mode = p->old_mode = ((const struct fission_packet *)next)->mode;
    p->head.to = p->client;
    sim_switch_emit(r->wire, &copy);
}

/* The answer to a datagram with several packets, as a switch in the kernel makes it: answers take the place of their parts. */
struct rack_back {
    struct sim_packet packet;
    uint32_t at, len; /* the part that is decided, */
    bool answered;    /* and whether it is the answer now */
};

/* Whether the packet goes back as a part of the datagram that came. */
static bool answers_part(const struct rack *r, const struct sim_packet *leaving)
{
    const struct rack_back *b = r->back;
    return b && r->outbox.packets == 1 && leaving->len == b->len && leaving->to.host == b->packet.to.host &&
           leaving->to.port == b->packet.to.port && !MISTAKE(r->config.mistakes, RACK_BATCH_TWICE);
}

static void switch_emit(struct rack *r, struct sim_packet *packet)
{
    struct sim_packet leaving = {.from = packet->from};
    for (unsigned i = 0; i < r->outbox.packets; i++) {
        const struct packet_head *h = outbox_packet(&r->outbox, i);
        leaving.to = passes(r, packet) ? packet->to
                                       : (struct sim_addr){.host = rack_sim_host(r, sender_of(r, h), h->to), .port = h->to.port};
        if (leaving.to.host == RACK_NOWHERE)
            continue;
        if (r->config.racks && is_cut(r, rack_switch_of(&r->config, h), leaving.to.host))
            continue;
        leaving.len = r->outbox.packet[i].len;
        memcpy(leaving.data, h, leaving.len);
        if (answers_part(r, &leaving)) {
            memcpy(r->back->packet.data + r->back->at, h, leaving.len);
            r->back->answered = true;
            continue;
        }
        sim_switch_emit(r->wire, &leaving);
        if (MISTAKE(r->config.mistakes, RACK_BATCH_TWICE))
            grant_next(r, &leaving);
    }
    rack_clear_outbox(r);
}

/* Whether the switch decides: it has joined, if there is a coordinator. */
static bool switch_decides(struct rack *r, unsigned rack)
{
    return !r->coordinator || rack_member_decides(&r->switch_members[rack]);
}

void rack_switch_flush(struct rack *r)
{
    struct sim_packet none = {.from = {.host = SIM_WIRE_SWITCH}};
    switch_emit(r, &none);
}

static void switch_tick(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    if (tag != r->switch_tick_ns)
        return;
    struct sim_packet none = {.from = {.host = SIM_WIRE_SWITCH}};
    uint64_t now = sim_now(&r->sim), next = UINT64_MAX;
    for (unsigned i = 0; i < switch_count(r); i++) {
        if (!switch_decides(r, i))
            continue;
        next = min_u64(next, r->design->switch_tick(r->switches[i], now, &r->outbox));
        switch_emit(r, &none);
    }
    r->switch_tick_ns = max_u64(min_u64(next, now + r->config.retry_ns), now + 1);
    sim_at_timer(&r->sim, r->switch_tick_ns, switch_tick, r, r->switch_tick_ns);
}

static uint64_t switch_bytes(const struct rack *r, unsigned rack)
{
    struct rack_config config = r->config;
    config.rack = (uint16_t)rack;
    return r->design->switch_bytes(&config);
}

static void switch_anew(struct rack *r, unsigned rack, uint32_t life)
{
    if (r->coordinator) { /* it has to ask for its life */
        r->spare_switch.member.core.join.force = false;
        rack_member_start(&r->switch_members[rack]);
        return;
    }
    struct rack_config config = r->config;
    config.rack = (uint16_t)rack;
    memset(r->switches[rack], 0, switch_bytes(r, rack));
    r->design->switch_init(r->switches[rack], &config, life, sim_now(&r->sim));
    if (r->design->switch_rules)
        r->design->switch_rules(r->switches[rack], &r->rules);
}

/* By index: the highest generation that this switch has seen; null: not watched. */
static uint32_t *newest_of(const struct rack *r, unsigned rack)
{
    return r->newest ? r->newest + rack * r->config.locks : NULL;
}

/* NetLock's switch lets packets between hosts and servers pass. */
static uint32_t *watched(const struct rack *r, unsigned rack, const struct packet_head *h)
{
    return r->design->family == PACKET_NETLOCK && h->to.machine != MACHINE_SWITCH ? NULL : newest_of(r, rack);
}

void rack_switch_begin(const struct rack_member *m, void *memory, uint64_t now)
{
    const struct rack *r = m->rack;
    struct rack_config config = m->core.welcome.said.config;
    config.switch_locks = r->config.switch_locks;
    config.rack = (uint16_t)m->place;
    r->design->switch_init(memory, &config, m->core.welcome.said.packet.head.generation, now);
    if (r->design->switch_rules)
        r->design->switch_rules(memory, &m->core.rules);
    if (r->design->switch_expect && m->core.welcome.said.live_known)
        r->design->switch_expect(memory, m->core.welcome.said.live, COORD_LIVE_WORDS);
}

static void switch_welcome(struct rack_member *m)
{
    struct rack *r = m->rack;
    void *memory = r->switches[m->place];
    memset(memory, 0, switch_bytes(r, m->place));
    if (r->newest)
        memset(newest_of(r, m->place), 0, r->config.locks * sizeof *r->newest);
    rack_switch_begin(m, memory, sim_now(&r->sim));
}

static void decide(void *member, const void *data, uint32_t len)
{
    const struct rack_member *m = member;
    struct rack *r = m->rack;
    r->design->switch_packet(r->switches[m->place], data, len, sim_now(&r->sim), &r->outbox);
    rack_watch_generation(r, newest_of(r, m->place), data);
    rack_switch_flush(r);
}

static void switch_packet(void *ctx, struct sim_wire *wire, struct sim_packet *packet);

static void switch_unparked(struct rack_member *m, const void *data, uint32_t len, struct sim_addr from)
{
    struct sim_packet packet = {.from = from, .to = {.host = SIM_WIRE_SWITCH}, .len = len};
    memcpy(packet.data, data, len);
    switch_packet(m->rack, m->rack->wire, &packet);
}

/* A switch in the kernel sends back parts that it does not decide (dataplane/xdp/many.bpf.h). Here that is any part, now and then:
 * its outcome must not matter. */
#define SINGLY_SALT 0x51
static bool goes_singly(const struct rack *r, const struct packet_head *h)
{
    return mix64(h->nonce ^ h->index ^ sim_now(&r->sim) ^ (uint64_t)h->type << 32 ^ SINGLY_SALT) % 4 == 0;
}

static void switch_part(struct rack *r, struct sim_wire *wire, struct sim_packet *part, bool last)
{
    const struct packet_head *h = (const struct packet_head *)(const void *)part->data;
    unsigned rack = switch_for(r, h->space);
    bool forgets = MISTAKE(r->config.mistakes, RACK_BATCH_FORGET) && last && h->type == FISSION_ACQUIRE && rack < switch_count(r);
    uint64_t bytes = forgets ? switch_bytes(r, rack) : 0;
    void *before = forgets ? malloc(bytes) : NULL;
    if (before)
        memcpy(before, r->switches[rack], bytes);
    switch_packet(r, wire, part);
    if (before)
        memcpy(r->switches[rack], before, bytes);
    free(before);
}

/* Each part as a packet of its own. What is not answered in the datagram itself leaves singly, as the packets of a switch in user
 * space may. */
static void switch_parts(struct rack *r, struct sim_wire *wire, const struct sim_packet *packet)
{
    const struct packet_head *h;
    struct rack_back back = {.packet = {.from = packet->to, .to = packet->from, .len = packet->len}, .at = 0};
    struct many_front *front = (struct many_front *)(void *)back.packet.data;
    _Alignas(8) uint8_t data[SIM_PACKET_MAX];
    uint32_t at = 0;
    bool returns = false, here = packet->to.host == SIM_WIRE_SWITCH;
    memcpy(data, packet->data, packet->len);
    memcpy(back.packet.data, packet->data, packet->len);
    if (!many_sound(data, packet->len) || many_is_answer(data))
        return;
    for (unsigned i = 0; (h = many_next(data, &i, &at, &back.len));) {
        struct sim_packet part = {.from = packet->from, .to = packet->to, .len = back.len};
        bool singly = here && goes_singly(r, h);
        memcpy(part.data, h, back.len);
        bool last = i == front->many.count;
        r->next_part = last ? NULL : (const struct packet_head *)(const void *)(data + at);
        back.at = at - back.len;
        back.answered = false;
        r->back = here ? &back : NULL;
        if (!singly)
            switch_part(r, wire, &part, last);
        r->back = NULL;
        front->many.singly |= (uint16_t)(singly << (i - 1));
        front->many.settled |= (uint16_t)((!singly && !back.answered) << (i - 1));
        returns |= singly || back.answered;
    }
    r->next_part = NULL;
    if (returns)
        sim_switch_emit(wire, &back.packet);
}

/* Whether the packet goes to or comes from the other switch. */
static bool is_for_spare(const struct rack *r, const struct sim_packet *packet)
{
    const struct sim_process *spare = r->spare_switch.process;
    return spare && (packet->to.host == spare->host->id || packet->from.host == spare->host->id);
}

/* Lock packets of the design go through its program, others their way. */
static void switch_packet(void *ctx, struct sim_wire *wire, struct sim_packet *packet)
{
    struct rack *r = ctx;
    if (is_for_spare(r, packet)) {
        sim_switch_emit(wire, packet);
        return;
    }
    if (many_is(packet->data, packet->len)) {
        switch_parts(r, wire, packet);
        return;
    }
    const struct packet_head *h = (const struct packet_head *)(const void *)packet->data;
    if (packet->to.host == SIM_WIRE_SWITCH && r->coordinator && packet->len >= sizeof *h && h->family == PACKET_COORDINATOR) {
        _Alignas(8) uint8_t data[SIM_PACKET_MAX];
        memcpy(data, packet->data, packet->len);
        if (packet->to.port < switch_count(r))
            rack_member_packet(&r->switch_members[packet->to.port], data, packet->len);
        return;
    }
    if (packet->len < sizeof *h || h->family != r->design->family) {
        sim_switch_emit(wire, packet);
        return;
    }
    unsigned rack = switch_for(r, h->space);
    const bool here = packet->to.host == SIM_WIRE_SWITCH;
    if (rack >= switch_count(r) || !switch_decides(r, rack) || is_cut(r, rack, packet->from.host) ||
        (r->coordinator && !rack_member_admits(&r->switch_members[rack], packet->data, packet->len, packet->from, here)))
        return;
    _Alignas(8) uint8_t data[SIM_PACKET_MAX];
    memcpy(data, packet->data, packet->len);
    r->design->switch_packet(r->switches[rack], data, packet->len, sim_now(&r->sim), &r->outbox);
    rack_watch_generation(r, watched(r, rack, (const struct packet_head *)(const void *)data),
                          (const struct packet_head *)(const void *)data);
    switch_emit(r, packet);
    rack_come_late(r, watched(r, rack, (const struct packet_head *)(const void *)data), data, packet->len, decide,
                   &r->switch_members[rack]);
    if (!r->design->switch_stale || !r->design->switch_stale(r->switches[rack]))
        return;
    if (r->coordinator)
        rack_member_rejoin(&r->switch_members[rack]);
    else
        switch_anew(r, rack, ++r->life);
}

/* Of several, one or all. */
static void switch_crash(void *ctx)
{
    struct rack *r = ctx;
    unsigned count = switch_count(r), which = (unsigned)(mix64(r->params.seed + r->life) % (count + 1));
    for (unsigned i = 0; i < count; i++)
        if (count == 1 || i == which || which == count)
            switch_anew(r, i, ++r->life);
}

/* ---- locks divided anew ---- */

static void rules_begin(void *arg, uint64_t tag);

/* The second step: the switch that gets shards. */
static void rules_end(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    switch_anew(r, r->winner, ++r->life);
    if (sim_now(&r->sim) < r->params.safety_ns)
        sim_at(&r->sim, sim_now(&r->sim) + 1 + mix64(tag) % (2 * r->params.lease_ns), rules_begin, r, tag + 1);
}

/* Some shards go from one switch to another: first the switch that loses them. */
static void rules_begin(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    uint64_t draw = mix64(r->params.seed ^ mix64(tag));
    unsigned count = switch_count(r);
    assert(count > 1);
    r->loser = (unsigned)(draw % count);
    r->winner = (r->loser + 1 + (unsigned)(draw >> 8) % (count - 1)) % count;
    r->rules.version++;
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if (r->rules.owner[s] == r->loser && (mix64(draw + s) & 1))
            r->rules.owner[s] = (uint8_t)r->winner;
    if ((r->sim.faults.active & FAULT_BIT(FAULT_PARTITION)) && (draw >> 20 & 1)) {
        r->cut.host = r->hosts[(draw >> 24) % r->params.hosts].host->id;
        r->cut.rack = r->winner;
        r->cut.until_ns = min_u64(sim_now(&r->sim) + 2 * r->params.lease_ns, r->params.safety_ns);
    }
    if (MISTAKE(r->config.mistakes, RACK_BUSTED_ORDER)) { /* the wrong way round */
        unsigned swap = r->loser;
        r->loser = r->winner;
        r->winner = swap;
    }
    for (unsigned i = 0; i < count; i++)
        if (i != r->loser && i != r->winner)
            r->design->switch_rules(r->switches[i], &r->rules);
    switch_anew(r, r->loser, ++r->life);
    /* The coordinator may take longer than a lease for it, but not once all has healed. */
    uint64_t now = sim_now(&r->sim), then = now + 1 + (draw >> 32) % (2 * r->params.lease_ns);
    sim_at(&r->sim, max_u64(min_u64(then, r->params.safety_ns), now + 1), rules_end, r, tag);
}

/* With a coordinator, an operator asks it to divide the locks anew, and does not read the answer. */
static void operator_divides(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    uint64_t draw = mix64(r->params.seed ^ mix64(tag));
    struct coord_list coordinators = rack_coordinators(r);
    struct coord_packet p;
    coord_make(&p, COORD_RULES, "sim", NULL, draw | 1);
    p.code = 1;
    p.head.index = draw % RACK_SHARDS;
    p.head.generation = 1 + (uint32_t)((draw >> 8) % (RACK_SHARDS - p.head.index));
    p.role = (uint32_t)((draw >> 16) % r->config.racks);
    for (unsigned i = 0; i < coordinators.count; i++) {
        p.stamp = rack_coordinator_life(r, i); /* as it would have told */
        sim_wire_send(r->wire, (struct sim_addr){.host = r->hosts[0].host->id, .port = OPERATOR_PORT},
                      rack_sim_addr(coordinators.at[i]), &p, sizeof p);
    }
    if (sim_now(&r->sim) < r->params.safety_ns)
        sim_at(&r->sim, sim_now(&r->sim) + 1 + (draw >> 24) % (2 * r->params.lease_ns), operator_divides, r, tag + 1);
}

int rack_switch_start(struct rack *r)
{
    const struct sim_switch_program program = {.ctx = r, .packet = switch_packet, .crash = switch_crash};
    for (unsigned i = 0; i < switch_count(r); i++)
        if (!(r->switches[i] = sim_alloc(switch_bytes(r, i))))
            return -ENOMEM;
    r->switch_memory = r->switches[0];
    if (r->coordinator && !r->config.switch_locks &&
        !(r->newest = sim_alloc(switch_count(r) * r->config.locks * sizeof *r->newest)))
        return -ENOMEM;
    sim_wire_program(r->wire, &program);
    r->rules = rack_rules_first(r->config.racks);
    for (unsigned i = 0; i < switch_count(r); i++) {
        r->switch_members[i] = (struct rack_member){
            .rack = r, .place = i, .role = COORD_SWITCH, .welcomed = switch_welcome, .packet = switch_unparked};
        switch_anew(r, i, 1);
    }
    if (r->config.racks > 1 && r->params.moves && r->design->switch_rules)
        sim_at(&r->sim, r->params.lease_ns, r->coordinator ? operator_divides : rules_begin, r, 1);
    if (r->design->switch_tick) {
        r->switch_tick_ns = sim_now(&r->sim) + (r->design->steward_packet ? 1 : r->config.retry_ns);
        sim_at_timer(&r->sim, r->switch_tick_ns, switch_tick, r, r->switch_tick_ns);
    }
    return 0;
}
