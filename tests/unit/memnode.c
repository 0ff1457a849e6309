/* SPDX-License-Identifier: Apache-2.0 */
/* The executor of a memory node, packet by packet: what verbs leave in memory, what the reply cache answers, and what changes
 * nothing. */
#include "dataplane/memnode.h"
#include "fabric/lower.h"
#include "lib/rng.h"
#include "tests/check.h"

#include <pthread.h>

#define BYTES 4096u
#define CLIENTS 4u
#define LEASE_NS NS_PER_S
#define CAN (VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED | VERBS_CAN_WAIT)

static _Alignas(16) uint64_t memory[BYTES / 8];
static uint64_t now_ns = NS_PER_S;

struct packet {
    _Alignas(8) uint8_t bytes[VERBS_PACKET_MAX];
    uint32_t len;
};

struct peer {
    struct verbs_head head;
};

static struct verbs_head *head_of(struct packet *p)
{
    return (struct verbs_head *)(void *)p->bytes;
}

static bool (*same_machine)(const struct memnode_from *a, const struct memnode_from *b); /* of the nodes that are opened */

static struct memnode *open_node(void)
{
    const struct memnode_params p = {.space = "space",
                                     .id = 7,
                                     .life = 5,
                                     .lease_ns = LEASE_NS,
                                     .clients = CLIENTS,
                                     .can = CAN,
                                     .memory = memory,
                                     .bytes = BYTES,
                                     .same_machine = same_machine};
    struct memnode *n = memnode_new(&p);
    CHECK(n);
    memset(memory, 0, sizeof memory);
    memnode_ready(n);
    memnode_tick(n, now_ns);
    return n;
}

static struct memnode_from somewhere = {.opaque = {42, 43, 44}};

static int feed(struct memnode *n, struct packet *p)
{
    uint32_t len = memnode_packet(n, p->bytes, p->len, &somewhere, now_ns, now_ns ^ 0x5555);
    CHECK(len == 0 || len == p->len);
    return len ? head_of(p)->status : -1;
}

static int connect_as(struct memnode *n, uint64_t nonce, const char *space, struct peer *out)
{
    struct packet p = {.len = sizeof(struct verbs_connect)};
    struct verbs_connect *c = (struct verbs_connect *)(void *)p.bytes;
    c->head = (struct verbs_head){.magic = VERBS_MAGIC, .version = VERBS_VERSION, .type = VERBS_CONNECT, .len = sizeof *c};
    memcpy(c->name, space, strlen(space));
    c->nonce = nonce;
    int status = feed(n, &p);
    if (status == VERBS_OK) {
        out->head = c->head;
        out->head.type = 0;
        CHECK_EQ(c->bytes, BYTES);
        CHECK_EQ(c->can, CAN);
    }
    return status;
}

static struct packet begin(const struct peer *peer, enum verbs_type type, uint64_t sequence)
{
    struct packet p = {.len = sizeof(struct verbs_head)};
    *head_of(&p) = peer->head;
    head_of(&p)->type = (uint8_t)type;
    head_of(&p)->sequence = sequence;
    head_of(&p)->len = (uint16_t)p.len;
    return p;
}

static uint64_t *add(struct packet *p, uint8_t verb, uint8_t width, uint64_t offset, const uint64_t *room, unsigned words)
{
    struct verbs_op op = {.verb = verb, .width = width, .room = (uint16_t)(8 * words), .offset = offset};
    memcpy(p->bytes + p->len, &op, sizeof op);
    uint64_t *at = (uint64_t *)(void *)(p->bytes + p->len + sizeof op);
    memcpy(at, room, 8 * words);
    p->len += (uint32_t)sizeof op + 8 * words;
    head_of(p)->len = (uint16_t)p->len;
    head_of(p)->count++;
    return at;
}

/* Every verb leaves what the fabric's own arithmetic says. */
static void test_verbs(void)
{
    struct memnode *n = open_node();
    struct peer a;
    struct rng r;
    rng_seed(&r, 5);
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    for (uint64_t i = 1; i <= 20000; i++) {
        uint8_t verb = (uint8_t)(VERBS_CAS + rng_below(&r, 5)), width = rng_chance(&r, 1, 2) ? 8 : 16;
        unsigned words = verbs_operands(verb) * width / 8u;
        uint64_t in[8], top = UINT64_C(1) << rng_below(&r, 64);
        for (unsigned k = 0; k < 8; k++)
            in[k] = rng_chance(&r, 1, 2) ? rng_next(&r) : rng_below(&r, 3);
        uint64_t *word = &memory[2 * rng_below(&r, 4)];
        u128 before = width == 16 ? (u128)word[1] << 64 | word[0] : word[0];
        if (rng_chance(&r, 1, 2))
            in[0] = word[0], in[1] = width == 16 ? word[1] : in[1];
        struct fab_op op = {.width = width, .swap_mask = ~(u128)0, .compare_mask = ~(u128)0};
        u128 operand[4];
        for (unsigned k = 0; k < 4; k++)
            operand[k] = width == 16 ? (u128)in[2 * k + 1] << 64 | in[2 * k] : in[k];
        op.verb = verb == VERBS_CAS || verb == VERBS_MCAS ? FAB_CAS : verb == VERBS_SWAP ? FAB_SWAP : FAB_FAA;
        if (op.verb == FAB_CAS)
            op.compare = operand[0], op.swap = operand[verb == VERBS_CAS ? 1 : 2];
        else
            op.swap = operand[0];
        if (verb == VERBS_MCAS)
            op.compare_mask = operand[1], op.swap_mask = operand[3];
        if (verb == VERBS_FAA)
            op.swap_mask = 0;
        if (verb == VERBS_MFAA) {
            in[width / 8] = top;
            op.swap_mask = width == 16 ? (u128)in[3] << 64 | top : top;
        }
        u128 after = fab_verb_result(&op, before);
        struct packet p = begin(&a, VERBS_BATCH, i);
        const uint64_t *found = add(&p, verb, width, (uint64_t)(word - memory) * 8, in, words);
        CHECK_EQ(feed(n, &p), VERBS_OK);
        CHECK_EQ(found[0], (uint64_t)before);
        CHECK_EQ(word[0], (uint64_t)after);
        if (width == 16)
            CHECK(found[1] == (uint64_t)(before >> 64) && word[1] == (uint64_t)(after >> 64));
    }
    memnode_free(n);
}

static int addition(struct memnode *n, const struct peer *peer, uint64_t sequence, uint64_t *old)
{
    struct packet p = begin(peer, VERBS_BATCH, sequence);
    const uint64_t one = 1, *found = add(&p, VERBS_FAA, 8, 0, &one, 1);
    int status = feed(n, &p);
    *old = *found;
    return status;
}

static void test_once(void)
{
    struct memnode *n = open_node();
    struct peer a;
    uint64_t old;
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    for (uint64_t i = 1; i <= 20; i++) {
        CHECK_EQ(addition(n, &a, i + 1, &old), -1); /* the one before it is missing */
        CHECK_EQ(addition(n, &a, i, &old), VERBS_OK);
        CHECK_EQ(old, i - 1);
        for (uint64_t back = 0; back < i && back < 12;
             back++) { /* as far as the window reaches it is answered, and once executed */
            CHECK_EQ(addition(n, &a, i - back, &old), back < VERBS_WINDOW ? VERBS_OK : -1);
            if (back < VERBS_WINDOW)
                CHECK_EQ(old, i - back - 1);
        }
        CHECK_EQ(memory[0], i);
    }
    /* A READ is read again, but not if a change follows it in its request. */
    uint64_t none = 0, one = 1;
    struct packet p = begin(&a, VERBS_BATCH, 21), again;
    const uint64_t *first = add(&p, VERBS_READ, 0, 0, &none, 1);
    add(&p, VERBS_FAA, 8, 0, &one, 1);
    const uint64_t *last = add(&p, VERBS_READ, 0, 0, &none, 1);
    ptrdiff_t first_at = (const uint8_t *)first - p.bytes, last_at = (const uint8_t *)last - p.bytes;
    again = p;
    CHECK_EQ(feed(n, &p), VERBS_OK);
    CHECK_EQ(*(const uint64_t *)(const void *)(p.bytes + first_at), 20);
    CHECK_EQ(*(const uint64_t *)(const void *)(p.bytes + last_at), 21);
    CHECK_EQ(addition(n, &a, 22, &old), VERBS_OK);
    CHECK_EQ(feed(n, &again), VERBS_OK);
    CHECK_EQ(*(const uint64_t *)(const void *)(again.bytes + first_at), 20);
    CHECK_EQ(*(const uint64_t *)(const void *)(again.bytes + last_at), 22);
    memnode_free(n);
}

/* Nothing of this changes memory, and each is counted. */
static void test_refused(void)
{
    struct memnode *n = open_node();
    const struct memnode_counts *c = memnode_counts(n);
    struct peer a, b;
    uint64_t old;
    CHECK_EQ(connect_as(n, 1, "another", &a), VERBS_UNKNOWN);
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    CHECK_EQ(connect_as(n, 2, "space", &b), VERBS_OK);
    CHECK(a.head.client != b.head.client && a.head.tag != 0);
    struct peer same;
    CHECK_EQ(connect_as(n, 1, "space", &same), VERBS_OK);
    CHECK_EQ(same.head.client, a.head.client);
    CHECK_EQ(same.head.life, a.head.life);
    struct peer wrong = a;
    wrong.head.tag++;
    CHECK_EQ(addition(n, &wrong, 1, &old), -1);
    CHECK_EQ(c->forged, 1);
    wrong = a, wrong.head.life++;
    CHECK_EQ(addition(n, &wrong, 1, &old), -1);
    wrong = a, wrong.head.client = 77;
    CHECK_EQ(addition(n, &wrong, 1, &old), -1);
    CHECK_EQ(c->forged, 3);
    wrong = a, wrong.head.node_life--;
    CHECK_EQ(addition(n, &wrong, 1, &old), VERBS_FENCED);
    CHECK_EQ(c->refused, 1);
    wrong = a, wrong.head.space++;
    CHECK_EQ(addition(n, &wrong, 1, &old), -1);
    wrong = a, wrong.head.features = 1;
    CHECK_EQ(addition(n, &wrong, 1, &old), -1);
    wrong = a, wrong.head.version++;
    CHECK_EQ(addition(n, &wrong, 1, &old), -1);
    CHECK_EQ(c->foreign, 4);
    for (unsigned features = 0; features < 2; features++) { /* a client of another release is told so, and gets no number */
        struct packet p = {.len = sizeof(struct verbs_connect)};
        *head_of(&p) = (struct verbs_head){.magic = VERBS_MAGIC,
                                           .version = (uint8_t)(VERBS_VERSION + !features),
                                           .features = features,
                                           .type = VERBS_CONNECT,
                                           .len = (uint16_t)p.len};
        CHECK_EQ(feed(n, &p), VERBS_OTHER);
        CHECK_EQ(head_of(&p)->version, VERBS_VERSION);
        CHECK_EQ(head_of(&p)->life, 0);
    }
    CHECK_EQ(c->foreign, 6);
    CHECK_EQ(memory[0], 0);
    memnode_free(n);
}

static int wait_on(struct memnode *n, const struct peer *peer, uint64_t id, uint64_t offset, uint64_t value)
{
    struct packet p = begin(peer, VERBS_WAIT, id);
    struct verbs_wait *w = (struct verbs_wait *)(void *)p.bytes;
    w->park_ns = 100 * NS_PER_MS;
    w->cond[0] = (struct verbs_cond){.offset = offset, .mask = UINT64_MAX, .value = value};
    w->head.count = 1;
    w->head.len = (uint16_t)(p.len = offsetof(struct verbs_wait, cond) + sizeof *w->cond);
    return feed(n, &p);
}

/* The second verb is bad: the first is not executed either. */
static void test_malformed(void)
{
    struct memnode *n = open_node();
    const struct memnode_counts *c = memnode_counts(n);
    struct peer a;
    uint64_t old;
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    static const struct verbs_op bad[] = {
        {.verb = 0, .room = 8},
        {.verb = VERBS_VERBS, .width = 8, .room = 8},
        {.verb = VERBS_WRITE, .room = 8, .offset = BYTES},
        {.verb = VERBS_WRITE, .room = 16, .offset = BYTES - 8},
        {.verb = VERBS_WRITE, .room = 8, .offset = 4},
        {.verb = VERBS_WRITE, .room = 8, .offset = UINT64_MAX - 7},
        {.verb = VERBS_WRITE, .room = 12},
        {.verb = VERBS_WRITE, .room = 0},
        {.verb = VERBS_WRITE, .width = 8, .room = 8},
        {.verb = VERBS_WRITE, .room = 8, .unused = 1},
        {.verb = VERBS_WRITE, .room = 1200},
        {.verb = VERBS_FAA, .width = 4, .room = 4},
        {.verb = VERBS_FAA, .width = 4, .room = 8},
        {.verb = VERBS_FAA, .width = 16, .room = 8},
        {.verb = VERBS_FAA, .width = 16, .room = 16, .offset = 8},
        {.verb = VERBS_CAS, .width = 8, .room = 8},
    };
    uint64_t was = c->malformed;
    for (unsigned i = 0; i < countof(bad); i++) {
        uint64_t one = 1, zero[2] = {0, 0};
        struct packet p = begin(&a, VERBS_BATCH, 1);
        add(&p, VERBS_FAA, 8, 0, &one, 1);
        uint32_t at = p.len;
        add(&p, VERBS_READ, 0, 0, zero, bad[i].room == 16 ? 2 : 1);
        memcpy(p.bytes + at, &bad[i], sizeof bad[i]);
        CHECK_EQ(feed(n, &p), VERBS_BAD);
        CHECK_EQ(c->malformed, was + i + 1);
    }
    struct packet p = begin(&a, VERBS_BATCH, 1); /* more verbs than are in it, or fewer */
    uint64_t one = 1;
    add(&p, VERBS_FAA, 8, 0, &one, 1);
    for (unsigned count = 0; count < 3; count += 2) {
        struct packet copy = p;
        head_of(&copy)->count = (uint16_t)count;
        CHECK_EQ(feed(n, &copy), VERBS_BAD);
    }
    struct packet many = p;
    head_of(&many)->count = VERBS_COUNT_MAX + 1;
    CHECK_EQ(feed(n, &many), VERBS_BAD);
    struct packet answered = p, failed = p;
    head_of(&answered)->type |= VERBS_ANSWER;
    CHECK_EQ(feed(n, &answered), -1);
    head_of(&failed)->status = VERBS_BAD;
    CHECK_EQ(feed(n, &failed), -1);
    struct packet unknown = begin(&a, VERBS_ANSWER - 1, 1);
    CHECK_EQ(feed(n, &unknown), VERBS_BAD);
    p.len -= 8; /* the length is not the packet's */
    CHECK_EQ(feed(n, &p), -1);
    _Alignas(8) static uint8_t longer[VERBS_PACKET_MAX + 8];
    memcpy(longer, p.bytes, p.len);
    ((struct verbs_head *)(void *)longer)->len = sizeof longer;
    CHECK_EQ(memnode_packet(n, longer, sizeof longer, &somewhere, now_ns, 1), 0);
    CHECK_EQ(wait_on(n, &a, 1, BYTES, 0), VERBS_BAD);
    CHECK_EQ(wait_on(n, &a, 1, UINT64_MAX - 7, 0), VERBS_BAD);
    CHECK_EQ(memory[0], 0);
    CHECK_EQ(addition(n, &a, 1, &old), VERBS_OK); /* and nothing of it is in the way */
    memnode_free(n);
}

static bool same_first_word(const struct memnode_from *a, const struct memnode_from *b)
{
    return a->opaque[0] == b->opaque[0];
}

/* A machine has at most half of the clients, so that other machines can connect. A client that has a number keeps it. */
static void test_share(void)
{
    struct peer p, first;
    same_machine = same_first_word;
    struct memnode *n = open_node();
    CHECK_EQ(connect_as(n, 1, "space", &first), VERBS_OK);
    for (uint64_t i = 1; i < (CLIENTS + 1) / 2; i++)
        CHECK_EQ(connect_as(n, 1 + i, "space", &p), VERBS_OK);
    for (uint64_t i = 0; i < CLIENTS; i++)
        CHECK_EQ(connect_as(n, 1000 + i, "space", &p), VERBS_FULL);
    CHECK_EQ(memnode_counts(n)->full, CLIENTS);
    CHECK_EQ(connect_as(n, 1, "space", &p), VERBS_OK);
    CHECK_EQ(p.head.client, first.head.client);
    somewhere.opaque[0]++;
    CHECK_EQ(connect_as(n, 2000, "space", &p), VERBS_OK);
    somewhere.opaque[0]--;
    struct packet leave = {.len = sizeof(struct verbs_head)};
    *head_of(&leave) = first.head;
    head_of(&leave)->type = VERBS_LEAVE;
    head_of(&leave)->len = sizeof(struct verbs_head);
    head_of(&leave)->status = 0;
    CHECK_EQ(feed(n, &leave), -1);
    CHECK_EQ(connect_as(n, 3000, "space", &p), VERBS_OK);
    memnode_free(n);
    same_machine = NULL;
}

/* One word more than the reply cache has is refused, and as many are not: atomics, and READs before a change. A READ that no change
 * follows is not kept. A request that comes again with other results than were kept is refused, too. */
static void test_cache_full(void)
{
    struct memnode *n = open_node();
    const uint64_t ones[VERBS_KEPT_WORDS + 1] = {1};
    uint64_t sequence = 1;
    struct peer a;
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    for (unsigned over = 0; over < 2; over++) {
        struct packet atomics = begin(&a, VERBS_BATCH, sequence), reads = begin(&a, VERBS_BATCH, sequence + !over);
        for (unsigned i = 0; i < VERBS_KEPT_WORDS / 2; i++)
            add(&atomics, VERBS_FAA, 16, 0, ones, 2);
        if (over)
            add(&atomics, VERBS_FAA, 8, 16, ones, 1);
        CHECK_EQ(feed(n, &atomics), over ? VERBS_BAD : VERBS_OK);
        add(&reads, VERBS_READ, 0, 0, ones, VERBS_KEPT_WORDS + over);
        add(&reads, VERBS_WRITE, 0, 16, ones, 1);
        CHECK_EQ(feed(n, &reads), over ? VERBS_BAD : VERBS_OK);
        CHECK_EQ(memory[0], VERBS_KEPT_WORDS / 2);
        CHECK_EQ(memory[2], 1);
        sequence = 3;
    }
    struct packet p = begin(&a, VERBS_BATCH, sequence), other = begin(&a, VERBS_BATCH, sequence);
    add(&p, VERBS_READ, 0, 0, ones, VERBS_KEPT_WORDS + 1);
    CHECK_EQ(feed(n, &p), VERBS_OK);
    add(&other, VERBS_FAA, 8, 0, ones, 1);
    CHECK_EQ(feed(n, &other), VERBS_BAD);
    CHECK_EQ(memory[0], VERBS_KEPT_WORDS / 2);
    memnode_free(n);
}

static int fence(struct memnode *n, const struct peer *by, const struct peer *whom)
{
    struct packet p = begin(by, VERBS_FENCE, 1);
    struct verbs_fence *f = (struct verbs_fence *)(void *)p.bytes;
    f->peer = whom->head.client;
    f->peer_life = whom->head.life;
    f->head.len = sizeof *f;
    p.len = sizeof *f;
    return feed(n, &p);
}

static void test_lives(void)
{
    struct memnode *n = open_node();
    struct peer a, b, many[CLIENTS], next;
    uint64_t old;
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    CHECK_EQ(connect_as(n, 2, "space", &b), VERBS_OK);
    CHECK_EQ(addition(n, &b, 1, &old), VERBS_OK);
    CHECK_EQ(fence(n, &a, &b), VERBS_OK);
    CHECK_EQ(addition(n, &b, 2, &old), VERBS_FENCED);
    CHECK_EQ(addition(n, &b, 1, &old), VERBS_FENCED); /* the cache does not serve it either */
    CHECK_EQ(memory[0], 1);
    CHECK_EQ(fence(n, &b, &a), VERBS_FENCED); /* nor may it shut out others */
    for (unsigned i = 2; i < CLIENTS; i++)
        CHECK_EQ(connect_as(n, 10 + i, "space", &many[i]), VERBS_OK);
    CHECK_EQ(connect_as(n, 20, "space", &next), VERBS_OK); /* the number of the one that was shut out, with a higher life */
    CHECK_EQ(next.head.client, b.head.client);
    CHECK_EQ(next.head.life, b.head.life + 1);
    CHECK_EQ(connect_as(n, 21, "space", &many[0]), VERBS_FULL);
    CHECK_EQ(fence(n, &a, &b), VERBS_OK);    /* late: it does not touch the successor */
    CHECK_EQ(fence(n, &next, &b), VERBS_OK); /* nor does the successor shut out itself */
    CHECK_EQ(fence(n, &next, &next), VERBS_BAD);
    CHECK_EQ(addition(n, &next, 1, &old), VERBS_OK);
    CHECK_EQ(addition(n, &b, 2, &old), VERBS_FENCED);
    CHECK_EQ(memory[0], 2);
    /* The silent lose their numbers; those that were heard of do not. */
    for (unsigned i = 0; i < 30; i++) {
        now_ns += LEASE_NS / 10;
        memnode_tick(n, now_ns);
        CHECK_EQ(addition(n, &a, i + 1, &old), VERBS_OK);
    }
    CHECK_EQ(memnode_clients(n), 1);
    CHECK_EQ(addition(n, &next, 2, &old), VERBS_FENCED);
    /* A node that was stopped itself takes no client for silent. */
    now_ns += 10 * LEASE_NS;
    memnode_tick(n, now_ns);
    CHECK_EQ(addition(n, &a, 31, &old), VERBS_OK);
    memnode_free(n);
}

static unsigned wakes(struct memnode *n, uint64_t *sum)
{
    struct verbs_wait w;
    struct memnode_from to;
    unsigned count = 0;
    for (*sum = 0; memnode_more(n, &w, &to); count++) {
        CHECK(!memcmp(&to, &somewhere, sizeof to));
        CHECK_EQ(w.head.type, VERBS_WAIT | VERBS_ANSWER);
        *sum += w.head.sequence;
    }
    return count;
}

static void test_waits(void)
{
    struct memnode *n = open_node();
    struct peer a, b;
    uint64_t old, sum;
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    CHECK_EQ(connect_as(n, 2, "space", &b), VERBS_OK);
    CHECK_EQ(wait_on(n, &a, 1, 0, 5), VERBS_OK); /* does not hold: at once */
    CHECK_EQ(wait_on(n, &a, 2, 0, 0), -1);
    CHECK_EQ(wait_on(n, &a, 2, 0, 0), -1); /* again: the same one */
    CHECK_EQ(wait_on(n, &b, 3, 0, 0), -1);
    CHECK_EQ(wait_on(n, &b, 4, 64, 0), -1); /* another word */
    CHECK_EQ(wakes(n, &sum), 0);
    CHECK_EQ(addition(n, &b, 1, &old), VERBS_OK);
    CHECK_EQ(wakes(n, &sum), 2);
    CHECK_EQ(sum, 5);
    for (uint64_t i = 0; i < 3 * MEMNODE_PARKS; i++) /* more than it may have: the oldest go */
        CHECK_EQ(wait_on(n, &a, 10 + i, 0, 1), -1);
    CHECK_EQ(addition(n, &b, 2, &old), VERBS_OK);
    CHECK_EQ(wakes(n, &sum), MEMNODE_PARKS);
    CHECK_EQ(wait_on(n, &a, 50, 0, 2), -1); /* forgotten when its time is over */
    now_ns += 300 * NS_PER_MS;
    memnode_tick(n, now_ns);
    CHECK_EQ(addition(n, &b, 3, &old), VERBS_OK);
    CHECK_EQ(wakes(n, &sum), 0);
    for (uint64_t i = 0; i < MEMNODE_PARKS; i++)
        CHECK_EQ(wait_on(n, &a, 60 + i, 0, 3), -1);
    CHECK_EQ(addition(n, &b, 4, &old), VERBS_OK);
    CHECK_EQ(wait_on(n, &a, 70, 0, 4), -1); /* all of its WAITs are about to be answered: this one is not kept */
    now_ns += 300 * NS_PER_MS;
    memnode_tick(n, now_ns); /* what is woken stays until it is fetched */
    CHECK_EQ(wakes(n, &sum), MEMNODE_PARKS);
    CHECK_EQ(addition(n, &b, 5, &old), VERBS_OK);
    CHECK_EQ(wakes(n, &sum), 0);
    memnode_free(n);
}

/* ---- CPUs that use the memory, too ---- */

#define ORDER_ROUNDS 200000
#define ORDER_X 1024
#define ORDER_Y 2048
static uint64_t missed[ORDER_ROUNDS + 1]; /* the last store of y after which x was not yet this */

static void *order_cpu(void *arg)
{
    (void)arg;
    for (uint64_t y = 1, x = 0; x < ORDER_ROUNDS; y++) {
        __atomic_store_n(&memory[ORDER_Y / 8], y, __ATOMIC_SEQ_CST);
        uint64_t now = __atomic_load_n(&memory[ORDER_X / 8], __ATOMIC_SEQ_CST);
        while (x < now)
            missed[++x] = y - 1;
    }
    return NULL;
}

/* A CPU sees a WRITE before the READ behind it is executed, as Peterson's lock between alock's cohorts needs. Either the CPU sees
 * x, or the READ sees y. */
static void test_order(void)
{
    static uint64_t seen[ORDER_ROUNDS + 1];
    struct memnode *n = open_node();
    struct peer a;
    pthread_t cpu;
    const uint64_t none = 0;
    CHECK_EQ(connect_as(n, 1, "space", &a), VERBS_OK);
    CHECK_EQ(pthread_create(&cpu, NULL, order_cpu, NULL), 0);
    for (uint64_t x = 1; x <= ORDER_ROUNDS; x++) {
        struct packet p = begin(&a, VERBS_BATCH, x);
        add(&p, VERBS_WRITE, 0, ORDER_X, &x, 1);
        const uint64_t *y = add(&p, VERBS_READ, 0, ORDER_Y, &none, 1);
        CHECK_EQ(feed(n, &p), VERBS_OK);
        seen[x] = *y;
    }
    CHECK_EQ(pthread_join(cpu, NULL), 0);
    for (unsigned i = 1; i <= ORDER_ROUNDS; i++)
        if (seen[i] < missed[i])
            CHECK_FAIL("round %u: neither saw the other's store", i);
    memnode_free(n);
}

int main(void)
{
    CHECK(memnode_bytes_per_client() <= 4096);
    test_verbs();
    test_once();
    test_refused();
    test_share();
    test_malformed();
    test_cache_full();
    test_lives();
    test_waits();
    test_order();
    return 0;
}
