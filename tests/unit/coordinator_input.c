/* SPDX-License-Identifier: Apache-2.0 */
/* Input of a coordinator: racks that cannot be, packets that are none, keys, and lists of hosts. */
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"

#include <errno.h>

#define MACHINES 40 /* more than one list of hosts has */

static struct coord_member members[MACHINES + 1];
static struct coordinator c;
static _Alignas(8) uint8_t answer[PACKET_MAX];
static uint64_t now = NS_PER_S;

static struct coord_params params(const char *design)
{
    return coordinator_rack(design, MACHINES);
}

/* Null: the rack can be. */
static const char *refused(const struct coord_params *p)
{
    static struct coord_member many[MACHINE_MAX + 1];
    const char *why = NULL;
    struct coordinator other;
    int rc = coordinator_init(&other, p, many, now, &why);
    CHECK_EQ(rc, why ? -EINVAL : 0);
    return why;
}

#define REFUSED(design, text, ...)                                                                                                 \
    do {                                                                                                                           \
        struct coord_params p = params(design);                                                                                    \
        __VA_ARGS__;                                                                                                               \
        const char *why_ = refused(&p);                                                                                            \
        if (!why_ || !strstr(why_, text))                                                                                          \
            CHECK_FAIL("%s: %s", #__VA_ARGS__, why_ ? why_ : "taken");                                                             \
    } while (0)

#define TAKEN(design, ...)                                                                                                         \
    do {                                                                                                                           \
        struct coord_params p = params(design);                                                                                    \
        __VA_ARGS__;                                                                                                               \
        const char *why_ = refused(&p);                                                                                            \
        if (why_)                                                                                                                  \
            CHECK_FAIL("%s: %s", #__VA_ARGS__, why_);                                                                              \
    } while (0)

static void racks(void)
{
    char name[COORD_NAME_LEN + 1];
    memset(name, 'n', sizeof name);
    name[COORD_NAME_LEN - 1] = 0;
    TAKEN("srvlock", p.space = name);
    name[COORD_NAME_LEN - 1] = 'n';
    name[COORD_NAME_LEN] = 0;
    REFUSED("srvlock", "name", p.space = name);
    REFUSED("srvlock", "name", p.space = "");
    REFUSED("word", "UDP", (void)0);
    REFUSED("mutex", "UDP", (void)0);
    REFUSED("srvlock", "must not be 0", p.machines = 0);
    REFUSED("srvlock", "must not be 0", p.sessions = 0);
    REFUSED("srvlock", "must not be 0", p.requests = 0);
    REFUSED("srvlock", "must not be 0", p.locks = 0);
    TAKEN("srvlock", p.machines = STATE_HOSTS_MAX);
    REFUSED("srvlock", "4096 hosts", p.machines = STATE_HOSTS_MAX + 1);
    TAKEN("srvlock", p.member_ns = p.lease_ns);
    REFUSED("srvlock", "membership", p.member_ns = p.lease_ns - 1);
    REFUSED("srvlock", "must not be 0", p.machines = MACHINE_MAX - RACK_SERVERS_MAX + 1);
    TAKEN("srvlock", p.sessions = 1024, p.requests = 1023);
    REFUSED("srvlock", "1M requests", p.sessions = 1024, p.requests = 1024);
    REFUSED("srvlock", "64 lock servers", p.servers = 0);
    TAKEN("srvlock", p.servers = RACK_SERVERS_MAX);
    REFUSED("srvlock", "64 lock servers", p.servers = RACK_SERVERS_MAX + 1);
    TAKEN("fisslock", p.servers = 0);
    REFUSED("fisslock", "8 racks", p.racks = RACKS_MAX + 1);
    TAKEN("fisslock-racks", p.servers = 0, p.racks = RACKS_MAX);
    REFUSED("fisslock-racks", "no lock servers", p.servers = 1);
    REFUSED("srvlock", "divide", p.racks = 2);
    REFUSED("netlock-switches", "as many lock servers", p.servers = 1);
    TAKEN("netlock-switches", p.servers = 2);
    REFUSED("netlock-switches", "as many lock servers", p.servers = 2, p.racks = 3);
    TAKEN("netlock", p.backup = true);
    REFUSED("srvlock", "backup", p.backup = true);
    REFUSED("netlock-switches", "backup", p.servers = 2, p.backup = true);
    REFUSED("srvlock", "directory", p.keys = PAWL_KEYS_NAMED);
    REFUSED("srvlock", "directory", p.keys = PAWL_KEYS_SPARSE);
    REFUSED("srvlock", "directory", p.directory = (struct directory *)members);
    TAKEN("srvlock", p.keys = PAWL_KEYS_SPARSE, p.directory = (struct directory *)members);
}

static void configs(void)
{
    struct coord_params p = params("netlock");
    const char *why;
    p.servers = 3;
    p.backup = true;
    p.group = 4;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
    CHECK(c.config.switches == 2 && c.config.racks == 0 && c.config.servers == 3 && c.config.group == 4);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(c.config.server[i], MACHINES + 1 + i);
    struct rack_config other = c.config;
    CHECK_EQ(coord_config_sum(&other), coord_config_sum(&c.config));
    other.locks++;
    CHECK(coord_config_sum(&other) != coord_config_sum(&c.config));
    p = params("fisslock-racks");
    p.servers = 0;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
    CHECK(c.config.racks == RACKS_DEFAULT && c.config.switches == 1);
    CHECK_EQ(c.open_ns, now);
    p.fresh = false;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
    CHECK_EQ(c.open_ns, now + NS_PER_S + 2 * (NS_PER_S / RACK_DRIFT_DIVISOR) + 1);
}

/* ---- packets ---- */

static void start(struct directory *d)
{
    struct coord_params p = params("srvlock");
    const char *why;
    p.keys = d ? PAWL_KEYS_NAMED : PAWL_KEYS_DENSE;
    p.directory = d;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
}

static uint32_t sender = 1; /* its address */

static uint32_t ask(const void *p, uint32_t len)
{
    return coordinator_packet(&c, p, len, net_v4(sender, 9), now, answer);
}

static const struct coord_packet *answered(void)
{
    return (const struct coord_packet *)(const void *)answer;
}

static struct coord_packet joining(enum coord_role role, uint64_t nonce)
{
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "test", NULL, nonce);
    p.role = role;
    return p;
}

static void not_a_packet(struct coord_packet p, uint32_t len)
{
    uint64_t bad = c.drops.bad;
    CHECK_EQ(ask(&p, len), 0);
    CHECK_EQ(c.drops.bad, bad + 1);
}

static void unreadable(struct coord_packet p, uint32_t len)
{
    uint64_t before = c.drops.unreadable;
    CHECK_EQ(ask(&p, len), 0);
    CHECK_EQ(c.drops.unreadable, before + 1);
}

#define WITH(packet, field, value)                                                                                                 \
    ({                                                                                                                             \
        struct coord_packet with_ = (packet);                                                                                      \
        with_.field = (value);                                                                                                     \
        with_;                                                                                                                     \
    })

static void packets(void)
{
    start(NULL);
    const struct coord_packet p = joining(COORD_HOST, 5);
    const uint32_t len = sizeof p;
    not_a_packet(p, len - 1);
    unreadable(WITH(p, head.version, PACKET_VERSION + 1), len);
    unreadable(WITH(p, head.features, (uint8_t)~PACKET_FEATURES), len);
    not_a_packet(WITH(p, head.family, PACKET_SERVER), len);
    not_a_packet(WITH(p, space[COORD_NAME_LEN - 1], 'x'), len);
    not_a_packet(WITH(p, head.nonce, 0), len);
    not_a_packet(WITH(p, role, 0), len);
    not_a_packet(WITH(p, role, COORD_SWITCH + 1), len);
    for (unsigned type = COORD_WELCOME; type <= COORD_CLAIMED; type++) /* too short for their type, or nothing for a coordinator */
        if (type != COORD_LEAVE && type != COORD_WHO)
            not_a_packet(WITH(p, head.type, (uint8_t)type), len);
    not_a_packet(WITH(p, head.type, COORD_RULED + 1), len);
    CHECK_EQ(ask(&p, len), sizeof(struct coord_packet));
    CHECK(answered()->head.type == COORD_REFUSED && answered()->code == -EAGAIN); /* no server has joined */
    struct coord_packet other = p;
    snprintf(other.space, sizeof other.space, "other");
    ask(&other, len);
    CHECK_EQ(answered()->code, -ENOENT);
}

/* Bounds of what is in longer packets. */
static void lengths(void)
{
    union {
        struct coord_packet p;
        struct coord_key key;
        struct coord_hosts hosts;
        struct coord_claimed claimed;
        struct coord_ruled ruled;
        struct coord_beat beat;
        struct coord_welcome welcome;
        uint8_t bytes[PACKET_MAX];
    } u = {.bytes = {0}};
    const struct rack_identity identity = coord_identity_of_name("test");
    uint32_t space = rack_short_id(&identity);
    coord_make(&u.p, COORD_FIND, "test", &identity, 1);
    u.key.len = DIRECTORY_KEY_MAX;
    CHECK(coord_check(&u, sizeof u.key, space) && !coord_check(&u, sizeof u.key - 1, space));
    u.key.len++;
    CHECK(!coord_check(&u, sizeof u.key, space));
    memset(&u, 0, sizeof u);
    coord_make(&u.p, COORD_HOSTS, "test", &identity, 1);
    u.hosts.count = COORD_HOSTS_MAX;
    CHECK(coord_check(&u, sizeof u.hosts, space) && !coord_check(&u, sizeof u.hosts - 1, space));
    u.hosts.count++;
    CHECK(!coord_check(&u, sizeof u.hosts, space));
    memset(&u, 0, sizeof u);
    coord_make(&u.p, COORD_CLAIMED, "test", &identity, 1);
    u.claimed.count = COORD_CLAIMS_MAX;
    CHECK(coord_check(&u, sizeof u.claimed, space) && !coord_check(&u, sizeof u.claimed - 1, space));
    u.claimed.count++;
    CHECK(!coord_check(&u, sizeof u.claimed, space));
    coord_make(&u.p, COORD_RULED, "test", &identity, 1);
    CHECK(coord_check(&u, sizeof u.ruled, space) && !coord_check(&u, sizeof u.ruled + 1, space));
    coord_make(&u.p, COORD_BEAT_ACK, "test", &identity, 1);
    CHECK(coord_check(&u, sizeof u.beat, space) && !coord_check(&u, sizeof u.beat - 1, space));
    coord_make(&u.p, COORD_WELCOME, "test", &identity, 1);
    CHECK(coord_check(&u, sizeof u.welcome, space) && !coord_check(&u, sizeof u.welcome - 1, space));
    CHECK(!coord_check(&u, sizeof u.welcome, space + 1));
}

/* ---- hosts ---- */

static void join_all(void)
{
    struct coord_packet p = joining(COORD_SERVER, 1);
    p.at = net_v4(1, 4);
    CHECK_EQ(ask(&p, sizeof p), sizeof(struct coord_welcome));
    const struct coord_welcome *w = (const void *)answer;
    CHECK(w->servers[0].port == 4 && w->packet.head.to.machine == MACHINES + 1 && !w->live_known);
    uint32_t life = w->packet.head.generation;
    for (uint16_t m = 1; m <= MACHINES; m++) {
        p = joining(COORD_HOST, 100 + m);
        sender = 1 + m / 8; /* an address has ten of the forty numbers at most */
        ask(&p, sizeof p);
        CHECK(w->packet.head.type == COORD_WELCOME && w->packet.head.to.machine == m);
        CHECK(w->packet.head.generation > life && w->packet.head.nonce == 100u + m);
        life = w->packet.head.generation;
    }
    p = joining(COORD_HOST, 99);
    ask(&p, sizeof p);
    CHECK_EQ(answered()->code, -ENOSPC);
    sender = 1;
}

/* One address has a quarter of the numbers, and adds names as fast as is usual: others find room. */
static void limits(void)
{
    struct coord_packet p = joining(COORD_SERVER, 1);
    start(NULL);
    p.at = net_v4(1, 4);
    CHECK_EQ(ask(&p, sizeof p), sizeof(struct coord_welcome));
    for (unsigned i = 0; i < MACHINES; i++) {
        p = joining(COORD_HOST, 100 + i);
        ask(&p, sizeof p);
        CHECK_EQ(answered()->head.type, i < MACHINES / COORD_HOSTS_SHARE ? COORD_WELCOME : COORD_REFUSED);
    }
    CHECK_EQ(answered()->code, -EUSERS);
    CHECK_EQ(c.drops.limited, MACHINES - MACHINES / COORD_HOSTS_SHARE);
    sender = 2;
    p = joining(COORD_HOST, 99);
    ask(&p, sizeof p);
    CHECK_EQ(answered()->head.type, COORD_WELCOME);
    sender = 1;
    static struct limits l;
    struct net_addr one = net_v4(1, 9), other = net_v4(2, 9);
    unsigned taken = 0;
    for (unsigned i = 0; i < 100; i++)
        taken += limits_take(&l, one, 10, 30, NS_PER_S);
    CHECK_EQ(taken, 30);
    CHECK(limits_take(&l, other, 10, 30, NS_PER_S)); /* another address does not notice */
    for (unsigned i = 0; i < 100; i++)
        taken += limits_take(&l, one, 10, 30, 2 * NS_PER_S);
    CHECK_EQ(taken, 40); /* ten more in a second, */
    for (unsigned i = 0; i < 100; i++)
        taken += limits_take(&l, one, 10, 30, 3600 * NS_PER_S);
    CHECK_EQ(taken, 70); /* and no more than the burst after an hour */
}

static void lists(void)
{
    start(NULL);
    join_all();
    struct coord_packet p;
    coord_make(&p, COORD_LEAVE, "test", &c.config.identity, 107);
    p.head.from.machine = 7;
    p.head.epoch = c.members[7].life - 1; /* of another life */
    CHECK(!ask(&p, sizeof p) && c.members[7].live);
    p.head.epoch++;
    p.head.nonce++; /* not the one of its JOIN */
    uint64_t forged = c.drops.forged;
    CHECK(!ask(&p, sizeof p) && c.members[7].live && c.drops.forged == forged + 1);
    p.head.nonce--;
    CHECK(!ask(&p, sizeof p) && !c.members[7].live);
    p.head.from.machine = MACHINES + 1;
    CHECK(!ask(&p, sizeof p));
    coord_make(&p, COORD_WHO, "test", &c.config.identity, 3);
    CHECK_EQ(ask(&p, sizeof p), sizeof(struct coord_hosts));
    const struct coord_hosts *h = (const void *)answer;
    CHECK(h->count == COORD_HOSTS_MAX && h->packet.head.index == COORD_HOSTS_MAX + 2 && h->sessions == 2 && h->requests == 2);
    CHECK(h->host[0].machine == 1 && h->host[6].machine == 8 && h->host[6].life == c.members[8].life);
    CHECK(h->locks == 10 && h->lease_ns == NS_PER_S && !strcmp(h->design, "srvlock") && h->packet.head.nonce == 3);
    p.head.index = h->packet.head.index;
    ask(&p, sizeof p);
    CHECK(h->count == MACHINES - COORD_HOSTS_MAX - 1 && !h->packet.head.index && h->host[h->count - 1].machine == MACHINES);
    snprintf(p.space, sizeof p.space, "other");
    ask(&p, sizeof p);
    CHECK_EQ(answered()->code, -ENOENT);
}

/* Hosts are roused one after the other, those that have left are not. */
static void rousing(void)
{
    _Alignas(8) uint8_t packet[PACKET_MAX];
    struct net_addr to;
    start(NULL);
    join_all();
    CHECK_EQ(coordinator_more(&c, packet, &to), 0);
    c.members[2].live = false;
    c.rouse_next = 1;
    const struct coord_packet *p = (const void *)packet;
    for (unsigned m = 1; m <= MACHINES; m += m == 1 ? 2 : 1) {
        CHECK_EQ(coordinator_more(&c, packet, &to), sizeof *p);
        CHECK(p->head.type == COORD_ROUSE && p->head.to.machine == m && p->head.epoch == c.members[m].life && to.port == 9);
    }
    CHECK_EQ(coordinator_more(&c, packet, &to), 0);
}

int main(void)
{
    racks();
    configs();
    packets();
    lengths();
    limits();
    lists();
    rousing();
    return 0;
}
