/* SPDX-License-Identifier: Apache-2.0 */
/* The nine workflows of Fig. 5, packet by packet, and what agents, queues and modes do. */
#include "tests/unit/fisslock_kit.h"

#include <errno.h>

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE

static struct kit k;

/* Packets that an action costs: each way over the switch is two. */
#define PACKETS(action) (k.delivered = 0, (void)(action), k.delivered)

static void check_workflows(void)
{
    kit_init(&k, 3, 4, 0);
    /* 1: free, granted by the decider with an empty agent. */
    CHECK_EQ(PACKETS(kit_acquire(&k, 1, 0, S)), 2);
    CHECK(kit_holds(&k, 1, 0));
    CHECK_EQ(fission_word_machine(kit_word(&k)), 1);
    /* 2: shared beside shared, granted by the decider; the agent is told. */
    CHECK_EQ(PACKETS(kit_acquire(&k, 2, 0, S)), 3);
    CHECK(kit_holds(&k, 2, 0));
    CHECK_EQ(fission_word_inca(kit_word(&k)), 2);
    /* 4: beside the own agent, without a packet. */
    CHECK_EQ(PACKETS(kit_acquire(&k, 1, 1, S)), 0);
    CHECK(kit_holds(&k, 1, 1));
    /* 3 and 5: to the agent's queue, from afar and from beside it. */
    CHECK_EQ(PACKETS(kit_acquire(&k, 3, 0, X)), 2);
    CHECK_EQ(PACKETS(kit_acquire(&k, 1, 2, X)), 0);
    CHECK(!kit_holds(&k, 3, 0) && !kit_holds(&k, 1, 2));
    /* 6: others of this host still hold. */
    CHECK_EQ(PACKETS(kit_release(&k, 1, 0)), 0);
    CHECK_EQ(PACKETS(kit_release(&k, 1, 1)), 0);
    /* 9, then 8: released from afar, and the agent moves to the next; the release and the move are acknowledged. */
    CHECK_EQ(PACKETS(kit_release(&k, 2, 0)), 2 + 2 + 2 + 2);
    CHECK(kit_holds(&k, 3, 0) && !kit_holds(&k, 1, 2));
    CHECK_EQ(fission_word_machine(kit_word(&k)), 3);
    CHECK(kit_token(&k, 3, 0) > 0);
    kit_release(&k, 3, 0);
    CHECK(kit_holds(&k, 1, 2));
    /* 7: no client waits; free, and the answer. */
    CHECK_EQ(PACKETS(kit_release(&k, 1, 2)), 2);
    kit_check_free(&k);
    kit_free(&k);
}

/* Exclusive to exclusive on one host: the agent's business, with rising tokens. */
static void check_local_handover(void)
{
    kit_init(&k, 2, 4, 0);
    kit_acquire(&k, 1, 0, X);
    kit_acquire(&k, 1, 1, X);
    uint64_t token = kit_token(&k, 1, 0);
    CHECK_EQ(PACKETS(kit_release(&k, 1, 0)), 0);
    CHECK(kit_holds(&k, 1, 1) && kit_token(&k, 1, 1) > token);
    /* Often enough, and a new tenure is asked for: the low bits of tokens are few. */
    for (unsigned i = 0; i < 1000; i++) {
        uint32_t me = 1 + i % 2, other = 1 + (i + 1) % 2;
        token = kit_token(&k, 1, me);
        kit_acquire(&k, 1, other, X);
        kit_release(&k, 1, me);
        CHECK(kit_holds(&k, 1, other) && kit_token(&k, 1, other) > token);
    }
    kit_release(&k, 1, 1);
    kit_check_free(&k);
    kit_free(&k);
}

static void check_try(void)
{
    struct packet_answer answer;
    kit_init(&k, 2, 4, 0);
    kit_acquire(&k, 1, 0, X);
    k.delivered = 0;
    kit_ask(&k, 2, 0, X, true);
    kit_run(&k);
    CHECK_EQ(k.delivered, 2); /* the decider itself refuses */
    CHECK_EQ(fisslock_outcome(k.host[2], 0, &answer), 0);
    CHECK_EQ(answer.result, -PAWL_EHELD);
    CHECK_EQ(kit_ask(&k, 1, 1, S, true), PACKET_DONE);
    CHECK_EQ(fisslock_outcome(k.host[1], 1, &answer), 0);
    CHECK_EQ(answer.result, -PAWL_EHELD);
    kit_release(&k, 1, 0);
    kit_ask(&k, 2, 0, S, true);
    kit_run(&k);
    CHECK(kit_holds(&k, 2, 0));
    kit_release(&k, 2, 0);
    kit_check_free(&k);
    kit_free(&k);
}

static void check_convert(void)
{
    struct packet_answer answer;
    kit_init(&k, 3, 4, 0);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    uint64_t token = kit_token(&k, 2, 0);
    /* The one without the agent wants more; the other reader is in the way, and cannot want it, too. */
    CHECK_EQ(kit_convert(&k, 2, 0, X), PACKET_WAIT);
    CHECK_EQ(kit_convert(&k, 1, 0, X), PACKET_WAIT); /* the other's host is asked whether it still wants it */
    CHECK_EQ(fisslock_outcome(k.host[1], 0, &answer), 0);
    CHECK_EQ(answer.result, -EDEADLK);
    CHECK(kit_holds(&k, 1, 0));
    /* Meanwhile new readers wait. */
    kit_acquire(&k, 3, 0, S);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 1, 0);
    CHECK_EQ(fisslock_outcome(k.host[2], 0, &answer), 0);
    CHECK_EQ(answer.mode, X);
    CHECK(answer.token > token);
    CHECK_EQ(fission_word_machine(kit_word(&k)), 2);
    /* Down again, and the reader comes in. */
    CHECK_EQ(kit_convert(&k, 2, 0, S), PACKET_DONE);
    CHECK(kit_holds(&k, 3, 0) && kit_holds(&k, 2, 0));
    CHECK(kit_word(&k) & FISSION_WORD_SHARED);
    kit_release(&k, 2, 0);
    kit_release(&k, 3, 0);
    kit_wait(&k, 100 * KIT_RETRY_NS);
    kit_check_free(&k);
    kit_free(&k);
}

static void check_priority(void)
{
    kit_init(&k, 3, 4, FISSLOCK_PRIORITY);
    kit_acquire(&k, 1, 0, X);
    for (unsigned i = 0; i < 3; i++) {
        struct packet_ask ask = {.request = i, .port = 3, .mode = X, .index = 5, .priority = (uint8_t)(5 - i)};
        fisslock_acquire(k.host[2], &ask, k.now, &k.out);
        kit_flush(&k, false);
        kit_run(&k);
    }
    kit_release(&k, 1, 0);
    CHECK(kit_holds(&k, 2, 2));
    kit_release(&k, 2, 2);
    CHECK(kit_holds(&k, 2, 1));
    kit_release(&k, 2, 1);
    kit_release(&k, 2, 0);
    kit_check_free(&k);
    kit_free(&k);
}

/* A process dies: its holds are released and its waits given up, and nothing else changes. */
static void check_dead_session(void)
{
    kit_init(&k, 3, 4, 0);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    kit_acquire(&k, 3, 0, X);
    fisslock_session_dead(k.host[1], 0, k.now, &k.out);
    kit_flush(&k, false);
    kit_run(&k);
    CHECK(!kit_holds(&k, 1, 0) && kit_holds(&k, 2, 0) && !kit_holds(&k, 3, 0));
    fisslock_session_dead(k.host[2], 0, k.now, &k.out);
    kit_flush(&k, false);
    kit_run(&k);
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    kit_check_free(&k);
    kit_free(&k);
}

/* The switch grants a reader at the agent's own host: the agent knows the holder, with its mode and ordinal. */
static void check_readers_at_the_agent(void)
{
    kit_init(&k, 2, 4, 0);
    for (uint32_t i = 0; i < 3; i++)
        kit_ask(&k, 1, i, S, false); /* all are under way before the first is granted */
    kit_run(&k);
    const struct fisslock_host *h = k.host[1];
    const struct agent *a = pool_agent_of(k.host[1], 5);
    CHECK(a && a->holders.count == 3 && a->known == 3 && a->seen == 3);
    unsigned ordinals = 0;
    for (uint32_t i = a->holders.head; i != NONE; i = host_node(k.host[1], i)->next) {
        CHECK_EQ(host_node(k.host[1], i)->mode, FISSION_SHARED);
        ordinals |= 1u << host_node(k.host[1], i)->ordinal;
    }
    CHECK_EQ(ordinals, 0xd); /* the grant that brought the agent has none; 2 and 3 */
    CHECK_EQ(h->counts.by_switch, 3);
    for (uint32_t i = 0; i < 3; i++)
        kit_release(&k, 1, i);
    kit_wait(&k, 100 * KIT_RETRY_NS);
    kit_check_free(&k);
    kit_free(&k);
}

int main(void)
{
    check_readers_at_the_agent();
    check_workflows();
    check_local_handover();
    check_try();
    check_convert();
    check_priority();
    check_dead_session();
    return 0;
}
