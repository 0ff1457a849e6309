/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/coordinator_internal.h"
#include "designs/fisslock/rebuild.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdio.h>

#define REQUESTS_MAX (UINT64_C(1) << 20) /* of one host: their numbers have 20 bits in nonces */
static_assert(REBUILD_MACHINES_MAX == 1024, "as a message says");

struct rack_identity coord_identity_of_name(const char *space)
{
    return (struct rack_identity){.id = {hash_bytes(space, strlen(space), 1), hash_bytes(space, strlen(space), 2) | 1},
                                  .version = 1};
}

int32_t coord_config_sum(const struct rack_config *config)
{
    return (int32_t)(hash_bytes((const char *)config, sizeof *config, 0) & INT32_MAX);
}

void coord_make(struct coord_packet *p, enum coord_type type, const char *space, const struct rack_identity *identity,
                uint64_t nonce)
{
    memset(p, 0, sizeof *p);
    p->head = (struct packet_head){.version = PACKET_VERSION, .family = PACKET_COORDINATOR, .type = (uint8_t)type, .nonce = nonce};
    if (identity) {
        p->identity = *identity;
        p->head.space = rack_short_id(identity);
    }
    snprintf(p->space, sizeof p->space, "%s", space);
}

bool coord_knows(const struct rack_identity *member, const struct coord_packet *p)
{
    return rack_same_space(member, &p->identity) && p->identity.version >= member->version;
}

bool coord_is_current(uint64_t *term, const struct coord_packet *p)
{
    if (p->term < *term)
        return false;
    *term = p->term;
    return true;
}

static bool is_question(enum coord_type type)
{
    return type == COORD_JOIN || type == COORD_BEAT || type == COORD_WHO || type == COORD_RULES || type == COORD_FIND ||
           type == COORD_KEY_OF || type == COORD_VALUE || type == COORD_BREAK;
}

bool coord_stands_by(const struct rack_identity *member, const struct coord_packet *p)
{
    return p->head.type == COORD_REFUSED && p->code == COORD_NOT_LEADER && rack_same_space(member, &p->identity);
}

uint32_t coord_stand_by(const void *data, uint32_t len, const uint64_t id[2], const char *space, struct net_addr leader,
                        void *answer)
{
    const struct rack_identity identity = {.id = {id[0], id[1]}};
    const struct coord_packet *p = coord_check(data, len, 0);
    struct coord_packet *a = answer;
    if (!p || !is_question((enum coord_type)p->head.type) || strncmp(p->space, space, sizeof p->space) != 0)
        return 0;
    coord_make(a, COORD_REFUSED, space, rack_id_known(&identity) ? &identity : NULL, p->head.nonce);
    a->head.to = p->head.from;
    a->head.epoch = p->head.epoch;
    a->code = COORD_NOT_LEADER;
    a->at = leader;
    return sizeof *a;
}

uint32_t coord_unknown_space(const struct coord_packet *p, struct coord_packet *a)
{
    if (!is_question((enum coord_type)p->head.type))
        return 0;
    coord_make(a, COORD_REFUSED, p->space, NULL, p->head.nonce);
    a->head.to = p->head.from;
    a->head.epoch = p->head.epoch;
    a->code = -ENOENT;
    return sizeof *a;
}

static uint32_t answer_len(enum coord_type type)
{
    return type == COORD_JOIN     ? sizeof(struct coord_welcome)
           : type == COORD_WHO    ? sizeof(struct coord_hosts)
           : type == COORD_RULES  ? sizeof(struct coord_ruled)
           : type == COORD_CLAIMS ? sizeof(struct coord_claimed)
                                  : 0;
}

uint32_t coord_unpadded(const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    if (len < sizeof(struct coord_packet) || h->family != PACKET_COORDINATOR || !answer_len((enum coord_type)h->type))
        return len;
    return len < answer_len((enum coord_type)h->type) ? 0 : sizeof(struct coord_packet);
}

const struct coord_packet *coord_check(const void *data, uint32_t len, uint32_t space)
{
    const struct coord_packet *p = data;
    if (len < sizeof *p || !packet_readable(&p->head) || p->head.family != PACKET_COORDINATOR ||
        (space && p->head.space != space) || p->space[sizeof p->space - 1])
        return NULL;
    if (p->head.type == COORD_WELCOME)
        return len == sizeof(struct coord_welcome) ? p : NULL;
    if (p->head.type == COORD_BEAT || p->head.type == COORD_BEAT_ACK)
        return len == sizeof(struct coord_beat) ? p : NULL;
    if (p->head.type == COORD_RULED)
        return len == sizeof(struct coord_ruled) ? p : NULL;
    if (p->head.type == COORD_FIND || p->head.type == COORD_KEY_OF || p->head.type == COORD_FOUND) {
        const struct coord_key *k = data;
        return len == sizeof *k && k->len <= DIRECTORY_KEY_MAX ? p : NULL;
    }
    if (p->head.type == COORD_VALUE || p->head.type == COORD_VALUED)
        return len == sizeof(struct coord_value) && ((const struct coord_value *)data)->len <= PAWL_VALUE_MAX ? p : NULL;
    if (p->head.type == COORD_RETIRE)
        return len == sizeof(struct coord_retire) && ((const struct coord_retire *)data)->count <= COORD_RETIRE_MAX ? p : NULL;
    if (p->head.type == COORD_HOSTS)
        return len == sizeof(struct coord_hosts) && ((const struct coord_hosts *)data)->count <= COORD_HOSTS_MAX ? p : NULL;
    if (p->head.type == COORD_CLAIMED)
        return len == sizeof(struct coord_claimed) && ((const struct coord_claimed *)data)->count <= COORD_CLAIMS_MAX ? p : NULL;
    return p;
}

/* ---- the beginning ---- */

/* Why there can be no such rack; null: there can. */
static const char *fault_of(const struct coord_params *p, const struct packet_design *d)
{
    if (!d || !(p->design->substrates & DESIGN_ON_UDP))
        return "the design does not run over UDP";
    if (!*p->space || strlen(p->space) >= COORD_NAME_LEN)
        return "the name of a space must have 1 to 31 bytes";
    if (!p->machines || p->machines > MACHINE_MAX - RACK_SERVERS_MAX || !p->sessions || !p->requests || !p->locks)
        return "the numbers of hosts, sessions, holds and locks must not be 0";
    if (p->machines > STATE_HOSTS_MAX)
        return "there must be at most 4096 hosts";
    if (d->switch_expect && p->machines >= REBUILD_MACHINES_MAX) /* all of them report to a switch that starts anew */
        return "with this design there must be at most 1023 hosts";
    if (p->member_ns && p->member_ns < p->lease_ns)
        return "the membership lease must not be shorter than the lock lease";
    if ((uint64_t)p->sessions * p->requests >= REQUESTS_MAX)
        return "a host has less than 1M requests: sessions times holds";
    if (!d->server_packet && p->servers)
        return "the design has no lock servers";
    if (d->server_packet && ((!p->servers && !d->spills) || p->servers > RACK_SERVERS_MAX))
        return "there must be between 1 and 64 lock servers";
    if (p->racks > RACKS_MAX)
        return "there must be at most 8 racks";
    if (p->racks && !packet_divides(d))
        return "the design does not divide its locks among racks";
    if (d->divides && p->servers < (p->racks ? p->racks : RACKS_DEFAULT))
        return "there must be at least as many lock servers as racks: each switch has its own";
    if (p->backup && (!d->steward_packet || d->divides))
        return "the design's switch has no backup";
    if ((p->keys == PAWL_KEYS_NAMED || p->keys == PAWL_KEYS_SPARSE) != !!p->directory)
        return "names and sparse keys need a directory";
    return NULL;
}

static void make_config(const struct coord_params *p, struct rack_config *out)
{
    const struct packet_design *d = p->design->packet;
    memset(out, 0, sizeof *out); /* its padding travels, too */
    out->identity = rack_id_known(&p->identity) ? p->identity : coord_identity_of_name(p->space);
    out->space = rack_short_id(&out->identity);
    out->machines = p->machines;
    out->sessions = p->sessions;
    out->requests = p->requests;
    out->servers = p->servers;
    for (unsigned i = 0; i < p->servers; i++)
        out->server[i] = (uint16_t)(p->machines + 1 + i);
    out->switches = p->backup ? 2 : 1;
    out->racks = !packet_divides(d) ? 0 : p->racks ? p->racks : RACKS_DEFAULT;
    out->locks = p->locks;
    out->lease_ns = p->lease_ns;
    out->member_us = (uint32_t)min_u64(max_u64(p->member_ns, p->lease_ns) / NS_PER_US, UINT32_MAX);
    out->retry_ns = p->retry_ns;
    out->options = p->like ? p->like->options : packet_tuned(d, d->options, p->knobs);
    out->keys = p->keys;
    out->group = p->group;
    out->mistakes = MISTAKES(p->mistakes);
}

int coordinator_config(const struct coord_params *p, struct rack_config *out, const char **why)
{
    *why = fault_of(p, p->design->packet);
    if (*why)
        return -EINVAL;
    make_config(p, out);
    return 0;
}

/* Hosts are told by the answers about names that there are more locks. Lock servers divide the locks by index modulo the number of
 * servers, which stays. */
const char *coordinator_keeps_size(const struct coord_params *p)
{
    const struct packet_design *d = p->design->packet;
    if (p->keys != PAWL_KEYS_NAMED && p->keys != PAWL_KEYS_SPARSE)
        return "its keys are numbers below its size, which hosts learn when they join";
    if (!d->host_grow)
        return "hosts of its design cannot take another number of locks while they hold some";
    return d->switch_packet && p->servers && !d->server_grow ? "its switch and its lock servers divide the locks" : NULL;
}

/* Restores the state from the log of a former coordinator. */
static void take_state(struct coordinator *c, const struct rack_state *s)
{
    c->logged = true;
    c->lives = s->lives;
    c->rules = c->wanted = s->rules;
    for (unsigned i = 0; i < c->config.servers; i++)
        c->server[i] = (struct coord_station){.at = s->server[i].at, .life = s->server[i].life};
    for (unsigned i = 0; i < rack_switches(&c->config); i++)
        c->switch_[i] = (struct coord_station){.at = s->switch_[i].at, .life = s->switch_[i].life, .rules = RULES_NONE};
}

int coordinator_init(struct coordinator *c, const struct coord_params *p, struct coord_member *members, uint64_t now,
                     const char **why)
{
    struct rack_config config;
    int rc = coordinator_config(p, &config, why);
    if (rc)
        return rc;
    memset(c, 0, sizeof *c);
    memset(members, 0, (p->machines + UINT64_C(1)) * sizeof *members);
    c->config = config;
    c->design = p->design;
    snprintf(c->space, sizeof c->space, "%s", p->space);
    c->life = p->life;
    c->term = p->life;
    c->lives = UINT32_MAX;
    c->start_ns = c->life_ns = now;
    c->beat_ns = p->beat_ns ? p->beat_ns : COORD_BEAT_NS;
    c->names.round = (uint64_t)p->life << 32;
    c->gone = p->life;
    c->fresh = p->fresh;
    c->members = members;
    rules_init(&c->rules, c->config.racks);
    c->wanted = c->rules;
    c->directory = p->directory;
    c->values = p->values;
    if (p->state)
        take_state(c, p->state);
    coord_hosts_begin(c, p, now);
    if (p->state && !p->fresh)
        coord_servers_begin(c);
    return 0;
}

/* ---- answers ---- */

uint32_t coord_refuse(const struct coordinator *c, const struct coord_packet *p, int code, void *answer)
{
    struct coord_packet *a = answer;
    coord_make(a, COORD_REFUSED, c->space, &c->config.identity, p->head.nonce);
    memcpy(a->space, p->space, sizeof a->space); /* as it was asked for: the space may be another one */
    a->head.to = p->head.from;
    a->head.epoch = p->head.epoch;
    a->code = code;
    return sizeof *a;
}

bool coordinator_live(const struct coordinator *c, uint64_t live[COORD_LIVE_WORDS], uint64_t now)
{
    memset(live, 0, COORD_LIVE_WORDS * sizeof *live);
    if (now < c->open_ns || c->config.machines >= 64 * COORD_LIVE_WORDS)
        return false;
    for (uint16_t m = 1; m <= c->config.machines; m++)
        live[m / 64] |= (uint64_t)c->members[m].live << (m % 64);
    return true;
}

uint32_t coord_welcome(const struct coordinator *c, const struct coord_packet *p, uint16_t machine, uint32_t life, uint64_t now,
                       void *answer)
{
    struct coord_welcome *w = answer;
    assert(!c->changed); /* I16: all hosts of the former configuration are gone */
    memset(w, 0, sizeof *w);
    coord_make(&w->packet, COORD_WELCOME, c->space, &c->config.identity, p->head.nonce);
    w->packet.head.to.machine = machine;
    w->packet.head.generation = life;
    w->packet.stamp = p->stamp;
    w->packet.role = p->role;
    snprintf(w->design, sizeof w->design, "%s", c->design->name);
    w->config = c->config;
    w->first_server = (uint32_t)min_u64(p->head.index, c->config.servers);
    for (unsigned i = 0; i < COORD_WELCOME_SERVERS && w->first_server + i < c->config.servers; i++)
        w->servers[i] = coord_server_at(c, w->first_server + i);
    coord_switches(c, w->switches);
    w->live_known = p->role == COORD_SWITCH && coordinator_live(c, w->live, now);
    return sizeof *w;
}

/* ---- joining ---- */

/* Larger than every life before, and by more than the quarters of a second that have passed since the last one was given. A counter
 * that starts at a life and rises by less than one in that time stays below the counters of later lives, and so do tokens that
 * begin somewhere below the life that follows (dataplane/fission.h). */
static uint64_t life_after(const struct coordinator *c, uint64_t now)
{
    return c->life + UINT64_C(2) + (now - c->life_ns) / (NS_PER_S / COORD_LIVES_PER_S);
}

uint32_t coord_next_life(struct coordinator *c, uint64_t now)
{
    uint64_t life = life_after(c, now);
    if (life > c->lives)
        return 0;
    assert(life > c->life && life <= c->lives); /* I6: late packets of former lives are recognised; I15 */
    c->life = (uint32_t)life;
    c->life_ns = now;
    return c->life;
}

uint32_t coordinator_lives_wanted(const struct coordinator *c, uint64_t now)
{
    uint64_t ahead = COORD_LIVES_AHEAD + 2 * COORD_LIVES_PER_S * (c->config.lease_ns / NS_PER_S), life = life_after(c, now);
    return life + ahead / 2 < c->lives ? 0 : (uint32_t)min_u64(life + ahead, UINT32_MAX);
}

uint32_t coord_ask_anew(const struct coordinator *c, const struct coord_packet *p, void *answer)
{
    uint32_t len = coord_refuse(c, p, COORD_ANEW, answer);
    ((struct coord_packet *)answer)->head.generation = c->life;
    return len;
}

bool coord_is_recorded(const struct coordinator *c, const struct coord_packet *p, const struct coord_station *stations,
                       unsigned count, struct net_addr at)
{
    uint32_t latest = 0;
    for (unsigned i = 0; i < count; i++) {
        if (stations[i].nonce == p->head.nonce)
            return false;
        if (net_addr_is(stations[i].at, at)) {
            latest = stations[i].life;
            break;
        }
        latest = stations[i].life > latest ? stations[i].life : latest;
    }
    return c->keyed && p->head.generation < latest;
}

bool coord_is_held_back(const struct coordinator *c, uint64_t now)
{
    (void)now;
    return c->changed;
}

bool coord_is_silent(const struct coordinator *c, const struct coord_station *s, uint64_t now)
{
    return now - max_u64(s->heard_ns, c->start_ns) > lease_surely_over(c->config.lease_ns);
}

static uint32_t on_join(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now, void *answer)
{
    struct net_addr at = net_addr_known(p->at) ? p->at : from;
    at.reads = p->at.reads;
    if (!p->head.nonce) {
        c->drops.bad++;
        return 0;
    }
    if (c->config.identity.features & ~p->identity.features)
        return coord_refuse(c, p, -EPROTONOSUPPORT, answer);
    if (p->role != COORD_HOST && !net_addr_same_ip(at, from)) {
        c->drops.forged++; /* in the place of a lock server or switch on another machine */
        return coord_refuse(c, p, -EACCES, answer);
    }
    switch (p->role) {
    case COORD_HOST:
        return coord_join_host(c, p, from, now, answer);
    case COORD_SERVER:
        return coord_join_server(c, p, at, now, answer);
    case COORD_SWITCH:
        return coord_join_switch(c, p, at, now, answer);
    default:
        c->drops.bad++;
        return 0;
    }
}

/* ---- heartbeats ---- */

uint32_t coord_acknowledge(const struct coordinator *c, const struct coord_packet *p, void *answer)
{
    struct coord_beat *a = answer;
    memset(a, 0, sizeof *a);
    coord_make(&a->packet, COORD_BEAT_ACK, c->space, &c->config.identity, p->head.nonce);
    a->packet.head.to = p->head.from;
    a->packet.head.epoch = p->head.epoch;
    a->packet.stamp = p->stamp;
    coord_switches(c, a->switches);
    return sizeof *a;
}

/* Whether the lock server or switch itself sends the packet: it has the nonce of its JOIN, which no other program knows. Counts the
 * packet if not. */
static bool is_from_station(struct coordinator *c, const struct coord_station *s, const struct coord_packet *p)
{
    c->drops.forged += p->head.nonce != s->nonce;
    return p->head.nonce == s->nonce;
}

bool coord_is_of_today(const struct coordinator *c, int32_t sum)
{
    struct rack_config then = c->config;
    bool same = sum == coord_config_sum(&then);
    for (unsigned i = 1; c->directory && i < c->directory->parts && !same; i++) {
        then.locks = c->directory->part[i].first;
        same = sum == coord_config_sum(&then);
    }
    return same;
}

void coord_tell_size(const struct coordinator *c, struct coord_beat *ack)
{
    if (c->directory && c->directory->parts > 1)
        ack->packet.head.index = c->config.locks;
}

/* Whether a lock server or switch has the configuration of today, or one that it need not join anew for. */
static bool has_config(const struct coordinator *c, int32_t sum)
{
    return c->design->packet->server_grow ? coord_is_of_today(c, sum) : sum == coord_config_sum(&c->config);
}

void coord_hear_station(const struct coordinator *c, struct coord_station *s, const struct coord_packet *p, uint64_t now)
{
    if (!lease_is_news(p->stamp, s->said, c->config.mistakes))
        return;
    s->said = p->stamp;
    s->heard_ns = now;
}

uint32_t coord_beat_station(struct coordinator *c, const struct coord_beat *beat, uint64_t now, struct coord_station *s,
                            void *answer)
{
    const struct coord_packet *p = &beat->packet;
    bool there = !net_addr_known(s->at) || net_addr_is(p->at, s->at); /* as the log has it */
    bool ours = there && has_config(c, p->code) && p->head.epoch && (s->life ? p->head.epoch == s->life : !c->logged);
    if (!s->nonce && !s->away && ours && p->head.nonce && net_addr_known(p->at)) { /* I17 */
        *s = (struct coord_station){
            .nonce = p->head.nonce, .life = p->head.epoch, .at = p->at, .rules = RULES_NONE, .version = s->version};
        c->servers += p->role == COORD_SERVER;
        c->life = c->life > s->life ? c->life : s->life;
    }
    if (!s->nonce || s->life != p->head.epoch)
        return coord_refuse(c, p, -ESTALE, answer);
    if (!is_from_station(c, s, p))
        return 0;
    assert(!s->away); /* I17: a member that was turned away is not heard any more */
    coord_hear_station(c, s, p, now);
    uint32_t len = coord_acknowledge(c, p, answer);
    const struct coord_member station = {.places = beat->places};
    coord_tell_place(c, &station, answer);
    if (p->role == COORD_SERVER && c->design->packet->server_grow)
        coord_tell_size(c, answer);
    return len;
}

static uint32_t on_beat(struct coordinator *c, const struct coord_beat *beat, struct net_addr from, uint64_t now, void *answer)
{
    const struct coord_packet *p = &beat->packet;
    uint32_t i = 0;
    switch (p->role) {
    case COORD_SWITCH:
        return coord_beat_switch(c, beat, now, answer);
    case COORD_SERVER:
        while (i < c->config.servers && c->config.server[i] != p->head.from.machine)
            i++;
        return i < c->config.servers ? coord_beat_station(c, beat, now, &c->server[i], answer)
                                     : coord_refuse(c, p, -ESTALE, answer);
    default:
        return coord_beat_host(c, beat, from, now, answer);
    }
}

/* ---- leaving ---- */

static void on_leave(struct coordinator *c, const struct coord_packet *p, struct net_addr from)
{
    struct coord_station *s = NULL;
    for (unsigned i = 0; i < c->config.servers && p->role == COORD_SERVER; i++)
        if (c->config.server[i] == p->head.from.machine)
            s = &c->server[i];
    if (p->role == COORD_SWITCH && p->head.from.port < rack_switches(&c->config))
        s = &c->switch_[p->head.from.port];
    if (s && s->nonce && s->life == p->head.epoch && is_from_station(c, s, p))
        s->stopped = true;
    if (p->role != COORD_SERVER && p->role != COORD_SWITCH)
        coord_host_leaves(c, p, from);
}

/* A member of this space, or a sender that knows it by its name alone. Else *code says why it is refused; 0: the packet is counted
 * and dropped. */
static bool is_ours(struct coordinator *c, const struct coord_packet *p, int *code)
{
    const struct rack_identity *own = &c->config.identity;
    bool named = !strncmp(p->space, c->space, sizeof c->space), known = rack_id_known(&p->identity);
    if (named && !known && p->head.type != COORD_BEAT && p->head.type != COORD_LEAVE)
        return true;
    if (named && rack_same_space(&p->identity, own) && p->head.space == c->config.space && p->identity.version <= own->version)
        return true;
    c->drops.alien++;
    *code = !is_question((enum coord_type)p->head.type) ? 0 : named ? COORD_FOREIGN : -ENOENT;
    return false;
}

/* With a key: only holders of the cluster's key join as lock servers and switches, change rules, and break sessions. A host that
 * has joined does none of that in its own name. */
static bool may_ask(const struct coord_packet *p)
{
    bool cluster = !p->head.from.machine && !p->head.from.port;
    if (p->head.type == COORD_RULES)
        return cluster || !p->code;
    if (p->head.type == COORD_BREAK)
        return cluster;
    return p->head.type != COORD_JOIN || cluster || (p->role == COORD_HOST && !p->head.from.machine);
}

/* An operator is about to break a session, which its host does. The coordinator says whether the operator may, and gives a ticket,
 * without which the host does nothing; its caller keeps that in the log of the service. */
static uint32_t on_break(struct coordinator *c, const struct coord_packet *p, struct net_addr from, void *answer)
{
    struct coord_packet *a = answer;
    uint16_t number = p->head.to.machine;
    const struct coord_member *m = number && number <= c->config.machines ? &c->members[number] : NULL;
    bool may = coord_may_command(c, from);
    c->drops.forged += !may;
    coord_make(a, COORD_BROKEN, c->space, &c->config.identity, p->head.nonce);
    a->code = !may             ? -EACCES
              : !m || !m->live ? -ENOENT
              : m->nonce       ? 0
                               : -EAGAIN; /* it has not heard of the host since it started */
    a->stamp = a->code ? 0 : seal_ticket(m->nonce, m->life, p->role, (uint32_t)p->code);
    return sizeof *a;
}

static uint32_t answer_to(struct coordinator *c, const void *data, uint32_t len, struct net_addr from, uint64_t now, void *answer)
{
    const struct packet_head *h = data;
    if (len >= sizeof *h && !packet_readable(h)) {
        c->drops.unreadable++;
        return 0;
    }
    const struct coord_packet *p = coord_check(data, len, 0);
    int code = 0;
    if (p && !is_ours(c, p, &code))
        return code ? coord_refuse(c, p, code, answer) : 0;
    c->unwritten = false;
    if (p && (p->head.type == COORD_FIND || p->head.type == COORD_KEY_OF))
        return coord_on_key(c, data, from, now, answer);
    if (p && p->head.type == COORD_VALUE)
        return coord_on_value(c, data, answer);
    if (p && p->head.type == COORD_BEAT) {
        coordinator_tick(c, now);
        return on_beat(c, data, from, now, answer);
    }
    if (!p || len != sizeof *p) {
        c->drops.bad++;
        return 0;
    }
    if (c->keyed && !may_ask(p)) {
        c->drops.forged++;
        return coord_refuse(c, p, -EACCES, answer);
    }
    coordinator_tick(c, now);
    switch ((enum coord_type)p->head.type) {
    case COORD_JOIN:
        return on_join(c, p, from, now, answer);
    case COORD_WHO:
        return coord_on_who(c, p, answer);
    case COORD_RULES:
        return coord_on_rules(c, p, from, now, answer);
    case COORD_BREAK:
        return on_break(c, p, from, answer);
    case COORD_RETIRED:
        coord_on_retired(c, p, from, now);
        return 0;
    case COORD_LEAVE:
        on_leave(c, p, from);
        return 0;
    default:
        c->drops.bad++;
        return 0;
    }
}

uint32_t coordinator_packet(struct coordinator *c, const void *data, uint32_t len, struct net_addr from, uint64_t now, void *answer)
{
    uint32_t answer_len = answer_to(c, data, len, from, now, answer);
    if (answer_len)
        ((struct coord_packet *)answer)->term = c->term; /* I22 */
    return answer_len;
}

static uint32_t next_packet(struct coordinator *c, void *packet, struct net_addr *to)
{
    while (c->rouse_next && c->rouse_next <= c->config.machines) {
        const struct coord_member *m = &c->members[c->rouse_next++];
        if (!m->live || !net_addr_known(m->at))
            continue;
        struct coord_packet *p = packet;
        coord_make(p, COORD_ROUSE, c->space, &c->config.identity, m->nonce);
        p->head.to.machine = (uint16_t)(c->rouse_next - 1);
        p->head.epoch = m->life;
        *to = m->at;
        return sizeof *p;
    }
    return coord_retire_more(c, packet, to);
}

uint32_t coordinator_more(struct coordinator *c, void *packet, struct net_addr *to)
{
    uint32_t len = next_packet(c, packet, to);
    if (len)
        ((struct coord_packet *)packet)->term = c->term; /* I22 */
    return len;
}

unsigned coordinator_tick(struct coordinator *c, uint64_t now)
{
    unsigned live = coord_look_after_hosts(c, now);
    coord_look_after_switches(c, now);
    coord_look_after_names(c, now);
    return live;
}
