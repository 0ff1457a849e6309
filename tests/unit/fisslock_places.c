/* SPDX-License-Identifier: Apache-2.0 */
/* Semaphores of FissLock (I25), step by step: places of several hosts, readers beside them, agents and deciders that are lost,
 * agents that move, hosts that do not hear. */
#include "tests/unit/fisslock_kit.h"

#include <errno.h>

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define LEASE (200 * KIT_RETRY_NS)
#define HEALS (100 * KIT_RETRY_NS)

enum { GOES, KEPT, LOST };

static struct kit k;

static void begin(unsigned hosts)
{
    kit_init_leased(&k, hosts, 8, 0, LEASE);
    kit_wait(&k, 2 * KIT_RETRY_NS);
}

static void end(void)
{
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

static void place_ask(unsigned host, uint32_t request, uint16_t limit, bool try)
{
    struct packet_ask ask = {
        .request = request, .port = (uint16_t)(2 + request), .mode = S, .index = 5, .limit = limit, .try = try};
    CHECK(fisslock_acquire(k.host[host], &ask, k.now, &k.out) >= 0);
    kit_flush(&k, false);
    kit_run(&k);
}

static void place(unsigned host, uint32_t request, uint16_t limit)
{
    place_ask(host, request, limit, false);
}

static bool waits(unsigned host, uint32_t request)
{
    struct packet_answer answer;
    return fisslock_outcome(k.host[host], request, &answer) == -EINPROGRESS;
}

static int result(unsigned host, uint32_t request)
{
    struct packet_answer answer;
    CHECK_EQ(fisslock_outcome(k.host[host], request, &answer), 0);
    return answer.result;
}

static bool is_closed(void)
{
    return kit_word(&k) & FISSION_WORD_STARVES;
}

/* Three hosts, two places. A reader takes one, too, and the decider does not let it in. */
static void counts(void)
{
    begin(3);
    place(1, 0, 2);
    CHECK(kit_holds(&k, 1, 0) && is_closed());
    kit_acquire(&k, 2, 0, S);
    CHECK(kit_holds(&k, 2, 0));
    place(3, 0, 2);
    place_ask(2, 1, 2, true);
    CHECK(waits(3, 0));
    CHECK_EQ(result(2, 1), -PAWL_EHELD);
    kit_ask(&k, 3, 1, S, true);
    kit_run(&k);
    CHECK_EQ(result(3, 1), -PAWL_EHELD);
    kit_release(&k, 1, 0); /* the agent's own host: the agent stays, since others hold */
    CHECK(kit_holds(&k, 3, 0));
    CHECK_EQ(kit_convert(&k, 3, 0, X), -PAWL_ENOTSUP);
    kit_release(&k, 2, 0);
    kit_release(&k, 3, 0);
    end();
}

/* Another limit is refused, at once or when its turn comes; so is a place where readers were first. */
static void refuses(void)
{
    begin(3);
    place(1, 0, 2);
    place(2, 0, 3);
    place(1, 1, 1);
    CHECK_EQ(result(2, 0), -PAWL_ELIMITS);
    CHECK_EQ(result(1, 1), -PAWL_ELIMITS);
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    kit_acquire(&k, 1, 0, X); /* two wait behind a writer; the first one has the say */
    place(2, 0, 3);
    place(3, 0, 4);
    CHECK(waits(2, 0) && waits(3, 0));
    kit_release(&k, 1, 0);
    CHECK(kit_holds(&k, 2, 0) && is_closed());
    CHECK_EQ(result(3, 0), -PAWL_ELIMITS);
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    kit_acquire(&k, 2, 0, S);
    CHECK(!is_closed());
    place(3, 0, 1);
    CHECK_EQ(result(3, 0), -PAWL_ELIMITS);
    kit_release(&k, 2, 0);
    end();
}

static int lose_refusals(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_REFUSED ? LOST : GOES;
}

/* A refusal that is lost comes again. */
static void refuses_again(void)
{
    begin(2);
    place(1, 0, 2);
    k.fate = lose_refusals;
    place(2, 0, 1);
    CHECK(waits(2, 0));
    k.fate = NULL;
    kit_wait(&k, HEALS);
    CHECK_EQ(result(2, 0), -PAWL_ELIMITS);
    kit_release(&k, 1, 0);
    end();
}

/* The agent's host is lost. Two hosts hold places, and only one is free: the next agent must find them before it grants. */
static void taken_over(void)
{
    begin(4);
    place(1, 0, 3);
    place(2, 0, 3);
    place(3, 0, 3);
    kit_release(&k, 1, 0);
    CHECK_EQ(fission_word_machine(kit_word(&k)), 1);
    k.dead[1] = true;
    kit_wait(&k, 2 * LEASE);
    for (uint32_t i = 0; i < 3; i++)
        place(4, i, 3);
    kit_acquire(&k, 4, 3, S);
    kit_wait(&k, HEALS);
    CHECK(is_closed());
    unsigned held = 0;
    for (uint32_t i = 0; i < 4; i++)
        held += kit_holds(&k, 4, i);
    CHECK_EQ(held, 1);
    CHECK(kit_holds(&k, 2, 0) && kit_holds(&k, 3, 0));
    place(4, 4, 2);
    CHECK_EQ(result(4, 4), -PAWL_ELIMITS);
    for (uint32_t i = 0; i < 4; i++)
        if (!kit_holds(&k, 4, i))
            kit_give_up(&k, 4, i);
    for (uint32_t i = 0; i < 4; i++)
        if (kit_holds(&k, 4, i))
            kit_release(&k, 4, i);
    kit_release(&k, 2, 0);
    kit_release(&k, 3, 0);
    kit_wait(&k, HEALS);
    CHECK(!(kit_word(&k) & FISSION_WORD_HELD));
    kit_free(&k);
}

/* The decider loses its state. A reader that holds a place may report first: the tenure is closed all the same. */
static void rebuilt(void)
{
    begin(4);
    place(2, 0, 2);
    kit_acquire(&k, 1, 0, S);
    k.queued = k.kept = 0;
    fisslock_switch_init(k.decider, &k.config, 2, k.now);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0) && kit_holds(&k, 2, 0) && is_closed());
    place(3, 0, 2);
    kit_acquire(&k, 4, 0, S);
    kit_wait(&k, HEALS);
    CHECK(waits(3, 0) && waits(4, 0));
    kit_release(&k, 2, 0); /* its limit stays, as long as there is a holder */
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 3, 0) != kit_holds(&k, 4, 0));
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    kit_release(&k, 3, 0);
    kit_release(&k, 4, 0);
    end();
}

static int lose_agents(const struct fission_packet *p, bool passed)
{
    return passed && p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT) ? LOST : GOES;
}

/* The agent comes with the first place, and the packet is lost: its host adopts the tenure. */
static void adopted(void)
{
    begin(2);
    k.fate = lose_agents;
    place(1, 0, 1);
    place(1, 1, 1);
    k.fate = NULL;
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0) != kit_holds(&k, 1, 1) && is_closed());
    uint32_t holder = kit_holds(&k, 1, 0) ? 0 : 1;
    place(2, 0, 1);
    CHECK(waits(2, 0));
    kit_release(&k, 1, holder);
    CHECK(kit_holds(&k, 1, 1 - holder) && waits(2, 0));
    kit_release(&k, 1, 1 - holder);
    CHECK(kit_holds(&k, 2, 0));
    kit_release(&k, 2, 0);
    end();
}

/* The queue goes with the agent, limits and all. */
static void moves(void)
{
    begin(4);
    kit_acquire(&k, 1, 0, X);
    kit_acquire(&k, 2, 0, X);
    place(3, 0, 1);
    place(4, 0, 1);
    kit_release(&k, 1, 0);
    CHECK(kit_holds(&k, 2, 0) && waits(3, 0));
    kit_release(&k, 2, 0);
    CHECK(kit_holds(&k, 3, 0) && waits(4, 0));
    kit_release(&k, 3, 0);
    CHECK(kit_holds(&k, 4, 0));
    kit_release(&k, 4, 0);
    end();
}

/* Agents that stay: the short way does not lead into a semaphore. */
static void stays(void)
{
    struct packet_ask ask = {.request = 3, .port = 5, .mode = S, .index = 5};
    struct packet_answer answer;
    kit_init_leased(&k, 2, 8, FISSLOCK_KEEP | FISSLOCK_PLACED, LEASE);
    kit_wait(&k, 2 * KIT_RETRY_NS);
    for (unsigned host = 1; host <= 2; host++) {
        place(host, 0, 1);
        CHECK(kit_holds(&k, host, 0));
        CHECK_EQ(fisslock_local_acquire(k.host[host], &ask, k.now, &answer), -EAGAIN);
        kit_release(&k, host, 0);
    }
    kit_wait(&k, HEALS);
    kit_free(&k);
}

/* Packets that are not right. */
static void bad_packets(void)
{
    const struct fission_rules rules = {.space = 7, .life = 1, .machines = 2, .locks = 16};
    struct fission_packet p = {
        .head =
            {.version = PACKET_VERSION, .family = PACKET_FISSION, .type = FISSION_ACQUIRE, .space = 7, .epoch = 1, .from = {1, 2}},
        .client = {1, 2},
        .flags = FISSION_RETRY,
        .inca = 1,
        .mode = FISSION_PLACE};
    p.head.to.machine = MACHINE_SWITCH;
    CHECK_EQ(fission_verify(&p, sizeof p, &rules), FISSION_FINE);
    p.inca = FISSION_LIMIT_MAX + 1;
    CHECK_EQ(fission_verify(&p, sizeof p, &rules), FISSION_BAD);
    p.inca = 0;
    CHECK_EQ(fission_verify(&p, sizeof p, &rules), FISSION_BAD);
    p.inca = 1;
    p.flags = 0; /* the decider would count it */
    CHECK_EQ(fission_verify(&p, sizeof p, &rules), FISSION_BAD);
    p.flags = FISSION_RETRY | FISSION_COPY;
    CHECK_EQ(fission_verify(&p, sizeof p, &rules), FISSION_BAD);
    p.flags = FISSION_RETRY;
    p.head.type = FISSION_GRANT;
    CHECK_EQ(fission_verify(&p, sizeof p, &rules), FISSION_BAD);
}

int main(void)
{
    counts();
    refuses();
    refuses_again();
    taken_over();
    rebuilt();
    adopted();
    moves();
    stays();
    bad_packets();
    return 0;
}
