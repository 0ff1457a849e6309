/* SPDX-License-Identifier: Apache-2.0 */
/* Forged datagrams against a memory node: in the name of a client that is connected, of a client that never was, from a client
 * that asks for what it may not have, and of other kinds than a memory node knows. The forger knows all that a client's datagrams
 * show but its secret tag; with a key it knows the tag, too, and sends each datagram without a trail, with that of another
 * cluster's key, with that of another host's file, and with a trail that is cut or changed. After each attack the holder holds its
 * lock, a rival does not get it, the client in whose name it came goes on with its requests, and the metrics count it.
 *
 * `pawl serve` runs on loopback. PAWL_TEST_LAB: in a lab, with the node in the kernel. PAWL_TEST_KEY: with a key. */
#include "cluster/coordinator.h"
#include "cluster/layout.h"
#include "fabric/node_udp.h"
#include "pawl.h"
#include "tests/lab/rack.h"
#include "tests/shm/space.h"
#include "wire/key_file.h"
#include "world/world.h"

#include <stdlib.h>
#include <sys/prctl.h>

#define LOCK 5
#define CANARY 3072 /* a word of the header's page that no header reaches */
#define CANARY_IS UINT64_C(0x600d600d600d600d)
#define TIMES 3 /* each attack comes so often */
#define SESSIONS 32
#define CLIENTS (2 * SESSIONS + 16) /* of the node */
#define FLOOD 400                   /* datagrams of each flood */
#define FILE_NUMBER 7               /* of the forger's key file */
#define VICTIM_NUMBER 1             /* of the honest client's */
#define VICTIM_NONCE 4

static struct node_udp victim, own; /* own: the forger's, which has connected as a client may */
static uint64_t cell;               /* where the holder's lock is */
static bool in_lab, keyed;
static pid_t owner;
static char key_path[64];
static uint16_t http_port;
static struct net_addr node;
static char space_name[VERBS_NAME_LEN];

/* ---- the metrics ---- */

static void fetch(struct net_addr at, char *out, size_t room)
{
    static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(at.port), .sin_addr.s_addr = net_addr_v4(&at)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t len = 0;
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to));
    CHECK_EQ(send(fd, ask, sizeof ask - 1, 0), (ssize_t)sizeof ask - 1);
    for (ssize_t got; (got = recv(fd, out + len, room - 1 - len, 0)) > 0;)
        len += (size_t)got;
    CHECK(len && len < room - 1);
    out[len] = 0;
    close(fd);
}

/* Of pawl_dropped_packets_total, by reason. */
static uint64_t dropped(const char *reason)
{
    static char page[1 << 18];
    char wanted[64];
    uint64_t sum = 0;
    fetch(net_addr_at_port(node, http_port), page, sizeof page);
    snprintf(wanted, sizeof wanted, "reason=\"%s\"", reason);
    for (char *line = strtok(page, "\n"); line; line = strtok(NULL, "\n")) {
        const char *value = strrchr(line, ' ');
        if (!strncmp(line, "pawl_dropped_packets_total{", 27) && strstr(line, wanted) && value)
            sum += strtoull(value + 1, NULL, 10);
    }
    return sum;
}

/* ---- datagrams ---- */

static struct shot {
    _Alignas(8) uint8_t bytes[VERBS_PACKET_MAX + sizeof(struct seal_trail)];
    uint32_t len;
} shot;

static struct verbs_head *begin(const struct fab_node *as, enum verbs_type type, uint32_t len)
{
    struct verbs_head *h = (struct verbs_head *)(void *)shot.bytes;
    memset(&shot, 0, sizeof shot);
    shot.len = len;
    *h = (struct verbs_head){.magic = VERBS_MAGIC,
                             .version = VERBS_VERSION,
                             .type = (uint8_t)type,
                             .len = (uint16_t)len,
                             .space = as->space,
                             .node_life = as->node_life,
                             .client = as->client,
                             .life = as->life,
                             .sequence = as->next,
                             .tag = as->tag};
    return h;
}

static void add_verb(struct verbs_op op, const uint64_t *operands, uint32_t count)
{
    struct verbs_head *h = (struct verbs_head *)(void *)shot.bytes;
    memcpy(shot.bytes + shot.len, &op, sizeof op);
    if (count)
        memcpy(shot.bytes + shot.len + sizeof op, operands, count * sizeof *operands);
    shot.len += (uint32_t)sizeof op + op.room;
    h->len = (uint16_t)shot.len;
    h->count++;
}

/* Of that type, in the victim's name, as its next request: a BATCH would free the lock and overwrite the canary. */
static struct verbs_head *of_victim(uint8_t type)
{
    static const uint64_t zero;
    struct verbs_head *h;
    if (type == VERBS_BATCH) {
        h = begin(&victim.node, VERBS_BATCH, sizeof *h);
        add_verb((struct verbs_op){.verb = VERBS_WRITE, .room = 8, .offset = cell}, &zero, 1);
        add_verb((struct verbs_op){.verb = VERBS_WRITE, .room = 8, .offset = CANARY}, &zero, 1);
    } else if (type == VERBS_WAIT) {
        struct verbs_cond c = {.offset = CANARY};
        h = begin(&victim.node, VERBS_WAIT, offsetof(struct verbs_wait, cond) + sizeof c);
        h->count = 1;
        memcpy(shot.bytes + offsetof(struct verbs_wait, cond), &c, sizeof c);
    } else if (type == VERBS_FENCE) { /* the session of the holder's handle, or another client's: all that there are so far */
        h = begin(&victim.node, VERBS_FENCE, sizeof(struct verbs_fence));
        ((struct verbs_fence *)(void *)h)->peer = !victim.node.client;
        ((struct verbs_fence *)(void *)h)->peer_life = UINT32_MAX;
    } else {
        h = begin(&victim.node, (enum verbs_type)type, type == VERBS_ATTACH ? sizeof(struct verbs_attach) : sizeof *h);
    }
    if (!keyed)
        h->tag = ~h->tag; /* which the forger cannot read */
    return h;
}

enum wrong {
    WRONG_TAG,
    NO_TAG,
    OWN_TAG,
    NEXT_LIFE,
    HIGHEST_LIFE,
    NO_CLIENT,
    LAST_CLIENT,
    FORMER_LIFE,
    WRONG_NODE_LIFE,
    WRONG_SPACE,
    WRONG_VERSION,
    WRONG_FEATURE,
    WRONGS
};

static void change(struct verbs_head *h, enum wrong wrong)
{
    h->tag = wrong == NO_TAG ? 0 : wrong == OWN_TAG ? own.node.tag : h->tag;
    h->life += wrong == NEXT_LIFE;
    if (wrong == HIGHEST_LIFE)
        h->life = UINT32_MAX;
    if (wrong == FORMER_LIFE)
        h->life--;
    if (wrong == NO_CLIENT)
        h->client = CLIENTS;
    if (wrong == LAST_CLIENT)
        h->client = UINT32_MAX;
    h->node_life -= wrong == WRONG_NODE_LIFE;
    h->space += wrong == WRONG_SPACE;
    h->version = (uint8_t)(h->version + (wrong == WRONG_VERSION));
    h->features = wrong == WRONG_FEATURE;
}

static const struct {
    const char *name, *reason;
} wrongs[WRONGS] = {
    {"a wrong tag", "forged"},        {"no tag", "forged"},           {"the tag of the forger's own", "forged"},
    {"the next life", "forged"},      {"the highest life", "forged"}, {"a number that the node does not have", "forged"},
    {"the highest number", "forged"}, {"a former life", "shut-out"},  {"another life of the node", "shut-out"},
    {"another space", "alien"},       {"another version", "alien"},   {"a feature that the node does not know", "alien"}};

/* ---- of a client that may send, and asks for what it may not have ---- */

static struct verbs_head *of_own(enum verbs_type type, uint32_t len)
{
    return begin(&own.node, type, len);
}

static void own_verb(uint32_t which)
{
    static const struct verbs_op verbs[] = {
        {.verb = VERBS_WRITE, .room = 64, .offset = UINT64_C(1) << 40},
        {.verb = VERBS_WRITE, .room = 64, .offset = UINT64_MAX - 7},
        {.verb = VERBS_WRITE, .room = 64, .offset = UINT64_MAX - 63},
        {.verb = VERBS_READ, .room = 64, .offset = UINT64_C(1) << 40},
        {.verb = VERBS_CAS, .width = 8, .room = 16, .offset = UINT64_C(1) << 40},
        {.verb = VERBS_MCAS, .width = 16, .room = 64, .offset = UINT64_MAX - 15},
        {.verb = VERBS_WRITE, .room = 8, .offset = CANARY + 4},
        {.verb = VERBS_FAA, .width = 16, .room = 16, .offset = CANARY + 8},
        {.verb = VERBS_FAA, .width = 4, .room = 8, .offset = CANARY},
        {.verb = VERBS_FAA, .width = 32, .room = 32, .offset = CANARY},
        {.verb = VERBS_SWAP, .width = 8, .room = 16, .offset = CANARY},
        {.verb = VERBS_CAS, .width = 8, .room = 8, .offset = CANARY},
        {.verb = VERBS_WRITE, .width = 8, .room = 8, .offset = CANARY},
        {.verb = VERBS_WRITE, .room = 0, .offset = CANARY},
        {.verb = VERBS_WRITE, .room = 12, .offset = CANARY},
        {.verb = 0, .room = 8, .offset = CANARY},
        {.verb = VERBS_VERBS, .width = 8, .room = 8, .offset = CANARY},
        {.verb = 255, .width = 8, .room = 8, .offset = CANARY},
        {.verb = VERBS_WRITE, .room = 8, .unused = 1, .offset = CANARY},
    };
    of_own(VERBS_BATCH, sizeof(struct verbs_head));
    add_verb(verbs[which], NULL, 0);
}
#define OWN_VERBS 19

/* The first verb of a request takes no effect if its last one cannot. */
static void second_verb(uint32_t arg)
{
    static const uint64_t zero;
    (void)arg;
    of_own(VERBS_BATCH, sizeof(struct verbs_head));
    add_verb((struct verbs_op){.verb = VERBS_WRITE, .room = 8, .offset = cell}, &zero, 1);
    add_verb((struct verbs_op){.verb = VERBS_WRITE, .room = 8, .offset = UINT64_MAX - 7}, &zero, 1);
}

static void own_count(uint32_t count)
{
    static const uint64_t zero;
    struct verbs_head *h = of_own(VERBS_BATCH, sizeof *h);
    for (uint32_t i = 0; i < 33; i++)
        add_verb((struct verbs_op){.verb = VERBS_WRITE, .room = 8, .offset = CANARY}, &zero, 1);
    h->count = (uint16_t)count;
}

/* More results than the reply cache has room for. */
static void own_results(uint32_t count)
{
    of_own(VERBS_BATCH, sizeof(struct verbs_head));
    for (uint32_t i = 0; i < count; i++)
        add_verb((struct verbs_op){.verb = VERBS_FAA, .width = 16, .room = 16, .offset = CANARY}, NULL, 0);
}

/* The last verb's room ends behind the datagram. */
static void own_room(uint32_t room)
{
    struct verbs_op op = {.verb = VERBS_READ, .room = (uint16_t)room, .offset = CANARY};
    struct verbs_head *h = of_own(VERBS_BATCH, sizeof *h + sizeof op);
    memcpy(shot.bytes + sizeof *h, &op, sizeof op);
    h->count = 1;
}

static void own_sequence(uint32_t ahead)
{
    static const uint64_t zero;
    struct verbs_head *h = of_own(VERBS_BATCH, sizeof *h);
    add_verb((struct verbs_op){.verb = VERBS_WRITE, .room = 8, .offset = CANARY}, &zero, 1);
    h->sequence = ahead ? h->sequence + ahead : 0;
}

static void own_wait(uint32_t count)
{
    struct verbs_head *h = of_own(VERBS_WAIT, offsetof(struct verbs_wait, cond) + count * sizeof(struct verbs_cond));
    h->count = (uint16_t)count;
}

static void own_wait_at(uint32_t shift)
{
    struct verbs_cond c = {.offset = shift ? UINT64_C(1) << shift : UINT64_MAX - 7};
    struct verbs_head *h = of_own(VERBS_WAIT, offsetof(struct verbs_wait, cond) + sizeof c);
    h->count = 1;
    memcpy(shot.bytes + offsetof(struct verbs_wait, cond), &c, sizeof c);
}

static void own_fence(uint32_t peer)
{
    struct verbs_fence *f = (struct verbs_fence *)(void *)of_own(VERBS_FENCE, sizeof *f);
    f->peer = peer ? peer : own.node.client;
    f->peer_life = UINT32_MAX;
}

static void own_short(uint32_t type)
{
    of_own((enum verbs_type)type, sizeof(struct verbs_head));
}

static void own_type(uint32_t type)
{
    of_own((enum verbs_type)type, sizeof(struct verbs_attach));
}

/* ---- datagrams that no client sends ---- */

static struct verbs_connect *connect_packet(uint64_t nonce)
{
    struct verbs_connect *c = (struct verbs_connect *)(void *)begin(&victim.node, VERBS_CONNECT, sizeof *c);
    memcpy(c->name, space_name, strlen(space_name));
    c->nonce = nonce;
    return c;
}

enum connect { CONNECT_NO_NONCE, CONNECT_NO_END, CONNECT_ELSEWHERE, CONNECT_VERSION, CONNECT_FEATURE, CONNECT_CUT };

static void wrong_connect(uint32_t how)
{
    struct verbs_connect *c = connect_packet(how == CONNECT_NO_NONCE ? 0 : 4711);
    if (how == CONNECT_NO_END)
        memset(c->name, 'a', sizeof c->name);
    if (how == CONNECT_ELSEWHERE)
        memcpy(c->name, "elsewhere", 10);
    c->head.version = (uint8_t)(c->head.version + (how == CONNECT_VERSION));
    c->head.features = how == CONNECT_FEATURE;
    if (how == CONNECT_CUT)
        c->head.len = (uint16_t)(shot.len = sizeof c->head);
}

static void victims_connect(uint32_t arg)
{
    (void)arg;
    connect_packet(VICTIM_NONCE);
}

/* The longest datagram, of which the length is told otherwise. */
static void wrong_length(uint32_t len)
{
    struct verbs_head *h = of_victim(VERBS_BATCH);
    shot.len = VERBS_PACKET_MAX;
    h->len = (uint16_t)len;
}

static void cut(uint32_t len)
{
    of_victim(VERBS_BATCH);
    shot.len = len;
}

static void answer(uint32_t type)
{
    of_victim((uint8_t)type)->type |= VERBS_ANSWER;
}

static void with_status(uint32_t status)
{
    of_victim(VERBS_BATCH)->status = (uint8_t)status;
}

/* A packet of a rack, not of a memory node. */
static void rack_packet(uint32_t family)
{
    struct packet_head *h = (struct packet_head *)(void *)shot.bytes;
    memset(&shot, 0, sizeof shot);
    shot.len = family == PACKET_ECHO ? sizeof *h : 128;
    *h = (struct packet_head){.version = PACKET_VERSION,
                              .family = (uint8_t)family,
                              .type = family == PACKET_ECHO ? (uint8_t)ECHO_BACK : 1,
                              .space = victim.node.space,
                              .index = LOCK,
                              .from = {1, 1000}};
}

static void coordinators(uint32_t type)
{
    struct rack_identity identity = coord_identity_of_name(space_name);
    memset(&shot, 0, sizeof shot);
    coord_make((struct coord_packet *)(void *)shot.bytes, (enum coord_type)type, space_name, &identity, 1);
    shot.len = sizeof(struct coord_packet);
}

static void noise(uint32_t byte)
{
    memset(&shot, (int)byte, sizeof shot);
    shot.len = 200;
}

/* ---- the table ---- */

enum by { VICTIM, OWN, STRANGER }; /* in whose name; with a key a client's own datagrams have the right tag */

static const struct attack {
    const char *name, *reason;
    void (*make)(uint32_t arg);
    uint32_t arg;
    enum by by;
} attacks[] = {
    {"a verb beyond the last of a request's verbs", "bad", second_verb, 0, OWN},
    {"33 verbs", "bad", own_count, 33, OWN},
    {"no verb, and bytes of 33", "bad", own_count, 0, OWN},
    {"fewer verbs than their bytes", "bad", own_count, 32, OWN},
    {"65,535 verbs", "bad", own_count, 65535, OWN},
    {"more results than are kept", "bad", own_results, 17, OWN},
    {"a READ that is longer than its datagram", "bad", own_room, 1400, OWN},
    {"a READ of 65,528 bytes", "bad", own_room, 65528, OWN},
    {"a request that comes too soon", "late", own_sequence, 1, OWN},
    {"a request far ahead", "late", own_sequence, UINT32_MAX, OWN},
    {"a WAIT without conditions", "bad", own_wait, 0, OWN},
    {"a WAIT for nine words", "bad", own_wait, 9, OWN},
    {"a WAIT for 50 words", "bad", own_wait, 50, OWN},
    {"a WAIT beyond the memory", "bad", own_wait_at, 40, OWN},
    {"a WAIT at the last address", "bad", own_wait_at, 0, OWN},
    {"a WAIT between two words", "bad", own_wait_at, 2, OWN},
    {"a FENCE of itself", "bad", own_fence, 0, OWN},
    {"a FENCE of a number that the node does not have", "bad", own_fence, UINT32_MAX, OWN},
    {"a FENCE that ends early", "bad", own_short, VERBS_FENCE, OWN},
    {"an ATTACH", "bad", own_type, VERBS_ATTACH, OWN},
    {"a type that there is not", "bad", own_type, 7, OWN},
    {"the last type", "bad", own_type, 127, OWN},
    {"no type", "bad", own_type, 0, OWN},
    {"CONNECT without a nonce", "bad", wrong_connect, CONNECT_NO_NONCE, OWN},
    {"CONNECT with a name without an end", "bad", wrong_connect, CONNECT_NO_END, OWN},
    {"CONNECT to another space", "alien", wrong_connect, CONNECT_ELSEWHERE, OWN},
    {"CONNECT of another version", "alien", wrong_connect, CONNECT_VERSION, OWN},
    {"CONNECT with a feature that the node does not know", "alien", wrong_connect, CONNECT_FEATURE, OWN},
    {"CONNECT that ends early", "bad", wrong_connect, CONNECT_CUT, OWN},
    {"a datagram that says it is longer", "bad", wrong_length, VERBS_PACKET_MAX + 8, VICTIM},
    {"a datagram that says it is shorter", "bad", wrong_length, 48, VICTIM},
    {"a datagram that says it is empty", "bad", wrong_length, 0, VICTIM},
    {"a datagram that says it has 65,535 bytes", "bad", wrong_length, 65535, VICTIM},
    {"a head and no more of its verbs", "bad", cut, sizeof(struct verbs_head), VICTIM},
    {"half of a verb", "bad", cut, sizeof(struct verbs_head) + 8, VICTIM},
    {"half of a head", "unreadable", cut, sizeof(struct verbs_head) / 2, VICTIM},
    {"a byte", "unreadable", cut, 1, VICTIM},
    {"an answer of a BATCH", "bad", answer, VERBS_BATCH, VICTIM},
    {"an answer of a WAIT", "bad", answer, VERBS_WAIT, VICTIM},
    {"an answer of a CONNECT", "bad", answer, VERBS_CONNECT, VICTIM},
    {"an answer of a FENCE", "bad", answer, VERBS_FENCE, VICTIM},
    {"a request with the status of an answer", "bad", with_status, VERBS_FENCED, VICTIM},
    {"an echo's answer", "unreadable", rack_packet, PACKET_ECHO, STRANGER},
    {"a packet to a lock server", "unreadable", rack_packet, PACKET_SERVER, STRANGER},
    {"a packet to a switch of fisslock", "unreadable", rack_packet, PACKET_FISSION, STRANGER},
    {"a packet to a switch of netlock", "unreadable", rack_packet, PACKET_NETLOCK, STRANGER},
    {"a coordinator's REFUSED", "unreadable", coordinators, COORD_REFUSED, STRANGER},
    {"a coordinator's WELCOME", "unreadable", coordinators, COORD_WELCOME, STRANGER},
    {"a LEAVE to a coordinator", "unreadable", coordinators, COORD_LEAVE, STRANGER},
    {"a BREAK to a host", "unreadable", coordinators, COORD_BREAK, STRANGER},
    {"zeros", "unreadable", noise, 0, STRANGER},
    {"ones", "unreadable", noise, 0xff, STRANGER},
};

/* ---- the rounds ---- */

enum tagging { UNTAGGED, OTHER_CLUSTER, OTHER_FILE, CUT_TRAIL, CHANGED, TAGGINGS };
static const char *const tagging_names[] = {"without a trail", "with another cluster's key", "with another host's file",
                                            "with half a trail", "with a trail of other bytes"};
static enum tagging tagging;
static struct seal_ring ring, other_ring;

static struct seal_asker asker_of(uint64_t number)
{
    return (struct seal_asker){.key = seal_member_key(&ring.key[0], number), .number = number};
}

static void connect_raw(struct node_udp *u, uint64_t number, uint64_t nonce)
{
    CHECK_EQ(node_udp_open(u, node, (struct net_addr){0}), 0);
    if (keyed)
        u->asker = asker_of(number);
    CHECK_EQ(fab_node_connect(&u->node, space_name, nonce, pawl_in(LIMIT_NS)), 0);
    u->node.patience_ns = LIMIT_NS;
}

/* Sends what is in `shot`, as the forger of this round. */
static void send_shot(int fd, bool right)
{
    struct shot s = shot;
    const struct seal_asker host = asker_of(FILE_NUMBER),
                            other = {.key = seal_member_key(&other_ring.key[0], VICTIM_NUMBER), .number = VICTIM_NUMBER};
    if (keyed && (right || tagging != UNTAGGED))
        s.len = seal_trail_put(tagging == OTHER_CLUSTER && !right ? &other : &host, s.bytes, s.len);
    if (keyed && !right && tagging == CUT_TRAIL)
        s.len -= sizeof(struct seal_trail) / 2;
    if (keyed && !right && tagging == CHANGED)
        s.bytes[s.len - 1] ^= 1;
    CHECK_EQ(send(fd, s.bytes, s.len, MSG_NOSIGNAL), (ssize_t)s.len);
}

struct scene {
    pawl *holder, *rival;
    pawl_grant *held;
    int forger[2]; /* from another address, and from the clients' */
    unsigned count;
};

static void still_holds(struct scene *s, const char *name)
{
    pawl_grant g;
    uint64_t word;
    int rc = pawl_check(s->holder, s->held);
    if (rc)
        CHECK_FAIL("%s: the holder's lock is lost: %s", name, pawl_strerror(rc));
    rc = pawl_trylock(s->rival, pawl_id(LOCK), PAWL_EXCLUSIVE, &g);
    if (rc != -PAWL_EHELD)
        CHECK_FAIL("%s: the rival's try ends with %s", name, rc ? pawl_strerror(rc) : "the lock");
    rc = fab_read64(&victim.node.fab, CANARY, &word);
    if (rc || word != CANARY_IS)
        CHECK_FAIL("%s: the client's request ends with %d, and finds 0x%" PRIx64, name, rc, word);
}

/* How often they were counted so far. With a key the tag or the length, of which the tag is a part, may be wrong first. */
static uint64_t counted(const char *reason)
{
    return dropped(reason) + (keyed ? dropped("untagged") + dropped("bad") : 0);
}

static void await_counted(const char *name, const char *reason, uint64_t wanted)
{
    for (uint64_t limit = pawl_in(LIMIT_NS); counted(reason) < wanted; pause_ns(10 * NS_PER_MS))
        if (pawl_now() > limit)
            CHECK_FAIL("%s, %s: %" PRIu64 " are counted as %s, not %" PRIu64, name,
                       keyed ? tagging_names[tagging] : "without a key", counted(reason), reason, wanted);
}

static void attack(struct scene *s, const char *name, const char *reason, bool right)
{
    uint64_t before = counted(reason);
    for (unsigned i = 0; i < TIMES; i++)
        send_shot(s->forger[s->count & 1], right);
    await_counted(name, reason, before + TIMES);
    still_holds(s, name);
    s->count++;
}

static void attack_in_victims_name(struct scene *s)
{
    static const char *const types[] = {"CONNECT", "BATCH", "WAIT", "FENCE", "LEAVE", "ATTACH"};
    char name[128];
    for (uint8_t type = VERBS_BATCH; type <= VERBS_ATTACH; type++)
        for (enum wrong w = 0; w < WRONGS; w++) {
            struct verbs_head *h = of_victim(type);
            change(h, w);
            snprintf(name, sizeof name, "%s with %s", types[type - 1], wrongs[w].name);
            attack(s, name, wrongs[w].reason, false);
        }
}

static void attack_all(struct scene *s)
{
    for (unsigned i = 0; i < countof(attacks); i++) {
        const struct attack *a = &attacks[i];
        bool right = a->by == OWN;
        if (right && tagging) /* once */
            continue;
        a->make(a->arg);
        attack(s, a->name, a->reason, right);
    }
    for (uint32_t i = 0; i < OWN_VERBS && !tagging; i++) {
        char name[64];
        own_verb(i);
        snprintf(name, sizeof name, "verb %u of those that cannot be", i);
        attack(s, name, "bad", true);
    }
    if (tagging == OTHER_FILE) { /* who has read the nonce does not become the client */
        victims_connect(0);
        attack(s, "CONNECT with the victim's nonce", "untagged", false);
    }
    attack_in_victims_name(s);
}

/* ---- what has been recorded, and floods ---- */

static void write_number(uint64_t number)
{
    CHECK_EQ(fab_write(&victim.node.fab, CANARY + 8, &number, sizeof number), 0);
}

static void send_recorded(struct scene *s)
{
    for (unsigned i = 0; i < TIMES; i++)
        CHECK_EQ(send(s->forger[0], shot.bytes, shot.len, 0), (ssize_t)shot.len);
}

/* A request of the victim's comes again with its right tag, from another address: a late duplicate. */
static void replay(struct scene *s)
{
    const struct seal_asker by = asker_of(VICTIM_NUMBER);
    uint64_t word;
    write_number(1);
    const struct node_request *r = &victim.node.requests[(victim.node.next - 1) % VERBS_WINDOW];
    shot.len = r->len;
    memcpy(shot.bytes, r->packet, r->len);
    if (keyed)
        shot.len = seal_trail_put(&by, shot.bytes, shot.len);
    write_number(2);
    send_recorded(s); /* the node still has its results */
    for (unsigned i = 0; i < 2 * VERBS_WINDOW; i++) {
        CHECK_EQ(fab_read64(&victim.node.fab, CANARY + 8, &word), 0);
        CHECK_EQ(word, 2);
    }
    uint64_t before = counted("late");
    send_recorded(s); /* and has them no more */
    await_counted("a request that was recorded", "late", before + TIMES);
    CHECK_EQ(fab_read64(&victim.node.fab, CANARY + 8, &word), 0);
    CHECK_EQ(word, 2);
    still_holds(s, "a request that was recorded");
    s->count += 2;
}

static void pause_often(uint64_t i)
{
    if (i % 16 == 15)
        pause_ns(2 * NS_PER_MS); /* the node's socket has room for so many */
}

/* Numbers for all clients that one machine can make up. Another machine connects all the same. */
static void flood_connects(struct scene *s)
{
    struct node_udp late;
    uint64_t before = counted("limited");
    for (uint64_t i = 0; i < FLOOD; i++) {
        connect_packet(UINT64_C(1000000) + i);
        send_shot(s->forger[0], true);
        pause_often(i);
    }
    await_counted("a flood of CONNECTs", "limited", before + FLOOD - CLIENTS);
    still_holds(s, "a flood of CONNECTs");
    connect_raw(&late, VICTIM_NUMBER, 77);
    fab_node_leave(&late.node, pawl_in(LIMIT_NS));
    node_udp_close(&late);
    s->count++;
}

/* LEAVEs or ATTACHes of each number, in its first lives. */
static void flood_ends(struct scene *s, enum verbs_type type)
{
    const char *name = type == VERBS_LEAVE ? "a flood of LEAVEs" : "a flood of ATTACHes";
    uint64_t before = counted("forged") + dropped("shut-out"), limit = pawl_in(LIMIT_NS);
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct verbs_head *h = of_victim((uint8_t)type);
        h->client = i / 4;
        h->life = 1 + i % 4;
        send_shot(s->forger[i & 1], false);
        pause_often(i);
    }
    while (counted("forged") + dropped("shut-out") < before + FLOOD) {
        if (pawl_now() > limit)
            CHECK_FAIL("%s: %" PRIu64 " of %d are counted", name, counted("forged") + dropped("shut-out") - before, FLOOD);
        pause_ns(10 * NS_PER_MS);
    }
    still_holds(s, name);
    s->count++;
}

/* No answer is longer than the longest question: what comes back in place has the length of what came. */
static uint64_t answers(const struct scene *s)
{
    uint8_t bytes[2048];
    uint64_t sum = 0;
    for (unsigned i = 0; i < countof(s->forger); i++)
        for (ssize_t got; (got = recv(s->forger[i], bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
            sum += (uint64_t)got;
    return sum;
}

/* ---- the scene ---- */

static void enter(unsigned host)
{
    if (in_lab)
        CHECK_EQ(lab_enter(&rack, 1, host), 0);
}

static int forgers_socket(unsigned host, const char *address)
{
    enter(host);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET},
                       to = {.sin_family = AF_INET, .sin_port = htons(node.port), .sin_addr.s_addr = net_addr_v4(&node)};
    if (!in_lab)
        CHECK_EQ(inet_pton(AF_INET, address, &from.sin_addr), 1);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&from, sizeof from) && !connect(fd, (struct sockaddr *)&to, sizeof to));
    return fd;
}

static pid_t start_node(void)
{
    char words[640], at[NET_ADDR_TEXT], more[256] = "", bpf[LAB_PATH];
    net_addr_print_ip(node, at);
    if (in_lab) {
        lab_bpf(&rack, bpf);
        snprintf(more, sizeof more, "--dev " LAB_UPLINK " --pin %s/node", bpf);
    }
    snprintf(
        words, sizeof words,
        "serve --design word --space %s --listen %s:%u --http %s:%u --keys dense --locks 64 --sessions %d --holds 16 --lease 20s "
        "--fresh %s %s %s",
        space_name, at, node.port, at, http_port, SESSIONS, keyed ? "--key" : "--insecure", keyed ? key_path : "", more);
    if (in_lab)
        return rack_start(words);
    char line[1024];
    const char *build = getenv("PAWL_BUILD");
    snprintf(line, sizeof line, "exec %s/pawl %s >/dev/null", build ? build : "build", words);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static pawl *open_session(pid_t pid)
{
    char where[128], at[NET_ADDR_TEXT];
    pawl *p;
    int status;
    net_addr_print_ip(node, at);
    snprintf(where, sizeof where, "pawl://%s:%u/%s", at, node.port, space_name);
    for (uint64_t limit = pawl_in(LIMIT_NS); pawl_open(where, NULL, &p); pause_ns(20 * NS_PER_MS)) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            SKIP("no memory node with metrics here: pawl serve ended with status 0x%x", (unsigned)status);
        if (pawl_now() > limit)
            CHECK_FAIL("pawl_open(%s): %s", where, pawl_explain());
    }
    return p;
}

static void forget_key(void)
{
    if (getpid() == owner)
        unlink(key_path);
}

static void make_key(void)
{
    for (unsigned i = 0; i < 2; i++)
        other_ring.key[0].k[i] = world_random(&world_real);
    if (!keyed)
        return;
    ring = (struct seal_ring){.count = 1, .key = {{{world_random(&world_real), world_random(&world_real) | 1}}}};
    snprintf(key_path, sizeof key_path, "/tmp/pawl-test-%d.key", (int)owner);
    unlink(key_path);
    CHECK_EQ(key_file_write(key_path, &ring), 0);
    atexit(forget_key);
    setenv("PAWL_KEY", key_path, 1);
}

/* Where the holder's lock is, by the header of the memory. */
static void find_cell(void)
{
    static _Alignas(64) struct layout_header header;
    CHECK_EQ(fab_read(&victim.node.fab, 0, &header, round_up(sizeof header, 8)), 0);
    CHECK(header.cells && header.cell_bytes >= 8);
    cell = header.cells + LOCK * header.cell_bytes;
}

static void set_scene(void)
{
    owner = getpid();
    in_lab = getenv("PAWL_TEST_LAB");
    keyed = getenv("PAWL_TEST_KEY");
    snprintf(space_name, sizeof space_name, "node%d", (int)owner);
    uint16_t port = (uint16_t)(12000 + owner % 10000 * 2);
    node = net_v4(htonl(INADDR_LOOPBACK), port);
    if (in_lab) {
        rack_up("forge", 2, false);
        node = net_v4(htonl(lab_address(1, LAB_SWITCH)), port);
    }
    http_port = (uint16_t)(port + 1);
    make_key();
}

int main(void)
{
    struct scene s = {.count = 0};
    pawl_grant g, h;
    uint64_t canary = CANARY_IS;
    set_scene();
    pid_t pid = start_node();
    enter(1);
    s.holder = open_session(pid);
    s.rival = open_session(pid);
    s.held = &g;
    CHECK_OK(pawl_lock(s.holder, pawl_id(LOCK), PAWL_EXCLUSIVE, &g));
    connect_raw(&victim, VICTIM_NUMBER, VICTIM_NONCE);
    connect_raw(&own, FILE_NUMBER, 5);
    CHECK_EQ(fab_write(&victim.node.fab, CANARY, &canary, sizeof canary), 0);
    find_cell();
    s.forger[0] = forgers_socket(2, "127.0.0.66");
    s.forger[1] = forgers_socket(1, "127.0.0.1");
    for (tagging = 0; tagging < (keyed ? TAGGINGS : OTHER_CLUSTER); tagging++)
        attack_all(&s);
    replay(&s);
    CHECK(answers(&s) <= s.count * TIMES * sizeof shot.bytes);
    tagging = keyed ? OTHER_FILE : UNTAGGED;
    flood_ends(&s, VERBS_LEAVE);
    flood_ends(&s, VERBS_ATTACH);
    flood_connects(&s);
    CHECK_OK(pawl_unlock(s.holder, &g));
    CHECK_OK(pawl_lock(s.rival, pawl_id(LOCK), PAWL_EXCLUSIVE, &h));
    CHECK(h.token > g.token); /* I2 */
    CHECK_OK(pawl_unlock(s.rival, &h));
    CHECK_OK(pawl_close(s.holder));
    CHECK_OK(pawl_close(s.rival));
    printf("%u attacks change nothing, and are counted\n", s.count);
    node_udp_close(&victim);
    node_udp_close(&own);
    rack_end(pid);
    return 0;
}
