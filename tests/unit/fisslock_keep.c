/* SPDX-License-Identifier: Apache-2.0 */
/* Agents that stay: when they do, that they then cost no packet, how others get them, what their tokens are, and what becomes of
 * them when there are too many, when the host goes, and when it is lost. */
#include "tests/unit/fisslock_kit.h"

#include <errno.h>

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE

static struct kit k;

#define PACKETS(action) (k.delivered = 0, (void)(action), k.delivered)

static void cycle(unsigned host, enum pawl_mode mode)
{
    kit_acquire(&k, host, 0, mode);
    CHECK(kit_holds(&k, host, 0));
    kit_release(&k, host, 0);
}

/* Until the agent stays there. */
static void settle(unsigned host)
{
    for (unsigned i = 0; i < 8; i++)
        cycle(host, X);
    CHECK_EQ(PACKETS(cycle(host, X)), 0);
}

static int at_once(unsigned host, uint32_t request, enum pawl_mode mode, uint64_t *token)
{
    const struct packet_ask ask = {.request = request, .port = 9, .mode = mode, .index = 5};
    struct packet_answer answer;
    int rc = fisslock_local_acquire(k.host[host], &ask, k.now, &answer);
    if (!rc)
        *token = answer.token;
    return rc;
}

/* The first comes from the decider and goes back; so do the second and the third, which show that it is always the same host. */
static void check_habit(void)
{
    kit_init(&k, 3, 4, FISSLOCK_KEEP);
    CHECK_EQ(PACKETS(cycle(1, X)), 4);
    CHECK_EQ(PACKETS(cycle(1, X)), 4);
    CHECK_EQ(PACKETS(cycle(1, X)), 2); /* stays from now on */
    CHECK_EQ(PACKETS(cycle(1, X)), 0);
    CHECK_EQ(PACKETS(cycle(1, S)), 0);
    CHECK(kit_word(&k) & FISSION_WORD_HELD);
    /* Where hosts take turns none stays. */
    kit_free(&k);
    kit_init(&k, 3, 4, FISSLOCK_KEEP);
    for (unsigned i = 0; i < 10; i++)
        CHECK_EQ(PACKETS(cycle(1 + i % 2, X)), 4);
    kit_check_free(&k);
    kit_free(&k);
}

/* Another host: to the decider, to the agent, and with it back over the decider; an acknowledgement. */
static void check_taken(void)
{
    kit_init(&k, 3, 4, FISSLOCK_KEEP);
    settle(1);
    CHECK_EQ(PACKETS(kit_acquire(&k, 2, 0, X)), 2 + 2 + 2);
    CHECK(kit_holds(&k, 2, 0));
    CHECK_EQ(fission_word_machine(kit_word(&k)), 2);
    kit_acquire(&k, 1, 0, X);
    CHECK(!kit_holds(&k, 1, 0));
    kit_release(&k, 2, 0);
    CHECK(kit_holds(&k, 1, 0));
    kit_release(&k, 1, 0);
    settle(1); /* one of another does not end a habit */
    kit_acquire(&k, 3, 0, S);
    CHECK(kit_holds(&k, 3, 0));
    kit_acquire(&k, 2, 1, S);
    CHECK(kit_holds(&k, 2, 1));
    kit_release(&k, 3, 0);
    kit_release(&k, 2, 1);
    kit_check_free(&k);
    kit_free(&k);
}

/* A lock whose agent stays, but which no client holds, is granted to a try from any host; one that is held is not. */
static void check_try(void)
{
    kit_init(&k, 3, 4, FISSLOCK_KEEP);
    settle(1);
    kit_ask(&k, 2, 0, X, true);
    kit_run(&k);
    CHECK(kit_holds(&k, 2, 0));
    kit_ask(&k, 1, 0, X, true);
    kit_run(&k);
    CHECK(!kit_holds(&k, 1, 0) && fisslock_idle(k.host[1], 0));
    kit_release(&k, 2, 0);
    settle(1);
    kit_acquire(&k, 1, 1, S);
    kit_ask(&k, 2, 0, S, true);
    kit_run(&k);
    CHECK(fisslock_idle(k.host[2], 0));
    kit_release(&k, 1, 1);
    kit_free(&k);
}

/* Tokens rise over all of it, by the short way, the long one, and for others. */
static void check_tokens(void)
{
    uint64_t last = 0, token = 0, other = 0;
    kit_init(&k, 3, 4, FISSLOCK_KEEP);
    settle(1);
    for (unsigned i = 0; i < 3 * TOKEN_GRANTS_MAX; i++) {
        if (at_once(1, 0, X, &token)) {
            kit_acquire(&k, 1, 0, X);
            token = kit_token(&k, 1, 0);
        }
        CHECK(token > last);
        last = token;
        if (i % 1000 == 0 || fisslock_local_release(k.host[1], 0, k.now))
            kit_release(&k, 1, 0);
    }
    CHECK_EQ(at_once(1, 0, S, &token), 0);
    CHECK_EQ(at_once(1, 1, S, &other), 0);
    CHECK(token > last && other > last);
    CHECK_EQ(at_once(1, 2, X, &token), -EAGAIN);
    last = max_u64(token, other);
    kit_acquire(&k, 2, 0, X); /* waits; from now on nothing is had at once */
    CHECK_EQ(at_once(1, 2, S, &token), -EAGAIN);
    CHECK_EQ(fisslock_local_release(k.host[1], 0, k.now), -EAGAIN);
    kit_release(&k, 1, 0);
    kit_release(&k, 1, 1);
    CHECK(kit_holds(&k, 2, 0) && kit_token(&k, 2, 0) > last);
    kit_release(&k, 2, 0);
    kit_free(&k);
}

/* Readers of the host by an exclusive tenure, and one of another: they share it. */
static void check_readers(void)
{
    kit_init(&k, 3, 4, FISSLOCK_KEEP);
    settle(1);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    CHECK(kit_holds(&k, 1, 0) && kit_holds(&k, 2, 0));
    kit_acquire(&k, 3, 0, X);
    kit_release(&k, 1, 0);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 2, 0);
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    kit_free(&k);
}

/* No more stay than there is room for: the oldest goes. */
static void check_room(void)
{
    kit_init(&k, 2, 4, FISSLOCK_KEEP | FISSLOCK_PLACED);
    struct fisslock_host *h = k.host[1];
    h->kept_max = 3;
    for (uint64_t lock = 0; lock < 8; lock++) {
        const struct packet_ask ask = {.request = 0, .port = 9, .mode = X, .index = lock};
        CHECK(fisslock_acquire(h, &ask, k.now, &k.out) >= 0);
        kit_flush(&k, false);
        kit_run(&k);
        kit_release(&k, 1, 0);
    }
    CHECK_EQ(h->chain[CHAIN_KEPT].count, 3);
    CHECK_EQ(h->agents_used, 3);
    for (uint64_t lock = 0; lock < 8; lock++)
        CHECK_EQ(!!(fisslock_switch_word(k.decider, lock) & FISSION_WORD_HELD), lock >= 5);
    /* Placed: never at another's home. */
    const struct packet_ask ask = {.request = 0, .port = 9, .mode = X, .index = 9};
    CHECK(fisslock_acquire(h, &ask, k.now, &k.out) >= 0);
    kit_flush(&k, false);
    kit_run(&k);
    kit_release(&k, 1, 0);
    CHECK(!(fisslock_switch_word(k.decider, 9) & FISSION_WORD_HELD));
    kit_free(&k);
}

/* When a host leaves, the next host that asks gets its agents at once; when it is lost, after its lease is over. */
static void check_gone(bool says_so)
{
    const uint64_t lease = 10 * NS_PER_MS;
    kit_init_leased(&k, 3, 4, FISSLOCK_KEEP, lease);
    kit_wait(&k, NS_PER_MS);
    settle(1);
    kit_acquire(&k, 2, 1, S); /* takes it; then its host is the one that goes, and another holds by its agent */
    kit_acquire(&k, 3, 0, S);
    CHECK(kit_holds(&k, 2, 1) && kit_holds(&k, 3, 0));
    kit_release(&k, 2, 1);
    CHECK_EQ(fission_word_machine(kit_word(&k)), 2);
    if (says_so) {
        fisslock_leave(k.host[2], k.now, &k.out);
        kit_flush(&k, false);
        kit_run(&k);
    }
    k.dead[2] = true;
    uint64_t begin = k.now;
    kit_ask(&k, 1, 0, X, false);
    kit_run(&k);
    for (unsigned i = 0; i < 100 && fission_word_machine(kit_word(&k)) == 2; i++)
        kit_wait(&k, NS_PER_MS / 2);
    CHECK(says_so ? k.now - begin < lease / 2 : k.now - begin >= lease / 2);
    kit_wait(&k, 5 * NS_PER_MS);
    CHECK(!kit_holds(&k, 1, 0) && kit_holds(&k, 3, 0)); /* the client that holds by an agent that was left keeps its hold */
    kit_release(&k, 3, 0);
    kit_wait(&k, 5 * NS_PER_MS);
    CHECK(kit_holds(&k, 1, 0));
    kit_release(&k, 1, 0);
    kit_free(&k);
}

int main(void)
{
    check_habit();
    check_taken();
    check_try();
    check_tokens();
    check_readers();
    check_room();
    check_gone(true);
    check_gone(false);
    return 0;
}
