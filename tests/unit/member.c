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

/* ---- answers that no coordinator of the space gives ---- */

static struct coord_welcome sound_welcome(void)
{
    struct coord_welcome w = {.config = config_of(MACHINES), .design = "fisslock", .servers = {here}};
    w.packet.role = COORD_SWITCH;
    w.packet.head.to.machine = MACHINE_SWITCH;
    w.packet.head.generation = 9;
    return w;
}

static void other_role(struct coord_welcome *w)
{
    w->packet.role = COORD_SERVER;
}

static void other_place(struct coord_welcome *w)
{
    w->packet.head.to.port++;
}

static void no_such_rack(struct coord_welcome *w)
{
    memset(&w->rules, 0xff, sizeof w->rules);
}

static void other_design(struct coord_welcome *w)
{
    snprintf(w->design, sizeof w->design, "netlock");
}

static void too_many_servers(struct coord_welcome *w)
{
    w->config.servers = RACK_SERVERS_MAX + 1;
}

static void other_numbers(struct coord_welcome *w)
{
    w->config.machines++;
    w->config.racks = RACKS_MAX + 1;
}

/* A switch that joins anew takes none of them, and still waits for a welcome; then it takes the right one. */
static void odd_welcomes(void)
{
    static void (*const changes[])(struct coord_welcome *) = {other_role,   other_place,      no_such_rack,
                                                              other_design, too_many_servers, other_numbers};
    for (unsigned i = 0; i < countof(changes); i++) {
        joined(COORD_SWITCH, "fisslock");
        snprintf(m.welcome.said.design, sizeof m.welcome.said.design, "fisslock");
        const struct roster *roster = m.roster;
        CHECK_EQ(refuse(m.join.nonce, -ESTALE, 3), MEMBER_SUPERSEDED);
        struct coord_welcome w = sound_welcome();
        changes[i](&w);
        if (answer(&w, sizeof w, COORD_WELCOME, m.nonce_next, 1, 4) != MEMBER_NOTHING)
            CHECK_FAIL("welcome %u was taken", i);
        CHECK(m.superseded && m.welcome.said.packet.head.generation == 5 && m.roster == roster);
        CHECK_EQ(m.outdated, changes[i] == other_design);
        w = sound_welcome();
        CHECK_EQ(answer(&w, sizeof w, COORD_WELCOME, m.join.nonce, 1, 4), MEMBER_NOTHING); /* of its former life */
        CHECK_EQ(answer(&w, sizeof w, COORD_WELCOME, m.nonce_next, 1, 4), MEMBER_JOINED);
        CHECK_EQ(m.welcome.said.packet.head.generation, 9);
    }
    joined(COORD_SWITCH, "fisslock"); /* one that takes no other settings takes the same ones */
    snprintf(m.welcome.said.design, sizeof m.welcome.said.design, "fisslock");
    m.adapts = false;
    CHECK_EQ(refuse(m.join.nonce, -ESTALE, 3), MEMBER_SUPERSEDED);
    struct coord_welcome w = sound_welcome();
    w.config = m.welcome.said.config;
    CHECK_EQ(answer(&w, sizeof w, COORD_WELCOME, m.nonce_next, 1, 4), MEMBER_JOINED);
    joined(COORD_SWITCH, "netlock"); /* its state is not the hosts': it does not begin anew by itself */
    member_rejoin(&m, 3);
    CHECK(!member_is_joining(&m, 3));
}

/* A member without a design of its own takes that of the space, if this build has it. */
static void unknown_design(void)
{
    for (unsigned i = 0; i < 2; i++) {
        begin(COORD_SWITCH, "fisslock");
        m.design = NULL;
        struct coord_welcome w = sound_welcome();
        if (i)
            snprintf(w.design, sizeof w.design, "no-such-design");
        CHECK_EQ(answer(&w, sizeof w, COORD_WELCOME, sent.nonce, 1, 4), MEMBER_JOINED);
        CHECK(m.design == (i ? NULL : design_find("fisslock")->packet));
    }
}

/* Addresses of servers that there are not; of more than a packet has. */
static void odd_addresses(void)
{
    joined(COORD_SERVER, "srvlock");
    struct coord_welcome w = {.config = config_of(MACHINES), .first_server = RACK_SERVERS_MAX};
    CHECK_EQ(answer(&w, sizeof w, COORD_WELCOME, m.join.nonce, 1, 3), MEMBER_NOTHING);
    m.welcome.said.config.servers = COORD_WELCOME_SERVERS + 1;
    w.first_server = 0;
    for (unsigned i = 0; i < COORD_WELCOME_SERVERS; i++)
        w.servers[i] = net_v4(70 + i, 5);
    CHECK_EQ(answer(&w, sizeof w, COORD_WELCOME, m.join.nonce, 1, 3), MEMBER_NOTHING);
    CHECK(net_addr_is(m.welcome.servers[COORD_WELCOME_SERVERS - 1], net_v4(70 + COORD_WELCOME_SERVERS - 1, 5)));
    CHECK(!net_addr_known(m.welcome.servers[COORD_WELCOME_SERVERS]));
}

/* Heartbeats' answers: places of servers that there are not, machines and sizes that cannot be, rules that no rack has. */
static void odd_beats(void)
{
    const struct net_addr other = net_v4(51, 5);
    static const struct {
        uint32_t server;
        bool taken;
    } places[] = {{0, false}, {3, false}, {2, true}};
    joined(COORD_SERVER, "srvlock");
    for (unsigned i = 0; i < countof(places); i++) {
        struct coord_beat b = {.places = 7, .packet = {.role = places[i].server, .at = other}};
        answer(&b, sizeof b, COORD_BEAT_ACK, m.join.nonce, 1, 4);
        CHECK_EQ(m.places == 7, places[i].taken);
        CHECK_EQ(member_knows_granter(&m, other), places[i].taken);
    }
    joined(COORD_SERVER, "netlock");
    for (unsigned more = 0; more < 2; more++) { /* as many locks as there can be, and one more */
        struct coord_beat b = {.packet = {.head.index = PACKET_LOCKS_MAX + (uint64_t)more}};
        CHECK_EQ(answer(&b, sizeof b, COORD_BEAT_ACK, m.join.nonce, 1, 4), more ? MEMBER_NOTHING : MEMBER_GROWN);
    }
    joined(COORD_SWITCH, "fisslock-racks");
    for (unsigned machine = 1; machine <= MACHINES + 1; machine += MACHINES) {
        struct coord_beat b = {.packet = {.head.index = machine}};
        answer(&b, sizeof b, COORD_BEAT_ACK, m.join.nonce, 1, 4);
        CHECK_EQ(m.look_for, machine <= MACHINES ? machine : 0);
    }
    struct coord_beat b = {.packet = {.head.index = 0}};
    memset(&b.rules, 0xff, sizeof b.rules);
    CHECK_EQ(answer(&b, sizeof b, COORD_BEAT_ACK, m.join.nonce, 1, 4), MEMBER_NOTHING);
    CHECK(!m.rules.version && !member_is_joining(&m, 4));
}

/* Packets that are no answers, or that answer no request of this member. */
static void no_answers(void)
{
    joined(COORD_SERVER, "srvlock");
    struct coord_packet p = {.code = -ESTALE};
    uint64_t forged = m.forged;
    CHECK_EQ(answer(&p, sizeof p - 1, COORD_REFUSED, m.join.nonce, 1, 3), MEMBER_NOTHING); /* cut */
    CHECK_EQ(answer(&p, sizeof p, COORD_BREAK, m.join.nonce, 1, 3), MEMBER_NOTHING);
    CHECK_EQ(m.forged, forged);
    CHECK_EQ(answer(&p, sizeof p, COORD_REFUSED, 0, 1, 3), MEMBER_NOTHING); /* though it joins no more, and has no next nonce */
    CHECK(m.forged == forged + 1 && !m.superseded);
}

/* Without an answer for long it is alone. */
static void alone(void)
{
    begin(COORD_SERVER, "srvlock");
    CHECK(!member_is_alone(&m, 1000 * EVERY_NS)); /* none has answered at all */
    CHECK_EQ(welcome(sent.nonce, MACHINES, 5, 2), MEMBER_JOINED);
    CHECK(!member_is_alone(&m, 1) && !member_is_alone(&m, EVERY_NS) && member_is_alone(&m, 1000 * EVERY_NS));
}

/* Operators: from a machine of the rack, the member's own included. */
static void operators(void)
{
    const struct net_addr host = net_v4(60, 1), far = net_v4(99, 1), own = net_v4(77, 1), localhost = {.ip = {[15] = 1}};
    struct packet_head h = {.version = PACKET_VERSION, .family = PACKET_COORDINATOR, .from = {.machine = MACHINE_OPERATOR}};
    joined(COORD_SERVER, "srvlock");
    m.join.at = own;
    struct coord_hosts a = {.count = 1, .host = {{.at = host, .machine = 3, .life = 30}}};
    answer(&a, sizeof a, COORD_HOSTS, m.join.nonce, 1, 3);
    CHECK(!member_admits(&m, &h, far));
    CHECK(member_admits(&m, &h, net_v4(60, 2)));
    CHECK(member_admits(&m, &h, localhost));
    CHECK(member_admits(&m, &h, own));
    h.from.machine = 0; /* a coordinator, which the nonce tells */
    CHECK(member_admits(&m, &h, far));
    h.family = m.design->family; /* of machine 0 */
    CHECK(!member_admits(&m, &h, far));
}

int main(void)
{
    odd_welcomes();
    unknown_design();
    odd_addresses();
    odd_beats();
    no_answers();
    alone();
    operators();
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
