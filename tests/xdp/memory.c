/* SPDX-License-Identifier: Apache-2.0 */
/* The memory node's program in the kernel and the executor in a process, packet by packet: the same answers, the same memory, the
 * same reply caches, whatever comes. */
#include "dataplane/memnode.h"
#include "lib/rng.h"
#include "tests/xdp/packets.h"

#define BYTES (4 * 4096u)
#define CLIENTS 4u
#define LIFE 9u
#define PACKETS 30000

static const struct memnode_from somewhere;
static struct plane *p;
static struct memnode *node;
static _Alignas(16) uint64_t memory[BYTES / 8];
static struct verbs_client table[CLIENTS];
static uint64_t *words;
static struct verbs_client *clients;
static uint64_t answered, executed, repeated, refused, forged;

/* The key with which a client has connected. */
static struct seal_asker asker_of(uint32_t client)
{
    const struct seal_key cluster = {{5, 6}};
    return (struct seal_asker){.key = seal_member_key(&cluster, client), .number = client};
}

static void open_both(void)
{
    const struct plane_options o = {.program = "memory",
                                    .settings = {.port = htons(TEST_PORT),
                                                 .machines = 1,
                                                 .space = TEST_SPACE,
                                                 .locks = BYTES,
                                                 .options = CLIENTS,
                                                 .keyed = test_is_keyed()},
                                    .life = LIFE,
                                    .locks_max = BYTES / 4096};
    void *at;
    uint64_t bytes;
    int rc = plane_open(&o, &p);
    if (rc == -ENOTSUP || rc == -EPERM)
        SKIP("%s", explained());
    if (rc)
        CHECK_FAIL("%s", explained());
    test_verified(p);
    CHECK_EQ(plane_map(p, "words", &at, &bytes), 0);
    words = at;
    CHECK_EQ(plane_map(p, "clients", &at, &bytes), 0);
    clients = at;
    const struct memnode_params params = {.space = "space",
                                          .id = TEST_SPACE,
                                          .life = LIFE,
                                          .lease_ns = NS_PER_S,
                                          .clients = CLIENTS,
                                          .can = VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED,
                                          .memory = memory,
                                          .bytes = BYTES,
                                          .table = table};
    node = memnode_new(&params);
    CHECK(node);
    memnode_ready(node);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        _Alignas(8) uint8_t packet[VERBS_PACKET_MAX] = {0};
        struct verbs_connect *c = (struct verbs_connect *)(void *)packet;
        c->head = (struct verbs_head){.magic = VERBS_MAGIC, .version = VERBS_VERSION, .type = VERBS_CONNECT, .len = sizeof *c};
        memcpy(c->name, "space", 5);
        c->nonce = 1 + i;
        CHECK_EQ(memnode_packet(node, packet, sizeof *c, &somewhere, NS_PER_S, 1000 + i), sizeof *c);
        CHECK_EQ(c->head.status, VERBS_OK);
    }
    table[3].fenced = table[3].life; /* one is shut out */
    memcpy(clients, table, sizeof table);
    if (!test_is_keyed())
        return;
    CHECK_EQ(plane_map(p, "owners", &at, &bytes), 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct seal_asker by = asker_of(i);
        struct plane_owner owner = {.number = by.number, .life = table[i].life};
        memcpy(owner.key, &by.key, sizeof owner.key);
        memcpy((struct plane_owner *)at + i, &owner, sizeof owner);
    }
}

/* ---- with keys: PAWL_TEST_KEY ---- */

/* As the client sends it. */
static struct test_frame tagged_frame(const void *packet, uint32_t len, const struct seal_asker *by)
{
    _Alignas(8) uint8_t bytes[VERBS_PACKET_MAX + sizeof(struct seal_trail)];
    memcpy(bytes, packet, len);
    return test_frame(bytes, seal_trail_put(by, bytes, len));
}

/* As the process runs it, which has checked the tag. */
static void run_inside(const void *packet, uint32_t len, struct plane_run *run)
{
    struct test_frame in = test_frame(packet, len);
    *run = (struct plane_run){.in = in.bytes, .in_len = in.len, .out = run->out, .out_len = FRAME_MAX};
    CHECK_EQ(plane_run(plane_program(p, "inside"), run), 0);
}

/* With a wrong tag it is dropped and counted, or is of a life of which only the process can judge. */
static void forge(struct rng *r, const uint8_t *packet, uint32_t len)
{
    struct verbs_head h;
    struct plane_counters before, after;
    memcpy(&h, packet, sizeof h);
    if (h.magic != VERBS_MAGIC || h.len != len || (h.type != VERBS_BATCH && h.type != VERBS_WAIT))
        return;
    struct seal_asker by = asker_of(h.client < CLIENTS ? h.client : 0), none = {.number = by.number};
    struct test_frame in = test_frame(packet, len), out;
    uint64_t how = rng_below(r, 5);
    by.key.k[0] ^= how == 1;
    by.number += how == 2; /* of another file; its holder has that key */
    if (how == 2)
        by.key = asker_of((uint32_t)by.number).key;
    if (how)
        in = tagged_frame(packet, len, how == 4 ? &none : &by);
    if (how == 3) {
        in.packet[len - 1] ^= 1;
        test_udp_sum(&in);
    }
    struct plane_run run = {.in = in.bytes, .in_len = in.len, .out = out.bytes, .out_len = sizeof out.bytes};
    CHECK_EQ(plane_count(p, &before), 0);
    CHECK_EQ(plane_run(plane_program(p, "plane"), &run), 0);
    CHECK_EQ(plane_count(p, &after), 0);
    bool passed = run.verdict == XDP_PASS && !memcmp(out.bytes, in.bytes, in.len);
    CHECK(run.verdict == XDP_DROP || passed);
    forged += after.reason[PLANE_UNTAGGED] - before.reason[PLANE_UNTAGGED];
}

/* The program with keys, as a client and the process see it together. */
static void run_tagged(const uint8_t *packet, uint32_t len, struct plane_run *run)
{
    struct verbs_head h;
    memcpy(&h, packet, sizeof h);
    struct seal_asker by = asker_of(h.client < CLIENTS ? h.client : 0);
    struct test_frame in = tagged_frame(packet, len, &by);
    struct test_frame *out = run->out;
    run->in = in.bytes;
    run->in_len = in.len;
    CHECK_EQ(plane_run(plane_program(p, "plane"), run), 0);
    if (run->verdict == XDP_PASS && h.magic == VERBS_MAGIC && (h.type == VERBS_BATCH || h.type == VERBS_WAIT)) {
        CHECK(!memcmp(out->bytes, in.bytes, in.len));
        run_inside(packet, len, run);
    } else if (run->verdict == XDP_TX) {
        uint32_t whole = run->out_len - (uint32_t)FRAME_HEADS;
        CHECK(seal_trail_open(&by.key, out->packet, &whole));
        CHECK_EQ(whole, len);
        run->out_len -= (uint32_t)sizeof(struct seal_trail);
    }
}

/* A verb that is sound, most often. */
static uint32_t put_verb(struct rng *r, uint8_t *at, uint32_t left, bool sound)
{
    uint8_t verb = (uint8_t)(1 + rng_below(r, 7)), width = rng_chance(r, 1, 2) ? 8 : 16;
    uint32_t operands = verbs_operands(verb);
    uint32_t room = operands ? operands * width : 8 * (1 + (uint32_t)rng_below(r, rng_chance(r, 1, 8) ? 100 : 4));
    struct verbs_op op = {.verb = verb, .width = operands ? width : 0, .room = (uint16_t)room};
    if (sizeof op + room > left)
        return 0;
    op.offset = rng_chance(r, 1, 4) ? 4096 - 32 + 16 * rng_below(r, 4) : 16 * rng_below(r, 4);
    if (!operands && rng_chance(r, 1, 2))
        op.offset += 8; /* the second word of a pair */
    if (!sound)
        switch (rng_below(r, 6)) {
        case 0:
            op.verb = (uint8_t)rng_below(r, 10);
            break;
        case 1:
            op.width = (uint8_t)rng_below(r, 20);
            break;
        case 2:
            op.offset = BYTES - 8 * rng_below(r, 4);
            break;
        case 3:
            op.offset += 4;
            break;
        case 4:
            op.offset = rng_next(r);
            break;
        default:
            op.unused = 1;
        }
    memcpy(at, &op, sizeof op);
    for (uint32_t i = 0; i < room; i += 8) {
        uint64_t word = rng_chance(r, 1, 2) ? rng_below(r, 3) : rng_next(r);
        memcpy(at + sizeof op + i, &word, 8);
    }
    return (uint32_t)sizeof op + room;
}

/* One field of some heads is wrong. */
static void spoil(struct rng *r, struct verbs_head *h)
{
    switch (rng_below(r, 40)) {
    case 0:
        h->tag++;
        break;
    case 1:
        h->life--;
        break;
    case 2:
        h->life++;
        break;
    case 3:
        h->node_life++;
        break;
    case 4:
        h->client = (uint32_t)rng_below(r, 9);
        break;
    case 5:
        h->space++;
        break;
    case 6:
        h->version++;
        break;
    case 7:
        h->features = 1;
        break;
    case 8:
        h->count += (uint16_t)rng_below(r, 3);
        break;
    case 9:
        h->status = 1;
        break;
    case 10:
        h->len -= 8;
        break;
    default:
        break;
    }
}

static uint32_t make_packet(struct rng *r, uint8_t packet[VERBS_PACKET_MAX])
{
    uint32_t client = (uint32_t)rng_below(r, CLIENTS), len = sizeof(struct verbs_head), count = 0;
    bool sound = !rng_chance(r, 1, 10);
    struct verbs_head h = {.magic = VERBS_MAGIC,
                           .version = VERBS_VERSION,
                           .type = VERBS_BATCH,
                           .space = TEST_SPACE,
                           .node_life = LIFE,
                           .client = client,
                           .life = table[client].life,
                           .sequence = table[client].last + 1,
                           .tag = table[client].tag};
    if (rng_chance(r, 1, 4))
        h.sequence -= rng_below(r, 11) - 1; /* again, too old, or too early */
    uint64_t want = 1 + rng_below(r, rng_chance(r, 1, 8) ? VERBS_COUNT_MAX + 2 : 6);
    if (rng_chance(r, 1, 8)) {
        h.type = VERBS_WAIT;
        memset(packet + len, 0, 8);
        len += 8;
        for (count = 0; count < want && count < VERBS_CONDS_MAX; count++) {
            struct verbs_cond c = {.offset = 8 * rng_below(r, 16), .mask = UINT64_MAX, .value = rng_below(r, 2)};
            if (!sound)
                c.offset = BYTES - 4 * rng_below(r, 4);
            memcpy(packet + len, &c, sizeof c);
            len += (uint32_t)sizeof c;
        }
    } else {
        for (uint32_t put; count < want && (put = put_verb(r, packet + len, VERBS_PACKET_MAX - len, sound || rng_chance(r, 1, 2)));
             count++)
            len += put;
    }
    h.count = (uint16_t)count;
    h.len = (uint16_t)len;
    spoil(r, &h);
    memcpy(packet, &h, sizeof h);
    return len;
}

/* A packet that was sent before, or a new one, which is remembered. */
static uint32_t choose_packet(struct rng *r, uint8_t packet[VERBS_PACKET_MAX])
{
    static struct {
        uint8_t bytes[VERBS_PACKET_MAX];
        uint32_t len;
    } sent[32];
    unsigned at = (unsigned)rng_below(r, countof(sent));
    if (rng_chance(r, 1, 3) && sent[at].len) {
        memcpy(packet, sent[at].bytes, sent[at].len);
        return sent[at].len;
    }
    sent[at].len = make_packet(r, packet);
    memcpy(sent[at].bytes, packet, sent[at].len);
    return sent[at].len;
}

static void same_state(uint64_t i)
{
    if (memcmp(words, memory, BYTES) != 0)
        CHECK_FAIL("packet %" PRIu64 ": the memories differ", i);
    for (uint32_t k = 0; k < CLIENTS; k++) {
        struct verbs_client a = clients[k], b = table[k];
        a.heard_ns = b.heard_ns = 0;
        if (memcmp(&a, &b, sizeof a) != 0)
            CHECK_FAIL("packet %" PRIu64 ": what is known of client %u differs: last %" PRIu64 " and %" PRIu64, i, k, a.last,
                       b.last);
    }
}

static void one(struct rng *r, uint64_t i)
{
    _Alignas(8) uint8_t packet[VERBS_PACKET_MAX];
    uint32_t len = choose_packet(r, packet);
    struct test_frame in = test_frame(packet, len), out = {.len = 0};
    struct plane_run run = {.in = in.bytes, .in_len = in.len, .out = out.bytes, .out_len = sizeof out.bytes};
    if (test_is_keyed()) {
        forge(r, packet, len);
        run_tagged(packet, len, &run);
    } else {
        CHECK_EQ(plane_run(plane_program(p, "plane"), &run), 0);
    }
    struct memnode_counts before = *memnode_counts(node);
    struct verbs_head asked;
    memcpy(&asked, packet, sizeof asked);
    uint32_t answer = memnode_packet(node, packet, len, &somewhere, NS_PER_S, 1);
    if (test_is_keyed() && asked.client >= CLIENTS)
        answer = 0; /* no key is that of a client which is none: is_owners() of node/memory.c */
    const struct memnode_counts *after = memnode_counts(node);
    if ((run.verdict == XDP_TX) != (answer != 0))
        CHECK_FAIL("packet %" PRIu64 ": the kernel's verdict is %u, and the process %s", i, run.verdict,
                   answer ? "answers" : "does not");
    if (answer && (run.out_len != FRAME_HEADS + len || memcmp(out.packet, packet, len) != 0))
        CHECK_FAIL("packet %" PRIu64 ": the answers differ; status %u and %u", i, out.packet[3], packet[3]);
    answered += answer != 0;
    executed += after->requests - before.requests;
    repeated += after->repeats - before.repeats;
    refused += after->refused + after->forged + after->malformed - before.refused - before.forged - before.malformed;
    same_state(i);
}

int main(void)
{
    struct rng r;
    rng_seed(&r, 20);
    open_both();
    for (uint64_t i = 0; i < PACKETS; i++)
        one(&r, i);
    printf("%u packets: %" PRIu64 " answered, %" PRIu64 " executed, %" PRIu64 " repeated, %" PRIu64 " refused\n", PACKETS, answered,
           executed, repeated, refused);
    CHECK(executed > PACKETS / 6 && repeated > PACKETS / 50 && refused > PACKETS / 50);
    if (test_is_keyed())
        printf("%" PRIu64 " forged ones changed nothing, and were counted\n", forged);
    CHECK(!test_is_keyed() || forged > PACKETS / 4);
    plane_close(p, PLANE_REMOVE);
    memnode_free(node);
    return 0;
}
