/* SPDX-License-Identifier: Apache-2.0 */
/* Many agents of one host need a census at the same moment. A host takes one at a time: each begins when the one before it is over,
 * and not at its own agent's next time, which for agents that came together is that of all of them (seed 20041020). */
#include "tests/unit/fisslock_kit.h"

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define LEASE (200 * KIT_RETRY_NS)
#define HEALS (100 * KIT_RETRY_NS)
#define FIRST_TIME (5 * KIT_RETRY_NS) /* agents that need a census have been due once */
#define LOCKS 16                      /* of the kit */

static struct kit k;
static uint32_t life;

static void begin(uint16_t requests, uint64_t mistakes)
{
    life = 1;
    kit_mistakes = mistakes;
    kit_init_leased(&k, 2, requests, 0, LEASE);
    kit_mistakes = 0;
    kit_wait(&k, 2 * KIT_RETRY_NS);
}

static void acquire(unsigned host, uint32_t request, uint64_t index, enum pawl_mode mode)
{
    struct packet_ask ask = {.request = request, .port = 3, .mode = mode, .index = index};
    fisslock_acquire(k.host[host], &ask, k.now, &k.out);
    kit_flush(&k, false);
    kit_run(&k);
}

static unsigned held_locks(void)
{
    unsigned held = 0;
    for (uint64_t i = 0; i < LOCKS; i++)
        held += fisslock_switch_word(k.decider, i) >> 63;
    return held;
}

static void end(void)
{
    kit_wait(&k, 4 * LEASE);
    CHECK_EQ(held_locks(), 0);
    CHECK_EQ(((struct fisslock_host *)k.host[1])->chain[CHAIN_CENSUS].count, 0);
    kit_check_free(&k);
    kit_free(&k);
}

/* Host 1 holds all locks when the switch loses its state, and then releases them at once: the agent of each may have holders of
 * before on other hosts. */
static void release_all_in_doubt(void)
{
    for (uint32_t i = 0; i < LOCKS; i++)
        acquire(1, i, i, S);
    k.queued = k.kept = 0;
    fisslock_switch_init(k.decider, &k.config, ++life, k.now);
    kit_wait(&k, HEALS);
    CHECK_EQ(held_locks(), LOCKS);
    for (uint32_t i = 0; i < LOCKS; i++) {
        CHECK(kit_holds(&k, 1, i));
        kit_release(&k, 1, i);
    }
    CHECK_EQ(held_locks(), LOCKS);
}

/* Returns how many locks are not free after one time of each agent. */
static unsigned many_in_doubt(uint64_t mistakes)
{
    begin(LOCKS, mistakes);
    acquire(2, 0, 0, X); /* host 2 is one that a census must ask */
    kit_release(&k, 2, 0);
    release_all_in_doubt();
    kit_wait(&k, FIRST_TIME);
    unsigned left = held_locks();
    if (!left)
        CHECK_EQ(fisslock_counts(k.host[1])->censuses, LOCKS);
    end();
    return left;
}

static int lose_censuses(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_CENSUS ? 2 : 0;
}

/* Agents that stand in line are lost with the lease of their host, and the line with them. The next ones begin a new line. */
static void lost_in_line(void)
{
    begin(LOCKS, 0);
    release_all_in_doubt();
    k.fate = lose_censuses;
    kit_wait(&k, FIRST_TIME);
    struct fisslock_host *h = k.host[1];
    CHECK_EQ(h->chain[CHAIN_CENSUS].count, LOCKS - 1);
    k.dead[1] = true;
    kit_wait(&k, 2 * LEASE);
    k.dead[1] = false;
    k.fate = NULL;
    fisslock_rouse(h, k.now, &k.out); /* an event, at which the host finds that its lease is over */
    kit_flush(&k, false);
    CHECK_EQ(h->agents_used, 0);
    CHECK_EQ(h->chain[CHAIN_CENSUS].count, 0);
    kit_wait(&k, HEALS);
    for (uint32_t i = 0; i < LOCKS; i++)
        acquire(2, i, i, X);
    kit_wait(&k, HEALS);
    for (uint32_t i = 0; i < LOCKS; i++) {
        CHECK(kit_holds(&k, 2, i));
        kit_release(&k, 2, i);
    }
    release_all_in_doubt();
    kit_wait(&k, FIRST_TIME);
    CHECK_EQ(held_locks(), 0);
    end();
}

static int lose_shared(const struct fission_packet *p, bool passed)
{
    return passed && (p->flags & FISSION_COPY || (p->head.type == FISSION_GRANT && !(p->flags & FISSION_AGENT))) ? 2 : 0;
}

/* More ordinals are open than one census asks for: the censuses follow each other, too. */
static unsigned many_ordinals(uint64_t mistakes)
{
    enum { REQUESTS = 150 };
    begin(REQUESTS, mistakes);
    acquire(1, 0, 5, S);
    k.fate = lose_shared;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        acquire(2, i, 5, S);
        kit_give_up(&k, 2, i);
    }
    k.fate = NULL;
    CHECK_EQ(fission_word_inca(kit_word(&k)), REQUESTS + 1);
    kit_release(&k, 1, 0);
    kit_wait(&k, FIRST_TIME);
    unsigned left = held_locks();
    if (!left)
        CHECK_EQ(fisslock_counts(k.host[1])->censuses, 3);
    end();
    return left;
}

int main(void)
{
    CHECK_EQ(many_in_doubt(0), 0);
    CHECK(many_in_doubt(FISSLOCK_MISTAKE_LINE) > LOCKS / 2);
    lost_in_line();
    CHECK_EQ(many_ordinals(0), 0);
    CHECK_EQ(many_ordinals(FISSLOCK_MISTAKE_LINE), 1);
    return 0;
}
