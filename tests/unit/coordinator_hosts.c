/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator and the leases of its hosts, packets carried by hand: whom it waits for after a restart, after a change of its
 * settings, and before a lock server's place is given to another one. */
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"

#include <errno.h>

#define MACHINES 6
#define MEMBER_NS (8 * NS_PER_S)
#define SERVER (MACHINES + 1)

static struct coordinator c;
static struct coord_member members[MACHINES + 1];
static struct rack_state state;
static uint64_t now;
static const char *design = "srvlock";
static uint16_t second = 2, servers = 1; /* the number of the second host of the log; lock servers of the rack */
static bool other_sum;                   /* heartbeats are of members of another configuration */
static uint32_t told;                    /* JOINs say this life */
static uint64_t process;                 /* of JOINs: another one has another nonce */
static uint64_t fewer;                   /* heartbeats are of members that joined when the space had so many locks less */
static _Alignas(8) uint8_t answer[PACKET_MAX];

static struct net_addr at(uint16_t port)
{
    return net_v4(0x0100007f, port);
}

/* The coordinator starts with what the log says. `former`: hosts of a former configuration may be left. */
static void start(bool former)
{
    struct coord_params p = coordinator_rack(design, MACHINES);
    const char *why;
    p.fresh = false;
    p.servers = servers;
    p.member_ns = MEMBER_NS;
    p.identity = (struct rack_identity){.id = {1, 2}, .version = 3};
    p.life = 1000;
    p.state = &state;
    memset(&state, 0, sizeof state);
    state.lives = 5000;
    state.lease_ns = p.lease_ns;
    state.hosts = (struct state_hosts){.member_ns = MEMBER_NS, .settled = former ? 2 : 3};
    state.host[1] = 60;
    state.host[second] = 61;
    state.server[0] = (struct state_station){.at = at(70), .life = 59, .serves = 1};
    now = 100 * NS_PER_S;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
}

static const struct coord_packet *answered(uint32_t len)
{
    const struct coord_packet *a = (const void *)answer;
    return len ? a : NULL;
}

static const struct coord_packet *ask(const void *p, uint32_t len, uint16_t port)
{
    return answered(coordinator_packet(&c, p, len, at(port), now, answer));
}

/* Everything is in the log. */
static void commit(void)
{
    for (unsigned i = 0; i < RACK_SERVERS_MAX; i++)
        c.server[i].unwritten = false;
    for (unsigned i = 1; i <= MACHINES; i++)
        members[i].unwritten = false;
}

/* 0, with the number in *machine, or why not. */
static int join_as(enum coord_role role, uint16_t port, int code, uint16_t *machine)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "test", NULL, port | process << 32);
    p.head.generation = told;
    p.role = role;
    p.code = code;
    p.at = at(port);
    const struct coord_packet *a = ask(&p, sizeof p, port);
    CHECK(a);
    commit();
    if (a->head.type == COORD_REFUSED) {
        told = a->code == COORD_ANEW ? a->head.generation : told;
        return a->code;
    }
    CHECK_EQ(a->head.type, COORD_WELCOME);
    *machine = a->head.to.machine;
    return 0;
}

/* A heartbeat; the acknowledgement, or null if it is refused. */
static const struct coord_beat *beat(enum coord_role role, uint16_t machine, uint32_t life, uint16_t port, uint32_t places)
{
    struct coord_beat b;
    memset(&b, 0, sizeof b);
    coord_make(&b.packet, COORD_BEAT, "test", &c.config.identity, port);
    b.packet.head.from.machine = machine;
    b.packet.head.epoch = life;
    b.packet.role = role;
    b.packet.stamp = now;
    b.packet.at = at(port);
    struct rack_config joined = c.config;
    joined.locks -= fewer;
    b.packet.code = coord_config_sum(&joined) ^ other_sum;
    b.places = places;
    const struct coord_packet *a = ask(&b, sizeof b, port);
    CHECK(a);
    if (a->head.type == COORD_BEAT_ACK)
        return (const void *)answer;
    CHECK(a->head.type == COORD_REFUSED && a->code == -ESTALE);
    return NULL;
}

static void leave(enum coord_role role, uint16_t machine, uint32_t life)
{
    struct coord_packet p;
    uint64_t nonce = role == COORD_SERVER ? c.server[0].nonce : c.members[machine].nonce;
    coord_make(&p, COORD_LEAVE, "test", &c.config.identity, nonce);
    p.head.from.machine = machine;
    p.head.epoch = life;
    p.role = role;
    CHECK(!ask(&p, sizeof p, 9));
}

/* Hosts of the log have their numbers until they are surely gone; other numbers are free at once. */
static void restarts(void)
{
    uint16_t machine = 0;
    start(false);
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &machine), -EAGAIN); /* the rack is not complete */
    CHECK(beat(COORD_SERVER, SERVER, 59, 70, 0));
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &machine), 0);
    CHECK_EQ(machine, 3);
    CHECK(!beat(COORD_HOST, 1, 59, 21, 0) && !beat(COORD_HOST, 4, 62, 21, 0)); /* of another life; never given */
    CHECK(beat(COORD_HOST, 1, 60, 21, 0));
    leave(COORD_HOST, 2, 60); /* of another life */
    CHECK(coordinator_host_life(&c, 2) == 61 && coordinator_host_life(&c, 4) == 0);
    for (uint16_t i = 4; i <= MACHINES; i++)
        CHECK_EQ(join_as(COORD_HOST, (uint16_t)(20 + i), 0, &machine), 0);
    CHECK_EQ(join_as(COORD_HOST, 40, 0, &machine), -EAGAIN); /* number 2 may become free */
    now += lease_surely_over(MEMBER_NS) - 1;
    CHECK_EQ(join_as(COORD_HOST, 40, 0, &machine), -EAGAIN);
    CHECK(beat(COORD_HOST, 1, 60, 21, 0));
    now++;
    CHECK_EQ(join_as(COORD_HOST, 40, 0, &machine), 0);
    CHECK_EQ(machine, 2);
}

/* Nothing begins under other settings before the hosts of the former ones are gone: they leave, or outlive their leases. */
static void changes(bool by_time)
{
    uint16_t machine;
    start(true);
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), -EAGAIN);
    leave(COORD_HOST, 1, 60);
    other_sum = true;
    CHECK(!beat(COORD_HOST, 2, 61, 21, 0)); /* refused, and live until it says that it leaves */
    other_sum = false;
    coordinator_tick(&c, now);
    CHECK(!coordinator_is_settled(&c));
    if (by_time)
        now += lease_surely_over(MEMBER_NS);
    else
        leave(COORD_HOST, 2, 61);
    coordinator_tick(&c, now);
    CHECK(coordinator_is_settled(&c));
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), -EAGAIN); /* not before the log says so */
    coordinator_set_settled(&c);
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), 0);
}

/* Until the lock server at port 70 is silent. Both hosts are heard. The version of places that they know. */
static uint32_t silence(void)
{
    start(false);
    CHECK(beat(COORD_SERVER, SERVER, 59, 70, 0));
    now += lease_surely_over(c.config.lease_ns) + 1;
    const struct coord_beat *a = beat(COORD_HOST, 1, 60, 21, 0);
    CHECK(a && a->packet.role == 1 && net_addr_is(a->packet.at, at(70)) && a->packet.code == 59);
    uint32_t known = a->places;
    a = beat(COORD_HOST, 1, 60, 21, known);
    CHECK(a && !a->packet.role && a->places == known);
    CHECK(beat(COORD_HOST, second, 61, 22, known));
    return known;
}

/* A lock server's place is given away when every host has confirmed that it does not use it, or is gone. */
static void replaces(void)
{
    uint16_t machine = 0;
    uint32_t known = silence();
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -EAGAIN);
    const struct coord_beat *a = beat(COORD_HOST, 1, 60, 21, known);
    uint32_t away = a ? a->places : 0;
    CHECK(a && away > known && a->packet.role == 1 && !net_addr_known(a->packet.at) && a->packet.at.port == COORD_AWAY);
    CHECK((uint32_t)a->packet.code > 59); /* no life of the old server counts any more */
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -EAGAIN);
    CHECK(beat(COORD_HOST, 1, 60, 21, away));
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -EAGAIN); /* the other host has not confirmed */
    CHECK(!beat(COORD_SERVER, SERVER, 59, 70, 0));             /* and the old server is refused */
    now += lease_surely_over(MEMBER_NS) - 1;
    CHECK(beat(COORD_HOST, 1, 60, 21, away));
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -EAGAIN);
    now++;
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), 0);
    CHECK_EQ(machine, SERVER);
    a = beat(COORD_HOST, 1, 60, 21, away);
    CHECK(a && a->packet.role == 1 && net_addr_is(a->packet.at, at(71)) && (uint32_t)a->packet.code == c.server[0].life);
    CHECK(!beat(COORD_SERVER, SERVER, 59, 70, 0));
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), -ENOSPC);
}

/* The old server has stopped, or comes back to its own address; an operator does not wait. */
static void replaces_at_once(void)
{
    uint16_t machine;
    silence();
    CHECK_EQ(join_as(COORD_SERVER, 71, COORD_FORCE, &machine), 0);
    silence();
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -EAGAIN);
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), 0);
    CHECK(c.server[0].life > 1000);
    silence();
    leave(COORD_SERVER, SERVER, 58); /* of another life */
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -EAGAIN);
    start(false);
    CHECK(beat(COORD_SERVER, SERVER, 59, 70, 0));
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -ENOSPC);
    CHECK_EQ(join_as(COORD_SERVER, 71, COORD_FORCE, &machine), -ENOSPC); /* it lives */
    leave(COORD_SERVER, SERVER, 59);
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), 0);
}

/* A server of FissLock is behind the switch: no host uses it, so none has to confirm. */
static void replaces_behind_the_switch(void)
{
    uint16_t machine = 0;
    design = "fisslock";
    start(false);
    CHECK(beat(COORD_SERVER, SERVER, 59, 70, 0));
    now += lease_surely_over(c.config.lease_ns);
    CHECK(beat(COORD_HOST, 1, 60, 21, 0));
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -ENOSPC); /* not silent for long enough */
    CHECK_EQ(join_as(COORD_SERVER, 71, COORD_FORCE, &machine), -ENOSPC);
    now++;
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), 0);
    CHECK(machine == SERVER && c.server[0].life > 1000 && net_addr_is(c.server[0].at, at(71)));
    CHECK(!beat(COORD_SERVER, SERVER, 59, 70, 0)); /* the old one decides nothing any more */
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), -ENOSPC);
    start(false);
    CHECK(beat(COORD_SERVER, SERVER, 59, 70, 0));
    leave(COORD_SERVER, SERVER, 59);
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), 0);
    design = "srvlock";
}

/* A free place may be that of a lock server that lives and was not heard of yet: for a second it is given to no other one. */
static void settles(void)
{
    uint16_t machine = 0;
    servers = 2;
    start(false);
    now += NS_PER_S - 1;
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), -EAGAIN);
    now++;
    CHECK_EQ(join_as(COORD_SERVER, 71, 0, &machine), 0);
    CHECK_EQ(machine, SERVER + 1);
    servers = 1;
}

/* Hosts that joined before the space grew in place stay, and are told how many locks there are. Others are refused. */
static void grows(void)
{
    static struct directory d;
    start(false);
    directory_init(&d, PAWL_KEYS_NAMED, c.config.locks - 7);
    CHECK_EQ(directory_grow(&d, c.config.locks - 2), 0);
    c.directory = &d;
    CHECK_EQ(directory_grow(&d, c.config.locks), 0);
    fewer = 1;
    CHECK(!beat(COORD_HOST, 1, 60, 21, 0)); /* the space never had so many */
    fewer = 7;
    other_sum = true;
    CHECK(!beat(COORD_HOST, 1, 60, 21, 0));
    other_sum = false;
    const struct coord_beat *ack = beat(COORD_HOST, 1, 60, 21, 0);
    CHECK(ack && ack->packet.head.index == c.config.locks);
    fewer = 2;
    CHECK(beat(COORD_HOST, second, 61, 22, 0));
    fewer = 0;
    directory_free(&d);
}

/* The first answer to a JOIN was lost. The host counts its lease from the JOIN that was answered, and so does the coordinator. */
static void asks_again(void)
{
    uint16_t first = 0, machine = 0;
    start(false);
    CHECK(beat(COORD_SERVER, SERVER, 59, 70, 0));
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &first), 0);
    now += MEMBER_NS - 1;
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &machine), 0);
    CHECK_EQ(machine, first);
    uint32_t life = c.members[first].life;
    now += lease_surely_over(MEMBER_NS) - 1;
    coordinator_tick(&c, now);
    CHECK(c.members[first].live && coordinator_host_life(&c, first) == life); /* I16 */
    now++;
    coordinator_tick(&c, now);
    CHECK(!c.members[first].live);
}

/* With a key, a JOIN that was recorded takes no place and no number: its sender does not know a life that was told since. */
static void recorded(void)
{
    uint16_t machine = 0;
    start(false);
    c.keyed = true;
    told = 0;
    process = 1;
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), COORD_ANEW);
    uint32_t first = told;
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), 0);
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), 0); /* once more: the same member */
    process = 2;
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), COORD_ANEW); /* it was started anew */
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), 0);
    uint32_t life = c.server[0].life;
    process = 1;
    told = first;
    CHECK_EQ(join_as(COORD_SERVER, 70, 0, &machine), COORD_ANEW); /* the JOIN of the first process, as it was */
    CHECK_EQ(c.server[0].life, life);
    told = 0;
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &machine), COORD_ANEW);
    uint32_t then = told;
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &machine), 0);
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &machine), 0); /* the same host */
    life = c.life;
    leave(COORD_HOST, machine, members[machine].life);
    told = then;
    CHECK_EQ(join_as(COORD_HOST, 20, 0, &machine), COORD_ANEW);
    CHECK_EQ(c.life, life);
    told = 0;
    process = 0;
}

int main(void)
{
    asks_again();
    recorded();
    grows();
    settles();
    restarts();
    changes(false);
    changes(true);
    replaces();
    second = MACHINES;
    replaces();
    second = 2;
    replaces_at_once();
    replaces_behind_the_switch();
    return 0;
}
