/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's decider in the kernel, packet in and packet out: it does what its stages do in this process, packet by packet; two
 * CPUs at once exclude each other; nothing bad changes a lock. */
#include "designs/fisslock/spill.h"
#include "tests/xdp/fission_hand.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define LOCKS 16

static struct rebuild_lock *locks;

static struct test_frame framed(const struct fission_packet *f)
{
    return test_frame(f, sizeof *f);
}

static struct fission_packet content(const struct test_frame *f)
{
    struct fission_packet got;
    memcpy(&got, f->packet, sizeof got);
    return got;
}

static void expect_addressed(const struct test_frame *out, struct place to)
{
    CHECK_EQ(ntohl(out->ip.daddr), 0x0a000000u + to.machine);
    CHECK_EQ(out->eth.h_dest[5], to.machine);
    CHECK_EQ(ntohs(out->udp.dest), to.port == PORT_POOL ? 4700 : to.port);
    CHECK_EQ(test_sum(&out->ip, sizeof out->ip, 0), 0xffff);
    CHECK_EQ(out->udp.check, 0);
}

/* ---- the usual life of a lock ---- */

static void grant_and_free(void)
{
    struct fission_packet f = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 3);
    struct test_frame in = framed(&f), out;
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    struct fission_packet g = content(&out);
    CHECK_EQ(g.head.type, FISSION_GRANT);
    CHECK(g.flags & FISSION_AGENT);
    CHECK_EQ(g.head.nonce, f.head.nonce);
    expect_addressed(&out, f.client);
    CHECK_EQ(locks[3].word, g.word);
    CHECK_EQ(fission_word_machine(g.word), 1);

    /* Another's request goes to the agent's machine. */
    f.client = f.head.from = (struct place){2, 5002};
    in = framed(&f);
    CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
    CHECK_EQ(content(&out).head.type, FISSION_ACQUIRE);
    expect_addressed(&out, (struct place){1, PORT_POOL});

    /* A FREE of another tenure is turned down, the right one is heard; a second time it finds the tenure over. */
    struct fission_packet r = request(FISSION_FREE, FISSION_EXCLUSIVE, 3);
    r.term = (g.term + 5) & FISSION_TERM_MASK;
    uint64_t before = locks[3].word;
    in = framed(&r);
    test_pass(p, &in, &out);
    CHECK_EQ(locks[3].word, before);
    r.term = g.term;
    for (int i = 0; i < 2; i++) {
        in = framed(&r);
        CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
        CHECK(content(&out).flags & FISSION_DONE);
        expect_addressed(&out, r.head.from);
        CHECK(!(locks[3].word & FISSION_WORD_HELD));
    }

    struct test_frame again = framed(&f);
    CHECK_EQ(test_pass(p, &again, &out), XDP_TX);
    CHECK(content(&out).token > g.token);
    test_reason(p, NO_REASON);
}

/* A shared request on a lock that is held shared: one packet in, a grant and a copy for the agent out. */
static void two_out_of_one(void)
{
    struct fission_packet f = request(FISSION_ACQUIRE, FISSION_SHARED, 4);
    struct test_frame in = framed(&f), out, copy;
    test_pass(p, &in, &out);
    CHECK_EQ(content(&out).head.type, FISSION_GRANT);
    for (unsigned i = 0; i < 200; i++) {
        f.client = f.head.from = (struct place){(uint16_t)(2 + i % 2), (uint16_t)(6000 + i)};
        f.head.nonce = i;
        in = framed(&f);
        CHECK_EQ(test_pass(p, &in, &out), XDP_REDIRECT);
        /* Both copies are as `out`; now and then one is lost. */
        struct plane_run run = {.in = out.bytes, .in_len = out.len, .out = copy.bytes, .out_len = sizeof copy.bytes};
        CHECK_EQ(test_run(plane_program(p, "twin_probe"), &run), 0);
        CHECK_EQ(run.verdict, XDP_PASS);
        CHECK_EQ(content(&copy).head.type, FISSION_GRANT);
        CHECK_EQ(content(&copy).head.nonce, i);
        CHECK_EQ(content(&copy).inca, i + 2);
        CHECK_EQ(content(&copy).head.to.port, 6000 + i);
        expect_addressed(&copy, f.client);
        if (i % 7 == 3)
            continue;
        run.out_len = sizeof copy.bytes;
        CHECK_EQ(test_run(plane_program(p, "twin_probe"), &run), 0);
        CHECK_EQ(run.verdict, XDP_PASS);
        CHECK_EQ(content(&copy).head.type, FISSION_ACQUIRE);
        CHECK_EQ(content(&copy).head.nonce, i);
        CHECK(content(&copy).flags & FISSION_COPY);
        expect_addressed(&copy, (struct place){1, PORT_POOL});
    }
    test_reason(p, NO_REASON);
    /* A note that is gone: the copy is dropped, and never sent somewhere. */
    struct test_frame late = out;
    late.udp.check = 0x7777;
    struct plane_run run = {.in = late.bytes, .in_len = late.len, .out = copy.bytes, .out_len = sizeof copy.bytes};
    CHECK_EQ(test_run(plane_program(p, "twin_probe"), &run), 0);
    CHECK_EQ(run.verdict, XDP_DROP);
    test_reason(p, PLANE_LOST_TWIN);
}

static void expect_unchanged(const char *what, const struct test_frame *in, enum plane_reason why)
{
    uint64_t before[2 * LOCKS];
    struct test_frame out;
    memcpy(before, locks, sizeof before);
    uint32_t verdict = test_pass(p, in, &out);
    if (verdict != XDP_DROP)
        CHECK_FAIL("%s: verdict %u", what, verdict);
    if (memcmp(before, locks, sizeof before) != 0)
        CHECK_FAIL("%s: changed a lock", what);
    test_reason(p, why);
}

static void refused(const char *what, const struct fission_packet *f, enum plane_reason why)
{
    struct test_frame in = framed(f);
    expect_unchanged(what, &in, why);
}

/* Heads that the program does not read. */
static void heads(const struct fission_packet *good)
{
    struct fission_packet f = *good;
    f.head.version--;
    refused("another version", &f, PLANE_VERSION);
    f = *good;
    f.head.features = test_is_keyed() ? 4 : PACKET_TAGGED;
    refused("with another feature", &f, PLANE_VERSION);
}

static void bad_packets(void)
{
    struct fission_packet good = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 9), f;
    struct test_frame in;
    f = good;
    f.head.index = LOCKS;
    refused("index", &f, PLANE_ALIEN);
    f.head.index = UINT64_C(1) << 32 | 9;
    refused("an index of more than 32 bits", &f, PLANE_ALIEN);
    f = good;
    f.head.epoch = 1;
    refused("epoch", &f, PLANE_EPOCH);
    f = good;
    f.head.generation = 1;
    refused("generation", &f, PLANE_EPOCH);
    f = good;
    f.mode = 4;
    refused("mode", &f, PLANE_TYPE);
    f.mode = FISSION_PLACE;
    refused("a place that would be counted", &f, PLANE_TYPE);
    f = good;
    f.head.type = 0;
    refused("type", &f, PLANE_TYPE);
    f.head.type = FISSION_ASK + 1;
    refused("a type beyond the last", &f, PLANE_TYPE);
    f = good;
    f.head.type = FISSION_RELEASE;
    f.count = FISSION_ENTRIES_MAX + 1;
    refused("a count beyond a packet", &f, PLANE_TYPE);
    f = good;
    f.head.type = FISSION_RELEASE;
    f.head.from.machine = TEST_MACHINES + 1;
    refused("from beyond the rack", &f, PLANE_ALIEN);
    f = good;
    f.head.type = FISSION_RELEASE;
    f.head.to.machine = TEST_MACHINES + 1;
    refused("to beyond the rack", &f, PLANE_ALIEN);
    f = good;
    f.count = 1;
    refused("count without entries", &f, PLANE_TYPE);
    f = good;
    f.client.machine = MACHINE_SWITCH;
    refused("the switch as a client", &f, PLANE_ALIEN);
    f.head.type = FISSION_RELEASE;
    refused("the switch as one that held", &f, PLANE_ALIEN);
    f = good;
    f.head.type = FISSION_RELEASE;
    f.term = FISSION_TERM_MASK + 1;
    refused("a term of too many bits", &f, PLANE_TYPE);
    f = good;
    f.head.type = FISSION_FREE;
    f.old_mode = 0;
    refused("the end of no mode", &f, PLANE_TYPE);
    f = good;
    f.client.machine = TEST_MACHINES + 1;
    refused("a client beyond the rack", &f, PLANE_ALIEN);
    f = good;
    f.head.space = TEST_SPACE + 1;
    refused("another space", &f, PLANE_ALIEN);
    heads(&good);
    in = framed(&good);
    in.packet[60] ^= 1;
    expect_unchanged("checksum", &in, PLANE_CHECKSUM);
    for (uint32_t len = sizeof(struct packet_head); len < sizeof f; len++) {
        in = test_frame(&good, len);
        expect_unchanged("short", &in, PLANE_SHORT);
    }
    plane_live(p)->closed = 1;
    refused("closed", &good, PLANE_CLOSED);
    plane_live(p)->closed = 0;
}

/* ---- as the stages do here ---- */

static void as_the_stages(uint32_t options)
{
    const struct fission_policy policy = {.options = options};
    struct rng rng;
    unsigned seen[16] = {0};
    rng_seed(&rng, 7);
    locks[1].word = (uint64_t)FISSION_TERM_MASK << FISSION_WORD_TERM_SHIFT; /* soon its terms come round */
    locks[1].token = FISSION_TERM_MASK;
    struct fission_packet full = request(FISSION_ACQUIRE, FISSION_SHARED, 2);
    struct test_frame first = framed(&full), answer;
    test_pass(p, &first, &answer);
    locks[2].word |= FISSION_INCA_MAX; /* no further reader can be counted: the agent's queue */
    CHECK_EQ(test_pass(p, &first, &answer), XDP_TX);
    CHECK_EQ(content(&answer).head.type, FISSION_ACQUIRE);
    for (int i = 0; i < 20000; i++) {
        struct fission_packet f = random_packet(&rng, locks, LOCKS), want = f;
        struct fission_meta m = {0};
        uint64_t word = locks[f.head.index].word, token = locks[f.head.index].token;
        struct test_frame in = framed(&f), out;
        uint32_t dest = FISSION_TO_NEXT;
        if (fission_concerns_lock(&f))
            dest = fission_decide(&f, &policy, &word, &token, &m);
        uint32_t verdict = test_pass(p, &in, &out);
        seen[dest]++;
        CHECK_EQ(locks[f.head.index].word, word);
        CHECK_EQ(locks[f.head.index].token, token);
        CHECK_EQ(verdict, dest == FISSION_DROP ? XDP_DROP : dest == (FISSION_TO_CLIENT | FISSION_TO_AGENT) ? XDP_REDIRECT : XDP_TX);
        if (dest == FISSION_DROP)
            continue;
        if (fission_concerns_lock(&f))
            fission_rewrite(&want, &policy, &m, dest == (FISSION_TO_CLIENT | FISSION_TO_AGENT) ? FISSION_TO_AGENT : dest);
        struct fission_packet got = content(&out);
        if (memcmp(&got, &want, sizeof want) != 0)
            CHECK_FAIL("packet %d, type %u, destination %u: another packet came out", i, f.head.type, dest);
    }
    CHECK(locks[1].token > FISSION_TERM_MASK);
    for (uint32_t d = 0; d <= FISSION_BACK; d++)
        if (d <= 4 || d == FISSION_BACK)
            printf("destination %u: %u packets\n", d, seen[d]);
    CHECK(seen[0] && seen[1] && seen[2] && seen[3] && seen[4] && seen[8]);
    test_reason(p, NO_REASON);
}

/* Writers that wait keep readers out. */
static void write_preferring(void)
{
    struct plane *usual = p;
    void *at, *usual_locks = locks;
    uint64_t bytes;
    p = test_plane_of("fission", &(struct plane_settings){.port = htons(TEST_PORT),
                                                          .machines = TEST_MACHINES,
                                                          .space = TEST_SPACE,
                                                          .locks = LOCKS,
                                                          .options = FISSION_WRITE_PREFERRING});
    test_reason(p, ANY_REASON);
    CHECK_EQ(plane_map(p, "locks", &at, &bytes), 0);
    locks = at;
    static const uint8_t modes[] = {FISSION_SHARED, FISSION_SHARED, FISSION_EXCLUSIVE, FISSION_SHARED};
    static const uint32_t verdicts[] = {XDP_TX, XDP_REDIRECT, XDP_TX, XDP_TX};
    for (unsigned i = 0; i < countof(modes); i++) {
        struct fission_packet f = request(FISSION_ACQUIRE, modes[i], 2);
        struct test_frame in = framed(&f), out;
        CHECK_EQ(test_pass(p, &in, &out), verdicts[i]);
        if (i > 1) /* the agent's queue */
            CHECK_EQ(content(&out).head.type, FISSION_ACQUIRE);
    }
    as_the_stages(FISSION_WRITE_PREFERRING);
    plane_close(p, PLANE_REMOVE);
    p = usual;
    locks = usual_locks;
    test_reason(p, ANY_REASON);
}

/* ---- generations ---- */

/* A packet that passed: the same came out as of the decider in memory. */
static void expect_same(int i, const struct fission_packet *f, const struct test_frame *out, const struct outbox *box)
{
    struct fission_packet got = content(out);
    const struct packet_head *want = outbox_packet(box, box->packets - 1); /* of two the one to the agent */
    if (memcmp(&got, want, sizeof got) != 0)
        CHECK_FAIL("packet %d, type %u, generation %u: another packet came out", i, f->head.type, f->head.generation);
}

static struct plane *named_plane(void)
{
    void *at;
    uint64_t bytes;
    struct plane *named = test_plane_of(
        "fission", &(struct plane_settings){
                       .port = htons(TEST_PORT), .machines = TEST_MACHINES, .space = TEST_SPACE, .locks = LOCKS, .names = 1});
    CHECK_EQ(plane_map(named, "locks", &at, &bytes), 0);
    locks = at;
    return named;
}

/* Indexes that are used again: packets of the lock's generation, of earlier and of later ones, as the decider in memory has it. */
static void as_in_memory(void)
{
    static struct outbox box;
    const struct fission_policy policy = {0};
    struct rng rng;
    unsigned outdated = 0, later = 0, over = 0;
    rng_seed(&rng, 8);
    for (int i = 0; i < 20000; i++) {
        struct fission_packet f = random_packet(&rng, locks, LOCKS);
        struct rebuild_lock want = locks[f.head.index];
        uint32_t before = want.age.generation;
        uint64_t dice = rng_below(&rng, 16);
        f.head.generation = dice < 3 && before > 2 ? before - 1 - (uint32_t)(dice % 2)
                            : dice < 5             ? before + 1 + (uint32_t)dice
                                                   : before;
        struct test_frame in = framed(&f), out;
        outbox_clear(&box);
        if (!fission_concerns_lock(&f))
            spill_copy(&box, &f, sizeof f);
        else if (spill_is_of_lock(&want, &policy, &f))
            spill_decide(&want, &policy, 0, &f, sizeof f, 0, false, &box);
        else
            spill_say_over(&f, sizeof f, 0, &box);
        outdated += f.head.generation < before;
        later += want.age.generation > before;
        over += f.head.generation < before && fission_concerns_lock(&f) && box.packets;
        uint32_t verdict = test_pass(p, &in, &out);
        CHECK(!memcmp(&locks[f.head.index], &want, sizeof want));
        CHECK_EQ(verdict, box.packets == 0 ? XDP_DROP : box.packets == 2 ? XDP_REDIRECT : XDP_TX);
        if (box.packets)
            expect_same(i, &f, &out, &box);
    }
    printf("generations: %u packets were of earlier ones, %u began one, %u tenures were over\n", outdated, later, over);
    CHECK(outdated > 1000 && later > 500 && over > 100);
}

#define RACES 4000u
static _Atomic uint32_t newest;
static uint64_t lowest[2][RACES + 1], highest[2][RACES + 1]; /* tokens, by CPU and generation */
static _Atomic unsigned race_grants;

/* Each CPU takes the lock and frees it, in the newest generation that it knows; every few times it begins the next. */
static void *race(void *arg)
{
    uint16_t me = (uint16_t)(intptr_t)arg;
    test_pin_to(me - 1);
    for (uint32_t i = 0; atomic_load(&newest) < RACES; i++) {
        uint32_t g = i % 3 == 2 ? atomic_fetch_add(&newest, 1) + 1 : atomic_load(&newest);
        struct fission_packet f = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 5);
        f.head.generation = g;
        f.client = f.head.from = (struct place){me, (uint16_t)(5000 + me)};
        struct test_frame in = framed(&f), out;
        if (g > RACES || test_pass(p, &in, &out) != XDP_TX || content(&out).head.type != FISSION_GRANT)
            continue;
        struct fission_packet granted = content(&out);
        atomic_fetch_add(&race_grants, 1);
        CHECK_EQ(granted.head.generation, g);
        lowest[me - 1][g] = lowest[me - 1][g] ? lowest[me - 1][g] : granted.token;
        highest[me - 1][g] = granted.token;
        struct fission_packet end = granted;
        end.head.type = FISSION_FREE;
        end.head.from = (struct place){me, PORT_POOL};
        end.head.to = (struct place){MACHINE_SWITCH, PORT_POOL};
        in = framed(&end);
        test_pass(p, &in, &out);
    }
    return NULL;
}

static void on_two_cpus(void *(*fn)(void *));

/* Two CPUs begin generations of one lock at the same time: tokens of a generation lie above those of all before it. */
static void race_for_generations(void)
{
    memset(&locks[5], 0, sizeof locks[5]);
    on_two_cpus(race);
    uint64_t so_far = 0;
    for (unsigned g = 0; g <= RACES; g++) {
        for (unsigned cpu = 0; cpu < 2; cpu++)
            CHECK(!lowest[cpu][g] || lowest[cpu][g] > so_far); /* I2 */
        so_far = max_u64(so_far, max_u64(highest[0][g], highest[1][g]));
    }
    CHECK(locks[5].age.base != FISSION_AGE_BUSY && race_grants > RACES / 2);
    printf("%u grants in %u generations on two CPUs\n", race_grants, RACES);
}

static void generations(void)
{
    struct plane *usual = p;
    struct rebuild_lock *usual_locks = locks;
    p = named_plane();
    test_reason(p, ANY_REASON);
    as_in_memory();
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        race_for_generations();
    plane_close(p, PLANE_REMOVE);
    p = usual;
    locks = usual_locks;
    test_reason(p, ANY_REASON);
}

/* ---- leases ---- */

#define LEASE_NS (4 * NS_PER_S) /* a host that the machine stops for a while shall not lose it by that */

static struct fission_packet answer_to(const struct fission_packet *f, uint32_t verdict)
{
    struct test_frame in = framed(f), out;
    CHECK_EQ(test_pass(p, &in, &out), verdict);
    return verdict == XDP_DROP ? *f : content(&out);
}

/* Each heartbeat is sent later than the one before it: only such a one renews the lease. */
static void renew(uint16_t machine)
{
    static uint64_t stamp = 4711;
    struct fission_packet f = request(FISSION_LEASE, 0, 0), a;
    f.head.from = (struct place){machine, PORT_POOL};
    f.token = ++stamp;
    a = answer_to(&f, XDP_TX);
    CHECK_EQ(a.head.type, FISSION_LEASE);
    CHECK_EQ(a.head.to.machine, machine);
    CHECK_EQ(a.head.from.machine, MACHINE_SWITCH);
    CHECK_EQ(a.token, stamp);
    test_reason(p, ANY_REASON);
    for (unsigned i = 0; i < 2; i++, f.token--) { /* sent again, and overtaken */
        answer_to(&f, XDP_DROP);
        test_reason(p, PLANE_OUTDATED);
    }
}

static struct fission_packet ask(uint16_t machine, uint32_t verdict)
{
    struct fission_packet f = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 5);
    f.client = f.head.from = (struct place){machine, 5001};
    return answer_to(&f, verdict);
}

/* A host that never renewed its lease gets nothing; the locks of a host whose lease is over are taken over; the switch answers a
 * census for absent hosts. */
static void leases(void)
{
    struct plane *usual = p;
    struct fission_packet a, c = request(FISSION_CENSUS, 0, 5);
    p = test_plane_leased("fission", LOCKS, LEASE_NS);
    a = ask(1, XDP_DROP);
    renew(1);
    a = ask(1, XDP_TX);
    CHECK_EQ(a.head.type, FISSION_GRANT);
    uint64_t first = a.token;
    renew(2);
    a = ask(2, XDP_TX);
    CHECK_EQ(a.head.type, FISSION_ACQUIRE); /* to the agent, host 1 */
    CHECK_EQ(a.head.to.machine, 1);
    c.head.from = (struct place){2, PORT_POOL};
    c.head.to = (struct place){3, PORT_POOL};
    a = answer_to(&c, XDP_TX);
    CHECK_EQ(a.head.type, FISSION_ANSWER); /* host 3 never asked */
    CHECK_EQ(a.head.to.machine, 2);
    c.head.to.machine = 1;
    a = answer_to(&c, XDP_TX);
    CHECK_EQ(a.head.type, FISSION_CENSUS); /* host 1 did, and lives: it goes there */
    CHECK_EQ(a.head.to.machine, 1);

    for (int i = 0; i < 9; i++) {
        usleep(LEASE_NS / 1000 / 8);
        renew(2);
    }
    a = ask(2, XDP_TX); /* host 1 is silent for longer than a lease: host 2 has the agent now, and hears of its own request */
    CHECK_EQ(a.head.type, FISSION_ACQUIRE);
    CHECK_EQ(a.head.to.machine, 2);
    CHECK(a.word & FISSION_WORD_TAKEN);
    CHECK(a.token > first);
    a = answer_to(&c, XDP_TX);
    CHECK_EQ(a.head.type, FISSION_ANSWER);
    ask(1, XDP_DROP);
    plane_close(p, PLANE_REMOVE);
    p = usual;
}

/* ---- two CPUs ---- */

static _Atomic int inside;
static _Atomic uint64_t latest_token;
static _Atomic unsigned grants;

static void *contend(void *arg)
{
    uint16_t me = (uint16_t)(intptr_t)arg;
    test_pin_to(me - 1);
    for (int i = 0; i < 30000; i++) {
        struct fission_packet f = request(FISSION_ACQUIRE, FISSION_EXCLUSIVE, 11);
        f.client = f.head.from = (struct place){me, (uint16_t)(5000 + me)};
        struct test_frame in = framed(&f), out;
        if (test_pass(p, &in, &out) != XDP_TX || content(&out).head.type != FISSION_GRANT)
            continue;
        struct fission_packet g = content(&out);
        CHECK_EQ(atomic_fetch_add(&inside, 1), 0);
        CHECK(g.token > latest_token);
        latest_token = g.token;
        grants++;
        if (i % 5 == 0)
            sched_yield();
        CHECK_EQ(atomic_fetch_sub(&inside, 1), 1);
        f = request(FISSION_FREE, FISSION_EXCLUSIVE, 11);
        f.head.from = (struct place){me, PORT_POOL};
        f.term = g.term;
        in = framed(&f);
        CHECK_EQ(test_pass(p, &in, &out), XDP_TX);
        CHECK(content(&out).flags & FISSION_DONE);
    }
    return NULL;
}

/* Shared requests raise the incarnation, and each must get an ordinal of its own. */
#define ORDINALS 20000
static _Atomic uint8_t taken[2 * ORDINALS + 2];

static void *number(void *arg)
{
    uint16_t me = (uint16_t)(intptr_t)arg;
    test_pin_to(me - 1);
    for (int i = 0; i < ORDINALS; i++) {
        struct fission_packet f = request(FISSION_ACQUIRE, FISSION_SHARED, 12);
        f.client = f.head.from = (struct place){me, (uint16_t)(5000 + me)};
        struct test_frame in = framed(&f), out;
        test_pass(p, &in, &out);
        unsigned ordinal = content(&out).inca;
        CHECK_BETWEEN(ordinal, 1, 2 * ORDINALS);
        CHECK_EQ(atomic_fetch_add(&taken[ordinal], 1), 0);
    }
    return NULL;
}

static void on_two_cpus(void *(*fn)(void *))
{
    pthread_t t[2];
    for (intptr_t i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, fn, (void *)(i + 1)), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

int main(void)
{
    uint64_t bytes;
    void *at;
    p = test_plane("fission", LOCKS);
    CHECK_EQ(plane_map(p, "locks", &at, &bytes), 0);
    locks = at;
    test_pin_to(0);
    grant_and_free();
    two_out_of_one();
    bad_packets();
    as_the_stages(0);
    write_preferring();
    generations();
    leases();
    for (unsigned i = 0; i < LOCKS; i++) {
        locks[i].word = 0;
        locks[i].token = UINT64_C(1) << FISSION_TERM_BITS; /* above what latest_token begins with */
    }
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        on_two_cpus(contend);
        CHECK(grants > 1000);
        on_two_cpus(number);
        CHECK_EQ(fission_word_inca(locks[12].word), 2 * ORDINALS);
    }
    printf("%u grants on two CPUs\n", grants);
    test_verified(p);
    plane_close(p, PLANE_REMOVE);
    return 0;
}
