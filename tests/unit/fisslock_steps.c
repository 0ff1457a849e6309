/* SPDX-License-Identifier: Apache-2.0 */
/* Single answers of FissLock's hosts and servers, packet by packet. In campaigns another packet makes good for most of them when
 * they are wrong, only later. */
#include "designs/fisslock/spill.h"
#include "tests/unit/fisslock_kit.h"

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define LOCK 5 /* kit_ask's */

enum { GOES, KEPT, LOST };

static struct kit k;

static struct fisslock_host *host(unsigned i)
{
    return k.host[i];
}

static struct fission_packet *kept(unsigned i)
{
    CHECK(i < k.kept);
    return (struct fission_packet *)(void *)k.keep[i].data;
}

/* The only packet that the host sends when it gets this one. */
static const struct fission_packet *answer_of(unsigned to, const struct fission_packet *p)
{
    outbox_clear(&k.out);
    fisslock_packet(k.host[to], p, sizeof *p, k.now, &k.out);
    CHECK_EQ(k.out.packets, 1);
    return (const void *)outbox_packet(&k.out, 0);
}

/* A packet of host 1 for that host, made of another one. */
static struct fission_packet from_first(const struct fission_packet *like, enum fission_type type, unsigned to)
{
    struct fission_packet p = *like;
    p.head.type = (uint8_t)type;
    p.head.from = (struct place){1, PORT_POOL};
    p.head.to = (struct place){(uint16_t)to, PORT_POOL};
    p.flags = p.count = p.hops = 0;
    return p;
}

/* ---- shared grants by the decider ---- */

static int keep_grants_lose_copies(const struct fission_packet *p, bool passed)
{
    return p->flags & FISSION_COPY ? LOST : passed && p->head.type == FISSION_GRANT ? KEPT : GOES;
}

/* After a census a host takes no GRANT by an ordinal that it did not name: the agent counts on that. */
static void census_bars_grant(void)
{
    kit_init(&k, 2, 2, 0);
    kit_acquire(&k, 1, 0, S);
    k.fate = keep_grants_lose_copies;
    kit_acquire(&k, 2, 0, S);
    CHECK_EQ(k.kept, 1);
    struct fission_packet grant = *kept(0), census = from_first(&grant, FISSION_CENSUS, 2);
    CHECK_EQ(grant.inca, 2);
    census.head.nonce = 1;
    census.inca = 2;  /* from this ordinal */
    census.stamp = 2; /* to this one */
    const struct fission_packet *answer = answer_of(2, &census);
    CHECK(answer->head.type == FISSION_ANSWER && !answer->count);
    kit_let_go(&k);
    CHECK(!kit_holds(&k, 2, 0));
    outbox_clear(&k.out);
    kit_wait(&k, 10 * KIT_RETRY_NS); /* it asks again, and gets another */
    CHECK(kit_holds(&k, 2, 0));
    kit_free(&k);
}

/* A GRANT for the agent's own host, whose copy for the agent was lost: the agent knows the holder, and its ordinal. */
static void agent_learns_from_grant(void)
{
    kit_init(&k, 2, 2, 0);
    k.fate = keep_grants_lose_copies;
    kit_ask(&k, 1, 0, S, false);
    kit_ask(&k, 1, 1, S, false); /* before the first answer has come */
    kit_run(&k);
    CHECK_EQ(k.kept, 2);
    kit_let_go(&k);
    CHECK(kit_holds(&k, 1, 0) && kit_holds(&k, 1, 1));
    const struct agent *a = pool_agent_of(host(1), LOCK);
    CHECK(a && a->holders.count == 2);
    CHECK_EQ(a->known, 2);
    kit_free(&k);
}

/* ---- packets for an agent that is not there ---- */

static int keep_forwarded(const struct fission_packet *p, bool passed)
{
    return passed && p->head.type == FISSION_ACQUIRE ? KEPT : GOES;
}

/* Requests go back, to be routed again. TAKE does not: the host asks whether the agent is here. */
static void not_here(void)
{
    kit_init(&k, 3, 2, 0);
    kit_acquire(&k, 1, 0, X);
    k.fate = keep_forwarded;
    kit_acquire(&k, 2, 0, X);
    CHECK_EQ(k.kept, 1);
    struct fission_packet p = *kept(0);
    p.head.to.machine = 3;
    const struct fission_packet *back = answer_of(3, &p);
    CHECK(back->head.type == FISSION_ACQUIRE && back->flags & FISSION_BOUNCED && back->bouncer == 3);
    CHECK(back->head.nonce == p.head.nonce && back->hops == p.hops + 1);
    p.head.type = FISSION_TAKE;
    CHECK_EQ(answer_of(3, &p)->head.type, FISSION_LOOK);
    kit_free(&k);
}

static int keep_takes(const struct fission_packet *p, bool passed)
{
    return p->head.type == FISSION_TAKE ? KEPT : GOES;
}

/* A host that has lost its memory takes the tenure that the decider says it has. The stamp tells whether a tenure has ended here
 * when the answer comes. */
static void take_has_stamp(void)
{
    kit_init(&k, 2, 2, 0);
    kit_acquire(&k, 1, 0, X);
    kit_host_again(&k, 1, 2);
    *host_ends(host(1), LOCK) = 3;
    k.fate = keep_takes;
    kit_acquire(&k, 1, 0, X);
    CHECK(k.kept >= 1);
    CHECK_EQ(kept(0)->stamp, 3);
    CHECK(kept(0)->flags & FISSION_BOUNCED && kept(0)->bouncer == 1);
    kit_let_go(&k);
    kit_wait(&k, 10 * KIT_RETRY_NS);
    CHECK(kit_holds(&k, 1, 0));
    kit_free(&k);
}

/* ---- requests that do not wait ---- */

/* The agent asks after an upgrade that was given up. The hold stays, so only the upgrade is taken back. */
static void no_upgrade(void)
{
    kit_init(&k, 2, 2, 0);
    kit_acquire(&k, 1, 0, S);
    k.fate = keep_grants_lose_copies;
    kit_acquire(&k, 2, 0, S);
    struct fission_packet ask = from_first(kept(0), FISSION_ASK, 2);
    kit_let_go(&k);
    CHECK(kit_holds(&k, 2, 0));
    const struct fission_packet *p = answer_of(2, &ask);
    CHECK_EQ(p->head.type, FISSION_RELEASE);
    CHECK_EQ(p->flags, FISSION_UPGRADE | FISSION_DONE);
    CHECK(p->term == ask.term && p->inca == ask.inca && p->client.machine == 2);
    CHECK(kit_holds(&k, 2, 0));
    kit_free(&k);
}

/* ---- a server's hot locks ---- */

#define HOT_LOCKS 256

static unsigned heats, heat_entries; /* packets that told of hot locks, and the most in one of them */

static int count_heats(const struct fission_packet *p, bool passed)
{
    if (p->head.type == SPILL_HEAT) {
        heats++;
        heat_entries = p->count > heat_entries ? p->count : heat_entries;
    }
    return GOES;
}

/* As soon as there are as many as a packet has room for. */
static void tells_hot_locks(void)
{
    kit_init_leased(&k, 1, 2, FISSLOCK_RESTLESS, 1000 * KIT_RETRY_NS);
    k.config.locks = HOT_LOCKS;
    k.config.switch_locks = 1;
    k.config.servers = 1;
    k.config.server[0] = 1;
    free(k.decider);
    free(k.host[1]);
    k.decider = calloc(1, fisslock_switch_bytes(&k.config));
    k.server = calloc(1, fisslock_server_bytes(&k.config));
    k.host[1] = calloc(1, fisslock_host_bytes(&k.config));
    CHECK(k.decider && k.server && k.host[1]);
    fisslock_switch_init(k.decider, &k.config, 1, 0);
    fisslock_server_init(k.server, &k.config, 1, 1, true, 0);
    fisslock_host_init(k.host[1], &k.config, 1, 1, 0);
    kit_wait(&k, 10 * KIT_RETRY_NS); /* until all know each other */
    heats = heat_entries = 0;
    k.fate = count_heats;
    for (uint64_t i = 1; i <= SPILL_HEAT_ENTRIES; i++) {
        const struct packet_ask ask = {.request = 0, .port = 2, .mode = X, .index = i};
        CHECK_EQ(heats, 0);
        fisslock_acquire(k.host[1], &ask, k.now, &k.out);
        kit_flush(&k, false);
        kit_run(&k);
        CHECK(kit_holds(&k, 1, 0));
        kit_release(&k, 1, 0);
    }
    CHECK_EQ(heats, 1);
    CHECK_EQ(heat_entries, SPILL_HEAT_ENTRIES);
    kit_free(&k);
}

int main(void)
{
    census_bars_grant();
    agent_learns_from_grant();
    not_here();
    take_has_stamp();
    no_upgrade();
    tells_hot_locks();
    return 0;
}
