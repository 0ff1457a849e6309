/* SPDX-License-Identifier: Apache-2.0 */
/* Forged packets against a rack: in the name of hosts, lock servers, switches, coordinators and operators, from an
 * address that is not theirs, or with a life that no coordinator gave. After each attack the holder holds its lock, a rival does
 * not get it, all members go on, and the packets are counted as refused. PAWL_TEST_DESIGN: srvlock (the default), fisslock,
 * netlock. PAWL_TEST_KEY: the rack has a key, and the forger sends each packet untagged, tagged with the key of another cluster,
 * with that of the rival's host, and with that of a host that has not joined. It has read the nonce of the holder's JOIN then, and
 * uses the holder's address. Operators' commands come with the cluster's own key, too, and without the admin key. */
#include "tests/udp/forge.h"
#include "wire/many.h"

#include <errno.h>

#define LOCK 5
#define FREE_LOCK 6
#define HIGHEST UINT32_MAX
#define TIMES 3 /* each attack comes so often: one packet may be taken for another's duplicate */

enum from { ELSEWHERE, SAME_MACHINE, FROMS }; /* the forger's address: one of its own, or the holder's with another port */
enum to { COORDINATOR, SERVER, SWITCH, HOST };

static struct host victim; /* the holder's host */
static struct rack_identity identity;
static struct udp forger[FROMS];
static uint8_t family;

/* By which key the forger tags. */
enum tagging { UNTAGGED, OTHER_CLUSTER, OTHER_HOST, OTHER_FILE, CLUSTER, TAGGINGS };
static const char *const tagging_names[] = {"without a tag", "with another cluster's key", "with another host's key",
                                            "with the key file of a host", "with the cluster's key"};
static struct seal_key tag_keys[TAGGINGS];
static enum tagging tagging;
#define FILE_NUMBER 7 /* of OTHER_FILE */

/* ---- packets ---- */

static struct packet {
    _Alignas(8) uint8_t bytes[PACKET_MAX];
    uint32_t len;
} packet;

static struct coord_packet *coordinator_packet_of(enum coord_type type, uint32_t len)
{
    struct coord_packet *p = (struct coord_packet *)(void *)packet.bytes;
    coord_make(p, type, rack_space, &identity, rack_ring.count ? victim.header->nonce : 1);
    packet.len = len;
    p->term = HIGHEST;
    p->head.from = (struct place){victim.header->machine, PORT_POOL};
    p->head.epoch = victim.header->life;
    p->code = coord_config_sum(&victim.header->config);
    p->stamp = host_now();
    return p;
}

/* To the host, in the coordinator's name. */
static struct coord_packet *order(enum coord_type type, uint32_t len)
{
    struct coord_packet *p = coordinator_packet_of(type, len);
    p->head.from = (struct place){MACHINE_NONE, 0};
    p->head.to = (struct place){victim.header->machine, PORT_POOL};
    return p;
}

static uint32_t len_of(uint8_t of)
{
    return of == PACKET_FISSION   ? sizeof(struct fission_packet)
           : of == PACKET_NETLOCK ? sizeof(struct netlock_packet)
                                  : sizeof(struct srv_packet);
}

/* In the holder's name, of its lock, in its latest life; the caller changes what it wants. */
static struct packet_head *lock_packet(uint8_t type)
{
    struct packet_head *h = (struct packet_head *)(void *)packet.bytes;
    packet.len = len_of(family);
    *h = (struct packet_head){.version = PACKET_VERSION,
                              .family = family,
                              .type = type,
                              .space = victim.header->config.space,
                              .epoch = family == PACKET_FISSION ? forge_board->switch_life : victim.header->life,
                              .index = LOCK,
                              .nonce = (UINT64_C(1) << 40) + 2,
                              .from = {victim.header->machine, 1000},
                              .to = {family == PACKET_SERVER ? victim.header->config.server[0] : MACHINE_SWITCH,
                                     family == PACKET_SERVER ? PORT_SERVER : PORT_POOL}};
    if (family == PACKET_FISSION) {
        struct fission_packet *p = (struct fission_packet *)(void *)h;
        p->client = h->from;
        p->mode = p->old_mode = FISSION_EXCLUSIVE;
        if (type == FISSION_LEASE)
            h->nonce = victim.header->life;
    } else if (family == PACKET_NETLOCK) {
        ((struct netlock_packet *)(void *)h)->mode = NETLOCK_EXCLUSIVE;
        ((struct netlock_packet *)(void *)h)->client = h->from;
    } else {
        ((struct srv_packet *)(void *)h)->mode = PAWL_EXCLUSIVE;
    }
    return h;
}

/* ---- attacks on the coordinator ---- */

static void leave(uint32_t life)
{
    coordinator_packet_of(COORD_LEAVE, sizeof(struct coord_packet))->head.epoch = life ? life : victim.header->life;
}

static void beat(uint32_t role)
{
    struct coord_beat *b = (struct coord_beat *)(void *)coordinator_packet_of(COORD_BEAT, sizeof *b);
    b->packet.role = role;
    b->places = HIGHEST;
    b->packet.at = net_v4(RACK_LOCALHOST, 66);
    if (role == COORD_SERVER) {
        b->packet.head.from = (struct place){victim.header->config.server[0], PORT_SERVER};
        b->packet.head.epoch = forge_board->server_life;
    } else if (role == COORD_SWITCH) {
        b->packet.head.from = (struct place){MACHINE_SWITCH, 0};
        b->packet.head.epoch = forge_board->switch_life;
    }
}

static void beat_of_life(uint32_t life)
{
    beat(COORD_HOST);
    ((struct coord_packet *)(void *)packet.bytes)->head.epoch = life;
}

static void station_leaves(uint32_t role)
{
    beat(role);
    ((struct coord_packet *)(void *)packet.bytes)->head.type = COORD_LEAVE;
    packet.len = sizeof(struct coord_packet);
}

/* In the place of a lock server or switch that lives, with its address. */
static void join_as(uint32_t role)
{
    struct coord_packet *p = coordinator_packet_of(COORD_JOIN, sizeof(struct coord_welcome));
    p->role = role;
    p->at = net_v4(RACK_LOCALHOST, (uint16_t)forge_board->granter_ports[role == COORD_SWITCH ? forge_board->granters - 1 : 0]);
    p->identity.features = PACKET_FEATURES;
    p->head.nonce = 4711;
}

static void rules(uint32_t code)
{
    struct coord_packet *p = coordinator_packet_of(COORD_RULES, sizeof(struct coord_ruled));
    p->code = (int32_t)code;
    p->head.index = 0;
    p->head.generation = 64;
    p->role = 0;
}

/* The operator's word to the coordinator before a session is broken. */
static void break_announced(uint32_t session)
{
    struct coord_packet *p = coordinator_packet_of(COORD_BREAK, sizeof(struct coord_packet));
    p->role = session;
    p->code = (int32_t)victim.sessions[session].serial;
    p->head.to.machine = victim.header->machine;
}

static void too_short(uint32_t type)
{
    coordinator_packet_of((enum coord_type)type, sizeof(struct coord_packet))->role = COORD_HOST;
}

static void retired(uint32_t round)
{
    coordinator_packet_of(COORD_RETIRED, sizeof(struct coord_packet))->stamp = round;
}

static void other_identity(uint32_t version)
{
    beat(COORD_HOST);
    ((struct coord_packet *)(void *)packet.bytes)->identity.version = version;
}

static void unreadable(uint32_t features)
{
    beat(COORD_HOST);
    ((struct coord_packet *)(void *)packet.bytes)->head.features = (uint8_t)features;
}

/* ---- attacks on granters ---- */

static void here(uint32_t life)
{
    coordinator_packet_of(COORD_HERE, sizeof(struct coord_packet))->head.epoch = life ? life : victim.header->life;
}

/* Two requests of the holder's for a lock that is free, in one datagram. Each alone would be granted. */
static void equal_locks(uint32_t count)
{
    _Alignas(8) uint8_t part[PACKET_MAX];
    struct packet_head *h = lock_packet(family == PACKET_FISSION ? (uint8_t)FISSION_ACQUIRE : (uint8_t)NETLOCK_ACQUIRE);
    const uint32_t len = packet.len;
    h->index = FREE_LOCK;
    memcpy(part, h, len);
    struct many_front *front = (struct many_front *)(void *)packet.bytes;
    const struct packet_head first = *h;
    packet.len = sizeof *front;
    many_begin(front, &first);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(packet.bytes + packet.len, part, len);
        CHECK(many_add(front, len, &packet.len));
    }
}

static void lock_type(uint32_t type)
{
    lock_packet((uint8_t)type);
}

static void lease(uint32_t life)
{
    struct packet_head *h = lock_packet(family == PACKET_FISSION   ? (uint8_t)FISSION_LEASE
                                        : family == PACKET_NETLOCK ? (uint8_t)NETLOCK_LEASE
                                                                   : (uint8_t)SRV_LEASE);
    if (family == PACKET_FISSION)
        h->nonce = life;
    else
        h->epoch = life;
}

/* A host leaves: what it holds would be free at once. */
static void lease_back(uint32_t life)
{
    lease(life ? life : victim.header->life);
    if (family == PACKET_FISSION)
        ((struct fission_packet *)(void *)packet.bytes)->flags = FISSION_DONE;
}

static void of_machine(uint32_t machine)
{
    struct packet_head *h = lock_packet(family == PACKET_NETLOCK ? NETLOCK_TERM : 2);
    h->from.machine = (uint16_t)machine;
    h->epoch = HIGHEST;
    ((struct netlock_packet *)(void *)h)->life = HIGHEST;
    packet.len = sizeof(struct netlock_packet);
}

/* Throttles a tenant. */
static void command(uint32_t tenant)
{
    struct netlock_command *c = (struct netlock_command *)(void *)(packet.bytes + sizeof(struct netlock_packet));
    lock_packet(NETLOCK_COMMAND)->from = (struct place){MACHINE_OPERATOR, 1000};
    *c = (struct netlock_command){.kind = NETLOCK_COMMAND_QUOTA, .tenant = tenant, .rate = 1, .burst = 1};
    packet.len = NETLOCK_COMMAND_BYTES;
}

static void said_by_coordinator(uint32_t type)
{
    static const struct {
        enum coord_type type;
        uint32_t len;
    } lens[] = {{COORD_WELCOME, sizeof(struct coord_welcome)},
                {COORD_BEAT_ACK, sizeof(struct coord_beat)},
                {COORD_HOSTS, sizeof(struct coord_hosts)}};
    uint32_t len = sizeof(struct coord_packet);
    for (unsigned i = 0; i < countof(lens); i++)
        len = lens[i].type == type ? lens[i].len : len;
    struct coord_packet *p = order((enum coord_type)type, len);
    p->code = type == COORD_REFUSED ? -ESTALE : 0;
    if (type != COORD_HOSTS)
        return;
    struct coord_hosts *h = (struct coord_hosts *)(void *)p; /* the holder's number is the forger's from now on */
    h->count = 1;
    h->host[0] = (struct coord_host){.at = forger[ELSEWHERE].at, .machine = victim.header->machine, .life = HIGHEST};
}

static void not_leader(uint32_t code)
{
    (void)code;
    struct coord_packet *p = order(COORD_REFUSED, sizeof *p);
    p->code = COORD_NOT_LEADER;
    p->at = forger[ELSEWHERE].at;
}

/* An answer to an echo: a member that answers it sends it to and fro with another for ever. */
static void echo_back(uint32_t type)
{
    struct packet_head *h = (struct packet_head *)(void *)packet.bytes;
    *h = (struct packet_head){.version = PACKET_VERSION, .family = PACKET_ECHO, .type = (uint8_t)type, .space = 1};
    packet.len = sizeof *h;
}

/* ---- attacks on the host ---- */

static void retire(uint32_t round)
{
    struct coord_retire *r = (struct coord_retire *)(void *)order(COORD_RETIRE, sizeof *r);
    r->round = round;
    r->count = 1;
    r->key[0].index = LOCK;
}

static void break_session(uint32_t session)
{
    struct coord_packet *p = order(COORD_BREAK, sizeof *p);
    p->role = session;
    p->code = (int32_t)victim.sessions[session].serial;
}

/* In a granter's name, with the nonces that the holder's requests may have. */
static void by_granter(uint32_t type)
{
    struct packet_head *h = lock_packet((uint8_t)type);
    struct place to = h->to;
    h->to = (struct place){victim.header->machine, PORT_POOL};
    h->from = to;
    h->epoch = HIGHEST; /* of a granter that has lost its memory: holds would lapse */
    ((struct srv_packet *)(void *)h)->stamp = host_now();
}

/* ---- the table ---- */

static const char echo_asked[] = "an echo of a stranger"; /* answered in a rack without a key, and to key files of the cluster */

static const struct attack {
    const char *name;
    enum to to;
    enum from from;
    void (*make)(uint32_t arg);
    uint32_t arg;
    uint8_t family; /* of that design alone; 0: of all */
    bool mute;      /* an answer would be the attack */
} attacks[] = {
    {"LEAVE of the holder's host", COORDINATOR, ELSEWHERE, leave, 0, 0, false},
    {"LEAVE of a life that was not given", COORDINATOR, SAME_MACHINE, leave, HIGHEST, 0, true},
    {"BEAT of the holder's host", COORDINATOR, ELSEWHERE, beat, COORD_HOST, 0, true},
    {"BEAT without the host's nonce", COORDINATOR, SAME_MACHINE, beat, COORD_HOST, 0, true},
    {"BEAT of the highest life", COORDINATOR, ELSEWHERE, beat_of_life, HIGHEST, 0, false},
    {"BEAT of the highest life, from the host's address", COORDINATOR, SAME_MACHINE, beat_of_life, HIGHEST, 0, false},
    {"BEAT of a later configuration", COORDINATOR, ELSEWHERE, other_identity, 99, 0, false},
    {"BEAT with features that are not known", COORDINATOR, ELSEWHERE, unreadable, 0xff, 0, true},
    {"BEAT of the lock server", COORDINATOR, ELSEWHERE, beat, COORD_SERVER, PACKET_SERVER, true},
    {"BEAT of the switch", COORDINATOR, ELSEWHERE, beat, COORD_SWITCH, PACKET_FISSION, true},
    {"BEAT of the switch", COORDINATOR, ELSEWHERE, beat, COORD_SWITCH, PACKET_NETLOCK, true},
    {"LEAVE of the lock server", COORDINATOR, ELSEWHERE, station_leaves, COORD_SERVER, PACKET_SERVER, true},
    {"LEAVE of the switch", COORDINATOR, ELSEWHERE, station_leaves, COORD_SWITCH, PACKET_FISSION, true},
    {"LEAVE of the switch", COORDINATOR, ELSEWHERE, station_leaves, COORD_SWITCH, PACKET_NETLOCK, true},
    {"JOIN in the lock server's place", COORDINATOR, ELSEWHERE, join_as, COORD_SERVER, PACKET_SERVER, false},
    {"JOIN in the switch's place", COORDINATOR, ELSEWHERE, join_as, COORD_SWITCH, PACKET_FISSION, false},
    {"JOIN in the switch's place", COORDINATOR, ELSEWHERE, join_as, COORD_SWITCH, PACKET_NETLOCK, false},
    {"JOIN of no role", COORDINATOR, ELSEWHERE, join_as, 9, 0, false},
    {"RULES that divide the locks anew", COORDINATOR, ELSEWHERE, rules, 1, 0, false},
    {"BREAK of the holder's session, announced", COORDINATOR, ELSEWHERE, break_announced, 0, 0, false},
    {"RETIRED of round 0", COORDINATOR, ELSEWHERE, retired, 0, 0, true},
    {"JOIN that is shorter than its answer", COORDINATOR, ELSEWHERE, too_short, COORD_JOIN, 0, true},
    {"WHO that is shorter than its answer", COORDINATOR, ELSEWHERE, too_short, COORD_WHO, 0, true},
    {"RULES that are shorter than their answer", COORDINATOR, ELSEWHERE, too_short, COORD_RULES, 0, true},
    {"HERE of the holder's host", SWITCH, ELSEWHERE, here, 0, 0, true},
    {"HERE of the highest life", SWITCH, ELSEWHERE, here, HIGHEST, 0, true},
    {"HERE of the highest life, from the host's address", SWITCH, SAME_MACHINE, here, HIGHEST, 0, true},
    {"LEASE of the highest life", SWITCH, ELSEWHERE, lease, HIGHEST, 0, true},
    {"LEASE of the highest life, from the host's address", SWITCH, SAME_MACHINE, lease, HIGHEST, 0, true},
    {"LEASE that is given back", SWITCH, ELSEWHERE, lease_back, 0, 0, true},
    {"HERE to the lock server", SERVER, ELSEWHERE, here, HIGHEST, 0, true},
    {"two requests for one lock in a datagram", SWITCH, SAME_MACHINE, equal_locks, 2, PACKET_FISSION, true},
    {"two requests for one lock in a datagram", SWITCH, SAME_MACHINE, equal_locks, 2, PACKET_NETLOCK, true},
    {"in the name of the switch", SWITCH, ELSEWHERE, of_machine, MACHINE_SWITCH, 0, true},
    {"in the name of the steward", SWITCH, ELSEWHERE, of_machine, MACHINE_STEWARD, 0, true},
    {"in the name of a lock server", SWITCH, ELSEWHERE, of_machine, 9, 0, true},
    {"in the name of the switch, to the lock server", SERVER, ELSEWHERE, of_machine, MACHINE_SWITCH, 0, true},
    {"in the name of the steward, to the lock server", SERVER, ELSEWHERE, of_machine, MACHINE_STEWARD, 0, true},
    {"COMMAND of an operator", SWITCH, ELSEWHERE, command, 0, PACKET_NETLOCK, true},
    {"WELCOME", SWITCH, ELSEWHERE, said_by_coordinator, COORD_WELCOME, 0, true},
    {"BEAT_ACK of the highest term", SWITCH, ELSEWHERE, said_by_coordinator, COORD_BEAT_ACK, 0, true},
    {"REFUSED: the granter's life is over", SWITCH, ELSEWHERE, said_by_coordinator, COORD_REFUSED, 0, true},
    {"HOSTS with another address of the holder's", SWITCH, ELSEWHERE, said_by_coordinator, COORD_HOSTS, 0, true},
    {"REFUSED: another coordinator leads", SWITCH, ELSEWHERE, not_leader, 0, 0, true},
    {"an echo's answer", SWITCH, ELSEWHERE, echo_back, ECHO_BACK, 0, true},
    {"an echo's answer, to the lock server", SERVER, ELSEWHERE, echo_back, ECHO_BACK, 0, true},
    {echo_asked, SWITCH, ELSEWHERE, echo_back, ECHO_ASK, 0, true},
    {"REFUSED: the host's life is over", HOST, ELSEWHERE, said_by_coordinator, COORD_REFUSED, 0, true},
    {"REFUSED, from the host's address", HOST, SAME_MACHINE, said_by_coordinator, COORD_REFUSED, 0, true},
    {"BEAT_ACK of the highest term, to the host", HOST, ELSEWHERE, said_by_coordinator, COORD_BEAT_ACK, 0, true},
    {"ROUSE", HOST, ELSEWHERE, said_by_coordinator, COORD_ROUSE, 0, true},
    {"RETIRE of the holder's key", HOST, ELSEWHERE, retire, HIGHEST, 0, true},
    {"REFUSED: another coordinator leads, to the host", HOST, ELSEWHERE, not_leader, 0, 0, true},
    {"BREAK of the holder's session", HOST, ELSEWHERE, break_session, 0, 0, true},
};

/* ---- the rounds ---- */

static uint64_t refused(enum to to)
{
    return to == HOST ? __atomic_load_n(&victim.header->forged, __ATOMIC_ACQUIRE)
                      : __atomic_load_n(&forge_board->refused[to != COORDINATOR], __ATOMIC_ACQUIRE);
}

static struct net_addr address(enum to to)
{
    uint32_t port = to == COORDINATOR ? forge_board->coordinator_port
                    : to == SERVER    ? forge_board->granter_ports[0]
                                      : forge_board->granter_ports[forge_board->granters - 1];
    return to == HOST ? victim.header->pool : net_v4(RACK_LOCALHOST, (uint16_t)port);
}

/* No answer is longer than its question. Whether there was one. */
static bool answered(enum from from)
{
    static struct udp_batch batch;
    bool any = false;
    while (udp_receive(&forger[from], &batch))
        for (unsigned i = 0; i < batch.count; i++) {
            any = true;
            CHECK(batch.packet[i].len <= packet.len);
        }
    return any;
}

/* At another port: late answers to earlier packets do not come there. */
static void move_forger(enum from from)
{
    const struct net_addr at = net_addr_at_port(forger[from].at, 0);
    udp_close(&forger[from]);
    CHECK_EQ(udp_open(&forger[from], at), 0);
}

static void attack(const struct attack *a, pawl *holder, const pawl_grant *g, pawl *rival)
{
    pawl_grant h;
    uint64_t before = refused(a->to);
    enum from from = rack_ring.count && a->to != HOST ? SAME_MACHINE : a->from; /* with a key addresses say nothing */
    move_forger(from);
    memset(&packet, 0, sizeof packet);
    a->make(a->arg);
    CHECK(packet.len >= sizeof(struct packet_head));
    struct packet_head *head = (struct packet_head *)(void *)packet.bytes;
    bool asks =
        head->family == PACKET_COORDINATOR && (head->type == COORD_JOIN || head->type == COORD_RULES || head->type == COORD_BREAK);
    if (tagging == OTHER_FILE && (asks || !head->from.machine)) /* the tag is right: the key may not do that */
        head->from = (struct place){MACHINE_NONE, FILE_NUMBER};
    if (tagging == CLUSTER && asks)
        head->from = (struct place){MACHINE_NONE, 0};
    if (tagging == CLUSTER) /* whose holder knows the holder's key */
        tag_keys[CLUSTER] = a->to == HOST ? victim.header->key : seal_member_key(&rack_ring.key[0], 0);
    const struct udp_out out = {
        .to = address(a->to), .len = packet.len, .data = packet.bytes, .key = tagging ? &tag_keys[tagging] : NULL};
    for (unsigned i = 0; i < TIMES; i++)
        udp_send(&forger[from], &out, 1);
    for (uint64_t limit = pawl_in(LIMIT_NS); refused(a->to) < before + TIMES; pause_ns(NS_PER_MS / 10))
        if (pawl_now() > limit)
            CHECK_FAIL("%s, %s: was not refused", a->name, tagging_names[tagging]);
    if (answered(from) && a->mute && tagging != CLUSTER)
        CHECK_FAIL("%s: was answered", a->name);
    int rc = pawl_check(holder, g);
    if (rc)
        CHECK_FAIL("%s: the holder's lock is lost: %s", a->name, pawl_strerror(rc));
    rc = pawl_trylock(rival, pawl_id(LOCK), PAWL_EXCLUSIVE, &h);
    if (rc != -PAWL_EHELD)
        CHECK_FAIL("%s: the rival's try ends with %s", a->name, rc ? pawl_strerror(rc) : "the lock");
    if (__atomic_load_n(&forge_board->hosts, __ATOMIC_ACQUIRE) != 2)
        CHECK_FAIL("%s: there are other hosts than before", a->name);
    if (__atomic_load_n(&forge_board->astray, __ATOMIC_ACQUIRE))
        CHECK_FAIL("%s: a granter follows another coordinator", a->name);
}

/* An operator's that changes something. A BREAK to the host may have the right tag, and has no ticket of the coordinator. */
static bool is_command(const struct attack *a)
{
    return a->make == rules || a->make == break_announced || a->make == break_session || a->make == command;
}

static bool is_for(const struct attack *a)
{
    if (a->name == echo_asked)
        return tagging == OTHER_CLUSTER || tagging == OTHER_HOST || (tagging == UNTAGGED && rack_ring.count);
    return (!a->family || a->family == family) && (tagging != CLUSTER || is_command(a));
}

static unsigned attack_all(pawl *holder, const pawl_grant *g, pawl *rival)
{
    unsigned count = 0;
    for (unsigned i = 0; i < countof(attacks); i++)
        if (is_for(&attacks[i])) {
            attack(&attacks[i], holder, g, rival);
            count++;
        }
    /* Each type of lock packet, in the holder's name to the granter, and in the granter's name to the host. */
    unsigned types = family == PACKET_FISSION ? FISSION_ASK : family == PACKET_NETLOCK ? NETLOCK_CHASE : SRV_ENTER;
    for (uint32_t type = 1; type <= types && tagging != CLUSTER; type++) {
        char name[2][48];
        snprintf(name[0], sizeof name[0], "lock packet of type %u", type);
        snprintf(name[1], sizeof name[1], "lock packet of type %u, to the host", type);
        attack(&(struct attack){name[0], SWITCH, ELSEWHERE, lock_type, type, 0, true}, holder, g, rival);
        attack(&(struct attack){name[1], HOST, ELSEWHERE, by_granter, type, 0, true}, holder, g, rival);
        count += 2;
    }
    return count;
}

/* The forger is a host of the rack, has the key file of another, and has read a file of another cluster. */
static void make_keys(void)
{
    struct host rival;
    if (!rack_ring.count)
        return;
    forge_map_host(FORGE_RIVAL, &rival);
    tag_keys[OTHER_CLUSTER] =
        seal_host_key(&(struct seal_key){{1, 2}}, victim.header->config.space, victim.header->machine, victim.header->life);
    tag_keys[OTHER_HOST] = rival.header->key;
    tag_keys[OTHER_FILE] = seal_member_key(&rack_ring.key[0], FILE_NUMBER);
    CHECK(seal_known(&tag_keys[OTHER_HOST]));
    host_close(&rival);
}

int main(void)
{
    const char *design = rack_design("srvlock");
    pawl_grant g, h;
    rack_owner = getpid();
    snprintf(rack_space, sizeof rack_space, "test%d", (int)rack_owner);
    atexit(rack_cleanup);
    rack_make_key();
    forge_board = shared_memory(sizeof *forge_board);
    pid_t rack = child_start(forge_rack_main, (void *)(uintptr_t)design);
    WAIT_FOR(__atomic_load_n(&forge_board->ready, __ATOMIC_ACQUIRE));
    family = design_find(design)->packet->family;
    pawl *holder = forge_open(FORGE_HOLDER), *rival = forge_open(FORGE_RIVAL);
    CHECK_OK(pawl_lock(holder, pawl_id(LOCK), PAWL_EXCLUSIVE, &g));
    CHECK_RC(pawl_trylock(rival, pawl_id(LOCK), PAWL_EXCLUSIVE, &h), -PAWL_EHELD);
    forge_map_host(FORGE_HOLDER, &victim);
    WAIT_FOR(__atomic_load_n(&victim.header->pool.port, __ATOMIC_ACQUIRE) &&
             __atomic_load_n(&forge_board->hosts, __ATOMIC_ACQUIRE) == 2);
    identity = victim.header->config.identity;
    CHECK_EQ(udp_open(&forger[ELSEWHERE], net_v4(0x4200007fu, 0)), 0); /* 127.0.0.66 */
    CHECK_EQ(udp_open(&forger[SAME_MACHINE], net_addr_at_port(victim.header->pool, 0)), 0);
    uint32_t lives[] = {forge_board->server_life, forge_board->switch_life};
    unsigned count = 0;
    make_keys();
    for (tagging = 0; tagging < (rack_ring.count ? TAGGINGS : OTHER_CLUSTER); tagging++)
        count += attack_all(holder, &g, rival);
    CHECK(lives[0] == forge_board->server_life && lives[1] == forge_board->switch_life); /* no member had to join anew */
    CHECK_OK(pawl_trylock(rival, pawl_id(FREE_LOCK), PAWL_EXCLUSIVE, &h));
    CHECK_OK(pawl_unlock(rival, &h));
    CHECK_OK(pawl_unlock(holder, &g));
    CHECK_OK(pawl_lock(rival, pawl_id(LOCK), PAWL_EXCLUSIVE, &h));
    CHECK(h.token > g.token); /* I2 */
    CHECK_OK(pawl_unlock(rival, &h));
    CHECK_OK(pawl_close(holder));
    CHECK_OK(pawl_close(rival));
    printf("%s: %u attacks change nothing, and are counted\n", design, count);
    host_close(&victim);
    child_kill(rack);
    return 0;
}
