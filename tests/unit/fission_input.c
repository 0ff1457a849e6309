/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's packets: each field that must be right is wrong once, and the packet is refused for that. */
#include "designs/fisslock/spill.h"
#include "lib/base.h"
#include "tests/check.h"

#define MACHINES 3
#define LOCKS 10

static const struct fission_rules rules = {.space = 7, .life = 5, .machines = MACHINES, .locks = LOCKS};
static _Alignas(8) uint8_t bytes[PACKET_MAX + sizeof(struct fission_entry)];

static struct fission_packet sound(enum fission_type type)
{
    struct fission_packet p;
    memset(&p, 0, sizeof p);
    p.head = (struct packet_head){.version = PACKET_VERSION,
                                  .family = PACKET_FISSION,
                                  .type = (uint8_t)type,
                                  .space = rules.space,
                                  .epoch = rules.life,
                                  .index = 4,
                                  .nonce = 99,
                                  .from = {1, 0},
                                  .to = {MACHINE_SWITCH, 0}};
    p.mode = p.old_mode = FISSION_EXCLUSIVE;
    p.client = (struct place){1, 9};
    return p;
}

static enum fission_fault verify(struct fission_packet p, uint32_t len)
{
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &p, sizeof p);
    return fission_verify(bytes, len, &rules);
}

#define EXPECT(fault, type, ...)                                                                                                   \
    do {                                                                                                                           \
        struct fission_packet p = sound(type);                                                                                     \
        CHECK_EQ(verify(p, sizeof p), FISSION_FINE);                                                                               \
        __VA_ARGS__;                                                                                                               \
        CHECK_EQ(verify(p, sizeof p), fault);                                                                                      \
    } while (0)

static void heads(void)
{
    for (unsigned type = FISSION_ACQUIRE; type <= FISSION_ASK; type++)
        CHECK_EQ(verify(sound((enum fission_type)type), sizeof(struct fission_packet)), FISSION_FINE);
    CHECK_EQ(verify(sound((enum fission_type)(FISSION_ASK + 1)), sizeof(struct fission_packet)), FISSION_BAD);
    CHECK_EQ(verify(sound((enum fission_type)(FISSION_ACQUIRE - 1)), sizeof(struct fission_packet)), FISSION_BAD);
    EXPECT(FISSION_UNREADABLE, FISSION_ACQUIRE, p.head.version++);
    EXPECT(FISSION_BAD, FISSION_ACQUIRE, p.head.family++);
    EXPECT(FISSION_ALIEN, FISSION_ACQUIRE, p.head.space++);
    EXPECT(FISSION_ALIEN, FISSION_ACQUIRE, p.head.index = LOCKS);
    EXPECT(FISSION_ALIEN, FISSION_ACQUIRE, p.head.from.machine = MACHINE_NONE);
    EXPECT(FISSION_ALIEN, FISSION_ACQUIRE, p.head.from.machine = MACHINES + 1);
    EXPECT(FISSION_ALIEN, FISSION_ACQUIRE, p.head.to.machine = MACHINE_NONE);
    EXPECT(FISSION_ALIEN, FISSION_ACQUIRE, p.head.to.machine = MACHINES + 1);
    EXPECT(FISSION_STALE, FISSION_ACQUIRE, p.head.epoch++);
    EXPECT(FISSION_STALE, FISSION_ACQUIRE, p.head.generation++); /* indexes of keys without names have none */
    EXPECT(FISSION_FINE, FISSION_LEASE, p.head.epoch++);         /* a host learns it with its lease */
    EXPECT(FISSION_FINE, FISSION_LEASE, p.head.generation++);
}

static void lengths(void)
{
    struct fission_packet p = sound(FISSION_ACQUIRE);
    CHECK_EQ(verify(p, sizeof p - 1), FISSION_BAD);
    CHECK_EQ(verify(p, sizeof p + 1), FISSION_BAD);
    CHECK_EQ(verify(p, PACKET_MAX + 1), FISSION_BAD);
    p.count = 1;
    CHECK_EQ(verify(p, sizeof p), FISSION_BAD);
    CHECK_EQ(verify(p, sizeof p + sizeof(struct fission_entry)), FISSION_FINE);
    p.count = FISSION_ENTRIES_MAX;
    CHECK_EQ(verify(p, (uint32_t)(sizeof p + FISSION_ENTRIES_MAX * sizeof(struct fission_entry))), FISSION_FINE);
    p.count++;
    CHECK_EQ(verify(p, PACKET_MAX), FISSION_BAD);
}

static void fields(void)
{
    EXPECT(FISSION_BAD, FISSION_RELEASE, p.term = FISSION_TERM_MASK + 1);
    EXPECT(FISSION_FINE, FISSION_RELEASE, p.term = FISSION_TERM_MASK);
    EXPECT(FISSION_BAD, FISSION_ACQUIRE, p.mode = 0);
    EXPECT(FISSION_BAD, FISSION_GRANT, p.mode = FISSION_EXCLUSIVE + FISSION_SHARED);
    EXPECT(FISSION_FINE, FISSION_GRANT, p.mode = FISSION_SHARED);
    EXPECT(FISSION_FINE, FISSION_RELEASE, p.mode = 0); /* which has none */
    EXPECT(FISSION_BAD, FISSION_FREE, p.old_mode = 0);
    EXPECT(FISSION_FINE, FISSION_FREE, p.old_mode = FISSION_SHARED);
    EXPECT(FISSION_FINE, FISSION_GRANT, p.old_mode = 0); /* only one that moves the agent ends a mode */
    EXPECT(FISSION_BAD, FISSION_GRANT, p.old_mode = 0, p.flags |= FISSION_AGENT);
    static const enum fission_type of_clients[] = {FISSION_ACQUIRE, FISSION_RELEASE, FISSION_TAKE,
                                                   FISSION_PROBE,   FISSION_CHASE,   FISSION_ASK};
    for (unsigned i = 0; i < countof(of_clients); i++) {
        EXPECT(FISSION_ALIEN, of_clients[i], p.client.machine = MACHINE_SWITCH);
        EXPECT(FISSION_ALIEN, of_clients[i], p.client.machine = MACHINE_NONE);
        EXPECT(FISSION_ALIEN, of_clients[i], p.client.machine = MACHINES + 1);
    }
    EXPECT(FISSION_FINE, FISSION_FREE, p.client.machine = MACHINE_NONE);
}

/* ---- packets between the switch and the servers that have its other locks ---- */

static const struct rack_config rack = {.space = 7, .locks = LOCKS};

static bool spilled(struct fission_packet p, uint32_t len)
{
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &p, sizeof p);
    return spill_verify((const struct fission_packet *)(const void *)bytes, len, &rack);
}

#define REFUSED(len, ...)                                                                                                          \
    do {                                                                                                                           \
        struct fission_packet p = sound((enum fission_type)SPILL_HELLO);                                                           \
        CHECK(spilled(p, sizeof p));                                                                                               \
        __VA_ARGS__;                                                                                                               \
        CHECK(!spilled(p, len));                                                                                                   \
    } while (0)

static void spills(void)
{
    struct fission_packet many = sound((enum fission_type)SPILL_HELLO);
    REFUSED(sizeof p - 1, (void)0);
    REFUSED(PACKET_MAX + 1, (void)0);
    REFUSED(sizeof p, p.head.version++);
    REFUSED(sizeof p, p.count = 1);
    REFUSED(sizeof p + sizeof(struct fission_entry), p.count = 2);
    REFUSED(PACKET_MAX, p.count = FISSION_ENTRIES_MAX + 1);
    REFUSED(sizeof p, p.head.space++);
    REFUSED(sizeof p, p.head.index = LOCKS);
    many.count = FISSION_ENTRIES_MAX;
    CHECK(spilled(many, (uint32_t)(sizeof many + FISSION_ENTRIES_MAX * sizeof(struct fission_entry))));
    CHECK(spill_is_control(bytes, sizeof(struct packet_head)));
    CHECK(!spill_is_control(bytes, sizeof(struct packet_head) - 1));
}

/* After the switch lost its state the first report of a lock counts. A later one is the same hold, another reader, or contradicts
 * it. */
static void reports(void)
{
    uint64_t word = 0, token = 0;
    CHECK(fission_reported(&word, &token, 1, FISSION_EXCLUSIVE));
    uint64_t first = word;
    CHECK(fission_reported(&word, &token, 1, FISSION_EXCLUSIVE));
    CHECK(!fission_reported(&word, &token, 2, FISSION_EXCLUSIVE) && !fission_reported(&word, &token, 2, FISSION_SHARED));
    CHECK(word == first && fission_word_machine(word) == 1);
    word = 0;
    CHECK(fission_reported(&word, &token, 1, FISSION_SHARED));
    first = word;
    CHECK(fission_reported(&word, &token, 1, FISSION_SHARED) && fission_reported(&word, &token, 2, FISSION_SHARED));
    CHECK(!fission_reported(&word, &token, 1, FISSION_EXCLUSIVE) && !fission_reported(&word, &token, 2, FISSION_EXCLUSIVE));
    CHECK(word == first && fission_word_machine(word) == 1);
}

int main(void)
{
    reports();
    spills();
    heads();
    lengths();
    fields();
    return 0;
}
