/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator without a network: which host gets which number, when it is reused, what a duplicate is answered, what a
 * coordinator knows after a restart, when another switch gets a switch's place, and in which order rules are told. */
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"

#include <errno.h>

#define MACHINES 3
#define LEASE_NS NS_PER_S

static struct coord_member members[MACHINES + 1];
static struct coordinator c;
static _Alignas(8) uint8_t answer[PACKET_MAX];
static uint64_t now;

/* Contents of heartbeats: of hosts, to which switches they send; of switches, which rules they use. */
static struct net_addr here[2];
static uint32_t version, leased;

static void start_with(const char *design, uint16_t servers, bool fresh, uint32_t life)
{
    const char *why;
    struct coord_params p = coordinator_rack(design, MACHINES);
    p.servers = servers;
    p.life = life;
    p.fresh = fresh;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
}

static void start(bool fresh, uint32_t life)
{
    start_with("srvlock", 1, fresh, life);
}

/* The nonce of the sender's JOIN, which the coordinator knows; else that of the packet. */
static uint64_t nonce_of(const struct coord_packet *p)
{
    uint64_t nonce = 0;
    uint16_t machine = p->head.from.machine;
    if (p->role == COORD_SWITCH && p->head.from.port < RACKS_MAX)
        nonce = c.switch_[p->head.from.port].nonce;
    else if (p->role == COORD_SERVER && machine > MACHINES && machine <= MACHINES + RACK_SERVERS_MAX)
        nonce = c.server[machine - MACHINES - 1].nonce;
    else if (machine <= MACHINES)
        nonce = members[machine].nonce;
    return nonce ? nonce : p->head.nonce;
}

static const struct coord_packet *ask(const struct coord_packet *p, uint16_t port)
{
    const struct net_addr from = net_v4(1, port);
    struct coord_beat beat = {.packet = *p};
    if (p->head.type == COORD_BEAT || p->head.type == COORD_LEAVE)
        beat.packet.head.nonce = nonce_of(p);
    beat.switches[0] = here[0];
    beat.switches[1] = here[1];
    beat.rules.version = version;
    uint32_t whole = p->head.type == COORD_BEAT ? sizeof beat : sizeof *p;
    uint32_t len = coordinator_packet(&c, &beat, whole, from, now, answer);
    const struct coord_packet *a = (const struct coord_packet *)(const void *)answer;
    CHECK(!len || coord_check(answer, len, c.config.space) == a);
    return len ? a : NULL;
}

static struct net_addr at(uint16_t port)
{
    return net_v4(1, port);
}

static const struct coord_packet *join(enum coord_role role, uint64_t nonce, uint16_t port)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "test", &c.config.identity, nonce);
    p.role = role;
    return ask(&p, port);
}

static uint16_t number(uint64_t nonce)
{
    const struct coord_packet *a = join(COORD_HOST, nonce, 7);
    CHECK(a && a->head.nonce == nonce);
    return a->head.type == COORD_WELCOME ? a->head.to.machine : 0;
}

static int code(const struct coord_packet *a)
{
    CHECK(a && a->head.type == COORD_REFUSED);
    return a->code;
}

static uint64_t stamp = 41; /* of the latest heartbeat of a host: each is sent later than the one before it */

static const struct coord_packet *beat(uint16_t machine, uint32_t life)
{
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, "test", &c.config.identity, 1);
    p.head.from.machine = machine;
    p.head.epoch = life;
    p.stamp = ++stamp;
    p.head.index = leased;
    p.role = COORD_HOST;
    p.code = coord_config_sum(&c.config);
    return ask(&p, 7);
}

/* A lock server or switch lives. */
static const struct coord_packet *station_beats(enum coord_role role, uint16_t machine, uint32_t life, uint16_t saw, uint32_t left)
{
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, "test", &c.config.identity, 77);
    p.head.from.machine = machine;
    p.head.epoch = life;
    p.head.index = saw;
    p.head.generation = left;
    p.role = role;
    p.at = net_v4(1, 70);
    p.code = coord_config_sum(&c.config);
    return ask(&p, 70);
}

static void numbers(void)
{
    now = NS_PER_S;
    start(true, 100);
    CHECK_EQ(code(join(COORD_HOST, 5, 7)), -EAGAIN); /* no server yet */
    CHECK_EQ(join(COORD_SERVER, 1, 70)->head.to.machine, MACHINES + 1);
    uint32_t life = ((const struct coord_packet *)(const void *)answer)->head.generation;
    CHECK_EQ(join(COORD_SERVER, 1, 70)->head.generation, life); /* a repetition */
    CHECK(join(COORD_SERVER, 2, 70)->head.generation > life);   /* it has started anew */
    CHECK_EQ(code(join(COORD_SERVER, 3, 71)), -ENOSPC);
    CHECK_EQ(code(join(COORD_SWITCH, 3, 71)), -EOPNOTSUPP);
    CHECK_EQ(number(5), 1);
    CHECK_EQ(number(5), 1);
    CHECK_EQ(number(6), 2);
    CHECK_EQ(number(7), 3);
    CHECK_EQ(code(join(COORD_HOST, 8, 7)), -ENOSPC);
    CHECK_EQ(beat(1, members[1].life)->stamp, stamp);
    now += LEASE_NS * 3 / 4;
    CHECK_EQ(beat(1, members[1].life)->head.type, COORD_BEAT_ACK);
    CHECK_EQ(code(beat(2, members[2].life + 1)), -ESTALE);
    now += LEASE_NS / 2; /* 2 and 3 were silent for too long */
    uint32_t old = members[2].life;
    CHECK_EQ(code(beat(2, old)), -ESTALE);
    CHECK_EQ(number(8), 2);
    CHECK(members[2].life > old && members[2].life > members[1].life);
    CHECK_EQ(beat(1, members[1].life)->head.type, COORD_BEAT_ACK);
    CHECK(!beat(0, 1) && !beat(MACHINES + 1, 1) && !beat(1, 0));
}

/* Hosts that beat are adopted; numbers are given out when the others' leases have ended. */
static void anew(void)
{
    start(false, 50);
    CHECK(join(COORD_SERVER, 1, 70));
    CHECK_EQ(code(join(COORD_HOST, 9, 7)), -EAGAIN);
    CHECK_EQ(beat(2, 120)->head.type, COORD_BEAT_ACK);
    CHECK_EQ(code(beat(2, 119)), -ESTALE);
    now += LEASE_NS * 3 / 4;
    CHECK_EQ(beat(2, 120)->head.type, COORD_BEAT_ACK);
    now += LEASE_NS / 2;
    CHECK_EQ(code(beat(3, 121)), -ESTALE); /* too late */
    CHECK_EQ(number(9), 1);
    CHECK_EQ(number(10), 3);
    CHECK(members[1].life > 120);
}

static void leaving(void)
{
    struct coord_packet p;
    coord_make(&p, COORD_LEAVE, "test", &c.config.identity, 1);
    p.head.from.machine = 1;
    p.head.epoch = members[1].life - 1;
    CHECK(!ask(&p, 7) && members[1].live); /* not this one */
    p.head.epoch = members[1].life;
    CHECK(!ask(&p, 7) && !members[1].live);
    coord_make(&p, COORD_JOIN, "other", NULL, 11);
    p.role = COORD_HOST;
    CHECK_EQ(code(ask(&p, 7)), -ENOENT); /* another space */
    p.head.space = c.config.space;
    CHECK_EQ(code(ask(&p, 7)), -ENOENT);
}

/* Servers and switches that joined a former coordinator get their places again; no other gets them, nor one of another rack. */
static void rejoining(void)
{
    start(false, 200);
    CHECK_EQ(code(station_beats(COORD_SERVER, MACHINES + 2, 150, 0, 0)), -ESTALE); /* there is no such server */
    CHECK_EQ(station_beats(COORD_SERVER, MACHINES + 1, 250, 0, 0)->head.type, COORD_BEAT_ACK);
    CHECK_EQ(code(station_beats(COORD_SERVER, MACHINES + 1, 249, 0, 0)), -ESTALE);
    CHECK_EQ(beat(2, 240)->head.type, COORD_BEAT_ACK);
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, "test", &c.config.identity, 1);
    p.head.from.machine = 3;
    p.head.epoch = 241;
    p.code = coord_config_sum(&c.config) ^ 1;
    CHECK_EQ(code(ask(&p, 7)), -ESTALE); /* of another config */
    now += 2 * LEASE_NS;
    CHECK(number(12));
    CHECK(c.life > 250);
}

/* A number is used again when the switch has found that no lock names it. */
static void scanning(void)
{
    start_with("fisslock", 0, true, 300);
    const struct coord_welcome *w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, 3, 70);
    CHECK(w->packet.head.type == COORD_WELCOME && w->live_known && !w->live[0]);
    uint32_t life = w->packet.head.generation;
    for (uint64_t i = 1; i <= MACHINES; i++)
        CHECK_EQ(number(20 + i), i);
    CHECK_EQ(code(join(COORD_HOST, 30, 7)), -ENOSPC);
    CHECK_EQ(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 0, 0)->head.index, 0);
    now += LEASE_NS / 2;
    CHECK_EQ(beat(1, members[1].life)->head.type, COORD_BEAT_ACK);
    CHECK_EQ(beat(3, members[3].life)->head.type, COORD_BEAT_ACK);
    now += LEASE_NS * 3 / 4; /* 2 is gone */
    w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, 4, 70);
    CHECK(w->live_known && w->live[0] == (1u << 1 | 1u << 3));
    life = w->packet.head.generation;
    CHECK_EQ(code(join(COORD_HOST, 30, 7)), -EAGAIN);
    CHECK_EQ(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 0, 0)->head.index, 2);
    CHECK_EQ(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 2, 5)->head.index, 2); /* some still do */
    CHECK_EQ(code(join(COORD_HOST, 30, 7)), -EAGAIN);
    CHECK_EQ(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 3, 0)->head.index, 2); /* that one lives */
    CHECK_EQ(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 2, 0)->head.index, 0);
    CHECK_EQ(number(30), 2);
    start_with("fisslock", 0, false, 400); /* for a lease it is not known which hosts there are */
    CHECK_EQ(code(join(COORD_SWITCH, 5, 70)), -EAGAIN);
    here[0] = at(70);
    CHECK(beat(2, 390));
    w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, 5, 70);
    CHECK(w->packet.head.type == COORD_WELCOME && !w->live_known);
    memset(here, 0, sizeof here);
}

/* ---- another address ---- */

static const struct coord_beat *as_beat(const struct coord_packet *p)
{
    CHECK(p && p->head.type == COORD_BEAT_ACK);
    return (const struct coord_beat *)(const void *)p;
}

static const struct net_addr nowhere = {.port = COORD_AWAY};

/* A silent switch may live: no other switch takes its place while a host may still send to it. */
static void moving(void)
{
    start_with("fisslock", 0, true, 500);
    uint32_t life = join(COORD_SWITCH, 3, 70)->head.generation;
    CHECK_EQ(number(21), 1);
    CHECK_EQ(number(22), 2);
    CHECK_EQ(code(join(COORD_SWITCH, 4, 71)), -EBUSY);
    now += LEASE_NS * 3 / 4;
    CHECK(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 0, 0));
    here[0] = at(70);
    CHECK(net_addr_is(as_beat(beat(1, members[1].life))->switches[0], at(70)));
    CHECK(beat(2, members[2].life));
    now += LEASE_NS * 3 / 4;
    CHECK(beat(1, members[1].life) && beat(2, members[2].life));
    CHECK_EQ(code(join(COORD_SWITCH, 4, 71)), -EBUSY); /* it was heard of */
    now += LEASE_NS * 3 / 4;
    CHECK_EQ(code(join(COORD_SWITCH, 4, 71)), -EAGAIN);
    CHECK_EQ(code(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 0, 0)), -ESTALE); /* too late */
    CHECK_EQ(code(join(COORD_HOST, 23, 7)), -EAGAIN);
    CHECK(net_addr_is(as_beat(beat(1, members[1].life))->switches[0], nowhere));
    CHECK_EQ(code(join(COORD_SWITCH, 4, 71)), -EAGAIN); /* it has only been told */
    here[0] = nowhere;
    CHECK(beat(1, members[1].life));
    CHECK_EQ(code(join(COORD_SWITCH, 4, 71)), -EAGAIN); /* the other one has not */
    now += LEASE_NS / 2;                                /* and its lease is over */
    CHECK(beat(1, members[1].life));
    const struct coord_welcome *w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, 4, 71);
    CHECK(w->packet.head.type == COORD_WELCOME && w->packet.head.generation > life && w->live[0] == 1u << 1);
    CHECK(net_addr_is(as_beat(beat(1, members[1].life))->switches[0], at(71)));
    memset(here, 0, sizeof here);
}

/* Of a pair of switches the second waits for the place, and gets it before a lease is over; but not while a host may still send to
 * the first. */
static void pairing(void)
{
    struct coord_packet second;
    start_with("fisslock", 0, true, 600);
    coord_make(&second, COORD_JOIN, "test", &c.config.identity, 4);
    second.role = COORD_SWITCH;
    second.head.to.port = 1;
    uint32_t life = join(COORD_SWITCH, 3, 70)->head.generation;
    CHECK_EQ(number(21), 1);
    here[0] = at(70);
    CHECK(beat(1, members[1].life));
    for (unsigned i = 0; i < 8; i++) { /* the first is heard of often enough */
        now += LEASE_NS / 8;
        CHECK(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 0, 0) && beat(1, members[1].life));
        CHECK_EQ(code(ask(&second, 71)), -EAGAIN);
    }
    c.rouse_next = 0;
    now += LEASE_NS * 3 / 8;                           /* not any more */
    CHECK_EQ(code(join(COORD_SWITCH, 5, 72)), -EBUSY); /* a switch that does not wait is refused for a lease */
    CHECK(net_addr_is(as_beat(beat(1, members[1].life))->switches[0], at(70)));
    CHECK_EQ(code(ask(&second, 71)), -EAGAIN);
    CHECK_EQ(c.rouse_next, 1); /* hosts are to hear of it at once */
    CHECK(net_addr_is(as_beat(beat(1, members[1].life))->switches[0], nowhere));
    CHECK_EQ(code(ask(&second, 71)), -EAGAIN); /* the host has only been told (I17) */
    CHECK_EQ(code(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 0, 0)), -ESTALE);
    here[0] = nowhere;
    CHECK(beat(1, members[1].life));
    const struct coord_welcome *w = (const struct coord_welcome *)(const void *)ask(&second, 71);
    CHECK(w->packet.head.type == COORD_WELCOME && w->packet.head.generation > life && w->live[0] == 1u << 1);
    memset(here, 0, sizeof here);
}

/* The coordinator's own switch yields its place when it has stopped, and not before. */
static void yielding(void)
{
    start_with("fisslock", 0, true, 700);
    c.own_switch = at(70);
    uint32_t life = join(COORD_SWITCH, 3, 70)->head.generation;
    CHECK_EQ(number(21), 1);
    here[0] = at(70);
    CHECK(beat(1, members[1].life) && !c.yield);
    CHECK_EQ(code(join(COORD_SWITCH, 4, 71)), -EAGAIN);
    CHECK(c.yield);
    CHECK_EQ(code(join(COORD_SWITCH, 4, 71)), -EAGAIN); /* it decides still (I17) */
    CHECK(net_addr_is(as_beat(beat(1, members[1].life))->switches[0], at(70)));
    struct coord_packet p;
    coord_make(&p, COORD_LEAVE, "test", &c.config.identity, 3);
    p.head.from.machine = MACHINE_SWITCH;
    p.head.epoch = life;
    p.role = COORD_SWITCH;
    CHECK(!ask(&p, 70));
    const struct coord_welcome *w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, 4, 71);
    CHECK(w->packet.head.type == COORD_WELCOME && w->packet.head.generation > life && w->live[0] == 1u << 1);
    CHECK(!c.yield);
    CHECK_EQ(code(join(COORD_SWITCH, 5, 72)), -EBUSY); /* that one does not yield */
    CHECK_EQ(code(join(COORD_SWITCH, 6, 70)), -EBUSY); /* nor to the coordinator's own */
    memset(here, 0, sizeof here);
}

/* ---- rules ---- */

static uint32_t racks_life[2];

static uint32_t joins(unsigned rack, uint64_t nonce)
{
    const struct coord_welcome *w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, nonce, (uint16_t)(70 + rack));
    CHECK(w->packet.head.type == COORD_WELCOME && w->packet.head.to.port == rack);
    racks_life[rack] = w->packet.head.generation;
    return w->rules.version;
}

/* The version that the coordinator tells the switch of a rack, which uses these rules. */
static uint32_t told(unsigned rack, uint32_t goes_by)
{
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, "test", &c.config.identity, 77);
    p.head.from = (struct place){MACHINE_SWITCH, (uint16_t)rack};
    p.head.epoch = racks_life[rack];
    p.role = COORD_SWITCH;
    version = goes_by;
    return as_beat(ask(&p, (uint16_t)(70 + rack)))->rules.version;
}

static int rules(unsigned first, unsigned end, unsigned rack)
{
    struct coord_packet p;
    coord_make(&p, COORD_RULES, "test", &c.config.identity, 88);
    p.code = 1;
    p.head.index = first;
    p.head.generation = end;
    p.role = rack;
    const struct coord_packet *a = ask(&p, 99);
    CHECK(a && a->head.type == COORD_RULED);
    return a->code;
}

static void keep(void)
{
    const struct rules *wanted = coordinator_wants(&c);
    CHECK(wanted);
    coordinator_set_rules(&c, wanted);
}

/* The switch that gets locks is told after the switch that loses them, and neither before the rules are on disk. */
static void dividing(void)
{
    start_with("fisslock-racks", 0, true, 600);
    CHECK_EQ(joins(0, 3), 0);
    CHECK_EQ(code(join(COORD_HOST, 21, 7)), -EAGAIN);
    CHECK_EQ(joins(1, 4), 0);
    CHECK_EQ(code(join(COORD_SWITCH, 5, 72)), -EBUSY);
    CHECK_EQ(number(21), 1);
    CHECK_EQ(told(0, 0), 0);
    CHECK_EQ(told(1, 0), 0);
    CHECK_EQ(rules(0, RACK_SHARDS + 1, 1), -EINVAL);
    CHECK_EQ(rules(5, 5, 1), -EINVAL);
    CHECK_EQ(rules(0, 2, 2), -EINVAL);
    CHECK_EQ(rules(1, 2, 1), 0); /* it has it */
    CHECK(!coordinator_wants(&c));
    leased = 1;
    CHECK(beat(1, members[1].life));
    CHECK_EQ(rules(0, 8, 1), -EAGAIN); /* the host would lose what it holds of them */
    leased = 3;
    CHECK(beat(1, members[1].life));
    CHECK_EQ(rules(0, 8, 1), -EINPROGRESS);
    CHECK_EQ(told(0, 0), 0);
    keep();
    CHECK_EQ(c.rules.now.owner[0], 1);
    CHECK_EQ(c.rules.now.owner[8], 0);
    CHECK_EQ(told(1, 0), 0); /* not yet */
    CHECK_EQ(told(0, 0), 1);
    CHECK_EQ(joins(1, 6), 0); /* nor if it starts anew */
    CHECK_EQ(joins(0, 7), 1);
    CHECK_EQ(told(1, 0), 0); /* it may still use the old ones */
    CHECK_EQ(rules(0, 8, 1), -EINPROGRESS);
    CHECK_EQ(rules(9, 16, 0), -EBUSY);
    CHECK_EQ(told(0, 1), 1);
    CHECK_EQ(told(1, 0), 1);
    CHECK_EQ(rules(0, 8, 1), -EINPROGRESS);
    CHECK_EQ(joins(1, 8), 1);
    CHECK_EQ(told(1, 1), 1);
    CHECK_EQ(rules(0, 8, 1), 0);

    /* One that is gone loses all when no host speaks to it any more. */
    CHECK_EQ(rules(0, RACK_SHARDS, 0), -EINPROGRESS);
    keep();
    here[0] = at(70);
    here[1] = at(71);
    for (unsigned i = 0; i < 3; i++, now += LEASE_NS / 2) {
        CHECK(beat(1, members[1].life));
        CHECK_EQ(told(0, 1), 1);
    }
    CHECK(net_addr_is(as_beat(beat(1, members[1].life))->switches[1], nowhere));
    CHECK_EQ(told(0, 1), 1);
    here[1] = nowhere;
    CHECK(beat(1, members[1].life));
    CHECK_EQ(told(0, 1), 2);
    CHECK_EQ(joins(0, 9), 2);
    CHECK_EQ(told(0, 2), 2);
    CHECK_EQ(rules(0, RACK_SHARDS, 0), 0);
    CHECK_EQ(number(22), 2); /* though one rack has no switch */
    memset(here, 0, sizeof here);
    version = leased = 0;
}

/* Of two lock servers one starts anew together with the coordinator: it is not given the place of the other one, which lives. */
static void starting_together(void)
{
    start_with("netlock", 2, false, 600);
    CHECK_EQ(code(join(COORD_SERVER, 91, 71)), -EAGAIN);
    CHECK_EQ(station_beats(COORD_SERVER, MACHINES + 2, 550, 0, 0)->head.type, COORD_BEAT_ACK);
    CHECK_EQ(code(join(COORD_SERVER, 91, 71)), -EAGAIN); /* there may be another */
    now += NS_PER_S;
    CHECK_EQ(join(COORD_SERVER, 91, 71)->head.to.machine, MACHINES + 1);
    CHECK_EQ(station_beats(COORD_SERVER, MACHINES + 2, 550, 0, 0)->head.type, COORD_BEAT_ACK);
}

int main(void)
{
    starting_together();
    numbers();
    anew();
    rejoining();
    scanning();
    moving();
    pairing();
    yielding();
    dividing();
    numbers();
    leaving();
    return 0;
}
