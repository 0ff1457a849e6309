/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of FissLock that are altered on their way, so that their head is right and what follows it cannot be: entries of a queue,
 * of a census and of a report, and answers that fit no request. Each is dropped and counted, and when packets are right again the
 * lock is given to those who wait for it. */
#include "tests/unit/fisslock_kit.h"

#include <errno.h>

#define S PAWL_SHARED
#define X PAWL_EXCLUSIVE
#define LEASE (200 * KIT_RETRY_NS)
#define HEALS (100 * KIT_RETRY_NS)
#define NOBODY 99 /* a machine that is not in the rack */

static struct kit k;
static unsigned forged; /* how many packets were */

/* ---- ways to alter an entry ---- */

static void wrong_mode(struct fission_entry *e)
{
    e->mode = FISSION_PLACE + 1;
}

static void no_limit(struct fission_entry *e)
{
    e->mode = FISSION_PLACE;
    e->inca = 0;
}

static void large_limit(struct fission_entry *e)
{
    e->mode = FISSION_PLACE;
    e->inca = FISSION_LIMIT_MAX + 1;
}

static void of_switch(struct fission_entry *e)
{
    e->client.machine = MACHINE_SWITCH;
}

static void of_nobody(struct fission_entry *e)
{
    e->client.machine = NOBODY;
}

static void (*const ways[])(struct fission_entry *) = {wrong_mode, no_limit, large_limit, of_switch, of_nobody};
static void (*alter)(struct fission_entry *);

static void forge_entries(struct fission_packet *p, unsigned from)
{
    struct fission_entry *entries = (struct fission_entry *)(p + 1);
    for (unsigned i = from; i < p->count; i++, forged++)
        alter(&entries[i]);
}

/* ---- racks ---- */

static void begin(unsigned hosts)
{
    forged = 0;
    kit_init_leased(&k, hosts, 8, 0, LEASE);
    kit_wait(&k, 2 * KIT_RETRY_NS);
}

static uint64_t bad_of(unsigned host)
{
    return fisslock_host_drops(k.host[host]).bad;
}

static void end(void)
{
    k.forge = NULL;
    kit_wait(&k, 2 * LEASE);
    kit_acquire(&k, 1, 7, X);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 7));
    kit_release(&k, 1, 7);
    kit_wait(&k, HEALS);
    kit_check_free(&k);
    kit_free(&k);
}

/* ---- entries ---- */

static void forge_queue(struct fission_packet *p, bool passed)
{
    if (passed && p->flags & FISSION_AGENT && p->count && !forged)
        forge_entries(p, 0);
}

/* The agent moves to host 2 with the request of host 3 in its queue, which host 2 cannot read. Host 3 asks again. */
static void queue_of_agent(void)
{
    begin(3);
    kit_acquire(&k, 1, 0, X);
    kit_acquire(&k, 2, 0, X);
    kit_acquire(&k, 3, 0, X);
    k.forge = forge_queue;
    kit_release(&k, 1, 0);
    CHECK_EQ(forged, 1);
    CHECK(kit_holds(&k, 2, 0));
    CHECK_EQ(bad_of(2), 1);
    k.forge = NULL;
    kit_release(&k, 2, 0);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 3, 0));
    kit_release(&k, 3, 0);
    end();
}

static void forge_census(struct fission_packet *p, bool passed)
{
    if (passed && p->head.type == FISSION_ANSWER && p->head.from.machine == 2 && p->count)
        forge_entries(p, 0);
}

/* Host 1 asks for readers from before the switch lost its state, and cannot read the answer of host 2. */
static void census(void)
{
    begin(2);
    kit_acquire(&k, 1, 0, S);
    kit_acquire(&k, 2, 0, S);
    k.queued = k.kept = 0;
    fisslock_switch_init(k.decider, &k.config, 2, k.now);
    k.forge = forge_census;
    kit_wait(&k, HEALS);
    kit_release(&k, 1, 0);
    kit_wait(&k, HEALS);
    CHECK(forged);
    CHECK(bad_of(1) > 0);
    k.forge = NULL;
    kit_release(&k, 2, 0);
    end();
}

static void forge_report(struct fission_packet *p, bool passed)
{
    if (p->head.type == FISSION_REPORT && p->count)
        forge_entries(p, 0);
}

/* A report of a lock that there is not, or with a mode that there is not. The lock stays free, and its holder is told so when its
 * session is over. */
static void of_no_lock(struct fission_entry *e)
{
    e->nonce = 1000;
}

static void no_mode(struct fission_entry *e)
{
    e->mode = 0;
}

static void reports(bool spilled)
{
    forged = 0;
    if (spilled)
        kit_init_spilled(&k, 2, 0, LEASE, 3); /* lock 5 is a server's */
    else
        kit_init_leased(&k, 2, 8, 0, LEASE);
    kit_wait(&k, HEALS);
    kit_acquire(&k, 1, 0, X);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 1, 0));
    k.queued = k.kept = 0;
    fisslock_switch_init(k.decider, &k.config, 2, k.now);
    if (spilled)
        fisslock_server_init(k.server, &k.config, 1, 2, true, k.now);
    k.forge = forge_report;
    kit_wait(&k, HEALS);
    CHECK(forged);
    k.forge = NULL;
    kit_wait(&k, 4 * LEASE); /* nobody says that it holds the lock */
    kit_acquire(&k, 2, 0, X);
    kit_wait(&k, HEALS);
    CHECK(kit_holds(&k, 2, 0));
    kit_free(&k);
}

/* ---- answers ---- */

static void forge_done(struct fission_packet *p, bool passed)
{
    if (passed && p->head.type == FISSION_FREE && p->flags & FISSION_DONE && !forged) {
        p->flags &= (uint16_t)~FISSION_DONE;
        forged++;
    }
}

/* The switch's answer to FREE says neither that the tenure is over nor that it is not. The host asks again. */
static void free_without_answer(void)
{
    begin(2);
    kit_acquire(&k, 1, 0, X);
    k.forge = forge_done;
    kit_release(&k, 1, 0);
    CHECK_EQ(forged, 1);
    CHECK_EQ(((struct fisslock_host *)k.host[1])->agents_used, 1);
    kit_wait(&k, HEALS);
    CHECK_EQ(((struct fisslock_host *)k.host[1])->agents_used, 0);
    end();
}

static void forge_refusal(struct fission_packet *p, bool passed)
{
    if (passed && p->head.type == FISSION_REFUSED && !forged) {
        p->head.type = FISSION_ACK;
        forged++;
    }
}

/* An ACK for a request that waits says nothing: the client has not released the lock. */
static void ack_of_waiter(void)
{
    struct packet_answer answer;
    begin(2);
    kit_acquire(&k, 1, 0, X);
    k.forge = forge_refusal;
    kit_ask(&k, 2, 0, X, true);
    kit_run(&k);
    CHECK_EQ(forged, 1);
    CHECK(fisslock_outcome(k.host[2], 0, &answer) != 0);
    kit_wait(&k, HEALS); /* the client asks again, and is refused */
    CHECK_EQ(fisslock_outcome(k.host[2], 0, &answer), 0);
    CHECK_EQ(answer.result, -PAWL_EHELD);
    kit_release(&k, 1, 0);
    end();
}

int main(void)
{
    for (size_t i = 0; i < countof(ways); i++) {
        alter = ways[i];
        queue_of_agent();
        census();
    }
    static void (*const of_reports[])(struct fission_entry *) = {wrong_mode, no_mode, of_no_lock};
    for (size_t i = 0; i < countof(of_reports); i++) {
        alter = of_reports[i];
        reports(false);
        reports(true);
    }
    free_without_answer();
    ack_of_waiter();
    return 0;
}
