/* SPDX-License-Identifier: Apache-2.0 */
/* Which space a coordinator has: members of another one of the same name are refused, members refuse another coordinator, packets
 * of other versions and features are counted and change nothing. Addresses of 64 lock servers come in several welcomes. */
#include "cluster/join.h"
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"

#define MACHINES 3
#define SERVERS RACK_SERVERS_MAX
#define LEASE_NS NS_PER_S

static struct coord_member members[MACHINES + 1];
static struct coordinator c;
static _Alignas(8) uint8_t answer[PACKET_MAX];
static uint64_t now = NS_PER_S;

static const struct rack_identity own = {.id = {0x1122334455667788, 0x99aabbccddeeff00}, .version = 4};

static void start(uint32_t features, bool fresh)
{
    const char *why;
    struct coord_params p = coordinator_rack("srvlock", MACHINES);
    p.identity = own;
    p.servers = SERVERS;
    p.life = 100;
    p.fresh = fresh;
    p.identity.features = features;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
}

static const struct coord_packet *hears(const void *packet, uint32_t len)
{
    uint32_t n = coordinator_packet(&c, packet, len, net_v4(2, 7), now, answer);
    const struct coord_packet *a = (const struct coord_packet *)(const void *)answer;
    CHECK(!n || (coord_check(answer, n, c.config.space) == a && rack_same_space(&a->identity, &own)));
    return n ? a : NULL;
}

static struct coord_packet make(enum coord_type type, const char *space, const struct rack_identity *identity, uint64_t nonce)
{
    struct coord_packet p;
    coord_make(&p, type, space, identity, nonce);
    return p;
}

static void expect_refused(const struct coord_packet *a, int code)
{
    CHECK(a && a->head.type == COORD_REFUSED);
    CHECK_EQ(a->code, code);
}

static const struct coord_packet *join_server(const struct rack_identity *identity, uint64_t nonce, uint16_t port, uint64_t from)
{
    struct coord_packet p = make(COORD_JOIN, "test", identity, nonce);
    p.role = COORD_SERVER;
    p.at = net_v4(2, port);
    p.head.index = from;
    return hears(&p, sizeof p);
}

static const struct coord_packet *beat(const struct rack_identity *identity)
{
    struct coord_beat b = {.packet = make(COORD_BEAT, "test", identity, 9)};
    b.packet.role = COORD_HOST;
    b.packet.head.from.machine = 2;
    b.packet.head.epoch = 50;
    b.packet.code = coord_config_sum(&c.config);
    return hears(&b, sizeof b);
}

/* Members of other spaces, and of this one with a later configuration. */
static void others(void)
{
    struct rack_identity other = own;
    start(0, false);
    uint64_t alien = c.drops.alien;
    for (unsigned byte = 0; byte < sizeof own.id; byte++) {
        other = own;
        ((uint8_t *)other.id)[byte] ^= 0x10;
        expect_refused(join_server(&other, 5, 70, 0), COORD_FOREIGN);
        expect_refused(beat(&other), COORD_FOREIGN);
        struct coord_packet leave = make(COORD_LEAVE, "test", &other, 1);
        CHECK(!hears(&leave, sizeof leave));
        alien += 3;
        CHECK_EQ(c.drops.alien, alien);
    }
    other = own;
    other.version++;
    expect_refused(beat(&other), COORD_FOREIGN); /* its state is older than what the host knows */
    expect_refused(beat(NULL), COORD_FOREIGN);   /* a host that joined knows the id */
    struct coord_packet p = make(COORD_JOIN, "other", NULL, 6);
    expect_refused(hears(&p, sizeof p), -ENOENT);
    CHECK(!strcmp(((const struct coord_packet *)(const void *)answer)->space, "other"));
    CHECK(!c.servers && !members[2].live && members[2].until_ns <= 1);
    CHECK_EQ(beat(&own)->head.type, COORD_BEAT_ACK); /* adopted */
    CHECK(members[2].live);
}

/* How members judge a coordinator. */
static void coordinators(void)
{
    struct rack_identity known = own;
    struct coord_packet p = make(COORD_BEAT_ACK, "test", &own, 9);
    CHECK(coord_knows(&known, &p));
    p.identity.version++;
    CHECK(coord_knows(&known, &p));
    p.identity.version -= 2;
    CHECK(!coord_knows(&known, &p));
    p.identity = own;
    p.identity.id[1]++;
    CHECK(!coord_knows(&known, &p));
    struct rack_identity zero = {.version = 0};
    CHECK(rack_short_id(&zero) && rack_short_id(&own) % RACK_SHORT_STEP == 0);
    CHECK(rack_short_id(&own) != rack_short_id(&zero));
}

/* Versions and features. */
static void unreadable(void)
{
    start(0, true);
    struct coord_packet p = make(COORD_JOIN, "test", NULL, 5);
    p.role = COORD_SERVER;
    for (unsigned version = 0; version < 256; version++) {
        if (version == PACKET_VERSION)
            continue;
        p.head.version = (uint8_t)version;
        CHECK(!hears(&p, sizeof p));
    }
    p.head.version = PACKET_VERSION;
    for (unsigned features = 1; features < 256; features++) {
        p.head.features = (uint8_t)features;
        CHECK(!hears(&p, sizeof p));
    }
    CHECK_EQ(c.drops.unreadable, 255 + 255);
    CHECK_EQ(c.servers, 0);
    p.head.features = 0;
    CHECK_EQ(hears(&p, sizeof p)->head.type, COORD_WELCOME);

    /* Members that do not read what the space's packets may have are refused when they join. */
    start(PACKET_TAGGED, true);
    expect_refused(join_server(NULL, 5, 70, 0), -EPROTONOSUPPORT);
    p.identity.features = PACKET_TAGGED | PACKET_MANY;
    CHECK_EQ(hears(&p, sizeof p)->head.type, COORD_WELCOME);
}

/* The addresses of all lock servers, a part in each welcome. */
static void many_servers(void)
{
    static struct rack_welcome w;
    start(0, true);
    for (uint16_t i = 0; i < SERVERS; i++)
        CHECK_EQ(join_server(NULL, 100 + i, (uint16_t)(7000 + i), 0)->head.type, COORD_WELCOME);
    for (uint64_t from = 0; from < SERVERS; from += COORD_WELCOME_SERVERS) {
        CHECK_EQ(join_server(&own, 100, 7000, from)->head.type, COORD_WELCOME);
        CHECK(join_take(&w, (const struct coord_welcome *)(const void *)answer));
    }
    bool seen[SERVERS] = {false};
    for (unsigned i = 0; i < SERVERS; i++) {
        CHECK(w.servers[i].port >= 7000 && w.servers[i].port < 7000 + SERVERS && net_addr_v4(&w.servers[i]) == 2);
        seen[w.servers[i].port - 7000] = true;
    }
    for (unsigned i = 0; i < SERVERS; i++)
        CHECK(seen[i]);

    struct coord_welcome bad;
    memcpy(&bad, answer, sizeof bad);
    bad.config.space += RACK_SHORT_STEP;
    bad.packet.head.space = bad.config.space;
    CHECK(!join_take(&w, &bad)); /* a short id that is not that of the long one */
    memcpy(&bad, answer, sizeof bad);
    bad.config.identity.features = 1 << 7;
    CHECK(!join_take(&w, &bad));
    memcpy(&bad, answer, sizeof bad);
    bad.config.servers = RACK_SERVERS_MAX + 1;
    CHECK(!join_take(&w, &bad));
    memcpy(&bad, answer, sizeof bad);
    bad.first_server = UINT32_MAX;
    CHECK(!join_take(&w, &bad));
}

int main(void)
{
    others();
    coordinators();
    unreadable();
    many_servers();
    return 0;
}
