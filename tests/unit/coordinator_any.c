/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator gets packets of all types from members that are, were or never have been, in any order, in racks of any design.
 * Most packets are as a member would send them; in some, one field is another member's, or one that cannot be. Whatever comes:
 * answers are complete and no host has the number of another that still counts on it (I16), and no key has the index of another
 * (I7). fuzz/coordinator sends random bytes, and seldom meets a member's nonce, life and address together. */
#include "lib/rng.h"
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"

#include <stdio.h>

#define MACHINES 3
#define SENDERS 9 /* three of each role */
#define PACKETS 150
#define RUNS 10000u
#define KEYS 14

static const char *const designs[] = {"srvlock", "netlock", "fisslock", "fisslock-racks", "netlock-switches"};

static struct sender {
    enum coord_role role;
    uint64_t nonce;
    struct net_addr at;
    uint16_t machine, port;
    uint32_t life;
    uint64_t until_ns; /* a host counts on its number until then; 0: it does not */
} senders[SENDERS];

static struct coord_member members[MACHINES + 1];
static struct coordinator c;
static struct directory directory;
static struct rng r;
static uint64_t now, round_;
static _Alignas(8) uint8_t answer[PACKET_MAX];
static unsigned welcomes, found, refused, retired, ruled, types[COORD_VALUED + 2];

static union {
    struct coord_packet packet;
    struct coord_beat beat;
    struct coord_key key;
    struct coord_value value;
    struct coord_retire retire;
    uint8_t bytes[PACKET_MAX];
} u;

/* ---- the rack ---- */

static void draw_senders(void)
{
    for (unsigned i = 0; i < SENDERS; i++)
        senders[i] = (struct sender){.role = (enum coord_role)(1 + i / 3),
                                     .nonce = rng_next(&r) | 1,
                                     .at = i % 3 ? net_v4(10 + i, 7) : net_v4(0x7f000001, (uint16_t)(7 + i)),
                                     .port = (uint16_t)rng_below(&r, 2)};
}

/* The state in the log of a former coordinator, with its hosts: perhaps more of them than there are numbers now. */
static const struct rack_state *draw_state(const struct coord_params *p)
{
    static struct rack_state s;
    const char *why;
    memset(&s, 0, sizeof s);
    CHECK_EQ(coordinator_config(p, &s.config.config, &why), 0);
    s.lives = p->life + 100;
    s.lease_ns = p->lease_ns;
    s.hosts.member_ns = p->lease_ns;
    s.hosts.settled = s.config.config.identity.version + (uint32_t)rng_chance(&r, 1, 3);
    for (unsigned m = 1; m <= MACHINES + 1; m++)
        s.host[m] = rng_chance(&r, 1, m > MACHINES ? 4 : 2) ? 1 + (uint32_t)rng_below(&r, p->life) : 0;
    rules_init(&s.rules, s.config.config.racks);
    for (unsigned i = 0; i < 2; i++) {
        s.server[i] = (struct state_station){.at = senders[3 + i].at, .life = p->life - 1};
        s.switch_[i] = (struct state_station){.at = senders[6 + i].at, .life = p->life - 2};
    }
    return &s;
}

static void begin(uint64_t seed)
{
    const char *why;
    rng_seed(&r, seed);
    draw_senders();
    const char *design = designs[seed % countof(designs)];
    struct coord_params p = coordinator_rack(design, MACHINES);
    bool named = p.design->packet->uses && rng_chance(&r, 2, 3);
    directory_init(&directory, PAWL_KEYS_NAMED, p.locks);
    p.servers = !strcmp(design, "fisslock-racks") ? 0 : !strcmp(design, "netlock-switches") ? 2 : (uint16_t)(1 + rng_below(&r, 2));
    p.backup = !strcmp(design, "netlock") && rng_chance(&r, 1, 2);
    p.fresh = rng_chance(&r, 2, 3);
    p.member_ns = p.lease_ns * (1 + rng_below(&r, 2));
    p.keys = named ? PAWL_KEYS_NAMED : PAWL_KEYS_DENSE;
    p.directory = named ? &directory : NULL;
    now = NS_PER_S;
    if (!p.fresh && rng_chance(&r, 1, 2))
        p.state = draw_state(&p);
    memset(members, 0, sizeof members);
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
    c.keyed = rng_chance(&r, 1, 2);
    c.logged = rng_chance(&r, 1, 4);
    if (rng_chance(&r, 1, 6)) /* the log takes no more */
        c.lives = c.life + (uint32_t)rng_below(&r, 12);
    c.own = rng_chance(&r, 1, 2) ? net_v4(11, 1) : (struct net_addr){0};
    if (rng_chance(&r, 1, 4))
        c.own_switch = rng_chance(&r, 1, 2) ? senders[7].at : (struct net_addr){.port = 7};
}

/* ---- answers ---- */

/* A host counts from when it has sent its packet. */
static uint64_t counts_on_until(void)
{
    return now + rack_member_ns(&c.config);
}

static void take_welcome(struct sender *s, const struct coord_packet *a)
{
    welcomes++;
    if (a->head.nonce != s->nonce || a->role != s->role)
        return;
    s->life = a->head.generation;
    s->machine = a->head.to.machine;
    s->port = a->head.to.port;
    if (a->role != COORD_HOST)
        return;
    s->until_ns = counts_on_until();
    CHECK(s->machine && s->machine <= MACHINES && members[s->machine].live);
    for (unsigned i = 0; i < SENDERS; i++) /* I16 */
        CHECK(&senders[i] == s || senders[i].machine != s->machine || senders[i].role != COORD_HOST || senders[i].until_ns <= now);
}

static void take_answer(struct sender *s, uint32_t len)
{
    if (!len)
        return;
    const struct coord_packet *a = coord_check(answer, len, c.config.space);
    CHECK(a);
    refused += a->head.type == COORD_REFUSED;
    if (a->head.type == COORD_WELCOME)
        take_welcome(s, a);
    if (a->head.type == COORD_BEAT_ACK && a->head.nonce == s->nonce && s->role == COORD_HOST)
        s->until_ns = counts_on_until();
    const struct coord_key *k = (const struct coord_key *)(const void *)answer;
    const char *bytes;
    uint32_t length;
    if (a->head.type == COORD_FOUND && !a->code && c.directory) { /* I7 */
        found++;
        CHECK_EQ(directory_key_of(&directory, a->head.index, &bytes, &length), 0);
        CHECK(length == k->len && !memcmp(bytes, k->bytes, length));
    }
}

/* ---- questions ---- */

static uint32_t fill(const struct sender *s, enum coord_type type)
{
    memset(&u, 0, sizeof u);
    coord_make(&u.packet, type, "test", &c.config.identity, s->nonce);
    u.packet.role = s->role;
    u.packet.stamp = now;
    u.packet.at = s->role == COORD_HOST || rng_chance(&r, 1, 4) ? (struct net_addr){0} : s->at;
    if (type != COORD_JOIN) {
        u.packet.head.from.machine = s->role == COORD_HOST ? s->machine : 0;
        u.packet.head.from.port = s->port;
        u.packet.head.epoch = s->life;
    }
    switch (type) {
    case COORD_JOIN:
        u.packet.code = rng_chance(&r, 1, 8) ? COORD_FORCE : 0;
        u.packet.head.to.port = s->role == COORD_SWITCH ? (uint16_t)rng_below(&r, 4) : 0;
        u.packet.head.generation = rng_chance(&r, 1, 2) ? c.gone : 0;
        return sizeof u.packet;
    case COORD_BEAT:
        u.packet.code = (int32_t)coord_config_sum(&c.config);
        u.packet.head.index = s->role == COORD_HOST ? 3 * rng_chance(&r, 3, 4) : rng_below(&r, 4);
        u.beat.places = (uint32_t)rng_below(&r, 4);
        u.beat.rules = c.rules.now;
        u.beat.rules.version -= (uint32_t)rng_below(&r, 2);
        for (unsigned i = 0; i < RACKS_MAX; i++)
            u.beat.switches[i] = rng_chance(&r, 1, 2) ? c.switch_[i].at : (struct net_addr){.port = COORD_AWAY};
        return sizeof u.beat;
    case COORD_FIND:
    case COORD_KEY_OF:
        u.key.look = rng_chance(&r, 1, 4);
        u.key.len = (uint32_t)snprintf(u.key.bytes, sizeof u.key.bytes, "key %u", (unsigned)rng_below(&r, KEYS));
        u.packet.head.index = rng_below(&r, 12);
        return sizeof u.key;
    case COORD_VALUE:
        u.packet.head.index = rng_below(&r, 12);
        u.value.sets = rng_chance(&r, 1, 2);
        u.value.token = rng_below(&r, 8);
        return sizeof u.value;
    case COORD_RULES: /* an operator moves shards */
        u.packet.code = (int32_t)rng_chance(&r, 3, 4);
        u.packet.head.index = rng_below(&r, RACK_SHARDS + 1);
        u.packet.head.generation = (uint32_t)(u.packet.head.index + rng_below(&r, 3));
        u.packet.role = (uint32_t)rng_below(&r, 3);
        u.packet.head.from.machine = u.packet.head.from.port = 0;
        u.packet.stamp = rng_chance(&r, 1, 2) ? c.life : now;
        return sizeof u.packet;
    case COORD_RETIRED:
        u.packet.stamp = rng_chance(&r, 3, 4) ? round_ : rng_below(&r, 4);
        u.packet.head.index = rng_next(&r) >> rng_below(&r, 64);
        return sizeof u.packet;
    case COORD_RETIRE:
        u.retire.count = (uint32_t)rng_below(&r, 2 * COORD_RETIRE_MAX);
        return sizeof u.retire;
    case COORD_HOSTS:
        return sizeof(struct coord_hosts);
    case COORD_CLAIMED:
        return sizeof(struct coord_claimed);
    case COORD_WHO:
        u.packet.head.index = rng_below(&r, MACHINES + 2);
        return sizeof u.packet;
    default:
        return sizeof u.packet;
    }
}

/* One field of another member, or one that cannot be. */
static void disturb(uint32_t *len, struct net_addr *from)
{
    const struct sender *other = &senders[rng_below(&r, SENDERS)];
    switch (rng_below(&r, 15)) {
    case 0:
        u.packet.head.nonce = other->nonce;
        break;
    case 1:
        u.packet.head.from.machine = (uint16_t)rng_below(&r, MACHINES + 2);
        break;
    case 2:
        u.packet.head.epoch = other->life;
        break;
    case 3:
        *from = other->at;
        break;
    case 4:
        u.packet.head.from.port = (uint16_t)rng_below(&r, 10);
        break;
    case 5:
        u.packet.role = (uint32_t)rng_below(&r, 5);
        break;
    case 6:
        u.packet.identity.version += (uint32_t)rng_below(&r, 3) - 1;
        break;
    case 7:
        u.packet.identity.id[0] ^= 1;
        break;
    case 8:
        u.packet.head.space ^= rng_chance(&r, 1, 2) ? 1 : u.packet.head.space;
        break;
    case 9:
        *len = (uint32_t)rng_below(&r, *len + 16);
        break;
    case 10:
        u.packet.head.epoch += (uint32_t)rng_below(&r, 3) - 1;
        break;
    case 11:
        u.packet.code = (int32_t)rng_next(&r);
        break;
    case 12:
        u.bytes[rng_below(&r, sizeof(struct packet_head))] ^= (uint8_t)(1u << rng_below(&r, 8));
        break;
    case 13:
        u.packet.space[sizeof u.packet.space - 1] = 'x';
        break;
    default:
        u.packet.stamp = rng_below(&r, 2 * now);
        break;
    }
}

/* ---- what the coordinator's process does besides ---- */

/* What members have done since is on disk. */
static void write_log(void)
{
    for (unsigned m = 1; m <= MACHINES; m++)
        members[m].unwritten = false;
    for (unsigned i = 0; i < RACK_SERVERS_MAX; i++)
        c.server[i].unwritten = false;
    for (unsigned i = 0; i < RACKS_MAX; i++)
        c.switch_[i].unwritten = false;
}

static void look_after(void)
{
    struct net_addr to;
    coordinator_tick(&c, now);
    if (coordinator_wants(&c)) {
        coordinator_set_rules(&c, coordinator_wants(&c));
        ruled++;
    }
    if (coordinator_is_settled(&c))
        coordinator_set_settled(&c);
    for (uint32_t n = 0, len; n < 2 * MACHINES && (len = coordinator_more(&c, answer, &to)); n++) {
        CHECK(coord_check(answer, len, c.config.space));
        const struct coord_retire *ask = (const struct coord_retire *)(const void *)answer;
        if (ask->packet.head.type == COORD_RETIRE) {
            round_ = ask->round;
            retired++;
        }
    }
    for (unsigned station = 0; coordinator_news(&c, (uint16_t)rng_below(&r, MACHINES + 1), &station, answer, &to);)
        CHECK(coord_check(answer, sizeof(struct coord_hosts), c.config.space));
    for (uint16_t m = 1; m <= MACHINES; m++)
        CHECK(!members[m].live || coordinator_host_life(&c, m));
    if (rng_chance(&r, 1, 2))
        write_log();
    if (c.directory && rng_chance(&r, 1, 2))
        directory_wrote(&directory, directory.changed.count);
}

static void send_one(void)
{
    static const enum coord_type often[] = {COORD_JOIN, COORD_JOIN,    COORD_BEAT,  COORD_BEAT,  COORD_BEAT,  COORD_FIND,
                                            COORD_FIND, COORD_RETIRED, COORD_RULES, COORD_LEAVE, COORD_BREAK, COORD_WHO};
    struct sender *s = &senders[rng_below(&r, SENDERS)];
    enum coord_type type =
        rng_chance(&r, 1, 8) ? (enum coord_type)rng_below(&r, COORD_VALUED + 2) : often[rng_below(&r, countof(often))];
    struct net_addr from = s->at;
    uint32_t len = fill(s, type);
    if (rng_chance(&r, 1, 3))
        disturb(&len, &from);
    types[type]++;
    take_answer(s, coordinator_packet(&c, &u, len, from, now, answer));
    coord_unpadded(&u, len);
    for (unsigned i = 0; u.packet.head.type == COORD_LEAVE && i < SENDERS; i++) /* also of one in whose name it was sent */
        if (senders[i].nonce == u.packet.head.nonce)
            senders[i].until_ns = 0;
    if (rng_chance(&r, 1, 40)) { /* it starts anew, and its former life counts on nothing */
        s->nonce = rng_next(&r) | 1;
        s->life = s->until_ns = 0;
    }
}

int main(void)
{
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        begin(seed);
        for (unsigned i = 0; i < PACKETS; i++) {
            send_one();
            look_after();
            now += rng_chance(&r, 1, 12) ? rng_below(&r, 3 * NS_PER_S) : rng_below(&r, 40 * NS_PER_MS);
        }
        directory_free(&directory);
    }
    printf("%u runs of %u packets: %u welcomes, %u keys found, %u refusals, %u rounds, %u rules\n", RUNS, PACKETS, welcomes, found,
           refused, retired, ruled);
    CHECK(welcomes > RUNS && found && refused && retired && ruled);
    for (unsigned type = 0; type < countof(types); type++)
        CHECK(types[type]);
    return 0;
}
