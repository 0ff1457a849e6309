/* SPDX-License-Identifier: Apache-2.0 */
/* The holes of the paper's protocol, one by one: packets that are lost, late, doubled or overtaken do no harm. */
#include "tests/unit/fisslock_kit.h"

static const struct fission_policy plain;

#include <errno.h>

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define HEALS (300 * KIT_RETRY_NS) /* everything that was lost has been said again */

enum { GOES, KEPT, LOST };

static struct kit k;

static int keep_grants(const struct fission_packet *p, bool passed)
{
    return passed && p->head.type == FISSION_GRANT ? KEPT : GOES;
}
static int lose_grants(const struct fission_packet *p, bool passed)
{
    return passed && p->head.type == FISSION_GRANT ? LOST : GOES;
}
static int keep_copies(const struct fission_packet *p, bool passed)
{
    return p->flags & FISSION_COPY ? KEPT : GOES;
}
static int lose_shared(const struct fission_packet *p, bool passed)
{
    return passed && (p->flags & FISSION_COPY || (p->head.type == FISSION_GRANT && !(p->flags & FISSION_AGENT))) ? LOST : GOES;
}
static int keep_moves(const struct fission_packet *p, bool passed)
{
    return passed && p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT) && p->head.from.machine != MACHINE_SWITCH ? KEPT
                                                                                                                           : GOES;
}
static int keep_all(const struct fission_packet *p, bool passed)
{
    return KEPT;
}
static int lose_releases(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_RELEASE ? LOST : GOES;
}

/* 1: a GRANT that comes after its request was given up is not for the next of the same task. */
static void hole_1(void)
{
    kit_init(&k, 3, 2, 0);
    k.fate = keep_grants;
    kit_acquire(&k, 1, 0, X);
    kit_give_up(&k, 1, 0);
    k.fate = NULL;
    kit_acquire(&k, 2, 0, X); /* routed to host 1, which adopts what it was granted, and passes it on */
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    kit_acquire(&k, 1, 0, X);
    kit_let_go(&k); /* the late GRANT */
    CHECK(!kit_holds(&k, 1, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

/* 2: packets of one host that only overtake each other all take effect. */
static void hole_2(void)
{
    static struct kit_packet first;
    kit_init(&k, 2, 4, 0);
    k.fate = keep_all;
    for (uint32_t r = 0; r < 3; r++) {
        struct packet_ask ask = {.request = r, .port = 3, .mode = X, .index = 10 + r};
        fisslock_acquire(k.host[1], &ask, k.now, &k.out);
        kit_flush(&k, false);
    }
    CHECK_EQ(k.kept, 3);
    first = k.keep[0];
    k.keep[0] = k.keep[2];
    k.keep[2] = first;
    kit_let_go(&k);
    for (uint32_t r = 0; r < 3; r++)
        CHECK(kit_holds(&k, 1, r) && fisslock_switch_word(k.decider, 10 + r) & FISSION_WORD_HELD);
    kit_free(&k);
}

/* 3: an ACQUIRE that comes again, while its sender holds and after, does not queue behind itself or hold for ever. */
static void hole_3(void)
{
    static struct kit_packet again;
    kit_init(&k, 2, 2, 0);
    k.fate = keep_all;
    kit_ask(&k, 1, 0, X, false);
    again = k.keep[0];
    kit_let_go(&k);
    CHECK(kit_holds(&k, 1, 0));
    kit_deliver(&k, &again);
    kit_run(&k);
    CHECK_EQ(((struct fisslock_host *)k.host[1])->nodes_used, 1);
    kit_release(&k, 1, 0);
    kit_deliver(&k, &again); /* the free lock is granted to a request that has ended, and its host gives it back */
    kit_run(&k);
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

/* 4: 256 shared requests on their way, and more than ordinals can count: a FREE with an old incarnation is not accepted. */
static void hole_4(void)
{
    uint64_t word = 0, token = 0;
    struct fission_meta m;
    struct fission_packet acquire = {.head = {.type = FISSION_ACQUIRE}, .client = {1, 2}, .mode = FISSION_SHARED};
    struct fission_packet release = {.head = {.type = FISSION_FREE, .from = {1, 0}}, .inca = 1, .old_mode = FISSION_SHARED};
    CHECK_EQ(fission_decide(&acquire, &plain, &word, &token, &m), FISSION_TO_CLIENT);
    for (unsigned i = 0; i < 256; i++)
        CHECK_EQ(fission_decide(&acquire, &plain, &word, &token, &m), FISSION_TO_CLIENT | FISSION_TO_AGENT);
    CHECK_EQ(fission_decide(&release, &plain, &word, &token, &m), FISSION_BACK);
    CHECK(!m.valid && word & FISSION_WORD_HELD);
    for (unsigned i = 257; i < FISSION_INCA_MAX; i++)
        fission_decide(&acquire, &plain, &word, &token, &m);
    /* Now the agent decides. */
    CHECK_EQ(fission_decide(&acquire, &plain, &word, &token, &m), FISSION_TO_AGENT);
    CHECK_EQ(fission_word_inca(word), FISSION_INCA_MAX);
}

/* 5: lost or slow, the answer is asked for again, and given once: by the agent that was told, or that adopts. */
static void hole_5(void)
{
    kit_init(&k, 3, 2, 0);
    kit_acquire(&k, 1, 0, S);
    k.fate = lose_grants;
    kit_acquire(&k, 2, 0, S);
    CHECK(!kit_holds(&k, 2, 0));
    k.fate = NULL;
    kit_wait(&k, 10 * KIT_RETRY_NS);
    CHECK(kit_holds(&k, 2, 0));
    CHECK_EQ(fission_word_inca(kit_word(&k)), 2); /* not counted again */
    kit_release(&k, 2, 0);
    kit_release(&k, 1, 0);
    kit_check_free(&k);

    k.fate = lose_grants;
    kit_acquire(&k, 1, 0, X);
    k.fate = NULL;
    kit_wait(&k, 10 * KIT_RETRY_NS);
    CHECK(kit_holds(&k, 1, 0));
    CHECK_EQ(fisslock_counts(k.host[1])->adopted, 1);
    kit_release(&k, 1, 0);
    kit_check_free(&k);
    kit_free(&k);
}

/* 6: a queue larger than a packet moves with its agent. */
static void hole_6(void)
{
    enum { WAITERS = 300 };
    kit_init(&k, 3, WAITERS, 0);
    kit_acquire(&k, 1, 0, X);
    for (uint32_t r = 0; r < WAITERS; r++)
        kit_acquire(&k, 2 + r % 2, r, X);
    uint64_t served = 0;
    kit_release(&k, 1, 0);
    for (unsigned i = 0; i < 20 * WAITERS && served < WAITERS; i++) {
        unsigned holders = 0;
        for (uint32_t r = 0; r < WAITERS; r++)
            if (kit_holds(&k, 2 + r % 2, r)) {
                holders++;
                served++;
                kit_release(&k, 2 + r % 2, r);
            }
        if (!holders)
            kit_wait(&k, KIT_RETRY_NS);
    }
    CHECK_EQ(served, WAITERS);
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

/* 7: a RELEASE of a free lock, or from a client that neither holds nor waits, changes nothing. */
static void hole_7(void)
{
    static struct kit_packet again;
    kit_init(&k, 3, 2, 0);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    k.fate = keep_all;
    CHECK_EQ(fisslock_release(k.host[2], 0, k.now, &k.out), 0);
    kit_flush(&k, false);
    again = k.keep[0];
    kit_let_go(&k);
    kit_deliver(&k, &again); /* its sender holds no more */
    kit_run(&k);
    CHECK(kit_holds(&k, 1, 0) && kit_word(&k) & FISSION_WORD_HELD);
    kit_release(&k, 1, 0);
    uint64_t word = kit_word(&k);
    kit_deliver(&k, &again);
    kit_run(&k);
    CHECK_EQ(kit_word(&k), word);
    kit_check_free(&k);
    /* The client hears that the lock is free, unless it said that it has ended. */
    struct fission_packet *p = (void *)again.data;
    fisslock_switch_packet(k.decider, p, again.len, k.now, &k.out);
    CHECK(k.out.packets == !(p->flags & FISSION_DONE) && (!k.out.packets || outbox_packet(&k.out, 0)->to.machine == 2));
    outbox_clear(&k.out);
    p->flags ^= FISSION_DONE;
    fisslock_switch_packet(k.decider, p, again.len, k.now, &k.out);
    CHECK(k.out.packets == !(p->flags & FISSION_DONE) && (!k.out.packets || outbox_packet(&k.out, 0)->to.machine == 2));
    outbox_clear(&k.out);
    kit_free(&k);
}

/* 8: a RELEASE that reaches the old agent while it moves is heard by the new one. */
static void hole_8(void)
{
    kit_init(&k, 4, 2, 0);
    kit_acquire(&k, 1, 0, X);
    kit_acquire(&k, 2, 0, X);
    kit_acquire(&k, 3, 0, X);
    k.fate = keep_moves;
    kit_release(&k, 1, 0); /* to host 2, with host 3 in the queue; has not arrived */
    kit_give_up(&k, 3, 0); /* back and forth between the decider and host 2 */
    kit_let_go(&k);
    CHECK(kit_holds(&k, 2, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

/* 9: the agent's host is lost. Its holds and waits go, those of the living stay: a sole shared holder is still one. */
static void hole_9(void)
{
    const uint64_t lease = 100 * KIT_RETRY_NS;
    kit_init_leased(&k, 4, 2, 0, lease);
    k.now = 1;
    kit_wait(&k, 10 * KIT_RETRY_NS);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    CHECK(kit_holds(&k, 1, 0) && kit_holds(&k, 2, 0));
    uint64_t token = kit_token(&k, 2, 0);
    kit_acquire(&k, 3, 0, X);
    CHECK_EQ(fission_word_machine(kit_word(&k)), 1);
    k.dead[1] = true;
    kit_wait(&k, lease / 2);
    CHECK(!kit_holds(&k, 3, 0)); /* its lease may still run */
    kit_wait(&k, 2 * lease);
    CHECK(fission_word_machine(kit_word(&k)) == 3 && kit_word(&k) & FISSION_WORD_TAKEN);
    CHECK(!kit_holds(&k, 3, 0) && kit_holds(&k, 2, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, lease);
    CHECK(kit_holds(&k, 3, 0) && kit_token(&k, 3, 0) > token);

    /* The lost one was only cut off, and finds out with the first thing it does. */
    CHECK_EQ(fisslock_release(k.host[1], 0, k.now, &k.out), -PAWL_ENOTOWNER);
    CHECK_EQ(fisslock_expiry(k.host[1], 0), 0);
    outbox_clear(&k.out);
    k.dead[1] = false;
    fisslock_session_dead(k.host[1], 0, k.now, &k.out);
    kit_flush(&k, false);
    kit_wait(&k, lease);
    kit_acquire(&k, 1, 0, S);
    CHECK(!kit_holds(&k, 1, 0));
    kit_release(&k, 3, 0);
    kit_wait(&k, lease);
    CHECK(kit_holds(&k, 1, 0));

    /* The decider's state is lost: live hosts keep what they hold (unit/fisslock_rebuild has the rest). */
    fisslock_switch_init(k.decider, &k.config, 2, k.now);
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, 2 * lease);
    CHECK(kit_holds(&k, 1, 0) && !kit_holds(&k, 2, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, lease);
    CHECK(kit_holds(&k, 2, 0));
    CHECK(kit_token(&k, 2, 0) > token);
    kit_free(&k);
}

/* 10: a packet that was sent back, or is sent again, raises no counter. */
static void hole_10(void)
{
    uint64_t word = 0, token = 0;
    struct fission_meta m;
    struct fission_packet p = {.head = {.type = FISSION_ACQUIRE}, .client = {1, 2}, .mode = FISSION_SHARED};
    fission_decide(&p, &plain, &word, &token, &m);
    for (uint16_t mark = FISSION_RETRY; mark <= FISSION_BOUNCED; mark <<= 1) {
        p.flags = mark;
        uint64_t before = word;
        CHECK_EQ(fission_decide(&p, &plain, &word, &token, &m), FISSION_TO_AGENT);
        CHECK_EQ(word, before);
    }
    uint64_t other = word;
    CHECK_EQ(fission_decide(&p, &(struct fission_policy){.mistakes = FISSION_MISTAKE_RETRY}, &other, &token, &m),
             FISSION_TO_CLIENT | FISSION_TO_AGENT);
    CHECK(other != word); /* that is how it goes wrong */
    p.flags = FISSION_BOUNCED | FISSION_COPY;
    word &= ~FISSION_WORD_HELD;
    CHECK_EQ(fission_decide(&p, &plain, &word, &token, &m), FISSION_DROP);
    CHECK(!(word & FISSION_WORD_HELD));
}

/* 11: A's GRANT is lost, B reads by the decider's grant; A gives up. C must not write while B reads. */
static void hole_11(void)
{
    kit_init(&k, 3, 2, 0);
    k.fate = lose_grants;
    kit_acquire(&k, 1, 0, S);
    k.fate = keep_copies;
    kit_acquire(&k, 2, 0, S);
    CHECK(kit_holds(&k, 2, 0));
    kit_give_up(&k, 1, 0);
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, HEALS);
    CHECK(!kit_holds(&k, 3, 0) && kit_holds(&k, 2, 0));
    kit_let_go(&k);
    kit_wait(&k, HEALS);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    kit_check_free(&k);
    kit_free(&k);
}

/* Fig. 10, and worse: neither GRANT nor copy of a shared grant arrives. The census finds that no client holds by that grant. A
 * client that does hold is found, although the agent was never told. */
static void census(void)
{
    kit_init(&k, 4, 2, 0);
    kit_acquire(&k, 1, 0, S);
    k.fate = lose_shared;
    kit_ask(&k, 2, 0, S, false);
    kit_run(&k);
    kit_give_up(&k, 2, 0);
    k.fate = NULL;
    kit_acquire(&k, 3, 0, X);
    kit_release(&k, 1, 0);
    CHECK(!kit_holds(&k, 3, 0)); /* as far as the agent knows, a client has ordinal 2 */
    kit_wait(&k, HEALS);
    CHECK_EQ(fisslock_counts(k.host[1])->censuses, 1); /* host 4 never asked: the decider answers for it */
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    kit_check_free(&k);

    kit_acquire(&k, 1, 0, S);
    k.fate = keep_copies;
    kit_acquire(&k, 2, 0, S);
    CHECK(kit_holds(&k, 2, 0));
    kit_acquire(&k, 3, 0, X);
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(!kit_holds(&k, 3, 0) && kit_holds(&k, 2, 0));
    k.fate = lose_releases; /* and its release is lost, too, for a while */
    kit_release(&k, 2, 0);
    k.fate = NULL;
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    kit_let_go(&k); /* the copies, much too late */
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

/* Of host 2: the first GRANT and its copy are late, and what it retransmits is lost. Of host 3: GRANTs and copies are lost. */
static int late_for_2(const struct fission_packet *p, bool passed)
{
    bool shared = p->head.type == FISSION_GRANT && !(p->flags & FISSION_AGENT);
    if (p->client.machine == 2 && p->head.type == FISSION_ACQUIRE && !passed && p->flags & FISSION_RETRY)
        return LOST;
    if (p->client.machine == 2 && passed && (shared || p->flags & FISSION_COPY))
        return KEPT;
    return p->client.machine == 3 && passed && (shared || p->flags & FISSION_COPY) ? LOST : GOES;
}

/* A request that waits promises in a census not to take a GRANT of this tenure, and in the census of a later tenure likewise. The
 * first promise still holds. (Seed 20001332 of the swarm.) */
static void two_censuses(void)
{
    kit_init(&k, 3, 2, 0);
    k.fate = late_for_2;
    kit_acquire(&k, 1, 0, S);
    kit_ask(&k, 2, 0, S, false);
    kit_run(&k);
    CHECK_EQ(k.kept, 2);
    for (unsigned i = 1; i <= 2; i++) {
        if (i == 2) {
            kit_acquire(&k, 1, 0, S);
            kit_ask(&k, 3, 1, S, false);
            kit_run(&k);
            kit_give_up(&k, 3, 1);
        }
        kit_acquire(&k, 3, 0, X);
        kit_release(&k, 1, 0);
        kit_wait(&k, HEALS);
        CHECK_EQ(fisslock_counts(k.host[1])->censuses, i);
        CHECK(kit_holds(&k, 3, 0) && !kit_holds(&k, 2, 0));
        if (i == 1)
            kit_release(&k, 3, 0);
    }
    k.fate = NULL;
    kit_let_go(&k);
    CHECK(kit_holds(&k, 3, 0) && !kit_holds(&k, 2, 0)); /* I1 */
    kit_release(&k, 3, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    kit_free(&k);
}

static struct kit_packet seen_grant;

static int keep_moves_and_copies(const struct fission_packet *p, bool passed)
{
    if (passed && p->head.type == FISSION_GRANT && !(p->flags & FISSION_AGENT)) {
        seen_grant = (struct kit_packet){.passed = true, .len = sizeof *p};
        memcpy(seen_grant.data, p, sizeof *p);
    }
    return passed && (p->flags & (FISSION_AGENT | FISSION_COPY)) ? KEPT : GOES;
}

/* The decider grants a request of a host whose agent is still on its way back to it in shared mode; the GRANT comes twice. Its
 * holder is one, although its ordinal was heard of before its copy came. (Found by the shuffler.) */
static void granted_before_agent(void)
{
    kit_init(&k, 2, 4, 0);
    kit_acquire(&k, 1, 0, X);
    k.fate = keep_moves_and_copies;
    kit_convert(&k, 1, 0, S);
    kit_acquire(&k, 1, 1, S);
    CHECK(kit_holds(&k, 1, 1) && seen_grant.passed);
    CHECK_EQ(k.kept, 2);
    k.fate = NULL;
    kit_deliver(&k, &k.keep[0]);
    kit_deliver(&k, &seen_grant);
    kit_deliver(&k, &k.keep[1]);
    k.kept = 0;
    kit_run(&k);
    kit_acquire(&k, 2, 0, X);
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 1) && !kit_holds(&k, 2, 0));
    kit_release(&k, 1, 1);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    kit_free(&k);
}

/* 12: the packet that moves an agent names both modes: the one that ends is checked, the other is what comes. */
static void hole_12(void)
{
    uint64_t word = 0, token = 0;
    struct fission_meta m;
    struct fission_packet p = {.head = {.type = FISSION_ACQUIRE}, .client = {1, 2}, .mode = FISSION_SHARED};
    fission_decide(&p, &plain, &word, &token, &m);
    fission_decide(&p, &plain, &word, &token, &m);
    struct fission_packet grant = {.head = {.type = FISSION_GRANT, .from = {1, 0}, .to = {2, 3}},
                                   .flags = FISSION_AGENT,
                                   .old_mode = FISSION_SHARED,
                                   .mode = FISSION_EXCLUSIVE,
                                   .inca = 1};
    CHECK_EQ(fission_decide(&grant, &plain, &word, &token, &m), FISSION_BACK); /* a client reads */
    grant.inca = 2;
    CHECK_EQ(fission_decide(&grant, &plain, &word, &token, &m), FISSION_TO_NEXT);
    CHECK(!(word & FISSION_WORD_SHARED) && fission_word_machine(word) == 2);
    CHECK_EQ(fission_decide(&grant, &plain, &word, &token, &m), FISSION_TO_NEXT); /* again: passed on, nothing changed */
    CHECK_EQ(fission_word_term(word), 1);
    grant.term = 1;
    grant.head.to.machine = 3;
    grant.old_mode = FISSION_EXCLUSIVE;
    grant.mode = FISSION_SHARED;
    grant.inca = 77; /* not checked */
    CHECK_EQ(fission_decide(&grant, &plain, &word, &token, &m), FISSION_TO_NEXT);
    CHECK(word & FISSION_WORD_SHARED && fission_word_inca(word) == 1);
    CHECK_EQ(token, 2);
}

/* 13: the bits that close a lock to readers go with the writers they were set for; the agent's own grants honour them. */
static void hole_13(void)
{
    kit_init(&k, 3, 4, FISSION_WRITE_PREFERRING);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, X);
    CHECK(kit_word(&k) & FISSION_WORD_WRITERS);
    kit_acquire(&k, 3, 0, S);
    CHECK(!kit_holds(&k, 3, 0));
    CHECK_EQ(kit_acquire(&k, 1, 1, S), PACKET_WAIT);
    kit_give_up(&k, 2, 0);
    CHECK(!(kit_word(&k) & FISSION_WORD_WRITERS));
    CHECK(kit_holds(&k, 3, 0) && kit_holds(&k, 1, 1));
    kit_free(&k);

    /* Read-preferring: a writer that waits too long. */
    kit_init(&k, 3, 4, 0);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, X);
    kit_acquire(&k, 3, 0, S);
    CHECK(kit_holds(&k, 3, 0));
    kit_wait(&k, 20 * KIT_RETRY_NS);
    CHECK(kit_word(&k) & FISSION_WORD_STARVES);
    kit_acquire(&k, 3, 1, S);
    CHECK(!kit_holds(&k, 3, 1));
    CHECK_EQ(kit_acquire(&k, 1, 1, S), PACKET_WAIT);
    kit_release(&k, 1, 0);
    kit_release(&k, 3, 0);
    CHECK(kit_holds(&k, 2, 0) && !(kit_word(&k) & FISSION_WORD_STARVES));
    kit_release(&k, 2, 0);
    CHECK(kit_holds(&k, 3, 1) && kit_holds(&k, 1, 1));
    kit_free(&k);
}

/* Whatever is wrong with a packet, it is counted and changes nothing. */
static int lose_withdrawals(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_RELEASE && (p->flags & FISSION_DONE) ? LOST : GOES;
}

/* 13, too: a writer in the queue keeps readers out, and does not wait any more. Its RELEASE was lost, or its host. A holder waits
 * to read once more, in no thread's name, so that no probe for deadlocks is sent: the agent finds out by itself (rack seed 21521).
 */
static void writer_gone_unnoticed(uint64_t options, bool host_lost)
{
    const uint64_t lease = 100 * KIT_RETRY_NS;
    kit_init_leased(&k, 3, 4, options, lease);
    kit_wait(&k, lease / 2);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, 20 * KIT_RETRY_NS); /* it starves by now */
    CHECK_EQ(kit_acquire(&k, 1, 1, S), PACKET_WAIT);
    kit_acquire(&k, 3, 0, S);
    kit_wait(&k, 3 * lease);
    CHECK(!kit_holds(&k, 1, 1) && !kit_holds(&k, 3, 0)); /* while it waits, they do */
    k.dead[2] = host_lost;
    k.fate = lose_withdrawals;
    if (!host_lost)
        kit_give_up(&k, 2, 0);
    k.fate = NULL;
    kit_wait(&k, 3 * lease);
    CHECK(kit_holds(&k, 1, 0) && kit_holds(&k, 1, 1) && kit_holds(&k, 3, 0));
    CHECK(!(kit_word(&k) & (FISSION_WORD_STARVES | FISSION_WORD_WRITERS)));
    kit_free(&k);
}

/* The same with a holder that wanted to write. */
static void upgrader_gone_unnoticed(void)
{
    kit_init(&k, 3, 4, 0);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    CHECK_EQ(kit_convert(&k, 2, 0, X), PACKET_WAIT);
    CHECK_EQ(kit_acquire(&k, 1, 1, S), PACKET_WAIT);
    k.fate = lose_withdrawals;
    kit_give_up(&k, 2, 0);
    k.fate = NULL;
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 1) && kit_holds(&k, 2, 0));
    kit_free(&k);
}

static void bad_packets(void)
{
    _Alignas(8) uint8_t good[PACKET_MAX], bad[PACKET_MAX];
    const struct packet_drops *d;
    kit_init(&k, 2, 2, 0);
    k.fate = keep_all;
    kit_ask(&k, 1, 0, X, false);
    memcpy(good, k.keep[0].data, sizeof good);
    d = fisslock_switch_drops(k.decider);
    static const struct {
        size_t offset;
        uint8_t value;
        int why; /* 0 bad, 1 alien, 2 stale, 3 unreadable */
    } spoil[] = {
        {offsetof(struct packet_head, version), 9, 3},      {offsetof(struct packet_head, family), 5, 0},
        {offsetof(struct packet_head, type), 99, 0},        {offsetof(struct packet_head, features), 4, 3},
        {offsetof(struct packet_head, space), 8, 1},        {offsetof(struct packet_head, index), 16, 1},
        {offsetof(struct packet_head, epoch), 1, 2},        {offsetof(struct packet_head, generation), 1, 2},
        {offsetof(struct packet_head, from), 3, 1},         {offsetof(struct fission_packet, mode), 3, 0},
        {offsetof(struct fission_packet, client), 0, 1},    {offsetof(struct fission_packet, count), 1, 0},
        {offsetof(struct fission_packet, term) + 3, 16, 0},
    };
    for (unsigned i = 0; i < countof(spoil); i++) {
        uint64_t before[] = {d->bad, d->alien, d->stale, d->unreadable};
        memcpy(bad, good, sizeof bad);
        bad[spoil[i].offset] = spoil[i].value;
        fisslock_switch_packet(k.decider, bad, sizeof(struct fission_packet), 0, &k.out);
        uint64_t after[] = {d->bad, d->alien, d->stale, d->unreadable};
        CHECK_EQ(after[spoil[i].why], before[spoil[i].why] + 1);
        fisslock_packet(k.host[1], bad, sizeof(struct fission_packet), 0, &k.out);
        CHECK_EQ(k.out.packets, 0);
    }
    for (uint32_t len = 0; len < sizeof(struct fission_packet); len++)
        fisslock_switch_packet(k.decider, good, len, 0, &k.out);
    CHECK_EQ(k.out.packets, 0);
    CHECK_EQ(fisslock_switch_word(k.decider, 5), 0);
    const struct packet_drops at_host = fisslock_host_drops(k.host[1]);
    CHECK_EQ(at_host.bad + at_host.alien + at_host.stale + at_host.unreadable, countof(spoil));
    kit_free(&k);
}

/* A copy of a grant of an earlier tenure finds the agent that a lost GRANT should have told of. The copy is news of nothing else. A
 * client that waits at the agent's own host, and sends nothing since it is in the queue, is served nevertheless. */
static void adopted_by_a_late_copy(void)
{
    kit_init(&k, 3, 2, 0);
    kit_acquire(&k, 2, 0, S);
    k.fate = keep_copies;
    kit_acquire(&k, 3, 0, S);
    CHECK(kit_holds(&k, 3, 0) && k.kept == 1);
    static struct kit_packet late;
    late = k.keep[0];
    k.kept = 0;
    kit_release(&k, 3, 0); /* by its ordinal, of which the agent now knows */
    kit_release(&k, 2, 0);
    CHECK(!(kit_word(&k) & FISSION_WORD_HELD));
    k.fate = lose_grants;
    kit_acquire(&k, 2, 1, S);
    CHECK(!kit_holds(&k, 2, 1) && kit_word(&k) & FISSION_WORD_HELD);
    k.fate = NULL;
    kit_deliver(&k, &late);
    kit_run(&k);
    CHECK_EQ(fisslock_counts(k.host[2])->adopted, 1);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 1));
    kit_release(&k, 2, 1);
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

static int keep_routed(const struct fission_packet *p, bool passed)
{
    return passed && p->head.type == FISSION_ACQUIRE ? KEPT : GOES;
}

/* A late request makes a holder of a client that has given up, and that hears nothing of it. No request waits, so that the agent
 * does not ask whether it holds. It does when the index is to be retired, which else would never happen (I11). The client is not
 * told that a request waits. */
static void holder_gone_unnoticed(void)
{
    kit_init(&k, 2, 2, 0);
    kit_acquire(&k, 1, 0, X);
    k.fate = keep_routed;
    kit_acquire(&k, 2, 0, S);
    CHECK_EQ(k.kept, 1);
    k.fate = lose_releases;
    kit_give_up(&k, 2, 0);
    k.fate = NULL;
    CHECK_EQ(kit_convert(&k, 1, 0, S), 0);
    k.dead[2] = true;
    kit_let_go(&k);
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    const struct fisslock_host *h = k.host[1];
    CHECK(h->agents_used == 1 && h->nodes_used == 1 && kit_word(&k) & FISSION_WORD_HELD);
    k.dead[2] = false;
    kit_wait(&k, HEALS);
    CHECK(h->agents_used == 1); /* nothing has changed by itself */
    CHECK(fisslock_uses(k.host[1], 5, k.now, &k.out) && k.out.packets == 1);
    const struct fission_packet *p = (const void *)outbox_packet(&k.out, 0);
    CHECK(p->head.type == FISSION_GRANT && !(p->flags & FISSION_WANTED));
    kit_flush(&k, false);
    kit_run(&k);
    kit_wait(&k, HEALS);
    CHECK(!fisslock_uses(k.host[1], 5, k.now, &k.out));
    kit_check_free(&k);
    kit_free(&k);
}

int main(void)
{
    hole_1();
    hole_2();
    hole_3();
    hole_4();
    hole_5();
    hole_6();
    hole_7();
    hole_8();
    hole_9();
    hole_10();
    hole_11();
    census();
    two_censuses();
    granted_before_agent();
    hole_12();
    hole_13();
    writer_gone_unnoticed(0, false);
    writer_gone_unnoticed(0, true);
    writer_gone_unnoticed(FISSION_WRITE_PREFERRING, false);
    writer_gone_unnoticed(FISSION_WRITE_PREFERRING, true);
    upgrader_gone_unnoticed();
    adopted_by_a_late_copy();
    holder_gone_unnoticed();
    bad_packets();
    return 0;
}
