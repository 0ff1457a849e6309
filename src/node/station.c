/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/host.h"
#include "designs/packet/parts.h"
#include "node/node.h"
#include "wire/many.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LOOK_NS (100 * NS_PER_MS)        /* how often whether to stop */
#define FLOOD_RATE UINT64_C(5000)        /* refused packets a second: honest members cause none, or a few at a change of keys */
#define FLOOD_END_NS (10 * NS_PER_S)     /* with fewer, until the filter goes */
#define OUTBOX_FULL (OUTBOX_PACKETS / 2) /* packets that wait at most while others are still looked at */

/* ---- set-up ---- */

static void *zeroed(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static uint64_t bytes_of(const struct station *s)
{
    const struct packet_design *d = s->member.design;
    return s->is_switch ? d->switch_bytes(&s->config) : d->server_bytes(&s->config);
}

/* The memory is zero again, and as large as the space is now. False: there is not so much. */
static bool clear_memory(struct station *s)
{
    uint64_t bytes = bytes_of(s);
    void *memory = bytes == s->memory_bytes ? s->memory : zeroed(bytes);
    if (!memory)
        return false;
    if (memory == s->memory)
        madvise(memory, bytes, MADV_DONTNEED);
    else
        munmap(s->memory, s->memory_bytes);
    s->memory = memory;
    s->memory_bytes = bytes;
    return true;
}

/* The lock server goes on in its life, with more locks. If there is no memory for them, the coordinator tells it again. */
static void grow(struct station *s)
{
    struct rack_config config = s->config;
    config.locks = s->member.locks;
    uint64_t bytes = s->member.design->server_bytes(&config);
    void *memory = mremap(s->memory, s->memory_bytes, bytes, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED)
        return;
    s->member.design->server_grow(memory, config.locks);
    s->memory = memory;
    s->memory_bytes = bytes;
    s->config = config;
    s->member.welcome.said.config.locks = config.locks;
}

/* With the memory zero, in the life that the welcome gives. */
static void begin(struct station *s, bool fresh)
{
    const struct packet_design *d = s->member.design;
    const struct coord_welcome *w = &s->member.welcome.said;
    uint32_t life = w->packet.head.generation;
    assert(life && s->memory); /* I6: late packets of former lives are recognised by it */
    if (!s->is_switch) {
        d->server_init(s->memory, &s->config, w->packet.head.to.machine, life, fresh, host_now());
        if (s->apply)
            d->server_apply(s->memory, s->apply, s->apply_ctx);
        return;
    }
    d->switch_init(s->memory, &s->config, life, host_now());
    if (d->switch_number)
        d->switch_number(s->memory, w->packet.head.to.port);
    if (d->switch_rules)
        d->switch_rules(s->memory, &s->member.rules);
    if (d->switch_expect && w->live_known)
        d->switch_expect(s->memory, w->live, COORD_LIVE_WORDS);
}

static void take_config(struct station *s, uint64_t switch_locks)
{
    const struct coord_welcome *w = &s->member.welcome.said;
    struct rack_config *c = &s->config;
    *c = w->config;
    c->switch_locks = switch_locks;
    c->options = packet_tuned(s->member.design, c->options, s->tuned ? &s->knobs : NULL);
    c->rack = c->racks ? w->packet.head.to.port : 0;
    for (unsigned i = 0; i < c->servers && c->racks && !s->is_switch; i++)
        if (c->server[i] == w->packet.head.to.machine)
            c->rack = (uint16_t)parts_of_server(c, i);
}

static int take_policy(struct station *s, const struct switch_policy *p)
{
    const char *name = s->member.welcome.said.design;
    const struct design *d = design_find(name);
    s->tuned = p->alloc_given || p->levels_given;
    if (!s->tuned)
        return 0;
    s->knobs = design_knobs(d);
    int rc = design_tune(d, &s->knobs, "alloc-random", p->alloc_random);
    if (!rc && p->levels)
        rc = design_tune(d, &s->knobs, "switch-priorities", p->levels);
    return rc ? explain(-PAWL_ENOTSUP, "the space has the design '%s', which has neither --alloc nor --priorities", name) : 0;
}

static int take_room(struct station *s, uint64_t switch_locks)
{
    if (!s->is_switch || !switch_locks || switch_locks >= s->config.locks)
        return 0;
    if (!s->member.design->spills)
        return explain(-PAWL_ENOTSUP, "the design '%s' decides all locks in the switch: no --room", s->member.welcome.said.design);
    if (!s->config.servers)
        return explain(-PAWL_ELIMIT, "--room is for less than all locks, and the space has no lock servers for the others: "
                                     "pawl serve --servers");
    s->config.switch_locks = switch_locks;
    return 0;
}

ONCE int station_adopt(struct station *s, const struct member *m, const struct station_params *p)
{
    memset(s, 0, sizeof *s);
    s->member = *m;
    s->is_switch = p->member.is_switch;
    s->spin_ns = p->spin_ns;
    s->stop = p->member.stop;
    s->flood.gate = m->roster && m->roster->ring ? p->gate : NULL;
    s->desk = p->desk;
    if (m->roster && p->desk)
        roster_limit(m->roster, p->host_packets);
    if (!m->design || (s->is_switch ? !m->design->switch_packet : !m->design->server_packet))
        return explain(-PAWL_ENOTSUP, "the design '%s' has no %s", m->welcome.said.design,
                       s->is_switch ? "switch" : "lock servers");
    int rc = take_policy(s, &p->policy);
    if (rc)
        return rc;
    take_config(s, 0);
    rc = take_room(s, p->switch_locks);
    if (!rc && !(s->peers = calloc(1, sizeof *s->peers)))
        rc = explain(-ENOMEM, "out of memory");
    return rc;
}

int station_open(struct station *s, const struct station_params *p)
{
    struct member m;
    struct member_params mp = p->member;
    mp.reads = PACKET_MANY;
    int rc = member_open(&m, &mp);
    if (rc)
        return rc;
    rc = station_adopt(s, &m, p);
    if (!rc) {
        s->member.adapts = true;
        s->memory_bytes = bytes_of(s);
        s->memory = zeroed(s->memory_bytes);
        rc = s->memory ? 0 : explain(-ENOMEM, "out of memory: the locks take %" PRIu64 " bytes", s->memory_bytes);
    }
    if (rc)
        station_close(s);
    else
        begin(s, p->fresh);
    return rc;
}

void station_apply(struct station *s, pawl_apply apply, void *ctx)
{
    s->apply = apply;
    s->apply_ctx = ctx;
    s->member.design->server_apply(s->memory, apply, ctx);
}

void station_close(struct station *s)
{
    if (s->flood.gate && s->flood.filter)
        s->flood.gate->take_away(s->flood.filter, member_udp(&s->member)->fd);
    member_close(&s->member);
    if (s->memory && s->memory_bytes) /* its own */
        munmap(s->memory, s->memory_bytes);
    free(s->peers);
}

/* ---- packets ---- */

/* A place whose lock server was lost is no reason to wait: its successor's address comes with a heartbeat's acknowledgement. */
static bool is_there(struct net_addr server)
{
    return net_addr_known(server) || server.port == COORD_AWAY;
}

/* Where servers and switch speak to each other, all must be there before the first packet: those that came later are in the next
 * answer to the same JOIN. Hosts are let in only afterwards. */
void station_meet(struct station *s)
{
    const struct coord_welcome *w = &s->member.welcome.said;
    bool complete = !s->member.design->switch_packet || !w->config.servers;
    while (!complete && !*s->stop) {
        unsigned missing = 0;
        while (missing < w->config.servers && is_there(s->member.welcome.servers[missing]))
            missing++;
        complete = missing == w->config.servers && net_addr_known(w->switches[s->config.rack]);
        if (!complete)
            member_meet(&s->member, missing);
    }
}

/* A packet for a host is tagged with the host's key on its last way, and before that with the key of the member in whose name it
 * is: a host's, or the stations' own, which is that of the socket. */
static const struct seal_key *key_for(const struct station *s, const struct packet_head *h, bool last)
{
    uint16_t machines = s->member.welcome.said.config.machines;
    uint16_t m = last && h->to.machine && h->to.machine <= machines ? h->to.machine : h->from.machine;
    return m && m <= machines ? roster_key(s->member.roster, m) : NULL;
}

/* A session that has not sent to this switch by its own socket: its request was sent by the host's pool, or came before the switch
 * started. The place has the port of the session, and the coordinator has told where the host is. */
static bool find_session(const struct station *s, struct place to, struct net_addr *out)
{
    const struct roster *r = s->member.roster;
    if (!s->is_switch || r->lives_only || !to.machine || to.machine > r->machines || to.port == PORT_POOL || to.port == PORT_SERVER)
        return false;
    *out = net_addr_at_port(r->host[to.machine].at, to.port);
    out->reads = 0;
    return net_addr_known(*out);
}

/* *last: the packet goes to its receiver, and not to a station that sends it on. */
static bool find_address(const struct station *s, const struct packet_head *h, struct net_addr *out, bool *last)
{
    *last = false;
    const struct rack_config *c = &s->member.welcome.said.config;
    struct place to = h->to;
    bool by_switch = !s->is_switch && s->member.design->spills &&
                     net_addr_known(s->member.welcome.said.switches[0]); /* which knows where the lock is */
    if (to.machine == MACHINE_SWITCH || by_switch) {
        *out = s->member.welcome.said.switches[rack_switch_of(c, h)];
        return net_addr_known(*out);
    }
    if (to.machine == MACHINE_STEWARD) {
        *out = coord_list_at(&s->member.join.coordinators);
        return true;
    }
    for (unsigned i = 0; i < c->servers; i++)
        if (c->server[i] == to.machine && to.port == PORT_SERVER) {
            *out = s->member.welcome.servers[i];
            return net_addr_known(*out);
        }
    *last = true;
    if (peers_find(s->peers, to, out) || (s->kernel.find && s->kernel.find(s->kernel.ctx, to, out)) || find_session(s, to, out))
        return true;
    *last = false;
    *out = s->member.welcome.said.switches[0]; /* a server's answer to a host that has not spoken to it */
    return !s->is_switch && net_addr_known(*out);
}

static bool address_of(const struct station *s, struct udp_out *out)
{
    bool last;
    bool found = find_address(s, out->data, &out->to, &last);
    out->key = s->member.roster->ring ? key_for(s, out->data, last) : NULL;
    return found;
}

static void changing(const struct station *s, bool begins)
{
    if (s->kernel.changing)
        s->kernel.changing(s->kernel.ctx, begins);
}

/* A packet that leaves. A switch sends on grants of agents, and of servers. */
static void count_out(struct station *s, const struct packet_head *h)
{
    if (h->family != s->member.design->family || h->type >= FIGURES_TYPES)
        return;
    s->counts.out[h->type]++;
    if (h->type == s->grant_type)
        s->counts.grants[h->from.machine == MACHINE_SWITCH      ? GRANT_BY_SWITCH
                         : h->from.machine > s->config.machines ? GRANT_BY_SERVER
                                                                : GRANT_BY_AGENT]++;
}

static void flush(struct station *s, struct outbox *o)
{
    struct udp_out out[OUTBOX_PACKETS];
    unsigned n = 0;
    for (unsigned i = 0; i < o->packets; i++) {
        const struct packet_head *h = outbox_packet(o, i);
        out[n] = (struct udp_out){.len = o->packet[i].len, .data = h};
        if (address_of(s, &out[n]))
            n++;
        else
            s->counts.lost++;
        count_out(s, h);
    }
    udp_send_together(member_udp(&s->member), out, n);
    s->counts.answers += n;
    outbox_clear(o);
}

/* ---- the coordinator ---- */

static bool is_joining(struct station *s)
{
    return s->member.nonce_next && member_is_joining(&s->member, host_now()); /* seldom: few lock packets enter another file */
}

static ONCE void close_gate(struct station *s)
{
    struct station_flood *f = &s->flood;
    f->gate->take_away(f->filter, member_udp(&s->member)->fd);
    f->filter = NULL;
    log_event(LOG_LEVEL_NOTICE, "flood ended", LOG_TEXT("space", s->member.join.space), LOG_NUMBER("packets", f->filtered),
              LOG_TEXT("why", "the filter in the kernel has little to refuse"));
}

static void on_coordinator(struct station *s, const void *data, uint32_t len)
{
    uint32_t places = s->member.places;
    enum member_news news = member_hear(&s->member, data, len);
    if (s->member.places != places && s->kernel.moved)
        s->kernel.moved(s->kernel.ctx);
    switch (news) {
    case MEMBER_NOTHING:
    case MEMBER_STALE:
    case MEMBER_SUPERSEDED:
        break;
    case MEMBER_JOINED:
        s->counts.joined++;
        if (s->flood.filter)
            close_gate(s); /* it has room for as many hosts as there could be */
        take_config(s, s->config.switch_locks);
        if (!clear_memory(s)) {
            member_supersede(&s->member, host_now()); /* it decides nothing, and tries again */
            break;
        }
        begin(s, false);
        member_beat(&s->member, 0, 0);
        break;
    case MEMBER_RULES:
        s->member.design->switch_rules(s->memory, &s->member.rules);
        break;
    case MEMBER_GROWN:
        grow(s);
        break;
    }
}

/* For the machine that the coordinator asked about, if it did. */
static void look(struct station *s, struct outbox *out)
{
    struct member *m = &s->member;
    if (!m->look_for || !s->is_switch || !m->design->switch_scan)
        return;
    uint64_t found = m->design->switch_scan(s->memory, m->look_for, host_now(), out);
    if (found == UINT64_MAX)
        return;
    member_beat(m, m->look_for, found);
    m->look_for = 0;
}

/* Whether the packet is within what its host may send. */
static bool is_within_limit(struct station *s, uint16_t machine, struct net_addr from)
{
    if (!machine || machine > s->member.roster->machines || roster_takes(s->member.roster, machine, s->came_ns))
        return true;
    s->desk->limited(s, machine, from);
    return false;
}

/* `opened`: it is a part of a datagram that was open. */
static void one_packet(struct station *s, void *data, uint32_t len, struct net_addr from, bool opened, struct outbox *out)
{
    const struct packet_head *h = data;
    struct seal_key used = {.k = {0}};
    s->counts.packets++;
    if (len < sizeof *h || len > PACKET_MAX) {
        s->counts.bad++;
        return;
    }
    if (!opened && s->member.roster->ring && !member_opens(&s->member, data, len, from, &used))
        return;
    if (!packet_readable(h)) {
        s->counts.unreadable++;
        return;
    }
    if (h->family == PACKET_COORDINATOR && member_asked(&s->member, data, len, from, &used))
        return;
    const struct rack_config *c = &s->member.welcome.said.config;
    bool mine = h->family == PACKET_COORDINATOR || !c->racks ? h->space == c->space : h->space == rack_space_id(c, s->config.rack);
    if (!mine) {
        s->counts.alien++;
        return;
    }
    if (unlikely(!member_admits(&s->member, h, from))) {
        roster_park(s->member.roster, h, len, from, true);
        return;
    }
    if (unlikely(s->came_ns) && !is_within_limit(s, h->from.machine, from))
        return;
    bool known =
        h->from.machine && (h->from.machine <= s->member.welcome.said.config.machines || h->from.machine == MACHINE_OPERATOR);
    if (known && !(s->member.design->relayed && s->member.design->relayed(data, len)))
        peers_learn(s->peers, h->from, h->epoch, from, !member_knows_granter(&s->member, from));
    if (h->family == PACKET_COORDINATOR)
        on_coordinator(s, data, len);
    if (h->family != s->member.design->family || is_joining(s))
        return; /* HERE */
    if (h->type < FIGURES_TYPES)
        s->counts.in[h->type]++;
    if (unlikely(h->from.machine == MACHINE_OPERATOR) && !(s->desk && s->desk->command(s, data, len, from, &used))) {
        s->counts.forged += !s->desk;
        return;
    }
    if (!s->is_switch) {
        s->member.design->server_packet(s->memory, data, len, host_now(), out);
        return;
    }
    s->member.design->switch_packet(s->memory, data, len, host_now(), out);
    if (s->member.design->switch_stale && s->member.design->switch_stale(s->memory))
        member_rejoin(&s->member, host_now());
}

/* The coordinator has told of hosts: packets of those that it does not know are dropped. */
static void unpark(struct station *s, struct outbox *out)
{
    struct roster *r = s->member.roster;
    struct roster_parked *p;
    for (unsigned i = 0; (p = roster_unpark(r, &i));)
        one_packet(s, p->bytes, p->len, p->from, p->opened, out);
    if (s->flood.filter)
        s->flood.gate->tell(s->flood.filter, r);
    if (s->kernel.told)
        s->kernel.told(s->kernel.ctx);
}

static void flush_if_full(struct station *s, struct outbox *out)
{
    if (out->packets > OUTBOX_FULL || out->used > OUTBOX_BYTES / 2)
        flush(s, out);
}

/* Parts that a switch in the kernel did not decide: they go their way as single packets (wire/many.h). */
static void send_singly(struct station *s, const void *data)
{
    const struct packet_head *h;
    uint32_t at = 0, len = 0;
    for (unsigned i = 0; (h = many_next_singly(data, &i, &at, &len));) {
        struct udp_out out = {.len = len, .data = h};
        if (address_of(s, &out))
            udp_send(member_udp(&s->member), &out, 1);
    }
}

/* A datagram with several packets. Its sender reads such datagrams, too: the answers leave together. */
static void several_packets(struct station *s, void *data, uint32_t len, struct net_addr from, struct outbox *out)
{
    const struct packet_head *h, *first = data;
    uint32_t at = 0, part = 0;
    bool keyed = s->member.roster->ring;
    bool sound = many_sound(data, len), answers = sound && many_is_answer(data);
    if (!sound || (answers && (s->is_switch || !member_knows_granter(&s->member, from)))) {
        s->counts.packets++;
        s->counts.bad++;
        return;
    }
    if (answers)
        send_singly(s, data);
    from.reads = PACKET_MANY;
    for (unsigned i = 0; (h = many_next(data, &i, &at, &part));) {
        if (keyed && h->from.machine != first->from.machine && !answers) {
            s->member.roster->untagged++; /* the datagram's tag says nothing of other members */
            continue;
        }
        one_packet(s, (void *)(uintptr_t)h, part, from, keyed, out);
        flush_if_full(s, out);
    }
}

/* Whether it is one with parts, tagged or not. */
static bool has_parts(const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    return len >= sizeof *h && h->version == PACKET_VERSION && (h->features & ~PACKET_TAGGED) == PACKET_MANY;
}

static void take_datagram(struct station *s, void *data, uint32_t len, struct net_addr from, struct outbox *out)
{
    struct seal_key used;
    bool parts = has_parts(data, len);
    if (s->parts && !parts && out->packets)
        flush(s, out); /* from now on answers to this sender leave singly, and those to its last datagram shall not */
    s->parts = parts;
    if (!parts)
        one_packet(s, data, len, from, false, out);
    else if (roster_opens(s->member.roster, data, len, &used) && many_is(data, len))
        several_packets(s, data, len, from, out);
    else
        s->member.roster->untagged++;
}

/* For measuring: back, if it asks for that. */
static bool is_echo(struct station *s, void *data, uint32_t len)
{
    struct packet_head *h = data;
    struct seal_key used;
    if (len < sizeof *h || len > PACKET_MAX || h->family != PACKET_ECHO)
        return false;
    if (s->member.roster->ring && !roster_opens(s->member.roster, data, len, &used))
        return false; /* echoes are for members */
    if (!packet_readable(h))
        return false;
    s->counts.echoes++;
    if (h->type != ECHO_ASK)
        return false;
    h->type = ECHO_BACK;
    return true;
}

/* ---- floods ---- */

static ONCE void open_gate(struct station *s, uint64_t came)
{
    struct station_flood *f = &s->flood;
    if (f->gate->put_before(s->member.roster, member_udp(&s->member)->fd, &f->filter)) {
        f->gate = NULL;
        log_event(LOG_LEVEL_WARNING, "flood not filtered", LOG_TEXT("space", s->member.join.space), LOG_NUMBER("packets", came),
                  LOG_TEXT("why", explained()));
        return;
    }
    f->filtered = 0;
    log_event(LOG_LEVEL_WARNING, "flood begins", LOG_TEXT("space", s->member.join.space), LOG_NUMBER("packets", came),
              LOG_TEXT("why", "packets without a right tag: the kernel refuses them from now on"));
}

/* Puts the filter before the socket while there is a flood. It costs honest packets a second check of their tag, so it is not
 * always there. */
static ONCE void look_at_flood(struct station *s, uint64_t now)
{
    struct station_flood *f = &s->flood;
    struct roster *r = s->member.roster;
    uint64_t since = now - f->looked_ns;
    if (f->filter) {
        uint64_t sum = f->gate->refused(f->filter);
        r->untagged += sum - f->filtered;
        if (sum != f->filtered)
            r->wanted =
                1; /* a host of which the coordinator has not told may be among them: the process does not see its packets */
        f->filtered = sum;
        f->gate->tell(f->filter, r);
    }
    uint64_t all = r->untagged + r->unknown + r->late + r->forged, came = all - f->refused;
    bool many = came > FLOOD_RATE * since / NS_PER_S;
    f->refused = all;
    f->looked_ns = now;
    if (many)
        f->busy_ns = now;
    if (many && !f->filter)
        open_gate(s, came);
    else if (f->filter && now - f->busy_ns > FLOOD_END_NS)
        close_gate(s);
}

static uint64_t tick(struct station *s, struct outbox *out)
{
    uint64_t (*fn)(void *, uint64_t, struct outbox *) =
        s->is_switch ? s->member.design->switch_tick : s->member.design->server_tick;
    bool joins = is_joining(s);
    uint64_t now = host_now(), next = fn && !joins ? fn(s->memory, now, out) : UINT64_MAX;
    if (!joins)
        look(s, out);
    flush(s, out);
    member_turn(&s->member);
    return min_u64(next > now ? next - now : 0, min_u64(LOOK_NS, s->member.welcome.said.config.retry_ns * 4));
}

static void publish(struct station *s, uint64_t now)
{
    const struct packet_design *d = s->member.design;
    struct packet_figures (*fn)(const void *) = s->is_switch ? d->switch_figures : d->server_figures;
    const struct packet_drops *drops = !s->is_switch && d->server_drops ? d->server_drops(s->memory) : &(struct packet_drops){0};
    struct figures_part p = {.kind = FIGURES_GRANTER,
                             .ready = !member_is_alone(&s->member, now) && !s->member.nonce_next,
                             .at = member_udp(&s->member)->at,
                             .granter = {.is_switch = s->is_switch,
                                         .life = s->member.welcome.said.packet.head.generation,
                                         .term = s->member.term,
                                         .alone = member_is_alone(&s->member, now),
                                         .superseded = s->member.superseded,
                                         .joined_anew = s->counts.joined,
                                         .locks = s->config.locks,
                                         .memory_bytes = s->memory_bytes,
                                         .packets = s->counts.packets,
                                         .answers = s->counts.answers,
                                         .unroutable = s->counts.lost,
                                         .echoes = s->counts.echoes,
                                         .bad = s->counts.bad + drops->bad,
                                         .alien = s->counts.alien + drops->alien,
                                         .unreadable = s->counts.unreadable + drops->unreadable,
                                         .stale = drops->stale + s->member.roster->late,
                                         .foreign = s->member.foreign,
                                         .forged = s->counts.forged + s->member.forged + s->member.roster->forged,
                                         .unissued = s->member.roster->unknown,
                                         .not_admin = s->counts.not_admin,
                                         .limited = s->member.roster->limited,
                                         .untagged = s->member.roster->untagged,
                                         .moves = s->is_switch && d->switch_moves ? d->switch_moves(s->memory) : 0,
                                         .family = d->family}};
    snprintf(p.space, sizeof p.space, "%s", s->member.welcome.said.packet.space);
    snprintf(p.design, sizeof p.design, "%s", s->member.welcome.said.design);
    memcpy(p.granter.in, s->counts.in, sizeof p.granter.in);
    memcpy(p.granter.out, s->counts.out, sizeof p.granter.out);
    memcpy(p.granter.grants, s->counts.grants, sizeof p.granter.grants);
    if (fn)
        p.granter.design = fn(s->memory);
    else
        memset(&p.granter.design, 0xff, sizeof p.granter.design);
    static_assert(PACKET_UNCOUNTED == UINT64_MAX, "all bits are set");
    figures_publish(&s->board, &p);
}

void station_run(struct station *s)
{
    struct udp_batch *batch = calloc(1, sizeof *batch);
    struct outbox *out = calloc(1, sizeof *out);
    struct udp_out echo[UDP_BATCH];
    uint64_t next = 0;
    s->grant_type = figures_grant_type(s->member.design->family);
    station_meet(s);
    figures_show(&s->board);
    while (batch && out && !*s->stop) {
        uint64_t now = world_now(&world_real);
        if (now >= next) {
            changing(s, true);
            next = now + max_u64(tick(s, out), NS_PER_MS / 4);
            changing(s, false);
            if (s->flood.gate && now - s->flood.looked_ns >= LOOK_NS)
                look_at_flood(s, now);
            if (figures_due(&s->board, now))
                publish(s, host_now());
        }
        if (s->member.roster->wanted)
            member_ask_hosts(&s->member, host_now());
        unsigned n = udp_wait(member_udp(&s->member), batch, s->spin_ns, next);
        unsigned echoes = 0;
        uint64_t answers = s->member.roster->answers;
        s->came_ns = s->member.roster->gap_ns ? host_now() : 0;
        changing(s, true);
        for (unsigned i = 0; i < n; i++) {
            if (is_echo(s, batch->packet[i].data, batch->packet[i].len)) {
                echo[echoes++] =
                    (struct udp_out){.to = batch->packet[i].from, .len = batch->packet[i].len, .data = batch->packet[i].data};
                continue;
            }
            take_datagram(s, batch->packet[i].data, batch->packet[i].len, batch->packet[i].from, out);
            flush_if_full(s, out);
        }
        if (unlikely(answers != s->member.roster->answers))
            unpark(s, out);
        changing(s, false);
        if (out->packets)
            flush(s, out);
        if (echoes)
            udp_send(member_udp(&s->member), echo, echoes);
    }
    if (!s->kernel.changing) /* a program in the kernel may go on */
        member_leave(&s->member);
    figures_hide(&s->board);
    free(batch);
    free(out);
}
