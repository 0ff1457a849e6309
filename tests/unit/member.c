/* SPDX-License-Identifier: Apache-2.0 */
/* A lock server or switch as a member: joining, finding the coordinator that leads, and joining anew. */
#include "cluster/member.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>

#define LEASE_NS NS_PER_S
#define EVERY_NS (100 * NS_PER_MS)
#define MACHINES 4u
#define LOCKS 10u

static struct {
    struct net_addr to;
    uint8_t type;
    uint64_t nonce, index;
    unsigned count;
} sent;

static void send_packet(const struct member *m, struct net_addr to, const void *packet, uint32_t len, uint32_t answer_len)
{
    const struct packet_head *h = packet;
    (void)m;
    CHECK(answer_len >= len);
    sent.to = to;
    sent.type = h->type;
    sent.nonce = h->nonce;
    sent.index = h->index;
    sent.count++;
}

static struct member m;
static const struct net_addr here = {.ip = {[10] = 0xff, [11] = 0xff, [15] = 9}, .port = 90};

static struct net_addr coordinator(unsigned i)
{
    return net_v4(1 + i, 7);
}

static void begin(enum coord_role role, const char *design)
{
    free(m.roster);
    m = (struct member){
        .join = {.coordinators = {.count = 2, .at = {coordinator(0), coordinator(1)}}, .role = role, .space = "s", .at = here},
        .world = &world_real,
        .send = send_packet,
        .at = here,
        .adapts = true,
        .every_ns = EVERY_NS,
        .design = design_find(design)->packet};
    member_begin(&m, 1);
    member_tick(&m, 1);
    CHECK_EQ(sent.type, COORD_JOIN);
}

static struct rack_config config_of(uint16_t machines)
{
    struct rack_config c = {.identity = {.id = {1, 2}, .version = 3},
                            .machines = machines,
                            .sessions = 1,
                            .requests = 1,
                            .locks = LOCKS,
                            .lease_ns = LEASE_NS};
    c.servers = 2;
    c.server[0] = 11;
    c.server[1] = 12;
    c.space = rack_short_id(&c.identity);
    return c;
}

static enum member_news answer(void *packet, uint32_t len, enum coord_type type, uint64_t nonce, uint64_t term, uint64_t now)
{
    struct coord_packet *p = packet;
    const struct coord_packet filled = *p;
    const struct rack_config c = config_of(MACHINES);
    coord_make(p, type, "s", &c.identity, nonce);
    p->head.index = filled.head.index;
    p->head.to = filled.head.to;
    p->head.generation = filled.head.generation;
    p->role = filled.role;
    p->code = filled.code;
    p->at = filled.at;
    p->term = term;
    return member_packet(&m, p, len, now);
}

static enum member_news welcome(uint64_t nonce, uint16_t machines, uint32_t life, uint64_t now)
{
    struct coord_welcome w = {.config = config_of(machines), .design = "srvlock", .servers = {here}};
    w.packet.role = m.join.role;
    w.packet.head.to.machine = m.join.role == COORD_SWITCH ? MACHINE_SWITCH : 11;
    w.packet.head.generation = life;
    return answer(&w, sizeof w, COORD_WELCOME, nonce, 1, now);
}

static enum member_news refuse(uint64_t nonce, int code, uint64_t now)
{
    struct coord_packet p = {.code = code};
    return answer(&p, sizeof p, COORD_REFUSED, nonce, code == COORD_NOT_LEADER ? 0 : 1, now);
}

static void joined(enum coord_role role, const char *design)
{
    begin(role, design);
    CHECK_EQ(welcome(sent.nonce, MACHINES, 5, 2), MEMBER_JOINED);
    CHECK(!member_is_joining(&m, 2) && m.welcome.said.packet.head.generation == 5);
    member_tick(&m, 2);
    CHECK_EQ(sent.type, COORD_BEAT);
}

/* Before it has joined: all coordinators in turn, and the one that a stand-by names. */
static void first(void)
{
    begin(COORD_SERVER, "srvlock");
    uint64_t nonce = sent.nonce;
    CHECK(net_addr_is(sent.to, coordinator(0)));
    CHECK_EQ(refuse(nonce + 1, -EINVAL, 2), MEMBER_NOTHING);
    CHECK(!m.refused && m.forged == 1);
    CHECK_EQ(refuse(nonce, -EAGAIN, 3), MEMBER_NOTHING);
    CHECK_EQ(m.refused, -EAGAIN);
    for (uint64_t now = 4; now < 5 * EVERY_NS; now += EVERY_NS / 5)
        member_tick(&m, now);
    CHECK(net_addr_is(sent.to, coordinator(1)) && sent.nonce == nonce);
    struct coord_packet p = {.code = COORD_NOT_LEADER, .at = coordinator(0)};
    answer(&p, sizeof p, COORD_REFUSED, nonce, 0, 5 * EVERY_NS);
    member_tick(&m, 5 * EVERY_NS);
    CHECK(net_addr_is(sent.to, coordinator(0)));
    CHECK_EQ(welcome(nonce, MACHINES, 5, 6 * EVERY_NS), MEMBER_JOINED);
    CHECK_EQ(welcome(nonce, MACHINES, 6, 6 * EVERY_NS), MEMBER_NOTHING); /* a copy */
    CHECK_EQ(m.welcome.said.packet.head.generation, 5);
}

/* Its life is over: it asks until it has joined anew, and all coordinators. */
static void superseded(void)
{
    joined(COORD_SERVER, "srvlock");
    uint64_t former = m.join.nonce, now = EVERY_NS;
    CHECK_EQ(refuse(former, -ESTALE, now), MEMBER_SUPERSEDED);
    CHECK_EQ(refuse(former, -ESTALE, now), MEMBER_NOTHING);
    bool both[2] = {false, false};
    for (; now < 4 * LEASE_NS; now += EVERY_NS / 5) {
        CHECK(member_is_joining(&m, now));
        member_tick(&m, now);
        CHECK_EQ(sent.type, COORD_JOIN);
        both[net_addr_is(sent.to, coordinator(1))] = true;
    }
    CHECK(both[0] && both[1]);
    CHECK_EQ(refuse(sent.nonce, -EAGAIN, now), MEMBER_NOTHING);
    roster_limit(m.roster, 1000);
    uint64_t gap_ns = m.roster->gap_ns;
    CHECK_EQ(welcome(sent.nonce, MACHINES + 1, 9, now), MEMBER_JOINED);                /* of more hosts, */
    CHECK(m.roster->machines == MACHINES + 1 && m.roster->gap_ns == gap_ns && gap_ns); /* each with the limit as before */
    CHECK(!member_is_joining(&m, now) && m.welcome.said.packet.head.generation == 9);
    CHECK_EQ(refuse(former, -ESTALE, now), MEMBER_NOTHING);
}

/* It begins anew by itself: it goes on as it was if no welcome comes in time. */
static void rejoins(void)
{
    joined(COORD_SERVER, "srvlock");
    member_rejoin(&m, 2);
    CHECK(!member_is_joining(&m, 2)); /* a lock server does not */
    joined(COORD_SWITCH, "fisslock");
    member_rejoin(&m, 2);
    CHECK(member_is_joining(&m, 2));
    member_tick(&m, 3);
    uint64_t nonce = sent.nonce;
    CHECK_EQ(sent.type, COORD_JOIN);
    CHECK(!member_is_joining(&m, 2 + LEASE_NS));
    CHECK_EQ(welcome(nonce, MACHINES, 8, 2 + LEASE_NS), MEMBER_NOTHING);
    CHECK_EQ(m.welcome.said.packet.head.generation, 5);

    m.stays = true; /* a program in the kernel */
    member_rejoin(&m, 3 * LEASE_NS);
    CHECK_EQ(refuse(m.join.nonce, -ESTALE, 3 * LEASE_NS), MEMBER_SUPERSEDED);
    CHECK(!member_is_joining(&m, 3 * LEASE_NS));
    m.stays = m.adapts = false;
    CHECK_EQ(refuse(m.join.nonce, -ESTALE, 3 * LEASE_NS), MEMBER_SUPERSEDED);
    CHECK_EQ(welcome(m.nonce_next, MACHINES + 1, 9, 3 * LEASE_NS), MEMBER_NOTHING);
    CHECK(m.outdated);
}

/* A recorded JOIN, and a deposed leader. */
static void recorded(void)
{
    begin(COORD_SERVER, "srvlock");
    struct coord_packet p = {.code = COORD_ANEW, .head.generation = 70};
    unsigned before = sent.count;
    answer(&p, sizeof p, COORD_REFUSED, sent.nonce, 4, 2);
    CHECK(sent.count == before + 1 && m.join.generation == 70 && m.refused == -EAGAIN);
    answer(&p, sizeof p, COORD_REFUSED, sent.nonce, 4, 2);
    CHECK_EQ(sent.count, before + 1);
    CHECK_EQ(welcome(sent.nonce, MACHINES, 80, 3), MEMBER_NOTHING);
    CHECK_EQ(m.foreign, 1);
}

/* A refusal without a tag is a hint for a member that has a key: it counts if no better answer came. */
static void hints(void)
{
    begin(COORD_SERVER, "srvlock");
    m.join.coordinators.asker.key.k[0] = 1;
    refuse(sent.nonce, COORD_WRONG_KEY, 2);
    refuse(sent.nonce, COORD_WRONG_KEY, 3);
    CHECK(m.refused == COORD_WRONG_KEY && m.refused_ns == 2);
    refuse(sent.nonce, -EAGAIN, 4);
    refuse(sent.nonce, COORD_WRONG_KEY, 5);
    CHECK(m.refused == -EAGAIN && m.refused_ns == 4);
}

/* Addresses: those that were unknown by a second welcome, later ones by heartbeats. */
static void addresses(void)
{
    const struct net_addr other = net_v4(50, 5);
    joined(COORD_SERVER, "srvlock");
    member_ask_again(&m, 1);
    CHECK(sent.type == COORD_JOIN && sent.index == 1 && sent.nonce == m.join.nonce);
    struct coord_welcome w = {.config = config_of(MACHINES), .servers = {other}, .first_server = 1};
    w.packet.role = COORD_SERVER;
    CHECK_EQ(answer(&w, sizeof w, COORD_WELCOME, m.join.nonce, 1, 3), MEMBER_NOTHING);
    CHECK(net_addr_is(m.welcome.servers[1], other) && net_addr_is(m.welcome.servers[0], here));
    CHECK(member_knows_granter(&m, other) && !member_knows_granter(&m, net_v4(51, 5)));
    struct coord_beat b = {.places = 7, .packet = {.role = 2, .at = net_v4(51, 5), .head.index = LOCKS + 1}};
    CHECK_EQ(answer(&b, sizeof b, COORD_BEAT_ACK, m.join.nonce, 1, 4), m.design->server_grow ? MEMBER_GROWN : MEMBER_NOTHING);
    CHECK(!member_knows_granter(&m, other) && m.places == 7 && !m.look_for);
}

/* Packets of hosts that the coordinator has not told of wait for the answer. */
static void parked(void)
{
    joined(COORD_SERVER, "srvlock");
    struct packet_head h = {.version = PACKET_VERSION, .family = m.design->family, .from = {.machine = 2}, .epoch = 30};
    const struct net_addr host = net_v4(60, 1);
    m.roster->wanted = 0;
    CHECK(!member_admits(&m, &h, host));
    roster_park(m.roster, &h, sizeof h, host, true);
    h.from.machine = 3;
    CHECK(!member_admits(&m, &h, host));
    roster_park(m.roster, &h, sizeof h, host, true);
    member_ask_hosts(&m, NS_PER_S);
    CHECK(sent.type == COORD_WHO && sent.index == 2);
    struct coord_hosts a = {.count = 1, .host = {{.at = host, .machine = 3, .life = 30}}};
    CHECK_EQ(answer(&a, sizeof a, COORD_HOSTS, m.join.nonce, 1, NS_PER_S), MEMBER_NOTHING);
    unsigned i = 0;
    const struct roster_parked *p = roster_unpark(m.roster, &i);
    CHECK(p && ((const struct packet_head *)(const void *)p->bytes)->from.machine == 3);
    CHECK(!roster_unpark(m.roster, &i) && !m.roster->parks && !m.roster->wanted);
    CHECK(member_admits(&m, &h, host) && !member_admits(&m, &h, net_v4(61, 1)));
    h.from.machine = 12; /* the other lock server, from elsewhere */
    CHECK(!member_admits(&m, &h, net_v4(62, 1)) && member_admits(&m, &h, coordinator(0)));
}

int main(void)
{
    first();
    superseded();
    rejoins();
    recorded();
    hints();
    addresses();
    parked();
    free(m.roster);
    return 0;
}
