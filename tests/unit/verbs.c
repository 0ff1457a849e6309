/* SPDX-License-Identifier: Apache-2.0 */
/* The executor of a memory node beyond what its first pass lets through: a verb that is cut, more verbs than there are, results
 * beyond the cache, memory that ends. The kernel's verifier demands these checks. Whatever comes, no byte behind the packet, the
 * cache or the memory is read or written. */
#include "dataplane/mistake.h"
#include "lib/base.h"
#include "tests/check.h"

#include "dataplane/verbs.h"

#define WORDS 8u /* of memory */
#define BEHIND UINT64_C(0x6265686e64)

struct verbs_memory {
    uint64_t word[WORDS + 1];
};

static unsigned fences;

VERBS_INLINE uint64_t *verbs_word(struct verbs_memory *m, uint64_t offset)
{
    return offset / 8 < WORDS ? &m->word[offset / 8] : NULL;
}

VERBS_INLINE void verbs_store(struct verbs_memory *m, uint64_t offset, uint64_t value, const uint64_t *upper)
{
    for (unsigned i = 0; i < 1u + (upper != NULL); i++)
        if (verbs_word(m, offset + 8 * i))
            *verbs_word(m, offset + 8 * i) = i ? *upper : value;
}

VERBS_INLINE void verbs_fence(void)
{
    fences++;
}

VERBS_INLINE void verbs_atomic(const struct verbs_run *r, const struct verbs_op *op, uint32_t at)
{
    uint64_t *room = verbs_place(r, at, 8), *word = verbs_word(r->memory, op->offset);
    if (room && word)
        *word += 1;
}

static struct verbs_memory memory;
static struct verbs_kept kept;
static struct verbs_run r;
static union {
    struct verbs_head head;
    uint64_t word[(VERBS_PACKET_MAX + 64) / 8];
    uint8_t bytes[VERBS_PACKET_MAX + 64];
} packet;

/* A request of one verb, which is sound; `bytes` of it are there. */
static struct verbs_op *begin(uint8_t verb, uint64_t offset, uint16_t room, uint8_t width, uint32_t bytes)
{
    memset(&packet, 0, sizeof packet);
    memset(&kept, 0, sizeof kept);
    for (unsigned i = 0; i <= WORDS; i++)
        memory.word[i] = i == WORDS ? BEHIND : 100 + i;
    packet.head.count = 1;
    packet.head.len = (uint16_t)(sizeof packet.head + sizeof(struct verbs_op) + room);
    struct verbs_op *op = (struct verbs_op *)(void *)(packet.bytes + sizeof packet.head);
    *op = (struct verbs_op){.verb = verb, .width = width, .room = room, .offset = offset};
    r = (struct verbs_run){.memory = &memory, .kept = &kept, .data = packet.bytes, .end = packet.bytes + bytes, .bytes = 8 * WORDS};
    verbs_begin(&r, &packet.head);
    memset(packet.bytes + bytes, 0x5a, sizeof packet.bytes - bytes);
    return op;
}

static void check_bounds(uint32_t bytes)
{
    CHECK_EQ(memory.word[WORDS], BEHIND);
    for (unsigned i = 0; i < WORDS; i++)
        CHECK(memory.word[i] != UINT64_C(0x5a5a5a5a5a5a5a5a));
    for (uint32_t i = bytes; i < sizeof packet.bytes; i++)
        CHECK_EQ(packet.bytes[i], 0x5a);
}

#define HEAD ((uint32_t)sizeof packet.head)
#define OP ((uint32_t)sizeof(struct verbs_op))

/* Each verb is executed with the packet cut behind every byte, as if the first pass had let it through. */
static void cut(void)
{
    static const struct {
        uint8_t verb, width;
        uint16_t room;
        uint64_t offset;
    } cases[] = {{VERBS_READ, 0, 8, 0},         {VERBS_READ, 0, 16, 16},
                 {VERBS_READ, 0, 32, 0},        {VERBS_READ, 0, 16, 8 * (WORDS - 1)},
                 {VERBS_READ, 0, 8, 8 * WORDS}, {VERBS_READ, 0, 32, 8 * (WORDS - 2)},
                 {VERBS_WRITE, 0, 8, 8},        {VERBS_WRITE, 0, 16, 16},
                 {VERBS_WRITE, 0, 16, 8},       {VERBS_WRITE, 0, 40, 0},
                 {VERBS_FAA, 8, 8, 0},          {VERBS_FAA, 16, 16, 16}};
    for (unsigned i = 0; i < countof(cases); i++)
        for (unsigned way = 0; way < 4; way++) { /* anew or repeated; the last verb, or one before a change */
            uint32_t whole = HEAD + OP + cases[i].room;
            for (uint32_t bytes = HEAD; bytes <= whole; bytes += 4) {
                begin(cases[i].verb, cases[i].offset, cases[i].room, cases[i].width, whole);
                r.end = packet.bytes + bytes;
                memset(packet.bytes + bytes, 0x5a, sizeof packet.bytes - bytes);
                r.repeat = way & 1;
                r.changes = way & 2 ? 2 : 0;
                verbs_execute_step(0, &r);
                check_bounds(bytes);
            }
        }
}

/* A whole request is executed, and its memory is as it says. */
static void whole(void)
{
    uint32_t bytes = HEAD + OP + 16;
    begin(VERBS_READ, 16, 16, 0, bytes);
    CHECK(verbs_check_step(0, &r));
    CHECK(verbs_check_end(&r));
    CHECK(verbs_execute_step(0, &r));
    CHECK(packet.word[(HEAD + OP) / 8] == 102 && packet.word[(HEAD + OP) / 8 + 1] == 103);
    struct verbs_op *op = begin(VERBS_WRITE, 16, 16, 0, bytes);
    ((uint64_t *)(void *)(op + 1))[0] = 7;
    ((uint64_t *)(void *)(op + 1))[1] = 8;
    CHECK(verbs_check_step(0, &r) && verbs_check_end(&r) && verbs_execute_step(0, &r));
    CHECK(memory.word[2] == 7 && memory.word[3] == 8 && memory.word[4] == 104);
}

/* The first pass: more steps than verbs, fewer verbs than the head says, a place behind every packet. */
static void first_pass(void)
{
    begin(VERBS_READ, 0, 8, 0, HEAD + OP + 8);
    CHECK(verbs_check_step(0, &r) && !r.bad);
    CHECK(verbs_check_step(1, &r) && r.bad);
    begin(VERBS_READ, 0, 8, 0, HEAD + OP + 8);
    CHECK(!verbs_check_end(&r)); /* no verb was looked at */
    r.at = VERBS_PACKET_MAX + 8;
    CHECK(!verbs_place(&r, r.at, 8));
    CHECK(verbs_check_step(0, &r) && r.bad);
}

/* Results beyond the cache are not kept, and none is found there. */
static void full_cache(void)
{
    uint64_t room = 5;
    begin(VERBS_READ, 0, 8, 0, HEAD + OP + 8);
    for (unsigned repeat = 0; repeat < 2; repeat++) {
        r.words = VERBS_KEPT_WORDS;
        r.repeat = repeat;
        verbs_keep(&r, &room);
        CHECK_EQ(room, 5);
    }
    r.move_left = 0; /* a move that has ended */
    r.move_at = HEAD;
    CHECK_EQ(verbs_move_step(0, &r), 1);
}

int main(void)
{
    cut();
    whole();
    first_pass();
    full_cache();
    return 0;
}
