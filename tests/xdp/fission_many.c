/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's decider in the kernel and datagrams with several packets: each part has the outcome that it would have alone, or is
 * given back to its sender unchanged; two CPUs at once exclude each other; a datagram that is not whole changes nothing. */
#include "designs/fisslock/spill.h"
#include "tests/xdp/fission_hand.h"

#include <pthread.h>
#include <stdatomic.h>

#define LOCKS 16
#define PARTS                                                                                                                      \
    ((PACKET_MAX - sizeof(struct many_front)) / sizeof(struct fission_packet)) /* the most that a datagram has room for            \
                                                                                */

static struct rebuild_lock *locks;

static struct test_frame datagram(const struct fission_packet *parts, unsigned count)
{
    struct test_many d;
    test_many_begin(&d, &parts[0].head);
    for (unsigned i = 0; i < count; i++)
        test_many_add(&d, &parts[i], sizeof parts[i]);
    return test_frame(d.bytes, d.len);
}

static struct fission_packet part_of(const struct test_frame *f, unsigned i)
{
    struct fission_packet part;
    memcpy(&part, f->packet + sizeof(struct many_front) + i * sizeof part, sizeof part);
    return part;
}

static struct packet_many marks_of(const struct test_frame *f)
{
    struct many_front front;
    memcpy(&front, f->packet, sizeof front);
    return front.many;
}

/* ---- the usual life of several locks ---- */

static void grants_and_frees(void)
{
    struct fission_packet parts[10];
    struct test_frame in, out;
    for (unsigned i = 0; i < countof(parts); i++) {
        parts[i] = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, i);
        parts[i].head.nonce = 100 + i;
    }
    in = datagram(parts, countof(parts));
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    CHECK_EQ(out.len, in.len);
    CHECK(!marks_of(&out).settled && !marks_of(&out).singly);
    CHECK_EQ(ntohl(out.ip.daddr), 0x0a000001u);
    CHECK_EQ(ntohs(out.udp.dest), 5001);
    CHECK_EQ(out.udp.check, 0);
    for (unsigned i = 0; i < countof(parts); i++) {
        struct fission_packet g = part_of(&out, i);
        CHECK(g.head.type == FISSION_GRANT && g.flags & FISSION_AGENT && g.head.nonce == 100 + i);
        CHECK_EQ(locks[i].word, g.word);
        parts[i] = request(FISSION_FREE, FISSION_EXCLUSIVE, i);
        parts[i].term = g.term;
    }
    /* A second time: all are held, and go singly. */
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    CHECK_EQ(marks_of(&out).singly, (1 << countof(parts)) - 1);
    CHECK(!memcmp(out.packet + sizeof(struct many_front), in.packet + sizeof(struct many_front),
                  in.len - FRAME_HEADS - sizeof(struct many_front)));
    in = datagram(parts, countof(parts));
    for (unsigned twice = 0; twice < 2; twice++) {
        CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
        for (unsigned i = 0; i < countof(parts); i++)
            CHECK(part_of(&out, i).flags & FISSION_DONE && !(locks[i].word & FISSION_WORD_HELD));
    }
    test_reason(p, NO_REASON);
}

/* A part of more bytes than the program decides goes singly; the others do not wait for it. */
static void long_part(void)
{
    struct {
        struct fission_packet p;
        struct fission_entry entry[2];
    } longer = {.p = request(FISSION_GRANT, FISSION_EXCLUSIVE, 1)};
    struct fission_packet f = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 15), got;
    struct test_many d;
    longer.p.flags = FISSION_AGENT;
    longer.p.count = 2;
    test_many_begin(&d, &f.head);
    test_many_add(&d, &longer, sizeof longer);
    test_many_add(&d, &f, sizeof f);
    struct test_frame in = test_frame(d.bytes, d.len), out;
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    CHECK(marks_of(&out).singly == 1 && !marks_of(&out).settled);
    memcpy(&got, out.packet + sizeof(struct many_front) + sizeof longer, sizeof got);
    CHECK_EQ(got.head.type, FISSION_GRANT);
    locks[15].word = 0;
}

/* ---- as single packets ---- */

static bool is_decided(const struct fission_packet *part)
{
    return part->head.type == FISSION_ACQUIRE || part->head.type == FISSION_RELEASE || part->head.type == FISSION_FREE;
}

/* The lock and the part after it, as the stages have it here. */
static uint32_t outcome_here(struct rebuild_lock *lock, struct fission_packet *part, const struct fission_policy *policy)
{
    struct fission_meta m;
    struct rebuild_lock next = *lock;
    bool is_client = !memcmp(&part->client, &part->head.from, sizeof part->client);
    if (!is_decided(part))
        return 2;
    if (!spill_is_of_lock(&next, policy, part)) {
        if (!fission_has_agent(part))
            return 1;
        fission_rewrite(part, policy, &(struct fission_meta){0}, FISSION_BACK);
        return 0;
    }
    *lock = next; /* a later generation begins, whatever becomes of the packet */
    uint32_t dest = fission_decide(part, policy, &next.word, &next.token, &m);
    if (dest != FISSION_DROP && dest != FISSION_BACK && (dest != FISSION_TO_CLIENT || !is_client))
        return 2;
    *lock = next;
    m.token += fission_base(lock->age, 0);
    if (dest == FISSION_DROP)
        return 1;
    fission_rewrite(part, policy, &m, dest);
    return 0;
}

static bool has_equal_locks(const struct fission_packet *parts, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < i; k++)
            if (parts[i].head.index == parts[k].head.index)
                return true;
    return false;
}

static void one_random_datagram(struct rng *rng, const struct fission_policy *policy, bool names, unsigned seen[4])
{
    struct fission_packet parts[PARTS];
    struct rebuild_lock want[LOCKS];
    struct packet_many marks = {.count = (uint8_t)(1 + rng_below(rng, PARTS))};
    struct test_frame in, out;
    memcpy(want, locks, sizeof want);
    for (unsigned i = 0; i < marks.count; i++) {
        parts[i] = random_packet(rng, locks, LOCKS);
        while ((!is_decided(&parts[i]) && rng_below(rng, 8)) || (has_equal_locks(parts, i + 1) && rng_below(rng, 200)))
            parts[i] = random_packet(rng, locks, LOCKS);
        if (test_is_keyed()) /* the datagram's tag speaks for one machine */
            parts[i].head.from.machine = parts[0].head.from.machine;
        uint32_t age = want[parts[i].head.index].age.generation;
        if (names)
            parts[i].head.generation = age + (rng_chance(rng, 1, 8) ? 1 : 0) - (age && rng_chance(rng, 1, 8) ? 1 : 0);
    }
    in = datagram(parts, marks.count);
    bool refused = has_equal_locks(parts, marks.count); /* as a whole */
    seen[3] += refused;
    for (unsigned i = 0; i < marks.count && !refused; i++) {
        uint32_t outcome = outcome_here(&want[parts[i].head.index], &parts[i], policy);
        seen[outcome]++;
        marks.settled |= (uint16_t)((outcome == 1) << i);
        marks.singly |= (uint16_t)((outcome == 2) << i);
    }
    bool silent = refused || marks.settled == (1 << marks.count) - 1;
    CHECK_EQ(test_pass(p, &in, &out), silent ? XDP_DROP : XDP_TX);
    CHECK(!memcmp(locks, want, sizeof want));
    if (silent)
        return;
    CHECK_EQ(marks_of(&out).settled, marks.settled);
    CHECK_EQ(marks_of(&out).singly, marks.singly);
    for (unsigned i = 0; i < marks.count; i++) {
        struct fission_packet got = part_of(&out, i);
        if (!(marks.settled >> i & 1) && memcmp(&got, &parts[i], sizeof got) != 0)
            CHECK_FAIL("part %u of %u, type %u: another packet came out", i, marks.count, parts[i].head.type);
    }
}

static void as_single_packets(uint32_t options, bool names)
{
    const struct fission_policy policy = {.options = options};
    struct plane *usual = p;
    struct rebuild_lock *usual_locks = locks;
    unsigned seen[4] = {0};
    uint64_t bytes;
    struct rng rng;
    void *at;
    p = test_plane_of("fission", &(struct plane_settings){.port = htons(TEST_PORT),
                                                          .machines = TEST_MACHINES,
                                                          .space = TEST_SPACE,
                                                          .locks = LOCKS,
                                                          .options = options,
                                                          .names = names});
    CHECK_EQ(plane_map(p, "locks", &at, &bytes), 0);
    locks = at;
    rng_seed(&rng, 9);
    for (int i = 0; i < 3000; i++)
        one_random_datagram(&rng, &policy, names, seen);
    printf("%u parts answered, %u without an answer, %u given back, %u datagrams refused\n", seen[0], seen[1], seen[2], seen[3]);
    CHECK(seen[0] > 1000 && seen[1] > 1000 && seen[2] > 1000 && seen[3] > 50);
    struct plane_counters c;
    CHECK_EQ(plane_count(p, &c), 0);
    CHECK_EQ(c.reason[PLANE_MANY], seen[3]);
    CHECK(c.singly >= seen[2] / 2 && c.singly <= seen[2]); /* not those of datagrams without any answer */
    plane_close(p, PLANE_REMOVE);
    p = usual;
    locks = usual_locks;
    test_reason(p, ANY_REASON);
}

/* ---- bad input ---- */

static void expect_ignored(const char *what, const struct test_frame *in, enum plane_reason why)
{
    struct rebuild_lock before[LOCKS];
    struct test_frame out;
    memcpy(before, locks, sizeof before);
    uint32_t verdict = test_pass(p, in, &out);
    if (verdict != XDP_DROP || memcmp(before, locks, sizeof before) != 0)
        CHECK_FAIL("%s: verdict %u", what, verdict);
    test_reason(p, why);
}

static void damaged(const char *what, struct test_frame good, size_t byte, uint8_t value, enum plane_reason why)
{
    good.packet[byte] = value;
    test_udp_sum(&good);
    expect_ignored(what, &good, why);
}

static void bad_datagrams(void)
{
    const size_t many = sizeof(struct packet_head), part = sizeof(struct many_front) + sizeof(struct fission_packet);
    struct fission_packet parts[4];
    for (unsigned i = 0; i < countof(parts); i++)
        parts[i] = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 4 + i);
    struct test_frame good = datagram(parts, countof(parts));
    damaged("no parts", good, many, 0, PLANE_MANY);
    damaged("more parts than there are", good, many, 5, PLANE_MANY);
    damaged("fewer", good, many, 3, PLANE_MANY);
    damaged("more than there may be", good, many, PACKET_MANY_MAX + 1, PLANE_MANY);
    damaged("far more", good, many, 255, PLANE_MANY);
    for (unsigned i = 1; i < 8; i++)
        damaged("bytes that are zero, and marks", good, many + i, 1, PLANE_MANY);
    for (unsigned i = 0; i < PACKET_MANY_MAX; i++) {
        damaged("a length", good, many + 8 + i, 255, PLANE_MANY);
        damaged("a length", good, many + 8 + i, 1, PLANE_MANY);
        damaged("a length", good, many + 8 + i, 12, PLANE_MANY);
    }
    damaged("a part of a newer version", good, part, PACKET_VERSION + 1, PLANE_MANY);
    damaged("a part with parts", good, part + 1, PACKET_MANY, PLANE_MANY);
    damaged("a part of another family", good, part + 2, PACKET_ECHO, PLANE_MANY);
    damaged("a newer version", good, 0, PACKET_VERSION + 1, PLANE_VERSION);
    damaged("another feature, too", good, 1, test_is_keyed() ? 6 : PACKET_MANY | PACKET_TAGGED, PLANE_VERSION);
    damaged("another family", good, 2, PACKET_NETLOCK, PLANE_FAMILY);
    for (unsigned i = 0; i < countof(parts); i++)
        for (unsigned k = 0; k < i; k++) {
            struct fission_packet equal[countof(parts)];
            memcpy(equal, parts, sizeof equal);
            equal[i].head.index = equal[k].head.index;
            struct test_frame in = datagram(equal, countof(equal));
            expect_ignored("two parts of one lock", &in, PLANE_MANY);
        }
    for (uint32_t len = sizeof(struct packet_head); len < good.len - FRAME_HEADS; len++) {
        struct test_frame in = test_frame(good.packet, len);
        expect_ignored("truncated", &in, PLANE_MANY);
    }
    struct test_frame in = good;
    in.packet[100] ^= 1;
    expect_ignored("checksum", &in, PLANE_CHECKSUM);
    plane_live(p)->closed = 1;
    struct test_frame one = datagram(parts, 1);
    expect_ignored("closed", &one, PLANE_CLOSED);
    plane_live(p)->closed = 0;
    parts[0].head.index = LOCKS;
    one = datagram(parts, 1);
    expect_ignored("a lock that is not there", &one, PLANE_ALIEN);
    parts[0] = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 4);
    parts[0].head.space++;
    one = datagram(parts, 1);
    expect_ignored("another space", &one, PLANE_ALIEN);
    struct fission_packet shorter = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 4);
    struct test_many d;
    test_many_begin(&d, &shorter.head);
    test_many_add(&d, &shorter, sizeof shorter - 8);
    one = test_frame(d.bytes, d.len);
    expect_ignored("a part shorter than the design's packets", &one, PLANE_SHORT);
}

/* A host without a lease gets nothing, beside one with a lease in the same datagram. */
static void leases(void)
{
    struct plane *usual = p;
    struct rebuild_lock *usual_locks = locks;
    uint64_t bytes;
    void *at;
    p = test_plane_leased("fission", LOCKS, 3600 * NS_PER_S);
    CHECK_EQ(plane_map(p, "locks", &at, &bytes), 0);
    locks = at;
    test_reason(p, ANY_REASON);
    struct fission_packet heartbeat = packet_in(TEST_SPACE, FISSION_LEASE, 1, 0);
    expect("a heartbeat", &heartbeat, XDP_TX, NO_REASON);
    struct fission_packet parts[] = {packet_in(TEST_SPACE, FISSION_ACQUIRE, 2, 1), packet_in(TEST_SPACE, FISSION_ACQUIRE, 1, 2),
                                     heartbeat};
    struct test_frame in = datagram(parts, countof(parts)), out;
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    CHECK_EQ(marks_of(&out).settled, 1);
    CHECK_EQ(marks_of(&out).singly, 4);
    CHECK_EQ(part_of(&out, 1).head.type, FISSION_GRANT);
    CHECK(!locks[1].word);
    test_reason(p, PLANE_REFUSED);
    plane_close(p, PLANE_REMOVE);
    p = usual;
    locks = usual_locks;
    test_reason(p, ANY_REASON);
}

/* ---- two CPUs ---- */

#define TURNS 3000
static _Atomic unsigned holders[8], grants;

/* Each CPU takes the locks that it gets of eight, and frees them. */
static void *contend(void *arg)
{
    uint16_t me = (uint16_t)(intptr_t)arg;
    test_pin_to(me - 1);
    for (int turn = 0; turn < TURNS; turn++) {
        struct fission_packet parts[countof(holders)];
        struct test_frame in, out;
        unsigned held = 0;
        for (unsigned i = 0; i < countof(parts); i++) {
            parts[i] = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, i);
            parts[i].client = parts[i].head.from = (struct place){me, (uint16_t)(5000 + me)};
        }
        in = datagram(parts, countof(parts));
        if (test_pass(p, &in, &out) != XDP_TX)
            continue;
        struct packet_many marks = marks_of(&out);
        for (unsigned i = 0; i < countof(holders); i++) {
            struct fission_packet g = part_of(&out, i);
            if ((marks.settled | marks.singly) >> i & 1)
                continue;
            CHECK_EQ(g.head.type, FISSION_GRANT);
            CHECK_EQ(atomic_fetch_add(&holders[i], 1), 0);
            parts[held] = request(FISSION_FREE, FISSION_EXCLUSIVE, i);
            parts[held].head.from = (struct place){me, PORT_POOL};
            parts[held++].term = g.term;
        }
        atomic_fetch_add(&grants, held);
        for (unsigned i = 0; i < held; i++)
            atomic_fetch_sub(&holders[parts[i].head.index], 1);
        if (held) {
            in = datagram(parts, held);
            while (test_pass(p, &in, &out) != XDP_TX || marks_of(&out).settled)
                ; /* contended */
        }
    }
    return NULL;
}

int main(void)
{
    uint64_t bytes;
    void *at;
    pthread_t t[2];
    p = test_plane("fission", LOCKS);
    CHECK_EQ(plane_map(p, "locks", &at, &bytes), 0);
    locks = at;
    test_pin_to(0);
    grants_and_frees();
    long_part();
    bad_datagrams();
    if (!test_is_keyed()) /* parts of two hosts: xdp/forge has those with keys */
        leases();
    as_single_packets(0, false);
    as_single_packets(FISSION_WRITE_PREFERRING, false);
    as_single_packets(0, true);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        for (intptr_t i = 0; i < 2; i++)
            CHECK_EQ(pthread_create(&t[i], NULL, contend, (void *)(i + 1)), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(t[i], NULL);
        printf("%u grants on two CPUs\n", atomic_load(&grants));
        CHECK(grants > 1000);
    }
    plane_close(p, PLANE_REMOVE);
    return 0;
}
