/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics that can do more and less: each design runs on every set of capabilities that it does not refuse, sessions open where the
 * node assigns their slots, and what cannot run is refused by name. */
#include "cluster/keeper.h"
#include "lib/explain.h"
#include "tests/sim/runs.h"
#include "workbench/trial/cluster.h"

#include <errno.h>
#include <string.h>

#define SEEDS_EACH 3
#define ALL (FAB_ATOMIC128 | FAB_MASKED | FAB_CPU_ATOMIC64 | FAB_CPU_ATOMIC128 | FAB_ORDERED | FAB_WAIT)
#define LEASE (10 * NS_PER_MS)

/* Everything, nothing, each capability missing, and what real ones have. */
static const uint32_t sets[] = {
    ALL,
    0,
    ALL & ~FAB_ATOMIC128,
    ALL & ~FAB_MASKED_SWAP,
    ALL & ~FAB_MASKED_CAS,
    ALL & ~FAB_MASKED_FAA,
    ALL & ~(FAB_CPU_ATOMIC64 | FAB_CPU_ATOMIC128),
    ALL & ~FAB_CPU_ATOMIC128,
    ALL & ~FAB_ORDER_MIXED,
    ALL & ~FAB_ORDER_WRITE_AFTER_READ,
    ALL & ~FAB_WAIT,
    FAB_MASKED_CAS | FAB_MASKED_FAA | FAB_ORDER_MIXED, /* RDMA with extended atomics */
    FAB_MASKED_SWAP | FAB_ATOMIC128,                   /* libfabric over tcp */
};

static const char *const designs[] = {"word", "shiftlock", "shiftlock64", "alock", "citron", "mutex", "cas", "dslr"};

/* ---- campaigns ---- */

static void clean(const struct design *d, uint32_t caps, uint64_t seed)
{
    const struct campaign_params p = {.design = d, .faults = d->tolerates, .seed = seed, .caps = &caps};
    struct campaign_result r;
    CHECK_EQ(campaign_run(&p, &r), 0);
    if (!run_failed(&r))
        return;
    char names[256] = "none";
    for (unsigned bit = 0, len = 0; fab_cap_name(bit); bit++)
        if (caps >> bit & 1)
            len += (unsigned)snprintf(names + len, sizeof names - len, "%s%s", len ? "," : "", fab_cap_name(bit));
    CHECK_FAIL("%s: %s\n  pawl sim --design %s --seeds %" PRIu64 ":%" PRIu64 " --caps %s --trace", d->name, r.why, d->name, seed,
               seed + 1, names);
}

static void campaigns(uint64_t ns)
{
    uint64_t end = world_now(&world_real) + ns, runs = 0;
    for (uint64_t seed = 0; seed < SEEDS_EACH || world_now(&world_real) < end; seed++)
        for (size_t s = 0; s < countof(sets); s++)
            for (size_t i = 0; i < countof(designs); i++)
                if (!layout_check_caps(design_named(designs[i]), PAWL_KEYS_DENSE, sets[s])) {
                    clean(design_named(designs[i]), sets[s], seed);
                    runs++;
                }
    printf("%zu sets, %zu designs: %" PRIu64 " runs\n", countof(sets), countof(designs), runs);
    fflush(stdout);
}

/* Campaign 2 draws sets, too. */
static void drawn(void)
{
    run_campaign = CAMPAIGN_SWARM;
    struct run_sum sum = {0};
    for (size_t i = 0; i < countof(designs); i++)
        for (uint64_t seed = 0; seed < 10 * SEEDS_EACH; seed++)
            run_clean(&sum, design_named(designs[i]), design_named(designs[i])->tolerates, seed);
    run_campaign = 0;
}

/* ---- refusals ---- */

static void refused(const char *design, enum pawl_keys keys, uint32_t caps, const char *why)
{
    explain_nothing();
    CHECK_EQ(layout_check_caps(design_named(design), keys, caps), -PAWL_ENOTSUP);
    CHECK(!strcmp(explained(), why));
}

static void refusals(void)
{
    struct layout_header h;
    struct fab_ep ep = {.caps = 0};
    struct layout_params p = {
        .design = design_named("shiftlock"), .keys = PAWL_KEYS_DENSE, .capacity = 4, .sessions = 4, .holds = 4, .birth = 1};
    refused("shiftlock", PAWL_KEYS_DENSE, ALL & ~FAB_ATOMIC128,
            "the design 'shiftlock' needs a fabric with atomic128; choose the design 'shiftlock64'");
    refused("word", PAWL_KEYS_SPARSE, 0, "sparse keys of the design 'word' need a fabric with atomic128; choose dense keys");
    refused("word", PAWL_KEYS_NAMED, 0, "named keys of the design 'word' need a fabric with atomic128; choose dense keys");
    CHECK_EQ(layout_make(&p, &h), -PAWL_ENOTSUP);
    for (size_t i = 0; i < countof(designs); i++)
        CHECK_EQ(layout_check_caps(design_named(designs[i]), PAWL_KEYS_NAMED, FAB_ATOMIC128), 0);
    p.caps = FAB_ATOMIC128 | FAB_WAIT;
    CHECK_EQ(layout_make(&p, &h), 0);
    CHECK(!layout_fault(&h, h.total_bytes));
    CHECK_EQ(layout_adopt(&h, &ep), -PAWL_ENOTSUP);
    CHECK(strstr(explained(), "atomic128, wait"));
    ep.caps = ALL; /* an endpoint that could do more does what the others rely on */
    CHECK_EQ(layout_adopt(&h, &ep), 0);
    CHECK_EQ(ep.caps, p.caps);
    p.caps = 1u << FAB_CAPS; /* of a later release */
    CHECK_EQ(layout_make(&p, &h), -EINVAL);
}

/* ---- round trips, and sessions whose slots the node assigns ---- */

static struct cluster c;

static void run(const char *design, uint32_t caps, bool assigned, unsigned clients, cluster_work_fn work)
{
    const struct cluster_params p = {
        .design = design_named(design),
        .model = model_find("default"),
        .keys = PAWL_KEYS_DENSE,
        .capacity = 4,
        .clients = clients,
        .hosts = 1,
        .tasks = 1,
        .fabric_caps = caps,
        .assigned = assigned,
        .seed = 1,
        .time_max_ns = 1000 * LEASE,
        .lease_ns = LEASE,
        .work = work,
    };
    CHECK_EQ(cluster_init(&c, &p), 0);
    cluster_run(&c);
    CHECK_EQ(c.clients_done, clients);
    cluster_free(&c);
}

static unsigned trips_to_lock, trips_to_share, trips_to_unlock; /* each of a lock that was used before, */
static bool by_another;                                         /* by another session: this one does not know its entry */

static bool count_trips(struct cluster_task *t)
{
    static const enum pawl_mode modes[] = {PAWL_EXCLUSIVE, PAWL_SHARED, PAWL_EXCLUSIVE, PAWL_SHARED};
    uint64_t last = 0;
    for (size_t i = 0; i < countof(modes); i++) {
        struct hold h;
        const struct session *me = t->lockers[0].seat.me;
        if (by_another && me->design_state)
            memset(me->design_state, 0, t->lockers[0].seat.space->design->session_bytes);
        uint64_t before = t->ep->counts.round_trips;
        CHECK_EQ(locker_lock(&t->lockers[0], pawl_id(0), modes[i], DEADLINE_NEVER, &h), 0);
        uint64_t held = t->ep->counts.round_trips;
        CHECK(h.token > last);
        last = h.token;
        CHECK_EQ(locker_unlock(&t->lockers[0], &h), 0);
        if (i > 0) {
            CHECK_EQ(held - before, modes[i] == PAWL_SHARED ? trips_to_share : trips_to_lock);
            CHECK_EQ(t->ep->counts.round_trips - held, trips_to_unlock);
        }
    }
    return true;
}

static void trips(void)
{
    trips_to_lock = trips_to_share = trips_to_unlock = 1;
    run("shiftlock", ALL, false, 1, count_trips);
    run("shiftlock64", ALL, false, 1, count_trips); /* the token comes with the step into the lock */
    run("shiftlock64", ALL & ~FAB_ORDERED, false, 1, count_trips);
    run("shiftlock64", ALL & ~FAB_MASKED, false, 1, count_trips); /* the entry is as the session has left it; readers add */
    run("shiftlock64", ALL & ~(FAB_MASKED | FAB_ORDERED), false, 1, count_trips);
    trips_to_lock = 2; /* a guess that is wrong costs what a READ would; the release knows the word */
    run("shiftlock", ALL & ~FAB_MASKED, false, 1, count_trips);
    by_another = true;
    run("shiftlock64", ALL & ~FAB_MASKED, false, 1, count_trips);
    run("shiftlock64", ALL & ~(FAB_MASKED | FAB_ORDERED), false, 1, count_trips);
}

/* An answer to CONNECT that comes so late that the node's memory has another life: the slot is then another session's, and stays as
 * it is. A census that found another home there would miss the session's holds (I3). */
static void late_place(const struct cluster_task *t, const struct session_place *now)
{
    const struct cluster_session *s = &t->client->at[0];
    struct session other = {0};
    struct seat seat = s->seat;
    struct session_place late = *now;
    const struct session_params p = {
        .lease_ns = LEASE, .proof = UINT64_C(78) << 32 | 1, .home = s->session.home + 4096, .place = &late};
    const struct slot *slot = sim_fabric_peek(c.fabric, space_slot_addr(&s->space, now->slot), sizeof *slot);
    const struct slot before = *slot;
    seat.me = &other;
    late.life--;
    late.lease = lease_word(SLOT_TAKEN, lease_epoch(now->lease), lease_stamp(now->lease));
    CHECK_EQ(now->life, s->space.token_base);
    CHECK_EQ(session_open(&seat, &p), -ESTALE);
    CHECK(memcmp(slot, &before, sizeof before) == 0);
}

/* One place for each client, however often it asks; none for one that was lost. */
static bool assigning(struct cluster_task *t)
{
    struct seat *node = &c.nodes[0].care.seat;
    const uint64_t proof = UINT64_C(77) << 32 | 1, mine = (uint64_t)t->client->process->id << 32 | t->client->process->generation;
    struct session_place first, again, none;
    CHECK_EQ(session_assign(node, proof, LEASE + 1, &none), -EINVAL);
    CHECK_EQ(session_assign(node, proof, LEASE, &first), 0);
    CHECK_EQ(session_assign(node, proof, LEASE, &again), 0);
    CHECK(first.slot == again.slot && first.lease == again.lease && lease_state(first.lease) == SLOT_TAKEN);
    CHECK_EQ(session_assign(node, mine, LEASE, &again), 0); /* a CONNECT that was doubled */
    CHECK(again.slot == t->client->at[0].session.slot && lease_state(again.lease) == SLOT_LIVE);
    late_place(t, &again);
    for (uint32_t i = 2; i < c.nodes[0].care.space.slot_count; i++)
        CHECK_EQ(session_assign(node, proof + i, LEASE, &none), 0);
    CHECK_EQ(session_assign(node, proof + 1000, LEASE, &none), -PAWL_ELIMIT);
    struct slot *slot = sim_fabric_peek(c.fabric, space_slot_addr(&c.nodes[0].care.space, first.slot), sizeof *slot);
    slot->lease = lease_word(SLOT_LOST, lease_epoch(slot->lease), lease_stamp(slot->lease));
    CHECK_EQ(session_assign(node, proof, LEASE, &again), -PAWL_ELOST);
    for (unsigned i = 0; i < 6; i++) { /* those that did not move in lose their slots, and others get them */
        cluster_sleep(t, LEASE / 2);
        session_tend(node);
        CHECK(seat_lives(&t->lockers[0].seat));
    }
    CHECK_EQ(session_assign(node, proof + 1000, LEASE, &again), 0);
    struct hold h;
    CHECK_EQ(locker_lock(&t->lockers[0], pawl_id(1), PAWL_EXCLUSIVE, DEADLINE_NEVER, &h), 0);
    return true;
}

static void assigned(void)
{
    run("word", ALL, true, 1, assigning);
    run("word", ALL & ~FAB_ATOMIC128, true, 1, assigning);
}

int main(void)
{
    refusals();
    trips();
    assigned();
    drawn();
    campaigns(test_seconds() * NS_PER_S / 6);
    return 0;
}
