/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions in the simulated cluster, fault by fault and by hand. */
#include "workbench/trial/cluster.h"
#include "cluster/session.h"
#include "tests/check.h"

#include <errno.h>

#define LEASE (10 * NS_PER_MS)
#define CLIENTS 3

static struct cluster c;
static unsigned visits[CLIENTS]; /* how often a client's work was begun */
static uint64_t marks[8];        /* times that a test remembers */
static uint64_t tokens[CLIENTS];

static void begin_at(const char *what, unsigned nodes, unsigned clients, cluster_work_fn work)
{
    const struct cluster_params p = {
        .nodes = nodes,
        .design = design_find("word"),
        .model = model_find("default"),
        .keys = PAWL_KEYS_DENSE,
        .capacity = 4,
        .clients = clients,
        .hosts = 2,
        .tasks = 1,
        .fabric_caps = FAB_ATOMIC128 | FAB_ORDERED,
        .seed = 1,
        .time_max_ns = 1000 * LEASE,
        .lease_ns = LEASE,
        .work = work,
    };
    printf("%s\n", what);
    fflush(stdout);
    memset(visits, 0, sizeof visits);
    memset(marks, 0, sizeof marks);
    memset(tokens, 0, sizeof tokens);
    CHECK_EQ(cluster_init(&c, &p), 0);
}

static void begin(const char *what, unsigned clients, cluster_work_fn work)
{
    begin_at(what, 1, clients, work);
}

static struct slot *slot_at(uint32_t slot)
{
    return sim_fabric_peek(c.fabric, space_slot_addr(&c.clients[0].at[0].space, slot), sizeof(struct slot));
}

static uint64_t now(void)
{
    return sim_now(&c.sim);
}

/* All clients must finish. */
static void run(void)
{
    cluster_run(&c);
    CHECK_EQ(c.clients_done, c.params.clients);
}

static void end(void)
{
    cluster_free(&c);
}

static bool locks(struct cluster_task *t, enum pawl_mode mode, struct hold *h)
{
    int rc = locker_lock(&t->lockers[0], pawl_id(0), mode, DEADLINE_NEVER, h);
    if (rc == -PAWL_ELOST)
        return false;
    CHECK_EQ(rc, 0);
    tokens[t->client->id] = h->token;
    return true;
}

/* ---- opening, renewing, closing ---- */

static bool renewed_work(struct cluster_task *t)
{
    struct hold h;
    for (int i = 0; i < 20; i++) {
        CHECK(locks(t, i % 2 ? PAWL_SHARED : PAWL_EXCLUSIVE, &h));
        CHECK(cluster_client_valid(t->client));
        cluster_sleep(t, LEASE / 2);
        CHECK_EQ(locker_check(&t->lockers[0], &h), 0);
        CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
    }
    const struct slot *s = slot_at(t->client->at[0].session.slot);
    CHECK_EQ(lease_state(s->lease), SLOT_LIVE);
    CHECK_EQ(lease_epoch(s->lease), 1);
    CHECK_EQ(s->proof >> 32, t->client->process->id);
    visits[t->client->id]++;
    return true;
}

static void test_renewal(void)
{
    begin("opened, renewed for many leases, closed", CLIENTS, renewed_work);
    run();
    CHECK(now() > 10 * LEASE);
    CHECK_EQ(c.sessions, CLIENTS);
    CHECK_EQ(c.lost, 0);
    for (unsigned i = 0; i < CLIENTS; i++)
        CHECK_EQ(visits[i], 1);
    for (uint32_t i = 0; i < c.nodes[0].care.header.slot_count; i++)
        CHECK_EQ(lease_state(slot_at(i)->lease), SLOT_FREE);
    end();
}

/* Another task's renewal took effect long ago, and its answer is still on its way: the word is not what this task believes, and it
 * is over, too. The lease is renewed nevertheless, because no session has declared it lost. */
static bool surprised_work(struct cluster_task *t)
{
    const struct seat *seat = &t->lockers[0].seat;
    uint64_t *lease = &slot_at(seat->me->slot)->lease;
    *lease = lease_word(SLOT_LIVE, seat->me->epoch, 1);
    CHECK(seat->me->lease_copy != *lease);
    seat->me->lease_copy = lease_word(SLOT_LIVE, seat->me->epoch, 0);
    CHECK(!seat_alive(seat, world_now(seat->world)));
    CHECK(seat_lives(seat));
    CHECK(seat_alive(seat, world_now(seat->world) + LEASE / 2));
    CHECK_EQ(*lease, seat->me->lease_copy);
    *lease = lease_word(SLOT_LOST, seat->me->epoch, lease_stamp(*lease));
    seat->me->lease_copy = lease_word(SLOT_LIVE, seat->me->epoch, 0);
    CHECK(!seat_lives(seat));
    CHECK(!seat_lives(seat)); /* for good */
    visits[t->client->id]++;
    return visits[t->client->id] > 1;
}

/* A client with sessions at two nodes. The lease of the first ends while that of the second, which has run out unnoticed, is
 * renewed: both must run when the answer is yes (I1). */
static bool two_nodes_work(struct cluster_task *t)
{
    CHECK_EQ(cluster_want_session(t, 1), 0);
    const struct seat *first = &t->lockers[0].seat, *second = &t->lockers[1].seat;
    const struct seat *both[] = {first, second};
    const uint64_t stamp = (world_now(first->world) >> LEASE_STAMP_SHIFT) + 1, ends = stamp << LEASE_STAMP_SHIFT;
    cluster_sleep(t, ends - NS_PER_US - world_now(first->world)); /* less than a round trip */
    first->me->lease_copy = lease_word(SLOT_LIVE, first->me->epoch, stamp);
    second->me->lease_copy = lease_word(SLOT_LIVE, second->me->epoch, 0);
    CHECK(seat_alive(first, world_now(first->world)) && !seat_alive(second, world_now(second->world)));
    CHECK(seats_live(both, countof(both)));
    CHECK(world_now(first->world) >= ends);
    CHECK(seat_alive(first, world_now(first->world)) && seat_alive(second, world_now(second->world)));
    second->me->ended = true;
    CHECK(!seats_live(both, countof(both)));
    visits[t->client->id]++;
    return visits[t->client->id] > 1;
}

static void test_two_nodes(void)
{
    begin_at("one of two leases ends while the other is renewed", 2, 1, two_nodes_work);
    run();
    CHECK_EQ(visits[0], 2);
    end();
}

static void test_surprise(void)
{
    begin("a renewal that finds another word in the lease", 1, surprised_work);
    run();
    CHECK_EQ(visits[0], 2);
    end();
}

/* ---- paused for longer than a lease ---- */

enum { PAUSED_AT, RESUMED_AT, GRANTED_AT, CRASHED_AT };

/* Client 0 stops while it holds; the others go on without it, and it is told. */
static bool paused_work(struct cluster_task *t)
{
    struct hold h;
    unsigned id = t->client->id;
    visits[id]++;
    if (id == 0 && visits[0] == 1) {
        CHECK(locks(t, PAWL_EXCLUSIVE, &h));
        uint32_t slot = t->client->at[0].session.slot, epoch = t->client->at[0].session.epoch;
        marks[PAUSED_AT] = now();
        marks[RESUMED_AT] = now() + 10 * LEASE;
        sim_process_pause(t->client->process, marks[RESUMED_AT]);
        cluster_sleep(t, 1);
        CHECK(now() >= marks[RESUMED_AT]);
        CHECK(!cluster_client_valid(t->client));
        /* Its slot serves others by now or could: so nothing that it began may take effect any more. */
        uint64_t lease = slot_at(slot)->lease;
        CHECK(lease_state(lease) == SLOT_FREE || lease_epoch(lease) != epoch);
        CHECK_EQ(fab_write64(t->ep, space_lock_addr(t->lockers[0].seat.space, 0), 1), -FAB_EFENCED);
        CHECK_EQ(locker_check(&t->lockers[0], &h), -PAWL_ELOST);
        CHECK_EQ(locker_unlock(&t->lockers[0], &h), -PAWL_ELOST);
        return false;
    }
    if (id == 1) {
        cluster_sleep(t, LEASE);
        CHECK(locks(t, PAWL_EXCLUSIVE, &h));
        marks[GRANTED_AT] = now();
        CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
    }
    if (id == 2) /* looks after the dead meanwhile */
        cluster_sleep(t, 20 * LEASE);
    return true;
}

static void test_pause(void)
{
    begin("lost after a lease of silence, shut out, its slot free", CLIENTS, paused_work);
    run();
    CHECK_EQ(visits[0], 2);
    CHECK_EQ(c.lost, 1);
    CHECK_EQ(c.sessions, CLIENTS + 1);
    CHECK(tokens[1] > tokens[0]);
    uint64_t waited = marks[GRANTED_AT] - marks[PAUSED_AT];
    printf("  granted to the next %" PRIu64 " us after the holder stopped\n", waited / NS_PER_US);
    CHECK_BETWEEN(waited, LEASE / 2, 3 * LEASE);
    end();
}

/* A slot of a lost session is taken by the next one only after its peer was shut out, whatever the moment. */
static void watch_slots(void *arg, uint64_t tag)
{
    struct cluster_client *client = &c.clients[0];
    if (client->at[0].ep && client->process->paused_until_ns > now()) {
        const struct slot *s = slot_at(client->at[0].session.slot);
        bool passed_on = lease_state(s->lease) == SLOT_FREE || lease_epoch(s->lease) != client->at[0].session.epoch;
        if (passed_on && !marks[4])
            marks[4] = now();
        if (lease_state(s->lease) == SLOT_LOST && !marks[5])
            marks[5] = now();
    }
    sim_at_background(&c.sim, now() + 5 * NS_PER_US, watch_slots, arg, tag);
}

static void test_slot_reuse(void)
{
    begin("live, lost, shut out, free: in this order", CLIENTS, paused_work);
    sim_at_background(&c.sim, 0, watch_slots, NULL, 0);
    run();
    CHECK(marks[5] && marks[4]);
    CHECK(marks[PAUSED_AT] < marks[5] && marks[5] < marks[4]);
    CHECK(marks[5] - marks[PAUSED_AT] >= LEASE / 2);
    end();
}

/* ---- the node restarts ---- */

static void restart_server(void *arg, uint64_t tag)
{
    sim_host_restart(c.nodes[0].host);
}

static void crash_server(void *arg, uint64_t tag)
{
    marks[CRASHED_AT] = now();
    sim_host_crash(c.nodes[0].host);
    sim_at(&c.sim, now() + NS_PER_MS, restart_server, NULL, 0);
}

static bool restarted_work(struct cluster_task *t)
{
    struct hold h;
    unsigned id = t->client->id;
    visits[id]++;
    if (id == 0 && visits[0] == 1) {
        CHECK(locks(t, PAWL_EXCLUSIVE, &h));
        sim_at(&c.sim, now() + NS_PER_MS, crash_server, NULL, 0);
        while (cluster_client_valid(t->client)) { /* it still believes in its lock, and may */
            CHECK(!marks[GRANTED_AT]);
            cluster_sleep(t, NS_PER_MS / 4);
        }
        CHECK(marks[CRASHED_AT]);
        CHECK_EQ(locker_unlock(&t->lockers[0], &h), -PAWL_ELOST);
        return false;
    }
    if (id == 1) {
        cluster_sleep(t, NS_PER_MS / 2);
        if (!locks(t, PAWL_EXCLUSIVE, &h))
            return false;
        marks[GRANTED_AT] = now();
        CHECK(visits[1] > 1); /* a session of the new life */
        CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
    }
    return true;
}

static void test_restart(void)
{
    begin("a node that lost its memory waits until every lease has ended", 2, restarted_work);
    run();
    CHECK_EQ(visits[0], 2);
    CHECK(visits[1] >= 2);
    CHECK_EQ(c.nodes[0].host->births, 2);
    printf("  granted %" PRIu64 " us after the crash\n", (marks[GRANTED_AT] - marks[CRASHED_AT]) / NS_PER_US);
    CHECK(marks[GRANTED_AT] >= marks[CRASHED_AT] + NS_PER_MS + LEASE);
    CHECK(tokens[1] > tokens[0]); /* though nothing is left of the lock */
    CHECK_EQ(tokens[1] >> 32, 2);
    end();
}

int main(void)
{
    test_renewal();
    test_surprise();
    test_two_nodes();
    test_pause();
    test_slot_reuse();
    test_restart();
    return 0;
}
