/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/host.h"
#include "designs/packet/parts.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define LOOK_NS (100 * NS_PER_MS)        /* how often whether to stop */
#define MEET_NS (5 * NS_PER_MS)          /* between two questions who else is there */
#define BEAT_NS (100 * NS_PER_MS)        /* between two signs of life to the coordinator, who may have started anew */
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
    const struct packet_design *d = s->design;
    uint32_t life = s->welcome.packet.head.generation;
    if (!s->is_switch) {
        d->server_init(s->memory, &s->config, s->welcome.packet.head.to.machine, life, fresh, host_now());
        return;
    }
    d->switch_init(s->memory, &s->config, life, host_now());
    if (d->switch_number)
        d->switch_number(s->memory, s->welcome.packet.head.to.port);
    if (d->switch_rules)
        d->switch_rules(s->memory, &s->rules);
    if (d->switch_expect && s->welcome.live_known)
        d->switch_expect(s->memory, s->welcome.live, COORD_LIVE_WORDS);
}

static void take_welcome(struct station *s, uint64_t switch_locks)
{
    s->config = s->welcome.config;
    s->config.switch_locks = switch_locks;
    s->config.options = packet_tuned(s->design, s->config.options, s->knobs);
    s->config.rack = s->config.racks ? s->welcome.packet.head.to.port : 0;
    for (unsigned i = 0; i < s->config.servers && s->config.racks && !s->is_switch; i++)
        if (s->config.server[i] == s->welcome.packet.head.to.machine)
            s->config.rack = (uint16_t)parts_of_server(&s->config, i);
    s->rules = s->welcome.rules;
}

int station_open(struct station *s, const struct station_params *p)
{
    uint64_t stamp;
    memset(s, 0, sizeof *s);
    s->is_switch = p->is_switch;
    s->spin_ns = p->spin_ns;
    s->stop = p->stop;
    s->knobs = p->knobs;
    int rc = udp_open(&s->udp, p->at);
    if (rc)
        return rc;
    s->join = (struct join_params){.coordinator = p->coordinator,
                                   .role = p->is_switch ? COORD_SWITCH : COORD_SERVER,
                                   .space = p->space,
                                   .at = p->known_as.ip ? p->known_as : s->udp.at,
                                   .rack = p->rack,
                                   .nonce = p->nonce ? p->nonce : world_random(&world_real) | 1,
                                   .deadline = p->deadline};
    rc = join(&s->udp, &s->join, &s->welcome, &stamp);
    const struct design *d = rc ? NULL : design_find(s->welcome.design);
    s->design = d ? d->packet : NULL;
    const struct rack_config *c = &s->config;
    if (!rc && !s->design)
        rc = -PAWL_ENOTSUP;
    if (!rc)
        take_welcome(s, 0);
    if (!rc && (p->is_switch ? !s->design->switch_packet : !s->design->server_packet))
        rc = -PAWL_ENOTSUP;
    if (!rc && p->is_switch && p->switch_locks && p->switch_locks < c->locks) {
        s->config.switch_locks = p->switch_locks;
        rc = !s->design->spills ? -PAWL_ENOTSUP : !c->servers ? -PAWL_ELIMIT : 0;
    }
    if (!rc) {
        s->memory_bytes = p->is_switch ? s->design->switch_bytes(c) : s->design->server_bytes(c);
        s->memory = zeroed(s->memory_bytes);
        s->peers = calloc(1, sizeof *s->peers);
        rc = s->memory && s->peers ? 0 : -ENOMEM;
    }
    if (rc) {
        station_close(s);
        return rc;
    }
    begin(s, p->fresh);
    return 0;
}

void station_close(struct station *s)
{
    udp_close(&s->udp);
    if (s->memory)
        munmap(s->memory, s->memory_bytes);
    free(s->peers);
}

/* ---- packets ---- */

/* Where servers and switch speak to each other, all must be there before the first packet: those that came later are in the next
 * answer to the same JOIN. Hosts are let in only afterwards. */
void station_meet(struct station *s)
{
    bool complete = !s->design->switch_packet || !s->welcome.config.servers;
    while (!complete && !*s->stop) {
        uint64_t stamp;
        complete = s->welcome.switches[s->config.rack].ip != 0;
        for (unsigned i = 0; i < s->welcome.config.servers; i++)
            complete = complete && s->welcome.servers[i].ip;
        if (complete)
            break;
        nanosleep(&(struct timespec){.tv_nsec = MEET_NS}, NULL);
        s->join.deadline = world_now(&world_real) + LOOK_NS;
        join(&s->udp, &s->join, &s->welcome, &stamp);
    }
}

static bool address_of(const struct station *s, const struct packet_head *h, struct net_addr *out)
{
    const struct rack_config *c = &s->welcome.config;
    struct place to = h->to;
    bool by_switch = !s->is_switch && s->design->spills && s->welcome.switches[0].ip; /* which knows where the lock is */
    if (to.machine == MACHINE_SWITCH || by_switch) {
        *out = s->welcome.switches[rack_switch_of(c, h)];
        return out->ip != 0;
    }
    if (to.machine == MACHINE_STEWARD) {
        *out = s->join.coordinator;
        return true;
    }
    for (unsigned i = 0; i < c->servers; i++)
        if (c->server[i] == to.machine && to.port == PORT_SERVER) {
            *out = s->welcome.servers[i];
            return true;
        }
    if (peers_find(s->peers, to, out) || (s->kernel.find && s->kernel.find(s->kernel.ctx, to, out)))
        return true;
    *out = s->welcome.switches[0]; /* a server's answer to a host that has not spoken to it */
    return !s->is_switch && out->ip;
}

static void changing(const struct station *s, bool begins)
{
    if (s->kernel.changing)
        s->kernel.changing(s->kernel.ctx, begins);
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
    }
    udp_send(&s->udp, out, n);
    s->counts.answers += n;
    outbox_clear(o);
}

static void tell(struct station *s, const void *packet, uint32_t len)
{
    const struct udp_out out = {.to = s->join.coordinator, .len = len, .data = packet};
    udp_send(&s->udp, &out, 1);
}

/* A sign of life; from a switch, what it found when it last looked for a machine. */
static void beat(struct station *s, uint64_t machine, uint64_t found)
{
    struct coord_beat b;
    struct coord_packet *p = &b.packet;
    memset(&b, 0, sizeof b);
    coord_make(p, COORD_BEAT, s->welcome.packet.space, s->join.nonce);
    p->head.from = s->welcome.packet.head.to;
    p->head.epoch = s->welcome.packet.head.generation;
    p->head.index = machine;
    p->head.generation = (uint32_t)min_u64(found, UINT32_MAX);
    p->role = s->join.role;
    p->at = s->join.at;
    p->code = coord_config_sum(&s->welcome.config);
    b.rules = s->rules;
    tell(s, &b, sizeof b);
}

/* ---- another life ---- */

#define JOINING_SHARE 4 /* of a lease: if the coordinator is gone meanwhile, it goes on as it was */

/* As if it had lost its state: with rules by which it has other locks than before, or because its place was given away. From now on
 * it decides nothing: the answer says which hosts can hold something, and what is granted after that would not count. */
static void join_anew(struct station *s)
{
    if (s->nonce_next || !s->is_switch || !s->design->switch_expect || s->kernel.changing)
        return;
    s->nonce_next = world_random(&world_real) | 1;
    s->joining_until_ns = host_now() + s->welcome.config.lease_ns / JOINING_SHARE;
}

static bool is_joining(struct station *s)
{
    if (s->nonce_next && host_now() >= s->joining_until_ns)
        s->nonce_next = 0; /* an answer that comes now is void: much may have been granted since */
    return s->nonce_next;
}

static void ask_again(struct station *s)
{
    struct join_params j = s->join;
    j.nonce = s->nonce_next;
    j.rack = s->welcome.packet.head.to.port + 1u; /* its own place */
    struct coord_packet p = join_packet(&j);
    tell(s, &p, sizeof p);
}

static void on_welcome(struct station *s, const struct coord_welcome *w)
{
    if (!is_joining(s) || w->packet.head.nonce != s->nonce_next || w->packet.role != s->join.role ||
        memcmp(&w->config, &s->welcome.config, sizeof w->config) != 0 || w->packet.head.to.port != s->welcome.packet.head.to.port ||
        !rack_rules_fine(&w->rules, max_u64(w->config.racks, 1)))
        return;
    s->welcome = *w;
    s->join.nonce = s->nonce_next;
    s->nonce_next = 0;
    take_welcome(s, s->config.switch_locks);
    madvise(s->memory, s->memory_bytes, MADV_DONTNEED); /* zero again */
    begin(s, false);
    beat(s, 0, 0);
}

/* ---- what the coordinator says ---- */

static void on_beaten(struct station *s, const struct coord_beat *b)
{
    if (b->packet.head.index <= s->welcome.config.machines)
        s->look_for = (uint16_t)b->packet.head.index;
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (b->switches[i].ip)
            s->welcome.switches[i] = b->switches[i]; /* it may have joined later than all others, or moved */
    if (!s->design->switch_rules || b->rules.version <= s->rules.version || !rack_rules_fine(&b->rules, s->config.racks))
        return;
    if (rules_concern(&s->rules, &b->rules, s->config.rack)) {
        join_anew(s);
        return;
    }
    s->rules = b->rules;
    s->design->switch_rules(s->memory, &s->rules);
}

static void on_coordinator(struct station *s, const void *data, uint32_t len)
{
    const struct coord_packet *p = coord_check(data, len, s->welcome.config.space);
    if (p && p->head.type == COORD_WELCOME)
        on_welcome(s, data);
    else if (p && p->head.type == COORD_BEATEN && p->head.nonce == s->join.nonce)
        on_beaten(s, data);
    else if (p && p->head.type == COORD_REFUSED && p->head.nonce == s->join.nonce && p->code == -ESTALE)
        join_anew(s);
}

/* For the machine that the coordinator asked about, if it did. */
static void look(struct station *s, struct outbox *out)
{
    if (!s->look_for || !s->is_switch || !s->design->switch_scan)
        return;
    uint64_t found = s->design->switch_scan(s->memory, s->look_for, host_now(), out);
    if (found == UINT64_MAX)
        return;
    beat(s, s->look_for, found);
    s->look_for = 0;
}

/* Whether it comes from a switch or another server: then it is a host's that was sent on. */
static bool is_station(const struct station *s, struct net_addr from)
{
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_is(from, s->welcome.switches[i]))
            return true;
    for (unsigned i = 0; i < s->welcome.config.servers; i++)
        if (net_addr_is(from, s->welcome.servers[i]))
            return true;
    return false;
}

static void one_packet(struct station *s, const void *data, uint32_t len, struct net_addr from, struct outbox *out)
{
    const struct packet_head *h = data;
    s->counts.packets++;
    if (len < sizeof *h || len > PACKET_MAX || h->version != PACKET_VERSION)
        return;
    const struct rack_config *c = &s->welcome.config;
    bool mine = h->family == PACKET_COORDINATOR || !c->racks ? h->space == c->space : h->space == rack_space_id(c, s->config.rack);
    if (!mine)
        return;
    bool known = h->from.machine && (h->from.machine <= s->welcome.config.machines || h->from.machine == MACHINE_OPERATOR);
    if (known && !(s->design->relayed && s->design->relayed(data, len)))
        peers_learn(s->peers, h->from, h->epoch, from, !is_station(s, from));
    if (h->family == PACKET_COORDINATOR)
        on_coordinator(s, data, len);
    if (h->family != s->design->family || is_joining(s))
        return; /* HERE */
    if (!s->is_switch) {
        s->design->server_packet(s->memory, data, len, host_now(), out);
        return;
    }
    s->design->switch_packet(s->memory, data, len, host_now(), out);
    if (s->design->switch_stale && s->design->switch_stale(s->memory))
        join_anew(s);
}

/* For measuring: back as it is, unless its type is 0. */
static bool is_echo(struct station *s, const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    if (len < sizeof *h || len > PACKET_MAX || h->version != PACKET_VERSION || h->family != PACKET_ECHO)
        return false;
    s->counts.echoes++;
    return h->type != 0;
}

static uint64_t tick(struct station *s, struct outbox *out)
{
    uint64_t (*fn)(void *, uint64_t, struct outbox *) = s->is_switch ? s->design->switch_tick : s->design->server_tick;
    bool joins = is_joining(s);
    uint64_t now = host_now(), next = fn && !joins ? fn(s->memory, now, out) : UINT64_MAX;
    if (joins)
        ask_again(s);
    else
        look(s, out);
    flush(s, out);
    if (now >= s->beat_ns && !joins) {
        s->beat_ns = now + BEAT_NS;
        beat(s, 0, 0);
    }
    return min_u64(next > now ? next - now : 0, min_u64(LOOK_NS, s->welcome.config.retry_ns * 4));
}

void station_run(struct station *s)
{
    struct udp_batch *batch = calloc(1, sizeof *batch);
    struct outbox *out = calloc(1, sizeof *out);
    struct udp_out echo[UDP_BATCH];
    uint64_t next = 0;
    station_meet(s);
    while (batch && out && !*s->stop) {
        uint64_t now = world_now(&world_real);
        if (now >= next) {
            changing(s, true);
            next = now + max_u64(tick(s, out), NS_PER_MS / 4);
            changing(s, false);
        }
        unsigned n = udp_wait(&s->udp, batch, s->spin_ns, next);
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
            udp_send(&s->udp, echo, echoes);
    }
    free(batch);
    free(out);
}
