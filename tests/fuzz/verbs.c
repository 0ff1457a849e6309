/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node's packets, as any sender may send them: the node does not fall over, reads and writes nothing beyond its memory and
 * the packet, never answers with more bytes than it got, and changes memory only for a sound request of a connected client, once.
 *
 * Input: packets, each after a byte with its length (an eighth of it) and one that says which fields are made sound. */
#include "dataplane/memnode.h"
#include "lib/base.h"

#include <stdlib.h>
#include <string.h>

#define BYTES 1024u
#define CLIENTS 3u
#define LEASE_NS NS_PER_S

enum how {
    HOW_HEAD = 1,
    HOW_CLIENT = 2,
    HOW_NEXT = 4,
    HOW_VERBS = 8,
    HOW_TAG = 16,
    HOW_LATER = 32,
    HOW_CONNECT = 64,
    HOW_FORMER = 128
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct memnode_from somewhere = {.opaque = {1}};

struct state {
    struct memnode *node;
    char *memory;
    struct verbs_client *table;
    uint64_t now;
};

static struct verbs_client *client_of(struct state *s, const struct verbs_head *h)
{
    return &s->table[h->client % CLIENTS];
}

static void make_sound(struct state *s, uint8_t how, uint8_t *p, uint32_t len)
{
    struct verbs_head *h = (struct verbs_head *)(void *)p;
    if (len < sizeof *h)
        return;
    if (how & HOW_HEAD) {
        h->magic = VERBS_MAGIC, h->version = VERBS_VERSION, h->len = (uint16_t)len, h->status = 0, h->features = 0;
        h->type = (uint8_t)(1 + h->type % 5);
        h->space = 7;
        h->node_life = how & HOW_FORMER ? 4 : 5;
    }
    if (how & HOW_CLIENT) {
        h->client %= CLIENTS;
        h->life = client_of(s, h)->life - (how & HOW_FORMER ? 1 : 0);
    }
    if (how & HOW_TAG)
        h->tag = client_of(s, h)->tag;
    if (how & HOW_NEXT)
        h->sequence = client_of(s, h)->last + 1 - h->sequence % 4;
    if (how & HOW_CONNECT && len >= sizeof(struct verbs_connect)) {
        struct verbs_connect *c = (struct verbs_connect *)(void *)p;
        h->type = VERBS_CONNECT;
        memset(c->name, 0, sizeof c->name);
        memcpy(c->name, "space", 5);
    }
    uint32_t at = sizeof *h, count = 0;
    while (how & HOW_VERBS && at + sizeof(struct verbs_op) + 8 <= len) {
        struct verbs_op *op = (struct verbs_op *)(void *)(p + at);
        op->verb = (uint8_t)(1 + op->verb % 7);
        uint32_t operands = verbs_operands(op->verb), left = len - at - (uint32_t)sizeof *op;
        op->width = operands ? (op->width % 2 ? 8 : 16) : 0;
        op->room = (uint16_t)(operands ? operands * op->width : 8 * (1 + op->room % 4u));
        op->room = (uint16_t)(op->room > left ? left / 8 * 8 : op->room);
        op->unused = 0;
        op->offset = op->offset % (BYTES / 16 + 2) * 16;
        at += (uint32_t)sizeof *op + op->room;
        count++;
    }
    if (count)
        h->count = (uint16_t)count;
}

static void one(struct state *s, uint8_t how, const uint8_t *bytes, uint32_t len)
{
    uint8_t *p = calloc(1, VERBS_PACKET_MAX), before[BYTES];
    struct memnode_from to;
    uint64_t more[sizeof(struct verbs_wait) / 8];
    if (!p)
        abort();
    memcpy(p, bytes, len);
    make_sound(s, how, p, len);
    if (how & HOW_LATER) {
        s->now += LEASE_NS / 3;
        memnode_tick(s->node, s->now);
    }
    memcpy(before, s->memory, BYTES);
    struct verbs_head h = {0};
    memcpy(&h, p, len < sizeof h ? len : sizeof h);
    struct verbs_client was = s->table[h.client % CLIENTS];
    uint32_t answer = memnode_packet(s->node, p, len, &somewhere, s->now, 99 + len);
    bool executed = answer && h.type == VERBS_BATCH && p[3] == VERBS_OK;
    if (answer > len)
        abort(); /* it would amplify */
    if (memcmp(before, s->memory, BYTES) != 0 && (!executed || h.client >= CLIENTS || h.life != was.life || h.tag != was.tag ||
                                                  h.sequence != was.last + 1 || h.node_life != 5 || h.life <= was.fenced))
        abort();
    while ((answer = memnode_more(s->node, more, &to)))
        if (answer > sizeof more || to.opaque[0] != 1)
            abort();
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state s = {.memory = aligned_alloc(16, BYTES), .table = calloc(CLIENTS, sizeof *s.table), .now = NS_PER_S};
    if (!s.memory || !s.table)
        abort();
    memset(s.memory, 0, BYTES);
    const struct memnode_params params = {.space = "space",
                                          .id = 7,
                                          .life = 5,
                                          .lease_ns = LEASE_NS,
                                          .clients = CLIENTS,
                                          .can = VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED | VERBS_CAN_WAIT,
                                          .memory = s.memory,
                                          .bytes = BYTES,
                                          .table = s.table};
    s.node = memnode_new(&params);
    if (!s.node)
        abort();
    memnode_ready(s.node);
    for (uint32_t i = 0; i < 2; i++) { /* two clients are there */
        struct verbs_connect c = {.head = {.magic = VERBS_MAGIC, .version = VERBS_VERSION, .type = VERBS_CONNECT, .len = sizeof c},
                                  .name = "space",
                                  .nonce = 10 + i};
        uint8_t room[VERBS_PACKET_MAX];
        memcpy(room, &c, sizeof c);
        struct verbs_connect *answer = (struct verbs_connect *)(void *)room;
        if (memnode_packet(s.node, room, sizeof c, &somewhere, s.now, 1000 + i) != sizeof c || answer->head.status)
            abort();
    }
    while (size >= 2) {
        uint32_t len = data[0] * 8u;
        uint8_t how = data[1];
        data += 2, size -= 2;
        len = len > size ? (uint32_t)size : len;
        len = len > VERBS_PACKET_MAX ? VERBS_PACKET_MAX : len;
        one(&s, how, data, len);
        data += len, size -= len;
    }
    memnode_free(s.node);
    free(s.table);
    free(s.memory);
    return 0;
}
