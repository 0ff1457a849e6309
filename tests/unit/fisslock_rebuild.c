/* SPDX-License-Identifier: Apache-2.0 */
/* A switch that lost its state is rebuilt from what the living hold (5.3): step by step, with hosts that fall silent, switches that
 * fail again in between, and packets that come late. */
#include "tests/unit/fisslock_kit.h"

#include <errno.h>

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define LEASE (200 * KIT_RETRY_NS)
#define HEALS (100 * KIT_RETRY_NS) /* half a lease: all hosts that can be heard have reported, and have been told that all have */

enum { GOES, KEPT, LOST };

static struct kit k;
static uint32_t life;

static int lose_reports(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_REPORT ? LOST : GOES;
}
static int keep_reports(const struct fission_packet *p, bool passed)
{
    return !passed && p->head.type == FISSION_REPORT ? KEPT : GOES;
}
static int lose_every_third_report(const struct fission_packet *p, bool passed)
{
    static unsigned seen;
    return p->head.type == FISSION_REPORT && ++seen % 3 == 0 ? LOST : GOES;
}

static void begin(unsigned hosts, uint16_t requests, uint64_t options)
{
    kit_init_leased(&k, hosts, requests, options, LEASE);
    life = 1;
    kit_wait(&k, 2 * KIT_RETRY_NS);
}

static void lose_switch(void)
{
    k.queued = k.kept = 0;
    fisslock_switch_init(k.decider, &k.config, ++life, k.now);
}

static void end(void)
{
    k.fate = NULL;
    kit_wait(&k, 2 * LEASE);
    kit_acquire(&k, 1, 7, X);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 7));
    kit_release(&k, 1, 7);
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

static void check_lives(unsigned host)
{
    CHECK(fisslock_expiry(k.host[host], 0) > k.now);
}

/* An exclusive holder keeps its lock; the waiter gets it next, with a higher token. */
static void exclusive(void)
{
    begin(3, 8, 0);
    kit_acquire(&k, 1, 0, X);
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 1, 0);
    lose_switch();
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0) && !kit_holds(&k, 2, 0));
    check_lives(1);
    CHECK_EQ(kit_ask(&k, 3, 0, X, true), PACKET_WAIT);
    kit_run(&k);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    CHECK(kit_token(&k, 2, 0) > token);
    kit_release(&k, 2, 0);
    end();
}

/* A sole shared holder comes back as shared: others share, a writer waits. */
static void sole_reader(void)
{
    begin(3, 8, 0);
    kit_acquire(&k, 1, 0, S);
    lose_switch();
    kit_wait(&k, HEALS);
    CHECK(kit_word(&k) & FISSION_WORD_SHARED);
    kit_acquire(&k, 2, 0, S);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0) && kit_holds(&k, 2, 0));
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, HEALS);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    end();
}

/* A host that was told of the switch's successor takes nothing of the old switch any more, which may live. It keeps what it holds,
 * and is served by the successor. */
static void replaced(bool told)
{
    begin(2, 8, 0);
    kit_acquire(&k, 1, 0, S); /* the agent is there */
    kit_acquire(&k, 2, 1, S);
    CHECK(kit_holds(&k, 2, 1));
    if (told)
        fisslock_switch_gone(k.host[2], 0, k.now, &k.out);
    kit_acquire(&k, 2, 0, S);
    kit_wait(&k, 4 * KIT_RETRY_NS);
    CHECK(kit_holds(&k, 2, 1));
    CHECK_EQ(kit_holds(&k, 2, 0), !told);
    lose_switch();
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0) && kit_holds(&k, 2, 1));
    kit_release(&k, 1, 0);
    kit_release(&k, 2, 0);
    kit_release(&k, 2, 1);
    end();
}

/* Readers on several hosts, of which the word names one: the others are asked for. A host that only reported is asked, too. */
static bool readers(uint64_t mistakes)
{
    kit_mistakes = mistakes;
    begin(3, 8, 0);
    kit_mistakes = 0;
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    lose_switch();
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0) && kit_holds(&k, 2, 0));
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, HEALS);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    bool waits = !kit_holds(&k, 3, 0);
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    end();
    return waits;
}

/* An upgrade waits for the readers of before, wherever they are, and one that is alone gets it. */
static void upgrade(void)
{
    begin(2, 8, 0);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    lose_switch();
    kit_convert(&k, 1, 0, X);
    kit_wait(&k, HEALS);
    CHECK_EQ(host_request(k.host[1], 0)->state, FISS_UPGRADING);
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    CHECK_EQ(host_request(k.host[1], 0)->state, FISS_HELD);
    CHECK_EQ(host_request(k.host[1], 0)->mode, X);
    kit_release(&k, 1, 0);
    end();
}

/* A writer becomes a reader while the switch does not decide. */
static void downgrade(void)
{
    begin(2, 8, 0);
    kit_acquire(&k, 1, 0, X);
    uint64_t token = kit_token(&k, 1, 0);
    lose_switch();
    k.fate = keep_reports;
    kit_wait(&k, HEALS);
    CHECK_EQ(kit_convert(&k, 1, 0, S), PACKET_DONE);
    CHECK(kit_token(&k, 1, 0) > token);
    k.fate = NULL;
    kit_wait(&k, HEALS);
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0) && !kit_holds(&k, 2, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    kit_release(&k, 2, 0);
    end();
}

/* A host that dies with the switch, or falls silent: nothing is decided before its lease is over, and then it holds nothing. */
static void both(bool returns)
{
    begin(3, 8, 0);
    kit_acquire(&k, 1, 0, X);
    struct packet_ask other = {.request = 1, .port = 3, .mode = X, .index = 9};
    fisslock_acquire(k.host[2], &other, k.now, &k.out);
    kit_flush(&k, false);
    kit_run(&k);
    CHECK(kit_holds(&k, 2, 1));
    k.dead[1] = true;
    lose_switch();
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, LEASE - HEALS);
    CHECK(!kit_holds(&k, 3, 0));
    CHECK(kit_holds(&k, 2, 1));
    kit_wait(&k, 2 * HEALS);
    CHECK(kit_holds(&k, 3, 0) && kit_holds(&k, 2, 1));
    check_lives(2);
    k.dead[1] = false;
    if (returns) {
        CHECK(fisslock_expiry(k.host[1], 0) <= k.now); /* it knows without being told */
        fisslock_session_dead(k.host[1], 0, k.now, &k.out);
        kit_flush(&k, false);
    } else {
        kit_host_again(&k, 1, 2);
    }
    kit_release(&k, 3, 0);
    kit_release(&k, 2, 1);
    end();
}

/* The switch fails again while it is being rebuilt, and again. */
static void again(void)
{
    begin(3, 8, 0);
    kit_acquire(&k, 1, 0, X);
    uint64_t token = kit_token(&k, 1, 0);
    for (int i = 0; i < 5; i++) {
        lose_switch();
        k.fate = i % 2 ? lose_reports : keep_reports;
        kit_wait(&k, HEALS / 2);
        CHECK(kit_holds(&k, 1, 0));
    }
    kit_acquire(&k, 2, 0, X);
    k.fate = NULL;
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0) && !kit_holds(&k, 2, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    CHECK(kit_token(&k, 2, 0) > token);
    kit_release(&k, 2, 0);
    end();
}

/* A REPORT that comes when the switch has opened, and what it tells was given back, changes nothing. */
static void late_report(void)
{
    begin(2, 8, 0);
    kit_acquire(&k, 1, 0, X);
    lose_switch();
    k.fate = keep_reports;
    kit_wait(&k, HEALS);
    unsigned kept = k.kept;
    CHECK(kept);
    k.fate = NULL;
    kit_wait(&k, HEALS);
    kit_release(&k, 1, 0);
    kit_acquire(&k, 2, 0, S);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    uint64_t word = kit_word(&k);
    for (unsigned i = 0; i < kept; i++)
        kit_deliver(&k, &k.keep[i]);
    k.kept = 0;
    kit_run(&k);
    CHECK_EQ(kit_word(&k), word);
    kit_release(&k, 2, 0);
    end();
}

/* More holds than a packet has room for, and than are under way at once; some of the packets are lost. */
static void many(void)
{
    enum { HOLDS = 4000, LOCKS = 16 };
    begin(2, HOLDS, 0);
    for (uint32_t r = 0; r < HOLDS; r++) {
        struct packet_ask ask = {.request = r, .port = 3, .mode = r % LOCKS ? S : X, .index = r % LOCKS};
        if (!ask.index && r)
            continue;
        fisslock_acquire(k.host[1], &ask, k.now, &k.out);
        kit_flush(&k, false);
        kit_run(&k);
        CHECK(kit_holds(&k, 1, r));
    }
    lose_switch();
    k.fate = lose_every_third_report;
    kit_wait(&k, HEALS);
    for (uint64_t lock = 0; lock < LOCKS; lock++) {
        uint64_t word = fisslock_switch_word(k.decider, lock);
        CHECK((word & FISSION_WORD_HELD) && !!(word & FISSION_WORD_SHARED) == (lock != 0));
        CHECK_EQ(fission_word_machine(word), 1);
    }
    for (uint32_t r = 0; r < HOLDS; r++)
        if (kit_holds(&k, 1, r))
            kit_release(&k, 1, r);
    end();
}

/* A switch that knows which hosts there are does not wait for others. A host that was left out loses what it thinks it holds. */
static void expected(void)
{
    const uint64_t only_first = UINT64_C(1) << 1;
    begin(3, 8, 0);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    k.dead[3] = true;
    lose_switch();
    fisslock_switch_expect(k.decider, &only_first, 1);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0));
    CHECK(!kit_holds(&k, 2, 0));
    CHECK(fisslock_expiry(k.host[2], 0) == 0);
    fisslock_session_dead(k.host[2], 0, k.now, &k.out);
    kit_release(&k, 1, 0);
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    kit_release(&k, 2, 0);
    k.dead[3] = false;
    end();
}

/* A host that forgot has several agents to take over at once, two of which share a place in a table: neither delays the other. */
static void takes(void)
{
    uint64_t a = 0, b = 1;
    while (mix64(a) % TAKES != mix64(b) % TAKES)
        if (++b == 16)
            b = ++a + 1;
    CHECK(b < 16);
    begin(2, 8, 0);
    for (uint32_t r = 0; r < 2; r++) {
        struct packet_ask ask = {.request = r, .port = 3, .mode = X, .index = r ? b : a};
        fisslock_acquire(k.host[1], &ask, k.now, &k.out);
        kit_flush(&k, false);
    }
    kit_run(&k);
    kit_host_again(&k, 1, 2);
    kit_wait(&k, 4 * KIT_RETRY_NS);
    for (uint32_t r = 0; r < 2; r++) {
        struct packet_ask ask = {.request = r, .port = 3, .mode = X, .index = r ? b : a};
        fisslock_acquire(k.host[2], &ask, k.now, &k.out);
        kit_flush(&k, false);
    }
    kit_run(&k);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0) && kit_holds(&k, 2, 1));
    kit_release(&k, 2, 0);
    kit_release(&k, 2, 1);
    end();
}

static int keep_moves_and_takes(const struct fission_packet *p, bool passed)
{
    bool move = passed && p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT) && p->head.from.machine != MACHINE_SWITCH;
    return move || p->head.type == FISSION_TAKE ? KEPT : GOES;
}

static void let_go_of(enum fission_type type)
{
    unsigned kept = k.kept;
    k.fate = NULL;
    k.kept = 0;
    for (unsigned i = 0; i < kept; i++) {
        bool goes = ((const struct packet_head *)(const void *)k.keep[i].data)->type == type;
        struct kit_packet *to = goes ? &k.queue[k.queued++] : &k.keep[k.kept++];
        if (to != &k.keep[i])
            *to = k.keep[i];
    }
    kit_run(&k);
}

/* A host that forgot asks to take over a tenure that is on its way to it, for a holder that wants more. The move comes first, and
 * means nothing: the TAKE ends that tenure. An agent of it would take the tenure that the TAKE begins, an exclusive one, for
 * whatever it had asked for meanwhile: a reader was granted the lock exclusively, and its token did not rise when it upgraded (I2;
 * fisslock, seed 1349 of campaign 2 with the faults of a rack). */
static void takes_what_comes(void)
{
    struct packet_answer answer;
    begin(2, 8, 0);
    kit_host_again(&k, 1, 2);
    kit_wait(&k, 4 * KIT_RETRY_NS);
    kit_acquire(&k, 2, 0, S);
    kit_acquire(&k, 1, 0, S);
    CHECK(kit_holds(&k, 2, 0) && kit_holds(&k, 1, 0));
    uint64_t shared = kit_token(&k, 1, 0);
    CHECK_EQ(kit_convert(&k, 1, 0, X), PACKET_WAIT);
    k.fate = keep_moves_and_takes;
    kit_release(&k, 2, 0);
    CHECK_EQ(fission_word_machine(kit_word(&k)), 1);
    kit_acquire(&k, 2, 1, X); /* goes to host 1, which knows nothing of an agent */
    let_go_of(FISSION_GRANT);
    CHECK(k.kept); /* the TAKE */
    CHECK_EQ(fisslock_outcome(k.host[1], 0, &answer), -EINPROGRESS);
    let_go_of(FISSION_TAKE);
    kit_wait(&k, HEALS);
    CHECK(kit_token(&k, 1, 0) > shared && !kit_holds(&k, 2, 1));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 1));
    kit_release(&k, 2, 1);
    end();
}

int main(void)
{
    exclusive();
    sole_reader();
    replaced(false);
    replaced(true);
    CHECK(readers(0));
    CHECK(!readers(FISSION_MISTAKE_MUTED));
    upgrade();
    downgrade();
    both(true);
    both(false);
    again();
    late_report();
    many();
    expected();
    takes();
    takes_what_comes();
    return 0;
}
