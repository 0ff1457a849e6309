/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric on shared memory, verb by verb, against plain arithmetic; without masked verbs, which lower.c then builds; and what
 * crosses processes: atomics, waiting and waking, messages, fencing. */
#include "fabric/shm.h"
#include "lib/rng.h"
#include "tests/shm/space.h"

#define BYTES (1 << 16)
#define RINGS 4
#define RING0 (BYTES / 2)

static struct fab_ep ep;
static struct rng rng;

static uint64_t *word_at(fab_addr addr)
{
    return fab_shm_ptr(&ep, addr);
}

static u128 wide_at(fab_addr addr)
{
    u128 value;
    memcpy(&value, fab_shm_ptr(&ep, addr), sizeof value);
    return value;
}

static u128 random_wide(void)
{
    return (u128)rng_next(&rng) << 64 | rng_next(&rng);
}

/* ---- verbs ---- */

static void narrow_verbs(void)
{
    uint64_t old = 0, value;
    CHECK_EQ(fab_write64(&ep, 64, 5), 0);
    CHECK_EQ(fab_read64(&ep, 64, &value), 0);
    CHECK_EQ(value, 5);
    CHECK_EQ(fab_cas64(&ep, 64, 4, 9, &old), 0);
    CHECK_EQ(old, 5);
    CHECK_EQ(*word_at(64), 5);
    CHECK_EQ(fab_cas64(&ep, 64, 5, 9, &old), 0);
    CHECK_EQ(old, 5);
    CHECK_EQ(*word_at(64), 9);
    CHECK_EQ(fab_faa64(&ep, 64, UINT64_MAX, &old), 0);
    CHECK_EQ(old, 9);
    CHECK_EQ(*word_at(64), 8);
    CHECK_EQ(fab_swap64(&ep, 64, 77, &old), 0);
    CHECK_EQ(old, 8);
    fab_post64(&ep, 64, 78);
    CHECK_EQ(fab_local_load64(&ep, 64), 78);
    fab_local_store64(&ep, 64, 79);
    fab_local_fence(&ep);
    CHECK_EQ(fab_local_cas64(&ep, 64, 79, 80), 79);
    CHECK_EQ(fab_local_swap64(&ep, 64, 81), 80);
    CHECK_EQ(fab_local_faa64(&ep, 64, 2), 81);
    CHECK_EQ(*word_at(64), 83);
}

static void wide_verbs(void)
{
    for (int i = 0; i < 1000; i++) {
        u128 a = random_wide(), b = random_wide(), old, value;
        CHECK_EQ(fab_write(&ep, 128, &a, sizeof a), 0);
        CHECK_EQ(fab_read128(&ep, 128, &value), 0);
        CHECK(value == a);
        CHECK_EQ(fab_cas128(&ep, 128, a ^ ((u128)1 << rng_below(&rng, 128)), b, &old), 0);
        CHECK(old == a && wide_at(128) == a);
        CHECK_EQ(fab_cas128(&ep, 128, a, b, &old), 0);
        CHECK(old == a && wide_at(128) == b);
        CHECK_EQ(fab_faa128(&ep, 128, a, &old), 0);
        CHECK(old == b && wide_at(128) == a + b);
        CHECK_EQ(fab_swap128(&ep, 128, a, &old), 0);
        CHECK(old == a + b && wide_at(128) == a);
    }
}

/* Field by field, bit by bit: slow and plain. */
static u128 plain_add(u128 a, u128 b, u128 top)
{
    u128 sum = 0;
    unsigned carry = 0;
    for (unsigned bit = 0; bit < 128; bit++) {
        unsigned x = (unsigned)(a >> bit & 1) + (unsigned)(b >> bit & 1) + carry;
        sum |= (u128)(x & 1) << bit;
        carry = top >> bit & 1 ? 0 : x >> 1;
    }
    return sum;
}

static u128 plain_cas(u128 word, u128 compare, u128 compare_mask, u128 swap, u128 swap_mask)
{
    for (unsigned bit = 0; bit < 128; bit++)
        if (compare_mask >> bit & 1 && (word >> bit & 1) != (compare >> bit & 1))
            return word;
    u128 out = 0;
    for (unsigned bit = 0; bit < 128; bit++)
        out |= (swap_mask >> bit & 1 ? swap >> bit & 1 : word >> bit & 1) << bit;
    return out;
}

/* Few bits, many bits, all, none: masks as protocols have them and as they do not. */
static u128 random_mask(void)
{
    switch (rng_below(&rng, 5)) {
    case 0:
        return 0;
    case 1:
        return ~(u128)0;
    case 2:
        return (u128)1 << rng_below(&rng, 128);
    case 3:
        return random_wide() & random_wide() & random_wide();
    default:
        return random_wide();
    }
}

static void masked_verbs(uint32_t caps)
{
    const uint32_t before = ep.caps;
    ep.caps = caps;
    for (int i = 0; i < 5000; i++) {
        u128 word = random_wide(), compare = rng_chance(&rng, 1, 2) ? word : random_wide(), swap = random_wide(), old = 0;
        u128 compare_mask = random_mask(), swap_mask = random_mask(), top = random_mask();
        uint64_t narrow = (uint64_t)word, old64 = 0;
        fab_write(&ep, 256, &word, sizeof word);
        CHECK_EQ(fab_mcas128(&ep, 256, compare, compare_mask, swap, swap_mask, &old), 0);
        CHECK(old == word && wide_at(256) == plain_cas(word, compare, compare_mask, swap, swap_mask));
        fab_write(&ep, 256, &word, sizeof word);
        CHECK_EQ(fab_mfaa128(&ep, 256, swap, top, &old), 0);
        CHECK(old == word && wide_at(256) == plain_add(word, swap, top));

        uint64_t beside = *word_at(264);
        CHECK_EQ(fab_write64(&ep, 256, narrow), 0);
        CHECK_EQ(fab_mcas64(&ep, 256, (uint64_t)compare, (uint64_t)compare_mask, (uint64_t)swap, (uint64_t)swap_mask, &old64), 0);
        CHECK(old64 == narrow && *word_at(256) == (uint64_t)plain_cas(narrow, (uint64_t)compare, (uint64_t)compare_mask,
                                                                      (uint64_t)swap, (uint64_t)swap_mask));
        CHECK_EQ(fab_write64(&ep, 256, narrow), 0);
        CHECK_EQ(fab_mfaa64(&ep, 256, (uint64_t)swap, (uint64_t)top, &old64), 0);
        CHECK(old64 == narrow && *word_at(256) == (uint64_t)plain_add(narrow, (uint64_t)swap, (uint64_t)top));
        CHECK_EQ(*word_at(264), beside);
    }
    ep.caps = before;
}

static void batches(uint32_t caps)
{
    const uint32_t before = ep.caps;
    uint64_t in[4] = {1, 2, 3, 4}, out[4] = {0};
    ep.caps = caps;
    CHECK_EQ(fab_write64(&ep, 512, 10), 0);
    struct fab_op ops[] = {
        {.verb = FAB_WRITE, .addr = 576, .buf = in, .len = sizeof in},
        {.verb = FAB_FAA, .width = 8, .addr = 512, .swap = 5},
        {.verb = FAB_CAS,
         .width = 8,
         .masked = true,
         .addr = 512,
         .compare = 15,
         .compare_mask = 0xff,
         .swap = 0x100,
         .swap_mask = 0xff00},
        {.verb = FAB_READ, .addr = 576, .buf = out, .len = sizeof out},
        {.verb = FAB_SWAP, .width = 16, .addr = 576, .swap = 0, .swap_mask = ~(u128)0},
    };
    CHECK_EQ(fab_batch(&ep, ops, countof(ops)), 0);
    CHECK_EQ((uint64_t)ops[1].old, 10);
    CHECK_EQ((uint64_t)ops[2].old, 15); /* in order */
    CHECK_EQ(*word_at(512), 0x10f);
    CHECK(!memcmp(in, out, sizeof in));
    CHECK_EQ(*word_at(576), 0);
    CHECK_EQ(*word_at(592), 3);
    struct fab_op outside = {.verb = FAB_READ, .addr = BYTES - 8, .buf = out, .len = 16};
    CHECK_EQ(fab_batch(&ep, &outside, 1), -EFAULT);
    outside = (struct fab_op){.verb = FAB_SWAP, .width = 16, .addr = 520};
    CHECK_EQ(fab_batch(&ep, &outside, 1), -EFAULT);
    ep.caps = before;
}

/* ---- between processes ---- */

#define ROUNDS 20000
#define PROCESSES 3

static void count_up(void *arg)
{
    ep.caps = *(uint32_t *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t old64;
        u128 old = 0;
        fab_faa64(&ep, 1024, 1, &old64);
        fab_faa128(&ep, 1040, (u128)1 << 64 | 1, &old);
        fab_mfaa64(&ep, 1056, 1 | UINT64_C(1) << 32, UINT64_C(0x8000000080000000), &old64);
        do { /* by compare-and-swap, as protocols do */
            fab_read128(&ep, 1072, &old);
            u128 expect = old;
            fab_cas128(&ep, 1072, expect, expect + 3, &old);
            if (old == expect)
                break;
        } while (true);
    }
}

static void atomicity(uint32_t caps)
{
    pid_t pids[PROCESSES];
    memset(word_at(1024), 0, 64);
    for (unsigned i = 0; i < PROCESSES; i++)
        pids[i] = child_start(count_up, &caps);
    for (unsigned i = 0; i < PROCESSES; i++)
        child_join(pids[i]);
    const uint64_t sum = PROCESSES * ROUNDS;
    CHECK_EQ(*word_at(1024), sum);
    CHECK(wide_at(1040) == ((u128)sum << 64 | sum));
    CHECK_EQ(*word_at(1056), sum << 32 | sum);
    CHECK(wide_at(1072) == 3 * sum);
}

static void sleeper(void *arg)
{
    const struct fab_cond conds[] = {{.addr = 2048, .mask = UINT64_C(0xffff) << 40, .value = 0},
                                     {.addr = 2056, .mask = 0xff, .value = 7},
                                     {.addr = 2064, .mask = UINT32_MAX, .value = 0}};
    int changed = *(int *)arg;
    fab_write64(&ep, 2112, 1); /* ready */
    while ((*word_at(2048) & conds[0].mask) == 0 && (*word_at(2056) & 0xff) == 7 && (uint32_t)*word_at(2064) == 0)
        CHECK_EQ(fab_wait_any(&ep, conds, countof(conds), pawl_in(LIMIT_NS)), 0);
    CHECK(changed < 3);
}

static void waiting(void)
{
    uint64_t start = pawl_now();
    CHECK_EQ(fab_wait(&ep, 2048, UINT32_MAX, 0, pawl_in(5 * NS_PER_MS)), -ETIMEDOUT);
    CHECK(pawl_now() - start >= 5 * NS_PER_MS);
    CHECK_EQ(fab_wait(&ep, 2048, UINT32_MAX, 1, UINT64_MAX), 0); /* it does not hold */
    CHECK_EQ(fab_wait_any(&ep, NULL, 0, pawl_in(NS_PER_MS)), -ETIMEDOUT);
    for (int which = 0; which < 3; which++) { /* any of the three wakes it */
        fab_write64(&ep, 2048, 0);
        fab_write64(&ep, 2056, 7);
        fab_write64(&ep, 2064, 0);
        fab_write64(&ep, 2112, 0);
        pid_t pid = child_start(sleeper, &which);
        WAIT_FOR(*(volatile uint64_t *)word_at(2112) == 1);
        pause_ns(2 * NS_PER_MS); /* most likely it sleeps by now; it must end either way */
        if (which == 0) {
            fab_write64(&ep, 2048, UINT64_C(1) << 44);
            fab_wake(&ep, 2048, UINT64_C(0xffff) << 40, 1);
        } else {
            fab_write64(&ep, 2048 + 8 * (unsigned)which, 9);
            fab_wake(&ep, 2048 + 8 * (unsigned)which, UINT32_MAX, 1);
        }
        child_join(pid);
    }
}

/* ---- messages ---- */

static struct fab_ep endpoint(uint32_t id)
{
    struct fab_ep e = ep;
    e.id = id;
    return e;
}

static void one_to_one(void)
{
    struct fab_ep from = endpoint(1), to = endpoint(2);
    struct fab_msg m;
    char text[FAB_MSG_MAX + 1] = "";
    CHECK_EQ(fab_recv(&to, &m, DEADLINE_TRY), -ETIMEDOUT);
    CHECK_EQ(fab_recv(&to, &m, pawl_in(NS_PER_MS)), -ETIMEDOUT);
    CHECK_EQ(fab_send(&from, RINGS, "x", 1), -ENOTCONN);
    CHECK_EQ(fab_send(&from, 2, text, sizeof text), -EMSGSIZE);
    for (uint32_t lap = 0; lap < 5; lap++) {
        uint32_t sent = 0;
        while (sent < 1000 && !fab_send(&from, 2, &sent, sizeof sent))
            sent++;
        CHECK_BETWEEN(sent, 16, 999); /* the ring is full, and says so */
        for (uint32_t i = 0; i < sent; i++) {
            uint32_t got;
            CHECK_EQ(fab_recv(&to, &m, DEADLINE_TRY), 0);
            CHECK_EQ(m.from, 1);
            CHECK_EQ(m.len, sizeof got);
            memcpy(&got, m.data, sizeof got);
            CHECK_EQ(got, i); /* in order */
        }
        CHECK_EQ(fab_recv(&to, &m, DEADLINE_TRY), -ETIMEDOUT);
    }
    for (uint32_t len = 0; len <= FAB_MSG_MAX; len++) {
        memset(text, (int)len, sizeof text);
        CHECK_EQ(fab_send(&from, 2, text, len), 0);
        CHECK_EQ(fab_recv(&to, &m, pawl_in(LIMIT_NS)), 0);
        CHECK_EQ(m.len, len);
        CHECK(!memcmp(m.data, text, len));
    }
}

#define MESSAGES 20000

static void sender(void *arg)
{
    struct fab_ep from = endpoint(*(uint32_t *)arg);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        uint64_t data[6] = {i, ~i, i * 3, i * 5, from.id, i};
        while (fab_send(&from, 0, data, sizeof data)) /* full, or taken for a hole: slow under a sanitizer */
            sched_yield();
    }
    uint64_t old;
    fab_faa64(&ep, 4096, 1, &old);
}

/* Whole, each at most once, and in its sender's order. One that was stopped while it wrote may cost another's message: that is
 * rare. */
static void many_to_one(void)
{
    struct fab_ep to = endpoint(0);
    pid_t pids[PROCESSES];
    uint64_t next[RINGS] = {0}, got = 0, ended = 0;
    fab_write64(&ep, 4096, 0);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        uint32_t id = i + 1;
        pids[i] = child_start(sender, &id);
    }
    for (;;) {
        struct fab_msg m;
        uint64_t data[6];
        fab_read64(&ep, 4096, &ended);
        int rc = fab_recv(&to, &m, pawl_in(NS_PER_MS));
        if (rc == -ETIMEDOUT && ended == PROCESSES)
            break;
        if (rc == -ETIMEDOUT)
            continue;
        CHECK_EQ(rc, 0);
        CHECK_EQ(m.len, sizeof data);
        memcpy(data, m.data, sizeof data);
        CHECK(data[1] == ~data[0] && data[2] == data[0] * 3 && data[3] == data[0] * 5 && data[4] == m.from && data[5] == data[0]);
        CHECK(data[0] >= next[m.from]);
        next[m.from] = data[0] + 1;
        got++;
    }
    CHECK_BETWEEN(got, PROCESSES * MESSAGES * 9 / 10, PROCESSES * MESSAGES);
    for (unsigned i = 0; i < PROCESSES; i++)
        child_join(pids[i]);
}

static void endless_sender(void *arg)
{
    struct fab_ep from = endpoint(1);
    for (uint64_t i = 0;; i++) {
        uint64_t data[6] = {i, ~i, i * 3, i * 5, i * 7, i * 11};
        fab_send(&from, 3, data, sizeof data);
    }
}

/* Senders die at any point: messages that arrive are whole, and the ring goes on. */
static void killed_senders(void)
{
    struct fab_ep to = endpoint(3);
    for (int i = 0; i < 100; i++) {
        pid_t pid = child_start(endless_sender, NULL);
        struct fab_msg m;
        uint64_t until = pawl_in(rng_below(&rng, 2 * NS_PER_MS));
        bool alive = true;
        for (;;) {
            int rc = fab_recv(&to, &m, alive ? pawl_in(LIMIT_NS) : DEADLINE_TRY);
            if (rc == -ETIMEDOUT && !alive)
                break;
            CHECK_EQ(rc, 0);
            uint64_t d[6];
            CHECK_EQ(m.len, sizeof d);
            memcpy(d, m.data, sizeof d);
            CHECK(d[1] == ~d[0] && d[2] == d[0] * 3 && d[3] == d[0] * 5 && d[4] == d[0] * 7 && d[5] == d[0] * 11);
            if (alive && pawl_now() > until) {
                child_kill(pid);
                alive = false;
            }
        }
    }
    /* A sender that took its ticket and died, and one that wrote half of its message. The layout of a ring: its head is its first
     * word, its cells of a line each begin after two lines. */
    struct fab_ep from = endpoint(1);
    struct fab_msg m;
    fab_addr ring = RING0 + 3 * fab_shm_ring_bytes();
    uint64_t old;
    CHECK_EQ(fab_faa64(&ep, ring, 1, &old), 0);
    CHECK_EQ(fab_send(&from, 3, "after the hole", 14), 0);
    CHECK_EQ(fab_recv(&to, &m, pawl_in(LIMIT_NS)), 0);
    CHECK(m.len == 14 && !memcmp(m.data, "after the hole", 14));
    CHECK_EQ(fab_send(&from, 3, "torn", 4), 0);
    *word_at(ring + 2 * CACHE_LINE + (old + 2) % 64 * CACHE_LINE + 16) ^= 1;
    CHECK_EQ(fab_send(&from, 3, "whole", 5), 0);
    CHECK_EQ(fab_recv(&to, &m, pawl_in(LIMIT_NS)), 0);
    CHECK(m.len == 5 && !memcmp(m.data, "whole", 5));
}

/* ---- fencing ---- */

static void tell_proof(void *arg)
{
    *word_at(3072) = fab_shm_proof();
    pause();
}

static void fencing(void)
{
    *word_at(3072) = 0;
    pid_t pid = child_start(tell_proof, NULL);
    WAIT_FOR(*(volatile uint64_t *)word_at(3072) != 0);
    uint64_t proof = *word_at(3072);
    CHECK_EQ(fab_shm_proof_pid(proof), pid);
    CHECK_EQ(fab_fence(&ep, 0, proof), -EAGAIN);
    CHECK_EQ(fab_fence(&ep, 0, proof + 1), 0); /* an earlier process with this id */
    CHECK_EQ(kill(pid, SIGSTOP), 0);
    CHECK_EQ(fab_fence(&ep, 0, proof), -EAGAIN); /* it may go on */
    CHECK_EQ(kill(pid, SIGKILL), 0);
    WAIT_FOR(fab_fence(&ep, 0, proof) == 0); /* dead, though not yet reaped by its parent */
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(fab_fence(&ep, 0, proof), 0);
}

int main(void)
{
    rng_seed(&rng, 1);
    fab_shm_init(&ep, shared_memory(BYTES), BYTES);
    ep.rings = RINGS;
    ep.ring0 = RING0;
    CHECK(RING0 + RINGS * fab_shm_ring_bytes() <= BYTES);
    const uint32_t without = ep.caps & ~(uint32_t)FAB_MASKED;
    narrow_verbs();
    wide_verbs();
    masked_verbs(ep.caps);
    masked_verbs(without);
    batches(ep.caps);
    batches(without);
    atomicity(ep.caps);
    atomicity(without);
    waiting();
    one_to_one();
    many_to_one();
    killed_senders();
    fencing();
    return 0;
}
