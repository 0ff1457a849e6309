/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlocks in FissLock, step by step: which threads are told, which are not, and the cost in packets. */
#include "tests/unit/fisslock_kit.h"

#include <errno.h>

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define REQUESTS 8 /* of a session */

static struct kit k;

/* Two sessions per host. */
static void init(unsigned hosts, uint64_t options)
{
    kit_init(&k, hosts, REQUESTS, options);
    for (unsigned i = 1; i <= hosts; i++)
        free(k.host[i]);
    k.config.sessions = 2;
    for (unsigned i = 1; i <= hosts; i++) {
        k.host[i] = calloc(1, fisslock_host_bytes(&k.config));
        fisslock_host_init(k.host[i], &k.config, (uint16_t)i, 1, 0);
    }
}

static int lock(unsigned host, uint32_t request, uint32_t thread, uint64_t index, enum pawl_mode mode)
{
    struct packet_ask ask = {.request = request, .thread = thread, .port = (uint16_t)(2 + request), .mode = mode, .index = index};
    int rc = fisslock_acquire(k.host[host], &ask, k.now, &k.out);
    kit_flush(&k, false);
    kit_run(&k);
    return rc;
}

static int outcome(unsigned host, uint32_t request)
{
    struct packet_answer answer;
    int rc = fisslock_outcome(k.host[host], request, &answer);
    return rc ? rc : answer.result;
}

static void check_held(unsigned host, uint32_t request)
{
    CHECK(kit_holds(&k, host, request));
}

static uint64_t probes(void)
{
    uint64_t sum = 0;
    for (unsigned i = 1; i <= k.config.machines; i++)
        sum += fisslock_counts(k.host[i])->probes;
    return sum;
}

static void wait_long(void)
{
    kit_wait(&k, 100 * KIT_RETRY_NS);
}

/* Hosts 1 .. n: each has one lock and wants the next one's. One of them is told, and when it gives up the rest go through. */
static void check_circle(unsigned n)
{
    unsigned victim = 0;
    init(n, 0);
    for (unsigned i = 1; i <= n; i++)
        lock(i, 0, 1, i, X);
    for (unsigned i = 1; i <= n; i++)
        CHECK_EQ(lock(i, 1, 1, i % n + 1, X), PACKET_WAIT);
    kit_wait(&k, 6 * KIT_RETRY_NS);
    CHECK_EQ(probes(), 0); /* waits that are short cost nothing */
    wait_long();
    for (unsigned i = 1; i <= n; i++) {
        check_held(i, 0);
        if (outcome(i, 1) == -EDEADLK) {
            CHECK_EQ(victim, 0);
            victim = i;
        } else {
            CHECK_EQ(outcome(i, 1), -EINPROGRESS);
        }
    }
    CHECK(victim);
    /* The remaining threads wait in a chain. */
    for (unsigned i = victim, left = n; left; left--, i = i == 1 ? n : i - 1) {
        if (i != victim) {
            check_held(i, 1);
            kit_release(&k, i, 1);
        }
        kit_release(&k, i, 0);
    }
    wait_long();
    kit_check_free(&k);
    kit_free(&k);
}

/* Long waits without a deadlock. A thread that holds no lock sends no probe. A thread that holds one sends probes, and no thread is
 * told. */
static void check_no_circle(void)
{
    init(3, 0);
    lock(1, 0, 1, 5, X);
    lock(2, 0, 1, 5, X);
    wait_long();
    CHECK_EQ(probes(), 0);
    lock(3, 0, 1, 6, X);
    lock(3, 1, 1, 5, X);
    wait_long();
    CHECK(probes() > 0);
    CHECK_EQ(outcome(2, 0), -EINPROGRESS);
    CHECK_EQ(outcome(3, 1), -EINPROGRESS);
    kit_free(&k);
}

/* A lock that the thread has itself. */
static void check_alone(void)
{
    init(2, 0);
    lock(1, 0, 1, 5, X);
    lock(1, 1, 1, 5, S);
    wait_long();
    CHECK_EQ(outcome(1, 1), -EDEADLK);
    check_held(1, 0);
    kit_free(&k);
}

/* Each thread of a session waits for itself; a request that no thread waits for belongs to none. */
static void check_threads(uint32_t other, uint64_t mistakes, bool told)
{
    kit_mistakes = mistakes;
    init(2, 0);
    kit_mistakes = 0;
    lock(1, 0, 1, 5, X);
    lock(2, 0, 1, 6, X);
    CHECK_EQ(lock(1, 1, other, 6, X), PACKET_WAIT); /* the first goes on, and may give 5 back */
    CHECK_EQ(lock(2, 1, 1, 5, X), PACKET_WAIT);
    wait_long();
    CHECK_EQ(outcome(1, 1) == -EDEADLK || outcome(2, 1) == -EDEADLK, told);
    kit_free(&k);
}

/* Sessions of one host, whose agents are all here. */
static void check_one_host(void)
{
    init(1, 0);
    lock(1, 0, 1, 5, X);
    lock(1, REQUESTS, 1, 6, X);
    lock(1, 1, 1, 6, X);
    lock(1, REQUESTS + 1, 1, 5, X);
    wait_long();
    CHECK_EQ((outcome(1, 1) == -EDEADLK) + (outcome(1, REQUESTS + 1) == -EDEADLK), 1);
    kit_free(&k);
}

/* A reader that is kept out by a writer, which waits for a reader, which waits for the first one. The writer itself has nothing, so
 * it is not the one that is told. */
static void check_writer_between(uint64_t options)
{
    init(3, options);
    lock(1, 0, 1, 5, S);
    lock(2, 0, 1, 6, X);
    CHECK_EQ(lock(3, 0, 1, 5, X), PACKET_WAIT);
    wait_long(); /* it starves by now */
    CHECK_EQ(lock(2, 1, 1, 5, S), PACKET_WAIT);
    CHECK_EQ(outcome(2, 1), -EINPROGRESS);
    CHECK_EQ(lock(1, 1, 1, 6, S), PACKET_WAIT);
    wait_long();
    CHECK_EQ(outcome(3, 0), -EINPROGRESS);
    CHECK_EQ((outcome(2, 1) == -EDEADLK) + (outcome(1, 1) == -EDEADLK), 1);
    kit_free(&k);
}

static int lose_withdrawals(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_RELEASE && (p->flags & FISSION_DONE) ? 2 : 0;
}

/* The same, but the writer has given up, and that was lost: the probe finds out. */
static void check_ghost_between(void)
{
    init(3, 0);
    lock(1, 0, 1, 5, S);
    lock(2, 0, 1, 6, X);
    lock(3, 0, 1, 5, X);
    wait_long();
    lock(2, 1, 1, 5, S);
    k.fate = lose_withdrawals;
    kit_give_up(&k, 3, 0);
    k.fate = NULL;
    lock(1, 1, 1, 6, S);
    wait_long();
    check_held(2, 1); /* no request blocks it any more */
    CHECK_EQ(outcome(1, 1), -EINPROGRESS);
    kit_free(&k);
}

/* Two readers that want to write. The second is told, at once, if the first still waits. */
static void check_upgrades(unsigned first, unsigned second)
{
    init(3, 0);
    lock(1, 0, 0, 5, S); /* the agent is here */
    lock(2, 0, 0, 5, S);
    lock(3, 0, 0, 5, S);
    CHECK_EQ(kit_convert(&k, first, 1, X), -PAWL_ENOTOWNER); /* holds nothing */
    CHECK_EQ(kit_convert(&k, first, 0, X), PACKET_WAIT);
    kit_convert(&k, second, 0, X);
    CHECK_EQ(outcome(second, 0), -EDEADLK);
    CHECK_EQ(outcome(first, 0), -EINPROGRESS);
    check_held(second, 0);
    CHECK_EQ(kit_convert(&k, second, 0, S), PACKET_DONE); /* it has that: the refusal before is forgotten */
    CHECK_EQ(outcome(second, 0), 0);
    /* Again, when the first has given up and the packets that say so were lost. */
    k.fate = lose_withdrawals;
    kit_give_up(&k, first, 0);
    k.fate = NULL;
    CHECK_EQ(kit_convert(&k, second, 0, X), PACKET_WAIT);
    wait_long();
    CHECK_EQ(outcome(second, 0), -EINPROGRESS);
    kit_release(&k, first, 0);
    kit_release(&k, 6 - first - second, 0);
    wait_long();
    CHECK_EQ(outcome(second, 0), 0);
    kit_free(&k);
}

/* ---- cycles that are no deadlocks ---- */

static int keep_moves(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT);
}

/* A reader that wanted to write and has given up, too late for the decider: others read beside it, so that no thread waits for
 * it. */
static void check_reader_in_exclusive_tenure(void)
{
    init(2, 0);
    lock(1, 0, 1, 5, S);
    lock(2, 0, 1, 6, X);
    k.fate = keep_moves;
    CHECK_EQ(kit_convert(&k, 1, 0, X), PACKET_WAIT);
    CHECK(k.kept);
    kit_give_up(&k, 1, 0);
    kit_let_go(&k);
    wait_long();
    lock(1, 1, 1, 6, X);
    lock(2, 1, 1, 5, S);
    wait_long();
    check_held(1, 0);
    check_held(2, 1);
    CHECK_EQ(outcome(1, 1), -EINPROGRESS);
    kit_free(&k);
}

/* 1 waits for 2, and 2 for 3: that was seen, and is late. 2 gives up; only then 3 begins to wait for 1. Every step was true once,
 * and never were all of them at once. */
static int keep_chase_for_three(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_CHASE && passed && p->head.to.machine == 3;
}

/* `turn`: other names, and so other ranks. */
static bool told_of_what_never_was(uint64_t mistakes, unsigned turn)
{
    kit_mistakes = mistakes;
    init(3, 0);
    kit_mistakes = 0;
    for (unsigned i = 0; i < turn; i++) {
        lock(1, 0, 1, 5, X);
        kit_release(&k, 1, 0);
    }
    lock(1, 0, 1, 5, X);
    lock(2, 0, 1, 6, X);
    lock(3, 0, 1, 7, X);
    lock(2, 1, 1, 7, X);
    lock(1, 1, 1, 6, X);
    k.fate = keep_chase_for_three;
    kit_wait(&k, 9 * KIT_RETRY_NS);
    kit_give_up(&k, 2, 1);
    lock(3, 1, 1, 5, X);
    kit_let_go(&k);
    bool told = outcome(1, 1) == -EDEADLK;
    CHECK_EQ(outcome(2, 1), -110);
    CHECK_EQ(outcome(3, 1), -EINPROGRESS);
    kit_free(&k);
    return told;
}

static int keep_chase_for_any(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_CHASE && passed;
}

/* A name is used once: an answer for a wait that has ended finds no request. */
static void check_ended(void)
{
    init(2, 0);
    lock(1, 0, 1, 5, X);
    lock(2, 0, 1, 6, X);
    lock(1, 1, 1, 6, X);
    lock(2, 1, 1, 5, X);
    k.fate = keep_chase_for_any;
    kit_wait(&k, 40 * KIT_RETRY_NS);
    CHECK(k.kept);
    kit_give_up(&k, 1, 1);
    kit_give_up(&k, 2, 1);
    lock(1, 1, 1, 7, X);
    lock(2, 1, 1, 8, X);
    kit_let_go(&k);
    wait_long();
    check_held(1, 1);
    check_held(2, 1);
    kit_free(&k);
}

int main(void)
{
    for (unsigned n = 2; n <= KIT_HOSTS_MAX; n++)
        check_circle(n);
    check_no_circle();
    check_alone();
    check_threads(1, 0, true);
    check_threads(2, 0, false);
    check_threads(0, 0, false);
    check_threads(2, FISSLOCK_MISTAKE_CROWD, true);
    check_one_host();
    check_writer_between(0);
    check_writer_between(FISSION_WRITE_PREFERRING);
    check_ghost_between();
    check_upgrades(1, 2);
    check_upgrades(2, 1);
    check_upgrades(2, 3);
    check_reader_in_exclusive_tenure();
    unsigned told = 0;
    for (unsigned turn = 0; turn < 20; turn++) {
        CHECK(!told_of_what_never_was(0, turn));
        told += told_of_what_never_was(FISSLOCK_MISTAKE_RASH, turn);
    }
    CHECK(told > 0 && told < 20);
    check_ended();
    return 0;
}
