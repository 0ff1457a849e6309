/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/coordinator_internal.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdio.h>

#define REQUESTS_MAX (UINT64_C(1) << 20) /* of one host */

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
    if ((uint64_t)p->sessions * p->requests > REQUESTS_MAX)
        return "a host has at most a million requests: sessions times holds";
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
    out->retry_ns = p->retry_ns;
    out->options = packet_tuned(d, d->options, p->knobs);
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

static uint64_t lease_over(uint64_t lease_ns)
{
    return lease_ns + 2 * (lease_ns / COORD_DRIFT_DIVISOR) + 1;
}

/* What the log of a former coordinator says. */
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
    c->lives = UINT32_MAX;
    c->start_ns = c->life_ns = now;
    c->names.round = (uint64_t)p->life << 32;
    c->fresh = p->fresh;
    c->members = members;
    rules_init(&c->rules, c->config.racks);
    c->wanted = c->rules;
    c->directory = p->directory;
    if (p->state)
        take_state(c, p->state);
    uint64_t longest = p->state ? max_u64(p->state->lease_ns, p->lease_ns) : p->lease_ns; /* I16 */
    c->open_ns = p->fresh ? now : now + lease_over(longest);
    c->stations_ns = longest > p->lease_ns ? c->open_ns : now;
    for (uint32_t m = 1; m <= p->machines && !p->fresh; m++)
        members[m].until_ns = 1; /* a former coordinator may have given the number, and locks may name it */
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

uint32_t coord_welcome(const struct coordinator *c, const struct coord_packet *p, uint16_t machine, uint32_t life, uint64_t now,
                       void *answer)
{
    struct coord_welcome *w = answer;
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
        w->servers[i] = c->server[w->first_server + i].at;
    coord_switches(c, w->switches);
    w->live_known = p->role == COORD_SWITCH && now >= c->open_ns && c->config.machines < 64 * COORD_LIVE_WORDS;
    for (uint16_t m = 1; m <= c->config.machines && w->live_known; m++)
        w->live[m / 64] |= (uint64_t)c->members[m].live << (m % 64);
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

bool coord_is_held_back(const struct coordinator *c, uint64_t now)
{
    return now < c->stations_ns;
}

bool coord_is_silent(const struct coordinator *c, const struct coord_station *s, uint64_t now)
{
    return now - max_u64(s->heard_ns, c->start_ns) > lease_over(c->config.lease_ns);
}

static uint64_t lease_from(const struct coordinator *c, uint64_t now)
{
    return now + lease_over(c->config.lease_ns);
}

static uint32_t join_host(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now, void *answer)
{
    uint16_t empty = 0;
    bool unclean = false;
    if (!coord_is_complete(c) || now < c->open_ns)
        return coord_refuse(c, p, -EAGAIN, answer);
    for (uint16_t m = 1; m <= c->config.machines; m++) {
        const struct coord_member *member = &c->members[m];
        if (member->live && member->nonce == p->head.nonce)
            return coord_welcome(c, p, m, member->life, now, answer);
        if (!member->live && !coord_is_clean(c, member))
            unclean = true;
        else if (!empty && !member->live)
            empty = m;
    }
    if (!empty)
        return coord_refuse(c, p, unclean ? -EAGAIN : -ENOSPC, answer);
    assert(!c->members[empty].live && coord_is_clean(c, &c->members[empty])); /* I6, I11: no lock names the number's former host */
    uint32_t life = coord_next_life(c, now);
    if (!life)
        return coord_refuse(c, p, -EAGAIN, answer);
    c->members[empty] =
        (struct coord_member){.nonce = p->head.nonce, .until_ns = lease_from(c, now), .life = life, .live = true, .at = from};
    coord_switches(c, c->members[empty].switches);
    return coord_welcome(c, p, empty, c->life, now, answer);
}

/* Whether no host can use the lock server in this place any more, and another one may have it. */
static bool is_vacant(const struct coordinator *c, const struct coord_station *s, uint64_t now)
{
    if (!net_addr_known(s->at))
        return true;
    for (uint16_t m = 1; m <= c->config.machines; m++)
        if (c->members[m].live)
            return false;
    return now >= c->open_ns && coord_is_silent(c, s, now);
}

/* The place that has its address, or one that is vacant. */
static int server_place(const struct coordinator *c, struct net_addr at, uint64_t now)
{
    int vacant = -ENOSPC;
    for (unsigned i = 0; i < c->config.servers; i++)
        if (net_addr_is(c->server[i].at, at))
            return (int)i;
    if (coord_unsettled(c, c->config.servers, now))
        return -EAGAIN;
    for (unsigned i = 0; i < c->config.servers; i++)
        if (is_vacant(c, &c->server[i], now))
            vacant = (int)i;
        else if (vacant < 0 && (!c->server[i].nonce || coord_is_silent(c, &c->server[i], now)))
            vacant = -EAGAIN; /* it will be, if its server stays silent and all hosts have ended */
    return vacant;
}

static uint32_t join_server(struct coordinator *c, const struct coord_packet *p, struct net_addr at, uint64_t now, void *answer)
{
    int i = coord_is_held_back(c, now) ? -EAGAIN : server_place(c, at, now);
    if (i < 0)
        return coord_refuse(c, p, i, answer);
    struct coord_station *s = &c->server[i];
    if (s->nonce != p->head.nonce) {
        uint32_t life = coord_next_life(c, now);
        if (!life)
            return coord_refuse(c, p, -EAGAIN, answer);
        c->servers += !s->nonce;
        *s = (struct coord_station){.nonce = p->head.nonce, .at = at, .life = life, .unwritten = c->logged};
    }
    s->heard_ns = now;
    c->unwritten = s->unwritten;
    return coord_welcome(c, p, c->config.server[i], s->life, now, answer);
}

static uint32_t on_join(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now, void *answer)
{
    struct net_addr at = net_addr_known(p->at) ? p->at : from;
    if (!p->head.nonce) {
        c->drops.bad++;
        return 0;
    }
    if (c->config.identity.features & ~p->identity.features)
        return coord_refuse(c, p, -EPROTONOSUPPORT, answer);
    switch (p->role) {
    case COORD_HOST:
        return join_host(c, p, from, now, answer);
    case COORD_SERVER:
        return join_server(c, p, at, now, answer);
    case COORD_SWITCH:
        return coord_join_switch(c, p, at, now, answer);
    default:
        c->drops.bad++;
        return 0;
    }
}

/* ---- heartbeats ---- */

static void look_at(struct coord_member *m, uint64_t now)
{
    if (m->live && now >= m->until_ns)
        m->live = false;
}

static uint32_t acknowledge(const struct coordinator *c, const struct coord_packet *p, void *answer)
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

static uint32_t beat_host(struct coordinator *c, const struct coord_beat *beat, struct net_addr from, uint64_t now, void *answer)
{
    const struct coord_packet *p = &beat->packet;
    uint16_t number = p->head.from.machine;
    if (!number || number > c->config.machines || !p->head.epoch) {
        c->drops.bad++;
        return 0;
    }
    struct coord_member *m = &c->members[number];
    look_at(m, now);
    /* A host that joined a former coordinator. A life that was never reserved is of a coordinator with a later state than ours. */
    bool adopt = !m->life && now < c->open_ns && p->code == coord_config_sum(&c->config) && p->head.epoch <= c->lives;
    if (adopt)
        *m = (struct coord_member){.life = p->head.epoch, .live = true, .at = from};
    if (!m->live || m->life != p->head.epoch)
        return coord_refuse(c, p, -ESTALE, answer);
    c->life = c->life > m->life ? c->life : m->life;
    m->until_ns = lease_from(c, now);
    m->at = from;                 /* most often its pool's; it answers questions there */
    if (p->stamp >= m->said_ns) { /* else a later heartbeat has overtaken it */
        m->said_ns = p->stamp;
        m->racks = (uint32_t)p->head.index;
        memcpy(m->switches, beat->switches, sizeof m->switches);
    }
    return acknowledge(c, p, answer);
}

uint32_t coord_beat_station(struct coordinator *c, const struct coord_packet *p, uint64_t now, struct coord_station *s,
                            void *answer)
{
    bool ours = p->code == coord_config_sum(&c->config) && p->head.epoch && (s->life ? p->head.epoch == s->life : !c->logged);
    if (!s->nonce && !s->away && ours && p->head.nonce && net_addr_known(p->at)) { /* I17 */
        *s = (struct coord_station){.nonce = p->head.nonce, .life = p->head.epoch, .at = p->at, .rules = RULES_NONE};
        c->servers += p->role == COORD_SERVER;
        c->life = c->life > s->life ? c->life : s->life;
    }
    if (!s->nonce || s->life != p->head.epoch)
        return coord_refuse(c, p, -ESTALE, answer);
    s->heard_ns = now;
    return acknowledge(c, p, answer);
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
        return i < c->config.servers ? coord_beat_station(c, p, now, &c->server[i], answer) : coord_refuse(c, p, -ESTALE, answer);
    default:
        return beat_host(c, beat, from, now, answer);
    }
}

/* ---- lists of hosts ---- */

static uint32_t on_who(const struct coordinator *c, const struct coord_packet *p, void *answer)
{
    struct coord_hosts *a = answer;
    uint64_t m = max_u64(1, p->head.index);
    memset(a, 0, sizeof *a);
    coord_make(&a->packet, COORD_HOSTS, c->space, &c->config.identity, p->head.nonce);
    snprintf(a->design, sizeof a->design, "%s", c->design->name);
    a->locks = c->config.locks;
    a->lease_ns = c->config.lease_ns;
    a->keys = c->config.keys;
    a->sessions = c->config.sessions;
    a->requests = c->config.requests;
    for (; m <= c->config.machines && a->count < COORD_HOSTS_MAX; m++)
        if (c->members[m].live)
            a->host[a->count++] = (struct coord_host){.at = c->members[m].at, .machine = (uint32_t)m, .life = c->members[m].life};
    a->packet.head.index = m <= c->config.machines ? m : 0;
    return sizeof *a;
}

/* A member of this space, or a sender that knows it by its name alone. Else *code says why it is refused; 0: the packet is counted
 * and dropped. */
static bool is_ours(struct coordinator *c, const struct coord_packet *p, int *code)
{
    const struct rack_identity *own = &c->config.identity;
    bool asks = p->head.type == COORD_JOIN || p->head.type == COORD_BEAT || p->head.type == COORD_WHO ||
                p->head.type == COORD_RULES || p->head.type == COORD_FIND || p->head.type == COORD_KEY_OF;
    bool named = !strncmp(p->space, c->space, sizeof c->space), known = rack_id_known(&p->identity);
    if (named && !known && p->head.type != COORD_BEAT && p->head.type != COORD_LEAVE)
        return true;
    if (named && rack_same_space(&p->identity, own) && p->head.space == c->config.space && p->identity.version <= own->version)
        return true;
    c->drops.alien++;
    *code = !asks ? 0 : named ? COORD_FOREIGN : -ENOENT;
    return false;
}

uint32_t coordinator_packet(struct coordinator *c, const void *data, uint32_t len, struct net_addr from, uint64_t now, void *answer)
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
        return coord_on_key(c, data, now, answer);
    if (p && p->head.type == COORD_BEAT) {
        coordinator_tick(c, now);
        return on_beat(c, data, from, now, answer);
    }
    if (!p || len != sizeof *p) {
        c->drops.bad++;
        return 0;
    }
    coordinator_tick(c, now);
    switch ((enum coord_type)p->head.type) {
    case COORD_JOIN:
        return on_join(c, p, from, now, answer);
    case COORD_WHO:
        return on_who(c, p, answer);
    case COORD_RULES:
        return coord_on_rules(c, p, now, answer);
    case COORD_RETIRED:
        coord_on_retired(c, p, now);
        return 0;
    case COORD_LEAVE: {
        uint16_t number = p->head.from.machine;
        if (number && number <= c->config.machines && c->members[number].life == p->head.epoch)
            c->members[number].live = false;
        return 0;
    }
    default:
        c->drops.bad++;
        return 0;
    }
}

uint32_t coordinator_more(struct coordinator *c, void *packet, struct net_addr *to)
{
    while (c->rouse_next && c->rouse_next <= c->config.machines) {
        const struct coord_member *m = &c->members[c->rouse_next++];
        if (!m->live)
            continue;
        struct coord_packet *p = packet;
        coord_make(p, COORD_ROUSE, c->space, &c->config.identity, 0);
        p->head.to.machine = (uint16_t)(c->rouse_next - 1);
        p->head.epoch = m->life;
        *to = m->at;
        return sizeof *p;
    }
    return coord_retire_more(c, packet, to);
}

unsigned coordinator_tick(struct coordinator *c, uint64_t now)
{
    unsigned live = 0;
    for (uint32_t i = 1; i <= c->config.machines; i++) {
        look_at(&c->members[i], now);
        live += c->members[i].live;
    }
    coord_look_after_switches(c, now);
    coord_look_after_names(c, now);
    return live;
}
