/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/host.h"
#include "designs/packet/parts.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define LOOK_NS (100 * NS_PER_MS)        /* how often whether to stop */
#define MEET_NS (5 * NS_PER_MS)          /* between two looks whether all others have joined */
#define OUTBOX_FULL (OUTBOX_PACKETS / 2) /* packets that wait at most while others are still looked at */

/* ---- set-up ---- */

static void *zeroed(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
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

int station_adopt(struct station *s, const struct member *m, const struct station_params *p)
{
    memset(s, 0, sizeof *s);
    s->member = *m;
    s->is_switch = p->member.is_switch;
    s->spin_ns = p->spin_ns;
    s->stop = p->member.stop;
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
    int rc = member_open(&m, &p->member);
    if (rc)
        return rc;
    rc = station_adopt(s, &m, p);
    if (!rc) {
        s->memory_bytes = s->is_switch ? m.design->switch_bytes(&s->config) : m.design->server_bytes(&s->config);
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
    member_close(&s->member);
    if (s->memory && s->memory_bytes) /* its own */
        munmap(s->memory, s->memory_bytes);
    free(s->peers);
}

/* ---- packets ---- */

/* Where servers and switch speak to each other, all must be there before the first packet: those that came later are in the next
 * answer to the same JOIN. Hosts are let in only afterwards. */
void station_meet(struct station *s)
{
    const struct coord_welcome *w = &s->member.welcome.said;
    bool complete = !s->member.design->switch_packet || !w->config.servers;
    while (!complete && !*s->stop) {
        complete = net_addr_known(w->switches[s->config.rack]);
        for (unsigned i = 0; i < w->config.servers; i++)
            complete = complete && net_addr_known(s->member.welcome.servers[i]);
        if (complete)
            break;
        nanosleep(&(struct timespec){.tv_nsec = MEET_NS}, NULL);
        member_ask_again(&s->member);
    }
}

static bool address_of(const struct station *s, const struct packet_head *h, struct net_addr *out)
{
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
            return true;
        }
    if (peers_find(s->peers, to, out) || (s->kernel.find && s->kernel.find(s->kernel.ctx, to, out)))
        return true;
    *out = s->member.welcome.said.switches[0]; /* a server's answer to a host that has not spoken to it */
    return !s->is_switch && net_addr_known(*out);
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
        if (address_of(s, h, &out[n].to))
            n++;
        else
            s->counts.lost++;
        count_out(s, h);
    }
    udp_send(&s->member.udp, out, n);
    s->counts.answers += n;
    outbox_clear(o);
}

/* ---- the coordinator ---- */

static bool is_rejoining(struct station *s)
{
    bool may_be = s->member.nonce_next || s->member.superseded; /* seldom: no other file is entered for a lock packet */
    return may_be && member_is_rejoining(&s->member, host_now());
}

static void rejoin(struct station *s)
{
    if (s->is_switch && s->member.design->switch_expect && !s->kernel.changing)
        member_rejoin(&s->member, host_now());
}

/* Its place is another's, or its life is over. A program in the kernel goes on: hosts no longer send to it. */
static void superseded(struct station *s)
{
    if (s->kernel.changing)
        return;
    s->member.superseded = true;
    member_rejoin(&s->member, host_now());
}

static void on_coordinator(struct station *s, const void *data, uint32_t len)
{
    switch (member_packet(&s->member, data, len, host_now())) {
    case MEMBER_NOTHING:
        break;
    case MEMBER_JOINED:
        s->counts.joined++;
        take_config(s, s->config.switch_locks);
        madvise(s->memory, s->memory_bytes, MADV_DONTNEED); /* zero again */
        begin(s, false);
        member_beat(&s->member, 0, 0);
        break;
    case MEMBER_RULES:
        s->member.design->switch_rules(s->memory, &s->member.rules);
        break;
    case MEMBER_STALE:
        rejoin(s);
        break;
    case MEMBER_SUPERSEDED:
        superseded(s);
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

/* Whether it comes from a switch or another server: then it is a host's that was sent on. */
static bool is_station(const struct station *s, struct net_addr from)
{
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_is(from, s->member.welcome.said.switches[i]))
            return true;
    for (unsigned i = 0; i < s->member.welcome.said.config.servers; i++)
        if (net_addr_is(from, s->member.welcome.servers[i]))
            return true;
    return false;
}

static void one_packet(struct station *s, const void *data, uint32_t len, struct net_addr from, struct outbox *out)
{
    const struct packet_head *h = data;
    s->counts.packets++;
    if (len < sizeof *h || len > PACKET_MAX) {
        s->counts.bad++;
        return;
    }
    if (!packet_readable(h)) {
        s->counts.unreadable++;
        return;
    }
    if (h->family == PACKET_COORDINATOR && member_asked(&s->member, data, len, from))
        return;
    const struct rack_config *c = &s->member.welcome.said.config;
    bool mine = h->family == PACKET_COORDINATOR || !c->racks ? h->space == c->space : h->space == rack_space_id(c, s->config.rack);
    if (!mine) {
        s->counts.alien++;
        return;
    }
    bool known =
        h->from.machine && (h->from.machine <= s->member.welcome.said.config.machines || h->from.machine == MACHINE_OPERATOR);
    if (known && !(s->member.design->relayed && s->member.design->relayed(data, len)))
        peers_learn(s->peers, h->from, h->epoch, from, !is_station(s, from));
    if (h->family == PACKET_COORDINATOR)
        on_coordinator(s, data, len);
    if (h->family != s->member.design->family || is_rejoining(s))
        return; /* HERE */
    if (h->type < FIGURES_TYPES)
        s->counts.in[h->type]++;
    if (!s->is_switch) {
        s->member.design->server_packet(s->memory, data, len, host_now(), out);
        return;
    }
    s->member.design->switch_packet(s->memory, data, len, host_now(), out);
    if (s->member.design->switch_stale && s->member.design->switch_stale(s->memory))
        rejoin(s);
}

/* For measuring: back as it is, unless its type is 0. */
static bool is_echo(struct station *s, const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    if (len < sizeof *h || len > PACKET_MAX || !packet_readable(h) || h->family != PACKET_ECHO)
        return false;
    s->counts.echoes++;
    return h->type != 0;
}

static uint64_t tick(struct station *s, struct outbox *out)
{
    uint64_t (*fn)(void *, uint64_t, struct outbox *) =
        s->is_switch ? s->member.design->switch_tick : s->member.design->server_tick;
    bool joins = is_rejoining(s);
    uint64_t now = host_now(), next = fn && !joins ? fn(s->memory, now, out) : UINT64_MAX;
    if (joins)
        member_send_rejoin(&s->member);
    else
        look(s, out);
    flush(s, out);
    if (!joins)
        member_beat_if_due(&s->member, now);
    return min_u64(next > now ? next - now : 0, min_u64(LOOK_NS, s->member.welcome.said.config.retry_ns * 4));
}

static void publish(struct station *s, uint64_t now)
{
    const struct packet_design *d = s->member.design;
    struct packet_figures (*fn)(const void *) = s->is_switch ? d->switch_figures : d->server_figures;
    const struct packet_drops *drops = !s->is_switch && d->server_drops ? d->server_drops(s->memory) : &(struct packet_drops){0};
    struct figures_part p = {.kind = FIGURES_GRANTER,
                             .ready = !member_is_alone(&s->member, now) && !s->member.superseded && !s->member.nonce_next,
                             .at = s->member.udp.at,
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
                                         .stale = drops->stale,
                                         .foreign = s->member.foreign,
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
            if (figures_due(&s->board, now))
                publish(s, host_now());
        }
        unsigned n = udp_wait(&s->member.udp, batch, s->spin_ns, next);
        unsigned echoes = 0;
        changing(s, true);
        for (unsigned i = 0; i < n; i++) {
            if (is_echo(s, batch->packet[i].data, batch->packet[i].len)) {
                echo[echoes++] =
                    (struct udp_out){.to = batch->packet[i].from, .len = batch->packet[i].len, .data = batch->packet[i].data};
                continue;
            }
            one_packet(s, batch->packet[i].data, batch->packet[i].len, batch->packet[i].from, out);
            if (out->packets > OUTBOX_FULL || out->used > OUTBOX_BYTES / 2)
                flush(s, out);
        }
        changing(s, false);
        if (out->packets)
            flush(s, out);
        if (echoes)
            udp_send(&s->member.udp, echo, echoes);
    }
    if (!s->kernel.changing) /* a program in the kernel may go on */
        member_leave(&s->member);
    figures_hide(&s->board);
    free(batch);
    free(out);
}
