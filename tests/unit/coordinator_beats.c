/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats and joins that a coordinator does not expect: overtaken ones, of lives that it never gave, of stations without a name,
 * of switches in places that are not there, and after the last life that was reserved. */
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"

#include <errno.h>

#define MACHINES 3
#define LOOPBACK 0x0100007fu /* in the order of the network */

static struct coord_member members[MACHINES + 1];
static struct coordinator c;
static _Alignas(8) uint8_t answer[PACKET_MAX];
static uint64_t now;

static void start(const char *design, bool fresh, uint16_t servers, uint16_t racks)
{
    struct coord_params p = coordinator_rack(design, MACHINES);
    const char *why;
    p.fresh = fresh;
    p.racks = racks;
    p.servers = servers;
    now = 10 * NS_PER_S;
    memset(members, 0, sizeof members);
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
}

static const struct coord_packet *ask(const void *p, uint32_t len)
{
    uint32_t n = coordinator_packet(&c, p, len, net_v4(LOOPBACK, 9), now, answer);
    return n ? (const struct coord_packet *)(const void *)answer : NULL;
}

/* The refusal's code; 0: it was taken; 1: it was not answered. */
static int code_of(const struct coord_packet *a)
{
    return !a ? 1 : a->head.type == COORD_REFUSED ? a->code : 0;
}

static struct coord_packet joining(enum coord_role role, uint64_t nonce, uint16_t port)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "test", &c.config.identity, nonce);
    p.role = role;
    p.at = net_v4(LOOPBACK, port);
    return p;
}

static int join(enum coord_role role, uint64_t nonce, uint16_t port)
{
    struct coord_packet p = joining(role, nonce, port);
    return code_of(ask(&p, sizeof p));
}

static uint64_t nonce_of(enum coord_role role, uint16_t machine, uint32_t life)
{
    uint64_t nonce = role == COORD_HOST && machine <= MACHINES ? c.members[machine].nonce : 0;
    for (unsigned i = 0; i < RACKS_MAX && role == COORD_SWITCH; i++)
        nonce = c.switch_[i].life == life ? c.switch_[i].nonce : nonce;
    return nonce ? nonce : 77;
}

static struct coord_beat beat_of(enum coord_role role, uint16_t machine, uint32_t life)
{
    struct coord_beat b;
    memset(&b, 0, sizeof b);
    coord_make(&b.packet, COORD_BEAT, "test", &c.config.identity, nonce_of(role, machine, life));
    b.packet.role = role;
    b.packet.head.from.machine = machine;
    b.packet.head.epoch = life;
    b.packet.code = coord_config_sum(&c.config);
    b.packet.at = net_v4(LOOPBACK, 70);
    return b;
}

static int beat(struct coord_beat b)
{
    return code_of(ask(&b, sizeof b));
}

/* ---- hosts ---- */

/* A recorded heartbeat of a lock server does not keep its place for it; one of another build, which has no number, does. */
static void station_beats_again(void)
{
    struct coord_beat b = beat_of(COORD_SERVER, c.config.server[0], c.server[0].life);
    b.packet.head.nonce = c.server[0].nonce;
    b.packet.at = c.server[0].at;
    b.packet.stamp = 7;
    CHECK_EQ(beat(b), 0);
    uint64_t heard = c.server[0].heard_ns;
    now += NS_PER_MS;
    for (b.packet.stamp = 6; b.packet.stamp <= 7; b.packet.stamp++) {
        CHECK_EQ(beat(b), 0);
        CHECK_EQ(c.server[0].heard_ns, heard);
    }
    CHECK_EQ(beat(b), 0);
    CHECK_EQ(c.server[0].heard_ns, now);
    now += NS_PER_MS;
    b.packet.stamp = 0;
    CHECK_EQ(beat(b), 0);
    CHECK_EQ(c.server[0].heard_ns, now);
}

static void hosts(void)
{
    start("srvlock", true, 1, 0);
    CHECK_EQ(join(COORD_SERVER, 5, 70), 0);
    CHECK_EQ(join(COORD_HOST, 6, 71), 0);
    struct coord_beat b = beat_of(COORD_HOST, 1, c.members[1].life);
    b.packet.stamp = 100;
    b.packet.head.index = 3;
    CHECK_EQ(beat(b), 0);
    CHECK_EQ(c.members[1].racks, 3);
    uint64_t until = c.members[1].until_ns;
    now += NS_PER_MS;
    for (b.packet.stamp = 99; b.packet.stamp <= 100; b.packet.stamp++) { /* overtaken, and sent again: the later one counts */
        b.packet.head.index = b.packet.stamp == 100 ? 3 : 1;
        CHECK_EQ(beat(b), 0);
        CHECK(c.members[1].racks == 3 && c.members[1].until_ns == until);
    }
    b.packet.head.index = 1;
    CHECK_EQ(b.packet.stamp, 101);
    CHECK_EQ(beat(b), 0);
    CHECK(c.members[1].racks == 1 && c.members[1].until_ns > until);
    station_beats_again();
    uint64_t bad = c.drops.bad;
    CHECK_EQ(beat(beat_of(COORD_HOST, 0, 5)), 1);
    CHECK_EQ(beat(beat_of(COORD_HOST, MACHINES + 1, 5)), 1);
    CHECK_EQ(beat(beat_of(COORD_HOST, 1, 0)), 1);
    CHECK_EQ(c.drops.bad, bad + 3);
    CHECK_EQ(beat(beat_of(COORD_HOST, 1, c.members[1].life + 1)), -ESTALE);
    CHECK_EQ(beat(beat_of(COORD_HOST, 2, 7)), -ESTALE);
    struct coord_packet leave;
    coord_make(&leave, COORD_LEAVE, "test", &c.config.identity, 0);
    leave.head.epoch = c.members[0].life; /* of machine 0, which is none */
    CHECK(!ask(&leave, sizeof leave) && c.members[1].live);
}

/* After a restart, hosts of the former coordinator go on; those of a later one do not. */
static void adopted(void)
{
    start("srvlock", false, 1, 0);
    CHECK(now < c.open_ns);
    c.lives = 1000;
    struct coord_beat b = beat_of(COORD_HOST, 1, c.lives + 1); /* a life that this coordinator's state never reserved */
    CHECK_EQ(beat(b), -ESTALE);
    b = beat_of(COORD_HOST, 1, c.lives);
    b.packet.code++;
    CHECK_EQ(beat(b), -ESTALE); /* of another configuration */
    CHECK(!c.members[1].live);
    b.packet.code--;
    CHECK_EQ(beat(b), 0);
    CHECK(c.members[1].live && c.members[1].life == c.lives);
    now = c.open_ns;
    CHECK_EQ(beat(beat_of(COORD_HOST, 2, c.lives)), -ESTALE); /* too late */
}

/* ---- stations ---- */

static void stations(void)
{
    start("srvlock", false, 1, 0);
    struct coord_beat b = beat_of(COORD_SERVER, MACHINES + 1, 9);
    b.packet.head.nonce = 0;
    CHECK(beat(b) != 0 && !c.server[0].nonce); /* I17 */
    b = beat_of(COORD_SERVER, MACHINES + 1, 0);
    CHECK(beat(b) != 0 && !c.server[0].nonce);
    b = beat_of(COORD_SERVER, MACHINES + 1, 9);
    memset(&b.packet.at, 0, sizeof b.packet.at);
    CHECK(beat(b) != 0 && !c.server[0].nonce);
    b = beat_of(COORD_SERVER, MACHINES + 1, 9);
    b.packet.code ^= 1;
    CHECK(beat(b) != 0 && !c.server[0].nonce);
    b = beat_of(COORD_SERVER, MACHINES + 1, 9);
    CHECK_EQ(beat(b), 0);
    CHECK(c.server[0].nonce == b.packet.head.nonce && c.server[0].life == 9 && c.servers == 1);
    b.packet.head.epoch = 10; /* of another life */
    CHECK_EQ(beat(b), -ESTALE);
}

/* Hosts, switches and lock servers hear of a lock server's place with the acknowledgements of their heartbeats: that it is away,
 * and then of the successor. The successor waits for hosts alone. */
static struct coord_beat told(struct coord_beat b, uint32_t places)
{
    b.places = places;
    CHECK_EQ(beat(b), 0);
    return *(const struct coord_beat *)(const void *)answer;
}

static void places(void)
{
    start("netlock", true, 1, 0);
    CHECK_EQ(join(COORD_SERVER, 5, 70), 0);
    CHECK_EQ(join(COORD_SWITCH, 6, 71), 0);
    CHECK_EQ(join(COORD_HOST, 7, 72), 0);
    uint32_t old = c.server[0].life;
    struct coord_beat s = beat_of(COORD_SWITCH, MACHINE_SWITCH, c.switch_[0].life), h = beat_of(COORD_HOST, 1, c.members[1].life);
    s.packet.head.nonce = 6;
    h.packet.head.nonce = 7;
    struct coord_beat a = told(s, 0);
    CHECK(a.packet.role == 1 && a.packet.at.port == 70 && a.places == c.server[0].version);
    CHECK_EQ(told(s, a.places).packet.role, 0); /* nothing new */
    CHECK_EQ(join(COORD_SERVER, 9, 75), -ENOSPC);
    now += c.config.lease_ns * 3 / 4;
    told(h, a.places);
    now += c.config.lease_ns * 3 / 4;
    CHECK_EQ(join(COORD_SERVER, 9, 75), -EAGAIN);
    a = told(s, a.places);
    CHECK(a.packet.role == 1 && a.packet.at.port == COORD_AWAY && !net_addr_known(a.packet.at));
    CHECK_EQ(join(COORD_SERVER, 9, 75), -EAGAIN); /* I17: the switch has confirmed, and the host has not */
    h.places = told(h, 0).places;
    CHECK_EQ(beat(h), 0);
    CHECK_EQ(join(COORD_SERVER, 9, 75), 0);
    CHECK(c.server[0].life > old);
    a = told(s, a.places);
    CHECK(a.packet.role == 1 && a.packet.at.port == 75 && a.packet.code == (int32_t)c.server[0].life);
    struct coord_beat late = beat_of(COORD_SERVER, MACHINES + 1, old); /* the old server goes on */
    CHECK_EQ(beat(late), -ESTALE);
}

/* ---- lives ---- */

/* None is given beyond those that the log has. */
static void lives(void)
{
    start("srvlock", true, 1, 0);
    CHECK(!coordinator_lives_wanted(&c, now) || c.lives == UINT32_MAX);
    CHECK_EQ(join(COORD_SERVER, 5, 70), 0);
    uint32_t last = c.lives = c.life;
    CHECK(coordinator_lives_wanted(&c, now) > c.lives);
    CHECK_EQ(join(COORD_HOST, 6, 71), -EAGAIN);
    CHECK(!c.members[1].live && c.life == last); /* I15 */
    c.lives += 10;
    CHECK_EQ(join(COORD_HOST, 6, 71), 0);
    CHECK(c.members[1].life > last && c.members[1].life <= c.lives);
    start("srvlock", true, 1, 0);
    c.lives = c.life;
    CHECK_EQ(join(COORD_SERVER, 5, 70), -EAGAIN);
    CHECK(!c.server[0].nonce);
    start("fisslock", true, 0, 0);
    c.lives = c.life;
    CHECK_EQ(join(COORD_SWITCH, 8, 73), -EAGAIN);
    CHECK(!c.switch_[0].nonce);
}

/* ---- switches ---- */

static int join_at(uint64_t nonce, uint16_t port, uint16_t place)
{
    struct coord_packet p = joining(COORD_SWITCH, nonce, port);
    p.head.to.port = place;
    return code_of(ask(&p, sizeof p));
}

static void switches(void)
{
    start("fisslock-racks", true, 0, 2);
    CHECK_EQ(join_at(20, 80, 3), -EINVAL); /* there are two places */
    CHECK_EQ(join_at(20, 80, 2), 0);
    CHECK(c.switch_[1].nonce == 20 && !c.switch_[0].nonce);
    CHECK_EQ(join_at(20, 80, 2), 0); /* a duplicate has the same life */
    CHECK_EQ(((const struct coord_welcome *)(const void *)answer)->packet.head.generation, c.switch_[1].life);
    CHECK_EQ(join_at(21, 81, 2), -EAGAIN); /* it waits for the place that it asked for */
    CHECK_EQ(c.switch_[1].nonce, 20);
    CHECK_EQ(join_at(21, 81, 0), 0); /* or takes any that is free */
    CHECK_EQ(c.switch_[0].nonce, 21);
    CHECK_EQ(join_at(22, 82, 0), -EBUSY);
    uint64_t nonces[] = {c.switch_[0].nonce, c.switch_[1].nonce};
    struct coord_beat b = beat_of(COORD_SWITCH, MACHINE_SWITCH, c.switch_[1].life);
    b.packet.head.from.port = 2;
    CHECK_EQ(beat(b), -ESTALE);
    b.packet.head.from.port = 1;
    b.packet.head.index = MACHINES + 1; /* it looked for a machine that cannot be */
    CHECK_EQ(beat(b), 0);
    b.packet.head.index = 2; /* and for one that was never there: it is not clean by that */
    CHECK_EQ(beat(b), 0);
    CHECK(!c.members[2].clean);
    CHECK(c.switch_[0].nonce == nonces[0] && c.switch_[1].nonce == nonces[1]);

    start("netlock", true, 1, 0);          /* its steward moves switches: joins are for places */
    CHECK_EQ(join_at(20, 80, 0), -EAGAIN); /* the server has not joined */
    CHECK_EQ(join(COORD_SERVER, 5, 70), 0);
    CHECK_EQ(join_at(20, 80, 2), -EINVAL);
    CHECK_EQ(join_at(20, 80, 1), 0);
    CHECK_EQ(join_at(21, 81, 1), -EBUSY);
    CHECK_EQ(join_at(21, 81, 0), -EBUSY);
    CHECK_EQ(c.switch_[0].nonce, 20);
    start("srvlock", true, 1, 0);
    CHECK_EQ(join(COORD_SERVER, 5, 70), 0);
    CHECK_EQ(join_at(20, 80, 0), -EOPNOTSUPP); /* it has no switch */
}

/* A switch that is silent is replaced when no host uses it any more, or by force. */
static void replaced_by_force(void)
{
    start("fisslock", true, 0, 0);
    CHECK_EQ(join(COORD_SWITCH, 20, 80), 0);
    CHECK_EQ(join(COORD_HOST, 7, 72), 0);
    struct coord_packet p = joining(COORD_SWITCH, 21, 81);
    p.code = COORD_FORCE;
    CHECK_EQ(code_of(ask(&p, sizeof p)), -EBUSY); /* it is not silent */
    p.head.to.port = 1;
    CHECK_EQ(code_of(ask(&p, sizeof p)), -EBUSY); /* nor does --force wait until it is */
    CHECK_EQ(join_at(21, 81, 1), -EAGAIN);
    p.head.to.port = 0;
    now += c.config.lease_ns * 3 / 4;
    CHECK_EQ(beat(beat_of(COORD_HOST, 1, c.members[1].life)), 0);
    now += c.config.lease_ns * 3 / 4;
    CHECK_EQ(join(COORD_SWITCH, 21, 81), -EAGAIN); /* I17: the host may use the first one */
    CHECK(c.switch_[0].away);
    CHECK_EQ(code_of(ask(&p, sizeof p)), 0);
    CHECK(c.switch_[0].nonce == 21 && !c.switch_[0].away);
}

/* Rules of designs that are divided for good do not change; and shards go to racks that are there. */
static int move(uint64_t first, uint32_t count, uint16_t to)
{
    struct coord_packet p;
    coord_make(&p, COORD_RULES, "test", &c.config.identity, 3);
    p.code = 1;
    p.head.index = first;
    p.head.generation = count;
    p.role = (uint8_t)to;
    const struct coord_packet *a = ask(&p, sizeof p);
    CHECK(a && a->head.type == COORD_RULED);
    return a->code;
}

static void rules(void)
{
    start("fisslock-racks", true, 0, 2);
    uint32_t version = c.rules.now.version;
    CHECK_EQ(move(0, 4, 1), -EAGAIN); /* its switch has not joined */
    CHECK(!join_at(20, 80, 1) && !join_at(21, 81, 2));
    CHECK(move(0, 4, 2) < 0 && move(RACK_SHARDS, 1, 1) < 0 && move(UINT64_MAX, 1, 1) < 0);
    CHECK_EQ(c.rules.now.version, version);
    CHECK(!coordinator_wants(&c));
    CHECK_EQ(move(0, 4, 1), -EINPROGRESS);
    CHECK(coordinator_wants(&c) != NULL);
    start("netlock-switches", true, 2, 2);
    CHECK_EQ(move(0, 4, 1), -EOPNOTSUPP);
}

int main(void)
{
    hosts();
    adopted();
    stations();
    places();
    lives();
    switches();
    replaced_by_force();
    rules();
    return 0;
}
