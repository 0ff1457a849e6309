/* The coordinator without a network: who gets which number, when it is used again, what a repetition is told, and what a
 * coordinator that starts anew knows. */
#include "cluster/coordinator.h"
#include "tests/check.h"

#include <errno.h>

#define MACHINES 3
#define LEASE_NS NS_PER_S

static struct coord_member members[MACHINES + 1];
static struct coordinator c;
static _Alignas(8) uint8_t answer[PACKET_MAX];
static uint64_t now;

static void start_design(const char *design, bool fresh, uint32_t life)
{
    const char *why;
    const struct coord_params p = {.design = design_find(design),
                                   .space = "test",
                                   .locks = 10,
                                   .lease_ns = LEASE_NS,
                                   .retry_ns = NS_PER_MS,
                                   .machines = MACHINES,
                                   .sessions = 2,
                                   .requests = 2,
                                   .servers = strcmp(design, "srvlock") ? 0 : 1,
                                   .life = life,
                                   .fresh = fresh};
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
}

static void start(bool fresh, uint32_t life)
{
    start_design("srvlock", fresh, life);
}

static const struct coord_packet *ask(const struct coord_packet *p, uint16_t port)
{
    const struct net_addr from = {.ip = 1, .port = port};
    uint32_t len = coordinator_packet(&c, p, sizeof *p, from, now, answer);
    const struct coord_packet *a = (const struct coord_packet *)(const void *)answer;
    CHECK(!len || coord_check(answer, len, c.config.space) == a);
    return len ? a : NULL;
}

static const struct coord_packet *join(enum coord_role role, uint64_t nonce, uint16_t port)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "test", nonce);
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

static const struct coord_packet *beat(uint16_t machine, uint32_t life)
{
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, "test", 1);
    p.head.from.machine = machine;
    p.head.epoch = life;
    p.stamp = 42;
    p.code = coord_config_sum(&c.config);
    return ask(&p, 7);
}

/* A lock server or switch lives. */
static const struct coord_packet *station_beats(enum coord_role role, uint16_t machine, uint32_t life, uint16_t saw, uint32_t left)
{
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, "test", 77);
    p.head.from.machine = machine;
    p.head.epoch = life;
    p.head.index = saw;
    p.head.generation = left;
    p.role = role;
    p.at = (struct net_addr){.ip = 1, .port = 70};
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
    CHECK_EQ(join(COORD_SERVER, 1, 70)->head.generation, life);     /* a repetition */
    CHECK_EQ(join(COORD_SERVER, 2, 70)->head.generation, life + 1); /* it has started anew */
    CHECK_EQ(code(join(COORD_SERVER, 3, 71)), -ENOSPC);
    CHECK_EQ(code(join(COORD_SWITCH, 3, 71)), -EOPNOTSUPP);
    CHECK_EQ(number(5), 1);
    CHECK_EQ(number(5), 1);
    CHECK_EQ(number(6), 2);
    CHECK_EQ(number(7), 3);
    CHECK_EQ(code(join(COORD_HOST, 8, 7)), -ENOSPC);
    CHECK_EQ(beat(1, members[1].life)->stamp, 42);
    now += LEASE_NS * 3 / 4;
    CHECK_EQ(beat(1, members[1].life)->head.type, COORD_BEATEN);
    CHECK_EQ(code(beat(2, members[2].life + 1)), -ESTALE);
    now += LEASE_NS / 2; /* 2 and 3 were silent for too long */
    uint32_t old = members[2].life;
    CHECK_EQ(code(beat(2, old)), -ESTALE);
    CHECK_EQ(number(8), 2);
    CHECK(members[2].life > old && members[2].life > members[1].life);
    CHECK_EQ(beat(1, members[1].life)->head.type, COORD_BEATEN);
    CHECK(!beat(0, 1) && !beat(MACHINES + 1, 1) && !beat(1, 0));
}

/* Hosts that beat are adopted; numbers are given out when the others' leases have ended. */
static void anew(void)
{
    start(false, 50);
    CHECK(join(COORD_SERVER, 1, 70));
    CHECK_EQ(code(join(COORD_HOST, 9, 7)), -EAGAIN);
    CHECK_EQ(beat(2, 120)->head.type, COORD_BEATEN);
    CHECK_EQ(code(beat(2, 119)), -ESTALE);
    now += LEASE_NS * 3 / 4;
    CHECK_EQ(beat(2, 120)->head.type, COORD_BEATEN);
    now += LEASE_NS / 2;
    CHECK_EQ(code(beat(3, 121)), -ESTALE); /* too late */
    CHECK_EQ(number(9), 1);
    CHECK_EQ(number(10), 3);
    CHECK(members[1].life > 120);
}

static void leaving(void)
{
    struct coord_packet p;
    coord_make(&p, COORD_LEAVE, "test", 1);
    p.head.from.machine = 1;
    p.head.epoch = members[1].life - 1;
    CHECK(!ask(&p, 7) && members[1].live); /* not this one */
    p.head.epoch = members[1].life;
    CHECK(!ask(&p, 7) && !members[1].live);
    coord_make(&p, COORD_JOIN, "other", 11);
    p.role = COORD_HOST;
    CHECK(!ask(&p, 7)); /* another space's number */
    p.head.space = c.config.space;
    CHECK_EQ(code(ask(&p, 7)), -ENOENT);
}

/* Those that joined a former coordinator take their places again; nobody else takes them, nor one of another rack. */
static void rejoining(void)
{
    start(false, 200);
    CHECK_EQ(code(station_beats(COORD_SERVER, MACHINES + 2, 150, 0, 0)), -ESTALE); /* there is no such server */
    CHECK_EQ(station_beats(COORD_SERVER, MACHINES + 1, 250, 0, 0)->head.type, COORD_BEATEN);
    CHECK_EQ(code(station_beats(COORD_SERVER, MACHINES + 1, 249, 0, 0)), -ESTALE);
    CHECK_EQ(beat(2, 240)->head.type, COORD_BEATEN);
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, "test", 1);
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
    start_design("fisslock", true, 300);
    const struct coord_welcome *w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, 3, 70);
    CHECK(w->packet.head.type == COORD_WELCOME && w->live_known && !w->live[0]);
    uint32_t life = w->packet.head.generation;
    for (uint64_t i = 1; i <= MACHINES; i++)
        CHECK_EQ(number(20 + i), i);
    CHECK_EQ(code(join(COORD_HOST, 30, 7)), -ENOSPC);
    CHECK_EQ(station_beats(COORD_SWITCH, MACHINE_SWITCH, life, 0, 0)->head.index, 0);
    now += LEASE_NS / 2;
    CHECK_EQ(beat(1, members[1].life)->head.type, COORD_BEATEN);
    CHECK_EQ(beat(3, members[3].life)->head.type, COORD_BEATEN);
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
    start_design("fisslock", false, 400); /* who may be there is not known for a lease */
    w = (const struct coord_welcome *)(const void *)join(COORD_SWITCH, 5, 70);
    CHECK(w->packet.head.type == COORD_WELCOME && !w->live_known);
}

int main(void)
{
    numbers();
    anew();
    rejoining();
    scanning();
    numbers();
    leaving();
    return 0;
}
