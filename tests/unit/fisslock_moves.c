/* SPDX-License-Identifier: Apache-2.0 */
/* Locks for which the switch has no room, step by step: decided by a server, moved while they are held, and what becomes of them
 * when server, switch or a holder is lost. The kit's lock is number 5, which a switch with room for four does not have at first. */
#include "designs/fisslock/rebuild.h"
#include "designs/fisslock/spill.h"
#include "designs/packet/chase.h"
#include "tests/unit/fisslock_kit.h"

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define LEASE (40 * KIT_RETRY_NS)
#define ROOM 4

enum { GOES, KEPT, LOST };

static struct kit k;

static int keep_hands(const struct fission_packet *p, bool passed)
{
    return p->head.type == SPILL_HAND ? KEPT : GOES;
}

static int lose_moves(const struct fission_packet *p, bool passed)
{
    return p->head.type >= SPILL_CALL && p->head.type <= SPILL_GIVEN ? LOST : GOES;
}

static struct kit_packet give; /* the latest one that the switch sent */

static int copy_gives(const struct fission_packet *p, bool passed)
{
    if (passed && p->head.type == SPILL_GIVE) {
        give.len = sizeof *p;
        memcpy(give.data, p, sizeof *p);
    }
    return GOES;
}

static bool in_switch(void)
{
    return fisslock_switch_has(k.decider, 5);
}

static void begin(uint64_t options)
{
    kit_init_spilled(&k, 3, options, LEASE, ROOM);
    kit_wait(&k, LEASE / 4); /* leases, and a welcome */
    CHECK(!in_switch());
}

/* The server decides as the switch does. */
static void served(void)
{
    begin(0);
    kit_acquire(&k, 2, 0, S);
    kit_acquire(&k, 3, 0, S);
    CHECK(kit_holds(&k, 2, 0) && kit_holds(&k, 3, 0) && !in_switch());
    CHECK(fisslock_server_word(k.server, 5) & FISSION_WORD_HELD);
    uint64_t shared = kit_token(&k, 2, 0);
    kit_acquire(&k, 1, 0, X);
    CHECK(!kit_holds(&k, 1, 0));
    kit_release(&k, 2, 0);
    kit_release(&k, 3, 0);
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 1, 0) && kit_token(&k, 1, 0) > shared);
    kit_release(&k, 1, 0);
    kit_wait(&k, LEASE);
    CHECK(!(fisslock_server_word(k.server, 5) & FISSION_WORD_HELD));
    kit_free(&k);
}

/* It moves while it is held, into the switch, and its holder does not notice. */
static void moves_while_held(void)
{
    begin(FISSLOCK_RESTLESS);
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 2, 0);
    kit_wait(&k, LEASE / 4);
    CHECK(in_switch() && kit_holds(&k, 2, 0) && fisslock_switch_word(k.decider, 5) & FISSION_WORD_HELD);
    CHECK_EQ(fisslock_switch_moves(k.decider), 2); /* another made room */
    kit_acquire(&k, 3, 0, X);
    CHECK(!kit_holds(&k, 3, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 3, 0) && kit_token(&k, 3, 0) > token);
    kit_free(&k);
}

static unsigned gives;

static int lose_gives(const struct fission_packet *p, bool passed)
{
    bool is = p->head.type == SPILL_GIVE;
    gives += is && passed;
    return is ? LOST : GOES;
}

/* A switch that gets no answer sends a move more and more seldom: a server that is only busy would get busier by it. */
static void patient(void)
{
    begin(FISSLOCK_RESTLESS);
    k.fate = lose_gives;
    gives = 0;
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, LEASE);
    CHECK(gives > 3 && gives < LEASE / KIT_RETRY_NS / 4);
    kit_free(&k);
}

/* A word that was handed over late, when the lock has been there and back, is not the lock's. And the loss of all packets of moves
 * delays clients no longer than it lasts. */
static void late_word(void)
{
    static struct kit_packet late;
    begin(FISSLOCK_RESTLESS);
    k.fate = keep_hands;
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, LEASE / 8);
    CHECK(k.kept > 1 && !in_switch()); /* lent, and on its way; called again */
    late = k.keep[0];
    CHECK_EQ(((const struct packet_head *)(const void *)late.data)->to.machine, MACHINE_SWITCH);
    kit_let_go(&k);
    CHECK(in_switch() && kit_holds(&k, 2, 0));
    kit_release(&k, 2, 0);
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 2, 0);
    kit_deliver(&k, &late); /* says that it is held, by the first tenure */
    kit_run(&k);
    kit_release(&k, 2, 0);
    kit_wait(&k, LEASE / 4);
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, LEASE / 4);
    CHECK(kit_holds(&k, 3, 0) && kit_token(&k, 3, 0) > token);
    k.fate = lose_moves;
    kit_release(&k, 3, 0);
    kit_wait(&k, LEASE);
    k.fate = NULL;
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 2, 0));
    kit_free(&k);
}

/* The server says that it was given a lock if that is the lock's round. Else the switch would forget a lock that is not there. */
static void given_once(void)
{
    begin(FISSLOCK_RESTLESS);
    k.fate = copy_gives;
    give.len = 0;
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, LEASE / 4);
    CHECK(in_switch() && give.len); /* of the lock that made room */
    fisslock_server_packet(k.server, give.data, give.len, k.now, &k.out);
    CHECK_EQ(k.out.packets, 1);
    outbox_clear(&k.out);
    ((struct packet_head *)(void *)give.data)->nonce++;
    fisslock_server_packet(k.server, give.data, give.len, k.now, &k.out);
    CHECK_EQ(k.out.packets, 0);
    kit_free(&k);
}

/* The agent's host is lost: the switch tells the server, and the next host that asks takes over. */
static void holder_lost(void)
{
    begin(0);
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 2, 0);
    k.dead[2] = true;
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, LEASE / 2);
    CHECK(!kit_holds(&k, 3, 0));
    kit_wait(&k, 2 * LEASE);
    CHECK(kit_holds(&k, 3, 0) && kit_token(&k, 3, 0) > token);
    kit_free(&k);
}

/* The agent's host is lost while the lock is in the switch, in a cell of another number: a scan finds it there by the lock's
 * number. */
static void scanned(void)
{
    begin(FISSLOCK_RESTLESS);
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, LEASE / 4);
    CHECK(in_switch());
    k.fate = lose_moves;
    k.dead[2] = true;
    kit_wait(&k, 2 * LEASE);
    CHECK_EQ(fisslock_switch_scan(k.decider, 2, k.now, &k.out), 1);
    CHECK(!(fisslock_switch_word(k.decider, 5) & FISSION_WORD_HELD));
    CHECK_EQ(fisslock_switch_scan(k.decider, 2, k.now, &k.out), 0);
    kit_free(&k);
}

/* The server forgets, and so does the switch: the holder reports its hold to both, and keeps it; tokens go on rising. */
static void server_lost(void)
{
    begin(0);
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 2, 0);
    memset(k.server, 0, fisslock_server_bytes(&k.config));
    fisslock_server_init(k.server, &k.config, 1, 2, false, k.now);
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, LEASE / 4);
    CHECK(fisslock_server_word(k.server, 5) & FISSION_WORD_HELD); /* and not after a lease */
    kit_wait(&k, 3 * LEASE);
    CHECK(kit_holds(&k, 2, 0) && !kit_holds(&k, 3, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 3, 0) && kit_token(&k, 3, 0) > token);
    kit_free(&k);
}

/* The switch forgets: a holder by a grant of the server reports that to the server, by way of the switch, and keeps its hold. */
static void switch_lost(void)
{
    begin(0);
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 2, 0);
    fisslock_switch_init(k.decider, &k.config, 2, k.now);
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, 3 * LEASE);
    CHECK(kit_holds(&k, 2, 0) && !kit_holds(&k, 3, 0));
    kit_release(&k, 2, 0);
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 3, 0) && kit_token(&k, 3, 0) > token);
    kit_free(&k);
}

/* Both do, and the server is gone for long: the switch does not wait for it, and no other client is granted the locks it had; when
 * it is back all holds are reported anew. */
static void both_lost(void)
{
    begin(0);
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 2, 0);
    void *server = k.server;
    k.server = NULL;
    fisslock_switch_init(k.decider, &k.config, 2, k.now);
    kit_acquire(&k, 3, 0, X);
    kit_wait(&k, LEASE);
    CHECK(!fisslock_switch_rebuild(k.decider)->closed);
    kit_wait(&k, 2 * LEASE);
    CHECK(kit_holds(&k, 2, 0) && !kit_holds(&k, 3, 0));
    k.server = server;
    memset(k.server, 0, fisslock_server_bytes(&k.config));
    fisslock_server_init(k.server, &k.config, 1, 1, false, k.now); /* of a life before the switch's */
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 2, 0) && !kit_holds(&k, 3, 0));
    CHECK(fisslock_server_word(k.server, 5) & FISSION_WORD_HELD);
    kit_release(&k, 2, 0);
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 3, 0) && kit_token(&k, 3, 0) > token);
    kit_free(&k);
}

/* The next holder's host is lost after the agent was moved there, by the server, or by the switch if it has the lock. The agent
 * ends where it was, although no client wants the lock; the next request for it begins another tenure. */
static void moved_to_lost(bool by_switch)
{
    if (by_switch) {
        kit_init_leased(&k, 3, 2, 0, LEASE);
        kit_wait(&k, LEASE / 4);
    } else {
        begin(0);
    }
    kit_acquire(&k, 2, 0, X);
    uint64_t token = kit_token(&k, 2, 0);
    kit_acquire(&k, 3, 0, X);
    k.dead[3] = true;
    kit_release(&k, 2, 0);
    CHECK(pool_agent_of(k.host[2], 5)); /* on its way */
    kit_wait(&k, 4 * LEASE);
    CHECK(!pool_agent_of(k.host[2], 5)); /* I11 */
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, LEASE);
    CHECK(kit_holds(&k, 2, 0) && kit_token(&k, 2, 0) > token);
    kit_free(&k);
}

/* A probe for deadlocks has a step where other packets count their bounces: one of many steps reaches the server, too. A server
 * that has lent the lock does not return it. */
static void long_probe(void)
{
    static struct {
        struct fission_packet p;
        struct chase_step step[2 * FISSION_HOPS_MAX + 1];
    } probe;
    begin(0);
    kit_acquire(&k, 2, 0, X);
    probe.p = (struct fission_packet){.head = {.version = PACKET_VERSION,
                                               .family = PACKET_FISSION,
                                               .type = FISSION_PROBE,
                                               .space = k.config.space,
                                               .epoch = 1,
                                               .index = 5,
                                               .nonce = 1,
                                               .from = {3, PORT_POOL},
                                               .to = {MACHINE_SWITCH, 0}},
                                      .client = {3, PORT_POOL},
                                      .mode = FISSION_EXCLUSIVE,
                                      .hops = countof(probe.step),
                                      .count = countof(probe.step)};
    fisslock_switch_packet(k.decider, &probe, sizeof probe, k.now, &k.out);
    CHECK_EQ(k.out.packets, 1);
    const struct fission_packet *sent = (const void *)outbox_packet(&k.out, 0);
    CHECK(sent->head.to.port == PORT_SERVER && sent->hops == countof(probe.step));
    outbox_clear(&k.out);
    kit_free(&k);
    begin(FISSLOCK_RESTLESS);
    k.fate = keep_hands;
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, LEASE / 8);
    CHECK(k.kept && !in_switch()); /* lent, and on its way */
    fisslock_server_packet(k.server, &probe, sizeof probe, k.now, &k.out);
    CHECK_EQ(k.out.packets, 0);
    kit_free(&k);
}

int main(void)
{
    served();
    moves_while_held();
    patient();
    late_word();
    given_once();
    holder_lost();
    scanned();
    server_lost();
    switch_lost();
    both_lost();
    moved_to_lost(false);
    moved_to_lost(true);
    long_probe();
    return 0;
}
